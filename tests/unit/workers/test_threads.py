from __future__ import annotations

from octavo.workers.threads import set_environment


def test_what_the_user_set_stays() -> None:
    environ = {"OMP_NUM_THREADS": "7"}
    set_environment(2, environ)
    assert environ == {"OMP_NUM_THREADS": "7", "MKL_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"}
