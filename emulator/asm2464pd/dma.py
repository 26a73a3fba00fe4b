"""The slot DMA: whole slots of the SRAM to and from the bulk endpoints, without the CPU.

A write of DMA_ARM, with DMA_CONTROL.START set, arms it. Towards the SRAM the next sectors * 512 bytes of
EP 0x02 land in the slots; towards the host EP 0x81 answers NAK until a device behind PCIe writes the third
dword of the completion queue's first entry (0x0082200C), and then sends the slots. In both directions the
engine disarms after the last byte, without any event.

Armed again while it takes a transfer to the SRAM, it begins the next one when that has ended: the fastest
published copy-in does this all the time, through firmware that does not wait (trace that it works on silicon,
inferred that the engine queues; one transfer, as that copy-in has two windows). With dma-arm=replace it is
what an older note says: undefined, and the model begins the next one at once.

All of this is what the open firmware and its hosts do on silicon; that a write of DMA_ARM arms, and that
a write of any value to that dword triggers, are inferred from several of its scripts. Uses that no source
shows are reported: logged once with their cause, or refused under `--strict`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from emulator.asm2464pd.undefined import Reporter
from emulator.asm2464pd.upstream import UpstreamMemory
from emulator.asm2464pd.usb_bulk import IN, OUT
from emulator.core.bus import Bus
from emulator.model import DEFAULT, Model
from emulator.usb.wire import Handshake
from firmware.asm2464pd import disputes
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import dma as regs
from firmware.asm2464pd.registers.memory import NVME_CQ, NVME_SQ, SLOT_SIZE, SRAM
from firmware.asm2464pd.wire import COMPLETION_TRIGGER, DRAIN_FENCE

SECTOR = 512
"""Bytes of a sector; DMA_SECTOR_SIZE holds nothing else in any known use."""

_CQ = NVME_CQ.pcie or 0
_SQ = NVME_SQ.pcie or 0
TRIGGER = range(_CQ + COMPLETION_TRIGGER.start, _CQ + COMPLETION_TRIGGER.stop)
"""PCIe addresses: a write there triggers an armed transfer to the host."""
STREAM_PAGE = range(_SQ, _SQ + NVME_SQ.size)
"""PCIe addresses that devices leave alone while the engine streams: on silicon, writes collide with it."""
FENCE = range(_SQ + DRAIN_FENCE.start, _SQ + DRAIN_FENCE.stop)
"""Those of them that a device may write, unless the transfer fills the SRAM."""

_GUARDED = (
    regs.DMA_CONTROL,
    regs.DMA_SLOT_FIRST,
    regs.DMA_SLOT_END,
    regs.DMA_SECTOR_SIZE,
    regs.DMA_SECTORS,
    regs.DMA_ARM,
    regs.DMA_RELEASE,
)
_STORAGE = (
    regs.DMA_COPY_ENABLE,
    regs.DMA_COPY_MODE,
    regs.DMA_COPY_C402,
    regs.DMA_COPY_C404,
    regs.DMA_COPY_TRIGGER,
    regs.DMA_COPY_C420,
    regs.DMA_COPY_C421,
    regs.DMA_COPY_C424,
    regs.DMA_COPY_C425,
    regs.DMA_COPY_C428,
    regs.DMA_COPY_C42B,
    regs.DMA_SCSI_CONTROL,
    regs.DMA_SCSI_ADDRESS,
)


class SlotDma:
    """The slot DMA; a `BulkEngine` of the USB controller.

    Args:
        bus: registers and SRAM.
        upstream: where devices write the completion entry.
        wake: called with an endpoint address when it may answer otherwise than NAK.
        packet_size: gives the maximum packet size of the bulk endpoints, in bytes.
        model: whether it `queues`.

    Attributes:
        remaining: bytes the armed transfer still has to move, 0 when nothing is armed.
        to_sram: its direction.
        triggered: whether one to the host has been triggered.
        queues: whether a transfer that is armed while another one goes to the SRAM waits for that.
        on_change: called when a transfer was armed, triggered, has ended, or was dropped.
    """

    def __init__(
        self,
        bus: Bus,
        upstream: UpstreamMemory,
        wake: Callable[[int], None],
        packet_size: Callable[[], int] = lambda: 1024,
        model: Model = DEFAULT,
    ) -> None:
        self._bus = bus
        self._wake = wake
        self._packet_size = packet_size
        self._undefined = Reporter(bus)
        self.to_sram = False
        self.triggered = False
        self.queues = model.follows(disputes.DMA_ARM, "queue")
        self._place = 0
        self._size = 0
        self.remaining = 0
        self._next: tuple[int, int] | None = None
        self.on_change: Callable[[], None] = lambda: None
        for register in _GUARDED:
            for offset in range(register.size):
                action = self._arm if register is regs.DMA_ARM else None
                bus.map(
                    register,
                    "dma",
                    at=offset,
                    write=functools.partial(self._written, register.name, action),
                )
        for register in _STORAGE:
            bus.map(register, "dma")
        upstream.listen(TRIGGER.start, TRIGGER.stop, self._completion_written)
        upstream.listen(STREAM_PAGE.start, STREAM_PAGE.stop, self._stream_page_written)

    # -- for the USB controller -------------------------------------------------------------------------

    def bulk_out(self, data: bytes) -> Handshake | None:
        """A packet of EP 0x02: into the slots, or None if no transfer towards the SRAM is armed."""
        if not (self.remaining and self.to_sram):
            return None
        size = len(data)
        if size < self._packet_size() and size < self.remaining:
            self._undefined.report(
                "a short packet came while slot DMA was armed",
                detail=f"{size} bytes, {self.remaining} expected",
                hint="the model takes it and goes on",
            )
        if size > self.remaining:
            self._undefined.report(
                "a packet was longer than what slot DMA was armed for",
                detail=f"{size} bytes, {self.remaining} expected",
                hint="the model drops the rest",
            )
            data = data[: self.remaining]
        self._store(data)
        return Handshake.ACK

    def bulk_in(self) -> bytes | Handshake | None:
        """A packet of EP 0x81 from the slots, NAK before the trigger, or None if none is armed."""
        if not self.remaining or self.to_sram:
            return None
        if not self.triggered:
            return Handshake.NAK
        size = min(self._packet_size(), self.remaining)
        place = self._place
        data = self._bus.load(Space.SRAM, place, size)
        if len(data) < size:
            data += self._bus.load(Space.SRAM, 0, size - len(data))
        self._advance(size)
        return data

    def busy(self, endpoint: int) -> bool:
        """Whether the next packet of that endpoint is the engine's."""
        return self.remaining > 0 and endpoint == (OUT if self.to_sram else IN)

    def reset(self) -> None:
        """Drop the armed transfer: a bus reset, a lost link, a restart of the CPU. Inferred."""
        self.remaining = 0
        self._next = None
        self.triggered = False
        self.on_change()

    # -- inside -----------------------------------------------------------------------------------------

    def _written(self, name: str, action: Callable[[], None] | None, value: int) -> None:
        if self.remaining and not (self.queues and self.to_sram):
            self._undefined.report(
                f"{name} was written while slot DMA was armed",
                detail=f"value {value:#04x}, {self.remaining} bytes to go",
                hint="wait for the transfer, or reset the link; the model stores it",
            )
        if action is not None:
            action()

    def _arm(self) -> None:
        bus = self._bus
        control = bus.value(regs.DMA_CONTROL)
        if not control & regs.DMA_CONTROL["START"]:
            return
        first = regs.DMA_SLOT_FIRST.field("SLOT").get(bus.value(regs.DMA_SLOT_FIRST))
        end = regs.DMA_SLOT_END.field("SLOT").get(bus.value(regs.DMA_SLOT_END))
        self._check(end)
        size = bus.value(regs.DMA_SECTORS) * SECTOR
        room = (end - first) * SLOT_SIZE
        if size > room:
            self._undefined.report(
                "slot DMA was armed for more than its slots hold",
                detail=f"{size} bytes, slots {first} to {end}: {room} bytes",
                hint="the model goes on into the next slot, and from the last into the first",
            )
        to_sram = bool(control & regs.DMA_CONTROL["TO_SRAM"])
        place = first * SLOT_SIZE % SRAM.size
        if self.remaining and self.to_sram and self.queues:
            if to_sram and size and self._next is None:
                self._next = place, size
                return
            self._undefined.report(
                "slot DMA was armed while it had a transfer to the SRAM, as no known driver does",
                detail=f"{self.remaining} bytes to go, {1 if self._next else 0} more waiting; "
                f"now {size} bytes to the {'SRAM' if to_sram else 'host'}",
                hint="wait for the transfers, or reset the link; the model drops them and begins this one",
            )
        self._next = None
        self.to_sram = to_sram
        self.triggered = False
        self._begin(place, size)
        if to_sram and size:
            self._wake(OUT)

    def _begin(self, place: int, size: int) -> None:
        self._place = place
        self._size = self.remaining = size
        self.on_change()

    def _check(self, end: int) -> None:
        """Report what no known transfer was armed with."""
        bus = self._bus
        if not bus.value(regs.DMA_SLOT_FIRST) & regs.DMA_SLOT_FIRST["VALID"]:
            self._undefined.report(
                "slot DMA was armed without DMA_SLOT_FIRST.VALID",
                hint="every known transfer sets it; the model does not need it",
            )
        if (size := bus.value(regs.DMA_SECTOR_SIZE)) != SECTOR:
            self._undefined.report(
                "slot DMA was armed with another sector size",
                detail=f"{size} bytes",
                hint=f"{SECTOR} is the only one known to work, and what the model takes",
            )
        if end > SRAM.size // SLOT_SIZE:
            self._undefined.report(
                "slot DMA was armed for slots that do not exist",
                detail=f"up to slot {end}, there are {SRAM.size // SLOT_SIZE}",
                hint="the model goes on in the first",
            )

    def _store(self, data: bytes) -> None:
        room = SRAM.size - self._place
        self._bus.store(Space.SRAM, self._place, data[:room])
        if len(data) > room:
            self._bus.store(Space.SRAM, 0, data[room:])
        self._advance(len(data))

    def _advance(self, size: int) -> None:
        self._place = (self._place + size) % SRAM.size
        self.remaining -= size
        if self.remaining:
            return
        self.on_change()
        if self._next is not None:
            following, self._next = self._next, None
            self._begin(*following)

    def _completion_written(self, address: int, data: bytes) -> None:
        del address, data  # that it was written is all that counts
        if self.remaining and not self.to_sram:
            self.triggered = True
            self.on_change()
            self._wake(IN)

    def _stream_page_written(self, address: int, data: bytes) -> None:
        if not (self.remaining and (self.to_sram or self.triggered)):
            return
        is_fence = address in FENCE and address + len(data) <= FENCE.stop
        if not is_fence or self._size >= SRAM.size:
            self._undefined.report(
                "a device wrote the submission queue's page while slot DMA streamed",
                detail=f"{len(data)} bytes to {address:#x}",
                hint="on silicon this collides with the engine; the model only stores it",
            )
