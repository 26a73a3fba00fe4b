"""Bulk transfers as a host controller carries them out, packet by packet (USB 3.2, 8.12; USB 2.0, 8.5.2).

An OUT transfer is cut into packets of the maximum size, the last one shorter; an empty transfer is one packet
of no length, which is how a user ends a message whose length is a multiple. An IN transfer ends with its
length, or with a packet shorter than the maximum. STALL halts the pipe: every transfer, queued or to come,
ends so until the halt is cleared. Stream ids go along and change nothing. Sequence numbers (toggles) are
below this level: a packet that was acknowledged has arrived, once.

A packet is with the device when its time on the wire has passed, and the device's answer counts at that
clock; a packet refused takes its time again when the device is ready.
"""

from __future__ import annotations

from emulator.usb import timing
from emulator.usb.pipe import Ended, Pipe
from emulator.usb.pump import Pump
from emulator.usb.wire import Function, Handshake, Outcome, Speed, Spoilt, Transfer
from sdk.errors import InternalError

MAX_PACKET = {True: 1024, False: 512}
"""Bulk data packets, at SuperSpeed or not (USB 3.2, 9.6.6; USB 2.0, 5.8.3)."""


class BulkPipe(Pipe):
    """A bulk endpoint at a given speed.

    Attributes:
        endpoint: its address with the direction bit.
        halted: a STALL has come and has not been cleared.
    """

    def __init__(self, function: Function, pump: Pump, ended: Ended, speed: Speed, endpoint: int) -> None:
        super().__init__(function, pump, ended)
        self.endpoint = endpoint
        self.halted = False
        self._packet = MAX_PACKET[speed.is_super]
        self._is_in = bool(endpoint & 0x80)

    def submit(self, transfer: Transfer) -> None:
        if self.halted:
            self._ended(transfer, Outcome.STALL)
        else:
            super().submit(transfer)

    def break_off(self, transfer: Transfer) -> None:
        """The transfer ends with an error of the wire, if it is the one at the head."""
        if self._queue and self._queue[0] is transfer:
            self._end(Outcome.ERROR)

    def _begin(self, transfer: Transfer, *, idle: bool) -> None:
        host = timing.BULK_IDLE if idle else timing.BULK_QUEUED
        self._schedule(host.clocks + self._packet_time(transfer))

    def _again(self, transfer: Transfer) -> None:
        self._schedule(self._packet_time(transfer))

    def _packet_time(self, transfer: Transfer) -> int:
        size = min(self._packet, transfer.length - transfer.actual)
        return self._function.packet_clocks(self.endpoint, size)

    def _transact(self) -> None:
        self._event = None
        transfer = self._queue[0]
        spoilt = transfer.spoilt
        flips = spoilt is not None and spoilt.outcome is Outcome.DONE
        if spoilt is not None and not flips and (self._is_in or 2 * transfer.actual >= transfer.length):
            self._spoil(spoilt)
        elif self._is_in:
            self._in(transfer)
        else:
            self._out(transfer)

    def _out(self, transfer: Transfer) -> None:
        start = transfer.actual
        packet = bytes(transfer.data[start : start + self._packet])
        packet = _flipped(packet, transfer)
        answer = self._function.bulk_out(self.endpoint, packet)
        if transfer.outcome is not None:  # the device has left the bus in response
            return
        if answer is not Handshake.ACK:
            self._refuse(answer)
            return
        self._pump.progress += 1
        transfer.actual = start + len(packet)
        if transfer.actual < transfer.length:
            self._again(transfer)
        else:
            self._end(Outcome.DONE)

    def _in(self, transfer: Transfer) -> None:
        answer = self._function.bulk_in(self.endpoint)
        if transfer.outcome is not None:
            return
        if isinstance(answer, Handshake):
            self._refuse(answer)
            return
        self._pump.progress += 1
        answer = _flipped(answer, transfer)
        wanted = transfer.length - transfer.actual
        transfer.data += answer[:wanted]
        transfer.actual = len(transfer.data)
        if len(answer) > wanted:
            self._end(Outcome.OVERFLOW)
        elif len(answer) < self._packet or len(answer) == wanted:
            self._end(Outcome.DONE)
        else:
            self._again(transfer)

    def _spoil(self, spoilt: Spoilt) -> None:
        """A rehearsed fault strikes the transfer at the head."""
        spoilt.strike()
        match spoilt.outcome:
            case Outcome.ERROR:
                self._pump.progress += 1
                self._end(Outcome.ERROR)
            case Outcome.STALL:
                self._refuse(Handshake.STALL)
            case _:
                self._refuse(Handshake.NAK)

    def _refuse(self, answer: Handshake) -> None:
        match answer:
            case Handshake.NAK:
                self._refused = True
            case Handshake.STALL:
                self._pump.progress += 1
                self.halted = True
                self.abort(Outcome.STALL)
            case Handshake.ACK:
                raise InternalError(
                    f"the device answered an IN transaction of EP {self.endpoint:#04x} with ACK"
                )


def _flipped(packet: bytes, transfer: Transfer) -> bytes:
    """The next packet as it arrives: damaged if that is to befall the transfer here and has not yet.

    An OUT packet that is refused is sent again, undamaged.
    """
    spoilt = transfer.spoilt
    if spoilt is None or spoilt.outcome is not Outcome.DONE or spoilt.over or not packet:
        return packet
    start = transfer.actual
    if spoilt.byte is not None:
        place = spoilt.byte - start
    elif transfer.endpoint & 0x80 or 2 * (start + len(packet)) >= transfer.length:
        place = len(packet) // 2
    else:
        return packet
    if not 0 <= place < len(packet):
        return packet
    spoilt.strike()
    return packet[:place] + bytes((packet[place] ^ 1 << spoilt.bit,)) + packet[place + 1 :]
