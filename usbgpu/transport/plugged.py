"""A device of pyusb: a real one, or an emulated one.

A thin layer, on purpose: it settles the few things that pyusb leaves open:

* Bulk transfers go by the host's own queue (`pipeline`), and one that times out after some data is `TimedOut`
  with the data in it.
* A mass-storage device is detached from the kernel's driver while it is open, and given back on `close`; not
  while a disk behind it is mounted.
* A real device is kept from being suspended meanwhile, if the user has the right (`sysfs.KeptAwake`).
* A mass-storage device is configured again after a reset, also where the system restores its configuration:
  the mask ROM's boot loader expects it.
* A device that leaves the bus and comes back is another one to libusb; `reopen` finds it by its port, or by
  its serial number, and never mistakes a device that was there before for it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

from sdk.clock import WallClock
from sdk.errors import DeviceFailed, DeviceMissing, UsageError
from usbgpu.transport import bus, libusb, sysfs
from usbgpu.transport.call import Call, CallKind
from usbgpu.transport.device import IN_BIT, RETURN_PATIENCE, Transport
from usbgpu.transport.emulation import EmulatedBackend, Emulation
from usbgpu.transport.errors import DeviceBusy, Disconnected, NotSent
from usbgpu.transport.identity import MASS_STORAGE
from usbgpu.transport.lock import DeviceLock
from usbgpu.transport.speed import Speed

log = logging.getLogger(__name__)

SEARCH_INTERVAL = 0.1
TRANSFER_TYPE, BULK = 0x03, 0x02
SPEEDS = dict(enumerate(Speed, 1))
"""By libusb's numbers (enum libusb_speed)."""


class PluggedTransport(Transport):
    """See the module.

    Args:
        found: pyusb's device.
        name: the device string.
        backend: its backend; None for pyusb's own choice, which is the machine's bus.
        lock: held until `close`.
    """

    def __init__(self, found: Any, name: str, backend: Any, lock: DeviceLock | None) -> None:
        emulated = backend if isinstance(backend, EmulatedBackend) else None
        super().__init__(name, WallClock() if emulated is None else emulated.clock)
        self._backend = backend
        self._emulated = emulated
        self._lock = lock
        self._device = found
        self._serial = ""
        self._seen: set[tuple[int, int]] = set()
        self._endpoints: set[int] = set()
        self._driver_sent_away = False
        self._awake: sysfs.KeptAwake | None = None
        self._closed = False
        self._actions: dict[CallKind, Callable[[Call], bytes]] = {
            CallKind.CONTROL: self._control,
            CallKind.CLEAR_HALT: self._clear_halt,
            CallKind.RESET: self._reset,
        }
        try:  # what `reopen` must know
            self._seen = self._present()
            if not self.is_emulated:  # an emulated one never leaves its port
                self._serial = bus.serial(found)
                self._awake = sysfs.KeptAwake(self._kernel_name)
            self._claim()
        except BaseException:
            self.close()
            raise

    # -- what it is -------------------------------------------------------------------------------------

    @property
    def emulation(self) -> Emulation | None:
        """See `Transport`."""
        return None if self._emulated is None else self._emulated.emulation

    @property
    def speed(self) -> Speed:
        """See `Transport`."""
        found = SPEEDS.get(self._device.speed)
        if found is None:
            raise DeviceFailed("the speed of the link is unknown", where=self.name)
        return found

    @property
    def place(self) -> str:
        """See `Transport`."""
        return bus.place(self._device)

    @property
    def _is_given(self) -> bool:
        """Whether it is one of `libusb.wrapped`: a file descriptor is good for one attachment."""
        return self._backend is not None and not self.is_emulated

    @property
    def _kernel_name(self) -> str:
        """What Linux calls it: `2-1.4`."""
        return self.place.removeprefix("usb-")

    # -- coming and going -------------------------------------------------------------------------------

    def reopen(self, timeout: float = RETURN_PATIENCE) -> None:
        """See `Transport`."""
        if self._is_given:
            raise Disconnected(
                "a device that was given as a file descriptor does not come back",
                where=self.name,
                hint="open it again, and pass the new file descriptor",
            )
        place = self.place
        self._release("the device is opened again")
        end = self.clock.now() + timeout
        while True:
            left = end - self.clock.now()
            last = left <= 0
            try:
                with self._searching(max(left, 0.0)):
                    search = libusb.fresh(self._device._ctx.backend)
                    found = bus.again(self._backend, self._seen, place, self._serial, search)
                    if found is not None:
                        self._go_on_with(found)
                        return
            except (DeviceFailed, DeviceMissing):  # udev or a driver may still be busy with it
                if last:
                    raise
            if last:
                raise Disconnected(
                    f"the device did not come back within {timeout:g} s",
                    where=self.name,
                    hint="unplug it, plug it in again, and look at `dmesg`",
                )
            self.clock.sleep(min(SEARCH_INTERVAL, left))

    def close(self) -> None:
        """See `Transport`."""
        if not self._closed and self.emulation is not None:
            for fault, fired in self.emulation.faults():
                if fired is None:
                    log.warning("the fault %s never fired", fault)
        self._closed = True
        self._release("the device was closed")
        if self._driver_sent_away:
            self._driver_sent_away = False
            with contextlib.suppress(bus.pyusb().core.USBError):
                self._device.attach_kernel_driver(0)
            self._release("the device was closed")
        if self._awake is not None:
            self._awake.release()
        if self._is_given:
            self._backend.close()
        if self._lock is not None:
            self._lock.release()

    # -- inside -----------------------------------------------------------------------------------------

    def _go_on_with(self, found: Any) -> None:
        """Take the device that came back in place of the one that left."""
        if self._lock is not None and bus.place(found) != self._lock.name:
            lock = DeviceLock(bus.place(found))
            self._lock.release()
            self._lock = lock
        self._device = found
        if self._awake is not None:
            self._awake = sysfs.KeptAwake(self._kernel_name)
        try:
            self._claim()
        except BaseException:
            self._release("the device could not be claimed")
            raise
        self._seen = self._present()  # addresses are given again one day

    def _present(self) -> set[tuple[int, int]]:
        """Bus and address of every device that may be a bridge."""
        return {(each.bus, each.address) for each in bus.devices(self._backend)}

    @contextlib.contextmanager
    def _searching(self, seconds: float) -> Iterator[None]:
        """An emulated search takes so long at most; a real one takes no time."""
        if self._emulated is None:
            yield
            return
        before = self._emulated.patience
        self._emulated.patience = min(before, seconds)
        try:
            yield
        finally:
            self._emulated.patience = before

    def _claim(self, *, configure: bool = False) -> None:
        """Take the device's first interface, and look at its endpoints.

        Args:
            configure: SET_CONFIGURATION also if it is configured already.
        """
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
                    if places := sysfs.mounted(self._kernel_name):
                        raise DeviceBusy(
                            f"a disk behind it is mounted: {', '.join(places)}",
                            where=self.name,
                            hint="unmount it first",
                        )
                    device.detach_kernel_driver(0)
                    self._driver_sent_away = True
            if configure:
                device.set_configuration(configuration.bConfigurationValue)
            bus.pyusb().util.claim_interface(device, 0)
        self.interface_class = interface.bInterfaceClass
        self.packet_size = 512
        backend = libusb.asynchronous(device._ctx.backend)
        self._pipeline.use(backend, device._ctx.managed_open)  # what pyusb itself hands its backend
        bulk = [endpoint for endpoint in interface if endpoint.bmAttributes & TRANSFER_TYPE == BULK]
        self._endpoints = {endpoint.bEndpointAddress for endpoint in bulk}
        for endpoint in reversed(bulk):
            self.packet_size = endpoint.wMaxPacketSize
            if endpoint.bEndpointAddress & IN_BIT:
                self.in_endpoint = endpoint.bEndpointAddress
            else:
                self.out_endpoint = endpoint.bEndpointAddress

    def _release(self, why: str) -> None:
        self._pipeline.abandon(why)
        with contextlib.suppress(bus.pyusb().core.USBError):
            bus.pyusb().util.dispose_resources(self._device)

    def _check(self, call: Call) -> None:
        super()._check(call)
        if self._closed:
            raise UsageError("the device was closed", where=self.name)
        if call.kind.is_bulk and call.endpoint not in self._endpoints:
            raise NotSent("the device has no such bulk endpoint: the system sent nothing", where=str(call))

    def _act(self, call: Call) -> bytes:
        return self._actions[call.kind](call)

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

    def _clear_halt(self, call: Call) -> bytes:
        with bus.translating(str(call), call.timeout):
            self._device.clear_halt(call.endpoint)
        return b""

    def _reset(self, call: Call) -> bytes:
        self._pipeline.abandon("the bus is reset")
        try:
            with bus.translating(str(call), call.timeout):
                self._device.reset()
        except NotSent as problem:  # libusb found other descriptors than before
            raise Disconnected("the device came back as another", where=str(call)) from problem
        self._claim(configure=self.interface_class == MASS_STORAGE)
        return b""
