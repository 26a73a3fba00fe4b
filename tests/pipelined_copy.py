"""A pipelined copy-in over the published requests: two windows of the SRAM, armed and streamed in turn.

Chunk c is armed while chunk c - 1 streams, as soon as the device has copied chunk c - 2 out of its window: a
fence says so, which the host reads with E4. A chunk ends with a sentinel that the device polls for. So does
the fastest published driver; nothing here waits for the slot DMA.
"""

from __future__ import annotations

from emulator.core.clock import clocks
from emulator.pcie.endpoint import TestEndpoint
from emulator.usb.host import Host
from emulator.usb.wire import Outcome, Setup

OUT = 0x02
SRAM = 0x20_0000
SLOT, SLOTS = 0x4000, 16
WINDOW = SLOT * SLOTS
FENCE, FENCE_XDATA = 0x82_0800, 0xA800
"""Where the device reports how many chunks it has copied: as a PCIe address, and in XDATA."""
SENTINEL = 0x5100_0000
PATIENCE = 1.0
"""Virtual seconds that a chunk may take."""
POLL = clocks(5e-6)
PUBLISHED = 323
"""MB/s of the fastest published copy-in, on silicon; 276 before."""


def window(number: int) -> int:
    """First slot of a chunk's window."""
    return number % 2 * SLOTS


def chunk(data: bytes, number: int) -> bytes:
    """What is sent for a chunk: all of a window."""
    return data + (SENTINEL + number).to_bytes(4, "little")


class Copier(TestEndpoint):
    """A device that copies chunks to its memory, one behind the other, at the rate of its link."""

    def expect(self, chunks: int) -> None:
        self._chunks, self._copied = chunks, 0
        self.upstream.schedule(POLL, self._look)

    def _look(self) -> None:
        start = SRAM + window(self._copied) * SLOT
        sentinel = (SENTINEL + self._copied).to_bytes(4, "little")
        if self.upstream.dma_read(start + WINDOW - 4, 4) != sentinel:
            self.upstream.schedule(POLL, self._look)
        else:
            self.upstream.schedule(self.upstream.transfer_clocks(WINDOW), self._copy)

    def _copy(self) -> None:
        start, size = SRAM + window(self._copied) * SLOT, WINDOW - 4
        self.memory[self._copied * size : (self._copied + 1) * size] = self.upstream.dma_read(start, size)
        self._copied += 1
        self.upstream.dma_write(FENCE, self._copied.to_bytes(8, "little"))
        if self._copied < self._chunks:
            self.upstream.schedule(POLL, self._look)


def copy_in(usb: Host, chunks: list[bytes], patience: float = PATIENCE) -> float:
    """Send chunks through the windows, and wait until the device has copied them; megabytes a second.

    Raises:
        TimeoutError: it did not copy them.
    """
    for byte in range(8):
        usb.control(Setup(0x40, 0xE5, FENCE_XDATA + byte, 0, 0), timeout=patience)
    started = usb.clock.now()

    def copied(number: int) -> None:
        end = usb.clock.now() + patience
        while True:
            fence = usb.control(Setup(0xC0, 0xE4, FENCE_XDATA, 0, 8), timeout=patience)
            if int.from_bytes(fence, "little") >= number:
                return
            if usb.clock.now() > end:
                raise TimeoutError(f"chunk {number - 1} has not been copied")

    transfers = []
    for number, data in enumerate(chunks):
        copied(number - 1)
        arm = Setup(0x40, 0xF2, WINDOW // 512, SLOTS << 8 | window(number), 0)
        usb.control(arm, timeout=patience)
        transfers.append(usb.submit(OUT, chunk(data, number)))
    for transfer in transfers:
        usb.wait(transfer, timeout=patience)
        if transfer.outcome is not Outcome.DONE:
            raise TimeoutError(f"a chunk ended as {transfer.outcome}")
    copied(len(chunks))
    return sum(map(len, chunks)) / (usb.clock.now() - started) / 1e6
