"""Write what reference tokenizers make of the texts in the shared oracles, for octavo's tests/rows.rs.

`python tests/tools/make_tokenizer_rows.py OUT FOLDER...`: each FOLDER holds tokenizer.json (read by `tokenizers`),
tekken.json (by mistral-common) or o200k_base.tiktoken (by openai-harmony); OUT/NAME gets the files and rows.jsonl: for
each text a row `[text, ids, decoded]`. Then `OCTAVO_TOKENIZER_ROWS=OUT cargo test -p octavo-tokenizer --test rows`.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SHARED = Path(os.environ.get("OCTAVO_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "oracles"
Pair = tuple["Callable[[str], list[int]]", "Callable[[list[int]], str]"]


def texts() -> list[str]:
    """Return the different texts of the shared oracles: prompts, what models wrote, and odd ones of our own."""
    found: dict[str, None] = {}
    for name, fields in (
        ("templates/transformers.jsonl.gz", ("expected",)),
        ("templates/deepseek_encoders.jsonl.gz", ("expected",)),
        ("parser/cases.jsonl.gz", ("input",)),
    ):
        with gzip.open(SHARED / name, "rt", encoding="utf-8") as file:
            for row in map(json.loads, file):
                found.update((row[field], None) for field in fields if isinstance(row.get(field), str))
    odd = [
        "",
        " ",
        "\n\n \t",
        "e\u0301 \u1100\u1161",
        "\u200d\ufeff",
        "0123456789" * 9,
        "a" * 3000,
        "=" * 500,
        "日本語" * 90,
    ]
    found.update((text, None) for text in odd)
    return list(found)


def fast(folder: Path) -> Pair:
    """Return encode and decode of a tokenizer.json."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.decode


def tekken(folder: Path) -> Pair:
    """Return encode and decode of a tekken.json."""
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    tokenizer = Tekkenizer.from_file(folder / "tekken.json")
    return lambda text: tokenizer.encode(text, bos=False, eos=False), tokenizer.decode


def o200k(folder: Path) -> Pair:
    """Return encode and decode of gpt-oss's vocabulary; its special tokens are recognised."""
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(folder)
    import openai_harmony as oh

    encoding = oh.load_harmony_encoding(oh.HarmonyEncodingName.HARMONY_GPT_OSS)
    return lambda text: encoding.encode(text, allowed_special="all"), encoding.decode


def main() -> None:
    """Write all folders."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    given = texts()
    print(f"{len(given)} texts, {sum(map(len, given))} characters")
    for folder in map(Path, sys.argv[2:]):
        out = Path(sys.argv[1]) / folder.name
        out.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.suffix == ".gz":
                (out / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
            elif path.name in ("tokenizer.json", "tokenizer_config.json", "tekken.json", "o200k_base.tiktoken"):
                shutil.copyfile(path, out / path.name)
        kinds = {"tokenizer.json": fast, "tekken.json": tekken, "o200k_base.tiktoken": o200k}
        kind = next(kind for name, kind in kinds.items() if (out / name).is_file())
        encode, decode = kind(out)
        with (out / "rows.jsonl").open("w", encoding="utf-8") as file:
            for text in given:
                ids = encode(text)
                shown = decode(ids) if kind is not o200k else None
                file.write(json.dumps([text, ids, shown], ensure_ascii=False) + "\n")
        print(f"{folder.name}: written")


if __name__ == "__main__":
    main()
