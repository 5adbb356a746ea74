"""Settings: values, errors, and the table in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.config import ServeConfig, build, settings
from octavo.errors import ConfigError
from tests.tools.config_table import table

DOCS = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def test_defaults() -> None:
    config = build({"model": "m"})
    assert config == ServeConfig(model="m")
    assert config.host == "127.0.0.1"
    assert config.names == ("m",)


def test_served_names_replace_the_model_path() -> None:
    assert build({"model": "m", "served_model_name": ["a", "b"]}).names == ("a", "b")


@pytest.mark.parametrize(
    ("text", "value"),
    [("4096", 4096), ("16k", 16000), ("16K", 16384), ("1.5k", 1500), ("4G", 4 << 30), ("2m", 2_000_000)],
)
def test_sizes(text: str, value: int) -> None:
    assert build({"model": "m", "kv_cache_memory_bytes": text}).kv_cache_memory_bytes == value


@pytest.mark.parametrize("name", ["max_model_len", "kv_cache_memory_bytes"])
def test_auto(name: str) -> None:
    assert getattr(build({"model": "m", name: "auto"}), name) is None


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("max_num_seqs", "0", "--max-num-seqs 0: must be at least 1"),
        ("max_num_seqs", "many", "--max-num-seqs many: must be a count"),
        ("port", "70000", "--port 70000: must be at most 65535"),
        ("block_size", "24", "--block-size 24: must be a power of two"),
        ("dtype", "float16", "--dtype float16: is not offered; take bfloat16"),
        ("dtype", "int4", "--dtype int4: must be one of auto, bfloat16, float32"),
        ("replay_timeout", "soon", "--replay-timeout soon: must be a number of seconds"),
        ("log_level", "loud", "--log-level loud: must be one of debug"),
        ("max_model_len", "-5", "--max-model-len -5: must not be negative"),
        ("format_file", "nowhere.toml", "--format-file nowhere.toml: there is no such file"),
    ],
)
def test_a_wrong_value_names_the_flag_and_what_is_allowed(name: str, text: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build({"model": "m", name: text})
    assert caught.value.message.startswith(part)
    assert caught.value.param == name


def test_calls_that_the_model_decides_about_need_a_parser() -> None:
    with pytest.raises(ConfigError, match="--enable-auto-tool-choice needs --tool-call-parser"):
        build({"model": "m", "enable_auto_tool_choice": "true"})
    assert build({"model": "m", "enable_auto_tool_choice": "true", "tool_call_parser": "auto"}).enable_auto_tool_choice


def test_every_setting_is_explained() -> None:
    for setting in settings():
        assert setting.help, setting.name


def test_docs_table_is_current() -> None:
    assert table() in DOCS.read_text(encoding="utf-8"), "run python -m tests.tools.config_table"
