"""The instruction table: what a chip has, what of it is implemented, what clang's output uses.

What a chip has is asked of LLVM's disassembler: every opcode of an encoding, with operands that suit it.
Encodings and opcode fields: RDNA3 and RDNA4 ISA manuals, "Microcode Formats". Graphics encodings (MIMG,
MTBUF, EXP, LDS direct) are left out: no compute kernel of clang's has them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from emulator.amdgpu.isa import translate  # noqa: F401  (brings all that is registered)
from emulator.amdgpu.isa.census import EMITTED
from emulator.amdgpu.isa.control import FLOW
from emulator.amdgpu.isa.decode import Decoder
from emulator.amdgpu.isa.emit import find

SIZE = 16
"""Bytes given to the disassembler, the unused ones zero."""

_SUFFIX = re.compile(r"(_e64_dpp|_dpp|_e64|_e32)$")
_V = 256
"""The first VGPR in a nine-bit source."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """Where an encoding has its opcode.

    Attributes:
        name: as the manuals call it.
        base: the bits that mark it.
        shift: of the opcode's lowest bit.
        width: of the opcode.
        operands: what to try in the other bits, until one decodes.
        second: take the second half of a pair.
    """

    name: str
    base: int
    shift: int
    width: int
    operands: tuple[int, ...]
    second: bool = False


def _three(*sources: tuple[int, int, int]) -> tuple[int, ...]:
    """VOP3's destination and sources."""
    return tuple(4 | a << 32 | b << 41 | c << 50 for a, b, c in sources)


_ALL = (_V + 6, _V + 2, _V + 8)
_VOP3 = _three(
    _ALL, (_V + 6, _V + 2, 0), (_V + 6, 0, 0), (_V + 6, 2, 4), (_V + 6, 2, 0), (6, 2, 4), (6, 0, 0)
)
_VOP3P = tuple(x | 1 << 14 | 3 << 59 for x in _three((_V + 16, _V + 32, _V + 8), (_V + 6, _V + 2, 0)))
_PAIR = _V + 6 | 2 << 9 | (_V + 5) << 32 | 3 << 41 | 2 << 49 | 6 << 56

VALU = (
    Encoding("VOP1", 0x3F << 25, 9, 7, (4 << 17 | _V + 2,)),
    Encoding("VOP2", 0, 25, 6, (4 << 17 | 2 << 9 | _V + 6,)),
    Encoding("VOPC", 0x3E << 25, 17, 8, (2 << 9 | _V + 6,)),
    Encoding("VOP3", 0x35 << 26, 16, 10, _VOP3),
    Encoding("VOP3P", 0xCC << 24, 16, 7, _VOP3P),
    Encoding("VOPD X", 0x32 << 26, 22, 4, (_PAIR | 4 << 17, _PAIR & ~(255 << 9) | 4 << 17)),
    Encoding("VOPD Y", 0x32 << 26, 17, 5, (_PAIR | 4 << 22, _PAIR & ~(255 << 41) | 4 << 22), second=True),
)
SALU = (
    Encoding("SOP1", 0x17D << 23, 8, 8, (4 << 16 | 2,)),
    Encoding("SOP2", 0x2 << 30, 23, 7, (4 << 16 | 6 << 8 | 2,)),
    Encoding("SOPC", 0x17E << 23, 16, 7, (6 << 8 | 2,)),
    Encoding("SOPK", 0xB << 28, 23, 5, (4 << 16 | 2,)),
    Encoding("SOPP", 0x17F << 23, 16, 7, (0,)),
)
_DS = tuple(
    operands << 32
    for operands in (
        1 | 2 << 8 | 4 << 16,
        1 | 2 << 8,
        1,
        1 | 2 << 8 | 4 << 16 | 6 << 24,
        1 | 6 << 24,
        6 << 24,
    )
)
"""Address, one or two data, destination: what each instruction has of them."""
MEMORY = {
    11: (
        Encoding("SMEM", 0x3D << 26, 18, 8, (1 | 4 << 6, 1 | 4 << 6 | 124 << 57)),
        Encoding("DS", 0x36 << 26, 18, 8, _DS),
        Encoding("MUBUF", 0x38 << 26, 18, 8, (1 << 32 | 2 << 40 | 4 << 48 | 124 << 56, 0)),
        Encoding("FLAT", 0x37 << 26, 18, 7, (1 << 32 | 4 << 40 | 6 << 56 | 0x7C << 48,)),
        Encoding("GLOBAL", 0x37 << 26 | 2 << 16, 18, 7, (1 << 32 | 4 << 40 | 6 << 56 | 0x7C << 48,)),
        Encoding("SCRATCH", 0x37 << 26 | 1 << 16, 18, 7, (1 << 32 | 4 << 40 | 6 << 56 | 0x7C << 48,)),
    ),
    12: (
        Encoding("SMEM", 0x3D << 26, 13, 6, (1 | 4 << 6 | 0x7C << 57,)),
        Encoding("DS", 0x36 << 26, 18, 8, _DS),
        Encoding("VBUFFER", 0x31 << 26, 14, 7, (0x7C | 4 << 32 | 8 << 41 | 1 << 62 | 1 << 64, 0x7C)),
        Encoding("FLAT", 0xEC << 24, 14, 8, (0x7C | 6 << 32 | 4 << 55 | 1 << 64,)),
        Encoding("SCRATCH", 0xED << 24, 14, 8, (0x7C | 6 << 32 | 4 << 55 | 1 << 64,)),
        Encoding("GLOBAL", 0xEE << 24, 14, 8, (0x7C | 6 << 32 | 4 << 55 | 1 << 64,)),
    ),
}


@dataclass(frozen=True, slots=True)
class Row:
    """An encoding of a chip.

    Attributes:
        encoding: as the manuals call it.
        exist: mnemonics that it has, in alphabetical order.
        implemented: those of them that have semantics.
        emitted: those that clang's output over the census kernels contains, in any encoding.
    """

    encoding: str
    exist: tuple[str, ...]
    implemented: tuple[str, ...]
    emitted: tuple[str, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """What a kernel is refused for."""
        return tuple(name for name in self.exist if name not in self.implemented)


def mnemonics(chip: str, encoding: Encoding) -> set[str]:
    """What an encoding has on a chip, without suffixes; of a VOPD pair, the names of the single ones.

    Raises:
        EnvironmentMissing: there is no libLLVM with the AMDGPU target.
    """
    decoder = Decoder(chip)
    found = set()
    for opcode in range(1 << encoding.width):
        for operands in encoding.operands:
            word = encoding.base | opcode << encoding.shift | operands
            size, text = decoder.disassemble(word.to_bytes(SIZE, "little"))
            if size:
                break
        else:
            continue
        part = text.split(" :: ")[-1 if encoding.second else 0]
        found.add(_SUFFIX.sub("", part.split()[0]).replace("v_dual_", "v_"))
    return found


def table(chip: str, generation: int) -> list[Row]:
    """All rows of a chip. VOP3 lists only what no shorter encoding has.

    Args:
        chip: as LLVM calls it.
        generation: 11 or 12.

    Raises:
        EnvironmentMissing: there is no libLLVM with the AMDGPU target.
    """
    emitted = EMITTED[generation]
    rows = []
    shorter: set[str] = set()
    for encoding in (*VALU, *SALU, *MEMORY[generation]):
        exist = mnemonics(chip, encoding)
        if encoding.name == "VOP3":
            exist -= shorter
        shorter |= exist
        done = {name for name in exist if name in FLOW or find(name, generation) is not None}
        names = tuple(sorted(exist))
        rows.append(
            Row(encoding.name, names, _of(names, done), tuple(name for name in names if name in emitted))
        )
    return rows


def _of(names: Sequence[str], chosen: set[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in chosen)
