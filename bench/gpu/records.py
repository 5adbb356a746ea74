"""Results as bench/results holds them, beside vLLM's and what issue 7 asks for."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["PEER", "Results"]

#: Name -> (vLLM 0.26.0 on one H200, what octavo must reach); ms and s: less is better; rates: more.
PEER: dict[str, tuple[float, float]] = {
    "8b_decode_b1": (5.21, 4.4),
    "8b_decode_b32": (5.73, 5.1),
    "8b_decode_b64": (6.28, 5.6),
    "8b_decode_b128": (7.83, 7.0),
    "8b_decode_b256": (11.87, 10.6),
    "8b_prefill_8x2048": (42200, 43000),
    "8b_prefill_64x2048": (42294, 43000),
    "8b_prompt_16k": (0.505, 0.50),
    "8b_prompt_32k": (1.217, 1.15),
    "8b_offline_512": (30.3, 34),
    "8b_offline_64x8k": (3.24, 3.4),
    "8b_decode_1x16k": (5.76, 5.2),
    "8b_decode_8x16k": (9.67, 9.2),
    "8b_decode_16x8k": (9.56, 9.1),
    "8b_decode_32x8k": (13.9, 13.5),
    "8b_decode_64x4k": (14.2, 13.7),
    "8b_decode_128x2k": (15.2, 14.4),
    "8b_prefix_hit_16k": (24.5, 15),
    "8b_online_c64": (24.8, 28),
    "8b_online_c64_ttft_p50": (745, 745),
    "8b_online_c64_tpot_p50": (13.9, 13.9),
    "8b_online_20rps_ttft_p50": (77, 60),
    "8b_online_20rps_ttft_p99": (155, 110),
    "8b_online_20rps_tpot_p50": (12.2, 10),
    "8b_online_c1_ttft_p50": (42.7, 30),
    "8b_online_c1_tpot_p50": (5.22, 4.5),
    "8b_ready_cold": (111.9, 30),
    "8b_ready_warm": (53.4, 10),
    "06b_decode_b1": (1.62, 1.0),
    "06b_decode_b32": (1.97, 1.3),
    "06b_decode_b256": (4.80, 3.6),
    "06b_offline_512": (136.9, 190),
    "8b_tp2_decode_b1": (3.76, 3.5),
    "8b_tp2_decode_b32": (4.18, 3.9),
    "8b_tp2_decode_b256": (7.86, 7.2),
    "8b_tp2_prefill_8x2048": (66115, 68000),
    "8b_tp2_offline_512": (51.0, 54),
}
_LESS_IS_BETTER = ("ms", "s")


@dataclass(slots=True)
class Results:
    """Collects results; written after each, so that a run that is cut off leaves what it had."""

    path: Path
    command: str
    versions: dict[str, Any]
    records: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def start(cls, path: Path, command: str, commit: str) -> Results:
        """Measure what the device can do, in a process of its own, whose memory is free again afterwards."""
        told = subprocess.run([sys.executable, "-m", "bench.gpu.calibrate"], capture_output=True, text=True, check=True)
        found = json.loads(told.stdout.splitlines()[-1])
        results = cls(path, command, {**found["versions"], "commit": commit})
        results.add("device_copy", found["copy"] / 1e9, "GB/s", engine="torch")
        results.add("matmul_bf16_8192", found["matmul"] / 1e12, "TFLOP/s", engine="cublas")
        return results

    def add(self, name: str, value: float, unit: str, spread: float = 0.0, *, engine: str = "octavo") -> None:
        """Note one result, print it beside vLLM's, write the file."""
        self.records.append(
            {
                "name": name,
                "engine": engine,
                "value": round(value, 4),
                "unit": unit,
                "spread": round(spread, 4),
                "versions": self.versions,
                "date": datetime.now(UTC).strftime("%Y-%m-%d"),
                "command": self.command,
            }
        )
        self.path.write_text(json.dumps(self.records, indent=1) + "\n", encoding="utf-8")
        text = f"{name:28} {value:10.3f} {unit:8} ±{spread:.3f}"
        if name in PEER:
            peer, wanted = PEER[name]
            ratio = peer / value if unit in _LESS_IS_BETTER else value / peer
            reached = value <= wanted if unit in _LESS_IS_BETTER else value >= wanted
            text += f"  vLLM {peer:g} ({ratio:.2f}x)  wanted {wanted:g}{'' if reached else ' MISSED'}"
        print(text, flush=True)
