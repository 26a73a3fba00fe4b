"""The bulk endpoints on the CPU's path: EP 0x02 OUT to 0x7000, EP 0x81 IN from 0x8000, a packet at a time.

Firmware arms an endpoint with BULK_COMMAND; the packet goes when the host wants it, and BULK_EVENTS says so.
An endpoint that is not armed answers NAK, and so does one whose last completion is not acknowledged yet, so
that no completion is lost [arming and completion: trace, open firmware; the second: inferred]. The bytes of
an IN packet are taken when it is armed. The "host wants" bits of BULK_EVENTS are never set: the open firmware
would not clear them [inferred].

BULK_HALT has a bit for each endpoint that makes it answer STALL [trace]; firmware sets and clears it,
CLEAR_IN and CLEAR_OUT clear it too, and the mass-storage engine sets both. What is armed stays armed
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.asm2464pd import waits
from emulator.asm2464pd.interrupts import Interrupts
from emulator.asm2464pd.undefined import Reporter
from emulator.core.bus import Bus
from emulator.usb.wire import Handshake, Speed
from firmware.asm2464pd.registers import memory
from firmware.asm2464pd.registers import usb as regs

OUT, IN = 0x02, 0x81
"""Endpoint addresses."""
EVENTS, COMMAND, HALT = regs.BULK_EVENTS, regs.BULK_COMMAND, regs.BULK_HALT
BITS = {OUT: HALT["OUT"], IN: HALT["IN"]}


class BulkEndpoints:
    """EP 0x02 and EP 0x81.

    Args:
        bus: registers and buffers.
        interrupts: for BULK_EVENTS.
        ready: called with an endpoint when the host may try it again.

    Attributes:
        packet_size: of the link's speed, in bytes.
        locked: after a protocol error CLEAR_IN and CLEAR_OUT do not end the halt, until the mass-storage
            engine is restarted.
    """

    def __init__(self, bus: Bus, interrupts: Interrupts, ready: Callable[[int], None]) -> None:
        self._bus = bus
        self._interrupts = interrupts
        self._ready = ready
        self._reporter = Reporter(bus)
        self.packet_size = 1024
        self.locked = False
        self._halts = 0  # as BULK_HALT was before the last write
        self._receiving = False
        self._sending: bytes | None = None
        interrupts.source(EVENTS, "BULK", self._acknowledged)
        bus.map(COMMAND, "usb", write=self._command)
        bus.map(HALT, "usb", write=self._halt_written)
        for register in (regs.BULK_IN_LENGTH, regs.BULK_OUT_COUNT, regs.BULK_OUT_COUNT_MIRROR):
            bus.map(register, "usb")

    def reset(self, speed: Speed) -> None:
        """Disarm both endpoints and end their halt; packets are of that speed's size from now on."""
        self.packet_size = 1024 if speed.is_super else 512
        self.locked = False
        self._set_halts(0)
        self._receiving = False
        self._sending = None
        self._interrupts.clear(EVENTS)

    def halt(self) -> None:
        """Both endpoints answer STALL until they are cleared."""
        self._set_halts(BITS[OUT] | BITS[IN])
        self._ready(IN)

    def halted(self, endpoint: int) -> bool:
        """Whether an endpoint answers STALL."""
        return bool(self._halts & BITS[endpoint])

    def receive(self, data: bytes) -> Handshake:
        """A packet for EP 0x02."""
        bus = self._bus
        if not self._receiving or bus.value(EVENTS) & EVENTS["OUT_DONE"]:
            return Handshake.NAK
        self._receiving = False
        buffer = memory.BULK_OUT_BUFFER
        bus.store(buffer.space, buffer.address, data)
        bus.set(regs.BULK_OUT_COUNT, len(data))
        bus.set(regs.BULK_OUT_COUNT_MIRROR, len(data))
        self._interrupts.raise_bits(EVENTS, EVENTS["OUT_DONE"])
        return Handshake.ACK

    @property
    def sending(self) -> bool:
        """Whether EP 0x81 is armed."""
        return self._sending is not None

    def send(self) -> bytes | Handshake:
        """The packet that EP 0x81 has ready, if any."""
        if self._sending is None or self._bus.value(EVENTS) & EVENTS["IN_DONE"]:
            return Handshake.NAK
        data, self._sending = self._sending, None
        self._interrupts.raise_bits(EVENTS, EVENTS["IN_DONE"])
        return data

    def waits_for(self, endpoint: int) -> str:
        """What an endpoint waits for before it moves a packet; empty if it is ready."""
        armed = self._receiving if endpoint == OUT else self.sending
        arm, done = ("ARM_OUT", "OUT_DONE") if endpoint == OUT else ("ARM_IN", "IN_DONE")
        if not armed:
            return f"{waits.bit(COMMAND, arm, 1)}, which the firmware writes"
        return waits.acknowledged(EVENTS, done) if self._bus.value(EVENTS) & EVENTS[done] else ""

    def _command(self, value: int) -> None:
        if value & COMMAND["CLEAR_IN"]:
            self._sending = None
            self._clear(IN)
        if value & COMMAND["CLEAR_OUT"]:
            self._receiving = False
            self._clear(OUT)
        if value & COMMAND["ARM_IN"]:
            self._sending = self._fetch()
            self._ready(IN)
        if value & COMMAND["ARM_OUT"]:
            self._receiving = True
            self._ready(OUT)

    def _clear(self, endpoint: int) -> None:
        if not self.locked and self.halted(endpoint):
            self._set_halts(self._halts & ~BITS[endpoint])
            self._ready(endpoint)

    def _halt_written(self, value: int) -> None:
        changed = (self._halts ^ value) & (BITS[OUT] | BITS[IN])
        if self.locked:
            self._set_halts(self._halts)  # the engine's halt stays
            return
        self._set_halts(value)
        for endpoint, bit in BITS.items():
            if changed & bit:
                self._ready(endpoint)

    def _set_halts(self, halts: int) -> None:
        self._halts = halts
        if self._bus.value(HALT) != halts:
            self._bus.set(HALT, halts)

    def _fetch(self) -> bytes:
        """The packet that is being armed, out of the buffer."""
        length = self._bus.value(regs.BULK_IN_LENGTH)
        if length > self.packet_size:
            self._reporter.report(
                "BULK_IN_LENGTH is more than one packet",
                hint="one packet of the maximum size is sent",
                detail=f"{length} bytes",
            )
            length = self.packet_size
        buffer = memory.BULK_IN_BUFFER
        return self._bus.load(buffer.space, buffer.address, length)

    def _acknowledged(self) -> None:
        if self._receiving:
            self._ready(OUT)
        if self._sending is not None:
            self._ready(IN)
