"""Firmware images that the emulator runs by name, built from source on first use.

`firmware` is the product of this project (`firmware/asm2464pd/src`), a vendor-class device in C, driven by
interrupts; `vendor` is the same with requests that test a USB host (`selftest`). `storage` is a
mass-storage-class device in assembly, polling, that shares nothing with it but the chip. `calibration`, on
the same assembly kit, moves dwords over PCIe in the loops that the virtual clock was fitted to. All are
written for the ASM2464PD as `firmware/asm2464pd` describes it, and know nothing of the emulator. `maker`, a
mass-storage-class device in C, boots through the registers in the order of the maker's own firmware; it names
them by number, and so checks those facts.

A built image is kept in the user's cache, under a name made of everything that determines it: the sources,
the facts, the flags and the versions of the tools.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from emulator.images.facts import generated
from firmware import build as product
from sdk import cache, toolchain
from sdk.errors import InternalError, ToolMissing, UsageError
from sdk.extras import require
from sdk.files import scratch_directory, write

SOURCES = Path(__file__).parent

ASSEMBLE_FLAGS = ("-plosgffwy",)

COMPILE_FLAGS = (
    *("-mmcs51", "--model-small", "--std-sdcc11", "--debug", "--opt-code-size", "--peep-return", "--Werror"),
    "--nooverlay",  # an interrupt handler's functions must not share memory with those that it interrupts
)

LINK_FLAGS = ("-mmcs51", "--model-small", "--debug", "--xram-loc", "0x0001", "--xram-size", "0x5fff")
"""XRAM is 24 KiB at address 0; its first byte stays free, so that no object has the null address."""

CACHE = "firmware"
"""The cache's directory of images."""

TIMEOUT = 120.0
"""Wall seconds after which a compiler that hangs is given up."""


@dataclass(frozen=True, slots=True)
class Built:
    """The files of a built image.

    Attributes:
        name: of the image.
        ihx: Intel HEX.
        bin: the code from address 0 to its last byte.
        map: the linker's map.
        cdb: debug records of functions, variables and lines.
    """

    name: str
    ihx: Path
    bin: Path
    map: Path
    cdb: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.ihx, self.bin, self.map, self.cdb


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an image is made of.

    Attributes:
        directories: below this package; all their headers and includes are in reach.
        units: the files that are assembled or compiled, and linked, in this order; of C the first has `main`.
    """

    directories: tuple[str, ...]
    units: tuple[str, ...]


EXTRAS: Mapping[str, Path | None] = {"firmware": None, "vendor": SOURCES / "selftest" / "selftest.c"}
"""Images of the product by name, each with what is linked in the place of its `extra.c`."""
RECIPES: Mapping[str, Recipe] = {
    "storage": Recipe(
        ("kit", "storage"),
        ("start.asm", "transport.asm", "scsi.asm", "descriptors.asm", "link.asm", "control.asm"),
    ),
    "calibration": Recipe(
        ("kit", "calibration"),
        ("start.asm", "stream.asm", "pcie.asm", "descriptors.asm", "link.asm", "control.asm"),
    ),
    "maker": Recipe(
        ("maker",),
        (
            "main.c",
            *("control.c", "descriptors.c", "engine.c", "flash.c", "interrupt.c", "link.c", "queues.c"),
            *("scsi.c", "standard.c", "timer.c", "transport.c", "vendor.c"),
        ),
    ),
}
"""Images of the emulator's own by name."""
IMAGES = (*EXTRAS, *RECIPES)
"""The names of all images."""


def build(name: str) -> Built:
    """An image's files, compiled if the cache does not have them.

    Raises:
        UsageError: there is no image of that name.
        ToolMissing: sdcc or make is not there.
        BuildFailed: a source was refused; the message is the compiler's own.
        OutputFailed: the cache cannot be written.
    """
    if name in EXTRAS:
        made = product.build(EXTRAS[name])
        return Built(name, made.ihx, made.bin, made.map, made.cdb)
    recipe = RECIPES.get(name)
    if recipe is None:
        raise UsageError(f"there is no image named {name!r}", hint=f"images: {', '.join(IMAGES)}")
    sources = _sources(recipe)
    home = cache.directory(CACHE) / f"{name}-{_digest(recipe, sources)}"
    built = _files(name, home)
    if not cache.has_files(home, (path.name for path in built.paths)):
        _build(recipe, sources, built)
    return built


def source_directories(name: str, image: Path | None = None) -> tuple[Path, ...]:
    """Directories with the C and the headers of an image; none of one that is not known, or in assembly.

    Args:
        name: of the image, or anything.
        image: its file; the .cdb beside it says whether it is of the product as it is now.
    """
    if name in RECIPES:
        return tuple(SOURCES / directory for directory in RECIPES[name].directories)
    for known, extra in EXTRAS.items():
        if name == known or (image is not None and _is_symbols_of(image.with_suffix(".cdb"), extra)):
            return (product.SOURCES, product.INCLUDE, *(() if extra is None else (extra.parent,)))
    return ()


def _is_symbols_of(cdb: Path, extra: Path | None) -> bool:
    try:
        return product.is_symbols_of(cdb, extra)
    except (OSError, ToolMissing):
        return False


def _files(name: str, home: Path) -> Built:
    return Built(name, *(home / f"{name}.{suffix}" for suffix in ("ihx", "bin", "map", "cdb")))


def _sources(recipe: Recipe) -> dict[str, bytes]:
    """Everything the compiler may see, by file name."""
    written = {
        path.name: path.read_bytes()
        for directory in recipe.directories
        for path in sorted((SOURCES / directory).iterdir())
        if path.suffix in {".asm", ".inc", ".c", ".h"}
    }
    made = {file: text.encode() for file, text in generated().items()}
    if clash := written.keys() & made.keys():
        raise InternalError(f"{', '.join(clash)}: written and generated", where=", ".join(recipe.directories))
    return written | made


def _digest(recipe: Recipe, sources: Mapping[str, bytes]) -> str:
    tools = [toolchain.version(tool) for tool in ("sdcc", "sdas8051")]
    facts: list[str | bytes] = [*tools, *LINK_FLAGS, *ASSEMBLE_FLAGS, *COMPILE_FLAGS, *recipe.units]
    for file, content in sorted(sources.items()):
        facts += [file, content]
    return cache.digest(facts)


def _objects(units: Iterable[str], scratch: Path) -> list[str]:
    """Assemble or compile the units side by side; the names of their objects."""

    def make(unit: str) -> str:
        target = f"{Path(unit).stem}.rel"
        if unit.endswith(".c"):
            toolchain.run("sdcc", [*COMPILE_FLAGS, "-c", unit, "-o", target], cwd=scratch, timeout=TIMEOUT)
        else:
            toolchain.run("sdas8051", [*ASSEMBLE_FLAGS, target, unit], cwd=scratch, timeout=TIMEOUT)
        return target

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(make, units))


def _build(recipe: Recipe, sources: Mapping[str, bytes], target: Built) -> None:
    """Assemble, link, and put the results into the cache, each whole or not at all.

    Several processes may do so at once: the same sources give the same bytes.
    """
    with scratch_directory() as scratch:
        for file, content in sources.items():
            write(scratch / file, content)
        objects = _objects(recipe.units, scratch)
        linked = _files(target.name, scratch)
        toolchain.run("sdcc", [*LINK_FLAGS, *objects, "-o", linked.ihx.name], cwd=scratch, timeout=TIMEOUT)
        image = require("intelhex", extra="emulator").IntelHex(str(linked.ihx))
        write(linked.bin, image.tobinstr(start=0))
        cache.keep_files(target.ihx.parent, {path.name: path for path in linked.paths})
