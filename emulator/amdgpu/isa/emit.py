"""What an instruction's semantics are written in, and where they are registered.

A semantics is a function of an Emitter and an Instruction that writes LLVM IR:

    @instruction("v_add_nc_u32")
    def _(e: Emitter, i: Instruction) -> None:
        dst, a, b = i.operands
        e.write(dst, e.b.add(e.v32(a), e.v32(b)))

A VGPR is a <32 x i32>, an SGPR an i32, a lane mask a <32 x i1> (V1). Sources are read in all lanes,
without regard to EXEC; `write` changes the active lanes only. `e.b` is the IR builder (see `ir.Builder`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.ir import I1, I16, I32, I64, V1, V16, V32, V64, Builder, Value, const
from emulator.amdgpu.isa.operands import EXEC, Instruction, Operand
from sdk.errors import InternalError

HINTS = frozenset({"glc", "slc", "dlc", "th", "scope"})
"""Modifiers of memory instructions that are about caches: there are none here."""
DPP = frozenset(
    {"dpp8", "quad_perm", "row_shl", "row_shr", "row_ror", "row_mirror", "row_half_mirror", "row_share",
     "row_xmask", "row_mask", "bank_mask", "bound_ctrl", "fi"}
)  # fmt: skip
MODIFIERS = {
    "smem": HINTS | {"offset"},
    "vmem": HINTS | {"offset"},
    "lds": frozenset({"offset", "offset0", "offset1"}),
}
"""What all instructions of a class obey."""

CLASSES = ("valu", "salu", "smem", "vmem", "lds", "wmma", "branch", "other")
"""Classes that instructions are counted in, as `seams.Outcome` names them."""


OVERFLOW = 23
"""Bit FP16_OVFL of the MODE register."""


@dataclass(frozen=True, slots=True)
class Mode:
    """Floating-point behaviour: FLOAT_MODE of RSRC1, as S_ROUND_MODE, S_DENORM_MODE and S_SETREG change it.

    Attributes:
        round: of f32: 0 nearest even, 1 up, 2 down, 3 to zero.
        round64: of f16 and f64.
        denorm: of f32: bit 0 keeps denormal sources, bit 1 denormal results.
        denorm64: of f16 and f64.
        dx10_clamp: clamp turns NaN into 0; gfx12 always does.
        ieee: signalling NaNs are quieted by min and max; gfx12 has no such bit.
        fp16_ovfl: results beyond the largest f16 or 8-bit float become that instead of an infinity.
    """

    round: int = 0
    round64: int = 0
    denorm: int = 3
    denorm64: int = 3
    dx10_clamp: bool = True
    ieee: bool = True
    fp16_ovfl: bool = False

    @classmethod
    def of(cls, rsrc1: int, generation: int) -> Mode:
        """From COMPUTE_PGM_RSRC1: FLOAT_MODE in bits 19:12, FP16_OVFL in 26, on gfx11 DX10_CLAMP in 21 and
        IEEE_MODE in 23.
        """
        old = generation < 12
        clamp, ieee = (rsrc1 >> 21 & 1, rsrc1 >> 23 & 1) if old else (1, 1)
        return cls(fp16_ovfl=bool(rsrc1 >> 26 & 1)).with_bits(rsrc1 >> 12 & 0xFF, 0, 8, clamp, ieee)

    @property
    def bits(self) -> int:
        """Bits 9:0 and 23 of the MODE register."""
        low = self.round | self.round64 << 2 | self.denorm << 4 | self.denorm64 << 6
        return low | self.dx10_clamp << 8 | self.ieee << 9 | self.fp16_ovfl << OVERFLOW

    def with_bits(self, value: int, low: int, width: int, clamp: int = -1, ieee: int = -1) -> Mode:
        """With some of the MODE register's bits replaced."""
        mask = ((1 << width) - 1) << low
        bits = self.bits & ~mask | value << low & mask
        return replace(
            self,
            round=bits & 3,
            round64=bits >> 2 & 3,
            denorm=bits >> 4 & 3,
            denorm64=bits >> 6 & 3,
            dx10_clamp=bool(bits >> 8 & 1 if clamp < 0 else clamp),
            ieee=bool(bits >> 9 & 1 if ieee < 0 else ieee),
            fp16_ovfl=bool(bits >> OVERFLOW & 1),
        )


class Refused(Exception):
    """An instruction, or a form of one, that has no semantics here.

    Attributes:
        instruction: None if it could not even be decoded.
        address: from the kernel's entry.
    """

    def __init__(self, address: int, text: str, instruction: Instruction | None = None) -> None:
        super().__init__(text)
        self.address = address
        self.instruction = instruction


class Emitter:
    """Reads and writes registers in IR.

    Registers live in stack slots between basic blocks, which LLVM makes SSA values of, and in the builder's
    values within one.

    Args:
        builder: where the IR goes.
        generation: 11 or 12.
        mode: floating-point mode at the entry.

    Attributes:
        b: the builder.
        generation: 11 or 12.
        mode: in force at this instruction.
        instruction: being written.
        sgprs: scalar registers that the kernel uses, by number.
        vgprs: vector registers that it uses.
        sites: how many instructions remember where in memory they were.
        locals: values of the wave that are not registers: their types, by name.
    """

    def __init__(self, builder: Builder, generation: int, mode: Mode) -> None:
        self.b = builder
        self.generation = generation
        self.mode = mode
        self.instruction: Instruction | None = None
        self.sgprs: set[int] = set()
        self.vgprs: set[int] = set()
        self.sites = 0
        self.locals: dict[str, str] = {}
        self._values: dict[str, Value] = {}  # current values of the block, by slot
        self._dirty: set[str] = set()
        self._masks: dict[int, Value] = {}  # lane masks that equal the scalar registers
        self._deferred: list[Callable[[], None]] | None = None
        self._restricted: Value | None = None
        self._replaced: dict[int, Value] = {}

    # The frame: what the translator calls.

    def refuse(self, why: str) -> Refused:
        """The error to raise for a form that is not implemented."""
        if self.instruction is None:
            raise InternalError("a refusal outside of an instruction")
        return Refused(self.instruction.address, f"{self.instruction.text}: {why}", self.instruction)

    def begin(self, instruction: Instruction) -> None:
        """Start an instruction."""
        self.instruction = instruction
        self._restricted = None
        self._replaced = {}

    def begin_block(self, known: Iterable[tuple[str, Value]] = ()) -> None:
        """Forget what the slots hold, but for these."""
        self._values = dict(known)
        self._dirty = set()
        self._masks = {}

    def flush(self) -> None:
        """Put what has changed into the slots, before the block ends."""
        for slot in sorted(self._dirty):
            self.b.store(self._values[slot], Value(ir.PTR, slot))
        self._dirty = set()

    def defer(self) -> None:
        """Hold writes of VGPRs back until `release`: halves of a VOPD pair read before either writes."""
        self._deferred = []

    def release(self) -> None:
        """Carry out what was held back."""
        deferred, self._deferred = self._deferred or [], None
        for action in deferred:
            action()

    # EXEC

    @property
    def exec(self) -> Value:
        """EXEC as a lane mask."""
        return self.mask(EXEC)

    @property
    def active(self) -> Value:
        """Lanes that the instruction changes: EXEC, less what DPP disables."""
        return self._restricted or self.exec

    @property
    def full(self) -> bool:
        """Whether all lanes are known to be active."""
        return self._restricted is None and self._scalar(EXEC).ref == "-1"

    def restrict(self, lanes: Value) -> None:
        """For the rest of the instruction, only these lanes (V1) of the active ones are."""
        self._restricted = self.b.and_(self.active, lanes)

    @contextmanager
    def within(self, lanes: Value) -> Iterator[None]:
        """Meanwhile, only these lanes (V1) of the active ones are active."""
        before = self._restricted
        self.restrict(lanes)
        yield
        self._restricted = before

    def replace(self, operand: Operand, value: Value) -> None:
        """For the rest of the instruction, `v32` of this very operand is `value` (V32); DPP."""
        self._replaced[id(operand)] = value

    # Registers by number

    def sgpr(self, index: int) -> Value:
        """A scalar register (I32)."""
        return self._scalar(index)

    def set_sgpr(self, index: int, value: Value) -> None:
        """Write a scalar register (I32)."""
        self._masks.pop(index, None)
        self.sgprs.add(index)
        self._write(f"%s{index}", value)

    def sgpr64(self, index: int) -> Value:
        """A pair of scalar registers (I64)."""
        low, high = (self.b.cast("zext", self._scalar(index + half), I64) for half in (0, 1))
        return self.b.or_(self.b.shl(high, const(I64, 32)), low)

    def set_sgpr64(self, index: int, value: Value) -> None:
        """Write a pair of scalar registers (I64)."""
        self.set_sgpr(index, self.b.cast("trunc", value, I32))
        self.set_sgpr(index + 1, self.b.cast("trunc", self.b.lshr(value, const(I64, 32)), I32))

    def mask(self, index: int) -> Value:
        """A scalar register as a lane mask (V1)."""
        if index not in self._masks:
            bits = self._scalar(index)
            self._masks[index] = const(V1, 1) if bits.ref == "-1" else self.b.cast("bitcast", bits, V1)
        return self._masks[index]

    def set_mask(self, index: int, lanes: Value) -> None:
        """Write a lane mask (V1) to a scalar register, as it is."""
        self.set_sgpr(index, self.b.cast("bitcast", lanes, I32))
        self._masks[index] = lanes

    def vgpr(self, index: int) -> Value:
        """A vector register (V32)."""
        self.vgprs.add(index)
        return self._read(f"%r{index}", V32)

    def set_vgpr(self, index: int, value: Value, lanes: Value | None = None) -> None:
        """Write a vector register (V32) in `lanes` (V1), if not given in the active ones."""
        if self._deferred is not None:
            active = lanes or (None if self.full else self.active)
            self._deferred.append(lambda: self._blend(index, value, active))
        else:
            self._blend(index, value, lanes or (None if self.full else self.active))

    def set_vgpr_all(self, index: int, value: Value) -> None:
        """Write a vector register in all lanes, without regard to EXEC: v_writelane, WMMA."""
        self._blend(index, value, None)

    def _blend(self, index: int, value: Value, lanes: Value | None) -> None:
        if lanes is not None:
            value = self.b.select(lanes, value, self.vgpr(index))
        self.vgprs.add(index)
        self._write(f"%r{index}", value)

    @property
    def scc(self) -> Value:
        """SCC (I1)."""
        return self._read("%scc", I1)

    @scc.setter
    def scc(self, value: Value) -> None:
        self._write("%scc", value)

    def local(self, name: str, kind: str) -> Value:
        """A value of the wave that is not a register, such as a counter; it starts as 0."""
        self.locals[name] = kind
        return self._read(f"%{name}", kind)

    def set_local(self, name: str, value: Value) -> None:
        self.locals[name] = value.type
        self._write(f"%{name}", value)

    def new_site(self) -> int:
        """Number of another place to remember a piece of memory in."""
        self.sites += 1
        return self.sites - 1

    def _scalar(self, index: int) -> Value:
        self.sgprs.add(index)
        return self._read(f"%s{index}", I32)

    def _read(self, slot: str, kind: str) -> Value:
        value = self._values.get(slot)
        if value is None:
            value = self._values[slot] = self.b.load(kind, Value(ir.PTR, slot))
        return value

    def _write(self, slot: str, value: Value) -> None:
        self._values[slot] = value
        self._dirty.add(slot)

    # Vector sources: raw bits, then floats with their modifiers

    def v32(self, operand: Operand) -> Value:
        """32 bits a lane (V32), without neg and abs. A float constant is an f32."""
        if id(operand) in self._replaced:
            return self._replaced[id(operand)]
        if operand.kind == "v":
            return self.vgpr(operand.index)
        return self.b.splat(self.s32(operand))

    def v64(self, operand: Operand, literal: str = "zext") -> Value:
        """64 bits a lane (V64); `literal` as in `s64`."""
        if operand.kind == "v":
            low, high = (self.b.to("zext", self.vgpr(operand.index + half), I64) for half in (0, 1))
            return self.b.or_(self.b.shl(high, const(V64, 32)), low)
        return self.b.splat(self.s64(operand, literal))

    def v16(self, operand: Operand, *, high: bool = False) -> Value:
        """16 bits a lane (V16): the low half, or the high one (op_sel, or .h). A float constant is an f16."""
        if operand.kind == "float":
            bits = struct.unpack("<H", struct.pack("<e", operand.value))[0]
            return const(V16, 0 if high else bits)
        bits = self.v32(operand)
        if high or operand.half == "h":
            bits = self.b.lshr(bits, const(V32, 16))
        return self.b.to("trunc", bits, I16)

    def f32(self, operand: Operand) -> Value:
        """f32 a lane (VF32), with neg and abs."""
        return self.modified(operand, self.b.cast("bitcast", self.v32(operand), ir.VF32))

    def f64(self, operand: Operand) -> Value:
        """f64 a lane (VF64), with neg and abs."""
        return self.modified(operand, self.b.cast("bitcast", self.v64(operand, "high"), ir.VF64))

    def f16(self, operand: Operand, *, high: bool = False) -> Value:
        """f16 a lane (VF16), with neg and abs."""
        return self.modified(operand, self.b.cast("bitcast", self.v16(operand, high=high), ir.VF16))

    def modified(self, operand: Operand, value: Value) -> Value:
        """A float with the operand's abs and neg done to it."""
        if operand.abs:
            value = self.b.intrinsic("fabs", value)
        return self.b.fneg(value) if operand.neg else value

    def lanes(self, operand: Operand) -> Value:
        """A lane mask (V1) from a scalar source: VCC of v_cndmask, carry in."""
        if operand.kind == "s":
            return self.mask(operand.index)
        return self.b.cast("bitcast", self.s32(operand), V1)

    # Scalar sources

    def s32(self, operand: Operand) -> Value:
        """32 bits (I32), the same for all lanes. A float constant is an f32."""
        if operand.kind == "s":
            return self._scalar(operand.index)
        if operand.kind == "null":
            return const(I32, 0)
        if operand.kind == "float":
            return const(I32, struct.unpack("<i", struct.pack("<f", operand.value))[0])
        if operand.kind == "special":
            value = self.special(operand.name)
            return self.b.cast("trunc", value, I32)
        if operand.kind in ("int", "literal"):
            return const(I32, _signed(int(operand.value), 32))
        raise self.refuse(f"{operand.name} is not a scalar source")

    def s64(self, operand: Operand, literal: str = "zext") -> Value:
        """64 bits (I64). A 32-bit literal is extended ("zext", "sext"), or is the "high" half, as of an f64;
        a float constant is an f64.
        """
        if operand.kind == "s":
            return self.sgpr64(operand.index)
        if operand.kind == "null":
            return const(I64, 0)
        if operand.kind == "float":
            return const(I64, struct.unpack("<q", struct.pack("<d", operand.value))[0])
        if operand.kind == "special":
            return self.b.cast("zext", self.special(operand.name), I64)
        if operand.kind == "int":
            return const(I64, int(operand.value))
        if operand.kind == "literal":
            value = int(operand.value)
            if literal == "high":
                return const(I64, _signed(value << 32, 64))
            return const(I64, _signed(value, 32) if literal == "sext" else value)
        raise self.refuse(f"{operand.name} is not a scalar source")

    def special(self, name: str) -> Value:
        """A source with a name: I32, or I64 of an aperture."""
        if name in ("src_scc", "scc"):
            return self.b.cast("zext", self.scc, I32)
        if name == "src_execz":
            return self.b.cast("zext", self.b.icmp("eq", self._scalar(EXEC), const(I32, 0)), I32)
        if name == "src_vccz":
            return self.b.cast("zext", self.b.icmp("eq", self._scalar(106), const(I32, 0)), I32)
        if name in ("src_shared_base", "src_private_base"):
            high = Value(I32, f"%{name.split('_')[1]}_aperture")
            return self.b.shl(self.b.cast("zext", high, I64), const(I64, 32))
        if name in ("src_flat_scratch_base_lo", "src_flat_scratch_base_hi"):
            base = Value(I64, "%scratch")
            return self.b.lshr(base, const(I64, 32)) if name.endswith("hi") else base
        raise self.refuse(f"source {name} is not implemented")

    # Destinations

    def write(self, operand: Operand, value: Value) -> None:
        """Write VGPRs in the active lanes, by the value's type: 32 or 64 bits a lane, integers or floats. For
        16 bits see `write16`.
        """
        bits = ir.BITS[ir.split(value.type)[1]]
        if operand.kind != "v" or bits not in (32, 64):
            raise self.refuse(f"{operand.name} cannot hold {value.type}")
        if bits == 32:
            self.set_vgpr(operand.index, self.b.cast("bitcast", value, V32))
            return
        whole = self.b.cast("bitcast", value, V64)
        self.set_vgpr(operand.index, self.b.to("trunc", whole, I32))
        high = self.b.lshr(whole, const(V64, 32))
        self.set_vgpr(operand.index + 1, self.b.to("trunc", high, I32))

    def write16(self, operand: Operand, value: Value, *, high: bool = False) -> None:
        """Write 16 bits of a VGPR in the active lanes, and leave the other half as it is."""
        bits = self.b.to("zext", self.b.cast("bitcast", value, V16), I32)
        old = self.vgpr(operand.index)
        if high or operand.half == "h":
            bits, keep = self.b.shl(bits, const(V32, 16)), 0xFFFF
        else:
            keep = -0x10000
        self.set_vgpr(operand.index, self.b.or_(bits, self.b.and_(old, const(V32, keep))))

    def write_lanes(self, operand: Operand, lanes: Value) -> None:
        """Write a lane mask (V1) to a scalar destination: 0 for lanes that are not active."""
        if operand.kind == "null":
            return
        if operand.kind != "s":
            raise self.refuse(f"{operand.name} is not a scalar destination")
        self.set_mask(operand.index, lanes if self.full else self.b.and_(lanes, self.active))

    def write_s(self, operand: Operand, value: Value) -> None:
        """Write a scalar destination: I32, or I64 to a pair."""
        if operand.kind == "null":
            return
        if operand.kind != "s":
            raise self.refuse(f"{operand.name} is not a scalar destination")
        if value.type == I64:
            self.set_sgpr64(operand.index, value)
        else:
            self.set_sgpr(operand.index, value)


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


Semantics = Callable[[Emitter, Instruction], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered instruction.

    Attributes:
        emit: writes its IR.
        kind: one of CLASSES.
        generations: that have it.
        modifiers: that it obeys, beside those of its class and DPP's; "neg": signs of operands.
    """

    emit: Semantics
    kind: str
    generations: tuple[int, ...]
    modifiers: frozenset[str] = frozenset()


REGISTRY: dict[str, Entry] = {}
"""By mnemonic, as `Instruction.mnemonic` has it."""

PREPARATIONS: list[Semantics] = []
"""What is called before the semantics of an instruction with DPP: permutes its first source."""


def instruction(
    *mnemonics: str, kind: str = "valu", generations: tuple[int, ...] = (11, 12), modifiers: str = ""
) -> Callable[[Semantics], Semantics]:
    """Register the semantics of one or more mnemonics; see Entry."""

    def register(emit: Semantics) -> Semantics:
        add(mnemonics, emit, kind=kind, generations=generations, modifiers=modifiers)
        return emit

    return register


def add(
    mnemonics: Iterable[str],
    emit: Semantics,
    *,
    kind: str = "valu",
    generations: tuple[int, ...] = (11, 12),
    modifiers: str = "",
) -> None:
    """The same for tables. Raises InternalError if one is there already, or the class is unknown."""
    for mnemonic in mnemonics:
        if mnemonic in REGISTRY or kind not in CLASSES:
            raise InternalError(f"{mnemonic} ({kind}) cannot be registered")
        obeyed = MODIFIERS.get(kind, frozenset()) | set(modifiers.split())
        REGISTRY[mnemonic] = Entry(emit, kind, generations, obeyed)


def find(mnemonic: str, generation: int) -> Entry | None:
    """The semantics of a mnemonic, None if there is none on that generation."""
    entry = REGISTRY.get(mnemonic)
    return entry if entry and generation in entry.generations else None


def carry_out(e: Emitter, i: Instruction) -> None:
    """Write an instruction's IR. Raises Refused if it is not implemented, or a modifier of it is not."""
    e.begin(i)
    entry = find(i.mnemonic, e.generation)
    if entry is None:
        raise e.refuse(f"{i.mnemonic} is not implemented")
    for name in i.modifiers:
        if name not in entry.modifiers and not (i.dpp and name in DPP):
            raise e.refuse(f"{name} is not implemented for it")
    signs = "neg" in entry.modifiers
    if any(part.sext or (not signs and (part.neg or part.abs)) for part in i.operands):
        raise e.refuse("the sign of an operand is changed, which is not implemented for it")
    for prepare in PREPARATIONS if i.dpp else ():
        prepare(e, i)
    entry.emit(e, i)


def dpp_preparation(prepare: Semantics) -> Semantics:
    """Register what permutes the first source of DPP instructions (with `replace` and `restrict`)."""
    PREPARATIONS.append(prepare)
    return prepare
