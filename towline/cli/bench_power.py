"""`towline bench power`: what emulated cards draw at rest and at work, and how fast they are within caps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sdk.extras import require
from sdk.report import Console, Result, table
from towline.cli.bench_gemm import PREFIX


def run(names: Sequence[str], console: Console) -> Result:
    """Measure these targets.

    Raises:
        ToolMissing, EnvironmentMissing: a compiler, a package or an extra is missing.
    """
    require("cffi", extra="emulator")
    from towline.cli.benchmarks import power

    found = []
    for name in names:
        console.detail(name)
        found.append({"target": name, **power.measure(name.removeprefix(PREFIX))})
    return Result({"cards": found}, _text(found))


def _text(found: Sequence[dict[str, Any]]) -> str:
    rest = [
        (
            one["target"],
            one["off_watts"],
            one["idle_watts"],
            one["ready_watts"],
            one["closed_watts"],
            one["wake_ms"]["idle"],
            one["wake_ms"]["off"],
        )
        for one in found
    ]
    caps = [
        (one["target"], each["cap_watts"], each["watts"], each["gfxclk_mhz"], each["kernel_us"])
        for one in found
        for each in one["caps"]
    ]
    return "\n\n".join(
        (
            "Watts of the board, and virtual milliseconds until it is ready again:\n"
            + table(("target", "off", "idle", "ready", "closed", "from idle, ms", "from off, ms"), rest),
            "Integer arithmetic on all SIMDs within power caps:\n"
            + table(("target", "cap, W", "board, W", "GFXCLK, MHz", "kernel, us"), caps),
            "The power of the boards is a model with guessed shares, not a measurement.",
        )
    )
