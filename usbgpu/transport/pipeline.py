"""Several bulk transfers in flight, in order, without a thread.

A bus is only kept busy by a transfer that is queued before the one ahead of it has ended. pyusb's calls end
with their transfer, so two calls can only overlap in two threads, and then their order is undefined; between
two calls of one thread the bus is idle for as long as Python takes, on a phone's processor a good part of the
1.5 ms that 1 MiB needs at 700 MB/s. Therefore the host's own queue is used: libusb's asynchronous interface
for real devices (`libusb`), and the emulated host controller's for emulated ones. The thread that waits for a
result does the work meanwhile; one thread with many transfers in flight gives an emulated device the same
clocks every time.

What a queue promises, by endpoint:

* Transfers are carried out in the order of `submit`.
* At most WINDOW bytes in at most MOST transfers are with the system; `submit` waits for room. (Linux's usbfs
  allows 16 MiB over all endpoints and processes. A longer transfer goes alone.)
* When one fails, those behind it are cancelled, last one first, and fail as `Abandoned`. So does what is
  submitted before the failure has been reported; then the endpoint takes transfers again.
* Time-outs count from when a transfer came to the head, and take effect while a caller waits. The system has
  no time-outs of its own, for it would go on with the next transfer.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Any, Protocol

from sdk.clock import Clock
from sdk.errors import DeviceFailed, InternalError, TowlineError
from usbgpu.transport import bus
from usbgpu.transport.call import Call, CallKind, Data, Outcome
from usbgpu.transport.errors import Abandoned, TimedOut, translated

WINDOW = 4 << 20
"""Bytes in flight on an endpoint: 6 ms of the fastest link, more than any gap between two submissions."""
MOST = 64
"""Transfers in flight on an endpoint; each costs the system more than its bytes."""
CANCEL_PATIENCE = 2.0
"""Seconds that the system may take to return a cancelled transfer."""
NOTHING = 1e-6
"""Seconds of a wait that only polls."""
GLANCE = 0.02
"""Seconds after which a wait looks at the other endpoint."""


class BulkTransfer(Protocol):
    """A transfer with the system.

    Attributes:
        done: it has ended; only then the rest counts.
        actual: bytes transferred.
        error: a `usb.core.USBError`, with errno ETIMEDOUT if it was cancelled; None if it went well.
        ended: when, in seconds of the device's clock.
    """

    done: bool
    actual: int
    error: Any
    ended: float


class BulkBackend(Protocol):
    """What a pyusb backend offers beyond `IBackend` to have several transfers in flight. Thread-safe."""

    def bulk_submit(self, dev_handle: Any, ep: int, buffer: memoryview) -> BulkTransfer:
        """Begin a transfer of a buffer, which stays as it is (OUT) or is filled (IN) until the end.

        Raises:
            usb.core.USBError: the system does not take it.
        """

    def bulk_wait(self, transfer: BulkTransfer, seconds: float) -> None:
        """Return when the transfer has ended or the time of the device's clock is over."""

    def bulk_cancel(self, transfer: BulkTransfer) -> None:
        """Cancel it: it ends soon. Harmless if it has ended."""


class Ended:
    """A transfer that the system did not take, or does not return."""

    done = True
    actual = 0

    def __init__(self, error: Any, ended: float) -> None:
        self.error = error
        self.ended = ended


class Pending:
    """A transfer that was submitted.

    Attributes:
        call: what was submitted.
        received: bytes that have come, once it is over.
    """

    def __init__(self, pipeline: Pipeline, queue: Queue, call: Call, number: int, began: float) -> None:
        self.call = call
        self.received = 0
        self.number = number
        self.began = began
        self.buffer = memoryview(b"")
        self.transfer: BulkTransfer | None = None
        self.outcome: Data | TowlineError | None = None
        self._pipeline = pipeline
        self._queue = queue

    @property
    def done(self) -> bool:
        """Whether it is over; no time passes."""
        self._pipeline.settle()
        return self.outcome is not None

    def result(self, needs: Collection[Pending] = ()) -> bytes:
        """Wait until it is over.

        Args:
            needs: transfers of another endpoint without which this one need not end. When one of them fails,
                its error is raised soon, and this one goes on.

        Returns:
            the bytes that came; b"" if there are none, or if they went into the call's `into`.

        Raises:
            DeviceFailed: as `Transport.perform`, on every call.
            Abandoned: one before it failed, which the error names.
        """
        found = self._pipeline.finish(self, self._queue, needs)
        return found if isinstance(found, bytes) else b""

    def cancel(self) -> None:
        """Cancel it and those behind it on its endpoint, as if it had failed; harmless if it is over."""
        self._pipeline.cancel(self, self._queue)


class Queue:
    """The transfers of an endpoint.

    Attributes:
        pending: in their order.
        since: when the last one that is over ended.
        failure: that has not been reported yet.
    """

    def __init__(self) -> None:
        self.pending: deque[Pending] = deque()
        self.since = 0.0
        self.failure: TowlineError | None = None

    def has_room(self, size: int) -> bool:
        """Whether a transfer of so many bytes may go to the system now."""
        if not self.pending:
            return True
        in_flight = sum(len(pending.buffer) for pending in self.pending)
        return len(self.pending) < MOST and in_flight + size <= WINDOW


class Pipeline:
    """The bulk transfers of a device in flight. Thread-safe.

    Args:
        clock: of the device.
        report: called with every call that is over, in order, under `lock`.

    Attributes:
        lock: held while a call's end is reported.
    """

    def __init__(self, clock: Clock, report: Callable[[Call, Outcome], None]) -> None:
        self.lock = threading.RLock()
        self._clock = clock
        self._report = report
        self._queues: dict[int, Queue] = {}
        self._backend: BulkBackend | None = None
        self._handle: Callable[[], Any] | None = None

    def use(self, backend: BulkBackend, handle: Callable[[], Any]) -> None:
        """Send transfers this way from now on; nothing is in flight.

        Args:
            backend: what takes them.
            handle: returns its handle of the device.
        """
        self._backend, self._handle = backend, handle

    def submit(self, call: Call, number: int) -> Pending:
        """Begin a transfer, as soon as there is room."""
        size = len(call.data) or call.length
        while True:
            with self.lock:
                queue = self._queues.setdefault(call.endpoint, Queue())
                self.settle()
                if queue.has_room(size):
                    pending = Pending(self, queue, call, number, self._clock.now())
                    try:
                        with _interrupts_held():
                            self._begin(queue, pending)
                    except BaseException:  # the caller does not get it
                        self.cancel(pending, queue)
                        raise
                    return pending
            self._advance(queue)

    def settle(self) -> None:
        """Report what has ended, in the order of the ends."""
        with self.lock:
            while True:
                over = [queue for queue in self._queues.values() if queue.pending and _over(queue.pending[0])]
                if not over:
                    return
                self._settle_head(min(over, key=lambda queue: _end(queue.pending[0])))

    def finish(self, pending: Pending, queue: Queue, needs: Collection[Pending] = ()) -> Data:
        """The result of a transfer, once it is over, or the failure of one that it needs."""
        while pending.outcome is None:
            if pending not in queue.pending:
                raise InternalError("a transfer was lost", where=str(pending.call))
            self._advance(queue, GLANCE if needs else math.inf)
            for needed in needs:
                if isinstance(needed.outcome, TowlineError):
                    needed.result()
        found = pending.outcome
        if isinstance(found, TowlineError):
            with self.lock:
                if queue.failure in (found, getattr(found, "cause", None)):
                    queue.failure = None
            raise found
        return found

    def cancel(self, pending: Pending, queue: Queue) -> None:
        """Cancel a transfer, and those behind it."""
        with self.lock:
            self.settle()
            if pending in queue.pending:
                place = queue.pending.index(pending)
                self._withdraw(queue, list(queue.pending)[place:], "the transfer was cancelled")

    def abandon(self, reason: str) -> None:
        """Cancel everything, and forget failures that have not been reported."""
        with self.lock:
            self.settle()
            for queue in self._queues.values():
                self._withdraw(queue, list(queue.pending), f"the transfer was cancelled: {reason}")
            self._queues.clear()

    # -- inside -----------------------------------------------------------------------------------------

    @property
    def _system(self) -> BulkBackend:
        if self._backend is None:
            raise InternalError("a transfer before the device was claimed")
        return self._backend

    def _begin(self, queue: Queue, pending: Pending) -> None:
        call, now = pending.call, pending.began
        if queue.failure is not None:
            pending.outcome = _abandoned(call, queue.failure, 0)
            self._report(call, Outcome.of(pending.outcome, now, now, pending.number))
            return
        if call.kind is CallKind.BULK_OUT:
            pending.buffer = memoryview(call.data)
        else:
            pending.buffer = memoryview(bytearray(call.length)) if call.into is None else call.into
        if not queue.pending:
            queue.since = now
        queue.pending.append(pending)
        try:
            assert self._handle is not None
            pending.transfer = self._system.bulk_submit(self._handle(), call.endpoint, pending.buffer)
        except bus.pyusb().core.USBError as problem:
            pending.transfer = Ended(problem, now)

    def _advance(self, queue: Queue, most: float = math.inf) -> None:
        """Let time pass, at most so many seconds, until the transfer at the head has ended or timed out."""
        with self.lock:
            self.settle()
            if not queue.pending:
                return
            head = queue.pending[0]
            left = queue.since + head.call.timeout - self._clock.now()
            if left < NOTHING:
                self._take_back(list(queue.pending))
                self.settle()
                return
            transfer = head.transfer
        assert transfer is not None
        self._system.bulk_wait(transfer, min(left, most))
        self.settle()

    def _take_back(self, transfers: list[Pending]) -> None:
        """Cancel these, the last one first so that the system never begins the next, and wait for them."""
        for pending in reversed(transfers):
            if pending.transfer is not None and not pending.transfer.done:  # nor one that the system refused
                self._system.bulk_cancel(pending.transfer)
        for pending in transfers:
            if pending.transfer is not None and not pending.transfer.done:
                self._system.bulk_wait(pending.transfer, CANCEL_PATIENCE)
            if pending.transfer is None or not pending.transfer.done:
                lost = bus.pyusb().core.USBError("the system does not return the transfer")
                pending.transfer = Ended(lost, self._clock.now())

    def _withdraw(self, queue: Queue, transfers: list[Pending], message: str) -> None:
        """Cancel the last transfers of a queue; bytes that have passed still count."""
        self._take_back(transfers)
        for pending in transfers:
            assert pending.transfer is not None
            if pending.transfer.error is not None:
                actual = pending.transfer.actual
                pending.outcome = Abandoned(message, where=str(pending.call), transferred=actual)
            else:
                pending.outcome = _outcome(pending, pending.transfer, None)
            self._close(queue, pending)

    def _settle_head(self, queue: Queue) -> None:
        pending = queue.pending[0]
        transfer = pending.transfer
        assert transfer is not None
        if pending.outcome is None:
            pending.outcome = _outcome(pending, transfer, queue.failure)
        self._close(queue, pending)
        if isinstance(pending.outcome, TowlineError) and queue.failure is None:
            queue.failure = pending.outcome
            self._take_back(list(queue.pending))

    def _close(self, queue: Queue, pending: Pending) -> None:
        """A transfer is over, and has an outcome."""
        transfer, found = pending.transfer, pending.outcome
        assert transfer is not None
        assert found is not None
        queue.pending.remove(pending)
        queue.since = max(queue.since, transfer.ended)
        if pending.call.into is not None and not isinstance(found, TowlineError):
            found = pending.buffer[: pending.received]
        self._report(pending.call, Outcome.of(found, pending.began, transfer.ended, pending.number))


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Defer Ctrl-C, which could leave the system a transfer that no queue holds."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: held.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if held:
            previous(*held.pop())


def _over(pending: Pending) -> bool:
    return pending.transfer is not None and pending.transfer.done


def _end(pending: Pending) -> tuple[float, int]:
    assert pending.transfer is not None
    return pending.transfer.ended, pending.number


def _abandoned(call: Call, cause: TowlineError, transferred: int) -> Abandoned:
    first = getattr(cause, "cause", None) or cause
    return Abandoned(
        f"not sent, because a transfer before it failed: {first}",
        where=str(call),
        hint=first.hint,
        cause=cause,
        transferred=transferred,
    )


def _outcome(pending: Pending, transfer: BulkTransfer, failure: TowlineError | None) -> Data | TowlineError:
    """The outcome of a transfer that has ended, on an endpoint with that failure before it."""
    call, actual = pending.call, transfer.actual
    incoming = call.kind is CallKind.BULK_IN
    if failure is not None:
        return _abandoned(call, failure, actual)
    if incoming:
        pending.received = actual
    data = bytes(pending.buffer[:actual]) if incoming and call.into is None else b""
    if transfer.error is not None:
        problem = translated(transfer.error, str(call), call.timeout)
        if isinstance(problem, TimedOut) and actual:
            verb = "sent" if incoming else "took"
            return TimedOut(
                f"the device {verb} {actual} bytes of {len(pending.buffer)} in {call.timeout:g} s",
                where=str(call),
                hint=problem.hint,
                transferred=actual,
                data=bytes(pending.buffer[:actual]) if incoming else b"",
            )
        return problem
    if not incoming and actual < len(call.data):
        return DeviceFailed(f"the device took {actual} bytes of {len(call.data)}", where=str(call))
    return data
