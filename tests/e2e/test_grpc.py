"""gRPC against a real server over mutual TLS: inference, control, roles, limits, health, grpcurl, the docs' RL loop."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from octavo.client import AsyncClient, CallError, Client
from octavo.v1 import control_pb2, control_pb2_grpc, inference_pb2
from tests.e2e.grpc_world import GrpcWorld, grpc_world
from tests.e2e.server import wait_for
from tests.e2e.trainer import weights_of
from tests.teacher import Check, check_tokens
from tests.tiny import make_llama

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "16M")
PROMPT = [7, 8, 9, 10] * 8
pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="certificates are made with openssl")


@pytest.fixture(scope="module")
def world(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcWorld]:
    with grpc_world(tiny, tmp_path_factory.mktemp("grpc"), *FLAGS) as world:
        yield world


@pytest.fixture(scope="module")
def client(world: GrpcWorld) -> Iterator[Client]:
    with world.client() as client:
        yield client


@pytest.fixture(scope="module")
def http(world: GrpcWorld) -> Iterator[httpx.Client]:
    with world.http() as http:
        yield http


def gauge(http: httpx.Client, name: str) -> float:
    """Return a metric, summed over its labels."""
    lines = [line for line in http.get("/metrics").text.splitlines() if line.startswith(f"octavo:{name}{{")]
    assert lines, name
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def idle(http: httpx.Client) -> None:
    """Wait until nothing runs and no block is in use."""
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        wait_for(lambda name=name: gauge(http, name) == 0, 20, f"{name} is 0")


def health(world: GrpcWorld, service: str = "") -> int:
    """Ask the standard health service: 1 is SERVING, 2 NOT_SERVING. The messages are one field each."""
    with world.connection("nobody").channel() as channel:
        name = service.encode()
        call = channel.unary_unary("/grpc.health.v1.Health/Check")
        answer: bytes = call(b"\x0a" + bytes([len(name)]) + name if name else b"", timeout=20)
    assert answer[0] == 8
    return answer[1]


def test_three_kinds_of_prompts_are_answered_as_over_http(client: Client, http: httpx.Client) -> None:
    body: dict[str, Any] = {"model": "tiny", "max_tokens": 6, "temperature": 0, "return_token_ids": True}
    options = {"max_tokens": 6, "temperature": 0, "return_token_ids": True, "return_prompt_token_ids": True}
    for prompt in ("Hello", PROMPT):
        expected = http.post("/v1/completions", json={**body, "prompt": prompt}).json()
        answer = client.generate(prompt, **options)
        choice = expected["choices"][0]
        assert answer.outputs[0].text == choice["text"]
        assert list(answer.outputs[0].token_ids) == choice["token_ids"]
        assert list(answer.prompt.token_ids) == choice["prompt_token_ids"]
        assert answer.usage.prompt_tokens == expected["usage"]["prompt_tokens"]
    cut = client.generate(PROMPT, truncate_prompt_tokens=3, truncation_side="right", **options)
    assert list(cut.prompt.token_ids) == PROMPT[:3] and cut.usage.prompt_tokens == 3
    messages = [{"role": "user", "content": "Hello"}]
    expected = http.post("/v1/chat/completions", json={**body, "messages": messages}).json()
    answer = client.generate(messages, **options)
    assert answer.outputs[0].text == expected["choices"][0]["message"]["content"]
    assert list(answer.prompt.token_ids) == expected["prompt_token_ids"]
    assert answer.outputs[0].finish.reason == inference_pb2.FINISH_REASON_LENGTH
    assert answer.model == "tiny" and answer.request_id.startswith("generate-")


def test_a_whole_answer_is_the_sum_of_its_stream(client: Client) -> None:
    options: dict[str, Any] = {
        "n": 2, "seed": 5, "temperature": 0.9, "max_tokens": 12, "logprobs": 2, "prompt_logprobs": 1,
        "return_token_ids": True, "request_id": "mine-1", "ignore_eos": True,
    }  # fmt: skip
    whole = client.generate(PROMPT, **options)
    pieces = list(client.stream(PROMPT, **options))
    assert len(pieces) > 2 and {piece.request_id for piece in pieces} == {"mine-1"}
    for index, output in enumerate(whole.outputs):
        own = [piece.output for piece in pieces if piece.output.index == index]
        assert "".join(piece.text for piece in own) == output.text
        assert [token for piece in own for token in piece.token_ids] == list(output.token_ids)
        logprobs = [entry for piece in own for entry in piece.logprobs]
        assert [entry.token.token_id for entry in logprobs] == list(output.token_ids)
        assert all(len(entry.top) == 2 and entry.token.rank >= 1 for entry in logprobs)
        assert all(entry.top[0].logprob >= entry.top[1].logprob for entry in logprobs)
        assert own[-1].finish.completion_tokens == output.finish.completion_tokens == 12
    assert whole.outputs[0].text != whole.outputs[1].text
    assert len(whole.prompt.logprobs) == len(PROMPT) and not whole.prompt.logprobs[0].HasField("token")
    assert [entry.token.token_id for entry in whole.prompt.logprobs[1:]] == PROMPT[1:]
    assert whole.usage.completion_tokens == 24 and pieces[-1].usage.completion_tokens == 24


def test_outputs_have_the_form_that_is_asked_for(client: Client) -> None:
    choice = inference_pb2.StructuredOutputs(choice=inference_pb2.Choice(texts=["red", "green"]))
    assert client.generate("Colour:", structured_outputs=choice, max_tokens=8).outputs[0].text in ("red", "green")
    schema = {
        "type": "object",
        "properties": {"b": {"type": "boolean"}},
        "required": ["b"],
        "additionalProperties": False,
    }
    json_of = inference_pb2.StructuredOutputs(json=json.dumps(schema), disable_any_whitespace=True)
    found = client.generate("x", structured_outputs=json_of, max_tokens=40, temperature=0).outputs[0].text
    assert json.loads(found)["b"] in (True, False)


def test_salts_part_what_is_cached(client: Client) -> None:
    prompt = [3] * 64

    def cached(salt: str) -> int:
        return int(client.generate(prompt, cache_salt=salt, max_tokens=1, session_id="s").usage.cached_tokens)

    assert (cached("a"), cached("b")) == (0, 0)
    assert cached("a") > 0


REFUSED: list[tuple[dict[str, Any], grpc.StatusCode, str | None]] = [
    ({"temperature": -1.0}, grpc.StatusCode.INVALID_ARGUMENT, "sampling_params.temperature"),
    ({"temperature": float("nan")}, grpc.StatusCode.INVALID_ARGUMENT, "sampling_params.temperature"),
    ({"n": 0}, grpc.StatusCode.INVALID_ARGUMENT, "sampling_params.n"),
    ({"logprobs": 21}, grpc.StatusCode.INVALID_ARGUMENT, "sampling_params.logprobs"),
    ({"stop_token_ids": [10_000]}, grpc.StatusCode.INVALID_ARGUMENT, "sampling_params.stop_token_ids"),
    ({"prompt": []}, grpc.StatusCode.INVALID_ARGUMENT, "token_ids"),
    ({"prompt": [1_000_000]}, grpc.StatusCode.INVALID_ARGUMENT, "token_ids"),
    ({"prompt": "x" * 5000}, grpc.StatusCode.INVALID_ARGUMENT, "text"),
    ({"prompt": [{"role": "user"}]}, grpc.StatusCode.INVALID_ARGUMENT, "conversation.messages.0.content"),
    ({"model": "other"}, grpc.StatusCode.NOT_FOUND, "model"),
    ({"priority": 3}, grpc.StatusCode.INVALID_ARGUMENT, "priority"),
    ({"request_id": "a b"}, grpc.StatusCode.INVALID_ARGUMENT, "request_id"),
    ({"cache_salt": "s" * 2000}, grpc.StatusCode.INVALID_ARGUMENT, "cache_salt"),
    (
        {"structured_outputs": inference_pb2.StructuredOutputs(json="{")},
        grpc.StatusCode.INVALID_ARGUMENT,
        "structured_outputs.json",
    ),
]


@pytest.mark.parametrize(("options", "status", "param"), REFUSED, ids=[str(case[2]) for case in REFUSED])
def test_what_is_wrong_is_refused_by_name(
    client: Client, options: dict[str, Any], status: grpc.StatusCode, param: str | None
) -> None:
    given = dict(options)
    prompt = given.pop("prompt", "x")
    for ask in (client.generate, lambda *a, **k: list(client.stream(*a, **k))):
        with pytest.raises(CallError) as caught:
            ask(prompt, **given)
        assert (caught.value.status, caught.value.param) == (status, param), caught.value
        assert caught.value.code and caught.value.message


def test_media_are_refused_for_now(client: Client) -> None:
    item = inference_pb2.MediaItem(modality=inference_pb2.MODALITY_IMAGE, data=b"x", mime_type="image/png")
    part = inference_pb2.ContentPart(media=item)
    message = inference_pb2.Message(role="user", content=[inference_pb2.ContentPart(text="see"), part])
    with pytest.raises(CallError, match="text only") as caught:
        client.generate(inference_pb2.Conversation(messages=[message]))
    assert caught.value.status is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.param == "conversation.messages.0.content.1"
    request = inference_pb2.GenerateRequest(token_ids=inference_pb2.TokenIds(ids=[1]), media=[item])
    with pytest.raises(CallError, match="images"):
        client._call(client._inference.Generate, request, None)


def test_a_call_that_ends_early_gives_its_blocks_back(client: Client, http: httpx.Client) -> None:
    """Cancelled in mid-stream, or at its deadline, in a stream and not."""
    long = {"max_tokens": 400, "ignore_eos": True, "temperature": 0}
    stream = client.stream(PROMPT, **long)
    next(stream)
    stream.close()
    with pytest.raises(CallError) as caught:
        client.generate(PROMPT, timeout=0.2, **long)
    assert caught.value.status is grpc.StatusCode.DEADLINE_EXCEEDED
    with pytest.raises(CallError) as caught:
        list(client.stream(PROMPT, timeout=0.2, **long))
    assert caught.value.status is grpc.StatusCode.DEADLINE_EXCEEDED
    idle(http)


def test_many_streams_over_one_channel(world: GrpcWorld, http: httpx.Client) -> None:
    """OCTAVO_GRPC_STREAMS=1000 for all of them."""
    count = int(os.environ.get("OCTAVO_GRPC_STREAMS", "60"))

    async def one(client: AsyncClient, index: int) -> list[int]:
        options = {"max_tokens": 4, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        return [
            token
            async for message in client.stream([index % 7 + 1, 2, 3], **options)
            for token in message.output.token_ids
        ]

    async def every() -> list[list[int]]:
        async with AsyncClient(world.connection(), timeout=300) as client:
            return await asyncio.gather(*(one(client, index) for index in range(count)))

    found = asyncio.run(every())
    assert all(len(tokens) == 4 for tokens in found)
    assert all(found[index] == found[index % 7] for index in range(count))
    idle(http)


def test_gr01_a_killed_engine_is_no_error(world: GrpcWorld, client: Client, http: httpx.Client, tiny: Path) -> None:
    """Client errors in a row stand in nobody's way; SIGKILL with calls in flight: they wait and finish."""
    for _ in range(5):
        for ask in (lambda: client.generate("x", n=0), lambda: client.generate(PROMPT, temperature=-1.0)):
            with pytest.raises(CallError) as caught:
                ask()
            assert caught.value.status is grpc.StatusCode.INVALID_ARGUMENT
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 5, "temperature": 0}
    assert http.post("/v1/completions", json=body).status_code == 200
    options: dict[str, Any] = {"max_tokens": 200, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    answers: list[int] = []
    streamed: list[int] = []
    whole = threading.Thread(target=lambda: answers.extend(client.generate(PROMPT, **options).outputs[0].token_ids))
    whole.start()
    killed = 0
    for message in client.stream(PROMPT, **options):
        streamed += message.output.token_ids
        if streamed and not killed:
            killed = world.server.kill("engine")
    whole.join(60)
    assert len(streamed) == len(answers) == 200 and world.server.pid("engine") != killed
    for tokens in (streamed, answers):
        check_tokens(tiny, Check(PROMPT, tokens))
    wait_for(lambda: health(world) == 1, 30, "serving")
    idle(http)


def test_roles_are_those_of_http(world: GrpcWorld) -> None:
    def status(act: Callable[[], Any]) -> grpc.StatusCode:
        try:
            act()
        except CallError as error:
            return error.status
        return grpc.StatusCode.OK

    for role, key, generate, pause in [
        ("all", None, "OK", "OK"),
        ("inference", None, "OK", "PERMISSION_DENIED"),
        ("nobody", None, "UNAUTHENTICATED", "UNAUTHENTICATED"),
        ("nobody", "wrong-key-altogether", "UNAUTHENTICATED", "UNAUTHENTICATED"),
        ("nobody", "key-of-an-admin", "PERMISSION_DENIED", "OK"),
        ("inference", "key-of-an-admin", "OK", "OK"),
    ]:
        with world.client(role, key) as client:
            found = (status(lambda: client.generate("x", max_tokens=1)).name, status(client.is_paused).name)
        assert found == (generate, pause), (role, key)


def test_nobody_is_answered_without_a_certificate(world: GrpcWorld) -> None:
    with Client(world.target, ca_file=world.authority.root, timeout=5) as client, pytest.raises(CallError) as caught:
        client.generate("x")
    assert caught.value.status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def test_control_says_what_http_says(client: Client, http: httpx.Client) -> None:
    info = client.server_info()
    told = http.get("/server_info").json()
    for said in (info, told):
        del said["engine"]["startup_ms"], said["uptime_s"]
    assert info == told and info["engine"]["block_tokens"] == 16
    model = client.model_info()
    assert (model.model, model.state, model.world_size) == ("tiny", "running", 1)
    assert model.max_model_len == told["engine"]["max_model_len"]
    assert client.kv_event_sources() == []
    assert client.weight_version() == http.get("/weight_info").json()["weight_version"]
    client.update_weight_version("named")
    assert client.weight_version() == "named"
    client.reset_prefix_cache()
    assert client.abort() == 0
    for act, status in [
        (client.start_weight_update, "FAILED_PRECONDITION"),
        (lambda: client.init_weight_transfer_engine({"backend": "smoke"}), "INVALID_ARGUMENT"),
        (lambda: client.sleep(7), "INVALID_ARGUMENT"),
        (lambda: client.wake_up(["nothing"]), "INVALID_ARGUMENT"),
        (lambda: client.update_weight_version(""), "INVALID_ARGUMENT"),
    ]:
        with pytest.raises(CallError) as caught:
            act()
        assert caught.value.status.name == status, caught.value


def test_what_octavo_does_not_have_is_unimplemented(world: GrpcWorld) -> None:
    with world.connection().channel() as channel:
        stub = control_pb2_grpc.ControlServiceStub(channel)
        for call, request in [
            (stub.LoadLora, control_pb2.LoadLoraRequest(lora_name="a", lora_path="b")),
            (stub.UnloadLora, control_pb2.UnloadLoraRequest(lora_name="a")),
            (stub.ListLoras, control_pb2.ListLorasRequest()),
            (stub.StartDraftWeightUpdate, control_pb2.StartDraftWeightUpdateRequest()),
            (stub.ResetMmCache, control_pb2.ResetMmCacheRequest()),
            (stub.ResetEncoderCache, control_pb2.ResetEncoderCacheRequest()),
            (channel.unary_unary("/octavo.v1.ControlService/Nothing"), b""),
            (channel.unary_unary("/octavo.v1.Nothing/Nothing"), b""),
        ]:
            with pytest.raises(grpc.RpcError) as caught:
                call(request, timeout=20)
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_pauses_and_sleeps_show_in_health(world: GrpcWorld, client: Client) -> None:
    assert [health(world, name) for name in ("", "octavo.v1.InferenceService", "octavo.v1.ControlService")] == [1, 1, 1]
    with pytest.raises(grpc.RpcError) as caught:
        health(world, "nothing")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    before = client.generate(PROMPT, max_tokens=5, temperature=0).outputs[0].text
    client.pause("keep")
    client.pause("keep")
    assert client.is_paused() and client.model_info().state == "paused"
    wait_for(lambda: health(world) == 2, 10, "not serving")
    assert health(world, "octavo.v1.ControlService") == 1
    client.resume()
    client.sleep(1)
    assert client.is_sleeping()
    client.wake_up(["weights"])
    assert client.is_sleeping()
    client.wake_up()
    assert not client.is_sleeping() and not client.is_paused()
    wait_for(lambda: health(world) == 1, 10, "serving")
    assert client.generate(PROMPT, max_tokens=5, temperature=0).outputs[0].text == before


def example() -> dict[str, Any]:
    """Run the code of docs/rl-loop.md and return what it defines."""
    page = (ROOT / "docs" / "rl-loop.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(compile(code[1], "docs/rl-loop.md", "exec"), names)
    return names


def test_the_rl_loop_of_the_docs(client: Client, tiny: Path, tmp_path: Path) -> None:
    """Weights change in mid-sequence; each token is the choice of the weights that it came under."""
    other = make_llama(tmp_path / "other", seed=1)
    names = example()
    models = [tiny, other]
    for turn in range(2):
        then = models[1 - turn]
        tokens: list[int] = []
        reader = threading.Thread(target=names["rollout"], args=(client, PROMPT, tokens))
        reader.start()
        wait_for(lambda tokens=tokens: len(tokens) >= 3, 60, "3 tokens")
        names["update"](client, weights_of(then), f"step-{turn}")
        shown = len(tokens)
        reader.join(60)
        assert not reader.is_alive() and len(tokens) == names["LENGTH"] > shown
        assert client.weight_version() == f"step-{turn}"
        _switched(models[turn], then, tokens, shown)
        fresh = client.generate(PROMPT, max_tokens=20, temperature=0, ignore_eos=True, return_token_ids=True)
        check_tokens(then, Check(PROMPT, list(fresh.outputs[0].token_ids)))


def _switched(first: Path, then: Path, tokens: list[int], shown: int) -> None:
    """Check that up to a place that was shown at the resume the tokens are the first model's, then the other's."""
    for switch in range(shown, 0, -1):
        try:
            check_tokens(first, Check(PROMPT, tokens[:switch]))
            check_tokens(then, Check(PROMPT + tokens[:switch], tokens[switch:]))
        except AssertionError:
            continue
        return
    raise AssertionError(f"no switch before token {shown} of {len(tokens)}")


def grpcurl() -> str:
    """Return the program: on the PATH, or where `go install` puts it."""
    found = shutil.which("grpcurl") or shutil.which("grpcurl", path=os.path.expanduser("~/go/bin"))
    if found is None:
        pytest.skip("grpcurl: go install github.com/fullstorydev/grpcurl/cmd/grpcurl@latest")
    return found


def test_grpcurl_finds_its_way(world: GrpcWorld) -> None:
    papers = world.papers["all"]
    command = [
        grpcurl(),
        "-cacert",
        str(world.authority.root),
        "-cert",
        str(papers.certificate),
        "-key",
        str(papers.key),
    ]

    def ask(*words: str) -> str:
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    services = ask(world.target, "list").split()
    assert {"octavo.v1.InferenceService", "octavo.v1.ControlService", "grpc.health.v1.Health"} <= set(services)
    assert "rpc GenerateStream" in ask(world.target, "describe", "octavo.v1.InferenceService")
    body = json.dumps({"text": "Hello", "sampling_params": {"max_tokens": 3, "temperature": 0}})
    answer = json.loads(ask("-d", body, world.target, "octavo.v1.InferenceService/Generate"))
    assert answer["usage"]["completionTokens"] == "3"
    assert "SERVING" in ask(world.target, "grpc.health.v1.Health/Check")
    done = subprocess.run(
        [
            *command,
            "-d",
            '{"text": "x", "sampling_params": {"n": 0}}',
            world.target,
            "octavo.v1.InferenceService/Generate",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "InvalidArgument" in done.stderr and "sampling_params.n" in done.stderr


def test_a_client_may_end_the_server(world: GrpcWorld) -> None:
    """The last of this file: the server goes, in order."""
    with world.client() as client:
        client.shutdown()
        assert world.server.process.wait(30) == 0
        began = time.monotonic()
        with pytest.raises(CallError):
            client.generate("x", timeout=2)
        assert time.monotonic() - began < 20
    world.server.logged("a client asks for the end")
