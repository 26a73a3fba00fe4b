"""Command lists on the emulated board, under --strict and all guards.

Every operation, every failure, other requests and events during a list, and a stream at the rate of the link.
"""

from __future__ import annotations

import itertools
import struct

import pytest

from emulator.pcie.endpoint import OFFSETS
from emulator.usb.wire import Setup, Speed
from firmware.asm2464pd.registers.memory import SLOT_SIZE
from firmware.protocol import commands
from firmware.protocol.command_list import CommandList
from firmware.protocol.operands import config_address
from firmware.protocol.payload import SYNC_PACKET
from tests.list_host import (
    CAUSE,
    SRAM_PCIE,
    ListHost,
    host_of,
    noise,
    one_write,
    packed,
)
from tests.reference_host import OUT, RAM, REGISTERS
from towline.cli.benchmarks.firmware import StreamDevice, measure, stream

SPEEDS = [Speed.SUPER_PLUS, pytest.param(Speed.HIGH, marks=pytest.mark.slow)]
SCRATCH, DELAY, DELAYED, ABORTED = (REGISTERS + offset for offset in (0x04, 0x38, 0x40, 0x44))
NOWHERE = RAM + 0x4000_0000
RAM_SIZE = 16 << 20
SLOT_0 = 0xF000


@pytest.fixture(scope="module", params=SPEEDS, ids=["superspeed", "highspeed"])
def host(request) -> ListHost:
    return host_of(request.param)


# -- operations -----------------------------------------------------------------------------------------


def test_dwords_bytes_and_configuration(host):
    host.ram[:32] = noise(32)
    built = CommandList()
    built.config_read(config_address(4, 0, 0, 0))
    built.config_read(config_address(0, 0, 0, 8))
    built.write(RAM, 0x11223344)
    built.write(RAM + 4, 0xAABBCCDD, enables=0b0110)
    built.read(RAM)
    built.read(RAM + 4)
    built.write(SCRATCH, 0x5A5A_0000)
    built.modify(SCRATCH, 0x0000_1234, 0x0000_FFFF)
    built.read(SCRATCH)
    built.poll(SCRATCH, 0x34, 0xFF, microseconds=0)
    values = host.check(built)
    kept = noise(8)
    expected = kept[4:5] + b"\xcc\xbb" + kept[7:8]
    assert values[0] == 0x70E1_1234
    assert values[2:] == (0x11223344, int.from_bytes(expected, "little"), 0x5A5A_1234, 0x5A5A_1234)


@pytest.mark.parametrize("dwords", [1, 2, 63, 64, 126, 127, 128, 254, 255, 256, 257, 1020, 1300])
@pytest.mark.parametrize("start", [0, 0xFC])
def test_blocks_of_all_lengths(host, dwords, start):
    """Pages of packet and address end at different dwords; addresses carry into the upper bytes."""
    place = 0xFF_0000 - 0x200 + start
    data = noise(4 * dwords, dwords)
    host.ram[place - 4 : place + 4 * dwords + 4] = bytes(4 * dwords + 8)
    built = CommandList()
    built.block_write(RAM + place, data)
    built.block_read(RAM + place, dwords)
    built.fill(RAM + place, 0x01020304, min(dwords, 70))
    built.block_read(RAM + place - 4, 3)
    first, second = host.check(built)
    assert first == data
    after = b"\x04\x03\x02\x01" * 70 + data[280:]
    assert bytes(host.ram[place : place + 4 * dwords]) == after[: 4 * dwords]
    assert second == bytes(4) + bytes(host.ram[place : place + 8])
    assert host.ram[place + 4 * dwords : place + 4 * dwords + 4] == bytes(4)


def test_fifos(host):
    data = noise(4 * 300)
    built = CommandList()
    built.fifo_write(SCRATCH, data)
    built.read(SCRATCH)
    built.fifo_read(SCRATCH, 300)
    last = data[-4:]
    assert host.check(built) == (int.from_bytes(last, "little"), last * 300)


def test_xdata_delay_and_loops(host):
    host.ram[:4] = bytes(4)
    built = CommandList()
    built.xdata_write(0x8FFF, 0xA5)
    built.xdata_read(0x8FFF, 1)
    built.xdata_read(0x4092, 1, phy=True)
    built.delay(1500)
    with built.loop(5):
        built.read(RAM)
        built.block_write(RAM, b"".join(struct.pack("<I", round) for round in range(1, 6)))
    before = host.now
    values = host.check(built)
    assert host.now - before > 1.5e-3
    assert values[0] == b"\xa5"
    assert values[1] == b"\x43"
    assert values[2:] == (0, 1, 2, 3, 4)


def test_five_hundred_writes_are_one_round_trip(host):
    built = CommandList()
    for index in range(500):
        built.write(RAM + 0x1000 + 4 * index, index * 0x01010101 & 0xFFFFFFFF)
    assert host.check(built) == ()
    written = struct.unpack("<500I", host.ram[0x1000 : 0x1000 + 2000])
    assert written == tuple(index * 0x01010101 & 0xFFFFFFFF for index in range(500))


@pytest.mark.parametrize("dwords", [240, 252, 256, 508, 1016, 1020])
def test_the_firmware_waits_for_a_host_that_reads_late(host, dwords):
    """Also with results that end with a full packet."""
    host.ram[: 4 * dwords] = noise(4 * dwords, dwords)
    built = CommandList()
    built.block_read(RAM, dwords)
    assert not built.waits_for_host
    result = host.run(built, reads_late=True)
    assert result.values == (noise(4 * dwords, dwords),)


# -- failures -------------------------------------------------------------------------------------------


def failing(host: ListHost, cause: str, built: CommandList, opcode: int, index: int, address: int) -> bytes:
    """Run a list that fails with this cause. Returns its partial result; INFO agrees, later lists work.

    For a block read INFO has the first address, and the result shows how far it came.
    """
    sequence = host.sequence
    result = host.run(built)
    failure = result.failure
    assert failure is not None
    assert (failure.cause, failure.opcode, failure.index) == (CAUSE[cause], opcode, index), str(failure)
    assert failure.address == address
    info = host.info()
    assert (info["cause"], info["opcode"], info["index"]) == (failure.cause, opcode, index)
    began = address - (len(result.partial) if opcode == 0x09 else 0)
    assert (info["address"], info["sequence"]) == (began, sequence)
    host.works()
    return (
        b"".join(v if isinstance(v, bytes) else v.to_bytes(4, "little") for v in result.values)
        + result.partial
    )


@pytest.mark.parametrize(
    ("cause", "opcode", "address"),
    [
        ("unsupported request", 0x02, NOWHERE),
        ("unsupported request", 0x03, NOWHERE),
        ("unsupported request", 0x09, NOWHERE),
        ("completer abort", 0x02, ABORTED),
        ("completer abort", 0x04, ABORTED),
        ("completer abort", 0x0A, ABORTED),
        ("unsupported request", 0x06, config_address(9, 0, 0, 0)),
    ],
)
def test_a_request_that_fails_ends_the_list(host, cause, opcode, address):
    host.ram[0] = 0
    built = CommandList()
    built.read(SCRATCH)
    {
        0x02: lambda: built.read(address),
        0x03: lambda: built.modify(address, 1, 1),
        0x04: lambda: built.poll(address, 0, microseconds=100),
        0x06: lambda: built.config_read(address),
        0x09: lambda: built.block_read(address, 9),
        0x0A: lambda: built.fifo_read(address, 9),
    }[opcode]()
    built.write(RAM, 1)
    assert len(failing(host, cause, built, opcode, 1, address)) == 4
    assert host.ram[0] == 0


@pytest.mark.parametrize("dwords", [1, 5, 64, 255, 300])
def test_a_block_that_fails_reports_where(host, dwords):
    """It runs over the end of the memory; the dwords before are in the result."""
    host.ram[-4 * dwords :] = noise(4 * dwords)
    built = CommandList()
    built.block_read(RAM + RAM_SIZE - 4 * dwords, dwords + 7)
    given = failing(host, "unsupported request", built, 0x09, 0, RAM + RAM_SIZE)
    assert given == noise(4 * dwords)


def test_a_condition_that_never_comes(host):
    built = CommandList()
    built.write(SCRATCH, 0x77)
    built.poll(SCRATCH, 0x78, microseconds=2000)
    before = host.now
    given = failing(host, "condition timeout", built, 0x04, 1, SCRATCH)
    assert 2e-3 < host.now - before < 5e-3
    assert given == b"\x77\0\0\0"


def test_a_read_that_is_late_and_one_that_never_comes(host):
    for delay, cause in ((int(20e-3 * 114.2857e6), None), (0xFFFFFFFF, "completion timeout")):
        built = CommandList()
        built.write(DELAY, delay)
        built.read(DELAYED)
        if cause is None:
            assert host.check(built) == (0x4C574F54,)
        else:
            failing(host, cause, built, 0x02, 1, DELAYED)


def test_a_list_waits_for_its_fence(host):
    built = CommandList()
    for offset in range(4):
        built.xdata_write(SLOT_0 + 0x10 + offset, 0)
    built.fence(0x10, 0, microseconds=0)
    built.fence(0x10, 0xFFFFFFFF, microseconds=0)
    built.fence(0x10, 1, microseconds=1000)
    failing(host, "condition timeout", built, 0x11, 6, 0x10)
    built = CommandList()
    built.fence(0x10, 1, microseconds=100_000)
    answer = host.receive()
    host.send(built)
    host.sleep(1e-3)
    assert answer.outcome is None
    device = host.board.endpoint
    host.board.usb.pump.post(lambda: device.upstream.dma_write(SRAM_PCIE + 0x10, struct.pack("<I", 3)))
    assert built.parse(host.wait(answer), host.sequence).failure is None
    host.sequence += 1


def test_a_fence_is_not_passed_by_a_dword_that_changes_while_it_is_read(host):
    """The device writes 0xFF and 0x100 in turn: halves of the two make 0x1FF, which is never written."""
    clock, device = host.board.machine.clock, host.board.endpoint
    values = itertools.islice(itertools.cycle((0xFF, 0x100)), 400)

    def write():
        if (value := next(values, None)) is not None:
            device.upstream.dma_write(SRAM_PCIE + 0x10, struct.pack("<I", value))
            clock.after(1009, write)

    host.board.usb.pump.post(write)
    built = CommandList()
    built.fence(0x10, 0x180, microseconds=3000)
    failing(host, "condition timeout", built, 0x11, 0, 0x10)
    assert next(values, None) is None, "all of them were written meanwhile"


# -- lists that are refused -----------------------------------------------------------------------------


def refused(host: ListHost, data: bytes, cause: str) -> None:
    host.ram[0] = 0
    trailer = commands.RESULT_TRAILER.unpack(host.raw(data))
    assert trailer["cause"] == CAUSE[cause]
    assert (trailer["opcode"], trailer["index"], trailer["address"]) == (0, 0, 0)
    assert host.ram[0] == 0
    host.works()


@pytest.mark.parametrize(
    ("place", "change", "cause"),
    [
        (0, 1, "bad header"),
        (4, 1, "bad header"),
        (5, 0x80, "bad header"),
        (8, 1, "bad checksum"),
        (20, 0xFF, "bad checksum"),
        (31, 1, "bad checksum"),
    ],
)
def test_a_damaged_list_is_refused(host, place, change, cause):
    data = packed(host, one_write())
    data[place] ^= change
    refused(host, data, cause)


def test_a_list_of_another_sequence_is_refused(host):
    host.sequence += 1
    data = packed(host, one_write())
    host.sequence -= 1
    refused(host, data, "bad sequence")


def test_a_list_that_ends_early_is_refused(host):
    built = CommandList()
    for _ in range(100):
        built.write(RAM, 1)
    refused(host, packed(host, built)[:800], "bad header")


def test_payload_of_a_refused_list_is_never_run(host):
    """Not even if it looks like a list."""
    trap = one_write()
    built = CommandList()
    built.block_write(RAM + 0x100, noise(9000))
    data = packed(host, built)
    data[9] ^= 1
    host.sequence += 7
    data += bytes(-len(data) % host.packet) + packed(host, trap)
    host.sequence -= 7
    refused(host, data, "bad checksum")


def test_payload_after_a_failure_is_dropped(host):
    built = CommandList()
    built.read(NOWHERE)
    built.block_write(RAM + 0x100, noise(50_000))
    failing(host, "unsupported request", built, 0x02, 0, NOWHERE)


@pytest.mark.parametrize("packet", [0, 1, 4])
def test_damaged_payload_is_named(host, packet):
    built = CommandList()
    data = noise(5000)
    host.ram[0x2000 : 0x2000 + 5000] = bytes(5000)
    built.block_write(RAM + 0x2000, data)
    raw = packed(host, built)
    raw[host.packet * (packet + 1) + 100] ^= 0x10
    trailer = commands.RESULT_TRAILER.unpack(host.raw(raw))
    host.sequence += 1
    assert (trailer["cause"], trailer["opcode"], trailer["address"]) == (CAUSE["bad payload"], 0x07, packet)
    before = (host.packet - 4) * packet
    assert bytes(host.ram[0x2000 : 0x2000 + before]) == data[:before]
    host.works()


def test_payload_out_of_order_is_not_written(host):
    built = CommandList()
    built.block_write(RAM + 0x2000, noise(5000))
    raw = packed(host, built)
    host.ram[0x2000 : 0x2000 + 5000] = bytes(5000)
    size = host.packet
    swapped = raw[:size] + raw[2 * size : 3 * size] + raw[size : 2 * size] + raw[3 * size :]
    trailer = commands.RESULT_TRAILER.unpack(host.raw(swapped))
    host.sequence += 1
    assert (trailer["cause"], trailer["address"]) == (CAUSE["bad payload"], 0)
    assert not any(host.ram[0x2000 : 0x2000 + 5000])
    host.works()


def raw_list(host: ListHost, *operations: bytes) -> bytes:
    """A list of operations that CommandList refuses to build."""
    body = b"".join(operations)
    size = commands.LIST_HEADER.size + len(body) + commands.LIST_TRAILER.size
    data = commands.LIST_HEADER.pack(sequence=host.sequence, length=size) + body
    data += bytes(commands.LIST_TRAILER.size)
    return data[:-2] + commands.check_bytes(data, len(data) - 2)


@pytest.mark.parametrize(
    ("cause", "fields"),
    [
        ("bad opcode", {"opcode": 0x00}),
        ("bad opcode", {"opcode": 0x15}),
        ("bad opcode", {"opcode": 0xFF}),
        ("bad opcode", {"opcode": 0x04}),  # without its extension
        ("bad operand", {"opcode": 0x01, "enables": 15, "address": RAM + 2}),
        ("bad operand", {"opcode": 0x01, "enables": 0x1F, "address": RAM}),
        ("bad operand", {"opcode": 0x09, "enables": 15, "address": RAM + 1, "count": 5}),
        ("bad operand", {"opcode": 0x0C, "value": commands.MICROSECONDS}),
        ("bad operand", {"opcode": 0x0F, "address": 31, "count": 2, "value": 1}),
        ("bad operand", {"opcode": 0x0F, "address": 1, "count": 1, "value": 33}),
        ("bad operand", {"opcode": 0x0F, "address": 1, "count": 1, "value": 0x8001}),  # F2's direction
        ("bad operand", {"opcode": 0x0F, "address": 1, "count": 1, "value": 0x1_0001}),
        ("bad operand", {"opcode": 0x0F, "address": 1, "count": 0x101, "value": 1}),
        ("bad operand", {"opcode": 0x10, "address": 0x101, "count": 1, "value": 1}),
        ("bad operand", {"opcode": 0x10, "address": 0x1_0001, "count": 1, "value": 1}),
        ("bad operand", {"opcode": 0x0D, "address": 0x2_0F00, "value": 1}),
        ("bad operand", {"opcode": 0x0E, "address": 0x1_0000_0F00, "count": 1}),
        ("bad operand", {"opcode": 0x0E, "address": 0x100_0F00, "count": 1}),
        ("bad operand", {"opcode": 0x11, "address": 0x1_0000}),
        ("bad operand", {"opcode": 0x11, "address": 0x1000}),
        ("bad operand", {"opcode": 0x11, "address": 2}),
        ("bad operand", {"opcode": 0x12, "count": 0}),
        ("bad operand", {"opcode": 0x12, "count": 3}),  # no END
        ("bad operand", {"opcode": 0x13}),
    ],
)
def test_operations_that_are_not_allowed(host, cause, fields):
    first = commands.OPERATION.pack(opcode=0x01, enables=15, address=RAM, value=9)
    wrong = commands.OPERATION.pack(**fields)
    if fields["opcode"] == 0x11:
        wrong += commands.EXTENSION.pack()
    trailer = commands.RESULT_TRAILER.unpack(host.raw(raw_list(host, first, wrong)))
    host.sequence += 1
    assert trailer["cause"] == CAUSE[cause]
    assert host.ram[0] == 9
    host.works()


# -- requests and events during a list ------------------------------------------------------------------


def long_poll(host: ListHost) -> CommandList:
    built = CommandList()
    built.write(SCRATCH, 0)
    built.poll(SCRATCH, 1, microseconds=60_000_000)
    return built


def test_ep0_answers_while_a_list_runs(host):
    built = long_poll(host)
    answer = host.receive()
    host.send(built)
    host.sleep(1e-3)
    before = host.now
    assert host.info()["api_level"] == commands.API_LEVEL
    assert host.now - before < 1e-3
    host.open(5)
    host.board.usb.cancel(answer)
    host.works()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["open", "reset", "clear halt"])
@pytest.mark.parametrize("phase", ["list", "payload", "poll", "delay", "results"])
def test_list_mode_can_be_opened_again_at_any_time(host, how, phase):
    usb = host.board.usb
    if phase == "list":
        data = packed(host, long_poll(host)) + b""
        big = CommandList()
        for _ in range(500):
            big.write(RAM, 1)
        data = packed(host, big)[: 2 * host.packet]
    elif phase == "payload":
        built = CommandList()
        built.block_write(RAM, noise(8000))
        data = packed(host, built)[:-2000]
        data = data[: len(data) - len(data) % host.packet]
    elif phase == "poll":
        data = packed(host, long_poll(host))
    elif phase == "delay":
        built = CommandList()
        built.delay(50_000_000)
        data = packed(host, built)
    else:
        built = CommandList()
        built.block_read(RAM, 5000)
        data = packed(host, built)
    transfer = usb.submit(OUT, bytes(data))
    host.sleep(3e-3)
    usb.cancel(transfer)
    if how == "reset":
        usb.enumerate()
    elif how == "clear halt":
        for endpoint in (0x02, 0x81):
            usb.control(Setup(0x02, 1, 0, endpoint, 0), timeout=1)
    host.open(0x1234)
    host.works()
    host.works()


def test_a_fill_that_is_given_up_ends(host):
    value = b"\x5a\xa5\x5a\xa5"
    host.ram[: 4 * 0xFFFF] = bytes(4 * 0xFFFF)
    built = CommandList()
    built.fill(RAM, int.from_bytes(value, "little"), 0xFFFF)
    answer = host.receive()
    host.send(built)
    host.sleep(1e-3)
    host.close()
    host.board.usb.cancel(answer)
    host.sleep(1e-5)
    filled = host.ram.find(bytes(4))
    assert 0 < filled < 4 * 0xFFFF
    host.sleep(1e-3)
    assert host.ram.find(bytes(4)) == filled
    host.open(7)
    host.works()


def test_no_list_runs_after_list_mode_is_closed(host):
    host.close()
    transfer = host.board.usb.submit(OUT, bytes(packed(host, one_write())))
    with pytest.raises(TimeoutError):
        host.wait(transfer, timeout=0.01)
    host.open(3)
    host.works()


def test_without_a_link(host):
    """PERST# is asserted by the list itself."""
    perst = 0xB480
    for build, opcode in (
        (lambda built: built.write(RAM, 1), 0x01),
        (lambda built: built.block_write(RAM, noise(400)), 0x07),
        (lambda built: built.fill(RAM, 1, 4), 0x0B),
        (lambda built: built.read(RAM), 0x02),
        (lambda built: built.block_read(RAM, 4), 0x09),
    ):
        built = CommandList()
        built.xdata_write(perst, 1)
        build(built)
        result = host.run(built)
        assert result.failure is not None
        assert (result.failure.cause, result.failure.opcode) == (CAUSE["link down"], opcode)
    host.power(True)
    host.set_up_pcie()
    host.open()
    host.works()


# -- slots ----------------------------------------------------------------------------------------------


def test_slots_towards_the_host(host):
    size = 3 * SLOT_SIZE
    data = noise(size, 7)
    device = host.board.endpoint
    built = CommandList()
    built.read(RAM)
    built.slot_in(4, 3, size // 512)
    built.sync()
    built.read(RAM)
    host.board.usb.pump.post(lambda: device.upstream.dma_write(SRAM_PCIE + 4 * SLOT_SIZE, data))
    host.wait(host.send(built))
    sectors = host.receive(size)
    host.sleep(1e-3)
    assert sectors.actual == 0
    host.board.usb.pump.post(lambda: device.upstream.dma_write(0x82200C, bytes(4)))
    assert host.wait(sectors) == data
    answer = host.receive()
    host.wait(host.board.usb.submit(OUT, SYNC_PACKET))
    assert len(built.parse(host.wait(answer), host.sequence).values) == 2
    host.sequence += 1
    host.works()


def test_each_transfer_towards_the_host_waits_for_the_one_before(host):
    """The WRITE after a SLOT_IN is done when the SLOT_IN is armed, and not before."""
    data = noise(4 * SLOT_SIZE, 8)
    device = host.board.endpoint
    host.board.usb.pump.post(lambda: device.upstream.dma_write(SRAM_PCIE + 4 * SLOT_SIZE, data))
    built = CommandList()
    built.write(REGISTERS + OFFSETS["FENCE"], 0x82_200C)
    with built.loop(2):
        for number in range(2):
            built.slot_in(4 + number, 1, SLOT_SIZE // 512)
            built.write(SCRATCH, 1 + number)
            built.write(REGISTERS + OFFSETS["SIGNAL"], 0)
    built.slot_in(6, 2, 2 * SLOT_SIZE // 512)
    built.write(REGISTERS + OFFSETS["SIGNAL"], 0)
    built.sync()
    built.read(SCRATCH)
    host.wait(host.send(built))
    host.sleep(1e-3)
    for number in range(5):
        assert device.read(2, OFFSETS["SCRATCH"], 4)[0] == (2 if number == 4 else 1 + number % 2)
        start, size = (number % 2 * SLOT_SIZE, SLOT_SIZE) if number < 4 else (2 * SLOT_SIZE, 2 * SLOT_SIZE)
        assert host.wait(host.receive(size)) == data[start : start + size]
        host.sleep(1e-3)
        answer = host.receive() if number == 4 else None
        host.wait(host.board.usb.submit(OUT, SYNC_PACKET))
        host.sleep(1e-3)
    assert built.parse(host.wait(answer), host.sequence).values == (2,)
    host.sequence += 1
    host.works()


@pytest.mark.slow
@pytest.mark.parametrize(("enables", "address"), [(0x1F, 0), (0x0F, 2)])
def test_an_invalid_write_after_a_slot_transfer_is_reported(enables, address):
    host = host_of()
    built = CommandList()
    built.slot_in(4, 1, 1)
    built.write(RAM, 1)
    built.sync()
    out, _ = built.pack(host.sequence, host.packet)
    damaged = bytearray(out[: built.size])
    write = 8 + 16
    damaged[write + 1] = enables
    damaged[write + 4] |= address
    damaged[-2:] = bytes(2)
    damaged[-2:] = commands.check_bytes(bytes(damaged), len(damaged) - 2)
    host.wait(host.board.usb.submit(OUT, bytes(damaged)))
    host.sleep(1e-3)
    assert (host.info()["cause"], host.info()["opcode"], host.info()["index"]) == (CAUSE["bad operand"], 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("speed", [Speed.SUPER_PLUS, Speed.HIGH], ids=["superspeed", "highspeed"])
def test_a_stream_longer_than_the_sram(speed):
    """Slots 1 to 15 and 16 to 31 in turn, paced by the device's fences: one transfer, at the link's rate."""
    device = StreamDevice()
    host = host_of(speed, function=device)
    built, parts, data = stream()
    host.board.usb.pump.post(lambda: device.expect(parts))
    before = host.now
    result = host.run(built)
    elapsed = host.now - before
    assert result.failure is None, str(result.failure)
    assert bytes(device.memory[: len(data)]) == data
    rate = len(data) / elapsed / 1e6
    link = 700 if speed is not Speed.HIGH else 40
    print(f"{len(data)} bytes in one transfer: {rate:.0f} MB/s, {100 * rate / link:.1f} % of the link's")
    assert len(data) >= 4 << 20
    assert rate >= 0.9 * link


@pytest.mark.slow
def test_the_data_paths_are_within_their_bounds():
    """Compared with the published loops in the same run. Clocks are exact: a second run is the same."""
    found = measure()
    print(found)
    clocks = found["clocks_per_dword"]
    assert found["clocks_per_list_write"] <= 500
    assert max(clocks["list_write"], clocks["pio_write"]) < 122 < found["published"]["write"]
    assert max(clocks["list_read"], clocks["pio_read"]) < 250 < found["published"]["read"]
    assert min(found["bulk_mb_per_virtual_s"].values()) > 500
    assert found["code_bytes"] <= 11 << 10
    assert measure() == found
