"""Runs samples against a server: when they are due, so many at once, each turn after the one before."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.benchmarks import openai
from octavo.benchmarks.arrivals import times
from octavo.benchmarks.connection import Connections, Server, clock
from octavo.benchmarks.datasets.sample import Turn
from octavo.benchmarks.openai import Answer, Message

if TYPE_CHECKING:
    from octavo.benchmarks.datasets import Sample
    from octavo.benchmarks.options import ServeOptions
    from octavo.benchmarks.record import Record

__all__ = ["Cost", "Run", "Runner", "recount"]


@dataclass(frozen=True, slots=True)
class Cost:
    """What the client itself took."""

    cpu_seconds: float  # user and system, of this process, during the run
    worst_lag: float  # seconds that the latest request was sent after it was due; the queue is not counted


@dataclass(frozen=True, slots=True)
class Run:
    """What a run did."""

    begin: float
    records: list[Record]
    cost: Cost
    probes: list[Record] = field(default_factory=list)  # of --probe-request-rate


def cpu_seconds() -> float:
    """Return the CPU time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Runner:
    """Sends samples and collects records. `seen` is told of each as it comes."""

    def __init__(
        self,
        options: ServeOptions,
        model: str,
        connections: Connections,
        seen: Callable[[Record], None] = lambda record: None,
    ) -> None:
        self._options = options
        self._server = Server.parse(options.url)
        self._target = self._server.target(options.endpoint or openai.BACKENDS[options.backend])
        self._connections = connections
        self._seen = seen
        self._lag = 0.0
        self._rng = np.random.default_rng(options.seed)
        self._models = options.lora_modules or (model,)
        self._extra = options.sampling
        self._conversations = options.multi_turn or options.dataset_name == "multi-turn"

    async def run(self, samples: Sequence[Sample], headers: dict[str, str]) -> Run:
        """Run the load and return what happened, in the order of samples and turns.

        Collected garbage is frozen and the collector stands still meanwhile: a pause of the client would be measured as
        one of the server.
        """
        options = self._options
        limit = options.max_concurrency
        if self._conversations and options.multi_turn_concurrency:
            limit = options.multi_turn_concurrency
        gate = asyncio.Semaphore(limit) if limit else nullcontext()
        due = times(options.arrivals, len(samples), self._rng)
        models = self._choose_models(len(samples))
        gc.collect()
        gc.freeze()
        gc.disable()
        probes: list[Record] = []
        probing = asyncio.create_task(self._probe(headers, probes))
        try:
            before = cpu_seconds()
            begin = clock()
            async with asyncio.TaskGroup() as group:
                tasks = []
                for number, (sample, after) in enumerate(zip(samples, due.tolist(), strict=True)):
                    delay = begin + after - clock()
                    if delay > 0:
                        await asyncio.sleep(delay)
                    self._lag = max(self._lag, clock() - begin - after)
                    tasks.append(
                        group.create_task(self._sample(sample, models[number], headers, gate, clock(), str(number)))
                    )
            cost = Cost(cpu_seconds() - before, self._lag)
            return Run(begin, [record for task in tasks for record in task.result()], cost, probes)
        finally:
            probing.cancel()
            gc.enable()
            gc.unfreeze()

    async def _probe(self, headers: dict[str, str], into: list[Record]) -> None:
        """Send one small request after the other, whatever --max-concurrency says, until cancelled."""
        rate = self._options.probe_request_rate
        while rate:
            into.append(await self.one(Turn("Hi", 1, 1), headers))
            await asyncio.sleep(1 / rate)

    async def one(self, turn: Turn, headers: dict[str, str]) -> Record:
        """Send one request outside the load: to warm up, or to see whether the server answers."""
        prompt: str | list[Message] = turn.text
        if self._options.backend == "openai-chat":
            prompt = [{"role": "user", "content": turn.text}]
        return await self._request(prompt, turn, self._models[0], headers, clock(), "warmup")

    def _choose_models(self, count: int) -> list[str]:
        if self._options.lora_assignment == "round-robin" or len(self._models) == 1:
            return [self._models[i % len(self._models)] for i in range(count)]
        return [self._models[i] for i in self._rng.integers(0, len(self._models), count)]

    async def _sample(
        self,
        sample: Sample,
        model: str,
        headers: dict[str, str],
        gate: Any,
        arrived: float,
        name: str,
    ) -> list[Record]:
        async with gate:
            records = []
            messages: list[Message] = []
            for number, turn in enumerate(sample.turns):
                if number:
                    if self._options.multi_turn_delay_ms:
                        await asyncio.sleep(self._options.multi_turn_delay_ms / 1000)
                    arrived = clock()
                prompt: str | list[Message] = turn.text
                if self._options.backend == "openai-chat":
                    messages.append({"role": "user", "content": turn.text})
                    prompt = messages
                id = name if len(sample.turns) == 1 else f"{name}.{number}"
                record = await self._request(prompt, turn, model, headers, arrived, id)
                records.append(record)
                self._seen(record)
                if record.failure is not None:
                    break  # what would follow has lost its context
                messages.append({"role": "assistant", "content": record.text})
            return records

    async def _request(
        self,
        prompt: str | list[Message],
        turn: Turn,
        model: str,
        headers: dict[str, str],
        arrived: float,
        id: str,
    ) -> Record:
        prefix = self._options.request_id_prefix
        if prefix is not None:
            headers = headers | {"x-request-id": prefix + id}
        body = openai.body(self._options.backend, model, prompt, turn.output_tokens, self._extra)
        request = openai.head(self._server.authority, self._target, headers, len(body)) + body
        answer = Answer()
        answer.start = clock()
        try:
            async with asyncio.timeout(self._options.request_timeout_sec):
                await self._connections.exchange(request, answer)
        except TimeoutError:
            answer.fail("timeout", f"no complete answer within {self._options.request_timeout_sec:g} s")
        except OSError as error:
            answer.fail("no connection", str(error))
        return answer.record(
            finished=clock(),
            queue_time=answer.start - arrived,
            prompt_tokens=turn.tokens,
            asked_tokens=turn.output_tokens,
            id=id,
        )


def recount(records: Sequence[Record], count: Callable[[str], int]) -> list[Record]:
    """Count the output tokens of answers without usage by their text, at least one a chunk.

    A text may have fewer tokens than it was made of. Takes time: not for during a load.
    """
    return [
        replace(
            record,
            output_tokens=max(count(record.reasoning + record.text), record.output_tokens),
            tokens_from="tokenizer",
        )
        if record.failure is None and record.tokens_from == "chunks" and record.reasoning + record.text
        else record
        for record in records
    ]
