"""What the updater of a dock with this chip does (commaai/openpilot, chestnut/flash.py), done here too."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from emulator.asm2464pd.flash_chip import Command
from emulator.board import Board
from emulator.model import Model
from emulator.options import Options
from emulator.usb.wire import Speed
from firmware.asm2464pd import image
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.flash_layout import IMAGE, SECTOR_SIZE
from firmware.asm2464pd.registers.memory import BULK_OUT_BUFFER
from firmware.protocol import requests
from sdk.errors import DeviceFailed
from tests.flash_bench import CONFIG, Bench, filler, holds, makers, running, saved
from usbgpu import transport
from usbgpu.flash import job, plan
from usbgpu.flash.spi import SpiFlash, Xdata
from usbgpu.transport import CallKind, Running, sysfs
from usbgpu.transport.identity import OPEN_FIRMWARE

NEW = filler(5000)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, saved(running()))


@pytest.mark.slow
def test_sectors_of_4_kib_are_erased_and_nothing_else(bench: Bench) -> None:
    board = bench.power()
    transfer, seen = board.flash.transfer, []

    def watched(out, size=0):
        if out and out[0] in (Command.SE, Command.BE):
            seen.append((Command(out[0]).name, int.from_bytes(out[1:4], "big")))
        return transfer(out, size)

    board.flash.transfer = watched
    written, _ = bench.flash(board, NEW)
    assert seen == [("SE", SECTOR_SIZE), ("SE", 0)], "the first one, with the configuration, comes last"
    assert written is not None
    assert written.verified == 2 * SECTOR_SIZE
    assert holds(bench.contents, NEW)


@pytest.mark.slow
@pytest.mark.parametrize(
    "address",
    [
        IMAGE.address + 0x1234,
        pytest.param(0x40, marks=pytest.mark.slow),
        pytest.param(plan.TAIL + 5, marks=pytest.mark.slow),
    ],
)
def test_everything_is_read_twice(bench: Bench, address: int) -> None:
    board = bench.power()
    transfer = board.flash.transfer
    counts = [0]

    def flaky(out, size=0):
        data = bytearray(transfer(out, size))
        if out[0] == Command.READ and size > plan.CHUNK:
            start = int.from_bytes(out[1:4], "big")
            if start <= address < start + size:
                counts[0] += 1
                data[address - start] ^= 1 if counts[0] > 2 else 0  # once to choose the window, once to read
        return bytes(data)

    board.flash.transfer = flaky
    counts[0] = 0 if address < SECTOR_SIZE else 1
    with pytest.raises(DeviceFailed, match="two reads differ") as differ:
        bench.prepare(board, NEW)
    assert differ.value.where == f"flash address {address:#07x}"


@pytest.mark.slow
def test_a_bulk_packet_of_which_only_64_bytes_reach_the_buffer(bench: Bench) -> None:
    """At USB 2; the rest is written by E5, as the updater does with all."""
    board = bench.power(port=Speed.HIGH)
    device = transport.attach(board.backend())
    registers = []

    def cut_short(call, outcome):
        if call.kind is CallKind.BULK_OUT:
            lost = len(call.data) - 64
            if lost > 0:
                board.machine.bus.store(Space.XDATA, BULK_OUT_BUFFER.address + 64, b"\0" * lost)
        elif call.request == requests.XDATA_WRITE.code and call.value >> 12 == 7:
            registers.append(call.value - BULK_OUT_BUFFER.address)

    device.observers.append(cut_short)
    flash = SpiFlash(device)
    data = bytes(range(1, 129))
    flash.erase(0x20000)
    registers.clear()
    flash.program(plan.Program(0x20000, data))
    assert board.flash.contents[0x20000:0x20080] == data
    assert registers == list(range(64, 128))


def test_registers_are_read_64_bytes_at_a_time_at_usb_2(bench: Bench) -> None:
    """More would be cut short, without an empty packet behind."""
    device = transport.attach(bench.power(port=Speed.HIGH).backend())
    sizes = []
    device.observers.append(lambda call, outcome: sizes.append(call.length))
    assert len(Xdata(device).read(0x0000, 150)) == 150
    assert sizes == [64, 64, 22]


def strict_loader(bench: Bench) -> Board:
    """A board in its boot loader, which wants a port reset before it takes anything in bulk."""
    model = Model.of(["rom-bulk=reset"])
    return Board(None, Options(flash=bench.file, strap=True, model=model))


def test_the_boot_loaders_port_is_reset_before_anything_in_bulk(bench: Bench) -> None:
    board = strict_loader(bench)
    device = transport.attach(board.backend())
    calls = []
    device.observers.append(lambda call, outcome: calls.append(str(call)))
    prepared = job.prepare(device, bench.state, image=running(), kind="emulated")
    first = next(place for place, call in enumerate(calls) if "bytes" in call)
    before = calls[:first]
    assert before.index("bus reset") < before.index("clear halt of EP 0x81")
    assert "clear halt of EP 0x02" in before
    assert prepared.contents.config == CONFIG
    assert board.usb.configuration == 1


def test_a_loader_that_wants_a_reset_takes_nothing_without(bench: Bench, monkeypatch) -> None:
    """That the emulated one is as strict as that."""
    device = transport.attach(strict_loader(bench).backend())
    monkeypatch.setattr(device, "reset", lambda: None)
    with pytest.raises(DeviceFailed):
        job.prepare(device, bench.state, image=running(), kind="emulated")


def test_the_loader_that_wants_a_reset_is_flashed(bench: Bench) -> None:
    board = strict_loader(bench)
    written, identity = bench.flash(board, running())
    assert written is not None or bench.contents[0x100:0x200] == running()[:0x100]
    assert identity is not None
    assert identity.running is Running.OURS


def renamed() -> bytes:
    """Our firmware under the ids that docks have since the summer of 2026."""
    new, old = struct.pack("<HH", 0x3801, 0x0001), struct.pack("<HH", 0xADD1, 0x0001)
    body = image.unwrap(running())
    assert body.count(b"\x09" + old) + body.count(b"\x40" + old) == 2, (
        "one device descriptor for each USB version"
    )
    return image.wrap(body.replace(b"\x09" + old, b"\x09" + new).replace(b"\x40" + old, b"\x40" + new))


@pytest.mark.slow
def test_a_board_with_the_new_ids_is_known_and_flashed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, saved(renamed()))
    board = bench.power()
    prepared = bench.prepare(board, NEW)
    assert (prepared.identity.vendor, prepared.identity.product_id) == (0x3801, 0x0001)
    assert prepared.identity.running is Running.OURS
    assert prepared.programmer.name.startswith("SPI")
    assert (0x3801, 0x0001) in OPEN_FIRMWARE
    assert job.releases(renamed()) == job.releases(running())
    board.close()
    bench.flash(bench.power(), makers())
    assert holds(bench.contents, makers())


def test_no_hub_and_no_host_controller_above_a_board_is_suspended(tmp_path: Path) -> None:
    controller = tmp_path / "platform" / "a600000.ssusb"
    device = controller / "xhci-hcd.0.auto" / "usb4" / "4-1" / "4-1.2"
    settings = {device: "auto", device.parent: "auto", device.parents[1]: "on", controller: "auto"}
    for path, setting in settings.items():
        (path / "power").mkdir(parents=True, exist_ok=True)
        (path / "power" / "control").write_text(f"{setting}\n")
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "4-1.2").symlink_to(device)

    def found():
        return [(path / "power" / "control").read_text().strip() for path in settings]

    kept = sysfs.KeptAwake("4-1.2", tmp_path / "devices")
    assert found() == ["on"] * 4
    kept.release()
    assert found() == ["auto", "auto", "on", "auto"]
    kept.release()
