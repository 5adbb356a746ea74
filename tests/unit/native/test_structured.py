"""Fields that constrain an output: checked before the request is queued, as the server does it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from octavo_native import GrammarError, Renderer, RenderError, Vocabulary, fill_masks

from tests.tiny import make_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

WIDTH = 288


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(path)
    (path / "config.json").write_text(json.dumps({"eos_token_id": tokenizer.eos_token_id}))
    return path


@pytest.fixture(scope="module")
def renderer(folder: Path) -> Renderer:
    return Renderer(folder, 0)


def schema(value: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": value}}}


def outputs(**fields: Any) -> dict[str, Any]:
    return {"structured_outputs": fields}


def grammar(renderer: Renderer, fields: dict[str, Any], chat: bool = True) -> tuple[str, str] | None:
    prompt: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]} if chat else {"prompt": "hi"}
    render = renderer.chat if chat else renderer.completion
    return render(json.dumps(prompt | fields).encode(), 200, WIDTH).grammar


REFUSED = {
    # SO01
    "SO01 type": (schema({"type": "object", "properties": {"a": {"type": "nonsense"}}}), "properties.a.type"),
    "SO01 items": (schema({"type": "array", "items": [{"type": "string"}]}), "items"),
    "SO01 ref": (schema({"$ref": "#/nowhere"}), "$ref"),
    "SO01 enum": (schema({"enum": []}), "enum"),
    "SO01 pattern": (schema({"type": "string", "pattern": "("}), "regex"),
    "SO01 false": (schema(False), "no instance"),
    "SO01 anyOf": (schema({"anyOf": []}), "anyOf"),
    "SO01 bounds": (schema({"minimum": 3, "maximum": 1, "type": "integer"}), "3"),
    # SO02
    "SO02 class": (outputs(regex="[a-z"), "regex"),
    "SO02 behind": (outputs(regex="(?<=x)y"), "look"),
    "SO02 count": (outputs(regex="\\d{5"), "regex"),
    "SO02 name": (outputs(regex="\\p{Nope}"), "regex"),
    "SO02 empty": (outputs(regex=""), "regex"),
    # SO04
    "SO04 object": (outputs(json_object=False), "json_object"),
    "SO04 json": (outputs(json=""), "json"),
    "SO04 choice": (outputs(choice=[]), "choice"),
    "SO04 grammar": (outputs(grammar=""), "grammar"),
    "SO04 none": (outputs(), "exactly one"),
    "SO04 two": (outputs(json="{}", regex="a"), "json and regex"),
    "SO04 schema": ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    "SO04 weird": ({"response_format": {"type": "weird"}}, "response_format.type"),
    # SO08
    "SO08 count": (outputs(grammar='root ::= "a"{2000000000,2147483647}'), "repetition"),
    "both": ({**schema({}), **outputs(regex="a")}, "one of them"),
    "unknown": (outputs(jsn={}), "structured_outputs.jsn"),
    "lark": (outputs(grammar="start: nope"), "nope"),
    "space": (outputs(json={}, whitespace_pattern="("), "regex"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("chat", [True, False])
def test_what_cannot_be_enforced_is_a_400_that_names_it(renderer: Renderer, name: str, chat: bool) -> None:
    fields, said = REFUSED[name]
    with pytest.raises(RenderError) as caught:
        grammar(renderer, fields, chat)
    message, _, param = caught.value.args
    assert said in message
    assert param is not None and param.split(".")[0] in fields


def test_text_is_no_constraint(renderer: Renderer) -> None:
    assert grammar(renderer, {"response_format": {"type": "text"}}) is None
    assert grammar(renderer, {"response_format": None, "structured_outputs": None}) is None
    assert grammar(renderer, {}) is None


GOOD: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "SO01 true": (schema(True), ['{"a": 1}', "1"], ["x"]),
    "object": ({"response_format": {"type": "json_object"}}, ["{}", '{"a": [1, "b"]}'], ["[]", "1"]),
    "SO20 compact": (outputs(json_object=True, disable_any_whitespace=True), ['{"a":1}'], ['{"a": 1}', "{ }"]),
    "closed": (
        outputs(json={"properties": {"a": {}}, "type": "object"}, disable_additional_properties=True),
        ['{"a": 1}', "{}"],
        ['{"b": 1}'],
    ),
    "json text": (outputs(json='{"type": "null"}'), ["null"], ["1"]),
    "SO14 regex": (outputs(regex="^(A\\nB|C)$"), ["A\nB", "C"], ["A\\nB", "A"]),
    "SO14 choice": (outputs(choice=["a", "ab", 'say "hi"']), ["a", "ab", 'say "hi"'], ["", "abc"]),
    "ebnf": (outputs(grammar='root ::= "yes" | "no" [!]*'), ["yes", "no!!"], ["yes!", "maybe"]),
    "tag": (
        {
            "response_format": {
                "type": "structural_tag",
                "structures": [{"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}],
                "triggers": ["<f>"],
            }
        },
        ["text", "a <f>12</f> b"],
        ["<f>x</f>"],
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_outputs_are_told_from_others(folder: Path, renderer: Renderer, name: str) -> None:
    fields, good, bad = GOOD[name]
    vocabulary = Vocabulary(folder, WIDTH)
    for chat in (True, False):
        found = grammar(renderer, fields, chat)
        assert found is not None
        compiled = vocabulary.compile(*found)

        def takes(text: str) -> bool:
            matcher, complete = compiled.matcher(), False  # noqa: B023
            for token in renderer.encode(text, False):
                try:
                    complete = matcher.accept(token)
                except GrammarError:
                    return False
            return complete or matcher.accepting()

        assert [text for text in good if not takes(text)] == []
        assert [text for text in bad if takes(text)] == []


def test_masks_have_the_width_of_the_logits_and_allow_what_may_come(folder: Path, renderer: Renderer) -> None:
    found = grammar(renderer, outputs(choice=["ab", "ac"]))
    assert found is not None
    compiled = Vocabulary(folder, WIDTH).compile(*found)
    matchers = [compiled.matcher() for _ in range(9)]
    tokens = {letter: renderer.encode(letter, False)[0] for letter in "abc"}
    matchers[1].accept(tokens["a"])
    masks, errors = fill_masks(matchers, WIDTH)
    assert errors == [None] * 9 and len(masks) == 9 * WIDTH // 8
    size = WIDTH // 8
    allowed = [
        {t for t in range(WIDTH) if int.from_bytes(masks[i * size : (i + 1) * size], "little") >> t & 1}
        for i in range(2)
    ]
    assert allowed == [{tokens["a"]}, {tokens["b"], tokens["c"]}]
    with pytest.raises(GrammarError):
        matchers[0].accept(tokens["b"])
    assert fill_masks(matchers[:1], WIDTH)[1] != [None]


def test_a_kind_that_nobody_knows_is_refused(folder: Path) -> None:
    with pytest.raises(GrammarError, match="no kind of grammar"):
        Vocabulary(folder, WIDTH).compile("gbnf", "x")
