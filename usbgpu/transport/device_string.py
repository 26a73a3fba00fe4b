"""What a device string names, and how it is found.

    usb               the only bridge on the bus
    usb:SERIAL        the one with that serial number; also usb:serial=SERIAL
    usb:port=2-1.4    the one in that port: bus, and ports on the way, as Linux and `towline devices` name it
    usb:fd=N          the one whose file is open already as descriptor N, as Android hands it out
    replay:FILE       a recording (`trace`): answers the same calls in the same order as the device did
    NAME, NAME:SPEC   what the entry point NAME of the group `towline.devices` makes: an `EmulatedBackend`
                      with one device. The emulator offers `emulated` and `emulated:IMAGE`, and behind either
                      options such as `?speed=high` (see emulator/board.py).

Without a string the environment variable TOWLINE_DEVICE counts, and without that `emulated`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sdk import settings
from sdk.entries import entries
from sdk.errors import EnvironmentMissing, UsageError
from usbgpu.transport.emulation import EmulatedBackend

DEFAULT = "emulated"
REAL = "usb"
REPLAY = "replay"
DESCRIPTOR, SERIAL, PORT = "fd=", "serial=", "port="
PORT_FORM = re.compile(r"[0-9]+-[0-9]+(\.[0-9]+)*")
GROUP = "towline.devices"


@dataclass(frozen=True, slots=True)
class DeviceString:
    """A parsed device string.

    Attributes:
        text: all of it.
        kind: the part before the first colon or question mark.
        rest: the part after a colon, "" for nothing.
    """

    text: str
    kind: str
    rest: str

    @classmethod
    def parse(cls, text: str | None = None) -> DeviceString:
        """Parse a device string; None for the default.

        Raises:
            UsageError: there is no such kind of device.
        """
        chosen = text if text is not None else settings.DEVICE.value() or DEFAULT
        place, _, _ = chosen.partition("?")
        kind, colon, rest = place.partition(":")
        known = kinds()
        if kind == REPLAY:  # a file's name may hold anything
            place, rest = chosen, chosen.partition(":")[2]
        if kind not in known or (colon and not rest) or (kind == REPLAY and not rest):
            raise UsageError(
                f"{chosen!r} is not a device string of a bridge",
                hint=f"devices: {', '.join(known)}; usb:SERIAL, usb:port=2-1.4, usb:fd=N, emulated:IMAGE, "
                "replay:FILE",
            )
        named = cls(chosen, kind, rest)
        if named.port is not None and not PORT_FORM.fullmatch(named.port):
            raise UsageError(
                f"{named.port!r} is not a port",
                where=chosen,
                hint="`towline devices` shows it: the bus, a dash, and ports joined by dots, as in 2-1.4",
            )
        if named.is_real and named.rest == SERIAL:
            raise UsageError("the serial number is missing", where=chosen, hint="usb:serial=00c0ffee")
        return named

    @property
    def is_real(self) -> bool:
        """Whether it is a device on the machine's own bus."""
        return self.kind == REAL

    @property
    def port(self) -> str | None:
        """The port of a real device, as Linux names it; None if none was given."""
        given = self.is_real and self.rest.startswith(PORT)
        return self.rest.removeprefix(PORT) if given else None

    @property
    def serial(self) -> str | None:
        """The serial number of a real device; None if none was given."""
        if not self.is_real or not self.rest or self.port is not None or self.descriptor is not None:
            return None
        return self.rest.removeprefix(SERIAL)

    @property
    def descriptor(self) -> str | None:
        """The file descriptor that a real device was given as, as it was written; None for others."""
        given = self.is_real and self.rest.startswith(DESCRIPTOR)
        return self.rest.removeprefix(DESCRIPTOR) if given else None


def kinds() -> list[str]:
    """What a device string can begin with."""
    return [REAL, REPLAY, *sorted(entries(GROUP).names)]


def backend(device: DeviceString) -> EmulatedBackend:
    """The pyusb backend of an emulated device.

    Raises:
        EnvironmentMissing: what makes the device is not installed.
        TowlineError: it could not be made; the error comes from its package.
    """
    (entry,) = entries(GROUP).select(name=device.kind)
    try:
        made: EmulatedBackend = entry.load()(device.text)
        return made
    except ImportError as problem:
        raise EnvironmentMissing(
            f"the device {device.kind!r} is not installed: {problem}", hint="pip install 'towline[emulator]'"
        ) from problem
