"""Write docs/configuration.md from the settings' one definition: `python -m tests.tools.config_table`."""

from __future__ import annotations

from pathlib import Path

from octavo.config import Setting, settings

__all__ = ["table"]

_HEAD = """\
# Configuration

All flags of `octavo serve MODEL`, made from their one definition in `python/config.py` by
`python -m tests.tools.config_table`. Counts and sizes may end in k, m, g, t (powers of 1,000) or K, M, G, T (powers of
1,024). A flag whose default is on or off takes no word: `--no-NAME` turns it off.

"""


def table() -> str:
    """Return the flags as a Markdown table."""
    rows = [f"| {_flags(setting)} | {_default(setting)} | {setting.group} | {setting.help} |" for setting in settings()]
    return "\n".join(["| flag | default | group | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _flags(setting: Setting) -> str:
    return f"`{setting.flag}`" + (f", `{setting.alias}`" if setting.alias else "")


def _default(setting: Setting) -> str:
    if setting.positional:
        return "required"
    if setting.default in ((), ""):
        return "–"
    return setting.shown


if __name__ == "__main__":
    Path(__file__).resolve().parents[2].joinpath("docs", "configuration.md").write_text(
        _HEAD + table(), encoding="utf-8"
    )
