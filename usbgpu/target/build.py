"""Kernels to code objects, and those to one image that a runtime only has to copy.

A variant of a kernel is a code object of its own, kept in the cache under all that determines it. Its
machine code refers to nothing outside of itself (checked here), so that the image is these pieces one after
the other, at any address. Descriptors: LLVM's User Guide for the AMDGPU Backend, code object version 5, which
also says that the loader fills in RSRC2's LDS_SIZE.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from sdk import cache, opencl, toolchain
from sdk.arena import align
from sdk.errors import BuildFailed, InternalError
from sdk.extras import require
from sdk.files import scratch_directory, write
from sdk.opencl.calls import KernelSource
from sdk.opencl.text import numbered
from usbgpu.target.calls import WRITTEN
from usbgpu.target.plan import ALIGNMENT, LDS_SHIFT, LDS_UNIT, PREFETCH, KernelPlan, Slice

KERNELS = Path(__file__).parent / "kernels"
SHARED = Path(opencl.__file__).parent / "kernels"
INCLUDES = (f"-I{KERNELS}", f"-I{SHARED}")
FLAGS = (
    "--target=amdgcn-amd-amdhsa",
    *("-x", "cl", "-cl-std=CL2.0", "-nogpulib"),
    *("-O3", "-ffp-contract=off", "-fwrapv", "-mcode-object-version=5"),  # sums wrap, and come back
    *("-Wall", "-Wextra", "-Werror"),
    *(
        "-Wno-unused-parameter",
        "-Wno-unused-variable",
        "-Wno-unused-but-set-variable",
    ),  # not every variant needs every argument
)
CACHE = "amd"
"""The cache's directory of code objects."""

DESCRIPTOR = struct.Struct("<IIII q 20x IIIHH 4x")
"""Bytes of LDS, of scratch and of arguments, reserved; entry from the descriptor; RSRC3, RSRC1, RSRC2,
properties, preloaded arguments."""
PROPERTIES = 0x408
"""All that kernels here ask for: the address of the arguments in SGPRs, and waves of 32."""
ABI_VERSION = 4
"""Bytes of `__oclc_ABI_version`, which clang may leave beside the descriptors and which is not read here."""


@dataclass(frozen=True)
class Image:
    """The code of a network.

    Attributes:
        files: code objects by file name.
        slices: what of which file goes where into the image.
        kernels: entry points and descriptors, in the order asked for.
        nbytes: of the image.
    """

    files: dict[str, bytes]
    slices: list[Slice]
    kernels: list[KernelPlan]
    nbytes: int


@dataclass(frozen=True)
class _Object:
    """The machine code of a code object: where in the file, and each kernel's entry in it and descriptor."""

    start: int
    nbytes: int
    kernels: dict[str, tuple[int, tuple[Any, ...]]]


def build(kernels: Sequence[KernelSource], chip: str) -> Image:
    """Compile what is not in the cache, and lay it out.

    Raises:
        ToolMissing: clang or lld is missing.
        EnvironmentMissing: pyelftools is missing.
        BuildFailed: the compiler refused a kernel.
        OutputFailed: the cache cannot be written.
    """
    units = units_of(kernels)
    texts = headers()
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        objects = list(pool.map(lambda unit: code_object(unit, chip, texts), units))
    files: dict[str, bytes] = {}
    slices: list[Slice] = []
    plans: dict[KernelSource, KernelPlan] = {}
    nbytes = 0
    for number, (unit, data) in enumerate(zip(units, objects, strict=True)):
        found = _parse(data, unit.source)
        name = f"{number:02}-{_file_name(unit.source)}.co"
        files[name] = data
        slices.append(Slice(name, found.start, found.nbytes, nbytes))
        for kernel, symbol in unit.symbols.items():
            entry, fields = found.kernels[symbol]
            plans[kernel] = _plan(symbol, kernel.threads, nbytes + entry, fields)
        nbytes += align(found.nbytes, ALIGNMENT)
    return Image(files, slices, [plans[kernel] for kernel in kernels], nbytes + PREFETCH)


@dataclass(frozen=True)
class Unit:
    """What one run of the compiler is given.

    Attributes:
        source: what it is called.
        flags: of the compiler, beside FLAGS.
        text: OpenCL C.
        symbols: what each of its kernels is called in its code object.
    """

    source: str
    flags: tuple[str, ...]
    text: str
    symbols: Mapping[KernelSource, str]


def units_of(kernels: Sequence[KernelSource]) -> list[Unit]:
    """Kernels of one file and the same macros together, and so those that were written, a few at a time.

    The compiler takes longer to read what they include than to compile one.
    """
    units: list[Unit] = []
    texts = {kernel: _text(kernel) for kernel in kernels}
    written = [
        kernel for kernel in kernels if texts[kernel].count("#include") == 1 and WRITTEN in texts[kernel]
    ]
    for first in range(0, len(written), TOGETHER):
        part = dict(enumerate(written[first : first + TOGETHER], first))
        text = WRITTEN + "".join(
            numbered(texts[kernel].replace(WRITTEN, ""), number) for number, kernel in part.items()
        )
        symbols = {kernel: f"{kernel.symbol}_{number}" for number, kernel in part.items()}
        units.append(Unit("plain/written", UNREAD, text, symbols))
    variants: dict[tuple[str, tuple[str, ...], str], list[KernelSource]] = {}
    for kernel in kernels:
        if kernel not in written:
            variants.setdefault((kernel.source, kernel.defines, texts[kernel]), []).append(kernel)
    for (source, defines, text), found in variants.items():
        flags = (*(UNREAD if text else ()), *(f"-D{define}" for define in defines))
        text = text or f'#include "{source}.cl"\n'
        units.append(Unit(source, flags, text, {kernel: kernel.symbol for kernel in found}))
    return units


def _text(kernel: KernelSource) -> str:
    """The whole text of a written kernel."""
    if not kernel.struct:
        return kernel.text
    arguments = ", ".join((*kernel.parameters, f"struct {kernel.struct} m"))
    head = f"THREADS({kernel.threads}) kernel void {kernel.symbol}({arguments}) {{"
    return f"{WRITTEN}{kernel.head}\n{head}\n{kernel.text}\n}}\n"


TOGETHER = 16
"""Written kernels in a unit."""
UNREAD = ("-w",)
"""No warnings about what was written for a network: it may compare a number with itself."""


def code_object(unit: Unit, chip: str, headers: Mapping[str, str]) -> bytes:
    """The code object of a unit, from the cache or compiled.

    Args:
        unit: what to compile.
        chip: the target, such as `gfx1100`.
        headers: all files of kernels, by path.
    """
    included = [text for path, text in headers.items() if path.endswith(".h") or f'"{path}"' in unit.text]
    facts = [toolchain.version("clang"), toolchain.version("lld"), chip, *FLAGS]
    facts += [*unit.flags, unit.text, *included]
    cached = cache.directory(CACHE) / f"{_file_name(unit.source)}-{chip}-{cache.digest(facts)}.co"
    code = cache.load(cached)
    if code is None:
        code = _compile(unit, chip)
        cache.keep(cached, code)
    return code


def headers() -> dict[str, str]:
    """All that a kernel may include, by path."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for folder in (KERNELS, SHARED)
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".h", ".cl")
    }


def _file_name(source: str) -> str:
    return source.replace("/", "-")


def _compile(unit: Unit, chip: str) -> bytes:
    with scratch_directory() as directory:
        source, made = directory / "kernel.cl", directory / "kernel.o"
        write(source, unit.text.encode())
        args = [*FLAGS, f"-mcpu={chip}", *INCLUDES, *unit.flags, "-c", "-o", "-", str(source)]
        write(made, toolchain.run("clang", args, timeout=300).stdout)
        return toolchain.run("lld", ["-shared", "--build-id=none", "-o", "-", made], timeout=120).stdout


def _parse(data: bytes, where: str) -> _Object:
    elffile = require("elftools.elf.elffile")
    try:
        elf = elffile.ELFFile(BytesIO(data))
        text = elf.get_section_by_name(".text")
        constants = elf.get_section_by_name(".rodata")
        symbols = {symbol.name: symbol for symbol in elf.get_section_by_name(".dynsym").iter_symbols()}
        relocated = any(section["sh_type"] in ("SHT_REL", "SHT_RELA") for section in elf.iter_sections())
        address, nbytes = text["sh_addr"], 0
        kernels = {}
        for name in (name for name in symbols if f"{name}.kd" in symbols):
            place = symbols[f"{name}.kd"]["st_value"]
            fields = DESCRIPTOR.unpack_from(constants.data(), place - constants["sh_addr"])
            kernels[name] = place + fields[4] - address, fields
        # What follows the last instruction in the file is filling.
        for symbol in elf.get_section_by_name(".symtab").iter_symbols():
            if symbol["st_info"]["type"] == "STT_FUNC":
                nbytes = max(nbytes, symbol["st_value"] + symbol["st_size"] - address)
    except Exception as problem:  # pyelftools raises any exception on a damaged file
        raise BuildFailed(
            f"not a code object: {problem or type(problem).__name__}", where=where, hint="empty the cache"
        ) from None
    if relocated or constants["sh_size"] - DESCRIPTOR.size * len(kernels) not in (0, ABI_VERSION):
        raise InternalError("a kernel refers to data outside of its code", where=where)
    return _Object(text["sh_offset"], nbytes, kernels)


def _plan(symbol: str, threads: int, entry: int, fields: tuple[Any, ...]) -> KernelPlan:
    lds, scratch, kernarg, _, _, rsrc3, rsrc1, rsrc2, properties, preload = fields
    if properties & 0xFFFF != PROPERTIES or preload or entry % ALIGNMENT:
        raise InternalError(f"properties {properties:#x}, entry {entry:#x}", where=symbol)
    rsrc2 |= -(-lds // LDS_UNIT) << LDS_SHIFT
    return KernelPlan(symbol, entry, rsrc1, rsrc2, rsrc3, lds, scratch, kernarg, threads)
