"""The whole board over USB: two unrelated firmwares, the mask ROM, slot DMA, all by pyusb."""

from __future__ import annotations

import contextlib
import gc
import struct
import threading
import weakref
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import usb.core

from emulator import faults, images
from emulator.board import Board
from emulator.mcs51.core import GUARDS
from emulator.options import Options
from emulator.usb.wire import Speed
from firmware.asm2464pd import bot, flash_layout, image
from tests.amount import amount
from tests.campaigns.hostile import MIB, resident

OUT, IN = 0x02, 0x81
CBW = struct.Struct("<4sIIBBB16s")
CSW = struct.Struct("<4sIIB")


def connect(board: Board) -> Any:
    device = usb.core.find(backend=board.backend())
    assert device is not None
    device.set_configuration()
    return device


def command(device: Any, cdb: bytes, *, length: int = 0, data: bytes = b"") -> tuple[int, bytes]:
    """A command over Bulk-Only Transport: its status and data."""
    size = length or len(data)
    device.write(OUT, CBW.pack(b"USBC", 0x1234, size, 0x80 if length else 0, 0, len(cdb), cdb))
    answer = bytes(device.read(IN, length)) if length else b""
    if data:
        device.write(OUT, data, 60_000)
    signature, tag, residue, status = CSW.unpack(bytes(device.read(IN, CSW.size, 60_000)))
    assert (signature, tag) == (b"USBS", 0x1234)
    return status, answer[: size - residue] if length else answer


@pytest.mark.slow
@pytest.mark.parametrize("port", [Speed.SUPER_PLUS, Speed.HIGH])
def test_vendor_image_answers_e4_and_e5_as_control_requests(port: Speed) -> None:
    device = connect(Board.of("vendor", Options(port=port, strict=True)))
    device.ctrl_transfer(0x40, 0xE5, 0x8123, 0x5A)
    assert bytes(device.ctrl_transfer(0xC0, 0xE4, 0x8123, 0, 1)) == b"\x5a"
    speed = {Speed.SUPER_PLUS: 3, Speed.HIGH: 1}[port]
    assert bytes(device.ctrl_transfer(0xC0, 0xE4, 0x9100, 0, 1)) == bytes([speed])
    assert bytes(device.ctrl_transfer(0xC0, 0xE4, 0xB450, 0, 1)) == b"\x78", "LTSSM in L0"


@pytest.mark.parametrize("port", [Speed.SUPER_PLUS, Speed.HIGH])
def test_storage_image_answers_e4_and_e5_as_bot_commands(port: Speed) -> None:
    device = connect(Board.of("storage", Options(port=port, strict=True)))
    interface = device.get_active_configuration()[0, 0]
    assert (interface.bInterfaceClass, interface.bInterfaceProtocol) == (0x08, 0x50)
    assert command(device, bytes.fromhex("e55a50 8123")) == (0, b"")
    assert command(device, bytes.fromhex("e40350 8122"), length=3)[1][1:2] == b"\x5a"
    assert command(device, bytes.fromhex("e40150 9100"), length=1)[1] == bytes([3 if port.is_super else 1])
    status, _ = command(device, b"\xff")
    assert status == 1, "an unknown command fails, and the device continues"
    assert command(device, b"\x00\0\0\0\0\0") == (0, b"")


def test_the_boot_loader_writes_firmware_that_then_runs() -> None:
    body = images.build("vendor").bin.read_bytes()
    wrapped = image.wrap(body)
    board = Board(None, Options(strap=True))
    device = connect(board)
    assert (device.idVendor, device.idProduct) == (0x174C, 0x2463)
    for index in (0, 1):
        block = flash_layout.seal(index, b"\xff" * 4 + bytes(0x7C))
        assert command(device, bytes([bot.CONFIG_WRITE.opcode, 0x50, index]), data=block)[0] == 0
    first, rest = wrapped[: bot.PART_SIZE], wrapped[bot.PART_SIZE :]
    assert command(device, struct.pack(">BBI", 0xE3, 0x50, len(first)), data=first)[0] == 0
    assert not rest
    assert command(device, struct.pack(">BBI", 0xE2, 0x50, len(first)), length=len(first))[1] == first
    assert command(device, b"\xe8\x51")[0] == 0
    board.usb.clock.sleep(0.5)
    assert board.boot.body == body
    running = connect(board)
    assert (running.idVendor, running.idProduct) == (0xADD1, 0x0001)


@pytest.mark.slow
@pytest.mark.parametrize("sectors", [1, 32, 1024])
def test_slot_dma_moves_what_it_is_armed_for_at_the_links_rate(sectors: int) -> None:
    board = Board.of("vendor", Options(strict=True))
    device = connect(board)
    data = bytes(i * 7 + (i >> 8) & 0xFF for i in range(sectors * 512))
    slots = -(-len(data) // 0x4000)
    device.ctrl_transfer(0x40, 0xF2, sectors, slots << 8)
    began = board.usb.clock.now()
    assert device.write(OUT, data) == len(data)
    seconds = board.usb.clock.now() - began
    assert bytes(board.machine.bus.sram[: len(data)]) == data
    if sectors == 1024:
        assert len(data) / seconds == pytest.approx(700e6, rel=0.05)

    device.ctrl_transfer(0x40, 0xF2, 0x8000 | sectors, slots << 8)
    board.usb.pump.post(lambda: board.chip.upstream.write(0x82200C, bytes(4)))
    began = board.usb.clock.now()
    assert bytes(device.read(IN, len(data))) == data
    if sectors == 1024:
        assert len(data) / (board.usb.clock.now() - began) == pytest.approx(700e6, rel=0.05)


def test_an_aborted_slot_dma_is_dropped_at_a_bus_reset() -> None:
    board = Board.of("vendor", Options(strict=True))
    device = connect(board)
    device.ctrl_transfer(0x40, 0xF2, 32, 1 << 8)
    assert board.chip.dma.remaining == 32 * 512
    device.reset()
    assert board.chip.dma.remaining == 0
    device.set_configuration()
    device.ctrl_transfer(0x40, 0xF2, 1, 1 << 8)
    assert device.write(OUT, bytes(512)) == 512


def test_one_submitting_thread_is_reproducible_to_the_clock() -> None:
    def run() -> tuple[int, int, bytes]:
        board = Board.of("vendor")
        device = connect(board)
        device.ctrl_transfer(0x40, 0xA2, 1, 0)
        for size in (1, 1024, 333):
            device.write(OUT, bytes(size))
            device.read(IN, size)
        return board.machine.clock.now, board.machine.cpu.instructions, board.machine.cpu.state()

    assert run() == run()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("port", "injected"),
    [
        pytest.param(Speed.SUPER_PLUS, (), marks=pytest.mark.slow),
        pytest.param(Speed.HIGH, (), marks=pytest.mark.slow),
        (Speed.SUPER_PLUS, ("link-drop@250ms+5ms", "nak-storm@220ms+2ms", "pcie-late=0-ffffffff+9ms")),
    ],
)
def test_a_replay_of_everything_at_once_is_identical(
    port: Speed, injected: tuple[str, ...], tmp_path: Path
) -> None:
    """Bulk, slot DMA both ways, a reset, a stall, a restart of the CPU, faults; under strict and guards."""
    options = Options(
        port=port, strict=True, guards=frozenset(GUARDS), faults=tuple(map(faults.parse, injected))
    )
    board = Board.of("vendor", options)
    recording = tmp_path / "run.jsonl"
    with recording.open("w") as stream:
        recorder = board.record(stream)
        device = connect(board)
        device.ctrl_transfer(0x40, 0xA2, 1, 0)
        for size in (1, 512, 333):
            device.write(OUT, bytes(size))
            device.read(IN, size)
        device.ctrl_transfer(0x40, 0xA2, 0, 0)
        device.ctrl_transfer(0x40, 0xF2, 8, 1 << 8)
        device.write(OUT, bytes(range(256)) * 16)
        device.ctrl_transfer(0x40, 0xF2, 0x8008, 1 << 8)
        board.usb.pump.post(lambda: board.chip.upstream.write(0x82200C, bytes(4)))
        assert bytes(device.read(IN, 4096)) == bytes(range(256)) * 16
        with pytest.raises(usb.core.USBError):
            device.ctrl_transfer(0x40, 0xA1, 0, 0)
        device.reset()
        with contextlib.suppress(usb.core.USBError):  # it is gone before the status stage
            device.ctrl_transfer(0x40, 0xE5, 0xCC31, 1)
        board.usb.clock.sleep(0.3)
        connect(board).ctrl_transfer(0xC0, 0xE4, 0x9100, 0, 1)
        recorder.finish()
    kinds = {line[2] for line in recording.read_text().splitlines()[1:]}
    assert kinds >= set("WCLXE")
    again = Board.of("vendor", Options(port=None)).replay(recording)
    assert (again.clock, again.instructions) == (board.machine.clock.now, board.machine.cpu.instructions)


def test_flash_survives_between_boards_and_power_cuts(tmp_path: Path) -> None:
    kept = tmp_path / "flash.bin"
    board = Board.of("vendor", Options(flash=kept))
    board.close()
    again = Board(None, Options(flash=kept))
    assert again.boot.body == board.boot.body
    assert connect(again).idVendor == 0xADD1


def test_several_threads_have_transfers_in_flight_on_the_chip() -> None:
    board = Board.of("vendor", Options(strict=True))
    device = connect(board)
    device.ctrl_transfer(0x40, 0xA2, 1, 0)  # bulk OUT comes back as bulk IN
    packets = [bytes([number]) * size for number, size in enumerate((1, 1024, 333, 512, 1000) * 4)]
    back: list[bytes] = []
    speeds: list[bytes] = []
    failures: list[BaseException] = []

    def read() -> None:
        back.extend(bytes(device.read(IN, 1024, 10_000)) for _ in packets)

    def write() -> None:
        for packet in packets:
            device.write(OUT, packet, 10_000)

    def ask() -> None:
        speeds.extend(bytes(device.ctrl_transfer(0xC0, 0xE4, 0x9100, 0, 1, 10_000)) for _ in range(20))

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (read, write, ask, ask)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert back == packets
    assert speeds == [b"\x03"] * 40


def test_power_off_ends_what_other_threads_wait_for() -> None:
    board = Board.of("vendor")
    device = connect(board)
    device.ctrl_transfer(0x40, 0xA2, 1, 0)
    ended: list[int | None] = []

    def read() -> None:
        try:
            device.read(IN, 1024, 0)
        except usb.core.USBError as problem:
            ended.append(problem.errno)

    thread = threading.Thread(target=read)
    thread.start()
    board.close()
    thread.join(60)
    assert ended == [19]


def leftovers(count: int) -> tuple[int, int, int]:
    """What `count` boards that have run leave behind: KiB of memory, descriptors, threads."""

    def held() -> tuple[int, int, int]:
        gc.collect()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4
        return resident, len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    def run(boards: int) -> None:
        for number in range(boards):
            connect(Board.of("vendor")).ctrl_transfer(0xC0, 0xE4, 0x9100, 0, 1)
            if number % 10 == 9:
                gc.collect()  # a board is a cycle of objects

    run(20)
    before = held()
    run(count)
    memory, descriptors, threads = (after - was for after, was in zip(held(), before, strict=True))
    return memory, descriptors, threads


@pytest.mark.slow
def test_a_board_without_references_is_garbage() -> None:
    board = Board.of("vendor")
    connect(board)
    gone = weakref.ref(board)
    del board
    gc.collect()
    assert gone() is None


def test_boards_that_wait_to_be_collected_take_little_memory() -> None:
    """A board is part of cycles: until Python's collector comes by, dozens of closed ones may be there."""
    Board.of("firmware")  # what all boards share is loaded
    before = resident()
    boards = [Board.of("firmware") for _ in range(8)]
    assert (resident() - before) / len(boards) < 8 * MIB, "the test endpoint alone has 16 MiB of RAM"


@pytest.mark.slow
def test_two_hundred_boards_leave_nothing_behind() -> None:
    memory, descriptors, threads = leftovers(amount(60, 200))
    assert (descriptors, threads) == (0, 0)
    assert memory < 40_000, "a board has 4 MB"


@pytest.mark.parametrize(
    ("spec", "product"), [("emulated", "custom towline"), ("emulated:storage", "towline test storage")]
)
def test_the_device_emulated_is_an_entry_point(spec: str, product: str) -> None:
    (entry,) = entry_points(group="towline.devices", name="emulated")
    device = usb.core.find(backend=entry.load()(spec))
    assert device.product == product


@pytest.mark.parametrize("fallback", [True, False])
def test_without_a_valid_image_the_boot_loader_runs_if_it_falls_back(fallback: bool) -> None:
    board = Board(None, Options(fallback=fallback))
    assert (usb.core.find(backend=board.backend()) is not None) is fallback
