"""The heap is given back seldom: when there is much, or at the first rest after work."""

from __future__ import annotations

from octavo.workers.heap import HeapKeeper, free_heap_bytes, trim_heap

MB = 1 << 20


class Heap:
    """Counts what is asked of it."""

    def __init__(self, free: int) -> None:
        self.free, self.looks, self.trims = free, 0, 0

    def look(self) -> int:
        self.looks += 1
        return self.free

    def trim(self) -> None:
        self.trims += 1
        self.free = 0


def test_work_is_interrupted_by_few_looks_and_only_much_is_given_back() -> None:
    heap = Heap(63 * MB)
    keeper = HeapKeeper(heap.look, heap.trim, every=10)
    for _ in range(29):
        keeper.worked()
    assert (heap.looks, heap.trims) == (2, 0)
    heap.free = 65 * MB
    keeper.worked()
    assert (heap.looks, heap.trims) == (3, 1)


def test_the_first_rest_after_work_gives_back_what_is_worth_it() -> None:
    heap = Heap(5 * MB)
    keeper = HeapKeeper(heap.look, heap.trim)
    assert keeper.rests
    keeper.rested()
    assert heap.looks == 0
    keeper.worked()
    assert not keeper.rests
    keeper.rested()
    keeper.rested()
    assert (heap.looks, heap.trims) == (1, 1) and keeper.rests
    keeper.worked()
    heap.free = 3 * MB
    keeper.rested()
    assert heap.trims == 1


def test_the_c_library_is_asked() -> None:
    assert free_heap_bytes() > 0  # of a program that has run for a while
    trim_heap()
