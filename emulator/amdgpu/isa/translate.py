"""A kernel to one LLVM function.

Every basic block of the kernel is one of the function; registers are stack slots between them, which LLVM
promotes to SSA. The function is made twice where need be: for waves that start with all lanes, so that LLVM
can drop the blending of lanes, and for others.

    void NAME(struct waves_wave *wave, struct waves_run *run)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# These register the semantics.
from emulator.amdgpu.isa import (  # noqa: F401
    buffers,
    control,
    ir,
    lds,
    matrix,
    memory,
    scalar,
    scalar_float,
    sparse,
    vector,
)
from emulator.amdgpu.isa.control import FLOW, JUMP, RUN, TRAP, WATCHDOG
from emulator.amdgpu.isa.emit import Emitter, Mode, Refused, carry_out, find
from emulator.amdgpu.isa.flow import CALL, ENDS, Block, Program
from emulator.amdgpu.isa.ir import I1, I32, I64, PTR, V32, Value, const
from emulator.amdgpu.isa.operands import EXEC, LANES, Instruction

HEADER = """\
!0 = !{!"branch_weights", i32 1, i32 4000}
!1 = !{!"branch_weights", i32 4000, i32 1}
"""
ROWS = 4
"""Rows of 32 dwords that a lane's largest load or store takes."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets of the fields of struct waves_run and struct waves_wave that translated code reads."""

    run: Mapping[str, int]
    wave: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Translation:
    """A kernel as LLVM IR.

    Attributes:
        text: a module.
        sites: how many struct waves_site it needs.
        vgprs: how many VGPRs it names: one more than the highest.
    """

    text: str
    sites: int
    vgprs: int


def classes(program: Program, generation: int) -> list[dict[str, int]]:
    """Instructions by class, for each block in order.

    Raises:
        Refused: an instruction is not implemented.
    """
    counts = []
    for block in program.blocks.values():
        counted: dict[str, int] = {}
        for instruction in block.instructions:
            name = kind(instruction, generation)
            counted[name] = counted.get(name, 0) + 1
        counts.append(counted)
    return counts


def products(program: Program, generation: int) -> list[dict[int, int]]:
    """Products of 16 x 16 x 16 by bits of an element, for each block in order."""
    counts = []
    for block in program.blocks.values():
        counted: dict[int, int] = {}
        for instruction in block.instructions:
            if kind(instruction, generation) == "wmma":
                bits, count = matrix.products(instruction.mnemonic)
                counted[bits] = counted.get(bits, 0) + count
        counts.append(counted)
    return counts


def kind(instruction: Instruction, generation: int) -> str:
    """The class that an instruction counts in. Raises Refused if it is not implemented."""
    kinds = set()
    for part in instruction.pair or (instruction,):
        entry = find(part.mnemonic, generation)
        if entry is None:
            text = f"{instruction.text}: {part.mnemonic} is not implemented"
            raise Refused(instruction.address, text, instruction)
        kinds.add(entry.kind)
    return kinds.pop()


def translate(
    program: Program, generation: int, mode: Mode, layout: Layout, *, full: bool, keep: bool = False
) -> Translation:
    """IR of a kernel.

    Args:
        program: the kernel.
        generation: 11 or 12.
        mode: floating-point mode at the entry.
        layout: of the structures it works on.
        full: whether the wave starts with all lanes.
        keep: whether registers are written back at the end, to be looked at.

    Raises:
        Refused: an instruction, or a form of one, is not implemented.
    """
    return _Translator(program, generation, mode, layout, full, keep).translation()


def modes(program: Program, entry: Mode) -> dict[int, Mode]:
    """Floating-point mode at the start of each block. Raises Refused if it depends on the way there."""
    known = {0: entry}
    todo = [0]
    while todo:
        block = program.blocks[todo.pop()]
        mode = known[block.start]
        for instruction in block.instructions:
            after = control.next_mode(mode, instruction)
            if after is None:
                text = f"{instruction.text}: MODE can only be set to a constant"
                raise Refused(instruction.address, text, instruction)
            mode = after
        for successor in block.successors:
            if successor not in known:
                known[successor] = mode
                todo.append(successor)
            elif known[successor] != mode:
                raise Refused(successor, "MODE depends on the way to an instruction")
    return known


def _label(address: int) -> str:
    return f"at.{address:x}" if address >= 0 else f"before.{-address:x}"


class _Translator:
    def __init__(
        self, program: Program, generation: int, mode: Mode, layout: Layout, full: bool, keep: bool
    ) -> None:
        self.program = program
        self.layout = layout
        self.full = full
        self.keep = keep
        self.generation = generation
        self.modes = modes(program, mode)
        self.b = ir.Builder()
        self.e = Emitter(self.b, generation, mode)
        self.always_full = full and not any(map(_writes_exec, program.instructions))

    def translation(self) -> Translation:
        for number, block in enumerate(self.program.blocks.values()):
            self._block(number, block)
        if self.keep:
            self._end_label()
        body = self.b.lines
        self.b.lines = []
        self._prologue()
        declarations = [
            line + (" noreturn cold" if "@waves_stop" in line else " cold" if "@waves_" in line else "")
            for line in self.b.declarations.values()
        ]
        name = "full" if self.full else "partial"
        text = "\n".join(
            [
                *declarations,
                f'define void @{name}(ptr %wave, ptr %run) nounwind "probe-stack"="inline-asm" {{',
                *self.b.lines,
                *body,
                "}",
                HEADER,
            ]
        )
        return Translation(text, self.e.sites, max(self.e.vgprs, default=0) + 1)

    # Blocks

    def _block(self, number: int, block: Block) -> None:
        e, b = self.e, self.b
        b.start(_label(block.start))
        e.begin_block([(f"%s{EXEC}", const(I32, -1))] if self.always_full else [])
        e.mode = self.modes.get(block.start, e.mode)
        counter = b.gep(I64, Value(PTR, "%counts"), number)
        b.store(b.add(b.load(I64, counter), const(I64, 1)), counter)
        for instruction in block.instructions:
            self._instruction(block, instruction)
        if block.last.mnemonic not in FLOW:
            self._go(block, block.last.end)

    def _instruction(self, block: Block, instruction: Instruction) -> None:
        e = self.e
        if instruction.mnemonic in FLOW:
            e.begin(instruction)
            self._flow(block, instruction)
            return
        if instruction.pair:
            e.defer()
            for half in instruction.pair:
                carry_out(e, half)
            e.release()
        else:
            carry_out(e, instruction)

    # Ends of blocks

    def _flow(self, block: Block, last: Instruction) -> None:
        e, b = self.e, self.b
        if last.mnemonic == "s_trap":
            control.stop(e, TRAP, last.address, const(I64, last.code & 0xFF))
        elif last.mnemonic in ENDS:
            self._end()
        elif last.mnemonic == "s_branch":
            self._go(block, last.target)
        elif last.mnemonic.startswith("s_cbranch_"):
            taken = control.condition(e, last)
            e.flush()
            there = self._edge(block, last.target)
            b.branch_if(taken, there, _label(last.end))
            self._finish_edge(block, last.target, there)
        else:
            target = e.s64(last.operands[-1])
            if last.mnemonic == CALL:
                e.write_s(last.operands[0], b.add(Value(I64, "%code"), const(I64, last.end)))
            self._jump(block, last, target)

    def _jump(self, block: Block, last: Instruction, target: Value) -> None:
        """To one of the addresses that were found for it, whichever the register holds."""
        e, b = self.e, self.b
        e.flush()
        self._spend(last)
        offset = b.sub(target, Value(I64, "%code"))
        lost = b.new_label("lost")
        b.switch(offset, lost, [(each, _label(each)) for each in block.successors])
        b.start(lost)
        control.stop(e, JUMP, last.address, target)

    def _go(self, block: Block, target: int) -> None:
        self.e.flush()
        if target <= block.start:
            self._spend(block.last)
        self.b.branch(_label(target))

    def _edge(self, block: Block, target: int) -> str:
        """Label of a conditional branch's target; a new one in between if the branch goes back."""
        return self.b.new_label("back") if target <= block.start else _label(target)

    def _finish_edge(self, block: Block, target: int, label: str) -> None:
        if target <= block.start:
            self.b.start(label)
            self.e.begin_block()
            self._spend(block.last)
            self.b.branch(_label(target))

    def _spend(self, last: Instruction) -> None:
        """Take one from the back-edges that the wave has left."""
        e, b = self.e, self.b
        left = b.sub(b.load(I64, Value(PTR, "%budget")), const(I64, 1))
        b.store(left, Value(PTR, "%budget"))
        least = b.load(I64, b.gep(ir.I8, RUN, self.layout.run["least"]), volatile=True)
        out, on = b.new_label("endless"), b.new_label("on")
        b.branch_if(b.icmp("ult", left, least), out, on, unlikely="then")
        b.start(out)
        control.stop(e, WATCHDOG, last.address, const(I64, 0))
        b.start(on)

    def _end(self) -> None:
        e, b = self.e, self.b
        pointer = b.gep(ir.I8, RUN, self.layout.run["read"])
        b.store(b.add(b.load(I64, pointer), e.local("read", I64)), pointer)
        pointer = b.gep(ir.I8, RUN, self.layout.run["lds_bad"])
        b.store(b.or_(b.load(I32, pointer), e.local("lds_bad", I32)), pointer)
        if self.keep:
            e.flush()
            b.branch("keep")
        else:
            b.ret()

    def _end_label(self) -> None:
        """Write all registers back."""
        e, b = self.e, self.b
        b.start("keep")
        e.begin_block()
        for index in sorted(e.sgprs):
            b.store(e.sgpr(index), self._wave("sgpr", 4 * index))
        for index in sorted(e.vgprs):
            b.store(e.vgpr(index), self._wave("vgpr", 4 * LANES * index), 64)
        b.store(b.cast("zext", e.scc, I32), self._wave("scc"))
        b.ret()

    # The entry

    def _wave(self, field: str, offset: int = 0) -> Value:
        return self.b.gep(ir.I8, Value(PTR, "%wave"), self.layout.wave[field] + offset)

    def _prologue(self) -> None:
        """Slots and what they start with, and values that stay the same."""
        e, b = self.e, self.b
        b.start("entry")
        for name, element in (
            ("counts", PTR),
            ("sites", PTR),
            ("lds", PTR),
            ("lds_size", I32),
            ("code", I64),
        ):
            self._field(name, element)
        self._field("shared_aperture", I32)
        self._field("private_aperture", I32)
        b.lines.append(f"  %scratch = load i64, {self._wave('scratch')}")
        b.lines.append(f"  %addresses = alloca [{LANES} x i64], align 256")
        for name in ("data", "compare", "out"):
            b.lines.append(f"  %{name}0 = alloca [{ROWS * LANES} x i32], align 256")
            for row in range(1, ROWS):
                b.lines.append(f"  %{name}{row} = getelementptr i8, ptr %{name}0, i64 {row * LANES * 4}")
        for name, element in e.locals.items():
            self._slot(name, const(element, 0))
        budget = b.load(I64, b.gep(ir.I8, RUN, self.layout.run["budget"]))
        self._slot("budget", budget)
        self._slot("scc", b.cast("trunc", b.load(I32, self._wave("scc")), I1))
        for index in sorted(e.sgprs):
            start = b.load(I32, self._wave("sgpr", 4 * index))
            self._slot(f"s{index}", const(I32, -1) if index == EXEC and self.full else start)
        for index in sorted(e.vgprs):
            self._slot(f"r{index}", b.load(V32, self._wave("vgpr", 4 * LANES * index), 64))
        b.branch(_label(0))

    def _field(self, name: str, kind: str) -> None:
        self.b.lines.append(f"  %{name} = load {kind}, {self.b.gep(ir.I8, RUN, self.layout.run[name])}")

    def _slot(self, name: str, value: Value) -> None:
        self.b.lines.append(f"  %{name} = alloca {value.type}")
        self.b.store(value, Value(PTR, f"%{name}"))


def _writes_exec(instruction: Instruction) -> bool:
    if "saveexec" in instruction.mnemonic or "wrexec" in instruction.mnemonic:
        return True
    if instruction.mnemonic.startswith("v_cmpx"):
        return True
    destinations = 2 if instruction.mnemonic.startswith("v_") else 1  # the carry out of v_add_co_u32
    return any(
        part.kind == "s" and part.index <= EXEC < part.index + part.count
        for part in instruction.operands[:destinations]
    )
