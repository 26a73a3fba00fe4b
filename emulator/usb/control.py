"""Control transfers as a host controller carries them out: setup, data and status stage (USB 2.0, 8.5.3).

One at a time, in the order of submission. A transfer given up half-way leaves the device where it was; the
next SETUP ends that. STALL ends a transfer and halts nothing: it is a protocol stall.

Timing: at SuperSpeed one turn-around of the host per transfer, at High Speed one time per stage; the packets'
own time on the wire is far below that, and the device's work comes on top by its NAKs.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.usb import timing
from emulator.usb.pipe import Ended, Pipe
from emulator.usb.pump import Pump
from emulator.usb.wire import Function, Handshake, Outcome, Speed, Transfer
from sdk.errors import InternalError

MAX_PACKET = {True: 512, False: 64}
"""Largest data packet of EP0, at SuperSpeed or not (USB 3.2, 9.6.1; USB 2.0, 5.5.3)."""


class ControlPipe(Pipe):
    """EP0 at a given speed."""

    def __init__(self, function: Function, pump: Pump, ended: Ended, speed: Speed) -> None:
        super().__init__(function, pump, ended)
        self._packet = MAX_PACKET[speed.is_super]
        if speed.is_super:
            self._first, self._between = timing.CONTROL_TURNAROUND.clocks, 0
        else:
            self._first = self._between = timing.HIGH_SPEED_STAGE.clocks
        self._stage: Callable[[Transfer], None] = self._setup

    def _begin(self, transfer: Transfer, *, idle: bool) -> None:
        self._stage = self._setup
        self._schedule(self._first)

    def _again(self, transfer: Transfer) -> None:
        self._schedule(0)

    def _transact(self) -> None:
        self._event = None
        self._stage(self._queue[0])

    def _proceed(self, stage: Callable[[Transfer], None]) -> None:
        """Another stage begins."""
        self._stage = stage
        self._schedule(self._between)

    def _setup(self, transfer: Transfer) -> None:
        setup = transfer.setup
        if setup is None:
            raise InternalError("a control transfer without its SETUP packet")
        self._pump.progress += 1
        self._function.setup(setup.pack())
        if transfer.outcome is not None:  # the device has left the bus in response
            return
        if not setup.length:
            self._proceed(self._status)
        else:
            self._proceed(self._data_in if setup.is_in else self._data_out)

    def _data_in(self, transfer: Transfer) -> None:
        answer = self._function.control_in()
        if isinstance(answer, Handshake):
            if answer is Handshake.ACK:
                raise InternalError("the device answered an IN transaction of EP0 with ACK")
            self._unless_acknowledged(transfer, answer)
            return
        if transfer.outcome is not None:
            return
        self._pump.progress += 1
        wanted = transfer.length - transfer.actual
        transfer.data += answer[:wanted]
        transfer.actual = len(transfer.data)
        if len(answer) > wanted:
            self._end(Outcome.OVERFLOW)
        elif len(answer) < self._packet or len(answer) == wanted:
            self._proceed(self._status)
        else:
            self._schedule(0)

    def _data_out(self, transfer: Transfer) -> None:
        packet = bytes(transfer.data[transfer.actual : transfer.actual + self._packet])
        if not self._unless_acknowledged(transfer, self._function.control_out(packet)):
            return
        transfer.actual += len(packet)
        if transfer.actual < transfer.length:
            self._schedule(0)
        else:
            self._proceed(self._status)

    def _status(self, transfer: Transfer) -> None:
        if self._unless_acknowledged(transfer, self._function.status()):
            self._end(Outcome.DONE)

    def _unless_acknowledged(self, transfer: Transfer, answer: Handshake) -> bool:
        """Act on NAK and STALL; whether the answer is an ACK to a transfer that is still on."""
        if transfer.outcome is not None:
            return False
        if answer is Handshake.NAK:
            self._refused = True
            return False
        self._pump.progress += 1
        if answer is Handshake.STALL:
            self._end(Outcome.STALL)
            return False
        return True
