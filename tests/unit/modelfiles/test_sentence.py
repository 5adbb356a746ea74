"""What sentence-transformers wrote beside a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.errors import ModelError
from octavo.modelfiles.sentence import SentenceFiles, read_sentence_files
from tests.encoders import make_sentence_files


def test_what_the_files_say(tmp_path: Path) -> None:
    assert read_sentence_files(tmp_path) is None
    make_sentence_files(tmp_path, "cls", normalise=False, do_lower_case=True)
    (tmp_path / "config_sentence_transformers.json").write_text('{"prompts": {"query": "query: ", "passage": ""}}')
    assert read_sentence_files(tmp_path) == SentenceFiles(
        pooling="CLS", normalise=False, max_seq_length=64, lower_case=True, prompts={"query": "query: "}
    )
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "lasttoken", "include_prompt": true}')
    found = read_sentence_files(tmp_path)
    assert found is not None and found.pooling == "LAST"


@pytest.mark.parametrize(
    ("pooling", "said"),
    [
        ({"pooling_mode_max_tokens": True}, "pooling_mode_max_tokens, which is not supported"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "known: one of cls, mean, lasttoken"),
        ({}, "the pooling none"),
        ({"pooling_mode": "mean", "include_prompt": False}, "include_prompt"),
    ],
)
def test_other_poolings_are_refused(pooling: dict[str, object], said: str, tmp_path: Path) -> None:
    make_sentence_files(tmp_path)
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(ModelError, match=said):
        read_sentence_files(tmp_path)


def test_other_modules_and_damage_are_refused(tmp_path: Path) -> None:
    modules = tmp_path / "modules.json"
    modules.write_text('[{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]')
    with pytest.raises(ModelError, match="'Dense', which is not supported"):
        read_sentence_files(tmp_path)
    for text, said in (("{", "cannot be read"), ("{}", "holds no list")):
        modules.write_text(text)
        with pytest.raises(ModelError, match=said):
            read_sentence_files(tmp_path)
