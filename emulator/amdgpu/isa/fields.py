"""Fields of the encoding that LLVM's text leaves out, and what is done about them.

Source of the fields: RDNA3 and RDNA4 ISA manuals, "Microcode Formats" and "VALU Operands": 16-bit operands.

* op_sel of VOP3, bits 14:11: the halves of the sources and of the destination. LLVM 19 prints them for a few
  instructions only. They are taken from here, and LLVM gets the instruction without them.
* A 16-bit operand of VOP1, VOP2, VOPC has only seven bits for the VGPR; the eighth takes the high half. LLVM
  19 decodes that for a few instructions only. It gets the low halves; whether an operand has 16 bits is asked
  of it by giving it one high register at a time.
  v_cvt_pk_f32_fp8 and _bf8 of RDNA4 have a 16-bit source too, which LLVM 19 takes for one of 32 (inferred
  from later LLVMs).
* abs and neg of VOP3: what LLVM decodes alike with and without such a bit is not carried by the text, and is
  refused.
* Registers that an instruction has no use for, such as VDST of a DS instruction that returns nothing, and
  VOPD's second source of a move: hardware ignores them, LLVM's decoder wants zeros. It gets them.
* RDNA4's VOPD has v_dot2acc_f32_f16, which LLVM 19 left out; it gets v_fmac_f32, which has the same operands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Read = Callable[[int], tuple[int, str]]
"""LLVM's size and text of an instruction; size 0 if there is none."""

OP_SEL = 0xF << 11
_VOP3_SCALAR = frozenset({*range(0x120, 0x123), *range(0x2FC, 0x303)})
"""Opcodes of VOP3 that write a carry (VOP3SD), which is in op_sel's place."""
_REMARK = "/*"
"""Begins what LLVM says of an operand that it decoded but that the instruction cannot have."""
WARNING = "; Warning"
"""Begins what it says of one that is not aligned."""
_DPP = (233, 234, 250)
_HALF_SOURCES = 1 << 8
"""Bit of a nine-bit source that makes it a VGPR."""
_PAIRS = ("v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8")
_VOPD_DOT2 = 12
_UNUSED = {0x36: (56, 48, 40), 0x32: (9, 41)}
"""By bits 31:26: where registers are that not all instructions of an encoding (DS, VOPD) have."""


@dataclass(frozen=True, slots=True)
class Reading:
    """An instruction as LLVM reads it, and what it does not say.

    Attributes:
        size: bytes.
        text: LLVM's.
        op_sel: bits 14:11 of VOP3: first source, second, third, destination.
        high: operands, by position from the front or (negative) the end, that are high halves.
        silent: a set field that the text does not carry, "" if there is none.
    """

    size: int
    text: str
    op_sel: tuple[int, int, int, int] = (0, 0, 0, 0)
    high: tuple[int, ...] = ()
    silent: str = ""

    @property
    def valid(self) -> bool:
        """Whether LLVM has nothing to remark on the operands."""
        return bool(self.size) and _REMARK not in self.text


def read(word: int, llvm: Read) -> Reading:
    """The instruction in the low bits of `word`; size 0 if LLVM decodes none."""
    if word >> 26 & 0x3F == 0x35:
        return _vop3(word, llvm)
    found = Reading(*llvm(word))
    if found.valid:
        late = word >> 25 & 0x7F == 0x3F and word & 0x180 == 0x180 and found.text.startswith(_PAIRS)
        return Reading(*llvm(word & ~0x80), high=(1,)) if late else found
    for attempt in (_halves, _without_unused, _dot2):
        other = attempt(word, llvm)
        if other is not None:
            return other
    return found


def _vop3(word: int, llvm: Read) -> Reading:
    if word >> 16 & 0x3FF in _VOP3_SCALAR:
        return Reading(*llvm(word))
    chosen = (word >> 11 & 1, word >> 12 & 1, word >> 13 & 1, word >> 14 & 1)
    plain = word & ~OP_SEL
    size, text = llvm(plain)
    return Reading(size, text, chosen, silent=_silent(plain, size, text, llvm))


def _silent(word: int, size: int, text: str, llvm: Read) -> str:
    """The first sign bit of VOP3 that is set and without which the text is the same."""
    if not size or not word & (7 << 61 | 7 << 8):
        return ""
    for name, first in (("neg", 61), ("abs", 8)):
        for source in range(3):
            bit = 1 << first + source
            if word & bit and llvm(word & ~bit) == (size, text):
                return f"{name} of source {source}"
    return ""


def _halves(word: int, llvm: Read) -> Reading | None:
    """VOP1, VOP2, VOPC with registers above 127, of which some are high halves."""
    fields = _short_fields(word)
    base = word
    for bit in fields:
        base &= ~(1 << bit)
    low = Reading(*llvm(base))
    if not fields or not low.valid or " " not in low.text.strip():  # v_nop has no operands
        return None
    high = []
    for bit, position in fields.items():
        # Register 128, as more than one may follow.
        if Reading(*llvm(base & ~(0x7F << bit - 7) | 1 << bit)).valid:
            continue
        high.append(position)
        word &= ~(1 << bit)
    found = Reading(*llvm(word), high=tuple(high))
    return found if found.valid else None


def _short_fields(word: int) -> dict[int, int]:
    """Top bits of the VGPR numbers above 127 of VOP1, VOP2 and VOPC, and the operands' positions."""
    kind = word >> 25 & 0x7F
    if kind >= 0x40:
        return {}
    one, compare = kind == 0x3F, kind == 0x3E
    fields = {} if compare else {24: 0}
    source = word & 0x1FF
    where = -2 if compare else 1
    if source & _HALF_SOURCES:
        fields[7] = where
    elif source in _DPP:
        fields[39] = where
    if not one:
        fields[16] = -1 if compare else 3 if kind == 0x37 else 2  # v_fmamk_f16 has its literal before it
    return {bit: position for bit, position in fields.items() if word >> bit & 1}


def _without_unused(word: int, llvm: Read) -> Reading | None:
    """The same with zeros in registers that the instruction does not have."""
    fields = _UNUSED.get(word >> 26 & 0x3F, ())
    for chosen in range(1, 1 << len(fields)):
        bits = [bit for at, bit in enumerate(fields) if chosen >> at & 1]
        plain = word
        for bit in bits:
            plain &= ~(0xFF << bit)
        found = Reading(*llvm(plain))
        # One that it has could be 4 as well; then something else is wrong with this instruction.
        if found.valid and not any(llvm(plain | 4 << bit)[0] for bit in bits):
            return found
    return None


def _dot2(word: int, llvm: Read) -> Reading | None:
    """VOPD with v_dot2acc_f32_f16."""
    if word >> 26 & 0x3F != 0x32:
        return None
    halves = [word >> 22 & 0xF == _VOPD_DOT2, word >> 17 & 0x1F == _VOPD_DOT2]
    for half, (shift, width) in zip(halves, ((22, 4), (17, 5)), strict=True):
        if half:
            word &= ~(((1 << width) - 1) << shift)
    if not any(halves):
        return None
    found = read(word, llvm)
    if not found.valid:
        return None
    parts = [
        part.replace("v_dual_fmac_f32", "v_dual_dot2acc_f32_f16") if half else part
        for half, part in zip(halves, found.text.split(" :: "), strict=True)
    ]
    return Reading(found.size, " :: ".join(parts))
