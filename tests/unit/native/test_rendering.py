"""Rendering, encoding and decoding as Python sees them, against Transformers and the shared template oracle."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from octavo_native import IncrementalDecoder, Renderer, RenderError, render_template

from tests.tiny import make_tokenizer

SHARED = Path(os.environ.get("OCTAVO_SHARED", Path(__file__).resolve().parents[4] / "shared"))
ORACLE = SHARED / "oracles" / "templates"
#: Every so many rows of the oracle: the whole of it is checked by the Rust crate.
EVERY = 41
MESSAGES = [{"role": "user", "content": "Grüße 🌶"}, {"role": "assistant", "content": "ja"}]


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    """A renderer of the tiny tokenizer."""
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(folder)
    return Renderer(folder)


def test_messages_render_and_encode_as_transformers_does(renderer: Renderer) -> None:
    tokenizer = make_tokenizer()
    text = renderer.render(MESSAGES)
    assert text == tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert renderer.encode(text) == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert renderer.render_tokens(MESSAGES) == renderer.encode(text)
    assert renderer.render_tokens(MESSAGES * 300) == renderer.encode(renderer.render(MESSAGES * 300))
    open_ended = renderer.render(MESSAGES, continue_final_message=True)
    assert open_ended == tokenizer.apply_chat_template(MESSAGES, tokenize=False, continue_final_message=True)
    with pytest.raises(RenderError) as caught:
        renderer.render([])
    assert caught.value.args[1:] == ("invalid_value", "messages")


class Text(str):
    """A text of another type: it goes through json.dumps."""


FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | FLOATS | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
        max_leaves=8,
    )
)
def test_values_reach_the_template_as_through_json(value: Any) -> None:
    template = "{{ messages[0].content | tojson }}"
    direct = render_template(template, {"messages": [{"role": "user", "content": value}]})
    through = render_template(template, {"messages": [{Text("role"): "user", "content": value}]})
    assert direct == through


@settings(max_examples=200, deadline=None)
@given(FLOATS)
def test_a_float_of_a_body_is_written_as_python_writes_it(value: float) -> None:
    template = "{{ messages[0].content | tojson }} {{ messages[0].content }}"
    case = {"messages": [{Text("role"): "user", "content": value}]}
    assert render_template(template, case) == f"{json.dumps(value)} {value!r}"


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40), st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_pieces_join_to_the_whole(renderer: Renderer, text: str, cuts: list[int]) -> None:
    ids = renderer.encode(text)
    decoder, pieces, at = IncrementalDecoder(renderer), [], 0
    while at < len(ids):
        cut = cuts[len(pieces) % len(cuts)]
        pieces.append(decoder.push(ids[at : at + cut]))
        at += cut
    assert "".join(pieces) + decoder.finish() == renderer.decode(ids) == text


def test_a_decoder_goes_on_behind_a_prompt(renderer: Renderer) -> None:
    # The case DT01 of the shared bank: the character that the prompt leaves unfinished belongs to the output.
    ids = renderer.encode("Hello 🌶!")
    decoder = IncrementalDecoder(renderer, ids[:-2])
    assert decoder.push(ids[-2:-1]) == "🌶"
    assert decoder.push(ids[-1:]) == "!"


def rows() -> Iterator[dict[str, Any]]:
    """Yield some rows of the oracle."""
    path = ORACLE / "transformers.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"{path} is absent; set OCTAVO_SHARED")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number % EVERY == 0:
                yield json.loads(line)


def test_any_template_renders_as_the_oracle_says() -> None:
    seen = 0
    for row in rows():
        template = (ORACLE / "jinja" / row["template"]).read_text(encoding="utf-8")
        if "expected" in row:
            try:
                assert render_template(template, row) == row["expected"], (row["template"], row["case"])
            except RenderError as error:
                pytest.fail(f"{row['template']} {row['case']}: {error}")
        else:
            with pytest.raises(ValueError, match=r".") as caught:
                render_template(template, row)
            if row["error"]["raise_exception"] and isinstance(caught.value, RenderError):
                assert caught.value.args[:2] == (row["error"]["message"], "refused")
        seen += 1
    assert seen > 100


def test_a_case_that_is_none_is_refused_by_name() -> None:
    for case, said in (
        ({}, "messages"),
        ({"messages": 1}, "messages"),
        ({"messages": [], "now": "noon"}, "now"),
        ({"messages": [], "add_generation_prompt": 1}, "add_generation_prompt"),
        ({"messages": [], "kwargs": []}, "kwargs"),
    ):
        with pytest.raises(ValueError, match=said):
            render_template("x", case)
    with pytest.raises(ValueError, match="cannot be compiled"):
        render_template("{% if %}", {"messages": []})
    assert render_template("{{ strftime_now('%Y') }}", {"messages": [], "now": "2026-03-04T05:06:07"}) == "2026"
