"""`Transport`: a device that is open, and what can be done with it.

What is on the other end is up to its implementations: `plugged` has a device of pyusb, real or emulated, and
`replay` a recording. All of them have a clock, seconds instead of milliseconds, the SDK's errors, and
observers of every call.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING

from sdk import clock as clocks
from sdk.clock import Clock
from sdk.errors import DeviceFailed, TowlineError, UsageError
from sdk.telemetry.metrics import Traffic
from usbgpu.transport import bus, identity
from usbgpu.transport.call import Call, CallKind, Observer, Outcome, counted
from usbgpu.transport.emulation import Emulation
from usbgpu.transport.errors import Disconnected, WireFailed
from usbgpu.transport.pipeline import Pending, Pipeline
from usbgpu.transport.speed import Speed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

TIMEOUT = 5.0
"""Default time-out of a call, in seconds."""
RETURN_PATIENCE = 10.0
"""Seconds that a device may take to leave the bus and come back."""
IN_BIT = 0x80


class Transport(ABC):
    """An open device; a context manager that closes it. Made by `transport.open` and `transport.attach`.

    Several threads may use it; `reset`, `reopen` and `close` cancel what is in flight.

    Attributes:
        name: the device string.
        clock: its time.
        traffic: over the cable since it was opened.
        observers: called after every call, one at a time, in the order in which the calls ended, in the
            thread that notices the end; they must not use the device.
        out_endpoint: address of its first bulk OUT endpoint; so is `in_endpoint`.
        packet_size: largest packet of its bulk endpoints, in bytes.
        interface_class: bInterfaceClass of its first interface.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self.traffic = Traffic()
        self.observers: list[Observer] = []
        self.out_endpoint, self.in_endpoint = 0x02, 0x81
        self.packet_size = 0
        self.interface_class = 0
        self._pipeline = Pipeline(clock, self._report)
        self._numbers = itertools.count()

    def __enter__(self) -> Transport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __str__(self) -> str:
        return self.name

    # -- what it is -------------------------------------------------------------------------------------

    @property
    def is_emulated(self) -> bool:
        """Whether it has virtual time, and cannot be damaged."""
        return not isinstance(self.clock, clocks.WallClock)

    @property
    def emulation(self) -> Emulation | None:
        """What is emulated; None for a real device, a recording, or if its backend provides none."""
        return None

    @property
    @abstractmethod
    def speed(self) -> Speed:
        """Of the link.

        Raises:
            DeviceFailed: it is unknown.
        """

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it is plugged in: bus and ports on the way, as in `usb-2-1.4`."""

    def identify(self) -> identity.Identity:
        """What runs on it: `identity.identify`."""
        return identity.identify(self)

    def descriptor(self, kind: int, index: int, length: int, language: int = 0) -> bytes:
        """bus.GET_DESCRIPTOR from the device itself, past all caches. Raises as `perform`."""
        return self.control_in(bus.STANDARD_IN, bus.GET_DESCRIPTOR, kind << 8 | index, language, length)

    def string(self, index: int) -> str | None:
        """A string of the device; None for index 0, and if it has no such string.

        Raises:
            Disconnected, WireFailed: it is unknown, because the device did not answer.
        """
        if not index:
            return None
        try:
            raw = self.descriptor(bus.STRING, index, bus.LONGEST_STRING, bus.LANGUAGE)
        except (Disconnected, WireFailed):
            raise
        except DeviceFailed:
            return None
        return raw[2 : raw[0]].decode("utf-16-le", "replace") if len(raw) >= 2 else None

    # -- transfers --------------------------------------------------------------------------------------

    def control_in(
        self,
        request_type: int,
        request: int,
        value: int = 0,
        index: int = 0,
        length: int = 0,
        *,
        timeout: float = TIMEOUT,
    ) -> bytes:
        """A control transfer towards the host: what came, at most `length` bytes. Raises as `perform`."""
        return self.perform(
            Call(CallKind.CONTROL, request_type, request, value, index, length=length, timeout=timeout)
        )

    def control_out(
        self,
        request_type: int,
        request: int,
        value: int = 0,
        index: int = 0,
        data: bytes = b"",
        *,
        timeout: float = TIMEOUT,
    ) -> None:
        """A control transfer towards the device. Raises as `perform`."""
        self.perform(Call(CallKind.CONTROL, request_type, request, value, index, data=data, timeout=timeout))

    def bulk_out(
        self, data: ReadableBuffer, *, timeout: float = TIMEOUT, endpoint: int | None = None
    ) -> None:
        """Send all of `data`, and no empty packet after one of whole packets. Raises as `perform`.

        Args:
            data: bytes, or any contiguous buffer, such as an array of numpy; it is not copied.
            timeout: in seconds.
            endpoint: address; None for the first.
        """
        self.perform(self.out_call(data, timeout=timeout, endpoint=endpoint))

    def bulk_in(self, length: int, *, timeout: float = TIMEOUT, endpoint: int | None = None) -> bytes:
        """Receive up to `length` bytes, or up to a short packet. Raises as `perform`.

        Unless the device is known to send no more, `length` should be a multiple of `packet_size`.
        """
        address = self.in_endpoint if endpoint is None else endpoint
        return self.perform(Call(CallKind.BULK_IN, endpoint=address, length=length, timeout=timeout))

    def bulk_in_into(
        self, buffer: WriteableBuffer, *, timeout: float = TIMEOUT, endpoint: int | None = None
    ) -> int:
        """Receive into a contiguous buffer, up to its end or a short packet: bytes received.

        Raises as `perform`; what came before a failure is in the buffer.
        """
        pending = self.submit(self.in_call(buffer, timeout=timeout, endpoint=endpoint))
        self._result(pending)
        return pending.received

    def out_call(
        self, data: ReadableBuffer, *, timeout: float = TIMEOUT, endpoint: int | None = None
    ) -> Call:
        """The call of `bulk_out`, for `submit`. `data` must not change until it is over."""
        address = self.out_endpoint if endpoint is None else endpoint
        given = data if isinstance(data, bytes) else _flat(data)
        return Call(CallKind.BULK_OUT, endpoint=address, data=given, timeout=timeout)

    def in_call(
        self, buffer: WriteableBuffer, *, timeout: float = TIMEOUT, endpoint: int | None = None
    ) -> Call:
        """The call of `bulk_in_into`, for `submit`."""
        into = _flat(buffer)
        if into.readonly:
            raise UsageError("this buffer cannot be written")
        address = self.in_endpoint if endpoint is None else endpoint
        return Call(CallKind.BULK_IN, endpoint=address, length=len(into), timeout=timeout, into=into)

    def clear_halt(self, endpoint: int) -> None:
        """CLEAR_FEATURE(ENDPOINT_HALT), and forget the host's side of the halt. Raises as `perform`."""
        self.perform(Call(CallKind.CLEAR_HALT, endpoint=endpoint, timeout=TIMEOUT))

    def reset(self) -> None:
        """A bus reset; the device is enumerated and configured again. Raises as `perform`.

        A device that comes back with other descriptors is another one: `Disconnected`, and `reopen` finds it.
        """
        self.perform(Call(CallKind.RESET, timeout=RETURN_PATIENCE))

    def perform(self, call: Call) -> bytes:
        """Carry out a call. Returns the bytes that came from the device, if any.

        Raises:
            UsageError: the call is invalid, or the device was closed.
            Stalled: the device refused it.
            NotSent: there is no such interface or endpoint.
            TimedOut: it did not end in time.
            Disconnected: the device is gone.
            Overrun: the device sent too much.
            Abandoned: one before it on its endpoint failed, and that failure has not been reported yet.
            DeviceFailed: another failure of the transfer.
        """
        if call.kind.is_bulk:
            return self._result(self.submit(call))
        self._check(call)
        number, began = next(self._numbers), self.clock.now()
        try:
            result = self._act(call)
        except TowlineError as problem:
            self._over(call, problem, began, number)
            raise
        self._over(call, result, began, number)
        return result

    def submit(self, call: Call) -> Pending:
        """Begin a bulk transfer, behind those that were submitted before on its endpoint.

        Waits for room if more than `pipeline.WINDOW` bytes are in flight there: what is long should be cut
        into calls of 1 MiB or so. Otherwise virtual time of an emulated device passes only while a caller
        waits: for a result, a control transfer, or the clock.

        Returns:
            the transfer, whose `result` is what `perform` returns or raises.

        Raises:
            UsageError: the call is invalid, or not a bulk transfer; or the device was closed.
            NotSent: there is no such endpoint.
        """
        if not call.kind.is_bulk:
            raise UsageError("only bulk transfers can be submitted", where=str(call))
        self._check(call)
        incoming = call.kind is CallKind.BULK_IN
        if incoming is not bool(call.endpoint & IN_BIT):
            raise UsageError("the call and its endpoint have opposite directions", where=str(call))
        if incoming and call.length < 1:
            raise UsageError(f"a read must be of 1 byte or more, not {call.length}", where=str(call))
        return self._pipeline.submit(call, next(self._numbers))

    # -- coming and going -------------------------------------------------------------------------------

    @abstractmethod
    def reopen(self, timeout: float = RETURN_PATIENCE) -> None:
        """Wait until the device has left the bus and come back, and go on with that one.

        Of those that were not there before, it is the one in the same port, else the one with the same serial
        number, else the only one.

        Raises:
            Disconnected: it did not come back in time.
            DeviceMissing: it came back, but may not be opened, or another process opened it first.
            DeviceFailed: it came back, and does not answer as a USB device must.
        """

    @abstractmethod
    def close(self) -> None:
        """Cancel what is in flight, and release the device. Idempotent."""

    # -- inside -----------------------------------------------------------------------------------------

    def _check(self, call: Call) -> None:
        """Refuse a call that cannot be made: raises UsageError or NotSent."""
        if call.timeout <= 0:
            raise UsageError(f"a time-out must be greater than 0 s, not {call.timeout:g} s", where=str(call))

    @abstractmethod
    def _act(self, call: Call) -> bytes:
        """Carry out a call other than a bulk transfer."""

    @staticmethod
    def _result(pending: Pending) -> bytes:
        """Wait for it; a wait that is cut short, as by Ctrl-C, leaves nothing in flight."""
        try:
            return pending.result()
        except BaseException:
            pending.cancel()
            raise

    def _over(self, call: Call, result: bytes | TowlineError, began: float, number: int) -> None:
        with self._pipeline.lock:
            self._pipeline.settle()  # what ended before it is reported first
            self._report(call, Outcome.of(result, began, self.clock.now(), number))

    def _report(self, call: Call, outcome: Outcome) -> None:
        self.traffic = counted(self.traffic, call, outcome)
        for observer in tuple(self.observers):
            observer(call, outcome)


def _flat(buffer: ReadableBuffer) -> memoryview:
    """The bytes of a buffer, where they are.

    Raises:
        UsageError: they do not lie one behind the other.
    """
    try:
        return memoryview(buffer).cast("B")
    except TypeError as problem:
        raise UsageError(
            f"the buffer is not contiguous: {problem}", hint="numpy.ascontiguousarray(...)"
        ) from problem
