"""Tokenizers made from GGUF metadata cut text as the models' own tokenizers do."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import octavo_native
import pytest
from tokenizers import SentencePieceBPETokenizer, Tokenizer, pre_tokenizers

from octavo.errors import ConfigError, ModelError
from octavo.modelfiles import export_tokenizer, resolve, smollm2
from octavo.modelfiles.gguf_tokenizer import tokenizer_config_from_gguf, tokenizer_from_gguf
from octavo.modelfiles.slow_tokenizer import convert_slow_tokenizer
from tests.tiny import make_llama

SHARED = Path(os.environ.get("OCTAVO_SHARED", Path(__file__).parents[4] / "shared"))

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "The quick brown fox doesn't jump; it's they'LL've I'M.",
    "  leading and trailing  ",
    "tabs\tand\nnewlines\r\n\r\n  mixed \n \n",
    "1 12 123 1234 12345 3.14159 1e-5 0x1F",
    "   7  42\n\n99",
    "naïve café résumé Ångström e\u0301",
    "日本語のテキスト と 中文 한국어",
    "Привет, мир! Ελληνικά العربية עברית हिन्दी",
    "emoji 👩‍👩‍👧‍👦 🇫🇷 👍🏽",
    "१२३ ٣٤ ½ ² Ⅷ １２",
    "def f(x):\n    return x**2  # comment\n\n\nclass A: pass",
    "https://example.org/a?b=c&d=%20#frag",
    '$$\\int_0^1 x\\,dx$$ {"a": [1, 2]}',
    "\u00a0nbsp\u2003em space\u200bzero width\ufeff",
    "a" * 300,
    " " * 40 + "x",
    "\x00\x01control\x7f",
]


def corpus(specials: list[str]) -> list[str]:
    rng = random.Random(0)
    pieces = [*TEXTS, *specials, "'s", " 'Re", "7", " ", "\n", "é", "字"]
    mixed = ["".join(rng.choices(pieces, k=rng.randint(2, 6))) for _ in range(300)]
    raw = [
        "".join(chr(rng.choice([rng.randint(32, 126), rng.randint(160, 0x2FFF)])) for _ in range(40)) for _ in "x" * 100
    ]
    return [*TEXTS, *mixed, *raw]


def metadata_of(tokenizer: dict[str, Any], pre: str) -> dict[str, Any]:
    """What a converter to GGUF would store of a tokenizer.json."""
    vocab: dict[str, int] = dict(tokenizer["model"]["vocab"])
    types = {}
    for added in tokenizer["added_tokens"]:
        vocab[added["content"]] = added["id"]
        types[added["id"]] = 3 if added["special"] else 4
    tokens = [token for token, _ in sorted(vocab.items(), key=lambda item: item[1])]
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": [types.get(i, 1) for i in range(len(tokens))],
    }


@pytest.mark.parametrize(
    ("folder", "pre"),
    [
        ("gpt-2", "gpt-2"),
        ("llama-bpe", "llama-bpe"),
        ("qwen2", "qwen2"),
        ("starcoder", "starcoder"),
        ("refact", "refact"),
    ],
)
def test_a_round_trip_through_metadata_keeps_every_encoding(folder: str, pre: str) -> None:
    path = SHARED / "oracles/tokenizers" / folder / "tokenizer.json.gz"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    original = json.loads(gzip.decompress(path.read_bytes()))
    made = tokenizer_from_gguf(metadata_of(original, pre))
    # The oracle's normalizer is null where Qwen2's own composes characters; see shared/README.md.
    assert made["normalizer"] == ({"type": "NFC"} if pre == "qwen2" else None)
    made["normalizer"] = original["normalizer"]
    want, got = Tokenizer.from_str(json.dumps(original)), Tokenizer.from_str(json.dumps(made))
    specials = [added["content"] for added in original["added_tokens"]][:8]
    for text in corpus(specials):
        ids = want.encode(text).ids
        assert got.encode(text).ids == ids, repr(text)
        assert got.decode(ids) == want.decode(ids)


@pytest.fixture(scope="module")
def smol() -> Path:
    path = smollm2.find()
    if path is None:
        pytest.skip("SmolLM2 is not here: run python -m octavo.modelfiles.smollm2")
    return path


@pytest.mark.filterwarnings("ignore")
def test_smollm2_equals_transformers_conversion(smol: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    export_tokenizer(resolve(str(smol)), tmp_path)
    ours = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    reference = AutoTokenizer.from_pretrained(smol.parent, gguf_file=smol.name)
    theirs = reference.backend_tokenizer
    # SmolLM2's own tokenizer.json splits digits first; Transformers' conversion of GGUF forgets that.
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), theirs.pre_tokenizer]
    )
    assert ours.get_vocab() == theirs.get_vocab()
    specials = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<file_sep>"]
    for text in corpus(specials):
        ids = theirs.encode(text).ids
        assert ours.encode(text).ids == ids, repr(text)
        assert ours.decode(ids) == theirs.decode(ids)
        assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(ids, skip_special_tokens=False)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    chat = [{"role": "user", "content": "Hi 12"}]
    assert loaded.apply_chat_template(chat, tokenize=False) == reference.apply_chat_template(chat, tokenize=False)
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        assert getattr(loaded, name) == getattr(reference, name)


def test_what_is_exported_for_the_demo_model(smol: Path, tmp_path: Path) -> None:
    export_tokenizer(resolve(str(smol)), tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (config["bos_token"], config["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert "<|im_start|>" in config["chat_template"]
    assert config["model_max_length"] == 8192
    assert config["added_tokens_decoder"]["2"]["special"] is True
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    assert (generation["bos_token_id"], generation["eos_token_id"]) == (1, 2)


def test_bos_is_put_in_front_where_the_metadata_ask_for_it() -> None:
    metadata = tiny_metadata() | {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 3}
    made = Tokenizer.from_str(json.dumps(tokenizer_from_gguf(metadata)))
    assert made.encode("ab").tokens == ["<s>", "ab"]
    assert made.encode("ab", add_special_tokens=False).tokens == ["ab"]
    assert tokenizer_config_from_gguf(metadata, 8)["bos_token"] == "<s>"


def tiny_metadata() -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ["a", "b", "ab", "<s>"],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.token_type": [1, 1, 1, 3],
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.ggml.model": "rwkv"}, "tokenizer kind 'rwkv' is not supported; known: gpt2"),
        ({"tokenizer.ggml.model": "llama"}, r"lack tokenizer\.ggml\.scores"),
        (
            {"tokenizer.ggml.pre": "chameleon"},
            "pre-tokenizer 'chameleon' is not supported; known: deepseek-r1-qwen, gpt",
        ),
        ({"tokenizer.ggml.merges": None}, r"lack tokenizer\.ggml\.merges"),
        ({"tokenizer.ggml.token_type": [1]}, "4 tokens and 1 token types"),
    ],
)
def test_metadata_that_describe_no_known_tokenizer(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        tokenizer_from_gguf(tiny_metadata() | changes)


def test_no_tokenizer_is_read_where_none_is_wanted(tmp_path: Path) -> None:
    """Ids are words then, and texts of other words are refused: none of them becomes an id that it is not."""
    from tests.unit.modelfiles.test_files import folder

    files = resolve(str(folder(tmp_path)))
    (files.path / "tokenizer.json").write_text("not read")
    export_tokenizer(files, tmp_path / "out", None)
    renderer = octavo_native.Renderer(tmp_path / "out", 0, 20)
    for prompt in ([1, 2, 3], "w1 w2"):
        renderer.completion(json.dumps({"prompt": prompt, "max_tokens": 1}).encode(), 64, files.vocab_size)
    with pytest.raises(octavo_native.RenderError, match="'prompt' cannot be used"):
        renderer.completion(json.dumps({"prompt": "Hello"}).encode(), 64, files.vocab_size)


def test_a_folder_without_a_fast_tokenizer_is_refused(tmp_path: Path) -> None:
    from tests.unit.modelfiles.test_files import folder

    files = resolve(str(folder(tmp_path)))
    with pytest.raises(ModelError, match=r"no tokenizer\.json.*save_pretrained"):
        export_tokenizer(files, tmp_path / "out")
    (files.path / "tokenizer.model").write_bytes(b"no sentencepiece model")
    with pytest.raises(ModelError, match=r"slow tokenizer \(tokenizer\.model\) that cannot be converted"):
        export_tokenizer(files, tmp_path / "out")
    for name in ("tokenizer.json", "chat_template.jinja", "additional_chat_templates/rag.jinja"):
        (files.path / name).parent.mkdir(exist_ok=True)
        (files.path / name).write_text("{}")
    export_tokenizer(files, tmp_path / "out")
    names = {str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out").rglob("*") if file.is_file()}
    templates = {"chat_template.jinja", "additional_chat_templates/rag.jinja"}
    assert names == templates | {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json"}
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == files.config
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [2, 3]


def test_a_tokenizer_and_a_template_of_the_users(tmp_path: Path) -> None:
    model, other, out = make_llama(tmp_path / "model"), make_llama(tmp_path / "other"), tmp_path / "out"
    whole = json.loads((other / "tokenizer.json").read_text())
    (other / "tokenizer.json").write_text(json.dumps(whole | {"mark": 1}))
    template = tmp_path / "mine.jinja"
    template.write_text("{{ messages }}")
    export_tokenizer(resolve(str(model)), out, str(other), str(template))
    assert json.loads((out / "tokenizer.json").read_text())["mark"] == 1
    assert (out / "chat_template.jinja").read_text() == "{{ messages }}"
    export_tokenizer(resolve(str(model)), out, str(other / "tokenizer.json"), "{{ 'inline' }}")
    assert (out / "chat_template.jinja").read_text() == "{{ 'inline' }}"


@pytest.mark.parametrize(
    ("tokenizer", "template", "message"),
    [
        ("no/such/folder", "", "--tokenizer no/such/folder: there is no such file or folder"),
        ("", "missing.jinja", "--chat-template missing.jinja: No such file or directory"),
        ("", ".", "--chat-template .: Is a directory"),
    ],
)
def test_a_tokenizer_or_a_template_that_is_not_there(
    tmp_path: Path, tokenizer: str, template: str, message: str
) -> None:
    files = resolve(str(make_llama(tmp_path / "model")))
    with pytest.raises(ConfigError, match=message):
        export_tokenizer(files, tmp_path / "out", tokenizer, template)


def spm_metadata(prefix: bool) -> tuple[dict[str, Any], Tokenizer]:
    """GGUF metadata of a SentencePiece vocabulary, and the tokenizer that it was made from."""
    trained = SentencePieceBPETokenizer(add_prefix_space=prefix)
    rng = random.Random(4)
    words = ["merge", "merging", "sort", "sorted", "the", "then", "other", "mother", "abc", "naïve", "123"]
    texts = (" ".join(rng.choices(words, k=9)) for _ in range(300))
    trained.train_from_iterator(texts, 160, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    model = json.loads(trained.to_str())["model"]
    vocabulary = sorted(model["vocab"], key=model["vocab"].get)
    rank = {left + right: -float(place) for place, (left, right) in reversed(list(enumerate(model["merges"])))}
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = vocabulary + bytes_
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [rank.get(token, -1e9) for token in tokens],
        "tokenizer.ggml.token_type": [2, 3, 3] + [1] * (len(vocabulary) - 3) + [6] * 256,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": prefix,
    }
    return metadata, trained


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_vocabularies(prefix: bool) -> None:
    metadata, trained = spm_metadata(prefix)
    ours = Tokenizer.from_str(json.dumps(tokenizer_from_gguf(metadata)))
    rng = random.Random(5)
    for _ in range(200):
        text = " ".join(rng.choices(["merge", "sorted", "thenother", "mothers", "abcab", "32", "naïvemerg"], k=5))
        encoded = ours.encode(text)
        assert encoded.tokens == ["<s>", *trained.encode(text).tokens]  # BOS in front, as llama.cpp does unless told
        assert ours.decode(encoded.ids) == text
    rare = ours.encode("sort 🦙<s>the")
    assert rare.tokens[1:] == [
        *ours.encode("sort ", add_special_tokens=False).tokens,
        *["<0xF0>", "<0x9F>", "<0xA6>", "<0x99>"],
        "<s>",
        *ours.encode("the", add_special_tokens=False).tokens,
    ]
    assert ours.decode(rare.ids, skip_special_tokens=False).endswith("🦙<s>" + (" the" if prefix else "the"))
    silent = Tokenizer.from_str(json.dumps(tokenizer_from_gguf(metadata | {"tokenizer.ggml.add_bos_token": False})))
    assert silent.encode("the").tokens == trained.encode("the").tokens


def test_a_slow_tokenizer_is_converted(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "##s", "world"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "out").mkdir()
    convert_slow_tokenizer(tmp_path, tmp_path / "out")
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert tokenizer.encode("Hellos world", add_special_tokens=False).ids == [5, 6, 7]
    assert tokenizer.decode([5, 6, 7]) == "hellos world"


def test_tekken_and_tiktoken_files_are_copied(tmp_path: Path) -> None:
    from tests.unit.modelfiles.test_files import folder

    files = resolve(str(folder(tmp_path)))
    for name in ("tekken.json", "tiktoken.model"):
        (files.path / name).write_text("{}")
        export_tokenizer(files, tmp_path / name)
        assert (tmp_path / name / name).is_file()
        (files.path / name).unlink()


def test_dummy_weights_need_no_tokenizer(tmp_path: Path) -> None:
    """Each id is a word; a folder that has a tokenizer keeps its own."""
    make_llama(tmp_path / "model")
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "model" / name).unlink()
    files = resolve(str(tmp_path / "model"), "dummy")
    export_tokenizer(files, tmp_path / "out")
    made = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert made.get_vocab_size() == files.vocab_size
    assert made.encode("w5 w287 what").ids == [5, 287, 0]
    assert made.decode([5, 287]) == "w5 w287"
    text = (tmp_path / "out" / "tokenizer.json").read_text()
    (tmp_path / "model" / "tokenizer.json").write_text(text.replace('"w5"', '"v5"'))
    export_tokenizer(files, tmp_path / "again")
    assert Tokenizer.from_file(str(tmp_path / "again" / "tokenizer.json")).token_to_id("v5") == 5
