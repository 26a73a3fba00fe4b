"""pyusb's backend over emulated devices in this process.

`usb.core.find(backend=Backend([host]))` gives ordinary pyusb devices. Their behaviour is that of pyusb over
libusb 1.0 on Linux: devices have been enumerated and configured before a program sees them, descriptors come
from a cache, time-outs are in milliseconds with 0 for none (of virtual time), a transfer that timed out after
some data returns that data, and errors carry libusb's codes and errno (libusb.h; pyusb's libusb1 backend).
A device that was detached and comes back is another device, with another address; the old one answers
"no such device". Several threads may have transfers in flight, and so may one thread, by three methods
beyond pyusb's: `bulk_submit`, `bulk_wait` and `bulk_cancel`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import struct
import threading
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Generic, TypeVar

import usb.backend
import usb.core

from emulator.core.clock import Event
from emulator.core.clock import seconds as seconds_of
from emulator.usb import standard
from emulator.usb.host import FIRST_ADDRESS, Host
from emulator.usb.pump import Waiter, ticks
from emulator.usb.standard import ConfigurationDescriptor, InterfaceDescriptor
from emulator.usb.wire import Outcome, Setup, Speed, Stall, Transfer

if TYPE_CHECKING:
    _Base = object  # pyusb is untyped: a class of its own would pass for any protocol
else:
    _Base = usb.backend.IBackend

log = logging.getLogger(__name__)

BUS = 1
ATTACH_PATIENCE = 10.0
"""Virtual seconds that a search waits for a device that is not attached, unless it is set."""
CONTROL_LIMIT = 4096
"""The longest data stage that libusb takes on Linux."""

IO, INVALID_PARAM, NO_DEVICE, NOT_FOUND, BUSY, TIMEOUT, OVERFLOW, PIPE = -1, -2, -4, -5, -6, -7, -8, -9
ERRORS = {
    IO: (errno.EIO, "Input/Output Error"),
    INVALID_PARAM: (errno.EINVAL, "Invalid parameter"),
    NO_DEVICE: (errno.ENODEV, "No such device (it may have been disconnected)"),
    NOT_FOUND: (errno.ENOENT, "Entity not found"),
    BUSY: (errno.EBUSY, "Resource busy"),
    TIMEOUT: (errno.ETIMEDOUT, "Operation timed out"),
    OVERFLOW: (errno.EOVERFLOW, "Overflow"),
    PIPE: (errno.EPIPE, "Pipe error"),
}
"""libusb's error codes, with the errno and the words that pyusb gives them."""

FAILURES = {
    Outcome.STALL: PIPE,
    Outcome.CANCELLED: TIMEOUT,
    Outcome.GONE: NO_DEVICE,
    Outcome.OVERFLOW: OVERFLOW,
    Outcome.ERROR: IO,
}
"""The error of a bulk transfer by its outcome."""

SPEEDS = {Speed.HIGH: 3, Speed.SUPER: 4, Speed.SUPER_PLUS: 5}
"""libusb's numbers (enum libusb_speed)."""

DEVICE = (
    "bLength bDescriptorType bcdUSB bDeviceClass bDeviceSubClass bDeviceProtocol bMaxPacketSize0 idVendor "
    "idProduct bcdDevice iManufacturer iProduct iSerialNumber bNumConfigurations"
)
CONFIGURATION = (
    "bLength bDescriptorType wTotalLength bNumInterfaces bConfigurationValue iConfiguration bmAttributes "
    "bMaxPower"
)
INTERFACE = (
    "bLength bDescriptorType bInterfaceNumber bAlternateSetting bNumEndpoints bInterfaceClass "
    "bInterfaceSubClass bInterfaceProtocol iInterface"
)
ENDPOINT = "bLength bDescriptorType bEndpointAddress bmAttributes wMaxPacketSize bInterval"
"""Fields of the descriptors, by their names in the USB specification."""


class Device:
    """One attachment of an emulated device: what pyusb calls a device.

    Attributes:
        host: its port.
        attachment: which attachment of that port it is.
        address: on the bus.
        port: the number of its port on the bus.
        found: its descriptors.
        configurations: the same, taken apart.
        alternates: alternate setting by interface number, where one was chosen.
        claims: handle by number of a claimed interface.
    """

    def __init__(self, host: Host, port: int, address: int) -> None:
        self.host = host
        self.port = port
        self.address = address
        self.found = host.enumerate(address)
        self.attachment = host.attachments
        self.configurations = [standard.parse_configuration(raw) for raw in self.found.configurations]
        self.alternates: dict[int, int] = {}
        self.claims: dict[int, Handle] = {}

    @property
    def present(self) -> bool:
        """Whether it has been attached all the time."""
        return self.host.speed is not None and self.host.attachments == self.attachment


class Handle:
    """A device opened."""

    def __init__(self, device: Device) -> None:
        self.device = device

    @property
    def host(self) -> Host:
        """The port of the device.

        Raises:
            USBError: the device has gone.
        """
        if not self.device.present:
            raise failure(NO_DEVICE)
        return self.device.host


class BulkTransfer:
    """A bulk transfer that was submitted.

    Args:
        host: the port of its device.
        endpoint: address with direction bit.
        buffer: what to send, or room for what comes.

    Attributes:
        done: it has ended; only then the rest counts.
        actual: bytes transferred.
        error: a USBError, that of a time-out if it was cancelled; None if it went well.
        ended: when, in seconds of virtual time.
    """

    def __init__(self, host: Host, endpoint: int, buffer: memoryview) -> None:
        self.host = host
        self.done = False
        self.actual = 0
        self.error: usb.core.USBError | None = None
        self.ended = 0.0
        self._buffer = buffer
        self._waiting: list[tuple[Waiter, Event]] = []
        given: bytes | int = len(buffer) if endpoint & 0x80 else buffer  # type: ignore[assignment]
        self.transfer = host.submit(endpoint, given, on_done=self._over)

    def wait(self, seconds: float) -> None:
        """Let virtual time pass until it has ended, at most so much."""
        if not self.done:
            waiter = Waiter(bounded=True, shared=True)
            self.host.pump.run(partial(self._expect, waiter, ticks(seconds)), waiter)

    def _expect(self, waiter: Waiter, delay: int) -> None:
        if self.done:
            waiter.wake()
        else:
            self._waiting.append((waiter, self.host.pump.scheduler.after(delay, waiter.wake)))

    def _over(self, transfer: Transfer) -> None:
        if transfer.endpoint & 0x80:
            self._buffer[: transfer.actual] = transfer.data
        if transfer.outcome is not Outcome.DONE:
            self.error = _failure_of(transfer, self.host)
        self.actual = transfer.actual
        self.ended = seconds_of(transfer.completed)
        self.done = True
        for waiter, expiry in self._waiting:
            self.host.pump.scheduler.cancel(expiry)
            waiter.wake()


Emulated = TypeVar("Emulated")


class Backend(_Base, Generic[Emulated]):
    """The devices in the ports of some hosts.

    Args:
        hosts: the ports; a device may come and go.
        emulation: what is in the ports, for callers that need the emulation itself.

    Attributes:
        clock: the devices' time, which a wait for one of them must use: the first port's.
        patience: virtual seconds that a search waits for a device that is not attached.
    """

    def __init__(self, hosts: Sequence[Host], emulation: Emulated | None = None) -> None:
        super().__init__()
        self.emulation = emulation
        self.patience = ATTACH_PATIENCE
        self.clock = hosts[0].clock
        self._hosts = tuple(hosts)
        self._known: dict[Host, Device] = {}
        self._addresses = 0
        self._reported: dict[int, str] = {}
        self._lock = threading.Lock()  # over the enumeration of devices

    # -- devices and descriptors ------------------------------------------------------------------------

    def enumerate_devices(self) -> Iterator[Device]:
        """Every attached device; virtual time passes for those that are not, and for their enumeration.

        Raises:
            DeviceFailed: a device does not answer standard requests as it must.
        """
        for port, host in enumerate(self._hosts, 1):
            with self._lock:
                known = self._known.get(host)
                if known is None or not known.present:
                    if not host.wait_attached(self.patience):
                        self._report_missing(port, host)
                        continue
                    known = self._known[host] = Device(host, port, FIRST_ADDRESS + self._addresses)
                    self._addresses = (self._addresses + 1) % (128 - FIRST_ADDRESS)
            yield known

    def get_parent(self, dev: Device) -> None:
        """The hub that a device hangs on: the root hub, which pyusb does not show."""
        return

    def get_device_descriptor(self, dev: Device) -> SimpleNamespace:
        """The device descriptor, and where the device is."""
        descriptor = _descriptor(DEVICE, "<BBHBBBBHHHBBBB", dev.found.device)
        descriptor.bus = BUS
        descriptor.address = dev.address
        descriptor.port_number = dev.port
        descriptor.port_numbers = (dev.port,)
        descriptor.speed = SPEEDS.get(dev.host.speed) if dev.host.speed is not None else None
        return descriptor

    def get_configuration_descriptor(self, dev: Device, config: int) -> SimpleNamespace:
        """The configuration of an index; IndexError past the last."""
        found = self._configuration(dev, config)
        return _descriptor(CONFIGURATION, "<BBHBBBBB", found.raw, found.extra)

    def get_interface_descriptor(self, dev: Device, intf: int, alt: int, config: int) -> SimpleNamespace:
        """An alternate setting by indices; IndexError past the last."""
        found = self._interface(dev, intf, alt, config)
        return _descriptor(INTERFACE, "<9B", found.raw, found.extra)

    def get_endpoint_descriptor(
        self, dev: Device, ep: int, intf: int, alt: int, config: int
    ) -> SimpleNamespace:
        """An endpoint by indices; IndexError past the last."""
        found = self._interface(dev, intf, alt, config).endpoints[ep]
        descriptor = _descriptor(ENDPOINT, "<BBBBHB", found.raw, found.extra)
        descriptor.bRefresh = descriptor.bSynchAddress = 0  # of audio endpoints
        return descriptor

    # -- state of a device ------------------------------------------------------------------------------

    def open_device(self, dev: Device) -> Handle:
        """Open a device."""
        handle = Handle(dev)
        _ = handle.host  # gone?
        return handle

    def close_device(self, dev_handle: Handle) -> None:
        """Close it, and release what it claimed."""
        claims = dev_handle.device.claims
        for number in [number for number, owner in claims.items() if owner is dev_handle]:
            del claims[number]

    def set_configuration(self, dev_handle: Handle, config_value: int) -> None:
        """SET_CONFIGURATION; -1 leaves the device unconfigured, as 0 does."""
        self._request(dev_handle, standard.set_configuration(max(config_value, 0)))
        dev_handle.device.alternates.clear()

    def get_configuration(self, dev_handle: Handle) -> int:
        """The value last set; Linux remembers it too."""
        return dev_handle.host.configuration

    def set_interface_altsetting(self, dev_handle: Handle, intf: int, altsetting: int) -> None:
        """SET_INTERFACE."""
        self._request(dev_handle, standard.set_interface(intf, altsetting))
        dev_handle.device.alternates[intf] = altsetting

    def claim_interface(self, dev_handle: Handle, intf: int) -> None:
        """Claim an interface of the configuration; one handle at a time has it."""
        value = dev_handle.host.configuration
        device = dev_handle.device
        numbers = {
            settings[0].number
            for configuration in device.configurations
            if configuration.value == value
            for settings in configuration.interfaces
        }
        if intf not in numbers:
            raise failure(NOT_FOUND)
        if device.claims.setdefault(intf, dev_handle) is not dev_handle:
            raise failure(BUSY)

    def release_interface(self, dev_handle: Handle, intf: int) -> None:
        """Release an interface, which returns to its first setting if it was in another."""
        device = dev_handle.device
        if device.claims.get(intf) is not dev_handle:
            raise failure(NOT_FOUND)
        del device.claims[intf]
        if device.present and device.alternates.pop(intf, 0):
            self._request(dev_handle, standard.set_interface(intf, 0))

    def clear_halt(self, dev_handle: Handle, ep: int) -> None:
        """CLEAR_FEATURE(ENDPOINT_HALT)."""
        self._request(dev_handle, standard.clear_halt(ep))

    def reset_device(self, dev_handle: Handle) -> None:
        """Reset, enumerate, and restore configuration and settings; NOT_FOUND if it is another device now."""
        host, device = dev_handle.host, dev_handle.device
        configuration = host.configuration
        with _translated():
            found = host.enumerate(device.address, configuration)
        if found != device.found:
            device.attachment = 0  # this one is gone; a search finds the other
            raise failure(NOT_FOUND)
        for interface, alternate in device.alternates.items():
            if alternate:
                self._request(dev_handle, standard.set_interface(interface, alternate))

    def is_kernel_driver_active(self, dev_handle: Handle, intf: int) -> bool:
        """No kernel drives an emulated device."""
        _ = dev_handle.host
        return False

    def detach_kernel_driver(self, dev_handle: Handle, intf: int) -> None:
        """There is none to detach: NOT_FOUND."""
        raise failure(NOT_FOUND)

    def attach_kernel_driver(self, dev_handle: Handle, intf: int) -> None:
        """There is none to attach: NOT_FOUND."""
        raise failure(NOT_FOUND)

    # -- transfers --------------------------------------------------------------------------------------

    def ctrl_transfer(
        self,
        dev_handle: Handle,
        bmRequestType: int,
        bRequest: int,
        wValue: int,
        wIndex: int,
        data: array[int],
        timeout: int,
    ) -> int:
        """A control transfer; data of an IN transfer goes into `data`. Bytes transferred."""
        length = len(data) * data.itemsize
        if length > CONTROL_LIMIT:
            raise failure(INVALID_PARAM)
        setup = Setup(bmRequestType, bRequest, wValue, wIndex, length)
        outgoing = b"" if setup.is_in else data.tobytes()
        host = dev_handle.host
        transfer = host.submit_control(setup, outgoing)
        with contextlib.suppress(TimeoutError):
            host.wait(transfer, timeout=_seconds(timeout))
        if transfer.outcome is not Outcome.DONE:
            raise _failure_of(transfer, host)
        if setup.is_in:
            _fill(data, transfer.data)
        return transfer.actual

    def bulk_write(self, dev_handle: Handle, ep: int, intf: int, data: array[int], timeout: int) -> int:
        """A bulk OUT transfer. Bytes transferred."""
        return self._bulk(dev_handle, ep, data.tobytes(), timeout)[0]

    def bulk_read(self, dev_handle: Handle, ep: int, intf: int, buff: array[int], timeout: int) -> int:
        """A bulk IN transfer into `buff`. Bytes transferred."""
        actual, data = self._bulk(dev_handle, ep, len(buff) * buff.itemsize, timeout)
        _fill(buff, data)
        return actual

    intr_write = bulk_write
    intr_read = bulk_read

    def bulk_submit(self, dev_handle: Handle, ep: int, buffer: memoryview) -> BulkTransfer:
        """Begin a bulk transfer of a buffer, which stays as it is (OUT) or is filled (IN) until the end."""
        return BulkTransfer(dev_handle.host, ep, buffer)

    def bulk_wait(self, transfer: BulkTransfer, seconds: float) -> None:
        """Let virtual time pass until it has ended, at most so much."""
        transfer.wait(seconds)

    def bulk_cancel(self, transfer: BulkTransfer) -> None:
        """Cancel it; what has been transferred stays. Harmless if it has ended."""
        transfer.host.cancel(transfer.transfer)

    # -- inside -----------------------------------------------------------------------------------------

    def _report_missing(self, port: int, host: Host) -> None:
        """Log why a port has no device, as far as that is known, unless it was the same before."""
        why = host.why(None)
        if why and self._reported.get(port) != why:
            log.warning("no device attaches to port %d: %s", port, why)
        self._reported[port] = why

    def _bulk(
        self, handle: Handle, endpoint: int, data_or_length: bytes | int, timeout: int
    ) -> tuple[int, bytearray]:
        host = handle.host
        transfer = host.submit(endpoint, data_or_length)
        with contextlib.suppress(TimeoutError):
            host.wait(transfer, timeout=_seconds(timeout))
        outcome = transfer.outcome
        if outcome is not Outcome.DONE and not (outcome is Outcome.CANCELLED and transfer.actual):
            raise _failure_of(transfer, host)
        return transfer.actual, transfer.data

    def _request(self, handle: Handle, setup: Setup) -> None:
        """A standard request of the host's own."""
        host = handle.host
        with _translated():
            host.control(setup, timeout=standard.PATIENCE)

    @staticmethod
    def _configuration(dev: Device, config: int) -> ConfigurationDescriptor:
        return dev.configurations[config]

    @classmethod
    def _interface(cls, dev: Device, intf: int, alt: int, config: int) -> InterfaceDescriptor:
        return cls._configuration(dev, config).interfaces[intf][alt]


def failure(code: int) -> usb.core.USBError:
    """The exception that pyusb raises for an error of libusb."""
    number, words = ERRORS[code]
    kind = usb.core.USBTimeoutError if code == TIMEOUT else usb.core.USBError
    return kind(words, code, number)


def _failure_of(transfer: Transfer, host: Host) -> usb.core.USBError:
    """The exception for a transfer that has failed; that of a time-out has a note why, if that is known."""
    error = failure(FAILURES[transfer.outcome] if transfer.outcome else NO_DEVICE)
    if transfer.outcome is Outcome.CANCELLED and (why := host.why(transfer.endpoint)):
        error.add_note(why)
    return error


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """What our own control requests can end in, as libusb's errors."""
    try:
        yield
    except Stall:
        raise failure(PIPE) from None
    except TimeoutError as problem:
        error = failure(TIMEOUT)
        for note in getattr(problem, "__notes__", ()):
            error.add_note(note)
        raise error from None
    except ConnectionError:
        raise failure(NO_DEVICE) from None


def _seconds(timeout: int) -> float | None:
    """Of libusb's milliseconds, in which 0 is no time-out."""
    return timeout / 1000 if timeout else None


def _fill(buffer: array[int], data: bytearray) -> None:
    memoryview(buffer).cast("B")[: len(data)] = data


def _descriptor(names: str, layout: str, raw: bytes, extra: bytes = b"") -> SimpleNamespace:
    values = struct.unpack_from(layout, raw)
    return SimpleNamespace(**dict(zip(names.split(), values, strict=True)), extra_descriptors=list(extra))
