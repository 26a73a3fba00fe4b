"""A host for the compatible requests, written from the published description of them alone.

It knows bRequest numbers and layouts as existing host software has them, and none of our facts: what it
agrees on with the firmware, programs written without ours agree on too.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from emulator.board import Board
from emulator.mcs51.core import GUARDS
from emulator.options import Options
from emulator.usb.wire import Outcome, Setup, Speed, Transfer

OUT, IN = 0x02, 0x81
MRD32, MWR32, MRD64, MWR64 = 0x00, 0x40, 0x20, 0x60
CFGRD0, CFGWR0, CFGRD1, CFGWR1 = 0x04, 0x44, 0x05, 0x45
RAM, REGISTERS = 0x8_0000_0000, 0x1000_0000
"""Where `set_up_pcie` puts the BARs of the endpoint on bus 4."""


def power_up(speed: Speed = Speed.SUPER_PLUS, image: str = "firmware", **options: object) -> Host:
    """A configured board under --strict and all guards."""
    board = Board.of(image, Options(port=speed, strict=True, guards=frozenset(GUARDS), **options))  # type: ignore[arg-type]
    host = Host(board)
    assert board.usb.wait_attached(3.0)
    board.usb.enumerate()
    return host


@dataclass
class Host:
    """The host of a board."""

    board: Board

    def control_in(self, request: int, value: int, index: int, length: int, timeout: float = 5.0) -> bytes:
        return self.board.usb.control(Setup(0xC0, request, value, index, length), timeout=timeout)

    def control_out(
        self, request: int, value: int, index: int, data: bytes = b"", timeout: float = 5.0
    ) -> None:
        self.board.usb.control(Setup(0x40, request, value, index, len(data)), data, timeout=timeout)

    def bulk(self, endpoint: int, what: bytes | int, timeout: float = 1.0) -> bytes:
        """A bulk transfer that succeeds; the data received."""
        transfer = self.board.usb.submit(endpoint, what)
        self.board.usb.wait(transfer, timeout=timeout)
        assert transfer.outcome is Outcome.DONE
        return bytes(transfer.data)

    def begin(self, endpoint: int, what: bytes | int) -> Transfer:
        return self.board.usb.submit(endpoint, what)

    def sleep(self, seconds: float) -> None:
        self.board.usb.clock.sleep(seconds)

    @property
    def now(self) -> float:
        return self.board.usb.clock.now()

    # -- E4, E5 -----------------------------------------------------------------------------------------

    def peek(self, address: int, length: int = 1, bank: int = 0) -> bytes:
        return self.control_in(0xE4, address, bank << 8, length)

    def poke(self, address: int, value: int, bank: int = 0) -> None:
        self.control_out(0xE5, address, bank << 8 | value)

    # -- F0 ---------------------------------------------------------------------------------------------

    def tlp(
        self, kind: int, address: int, value: int = 0, mode: int = 0, enables: int = 0xF, timeout: float = 5.0
    ) -> None:
        data = struct.pack("<IIi" if value < 0 else "<III", address & 0xFFFF_FFFF, address >> 32, value)
        self.control_out(0xF0, enables << 8 | kind, mode, data, timeout)

    def result(self, timeout: float = 5.0) -> tuple[int, int, int, int]:
        """(data, completion status, byte count, how the launch ended)."""
        data, high, low, _, status = struct.unpack("<IBBBB", self.control_in(0xF0, 0, 0, 8, timeout))
        return data, high >> 5, (high & 0x0F) << 8 | low, status

    def read32(self, address: int) -> int:
        self.tlp(MRD64 if address >> 32 else MRD32, address)
        data, completion, _, status = self.result()
        assert (completion, status) == (0, 0)
        return data

    def write32(self, address: int, value: int) -> None:
        self.tlp(MWR64 if address >> 32 else MWR32, address, value)

    def config_write(self, bus: int, register: int, value: int) -> None:
        self.tlp(CFGWR1 if bus else CFGWR0, bus << 24 | register, value)
        assert self.result()[1::2] == (0, 0)

    def config_read(self, bus: int, register: int) -> int:
        self.tlp(CFGRD1 if bus else CFGRD0, bus << 24 | register)
        data, completion, count, status = self.result()
        assert (completion, count, status) == (0, 4, 0)
        return data

    def stream_write(self, address: int, data: bytes) -> None:
        self.tlp(MWR64, address, len(data) // 4, mode=1)
        self.bulk(OUT, data)

    def stream_read(self, address: int, length: int) -> bytes:
        self.tlp(MRD64, address, length // 4, mode=2)
        return self.bulk(IN, length)

    def set_up_pcie(self) -> None:
        """Bridges of buses 0 to 3, and the BARs of the endpoint on bus 4."""
        for bus in range(4):
            for register, value in (
                (0x18, bus | bus + 1 << 8 | 4 << 16), (0x20, 0x1000_1000), (0x24, 0xFFF1_0001),
                (0x28, 8), (0x2C, 8), (0x04, 6),
            ):  # fmt: skip
                self.config_write(bus, register, value)
        for register, value in (
            (0x10, RAM & 0xFFFF_FFFF), (0x14, RAM >> 32), (0x18, REGISTERS), (0x04, 6),
        ):  # fmt: skip
            self.config_write(4, register, value)

    # -- F2, F3 -----------------------------------------------------------------------------------------

    def arm_slots(self, sectors: int, slot: int, slots: int, *, to_host: bool = False) -> None:
        self.control_out(0xF2, to_host << 15 | sectors, slots << 8 | slot)

    def power(self, on: bool) -> None:
        self.control_out(0xF3, int(on), 0, timeout=10.0)

    @property
    def link_up(self) -> bool:
        return self.peek(0xB450) == b"\x78"
