"""Plans that fit and plans that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from octavo.errors import ModelError, ProtocolError
from octavo.wire.codec import pack_tokens, unpack_tokens
from octavo.wire.frontend import SamplingParams
from octavo.wire.worker import AllocateKv, BlockDiff, Init, KvGroupAlloc, NewRow, StepPlan, StepResult
from octavo.workers.model_body import ModelBody
from tests.teacher import Check, check_tokens
from tests.tiny import make_llama

if TYPE_CHECKING:
    from pathlib import Path

GREEDY = SamplingParams(0, 8, temperature=0.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("model"))


@pytest.fixture
def body(model: Path) -> ModelBody:
    return make_body(model)


def init_of(model: Path, rank: int = 0) -> Init:
    return Init(rank, 1, "", str(model), "float32", "cpu", "auto", 0, 64, 4, 64, threads=1)


def make_body(model: Path, rank: int = 0) -> ModelBody:
    body = ModelBody()
    assert body.progress()[0] == "loading"
    ready = body.init(init_of(model, rank))
    assert (ready.vocab_size, len(ready.kv_specs)) == (288, 2)
    assert ready.weight_bytes > 0
    kv = body.allocate(AllocateKv((KvGroupAlloc(0, 4, 40, (0, 1)),)))
    assert kv.bytes == 2 * 2 * 40 * 4 * 2 * 16 * 4
    assert body.progress() == ("idle", 0, 0)
    return body


def new(slot: int, tokens: list[int], computed: int = 0, generation: int = 1) -> NewRow:
    return NewRow(slot, generation, pack_tokens(tokens), len(tokens), computed, GREEDY)


def blocks(slot: int, first: int, count: int, start: int = 0) -> BlockDiff:
    return BlockDiff(0, slot, start, pack_tokens(range(first, first + count)))


def plan(step: int, rows: list[tuple[int, int, int]], **parts: object) -> StepPlan:
    slots, counts, samples = zip(*rows, strict=True) if rows else ((), (), ())
    fields: dict[str, object] = {"new": (), "released": b"", "blocks": ()} | parts
    return StepPlan(
        step, rows=pack_tokens(slots), counts=pack_tokens(counts), samples=bytes(samples), **fields  # type: ignore[arg-type]
    )  # fmt: skip


def tokens_of(result: StepResult | None) -> dict[int, int]:
    assert result is not None
    assert unpack_tokens(result.lengths) == [1] * (len(result.slots) // 4)
    return dict(zip(unpack_tokens(result.slots), unpack_tokens(result.tokens), strict=True))


def test_chunks_decodes_and_hits_mix_in_a_step(body: ModelBody, model: Path) -> None:
    long, short = list(range(5, 25)), [40, 41, 42]
    first = body.step(plan(1, [(2, 12, 0)], new=(new(2, long, generation=7),), blocks=(blocks(2, 1, 6),)))
    assert tokens_of(first) == {}
    rows = [(2, 8, 1), (0, 3, 1)]
    second = body.step(plan(2, rows, new=(new(0, short),), blocks=(blocks(0, 10, 2),)))
    assert second is not None
    assert unpack_tokens(second.generations) == [7, 1]
    drawn = tokens_of(second)
    # A third request shares the first 8 tokens' blocks, as a prefix hit.
    third = body.step(
        plan(
            3,
            [(0, 1, 1), (2, 1, 1), (1, 6, 1)],
            new=(new(1, long[:14], computed=8),),
            blocks=(blocks(1, 1, 2), blocks(1, 20, 2, start=2), blocks(2, 7, 1, start=5)),
        )
    )
    more = tokens_of(third)
    check_tokens(model, Check(long, [drawn[2], more[2]]))
    check_tokens(model, Check(short, [drawn[0], more[0]]))
    check_tokens(model, Check(long[:14], [more[1]]))
    body._resident.runner.check()  # type: ignore[union-attr]


def test_a_released_slot_serves_the_next_owner(body: ModelBody, model: Path) -> None:
    body.step(plan(1, [(0, 5, 1)], new=(new(0, [1, 2, 3, 4, 5]),), blocks=(blocks(0, 1, 3),)))
    result = body.step(
        plan(
            2,
            [(0, 4, 1)],
            released=pack_tokens([0]),
            new=(new(0, [9, 8, 7, 6], generation=2),),
            blocks=(blocks(0, 8, 2),),
        )
    )
    assert result is not None
    assert unpack_tokens(result.generations) == [2]
    check_tokens(model, Check([9, 8, 7, 6], list(tokens_of(result).values())))


def test_a_step_may_only_release(body: ModelBody) -> None:
    body.step(plan(1, [(0, 2, 1)], new=(new(0, [1, 2]),), blocks=(blocks(0, 1, 1),)))
    assert tokens_of(body.step(plan(2, [], released=pack_tokens([0])))) == {}
    with pytest.raises(ProtocolError, match="slot 0"):
        body.step(plan(3, [(0, 1, 1)]))


def test_only_the_output_rank_reports(model: Path) -> None:
    # Alone in its group, but called rank 1.
    body = make_body(model, rank=1)
    assert body.step(plan(1, [(0, 2, 1)], new=(new(0, [1, 2]),), blocks=(blocks(0, 1, 1),))) is None


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (plan(2, [(0, 2, 1)]), r"2 tokens from 3 of 4"),
        (plan(2, [(0, 1, 0)]), r"samples False, do not fit slot 0"),
        (plan(2, [(1, 1, 1)]), r"do not fit slot 1"),
        (plan(2, [(9, 1, 1)]), r"slots \[9\] are not all below 4"),
        (plan(2, [(0, 0, 0)]), r"0 tokens from 3"),
        (plan(2, [(0, 1, 1), (0, 1, 1)]), r"a slot stands twice in \[0, 0\]"),
        (StepPlan(2, (), b"", (), pack_tokens([0]), pack_tokens([1]), b""), "1 rows, 1 counts, 0 samples"),
        (StepPlan(2, (), b"", (), pack_tokens([0]), pack_tokens([1]), b"\1", drafts=b"\1"), "drafts"),
    ],
)
def test_plans_that_do_not_fit_are_refused(body: ModelBody, bad: StepPlan, message: str) -> None:
    body.step(plan(1, [(0, 3, 1)], new=(new(0, [1, 2, 3]),), blocks=(blocks(0, 1, 2),)))
    with pytest.raises(ProtocolError, match=message):
        body.step(bad)


def test_messages_out_of_order_are_refused(model: Path) -> None:
    body = ModelBody()
    with pytest.raises(ProtocolError, match="AllocateKv came before Init"):
        body.allocate(AllocateKv(()))
    with pytest.raises(ProtocolError, match="step 1 came while there is no KV cache"):
        body.step(plan(1, []))
    with pytest.raises(ModelError, match="does not exist"):
        body.init(init_of(model / "nowhere"))


def test_the_heartbeat_sees_step_and_layer(body: ModelBody, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    linear = torch.nn.functional.scaled_dot_product_attention

    def spy(*args: object, **kwargs: object) -> torch.Tensor:
        seen.append(body.progress())
        return linear(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("octavo.kernels.cpu.attention.F.scaled_dot_product_attention", spy)
    body.step(plan(5, [(0, 2, 1)], new=(new(0, [1, 2]),), blocks=(blocks(0, 1, 1),)))
    assert seen == [("step", 5, 0), ("step", 5, 1)]
    assert body.progress()[0] == "idle"
