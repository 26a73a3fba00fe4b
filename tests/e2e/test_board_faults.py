"""Every fault that can be injected has its effect, seen by the host over USB."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
import usb.core

from emulator import faults, images
from emulator.board import Board, PowerCut
from emulator.core.clock import clocks
from emulator.options import Options
from firmware.asm2464pd import flash_layout, image
from firmware.asm2464pd.registers.tlp import TLP_DATA
from tests.e2e.test_board import command, connect

READ = (0xC0, 0xE4, 0x9100, 0, 1)
"""A request of the vendor image that needs no PCIe: it reads the link's speed."""
BASE = 0x8_0000_0000
READ_MEMORY, WRITE_MEMORY = 0x20, 0x60
"""fmt/type of 64-bit memory requests."""


def board(*injected: str, **options: Any) -> Board:
    return Board.of("vendor", Options(faults=tuple(map(faults.parse, injected)), **options))


def config_read(device: Any) -> tuple[int, int]:
    """Value and status (0 done, 1 error, FF time-out of the firmware) of a read of the root port's ID."""
    return tlp(device, 0x04, 0)


def tlp(device: Any, kind: int, address: int, value: int = 0) -> tuple[int, int]:
    device.ctrl_transfer(0x40, 0xF0, 0x0F00 | kind, 0, struct.pack("<QI", address, value))
    data, _, _, status = struct.unpack("<I2sBB", bytes(device.ctrl_transfer(0xC0, 0xF0, 0, 0, 8, 60_000)))
    return data, status


def open_memory(device: Any) -> None:
    """Route the endpoint's memory to BASE."""
    for bus in range(4):
        for register, value in ((0x18, bus | bus + 1 << 8 | 4 << 16), (0x24, 0xFFF1_0001), (0x28, 8),
                                (0x2C, 8), (0x04, 6)):  # fmt: skip
            tlp(device, 0x45 if bus else 0x44, bus << 24 | register, value)
    for register, value in ((0x10, 0), (0x14, 8), (0x04, 6)):
        tlp(device, 0x45, 4 << 24 | register, value)


def test_link_drop_ends_transfers_and_the_device_comes_back() -> None:
    it = board("link-drop@220ms+10ms")
    device = connect(it)
    device.ctrl_transfer(0x40, 0xA2, 1, 0)
    with pytest.raises(usb.core.USBError) as gone:
        device.read(0x81, 512, 10_000)
    assert gone.value.errno == 19
    assert 0.220 <= it.usb.clock.now() < 0.225, "at the drop"
    assert bytes(connect(it).ctrl_transfer(*READ)) == b"\x03"
    assert it.usb.clock.now() >= 0.230


@pytest.mark.slow
def test_link_drop_without_an_end_is_permanent() -> None:
    it = board("link-drop@220ms")
    connect(it)
    it.usb.clock.sleep(1.0)
    assert it.usb.speed is None


def test_nak_storm_delays_a_transfer_to_its_end() -> None:
    it = board("nak-storm@220ms+50ms")
    device = connect(it)
    it.usb.clock.sleep(0.225 - it.usb.clock.now())
    with pytest.raises(usb.core.USBTimeoutError):
        device.ctrl_transfer(*READ, timeout=10)
    assert bytes(device.ctrl_transfer(*READ, timeout=1000)) == b"\x03"
    assert 0.270 <= it.usb.clock.now() < 0.275


def test_perst_stuck_keeps_the_link_down() -> None:
    assert config_read(connect(board()))[1] == 0
    it = board("perst-stuck")
    device = connect(it)
    assert config_read(device)[1] == 1, "an error, at once"
    assert bytes(device.ctrl_transfer(0xC0, 0xE4, 0xB450, 0, 1)) != b"\x78", "not in L0"


@pytest.mark.parametrize(
    ("fault", "status", "seconds"),
    [("pcie-dead=800000000-800000fff", 0xFF, 0.1), ("pcie-late=800000000+9ms", 0, 9e-3)],
)
def test_dead_and_late_addresses(fault: str, status: int, seconds: float) -> None:
    it = board(fault)
    device = connect(it)
    open_memory(device)
    tlp(device, WRITE_MEMORY, BASE + 0x1000, 0x1234_5678)
    began = it.usb.clock.now()
    assert tlp(device, READ_MEMORY, BASE + 0x1000) == (0x1234_5678, 0), "an address next to it"
    assert it.usb.clock.now() - began < 1e-3
    began = it.usb.clock.now()
    assert tlp(device, READ_MEMORY, BASE)[1] == status
    assert seconds < it.usb.clock.now() - began < 2 * seconds


def test_a_stale_completion_arrives_after_it_was_given_up() -> None:
    it = board("pcie-stale=800000000+90ms")
    device = connect(it)
    open_memory(device)
    tlp(device, WRITE_MEMORY, BASE, 0x57A1E)
    assert tlp(device, READ_MEMORY, BASE)[1] == 1, "given up"
    latched = (0xC0, 0xE4, TLP_DATA.address, 0, TLP_DATA.size)
    assert bytes(device.ctrl_transfer(*latched)) != (0x57A1E).to_bytes(4, "big")
    it.usb.clock.sleep(0.1)
    assert bytes(device.ctrl_transfer(*latched)) == (0x57A1E).to_bytes(4, "big")


@pytest.mark.slow
@pytest.mark.parametrize("bit", [0, 7])
def test_flash_flip_inverts_one_bit(bit: int) -> None:
    address = flash_layout.IMAGE.address + 0x200
    whole, flipped = board(), board(f"flash-flip={address:x}.{bit}")
    differences = [
        (place, one ^ other)
        for place, (one, other) in enumerate(zip(whole.flash.contents, flipped.flash.contents, strict=True))
        if one != other
    ]
    assert differences == [(address, 1 << bit)]
    assert flipped.boot.loader, "the image does not check any more"


def test_power_cut_leaves_a_program_half_done(tmp_path: Path) -> None:
    kept = tmp_path / "flash.bin"
    wrapped = image.wrap(images.build("vendor").bin.read_bytes())
    header = struct.pack(">BBI", 0xE3, 0x50, len(wrapped))
    whole = Board(None, Options(strap=True))
    assert command(connect(whole), header, data=wrapped)[0] == 0
    cut = faults.Fault("power-cut", at=whole.machine.clock.now - clocks(15e-3))
    stopped = Board(None, Options(strap=True, flash=kept, faults=(cut,)))
    with pytest.raises(PowerCut):
        command(connect(stopped), header, data=wrapped)
    stopped.close()

    again = Board(None, Options(flash=kept))
    assert again.boot.loader
    start = flash_layout.IMAGE.address
    written = again.flash.contents[start : start + len(wrapped)].rstrip(b"\xff")
    assert 0 < len(written) < len(wrapped)
    assert wrapped.startswith(written[:-256]), "whole pages, and one that is half done"


@pytest.mark.slow
def test_faults_are_the_same_in_every_run() -> None:
    def run() -> tuple[int, bytes]:
        it = board("link-drop@220ms+10ms", "nak-storm@400ms+5ms")
        connect(it)
        it.usb.clock.sleep(0.3)
        connect(it).ctrl_transfer(*READ)
        it.machine.run(clocks(0.5))
        return it.machine.clock.now, it.machine.cpu.state()

    assert run() == run()
