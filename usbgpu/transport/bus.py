"""The bus: which devices are there, by pyusb, and which of them a caller means."""

from __future__ import annotations

import contextlib
import errno
import importlib
import math
from collections.abc import Collection, Iterator
from typing import Any

from sdk.errors import DeviceMissing, EnvironmentMissing, UsageError
from usbgpu.transport.device_string import DeviceString
from usbgpu.transport.errors import translated
from usbgpu.transport.identity import KNOWN_IDS

STANDARD_IN = 0x80
GET_DESCRIPTOR = 6
STRING = 3
LANGUAGE = 0x0409
"""English (United States), the only language that the bridge's firmwares have strings in."""
LONGEST_STRING = 255
STRING_PATIENCE = 1.0
"""Seconds that a device may take to report its serial number when devices are listed."""

_MISSING = "plug it in, look for it with lsusb, and see `towline doctor`; `emulated` needs no hardware"


def pyusb() -> Any:
    """The package `usb` with its modules.

    Raises:
        EnvironmentMissing: it is not installed.
    """
    try:
        for module in ("usb.core", "usb.util"):
            importlib.import_module(module)
        return importlib.import_module("usb")
    except ImportError as problem:
        message = f"pyusb cannot be imported: {problem}"
        raise EnvironmentMissing(message, hint="pip install pyusb") from problem


def devices(backend: Any, search: Any = None) -> list[Any]:
    """The devices of a backend; of the machine's own bus (None), those that may be a bridge.

    Args:
        backend: of pyusb.
        search: a backend that looks for devices in its place.
    """
    try:
        with translating("the USB bus"):
            found = list(pyusb().core.find(find_all=True, backend=backend or search))
    except pyusb().core.NoBackendError as problem:
        raise EnvironmentMissing(
            "libusb cannot be loaded", hint="apt-get install libusb-1.0-0 (on macOS: brew install libusb)"
        ) from problem
    if backend is not None:
        return found
    return [device for device in found if (device.idVendor, device.idProduct) in KNOWN_IDS]


def the_one(named: DeviceString) -> Any:
    """The real device that a device string names."""
    found = devices(None)
    if named.rest:
        serials = [serial(device) for device in found]
        matching = [device for device, serial in zip(found, serials, strict=True) if serial == named.rest]
        hint = f"plugged in: {', '.join(filter(None, serials))}" if any(serials) else _MISSING
    else:
        matching, hint = found, _MISSING
    if not matching:
        raise DeviceMissing("no such bridge is plugged in", where=named.text, hint=hint)
    if len(matching) > 1:
        choices = ", ".join(f"usb:{serial(device)} ({place(device)})" for device in matching)
        raise UsageError(
            "more than one bridge is plugged in",
            where=named.text,
            hint=f"name one, or unplug the others: {choices}",
        )
    return matching[0]


def again(backend: Any, old: Collection[tuple[int, int]], port: str, number: str, search: Any = None) -> Any:
    """The device that has come back, None if it has not yet.

    Args:
        backend: as in `devices`.
        old: bus and address of the one that left and of all others.
        port: its `place`.
        number: its serial number, "" if it has none.
        search: as in `devices`.
    """
    found = [device for device in devices(backend, search) if (device.bus, device.address) not in old]
    for device in found:
        if place(device) == port:
            return device
    matching = [device for device in found if number and serial(device) == number]
    if matching:
        return matching[0]
    return found[0] if len(found) == 1 else None


def place(device: Any) -> str:
    """Where a device is plugged in: bus and ports on the way, as in `usb-2-1.4`."""
    ports = ".".join(map(str, device.port_numbers or (device.address,)))
    return f"usb-{device.bus}-{ports}"


def serial(device: Any) -> str:
    """The serial number of a device that need not be open, "" if it has none.

    Raises:
        AccessDenied: it may not be opened.
    """
    if not device.iSerialNumber:
        return ""
    try:
        raw = device.ctrl_transfer(
            STANDARD_IN,
            GET_DESCRIPTOR,
            STRING << 8 | device.iSerialNumber,
            LANGUAGE,
            LONGEST_STRING,
            milliseconds(STRING_PATIENCE),
        )
    except pyusb().core.USBError as problem:
        if problem.errno in (errno.EACCES, errno.EPERM):
            raise translated(problem, place(device)) from problem
        return ""
    return bytes(raw[2:]).decode("utf-16-le", "replace")


def milliseconds(seconds: float) -> int:
    """For libusb, where 0 means no limit."""
    return max(1, math.ceil(seconds * 1000))


@contextlib.contextmanager
def translating(where: str, timeout: float | None = None) -> Iterator[None]:
    """Errors of pyusb as the SDK's, for a transfer or a request with that time-out in seconds."""
    try:
        yield
    except pyusb().core.USBError as problem:
        raise translated(problem, where, timeout) from problem
