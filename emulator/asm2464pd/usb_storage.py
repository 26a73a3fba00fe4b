"""The mass-storage engine: it takes command wrappers off EP 0x02 and sends status wrappers on EP 0x81.

Terms are those of the USB mass-storage class, Bulk-Only Transport 1.0. What firmware can rely on:

1. Off. After reset, and from a write of 0 to MSC_CONFIG (0x900B) on, the engine is out of the way: every bulk
   packet takes the CPU path (BULK_COMMAND, 0x9094).
2. Wait. MSC_CONTROL (0xC42C) = 0x01 makes the engine wait for a command, whatever MSC_CONFIG holds. Write it
   while SET_CONFIGURATION is handled, or when the link trains: a bus reset drops the command that is
   outstanding, and the engine goes on waiting.
3. Command. The next packet on EP 0x02, of 31 bytes beginning "USBC", lands as it is in 0x911B..0x9139, and
   its length in MSC_CBW_COUNT (0x9119): MSC_CBW_SIGNATURE 911B, MSC_CBW_TAG 911F, MSC_CBW_LENGTH 9123 (little
   endian), MSC_CBW_FLAGS 9127, MSC_CBW_LUN 9128, MSC_CBW_CB_LENGTH 9129, MSC_CBW_CB 912A..9139. MSC_EVENT
   (0x90E2) bit 0 is set and with it USB_EVENTS (0x9101) bit 6; write 0x01 to MSC_EVENT to clear both.
   Firmware that has to tell a wrapper from data writes MSC_STREAM (0xCE88) = 0 and looks at MSC_RECEIVED
   (0xCE89). The fields stay until the next command. EP 0x02 answers NAK to anything further until firmware
   arms it.
4. Data. Between command and status the CPU path serves both endpoints, one packet at a time: OUT by
   BULK_COMMAND = 0x10 into 0x7000, IN from 0x8000 by BULK_IN_LENGTH and BULK_COMMAND = 0x02, completions in
   BULK_EVENTS (0x9093). End a data stage early with a short or empty IN packet, or with a halt (BULK_HALT,
   0x9006): the status follows when the host has cleared it. Take all the OUT data the host has announced.
5. Status. Write the 13 bytes of the CSW ("USBS", tag, residue, status) at 0xD800 and MSC_LENGTH (0x901A) =
   0x0D; then either MSC_CONTROL = 0x01, and clear bit 0 of MSC_STATUS (0xC42D), or MSC_STATUS_SEND
   (0x90A1) = 0x01. The bytes are taken at the write. An
   IN packet that is still armed goes first. When the host has taken the CSW, EP_COMPLETE (0x9096) bit 0 is
   set, and with it USB_EVENTS bit 5 (write 0x01 to EP_COMPLETE to clear both); the engine waits for the next
   command at once, without another MSC_CONTROL. A command that comes before MSC_EVENT is cleared waits.
6. Reset. Bulk-Only Mass Storage Reset is a class request like any other: answer it, and write
   MSC_CONFIG = 0, which drops the command and its event, then 0x01, then MSC_CONTROL = 0x01. A packet
   that is not a command wrapper while the engine waits halts both endpoints; then only that sequence helps,
   followed by CLEAR_FEATURE for each endpoint (BULK_COMMAND = 0x01 and 0x08).

Grades. The layout of the command registers, MSC_LENGTH, the buffer at 0xD800 and the trigger: trace, open
firmware did this on silicon. Arming at MSC_CONFIG = 0 and over bus resets, MSC_STATUS_SEND and MSC_RECEIVED:
trace, the chip maker's firmware needs them; that arming depends on MSC_CONFIG instead is the other claim of
the dispute msc-arming. That one trigger first arms and then sends, and that MSC_EVENT and EP_COMPLETE are
cleared by writing 1: inferred. The halt after a bad wrapper: the class demands it (6.6.1); whether this
hardware does it is a guess. Not modelled: anything that needs an NVMe disk, streams, and what the pulses on
MSC_CONFIG and 0xC42A reset with which the maker's firmware begins.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from emulator.asm2464pd import waits
from emulator.asm2464pd.interrupts import Interrupts
from emulator.asm2464pd.undefined import Reporter
from emulator.asm2464pd.usb_bulk import IN, OUT, BulkEndpoints
from emulator.core.bus import Bus
from emulator.model import DEFAULT, Model
from emulator.usb.wire import Handshake
from firmware.asm2464pd import disputes
from firmware.asm2464pd.registers import memory
from firmware.asm2464pd.registers import usb as regs

CBW_SIZE = 31
CBW_SIGNATURE = b"USBC"
COMMAND_BLOCK = (
    regs.MSC_CBW_COUNT,
    regs.MSC_CBW_SIGNATURE,
    regs.MSC_CBW_TAG,
    regs.MSC_CBW_LENGTH,
    regs.MSC_CBW_FLAGS,
    regs.MSC_CBW_LUN,
    regs.MSC_CBW_CB_LENGTH,
    regs.MSC_CBW_CB,
)


RECEIVED = regs.MSC_RECEIVED


class State(Enum):
    """What the engine is doing."""

    OFF = auto()
    WAIT = auto()
    """For a command wrapper."""
    COMMAND = auto()
    """One is outstanding."""
    STATUS = auto()
    """Its status wrapper waits to be taken."""


def is_command(data: bytes) -> bool:
    """Whether a packet is a command wrapper."""
    return len(data) == CBW_SIZE and data.startswith(CBW_SIGNATURE)


class StorageEngine:
    """The mass-storage engine.

    Args:
        bus: registers and the buffer at 0xD800.
        interrupts: for MSC_EVENT and EP_COMPLETE.
        bulk: the endpoints, to halt them.
        ready: called with an endpoint when the host may try it again.
        model: what arms it.
    """

    def __init__(
        self,
        bus: Bus,
        interrupts: Interrupts,
        bulk: BulkEndpoints,
        ready: Callable[[int], None],
        model: Model = DEFAULT,
    ) -> None:
        self._bus = bus
        self._undefined = Reporter(bus)
        self._by_config = model.follows(disputes.MSC_ARMING, "config")
        self._armed = False  # by MSC_CONTROL, and goes on to wait for commands
        self._interrupts = interrupts
        self._bulk = bulk
        self._ready = ready
        self._state = State.OFF
        self._csw = b""
        interrupts.source(regs.MSC_EVENT, "COMMAND", lambda: ready(OUT))
        interrupts.source(regs.EP_COMPLETE, "EP_COMPLETE")
        bus.map(regs.MSC_CONFIG, "usb", write=self._configure)
        bus.map(regs.MSC_CONTROL, "usb", write=self._start)
        bus.map(regs.MSC_STATUS_SEND, "usb", write=self._send)
        for register in (
            regs.MSC_LENGTH,
            regs.MSC_EP_STATUS,
            regs.MSC_STATUS,
            regs.MSC_ERROR,
            regs.MSC_STREAM,
            regs.MSC_RECEIVED,
            *COMMAND_BLOCK,
        ):
            bus.map(register, "usb")

    def power_off(self) -> None:
        """The controller loses its power: nothing is armed any more."""
        self._armed = False
        self.reset()
        self._bus.set(regs.MSC_RECEIVED, regs.MSC_RECEIVED.reset)

    def reset(self) -> None:
        """A bus reset, or a change of the link: nothing is outstanding; an armed engine waits."""
        self._state = State.WAIT if self._armed and not self._by_config else State.OFF
        self._interrupts.clear(regs.MSC_EVENT)
        self._interrupts.clear(regs.EP_COMPLETE)

    def bulk_out(self, data: bytes) -> Handshake | None:
        """A packet of EP 0x02, if the engine wants it; None leaves it to the CPU path."""
        if self._state is not State.WAIT:
            return None
        if self._bus.value(regs.MSC_EVENT):
            return Handshake.NAK
        if not is_command(data):
            self._state = State.OFF
            self._bulk.locked = True
            self._bulk.halt()
            return Handshake.STALL
        self._state = State.COMMAND
        first = regs.MSC_CBW_SIGNATURE
        self._bus.store(first.space, first.address, data)
        self._bus.set(regs.MSC_CBW_COUNT, len(data))
        self._bus.set(regs.MSC_RECEIVED, RECEIVED["READY"] | RECEIVED["WRAPPER"] | RECEIVED["USED"])
        self._interrupts.raise_bits(regs.MSC_EVENT, regs.MSC_EVENT["COMMAND"])
        return Handshake.ACK

    def received(self) -> None:
        """The CPU path has taken a packet of EP 0x02."""
        if self._state is State.COMMAND:
            self._bus.set(regs.MSC_RECEIVED, RECEIVED["READY"] | RECEIVED["USED"])

    def bulk_in(self) -> bytes | None:
        """The status wrapper, if it is due; None leaves EP 0x81 to the CPU path."""
        if self._state is not State.STATUS:
            return None
        self._state = State.WAIT
        self._interrupts.raise_bits(regs.EP_COMPLETE, regs.EP_COMPLETE["IN"])
        self._ready(OUT)
        return self._csw

    def waits_for(self, endpoint: int) -> str:
        """What the engine waits for before it moves a packet of an endpoint; empty if it is off."""
        match self._state, endpoint:
            case State.WAIT, bulk if bulk == OUT and self._bus.value(regs.MSC_EVENT):
                return waits.acknowledged(regs.MSC_EVENT, "COMMAND")
            case (State.COMMAND, _):
                return f"the status of the last command: {self._start_bit}, which the firmware writes"
            case State.STATUS, bulk if bulk == OUT:
                return "the host to take the status of the last command from EP 0x81"
            case State.WAIT, bulk if bulk == IN:
                return "a command of the host on EP 0x02"
        return ""

    @property
    def is_off(self) -> bool:
        """Whether packets pass it by."""
        return self._state is State.OFF

    def starts_with(self) -> str:
        """What switches the engine on."""
        needed = []
        if self._by_config and not self._bus.value(regs.MSC_CONFIG):
            needed.append(f"MSC_CONFIG (xdata {regs.MSC_CONFIG.address:#06x}) = 1")
        return " and then ".join([*needed, self._start_bit])

    @property
    def _start_bit(self) -> str:
        return waits.bit(regs.MSC_CONTROL, "START", 1)

    def _configure(self, value: int) -> None:
        if value == 0:
            self._state = State.OFF
            self._armed = False
            self._bulk.locked = False
            self._interrupts.clear(regs.MSC_EVENT)
            self._ready(OUT)

    def _start(self, value: int) -> None:
        if not value & regs.MSC_CONTROL["START"]:
            return
        if self._by_config and not self._bus.value(regs.MSC_CONFIG):
            return
        match self._state:
            case State.OFF:
                self._state = State.WAIT
                self._armed = True
                self._ready(OUT)
            case State.COMMAND:
                self._end()

    def _send(self, value: int) -> None:
        if not value & regs.MSC_STATUS_SEND["START"]:
            return
        if self._state is State.COMMAND:
            self._end()
        else:
            self._undefined.report(
                "MSC_STATUS_SEND was written without a command",
                hint="it ends the command that is outstanding; the model sends nothing",
            )

    def _end(self) -> None:
        """The status wrapper of the outstanding command is there."""
        buffer = memory.XRAM_D800
        length = self._bus.value(regs.MSC_LENGTH)
        self._csw = self._bus.load(buffer.space, buffer.address, length)
        self._state = State.STATUS
        self._ready(IN)
