"""What a bus master behind the PCIe root reaches in the chip: the SRAM, and windows on XDATA.

Which memories have a PCIe address, and how long they are, is declared with them; everything else answers
Unsupported Request. What an access across two windows does is unknown; it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emulator.core.bus import Bus
from emulator.pcie.function import UnsupportedRequest
from firmware.asm2464pd.describe import Memory, Space

Listener = Callable[[int, bytes], None]
"""Called with the PCIe address and the data of a write, after it has been stored."""


@dataclass(frozen=True, slots=True)
class _Window:
    """A range of PCIe addresses and what lies behind it."""

    start: int
    end: int
    space: Space
    address: int


def _windows(memories: tuple[Memory, ...]) -> tuple[_Window, ...]:
    found = []
    for memory in memories:
        # An XDATA window on the SRAM is the SRAM, which has the same PCIe address and is longer.
        if memory.pcie is not None and memory.sram is None:
            found.append(_Window(memory.pcie, memory.pcie + memory.size, memory.space, memory.address))
    return tuple(sorted(found, key=lambda window: window.start))


class UpstreamMemory:
    """The completer of requests that devices send upstream.

    Args:
        bus: where the memories are.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._windows = _windows(bus.facts.memories)
        self._listeners: list[tuple[int, int, Listener]] = []

    def listen(self, start: int, end: int, listener: Listener) -> None:
        """Have `listener` called after every write that touches a byte of [start, end)."""
        self._listeners.append((start, end, listener))

    def read(self, address: int, size: int) -> bytes:
        """Memory read of a device.

        Raises:
            UnsupportedRequest: not wholly inside one window.
        """
        window = self._find(address, size)
        return self._bus.load(window.space, window.address + address - window.start, size)

    def write(self, address: int, data: bytes) -> None:
        """Memory write of a device.

        Raises:
            UnsupportedRequest: not wholly inside one window.
        """
        window = self._find(address, len(data))
        self._bus.store(window.space, window.address + address - window.start, data)
        end = address + len(data)
        for start, stop, listener in self._listeners:
            if address < stop and end > start:
                listener(address, data)

    def _find(self, address: int, size: int) -> _Window:
        for window in self._windows:
            if window.start <= address and address + size <= window.end:
                return window
        raise UnsupportedRequest(f"no memory at {address:#x}, {size} bytes")
