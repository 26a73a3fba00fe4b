"""Virtual time against silicon: the two rates published for the open firmware's PIO streams.

The loops of the image `calibration` have the clocks that are published for the open firmware's; how long a
stream takes from the host's side then depends on the model's constants alone.
"""

import re
import struct

import pytest

from emulator import images
from emulator.board import Board
from emulator.options import Options
from emulator.usb.wire import Setup, Speed

RAM_BASE = 0x8_0000_0000
WRITE64, READ64, CONFIG_WRITE0, CONFIG_WRITE1 = 0x60, 0x20, 0x44, 0x45
SINGLE, STREAM_WRITE, STREAM_READ = range(3)
EP_OUT, EP_IN = 0x02, 0x81
SIZE = 64 * 1024
MOVX = 5
ANOTHER_LOOK = MOVX + 2 + 4
"""Clocks of one more round of the loop that waits for a completion: MOVX, ANL A,#data, JZ."""


class Bridge:
    """A host that knows request F0."""

    def __init__(self, board: Board):
        self.board = board
        assert board.usb.wait_attached(3.0)
        board.usb.control(Setup(0x00, 9, 1, 0, 0))

    def start(self, kind: int, address: int, value: int, mode: int = SINGLE) -> None:
        data = struct.pack("<QI", address, value)
        self.board.usb.control(Setup(0x40, 0xF0, 0x0F00 | kind, mode, len(data)), data)

    def result(self) -> bytes:
        return self.board.usb.control(Setup(0xC0, 0xF0, 0, 0, 8))

    def configure(self, bus: int, register: int, value: int) -> None:
        self.start(CONFIG_WRITE1 if bus else CONFIG_WRITE0, bus << 24 | register, value)
        assert self.result()[7] == 0, f"bus {bus}, register {register:#x}"

    def open_path(self) -> None:
        """Buses, windows and the RAM BAR of what is behind the four bridges."""
        for bus in range(4):
            self.configure(bus, 0x18, bus | bus + 1 << 8 | 4 << 16)
            self.configure(bus, 0x24, 0xFFF1_0001)
            self.configure(bus, 0x28, RAM_BASE >> 32)
            self.configure(bus, 0x2C, RAM_BASE >> 32)
            self.configure(bus, 0x04, 0x0006)
        self.configure(4, 0x10, RAM_BASE & 0xFFFFFFFF)
        self.configure(4, 0x14, RAM_BASE >> 32)
        self.configure(4, 0x04, 0x0006)

    def rate(self, endpoint: int, what: bytes | int) -> tuple[float, bytes]:
        """Megabytes per virtual second of a bulk transfer, and what it brought."""
        usb = self.board.usb
        before = usb.clock.now()
        transfer = usb.submit(endpoint, what)
        usb.wait(transfer, timeout=10)
        return transfer.actual / (usb.clock.now() - before) / 1e6, bytes(transfer.data)


@pytest.fixture(scope="module")
def bridge():
    bridge = Bridge(Board.of("calibration", Options(port=Speed.SUPER_PLUS, strict=True)))
    bridge.open_path()
    return bridge


@pytest.fixture(scope="module")
def loops(bridge):
    """Clocks of an instruction of the image by its label, and of everything between two labels."""
    profile = bridge.board.machine.cpu.profile()
    symbols = images.build("calibration").map.read_text()
    labels = re.findall(r"^C:\s+([0-9A-F]{8})\s+([a-z_]+)\s", symbols, re.M)
    places = {name: int(address, 16) for address, name in labels}

    def clocks(start: str, end: str | None = None) -> int:
        first = places[start]
        return sum(profile[first : first + 1 if end is None else places[end]])

    return clocks


def test_a_dword_written_takes_12_movx_and_62_other_clocks(bridge, loops):
    def clocks(dwords: int) -> int:
        before = loops("write", "written")
        bridge.start(WRITE64, RAM_BASE, dwords, STREAM_WRITE)
        bridge.rate(EP_OUT, bytes(4 * dwords))
        bridge.board.usb.clock.sleep(1e-3)
        return loops("write", "written") - before

    assert clocks(32) - clocks(16) == 16 * (12 * MOVX + 62)


def test_a_dword_read_takes_13_movx_and_83_other_clocks_with_one_look(bridge, loops):
    def clocks(dwords: int) -> int:
        """Of a stream, as if every completion had been there at the first look."""
        before, looks = loops("read", "read_end"), loops("read_again")
        bridge.start(READ64, RAM_BASE, dwords, STREAM_READ)
        bridge.rate(EP_IN, 4 * dwords)
        more = (loops("read_again") - looks) // MOVX - dwords
        return loops("read", "read_end") - before - more * ANOTHER_LOOK

    assert clocks(32) - clocks(16) == 16 * (13 * MOVX + 83)


def test_streams_run_at_the_published_rates(bridge):
    data = bytes((7 * i + (i >> 8)) & 0xFF for i in range(SIZE))
    bridge.start(WRITE64, RAM_BASE + 0x1_0000, SIZE // 4, STREAM_WRITE)
    written, _ = bridge.rate(EP_OUT, data)
    bridge.board.usb.clock.sleep(1e-3)  # the last packet is with the CPU when the host is done
    assert bridge.board.endpoint.memory[0x1_0000 : 0x1_0000 + SIZE] == data
    bridge.start(READ64, RAM_BASE + 0x1_0000, SIZE // 4, STREAM_READ)
    read, got = bridge.rate(EP_IN, SIZE)
    assert got == data
    print(f"write {written:.3f} MB/s, read {read:.3f} MB/s")
    assert written == pytest.approx(3.6, rel=0.1)
    assert read == pytest.approx(1.8, rel=0.1)
