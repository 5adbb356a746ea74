"""The free list against a plain list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.engine_core.cache.free_list import FreeList


@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.sampled_from(["pop", "many", "remove", "front", "back"]), st.integers(0, 11))),
)
def test_behaves_like_a_list(num_blocks: int, moves: list[tuple[str, int]]) -> None:
    queue, model = FreeList(num_blocks), list(range(1, num_blocks))
    for move, block in moves:
        if block >= num_blocks:
            continue
        if move == "pop":
            if model:
                assert queue.pop_front() == model.pop(0)
            else:
                with pytest.raises(IndexError):
                    queue.pop_front()
        elif move == "many":
            if block <= len(model):
                assert queue.pop_many(block) == model[:block]
                model = model[block:]
            else:
                with pytest.raises(IndexError):
                    queue.pop_many(block)
        elif move == "remove":
            if block in model:
                queue.remove(block)
                model.remove(block)
            else:
                with pytest.raises(ValueError, match="not free"):
                    queue.remove(block)
        elif block in model or block == 0:
            with pytest.raises(ValueError, match="cannot be freed"):
                queue.push_front(block) if move == "front" else queue.push_back(block)
        elif move == "front":
            queue.push_front(block)
            model.insert(0, block)
        else:
            queue.push_back(block)
            model.append(block)
        assert list(queue) == model
        assert len(queue) == len(model)
        queue.check()
