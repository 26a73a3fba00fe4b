"""The environment variables that Towline reads: the one table of them.

`towline --help` and docs/compile.md show it; code that reads a variable takes its name from here. An option
of a command or an argument of a function takes precedence over its variable.
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """An environment variable.

    Attributes:
        name: of the variable.
        meaning: what it sets, in words.
        default: what applies without it, in words.
        readers: the modules that read it.
    """

    name: str
    meaning: str
    default: str
    readers: tuple[str, ...]

    def value(self) -> str | None:
        """Its value in the environment now; None if it is unset or empty."""
        return os.environ.get(self.name) or None


DEVICE = Setting(
    "TOWLINE_DEVICE", "the device used without --device", "emulated", ("sdk.targets", "usbgpu.transport")
)
FIRMWARE = Setting(
    "TOWLINE_FIRMWARE",
    "directory of an AMD card's firmware files, without --firmware",
    "/lib/firmware/amdgpu",
    ("usbgpu.target", "towline.gpu", "towline.cli"),
)
CACHE = Setting(
    "TOWLINE_CACHE",
    "directory for compiled kernels and other files that are built once",
    "~/.cache/towline",
    ("sdk.cache",),
)
STATE = Setting(
    "TOWLINE_STATE",
    "directory for the backups and journals of flashing",
    "~/.local/state/towline",
    ("usbgpu.flash",),
)
LOCKS = Setting(
    "TOWLINE_LOCKS",
    "directory for the locks of real devices, the same for all processes that may use one",
    "/run/lock, else XDG_RUNTIME_DIR, else the directory for temporary files",
    ("usbgpu.transport",),
)
COVERAGE = Setting(
    "TOWLINE_COVERAGE",
    "file that gets the firmware coverage of all emulated boards",
    "none",
    ("emulator.coverage", "emulator.board"),
)

CLANG = Setting("TOWLINE_CLANG", "clang, version 19 or newer", "found on PATH", ("sdk.toolchain",))
LLD = Setting("TOWLINE_LLD", "ld.lld, version 19 or newer", "found on PATH", ("sdk.toolchain",))
CC = Setting("TOWLINE_CC", "C compiler of the target c", "clang, gcc or cc on PATH", ("sdk.toolchain",))
QEMU_HEXAGON = Setting("TOWLINE_QEMU_HEXAGON", "qemu-hexagon", "found on PATH", ("sdk.toolchain",))
SDCC = Setting("TOWLINE_SDCC", "sdcc", "found on PATH", ("sdk.toolchain",))
MAKE = Setting("TOWLINE_MAKE", "GNU make", "make or gmake on PATH", ("sdk.toolchain",))
SDAS8051 = Setting("TOWLINE_SDAS8051", "sdas8051, sdcc's assembler", "found on PATH", ("sdk.toolchain",))
S51 = Setting("TOWLINE_S51", "s51, the 8051 simulator of uCsim", "found on PATH", ("sdk.toolchain",))
DOT = Setting("TOWLINE_DOT", "dot of Graphviz", "found on PATH", ("sdk.toolchain",))
SIGNERS = Setting(
    "TOWLINE_REQUIRE_SIGNATURE",
    "file of trusted keys: a .tow, and what `firmware flash` writes, must be signed by one of them",
    "none: unsigned files are taken",
    ("sdk.artifact", "towline.cli"),
)
ADB = Setting("TOWLINE_ADB", "adb of Android's platform tools", "found on PATH", ("sdk.toolchain",))
SSH = Setting("TOWLINE_SSH", "ssh of OpenSSH", "found on PATH", ("sdk.toolchain",))

SETTINGS = (
    *(DEVICE, FIRMWARE, CACHE, STATE, LOCKS, COVERAGE, SIGNERS),
    *(CLANG, LLD, CC, QEMU_HEXAGON, SDCC, MAKE, SDAS8051, S51, DOT, ADB, SSH),
)
"""All of them, in the order in which they are shown."""
