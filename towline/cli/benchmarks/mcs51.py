"""`towline bench mcs51`: how fast the core is, beside `s51` of ucsim, and in a loop of PCIe writes.

All figures are millions of instructions a second of CPU time, from one run. Skipping of spin loops is off.
"""

from __future__ import annotations

import re
import resource
import time
from typing import Any

from emulator.board import Board
from emulator.core.bus import Plane
from emulator.machine import PLANES
from emulator.mcs51.core import Mcs51, Stop
from emulator.pcie.ports import BRIDGES
from emulator.usb.wire import Setup
from firmware.asm2464pd.registers import tlp
from firmware.protocol import requests
from sdk import toolchain
from sdk.errors import InternalError
from sdk.files import scratch_directory, write

CRC_AND_COPY = bytes.fromhex(
    "7E00 7F00"    # 00       MOV  R6,#rounds   MOV R7,#rounds / 256, rounded up
    "900000 7800"  # 04       MOV  DPTR,#0      MOV R0,#0     256 bytes of pattern
    "E4"           # 09       CLR  A
    "F0 2435 A3"   # 0A fill: MOVX @DPTR,A      ADD A,#0x35   INC DPTR
    "D8FA"         # 0E       DJNZ R0,fill
    "7AFF 7BFF"    # 10 next: MOV  R2,#0xFF     MOV R3,#0xFF  CRC-16/CCITT of them
    "900000 7800"  # 14       MOV  DPTR,#0      MOV R0,#0
    "E0 6A FA"     # 19 byte: MOVX A,@DPTR      XRL A,R2      MOV R2,A
    "7D08"         # 1C       MOV  R5,#8
    "C3 EB 33 FB"  # 1E bit:  CLR  C            MOV A,R3      RLC A       MOV R3,A
    "EA 33 FA"     # 22       MOV  A,R2         RLC A         MOV R2,A
    "5008"         # 25       JNC  even
    "6410 FA"      # 27       XRL  A,#0x10      MOV R2,A
    "EB 6421 FB"   # 2A       MOV  A,R3         XRL A,#0x21   MOV R3,A
    "00"           # 2E       NOP
    "DDED"         # 2F even: DJNZ R5,bit
    "A3 D8E5"      # 31       INC  DPTR         DJNZ R0,byte
    "900000"       # 34       MOV  DPTR,#0
    "E0"           # 37 copy: MOVX A,@DPTR                    then copied to the next 256
    "758301 F0"    # 38       MOV  DPH,#1       MOVX @DPTR,A
    "758300 A3"    # 3C       MOV  DPH,#0       INC DPTR
    "D8F5"         # 40       DJNZ R0,copy
    "DECC DFCA"    # 42       DJNZ R6,next      DJNZ R7,next
    "A5"           # 46 end:  the reserved opcode stops the core, a breakpoint s51
)  # fmt: skip
"""CRC-16 over 256 bytes, bit by bit, and a copy of them, for a number of rounds."""

_INNER, _OUTER, _END = 0x01, 0x03, 0x46
"""Offset of the number of rounds in it, and its end."""

_ROUNDS, _REFERENCE_ROUNDS = 6000, 100
_FOR_EVER = 1 << 62
_MMIO_CLOCKS = 60_000_000

STREAM_WRITE = bytes.fromhex(
    "907000"           # loop: MOV DPTR,#7000   a dword out of the bulk buffer
    "E0FA A3 E0FB"     #       MOVX, MOV R2,A   INC DPTR   MOVX, MOV R3,A
    "A3 E0FC A3 E0FD"  #       ... into R2 to R5
    "90B220 EDF0"      #       MOV DPTR,#TLP_DATA          MOV A,R5, MOVX
    "A3 ECF0 A3 EBF0"  #       ... out of them
    "A3 EAF0"
    "90B21B E0"        #       MOV DPTR,#TLP_ADDRESS + 3   MOVX
    "2404 F0"          #       ADD A,#4         MOVX
    "90B296 7407 F0"   #       MOV DPTR,#TLP_STATUS        MOV A,#7    MOVX: write 1 to clear
    "90B254 740F F0"   #       MOV DPTR,#TLP_LAUNCH        MOV A,#15   MOVX: the native engine
    "80CF"             #       SJMP loop
)  # fmt: skip
"""Dwords written to a device's memory by posted TLPs: 5 MOVX reads and 7 MOVX writes each."""

_MEMORY_WRITE, _ALL_BYTES = 0x40, 0x0F
_CONFIG_WRITE = (0x44, 0x45)
"""TLP format and type: configuration write of type 0 and 1."""
_RAM = 0x8000_0000
_ATTACH_SECONDS = 1.0


def measure() -> dict[str, Any]:
    """Measure the core.

    Returns:
        `mips`, `mips_mmio`, `reference.{name,mips}`, `ratio`; millions of instructions a CPU second.

    Raises:
        ToolMissing: s51 is not installed.
    """
    start_up, _ = _reference(1)
    _, few, _ = _ours(1)
    theirs, expected = _reference(_REFERENCE_ROUNDS)
    _, instructions, crc = _ours(_REFERENCE_ROUNDS)
    if crc != expected:
        raise InternalError(f"the benchmark's CRC is {crc:#06x} here and {expected:#06x} on s51")
    reference = (instructions - few) / (theirs - start_up) / 1e6
    mips, _, _ = _ours(_ROUNDS)
    return {
        "mips": round(mips, 1),
        "mips_mmio": round(_mmio(), 1),
        "reference": {"name": "ucsim s51", "mips": round(reference, 2)},
        "ratio": round(mips / reference, 1),
    }


def _program(rounds: int) -> bytes:
    """The program for that many rounds; DJNZ of a 0 counts 256."""
    code = bytearray(CRC_AND_COPY)
    code[_INNER], code[_OUTER] = rounds & 0xFF, (rounds + 0xFF) >> 8
    return bytes(code)


def _ours(rounds: int) -> tuple[float, int, int]:
    """MIPS, instructions and CRC."""
    cpu = Mcs51([Plane(), Plane()], skip=False)
    cpu.load(_program(rounds))
    started = time.process_time()
    stop = cpu.run(_FOR_EVER)
    seconds = time.process_time() - started
    if stop is not Stop.ILLEGAL or cpu.stop_pc != _END:
        raise InternalError("the benchmark's program did not reach its end", where=f"PC {cpu.stop_pc:#06x}")
    return cpu.instructions / seconds / 1e6, cpu.instructions, cpu.iram[2] << 8 | cpu.iram[3]


def _reference(rounds: int) -> tuple[float, int]:
    """CPU seconds that s51 takes for the program, its start included, and the CRC."""
    code = " ".join(map(str, _program(rounds)))
    commands = f"set mem rom 0 {code}\nbreak {_END}\nrun 0\ndump /i iram 2 3\nquit\n"
    with scratch_directory() as directory:
        script = directory / "commands"
        write(script, commands.encode())
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = toolchain.run("s51", ["-q", "-b", "-t", "C52", "-e", f'exec "{script}"'], timeout=300)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    dump = re.search(rb"^:02000200(....)", done.stdout, re.MULTILINE)
    if dump is None:
        raise InternalError("s51 did not finish the benchmark's program")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, int(dump[1], 16)


def _mmio() -> float:
    """MIPS of the PIO loop."""
    cpu, _board = _chip(STREAM_WRITE)
    first = cpu.instructions
    started = time.process_time()
    stop = cpu.run(cpu.clock + _MMIO_CLOCKS)
    seconds = time.process_time() - started
    if stop is not Stop.UNTIL:
        raise InternalError(f"the core stopped with {stop.name} in a loop that runs natively")
    return (cpu.instructions - first) / seconds / 1e6


def _chip(code: bytes) -> tuple[Mcs51, Board]:
    """A core with that code on a chip whose PCIe link is up, and the test endpoint's RAM at `_RAM`.

    The vendor image brings the chip up and a host configures the bridges through it; then the code replaces
    it.
    """
    board = Board.of("vendor")
    host = board.usb
    host.wait_attached(_ATTACH_SECONDS)
    host.enumerate()

    def configure(bus: int, register: int, value: int) -> None:
        fmt_type = _CONFIG_WRITE[bus > 0]
        data = requests.TLP_REQUEST.pack(address_low=bus << 24 | register, address_high=0, value=value)
        start, status = requests.TLP_START, requests.TLP_STATUS
        host.control(Setup(start.request_type, start.code, _ALL_BYTES << 8 | fmt_type, 0, len(data)), data)
        result = host.control(Setup(status.request_type, status.code, 0, 0, requests.TLP_RESULT.size))
        if requests.TLP_RESULT.unpack(result)["status"]:
            raise InternalError(
                f"bus {bus} does not take a write of {register:#x}", where="the benchmark's chip"
            )

    for bus in range(len(BRIDGES)):
        configure(bus, 0x18, len(BRIDGES) << 16 | bus + 1 << 8)  # bus numbers
        configure(bus, 0x24, 0xFFF0 << 16 | _RAM >> 16)  # prefetchable window
        configure(bus, 0x04, 0x06)  # memory and bus master enable
    configure(len(BRIDGES), 0x10, _RAM)  # BAR 0
    configure(len(BRIDGES), 0x04, 0x06)
    registers = board.machine.bus
    registers.set(tlp.TLP_FMT_TYPE, _MEMORY_WRITE)
    registers.set(tlp.TLP_BYTE_ENABLES, _ALL_BYTES)
    registers.set(tlp.TLP_ADDRESS, _RAM)
    planes = [registers.planes[space] for space in PLANES]
    cpu = Mcs51(planes, skip=False)
    cpu.load(code)
    cpu.attach_device(board.chip.tlp.device)
    return cpu, board
