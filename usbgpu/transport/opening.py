"""Opening a device by its device string."""

from __future__ import annotations

from sdk.errors import DeviceMissing
from usbgpu.transport import bus, device_string, libusb
from usbgpu.transport.device import Transport
from usbgpu.transport.device_string import DeviceString
from usbgpu.transport.emulation import EmulatedBackend
from usbgpu.transport.lock import DeviceLock
from usbgpu.transport.plugged import PluggedTransport
from usbgpu.transport.replay import ReplayedTransport


def open(device: str | None = None) -> Transport:
    """Open a device.

    Args:
        device: a device string; None for TOWLINE_DEVICE, or `emulated`.

    Raises:
        UsageError: the string names no device, or more than one.
        InvalidInput: the file to replay is not a trace.
        DeviceMissing: no such device is there, it is in use, or it may not be opened.
        EnvironmentMissing: pyusb or libusb is not installed.
        DeviceFailed: it does not answer as a USB device must.
    """
    named = DeviceString.parse(device)
    if named.kind == device_string.REPLAY:
        return ReplayedTransport(named.rest, named.text)
    if not named.is_real:
        return attach(device_string.backend(named), named.text)
    if named.descriptor is not None:
        return _given(named.descriptor, named.text)
    found = bus.the_one(named)
    return PluggedTransport(found, named.text, None, DeviceLock(bus.place(found)))


def attach(backend: EmulatedBackend, name: str = "emulated") -> Transport:
    """Open the first device of an emulated pyusb backend; only this process has it.

    Args:
        backend: of an emulator.
        name: for messages.

    Raises:
        DeviceMissing: the backend has no device.
        DeviceFailed: it does not answer as a USB device must.
    """
    found = bus.devices(backend)
    if not found:
        raise DeviceMissing("no device is attached", where=name)
    return PluggedTransport(found[0], name, backend, None)


def _given(number: str, name: str) -> Transport:
    """The device of a file descriptor."""
    backend = libusb.wrapped(number)
    try:
        (found,) = bus.devices(backend)
        return PluggedTransport(found, name, backend, DeviceLock(bus.place(found)))
    except BaseException:
        backend.close()
        raise
