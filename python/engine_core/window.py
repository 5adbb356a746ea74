"""How many plans are in flight."""

from __future__ import annotations

__all__ = ["plans_in_flight"]

#: Weights that a step reads in less time than a result takes to the core and the next plan takes back: about 1.6 ms.
_QUICK_BYTES = 6 << 30


def plans_in_flight(device: str, weight_bytes: int) -> int:
    """Return the plans in flight where nobody said; `weight_bytes`: of one rank.

    On a CPU core and worker share the processors: a second plan would only make tokens late. On a GPU one plan waits
    while another runs. Where a step takes less time than the way from its result to the next plan, two wait: fewer, and
    the GPU would wait. More would make new prompts late.
    """
    if device == "cpu":
        return 1
    return 3 if weight_bytes < _QUICK_BYTES else 2
