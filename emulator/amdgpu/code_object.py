"""AMDGPU code objects: what clang and lld make for a kernel, parsed as a loader does.

An ELF shared object. Its segments are one image that lies anywhere in memory; each kernel has a descriptor of
64 bytes (symbol `NAME.kd`) with the entry and the registers of a dispatch, and an entry in the metadata note
(MessagePack) with its arguments. Source: LLVM's User Guide for the AMDGPU Backend, code object version 5,
which also says that the loader fills in RSRC2's LDS_SIZE.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from sdk.errors import InvalidInput
from sdk.extras import require

EM_AMDGPU = (224, "EM_AMDGPU")
NT_AMDGPU_METADATA = (32, "NT_AMDGPU_METADATA")
"""As pyelftools reports it: a number in older releases, a name in newer ones; EM_AMDGPU likewise."""
DESCRIPTOR = struct.Struct("<IIII q 20x IIIHH 4x")
"""Sizes of group, private and kernarg segment, reserved, entry offset, RSRC3, RSRC1, RSRC2, properties,
preload."""
IMAGE_LIMIT = 64 << 20
"""Bytes of an image at most: a damaged header may ask for anything."""
LDS_UNIT = 512
LDS_SIZE = 15
"""Lowest bit of RSRC2's LDS_SIZE, of 9 bits."""
MACHINES: Mapping[int, str] = {
    0x41: "gfx1100", 0x46: "gfx1101", 0x47: "gfx1102", 0x44: "gfx1103", 0x48: "gfx1200", 0x4E: "gfx1201",
}  # fmt: skip
"""EF_AMDGPU_MACH, bits 7:0 of the ELF header's flags."""
_USER_SGPRS = (
    ("private segment buffer", 4),
    ("dispatch packet", 2),
    ("queue", 2),
    ("kernel arguments", 2),
    ("dispatch id", 2),
    ("flat scratch", 2),
    ("private segment size", 1),
)
"""What a kernel may find in its user SGPRs, by bit of the descriptor's properties, in order."""
_KERNARG = 3
_WAVE32 = 1 << 10


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a kernel.

    Attributes:
        name: as in the source; "" if the compiler left it out.
        offset: in the kernel argument segment, bytes.
        size: bytes.
        kind: global_buffer, by_value, hidden_... (`.value_kind`).
    """

    name: str
    offset: int
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class KernelDescriptor:
    """A kernel of a code object.

    Attributes:
        name: as in the source.
        entry: of its code, in the image.
        lds: bytes of LDS of a workgroup.
        scratch: bytes of scratch memory of a work-item.
        kernarg_size: bytes of its arguments.
        rsrc1: COMPUTE_PGM_RSRC1.
        rsrc2: COMPUTE_PGM_RSRC2, with LDS_SIZE filled in.
        rsrc3: COMPUTE_PGM_RSRC3.
        wave32: whether waves have 32 work-items.
        threads: work-items of a workgroup in x, y, z, if the source says.
        arguments: in order; those that the compiler adds come last.
    """

    name: str
    entry: int
    lds: int
    scratch: int
    kernarg_size: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    wave32: bool
    threads: tuple[int, int, int] | None
    arguments: tuple[Argument, ...]

    def user_data(self, kernarg: int) -> tuple[int, int]:
        """The user SGPRs that are set: the address of the arguments."""
        return kernarg & 0xFFFF_FFFF, kernarg >> 32

    def pack(self, values: Mapping[int, int | float] | list[int | float]) -> bytes:
        """The argument segment.

        Args:
            values: of the arguments in order; buffers by address, numbers by value, f32 as float. What the
                compiler added is 0.

        Raises:
            InvalidInput: there are too many or too few, or one does not fit.
        """
        given = list(values.values()) if isinstance(values, Mapping) else values
        visible = [one for one in self.arguments if not one.kind.startswith("hidden_")]
        if len(given) != len(visible):
            raise InvalidInput(
                f"the kernel takes {len(visible)} arguments, {len(given)} were given", where=self.name
            )
        segment = bytearray(self.kernarg_size)
        for one, value in zip(visible, given, strict=True):
            try:
                if isinstance(value, float):
                    data = struct.pack({2: "<e", 4: "<f", 8: "<d"}[one.size], value)
                else:
                    data = value.to_bytes(one.size, "little", signed=value < 0)
            except (OverflowError, KeyError, struct.error):
                raise InvalidInput(
                    f"{value} does not fit argument {one.name} of {one.size} bytes", where=self.name
                ) from None
            segment[one.offset : one.offset + one.size] = data
        return bytes(segment)


@dataclass(frozen=True, slots=True)
class CodeObject:
    """What to put into memory, and what can be launched.

    Attributes:
        chip: the target, such as `gfx1100`.
        image: bytes, to lie at a multiple of 4 KiB.
        kernels: by name.
    """

    chip: str
    image: bytes
    kernels: Mapping[str, KernelDescriptor]


def parse(data: bytes) -> CodeObject:
    """Parse a code object.

    Raises:
        InvalidInput: it is not one, is damaged, or needs something that launches here do not offer.
        EnvironmentMissing: pyelftools is not installed.
    """
    elffile = require("elftools.elf.elffile", extra="emulator")
    try:
        elf = elffile.ELFFile(BytesIO(data))
        if elf["e_machine"] not in EM_AMDGPU:
            raise InvalidInput(f"the ELF file is for {elf['e_machine']}, not for an AMD GPU")
        image = _image(elf)
        symbols = {symbol.name: symbol["st_value"] for symbol in _dynamic_symbols(elf)}
        described = {str(entry[".name"]): entry for entry in _metadata(elf).get("amdhsa.kernels", ())}
        flags = elf["e_flags"]
    except InvalidInput:
        raise
    except Exception as problem:  # pyelftools raises errors of any kind for a damaged file
        raise InvalidInput(f"not a code object: {problem or type(problem).__name__}") from None
    kernels = {
        name.removesuffix(".kd"): _kernel(name.removesuffix(".kd"), image, place, described)
        for name, place in sorted(symbols.items())
        if name.endswith(".kd")
    }
    if not kernels:
        raise InvalidInput(
            "the code object has no kernels", hint="link it with ld.lld -shared: a .o file exports none"
        )
    return CodeObject(MACHINES.get(flags & 0xFF, f"machine {flags & 0xFF:#x}"), image, kernels)


def _image(elf: Any) -> bytes:
    segments = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
    if not segments:
        raise InvalidInput("the code object is not linked", hint="link it with ld.lld -shared")
    size = max(segment["p_vaddr"] + segment["p_memsz"] for segment in segments)
    if size > IMAGE_LIMIT:
        raise InvalidInput(f"the code object needs {size} bytes of memory, more than {IMAGE_LIMIT}")
    image = bytearray(size)
    for segment in segments:
        data = segment.data()
        image[segment["p_vaddr"] : segment["p_vaddr"] + len(data)] = data
    return bytes(image)


def _dynamic_symbols(elf: Any) -> Any:
    section = elf.get_section_by_name(".dynsym")
    return section.iter_symbols() if section else ()


def _metadata(elf: Any) -> dict[str, Any]:
    for segment in elf.iter_segments():
        if segment["p_type"] == "PT_NOTE":
            for note in segment.iter_notes():
                if note["n_name"] == "AMDGPU" and note["n_type"] in NT_AMDGPU_METADATA:
                    return unpacked(note["n_descdata"])
    raise InvalidInput("the code object has no metadata note: code object version 3 or later is needed")


def unpacked(data: bytes) -> dict[str, Any]:
    """What a metadata note holds.

    Args:
        data: a map in MessagePack.

    Raises:
        InvalidInput: it is something else.
    """
    msgpack = require("msgpack", extra="emulator")
    try:
        value = msgpack.unpackb(data, strict_map_key=False, unicode_errors="replace")
    except (msgpack.UnpackException, TypeError, ValueError) as problem:
        raise InvalidInput(
            f"the code object's metadata is damaged: {problem or 'it ends too early'}"
        ) from None
    if not isinstance(value, dict):
        raise InvalidInput(f"the code object's metadata is not a map, but {type(value).__name__}")
    return value


def _kernel(name: str, image: bytes, place: int, described: Mapping[str, Any]) -> KernelDescriptor:
    if not 0 <= place <= len(image) - DESCRIPTOR.size:
        raise InvalidInput(f"the descriptor at {place:#x} is outside the image", where=name)
    fields = DESCRIPTOR.unpack_from(image, place)
    lds, scratch, kernarg, _, entry, rsrc3, rsrc1, rsrc2, properties, preload = fields
    unit = (lds + LDS_UNIT - 1) // LDS_UNIT
    wanted = [what for bit, (what, _) in enumerate(_USER_SGPRS) if properties >> bit & 1 and bit != _KERNARG]
    if preload:
        wanted.append("preloaded arguments")
    if wanted:
        raise InvalidInput(f"the kernel needs {', '.join(wanted)} in SGPRs: not offered", where=name)
    if not 0 <= place + entry < len(image) or unit >= 1 << 9:
        raise InvalidInput("its descriptor has an entry outside the image, or too much LDS", where=name)
    if name not in described:
        raise InvalidInput("the metadata does not describe it", where=name)
    try:
        arguments = tuple(
            Argument(
                str(one.get(".name", "")), int(one[".offset"]), int(one[".size"]), str(one[".value_kind"])
            )
            for one in described[name].get(".args", ())
        )
        threads = described[name].get(".reqd_workgroup_size")
        size = None if threads is None else (int(threads[0]), int(threads[1]), int(threads[2]))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        raise InvalidInput(
            "its metadata lacks an argument's field, or has one of the wrong type", where=name
        ) from None
    if any(not 0 <= one.offset <= kernarg - one.size for one in arguments):
        raise InvalidInput("an argument is outside the argument segment", where=name)
    rsrc2 |= unit << LDS_SIZE
    wave32 = bool(properties & _WAVE32)
    return KernelDescriptor(
        name, place + entry, lds, scratch, kernarg, rsrc1, rsrc2, rsrc3, wave32, size, arguments
    )
