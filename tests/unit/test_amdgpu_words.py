"""Random words of every opcode, against numpy: halves from op_sel and from the eighth bit of a VGPR's number,
signs, clamp, omod, literals, scalars, in every encoding that the opcode has.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from emulator.amdgpu.isa.decode import decoder
from emulator.amdgpu.isa.operands import EXEC, Instruction
from tests.amount import amount
from tests.unit.amdgpu_lanes import DTYPES, GENERATION, TABLE, TARGET, VGPRS, Bench, flush, values
from tests.unit.amdgpu_semantics import call
from tests.unit.amdgpu_words import PACKED_OF, Packed, Word, names, packed, word
from tests.unit.test_amdgpu_vector import describe

CHIPS = ("gfx1100", "gfx1201")


def decoded(chip: str, data: bytes) -> Instruction:
    return decoder(chip).decode(data, 0)


def wrong(chip: str, cases: list[Word], rounds: int) -> list[str]:
    """Run them, and describe those whose registers are not as expected."""
    bench = Bench(chip, [([decoded(chip, each.code())], each.mode) for each in cases])
    found = []
    for number, each in enumerate(cases):
        rng = np.random.default_rng((number, zlib.crc32(each.text.encode())))
        for _ in range(rounds):
            vgprs, sgprs = each.initial(rng)
            before = vgprs.copy(), sgprs.copy()
            wanted = each.expected(vgprs, sgprs, GENERATION[chip])
            bench.run(number, vgprs, sgprs)
            targets = (TARGET, TARGET + 1)
            others = np.delete(vgprs, targets, 0), np.delete(wanted[0], targets, 0)
            fits = np.array_equal(*others) and np.array_equal(sgprs, wanted[1])
            if not (fits and each.same(vgprs[TARGET : TARGET + 2], wanted[0][TARGET : TARGET + 2])):
                found.append(describe(each, before, (vgprs, sgprs), wanted))
                break
    return found


def drawn(chip: str, seed: int, step: int) -> list[Word]:
    """A word of every `step`th opcode."""
    rng = np.random.default_rng(seed)
    return [word(rng, chip, name) for name in names(chip)[seed % step :: step]]


@pytest.mark.parametrize("chip", CHIPS)
def test_some_words(chip: str) -> None:
    cases = drawn(chip, 3 + CHIPS.index(chip), 40)
    assert not wrong(chip, cases, 1)


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", range(amount(1, 12)))
def test_words_of_every_opcode(chip: str, seed: int) -> None:
    cases = [each for part in range(3) for each in drawn(chip, 100 * seed + part, 1)]
    found = wrong(chip, cases, 2)
    print(f"{chip}: {len(cases)} words of {len(names(chip))} mnemonics, {len(found)} wrong")
    assert not found, f"{len(found)} of {len(cases)}:\n" + "\n".join(found[:40])


# Packed


def halves(register: np.ndarray, kind: str) -> list[np.ndarray]:
    parts = [(register >> np.uint32(16 * n) & np.uint32(0xFFFF)).astype(np.uint16) for n in (0, 1)]
    return [part.view(DTYPES[kind]) for part in parts]


def expected(each: Packed, vgprs: np.ndarray) -> np.ndarray:
    """The target's new value."""
    semantics, generation = each.semantics, GENERATION[each.chip]
    if "mix" in each.name:
        return _mixed(each, vgprs)
    if "dot2" in each.name:
        return _dot2(each, vgprs)
    results = []
    target = semantics.targets[0]
    for chosen, signs in ((each.low, each.neg_low), (each.high, each.neg_high)):
        args = []
        for at, register in enumerate(each.registers):
            value = halves(vgprs[register], semantics.sources[at])[chosen[at]]
            value = -value if signs[at] else value
            args.append(flush(value, bool(each.mode.denorm64 & 1)) if target[0] == "f" else value)
        options = {"clamp": True} if each.clamp and target[0] != "f" else {}
        if options:
            value = semantics.function(*args, mode=each.mode, **options)
        else:
            value = call(semantics.function, *args, mode=each.mode, generation=generation)
        if target[0] == "f":
            value = _finished(each, value, bool(each.mode.denorm64 & 2))
        results.append(np.ascontiguousarray(value.astype(DTYPES[target])).view(np.uint16).astype(np.uint32))
    return results[0] | results[1] << np.uint32(16)


def _finished(each: Packed, value: np.ndarray, keep: bool) -> np.ndarray:
    value = flush(value, keep)
    if not each.clamp:
        return value
    limited = np.minimum(np.where(value > 0, value, 0), 1).astype(value.dtype)
    zero = GENERATION[each.chip] == 12 or each.mode.dx10_clamp
    return limited if zero else np.where(np.isnan(value), value, limited)


def _mixed(each: Packed, vgprs: np.ndarray) -> np.ndarray:
    mode, args = each.mode, []
    for at, register in enumerate(each.registers):
        if each.high[at]:
            value = flush(halves(vgprs[register], "f16")[each.low[at]], bool(mode.denorm64 & 1))
            value = value.astype(np.float32)
        else:
            value = flush(vgprs[register].view(np.float32), bool(mode.denorm & 1))
        value = np.abs(value) if each.neg_high[at] else value
        args.append(-value if each.neg_low[at] else value)
    total = TABLE["v_fma_f32"].function(*args, mode=mode)
    if "f32" in each.name:
        return _finished(each, total, bool(mode.denorm & 2)).astype(np.float32).view(np.uint32)
    short = TABLE["v_cvt_f16_f32"].function(total, mode=mode)
    short = (
        _finished(each, short, bool(mode.denorm64 & 2)).astype(np.float16).view(np.uint16).astype(np.uint32)
    )
    low, high = (part.astype(np.uint32) for part in halves(vgprs[TARGET], "u16"))
    return low | short << np.uint32(16) if "mixhi" in each.name else short | high << np.uint32(16)


def _dot2(each: Packed, vgprs: np.ndarray) -> np.ndarray:
    """The products of low and of high halves, added one by one."""
    mode = each.mode
    total = vgprs[each.registers[2]].view(np.float32)
    total = np.abs(total) if each.neg_high[2] else total
    total = flush(-total if each.neg_low[2] else total, bool(mode.denorm & 1))
    for chosen, signs in ((each.low, each.neg_low), (each.high, each.neg_high)):
        factors = []
        for at in (0, 1):
            value = halves(vgprs[each.registers[at]], "u16")[chosen[at]] ^ np.uint16(signs[at] << 15)
            if each.name.endswith("bf16"):
                factors.append((value.astype(np.uint32) << np.uint32(16)).view(np.float32))
            else:
                factors.append(flush(value.view(np.float16), bool(mode.denorm64 & 1)).astype(np.float32))
        total = TABLE["v_fma_f32"].function(*factors, total, mode=mode)
    return _finished(each, total, bool(mode.denorm & 2)).astype(np.float32).view(np.uint32)


def alike(each: Packed, got: np.ndarray, wanted: np.ndarray) -> bool:
    """Equal, or NaNs both."""
    if each.semantics.targets[0][0] != "f":
        return np.array_equal(got, wanted)
    if "_f32" in each.name:
        pairs = [(got.view(np.float32), wanted.view(np.float32))]
    else:
        pairs = list(zip(halves(got, "f16"), halves(wanted, "f16"), strict=True))
    kind = f"u{pairs[0][0].itemsize}"
    return all(np.all((a.view(kind) == b.view(kind)) | np.isnan(a) & np.isnan(b)) for a, b in pairs)


def check_packed(chip: str, cases: list[Packed]) -> None:
    bench = Bench(chip, [([decoded(chip, each.code())], each.mode) for each in cases])
    found = []
    for number, each in enumerate(cases):
        rng = np.random.default_rng(number)
        vgprs = rng.integers(0, 1 << 32, (VGPRS, 32), dtype=np.uint32)
        for register in range(TARGET):
            low, high = (values(rng, "f16").astype(np.uint32) for _ in (0, 1))
            vgprs[register] = low | high << np.uint32(16)
            if each.wide and register % 2:
                vgprs[register] = values(rng, "f32").astype(np.uint32)
        sgprs = np.zeros(128, np.uint32)
        sgprs[EXEC] = rng.choice([0xFFFFFFFF, 0x0F0F1234])
        active = np.array([sgprs[EXEC] >> lane & 1 for lane in range(32)], bool)
        with np.errstate(all="ignore"):
            wanted = np.where(active, expected(each, vgprs), vgprs[TARGET])
        before = vgprs.copy()
        bench.run(number, vgprs, sgprs)
        others = np.delete(vgprs, TARGET, 0), np.delete(before, TARGET, 0)
        if not (np.array_equal(*others) and alike(each, vgprs[TARGET], wanted)):
            lane = int(np.flatnonzero(vgprs[TARGET] != wanted)[0])
            sources = [hex(before[register, lane]) for register in each.registers]
            found.append(f"{each}: {sources} -> {vgprs[TARGET, lane]:08x}, not {wanted[lane]:08x}")
    print(f"{chip}: {len(cases)} packed words, {len(found)} wrong")
    assert not found, f"{len(found)} of {len(cases)}:\n" + "\n".join(found[:20])


@pytest.mark.parametrize("chip", CHIPS)
def test_some_packed_words(chip: str) -> None:
    rng = np.random.default_rng(CHIPS.index(chip))
    names = list(PACKED_OF[GENERATION[chip]])[CHIPS.index(chip) :: 5]
    check_packed(chip, [packed(rng, chip, name) for name in names])


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", range(amount(1, 8)))
def test_many_packed_words(chip: str, seed: int) -> None:
    rng = np.random.default_rng((seed, 5))
    check_packed(chip, [packed(rng, chip, name) for name in PACKED_OF[GENERATION[chip]] for _ in range(8)])
