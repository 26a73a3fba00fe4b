"""Program flow: SOPP, jumps, barriers, the MODE register, and what has no effect on a functional model.

Waits are counted, but nothing is ever outstanding here: every instruction is complete when the next starts.
"""

from __future__ import annotations

from emulator.amdgpu.isa.emit import OVERFLOW, Emitter, Mode, add, instruction
from emulator.amdgpu.isa.ir import I32, I64, PTR, VOID, Value, const
from emulator.amdgpu.isa.operands import EXEC, VCC, Instruction

RUN = Value(PTR, "%run")

DONE, PAGE_FAULT, WATCHDOG, STUCK, TRAP, JUMP, TABLE_FULL, INTERRUPTED, BUFFER = range(9)
"""Outcomes: enum waves_outcome."""

NOTHING = (
    "s_nop", "s_waitcnt", "s_wait_idle", "s_waitcnt_depctr", "s_delay_alu", "s_clause", "s_sleep",
    "s_set_inst_prefetch_distance", "s_inst_prefetch", "s_setprio", "s_icache_inv",
    "s_code_end", "s_incperflevel", "s_decperflevel", "s_ttracedata", "s_ttracedata_imm", "s_version",
    "s_waitcnt_vscnt", "s_waitcnt_vmcnt", "s_waitcnt_expcnt", "s_waitcnt_lgkmcnt", "s_wait_event",
    "s_wait_loadcnt", "s_wait_storecnt", "s_wait_samplecnt", "s_wait_bvhcnt", "s_wait_expcnt",
    "s_wait_dscnt", "s_wait_kmcnt", "s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt", "s_wait_alu",
    "s_singleuse_vdst", "s_sleep_var", "v_nop", "v_pipeflush",
)  # fmt: skip
"""Time, prefetching and hazards: the model has none of them within a wave."""

add(NOTHING, lambda e, i: None, kind="other")


def _condition(name: str, e: Emitter) -> Value:
    if name in ("scc0", "scc1"):
        return e.scc if name == "scc1" else e.b.not_(e.scc)
    register = e.sgpr(VCC if name.startswith("vcc") else EXEC)
    return e.b.icmp("eq" if name.endswith("nz") is False else "ne", register, const(I32, 0))


CONDITIONS = ("scc0", "scc1", "vccz", "vccnz", "execz", "execnz")


def condition(e: Emitter, i: Instruction) -> Value:
    """Whether a conditional branch is taken (I1)."""
    return _condition(i.mnemonic.removeprefix("s_cbranch_"), e)


FLOW = (
    "s_branch", "s_setpc_b64", "s_swappc_b64", "s_endpgm", "s_endpgm_saved", "s_trap",
    *(f"s_cbranch_{name}" for name in CONDITIONS),
)  # fmt: skip
"""Ends of basic blocks, which `translate` writes."""

add(FLOW, lambda e, i: None, kind="branch")


@instruction("s_getpc_b64", kind="salu")
def _s_getpc_b64(e: Emitter, i: Instruction) -> None:
    e.write_s(i.operands[0], e.b.add(Value(I64, "%code"), const(I64, i.end)))


@instruction("s_sendmsg", kind="other")
def _s_sendmsg(e: Emitter, i: Instruction) -> None:
    if i.code & 0xFF != 3:  # MSG_DEALLOC_VGPRS: its registers are free, and it goes on
        raise e.refuse("no such message is implemented")


def stop(e: Emitter, outcome: int, pc: int, value: Value) -> None:
    """End the dispatch: this does not return."""
    e.b.call("waves_stop", VOID, RUN, const(I32, outcome), const(I64, pc), value)
    e.b.unreachable()


@instruction("s_barrier", kind="other", generations=(11,))
def _(e: Emitter, i: Instruction) -> None:
    e.b.call("waves_signal", VOID, RUN)
    e.b.call("waves_wait", VOID, RUN, const(I64, i.address))


WORKGROUP_BARRIER = -1


@instruction("s_barrier_signal", kind="other", generations=(12,))
def _(e: Emitter, i: Instruction) -> None:
    if i.operands[0].value != WORKGROUP_BARRIER:
        raise e.refuse("only the workgroup's barrier is implemented")
    e.b.call("waves_signal", VOID, RUN)


@instruction("s_barrier_wait", kind="other", generations=(12,))
def _(e: Emitter, i: Instruction) -> None:
    if i.simm16 != WORKGROUP_BARRIER:
        raise e.refuse("only the workgroup's barrier is implemented")
    e.b.call("waves_wait", VOID, RUN, const(I64, i.address))


# MODE

MODE_REGISTER = 1
"""Its number as a hardware register. Source: RDNA3 ISA manual, S_GETREG_B32."""


def _hardware_register(i: Instruction) -> tuple[int, int, int]:
    """Register, lowest bit and number of bits that S_GETREG and S_SETREG name."""
    return i.code & 0x3F, i.code >> 6 & 0x1F, (i.code >> 11 & 0x1F) + 1


def next_mode(mode: Mode, i: Instruction) -> Mode | None:
    """The mode after an instruction; None if that is not known before it runs."""
    if i.mnemonic == "s_round_mode":
        return mode.with_bits(i.code & 0xF, 0, 4)
    if i.mnemonic == "s_denorm_mode":
        return mode.with_bits((i.code & 0xF) << 4, 4, 4)
    if i.mnemonic.startswith("s_setreg_"):
        register, low, width = _hardware_register(i)
        if register == MODE_REGISTER and (low < 10 or low <= OVERFLOW < low + width):
            if i.mnemonic != "s_setreg_imm32_b32":
                return None
            return mode.with_bits((i.code >> 32) << low, low, width)
    return mode


@instruction("s_round_mode", "s_denorm_mode", kind="other")
def _s_round_mode(e: Emitter, i: Instruction) -> None:
    changed = next_mode(e.mode, i)
    if changed is not None:
        e.mode = changed


@instruction("s_setreg_imm32_b32", "s_setreg_b32", kind="salu")
def _s_setreg_imm32_b32(e: Emitter, i: Instruction) -> None:
    if _hardware_register(i)[0] != MODE_REGISTER:
        raise e.refuse("only MODE can be written")
    changed = next_mode(e.mode, i)
    if changed is None:
        raise e.refuse("MODE can only be set to a constant")
    e.mode = changed


@instruction("s_getreg_b32", kind="salu")
def _s_getreg_b32(e: Emitter, i: Instruction) -> None:
    register, low, width = _hardware_register(i)
    if register != MODE_REGISTER:
        raise e.refuse("only MODE can be read")
    e.write_s(i.operands[0], const(I32, e.mode.bits >> low & ((1 << width) - 1)))
