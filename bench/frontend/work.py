"""The work that is measured, and how figures come from it."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.frontend.health import measure_health
from bench.frontend.memory import measure_memory
from bench.frontend.processes import Outcome, Programs, Stack, allocations, instructions, running
from octavo.errors import ConfigError
from octavo.modelfiles import export_tokenizer, resolve, smollm2

__all__ = ["Figures", "Work", "goals", "measure", "prepare_tokenizer"]

Figures = dict[str, float]

#: English prose: what tokenizers see.
_TEXT = (
    "The river ran low that summer, and the mill stood still for weeks at a time. People came to look at the dry bed, "
    "where the stones lay white in the sun, and told each other of the floods of other years. Nobody fished any more. "
    "In the evenings the miller sat before his door with a book that he did not read, and counted the carts that went "
    "by to the new mill in the valley, which ran by steam and did not care about the weather. "
)


@dataclass(frozen=True, slots=True)
class Work:
    """How much is done. Streams and step times are chosen so that the parts that are paced stay paced on two cores."""

    requests: int = 4000  # of one token, in a closed loop
    request_connections: int = 16
    streams: int = 64
    stream_tokens: int = 512
    stream_rounds: int = 4  # requests that each stream makes
    step_ms: float = 5.0
    full_streams: int = 256
    full_rounds: int = 5  # requests that each of them makes
    slow_tokens: int = 257  # under valgrind
    slow_step_ms: float = 60.0
    serve_tokens: int = 64
    serve_step_ms: float = 5.0
    serve_levels: tuple[int, ...] = (32, 64, 128, 256, 512)
    serve_seconds: float = 4.0
    rate_seconds: float = 10.0
    warmup_seconds: float = 1.0
    aborted: int = 10_000  # streams that clients leave
    slow_clients: int = 1_000  # that read one byte a second
    slow_seconds: int = 20
    settle_seconds: float = 2.0
    health_probes: int = 2_000
    real_tokenizer: bool = True  # if it is on this machine

    @classmethod
    def quick(cls) -> Work:
        """As little as shows that everything works; its figures mean nothing."""
        return cls(
            requests=100,
            request_connections=4,
            streams=4,
            stream_tokens=32,
            stream_rounds=1,
            step_ms=2.0,
            full_streams=8,
            full_rounds=2,
            slow_tokens=5,
            slow_step_ms=20.0,
            serve_tokens=8,
            serve_step_ms=2.0,
            serve_levels=(4, 8),
            serve_seconds=0.4,
            rate_seconds=0.8,
            warmup_seconds=0.2,
            aborted=50,
            slow_clients=20,
            slow_seconds=1,
            settle_seconds=0.1,
            health_probes=50,
            real_tokenizer=False,
        )


def prepare_tokenizer(folder: Path, real: bool = True) -> str:
    """Write a tokenizer into `folder`: SmolLM2's if `real` and on this machine, else bytes. Return its name."""
    found = smollm2.find() if real else None
    if found is not None:
        export_tokenizer(resolve(str(found)), folder)
        return "SmolLM2"
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = {char: index for index, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    config = {"chat_template": template, "model_max_length": 8192}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"vocab_size": len(alphabet)}))
    return "bytes"


def _body(max_tokens: int, **prompt: Any) -> dict[str, Any]:
    common = {"model": "mock", "stream": True, "stream_options": {"include_usage": True}}
    return common | {"max_tokens": max_tokens, "ignore_eos": True, "seed": 1} | prompt


def _completions(max_tokens: int, words: int) -> list[dict[str, Any]]:
    """Return bodies whose prompts differ, so that no cache of encodings makes them free."""
    text = _TEXT.split() * 4
    return [_body(max_tokens, prompt=" ".join(text[first : first + words])) for first in range(32)]


def _chats(max_tokens: int, words: int) -> list[dict[str, Any]]:
    prompts = [body["prompt"] for body in _completions(max_tokens, words)]
    system = {"role": "system", "content": "You are a helpful assistant."}
    return [_body(max_tokens, messages=[system, {"role": "user", "content": prompt}]) for prompt in prompts]


_CHAT, _COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def _script(step_ms: float) -> list[str]:
    return ["--step-time", str(step_ms), "--max-num-seqs", "8192"]


def measure(programs: Programs, tokenizer: Path, work: Work) -> Figures:
    """Do all the work once."""
    figures: Figures = {}
    with running(programs, tokenizer, *_script(0)) as stack:
        _requests(stack, work, figures)
    with running(programs, tokenizer, *_script(work.step_ms)) as stack:
        _tokens(stack, work, figures)
    with running(programs, tokenizer, *_script(1)) as stack:
        _full(stack, work, figures)
    with running(programs, tokenizer, *_script(work.serve_step_ms)) as stack:
        _serve(stack, work, figures)
        figures |= measure_health(stack, _chats(work.serve_tokens, 80), work.health_probes)
    with running(programs, tokenizer, *_script(work.step_ms)) as stack:
        endless = _body(4000, prompt=_TEXT)
        figures |= measure_memory(
            stack, endless, work.aborted, work.slow_clients, work.slow_seconds, work.settle_seconds
        )
    if programs.counting is not None:
        _allocations(programs, tokenizer, work, figures)
    if programs.valgrind is not None:
        _instructions(programs, tokenizer, work, figures)
    return figures


def _requests(stack: Stack, work: Work, figures: Figures) -> None:
    """Chats of one token: routing, JSON, template, tokenizer, link, and one short answer."""
    flags = ("--connections", str(work.request_connections), "--num-requests")
    stack.load(_CHAT, _chats(1, 80), *flags, str(work.requests // 4))
    found = stack.load(_CHAT, _chats(1, 80), *flags, str(work.requests))
    figures["requests_s"] = found.requests / found.seconds
    figures["request_cpu_us"] = 1e6 * found.frontend.total / found.requests
    figures["request_user_us"] = 1e6 * found.frontend.user / found.requests


def _tokens(stack: Stack, work: Work, figures: Figures) -> None:
    """Streams at the script's pace, one token an event; what a request of one token costs is taken off."""
    flags = ("--connections", str(work.streams), "--num-requests")
    stack.load(_COMPLETIONS, _completions(1, 24), *flags, str(work.streams))
    count = work.requests // 4
    short = stack.load(_COMPLETIONS, _completions(1, 24), *flags, str(count))
    long = stack.load(
        _COMPLETIONS, _completions(work.stream_tokens, 24), *flags, str(work.streams * work.stream_rounds)
    )
    tokens = long.tokens - long.requests
    share = long.requests / short.requests
    figures["token_cpu_us"] = 1e6 * (long.frontend.total - share * short.frontend.total) / tokens
    figures["token_user_us"] = 1e6 * (long.frontend.user - share * short.frontend.user) / tokens
    figures["tokens_per_event"] = tokens / max(1.0, long.events - share * short.events)
    figures["mock_token_us"] = 1e6 * long.mock.total / long.tokens
    figures["load_token_us"] = 1e6 * long.load.total / long.tokens


def _full(stack: Stack, work: Work, figures: Figures) -> None:
    """More tokens than can be written one by one: what comes out, and how many tokens an event then carries."""
    # All streams go in step: a window of time would cut between two waves of them.
    count = work.full_streams * work.full_rounds
    flags = ("--connections", str(work.full_streams), "--num-requests", str(count))
    found = stack.load(_COMPLETIONS, _completions(work.stream_tokens, 24), *flags)
    figures["stream_tokens_s"] = found.tokens / found.seconds
    figures["stream_events_s"] = found.events / found.seconds


def _serve(stack: Stack, work: Work, figures: Figures) -> None:
    """Chats of usual size: the most requests a second of all levels, then TTFT at 90% of that."""
    bodies = _chats(work.serve_tokens, 80)
    best = 0.0
    for level in work.serve_levels:
        flags = (
            "--connections",
            str(level),
            "--warmup",
            str(work.warmup_seconds),
            "--seconds",
            str(work.serve_seconds),
        )
        found = stack.load(_CHAT, bodies, *flags)
        rate = found.requests / found.seconds
        if rate < 1.02 * best:
            break
        best = rate
    figures["capacity_requests_s"] = best
    paced = (
        "--connections",
        "4096",
        "--warmup",
        str(work.warmup_seconds),
        "--seconds",
        str(work.rate_seconds),
        "--rate",
        str(0.9 * best),
    )
    found = stack.load(_CHAT, bodies, *paced)
    figures["ttft_p50_ms"] = found.ttft_ms["p50"]
    figures["ttft_p99_ms"] = found.ttft_ms["p99"]
    figures["rate_requests_s"] = found.requests / found.seconds


def _allocations(programs: Programs, tokenizer: Path, work: Work, figures: Figures) -> None:
    """Counts of whole runs that differ in one thing: what is left when one is taken from the other is of that thing."""
    streams = work.streams
    base = _count(programs, tokenizer, work, 1, streams)
    more = _count(programs, tokenizer, work, 1, 3 * streams)
    long = _count(programs, tokenizer, work, work.stream_tokens, streams)
    figures["request_allocations"] = (more[0] - base[0]) / (more[1].requests - base[1].requests)
    figures["token_allocations"] = (long[0] - base[0]) / (long[1].tokens - base[1].tokens)


def _instructions(programs: Programs, tokenizer: Path, work: Work, figures: Figures) -> None:
    """As allocations are counted; no other process can disturb this figure."""
    (base, few), (long, many) = (_profiled(programs, tokenizer, work, tokens) for tokens in (1, work.slow_tokens))
    figures["token_instructions"] = (long - base) / (many - few)


def _profiled(programs: Programs, tokenizer: Path, work: Work, tokens: int, tries: int = 3) -> tuple[int, int]:
    """Return the instructions of a whole run in valgrind, and the tokens it streamed.

    What runs for the first time is slow there, so slow that the frontend may find itself late and refuse requests: a
    run of which some were refused is made again.
    """
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "profile"
        under = [programs.valgrind or "", "--tool=callgrind", f"--callgrind-out-file={profile}"]
        try:
            with running(programs, tokenizer, *_script(work.slow_step_ms), under=under) as stack:
                _warm(stack)
                flags = ("--connections", str(work.streams), "--num-requests", str(work.streams))
                sent = stack.load(_COMPLETIONS, _completions(tokens, 24), *flags)
        except ConfigError:
            if tries == 1:
                raise
            return _profiled(programs, tokenizer, work, tokens, tries - 1)
        return instructions(profile), sent.tokens


def _warm(stack: Stack) -> None:
    """Have one request answered, so that code has run once; the first ones may be refused."""
    for left in range(20, 0, -1):
        try:
            stack.load(_COMPLETIONS, _completions(1, 24), "--connections", "1", "--num-requests", "1")
            return
        except ConfigError:
            if left == 1:
                raise
            time.sleep(0.3)  # the lag is measured ten times a second


def _count(programs: Programs, tokenizer: Path, work: Work, tokens: int, requests: int) -> tuple[int, Outcome]:
    with contextlib.ExitStack() as stack:
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
        with running(programs, tokenizer, *_script(work.step_ms), log=log) as running_stack:
            flags = ("--connections", str(work.streams), "--num-requests", str(requests))
            found = running_stack.load(_COMPLETIONS, _completions(tokens, 24), *flags)
        return allocations(log), found


def goals() -> Mapping[str, float]:
    """What the figures are held to."""
    return {
        "request_cpu_us": 100.0,
        "token_cpu_us": 8.0,
        "token_user_us": 3.0,
        "token_allocations": 2.0,
        "health_p99_ms": 5.0,
    }
