"""`towline doctor`: what is installed, what is missing, and how to get it."""

from __future__ import annotations

import argparse
import importlib.util
import platform
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

from sdk import extras, toolchain
from sdk.errors import EnvironmentMissing
from sdk.report import Console, Result, table

if TYPE_CHECKING:
    from usbgpu.transport.sysfs import Plugged

EXAMPLE = "towline doctor"

COMPILE_EXTRA = extras.install("compile")
EMULATOR_EXTRA = extras.install("emulator")
"""From a checkout, until the package is published."""

PACKAGES = {
    "numpy": ("arrays, and the reference", "pip install numpy"),
    "onnx": ("reads and writes models", COMPILE_EXTRA),
    "onnxruntime": ("quantises models", COMPILE_EXTRA),
    "Pillow": ("reads pictures", COMPILE_EXTRA),
    "platformdirs": ("finds the directory of flashing's records", EMULATOR_EXTRA),
    "rich": ("progress bars", COMPILE_EXTRA),
    "cffi": ("loads the emulated bridge's CPU", EMULATOR_EXTRA),
    "pyusb": ("talks to the bridge, emulated or real", "pip install pyusb"),
    "intelhex": ("reads firmware images", EMULATOR_EXTRA),
    "llvmlite": ("runs the emulated GPU's kernels", EMULATOR_EXTRA),
    "pyelftools": ("reads kernels for AMD GPUs", COMPILE_EXTRA),
    "msgpack": ("reads kernels for AMD GPUs, in the emulator", EMULATOR_EXTRA),
    "pyvcd": ("writes waveforms (emulate --vcd)", EMULATOR_EXTRA),
}

SIGNS = {COMPILE_EXTRA: ("onnx", "onnxruntime"), EMULATOR_EXTRA: ("cffi", "intelhex")}
"""Modules of an extra: if one is installed, this install is meant to have the extra."""

RULES = Path(__file__).parents[2] / "firmware" / "60-towline.rules"
UDEV = (
    f"install the udev rule: sudo cp {RULES} /etc/udev/rules.d/ && sudo udevadm control --reload "
    "&& sudo udevadm trigger"
)

COMPILERS = ("clang", "lld")
"""Tools that an install without any extra, which only runs a `.tow`, can do without."""


@dataclass(frozen=True)
class Line:
    """One thing that is needed: a tool, a library or a package."""

    name: str
    version: str | None
    path: str | None
    purpose: str
    required: bool
    problem: str | None
    hint: str | None
    variable: str | None = None


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(args: argparse.Namespace, console: Console) -> Result:
    lines = [*_tools(), *(_package(name) for name in PACKAGES)]
    missing = [line for line in lines if line.problem]
    bridges = _bridges()
    dsps = _dsps()
    document = {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "checks": [asdict(line) for line in lines],
        "bridges": [asdict(bridge) for bridge in bridges],
        "dsps": [{"node": node, "usable": usable} for node, usable, _ in dsps],
    }
    text = table(
        ("", "name", "version", "path", "needed for"),
        [(_mark(line), line.name, line.version or "-", line.path or "-", _purpose(line)) for line in lines],
        least=("path",),
    )
    text += f"\n\nPython {document['python']} on {document['machine']}"
    core = not any(map(_intended, SIGNS))
    if core:
        everything = extras.install("all")
        text += (
            f"\n\nthis runs a .tow on arrays; to quantise, compile, read pictures and emulate: {everything}"
        )
    # An install of the core works without what is optional: one line shows how to get all of it.
    for hint, those in _by_hint(line for line in missing if line.required or not core).items():
        names = ", ".join(line.name for line in those)
        problems = "; ".join(dict.fromkeys(line.problem or "" for line in those))
        text += f"\n\n{names}: {problems}\n  install: {hint}"
    text += "".join(f"\n\n{advice}" for advice in _advice(bridges))
    if dsps and not any(usable for _, usable, _ in dsps):
        node, _, hint = dsps[0]
        text += f"\n\nDSP {node}: no permission to open it\n  {hint}"
    required = [line for line in missing if line.required]
    if not required:
        return Result(document, text)
    return Result(
        document,
        text,
        EnvironmentMissing(
            f"missing: {', '.join(line.name for line in required)}",
            hint="; ".join(dict.fromkeys(line.hint for line in required if line.hint)),
        ),
    )


def _by_hint(missing: Iterable[Line]) -> dict[str | None, list[Line]]:
    """What is missing by the command that installs it, which is printed once."""
    found: dict[str | None, list[Line]] = {}
    for line in missing:
        found.setdefault(line.hint, []).append(line)
    return found


def _bridges() -> list[Plugged]:
    """The bridges that are plugged in; none without pyusb, which the transport needs."""
    if importlib.util.find_spec("usb") is None:
        return []
    from usbgpu.transport import sysfs

    return list(sysfs.bridges())


def _dsps() -> list[tuple[str, bool, str]]:
    """The FastRPC nodes: (path, usable, what to do); none without numpy, which the runtime needs."""
    if importlib.util.find_spec("numpy") is None:
        return []
    from dsp.hexagon.fastrpc.domain import nodes

    return nodes()


def _advice(bridges: list[Plugged]) -> Iterator[str]:
    """What keeps the bridges that are plugged in from working."""
    for bridge in bridges:
        name = f"USB bridge {bridge.name} ({bridge.vendor:04x}:{bridge.product:04x})"
        if not bridge.usable:
            yield f"{name}: no permission to open {bridge.node}\n  {UDEV}"
        elif bridge.suspends:
            yield (
                f"{name}: the kernel may suspend it while nothing is transferred\n  {UDEV}\n"
                f"  or, until it is plugged in again: echo on | sudo tee {bridge.control}"
            )


def _tools() -> list[Line]:
    return [
        Line(
            tool.name,
            tool.version,
            tool.path,
            tool.purpose,
            not tool.optional and (any(map(_intended, SIGNS)) or tool.name not in COMPILERS),
            tool.problem,
            tool.hint,
            tool.variable,
        )
        for tool in toolchain.status()
    ]


def _package(name: str) -> Line:
    purpose, install = PACKAGES[name]
    try:
        found = distribution(name)
    except PackageNotFoundError:
        required = install not in SIGNS or _intended(install)
        return Line(name, None, None, purpose, required, "the Python package is not installed", install)
    return Line(name, found.version, str(found.locate_file("")), purpose, True, None, None)


def _intended(extra: str) -> bool:
    """Whether this install is meant to have an extra."""
    return any(importlib.util.find_spec(module) is not None for module in SIGNS[extra])


def _mark(line: Line) -> str:
    if line.problem is None:
        return "ok"
    return "MISSING" if line.required else "absent"


def _purpose(line: Line) -> str:
    return line.purpose if line.required else f"{line.purpose} (optional)"
