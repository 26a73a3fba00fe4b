"""What follows a mnemonic: registers, constants, and their modifiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

VCC = 106
"""Number of vcc_lo in the scalar operand space. Source: RDNA3 and RDNA4 ISA manuals, scalar operands."""
TTMP = 108
M0 = 125
EXEC = 126
SCALARS = 128
"""Scalar registers with a number: SGPRs 0 to 105, VCC, TTMP 0 to 15, NULL (124), M0, EXEC."""
LANES = 32


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """One operand; two that read alike are still two (DPP permutes one of them).

    Attributes:
        kind: "v" VGPRs; "s" scalar registers by the numbers above; "int" an inline integer; "float" an inline
            float; "literal" 32 bits of code; "null"; "off"; "special": a source or a message known by name.
        index: first register.
        count: how many registers.
        value: of a constant: the integer, the float, or the literal's 32 bits.
        name: of a special one, such as `src_scc`; else as LLVM writes it.
        half: "l" or "h" of a 16-bit register, "" if the instruction names none.
        neg: whether its sign is flipped (after abs).
        abs: whether its sign is cleared.
        sext: whether it is sign-extended (integer).
    """

    kind: str
    index: int = 0
    count: int = 1
    value: int | float = 0
    name: str = ""
    half: str = ""
    neg: bool = False
    abs: bool = False
    sext: bool = False

    @property
    def constant(self) -> bool:
        return self.kind in ("int", "float", "literal")


Modifier = int | str | bool | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        address: in bytes, from the entry of the kernel.
        size: bytes.
        mnemonic: without _e32, _e64, _dpp; a VOPD pair has those of its halves, joined by " :: ".
        encoding: "e32", "e64", "dpp", "e64_dpp" as LLVM suffixes it, "vopd", or "".
        operands: destinations first, as LLVM writes them.
        modifiers: by name: `offset`: 16, `op_sel`: (0, 1), `clamp`: True, `quad_perm`: (1, 0, 3, 2),
            `th`: "TH_LOAD_NT"; numbers are integers.
        code: the bytes as a little-endian integer.
        text: as LLVM writes it.
        pair: the halves of a VOPD pair: both read before either writes.
    """

    address: int
    size: int
    mnemonic: str
    encoding: str
    operands: tuple[Operand, ...]
    modifiers: Mapping[str, Modifier] = field(default_factory=dict)
    code: int = 0
    text: str = ""
    pair: tuple[Instruction, ...] = ()

    @property
    def end(self) -> int:
        """Address of what follows."""
        return self.address + self.size

    @property
    def dpp(self) -> bool:
        """Whether its first source comes from other lanes."""
        return self.encoding.endswith("dpp")

    @property
    def simm16(self) -> int:
        """The immediate of SOPP and SOPK, signed."""
        low = self.code & 0xFFFF
        return low - 0x10000 if low & 0x8000 else low

    @property
    def target(self) -> int:
        """Where a relative branch goes."""
        return self.end + 4 * self.simm16

    def number(self, modifier: str, default: int = 0) -> int:
        """A modifier as a number."""
        value = self.modifiers.get(modifier, default)
        return value if isinstance(value, int) else default

    def bits(self, modifier: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """A modifier that is a list, such as `op_sel`."""
        value = self.modifiers.get(modifier, default)
        return value if isinstance(value, tuple) else default
