"""Where settings come from, and what is said about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.cli.sources import gather, strays, variable
from octavo.config import build
from octavo.errors import ConfigError


def write(folder: Path, text: str) -> str:
    path = folder / "octavo.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_command_line_wins_over_a_variable_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "model: from-file\nmax-num-seqs: 1\nblock_size: 32\nport: 1\n")
    environment = {"OCTAVO_MAX_NUM_SEQS": "2", "OCTAVO_PORT": "2"}
    config = build(gather({"port": "3"}, environment, file))
    assert (config.model, config.max_num_seqs, config.block_size, config.port) == ("from-file", 2, 32, 3)


def test_a_file_gives_lists_switches_and_sizes(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "served-model-name: [a, b]\nenable-prefix-caching: false\nkv-cache-memory-bytes: 4G\nreplay-timeout: 1.5\n",
    )
    config = build(gather({}, {}, file))
    assert config.served_model_name == ("a", "b")
    assert config.enable_prefix_caching is False
    assert config.kv_cache_memory_bytes == 4 << 30
    assert config.replay_timeout == 1.5


def test_a_variable_gives_a_list_with_commas() -> None:
    assert build(gather({}, {"OCTAVO_SERVED_MODEL_NAME": "a,b"}, None)).served_model_name == ("a", "b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max-num-seq: 3", "unknown key max-num-seq; did you mean max-num-seqs?"),
        ("max-num-seqs: many", "max-num-seqs: many: must be a count"),
        ("max-num-seqs: [1, 2]", "max-num-seqs must be one value"),
        ("- a\n- b", "must hold keys and values"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_wrong_file_is_named_with_its_key(tmp_path: Path, text: str, said: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        gather({}, {}, file)
    assert caught.value.message.startswith(f"--config {file}: ")
    assert said in caught.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        gather({}, {}, str(tmp_path / "none.yaml"))


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert gather({}, {}, write(tmp_path, "# nothing\n")) == {}


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="OCTAVO_MAX_NUM_SEQS=many: must be a count"):
        gather({}, {"OCTAVO_MAX_NUM_SEQS": "many"}, None)


def test_the_port_that_kubernetes_sets_is_no_setting() -> None:
    assert gather({}, {"OCTAVO_PORT": "tcp://10.0.0.1:8000"}, None) == {}


def test_a_misspelt_variable_is_pointed_at() -> None:
    assert variable("max_num_seqs") == "OCTAVO_MAX_NUM_SEQS"
    found = strays({"OCTAVO_MAX_NUM_SEQ": "3", "OCTAVO_FRONTEND": "/x", "OCTAVO_PORT": "1", "OTHER": ""})
    assert found == ["OCTAVO_MAX_NUM_SEQ has no effect; did you mean OCTAVO_MAX_NUM_SEQS?"]


@pytest.mark.parametrize("name", ["OCTAVO_API_KEY", "OCTAVO_API_KEY_FILE"])
def test_an_empty_variable_of_keys_opens_no_server(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is empty"):
        gather({}, {name: ""}, None)
    given = gather({name.removeprefix("OCTAVO_").lower(): ["from-the-line"]}, {name: ""}, None)
    assert given == {name.removeprefix("OCTAVO_").lower(): ["from-the-line"]}
