from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from octavo.kernels.ref.state import RefState
from octavo.workers.state.staged import StagedArray

CHANGE = st.tuples(st.integers(0, 3), st.integers(0, 7), st.lists(st.integers(-9, 9), min_size=0, max_size=4))


@given(batches=st.lists(st.lists(CHANGE, max_size=6), max_size=4))
def test_staged_changes_equal_direct_ones(batches: list[list[tuple[int, int, list[int]]]]) -> None:
    staged, plain = StagedArray(4, 11, RefState(), "cpu"), np.zeros((4, 11), dtype=np.int32)
    for batch in batches:
        before = staged.array.clone()
        for row, start, values in batch:
            staged.stage(row, start, np.array(values, dtype=np.int32))
            plain[row, start : start + len(values)] = values
        assert staged.array.equal(before)  # nothing changes before apply
        staged.apply()
        assert staged.array.numpy().tolist() == plain.tolist()
