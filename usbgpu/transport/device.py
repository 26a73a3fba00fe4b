"""`Transport`: a device that is open, and what can be done with it.

A thin layer over pyusb, on purpose: it adds a clock, seconds instead of milliseconds, the SDK's errors, a
lock, and an observer of every call; and it decides the few things on which pyusb leaves a caller in doubt:

* pyusb returns what came when a bulk transfer times out after some data; here that is always `TimedOut`,
  with the data in it. (A read of whole packets only that ended at its time-out counts as timed out.)
* A mass-storage device is taken from the kernel's driver while it is open, and given back on `close`; not
  while a disk behind it is mounted.
* A device that leaves the bus and comes back is another one to libusb; `reopen` finds it by its port, or by
  its serial number, and never takes one for it that was there before.

Several threads may have transfers in flight; `reset`, `reopen` and `close` want the others to have ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Any

from sdk.errors import DeviceFailed, DeviceMissing, TowlineError, UsageError
from usbgpu.transport import bus, device_string, identity, sysfs
from usbgpu.transport import clock as clocks
from usbgpu.transport.call import Call, CallKind, Observer, Outcome
from usbgpu.transport.clock import Clock
from usbgpu.transport.device_string import DeviceString
from usbgpu.transport.errors import DeviceBusy, Disconnected, NotSent, TimedOut
from usbgpu.transport.lock import DeviceLock

TIMEOUT = 5.0
"""Seconds that a call may take if its caller does not say."""
RETURN_PATIENCE = 10.0
"""Seconds that a device may take to leave the bus and come back."""
SEARCH_INTERVAL = 0.1
IN_BIT = 0x80
TRANSFER_TYPE, BULK = 0x03, 0x02


class Speed(Enum):
    """Link speeds; the value is the name Linux prints."""

    LOW = "low-speed"
    FULL = "full-speed"
    HIGH = "high-speed"
    SUPER = "super-speed"
    SUPER_PLUS = "super-speed-plus"

    @property
    def is_super(self) -> bool:
        """SuperSpeed or above: other descriptors, other packet sizes."""
        return self in (Speed.SUPER, Speed.SUPER_PLUS)


SPEEDS = dict(enumerate(Speed, 1))
"""By libusb's numbers (enum libusb_speed)."""


def open(device: str | None = None) -> Transport:
    """Open a device.

    Args:
        device: a device string; None for TOWLINE_DEVICE, or `emulated`.

    Raises:
        UsageError: the string names no device, or more than one.
        DeviceMissing: no such device is there, it is in use, or it may not be opened.
        EnvironmentMissing: pyusb or libusb is not there.
        DeviceFailed: it does not answer as a USB device must.
    """
    named = DeviceString.parse(device)
    if not named.is_real:
        return attach(device_string.backend(named), named.text)
    found = bus.the_one(named)
    return Transport(found, named.text, None, DeviceLock(bus.place(found)))


def attach(backend: Any, name: str = "emulated") -> Transport:
    """Open the first device of a pyusb backend; nobody else can have it.

    Args:
        backend: with an attribute `clock` if its time is not the wall's.
        name: for messages.

    Raises:
        DeviceMissing: the backend has no device.
        DeviceFailed: it does not answer as a USB device must.
    """
    found = bus.devices(backend)
    if not found:
        raise DeviceMissing("nothing is attached", where=name)
    return Transport(found[0], name, backend, None)


class Transport:
    """An open device; a context manager that closes it. Made by `open` and `attach`.

    Attributes:
        name: the device string.
        clock: the time that it lives in.
        observers: called after every call, in the caller's thread.
        out_endpoint: address of its first bulk OUT endpoint; so is `in_endpoint`.
        packet_size: largest packet of its bulk endpoints, in bytes.
        interface_class: bInterfaceClass of its first interface.
    """

    def __init__(self, found: Any, name: str, backend: Any, lock: DeviceLock | None) -> None:
        self.name = name
        self.clock: Clock = clocks.of(backend)
        self.observers: list[Observer] = []
        self.out_endpoint, self.in_endpoint = 0x02, 0x81
        self.packet_size = 0
        self.interface_class = 0
        self._backend = backend
        self._lock = lock
        self._device = found
        self._serial = ""
        self._seen: set[tuple[int, int]] = set()
        self._driver_sent_away = False
        self._actions: dict[CallKind, Callable[[Call], bytes]] = {
            CallKind.CONTROL: self._control,
            CallKind.BULK_OUT: self._bulk_out,
            CallKind.BULK_IN: self._bulk_in,
            CallKind.CLEAR_HALT: self._clear_halt,
            CallKind.RESET: self._reset,
        }
        try:  # what `reopen` must know
            self._seen |= {(each.bus, each.address) for each in bus.devices(backend)}
            if backend is None:  # an emulated one never leaves its port
                self._serial = bus.serial(found)
            self._claim()
        except BaseException:
            self.close()
            raise

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
        """Whether it lives in virtual time, and nobody minds what is done to it."""
        return not isinstance(self.clock, clocks.WallClock)

    @property
    def speed(self) -> Speed:
        """Of the link.

        Raises:
            DeviceFailed: libusb does not know.
        """
        found = SPEEDS.get(self._device.speed)
        if found is None:
            raise DeviceFailed("the speed of the link is not known", where=self.name)
        return found

    @property
    def place(self) -> str:
        """Where it is plugged in: bus and ports on the way, as in `usb-2-1.4`."""
        return bus.place(self._device)

    def identify(self) -> identity.Identity:
        """What runs on it: `identity.identify`."""
        return identity.identify(self)

    def descriptor(self, kind: int, index: int, length: int, language: int = 0) -> bytes:
        """GET_DESCRIPTOR from the device itself, past all caches. Raises as `perform`."""
        return self.control_in(bus.STANDARD_IN, bus.GET_DESCRIPTOR, kind << 8 | index, language, length)

    def string(self, index: int) -> str | None:
        """A string of the device; None for index 0, and if it has no such string."""
        if not index:
            return None
        try:
            raw = self.descriptor(bus.STRING, index, bus.LONGEST_STRING, bus.LANGUAGE)
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

    def bulk_out(self, data: bytes, *, timeout: float = TIMEOUT, endpoint: int | None = None) -> None:
        """Send all of `data`, and no empty packet after one of whole packets. Raises as `perform`."""
        address = self.out_endpoint if endpoint is None else endpoint
        self.perform(Call(CallKind.BULK_OUT, endpoint=address, data=data, timeout=timeout))

    def bulk_in(self, length: int, *, timeout: float = TIMEOUT, endpoint: int | None = None) -> bytes:
        """Receive up to `length` bytes, or up to a short packet. Raises as `perform`.

        Unless the device is known to send no more, `length` should be a multiple of `packet_size`.
        """
        address = self.in_endpoint if endpoint is None else endpoint
        return self.perform(Call(CallKind.BULK_IN, endpoint=address, length=length, timeout=timeout))

    def clear_halt(self, endpoint: int) -> None:
        """CLEAR_FEATURE(ENDPOINT_HALT), and forget the host's side of the halt. Raises as `perform`."""
        self.perform(Call(CallKind.CLEAR_HALT, endpoint=endpoint, timeout=TIMEOUT))

    def reset(self) -> None:
        """A bus reset; the device is enumerated and configured anew. Raises as `perform`.

        A device that comes back with other descriptors is another one: `Disconnected`, and `reopen` finds it.
        """
        self.perform(Call(CallKind.RESET, timeout=RETURN_PATIENCE))

    def perform(self, call: Call) -> bytes:
        """Do what a call says; the bytes that came from the device, if any.

        Raises:
            UsageError: the call makes no sense.
            Stalled: the device refused it.
            NotSent: there is no such interface or endpoint.
            TimedOut: it did not end in time.
            Disconnected: the device has gone.
            Overrun: the device sent too much.
            DeviceFailed: another failure of the transfer.
        """
        if call.timeout <= 0:
            raise UsageError(f"a time-out of {call.timeout:g} s", where=str(call))
        began = self.clock.now()
        try:
            result = self._actions[call.kind](call)
        except TowlineError as problem:
            self._tell(call, Outcome.of(problem, began, self.clock.now()))
            raise
        self._tell(call, Outcome.of(result, began, self.clock.now()))
        return result

    # -- coming and going -------------------------------------------------------------------------------

    def reopen(self, timeout: float = RETURN_PATIENCE) -> None:
        """Wait until the device has left the bus and come back, and go on with that one.

        Of those that were not there before, it is the one in the same port, else the one with the same serial
        number, else the only one.

        Raises:
            Disconnected: it did not come back in time.
            DeviceMissing: it came back, but may not be opened, or another process was faster.
            DeviceFailed: it came back, and does not answer as a USB device must.
        """
        place = self.place
        self._let_go()
        end = self.clock.now() + timeout
        while True:
            last = self.clock.now() >= end
            try:
                found = bus.again(self._backend, self._seen, place, self._serial)
                if found is not None:
                    self._go_on_with(found)
                    return
            except (DeviceFailed, DeviceMissing):  # udev or a driver may not be through with it yet
                if last:
                    raise
            if last:
                raise Disconnected(
                    f"the device did not come back within {timeout:g} s",
                    where=self.name,
                    hint="unplug it, plug it in again, and look at `dmesg`",
                )
            self.clock.sleep(SEARCH_INTERVAL)

    def close(self) -> None:
        """Let the device go; harmless if that was done."""
        self._let_go()
        if self._driver_sent_away:
            self._driver_sent_away = False
            with contextlib.suppress(bus.pyusb().core.USBError):
                self._device.attach_kernel_driver(0)
            self._let_go()
        if self._lock is not None:
            self._lock.release()

    # -- inside -----------------------------------------------------------------------------------------

    def _tell(self, call: Call, outcome: Outcome) -> None:
        for observer in self.observers:
            observer(call, outcome)

    def _go_on_with(self, found: Any) -> None:
        """Take the device that came back in place of the one that left."""
        if self._lock is not None and bus.place(found) != self._lock.name:
            lock = DeviceLock(bus.place(found))
            self._lock.release()
            self._lock = lock
        self._device = found
        try:
            self._claim()
        except BaseException:
            self._let_go()
            raise
        self._seen.add((found.bus, found.address))

    def _claim(self) -> None:
        """Configure the device if nobody has, take its first interface, and look at its endpoints."""
        device = self._device
        with bus.translating(self.name):
            try:
                configuration = device.get_active_configuration()
            except bus.pyusb().core.USBError as problem:
                if problem.errno is not None:  # without one, it is pyusb that says that none is set
                    raise
                device.set_configuration()
                configuration = device.get_active_configuration()
            interface = next(iter(configuration), None)
            if interface is None:
                raise DeviceFailed("the device has no interface", where=self.name)
            with contextlib.suppress(NotImplementedError):  # systems without kernel drivers to detach
                if device.is_kernel_driver_active(0):
                    if places := sysfs.mounted(self.place.removeprefix("usb-")):
                        raise DeviceBusy(
                            f"a disk behind it is mounted: {', '.join(places)}",
                            where=self.name,
                            hint="unmount it first",
                        )
                    device.detach_kernel_driver(0)
                    self._driver_sent_away = True
            bus.pyusb().util.claim_interface(device, 0)
        self.interface_class = interface.bInterfaceClass
        self.packet_size = 512
        bulk = [endpoint for endpoint in interface if endpoint.bmAttributes & TRANSFER_TYPE == BULK]
        for endpoint in reversed(bulk):
            self.packet_size = endpoint.wMaxPacketSize
            if endpoint.bEndpointAddress & IN_BIT:
                self.in_endpoint = endpoint.bEndpointAddress
            else:
                self.out_endpoint = endpoint.bEndpointAddress

    def _let_go(self) -> None:
        with contextlib.suppress(bus.pyusb().core.USBError):
            bus.pyusb().util.dispose_resources(self._device)

    def _control(self, call: Call) -> bytes:
        incoming = bool(call.request_type & IN_BIT)
        with bus.translating(str(call), call.timeout):
            answer = self._device.ctrl_transfer(
                call.request_type,
                call.request,
                call.value,
                call.index,
                call.length if incoming else call.data,
                bus.milliseconds(call.timeout),
            )
        if incoming:
            return bytes(answer)
        if answer != len(call.data):
            raise DeviceFailed(f"the device took {answer} bytes of {len(call.data)}", where=str(call))
        return b""

    def _bulk_out(self, call: Call) -> bytes:
        with bus.translating(str(call), call.timeout):
            sent: int = self._device.write(call.endpoint, call.data, bus.milliseconds(call.timeout))
        if sent < len(call.data):
            raise TimedOut(
                f"the device took {sent} bytes of {len(call.data)} in {call.timeout:g} s",
                where=str(call),
                transferred=sent,
            )
        return b""

    def _bulk_in(self, call: Call) -> bytes:
        if call.length < 1:
            raise UsageError(f"a read of {call.length} bytes", where=str(call))
        began = self.clock.now()
        with bus.translating(str(call), call.timeout):
            data = bytes(self._device.read(call.endpoint, call.length, bus.milliseconds(call.timeout)))
        whole = len(data) < call.length and len(data) % self.packet_size == 0
        if whole and self.clock.now() - began >= call.timeout:
            raise TimedOut(
                f"the device sent {len(data)} bytes of {call.length} in {call.timeout:g} s",
                where=str(call),
                transferred=len(data),
                data=data,
            )
        return data

    def _clear_halt(self, call: Call) -> bytes:
        with bus.translating(str(call), call.timeout):
            self._device.clear_halt(call.endpoint)
        return b""

    def _reset(self, call: Call) -> bytes:
        try:
            with bus.translating(str(call), call.timeout):
                self._device.reset()
        except NotSent as problem:  # libusb found other descriptors than before
            raise Disconnected("the device came back as another", where=str(call)) from problem
        self._claim()
        return b""
