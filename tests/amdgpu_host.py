"""A host for the emulated card alone: PCIe requests, time, and the memory that the bridge has for it.

Requests go straight to the `PcieFunction`, without the bridge's fabric: what is tested here is the card, and
how a driver has to treat it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from emulator.core.clock import Scheduler, clocks
from emulator.pcie.function import PcieFunction, UnsupportedRequest

SRAM, SRAM_SIZE = 0x20_0000, 512 << 10
ACCESS = 12
"""Clocks of a request: 0.1 us, much less than over USB, so that a missing flush of the HDP shows."""
BURST = 4096
COMMAND = 0x04
MEMORY, MASTER = 2, 4


class TimeOut(Exception):
    """Something did not happen in time; the text says what."""


class Host:
    """The root of a bus with one function, the card.

    Attributes:
        sram: the bytes behind PCIe address SRAM.
        clock: time.
    """

    def __init__(self, card: PcieFunction) -> None:
        self.card = card
        self.clock = Scheduler()
        self.sram = bytearray(SRAM_SIZE)
        card.attach(self)

    # -- Upstream ---------------------------------------------------------------------------------------

    def dma_read(self, address: int, size: int) -> bytes:
        place = self._sram(address, size)
        return bytes(self.sram[place : place + size])

    def dma_write(self, address: int, data: bytes) -> None:
        place = self._sram(address, len(data))
        self.sram[place : place + len(data)] = data

    def transfer_clocks(self, size: int) -> int:
        return size // 8 + 1

    def now(self) -> int:
        return self.clock.now

    def schedule(self, clocks: int, action: Callable[[], None]) -> None:
        self.clock.after(clocks, action)

    def delay_completion(self, clocks: int) -> None:
        self.sleep(clocks)

    def _sram(self, address: int, size: int) -> int:
        if not self.card.config_read(COMMAND, 0xF) & MASTER:
            raise UnsupportedRequest
        if not SRAM <= address <= SRAM + SRAM_SIZE - size:
            raise UnsupportedRequest
        return address - SRAM

    # -- requests ---------------------------------------------------------------------------------------

    def config_read(self, offset: int) -> int:
        self.sleep(ACCESS)
        return self.card.config_read(offset, 0xF)

    def config_write(self, offset: int, value: int) -> None:
        self.sleep(ACCESS)
        self.card.config_write(offset, value, 0xF)

    def read(self, bar: int, offset: int, size: int = 4) -> bytes:
        """A read of any size; all ones where nothing answers, as a CPU would see it."""
        data = b""
        for at in range(offset, offset + size, BURST):
            self.sleep(ACCESS)
            part = min(BURST, offset + size - at)
            try:
                data += self._memory(lambda at=at, part=part: self.card.read(bar, at, part))
            except UnsupportedRequest:
                data += b"\xff" * part
        return data

    def write(self, bar: int, offset: int, data: bytes) -> None:
        """A write of any size; a refusal is not reported."""
        places = [*range(0, len(data), BURST), len(data)]
        for low, high in pairwise(places):
            self.sleep(ACCESS)
            try:
                self._memory(lambda low=low, high=high: self.card.write(bar, offset + low, data[low:high]))
            except UnsupportedRequest:
                return

    def _memory(self, action):
        """The fabric routes nothing to a function whose memory space is off."""
        if not self.card.config_read(COMMAND, 0xF) & MEMORY:
            raise UnsupportedRequest
        return action()

    # -- time -------------------------------------------------------------------------------------------

    def sleep(self, duration: int) -> None:
        """Let clocks pass, event by event."""
        clock = self.clock
        end = clock.now + duration
        while (due := clock.next) is not None and due <= end:
            clock.now = max(clock.now, due)
            clock.run_due()
        clock.now = max(clock.now, end)

    def wait(self, what: str, condition: Callable[[], bool], timeout: float = 0.5) -> None:
        """Poll until something is so; time goes on from event to event. Raises TimeOut after seconds."""
        end = self.clock.now + clocks(timeout)
        while not condition():
            due = self.clock.next
            if due is None or due > end:
                if self.clock.now >= end:
                    raise TimeOut(f"no {what} after {timeout:g} s")
                due = end
            self.sleep(due - self.clock.now)
