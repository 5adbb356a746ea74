"""The workers' rows: who owns which, and since when."""

from __future__ import annotations

from array import array

__all__ = ["Slots"]


class Slots:
    """Hands out slots. Each owner of a slot gets a higher generation, so that late results show their age."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count - 1, -1, -1))
        self._generations = [0] * count
        self._released: list[int] = []

    @property
    def num_free(self) -> int:
        """Slots that can be taken now."""
        return len(self._free)

    def take(self) -> tuple[int, int]:
        """Return a slot and its generation. Raises IndexError when none is free."""
        slot = self._free.pop()
        self._generations[slot] += 1
        return slot, self._generations[slot]

    def release(self, slot: int) -> None:
        """Give a slot back; the workers learn of it with the next plan."""
        if slot in self._free:
            raise ValueError(f"slot {slot} is free already")
        self._free.append(slot)
        self._released.append(slot)

    def take_released(self) -> bytes:
        """Return the slots given back since the last plan, packed."""
        packed = array("i", self._released).tobytes()
        self._released.clear()
        return packed

    def forget(self) -> None:
        """Forget what the workers should learn: new ones own no slots yet."""
        self._released.clear()
