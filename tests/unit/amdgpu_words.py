"""Instructions encoded here, field by field, from the ISA manuals' "Microcode Formats": random operands,
halves and modifiers over what an opcode has, and the registers that numpy expects after them.

An opcode's number is asked of LLVM's disassembler; nothing else is.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from emulator.amdgpu.isa.emit import Mode
from emulator.amdgpu.isa.operands import VCC
from sdk.disassembler import Disassembler
from tests.unit.amdgpu_lanes import (
    CONSTANTS,
    GENERATION,
    MASK_IN,
    MODES,
    SCALAR,
    TABLE,
    TARGET,
    Case,
    Source,
    available,
)
from tests.unit.amdgpu_semantics import Semantics

V = 256
LITERAL = 255
SIZE = 20
FLOATS = {0.5: 240, -0.5: 241, 1.0: 242, -1.0: 243, 2.0: 244, -2.0: 245, 4.0: 246, -4.0: 247}
SHORT = {"VOP1": (0x3F << 25, 9, 128), "VOP2": (0, 25, 62), "VOPC": (0x3E << 25, 17, 256)}
"""First bits, place of the opcode, opcodes."""
CARRY = ("_co_u32", "_co_ci_u32", "_u64_u32", "_i64_i32", "v_div_scale")
"""VOP3 with a scalar destination in op_sel's place."""
VOP3 = ((V + 6, V + 2, V + 8), (V + 6, V + 2, 0), (V + 6, 0, 0))


@functools.cache
def _llvm(chip: str) -> Disassembler:
    return Disassembler("AMDGPU", "amdgcn-amd-amdhsa", chip)


def _name(chip: str, word: int) -> str:
    size, text = _llvm(chip).disassemble(word.to_bytes(SIZE, "little"))
    name = text.split()[0] if size else ""
    return name.removesuffix("_e64").removesuffix("_e32")


@functools.cache
def opcodes(chip: str) -> dict[tuple[str, str], int]:
    """Numbers by encoding and mnemonic."""
    found = {}
    for encoding, (base, shift, count) in SHORT.items():
        for number in range(count):
            operands = 2 << 9 | V + 6 if encoding == "VOPC" else 4 << 17 | V + 2
            operands = 4 << 17 | 2 << 9 | V + 6 if encoding == "VOP2" else operands
            found[encoding, _name(chip, base | number << shift | operands)] = number
    for number in range(1024):
        for sources in VOP3:
            word = 0xD4000000 | number << 16 | 4 | sum(s << 32 + 9 * n for n, s in enumerate(sources))
            if name := _name(chip, word):
                found["VOP3", name] = number
                break
    return found


def _half(operand: Source) -> int:
    """The number of a VGPR in eight bits: of a 16-bit operand, the eighth is the half."""
    return operand.index | 128 * operand.high


@dataclass
class Word(Case):
    """A case that is encoded here, not assembled."""

    chip: str = ""
    encoding: str = "VOP3"
    literal: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.text = f"{self.encoding} {self.name} {[str(s) + '.h' * s.high for s in self.sources]}"
        self.text += f" {'high ' * self.high}{'clamp ' * self.clamp}{self.factor}"

    def code(self) -> bytes:
        number = opcodes(self.chip)[self.encoding, self.name]
        sources = [source for source in self.sources if source.kind != "acc"]
        word = self._vop3(number, sources) if self.encoding == "VOP3" else self._short(number, sources)
        return word.to_bytes(SIZE, "little")

    def _source(self, source: Source) -> int:
        if source.place == "v":
            return V + source.index
        if source.place == "s":
            return source.index
        if source.text == "literal":
            self.literal = source.constant
            return LITERAL
        return int(source.text)

    def _vop3(self, number: int, sources: Sequence[Source]) -> int:
        target = self.semantics.targets[0]
        word = 0xD4000000 | number << 16
        word |= self.mask_out if target == "mask" else 126 if target == "exec" else TARGET
        for at, source in enumerate(sources):
            word |= self._source(source) << 32 + 9 * at | source.neg << 61 + at
            word |= 0 if writes_carry(self.name) else source.abs << 8 + at | source.high << 11 + at
        if writes_carry(self.name):
            word |= self.mask_out << 8
        word |= self.high << 14 | self.clamp << 15 | {1: 0, 2: 1, 4: 2, 0.5: 3}[self.factor] << 59
        return word | self.literal << 64

    def _short(self, number: int, sources: Sequence[Source]) -> int:
        base, shift, _ = SHORT[self.encoding]
        word = base | number << shift
        if self.encoding != "VOPC":
            word |= (TARGET | 128 * self.high) << 17
        first = sources[0]
        word |= self._source(replace(first, index=_half(first)) if first.place == "v" else first)
        if len(sources) > 1 and sources[1].kind != "mask":
            word |= _half(sources[1]) << 9
        return word | self.literal << 32


def writes_carry(name: str) -> bool:
    return any(part in name for part in CARRY)


def _constant(rng: np.random.Generator, kind: str) -> Source:
    """An inline constant, or a literal."""
    width = int(kind[1:])
    chosen = rng.random()
    if chosen < 0.35:
        number = int(rng.integers(-16, 65))
        code = 128 + number if number >= 0 else 192 - number
        return Source(kind, "c", text=str(code), constant=number & (1 << width) - 1)
    if chosen < 0.7 and kind[0] == "f":
        number = float(rng.choice(list(FLOATS)))
        raw = struct.pack(CONSTANTS[kind], number)
        return Source(kind, "c", text=str(FLOATS[number]), constant=int.from_bytes(raw, "little"))
    if width == 64:
        return Source(kind, "c", text="135", constant=7)
    return Source(kind, "c", text="literal", constant=int(rng.integers(1000, 1 << width)))


def _sources(rng: np.random.Generator, semantics: Semantics, short: bool) -> list[Source]:
    """Random places for the operands: one of them at most a scalar or a constant."""
    sources, free = [], rng.random() < 0.6
    scalar = 0 if short else int(rng.integers(0, 3))
    for position, kind in enumerate(semantics.sources):
        if kind == "mask":
            sources.append(Source(kind, "s", VCC if short else MASK_IN))
        elif kind == "acc":
            sources.append(Source(kind, "v", TARGET))
        elif free and kind != "selector" and position == scalar:
            sources.append(Source(kind, "s", SCALAR) if rng.random() < 0.5 else _constant(rng, kind))
        else:
            sources.append(Source(kind, "v", 4 + 8 * position + 2 * int(rng.integers(0, 3))))
    return sources


def word(rng: np.random.Generator, chip: str, name: str) -> Word:
    """A random instruction of a mnemonic of TABLE."""
    semantics = TABLE[name]
    numbers = opcodes(chip)
    encodings = [each for each in ("VOP1", "VOP2", "VOPC", "VOP3") if (each, name) in numbers]
    encoding = str(rng.choice(encodings))
    short = encoding != "VOP3"
    sources = _sources(rng, semantics, short)
    result = Word(
        name, semantics, sources, MODES[int(rng.integers(len(MODES)))], chip=chip, encoding=encoding
    )
    if short:
        result.mask_out = VCC
    target = semantics.targets[0]
    for source in sources:
        if source.kind[1:] == "16" and source.place != "c" and (source.place == "v" or not short):
            source.high = bool(rng.random() < 0.5)
        if source.kind[0] == "f" and not short and "div_scale" not in name:
            source.neg = bool(rng.random() < 0.25)
            source.abs = bool(rng.random() < 0.25) and not writes_carry(name)
    if target[1:] == "16":
        result.high = bool(rng.random() < 0.5)
    if not short and target[0] == "f" and "div_scale" not in name:
        result.clamp = bool(rng.random() < 0.2)
        result.factor = float(rng.choice([1, 1, 1, 1, 2, 4, 0.5]))
    elif not short and semantics.clamps:
        result.clamp = bool(rng.random() < 0.4)
    return _legal(result)


def _legal(chosen: Word) -> Word:
    """Without the modifiers that LLVM's decoder does not have for the opcode."""
    for change in ({}, {"factor": 1.0}, {"factor": 1.0, "clamp": False}):
        result = replace(chosen, **change)
        plain = int.from_bytes(result.code(), "little")
        if result.encoding == "VOP3" and not writes_carry(result.name):
            plain &= ~(0xF << 11)
        elif result.encoding != "VOP3":
            return result
        if _name(result.chip, plain):
            return result
    raise AssertionError(f"{chosen.text}: {chosen.code().hex()} is no instruction")


def names(chip: str) -> tuple[str, ...]:
    """What can be encoded."""
    known = {name for _, name in opcodes(chip)}
    return tuple(name for name in available(chip) if name in known)


# Packed

PACKED = {
    "pk_mad_i16": 0, "pk_mul_lo_u16": 1, "pk_add_i16": 2, "pk_sub_i16": 3, "pk_lshlrev_b16": 4,
    "pk_lshrrev_b16": 5, "pk_ashrrev_i16": 6, "pk_max_i16": 7, "pk_min_i16": 8, "pk_mad_u16": 9,
    "pk_add_u16": 10, "pk_sub_u16": 11, "pk_max_u16": 12, "pk_min_u16": 13, "pk_fma_f16": 14,
    "pk_add_f16": 15, "pk_mul_f16": 16, "fma_mix_f32": 32, "fma_mixlo_f16": 33, "fma_mixhi_f16": 34,
    "dot2_f32_f16": 19, "dot2_f32_bf16": 26,
}  # fmt: skip
PACKED_OF = {
    11: PACKED | {"pk_min_f16": 17, "pk_max_f16": 18},
    12: PACKED | {"pk_min_num_f16": 27, "pk_max_num_f16": 28, "pk_minimum_f16": 29, "pk_maximum_f16": 30},
}
"""Opcodes of VOP3P, by generation: ISA manuals."""
SINGLE = {"add_u16": "add_nc_u16", "add_i16": "add_nc_i16", "sub_u16": "sub_nc_u16", "sub_i16": "sub_nc_i16"}


@dataclass
class Packed:
    """A VOP3P instruction of random registers, halves and signs; each is a list by source."""

    chip: str
    name: str
    mode: Mode
    registers: list[int]
    low: list[int]
    high: list[int]
    neg_low: list[int]
    neg_high: list[int]
    clamp: bool

    @property
    def semantics(self) -> Semantics:
        """Of one half; of mixed ones and dot products, a sum in f32."""
        if self.wide:
            return TABLE["v_fma_f32"]
        single = self.name.removeprefix("pk_")
        return TABLE["v_" + SINGLE.get(single, single)]

    @property
    def wide(self) -> bool:
        """Whether f16s and f32s meet in it."""
        return "mix" in self.name or "dot2" in self.name

    def code(self) -> bytes:
        word = 0xCC000000 | PACKED_OF[GENERATION[self.chip]][self.name] << 16 | TARGET | self.clamp << 15
        for at, register in enumerate(self.registers):
            word |= (V + register) << 32 + 9 * at | self.low[at] << 11 + at
            word |= self.high[at] << (59 + at if at < 2 else 14)
            word |= self.neg_low[at] << 61 + at | self.neg_high[at] << 8 + at
        return word.to_bytes(SIZE, "little")


def packed(rng: np.random.Generator, chip: str, name: str) -> Packed:
    mode = MODES[int(rng.integers(len(MODES)))]
    result = Packed(chip, name, mode, [], [], [], [], [], False)
    mixed = result.wide
    count = 3 if mixed else len(result.semantics.sources)
    signs = mixed or result.semantics.sources[0][0] == "f"

    def bits(chance: float) -> list[int]:
        return [int(rng.random() < chance) for _ in range(count)]

    result.registers = [int(rng.integers(0, 5)) * 3 + 2 for _ in range(count)]
    result.low, result.high = bits(0.5), bits(0.5)
    if "dot2" in name:  # the sum has no halves
        result.low[2], result.high[2] = 0, 1
    if signs:
        result.neg_low, result.neg_high = bits(0.3), bits(0.3)
    else:
        result.neg_low = result.neg_high = [0] * count
    result.clamp = bool(rng.random() < 0.3) and (signs or result.semantics.clamps)
    return result
