"""The mass-storage engine: it takes command wrappers off EP 0x02 and sends status wrappers on EP 0x81.

Terms are those of the USB mass-storage class, Bulk-Only Transport 1.0. What firmware can rely on:

1. Off. After reset, after a bus reset, and while MSC_CONFIG (0x900B) is 0, the engine is out of the way:
   every bulk packet takes the CPU path (BULK_COMMAND, 0x9094).
2. Wait. With MSC_CONFIG = 0x01, MSC_CONTROL (0xC42C) = 0x01 makes the engine wait for a command. Write both
   while SET_CONFIGURATION is handled.
3. Command. The next packet on EP 0x02, of 31 bytes beginning "USBC", lands as it is in 0x911B..0x9139:
   MSC_CBW_SIGNATURE 911B, MSC_CBW_TAG 911F, MSC_CBW_LENGTH 9123 (little endian), MSC_CBW_FLAGS 9127,
   MSC_CBW_LUN 9128, MSC_CBW_CB_LENGTH 9129, MSC_CBW_CB 912A..9139. MSC_EVENT (0x90E2) bit 0 is set and
   with it USB_EVENTS (0x9101) bit 6; write 0x01 to MSC_EVENT to clear both. The fields stay until the next
   command. EP 0x02 answers NAK to anything further until firmware arms it.
4. Data. Between command and status the CPU path serves both endpoints, one packet at a time: OUT by
   BULK_COMMAND = 0x10 into 0x7000, IN from 0x8000 by BULK_IN_LENGTH and BULK_COMMAND = 0x02, completions in
   BULK_EVENTS (0x9093). End a data stage early with a short or empty IN packet: no register is known that
   stalls a bulk endpoint. Take all the OUT data the host has announced.
5. Status. Write the 13 bytes of the CSW ("USBS", tag, residue, status) at 0xD800, MSC_LENGTH (0x901A) =
   0x0D, MSC_CONTROL = 0x01, and clear bit 0 of MSC_STATUS (0xC42D). The bytes are taken at the write. An
   IN packet that is still armed goes first. When the host has taken the CSW, EP_COMPLETE (0x9096) bit 0 is
   set, and with it USB_EVENTS bit 5 (write 0x01 to EP_COMPLETE to clear both); the engine waits for the next
   command at once, without another MSC_CONTROL. A command that comes before MSC_EVENT is cleared waits.
6. Reset. Bulk-Only Mass Storage Reset is a class request like any other: answer it, and write
   MSC_CONFIG = 0, which drops the command and its event, then 0x01, then MSC_CONTROL = 0x01. A packet
   that is not a command wrapper while the engine waits halts both endpoints; then only that sequence helps,
   followed by CLEAR_FEATURE for each endpoint (BULK_COMMAND = 0x01 and 0x08).

Grades. The layout of the command registers, MSC_LENGTH, the buffer at 0xD800 and the trigger: trace, open
firmware did this on silicon. That MSC_CONFIG alone switches the engine on and off, that one trigger first
arms and then sends, and that MSC_EVENT and EP_COMPLETE are cleared by writing 1: inferred. The halt after a
bad wrapper: the class demands it (6.6.1); whether this hardware does it is a guess. Not modelled: the second
IN trigger at 0x90A1, anything that needs an NVMe disk, and the pulses on MSC_CONFIG and 0xC42A with which
vendor firmware surrounds the trigger, leaving MSC_CONFIG at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from emulator.asm2464pd import waits
from emulator.asm2464pd.interrupts import Interrupts
from emulator.asm2464pd.usb_bulk import IN, OUT, BulkEndpoints
from emulator.core.bus import Bus
from emulator.usb.wire import Handshake
from firmware.asm2464pd.registers import memory
from firmware.asm2464pd.registers import usb as regs

CBW_SIZE = 31
CBW_SIGNATURE = b"USBC"
COMMAND_BLOCK = (
    regs.MSC_CBW_SHORT_LENGTH,
    regs.MSC_CBW_SIGNATURE,
    regs.MSC_CBW_TAG,
    regs.MSC_CBW_LENGTH,
    regs.MSC_CBW_FLAGS,
    regs.MSC_CBW_LUN,
    regs.MSC_CBW_CB_LENGTH,
    regs.MSC_CBW_CB,
)


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
    """

    def __init__(
        self, bus: Bus, interrupts: Interrupts, bulk: BulkEndpoints, ready: Callable[[int], None]
    ) -> None:
        self._bus = bus
        self._interrupts = interrupts
        self._bulk = bulk
        self._ready = ready
        self._state = State.OFF
        self._csw = b""
        interrupts.source(regs.MSC_EVENT, "COMMAND", lambda: ready(OUT))
        interrupts.source(regs.EP_COMPLETE, "EP_COMPLETE")
        bus.map(regs.MSC_CONFIG, "usb", write=self._configure)
        bus.map(regs.MSC_CONTROL, "usb", write=self._start)
        for register in (regs.MSC_LENGTH, regs.MSC_EP_STATUS, regs.MSC_STATUS, *COMMAND_BLOCK):
            bus.map(register, "usb")

    def reset(self) -> None:
        """Off, with nothing outstanding."""
        self._state = State.OFF
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
        self._bus.set(regs.MSC_CBW_SHORT_LENGTH, self._bus.value(regs.MSC_CBW_LENGTH) & 0xFFFF)
        self._interrupts.raise_bits(regs.MSC_EVENT, regs.MSC_EVENT["COMMAND"])
        return Handshake.ACK

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
        needed = (
            []
            if self._bus.value(regs.MSC_CONFIG)
            else [f"MSC_CONFIG (xdata {regs.MSC_CONFIG.address:#06x}) = 1"]
        )
        return " and then ".join([*needed, self._start_bit])

    @property
    def _start_bit(self) -> str:
        return waits.bit(regs.MSC_CONTROL, "START", 1)

    def _configure(self, value: int) -> None:
        if value == 0:
            self._state = State.OFF
            self._bulk.locked = False
            self._interrupts.clear(regs.MSC_EVENT)
            self._ready(OUT)

    def _start(self, value: int) -> None:
        if not value & regs.MSC_CONTROL["START"] or not self._bus.value(regs.MSC_CONFIG):
            return
        match self._state:
            case State.OFF:
                self._state = State.WAIT
                self._ready(OUT)
            case State.COMMAND:
                buffer = memory.XRAM_D800
                length = self._bus.value(regs.MSC_LENGTH)
                self._csw = self._bus.load(buffer.space, buffer.address, length)
                self._state = State.STATUS
                self._ready(IN)
