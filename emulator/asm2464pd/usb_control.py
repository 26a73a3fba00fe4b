"""EP0: the control endpoint, phase by phase.

What the open firmware does for each kind of transfer is known in its exact order [trace]; the hardware here
is what makes that order work, at both speeds:

* SETUP is always taken, ends what EP0 was doing, and sets EP0_PHASE.SETUP. Until firmware acknowledges
  that bit, data and status stages are answered NAK, and commands are discarded as meant for the transfer
  before [inferred: USB 2.0, 8.5.3, lets no device mix two transfers].
* IN data: EP0_COMMAND.SEND queues EP0_IN_LENGTH bytes of the buffer, cut into maximum packets; the bytes are
  taken at the write. IN_WANTED is set when the host asks for data that is not queued and SETUP is
  acknowledged, once for each SEND: the chip maker's firmware fills the buffer at SETUP and sends only then,
  the open firmware sends at SETUP and clears the bit after every SEND [trace, at both speeds; that the bit
  comes once and not with every token is inferred]. A stage of whole packets that is shorter than wLength
  needs an empty one, with a second SEND of length 0 [guess]. The host's status packet sets STATUS_OUT;
  ACCEPT_STATUS lets it end.
* OUT data: packets are put together in the buffer; DATA_OUT is set when all of wLength has come, a short
  packet ends it, or 512 bytes fill the buffer [inferred for more than one packet]. The next chunk waits for
  the acknowledgement of DATA_OUT.
* The status stage of an OUT or no-data transfer sets STATUS_IN_SS, or IN_WANTED at High Speed, where it is a
  packet of EP0 like another, when the host asks for it
  and SETUP and DATA_OUT are acknowledged. It ends at FINISH_STATUS (SuperSpeed) or at an empty SEND (High
  Speed), which may come before or after the host asks; at SuperSpeed the empty SEND changes nothing.
* STALL answers everything with STALL until the next SETUP.

The wire of this emulator knows no device addresses. Firmware that has not put the address of SET_ADDRESS into
USB_ADDRESS by the time of the next SETUP is reported: on silicon that SETUP would not reach it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from emulator.asm2464pd import waits
from emulator.asm2464pd.interrupts import Interrupts
from emulator.asm2464pd.undefined import Reporter
from emulator.core.bus import Bus
from emulator.usb.wire import Handshake, Setup, Speed
from firmware.asm2464pd.registers import memory
from firmware.asm2464pd.registers import usb as regs

log = logging.getLogger(__name__)

BUFFER = memory.EP0_BUFFER
PHASE, COMMAND = regs.EP0_PHASE, regs.EP0_COMMAND
REQUEST = (
    regs.EP0_REQUEST_TYPE,
    regs.EP0_REQUEST,
    regs.EP0_REQUEST_VALUE,
    regs.EP0_REQUEST_INDEX,
    regs.EP0_REQUEST_LENGTH,
)
"""The SETUP packet, field by field; they lie side by side."""
SETUP_SIZE = sum(register.size for register in REQUEST)


SET_ADDRESS = (0x00, 0x05)
"""bmRequestType and bRequest (USB 2.0, 9.4.6)."""


class Stage(Enum):
    """Where a control transfer is."""

    IDLE = auto()
    DATA_IN = auto()
    DATA_OUT = auto()
    STATUS_IN = auto()
    """The device answers with an empty packet: end of an OUT or no-data transfer."""
    STATUS_OUT = auto()
    """The host sends an empty packet: end of an IN transfer."""
    STALLED = auto()


OUTGOING = (Stage.DATA_OUT, Stage.STATUS_IN)
"""Stages of a transfer that the device ends with an empty packet."""


@dataclass(slots=True)
class Transfer:
    """A control transfer.

    Attributes:
        stage: where it is.
        missing: bytes of data that have not been transferred yet.
        filled: bytes of them in the buffer that firmware has not been notified of.
        complete: the OUT data stage is over.
        packets: IN data that the host has not taken yet.
        ended: the host has all IN data that it may get: all that it wants, or a short packet.
        wanted: the host asks for IN data, and there is none.
        shown: firmware has been notified of that.
        asked: the host has asked for the status stage.
        announced: firmware has been notified of that.
        may_end: firmware lets the status stage end.
    """

    stage: Stage
    missing: int = 0
    filled: int = 0
    complete: bool = False
    packets: deque[bytes] = field(default_factory=deque)
    ended: bool = False
    wanted: bool = False
    shown: bool = False
    asked: bool = False
    announced: bool = False
    may_end: bool = False


class ControlEndpoint:
    """EP0.

    Args:
        bus: registers and buffer.
        interrupts: for EP0_PHASE.
        ready: called when the host may try again what was answered NAK.
    """

    def __init__(self, bus: Bus, interrupts: Interrupts, ready: Callable[[], None]) -> None:
        self._bus = bus
        self._interrupts = interrupts
        self._ready = ready
        self._reporter = Reporter(bus)
        self._super = True
        self._packet_size = 512
        self._transfer = Transfer(Stage.IDLE)
        self._assigned: int | None = None  # the address that the host uses since a SET_ADDRESS
        interrupts.source(PHASE, "CONTROL", self._acknowledged)
        bus.map(COMMAND, "usb", write=self._command)
        bus.map(regs.EP0_IN_LENGTH, "usb")
        for register in REQUEST:
            bus.map(register, "usb")

    def reset(self, speed: Speed) -> None:
        """Forget the transfer; packets are of that speed's size from now on."""
        self._super = speed.is_super
        self._packet_size = 512 if speed.is_super else 64
        self._transfer = Transfer(Stage.IDLE)
        self._assigned = None
        self._interrupts.clear(PHASE)

    # -- the wire ---------------------------------------------------------------------------------------

    def setup(self, packet: bytes) -> None:
        """A SETUP packet."""
        self._check_address()
        request = Setup.unpack(packet)
        self._bus.store(REQUEST[0].space, REQUEST[0].address, packet)
        if request.length == 0:
            self._transfer = Transfer(Stage.STATUS_IN)
        else:
            stage = Stage.DATA_IN if request.is_in else Stage.DATA_OUT
            self._transfer = Transfer(stage, missing=request.length)
        self._interrupts.clear(PHASE)
        self._interrupts.raise_bits(PHASE, PHASE["SETUP"])

    def data_out(self, data: bytes) -> Handshake:
        """A packet of the data stage, host to device."""
        transfer = self._transfer
        if transfer.stage is Stage.STALLED or len(data) > self._packet_size:
            return Handshake.STALL
        if transfer.stage is not Stage.DATA_OUT or transfer.complete or self._unacknowledged:
            return Handshake.NAK
        self._bus.store(BUFFER.space, BUFFER.address + transfer.filled, data)
        transfer.filled += len(data)
        transfer.missing -= len(data)
        transfer.complete = transfer.missing <= 0 or len(data) < self._packet_size
        if transfer.complete or transfer.filled == BUFFER.size:
            transfer.filled = 0
            self._interrupts.raise_bits(PHASE, PHASE["DATA_OUT"])
        return Handshake.ACK

    def data_in(self) -> bytes | Handshake:
        """A packet of the data stage, device to host."""
        transfer = self._transfer
        if transfer.stage is Stage.STALLED:
            return Handshake.STALL
        if transfer.stage is not Stage.DATA_IN:
            return Handshake.NAK
        if not transfer.packets:
            transfer.wanted = not transfer.ended
            self._announce()
            return Handshake.NAK
        packet = transfer.packets.popleft()
        transfer.missing -= len(packet)
        transfer.ended = transfer.missing <= 0 or len(packet) < self._packet_size
        return packet

    def status(self) -> Handshake:
        """The status stage."""
        transfer = self._transfer
        match transfer.stage:
            case Stage.STALLED:
                return Handshake.STALL
            case Stage.IDLE:
                return Handshake.NAK
            case Stage.DATA_IN:  # the host ends the data stage, with all of it or without
                transfer.stage = Stage.STATUS_OUT
            case Stage.DATA_OUT:
                transfer.stage = Stage.STATUS_IN
        transfer.asked = True
        self._announce()
        if not (transfer.announced and transfer.may_end):
            return Handshake.NAK
        transfer.stage = Stage.IDLE
        request = Setup.unpack(self._bus.load(REQUEST[0].space, REQUEST[0].address, SETUP_SIZE))
        if (request.request_type, request.request) == SET_ADDRESS:
            self._assigned = request.value
        return Handshake.ACK

    def waits_for(self) -> str:
        """What the transfer waits for before it goes on; empty if nothing of the firmware."""
        transfer = self._transfer
        for event in ("SETUP", "DATA_OUT"):
            if self._bus.value(PHASE) & PHASE[event]:
                return waits.acknowledged(PHASE, event)
        match transfer.stage:
            case Stage.DATA_IN if not transfer.packets:
                return f"{waits.bit(COMMAND, 'SEND', 1)}, which the firmware writes"
            case Stage.STATUS_OUT if not transfer.may_end:
                return f"{waits.bit(COMMAND, 'ACCEPT_STATUS', 1)}, which the firmware writes"
            case Stage.STATUS_IN if not transfer.may_end:
                end = "FINISH_STATUS" if self._super else "SEND"
                return f"{waits.bit(COMMAND, end, 1)}, which the firmware writes"
        return ""

    # -- the CPU ----------------------------------------------------------------------------------------

    def _command(self, value: int) -> None:
        if self._bus.value(PHASE) & PHASE["SETUP"]:
            # Meant for the transfer that the new SETUP has ended, as happens to any firmware.
            log.info("EP0_COMMAND = %#04x before EP0_PHASE.SETUP is acknowledged: discarded", value)
            return
        transfer = self._transfer
        if value & COMMAND["STALL"] and transfer.stage is not Stage.IDLE:
            transfer.stage = Stage.STALLED
            self._interrupts.clear_bits(PHASE, PHASE["IN_WANTED"])
        if value & COMMAND["ACCEPT_STATUS"] and transfer.stage in (Stage.DATA_IN, Stage.STATUS_OUT):
            transfer.may_end = True
        if value & COMMAND["SEND"]:
            self._send(transfer)
        if value & COMMAND["FINISH_STATUS"] and self._super and transfer.stage in OUTGOING:
            transfer.may_end = True
        self._ready()

    def _send(self, transfer: Transfer) -> None:
        length = self._bus.value(regs.EP0_IN_LENGTH)
        if length > BUFFER.size:
            self._reporter.report(
                "EP0_IN_LENGTH is more than the buffer holds",
                hint=f"{BUFFER.size} bytes are sent",
                detail=f"{length} bytes",
            )
            length = BUFFER.size
        if transfer.stage is Stage.DATA_IN:
            transfer.wanted = transfer.shown = False
            data = self._bus.load(BUFFER.space, BUFFER.address, length)
            starts = range(0, max(length, 1), self._packet_size)
            transfer.packets.extend(data[start : start + self._packet_size] for start in starts)
        elif transfer.stage in OUTGOING and length == 0 and not self._super:
            transfer.may_end = True

    def _acknowledged(self) -> None:
        self._announce()
        self._ready()

    # -- inside -----------------------------------------------------------------------------------------

    def _check_address(self) -> None:
        held = regs.USB_ADDRESS.field("ADDRESS").get(self._bus.value(regs.USB_ADDRESS))
        if self._assigned is not None and self._assigned != held:
            self._reporter.report(
                "the host uses an address that is not in USB_ADDRESS",
                hint="write it while SET_ADDRESS is handled; the model answers anyway",
                detail=f"{self._assigned}, USB_ADDRESS holds {held}",
            )

    @property
    def _unacknowledged(self) -> int:
        return self._bus.value(PHASE) & (PHASE["SETUP"] | PHASE["DATA_OUT"])

    def _announce(self) -> None:
        """Notify firmware of what the host wants, once, and after earlier events."""
        transfer = self._transfer
        asks = transfer.wanted and transfer.stage is Stage.DATA_IN
        if asks and not transfer.shown and not self._unacknowledged:
            transfer.shown = True
            self._interrupts.raise_bits(PHASE, PHASE["IN_WANTED"])
        if not transfer.asked or transfer.announced or self._unacknowledged:
            return
        transfer.announced = True
        if transfer.stage is Stage.STATUS_OUT:
            name = "STATUS_OUT"
        else:
            name = "STATUS_IN_SS" if self._super else "IN_WANTED"
        self._interrupts.raise_bits(PHASE, PHASE[name])
