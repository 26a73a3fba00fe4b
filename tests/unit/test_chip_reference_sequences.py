"""The open firmware's exact register sequences, on a strict chip, driven by its hosts' scripts.

Everything that firmware and its scripts are known to do on silicon has to work here unchanged, and without
touching anything unknown.
"""

from __future__ import annotations

import struct

import pytest

from emulator.core.clock import seconds
from emulator.pcie.endpoint import MAGIC
from emulator.usb import standard
from emulator.usb.host import Host
from emulator.usb.wire import Outcome, Setup, Speed
from tests.unit.open_firmware import CONFIGURATION, DEVICE, SERIAL, OpenFirmware

BOTH = pytest.mark.parametrize("best", [Speed.SUPER_PLUS, Speed.HIGH], ids=["super", "high"])
RAM, REGISTERS = 0x8_0000_0000, 0x1000_0000
OUT, IN = 0x02, 0x81


def read(host: Host, address: int, size: int = 1, bank: int = 0) -> bytes:
    """E4."""
    return host.control(Setup(0xC0, 0xE4, address, bank << 8, size), timeout=1.0)


def write(host: Host, address: int, *values: int, bank: int = 0) -> None:
    """E5, one value after another."""
    for value in values:
        host.control(Setup(0x40, 0xE5, address, bank << 8 | value, 0), timeout=1.0)


def launch(host: Host, kind: int, address: int, value: int = 0, *, enables: int = 15, mode: int = 0) -> None:
    """F0, OUT."""
    data = struct.pack("<QI", address, value)
    host.control(Setup(0x40, 0xF0, enables << 8 | kind, mode, len(data)), data, timeout=1.0)


def completion(host: Host) -> tuple[int, int, int]:
    """F0, IN: data, completion status with byte count, status."""
    data, header, has_data, status = struct.unpack("<I2sBB", host.control(Setup(0xC0, 0xF0, 0, 0, 8)))
    return data if has_data else 0, int.from_bytes(header, "big"), status


def bulk_out(host: Host, data: bytes) -> None:
    transfer = host.submit(OUT, data)
    host.wait(transfer, timeout=1.0)
    assert transfer.outcome is Outcome.DONE
    host.clock.sleep(0.001)


def bulk_in(host: Host, length: int) -> bytes:
    transfer = host.submit(IN, length)
    host.wait(transfer, timeout=1.0)
    assert transfer.outcome is Outcome.DONE
    return bytes(transfer.data)


def running(best: Speed = Speed.SUPER_PLUS) -> OpenFirmware:
    firmware = OpenFirmware(best)
    firmware.host.enumerate()
    return firmware


def enumerate_pcie(host: Host) -> None:
    """The host's set-up of the bridges, and of the endpoint's BARs on bus 4."""

    def configure(bus: int, place: int, value: int) -> None:
        launch(host, 0x45 if bus else 0x44, bus << 24 | place, value)
        assert completion(host) == (0, 4, 0)

    for bus in range(4):
        configure(bus, 0x18, 4 << 16 | bus + 1 << 8 | bus)
        configure(bus, 0x20, 0xFFFF << 16 | REGISTERS >> 16)
        configure(bus, 0x24, 0xFFFF << 16 | RAM >> 16 & 0xFFFF)
        configure(bus, 0x28, RAM >> 32)
        configure(bus, 0x2C, 0xFFFFFFFF)
        configure(bus, 0x04, 0x06)
    for place, value in ((0x10, RAM & 0xFFFFFFFF), (0x14, RAM >> 32), (0x18, REGISTERS), (0x04, 0x06)):
        configure(4, place, value)


# -- start, link, EP0 -------------------------------------------------------------------------------------


@BOTH
def test_boots_and_enumerates(best: Speed) -> None:
    firmware = OpenFirmware(best)
    assert 0.3 < seconds(firmware.clock.now) < 0.6, "three good samples of the LTSSM"
    found = firmware.host.enumerate()
    assert found.device == DEVICE[best.is_super]
    assert found.configurations == (CONFIGURATION[best.is_super],)
    text = firmware.uart.decode()
    assert "[PCIe 78 02 23]" in text
    assert ("[LINK 02 03]" if best.is_super else "[LINK 04") in text
    assert firmware.host.control(Setup(0x80, 6, 0x0303, 0x0409, 255))[2:].decode("utf-16-le") == SERIAL.hex()
    assert read(firmware.host, 0x9100)[0] & 3 == (3 if best.is_super else 1)
    assert read(firmware.host, 0x9303) == b"\x33"
    assert read(firmware.host, 0x9002) == b"\x20"
    assert read(firmware.host, 0x92C0)[0] & 0x80
    assert read(firmware.host, 0x91C0)[0] & 0x02 == (2 if best.is_super else 0)


@BOTH
def test_memory_over_ep0(best: Speed) -> None:
    host = running(best).host
    pattern = bytes(range(1, 101))
    for place, value in enumerate(pattern):
        write(host, 0x4000 + place, value)
    most = 512 if best.is_super else 64
    assert read(host, 0x4000, most)[:100] == pattern[:most]
    assert read(host, 0x6000, 4) == bytes(4)
    assert read(host, 0x4092, bank=1) == b"\x23"
    assert read(host, 0x6025, bank=1) == b"\x80"


@BOTH
def test_what_the_firmware_leaves_unanswered(best: Speed) -> None:
    """No descriptor of type 6: no answer, and no STALL. An unknown OUT request ends at SuperSpeed only."""
    host = running(best).host
    with pytest.raises(TimeoutError):
        host.control(Setup(0x80, 6, 0x0600, 0, 10), timeout=0.5)
    unknown = Setup(0x40, 0xF1, 0, 0, 4)
    if best.is_super:
        host.control(unknown, b"data", timeout=0.5)
    else:
        with pytest.raises(TimeoutError):
            host.control(unknown, b"data", timeout=0.5)
    assert len(read(host, 0x9E00, 4)) == 4


@BOTH
def test_reset_of_the_bus_in_the_middle_of_everything(best: Speed) -> None:
    firmware = running(best)
    enumerate_pcie(firmware.host)
    launch(firmware.host, 0x60, RAM, 1024, mode=1)
    half = firmware.host.submit(OUT, bytes(2048))
    firmware.host.clock.sleep(0.000_2)
    firmware.host.reset()
    assert half.outcome is Outcome.GONE
    firmware.host.enumerate()
    assert read(firmware.host, 0x4092, bank=1) == b"\x23", "PCIe is not affected"
    launch(firmware.host, 0x60, RAM, 4, mode=1)
    bulk_out(firmware.host, b"sixteen bytes...")
    assert firmware.endpoint.bars[0].memory[:16] == b"sixteen bytes..."


@BOTH
def test_restart_of_the_cpu(best: Speed) -> None:
    """CC31 = 1: main runs again and the device enumerates again; memory stays."""
    firmware = running(best)
    write(firmware.host, 0x4000, 0x5A)
    with pytest.raises(ConnectionError):
        write(firmware.host, 0xCC31, 1)
    firmware.host.enumerate()
    assert firmware.boots == 2
    assert firmware.host.attachments == 2
    assert read(firmware.host, 0x4000) == b"\x5a"
    assert read(firmware.host, 0x9100)[0] & 3 == (3 if best.is_super else 1)


def test_lost_link_comes_back() -> None:
    firmware = running()
    enumerate_pcie(firmware.host)
    launch(firmware.host, 0x60, RAM, 512, mode=1)
    pending = firmware.host.submit(OUT, bytes(2048))
    firmware.host.pump.post(lambda: firmware.chip.usb.drop_link(1_000_000))
    firmware.host.wait(pending, timeout=0.1)
    assert pending.outcome is Outcome.GONE
    firmware.host.enumerate()
    assert read(firmware.host, 0xB450) == b"\x78"


# -- PCIe -------------------------------------------------------------------------------------------------


@BOTH
def test_single_requests(best: Speed) -> None:
    host = running(best).host
    launch(host, 0x04, 0)
    data, header, status = completion(host)
    assert (data & 0xFFFF, header, status) == (0x1B21, 4, 0)
    enumerate_pcie(host)
    launch(host, 0x00, REGISTERS)
    assert completion(host) == (MAGIC, 4, 0)
    launch(host, 0x60, RAM + 0x10, 0x11223344)
    launch(host, 0x60, RAM + 0x10, 0xAABBCCDD, enables=0b0110)
    launch(host, 0x20, RAM + 0x10)
    assert completion(host) == (0x11BBCC44, 4, 0)
    launch(host, 0x20, RAM + 0x12, enables=0b0100)
    data, header, status = completion(host)
    assert (data & 0xFF0000, header, status) == (0xBB0000, 1, 0)
    launch(host, 0x00, 0xF000_0000)
    _, header, status = completion(host)
    assert (header >> 13, status) == (1, 0), "unsupported request: completed, with that status"


def test_without_power_requests_fail_at_once() -> None:
    firmware = running()
    host = firmware.host
    enumerate_pcie(host)
    host.control(Setup(0x40, 0xF3, 0, 0, 0), timeout=10.0)
    assert read(host, 0xB450) != b"\x78"
    assert read(host, 0xE765) == b"\x00"
    launch(host, 0x60, RAM, 1)
    launch(host, 0x20, RAM)
    began = firmware.clock.now
    assert completion(host)[2] == 1
    assert seconds(firmware.clock.now - began) < 0.001
    host.control(Setup(0x40, 0xF3, 1, 0, 0), timeout=10.0)
    assert read(host, 0xB450) == b"\x78"
    enumerate_pcie(host)
    launch(host, 0x20, RAM)
    assert completion(host)[2] == 0


@pytest.mark.slow
@BOTH
def test_streams_and_their_carries(best: Speed) -> None:
    """Across a 64 KiB border, with a last packet that is short, and CLEAR_FEATURE after it."""
    firmware = running(best)
    host = firmware.host
    enumerate_pcie(host)
    data = bytes(value * 7 & 0xFF for value in range(2500))
    start = 0xFFF8
    launch(host, 0x60, RAM + start, len(data) // 4, mode=1)
    bulk_out(host, data)
    host.clock.sleep(0.01)
    memory = firmware.endpoint.bars[0].memory
    assert memory is not None
    assert bytes(memory[start : start + len(data)]) == data
    launch(host, 0x20, RAM + start, len(data) // 4, mode=2)
    assert bulk_in(host, len(data)) == data
    launch(host, 0x60, RAM, 1, mode=1)
    bulk_out(host, bytes(8))  # more than was announced: dropped, and EP 0x02 stays as it is
    late = host.submit(OUT, bytes(4))
    host.clock.sleep(0.05)
    assert late.outcome is None
    host.cancel(late)
    for endpoint in (OUT, IN):
        host.control(standard.clear_halt(endpoint))
    launch(host, 0x60, RAM, 1, mode=1)
    bulk_out(host, b"good")
    assert bytes(memory[:4]) == b"good"


def poke_as_the_tool(host: Host, kind: int, address: int) -> int:
    """cyrozap's order: header dwords, clear ERROR, launch, wait for SENT and clear it, wait for COMPLETE."""
    header = struct.pack(">III", kind << 24 | 1, 0x0F, address)
    for place, value in enumerate(header, 0xB210):
        write(host, place, value)
    write(host, 0xB296, 0x01)
    write(host, 0xB254, 0x0F)
    assert read(host, 0xB296)[0] & 0x04
    write(host, 0xB296, 0x04)
    assert read(host, 0xB296)[0] & 0x03 == 0x02
    write(host, 0xB296, 0x02)
    assert read(host, 0xB296) == b"\x00"
    assert read(host, 0xB284) == b"\x01"
    first, second, third = struct.unpack(">III", read(host, 0xB224, 12))
    assert first == 0x4A000001
    assert second & 0xFFFF == 4
    assert third >> 16 == 0
    return int.from_bytes(read(host, 0xB220, 4), "big")


def test_requests_in_the_order_of_the_vendor_tool() -> None:
    host = running().host
    assert poke_as_the_tool(host, 0x04, 0) & 0xFFFF == 0x1B21
    assert poke_as_the_tool(host, 0x04, 0x08) >> 8 == 0x060400


# -- SRAM -------------------------------------------------------------------------------------------------


@BOTH
def test_slots_both_ways(best: Speed) -> None:
    firmware = running(best)
    host = firmware.host
    data = bytes(value >> 3 & 0xFF for value in range(0x6000))
    before = len(firmware.entries)
    host.control(Setup(0x40, 0xF2, len(data) // 512, 2 << 8 | 16, 0))
    bulk_out(host, data)
    assert bytes(firmware.bus.sram[0x40000 : 0x40000 + len(data)]) == data
    assert not any(events & 0x04 for events in firmware.entries[before:]), "the CPU gets no event for it"
    for entry in (struct.pack("<IIIHH", 0, 0, 0, 0, 1), None):  # a whole entry, or its dword 3 alone
        host.control(Setup(0x40, 0xF2, 0x8000 | len(data) // 512, 2 << 8 | 16, 0))
        transfer = host.submit(IN, len(data))
        host.clock.sleep(0.001)
        assert transfer.outcome is None, "waits for the completion entry"
        if entry is None:
            host.pump.post(lambda: firmware.chip.upstream.write(0x82200C, bytes(4)))
        else:
            host.pump.post(lambda: firmware.chip.upstream.write(0x822000, bytes(16)))
        host.wait(transfer, timeout=1.0)
        assert bytes(transfer.data) == data


def test_slot_0_is_what_the_cpu_sees_at_f000() -> None:
    host = running().host
    host.control(Setup(0x40, 0xF2, 1, 0, 0))
    bulk_out(host, bytes(range(256)) * 2)
    assert read(host, 0xF000, 512) == bytes(range(256)) * 2
    write(host, 0xF001, 0x99)
    assert read(host, 0xF000, 2) == b"\x00\x99"


def test_all_of_the_sram_in_one_arming() -> None:
    firmware = running()
    data = bytes(range(256)) * 2048
    firmware.host.control(Setup(0x40, 0xF2, 1024, 32 << 8, 0))
    began = firmware.clock.now
    bulk_out(firmware.host, data)
    assert bytes(firmware.bus.sram) == data
    assert 600e6 < len(data) / (seconds(firmware.clock.now - began) - 0.001) < 720e6


# -- flash, by the host's script --------------------------------------------------------------------------


class FlashScript:
    """What the open firmware's e4_flash.py does with E4, E5 and a bulk pipe."""

    def __init__(self, host: Host) -> None:
        self._host = host
        write(host, 0xCC33, 0x04)
        write(host, 0xCA81, read(host, 0xCA81)[0] | 0x01)
        write(host, 0xC805, 0x02)
        write(host, 0xC8A6, 0x04)

    def load(self, data: bytes) -> None:
        write(self._host, 0x9094, 0x10)
        bulk_out(self._host, data)

    def idle(self) -> None:
        while read(self._host, 0xC8A9)[0] & 0x01:
            pass

    def run(
        self, command: int, address: int = 0, length: int = 0, *, mode: int = 7, out: bool = False
    ) -> None:
        host, is_read = self._host, length and not out
        self.idle()
        if is_read:
            self._clear_dma()
        write(host, 0xC8AD, 1 if out else 0)
        write(host, 0xC8AE, 0)
        write(host, 0xC8AF, 0)
        write(host, 0xC8AA, command)
        write(host, 0xC8AC, mode)
        write(host, 0xC8A1, address & 0xFF)
        write(host, 0xC8A2, address >> 8 & 0xFF)
        write(host, 0xC8AB, address >> 16)
        write(host, 0xC8A3, length >> 8)
        write(host, 0xC8A4, length & 0xFF)
        write(host, 0xC8A9, 1)
        self.idle()
        for mask in (0x10, 0x20, 0x40, 0x80, 0x01):
            write(host, 0xC8AD, read(host, 0xC8AD)[0] & ~mask)
        if is_read:
            self._clear_dma()

    def _clear_dma(self) -> None:
        for place in (0xC8B8, 0xC8B6, 0xC8D6, 0xC8D8):
            write(self._host, place, 0)
        assert not read(self._host, 0xC8B8)[0] & 0x01
        assert not read(self._host, 0xC8B6)[0] & 0x80

    def enable_write(self) -> None:
        for place, value in ((0xC8AD, 0), (0xC8AA, 6), (0xC8AC, 4), (0xC8A3, 0), (0xC8A4, 0), (0xC8A9, 1)):
            write(self._host, place, value)
        self.idle()

    def status(self) -> int:
        self.run(0x05, length=1, mode=4)
        return read(self._host, 0x7000)[0]

    def finish(self) -> None:
        while self.status() & 0x01:
            self._host.clock.sleep(0.1)


@pytest.mark.slow
@BOTH
def test_flash_by_the_script(best: Speed) -> None:
    firmware = running(best)
    host = firmware.host
    script = FlashScript(host)
    script.enable_write()
    script.load(bytes((0x1C, 0, 0, 0)))
    script.run(0x01, length=1, mode=4, out=True)
    script.finish()
    assert script.status() & 0x1C == 0x1C
    script.enable_write()
    script.load(bytes(4))
    script.run(0x01, length=1, mode=4, out=True)
    script.finish()
    assert script.status() & 0x1C == 0
    script.run(0x9F, length=3, mode=4)
    assert read(host, 0x7000, 3) == bytes.fromhex("c22014")
    page = bytes(range(0x40, 0x80))
    script.enable_write()
    script.run(0xD8, 0x10000)
    script.finish()
    script.load(page)
    script.enable_write()
    script.run(0x02, 0x10040, len(page), out=True)
    script.finish()
    script.run(0x03, 0x10000, 0x1000)
    assert read(host, 0x7040, 64) == page
    assert read(host, 0x7000, 64) == b"\xff" * 64
    assert firmware.flash.contents[0x10040:0x10080] == page
