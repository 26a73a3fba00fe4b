"""`towline gpu doctor`: what a GPU over USB needs of this machine, what is missing, and how to get it.

Nothing is changed, and no card is opened: of the bridge only its firmware is queried.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from sdk import toolchain
from sdk.errors import DeviceFailed, EnvironmentMissing, TowlineError, UsageError
from sdk.report import Console, Result, table
from towline.cli.doctor import EMULATOR_EXTRA, UDEV
from towline.cli.runtime import add_gpu_device, firmware_directory

if TYPE_CHECKING:
    from usbgpu.transport import DeviceString

SUMMARY = "check what a GPU over USB needs: tools, USB, permissions, the bridge's firmware, the card's"
EXAMPLE = """towline gpu doctor
towline gpu doctor --device usb --chip gfx1201"""

TOOLS = {"clang": "compiles networks for the GPU", "lld": "links them"}
EMULATOR_TOOLS = {"sdcc": "builds the emulated bridge's firmware", "make": "builds it"}


@dataclass(frozen=True)
class Line:
    """One thing that was checked.

    Attributes:
        name: of it.
        found: the finding, as text.
        problem: what is wrong; None for nothing.
        hint: what to do about it.
        needed: whether the device cannot be used without it.
    """

    name: str
    found: str
    problem: str | None = None
    hint: str | None = None
    needed: bool = True


def configure(parser: argparse.ArgumentParser) -> None:
    add_gpu_device(parser)
    parser.add_argument(
        "--chip", metavar="CHIP", help="check the firmware files of this chip, such as gfx1100"
    )


def run(args: argparse.Namespace, console: Console) -> Result:
    from usbgpu.transport import DeviceString

    named = DeviceString.parse(args.device)
    lines = [*_python(named), *_tools(named), *_bridges(named)]
    lines += _firmware_files(args.chip, firmware_directory(args), named)
    lines += _bridge(named, lines)
    bad = [line for line in lines if line.problem]
    document = {"device": named.text, "checks": [asdict(line) for line in lines]}
    shown = table(
        ("", f"for {named.text}", "found"), [(_mark(line), line.name, line.found) for line in lines]
    )
    for hint, lines_with_it in groupby(bad, key=lambda line: line.hint):
        shown += "\n\n" + "\n".join(f"{line.name}: {line.problem}" for line in lines_with_it)
        shown += f"\n  {hint}" if hint else ""
    missing = [line for line in bad if line.needed]
    if not missing:
        return Result(document, shown)
    return Result(
        document,
        shown,
        EnvironmentMissing(
            f"missing or not ready: {', '.join(line.name for line in missing)}",
            where=named.text,
            hint="; ".join(dict.fromkeys(line.hint for line in missing if line.hint)) or None,
        ),
    )


def _mark(line: Line) -> str:
    if line.problem is None:
        return "ok"
    return "MISSING" if line.needed else "note"


def _python(named: DeviceString) -> Iterator[Line]:
    """Python's way to USB, and the library below it; what the emulator needs."""
    if importlib.util.find_spec("usb") is None:
        yield Line("pyusb", "-", "the Python package is not installed", "pip install pyusb")
    else:
        yield Line("pyusb", "installed")
        yield _libusb(named.is_real)
    if named.kind == "emulated":
        absent = [name for name in ("cffi", "intelhex", "llvmlite") if importlib.util.find_spec(name) is None]
        problem = f"these Python packages are not installed: {', '.join(absent)}" if absent else None
        yield Line(
            "the emulator", "-" if absent else "installed", problem, EMULATOR_EXTRA if absent else None
        )


def _libusb(needed: bool) -> Line:
    from usb.backend import libusb1

    if libusb1.get_backend() is not None:
        return Line("libusb", "installed")
    hint = "sudo apt install libusb-1.0-0 (on macOS: brew install libusb)"
    return Line("libusb", "-", "it cannot be loaded; a real bridge needs it", hint, needed)


def _tools(named: DeviceString) -> Iterator[Line]:
    wanted = dict.fromkeys(TOOLS, False)  # a compiled .tow runs without them
    if named.kind == "emulated":
        wanted |= dict.fromkeys(EMULATOR_TOOLS, True)
        wanted |= dict.fromkeys(TOOLS, True)  # the emulator's CPU is compiled too
    for tool in toolchain.status():
        if tool.name in wanted:
            purpose = (TOOLS | EMULATOR_TOOLS)[tool.name]
            problem = f"{tool.problem}; {purpose}" if tool.problem else None
            yield Line(tool.name, tool.version or "-", problem, tool.hint, wanted[tool.name])


def _bridges(named: DeviceString) -> Iterator[Line]:
    """The bridges that Linux sees: may this user open them, and may the kernel suspend them."""
    from usbgpu.transport import sysfs

    bridges = list(sysfs.bridges())
    for bridge in bridges:
        name, found = f"bridge {bridge.name}", f"{bridge.vendor:04x}:{bridge.product:04x}"
        if not bridge.usable:
            yield Line(name, found, f"no permission to open {bridge.node}", UDEV, named.is_real)
        elif bridge.suspends:
            yield Line(
                name,
                found,
                "the kernel may suspend it while nothing is transferred, and the card with it",
                f"{UDEV}, or until it is plugged in again: echo on | sudo tee {bridge.control}",
                needed=False,
            )
        else:
            yield Line(name, f"{found}, may be opened, stays awake")
    if not bridges and named.is_real and named.descriptor is None and sysfs.DEVICES.is_dir():
        yield Line(
            "bridge", "-", "none is plugged in", "plug it in; lsusb shows add1:0001, 3801:0001 or 174c:246x"
        )


def _bridge(named: DeviceString, before: list[Line]) -> Iterator[Line]:
    """What runs on the bridge, if it can be opened."""
    if any(line.problem and line.needed for line in before if not line.name.startswith(_FILES)):
        return  # that is reported already
    from usbgpu import bridge as bridges
    from usbgpu import transport as transports

    name = "bridge's firmware"
    try:
        with transports.open(named.text) as transport:
            report = bridges.describe(transport)
    except (DeviceFailed, EnvironmentMissing) as problem:
        yield Line(name, "-", str(problem), problem.hint)
        return
    found = report.identity
    level = (
        f", API level {found.api_level >> 8}.{found.api_level & 0xFF}" if found.api_level is not None else ""
    )
    yield Line(name, f"{found.running.value}{level}", report.problem or None, report.advice or None)
    slow = not found.speed.is_super
    yield Line(
        "USB link",
        found.speed.value,
        "USB 2: works, slower" if slow else None,
        "plug it into a USB 3 port, with a cable for that" if slow else None,
        needed=False,
    )
    if report.link_up is not None:
        yield Line("PCIe link", "up" if report.link_up else "down: opening the card powers the slot")


def _firmware_files(chip: str | None, directory: Path | None, named: DeviceString) -> list[Line]:
    """Firmware of the cards: each chip's files, and whether they are valid.

    The card is unknown here: with one chip's files some card works.
    """
    from usbgpu.amd import firmware
    from usbgpu.amd.facts.chips import CHIPS

    if chip is not None and chip not in CHIPS:
        raise UsageError(f"no chip is named {chip!r}", hint=f"chips: {', '.join(CHIPS)}")
    lines = []
    for name, known in CHIPS.items() if chip is None else [(chip, CHIPS[chip])]:
        title = f"{_FILES} {name}"
        try:
            loaded = firmware.load(known, directory)
        except TowlineError as problem:
            needed = chip is not None or directory is not None or named.is_real
            lines.append(Line(title, "-", str(problem), problem.hint, needed))
        else:
            lines.append(Line(title, f"{len(firmware.files(known))} files in {loaded.directory}"))
    if any(line.problem is None for line in lines):
        return [line if line.problem is None else replace(line, needed=False) for line in lines]
    return lines


_FILES = "firmware of"
