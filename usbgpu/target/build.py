"""Kernels to code objects, and those to one image that a runtime only has to copy.

A variant of a kernel is a code object of its own, kept in the cache under all that determines it. Its
machine code refers to nothing outside of itself (checked here), so that the image is these pieces one after
the other, at any address. Descriptors: LLVM's User Guide for the AMDGPU Backend, code object version 5, which
also says that the loader fills in RSRC2's LDS_SIZE.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from sdk import cache, toolchain
from sdk.arena import align
from sdk.errors import BuildFailed, InternalError
from sdk.extras import require
from sdk.files import scratch_directory, write
from usbgpu.target.calls import KernelSource
from usbgpu.target.plan import ALIGNMENT, LDS_SHIFT, LDS_UNIT, PREFETCH, KernelPlan, Slice

KERNELS = Path(__file__).parent / "kernels"
FLAGS = (
    "--target=amdgcn-amd-amdhsa",
    *("-x", "cl", "-cl-std=CL2.0", "-nogpulib"),
    *("-O3", "-ffp-contract=off", "-fwrapv", "-mcode-object-version=5"),  # sums wrap, and come back
    *("-Wall", "-Wextra", "-Werror"),
    *("-Wno-unused-parameter", "-Wno-unused-variable"),  # not every variant needs every argument
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
    sources = list(dict.fromkeys((kernel.source, kernel.defines) for kernel in kernels))
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        objects = dict(
            zip(sources, pool.map(lambda unit: code_object(unit[0], unit[1], chip), sources), strict=True)
        )
    files: dict[str, bytes] = {}
    slices: list[Slice] = []
    parsed: dict[tuple[str, tuple[str, ...]], tuple[int, _Object]] = {}
    nbytes = 0
    for number, unit in enumerate(sources):
        found = _parse(objects[unit], unit[0])
        name = f"{number:02}-{unit[0]}.co"
        files[name] = objects[unit]
        slices.append(Slice(name, found.start, found.nbytes, nbytes))
        parsed[unit] = nbytes, found
        nbytes += align(found.nbytes, ALIGNMENT)
    plans = []
    for kernel in kernels:
        at, found = parsed[kernel.source, kernel.defines]
        entry, fields = found.kernels[kernel.symbol]
        plans.append(_plan(kernel, at + entry, fields))
    return Image(files, slices, plans, nbytes + PREFETCH)


def code_object(source: str, defines: tuple[str, ...], chip: str) -> bytes:
    """The code object of one kernel variant, from the cache or compiled."""
    path = KERNELS / f"{source}.cl"
    facts = [toolchain.version("clang"), toolchain.version("lld"), chip, *FLAGS, *defines, path.read_text()]
    facts += [header.read_text() for header in sorted(KERNELS.glob("*.h"))]
    cached = cache.directory(CACHE) / f"{source}-{chip}-{cache.digest(facts)}.co"
    if not cached.exists():
        cache.keep(cached, _compile(path, defines, chip))
    return cached.read_bytes()


def _compile(path: Path, defines: Sequence[str], chip: str) -> bytes:
    macros = [f"-D{define}" for define in defines]
    args = [*FLAGS, f"-mcpu={chip}", f"-I{KERNELS}", *macros, "-c", "-o", "-", str(path)]
    compiled = toolchain.run("clang", args, timeout=300).stdout
    with scratch_directory() as directory:
        made = directory / "kernel.o"
        write(made, compiled)
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
            nbytes = max(nbytes, symbols[name]["st_value"] + symbols[name]["st_size"] - address)
    except Exception as problem:  # pyelftools raises any exception on a damaged file
        raise BuildFailed(
            f"not a code object: {problem or type(problem).__name__}", where=where, hint="empty the cache"
        ) from None
    if relocated or constants["sh_size"] - DESCRIPTOR.size * len(kernels) not in (0, ABI_VERSION):
        raise InternalError("a kernel refers to data outside of its code", where=where)
    return _Object(text["sh_offset"], nbytes, kernels)


def _plan(kernel: KernelSource, entry: int, fields: tuple[Any, ...]) -> KernelPlan:
    lds, scratch, kernarg, _, _, rsrc3, rsrc1, rsrc2, properties, preload = fields
    if properties & 0xFFFF != PROPERTIES or preload or entry % ALIGNMENT:
        raise InternalError(f"properties {properties:#x}, entry {entry:#x}", where=kernel.symbol)
    rsrc2 |= -(-lds // LDS_UNIT) << LDS_SHIFT
    return KernelPlan(kernel.symbol, entry, rsrc1, rsrc2, rsrc3, lds, scratch, kernarg, kernel.threads)
