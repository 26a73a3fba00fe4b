"""The bus: which devices are there, by pyusb, and which of them a caller means."""

from __future__ import annotations

import contextlib
import errno
import importlib
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sdk.errors import DeviceMissing, EnvironmentMissing, UsageError
from usbgpu.transport import lock
from usbgpu.transport.device_string import DeviceString
from usbgpu.transport.errors import AccessDenied, translated
from usbgpu.transport.identity import KNOWN_IDS, LOADER_SERIAL

STANDARD_IN = 0x80
GET_DESCRIPTOR = 6
STRING = 3
LANGUAGE = 0x0409
"""English (United States), the only language that the bridge's firmwares have strings in."""
LONGEST_STRING = 255
STRING_PATIENCE = 1.0
"""Seconds that a device may take to report its serial number when devices are listed."""

NO_SERIAL = ("", LOADER_SERIAL, "ffffffff")
"""What boards have in common that have no serial number, or whose boot loader runs: our firmware's `ffffffff`
is that of an empty one-time programmable page."""

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
    """The real device that a device string names.

    Raises:
        DeviceMissing: it is not there, or may not be asked for its serial number.
        UsageError: more than one is meant.
    """
    found = devices(None)
    matching = found
    if named.port is not None:
        matching = [device for device in found if place(device) == f"usb-{named.port}"]
    elif named.serial is not None:
        matching, denied = _with_serial(found, named.serial)
        if not matching and denied is not None:
            raise denied
    if not matching:
        hint = f"plugged in: {', '.join(map(_described, found))}" if found else _MISSING
        raise DeviceMissing("no such bridge is plugged in", where=named.text, hint=hint)
    if len(matching) > 1:
        raise UsageError(
            "more than one bridge is plugged in" if matching is found else "several have that serial number",
            where=named.text,
            hint=f"name one by its port, or unplug the others: {', '.join(map(_described, matching))}",
        )
    return matching[0]


def _with_serial(found: Sequence[Any], number: str) -> tuple[list[Any], AccessDenied | None]:
    """Those with a serial number; and why one of them could not be asked, None if all could."""
    matching, denied = [], None
    for device in found:
        try:
            if serial(device) == number:
                matching.append(device)
        except AccessDenied as problem:  # perhaps of another user's board
            denied = problem
    return matching, denied


def _described(device: Any) -> str:
    """A device for a user who has to choose: how to name it, its serial number, and what process has it."""
    text = f"usb:port={place(device).removeprefix('usb-')}"
    notes = []
    with contextlib.suppress(AccessDenied):
        if number := serial(device):
            notes.append(f"serial {number}")
    if holder := lock.holder(place(device)):
        notes.append(f"in use by process {holder}")
    return f"{text} ({', '.join(notes)})" if notes else text


def again(backend: Any, old: Collection[tuple[int, int]], port: str, number: str, search: Any = None) -> Any:
    """The device that has come back, None if it has not yet.

    It is the one in the same port, else the one with its serial number, else the only one that may be it:
    with several boards on a hub that lost its supply, one of the others may be back first.

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
    numbers = [serial(device) for device in found]
    if number in numbers and number not in NO_SERIAL:
        return found[numbers.index(number)]
    if len(found) != 1 or not (number in NO_SERIAL or numbers[0] in NO_SERIAL):
        return None
    return found[0]


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
