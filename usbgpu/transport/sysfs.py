"""What Linux knows of the bridges that are plugged in, without opening them, and whether it suspends them.

From the attributes of USB devices in sysfs (Documentation/ABI/testing/sysfs-bus-usb). On another system
nothing is found.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from usbgpu.transport.identity import KNOWN_IDS, Running, classify

DEVICES = Path("/sys/bus/usb/devices")
NODES = Path("/dev/bus/usb")
PROCESSES = Path("/proc")
MOUNTS = Path("/proc/self/mountinfo")
LINK_INFO = "portli"
LINK_ERRORS = 0xFFFF
"""The field Link Error Count of PORTLI."""


@dataclass(frozen=True, slots=True)
class Plugged:
    """A bridge that is plugged in.

    Attributes:
        name: the kernel's, bus and ports: `2-1.4`.
        vendor: idVendor.
        product: idProduct.
        node: the device's file.
        usable: whether this user may open it.
        suspends: whether the kernel may suspend it when it is idle.
        serial: its serial number as the kernel read it, "" if it has none.
        running: what runs on it, by its descriptors.
        release: bcdDevice.
        speed: of the link in Mb/s, as the kernel writes it; "" if unknown.
    """

    name: str
    vendor: int
    product: int
    node: Path
    usable: bool
    suspends: bool
    serial: str = ""
    running: Running = Running.UNKNOWN
    release: int = 0
    speed: str = ""

    @property
    def control(self) -> Path:
        """The attribute that says whether it may be suspended: `auto` or `on`."""
        return DEVICES / self.name / "power" / "control"


def bridges(devices: Path = DEVICES, nodes: Path = NODES) -> Iterator[Plugged]:
    """The bridges, in order of their names.

    Args:
        devices: where sysfs has the USB devices.
        nodes: where their files are.
    """
    for path in sorted(devices.glob("[0-9]*-*")):
        try:
            ids = int(_read(path, "idVendor"), 16), int(_read(path, "idProduct"), 16)
            node = nodes / f"{int(_read(path, 'busnum')):03}" / f"{int(_read(path, 'devnum')):03}"
            control = _read(path, "power/control")
            release = int(_optional(path, "bcdDevice") or "0", 16)
        except (OSError, ValueError):  # an interface, or a device that has just gone
            continue
        if ids in KNOWN_IDS:
            yield Plugged(
                path.name,
                *ids,
                node,
                os.access(node, os.R_OK | os.W_OK),
                control == "auto",
                _optional(path, "serial"),
                _running(devices, path, ids),
                release,
                _optional(path, "speed"),
            )


def users(node: Path, processes: Path = PROCESSES) -> list[tuple[int, str]]:
    """Number and name of the processes that have a device's file open; for root those of all users.

    Args:
        node: the file.
        processes: proc(5).
    """
    found = []
    for process in processes.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if any(os.readlink(file) == str(node) for file in (process / "fd").iterdir()):
                found.append((int(process.name), _optional(process, "comm")))
    return sorted(found)


def _running(devices: Path, path: Path, ids: tuple[int, int]) -> Running:
    """What runs on a device that is configured; unknown of one that is not."""
    interface = next(iter(sorted(devices.glob(f"{path.name}:*.0"))), None)
    if interface is None:
        return Running.UNKNOWN
    manufacturer, product, serial = (_optional(path, name) for name in ("manufacturer", "product", "serial"))
    kind = int(_optional(interface, "bInterfaceClass") or "0", 16)
    return classify(*ids, manufacturer, product, serial, kind)


def mounted(name: str, devices: Path = DEVICES, mounts: Path = MOUNTS) -> list[str]:
    """Where disks behind a device are mounted; a swap area or a volume on top of one is not seen.

    Args:
        name: the kernel's, as in `Plugged`.
        devices: where sysfs has the USB devices.
        mounts: proc_pid_mountinfo(5).
    """
    try:
        disks = [path.parent for path in (devices / name).resolve().glob("**/block/**/dev")]
        numbers = {_read(disk, "dev") for disk in disks}
        files = {f"/dev/{disk.name}" for disk in disks}
        lines = [line.split() for line in mounts.read_text().splitlines()] if disks else []
    except OSError:  # it has just gone, or the system has no such files
        return []
    # Some file systems have a number of their own; then the source, second after the dash, identifies it.
    return [line[4] for line in lines if line[2] in numbers or line[line.index("-") + 2] in files]


def link_errors(place: str, devices: Path | None = None) -> int | None:
    """How many errors the host controller has counted on the link of a device, modulo 2^16.

    It is the Link Error Count of the xHCI register PORTLI (5.4.10), which kernels of comma's devices show as
    a file `portli` of the host controller (trace: commaai/agnos-kernel-sdm845 pull request 125), found here
    by walking up from the device. Other kernels have no such file.

    Args:
        place: of the device, as in `Transport.place`.
        devices: where sysfs has the USB devices.

    Returns:
        None where the count is not shown, or not to this user.
    """
    path = (devices or DEVICES) / place.removeprefix("usb-")
    try:
        parents = path.resolve(strict=True).parents
    except OSError:
        return None
    for parent in parents:
        with contextlib.suppress(OSError, ValueError):
            return int(_read(parent, LINK_INFO).split()[0], 0) & LINK_ERRORS
    return None


class KeptAwake:
    """Keeps the kernel from suspending a device until `release`, if the user has the right.

    A suspended bridge loses its PCIe link. So may it with a hub, or a host controller, that is suspended
    above it (trace: the dock's own updater switches that off too): all of them are kept awake. Without
    the right to write, `towline doctor` says what to do.

    Args:
        name: the kernel's, as in `Plugged`.
        devices: where sysfs has the USB devices.
    """

    def __init__(self, name: str, devices: Path | None = None) -> None:
        self._before: dict[Path, str] = {}
        try:
            device = ((devices or DEVICES) / name).resolve(strict=True)
        except OSError:  # it has just gone, or the system has no such files
            return
        for path in (device, *device.parents):
            control = path / "power" / "control"
            with contextlib.suppress(OSError):
                if control.read_text().strip() == "auto":
                    control.write_text("on")
                    self._before[control] = "auto"

    def release(self) -> None:
        """Restore the settings. Idempotent; harmless if the device is gone."""
        before, self._before = self._before, {}
        for path, setting in before.items():
            with contextlib.suppress(OSError):
                path.write_text(setting)


def _optional(path: Path, attribute: str) -> str:
    """An attribute, "" if it is not there."""
    try:
        return _read(path, attribute)
    except (OSError, ValueError):
        return ""


def _read(path: Path, attribute: str) -> str:
    return (path / attribute).read_text().strip()
