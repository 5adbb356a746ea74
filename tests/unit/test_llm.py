"""The library without an engine: arguments, prompts, requests as events come."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
from array import array
from collections.abc import Sequence
from pathlib import Path

import msgspec
import octavo_native
import pytest

from octavo import LLM, SamplingParams
from octavo.engine_core.local import LocalEvent, LocalFrontend
from octavo.errors import ConfigError, ModelError, RequestError
from octavo.llm.logprobs import Logprob
from octavo.llm.model import library_config
from octavo.llm.request import Request
from octavo.llm.sampling import body_fields
from octavo.wire.frontend import AbortRequests, AddRequest, Delta, EngineInfo, Finish, Logprobs, RequestRejected
from octavo.wire.frontend import SamplingParams as WireParams
from tests.tiny import make_tokenizer


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> octavo_native.Renderer:
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(folder)
    return octavo_native.Renderer(folder, 7)


def params_of(prepared: octavo_native.Prepared, index: int) -> WireParams:
    return msgspec.msgpack.decode(prepared.sampling(index), type=WireParams)


def packed(*ids: int) -> bytes:
    return array("i", ids).tobytes()


def test_importing_octavo_loads_neither_torch_nor_the_library() -> None:
    code = "import octavo, sys; sys.exit('torch' in sys.modules or 'octavo.llm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_of_the_package() -> None:
    import octavo

    for name in octavo.__all__:
        assert getattr(octavo, name)
    with pytest.raises(AttributeError, match="LMM"):
        _ = octavo.LMM  # type: ignore[attr-defined]


def test_an_unknown_sampling_parameter_names_the_nearest() -> None:
    with pytest.raises(TypeError, match="'temprature'; did you mean temperature"):
        SamplingParams(temprature=1)
    with pytest.raises(TypeError, match=r"best_of.*octavo samples with n, presence_penalty"):
        SamplingParams(best_of=2)
    with pytest.raises(ValueError, match="finite number; got nan"):
        SamplingParams(temperature=float("nan"))


def test_sampling_params_are_frozen_and_take_one_stop_string() -> None:
    params = SamplingParams(stop="end", stop_token_ids=[3])
    assert (params.stop, params.stop_token_ids, params.max_tokens) == (("end",), (3,), 16)
    with pytest.raises(AttributeError):
        params.top_k = 3  # type: ignore[misc]


def test_body_of_sampling_params() -> None:
    assert body_fields(None) == {"max_tokens": 16}
    assert body_fields(SamplingParams(max_tokens=None))["max_tokens"] > 10**9
    assert body_fields(SamplingParams(top_k=5, seed=1))["top_k"] == 5


def test_settings_are_those_of_the_server() -> None:
    config = library_config("m", {"kv_cache_memory_bytes": "16M", "max_model_len": 64, "dtype": "float32"})
    assert (config.kv_cache_memory_bytes, config.max_model_len, config.dtype) == (16 << 20, 64, "float32")
    assert library_config("m", {"max_model_len": None}).max_model_len is None
    with pytest.raises(ConfigError, match="no setting 'max_modellen'; did you mean max_model_len"):
        library_config("m", {"max_modellen": 3})
    with pytest.raises(ConfigError, match="no setting 'port'"):
        library_config("m", {"port": 3})
    with pytest.raises(ConfigError, match="--dtype float16"):
        library_config("m", {"dtype": "float16"})


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(ModelError, match="does not exist"):
        LLM("/no/such/model")


def test_renderer_gives_what_the_tokenizer_gives(renderer: octavo_native.Renderer) -> None:
    prepared = renderer.completion(b'{"prompt": "hello", "seed": 5, "top_k": 3, "max_tokens": 900}', 512, 288)
    ids = make_tokenizer().encode("hello")
    assert prepared.prompt == packed(*ids)
    eos = (make_tokenizer().eos_token_id,)
    assert params_of(prepared, 0) == WireParams(5, 512 - len(ids), 1.0, 1.0, 3, eos)
    assert renderer.token_texts(ids) == list("hello")
    assert renderer.decode(renderer.encode("näh", True)) == "näh"
    chat = b'{"messages": [{"role": "user", "content": "hi"}]}'
    assert renderer.chat_text(chat) == "<|start|>user\nhi<|end|>\n<|start|>assistant\n"


def test_a_refused_request_names_its_field(renderer: octavo_native.Renderer) -> None:
    with pytest.raises(octavo_native.RenderError) as caught:
        renderer.completion(b'{"prompt": "hello", "top_p": 2}', 512, 288)
    message, _, param = caught.value.args
    assert param == "top_p" and "2" in message


def request(renderer: octavo_native.Renderer, body: str) -> Request:
    prepared = renderer.completion(body.encode(), 512, 288)
    return Request(range(1, 99), "cmpl-1", None, prepared, renderer.token_texts)


def test_text_of_a_request_as_its_tokens_come(renderer: octavo_native.Renderer) -> None:
    ids = make_tokenizer().encode("öl")
    mine = request(renderer, '{"prompt": "x"}')
    (child,) = mine.children
    assert not child.advance(Delta(1, 1, 0, packed(ids[0]), cached_tokens=0))
    assert mine.output().outputs[0].text == ""  # half of a character
    assert not child.advance(Delta(1, 1, 1, packed(*ids[1:]), Finish("length")))
    output = mine.output()
    assert (output.finished, output.num_cached_tokens, output.error) == (True, 0, None)
    assert (output.outputs[0].text, output.outputs[0].token_ids) == ("öl", ids)
    assert output.outputs[0].finish_reason == "length"


def test_a_stop_string_asks_for_an_abort_and_cuts_the_tokens(renderer: octavo_native.Renderer) -> None:
    mine = request(renderer, '{"prompt": "x", "stop": ["cd"]}')
    (child,) = mine.children
    assert child.advance(Delta(1, 1, 0, packed(*make_tokenizer().encode("abcdef"))))
    assert not child.advance(Delta(1, 1, 6, packed(1), Finish("length")))  # was under way
    first = mine.output().outputs[0]
    assert (first.text, first.stop_reason, first.finish_reason) == ("ab", "cd", "stop")
    assert first.token_ids == make_tokenizer().encode("abcd")


def test_failures_are_kept(renderer: octavo_native.Renderer) -> None:
    failed = request(renderer, '{"prompt": "x"}')
    failed.children[0].advance(Delta(1, 1, 0, b"", Finish("error", message="it kills workers")))
    assert failed.output().error == "it kills workers"
    rejected = request(renderer, '{"prompt": "x"}')
    rejected.children[0].advance(RequestRejected(1, 1, "invalid", "no"))
    assert (rejected.output().error, rejected.output().outputs[0].finish_reason) == ("no", "error")


def test_log_probabilities_and_several_outputs(renderer: octavo_native.Renderer) -> None:
    mine = request(renderer, '{"prompt": "xy", "n": 2, "seed": 4, "logprobs": 1, "stop": ["b"], "prompt_logprobs": 0}')
    first, second = mine.children
    assert (first.sampling.seed, first.sampling.extras.prompt_logprobs) == (4, 0)  # type: ignore[union-attr]
    assert second.sampling.seed != 4
    assert second.sampling.extras.prompt_logprobs is None  # type: ignore[union-attr]
    a, b, c = make_tokenizer().encode("abc")
    rows = Logprobs(2, packed(a, b, b, c, c, a), struct.pack("<6f", -0.5, -1, -2, -3, -4, -5), packed(1, 7, 9))
    of_prompt = Logprobs(1, packed(c), struct.pack("<f", -6), packed(3))
    assert first.advance(Delta(1, 1, 0, packed(a, b, c), None, 0, rows, of_prompt))
    assert not mine.finished
    second.advance(Delta(2, 1, 0, packed(c), Finish("length"), 0))
    output = mine.output()
    assert output.finished
    assert [one.text for one in output.outputs] == ["a", "c"]
    assert output.outputs[0].logprobs == [
        {a: Logprob(-0.5, 1, "a"), b: Logprob(-1, 1, "b")},
        {b: Logprob(-2, 7, "b"), c: Logprob(-3, 1, "c")},
    ]
    assert output.outputs[1].logprobs is None
    assert output.prompt_logprobs == [None, {c: Logprob(-6, 3, "c")}]


class Inbox:
    """A `Channel` that remembers."""

    def __init__(self) -> None:
        self.events: list[list[LocalEvent]] = []
        self.failure: str | None = None

    def put(self, events: Sequence[LocalEvent]) -> None:
        self.events.append(list(events))

    def fail(self, message: str) -> None:
        self.failure = message


def added(number: int) -> AddRequest:
    return AddRequest(number, 1, "n", packed(1), b"", WireParams(0, 1), 0)


def test_local_frontend_hands_each_channel_its_own() -> None:
    infos: list[EngineInfo] = []
    frontend, one, two = LocalFrontend(infos.append), Inbox(), Inbox()
    frontend.submit([added(1), added(2)], one)
    frontend.submit([added(3)], two)
    assert [frontend.receive_nowait() for _ in range(4)] == [added(1), added(2), added(3), None]
    deltas = [Delta(number, 1, 0, packed(5), Finish("length") if number == 1 else None) for number in (1, 2, 3)]
    frontend.deliver(1, deltas)
    assert one.events == [deltas[:2]] and two.events == [deltas[2:]]
    frontend.abort([1, 2])
    assert frontend.receive_nowait() == AbortRequests((2,), "client")  # 1 has ended
    frontend.deliver(2, [Delta(2, 1, 1, packed(6))])  # was under way
    assert len(one.events) == 1
    frontend.reject(added(3), "invalid", "no")
    assert two.events[1:] == [[RequestRejected(3, 1, "invalid", "no")]]


def test_local_frontend_that_has_ended_fails_what_is_open_and_what_comes() -> None:
    frontend, one, two = LocalFrontend(lambda info: None), Inbox(), Inbox()
    frontend.submit([added(1)], one)
    frontend.end("gone")
    frontend.submit([added(2)], two)
    assert (one.failure, two.failure, frontend.receive_nowait()) == ("gone", "gone", None)


def test_rendering_in_threads_gives_the_same(renderer: octavo_native.Renderer) -> None:
    found: list[bytes] = []

    def work() -> None:
        for _ in range(50):
            found.append(renderer.completion(b'{"prompt": "hello"}', 512, 288).prompt)  # noqa: PERF401

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 200 and len(set(found)) == 1


def test_prompts_of_a_wrong_kind(tmp_path: Path) -> None:
    from octavo.llm.model import _prompt

    assert _prompt({"prompt_token_ids": (1, 2)}) == [1, 2]
    assert _prompt({"prompt": "x"}) == "x"
    for wrong in (3, [1.5], {"text": "x"}, None):
        with pytest.raises(RequestError, match="a prompt"):
            _prompt(wrong)  # type: ignore[arg-type]


def test_a_forked_process_leaves_its_parents_engine_alone() -> None:
    import contextlib
    import os

    from octavo.llm.model import _close

    closed: list[str] = []
    stack = contextlib.ExitStack()
    stack.callback(closed.append, "closed")
    _close(os.getpid() + 1, stack)
    assert closed == []
    _close(os.getpid(), stack)
    assert closed == ["closed"]


def test_overrides_may_be_a_dictionary() -> None:
    given = {"hf_overrides": {"max_position_embeddings": 64}, "revision": "v2", "trust_remote_code": True}
    config = library_config("org/name", given)
    assert config.hf_overrides == '{"max_position_embeddings":64}'
    assert (config.revision, config.trust_remote_code) == ("v2", True)
