from __future__ import annotations

import pytest

from octavo.workers.threads import choose_threads, set_environment


@pytest.mark.parametrize(
    ("asked", "ranks", "cpus", "threads"),
    [(0, 1, 1, 1), (0, 1, 2, 1), (0, 2, 2, 1), (0, 1, 8, 7), (0, 2, 8, 3), (3, 2, 2, 3)],
)
def test_threads(asked: int, ranks: int, cpus: int, threads: int) -> None:
    assert choose_threads(asked, ranks, cpus) == threads
    assert choose_threads(0, 1) >= 1


def test_what_the_user_set_stays() -> None:
    environ = {"OMP_NUM_THREADS": "7"}
    set_environment(2, environ)
    assert environ == {"OMP_NUM_THREADS": "7", "MKL_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"}
