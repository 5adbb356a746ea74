"""Kernels in Triton run on the GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = not torch.cuda.is_available()
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        # The interpreter computes with numpy, which warns of what is not finite; here that is ordinary.
        item.add_marker(pytest.mark.filterwarnings("ignore::RuntimeWarning"))
        if missing and item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def seed(request: pytest.FixtureRequest) -> None:
    """Draw the inputs from a seed that is shown when a test fails."""
    number = torch.seed() % 2**31
    torch.manual_seed(number)
    request.node.user_properties.append(("seed", number))
    print(f"seed {number}")
