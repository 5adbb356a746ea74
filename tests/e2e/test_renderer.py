"""The routes between text and token ids, in octavo-renderer and in octavo serve: equal, and equal to Transformers."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from octavo import __version__
from tests.e2e.renderer import Renderer, program, rendering
from tests.e2e.server import Server
from tests.tiny import make_tokenizer

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/inference/v1/generate"
MESSAGES = [{"role": "user", "content": "Grüße 🌶 <|end|>"}, {"role": "assistant", "content": "ja"}]
CHAT_BODY = {"model": "tiny", "messages": MESSAGES}
#: Templates that never end: one works, the other writes.
ENDLESS = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"
FLOOD = "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}"


@pytest.fixture(scope="module")
def renderer(tiny: Path) -> Iterator[Renderer]:
    """A renderer of the tiny model, under the name "tiny"."""
    with rendering(tiny, "--served-model-name", "tiny") as running:
        yield running


@pytest.fixture(params=["octavo-renderer", "octavo serve"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of either program."""
    running: Renderer | Server = request.getfixturevalue("renderer" if request.param == "octavo-renderer" else "server")
    return running.url


def post(url: str, path: str, body: Any, status: int = 200) -> Any:
    """POST a body and return the JSON of the answer, which must have the status."""
    answer = httpx.post(f"{url}{path}", json=body, timeout=60)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_chat_renders_to_what_transformers_gives(url: str) -> None:
    tokenizer = make_tokenizer()
    text = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    expected = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    asked = {"return_token_offsets": True, "return_prompt_text": True, "temperature": 0.5, "stop": "x", "priority": 0}
    rendered = post(url, f"{CHAT}/render", {**CHAT_BODY, **asked, "min_p": 0.1, "stream": True})
    assert rendered["prompt_text"] == text
    assert rendered["token_ids"] == expected["input_ids"]
    assert [tuple(pair) for pair in rendered["token_offsets"]] == expected["offset_mapping"]
    assert rendered["sampling_params"] == {"temperature": 0.5, "stop": ["x"], "min_p": 0.1}
    assert rendered["request_id"].startswith("chatcmpl-")
    assert (rendered["model"], rendered["stream"]) == ("tiny", True)
    assert "assistant_tokens_mask" not in rendered


def test_prompts_render_to_one_body_each(url: str) -> None:
    body = {"model": "tiny", "prompt": ["Hi", "<|end|>!"], "max_tokens": 3, "request_id": "mine"}
    first, second = post(url, f"{COMPLETIONS}/render", body)
    tokenizer = make_tokenizer()
    assert [first["token_ids"], second["token_ids"]] == tokenizer(["Hi", "<|end|>!"])["input_ids"]
    assert [first["request_id"], second["request_id"]] == ["mine-0", "mine-1"]
    assert first["sampling_params"] == {"max_tokens": 3}


def test_tokenize_and_detokenize_are_inverse(url: str) -> None:
    for text in ("", "Grüße 🌶", "a<|end|>b", "\ud7ff\U0010ffff\x00"):
        tokens = post(url, "/tokenize", {"prompt": text, "return_token_strs": True})
        assert tokens["count"] == len(tokens["tokens"]) == len(tokens["token_strs"])
        assert tokens["max_model_len"] == 512
        assert post(url, "/detokenize", {"tokens": tokens["tokens"]}) == {"prompt": text}
    hidden = {"tokens": make_tokenizer()("a<|end|>b")["input_ids"], "skip_special_tokens": True}
    assert post(url, "/detokenize", hidden) == {"prompt": "ab"}


def test_messages_tokenize_as_they_render(url: str) -> None:
    tokens = post(url, "/tokenize", CHAT_BODY)["tokens"]
    assert tokens == post(url, f"{CHAT}/render", CHAT_BODY)["token_ids"]


def test_a_request_in_four_steps_is_the_request(server: Server, renderer: Renderer) -> None:
    body = {**CHAT_BODY, "temperature": 0, "max_tokens": 12}
    whole = post(server.url, CHAT, body)
    rendered = post(renderer.url, f"{CHAT}/render", body)
    generated = post(server.url, GENERATE, rendered)
    assert generated["request_id"] == rendered["request_id"]
    request = {"generate_response": generated, "prompt_token_ids": rendered["token_ids"], "chat_request": body}
    answer = post(renderer.url, f"{CHAT}/derender", request)
    assert answer["choices"] == whole["choices"]
    assert answer["usage"] == {**whole["usage"], **answer["usage"]}
    assert answer["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert answer["id"] == rendered["request_id"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_stream_is_derendered_event_by_event(server: Server, renderer: Renderer, path: str) -> None:
    prompt = {"messages": MESSAGES} if path == CHAT else {"prompt": "Hi"}
    body = {"model": "tiny", **prompt, "temperature": 0, "max_tokens": 12}
    whole = post(server.url, path, body)["choices"][0]
    rendered = post(renderer.url, f"{path}/render", {**body, "stream": True})
    rendered = rendered if path == CHAT else rendered[0]
    text, reason, state, roles = "", None, None, 0
    with httpx.stream("POST", f"{server.url}{GENERATE}", json=rendered, timeout=60) as events:
        for line in events.iter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            named = {("chat_request" if path == CHAT else "completion_request"): body}
            request = {"stream": True, "generate_chunk": json.loads(line[6:]), "stream_state": state, **named}
            answer = post(renderer.url, f"{path}/derender", {**request, "prompt_token_ids": rendered["token_ids"][-8:]})
            state = answer["stream_state"]
            choice = answer["chunk"]["choices"][0]
            text += choice["delta"].get("content", "") if path == CHAT else choice["text"]
            roles += "role" in choice.get("delta", {})
            reason = choice["finish_reason"] or reason
    expected = whole["message"]["content"] if path == CHAT else whole["text"]
    assert (text, reason, roles) == (expected, whole["finish_reason"], int(path == CHAT))


def test_keys_and_templates_of_the_command_line(tiny: Path) -> None:
    flags = ["--api-key", "key-of-the-test", "--chat-template", "<{{ messages[0].content }}>"]
    with rendering(tiny, "--served-model-name", "tiny", *flags, "--trust-request-chat-template") as running:
        assert httpx.get(f"{running.url}/health").status_code == 200
        for path in ("/v1/models", "/metrics", "/version"):
            assert httpx.get(f"{running.url}{path}").status_code == 401, path
        assert post(running.url, f"{CHAT}/render", CHAT_BODY, 401)["error"]["code"] == "invalid_api_key"
        asked = {**CHAT_BODY, "return_prompt_text": True}
        for body, text in ((asked, "<Grüße 🌶 <|end|>>"), ({**asked, "chat_template": "{{ 1 + 1 }}"}, "2")):
            key = {"Authorization": "Bearer key-of-the-test"}
            answer = httpx.post(f"{running.url}{CHAT}/render", json=body, headers=key)
            assert answer.json()["prompt_text"] == text
        process = psutil.Process(running.process.pid)
        before = process.memory_info().rss
        for template in (ENDLESS, FLOOD):
            body = {**CHAT_BODY, "chat_template": template}
            answer = httpx.post(f"{running.url}{CHAT}/render", json=body, headers=key, timeout=60)
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, "messages"), error
            assert "too long" in error["message"], error
        grown = process.memory_info().rss - before
        assert grown < 200 << 20, f"{grown >> 20} MiB"


BAD: list[tuple[str, str, Any, int, str | None]] = [
    ("unknown model", f"{CHAT}/render", {**CHAT_BODY, "model": "nobody"}, 404, "model"),
    ("no messages", f"{CHAT}/render", {"model": "tiny"}, 400, "messages"),
    ("a wrong flag", f"{CHAT}/render", {**CHAT_BODY, "return_token_offsets": 1}, 400, "return_token_offsets"),
    (
        "mask",
        f"{CHAT}/render",
        {**CHAT_BODY, "return_assistant_tokens_mask": True},
        400,
        "return_assistant_tokens_mask",
    ),
    (
        "offsets of ids",
        f"{COMPLETIONS}/render",
        {"prompt": [1], "return_token_offsets": True},
        400,
        "return_token_offsets",
    ),
    ("an id that is none", f"{COMPLETIONS}/render", {"prompt": [99999]}, 400, "prompt"),
    ("the second prompt", f"{COMPLETIONS}/render", {"prompt": ["a", ""]}, 400, "prompt.1"),
    ("too long", f"{COMPLETIONS}/render", {"prompt": "x" * 600}, 400, "prompt"),
    ("detokenize", "/detokenize", {"tokens": [99999]}, 400, "tokens"),
    ("a negative id", "/detokenize", {"tokens": [-1]}, 400, "tokens"),
    ("no ids", "/detokenize", {}, 400, "tokens"),
    ("no text", "/tokenize", {}, 400, "prompt"),
    ("both", "/tokenize", {**CHAT_BODY, "prompt": "a"}, 400, "prompt"),
    ("a long text", "/tokenize", {"prompt": "x" * (9 << 20)}, 400, "prompt"),
    ("no answer", f"{CHAT}/derender", {}, 400, "generate_response"),
    ("output id", f"{CHAT}/derender", {"generate_response": {"choices": [{"token_ids": [99999]}]}}, 400, "token_ids"),
    ("text", f"{CHAT}/derender", {"generate_response": {"output_mode": "text"}}, 400, "generate_response.output_mode"),
    (
        "a made up state",
        f"{CHAT}/derender",
        {"stream": True, "generate_chunk": {"choices": []}, "stream_state": {"x": 1}},
        400,
        "stream_state",
    ),
    (
        "a long state",
        f"{CHAT}/derender",
        {
            "stream": True,
            "generate_chunk": {"choices": [{"token_ids": [1]}]},
            "stream_state": {"id": "a", "created": 1, "choices": [{"index": 0, "token_ids": [1] * 600}]},
        },
        400,
        "stream_state",
    ),
]


@pytest.mark.parametrize(("name", "path", "body", "status", "param"), BAD, ids=[case[0] for case in BAD])
def test_what_is_wrong_is_named(url: str, name: str, path: str, body: Any, status: int, param: str | None) -> None:
    error = post(url, path, body, status)["error"]
    assert error["param"] == param, error
    assert set(error) == {"message", "type", "param", "code"}


def test_raw_bodies_that_are_nothing_are_refused(url: str) -> None:
    headers = {"content-type": "application/json"}
    for content in (b"\xff\xfe{}", b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}', b"", b"[]"):
        answer = httpx.post(f"{url}{CHAT}/render", content=content, headers=headers)
        assert answer.status_code == 400, content
    assert httpx.post(f"{url}/tokenize", content=b"{}").status_code == 400
    assert httpx.get(f"{url}/tokenize").status_code == 405


def test_a_body_of_200_megabytes_is_refused_and_costs_no_memory(renderer: Renderer) -> None:
    process = psutil.Process(renderer.process.pid)
    before = process.memory_info().rss
    headers = {"content-type": "application/json", "content-length": str(200 << 20)}

    def body() -> Iterator[bytes]:
        for _ in range(200):
            yield b"x" * (1 << 20)

    try:
        answer = httpx.post(f"{renderer.url}/tokenize", content=body(), headers=headers, timeout=60)
        assert answer.status_code == 413
    except httpx.TransportError:
        pass  # The server stops reading some time after it has answered.
    assert process.memory_info().rss < before + (150 << 20)
    assert post(renderer.url, "/tokenize", {"prompt": "a"})["count"] == 1


def test_the_program_says_how_it_is(renderer: Renderer) -> None:
    get = lambda path: httpx.get(f"{renderer.url}{path}")  # noqa: E731
    assert get("/health").json() == {"status": "ok"}
    assert get("/ready").status_code == 200
    assert get("/version").json() == {"version": __version__}
    model = get("/v1/models").json()["data"][0]
    assert (model["id"], model["max_model_len"]) == ("tiny", 512)
    assert get("/v1/models/tiny").json() == model
    assert get("/v1/models/other").status_code == 404
    assert 'handler="/health",method="GET",status="200"' in get("/metrics").text


def test_as_a_filter_each_line_has_its_answer_in_order(tiny: Path) -> None:
    lines = [{"prompt": f"line {number}", "request_id": f"r{number}"} for number in range(200)]
    text = [json.dumps(line).encode() for line in lines]
    text[7:7] = [b"", b"not JSON", b"\xff", json.dumps(CHAT_BODY).encode()]
    text.append(json.dumps({"url": "/tokenize", "prompt": "abc"}).encode())
    text.append(json.dumps({"url": "/nowhere"}).encode())
    text.append(b'{"prompt": "' + b"x" * (33 << 20) + b'"}')
    text.append(json.dumps({"tokens": [1]}).encode())
    command = [program(), str(tiny), "--filter", "--served-model-name", "tiny", "--threads", "3"]
    done = subprocess.run(command, input=b"\n".join(text), capture_output=True, check=True, timeout=60)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(text) - 1
    assert answers[7]["error"]["code"] == answers[8]["error"]["code"] == "invalid_json"
    assert answers[9]["request_id"].startswith("chatcmpl-")
    ids = [answer[0]["request_id"] for answer in answers if isinstance(answer, list)]
    assert ids == [line["request_id"] for line in lines]
    count, unknown, long, detokenized = answers[-4:]
    assert count["count"] == 3
    assert unknown["error"]["param"] == "url"
    assert long["error"]["code"] == "body_too_large"
    assert set(detokenized) == {"prompt"}


def test_a_filter_whose_reader_leaves_ends(tiny: Path) -> None:
    command = [program(), str(tiny), "--filter"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"tokens": [1]}\n')
        process.stdin.flush()
        assert process.stdout.readline().startswith(b'{"prompt"')
        process.stdout.close()
        process.stdin.write(b'{"tokens": [1]}\n' * 100)
        process.stdin.close()
        assert process.wait(20) == 0


def test_what_cannot_work_ends_with_2_and_a_reason(tmp_path: Path, tiny: Path) -> None:
    absent = str(tmp_path / "absent.pem")
    for flags, said in (
        ([str(tmp_path / "absent")], "is no folder"),
        ([str(tmp_path)], "tokenizer.json"),
        ([str(tiny), "--ssl-certfile", absent, "--ssl-keyfile", absent], "absent.pem"),
        ([str(tiny), "--ssl-certfile", absent], "--ssl-keyfile"),
        ([str(tiny), "--host", "no.such.host.invalid"], "cannot listen on no.such.host.invalid"),
        ([str(tiny), "--max-model-len", "0"], "--max-model-len"),
    ):
        done = subprocess.run([program(), *flags], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2, done
        assert said in done.stderr


def test_it_starts_at_once(tiny: Path) -> None:
    began = time.monotonic()
    with rendering(tiny):
        assert time.monotonic() - began < 2  # 0.5 s is measured with a real vocabulary in bench/render


TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
SAID = 'hm\n</think>\n\nLet me see.<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n</tool_call>'


def test_reasoning_and_calls_are_told_apart_however_the_output_is_cut(tiny: Path) -> None:
    tokenizer = make_tokenizer()
    ids = tokenizer(SAID, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    prompt = tokenizer("<|start|>assistant\n<think>\n", add_special_tokens=False)["input_ids"]
    request = {"messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}
    flags = ("--reasoning-parser", "qwen3", "--tool-call-parser", "hermes", "--enable-auto-tool-choice")
    with rendering(tiny, *flags) as running:
        generated = {"request_id": "r", "choices": [{"index": 0, "token_ids": ids, "finish_reason": "stop"}]}
        body = {"generate_response": generated, "prompt_token_ids": prompt, "chat_request": request}
        whole = post(running.url, f"{CHAT}/derender", body)
        choice = whole["choices"][0]
        (call,) = choice["message"]["tool_calls"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"].strip() == "Let me see."
        assert choice["message"]["reasoning"].strip() == "hm"
        assert json.loads(call["function"]["arguments"]) == {"city": "Zürich"}
        assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
        for size in (1, 7, 50):
            state, deltas, reasons = None, [], []
            for at in range(0, len(ids), size):
                end = "stop" if at + size >= len(ids) else None
                part = [{"index": 0, "token_ids": ids[at : at + size], "finish_reason": end}]
                chunk = {"stream": True, "generate_chunk": {"request_id": "r", "choices": part}, "stream_state": state}
                answer = post(
                    running.url, f"{CHAT}/derender", {**chunk, "prompt_token_ids": prompt, "chat_request": request}
                )
                state = answer["stream_state"]
                (piece,) = answer["chunk"]["choices"]
                deltas.append(piece["delta"])
                reasons.append(piece["finish_reason"])
            for name in ("content", "reasoning"):
                assert "".join(delta.get(name, "") for delta in deltas) == choice["message"][name]
            calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
            assert "".join(part["function"]["arguments"] for part in calls) == call["function"]["arguments"]
            assert [part["id"] for part in calls if "id" in part] == [call["id"]]
            assert reasons == [None] * (len(reasons) - 1) + ["tool_calls"]


def test_tools_without_a_parser_are_refused_by_name(renderer: Renderer) -> None:
    request = {"messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}
    body = {"generate_response": {"choices": [{"token_ids": [1]}]}, "chat_request": request}
    assert post(renderer.url, f"{CHAT}/derender", body, 400)["error"]["param"] == "chat_request.tools"
    assert post(renderer.url, f"{CHAT}/render", request)["token_ids"]


def test_ct14_one_bos_wherever_a_prompt_comes_from(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}"
    tokenizer.save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "add_bos_token": True}))
    bos, messages = tokenizer.bos_token_id, [{"role": "user", "content": "hi"}]
    with rendering(tmp_path) as running:
        rendered = post(running.url, f"{CHAT}/render", {"messages": messages})["token_ids"]
        assert rendered == tokenizer("<|start|>[hi]", add_special_tokens=False)["input_ids"]
        assert rendered.count(bos) == 1
        counted = post(running.url, "/tokenize", {"messages": messages})
        assert (counted["tokens"], counted["count"]) == (rendered, len(rendered))
        (plain,) = post(running.url, f"{COMPLETIONS}/render", {"prompt": "hi"})
        assert plain["token_ids"][0] == bos
        assert plain["token_ids"].count(bos) == 1
