"""Kernels of a code object: descriptor, basic blocks, labels, and whether the executor implements them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from emulator.amdgpu.code_object import CodeObject, KernelDescriptor
from emulator.amdgpu.isa import flow
from emulator.amdgpu.isa.decode import decoder
from emulator.amdgpu.isa.emit import Refused
from emulator.amdgpu.isa.flow import Program
from emulator.amdgpu.isa.operands import Instruction
from emulator.amdgpu.isa.translate import kind
from emulator.amdgpu.seams import PageFault
from sdk.errors import InvalidInput, Unsupported
from sdk.jumps import beside

UNKNOWN = "?"
"""The class of an instruction that the executor does not implement."""
_TARGETS = {"gfx11": 11, "gfx12": 12}


@dataclass(frozen=True, slots=True)
class Line:
    """An instruction.

    Attributes:
        address: from the kernel's entry, bytes.
        code: its bytes as dwords in hexadecimal.
        text: as LLVM writes it; branches name a label.
        kind: its class, or UNKNOWN.
    """

    address: int
    code: str
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A kernel.

    Attributes:
        kernel: its descriptor.
        blocks: label, lines and labels of the successors of each basic block.
    """

    kernel: KernelDescriptor
    blocks: tuple[tuple[str, tuple[Line, ...], tuple[str, ...]], ...]

    @property
    def counts(self) -> dict[str, int]:
        """Instructions by class, as they occur in the code."""
        found: dict[str, int] = {}
        for line in self.lines:
            found[line.kind] = found.get(line.kind, 0) + 1
        return dict(sorted(found.items()))

    @property
    def lines(self) -> Iterable[Line]:
        return (line for _, lines, _ in self.blocks for line in lines)

    @property
    def unknown(self) -> list[str]:
        """Mnemonics that are not implemented."""
        return sorted({line.text.split(" ", 1)[0] for line in self.lines if line.kind == UNKNOWN})


def kernels(code: CodeObject, only: str | None = None) -> list[Listed]:
    """The kernels of a code object, or one of them.

    Raises:
        Unsupported: it is for another generation.
        InvalidInput: it has no such kernel, or its code cannot be decoded.
        EnvironmentMissing: libLLVM is not installed.
    """
    generation = _TARGETS.get(code.chip[:5])
    if generation is None:
        raise Unsupported(f"the code object is for {code.chip}", hint="gfx11 and gfx12 can be listed")
    if only is not None and only not in code.kernels:
        raise InvalidInput(f"has no kernel {only!r}", hint=f"kernels: {', '.join(code.kernels)}")
    chosen = [code.kernels[only]] if only is not None else list(code.kernels.values())
    return [_listed(code, kernel, generation) for kernel in chosen]


def _listed(code: CodeObject, kernel: KernelDescriptor, generation: int) -> Listed:
    def fetch(address: int, size: int) -> bytes:
        start = kernel.entry + address
        if not 0 <= start < len(code.image):
            raise PageFault(start, write=False, reason="outside the code object")
        return code.image[start : start + size].ljust(size, b"\0")

    try:
        program = flow.read(decoder(code.chip), fetch)
    except PageFault as fault:
        raise InvalidInput(f"the code leads out of the code object: {fault}", where=kernel.name) from None
    except Refused as refused:
        raise InvalidInput(f"at {refused.address:#x}: {refused}", where=kernel.name) from None
    labels = _labels(program)
    blocks = []
    for address, block in program.blocks.items():
        lines = tuple(_line(one, labels, generation) for one in block.instructions)
        blocks.append((labels[address], lines, tuple(labels[after] for after in block.successors)))
    return Listed(kernel, tuple(blocks))


def _labels(program: Program) -> dict[int, str]:
    return {address: f"L{number}" if number else "entry" for number, address in enumerate(program.blocks)}


def _line(one: Instruction, labels: dict[int, str], generation: int) -> Line:
    try:
        name = kind(one, generation)
    except Refused:
        name = UNKNOWN
    text = one.text
    if one.mnemonic.startswith(("s_branch", "s_cbranch_")):
        text = f"{one.mnemonic} {labels[one.target]}"
    dwords = (one.code >> 32 * word & 0xFFFF_FFFF for word in range(one.size // 4))
    return Line(one.address, " ".join(f"{dword:08x}" for dword in dwords), text, name)


def as_data(listed: Listed) -> dict[str, Any]:
    """A kernel as plain values."""
    kernel = listed.kernel
    return {
        "name": kernel.name,
        "entry": kernel.entry,
        "descriptor": {name: value for name, value, _ in descriptor(kernel)},
        "arguments": [
            {"name": one.name, "offset": one.offset, "size": one.size, "kind": one.kind}
            for one in kernel.arguments
        ],
        "classes": listed.counts,
        "not_implemented": listed.unknown,
        "blocks": [
            {
                "label": label,
                "successors": list(after),
                "instructions": [
                    {"address": line.address, "code": line.code, "text": line.text, "class": line.kind}
                    for line in lines
                ],
            }
            for label, lines, after in listed.blocks
        ],
    }


def as_text(listed: Listed) -> str:
    """A kernel as text."""
    kernel = listed.kernel
    parts = [f"kernel {kernel.name}, entry {kernel.entry:#x}"]
    for name, value, what in descriptor(kernel):
        shown = f"{value:#010x}" if name.startswith("rsrc") else str(value)
        parts.append(f"  {name:<16} {shown:<12} {what}".rstrip())
    for one in kernel.arguments:
        parts.append(f"  argument {one.offset:>4}  {one.size:>3} bytes  {one.kind:<16} {one.name}".rstrip())
    counts = ", ".join(f"{count} {name}" for name, count in listed.counts.items() if name != UNKNOWN)
    parts.append(f"  instructions: {counts}")
    if listed.unknown:
        parts.append(f"  NOT IMPLEMENTED by the executor: {', '.join(listed.unknown)}")
    sources: dict[str, list[str]] = {}
    for label, _, after in listed.blocks:
        for target in after:
            sources.setdefault(target, []).append(label)
    code: list[str] = []
    starts: dict[str, int] = {}
    ends: dict[str, int] = {}
    for label, lines, after in listed.blocks:
        came = f"  ; from {', '.join(sources[label])}" if label in sources else ""
        goes = f"  ; to {', '.join(after)}" if after else ""
        starts[label] = len(code) + 1
        code += ["", f"{label}:{came}{goes}"]
        code += [f"  {line.address:6x}  {line.kind:<6}  {line.text}" for line in lines]
        ends[label] = len(code) - 1
    labels = list(starts)
    following = dict(zip(labels, [*labels[1:], ""], strict=True))
    jumps = (
        (ends[label], starts[target])
        for label, _, after in listed.blocks
        for target in after
        if target != following[label]
    )
    return "\n".join([*parts, *beside(code, jumps)]) + "\n"


def descriptor(kernel: KernelDescriptor) -> list[tuple[str, int | bool, str]]:
    """What a launch sets for a kernel: name, value, meaning."""
    rsrc1, rsrc2 = kernel.rsrc1, kernel.rsrc2
    return [
        ("vgprs", ((rsrc1 & 0x3F) + 1) * 8, "allocated, RSRC1 5:0"),
        ("float_mode", rsrc1 >> 12 & 0xFF, "rounding and denormals, RSRC1 19:12"),
        ("user_sgprs", rsrc2 >> 1 & 0x1F, "RSRC2 5:1"),
        ("workgroup_ids", rsrc2 >> 7 & 7, "x, y, z by bit, RSRC2 9:7"),
        ("work_item_ids", rsrc2 >> 11 & 3, "0: x, 1: x and y, 2: all, RSRC2 12:11"),
        ("lds", kernel.lds, "bytes of a workgroup"),
        ("scratch", kernel.scratch, "bytes of a work-item"),
        ("kernarg", kernel.kernarg_size, "bytes of arguments"),
        ("wave32", kernel.wave32, ""),
        ("rsrc1", kernel.rsrc1, "COMPUTE_PGM_RSRC1"),
        ("rsrc2", kernel.rsrc2, "COMPUTE_PGM_RSRC2, LDS_SIZE filled in"),
        ("rsrc3", kernel.rsrc3, "COMPUTE_PGM_RSRC3"),
    ]
