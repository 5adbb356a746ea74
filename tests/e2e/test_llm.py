"""The library with a real engine: in a script, under a running loop, under pytest; nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from octavo import LLM, AsyncLLM, RequestOutput, SamplingParams
from octavo.errors import ConfigError, EngineError, RequestError
from tests.e2e.server import Server, default_signals, wait_for

SETTINGS = {"dtype": "float32", "kv_cache_memory_bytes": "16M"}
DRAWN = SamplingParams(temperature=0.9, top_k=40, top_p=0.95, seed=11, max_tokens=24)


@pytest.fixture(scope="module")
def llm(tiny: Path) -> Iterator[LLM]:
    with LLM(tiny, **SETTINGS) as loaded:  # type: ignore[arg-type]
        yield loaded


def workers() -> list[psutil.Process]:
    """Return the workers that this process has, and that live."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "octavo.workers" in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


def ids(outputs: list[RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


def test_results_are_the_servers(llm: LLM, server: Server) -> None:
    client = server.client()
    prompts = ["hello", "a longer prompt than that one", "öäü"]
    sampling = {"temperature": 0.9, "top_p": 0.95, "seed": 11, "max_tokens": 24}
    extra = {"top_k": 40, "return_token_ids": True}
    for prompt, mine in zip(prompts, llm.generate(prompts, DRAWN, use_tqdm=False), strict=True):
        theirs = client.completions.create(model="tiny", prompt=prompt, extra_body=extra, **sampling)  # type: ignore[call-overload]
        choice = theirs.choices[0]
        assert mine.outputs[0].text == choice.text
        assert mine.outputs[0].token_ids == choice.token_ids
        assert mine.outputs[0].finish_reason == choice.finish_reason
        assert len(mine.prompt_token_ids) == theirs.usage.prompt_tokens
    messages = [{"role": "user", "content": "hi"}]
    chat = client.chat.completions.create(model="tiny", messages=messages, extra_body=extra, **sampling)  # type: ignore[call-overload]
    answer = llm.chat(messages, DRAWN, use_tqdm=False)[0]
    assert answer.outputs[0].text == chat.choices[0].message.content
    assert answer.prompt == "<|start|>user\nhi<|end|>\n<|start|>assistant\n"


#: Parameters that few requests use; the last ones are no fields of the official client.
RARE: dict[str, Any] = {
    "n": 2, "presence_penalty": 0.5, "frequency_penalty": 0.4, "logit_bias": {"99": 3}, "stop": ["zq"], "logprobs": 2,
}  # fmt: skip
RARER: dict[str, Any] = {
    "repetition_penalty": 1.2, "min_p": 0.01, "min_tokens": 3, "bad_words": ["ab"], "stop_token_ids": [7],
    "allowed_token_ids": list(range(90, 200)), "ignore_eos": True, "include_stop_str_in_output": True,
    "skip_special_tokens": False, "thinking_token_budget": 3, "thinking_start_token_ids": [100],
    "thinking_end_token_ids": [101, 102], "stream_interval": 2,
    "repetition_detection": {"max_pattern_size": 3, "min_pattern_size": 1, "min_count": 6},
}  # fmt: skip


def test_all_parameters_are_the_servers(llm: LLM, server: Server) -> None:
    """One of each at a time, then all: the same tokens, texts and log probabilities."""
    every = RARE | RARER
    for fields in ({}, *({name: value} for name, value in every.items() if "thinking" not in name), every):
        params = {"temperature": 0.9, "seed": 11, "max_tokens": 12} | fields
        body = {name: value for name, value in fields.items() if name in RARER}
        theirs = server.client().completions.create(
            model="tiny",
            prompt="hello",
            extra_body={"return_token_ids": True, "prompt_logprobs": 1} | body,
            **{name: value for name, value in params.items() if name not in RARER},  # type: ignore[call-overload]
        )
        bias = {int(token): value for token, value in fields.get("logit_bias", {}).items()}
        given = params | {"prompt_logprobs": 1} | ({"logit_bias": bias} if bias else {})
        (mine,) = llm.generate("hello", SamplingParams(**given), use_tqdm=False)
        assert len(mine.outputs) == len(theirs.choices) == params.get("n", 1), fields
        for own, choice in zip(mine.outputs, theirs.choices, strict=True):
            assert (own.text, own.token_ids) == (choice.text, choice.token_ids), fields
            assert (own.finish_reason, own.stop_reason) == (choice.finish_reason, getattr(choice, "stop_reason", None))
            if "logprobs" in fields:
                assert own.logprobs is not None
                first = [row[token].logprob for row, token in zip(own.logprobs, own.token_ids, strict=True)]
                assert first == pytest.approx(choice.logprobs.token_logprobs, abs=1e-5)
        assert mine.prompt_logprobs is not None
        told = theirs.choices[0].prompt_logprobs
        assert [row and {str(token): entry.rank for token, entry in row.items()} for row in mine.prompt_logprobs] == [
            row and {token: entry["rank"] for token, entry in row.items()} for row in told
        ]


def test_forms_of_prompts(llm: LLM) -> None:
    greedy = SamplingParams(temperature=0, max_tokens=4)
    token_ids = llm.encode("abc")
    text, tokens = {"prompt": "abc"}, {"prompt_token_ids": token_ids}
    first, *others = ids(llm.generate(["abc", text, tokens, token_ids], greedy, use_tqdm=False))
    assert others == [first] * 3
    assert ids(llm.generate("abc", greedy, use_tqdm=False)) == [first]
    assert ids(llm.generate(token_ids, greedy, use_tqdm=False)) == [first]
    assert llm.generate([], greedy, use_tqdm=False) == []
    lengths = llm.generate(["a", "b"], [SamplingParams(max_tokens=n, ignore_eos=True) for n in (2, 5)], use_tqdm=False)
    assert [len(tokens) for tokens in ids(lengths)] == [2, 5]
    with pytest.raises(RequestError, match="1 sampling_params came with 2 prompts"):
        llm.generate(["a", "b"], [greedy])


def test_a_prompt_that_is_too_long_raises_before_anything_runs(llm: LLM) -> None:
    with pytest.raises(RequestError, match="prompt 1: The prompt has 600 tokens") as caught:
        llm.generate(["a", "b" * 600], DRAWN, use_tqdm=False)
    assert caught.value.param == "prompt"
    assert len(llm.generate("a", DRAWN, use_tqdm=False)) == 1  # the engine goes on


def test_a_stop_string_ends_an_output(llm: LLM) -> None:
    text = llm.generate("stop", DRAWN, use_tqdm=False)[0].outputs[0].text
    stop = text[3:5]
    params = SamplingParams(temperature=0.9, top_k=40, top_p=0.95, seed=11, max_tokens=24, stop=stop)
    output = llm.generate("stop", params, use_tqdm=False)[0].outputs[0]
    assert (output.text, output.finish_reason, output.stop_reason) == (text[: text.index(stop)], "stop", stop)


@pytest.mark.timeout(100)
def test_two_thousand_prompts_with_a_bar_and_flat_memory(llm: LLM, capfd: pytest.CaptureFixture[str]) -> None:
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    llm.generate([f"warm {number}" for number in range(500)], params, use_tqdm=False)
    processes = [psutil.Process(), *workers()]
    before = sum(process.memory_info().rss for process in processes)
    outputs = llm.generate([f"prompt {number}" for number in range(2000)], params)
    assert [output.prompt for output in outputs] == [f"prompt {number}" for number in range(2000)]
    assert {len(tokens) for tokens in ids(outputs)} == {4}
    grown = sum(process.memory_info().rss for process in processes) - before
    assert grown < 64 << 20, f"{grown >> 20} MiB more than before"
    assert "2000/2000" in capfd.readouterr().err


def test_under_a_running_loop(tiny: Path, llm: LLM) -> None:
    """As in a notebook: a call that blocks, from a coroutine; then a model of its own, gone at the end."""

    async def cell() -> tuple[list[list[int]], list[list[int]]]:
        first = ids(llm.generate(["a", "b"], DRAWN, use_tqdm=False))
        with LLM(tiny, **SETTINGS) as own:  # type: ignore[arg-type]
            return first, ids(own.generate(["a", "b"], DRAWN, use_tqdm=False))

    before = len(workers())
    first, second = asyncio.run(cell())
    assert first == second
    assert len(workers()) == before


def test_streams(tiny: Path, llm: LLM) -> None:
    async def stream(model: AsyncLLM, prompt: str, params: SamplingParams) -> list[RequestOutput]:
        return [output async for output in model.generate(prompt, params)]

    async def main() -> None:
        async with AsyncLLM(tiny, **SETTINGS) as model:
            found = await asyncio.gather(*(stream(model, prompt, DRAWN) for prompt in ("a", "b", "a")))
            whole = llm.generate(["a", "b", "a"], DRAWN, use_tqdm=False)
            for outputs, expected in zip(found, whole, strict=True):
                assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
                assert len(outputs) > 5  # not all at once
                assert outputs[-1].outputs[0] == expected.outputs[0]
                texts = [output.outputs[0].text for output in outputs]
                assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
            messages = [{"role": "user", "content": "hi"}]
            chat = [output async for output in model.chat(messages, DRAWN)][-1]
            assert chat.outputs[0] == llm.chat(messages, DRAWN, use_tqdm=False)[0].outputs[0]
            with pytest.raises(RequestError, match="600 tokens"):
                await stream(model, "b" * 600, DRAWN)
            async for _ in model.generate("left early", SamplingParams(max_tokens=None, ignore_eos=True)):
                break
            running = asyncio.create_task(stream(model, "x", SamplingParams(max_tokens=None, ignore_eos=True)))
            await asyncio.sleep(0.05)
        with pytest.raises(EngineError, match="closed"):
            await running

    asyncio.run(asyncio.wait_for(main(), 90))


def test_a_worker_that_dies_is_replaced_and_the_batch_goes_on(tiny: Path, llm: LLM) -> None:
    params = SamplingParams(max_tokens=300, ignore_eos=True, seed=3)
    expected = ids(llm.generate(["a", "b"], params, use_tqdm=False))

    async def main() -> list[list[int]]:
        others = {process.pid for process in workers()}
        async with AsyncLLM(tiny, **SETTINGS) as model:
            await model.ready()
            killed = False
            found: list[int] = []
            async for output in model.generate("a", params):
                found = output.outputs[0].token_ids
                if len(found) > 20 and not killed:
                    (mine,) = (process for process in workers() if process.pid not in others)
                    mine.kill()
                    killed = True
            assert killed
            return [found]

    assert asyncio.run(asyncio.wait_for(main(), 90)) == expected[:1]


def test_a_start_that_fails_ends_with_its_error_and_no_process(tiny: Path, llm: LLM) -> None:
    before = len(workers())
    with pytest.raises(ConfigError, match="holds 0 blocks"):  # found when the worker has said what its layers need
        LLM(tiny, dtype="float32", kv_cache_memory_bytes=100)
    assert len(workers()) == before


def test_closed_means_closed(tiny: Path) -> None:
    loaded = LLM(tiny, **SETTINGS)  # type: ignore[arg-type]
    loaded.close()
    loaded.close()
    with pytest.raises(EngineError, match="closed"):
        loaded.generate("a", use_tqdm=False)


SCRIPT = """
import sys
import tempfile
from octavo import LLM, SamplingParams
llm = LLM(sys.argv[1], dtype="float32", kv_cache_memory_bytes="16M")
import psutil
print(*(child.pid for child in psutil.Process().children()), flush=True)
{end}
"""


CTRL_C = "llm.generate(['a'] * 10**4, SamplingParams(max_tokens=400, ignore_eos=True), use_tqdm=False)"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("print(len(llm.generate('a')))", 0),
        ("raise SystemExit(3)", 3),
        ("1 / 0", 1),
        ("import os; os._exit(4)", 4),
        (CTRL_C, -signal.SIGINT),
    ],
    ids=["end", "exit", "exception", "os-exit", "ctrl-c"],
)
def test_a_script_leaves_no_process(tiny: Path, tmp_path: Path, end: str, code: int) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(end=end))
    runtime = Path(tempfile.mkdtemp(prefix="run-"))  # short: sockets lie in it
    command = [sys.executable, str(tmp_path / "script.py"), str(tiny)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"XDG_RUNTIME_DIR": str(runtime)},
        preexec_fn=default_signals,
    )
    try:
        assert process.stdout is not None
        children = [int(word) for word in process.stdout.readline().split()]
        if end == CTRL_C:
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert children, errors
    assert process.returncode == code, errors
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in children), 10, "the workers are gone")
    left = list(runtime.iterdir())
    shutil.rmtree(runtime)
    assert not left or code == 4, left  # then nobody was left to remove it; the next start does


def bench(tiny: Path, tmp_path: Path, *words: str) -> tuple[str, dict[str, Any]]:
    """Run `octavo bench` with the model; return what it printed and its JSON."""
    file = tmp_path / "figures.json"
    flags = ("--model", str(tiny), "--dtype", "float32", "--kv-cache-memory-bytes", "16M", "--output-json", str(file))
    command = [sys.executable, "-m", "octavo", "bench", *words, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(file.read_text())


def test_bench_throughput(tiny: Path, tmp_path: Path) -> None:
    words = ("throughput", "--input-len", "20", "--output-len", "5", "--num-prompts", "12")
    text, found = bench(tiny, tmp_path, *words)
    assert (found["num_requests"], found["total_num_tokens"], found["total_output_tokens"]) == (12, 300, 60)
    assert found["tokens_per_second"] == pytest.approx(300 / found["elapsed_time"])
    assert "requests/s" in text


def test_bench_latency(tiny: Path, tmp_path: Path) -> None:
    lengths = ("--input_len", "20", "--output-len", "5", "--batch-size", "3")
    text, found = bench(tiny, tmp_path, "latency", *lengths, "--num-iters-warmup", "1", "--num-iters", "4")
    assert len(found["latencies"]) == 4
    assert found["avg_latency"] == pytest.approx(sum(found["latencies"]) / 4)
    assert "average latency of 4 batches" in text


def test_bench_refuses_what_the_context_does_not_hold(tiny: Path) -> None:
    command = [sys.executable, "-m", "octavo", "bench", "latency", "--model", str(tiny), "--input-len", "500"]
    done = subprocess.run(
        [*command, "--kv-cache-memory-bytes", "16M"], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 2
    assert "make 628 tokens, and the context holds 512" in done.stderr
