"""The bulk-only transport of the mask ROM: CBW, data, CSW on one pair of endpoints.

USB mass storage bulk-only transport 1.0; its thirteen cases of section 6.7 by number below. What the commands
do is not known here: a command is a generator that says what it waits for.

    def command(cdb: bytes) -> Command:
        yield clocks                # time passes; the host's packets are answered with NAK
        packet = yield RECEIVE      # the next packet of the data stage
        return data                 # for the host; raise Refused to fail
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from emulator.core.clock import Event, Scheduler
from emulator.usb.wire import Handshake
from firmware.asm2464pd.wire import CBW, CSW

OUT_ENDPOINT = 0x02
IN_ENDPOINT = 0x81

RECEIVE: Final = None
"""What a command yields for the next packet of its data stage."""

Command = Generator[int | None, bytes, bytes]
"""A command under way: yields clocks to wait, or RECEIVE; returns the data for the host."""


class Refused(Exception):
    """The command fails: CSW status 1, and sense data that say why.

    Args:
        key: SCSI sense key.
        code: additional sense code and its qualifier, as one 16-bit number.
    """

    def __init__(self, key: int, code: int) -> None:
        super().__init__(f"sense key {key}, additional sense code {code:#06x}")
        self.key = key
        self.code = code


class CommandSet(Protocol):
    """What the transport carries."""

    def begin(self, cdb: bytes) -> Command:
        """Start a command. Raises Refused if there is no such command."""

    def refused(self, reason: Refused) -> None:
        """A command failed; REQUEST SENSE will ask why."""

    def finished(self) -> None:
        """The host has taken the status of a command."""


class CswStatus(Enum):
    """bCSWStatus."""

    PASSED = 0
    FAILED = 1
    PHASE_ERROR = 2


class _Phase(Enum):
    """What the endpoints are doing."""

    COMMAND = "waiting for a CBW"
    BUSY = "the command runs"
    RECEIVE = "the command waits for a packet"
    DISCARD = "the host sends surplus data"
    SEND = "data for the host"
    STATUS = "a CSW for the host"


@dataclass(slots=True)
class _Transaction:
    """A command from its CBW to its CSW.

    Attributes:
        left: bytes of dCBWDataTransferLength that the command has not moved; the residue, in the end.
        surplus: of these, bytes that the host has yet to send.
    """

    phase: _Phase = _Phase.COMMAND
    command: Command | None = None
    waiting: Event | None = None
    tag: int = 0
    left: int = 0
    surplus: int = 0
    to_host: bool = False
    status: CswStatus = CswStatus.PASSED
    data: bytes = field(default=b"", repr=False)


class BulkOnlyTransport:
    """The transport.

    Args:
        clock: virtual time.
        commands: what it carries.
        wake: called with an endpoint address when it may answer otherwise than NAK.
        packet_size: gives the maximum packet size, in bytes.

    Attributes:
        halted: endpoints that answer STALL.
        needs_recovery: an invalid CBW arrived; halts stay until `reset` (section 6.6.1).
    """

    def __init__(
        self,
        clock: Scheduler,
        commands: CommandSet,
        wake: Callable[[int], None],
        packet_size: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._commands = commands
        self._wake = wake
        self._packet_size = packet_size
        self._now = _Transaction()
        self.halted: set[int] = set()
        self.needs_recovery = False

    def abort(self) -> None:
        """Forget the command under way, and every halt: bus reset, SET_CONFIGURATION, SET_INTERFACE."""
        self.reset()
        self.halted.clear()
        self._wake(OUT_ENDPOINT)

    def reset(self) -> None:
        """Bulk-only mass storage reset (section 3.1): ready for a CBW; the host clears the halts itself."""
        self._clock.cancel(self._now.waiting)
        if self._now.command is not None:
            self._now.command.close()
        self._now = _Transaction()
        self.needs_recovery = False

    def set_halt(self, endpoint: int) -> None:
        """SET_FEATURE(ENDPOINT_HALT)."""
        self.halted.add(endpoint)
        self._wake(endpoint)

    def clear_halt(self, endpoint: int) -> None:
        """CLEAR_FEATURE(ENDPOINT_HALT)."""
        if not self.needs_recovery:
            self.halted.discard(endpoint)
            self._wake(endpoint)

    def bulk_out(self, data: bytes) -> Handshake:
        """A packet of a CBW or of a data stage."""
        if OUT_ENDPOINT in self.halted:
            return Handshake.STALL
        now = self._now
        match now.phase:
            case _Phase.COMMAND:
                self._begin(data)
            case _Phase.RECEIVE:
                packet = data[: now.left]
                now.left -= len(packet)
                self._resume(packet)
            case _Phase.DISCARD:
                now.surplus -= len(data)
                if now.surplus <= 0 or len(data) < self._packet_size():
                    self._enter(_Phase.STATUS)
            case _:
                return Handshake.NAK
        return Handshake.ACK

    def bulk_in(self) -> bytes | Handshake:
        """A packet of a data stage, or a CSW."""
        if IN_ENDPOINT in self.halted:
            return Handshake.STALL
        now = self._now
        if now.phase is _Phase.SEND:
            return self._send()
        if now.phase is _Phase.STATUS:
            self._enter(_Phase.COMMAND)
            self._commands.finished()
            return CSW.pack(tag=now.tag, data_residue=now.left, status=now.status.value)
        return Handshake.NAK

    def _begin(self, packet: bytes) -> None:
        if CBW.examine(packet):
            self._lose_step()
            return
        block = CBW.unpack(packet)
        length = CBW.member("cb_length").field("LENGTH").get(block["cb_length"])
        if CBW.member("lun").field("LUN").get(block["lun"]) or not 1 <= length <= CBW.member("cdb").size:
            self._lose_step()
            return
        wanted = block["data_transfer_length"]
        to_host = bool(block["flags"] & CBW.member("flags").field("IN").mask) and wanted > 0
        self._now = _Transaction(phase=_Phase.BUSY, tag=block["tag"], left=wanted, to_host=to_host)
        try:
            self._now.command = self._commands.begin(CBW.part(packet, "cdb")[:length])
        except Refused as reason:
            self._fail(reason)
        else:
            self._resume(None)

    def _resume(self, packet: bytes | None) -> None:
        """Run the command to its next wait."""
        now = self._now
        now.phase = _Phase.BUSY
        if now.command is None:
            return
        try:
            wanted = next(now.command) if packet is None else now.command.send(packet)
        except StopIteration as end:
            self._complete(end.value)
        except Refused as reason:
            self._fail(reason)
        else:
            if wanted is not RECEIVE:
                now.waiting = self._clock.after(wanted, lambda: self._resume(None))
            elif now.to_host or not now.left:  # cases 3, 8 and 13
                now.status = CswStatus.PHASE_ERROR
                self._complete(b"")
            else:
                self._enter(_Phase.RECEIVE)

    def _fail(self, reason: Refused) -> None:
        self._commands.refused(reason)
        self._now.status = CswStatus.FAILED
        self._complete(b"")

    def _complete(self, data: bytes) -> None:
        """The command is over: what remains is its data for the host, or what the host still sends."""
        now = self._now
        if now.command is not None:
            now.command.close()
            now.command = None
        if data and (not now.to_host or len(data) > now.left):  # cases 2, 7 and 10
            now.status = CswStatus.PHASE_ERROR
            data = data[: now.left] if now.to_host else b""
        now.data = data
        if data:
            self._enter(_Phase.SEND)
        elif now.to_host:  # case 4
            self.halted.add(IN_ENDPOINT)
            self._enter(_Phase.STATUS)
        elif now.left:  # cases 9 and 11
            now.surplus = now.left
            self._enter(_Phase.DISCARD)
        else:
            self._enter(_Phase.STATUS)

    def _send(self) -> bytes:
        now = self._now
        size = self._packet_size()
        packet, now.data = now.data[:size], now.data[size:]
        now.left -= len(packet)
        if not now.data:
            if now.left and len(packet) == size:  # case 5, and no short packet ends the stage
                self.halted.add(IN_ENDPOINT)
            self._enter(_Phase.STATUS)
        return packet

    def _lose_step(self) -> None:
        self.needs_recovery = True
        self.halted |= {IN_ENDPOINT, OUT_ENDPOINT}
        self._wake(IN_ENDPOINT)

    def _enter(self, phase: _Phase) -> None:
        self._now.phase = phase
        self._wake(IN_ENDPOINT if phase in (_Phase.SEND, _Phase.STATUS) else OUT_ENDPOINT)
