"""What a program holds, to see that work leaves nothing behind."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path

from tests.amount import amount

CYCLES = amount(50, 200)


def footprint() -> dict[str, int]:
    """File descriptors, threads (of libraries too), children, objects that are tracked, KiB of memory in use.

    What has been freed and the allocator keeps is given back first: how much it keeps depends on chance.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": int(lines["Threads"]),
        "children": sum(len(task.read_text().split()) for task in Path("/proc/self/task").glob("*/children")),
        "objects": len(gc.get_objects()),
        "kilobytes": int(lines["VmRSS"].split()[0]),
    }


def leaves_nothing(
    cycle: Callable[[], None], cycles: int = CYCLES, *, objects: int = CYCLES, kilobytes: int = 2048
) -> None:
    """After twenty cycles to warm up, so many more end where they began, but for what allocators keep."""
    for _ in range(20):
        cycle()
    before = footprint()
    for _ in range(cycles):
        cycle()
    after = footprint()
    for name in ("descriptors", "threads", "children"):
        assert after[name] == before[name], name
    assert after["objects"] - before["objects"] < objects
    assert after["kilobytes"] - before["kilobytes"] < kilobytes
