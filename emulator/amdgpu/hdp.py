"""HDP, the host data path: what the host writes through BAR 0 waits here before it is in VRAM.

Engines read VRAM past it, and so see the old bytes until the HDP is flushed, a doorbell pushes the writes
ahead of itself, or they drain by themselves. The host sees its own writes at once. Times and depth are the
model's (grade: inferred that writes wait, guess that they drain by themselves and how long that takes): a
driver must not rely on it, and the model can be made without it (`usbgpu.amd.facts.disputes`, hdp-drain).
"""

from __future__ import annotations

from emulator.amdgpu.context import Context
from emulator.amdgpu.diagnosis import BootStep
from emulator.core.clock import clocks

DRAIN_CLOCKS = clocks(10e-6)
"""How long a write waits, at most, before it drains by itself (grade: guess)."""
OUTSTANDING = 1024
"""Write requests that can wait; the next one drains all. The number is in a field's name of HDP_MISC_CNTL,
OUTSTANDING_WRITE_COUNT_1024 (grade: guess that it means this)."""

STEPS: tuple[BootStep, ...] = (
    BootStep(
        "hdp-flush",
        "write 0 to the register that REMAP_HDP_MEM_FLUSH_CNTL names, or GPU_HDP_FLUSH_REQ from a queue",
        "everything that engines read of what the host wrote through BAR 0",
        "engines read what was in VRAM before: for about 10 us, or with hdp-drain=never until a flush",
        "inferred",
    ),
)


class Hdp:
    """The write buffer between BAR 0 and VRAM.

    Args:
        context: of the card.
        drains: whether writes drain by themselves.
    """

    def __init__(self, context: Context, *, drains: bool = True) -> None:
        self._context = context
        self._drains = drains
        self._vram = context.vram
        self._runs: list[tuple[int, bytearray]] = []  # in order of writing, adjacent writes in one
        self._pages: set[int] = set()  # of 4 KiB, in which something waits
        self._requests = 0
        self._batch = 0
        for name in ("HDP_MEM_POWER_CTRL", "HDP_MISC_CNTL", "HDP_NONSURFACE_BASE", "HDP_NONSURFACE_BASE_HI"):
            context.registers.store("HDP", name)
        context.registers.store("HDP", "HDP_NONSURFACE_INFO")

    def write(self, offset: int, data: bytes) -> None:
        """A write of the host; the caller has checked that there is VRAM."""
        if not self._runs:
            self._batch += 1
            batch = self._batch
            if self._drains:
                self._context.link.schedule(DRAIN_CLOCKS, lambda: self._expire(batch))
            self._vram.on_read = self._overtaken
            self._runs.append((offset, bytearray()))
        start, run = self._runs[-1]
        if start <= offset <= start + len(run):
            run[offset - start : offset - start + len(data)] = data
        else:
            self._runs.append((offset, bytearray(data)))
        self._pages.update(range(offset >> 12, (offset + len(data) - 1 >> 12) + 1))
        self._requests += 1
        if self._requests >= OUTSTANDING:
            self.drain()

    def read(self, offset: int, size: int) -> bytes:
        """A read of the host: VRAM, and what waits above it."""
        data = self._vram.memory[offset : offset + size]
        if self._pages.isdisjoint(range(offset >> 12, (offset + size - 1 >> 12) + 1)):
            return data
        newest = bytearray(data)
        for start, run in self._runs:
            low, high = max(start, offset), min(start + len(run), offset + size)
            if low < high:
                newest[low - offset : high - offset] = run[low - start : high - start]
        return bytes(newest)

    def drain(self) -> None:
        """Everything that waits goes to VRAM."""
        for start, run in self._runs:
            self._vram.memory[start : start + len(run)] = run
        self._runs.clear()
        self._pages.clear()
        self._requests = 0
        self._vram.on_read = None

    def flush(self, who: str) -> None:
        """A flush on request."""
        self._context.event("hdp", lambda: f"flush by {who}, {self.waiting} bytes")
        self.drain()

    @property
    def waiting(self) -> int:
        """Bytes that wait."""
        return sum(len(run) for _, run in self._runs)

    def _expire(self, batch: int) -> None:
        if batch == self._batch:
            self.drain()

    def _overtaken(self, address: int, size: int) -> None:
        """An engine reads VRAM while writes wait."""
        if self._pages.isdisjoint(range(address >> 12, (address + size - 1 >> 12) + 1)):
            return
        for start, run in self._runs:
            low, high = max(start, address), min(start + len(run), address + size)
            if low < high and self._vram.memory[low:high] != run[low - start : high - start]:
                self._context.diagnosis.missing(
                    "hdp-flush",
                    f"an engine reads VRAM {low:#x} and gets old bytes, new ones wait in the HDP",
                )
                return
