"""Memory as the core sees it: MOVX planes and flags, code banks, IRAM and register banks, the stack."""

import gc

import pytest

from emulator.core.bus import (
    NATIVE,
    READ_CALLS,
    UNINITIALISED,
    WRITE_CALLS,
    WRITE_CLEARS,
    WRITE_IGNORED,
    Bus,
    Plane,
    Unmodelled,
)
from emulator.core.clock import Scheduler
from emulator.machine import PLANES, Machine
from emulator.mcs51.core import Mcs51, Stop
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import ASM2464PD
from sdk.errors import UsageError
from tests.unit.mcs51_bench import ACC, CODE_BANK, DPX, P2, SP, Bench

LONG = 1 << 40
KNOWN = {
    register.address
    for register in ASM2464PD.registers
    if register.space is Space.SFR and register.name not in ("CPU_P2", "CPU_PCON")
}
"""Special function registers that the core gives a meaning to, as the facts have them."""


def test_movx_reads_and_writes_plain_bytes():
    bench = Bench("901234 74A5 F0 A3 E0 F8")
    bench.xdata[0x1235] = 0x5A
    bench.steps(6)
    assert bench.xdata[0x1234] == 0xA5
    assert bench.cpu.iram[0] == 0x5A


def test_movx_by_register_is_paged_by_port_2():
    bench = Bench("75A012 7880 7477 F2 7981 E3")
    bench.xdata[0x1281] = 0x99
    bench.steps(6)
    assert bench.xdata[0x1280] == 0x77
    assert bench.cpu.acc == 0x99
    assert bench.cpu.sfr(P2) == 0x12


def test_dpx_switches_the_plane_of_movx():
    bench = Bench("901234 7411 F0 759301 7422 F0 E0")
    bench.steps(7)
    assert (bench.xdata[0x1234], bench.phy[0x1234]) == (0x11, 0x22)
    assert bench.cpu.sfr(DPX) == 1


def test_windows_share_their_storage():
    plane, shared = Plane(), bytearray(0x1000)
    plane.pages[0xF0] = (shared, 0x300)
    cpu = Mcs51([plane, Plane()])
    cpu.load(bytes.fromhex("90F010 7442 F0 A5"))
    assert cpu.run(LONG) is Stop.ILLEGAL
    assert shared[0x310] == 0x42
    assert plane.storage[0xF010] == 0


def test_a_read_that_calls_stops_with_everything_done_but_acc():
    bench = Bench("907000 E0 F8")
    bench.xdata.flags[0x7000] = READ_CALLS
    assert bench.cpu.run(LONG) is Stop.READ
    assert (bench.cpu.plane, bench.cpu.address, bench.cpu.stop_pc, bench.cpu.pc) == (0, 0x7000, 3, 4)
    assert (bench.cpu.clock, bench.cpu.instructions) == (3 + 5, 2)
    bench.cpu.finish_read(0x5C)
    bench.steps(1)
    assert bench.cpu.iram[0] == 0x5C


def test_a_write_that_calls_stops_after_the_instruction_and_stores_nothing():
    bench = Bench("759301 907000 743C F0")
    bench.phy.flags[0x7000] = WRITE_CALLS
    assert bench.cpu.run(LONG) is Stop.WRITE
    assert (bench.cpu.plane, bench.cpu.address, bench.cpu.value) == (1, 0x7000, 0x3C)
    assert (bench.cpu.stop_pc, bench.cpu.pc, bench.cpu.clock) == (8, 9, 3 + 3 + 2 + 5)
    assert bench.phy[0x7000] == 0


@pytest.mark.parametrize(
    ("flags", "before", "written", "after"),
    [(WRITE_IGNORED, 0x12, 0x34, 0x12), (WRITE_CLEARS, 0xF5, 0x0F, 0xF0), (0, 0x12, 0x34, 0x34),
     (UNINITIALISED, 0, 0x34, 0x34)],
)  # fmt: skip
def test_what_a_write_means(flags, before, written, after):
    bench = Bench(f"907000 74{written:02x} F0 A5")
    bench.xdata[0x7000] = before
    bench.xdata.flags[0x7000] = flags
    assert bench.cpu.run(LONG) is Stop.ILLEGAL
    assert bench.xdata[0x7000] == after
    assert bench.xdata.flags[0x7000] == flags & ~UNINITIALISED


def test_without_a_device_a_native_byte_is_storage():
    bench = Bench("907000 7434 F0 A5")
    bench.xdata.flags[0x7000] = NATIVE
    assert bench.cpu.run(LONG) is Stop.ILLEGAL
    assert bench.xdata[0x7000] == 0x34


def test_code_banks_for_fetch_and_movc():
    bench = Bench(
        {0: "759601 908000 E4 93 F8 028010"},
        bank1={0x8000: "AB", 0x8010: "93 759600 00", 0x8014: "7A11"},
    )
    bench.load(
        {0: "759601 908000 E4 93 F8 028010", 0x8000: "CD", 0x8014: "7A22"},
        {0x8000: "AB", 0x8010: "7901 759600"},
    )
    bench.steps(6)
    assert bench.cpu.iram[0] == 0xAB  # MOVC from bank 1
    bench.steps(2)
    assert bench.cpu.sfr(CODE_BANK) == 0
    assert bench.cpu.pc == 0x8015


def test_an_instruction_may_wrap_around_the_end_of_code():
    bench = Bench({0: "0034", 0xFFFF: "90"})
    bench.cpu.pc = 0xFFFF
    bench.steps(1)
    assert (bench.cpu.dptr, bench.cpu.pc) == (0x0034, 2)


def test_movc_wraps_to_16_bits():
    bench = Bench({0: "90FFFF 7402 93", 0x0001: "FF"})
    bench.load({0: "90FFFF 7402 93"})
    bench.steps(3)
    assert bench.cpu.acc == 0xFF  # code byte 1 of 90 FF FF


def test_register_banks_lie_in_iram():
    bench = Bench("7F11 75D008 7F22 75D010 7F33 75D018 7F44")
    bench.steps(7)
    assert [bench.cpu.iram[place] for place in (0x07, 0x0F, 0x17, 0x1F)] == [0x11, 0x22, 0x33, 0x44]


def test_indirect_access_reaches_the_upper_iram_and_direct_the_registers():
    bench = Bench("78E0 7612 75E034")
    bench.steps(3)
    assert (bench.cpu.iram[0xE0], bench.cpu.sfr(ACC)) == (0x12, 0x34)


def test_the_stack_lies_in_iram_and_may_use_the_upper_half():
    bench = Bench({0: "7581FE 120010", 0x10: "22"})
    bench.steps(2)
    assert (bench.cpu.iram[0xFF], bench.cpu.iram[0x00], bench.cpu.sp) == (0x06, 0x00, 0x00)
    bench.steps(1)
    assert (bench.cpu.pc, bench.cpu.sp) == (6, 0xFE)


def test_push_and_pop_of_the_stack_pointer_itself():
    bench = Bench("758130 C081 758130 D081")
    bench.steps(2)
    assert (bench.cpu.iram[0x31], bench.cpu.sp) == (0x31, 0x31)
    bench.cpu.iram[0x30] = 0x77
    bench.steps(2)
    assert bench.cpu.sfr(SP) == 0x77


def test_the_reserved_opcode_is_not_executed():
    bench = Bench("00 A5")
    for _ in range(2):
        assert bench.cpu.run(LONG) is Stop.ILLEGAL
        assert (bench.cpu.pc, bench.cpu.stop_pc, bench.cpu.clock, bench.cpu.instructions) == (1, 1, 1, 1)


def test_reset_leaves_memory_and_time():
    bench = Bench("7581 40 75D018 7F55 759301 E5A8")
    bench.steps(4)
    clock = bench.cpu.clock
    bench.cpu.reset()
    assert (bench.cpu.pc, bench.cpu.sp, bench.cpu.psw, bench.cpu.sfr(DPX), bench.cpu.sfr(P2)) == (
        0,
        7,
        0,
        0,
        0xFF,
    )
    assert (bench.cpu.iram[0x1F], bench.cpu.clock) == (0x55, clock)


def test_a_run_ends_with_the_instruction_that_reaches_the_clock():
    bench = Bench("84 84 84")
    assert bench.cpu.run(7) is Stop.UNTIL
    assert (bench.cpu.clock, bench.cpu.instructions) == (12, 2)
    assert bench.cpu.run(12) is Stop.UNTIL
    assert bench.cpu.instructions == 2


def test_code_of_more_than_64_kib_is_refused():
    with pytest.raises(UsageError, match="64 KiB"):
        Bench().cpu.load(bytes(0x10001))


def test_state_differs_when_a_register_does():
    one, other = Bench("00"), Bench("00")
    assert one.cpu.state() == other.cpu.state()
    other.cpu.iram[0x42] = 1
    assert one.cpu.state() != other.cpu.state()


ACCESSES = ("E5{0:02x}", "F5{0:02x}", "05{0:02x}", "C0{0:02x}", "D0{0:02x}", "85{0:02x}30", "8530{0:02x}")
"""MOV A,x; MOV x,A; INC x; PUSH x; POP x; MOV 30h,x; MOV x,30h."""
BIT_ACCESSES = ("D2{0:02x}", "20{0:02x}00")
"""SETB x.0; JB x.0."""


def test_questioned_registers_are_asked_about_once_and_are_storage():
    accesses = [
        (address, access.format(address))
        for address in range(0x80, 0x100)
        for access in (*ACCESSES, *(BIT_ACCESSES if address % 8 == 0 else ()))
    ]
    code = {8 * slot: access for slot, (_, access) in enumerate(accesses)}
    bench, plain = Bench(code), Bench(code)
    for slot, (address, access) in enumerate(accesses):
        asked = []
        bench.cpu.question({address}, asked.append)
        for _ in range(2):
            for one in (bench, plain):
                one.cpu.pc = 8 * slot
                while one.cpu.run(one.cpu.clock + 1) is Stop.SERIAL:
                    pass
        assert asked == ([] if address in KNOWN else [address]), access
        assert bench.cpu.state() == plain.cpu.state(), access


def test_port_2_is_asked_about_where_it_pages_movx():
    for opcode in ("E2", "E3", "F2", "F3"):
        bench, asked = Bench(opcode), []
        bench.xdata.flags[0xFF00] = UNINITIALISED  # its slow path leaves the question alone
        bench.cpu.question({P2}, asked.append)
        bench.steps(1)
        assert asked == [P2]


def test_a_refused_register_is_refused_every_time():
    def refuse(address):
        raise UsageError(f"{address:#x}")

    bench = Bench("75FA01 80FB")
    bench.cpu.question({0xFA}, refuse)
    for _ in range(2):
        with pytest.raises(UsageError, match="0xfa"):
            bench.cpu.run(LONG)
        assert bench.cpu.stop_pc == 0


def test_a_byte_sent_is_not_lost_to_a_question():
    bench, asked = Bench("85FA99"), []
    bench.cpu.question({0xFA}, asked.append)
    assert bench.cpu.run(LONG) is Stop.SERIAL


def test_strict_names_an_unknown_special_function_register():
    bus = Bus(ASM2464PD, Scheduler(), strict=True)
    cpu = Mcs51([bus.planes[space] for space in PLANES])
    cpu.load(bytes.fromhex("00 75BC01 80FE"))
    with pytest.raises(Unmodelled, match=r"sfr 0x00bc, accessed at PC 0x0001.*nearest: CPU_IP at 0x00b8"):
        Machine(bus, cpu, lambda reason: None).run(100)


@pytest.mark.slow
def test_iram_outlives_its_core():
    iram = Bench().cpu.iram
    gc.collect()
    iram[:] = bytes(range(256))
    assert iram.tobytes() == bytes(range(256))
