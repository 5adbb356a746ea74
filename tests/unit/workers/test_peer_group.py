"""The comparison that decides whether ranks add over peer memory."""

from __future__ import annotations

import torch

from octavo.workers.peer_group import agree

CPU = torch.device("cpu")


def twice(x: torch.Tensor) -> torch.Tensor:
    return x.add_(x)


def test_equal_sums_agree() -> None:
    assert agree(twice, lambda x: 2 * x, (64, 4096, 64), 0, CPU)


def test_one_wrong_part_of_one_size_is_seen() -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        out = 2 * x
        if len(x) == 2048:
            out[-8:] = x[-8:]
        return out

    assert not agree(wrong, twice, (64, 4096, 64), 1, CPU)
    assert agree(wrong, twice, (64,), 1, CPU)
