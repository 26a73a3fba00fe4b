"""Kernels from AMDGPU code objects: what clang and lld make of a source, read with `struct` alone.

A code object is an ELF shared object. Its segments are one image, which may be anywhere in memory since it
has no relocations; each kernel has a descriptor of 64 bytes (symbol `NAME.kd`) with the entry of its code and
the registers of a dispatch, and is described in a note (`metadata`). Source: LLVM's User Guide for the AMDGPU
Backend, code object versions 4 to 6, which also says that the loader fills in RSRC2.LDS_SIZE.

What the runtime does not offer is refused: other waves than wave32, a stack of unknown depth, LDS beyond what
a workgroup can have, and SGPRs with more than the address of the arguments.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sdk.errors import InvalidInput, UsageError
from usbgpu.amd import metadata
from usbgpu.amd.memory import Buffer
from usbgpu.amd.metadata import Argument
from usbgpu.seam import Launch

HEADER = struct.Struct("<4sBBBBB7x HHIQQQIHHHHHH")
PROGRAM = struct.Struct("<IIQQQQQQ")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
NOTE = struct.Struct("<III")
DESCRIPTOR = struct.Struct("<IIII q 20x IIIHH 4x")
"""Bytes of LDS, scratch, arguments; reserved; offset of the code; RSRC3, 1, 2; properties; preload."""
CLASS_64, LITTLE, OSABI_HSA, SHARED, EM_AMDGPU = 2, 1, 64, 3, 224
VERSIONS = {2: 4, 3: 5, 4: 6}
"""Code object versions by EI_ABIVERSION."""
PT_LOAD, PT_NOTE = 1, 4
SHT_RELA, SHT_REL, SHT_DYNSYM = 4, 9, 11
NT_AMDGPU_METADATA = 32
MACHINES: Mapping[int, str] = {
    0x41: "gfx1100", 0x46: "gfx1101", 0x47: "gfx1102", 0x44: "gfx1103", 0x48: "gfx1200", 0x4E: "gfx1201",
}  # fmt: skip
"""EF_AMDGPU_MACH, bits 7:0 of the ELF header's flags."""
PAGE = 4096
"""Bytes that images are aligned to."""
IMAGE_LIMIT = 256 << 20
"""Largest image in bytes: a damaged header may request anything."""
CODE_ALIGNMENT = 256
LDS_UNIT, LDS_SHIFT, LDS_LIMIT = 512, 15, 64 << 10
"""RSRC2.LDS_SIZE counts units, and a workgroup has 64 KiB at most."""
KERNARG_POINTER, WAVE32, DYNAMIC_STACK = 1 << 3, 1 << 10, 1 << 11
"""Of a descriptor's properties."""
OTHER_SGPRS = 0x77
"""Those that request more in user SGPRs than the address of the arguments."""
DISPATCH_LIMIT = 1024
"""Work-items of a workgroup."""
KERNARG_LIMIT, SCRATCH_LIMIT = 1 << 16, 1 << 16
"""Bytes of arguments, and of scratch memory of a work-item: no kernel has more, but a damaged file may."""
SEGMENT_LIMIT, NAME_LIMIT = 64, 4096
"""Program headers, of which linkers write about ten, and bytes of a symbol's name."""


@dataclass(frozen=True, slots=True)
class KernelDescriptor:
    """A kernel of a code object.

    Attributes:
        name: as in the source.
        entry: of its code, in the image: bytes, a multiple of 256.
        lds: bytes of LDS of a workgroup.
        scratch: bytes of scratch memory of a work-item.
        kernarg_size: bytes of its arguments.
        rsrc1, rsrc2, rsrc3: COMPUTE_PGM_RSRC1 to 3, with LDS_SIZE filled in.
        threads: work-items of a workgroup in x, y, z, if the source fixes them.
        most_threads: work-items of a workgroup at most.
        arguments: in order, those of the compiler's own included.
    """

    name: str
    entry: int
    lds: int
    scratch: int
    kernarg_size: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    threads: tuple[int, int, int] | None
    most_threads: int
    arguments: tuple[Argument, ...]

    def launch(
        self,
        image: int,
        groups: Sequence[int],
        threads: Sequence[int] | None = None,
        arguments: Sequence[int | float | bytes | Buffer] = (),
    ) -> Launch:
        """A dispatch of it.

        Args:
            image: GPU address of the loaded image.
            groups: workgroups in x, y, z; what is missing is 1.
            threads: work-items of a workgroup likewise; the source's if it fixes them.
            arguments: in order: buffers (or GPU addresses), integers, floats, structures as bytes.

        Raises:
            UsageError: too many or too few, of the wrong kind, or what does not fit.
        """
        given = threads if threads is not None else self.threads
        if given is None:
            raise UsageError("the source does not fix the work-items of a workgroup", where=self.name)
        grid, group = _triple(groups), _triple(given)
        count = group[0] * group[1] * group[2]
        if min(grid + group) < 1 or max(grid) >= 1 << 32:
            raise UsageError(
                f"counts must be 1 or more: {grid} workgroups of {group} work-items", where=self.name
            )
        if self.threads is not None and group != self.threads:
            raise UsageError(
                f"workgroups of {group} work-items: the source fixes {self.threads}", where=self.name
            )
        if count > self.most_threads:
            raise UsageError(
                f"{count} work-items in a workgroup: at most {self.most_threads}", where=self.name
            )
        kernarg = self._pack(arguments, grid, group)
        registers = self.rsrc1, self.rsrc2, self.rsrc3
        return Launch(self.name, image + self.entry, *registers, self.scratch, kernarg, grid, group)

    def _pack(
        self,
        values: Sequence[int | float | bytes | Buffer],
        groups: tuple[int, int, int],
        threads: tuple[int, int, int],
    ) -> bytes:
        """The argument segment."""
        visible = [one for one in self.arguments if not one.hidden]
        if len(values) != len(visible):
            names = ", ".join(one.label for one in visible)
            raise UsageError(
                f"takes {len(visible)} arguments ({names}), {len(values)} given", where=self.name
            )
        segment = bytearray(self.kernarg_size)
        for one, value in zip(visible, values, strict=True):
            try:
                segment[one.offset : one.offset + one.size] = one.pack(value)
            except UsageError as problem:
                raise UsageError(problem.message, where=f"{self.name}, argument {one.label}") from None
        for one in self.arguments:
            if one.hidden:
                segment[one.offset : one.offset + one.size] = one.dimension(groups, threads)
        return bytes(segment)


@dataclass(frozen=True, slots=True)
class CodeObject:
    """An image for memory, and the kernels that can be launched.

    Attributes:
        chip: whose code it is, such as `gfx1100`.
        image: bytes, to be loaded at a multiple of PAGE.
        kernels: by name.
    """

    chip: str
    image: bytes
    kernels: Mapping[str, KernelDescriptor]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A kernel whose code is in VRAM."""

    kernel: KernelDescriptor
    module: Module

    def launch(
        self,
        groups: int | Sequence[int],
        *arguments: int | float | bytes | Buffer,
        threads: Sequence[int] | None = None,
    ) -> Launch:
        """A dispatch of it; see `KernelDescriptor.launch`. Raises UsageError."""
        grid = (groups,) if isinstance(groups, int) else groups
        return self.kernel.launch(self.module.buffer.address, grid, threads, arguments)


class Module(Mapping[str, Loaded]):
    """A code object in VRAM: its kernels by name.

    Attributes:
        buffer: where its image is.
    """

    def __init__(self, code: CodeObject, buffer: Buffer) -> None:
        self.buffer = buffer
        self._kernels = {name: Loaded(kernel, self) for name, kernel in code.kernels.items()}

    def __getitem__(self, name: str) -> Loaded:
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def free(self) -> None:
        """Free the memory. Idempotent."""
        self.buffer.free()


def parse(data: bytes, chip: str | None = None) -> CodeObject:
    """Parse a code object.

    Args:
        data: of the file.
        chip: the one that it must be for; None for any.

    Raises:
        InvalidInput: it is not one, is damaged, is for another chip, or needs what launches do not offer.
    """
    try:
        return _parse(data, chip)
    except (struct.error, IndexError, OverflowError):
        raise InvalidInput(
            f"the code object is damaged or cut short: it has {len(data)} bytes",
            hint="compile it again",
        ) from None


def _parse(data: bytes, chip: str | None) -> CodeObject:
    magic, kind, order, _, osabi, version, elf_type, machine, *rest = HEADER.unpack_from(data)
    _, _, programs, sections, flags, _, _, program_count, _, section_count, _ = rest
    if magic != b"\x7fELF":
        raise InvalidInput("not a code object: the file is not an ELF file")
    if (kind, order, machine) != (CLASS_64, LITTLE, EM_AMDGPU):
        raise InvalidInput(f"not a code object: the ELF file is for machine {machine}, not {EM_AMDGPU}")
    if osabi != OSABI_HSA or version not in VERSIONS:
        raise InvalidInput(
            f"a code object of ABI {osabi}, version {version}: the runtime reads versions "
            f"{', '.join(map(str, VERSIONS.values()))} for HSA",
            hint="compile for amdgcn-amd-amdhsa with -mcode-object-version=5",
        )
    name = MACHINES.get(flags & 0xFF, f"machine {flags & 0xFF:#x}")
    if chip is not None and name != chip:
        raise InvalidInput(f"the code object is for {name}, the card is {chip}", hint=f"compile for {chip}")
    if program_count > SEGMENT_LIMIT:
        raise InvalidInput(f"the code object is damaged: it has {program_count} segments")
    segments = [PROGRAM.unpack_from(data, programs + PROGRAM.size * n) for n in range(program_count)]
    tables = [SECTION.unpack_from(data, sections + SECTION.size * n) for n in range(section_count)]
    if elf_type != SHARED or not any(segment[0] == PT_LOAD for segment in segments):
        raise InvalidInput("the code object is not linked", hint="link it with ld.lld -shared")
    if any(table[1] in (SHT_RELA, SHT_REL) and table[5] for table in tables):
        raise InvalidInput("the code object has relocations: its position in memory must be free")
    image = _image(data, segments)
    described = _described(data, segments)
    kernels = {
        symbol.removesuffix(".kd"): _kernel(symbol.removesuffix(".kd"), image, place, described)
        for symbol, place in sorted(_symbols(data, tables))
        if symbol.endswith(".kd")
    }
    if not kernels:
        raise InvalidInput("the code object has no kernels")
    return CodeObject(name, image, kernels)


def _image(data: bytes, segments: Sequence[tuple[int, ...]]) -> bytes:
    loaded = [segment for segment in segments if segment[0] == PT_LOAD]
    size = max(virtual + memory for _, _, _, virtual, _, _, memory, _ in loaded)
    if size > IMAGE_LIMIT:
        raise InvalidInput(f"the code object requests {size} bytes of memory: at most {IMAGE_LIMIT}")
    image = bytearray(size)
    for _, _, offset, virtual, _, stored, memory, _ in loaded:
        if stored > memory:
            raise InvalidInput("the code object is damaged: a segment does not fit its memory")
        image[virtual : virtual + stored] = _slice(data, offset, stored)
    return bytes(image)


def _described(data: bytes, segments: Sequence[tuple[int, ...]]) -> Mapping[str, metadata.Described]:
    """What the metadata says of each kernel, by its descriptor's name."""
    for kind, _, offset, _, _, size, _, _ in segments:
        if kind == PT_NOTE:
            for owner, note, content in _notes(_slice(data, offset, size)):
                if owner == b"AMDGPU" and note == NT_AMDGPU_METADATA:
                    return metadata.parse(content)
    raise InvalidInput("the code object has no metadata note")


def _notes(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    place = 0
    while place + NOTE.size <= len(data):
        name_size, size, kind = NOTE.unpack_from(data, place)
        place += NOTE.size
        name = _slice(data, place, name_size).rstrip(b"\0")
        place += -(-name_size // 4) * 4
        yield name, kind, _slice(data, place, size)
        place += -(-size // 4) * 4


def _symbols(data: bytes, tables: Sequence[tuple[int, ...]]) -> Iterator[tuple[str, int]]:
    """Names and values of the dynamic symbols."""
    for table in tables:
        if table[1] == SHT_DYNSYM:
            names = _slice(data, tables[table[6]][4], tables[table[6]][5])
            for symbol in SYMBOL.iter_unpack(_slice(data, table[4], table[5])):
                end = names.find(b"\0", symbol[0], symbol[0] + NAME_LIMIT)
                yield names[symbol[0] : max(end, 0)].decode(errors="replace"), symbol[4]


def _kernel(
    name: str, image: bytes, place: int, described: Mapping[str, metadata.Described]
) -> KernelDescriptor:
    lds, scratch, kernarg, _, offset, rsrc3, rsrc1, rsrc2, properties, preload = DESCRIPTOR.unpack_from(
        image, place
    )
    about, entry = described.get(f"{name}.kd"), place + offset
    sgprs = rsrc2 >> 1 & 0x1F
    if about is None:
        raise InvalidInput("the metadata does not describe the kernel", where=name)
    if not 0 <= entry < len(image) or entry % CODE_ALIGNMENT or kernarg != about.kernarg_size:
        raise InvalidInput("the kernel's descriptor is damaged", where=name)
    problem = ""
    if not properties & WAVE32:
        problem = "waves of 64 work-items"
    elif properties & OTHER_SGPRS or preload or (kernarg and not properties & KERNARG_POINTER):
        problem = "user SGPRs other than the address of its arguments"
    elif properties & KERNARG_POINTER and sgprs < 2:
        problem = f"{sgprs} user SGPRs, which have no room for the address of its arguments"
    elif properties & DYNAMIC_STACK or about.dynamic_stack:
        problem = "a stack of unknown depth (recursion, or calls through pointers)"
    elif kernarg > KERNARG_LIMIT or scratch > SCRATCH_LIMIT:
        problem = f"{kernarg} bytes of arguments and {scratch} bytes of scratch memory"
    elif lds > LDS_LIMIT:
        problem = f"{lds} bytes of LDS (at most {LDS_LIMIT})"
    if problem:
        raise InvalidInput(f"the kernel needs {problem}, which the runtime does not offer", where=name)
    if any(one.offset + one.size > kernarg for one in about.arguments):
        raise InvalidInput("an argument is outside the argument segment", where=name)
    rsrc2 = rsrc2 & ~(0x1FF << LDS_SHIFT) | -(-lds // LDS_UNIT) << LDS_SHIFT
    most = min(about.most_threads, DISPATCH_LIMIT)
    registers = rsrc1, rsrc2, rsrc3
    return KernelDescriptor(
        about.name, entry, lds, scratch, kernarg, *registers, about.threads, most, about.arguments
    )


def _slice(data: bytes, offset: int, size: int) -> bytes:
    """Bytes of the file. Raises IndexError if there are fewer."""
    if offset + size > len(data):
        raise IndexError(offset)
    return data[offset : offset + size]


def _triple(values: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*(int(value) for value in values), 1, 1)[:3] if len(values) else (0, 0, 0)
    return (x, y, z) if len(values) <= 3 else (0, 0, 0)
