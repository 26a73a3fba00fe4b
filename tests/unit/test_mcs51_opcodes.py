"""The table of instructions, and that the core follows it."""

from collections import Counter

from emulator.mcs51.opcodes import OPCODES, Flow, Operand, c_header
from tests.unit.mcs51_bench import Bench


def test_lengths_are_those_of_the_manual():
    """Counted in the manual's opcode map; s51 checks them one by one."""
    assert [opcode.code for opcode in OPCODES] == list(range(256))
    legal = [opcode for opcode in OPCODES if opcode.flow is not Flow.ILLEGAL]
    assert [opcode.code for opcode in OPCODES if opcode not in legal] == [0xA5]
    assert Counter(opcode.length for opcode in legal) == {1: 140, 2: 91, 3: 24}
    assert len({(opcode.mnemonic, opcode.operands) for opcode in legal}) == 111


def test_one_instruction_is_encoded_in_another_order_than_it_is_written():
    for opcode in OPCODES:
        encoded = [index for index, operand in enumerate(opcode.operands) if operand.size]
        assert list(opcode.encoding) == (encoded[::-1] if opcode.code == 0x85 else encoded)


def test_flow():
    by_flow = {flow: {opcode.mnemonic for opcode in OPCODES if opcode.flow is flow} for flow in Flow}
    assert by_flow[Flow.JUMP] == {"AJMP", "LJMP", "SJMP"}
    assert by_flow[Flow.CALL] == {"ACALL", "LCALL"}
    assert by_flow[Flow.RETURN] == {"RET", "RETI"}
    assert by_flow[Flow.INDIRECT] == {"JMP"}
    assert by_flow[Flow.BRANCH] == {"JB", "JNB", "JBC", "JC", "JNC", "JZ", "JNZ", "CJNE", "DJNZ"}
    assert all((Operand.REL in opcode.operands) for opcode in OPCODES if opcode.flow is Flow.BRANCH)


def test_the_core_takes_the_clocks_of_the_table():
    """Every opcode once, from a state in which none of them changes an interrupt register."""
    bench = Bench({0x10 * opcode.code: f"{opcode.code:02x} 30 30" for opcode in OPCODES})
    for opcode in OPCODES:
        if opcode.flow is Flow.ILLEGAL:
            continue
        bench.cpu.pc = 0x10 * opcode.code
        clock, count = bench.cpu.clock, bench.cpu.instructions
        bench.cpu.run(clock + 1)
        assert bench.cpu.instructions == count + 1
        assert bench.cpu.clock - clock == opcode.clocks, opcode
        if opcode.flow is Flow.NEXT:
            assert bench.cpu.pc == 0x10 * opcode.code + opcode.length, opcode


def test_the_generated_header_has_every_opcode():
    lines = c_header().splitlines()
    for opcode in OPCODES:
        assert f"#define CLOCKS_{opcode.code:02X} {opcode.clocks}" in lines
        assert f"#define LENGTH_{opcode.code:02X} {opcode.length}" in lines
