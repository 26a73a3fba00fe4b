"""A bare core for tests: two planes of plain RAM, and code given as hex."""

from __future__ import annotations

from emulator.core.bus import Plane
from emulator.mcs51.core import Mcs51, Stop

SP, DPL, DPH, TCON, TMOD, TL0, TL1, TH0, TH1 = 0x81, 0x82, 0x83, 0x88, 0x89, 0x8A, 0x8B, 0x8C, 0x8D
DPX, CODE_BANK, SCON, SBUF, P2, IE, IP = 0x93, 0x96, 0x98, 0x99, 0xA0, 0xA8, 0xB8
T2CON, RCAP2L, RCAP2H, TL2, TH2, PSW, ACC, B = 0xC8, 0xCA, 0xCB, 0xCC, 0xCD, 0xD0, 0xE0, 0xF0


class Bench:
    """A core with code at address 0 (or, by address, anywhere)."""

    def __init__(
        self, code: str | dict[int, str] = "", *, bank1: dict[int, str] | None = None, skip: bool = False
    ):
        self.xdata, self.phy = Plane(), Plane()
        self.cpu = Mcs51([self.xdata, self.phy], skip=skip)
        self.load(code, bank1)

    def load(self, code: str | dict[int, str], bank1: dict[int, str] | None = None) -> None:
        parts = code if isinstance(code, dict) else {0: code}
        self.cpu.load(image(parts), None if bank1 is None else image({**parts, **bank1}))

    def steps(self, count: int) -> None:
        """Execute so many instructions; an interrupt taken in between is not one."""
        last = self.cpu.instructions + count
        while self.cpu.instructions < last:
            assert self.cpu.run(self.cpu.clock + 1) is Stop.UNTIL


def image(parts: dict[int, str]) -> bytes:
    code = bytearray(b"\xff" * 0x10000)
    for address, text in parts.items():
        data = bytes.fromhex(text)
        code[address : address + len(data)] = data
    return bytes(code)
