"""Steps whose rows draw when their masks have come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from octavo.errors import ProtocolError
from octavo.wire.codec import pack_tokens, unpack_tokens
from octavo.wire.frontend import SamplingParams
from octavo.wire.worker import AllocateKv, BlockDiff, Init, KvGroupAlloc, NewRow, SamplePlan, StepPlan, StepResult
from octavo.workers.model_body import ModelBody
from tests.tiny import make_llama

if TYPE_CHECKING:
    from pathlib import Path

WIDTH = 288


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("model"))


@pytest.fixture
def body(model: Path) -> ModelBody:
    body = ModelBody()
    body.init(Init(0, 1, "", str(model), "float32", "cpu", "auto", 0, 64, 4, 64, threads=1))
    body.allocate(AllocateKv((KvGroupAlloc(0, 4, 40, (0, 1)),)))
    return body


def plan(step: int, deferred: bool = True) -> StepPlan:
    sampling = SamplingParams(7, 8, temperature=1.0)
    rows = tuple(NewRow(slot, 1, pack_tokens([5 + slot, 6]), 2, 0, sampling) for slot in range(2))
    blocks = tuple(BlockDiff(0, slot, 0, pack_tokens([1 + slot])) for slot in range(2))
    return StepPlan(step, rows, b"", blocks, pack_tokens([0, 1]), pack_tokens([2, 2]), b"\1\1", deferred=deferred)


def mask(*tokens: int) -> bytes:
    return sum(1 << token for token in tokens).to_bytes(WIDTH // 8, "little")


def drawn(result: object) -> list[int]:
    assert isinstance(result, StepResult)
    return unpack_tokens(result.tokens)


def test_rows_draw_from_what_their_mask_allows_and_others_as_ever(body: ModelBody, model: Path) -> None:
    assert body.step(plan(1)) is None
    masked = drawn(body.sample(SamplePlan(1, pack_tokens([1]), mask(44))))
    other = ModelBody()
    other.init(Init(0, 1, "", str(model), "float32", "cpu", "auto", 0, 64, 4, 64, threads=1))
    other.allocate(AllocateKv((KvGroupAlloc(0, 4, 40, (0, 1)),)))
    free = drawn(other.step(plan(1, deferred=False)))
    assert masked == [free[0], 44]
    assert drawn(body.step(StepPlan(2, (), b"", (), pack_tokens([1]), pack_tokens([1]), b"\1"))) != []


def test_a_mask_of_what_would_be_drawn_anyway_changes_nothing(body: ModelBody, model: Path) -> None:
    body.step(plan(1))
    whole = mask(*range(WIDTH))
    masked = drawn(body.sample(SamplePlan(1, pack_tokens([0, 1]), whole * 2)))
    other = ModelBody()
    other.init(Init(0, 1, "", str(model), "float32", "cpu", "auto", 0, 64, 4, 64, threads=1))
    other.allocate(AllocateKv((KvGroupAlloc(0, 4, 40, (0, 1)),)))
    assert masked == drawn(other.step(plan(1, deferred=False)))


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        (SamplePlan(2, b"", b""), "deferred is step 1"),
        (SamplePlan(1, pack_tokens([1]), b"\xff"), "1 bytes of masks for 1 rows of 288 tokens"),
        (SamplePlan(1, pack_tokens([3]), mask(1)), r"masks for slots \[3\], \[0, 1\] draw"),
    ],
)
def test_masks_that_do_not_fit_are_refused(body: ModelBody, masks: SamplePlan, message: str) -> None:
    body.step(plan(1))
    with pytest.raises(ProtocolError, match=message):
        body.sample(masks)


def test_masks_without_a_deferred_step_are_refused(body: ModelBody) -> None:
    with pytest.raises(ProtocolError, match="deferred is step None"):
        body.sample(SamplePlan(1, b"", b""))
