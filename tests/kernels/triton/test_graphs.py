"""The runner with these kernels: recorded decode steps against steps that are not, on the same plans."""

from __future__ import annotations

import random

import pytest
import torch

from octavo.kernels.api import Kernels
from octavo.kernels.ref.logits import RefLogits
from octavo.kernels.ref.mask import RefMask
from octavo.kernels.ref.row_attention import RefRowAttention
from octavo.kernels.triton.activation import TritonActivation
from octavo.kernels.triton.attention import TritonAttention
from octavo.kernels.triton.embedding import TritonEmbedding
from octavo.kernels.triton.linear import TritonLinear
from octavo.kernels.triton.moe import GroupedMoe
from octavo.kernels.triton.norm import TritonNorm
from octavo.kernels.triton.replay import TritonReplay, most_rows
from octavo.kernels.triton.sample import TritonSample
from octavo.kernels.triton.state import TritonState
from octavo.workers import model_body
from octavo.workers.graphs import GraphKey, decode_sizes, length_classes
from tests.parity.engine import Ask, Engine, EngineSetup
from tests.teacher import check_requests
from tests.tiny import make_llama


class Replay(TritonReplay):
    """Records on a GPU; elsewhere a replay is the body once more."""

    most_rows = 8

    def __init__(self, attention, state, rehearses) -> None:
        super().__init__(attention, state)
        self.rehearses = rehearses
        self.replays = 0

    def rehearse(self, body, threads, whole):
        if torch.cuda.is_available():
            return super().rehearse(body, threads, whole)
        if self.rehearses:
            body()
        return 0

    def record(self, body):
        run = super().record(body) if torch.cuda.is_available() else body

        def replay() -> None:
            self.replays += 1
            run()

        return replay


def kernels(rehearses: bool) -> Kernels:
    attention, state = TritonAttention(), TritonState()
    return Kernels(
        linear=TritonLinear(),
        embedding=TritonEmbedding(),
        norm=TritonNorm(),
        activation=TritonActivation(),
        moe=GroupedMoe(),
        attention=attention,
        rows=RefRowAttention(),
        sample=TritonSample(),
        mask=RefMask(),
        state=state,
        logits=RefLogits(),
        replay=Replay(attention, state, rehearses),
    )


def asks() -> list[Ask]:
    rng = random.Random(5)
    prompts = [[rng.randrange(3, 288) for _ in range(length)] for length in (5, 19, 1)]
    draws = [(0.0, 0), (0.9, 0), (0.9, 20)]
    return [
        Ask(prompt, 9 - 3 * number, heat, top_k, seed=number, arrives=number)
        for number, (prompt, (heat, top_k)) in enumerate(zip(prompts, draws, strict=True))
    ]


@pytest.mark.parametrize("window", [1, 2])
def test_recorded_steps_give_the_same_tokens(tmp_path, monkeypatch, device, window) -> None:
    model = make_llama(tmp_path, num_hidden_layers=1)
    outputs, replays = [], []
    for sizes in ((2, 4, 16), ()):
        mine = kernels(rehearses=window == 1 and bool(sizes))
        monkeypatch.setattr(model_body, "select", lambda *_, mine=mine: mine)
        name = "cuda:0" if device.type == "cuda" else "cpu"
        setup = EngineSetup(
            40, max_num_seqs=4, max_model_len=64, budget=12, device=name, window=window, graph_sizes=sizes
        )
        served = Engine(model, setup).run(asks())
        check_requests(model, [seen.check() for seen in served])
        outputs.append([seen.tokens for seen in served])
        replays.append(mine.replay.replays)
    assert outputs[0] == outputs[1]
    assert replays[0] >= 4
    assert replays[1] == 0


def test_sizes() -> None:
    assert decode_sizes(1) == (1,)
    assert decode_sizes(3) == (1, 2, 4)
    assert decode_sizes(9) == (1, 2, 4, 8, 16)
    assert decode_sizes(256)[-3:] == (240, 248, 256)
    assert decode_sizes(512)[-2:] == (496, 512)
    assert decode_sizes(1024)[-2:] == (992, 1024)
    for rows in range(1, 600):
        sizes = decode_sizes(rows)
        assert sizes[-1] >= rows > (sizes[-2] if len(sizes) > 1 else 0)
        assert list(sizes) == sorted(set(sizes))


def test_classes() -> None:
    assert length_classes(1024) == (1024,)
    assert length_classes(1025) == (1024, 0)
    assert GraphKey(2, 0) == GraphKey(2, 0)
    assert (most_rows((8, 0)), most_rows((9, 0)), most_rows((10, 0))) == (512, 512, 1024)
