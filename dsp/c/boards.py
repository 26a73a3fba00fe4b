"""Microcontrollers: the classes that `towline export --profile` knows, and the files for a bare board."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dsp.c.plan import CPlan
from sdk.errors import Unsupported, UsageError

FILES = Path(__file__).parent / "board"

CODE_BYTES = 64 << 10
"""Of flash: kernels, the program around them and newlib together take less."""


@dataclass(frozen=True)
class Profile:
    """A class of microcontrollers, and a board of it that qemu-system-arm emulates.

    Attributes:
        flags: of gcc.
        machine: of qemu-system-arm.
        hertz: of the emulated board's processor, by which SysTick counts.
        flash, ram: bytes of a usual part of the class.
        flash_origin, ram_origin: of the emulated board.
        vectors: where the vector table is, if not at the beginning of flash.
    """

    flags: str
    machine: str
    hertz: int
    flash: int
    ram: int
    flash_origin: int = 0
    ram_origin: int = 0x2000_0000
    vectors: int | None = None


PROFILES: Mapping[str, Profile] = {
    "cortex-m4": Profile("-mcpu=cortex-m4 -mfpu=fpv4-sp-d16", "mps2-an386", 25_000_000, 1 << 20, 192 << 10),
    "cortex-m7": Profile("-mcpu=cortex-m7 -mfpu=fpv5-sp-d16", "mps2-an500", 25_000_000, 2 << 20, 512 << 10),
    "cortex-m55": Profile(
        "-mcpu=cortex-m55", "mps3-an547", 32_000_000, 2 << 20, 2 << 20, 0x0100_0000, 0x2100_0000, vectors=0
    ),
}
"""Boards: QEMU's documentation of them (docs/system/arm/mps2.rst), run. Sizes: of an STM32F407, an STM32F767
and, for the M55, of the emulated board (published: their data sheets)."""


def named(name: str) -> Profile:
    """Raises UsageError: there is none of this name."""
    found = PROFILES.get(name)
    if found is None:
        hint = f"one of {', '.join(PROFILES)}"
        raise UsageError(f"no profile named {name!r}", where="--profile", hint=hint)
    return found


def board_files(name: str, profile: Profile, plan: CPlan, stack: int) -> dict[str, str]:
    """Texts of the files that a bare board needs, by name; the Makefile is for it.

    Raises:
        Unsupported: the network does not fit its flash or RAM.
    """
    weights, arena = plan.memory["weights"], plan.memory["arena"]
    for what, needed, size, parts in (
        ("flash", weights + CODE_BYTES, profile.flash, f"{weights:,} of constants, {CODE_BYTES:,} of code"),
        ("RAM", arena + stack, profile.ram, f"{arena:,} of arena, {stack:,} of stack"),
    ):
        if needed > size:
            raise Unsupported(
                f"it needs {needed:,} bytes of {what} ({parts}); the part has {size:,}",
                hint=f"a smaller network, or --{what.lower()} SIZE for a larger part",
            )
    vectors = '}\nREGION_ALIAS("VECTORS", FLASH)'
    if profile.vectors is not None:
        vectors = f"  VECTORS (r) : ORIGIN = {profile.vectors:#x}, LENGTH = 1K\n}}"
    layout = (FILES / "board.ld").read_text()
    for place, value in (
        ("FLASH_ORIGIN", f"{profile.flash_origin:#x}"),
        ("FLASH", f"{profile.flash:#x}"),
        ("RAM_ORIGIN", f"{profile.ram_origin:#x}"),
        ("RAM", f"{profile.ram:#x}"),
        ("VECTORS", vectors),
    ):
        layout = layout.replace(f"@{place}@", value)
    return {
        "board.c": (FILES / "board.c").read_text(),
        "board.ld": layout,
        "Makefile": _makefile(name, profile),
    }


def _makefile(name: str, profile: Profile) -> str:
    objects = f"{name}_main.o {name}.o {name}_weights.o board.o"
    return f"""\
# make check runs it on an emulated board, {profile.machine}; make count counts its instructions there
CC = arm-none-eabi-gcc
CFLAGS ?= -O3
MACHINE = {profile.flags} -mthumb -mfloat-abi=hard
STRICT = -std=c11 -Wall -Wextra $(MACHINE) -DBOARD_HERTZ={profile.hertz}
BOARD = qemu-system-arm -M {profile.machine} -nographic -monitor none -serial none -kernel {name}_main.elf
HOST = -semihosting-config enable=on,target=native,arg={name}_main

{name}_main.elf: {objects} board.ld
\t$(CC) $(MACHINE) $(CFLAGS) $(LDFLAGS) --specs=rdimon.specs -T board.ld -o $@ {objects} -lm
\tarm-none-eabi-size $@

%.o: %.c
\t$(CC) $(STRICT) $(CFLAGS) -ffp-contract=off -c -o $@ $<

{name}.o {name}_main.o: {name}.h

check: {name}_main.elf
\t$(BOARD) $(HOST),arg={name}_check.input,arg={name}_check.found </dev/null
\t$(BOARD) $(HOST),arg=-c,arg={name}_check.found,arg={name}_check.output </dev/null

# millions of instructions of an inference: by -icount shift=0 each takes a nanosecond of the board's clock
count: {name}_main.elf
\t$(BOARD) -icount shift=0 $(HOST),arg=-t,arg=1,arg={name}_check.input </dev/null

clean:
\trm -f {name}_main.elf {objects} {name}_check.found

.PHONY: check count clean
"""
