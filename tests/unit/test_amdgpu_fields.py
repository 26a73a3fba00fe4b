"""Fields of the encoding: none is dropped. Each bit changes what is executed, or is refused."""

from __future__ import annotations

import pytest

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.decode import Undecodable, decoder
from emulator.amdgpu.isa.emit import Emitter, Mode, Refused, carry_out, find
from tests.unit.amdgpu_lanes import GENERATION

CHIPS = ("gfx1100", "gfx1201")
FLUSHING = Mode(denorm=0, denorm64=0, ieee=False)
"""omod works here alone."""
V = 256
SOURCES = (
    (V + 6, V + 2, V + 8),
    (V + 6, V + 2, 0),
    (V + 6, 0, 0),
    (V + 6, 2, 4),
    (V + 6, 2, 0),
    (6, 2, 4),
    (6, 0, 0),
)
PACKED = ((V + 16, V + 32, V + 8), (V + 16, V + 32, 0))
OP_SEL_HI = (14, 59, 60)


def code(chip: str, word: int) -> list[str] | None:
    """The IR of an instruction; None if it is refused."""
    try:
        instruction = decoder(chip).decode(word.to_bytes(20, "little"), 0)
        e = Emitter(ir.Builder(), GENERATION[chip], FLUSHING)
        e.begin_block()
        carry_out(e, instruction)
    except (Undecodable, Refused):
        return None
    e.flush()
    return [*e.b.lines, *e.b.declarations]


def words(chip: str, packed: bool) -> dict[str, int]:
    """A word of each opcode of VOP3 or VOP3P that is implemented, by mnemonic."""
    found = {}
    base = 0xCC000000 | 1 << 14 | 3 << 59 if packed else 0xD4000000
    for opcode in range(128 if packed else 1024):
        for sources in PACKED if packed else SOURCES:
            word = base | opcode << 16 | 4 | sum(source << 32 + 9 * at for at, source in enumerate(sources))
            size, text = decoder(chip).disassemble(word.to_bytes(20, "little"))
            if not size:
                continue
            name = text.split()[0].removesuffix("_e64")
            if find(name, GENERATION[chip]):
                found[name] = word
            break
    return found


def dropped_bits(chip: str, packed: bool, step: int) -> list[str]:
    """Of every `step`th opcode, bits that decode and change nothing."""
    dropped = []
    for name, word in list(words(chip, packed).items())[step // 2 :: step]:
        plain = code(chip, word)
        assert plain is not None, name
        for bit in (8, 9, 10, 11, 12, 13, 14, 15, 59, 60, 61, 62, 63):
            changed = code(chip, word ^ 1 << bit)
            if changed != plain:
                continue
            if packed and bit in OP_SEL_HI and ("wmma" in name or bit == 14):
                continue  # means nothing there: WMMA, and third sources that there are not
            dropped.append(f"{name} bit {bit}")
    return dropped


@pytest.mark.parametrize(("chip", "packed"), [("gfx1100", False), ("gfx1201", True)])
def test_some_modifier_bits_are_not_dropped(chip: str, packed: bool) -> None:
    assert not dropped_bits(chip, packed, 16)


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("packed", [False, True])
def test_no_modifier_bit_is_dropped(chip: str, packed: bool) -> None:
    """op_sel, neg, abs, omod, clamp of every opcode."""
    assert not dropped_bits(chip, packed, 1)
