"""Builds the bridge's firmware: compiles `asm2464pd/src` with its Makefile, and wraps the code for the flash.

A build depends only on the sources and the versions of the tools; the same ones give the same bytes. Builds
are kept in the user's cache, under a digest of everything they depend on.
"""

from __future__ import annotations

import filecmp
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from firmware.asm2464pd import image
from sdk import cache, toolchain
from sdk.errors import BuildFailed
from sdk.files import scratch_directory, write

SOURCES = Path(__file__).parent / "asm2464pd" / "src"
INCLUDE = SOURCES.parent / "include"

NAME = "firmware"
"""Base name of the files that the Makefile makes."""
CACHE = "firmware"
"""The cache's directory of images."""
TIMEOUT = 300.0
"""Wall seconds after which a build that hangs is stopped."""
TOOLS = ("sdcc", "sdas8051")
"""The tools whose versions the result depends on."""

CODE_AREAS = frozenset(("HOME", "GSINIT", "GSFINAL", "CSEG", "CONST", "XINIT", "CABS"))
"""The assembler's areas that take space in the image."""
XRAM_AREAS = frozenset(("XSEG", "XISEG", "PSEG"))
IRAM_AREAS = frozenset(("DSEG", "OSEG", "ISEG", "BIT_BANK"))
_POINTER = re.compile(r"^\t(?:mov\t.*,#\(?|\.byte )_(\w+)", re.MULTILINE)
"""In assembly: a name's address as a constant or in a table."""
_AREA = re.compile(r"^A (\w+) size ([0-9A-Fa-f]+) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Built:
    """The files of a build.

    Attributes:
        ihx: Intel HEX.
        bin: the code from address 0 to its last byte.
        map: the linker's map.
        cdb: debug records of functions, variables and lines.
        rst: the linker's listings of all modules, one after another.
        image: the code wrapped, as it is in flash.
        sizes: read by `sizes`.
        pointers: read by `pointers`.
    """

    ihx: Path
    bin: Path
    map: Path
    cdb: Path
    rst: Path
    image: Path
    sizes: Path
    pointers: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        """All the files."""
        return self.ihx, self.bin, self.map, self.cdb, self.rst, self.image, self.sizes, self.pointers


@dataclass(frozen=True, slots=True)
class Size:
    """The memory that a module takes.

    Attributes:
        module: its name; `(library)` for the compiler's start-up code and helpers.
        code: bytes of the image.
        xram: bytes of external RAM.
        iram: bytes of internal RAM, without the stack.
    """

    module: str
    code: int
    xram: int
    iram: int


def build(extra: Path | None = None) -> Built:
    """The firmware's files, compiled if they are not in the cache.

    Args:
        extra: a C file that replaces `extra.c`, for test images.

    Raises:
        ToolMissing: make or sdcc is not there.
        BuildFailed: sdcc refused a source; the message is its own.
        OutputFailed: the cache cannot be written.
    """
    built = _kept(extra)
    home = built.ihx.parent
    if not cache.has_files(home, (path.name for path in built.paths)):
        with scratch_directory() as scratch:
            made = compile_into(scratch, extra)
            cache.keep_files(home, {path.name: path for path in made.paths})
    return built


def is_symbols_of(cdb: Path, extra: Path | None = None) -> bool:
    """Whether a .cdb is that of what `build` gives, byte for byte; False if that is not built yet.

    Raises:
        ToolMissing: sdcc is not there.
    """
    kept = _kept(extra).cdb
    return kept.exists() and cdb.is_file() and filecmp.cmp(cdb, kept, shallow=False)


def compile_into(directory: Path, extra: Path | None = None) -> Built:
    """Compile the firmware into a directory, and keep all intermediate files there.

    Raises:
        ToolMissing: make or sdcc is not there.
        BuildFailed: sdcc refused a source.
        OutputFailed: the directory cannot be written.
    """
    jobs = os.cpu_count() or 1
    args = ["--silent", f"-j{jobs}", f"OUT={directory}", f"SDCC={toolchain.find('sdcc')}"]
    args.append(f"SDAS={toolchain.find('sdas8051')}")
    if extra is not None:
        args.append(f"EXTRA={extra}")
    toolchain.run("make", args, cwd=SOURCES, timeout=TIMEOUT)
    built = _files(directory)
    code = built.bin.read_bytes()
    write(built.image, image.wrap(code))
    listings = sorted(path for path in directory.glob("*.rst") if path != built.rst)
    write(built.rst, b"".join(path.read_bytes() for path in listings))
    rows = [*_modules(directory)]
    rows.append(_library(rows, len(code)))
    text = "".join(f"{row.module} {row.code} {row.xram} {row.iram}\n" for row in rows)
    write(built.sizes, text.encode())
    write(built.pointers, "".join(f"{module} {name}\n" for module, name in _pointers(directory)).encode())
    return built


def sizes(built: Built) -> list[Size]:
    """The size of each module, in order of name, the library last; together they make the whole image."""
    rows = (line.split() for line in built.sizes.read_text().splitlines())
    return [Size(module, int(code), int(xram), int(iram)) for module, code, xram, iram in rows]


def pointers(built: Built) -> set[tuple[str, str]]:
    """Functions and variables whose address is taken: the module that takes it, and the name there."""
    rows = (line.split() for line in built.pointers.read_text().splitlines())
    return {(module, name) for module, name in rows}


def _kept(extra: Path | None) -> Built:
    """Where the cache has the files of a build, or will have them."""
    name = NAME if extra is None else extra.stem
    return _files(cache.directory(CACHE) / f"{name}-{_digest(extra)}")


def _files(home: Path) -> Built:
    suffixes = ("ihx", "bin", "map", "cdb", "rst", "image", "sizes", "pointers")
    return Built(*(home / f"{NAME}.{suffix}" for suffix in suffixes))


def _digest(extra: Path | None) -> str:
    """A digest of everything that the compiler may read."""
    places = [SOURCES, INCLUDE] if extra is None else [SOURCES, INCLUDE, extra.parent]
    facts: list[str | bytes] = [toolchain.version(tool) for tool in TOOLS]
    facts.append("" if extra is None else extra.name)
    for place in places:
        for path in sorted(place.iterdir()):
            if path.suffix in {".c", ".h", ".asm"} or path.name == "Makefile":
                facts += [path.name, path.read_bytes()]
    return cache.digest(facts)


def _modules(directory: Path) -> Iterator[Size]:
    """The sizes in the object files."""
    for path in sorted(directory.glob("*.rel")):
        totals = {"code": 0, "xram": 0, "iram": 0}
        for area, size in _AREA.findall(path.read_text()):
            for kind, areas in (("code", CODE_AREAS), ("xram", XRAM_AREAS), ("iram", IRAM_AREAS)):
                if area in areas:
                    totals[kind] += int(size, 16)
        yield Size(path.stem, **totals)


def _pointers(directory: Path) -> list[tuple[str, str]]:
    """The pointers in the compiler's assembly."""
    found = {
        (path.stem, name) for path in directory.glob("*.asm") for name in _POINTER.findall(path.read_text())
    }
    return sorted(found)


def _library(rows: list[Size], whole: int) -> Size:
    """The part of the image that belongs to no module."""
    rest = whole - sum(row.code for row in rows)
    if rest < 0:
        raise BuildFailed(
            f"the modules have {whole - rest} bytes, more than the image's {whole}",
            where="size of the firmware",
        )
    return Size("(library)", rest, 0, 0)
