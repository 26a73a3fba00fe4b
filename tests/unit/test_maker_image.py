"""The image in the maker's style: it boots as the maker's firmware does, and is a mass-storage device, under
--strict and guards, at both speeds."""

from __future__ import annotations

import contextlib
import struct

import pytest

from emulator.board import Board
from emulator.core.clock import seconds
from emulator.mcs51.core import GUARDS
from emulator.model import Model
from emulator.options import Options
from emulator.usb.wire import Outcome, Setup, Speed, Stall
from firmware.asm2464pd import flash_layout
from firmware.asm2464pd.describe import ByteRegister, Space
from firmware.asm2464pd.disputes import DISPUTES
from firmware.asm2464pd.registers import ASM2464PD
from tests.bulk_only import (
    EP_IN,
    EP_OUT,
    bulk,
    clear_halt,
    command,
    recover,
    status,
    transfer,
    wrapper,
    xdata,
)

TEST_UNIT_READY, REQUEST_SENSE = bytes(6), bytes((0x03, 0, 0, 0, 18, 0))
INQUIRY = bytes((0x12, 0, 0, 0, 36, 0))
READ_CAPACITY = bytes((0x25, *bytes(9)))
NOT_READY, ILLEGAL_REQUEST = 2, 5
NO_SUCH_COMMAND, WRONG_FIELD, NO_MEDIUM = 0x20, 0x24, 0x3A
XRAM_FREE = 0x5800
"""XRAM that the image does not use."""


def board(speed: Speed = Speed.SUPER_PLUS) -> Board:
    """Powered, and not run yet."""
    return Board.of("maker", Options(port=speed, strict=True, guards=frozenset(GUARDS)))


def ready(speed: Speed = Speed.SUPER_PLUS) -> Board:
    device = board(speed)
    device.usb.wait_attached(1.0)
    device.usb.enumerate()
    return device


@pytest.fixture(scope="module", params=[Speed.SUPER_PLUS, Speed.HIGH], ids=["super", "high"])
def maker(request: pytest.FixtureRequest) -> Board:
    return ready(request.param)


def sense(device: Board) -> tuple[int, int]:
    data, passed, _ = command(device, REQUEST_SENSE, expect=18)
    assert (len(data), data[0], passed) == (18, 0x70, 0)
    return data[2], data[12]


def peek(device: Board, address: int, count: int = 1) -> bytes:
    """Storage, without the firmware."""
    return device.machine.bus.load(Space.XDATA, address, count)


class Accesses:
    """What the CPU reads and writes at some addresses, and in which order."""

    def __init__(self, device: Board, *addresses: int) -> None:
        self.seen: list[tuple[str, int, int]] = []
        self._addresses = frozenset(addresses)
        for address in addresses:
            device.machine.bus.watch(Space.XDATA, address)
        device.machine.bus.observers.append(self)

    def accessed(self, kind: str, space: Space, address: int, value: int) -> None:
        if space is Space.XDATA and address in self._addresses:
            self.seen.append((kind, address, value))

    def changed(self, space: Space, address: int, data: bytes) -> None:
        pass

    def line(self, number: int, level: bool) -> None:
        pass

    def written(self, address: int) -> list[int]:
        return [value for kind, at, value in self.seen if kind == "W" and at == address]

    @property
    def order(self) -> list[int]:
        """The addresses, in the order of their first access."""
        return list(dict.fromkeys(address for _, address, _ in self.seen))


# -- how it boots ---------------------------------------------------------------------------------------

FILLS = [
    (address, length - 1, register, bank)
    for address, length, register in (
        (0xA000, 0x1000, 0xC8D8),
        (0xB000, 0x200, 0xC8D8),
        (0xB800, 0x400, 0xC8D6),
        (0xBC00, 0x80, 0xC8D6),
    )
    for bank in (0x02, 0)
]
"""The fills of the queues: destination, last byte, the bank's register and its bit."""


def fills(accesses: Accesses) -> list[tuple[int, int, int, int]]:
    """The fills among accesses, in order."""
    found = []
    held: dict[int, int] = {}
    for kind, address, value in accesses.seen:
        if kind != "W":
            continue
        held[address] = value
        if address == 0xC8B8 and value & 1:
            bank = 0xC8D8 if held[0xC8B2] < 0xB8 else 0xC8D6
            assert held[0xC8B6] & 0x87 == 0x84, "channel: bits 7 and 2 set, 1 and 0 clear"
            place, last = (held[at] << 8 | held[at + 1] for at in (0xC8B2, 0xC8B4))
            found.append((place, last, bank, held[bank] & 0x02))
    return found


def test_it_boots_in_the_makers_order() -> None:
    device = board()
    order = (0xC6B3, 0xC8B8, 0xC8A9, 0x9303, 0x91C0, 0x92FB, 0x900B, 0xC42C, 0x9091)
    accesses = Accesses(
        device, *order, *range(0xC8B2, 0xC8B7), 0xC8D6, 0xC8D8, *range(0x9300, 0x9306),
        0xC42A, 0xCA81, 0xCC10, 0xCC12, 0xCC13,
    )  # fmt: skip
    device.usb.wait_attached(1.0)
    device.usb.enumerate()
    assert [address for address in accesses.order if address in order] == list(order)
    assert fills(accesses)[: len(FILLS)] == FILLS, "at boot"
    events, masks = ([accesses.written(first + index)[0] for index in range(3)] for first in (0x9300, 0x9303))
    assert (events, masks) == ([0x0C, 0xC0, 0xBF], [0x33, 0x3F, 0x40])
    assert accesses.written(0x91C0)[:2] == [0x01, 0x00], "the start pulse"
    assert accesses.written(0xCC10) == [2, 3, 4, 5, 4], "modes of timer 0"
    assert (accesses.written(0xCC12)[-1], accesses.written(0xCC13)[-1]) == (0x01, 0x8F), "200 ms for the PHY"
    assert accesses.written(0x900B)[:6] == [2, 6, 7, 5, 1, 0], "one bit at a time, on and off"
    assert accesses.written(0xC42A)[:10] == [1, 3, 7, 0xF, 0x1F, 0x1E, 0x1C, 0x18, 0x10, 0]
    assert 0xCA81 not in accesses.order, "the flash is read without the gate"
    assert len(accesses.written(0xC42C)) == 1, "armed at training, not at SET_CONFIGURATION"


def test_the_queues_are_filled_again_at_every_bus_reset() -> None:
    device = ready()
    accesses = Accesses(device, *range(0xC8B2, 0xC8B9), 0xC8D6, 0xC8D8)
    device.machine.bus.store(Space.XDATA, 0xA123, b"\x55")
    device.usb.reset()
    device.usb.clock.sleep(1e-3)
    assert fills(accesses) == FILLS
    assert peek(device, 0xA123) == b"\0"


@pytest.mark.slow
@pytest.mark.parametrize(("address", "value"), [(0xC6B3, 0x10), (0xC6B3, 0x20), (0x92FB, 0x01)])
def test_it_waits_for_phy_and_link_without_a_time_out(
    address: int, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = board()
    bus = device.machine.bus
    bus.store(Space.XDATA, address, b"\0")
    unchanged(monkeypatch, device, address)
    device.usb.clock.sleep(0.3)
    if device.usb.speed is not None:  # the link trains by itself, and firmware waits for its state
        with pytest.raises(TimeoutError):
            device.usb.control(Setup(0x80, 6, 0x0100, 0, 18), timeout=0.01)
    bus.store(Space.XDATA, address, bytes((value,)))
    assert device.usb.wait_attached(1.0)
    assert len(device.usb.control(Setup(0x80, 6, 0x0100, 0, 18), timeout=0.1)) == 18


def unchanged(monkeypatch: pytest.MonkeyPatch, device: Board, address: int) -> None:
    """The hardware leaves a register alone."""
    bus = device.machine.bus
    set_register = bus.set

    def set_others(register: ByteRegister, value: int) -> None:
        if register.address != address:
            set_register(register, value)

    monkeypatch.setattr(bus, "set", set_others)


def test_completion_of_the_phy_is_only_worth_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    times = []
    for missing in (False, True):
        device = board()
        if missing:
            unchanged(monkeypatch, device, 0xE318)
        assert device.usb.wait_attached(1.0)
        device.usb.enumerate()
        times.append(seconds(device.machine.clock.now))
    assert times[0] < 0.15
    assert 0.2 < times[1] < 0.35, "timer 0 ended the wait"


# -- interrupts -----------------------------------------------------------------------------------------


def raised(device: Board, *events: tuple[int, int]) -> None:
    """Bits of event registers are set at once, as the controller does."""
    device.usb.clock.sleep(1e-3)
    for address, bits in events:
        register = ASM2464PD.at(Space.XDATA, address)
        assert register is not None
        device.chip.interrupts.raise_bits(register, bits)
    device.usb.clock.sleep(1e-3)


def test_events_are_served_in_the_makers_order() -> None:
    order = (0x9096, 0x9301, 0x91D1, 0x9091, 0x9093, 0x90E2, 0x9302)
    bits = (0x01, 0x40, 0x02, 0x02, 0x01, 0x01, 0x08)
    device = ready()
    device.machine.bus.store(Space.XDATA, 0x92C2, b"\x40")  # so that 9301.6 resets nothing
    accesses = Accesses(device, *order)
    raised(device, *reversed(list(zip(order, bits, strict=True))))
    written = [(address, value) for kind, address, value in accesses.seen if kind == "W"]
    first = [address for address, value in dict.fromkeys(written) if value & bits[order.index(address)]]
    assert list(dict.fromkeys(first)) == list(order)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "bits", "resets"),
    [
        (0x91D1, 0x02, False), (0x91D1, 0x04, True), (0x91D1, 0x08, False), (0x91D1, 0x0A, False),
        (0x9301, 0x40, True), (0x9301, 0x80, True), (0x9302, 0x80, False), (0x9302, 0x3F, False),
        (0x9300, 0x08, False), (0x9300, 0x02, False),
    ],
)  # fmt: skip
def test_link_events_are_acknowledged(address: int, bits: int, resets: bool) -> None:
    device = ready()
    accesses = Accesses(device, *range(0xC8B2, 0xC8B9), 0xC8D6, 0xC8D8)
    raised(device, (address, bits))
    assert peek(device, address) == b"\0"
    assert fills(accesses) == FILLS * resets
    assert bool(peek(device, 0x92E0)[0] & 0x02) == (address == 0x9301 and bits == 0x80)
    device.usb.enumerate()
    assert command(device, INQUIRY, expect=36).status == 0


def test_the_reset_by_9301_needs_the_usb_path_on() -> None:
    device = ready()
    device.machine.bus.store(Space.XDATA, 0x92C2, b"\x40")
    raised(device, (0x9301, 0x40))
    assert peek(device, 0x9301) == b"\0"
    assert command(device, INQUIRY, expect=36).status == 0, "still configured"


def test_int1_acknowledges_its_sources() -> None:
    device = ready()
    for address, value in ((0xCC22, 4), (0xCC24, 0), (0xCC25, 2), (0xCC23, 1)):  # timer 3: 1 ms
        assert command(device, xdata(0xE5, value, address)).status == 0
    device.usb.clock.sleep(2e-3)
    assert not peek(device, 0xCC23)[0] & 0x02
    for address in (0xCC81, 0xCC91, 0xCCD9):
        device.machine.bus.store(Space.XDATA, address, b"\2")
        device.chip.interrupts.timers_changed()
        device.usb.clock.sleep(1e-3)
        assert peek(device, address) == b"\0"
    assert command(device, INQUIRY, expect=36).status == 0


# -- facts that contradict each other -------------------------------------------------------------------

NEEDED = {"msc-arming": "control", "flash-gate": "open"}
"""What the image needs of the facts that contradict others: as the maker's firmware, it can do without the
rest."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "choice", [f"{each.name}={claim.value}" for each in DISPUTES for claim in each.claims]
)
def test_which_of_contradicting_facts_it_needs(choice: str) -> None:
    name, _, value = choice.partition("=")
    works = NEEDED.get(name, value) == value
    device = Board.of("maker", Options(strict=works, model=Model.of([choice])))
    device.usb.wait_attached(1.0)
    found = device.usb.enumerate()
    assert found.device[:2] == b"\x12\x01"
    try:
        flash = command(device, part(0xE2, 0x50, 64), expect=64)
    except TimeoutError:
        assert not works
    else:
        assert works == (flash == (device.flash.contents[0x100:0x140], 0, 0))


# -- enumeration ----------------------------------------------------------------------------------------


def test_it_enumerates(maker: Board) -> None:
    found = maker.usb.enumerate()
    high = maker.usb.speed is Speed.HIGH
    assert struct.unpack_from("<H3xBHH", found.device, 2) == (
        0x0210 if high else 0x0320,
        64 if high else 9,
        0x174C,
        0x2464,
    )
    (configuration,) = found.configurations
    interface = configuration[9:18]
    assert tuple(interface[2:8]) == (0, 0, 2, 0x08, 0x06, 0x50), "bulk-only, and nothing else"
    assert maker.usb.control(Setup(0x80, 8, 0, 0, 1)) == b"\1"


def test_the_phy_is_set_to_the_speed(maker: Board) -> None:
    high = maker.usb.speed is Speed.HIGH
    assert peek(maker, 0xE710)[0] & 0x1F == (0x1F if high else 0x04)
    assert peek(maker, 0xCC30)[0] & 0x01 == (not high)
    assert not peek(maker, 0xCC3B)[0] & 0x02
    assert not peek(maker, 0x92C2)[0] & 0x40, "the USB path has power since the link trained"
    assert peek(maker, 0x92E1)[0] & 0x40


def test_usb_attached_scsi_is_refused(maker: Board) -> None:
    with pytest.raises(Stall):
        maker.usb.control(Setup(0x01, 11, 1, 0, 0))
    assert maker.usb.control(Setup(0x81, 10, 0, 0, 1)) == b"\0"
    assert command(maker, INQUIRY, expect=36).status == 0


def test_the_status_stage_is_noted_in_9002(maker: Board) -> None:
    maker.usb.control(Setup(0x80, 8, 0, 0, 1))
    maker.usb.clock.sleep(1e-4)
    assert peek(maker, 0x9002) == b"\x22"
    maker.usb.control(Setup(0x00, 9, 1, 0, 0))
    assert peek(maker, 0x9002) == b"\x20"


def test_a_request_that_is_given_up_leaves_nothing(maker: Board) -> None:
    for patience in range(1, 40):
        with contextlib.suppress(TimeoutError):
            maker.usb.control(Setup(0x80, 6, 0x0200, 0, 255), timeout=patience * 1e-5)
        maker.usb.control(Setup(0x00, 9, 1, 0, 0), timeout=0.1)
        assert maker.usb.control(Setup(0x80, 8, 0, 0, 1), timeout=0.1) == b"\1"


def test_set_sel_is_answered(maker: Board) -> None:
    latencies = struct.pack("<BBHH", 1, 1, 50, 50)
    if maker.usb.speed is Speed.HIGH:
        with pytest.raises(Stall):
            maker.usb.control(Setup(0x00, 0x30, 0, 0, 6), latencies)
    else:
        maker.usb.control(Setup(0x00, 0x30, 0, 0, 6), latencies)
    with pytest.raises(Stall):
        maker.usb.control(Setup(0x00, 0x30, 0, 0, 4), bytes(4))
    assert maker.usb.control(Setup(0x80, 8, 0, 0, 1)) == b"\1"


# -- commands -------------------------------------------------------------------------------------------


def test_there_is_no_disk(maker: Board) -> None:
    inquiry, passed, residue = command(maker, INQUIRY, expect=36)
    assert (passed, residue, inquiry[:2], inquiry[8:30]) == (0, 0, b"\x00\x80", b"towline maker's style ")
    assert command(maker, TEST_UNIT_READY) == (b"", 1, 0)
    assert sense(maker) == (NOT_READY, NO_MEDIUM)
    assert sense(maker) == (0, 0), "reported once"
    assert command(maker, bytes((0xC7, *bytes(5)))) == (b"", 1, 0)
    assert sense(maker) == (ILLEGAL_REQUEST, NO_SUCH_COMMAND)


def test_a_refused_read_is_a_stall_and_then_a_status(maker: Board) -> None:
    """BOT 6.7.2: the host clears the halt, and only then gets the status."""
    bulk(maker, EP_OUT, wrapper(READ_CAPACITY, 8, to_host=True))
    assert transfer(maker, EP_IN, 8).outcome is Outcome.STALL
    assert maker.usb.control(Setup(0x82, 0, 0, EP_IN, 2)) == b"\1\0"
    assert peek(maker, 0x9006)[0] & 0x01
    clear_halt(maker, EP_IN)
    assert maker.usb.control(Setup(0x82, 0, 0, EP_IN, 2)) == b"\0\0"
    assert status(maker) == (1, 8)
    assert sense(maker) == (NOT_READY, NO_MEDIUM)


def test_the_status_is_sent_after_the_halt_is_cleared() -> None:
    device = ready()
    bulk(device, EP_OUT, wrapper(READ_CAPACITY, 8, to_host=True))
    accesses = Accesses(device, 0x90A1)
    assert transfer(device, EP_IN, 8).outcome is Outcome.STALL
    device.usb.clock.sleep(1e-3)
    assert not accesses.seen
    clear_halt(device, EP_IN)
    assert status(device) == (1, 8)
    assert accesses.written(0x90A1) == [1]


def test_an_endpoint_may_be_cleared_in_the_data_stage(maker: Board) -> None:
    """It was not halted: the packet that is armed goes all the same."""
    bulk(maker, EP_OUT, wrapper(part(0xE2, 0x50, 600), 600, to_host=True))
    maker.usb.clock.sleep(2e-3)
    clear_halt(maker, EP_IN)
    assert bulk(maker, EP_IN, 600) == maker.flash.contents[0x100:0x358]
    assert status(maker) == (0, 0)
    bulk(maker, EP_OUT, wrapper(part(0xE3, 0xD0, 64), 64))
    maker.usb.clock.sleep(1e-3)
    clear_halt(maker, EP_OUT)
    bulk(maker, EP_OUT, bytes(range(64)))
    assert status(maker) == (0, 0)
    assert maker.flash.contents[0x10000:0x10040] == bytes(range(64))


def test_a_wrapper_whose_count_is_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    device = ready()
    unchanged(monkeypatch, device, 0x9119)
    bulk(device, EP_OUT, wrapper(INQUIRY, 36, to_host=True))
    assert transfer(device, EP_IN, 36).outcome is Outcome.STALL
    device.machine.bus.store(Space.XDATA, 0x9119, b"\x00\x1f")
    recover(device)
    assert command(device, INQUIRY, expect=36).status == 0


def test_e4_and_e5(maker: Board) -> None:
    for index, value in enumerate(b"wharf"):
        assert command(maker, xdata(0xE5, value, XRAM_FREE + index)) == (b"", 0, 0)
    assert command(maker, xdata(0xE4, 5, XRAM_FREE), expect=5) == (b"wharf", 0, 0)
    assert command(maker, xdata(0xE4, 5, XRAM_FREE), expect=64) == (b"wharf", 0, 59)
    assert command(maker, xdata(0xE5, 0x5A, 0x7807, bank=1)) == (b"", 0, 0), "PHY plane"
    assert command(maker, xdata(0xE4, 1, 0x7807, bank=1), expect=1).data == b"\x5a"
    assert maker.machine.bus.load(Space.PHY, 0x7807, 1) == b"\x5a"
    speed = 1 if maker.usb.speed is Speed.HIGH else 3
    assert command(maker, xdata(0xE4, 1, 0x9100), expect=1).data[0] & 3 == speed
    assert command(maker, bytes((0xE4, 1, 0x40, 0x91, 0, 0)), expect=1) == (b"", 1, 1)
    assert sense(maker) == (ILLEGAL_REQUEST, WRONG_FIELD)


def part(operation: int, which: int, length: int) -> bytes:
    return struct.pack(">BBI", operation, which, length).ljust(16, b"\0")


def test_e2_reads_the_flash_in_its_two_parts(maker: Board) -> None:
    contents = maker.flash.contents
    for which, start in ((0x50, 0x100), (0xD0, 0x10000)):
        for length in (1, 0x400, 3000):
            answer = command(maker, part(0xE2, which, length), expect=length)
            assert answer == (contents[start : start + length], 0, 0)
    assert command(maker, part(0xE2, 0x50, 0xFF01), expect=512) == (b"", 1, 512), "into the other part"
    assert command(maker, part(0xE2, 0x51, 16), expect=16) == (b"", 1, 16)
    assert command(maker, part(0xE2, 0x50, 0)) == (b"", 0, 0)


def config(index: int, product: int) -> bytes:
    block = bytearray(b"\xff" * 0x80)
    struct.pack_into("<HHH", block, 0x74, 0xADD1, product, 0x0123)
    return flash_layout.seal(index, bytes(block))


def test_e0_and_e1_are_the_configuration_blocks(maker: Board) -> None:
    before = maker.flash.contents
    blocks = config(0, 7), config(1, 8)
    for index, block in enumerate(blocks):
        cdb = bytes((0xE1, 0x50, index)).ljust(16, b"\0")
        assert command(maker, cdb, data=block) == (b"", 0, 0)
        assert command(maker, bytes((0xE0, index)), expect=128) == (block, 0, 0)
    contents = maker.flash.contents
    assert contents[:0x100] == b"".join(blocks)
    assert contents[0x100:] == before[0x100:], "the rest of the sector is kept"


def test_writes_of_less_than_a_block_fail(maker: Board) -> None:
    before = maker.flash.contents
    block = config(0, 7)
    for cdb, data, reason in (
        (bytes((0xE1, 0x50, 2)), block, WRONG_FIELD),
        (bytes((0xE1, 0x51, 0)), block, WRONG_FIELD),
        (bytes((0xE0, 2)), b"", WRONG_FIELD),
    ):
        assert command(maker, cdb, data=data).status == 1
        assert sense(maker) == (ILLEGAL_REQUEST, reason)
    assert command(maker, bytes((0xE1, 0x50, 0)), data=block[:100]).status == 2, "fewer bytes than a block"
    bulk(maker, EP_OUT, wrapper(bytes((0xE1, 0x50, 0)), 128))
    bulk(maker, EP_OUT, block[:100])
    assert status(maker) == (1, 28), "a short packet ends the data stage"
    assert maker.flash.contents == before
    bulk(maker, EP_OUT, wrapper(part(0xE3, 0xD0, 2048), 2048))
    bulk(maker, EP_OUT, bytes(100))
    assert status(maker) == (1, 1948), "what came is written"
    assert maker.flash.contents[0x10000:0x10065] == bytes(100) + b"\xff"


@pytest.mark.slow
@pytest.mark.parametrize("speed", [Speed.SUPER, Speed.HIGH])
def test_e3_writes_the_flash_in_its_two_parts(speed: Speed) -> None:
    device = ready(speed)
    first, second = (bytes((place * step & 0xFF) for place in range(5000)) for step in (7, 11))
    page = device.flash.contents[:0x100]
    assert command(device, part(0xE3, 0x50, len(first)), data=first) == (b"", 0, 0)
    assert command(device, part(0xE3, 0xD0, len(second)), data=second) == (b"", 0, 0)
    contents = device.flash.contents
    assert contents[:0x100] == page, "the configuration blocks are kept"
    assert contents[0x100 : 0x100 + len(first)] == first
    assert contents[0x10000 : 0x10000 + len(second)] == second


def test_e3_erases_nothing_before_there_is_data() -> None:
    device = ready()
    before = device.flash.contents
    assert command(device, part(0xE3, 0x50, 1024), expect=1024).status == 2, "the wrong way round"
    assert command(device, part(0xE3, 0xD0, 1 << 20), data=bytes(512)).status == 1, "more than there is"
    assert device.flash.contents == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", [0x00, 0x01, 0x51])
def test_e8_restarts_with_the_identity_of_the_configuration(kind: int) -> None:
    device = ready()
    block = config(0, kind)
    assert command(device, bytes((0xE1, 0x50, 0)), data=block).status == 0
    attachments = device.usb.attachments
    assert command(device, bytes((0xE8, kind))) == (b"", 0, 0)
    device.usb.clock.sleep(1e-3)
    assert device.usb.speed is None
    assert device.usb.wait_attached(1.0)
    assert device.usb.attachments == attachments + 1
    found = device.usb.enumerate()
    assert struct.unpack_from("<HHH", found.device, 8) == (0xADD1, kind, 0x0123)
    assert command(device, INQUIRY, expect=36).status == 0


def test_e8_of_another_kind_is_refused(maker: Board) -> None:
    assert command(maker, bytes((0xE8, 0x02))) == (b"", 1, 0)
    assert maker.usb.speed is not None


# -- hosts that disagree, and recovery ------------------------------------------------------------------


def test_hosts_that_disagree_with_the_command(maker: Board) -> None:
    """The cases of Bulk-Only Transport, 6.7."""
    four = xdata(0xE4, 4, XRAM_FREE)
    block = bytes((0xE1, 0x50, 0))
    for value in range(4):
        command(maker, xdata(0xE5, value, XRAM_FREE + value))
    assert command(maker, four) == (b"", 2, 0), "case 2"
    assert command(maker, block) == (b"", 2, 0), "case 3"
    assert command(maker, xdata(0xE5, 0, XRAM_FREE), expect=8) == (b"", 0, 8), "case 4"
    assert command(maker, four, expect=1024) == (bytes(range(4)), 0, 1020), "case 5, a short packet"
    assert command(maker, part(0xE2, 0x50, 1024), expect=2048).residue == 1024, "case 5, whole packets"
    assert command(maker, four, expect=2) == (b"\0\1", 2, 0), "case 7"
    assert command(maker, block, expect=128) == (b"", 2, 128), "case 8"
    assert command(maker, xdata(0xE5, 0, XRAM_FREE), data=bytes(3000)) == (b"", 0, 3000), "case 9"
    assert command(maker, four, data=bytes(2048)) == (b"", 2, 2048), "case 10"
    assert command(maker, block, data=config(0, 7) + bytes(1920)) == (b"", 0, 1920), "case 11"
    assert command(maker, block, data=bytes(64)) == (b"", 2, 64), "case 13"
    assert command(maker, INQUIRY, expect=36).status == 0


@pytest.mark.parametrize(
    "wrong",
    [
        bytes(31),
        wrapper(INQUIRY, 36, to_host=True)[:30],
        wrapper(INQUIRY, 36, to_host=True) + b"\0",
        wrapper(b""),
        b"",
    ],
    ids=["no signature", "30 bytes", "32 bytes", "no command", "empty"],
)
def test_a_wrong_wrapper_halts_until_the_class_reset(maker: Board, wrong: bytes) -> None:
    transfer(maker, EP_OUT, wrong)
    for _ in range(2):
        maker.usb.clock.sleep(1e-3)
        for endpoint, what in ((EP_IN, 13), (EP_OUT, wrapper(INQUIRY, 36, to_host=True))):
            assert transfer(maker, endpoint, what).outcome is Outcome.STALL
        clear_halt(maker, EP_IN)
        clear_halt(maker, EP_OUT)
    recover(maker)
    assert command(maker, INQUIRY, expect=36).status == 0


def test_a_halt_of_the_hosts_stops_an_endpoint(maker: Board) -> None:
    for endpoint in (EP_OUT, EP_IN):
        maker.usb.control(Setup(0x02, 3, 0, endpoint, 0))
        assert maker.usb.control(Setup(0x82, 0, 0, endpoint, 2)) == b"\1\0"
        what = wrapper(INQUIRY, 36, to_host=True) if endpoint == EP_OUT else 13
        assert transfer(maker, endpoint, what).outcome is Outcome.STALL
        clear_halt(maker, endpoint)
    assert command(maker, INQUIRY, expect=36).status == 0


@pytest.mark.parametrize("end", ["class reset", "bus reset", "configuration"])
def test_a_command_that_is_given_up(maker: Board, end: str) -> None:
    """In the data stage towards the host, in that from the host, with its status outstanding."""
    for cdb, length, to_host in ((part(0xE2, 0x50, 4096), 4096, True), (part(0xE3, 0xD0, 4096), 4096, False),
                                 (TEST_UNIT_READY, 0, False)):  # fmt: skip
        bulk(maker, EP_OUT, wrapper(cdb, length, to_host=to_host))
        maker.usb.clock.sleep(1e-3)
        match end:
            case "class reset":
                recover(maker)
            case "bus reset":
                maker.usb.enumerate()
            case "configuration":
                maker.usb.control(Setup(0x00, 9, 1, 0, 0))
        assert command(maker, INQUIRY, expect=36, tag=77).status == 0


def test_the_engine_stays_armed_over_a_bus_reset() -> None:
    device = ready()
    accesses = Accesses(device, 0xC42C)
    for _ in range(2):
        device.usb.clock.sleep(1e-3)
        device.usb.enumerate()
        assert command(device, INQUIRY, expect=36).status == 0
    assert not accesses.seen


def test_the_link_comes_back(maker: Board) -> None:
    maker.usb.unplug()
    maker.usb.clock.sleep(0.05)
    maker.usb.plug()
    assert maker.usb.wait_attached(1.0)
    maker.usb.enumerate()
    assert command(maker, INQUIRY, expect=36).status == 0
