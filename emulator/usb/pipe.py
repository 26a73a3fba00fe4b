"""What the host's side of a control and of a bulk endpoint have in common: transfers in order.

The head of the queue is on the wire. A transaction that the device does not take now (NAK, NRDY) waits until
the device says that it is ready, as SuperSpeed's flow control does (USB 3.2, 8.10.1); at High Speed a host
asks again and again, which comes to the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from emulator.core.clock import Event
from emulator.usb.pump import Pump
from emulator.usb.wire import Function, Outcome, Transfer

Ended = Callable[[Transfer, Outcome], None]


class Pipe(ABC):
    """The host's end of an endpoint. Everything runs in the pump's thread of execution.

    Args:
        function: the device.
        pump: its clock times the transactions; its progress counts them.
        ended: called with every transfer that has ended, when the pipe is free for others.
    """

    def __init__(self, function: Function, pump: Pump, ended: Ended) -> None:
        self._function = function
        self._pump = pump
        self._scheduler = pump.scheduler
        self._ended = ended
        self._queue: deque[Transfer] = deque()
        self._event: Event | None = None
        self._refused = False

    def submit(self, transfer: Transfer) -> None:
        """Queue a transfer."""
        self._queue.append(transfer)
        if len(self._queue) == 1:
            self._begin(transfer, idle=True)

    def cancel(self, transfer: Transfer) -> None:
        """Cancel a transfer, on the wire or queued; harmless if it has ended."""
        if transfer not in self._queue:
            return
        if self._queue[0] is transfer:
            self._end(Outcome.CANCELLED)
        else:
            self._queue.remove(transfer)
            self._ended(transfer, Outcome.CANCELLED)

    def abort(self, outcome: Outcome) -> None:
        """End every transfer with this outcome."""
        self._stop()
        transfers = list(self._queue)
        self._queue.clear()
        for transfer in transfers:
            self._ended(transfer, outcome)

    def ready(self) -> None:
        """The device may answer otherwise than NAK now."""
        if self._refused:
            self._refused = False
            self._again(self._queue[0])

    @abstractmethod
    def _begin(self, transfer: Transfer, *, idle: bool) -> None:
        """Schedule a transfer's first transaction; `idle` if nothing was queued when it was submitted."""

    @abstractmethod
    def _again(self, transfer: Transfer) -> None:
        """Schedule the transaction that was refused."""

    @abstractmethod
    def _transact(self) -> None:
        """Carry out the transaction that is due of the transfer at the head."""

    def _schedule(self, delay: int) -> None:
        self._event = self._scheduler.after(delay, self._transact)

    def _stop(self) -> None:
        self._scheduler.cancel(self._event)
        self._event = None
        self._refused = False

    def _end(self, outcome: Outcome) -> None:
        """The transfer at the head ends; the next one begins."""
        self._stop()
        transfer = self._queue.popleft()
        if self._queue:
            self._begin(self._queue[0], idle=False)
        self._ended(transfer, outcome)
