"""Data sets: the lengths that were asked, the same for the same seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from octavo.benchmarks.datasets import samples
from octavo.benchmarks.options import ServeOptions, from_namespace
from octavo.benchmarks.tokenizer import FileTokenizer, Words, load
from octavo.errors import ConfigError


@pytest.fixture
def tokenizer(tmp_path: Path) -> FileTokenizer:
    """A byte-level BPE with merges, so that texts re-encode to other lengths than they were drawn with."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("a", "b"), ("c", "d"), ("ab", "cd"), ("Ġ", "a"), ("e", "f")]
    tokens = [*letters, *("".join(pair) for pair in merges), "<|end|>"]
    backend = Backend(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|end|>"])
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    backend.save(str(folder / "tokenizer.json"))
    found = load(str(folder), hub=False)
    assert isinstance(found, FileTokenizer)
    return found


def options(**given: Any) -> ServeOptions:
    return from_namespace(given)


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_random_prompts_have_the_asked_length(tokenizer: FileTokenizer) -> None:
    found = samples(options(num_prompts=40, random_input_len=50, random_output_len=7), tokenizer)
    assert len(found) == 40 and len({sample.turns[0].text for sample in found}) == 40
    for sample in found:
        (turn,) = sample.turns
        assert turn.output_tokens == 7
        assert tokenizer.count(turn.text) == turn.tokens == 50
        assert "<|end|>" not in turn.text


def test_lengths_spread_over_the_whole_range(tokenizer: FileTokenizer) -> None:
    given = options(num_prompts=300, random_input_len=20, random_output_len=4, random_range_ratio=(0.5, 0.5))
    turns = [sample.turns[0] for sample in samples(given, tokenizer)]
    assert {turn.tokens for turn in turns} == set(range(10, 31))
    assert {turn.output_tokens for turn in turns} == set(range(2, 7))


def test_the_seed_decides(tokenizer: FileTokenizer) -> None:
    def draw(seed: int) -> Any:
        return samples(options(num_prompts=3, random_input_len=9, seed=seed), tokenizer)

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_a_shared_prefix_comes_first(tokenizer: FileTokenizer) -> None:
    found = samples(options(num_prompts=5, random_input_len=10, random_prefix_len=30), tokenizer)
    texts = [sample.turns[0].text for sample in found]
    shared = len(texts[0]) and next(i for i, letters in enumerate(zip(*texts, strict=False)) if len(set(letters)) > 1)
    assert tokenizer.count(texts[0][:shared]) >= 29
    assert all(sample.turns[0].tokens == 40 for sample in found)


def test_prefix_repetition(tokenizer: FileTokenizer) -> None:
    given = options(dataset_name="prefix_repetition", num_prompts=11, prefix_repetition_num_prefixes=3,
                    prefix_repetition_prefix_len=20, prefix_repetition_suffix_len=5)  # fmt: skip
    found = samples(given, tokenizer)
    assert len(found) == 9  # the same number for each prefix
    heads = [sample.turns[0].text[:15] for sample in found]
    assert sorted(heads.count(head) for head in set(heads)) == [3, 3, 3]
    with pytest.raises(ConfigError, match="num-prefixes"):
        samples(options(dataset_name="prefix_repetition", num_prompts=2), tokenizer)


def conversation(*texts: str) -> dict[str, Any]:
    roles = ("human", "gpt")
    return {"conversations": [{"from": roles[i % 2], "value": text} for i, text in enumerate(texts)]}


def test_sharegpt_takes_pairs_within_the_usual_limits(tokenizer: FileTokenizer, tmp_path: Path) -> None:
    rows = [
        conversation("x" * 10, "y" * 20),
        conversation("xx", "y" * 20),  # prompt too short
        conversation("x" * 10, "y"),  # answer too short
        conversation("x" * 1025, "y" * 20),  # prompt too long
        conversation("x" * 1000, "y" * 1049),  # both too long
        conversation("x" * 10),
        {"id": 1},
    ]
    path = write(tmp_path / "s.json", json.dumps(rows))
    given: dict[str, Any] = {"dataset_name": "sharegpt", "dataset_path": path, "num_prompts": 3}
    turns = [sample.turns[0] for sample in samples(options(**given), tokenizer)]
    assert [(turn.tokens, turn.output_tokens) for turn in turns] == [(10, 20)] * 3  # repeated to fill up
    assert len(samples(options(**given, no_oversample=True), tokenizer)) == 1
    lengths = {s.turns[0].output_tokens for s in samples(options(**given, sharegpt_output_len=2), tokenizer)}
    assert lengths == {2}


def test_custom_prompts(tokenizer: FileTokenizer, tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"prompt": f"say {i}", "output_tokens": i + 1}) for i in range(4))
    path = write(tmp_path / "c.jsonl", lines + "\n\n")
    given: dict[str, Any] = {"dataset_name": "custom", "dataset_path": path, "backend": "openai-chat", "num_prompts": 0}
    found = samples(options(**given, disable_shuffle=True), tokenizer)
    assert [s.turns[0].text for s in found] == [f"say {i}" for i in range(4)]
    assert {s.turns[0].output_tokens for s in found} == {256}
    found = samples(options(**given, custom_output_len=-1), tokenizer)
    assert sorted(s.turns[0].output_tokens for s in found) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("custom", "{nonsense", "line 1"),
        ("custom", "[1]", "not a JSON object"),
        ("custom", '{"text": "x"}', "`prompt`"),
        ("sharegpt", "{nonsense", "not JSON"),
        ("sharegpt", "[]", "no usable sample"),
    ],
)
def test_bad_files_are_refused(tokenizer: FileTokenizer, tmp_path: Path, name: str, text: str, says: str) -> None:
    path = write(tmp_path / "bad", text)
    given = options(dataset_name=name, dataset_path=path, backend="openai-chat", num_prompts=1)
    with pytest.raises(ConfigError) as caught:
        samples(given, tokenizer)
    assert says in caught.value.message


def test_missing_files_are_refused(tokenizer: FileTokenizer, tmp_path: Path) -> None:
    for path in (None, str(tmp_path / "absent")):
        with pytest.raises(ConfigError, match="--dataset-path"):
            samples(options(dataset_name="custom", dataset_path=path), tokenizer)


def test_conversations(tokenizer: FileTokenizer, tmp_path: Path) -> None:
    given: dict[str, Any] = {"dataset_name": "multi-turn", "backend": "openai-chat", "random_input_len": 12}
    found = samples(
        options(**given, num_prompts=60, multi_turn_min_turns=2, multi_turn_max_turns=4, per_turn_input_len=5),
        tokenizer,
    )
    assert {len(sample.turns) for sample in found} == {2, 3, 4}
    for sample in found:
        assert [turn.tokens for turn in sample.turns] == [12, *[5] * (len(sample.turns) - 1)]
    rows = [conversation("q1", "a1", "q2", "a2"), conversation("q", "a")]
    path = write(tmp_path / "m.json", json.dumps(rows))
    given = {"dataset_name": "sharegpt", "dataset_path": path, "backend": "openai-chat", "multi_turn": True}
    found = samples(options(**given, num_prompts=2, disable_shuffle=True), tokenizer)
    assert [[turn.text for turn in sample.turns] for sample in found] == [["q1", "q2"], ["q"]]
    with pytest.raises(ConfigError, match="openai-chat"):
        samples(options(dataset_name="multi-turn"), tokenizer)


def test_words_follow_the_ratio_they_learnt() -> None:
    found = samples(options(num_prompts=2, random_input_len=60), Words(tokens_per_word=1.5))
    assert [len(sample.turns[0].text.split()) for sample in found] == [40, 40]


def test_no_tokenizer_of_that_name(tmp_path: Path) -> None:
    assert load(str(tmp_path / "absent"), hub=False) is None
    assert load(str(tmp_path), hub=False) is None
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="--tokenizer"):
        load(str(tmp_path), hub=False)


def test_impossible_lengths_are_refused(tokenizer: FileTokenizer) -> None:
    for given in ({"random_range_ratio": (0.0, 1.0)}, {"random_input_len": 0}):
        with pytest.raises(ConfigError, match="--random"):
            samples(options(num_prompts=1, **given), tokenizer)
