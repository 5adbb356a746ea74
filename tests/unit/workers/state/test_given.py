"""Which of a step's tokens are vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from octavo.errors import ProtocolError
from octavo.wire.codec import pack_tokens
from octavo.wire.frontend import Embeds, SamplingParams
from octavo.wire.worker import NewRow
from octavo.workers.state.given import GivenPrompts


def row(slot: int, prompt: int, embeds: Embeds | None) -> NewRow:
    return NewRow(slot, 1, pack_tokens([0] * prompt), prompt, 0, SamplingParams(0, 4), embeds=embeds)


def vectors(rows: int, first: float = 0.0) -> Embeds:
    values = torch.arange(rows * 2, dtype=torch.float32) + first
    return Embeds(2, "float32", values.numpy().tobytes())


def of(given: GivenPrompts, *rows: tuple[int, int, int]) -> tuple[list[int], list[list[float]]] | None:
    found = given.of(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)))
    return None if found is None else (found.tokens.tolist(), found.values.tolist())


def test_a_step_takes_the_vectors_of_the_tokens_that_it_computes() -> None:
    given = GivenPrompts("cpu")
    assert of(given, (0, 0, 4)) is None
    given.take(row(3, 3, vectors(3)))
    given.take(row(1, 2, vectors(2, 100.0)))
    given.take(row(0, 5, None))
    # Slot 0 has ids; slot 3 computes its second and third token, slot 1 its prompt and a token behind it.
    assert of(given, (0, 0, 4), (3, 1, 2), (1, 0, 3)) == ([4, 5, 6, 7], [[2, 3], [4, 5], [100, 101], [102, 103]])
    assert of(given, (0, 4, 1), (3, 3, 1), (1, 3, 1)) is None
    assert of(given, (3, 0, 3)) is None  # it was computed, and does not come again


def test_a_slot_that_is_given_back_has_none() -> None:
    given = GivenPrompts("cpu")
    given.take(row(3, 3, vectors(3)))
    given.release([3])
    assert of(given, (3, 0, 3)) is None
    given.take(row(3, 1, vectors(1, 7.0)))
    assert of(given, (3, 0, 1)) == ([0], [[7, 8]])


@pytest.mark.parametrize("embeds", [vectors(2), Embeds(3, "float32", bytes(24)), Embeds(2, "float64", bytes(48))])
def test_what_is_not_a_vector_for_each_token_is_refused(embeds: Embeds) -> None:
    with pytest.raises(ProtocolError, match="slot 3"):
        GivenPrompts("cpu").take(row(3, 3, embeds))
