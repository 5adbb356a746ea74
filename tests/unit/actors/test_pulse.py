"""The pulse stops when the event loop stands still."""

from __future__ import annotations

import json
import time

import anyio
import pytest

from octavo.actors.pulse import PULSE, beat

pytestmark = pytest.mark.anyio


async def test_a_loop_that_turns_has_a_pulse_and_one_that_stands_still_has_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def pulses() -> int:
        lines = capsys.readouterr().out.splitlines()
        assert all(json.loads(line)["event"] == PULSE for line in lines)
        return len(lines)

    async with anyio.create_task_group() as group:
        group.start_soon(beat, 0.02)
        seen = 0
        with anyio.fail_after(20):
            while seen < 3:
                await anyio.sleep(0.02)
                seen += pulses()
        time.sleep(0.1)  # noqa: ASYNC251  # the loop stands still; what had turned before may be told
        pulses()
        time.sleep(0.2)  # noqa: ASYNC251
        assert pulses() == 0
        group.cancel_scope.cancel()
