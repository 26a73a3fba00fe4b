"""GRBM, the register bus manager of the graphics block: selection of copies, resets, status.

GRBM_GFX_CNTL chooses the micro engine, pipe, queue and VMID whose copy of a register the driver reads and
writes. Packets of a queue always reach the queue's own copies.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.amdgpu.context import Context
from emulator.amdgpu.diagnosis import BootStep

STEPS: tuple[BootStep, ...] = (
    BootStep(
        "grbm-select",
        "GRBM_GFX_CNTL: MEID = 1, PIPEID, QUEUEID before the registers of a compute queue",
        "MEC and queue set-up",
        "the registers of another engine are written: the queue never starts",
        "inferred",
    ),
)

_BROADCAST = 0xE000_0000
"""GRBM_GFX_INDEX after a reset: writes go to all engines, arrays and instances (inferred)."""


class Grbm:
    """The block.

    Args:
        context: of the card.

    Attributes:
        resets: called with each value written to GRBM_SOFT_RESET.
        busy: parts of GRBM_STATUS, GRBM_STATUS2, CP_STAT and CP_CPC_STATUS that are set now, by register.
    """

    def __init__(self, context: Context) -> None:
        self.resets: list[Callable[[int], None]] = []
        self.busy: Callable[[str], dict[str, int]] = lambda name: {}
        self._context = context
        registers = context.registers
        registers.store("GC", "GRBM_CNTL", "GRBM_GFX_CNTL", *(f"SCRATCH_REG{index}" for index in range(8)))
        registers.store("GC", "GRBM_GFX_INDEX", reset=_BROADCAST)
        registers.on_write("GC", "GRBM_SOFT_RESET", self._soft_reset)
        for name in ("GRBM_STATUS", "GRBM_STATUS2", "CP_STAT", "CP_CPC_STATUS"):
            registers.on_read("GC", name, lambda name=name: self._status(name))  # type: ignore[misc]

    def queue(self) -> tuple[int, int, int]:
        """Micro engine, pipe and queue that are selected: the bank of a queue's registers."""
        return self._selected("MEID"), self._selected("PIPEID"), self._selected("QUEUEID")

    def pipe(self) -> tuple[int, int]:
        """Micro engine and pipe that are selected."""
        return self._selected("MEID"), self._selected("PIPEID")

    def vmid(self) -> int:
        """VMID that is selected."""
        return self._selected("VMID")

    def _selected(self, part: str) -> int:
        return self._context.registers.get("GC", "GRBM_GFX_CNTL", part)

    def _status(self, name: str) -> int:
        """What the engines report, and what another block has stored there."""
        register = self._context.chip.register("GC", name)
        return register.pack(self._context.registers.value("GC", name), **self.busy(name))

    def _soft_reset(self, value: int) -> None:
        for action in self.resets:
            action(value)
