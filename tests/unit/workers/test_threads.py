from __future__ import annotations

from octavo.workers.threads import set_environment


def test_what_the_user_set_stays() -> None:
    environ = {"OMP_NUM_THREADS": "7", "LRU_CACHE_CAPACITY": "9"}
    set_environment(2, environ)
    assert environ == {
        "OMP_NUM_THREADS": "7",
        "MKL_NUM_THREADS": "2",
        "OMP_WAIT_POLICY": "PASSIVE",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128",
        "LRU_CACHE_CAPACITY": "9",
    }
