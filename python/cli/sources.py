"""Where settings come from: the command line, variables, a YAML file; the first that has one wins."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octavo.config import Setting, settings
from octavo.errors import ConfigError

__all__ = ["gather", "strays", "variable"]


def variable(name: str) -> str:
    """Return the variable of a field: `max_num_seqs` is OCTAVO_MAX_NUM_SEQS."""
    return f"OCTAVO_{name.upper()}"


#: Settings that must not be lost where a variable was to be filled by somebody and was not.
_SECRETS = ("api_key", "api_key_file")


def gather(typed: Mapping[str, Any], environment: Mapping[str, str], file: str | None) -> dict[str, Any]:
    """Return each setting's words, by field name, from the first source that has them.

    Raises ConfigError for a file that cannot be read, an unknown key of it, and a value of a wrong kind.
    """
    known = {setting.name: setting for setting in settings()}
    merged: dict[str, Any] = _from_file(file, known) if file is not None else {}
    for name, setting in known.items():
        text = environment.get(variable(name))
        if text is not None and not text.strip(",") and name in _SECRETS and name not in typed:
            raise ConfigError(f"{variable(name)} is empty, which would let everybody in: unset it, or give a key", name)
        if text and not text.startswith("tcp://"):  # Kubernetes sets OCTAVO_PORT so for a service named octavo
            merged[name] = _checked(setting, text.split(",") if setting.many else text, f"{variable(name)}=")
    return merged | dict(typed)


def strays(environment: Mapping[str, str]) -> list[str]:
    """Return a line for each variable that looks like a misspelt one of ours."""
    known = [variable(setting.name) for setting in settings()]
    lines = []
    for name in sorted(environment):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.85) if name.startswith("OCTAVO_") else []
        if near and name not in known:
            lines.append(f"{name} has no effect; did you mean {near[0]}?")
    return lines


def _checked(setting: Setting, words: Any, where: str) -> Any:
    """Return the words if they parse; raises ConfigError that says where they stand."""
    for text in [words] if isinstance(words, str) else words:
        try:
            setting.parse(text)
        except ValueError as error:
            raise ConfigError(f"{where}{text}: {error}", setting.name) from None
    return words


def _from_file(file: str, known: Mapping[str, Setting]) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]  # not at the top: most starts read no file

    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config {file}: {error.strerror or error}", "config") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {file}: is not YAML: {' '.join(str(error).split())}", "config") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"--config {file}: must hold keys and values, such as `max-num-seqs: 64`", "config")
    found = {}
    for key, value in content.items():
        name = str(key).replace("-", "_")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0].replace('_', '-')}?" if near else ""
            raise ConfigError(f"--config {file}: unknown key {key}{hint}", "config")
        found[name] = _checked(known[name], _words(file, str(key), known[name], value), f"--config {file}: {key}: ")
    return found


def _words(file: str, key: str, setting: Setting, value: Any) -> Any:
    """Return a YAML value as the words that a user would have typed."""
    if setting.many:
        return [_word(file, key, one) for one in (value if isinstance(value, list) else [value])]
    return _word(file, key, value)


def _word(file: str, key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, dict):
        import json

        return json.dumps(value)
    raise ConfigError(f"--config {file}: {key} must be one value, not {value!r}", "config")
