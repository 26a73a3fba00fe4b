"""The slot DMA and what a bus master reaches, without a CPU: registers through the bus, packets by hand."""

from __future__ import annotations

import logging
import time

import pytest

from emulator.asm2464pd.dma import SlotDma
from emulator.asm2464pd.undefined import Undefined
from emulator.asm2464pd.upstream import UpstreamMemory
from emulator.asm2464pd.usb_bulk import IN, OUT
from emulator.core.bus import Bus, Unmodelled
from emulator.core.clock import Scheduler
from emulator.pcie.function import UnsupportedRequest
from emulator.usb.wire import Handshake
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import ASM2464PD

SRAM = 0x0020_0000
TRIGGER = 0x0082_200C
SLOT = 0x4000


class Chip:
    """The blocks under test, and the writes that the open firmware arms a transfer with."""

    def __init__(self, *, strict: bool = False, packet: int = 1024) -> None:
        self.bus = Bus(ASM2464PD, Scheduler(), strict=strict)
        self.upstream = UpstreamMemory(self.bus)
        self.woken: list[int] = []
        self.dma = SlotDma(self.bus, self.upstream, self.woken.append, lambda: packet)

    def write(self, address: int, value: int) -> None:
        self.bus.cpu_write(Space.XDATA, address, value)

    def arm(self, slot: int, slots: int, sectors: int, *, to_sram: bool) -> None:
        for address, value in (
            (0xC42A, 0x00),
            (0xC422, 0x02),
            (0xC423, 0x00),
            (0xC414, 0x80 | slot),
            (0xC415, slot + slots),
            (0xC426, sectors >> 8),
            (0xC427, sectors & 0xFF),
            (0xC412, 0x03 if to_sram else 0x02),
            (0xC429, slot),
        ):
            self.write(address, value)

    def send(self, data: bytes, packet: int = 1024) -> None:
        for start in range(0, len(data), packet):
            assert self.dma.bulk_out(data[start : start + packet]) is Handshake.ACK

    def take(self) -> bytes:
        data = b""
        while isinstance(packet := self.dma.bulk_in(), bytes):
            data += packet
        return data


def pattern(size: int, seed: int = 1) -> bytes:
    return bytes((place * 7 + (place >> 8) * 13 + seed) & 0xFF for place in range(size))


def test_out_lands_in_its_slots_and_then_disarms() -> None:
    chip = Chip()
    data = pattern(2 * SLOT)
    assert chip.dma.bulk_out(data[:1024]) is None, "not armed: left to the CPU path"
    chip.arm(slot=3, slots=2, sectors=64, to_sram=True)
    assert chip.woken == [OUT]
    assert chip.dma.busy(OUT)
    assert not chip.dma.busy(IN)
    chip.send(data)
    assert chip.upstream.read(SRAM + 3 * SLOT, len(data)) == data
    assert chip.upstream.read(SRAM, 16) == bytes(16)
    assert chip.dma.remaining == 0
    assert not chip.dma.busy(OUT)
    assert chip.dma.bulk_out(bytes(1024)) is None


def test_slot_0_is_the_window_at_f000() -> None:
    chip = Chip()
    chip.arm(slot=0, slots=1, sectors=2, to_sram=True)
    chip.send(pattern(1024))
    assert chip.bus.load(Space.XDATA, 0xF000, 1024) == pattern(1024)
    chip.upstream.write(SRAM + 4, b"abcd")
    assert chip.bus.load(Space.XDATA, 0xF004, 4) == b"abcd"


def test_in_waits_for_the_completion_entry() -> None:
    chip = Chip()
    data = pattern(0x80000)
    for start in range(0, len(data), 0x1000):
        chip.upstream.write(SRAM + start, data[start : start + 0x1000])
    chip.arm(slot=0, slots=32, sectors=1024, to_sram=False)
    assert chip.dma.bulk_in() is Handshake.NAK
    chip.upstream.write(0x0082_2000, bytes(12))  # dwords 0 to 2 only
    assert chip.dma.bulk_in() is Handshake.NAK
    assert chip.woken == []
    chip.upstream.write(TRIGGER, bytes(4))
    assert chip.woken == [IN]
    assert chip.take() == data
    assert chip.dma.bulk_in() is None


@pytest.mark.parametrize(
    ("address", "size", "starts"),
    [
        (TRIGGER, 4, True),
        (TRIGGER + 3, 1, True),
        (0x0082_2000, 16, True),
        (0x0082_2008, 5, True),
        (0x0082_2000, 12, False),
        (0x0082_2010, 16, False),
        (0x0082_0000, 16, False),
    ],
)
def test_what_counts_as_a_completion_entry(address: int, size: int, starts: bool) -> None:
    chip = Chip()
    chip.arm(slot=1, slots=1, sectors=1, to_sram=False)
    chip.upstream.write(address, bytes(size))
    assert isinstance(chip.dma.bulk_in(), bytes) is starts


def test_a_completion_entry_before_the_arming_is_lost() -> None:
    chip = Chip()
    chip.upstream.write(TRIGGER, bytes(4))
    chip.arm(slot=0, slots=1, sectors=1, to_sram=False)
    assert chip.dma.bulk_in() is Handshake.NAK


def test_arming_again_needs_no_control_write() -> None:
    chip = Chip()
    chip.arm(slot=0, slots=1, sectors=1, to_sram=True)
    chip.send(b"a" * 512)
    for address, value in ((0xC426, 0), (0xC427, 1), (0xC414, 0x85), (0xC415, 6), (0xC429, 5)):
        chip.write(address, value)
    chip.send(b"b" * 512)
    assert chip.upstream.read(SRAM + 5 * SLOT, 512) == b"b" * 512
    assert chip.upstream.read(SRAM, 512) == b"a" * 512


def test_nothing_is_armed_without_start() -> None:
    chip = Chip()
    chip.write(0xC427, 1)
    chip.write(0xC429, 0)
    assert chip.dma.bulk_out(bytes(512)) is None
    assert chip.dma.bulk_in() is None


def test_reset_drops_the_transfer() -> None:
    chip = Chip()
    chip.arm(slot=0, slots=1, sectors=2, to_sram=False)
    chip.upstream.write(TRIGGER, bytes(4))
    chip.dma.reset()
    assert chip.dma.bulk_in() is None
    chip.arm(slot=0, slots=1, sectors=2, to_sram=False)
    assert chip.dma.bulk_in() is Handshake.NAK


def test_high_speed_packets() -> None:
    chip = Chip(packet=512)
    chip.arm(slot=0, slots=1, sectors=3, to_sram=True)
    chip.send(pattern(1536), packet=512)
    chip.arm(slot=0, slots=1, sectors=3, to_sram=False)
    chip.upstream.write(TRIGGER, bytes(4))
    first = chip.dma.bulk_in()
    assert isinstance(first, bytes)
    assert len(first) == 512
    assert first + chip.take() == pattern(1536)


def test_an_odd_number_of_sectors_ends_with_a_half_packet_and_no_warning() -> None:
    chip = Chip(strict=True)
    chip.arm(slot=0, slots=1, sectors=3, to_sram=True)
    chip.send(pattern(1536))
    assert chip.dma.remaining == 0


def write_while_armed(chip: Chip) -> None:
    chip.arm(slot=0, slots=1, sectors=4, to_sram=False)
    chip.write(0xC427, 1)


def write_while_armed_without_a_queue(chip: Chip) -> None:
    chip.dma.queues = False
    chip.arm(slot=0, slots=1, sectors=4, to_sram=True)
    chip.write(0xC427, 1)


def three_transfers_at_once(chip: Chip) -> None:
    for slot in range(3):
        chip.arm(slot=slot, slots=1, sectors=4, to_sram=True)


def both_directions_at_once(chip: Chip) -> None:
    chip.arm(slot=0, slots=1, sectors=4, to_sram=True)
    chip.arm(slot=1, slots=1, sectors=4, to_sram=False)


def too_many_sectors(chip: Chip) -> None:
    chip.arm(slot=0, slots=1, sectors=33, to_sram=True)


def slots_backwards(chip: Chip) -> None:
    chip.arm(slot=4, slots=-1, sectors=1, to_sram=True)


def slots_beyond_the_sram(chip: Chip) -> None:
    chip.arm(slot=30, slots=4, sectors=128, to_sram=True)


def no_valid_bit(chip: Chip) -> None:
    chip.arm(slot=0, slots=1, sectors=1, to_sram=True)
    chip.dma.reset()
    chip.write(0xC414, 0x00)
    chip.write(0xC429, 0)


def another_sector_size(chip: Chip) -> None:
    chip.arm(slot=0, slots=1, sectors=1, to_sram=True)
    chip.dma.reset()
    chip.write(0xC422, 0x10)
    chip.write(0xC429, 0)


def short_packet(chip: Chip) -> None:
    chip.arm(slot=0, slots=1, sectors=4, to_sram=True)
    chip.dma.bulk_out(bytes(100))


def long_packet(chip: Chip) -> None:
    chip.arm(slot=0, slots=1, sectors=1, to_sram=True)
    chip.dma.bulk_out(bytes(1024))


def submission_queue_while_streaming_out(chip: Chip) -> None:
    chip.arm(slot=0, slots=1, sectors=4, to_sram=True)
    chip.upstream.write(0x0082_0FFF, b"x")


def beside_the_fence_while_streaming(chip: Chip) -> None:
    chip.arm(slot=0, slots=16, sectors=512, to_sram=True)
    chip.upstream.write(0x0082_080C, bytes(8))


def fence_while_the_whole_sram_is_filled(chip: Chip) -> None:
    chip.arm(slot=0, slots=32, sectors=1024, to_sram=True)
    chip.upstream.write(0x0082_0800, bytes(8))


def submission_queue_while_streaming_in(chip: Chip) -> None:
    chip.arm(slot=0, slots=1, sectors=4, to_sram=False)
    chip.upstream.write(TRIGGER, bytes(4))
    chip.upstream.write(0x0082_0000, b"x")


UNDEFINED = [
    (write_while_armed, "DMA_SECTORS was written while slot DMA was armed"),
    (write_while_armed_without_a_queue, "DMA_SECTORS was written while slot DMA was armed"),
    (three_transfers_at_once, "armed while it had a transfer to the SRAM"),
    (both_directions_at_once, "armed while it had a transfer to the SRAM"),
    (beside_the_fence_while_streaming, "submission queue"),
    (fence_while_the_whole_sram_is_filled, "submission queue"),
    (too_many_sectors, "armed for more than its slots hold"),
    (slots_backwards, "armed for more than its slots hold"),
    (slots_beyond_the_sram, "slots that do not exist"),
    (no_valid_bit, "without DMA_SLOT_FIRST.VALID"),
    (another_sector_size, "another sector size"),
    (short_packet, "short packet"),
    (long_packet, "longer than what slot DMA was armed for"),
    (submission_queue_while_streaming_out, "submission queue"),
    (submission_queue_while_streaming_in, "submission queue"),
]


@pytest.mark.parametrize(("act", "cause"), UNDEFINED)
def test_undefined_uses_are_logged_once(act, cause, caplog: pytest.LogCaptureFixture) -> None:
    chip = Chip()
    with caplog.at_level(logging.WARNING):
        act(chip)
        chip.dma.reset()
        act(chip)
    assert [record for record in caplog.messages if cause in record] == caplog.messages
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(("act", "cause"), UNDEFINED)
def test_undefined_uses_are_errors_under_strict(act, cause) -> None:
    with pytest.raises(Undefined, match=cause) as caught:
        act(Chip(strict=True))
    assert caught.value.hint
    assert caught.value.where
    assert caught.value.where.startswith("PC ")


def test_the_submission_queue_is_free_while_a_transfer_waits_for_its_completion_entry() -> None:
    chip = Chip(strict=True)
    chip.arm(slot=0, slots=1, sectors=4, to_sram=False)
    chip.upstream.write(0x0082_0000, b"x")
    assert chip.dma.bulk_in() is Handshake.NAK


def test_a_transfer_that_is_armed_while_another_runs_waits_for_it() -> None:
    chip = Chip(strict=True)
    chip.arm(slot=0, slots=1, sectors=3, to_sram=True)
    chip.send(b"a" * 1024)
    chip.arm(slot=5, slots=1, sectors=2, to_sram=True)
    assert chip.dma.remaining == 512
    chip.send(b"b" * 512)
    assert chip.dma.remaining == 1024
    chip.send(b"c" * 1024)
    assert chip.dma.remaining == 0
    assert chip.upstream.read(SRAM, 1536) == b"a" * 1024 + b"b" * 512
    assert chip.upstream.read(SRAM + 5 * SLOT, 1024) == b"c" * 1024


def test_a_reset_drops_what_waits_too() -> None:
    chip = Chip(strict=True)
    chip.arm(slot=0, slots=1, sectors=2, to_sram=True)
    chip.arm(slot=1, slots=1, sectors=2, to_sram=True)
    chip.dma.reset()
    assert chip.dma.bulk_out(bytes(1024)) is None
    chip.arm(slot=0, slots=1, sectors=2, to_sram=True)
    chip.send(bytes(1024))
    assert chip.dma.bulk_out(bytes(1024)) is None


def test_without_a_queue_the_rest_of_the_first_transfer_is_lost() -> None:
    chip = Chip()
    chip.dma.queues = False
    chip.arm(slot=0, slots=1, sectors=4, to_sram=True)
    chip.send(b"a" * 1024)
    chip.arm(slot=5, slots=1, sectors=2, to_sram=True)
    chip.send(b"b" * 1024)
    assert chip.dma.remaining == 0
    assert chip.upstream.read(SRAM + 5 * SLOT, 1024) == b"b" * 1024


@pytest.mark.parametrize("size", [4, 8, 16])
def test_a_devices_fence_may_be_in_the_submission_queue_while_the_engine_streams(size: int) -> None:
    chip = Chip(strict=True)
    chip.arm(slot=0, slots=16, sectors=512, to_sram=True)
    chip.upstream.write(0x0082_0800, b"x" * size)
    assert chip.bus.load(Space.XDATA, 0xA800, size) == b"x" * size


def test_a_transfer_past_the_last_slot_goes_on_in_the_first() -> None:
    chip = Chip()
    chip.arm(slot=31, slots=1, sectors=34, to_sram=True)
    chip.send(pattern(SLOT + 1024))
    assert chip.upstream.read(SRAM + 31 * SLOT, SLOT) == pattern(SLOT + 1024)[:SLOT]
    assert chip.upstream.read(SRAM, 1024) == pattern(SLOT + 1024)[SLOT:]
    chip.arm(slot=31, slots=1, sectors=34, to_sram=False)
    chip.upstream.write(TRIGGER, bytes(4))
    assert chip.take() == pattern(SLOT + 1024)


def test_the_second_engine_is_storage_and_a_guess() -> None:
    chip = Chip()
    chip.write(0xC406, 1)
    assert chip.bus.cpu_read(Space.XDATA, 0xC406) == 1
    with pytest.raises(Unmodelled, match="DMA_COPY_TRIGGER is only a guess"):
        Chip(strict=True).write(0xC406, 1)


# -- what a bus master reaches --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "xdata"),
    [(0x0020_0FFC, 0xFFFC), (0x0080_0000, 0xB000), (0x0082_0FFC, 0xAFFC), (0x0082_27FC, 0xBFFC)],
)
def test_windows(address: int, xdata: int) -> None:
    chip = Chip()
    chip.upstream.write(address, b"\x12\x34\x56\x78")
    assert chip.bus.load(Space.XDATA, xdata, 4) == b"\x12\x34\x56\x78"
    chip.bus.store(Space.XDATA, xdata, b"\x9a")
    assert chip.upstream.read(address, 4) == b"\x9a\x34\x56\x78"


@pytest.mark.parametrize(
    ("address", "size"),
    [
        (0x0000_0000, 4),
        (0x001F_FFFF, 2),
        (0x0027_FFFE, 4),
        (0x0028_0000, 1),
        (0x0080_01FE, 4),
        (0x0082_1000, 4),
        (0x0082_2800, 4),  # hosts take the window for 4 KiB; 2 KiB are there
        (0x0082_27FE, 4),
    ],
)
def test_unsupported_requests(address: int, size: int) -> None:
    chip = Chip()
    with pytest.raises(UnsupportedRequest):
        chip.upstream.read(address, size)
    with pytest.raises(UnsupportedRequest):
        chip.upstream.write(address, bytes(size))


def stream(megabytes: int) -> float:
    """CPU seconds for that much, half out and half in, 512 KiB at a time."""
    chip = Chip()
    data = pattern(1024)
    packet: object = None
    begin = time.process_time()
    for _ in range(megabytes):
        chip.arm(slot=0, slots=32, sectors=1024, to_sram=True)
        for _ in range(512):
            chip.dma.bulk_out(data)
        chip.arm(slot=0, slots=32, sectors=1024, to_sram=False)
        chip.upstream.write(TRIGGER, bytes(4))
        for _ in range(512):
            packet = chip.dma.bulk_in()
        assert packet == data
        assert chip.dma.remaining == 0
    return time.process_time() - begin


def test_64_mib_in_less_than_3_seconds() -> None:
    assert stream(64) < 3.0  # of CPU time; some 0.05 s
