"""DPP: the first source of an instruction comes from other lanes of its row (16) or group (8).

A lane reads 0 if the one it should read is out of the row or, but for `fi`, not active; without bound_ctrl
it is not written instead. row_mask and bank_mask leave lanes out altogether. Source: RDNA3 and RDNA4 ISA
manuals, "Data Parallel Processing".
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.amdgpu.isa.emit import Emitter, dpp_preparation
from emulator.amdgpu.isa.ir import I1, LANES, V1, V32, Value, const, const_list
from emulator.amdgpu.isa.operands import Instruction, Operand

ROW = 16


def sources(i: Instruction) -> list[int]:
    """The lane that each lane reads; -1 out of its row. Empty if the control is not known."""
    mods = i.modifiers
    for name, place in _CONTROLS.items():
        if name in mods:
            amount = i.number(name)
            return [place(lane % ROW, amount, lane - lane % ROW) for lane in range(LANES)]
    if "quad_perm" in mods:
        quad = i.bits("quad_perm")
        return [lane - lane % 4 + quad[lane % 4] for lane in range(LANES)]
    if "dpp8" in mods:
        group = i.bits("dpp8")
        return [lane - lane % 8 + group[lane % 8] for lane in range(LANES)]
    return []


_CONTROLS: dict[str, Callable[[int, int, int], int]] = {
    "row_shl": lambda at, n, row: row + at + n if at + n < ROW else -1,
    "row_shr": lambda at, n, row: row + at - n if at >= n else -1,
    "row_ror": lambda at, n, row: row + (at - n) % ROW,
    "row_mirror": lambda at, n, row: row + ROW - 1 - at,
    "row_half_mirror": lambda at, n, row: row + at // 8 * 8 + 7 - at % 8,
    "row_share": lambda at, n, row: row + n,
    "row_xmask": lambda at, n, row: row + (at ^ n),
}
"""By name: from the lane's place in its row, the amount, and the row's first lane."""


def permuted(i: Instruction) -> Operand:
    """The source that DPP is about: the first one."""
    if i.mnemonic.startswith("v_cmpx"):
        return i.operands[0]
    carries = i.operands[1].kind in ("s", "null") and i.operands[0].kind == "v"
    return i.operands[2 if carries else 1]


@dpp_preparation
def prepare(e: Emitter, i: Instruction) -> None:
    """Permute, and leave lanes out."""
    order = sources(i)
    if not order:
        raise e.refuse("this DPP control is not implemented")
    b = e.b
    rows, banks = i.number("row_mask", 15), i.number("bank_mask", 15)
    enabled = [rows >> lane // ROW & banks >> lane % ROW // 4 & 1 for lane in range(LANES)]
    operand = permuted(i)
    inside = [int(place >= 0) for place in order]
    result = b.shuffle(e.v32(operand), const(V32, 0), [place if place >= 0 else LANES for place in order])
    valid: Value | None = None if all(inside) else const_list(I1, inside)
    if not i.number("fi") and not e.full:
        active = b.shuffle(e.exec, const(V1, 0), [place if place >= 0 else LANES for place in order])
        valid = active
    if valid is not None:
        if "dpp8" in i.modifiers or i.number("bound_ctrl"):
            result = b.select(valid, result, const(V32, 0))
        else:
            e.restrict(valid)
    if not all(enabled):
        e.restrict(const_list(I1, enabled))
    e.replace(operand, result)
