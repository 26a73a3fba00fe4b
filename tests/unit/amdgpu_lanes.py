"""Single vector instructions: assembled by clang, translated, run on lanes; and their expected results."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import io
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from elftools.elf.elffile import ELFFile

import emulator.amdgpu.isa.sparse
import emulator.amdgpu.isa.vector  # noqa: F401
from emulator.amdgpu.isa import ir, jit
from emulator.amdgpu.isa.decode import Decoder
from emulator.amdgpu.isa.emit import Emitter, Mode, carry_out
from emulator.amdgpu.isa.operands import EXEC, Instruction
from sdk import cache, toolchain
from tests.unit.amdgpu_semantics import FORMATS, Semantics, call
from tests.unit.amdgpu_semantics_integer import DTYPES, TABLE

VGPRS = 96
TARGET = 40
"""First register of destinations."""
FIRST, STEP = 4, 4
"""VGPRs of the sources; each has four."""
SCALAR, MASK_IN, MASK_OUT = 8, 16, 20
GENERATION = {"gfx1100": 11, "gfx1201": 12}


def assemble(chip: str, lines: Sequence[str]) -> bytes:
    """The code of some instructions."""
    source = "\n".join(lines) + "\n"
    args = ["-target", "amdgcn-amd-amdhsa", f"-mcpu={chip}", "-x", "assembler", "-c", "-o", "-", "-"]
    key = hashlib.sha256(repr((args, source, toolchain.version("clang"))).encode()).hexdigest()[:24]
    path = Path(cache.directory("test-shaders")) / f"{key}.o"
    if not path.exists():
        cache.keep(path, toolchain.run("clang", args, input=source.encode()).stdout)
    text = ELFFile(io.BytesIO(path.read_bytes())).get_section_by_name(".text")
    return text.data()


def decode(chip: str, lines: Sequence[str]) -> list[Instruction]:
    """Instructions, by way of their code."""
    code, at, result, decoder = assemble(chip, lines), 0, [], Decoder(chip)
    for _ in lines:
        result.append(decoder.decode(code[at : at + 20], at))
        at = result[-1].end
    return result


def function(name: str, instructions: Iterable[Instruction], generation: int, mode: Mode) -> tuple[str, dict]:
    """A host function of instructions: registers in, registers out."""
    b = ir.Builder()
    e = Emitter(b, generation, mode)
    b.start("body")
    e.begin_block()
    for instruction in instructions:
        if instruction.pair:
            e.defer()
            for half in instruction.pair:
                carry_out(e, half)
            e.release()
        else:
            carry_out(e, instruction)
    e.flush()
    slots = [("r", "%v", 128, ir.V32, index) for index in sorted(e.vgprs)]
    slots += [("s", "%s", 4, ir.I32, index) for index in sorted(e.sgprs)]
    before, after = [], []
    for letter, base, size, kind, index in slots:
        slot = f"%{letter}{index}"
        before += [
            f"  {slot} = alloca {kind}",
            f"  {slot}.p = getelementptr i8, ptr {base}, i64 {size * index}",
        ]
        before += [f"  {slot}.i = load {kind}, ptr {slot}.p", f"  store {kind} {slot}.i, ptr {slot}"]
        after += [f"  {slot}.o = load {kind}, ptr {slot}", f"  store {kind} {slot}.o, ptr {slot}.p"]
    lines = [f"define void @{name}(ptr %v, ptr %s) {{", "entry:", *before, "  br label %body", *b.lines]
    return "\n".join([*lines, *after, "  ret void", "}"]), b.declarations


class Bench:
    """Host functions of several pieces of code, in one module."""

    def __init__(self, chip: str, pieces: Sequence[tuple[Sequence[Instruction], Mode]]) -> None:
        declarations: dict[str, str] = {}
        bodies = []
        for number, (instructions, mode) in enumerate(pieces):
            body, needed = function(f"t{number}", instructions, GENERATION[chip], mode)
            bodies.append(body)
            declarations |= needed
        text = "\n".join([*declarations.values(), *bodies, "!0 = !{i32 1}", "!1 = !{i32 1}"])
        self.loaded = jit.Loaded(jit.compiled(text), {})
        self.kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

    def run(self, number: int, vgprs: np.ndarray, sgprs: np.ndarray) -> None:
        """Change registers as the code does."""
        held = np.empty(vgprs.size + 16, np.uint32)
        start = -held.ctypes.data % 64 // 4
        aligned = held[start : start + vgprs.size].reshape(vgprs.shape)
        aligned[:] = vgprs
        self.kind(self.loaded.address(f"t{number}"))(aligned.ctypes.data, sgprs.ctypes.data)
        vgprs[:] = aligned


# Values

EDGES = {
    "f16": (0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x3800, 0x4200, 0x7BFF, 0xFBFF, 0x7C00,
            0xFC00, 0x7E00, 0x7D01, 0x4B00, 0xC400, 0x3555),
    "f32": (0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x3F800000, 0xBF800000, 0x3F000000, 0x40200000,
            0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFC12345, 0x4F000000,
            0xCF000000, 0x4F800000, 0x477FF000, 0x33000000, 0x3EAAAAAB, 0x42FF0000, 0x7E800001, 0x0C000000),
    "f64": (0, 1 << 63, 1, 0xFFFFFFFFFFFFF, 1 << 52, 0x3FF0 << 48, 0xBFF0 << 48, 0x3FE0 << 48, 0x7FF0 << 48,
            0xFFF0 << 48, 0x7FF8 << 48, 0x7FF0000000000001, 0x7FEFFFFFFFFFFFFF, 0x41DFFFFFFFC00000,
            0xC1E0 << 48, 0x41EFFFFFFFE00000, 0x4330 << 48, 0x36A0 << 48, 0x3810 << 48, 0x47EFFFFFF0000000,
            0x3FD5555555555555),
}  # fmt: skip


def values(rng: np.random.Generator, kind: str) -> np.ndarray:
    """Bits of 32 lanes of a type: edges, numbers of ordinary size, anything."""
    width = int(kind[1:])
    anything = rng.integers(0, 1 << width, 32, dtype=np.uint64 if width == 64 else np.int64).astype(np.uint64)
    if kind[0] == "f":
        edges = np.array(EDGES[kind], np.uint64)
        usual = rng.normal(0, 4, 32).astype(DTYPES[kind]).view(f"uint{width}").astype(np.uint64)
        usual = np.where(rng.random(32) < 0.2, np.roll(usual, 1), usual)
    else:
        top = 1 << (width - 1)
        edges = np.array(
            [0, 1, 2, 31, 32, 33, 255, 256, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2], np.uint64
        )
        usual = rng.integers(0, 40, 32).astype(np.uint64)
    chosen = rng.random(32)
    picked = np.where(chosen < 0.4, rng.choice(edges, 32), np.where(chosen < 0.7, usual, anything))
    if rng.random() < 0.3:
        picked[: len(edges)] = edges[:32]
    return picked


@dataclass
class Source:
    """A source of a case: a VGPR, an SGPR, or a constant."""

    kind: str
    place: str = "v"
    index: int = 0
    text: str = ""
    constant: int = 0
    neg: bool = False
    abs: bool = False
    high: bool = False

    def __str__(self) -> str:
        name = self.text
        if self.place in "vs":
            last = self.index + int(
                self.kind[1:] == "64" if self.kind not in ("mask", "acc", "selector") else 0
            )
            name = f"{self.place}{self.index}" if last == self.index else f"{self.place}[{self.index}:{last}]"
        name = f"|{name}|" if self.abs else name
        return f"-{name}" if self.neg else name

    def read(self, vgprs: np.ndarray, sgprs: np.ndarray) -> np.ndarray:
        """The lanes' values."""
        if self.kind == "mask":
            return np.array([sgprs[self.index] >> lane & 1 for lane in range(32)], bool)
        kind = "u32" if self.kind == "selector" else self.kind
        width = int(kind[1:])
        if self.place == "c":
            whole = np.full(32, self.constant, np.uint64)
        else:
            low, high = ((vgprs[self.index + n] if self.place == "v" else np.full(32, sgprs[self.index + n]))
                         for n in (0, 1))  # fmt: skip
            whole = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        whole = whole >> np.uint64(16 * self.high) & np.uint64((1 << width) - 1)
        result = whole.astype(f"uint{width}").view(DTYPES[kind]).copy()
        if self.abs:
            result = np.abs(result)
        return -result if self.neg else result


CONSTANTS = {"f16": "<e", "f32": "<f", "f64": "<d"}


def constant(rng: np.random.Generator, kind: str) -> Source:
    """An inline constant, or a literal of 32 bits or fewer."""
    width = int(kind[1:])
    if rng.random() < 0.4:
        number = int(rng.integers(-16, 65))
        return Source(kind, "c", text=str(number), constant=number & (1 << width) - 1)
    if kind[0] == "f" and rng.random() < 0.6:
        number = float(rng.choice([0.5, -0.5, 1, -1, 2, -2, 4, -4]))
        raw = struct.pack(CONSTANTS[kind], number)
        return Source(kind, "c", text=str(number), constant=int.from_bytes(raw, "little"))
    if width == 64:
        return Source(kind, "c", text="7", constant=7)
    number = int(rng.integers(1000, 1 << min(width, 31)))
    return Source(kind, "c", text=hex(number), constant=number)


@dataclass
class Case:
    """An instruction with operands and modifiers."""

    name: str
    semantics: Semantics
    sources: list[Source]
    mode: Mode
    clamp: bool = False
    factor: float = 1.0
    high: bool = False
    mask_out: int = MASK_OUT
    text: str = field(default="", init=False)

    def __post_init__(self) -> None:
        targets = []
        for kind in self.semantics.targets:
            if kind == "mask":
                targets.append(f"s{self.mask_out}")
            elif kind != "exec":
                targets.append(f"v{TARGET}" if kind[1:] != "64" else f"v[{TARGET}:{TARGET + 1}]")
        operands = targets + [str(s) for s in self.sources if s.kind != "acc"]
        words = [f"{self.name} {', '.join(operands)}"]
        if self.semantics.op_sel and (self.high or any(s.high for s in self.sources)):
            chosen = [int(s.high) for s in self.sources]
            narrow = self.semantics.targets[0][1:] == "16"
            words.append(f"op_sel:[{','.join(map(str, [*chosen, int(self.high)] if narrow else chosen))}]")
        if self.clamp:
            words.append("clamp")
        if self.factor != 1:
            words.append({2: "mul:2", 4: "mul:4", 0.5: "div:2"}[self.factor])
        self.text = " ".join(words)
        if self.name == "v_mov_b16":  # of 16-bit ones, the only one that LLVM 19 wants halves of
            self.text = re.sub(r"\b(v\d+)\b", r"\1.l", self.text)

    def initial(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Registers to start with."""
        vgprs = rng.integers(0, 1 << 32, (VGPRS, 32), dtype=np.uint32)
        sgprs = rng.integers(0, 1 << 32, 128, dtype=np.uint32)
        if rng.random() < 0.3:
            sgprs[EXEC] = 0xFFFFFFFF
        for position, source in enumerate(self.sources):
            if source.kind == "mask" or source.place == "c":
                continue
            kind = self.semantics.targets[0] if source.kind == "acc" else source.kind
            if kind == "selector":
                whole = rng.integers(0, 14, (4, 32)).astype(np.uint64)
                whole = sum(whole[n] << np.uint64(8 * n) for n in range(4))
                kind = "u32"
            else:
                whole = values(rng, kind)
            high = self.high if source.kind == "acc" else source.high
            if source.place == "s":
                moved = whole[0] << np.uint64(16 * high)
                sgprs[source.index : source.index + 2] = moved & np.uint64(0xFFFFFFFF), moved >> np.uint64(32)
                continue
            index = TARGET if source.kind == "acc" else source.index
            if kind[1:] == "16":
                other = vgprs[index] & 0xFFFF
                low = whole.astype(np.uint32)
                vgprs[index] = other | low << 16 if high else low | other << 16
            else:
                vgprs[index] = whole & np.uint64(0xFFFFFFFF)
                if kind[1:] == "64":
                    vgprs[index + 1] = whole >> np.uint64(32)
            if position == 1 and rng.random() < 0.2 and self.sources[0].place == "v":
                vgprs[index : index + 2] = vgprs[FIRST : FIRST + 2]
        return vgprs, sgprs

    def expected(
        self, vgprs: np.ndarray, sgprs: np.ndarray, generation: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Registers after it."""
        active = np.array([sgprs[EXEC] >> lane & 1 for lane in range(32)], bool)
        args = []
        for source in self.sources:
            if source.kind == "acc":
                source = Source(self.semantics.targets[0], "v", TARGET, high=self.high)
            value = source.read(vgprs, sgprs)
            if source.kind[0] == "f" and "class" not in self.name:
                value = flush(value, self.keeps(source.kind, 1))
            args.append(value)
        options = {"clamp": True} if self.clamp and self.semantics.clamps else {}
        results = self.semantics.function(*args, mode=self.mode, **options) if options else call(
            self.semantics.function, *args, mode=self.mode, generation=generation)  # fmt: skip
        results = results if isinstance(results, tuple) else (results,)
        vgprs, sgprs = vgprs.copy(), sgprs.copy()
        for kind, result in zip(self.semantics.targets, results, strict=True):
            if kind in ("mask", "exec"):
                number = sum(1 << lane for lane in range(32) if result[lane] and active[lane])
                sgprs[self.mask_out if kind == "mask" else EXEC] = number
                continue
            if kind[0] == "f":
                result = self.finished(kind, result, generation)
            whole = np.ascontiguousarray(result.astype(DTYPES[kind])).view(f"uint{kind[1:]}")
            if kind[1:] == "16":
                old, whole = vgprs[TARGET], whole.astype(np.uint32)
                whole = whole << 16 | old & 0xFFFF if self.high else whole | old & 0xFFFF0000
            vgprs[TARGET] = np.where(active, whole & 0xFFFFFFFF, vgprs[TARGET])
            if kind[1:] == "64":
                vgprs[TARGET + 1] = np.where(active, whole >> np.uint64(32), vgprs[TARGET + 1])
        return vgprs, sgprs

    def keeps(self, kind: str, bit: int) -> bool:
        return bool((self.mode.denorm if kind == "f32" else self.mode.denorm64) & bit)

    def finished(self, kind: str, result: np.ndarray, generation: int) -> np.ndarray:
        with np.errstate(all="ignore"):
            if self.factor != 1 and not self.keeps(kind, 2) and (generation == 12 or not self.mode.ieee):
                result = result * result.dtype.type(self.factor)
            result = flush(result, self.keeps(kind, 2))
            if self.clamp:
                zero = generation == 12 or self.mode.dx10_clamp
                limited = np.minimum(np.where(result > 0, result, 0), 1)
                result = limited if zero else np.where(np.isnan(result), result, limited)
            return result.astype(FORMATS[kind][0])

    def same(self, got: np.ndarray, wanted: np.ndarray) -> bool:
        """Whether the target's registers agree: NaNs are alike, and some results may be off by `ulp`."""
        kind = self.semantics.targets[0]
        if kind[0] != "f" or np.array_equal(got, wanted):
            return np.array_equal(got, wanted)
        if kind == "f16" and self.high:
            got, wanted = got >> 16 | got << 16, wanted >> 16 | wanted << 16
        width = int(kind[1:])
        pairs = []
        for state in (got, wanted):
            whole = state[0] if width < 64 else state[0] | state[1].astype(np.uint64) << np.uint64(32)
            pairs.append((whole & np.array((1 << width) - 1, whole.dtype)).astype(f"uint{width}"))
        if width == 16 and not np.array_equal(got[0] >> 16, wanted[0] >> 16):
            return False
        a, b = (np.ascontiguousarray(each).view(DTYPES[kind]) for each in pairs)
        far = np.abs(pairs[0].astype(object) - pairs[1].astype(object)).astype(float)
        return bool(np.all((far <= self.semantics.ulp) | (np.isnan(a) & np.isnan(b))))


def flush(value: np.ndarray, keep: bool) -> np.ndarray:
    if keep:
        return value
    least = {2: 2.0**-14, 4: 2.0**-126, 8: 2.0**-1022}[value.itemsize]
    with np.errstate(all="ignore"):
        return np.where(np.abs(value) < least, np.copysign(value.dtype.type(0), value), value)


NO_MODIFIERS = ("v_cmp", "v_div_scale", "v_cndmask")
MODES = (
    Mode(),
    Mode(round=1, denorm=0, ieee=False),
    Mode(round=2, denorm=1, denorm64=2),
    Mode(round=3, denorm=0, denorm64=0, ieee=False, dx10_clamp=False),
)


def case(
    rng: np.random.Generator, name: str, semantics: Semantics, simple: bool, modes: Sequence[Mode]
) -> Case:
    """An instruction of random operands and modifiers."""
    sources, free = [], not simple
    for position, kind in enumerate(semantics.sources):
        if kind == "mask":
            sources.append(Source(kind, "s", MASK_IN))
        elif kind == "acc":
            sources.append(Source(kind, "v", TARGET))
        elif free and kind != "selector" and rng.random() < 0.3:
            free = False
            place = Source(kind, "s", SCALAR) if rng.random() < 0.5 else constant(rng, kind)
            sources.append(place)
        else:
            sources.append(Source(kind, "v", FIRST + STEP * position))
    result = Case(name, semantics, sources, modes[int(rng.integers(len(modes)))])
    target = semantics.targets[0]
    if simple:
        return result
    for source in sources:
        if source.kind[0] == "f" and source.kind != "acc" and source.place != "c" and "div_scale" not in name:
            source.neg, source.abs = rng.random() < 0.25, rng.random() < 0.25
        if semantics.op_sel and source.kind[1:] == "16" and source.place == "v":
            source.high = rng.random() < 0.4
    if semantics.op_sel and target[1:] == "16":
        result.high = rng.random() < 0.4
    if target[0] == "f" and not name.startswith(NO_MODIFIERS):
        result.clamp = rng.random() < 0.2
        if rng.random() < 0.2:
            result.factor = float(rng.choice([2, 4, 0.5]))
    result.clamp |= semantics.clamps and rng.random() < 0.4
    result.__post_init__()
    return result


@functools.cache
def available(chip: str) -> tuple[str, ...]:
    """Mnemonics of TABLE that the chip has."""
    return tuple(sorted(name for name, each in TABLE.items() if GENERATION[chip] in each.generations))
