"""The copy engine SDMA0, without its queues: started, and reset.

What is written is what Linux' `sdma_v6_0.c` and `sdma_v7_0.c` write, and the published boot traces show.
"""

from __future__ import annotations

from usbgpu.amd import gfx
from usbgpu.amd.batch import Batch
from usbgpu.amd.facts import doorbells

DOORBELL, DOORBELLS = 0x200, 4
"""Dwords in BAR 2: where SDMA's doorbells begin, and how many dwords are routed to it."""
WATCHDOG = 100
"""In units of 100 ms: a queue that waits this long is reported by an interrupt."""
SETTLE = 10e-3
"""Seconds that published drivers wait in a reset of the engine."""


def start(batch: Batch) -> None:
    """Start the engine."""
    batch.set("GC", "SDMA0_WATCHDOG_CNTL", QUEUE_HANG_COUNT=WATCHDOG)
    batch.set("GC", "SDMA0_UTCL1_CNTL", RESP_MODE=3, REDO_DELAY=9)
    family = batch.card.chip.family
    batch.set("GC", "SDMA0_UTCL1_PAGE", RD_L2_POLICY=2, WR_L2_POLICY=3, **family.sdma_page)
    batch.set("GC", family.sdma_control, HALT=0)
    batch.set("GC", "SDMA0_CNTL", TRAP_ENABLE=1)


def route(batch: Batch) -> None:
    """Route its doorbells to it."""
    gfx.route(
        batch, doorbells.SDMA_PORT,
        AWID=0xE, AWADDR_31_28_VALUE=3, RANGE_OFFSET=DOORBELL, RANGE_SIZE=DOORBELLS,
    )  # fmt: skip


def reset(batch: Batch) -> None:
    """Take its queue off, in any state. The engine must be started again."""
    batch.set("GC", "SDMA0_QUEUE0_RB_CNTL", RB_ENABLE=0)
    batch.set("GC", "GRBM_SOFT_RESET", SOFT_RESET_SDMA0=1)
    batch.pause(SETTLE)
    batch.set("GC", "GRBM_SOFT_RESET", SOFT_RESET_SDMA0=0)
    batch.pause(SETTLE)
