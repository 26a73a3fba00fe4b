"""A differential fuzz of the 8051 core against `s51` of ucsim, an independent simulator (Debian: sdcc-ucsim).

A batch is one s51 process. Every case is one instruction, standing somewhere in 64 KiB of random code that
both sides have, executed from random registers; after it the whole IRAM, the registers below, the PC and
the external byte concerned must agree. What one case leaves behind is where the next begins, on either side.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator.core.bus import Plane
from emulator.mcs51.core import Mcs51, Stop
from emulator.mcs51.opcodes import OPCODES, Flow, Opcode, Operand
from sdk import toolchain

P0, SP, DPL, DPH, P1, P2, P3 = 0x80, 0x81, 0x82, 0x83, 0x90, 0xA0, 0xB0
PSW, ACC, B = 0xD0, 0xE0, 0xF0
COMPARED = {
    SP: "SP", DPL: "DPL", DPH: "DPH", PSW: "PSW", ACC: "A", B: "B", P0: "P0", P1: "P1", P2: "P2", P3: "P3",
}  # fmt: skip
"""Registers that may be operands, storage in every 8051. The others need time or a peripheral."""

OPERANDS = (*range(0x80), *COMPARED)
BITS = (*range(0x80), *(address + bit for address in COMPARED if address % 8 == 0 for bit in range(8)))

LEGAL = tuple(opcode for opcode in OPCODES if opcode.flow is not Flow.ILLEGAL)

SLOT = 5
"""Distance of instructions in the code: coprime to every boundary that an instruction could care about."""


@dataclass(frozen=True, slots=True)
class Case:
    """An instruction and the registers it starts from; the rest is what the case before left."""

    opcode: Opcode
    pc: int
    sp: int
    dptr: int
    p2: int
    psw: int
    acc: int
    b: int
    iram: tuple[int, int]
    """One more byte of IRAM to set: address, value."""
    xram: int
    """What stands in external memory where the instruction will look."""


def batch(rng: random.Random, opcodes: Sequence[Opcode]) -> tuple[bytes, bytes, list[Case]]:
    """Random code, IRAM, and a case for each opcode given."""
    # Exception: where MOVC's sum passes FFFF it wraps to 16 bits, and s51 reads 0: there is 0 on either side.
    code = bytearray(0x100) + bytearray(rng.randbytes(0xFF00))
    slots = rng.sample(range(0x100 // SLOT + 1, 0x10000 // SLOT - 1), len(opcodes))
    cases = []
    for opcode, slot in zip(opcodes, slots, strict=True):
        pc = slot * SLOT + rng.randrange(SLOT - opcode.length + 1)
        code[pc] = opcode.code
        place = pc + 1
        for index in opcode.encoding:
            match opcode.operands[index]:
                case Operand.DIRECT:
                    code[place] = rng.choice(OPERANDS)
                    # Exception: PUSH SP. The manual increments SP first, and so does s51 0.6; 0.8 does not.
                    if opcode.mnemonic == "PUSH" and code[place] == SP:
                        code[place] = ACC
                case Operand.BIT | Operand.NOT_BIT:
                    code[place] = rng.choice(BITS)
            place += opcode.operands[index].size
        numbers = [rng.choice((rng.randrange(256), 0, 0xFF)) for _ in range(4)]
        pointer = rng.choice((rng.randrange(0x10000), 0xFF, 0xFFFF))
        changed = (rng.randrange(256), rng.randrange(256))
        cases.append(
            Case(opcode, pc, numbers[0], pointer, rng.randrange(256), numbers[1], numbers[2], numbers[3],
                 changed, rng.randrange(256))
        )  # fmt: skip
    return bytes(code), rng.randbytes(256), cases


def differences(code: bytes, iram: bytes, cases: Sequence[Case], directory: Path) -> list[str]:
    """Run a batch on both; one line for each case after which they disagree."""
    ours = Ours(code, iram)
    addresses = []
    expected = []
    for case in cases:
        addresses.append(ours.prepare(case))
        expected.append(ours.step())
    found = _theirs(code, iram, cases, addresses, directory)
    lines = []
    for case, mine, other in zip(cases, expected, found, strict=True):
        if _writes_psw(case, code):  # exception: in s51 bit 0 then stays as written until ACC changes
            mine, other = _without_parity(mine), _without_parity(other)
        if mine != other:
            text = " ".join((case.opcode.mnemonic, *(operand.value for operand in case.opcode.operands)))
            encoded = code[case.pc : case.pc + case.opcode.length].hex()
            lines.append(f"{text} ({encoded}) {case}: {_compare(mine, other)}")
    return lines


def _writes_psw(case: Case, code: bytes) -> bool:
    """Whether the PSW may be the destination; the manual has its bit 0 follow ACC in every cycle."""
    operands = code[case.pc + 1 : case.pc + case.opcode.length]
    bits = Operand.BIT in case.opcode.operands
    return any(operand & 0xF8 == PSW if bits else operand == PSW for operand in operands)


def _without_parity(state: State) -> State:
    pc, iram, registers, byte = state
    place = list(COMPARED).index(PSW)
    return pc, iram, (*registers[:place], registers[place] & 0xFE, *registers[place + 1 :]), byte


State = tuple[int, bytes, tuple[int, ...], int]
"""PC, IRAM, registers, external byte."""


def _compare(mine: State, other: State) -> str:
    parts = []
    if mine[0] != other[0]:
        parts.append(f"PC {mine[0]:04x}, s51 {other[0]:04x}")
    parts += [
        f"IRAM {place:02x} {a:02x}, s51 {b:02x}"
        for place, (a, b) in enumerate(zip(mine[1], other[1], strict=True))
        if a != b
    ]
    names = list(COMPARED.values())
    parts += [
        f"{name} {a:02x}, s51 {b:02x}" for name, a, b in zip(names, mine[2], other[2], strict=True) if a != b
    ]
    if mine[3] != other[3]:
        parts.append(f"XRAM {mine[3]:02x}, s51 {other[3]:02x}")
    return "; ".join(parts)


class Ours:
    """The core under test."""

    def __init__(self, code: bytes, iram: bytes) -> None:
        self._xdata = Plane()
        self._cpu = Mcs51([self._xdata, Plane()])
        self._cpu.load(code)
        self._cpu.iram[:] = iram
        self._address = 0

    def prepare(self, case: Case) -> int:
        """Set the registers; the external address that the instruction concerns."""
        cpu = self._cpu
        cpu.iram[case.iram[0]] = case.iram[1]
        for address, value in _registers(case):
            cpu.set_sfr(address, value)
        cpu.pc = case.pc
        self._address = case.dptr
        if Operand.AT_RI in case.opcode.operands:
            self._address = case.p2 << 8 | cpu.iram[(case.psw & 0x18) + (case.opcode.code & 1)]
        self._xdata[self._address] = case.xram
        return self._address

    def step(self) -> State:
        cpu = self._cpu
        clock, count = cpu.clock, cpu.instructions
        stop = cpu.run(clock + 1)
        assert stop is Stop.UNTIL
        assert cpu.instructions == count + 1
        registers = tuple(cpu.sfr(address) for address in COMPARED)
        return cpu.pc, bytes(cpu.iram), registers, self._xdata[self._address]


def _registers(case: Case) -> tuple[tuple[int, int], ...]:
    return (
        (SP, case.sp), (DPL, case.dptr & 0xFF), (DPH, case.dptr >> 8), (P2, case.p2), (PSW, case.psw),
        (ACC, case.acc), (B, case.b),
    )  # fmt: skip


def _theirs(
    code: bytes, iram: bytes, cases: Iterable[Case], addresses: Iterable[int], directory: Path
) -> list[State]:
    """The same on s51, through its console."""
    image = directory / "code.ihx"
    image.write_text(intel_hex(code))
    commands = [f"set mem iram 0 {' '.join(map(str, iram))}"]
    for case, address in zip(cases, addresses, strict=True):
        commands.append(f"set mem iram {case.iram[0]} {case.iram[1]}")
        commands += [f"set mem sfr {register} {value}" for register, value in _registers(case)]
        commands += [f"set mem xram {address} {case.xram}", f"pc {case.pc}", "step"]
        commands += ["dump /i iram 0 255 255", "dump /i sfr 128 255 255", f"dump /i xram {address} {address}"]
    script = directory / "commands"  # on its standard input s51 mixes what it reads into what it prints
    script.write_text("\n".join([*commands, "quit", ""]))
    arguments = ["-q", "-b", "-t", "C52", "-e", f'exec "{script}"', image]
    done = toolchain.run("s51", arguments, timeout=600, check=False)
    return list(_parse(done.stdout.decode("latin-1")))


def _parse(text: str) -> Iterator[State]:
    """States out of s51's console output: after each step the PC, then three dumps in Intel hex."""
    for part in re.split(r"\bF 0x(?=[0-9a-f]{6}$)", text, flags=re.MULTILINE)[1:]:
        dumps = part.split(":00000001FF")
        iram, sfr, xram = (_bytes(dump) for dump in dumps[:3])
        registers = tuple(sfr[address - 0x80] for address in COMPARED)
        # Exception: a branch past FFFF leaves s51's PC with 17 bits until the next fetch.
        yield int(part[:6], 16) & 0xFFFF, iram, registers, xram[0]


def _bytes(dump: str) -> bytes:
    lines = re.findall(r"^:.{6}00([0-9A-F]*)[0-9A-F]{2}\b", dump, flags=re.MULTILINE)
    return b"".join(map(bytes.fromhex, lines))


def intel_hex(data: bytes) -> str:
    """Intel hex records of data from address 0."""
    lines = []
    for place in range(0, len(data), 32):
        row = data[place : place + 32]
        record = bytes([len(row), place >> 8, place & 0xFF, 0]) + row
        lines.append(f":{record.hex().upper()}{-sum(record) & 0xFF:02X}")
    return "\n".join([*lines, ":00000001FF", ""])
