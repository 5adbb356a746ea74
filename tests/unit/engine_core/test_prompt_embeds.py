"""Prompts of vectors that do not fit the model."""

from __future__ import annotations

import pytest

from octavo.engine_core.cache.group import Flight
from octavo.engine_core.cache.layout import build_cache
from octavo.engine_core.core import Core
from octavo.engine_core.sched.budget import SchedLimits
from octavo.errors import RequestError
from octavo.wire.codec import pack_tokens
from octavo.wire.frontend import AddRequest, Embeds, Pooling, SamplingParams


def core(**limits: object) -> Core:
    made = SchedLimits(4, 64, 100, **{"hidden_size": 4, **limits})  # type: ignore[arg-type]
    return Core(made, build_cache((), (), Flight(1, 1, 1), None))


def request(embeds: Embeds, pooling: Pooling | None = None) -> AddRequest:
    sampling = SamplingParams(1, 4)
    return AddRequest(1, 1, "r1", pack_tokens([0, 0, 0]), b"", sampling, 0, embeds=embeds, pooling=pooling)


@pytest.mark.parametrize(
    ("embeds", "message"),
    [
        (Embeds(5, "float32", bytes(60)), "have 5 numbers and this model's embeddings have 4"),
        (Embeds(4, "float32", bytes(47)), "47 bytes are not 3 vectors of 4 float32"),
        (Embeds(4, "bfloat16", bytes(48)), "48 bytes are not 3 vectors of 4 bfloat16"),
        (Embeds(4, "int8", bytes(12)), "int8"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(embeds: Embeds, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        core().add(request(embeds))
    assert (caught.value.code, caught.value.param) == ("invalid", "prompt_embeds")


def test_a_model_that_takes_none_says_so() -> None:
    embeds = Embeds(4, "float16", bytes(24))
    core().add(request(embeds))
    with pytest.raises(RequestError, match="does not take") as caught:
        core(hidden_size=0).add(request(embeds))
    assert caught.value.param == "prompt_embeds"
    with pytest.raises(RequestError, match="does not take"):
        core(pools=True).add(request(embeds, Pooling("embed")))
