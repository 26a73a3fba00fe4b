"""The test driver's host with a whole board between it and the card: USB, the bridge's firmware, PCIe.

Everything goes by the compatible requests: registers, memory and configuration by F0, uploads by slot DMA.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.amdgpu.card import AmdCard
from emulator.core.clock import seconds
from tests.amdgpu_driver import Driver
from tests.amdgpu_host import TimeOut
from tests.list_host import ListHost
from tests.reference_host import OUT, power_up

SLOT = 0x4000
BUSES = 4
"""Bridges before the card."""
BURST = 4096


class Sram:
    """The SRAM, as far as the driver uses the bytearray of its other host: it uploads from its start on."""

    def __init__(self, usb: ListHost) -> None:
        self._usb = usb

    def __setitem__(self, place: slice, data: bytes) -> None:
        assert place.start is None
        assert place.stop == len(data)
        if not data:
            return
        sectors, slots = -(-len(data) // 512), -(-len(data) // SLOT)
        self._usb.arm_slots(sectors, 0, slots)
        self._usb.bulk(OUT, data.ljust(sectors * 512, b"\0"))


class Bridge:
    """As `tests.amdgpu_host.Host`, over a board.

    Attributes:
        usb: the host's side of the board, its link up and its bridges set up.
    """

    def __init__(self, chip: str, vram: int) -> None:
        self.usb = ListHost(power_up(gpu=chip, vram=vram).board)
        self.card: AmdCard = self.usb.board.endpoint  # type: ignore[assignment]
        self.sram = Sram(self.usb)
        self.clock = self.usb.board.machine.clock
        self.usb.power(True)
        self.usb.sleep(0.2)
        for bus in range(BUSES):
            for register, value in (
                (0x18, bus + 1 << 8 | BUSES << 16), (0x20, 0xFFFF_1000), (0x24, 0xFFFF_0000),
                (0x28, 8), (0x2C, 0xFFFF_FFFF), (0x04, 7),
            ):  # fmt: skip
                self.usb.config_write(bus, register, value)

    def config_read(self, offset: int) -> int:
        return self.usb.config_read(BUSES, offset)

    def config_write(self, offset: int, value: int) -> None:
        self.usb.config_write(BUSES, offset, value)

    def read(self, bar: int, offset: int, size: int = 4) -> bytes:
        data = b""
        for at in range(offset, offset + size, BURST):
            part = min(BURST, offset + size - at)
            data += self.usb.stream_read(self._base(bar) + at, -(-part // 4) * 4)[:part]
        return data

    def write(self, bar: int, offset: int, data: bytes) -> None:
        assert len(data) % 4 == 0
        if data:
            self.usb.stream_write(self._base(bar) + offset, data)

    def _base(self, bar: int) -> int:
        return {0: 1 << 35, 2: 2 << 35, 5: 0x1000_0000}[bar]  # where the driver puts them

    def sleep(self, duration: int) -> None:
        self.usb.sleep(seconds(duration))

    def wait(self, what: str, condition: Callable[[], bool], timeout: float = 0.5) -> None:
        end = self.usb.now + timeout
        while not condition():
            if self.usb.now > end:
                raise TimeOut(f"no {what} after {timeout:g} s")


def booted(chip: str, vram: int) -> Driver:
    """A card that has been booted over USB."""
    bridge = Bridge(chip, vram)
    driver = Driver(bridge, bridge.card.chip)  # type: ignore[arg-type]
    driver.boot()
    return driver
