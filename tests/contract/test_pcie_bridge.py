"""The contract of a bridge's drivers: the same by command lists and by single requests, at both speeds."""

from __future__ import annotations

import random
import struct

import pytest

from emulator.board import Board
from emulator.usb.wire import Speed
from firmware.asm2464pd.registers.memory import SLOT_SIZE
from firmware.protocol.command_list import CommandList
from firmware.protocol.operands import config_address
from firmware.protocol.operations import SECTOR, ListError
from tests.amount import amount
from tests.bridge_rig import TRIGGER, Rig, powered, rig_of
from tests.e2e.test_command_list_random import AREA, Model
from towline.cli.benchmarks import firmware as benchmark
from usbgpu import bridge
from usbgpu.bridge import SRAM_ADDRESS, ListFailed, Reply
from usbgpu.bridge.base import CAUSE
from usbgpu.transport import Disconnected, TimedOut

HIGH, SUPER = Speed.HIGH, Speed.SUPER_PLUS
DRIVERS = [
    pytest.param((True, SUPER), id="lists-superspeed"),
    pytest.param((True, HIGH), id="lists-highspeed", marks=pytest.mark.slow),
    pytest.param((False, SUPER), id="requests-superspeed"),
    pytest.param((False, HIGH), id="requests-highspeed", marks=pytest.mark.slow),
]
RAM_SIZE = 16 << 20
SEEDS = amount(70, 200)
"""The end of those of many random lists."""
SLOT_0 = 0xF000
LINK = 700e6
"""Bytes a second of the slot DMA."""
ELSEWHERE = 0x4000_0000
"""After the RAM, where nothing answers."""


@pytest.fixture(scope="module", params=DRIVERS)
def rig(request: pytest.FixtureRequest) -> Rig:
    lists, speed = request.param
    return rig_of(powered(speed), lists=lists)


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


# -- operations -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_dwords_bytes_and_configuration(rig: Rig) -> None:
    scratch = rig.register("SCRATCH")
    rig.memory[:8] = noise(8)
    commands = CommandList()
    commands.config_read(config_address(4, 0, 0, 0))
    commands.config_read(config_address(0, 0, 0, 0))
    commands.config_write(config_address(4, 0, 0, 0x3C), 0x0000_00A5, enables=1)
    commands.config_read(config_address(4, 0, 0, 0x3C))
    commands.write(rig.ram, 0x1122_3344)
    commands.write(rig.ram + 4, 0xAABB_CCDD, enables=0b0110)
    commands.read(rig.ram)
    commands.read(rig.ram + 4)
    commands.write(scratch, 0x5A5A_0000)
    commands.modify(scratch, 0x0000_1234, 0x0000_FFFF)
    commands.read(scratch)
    commands.poll(scratch, 0x34, 0xFF, microseconds=0)
    merged = noise(8)[4:5] + b"\xcc\xbb" + noise(8)[7:]
    assert rig.bridge.run(commands).values == (
        0x70E1_1234,
        0x2463_1B21,
        0x0000_00A5,
        0x1122_3344,
        int.from_bytes(merged, "little"),
        0x5A5A_1234,
        0x5A5A_1234,
    )


@pytest.mark.slow
@pytest.mark.parametrize("dwords", [0, 1, 2, 3, 127, 128, 129, 255, 256, 257, 1300])
def test_blocks_of_all_lengths(rig: Rig, dwords: int) -> None:
    place, data = 0xFF_0000 - 4 * 128, noise(4 * dwords, dwords)
    rig.memory[place - 4 : place + len(data) + 4] = bytes(len(data) + 8)
    commands = CommandList()
    commands.block_write(rig.ram + place, data)
    commands.block_read(rig.ram + place, dwords)
    commands.fill(rig.ram + place, 0x0102_0304, min(dwords, 70))
    commands.block_read(rig.ram + place - 4, 2)
    first, second = rig.bridge.run(commands).values
    after = (b"\x04\x03\x02\x01" * 70)[: len(data)] + data[280:]
    assert first == data
    assert second == bytes(4) + (after + bytes(4))[:4]
    assert rig.memory[place - 4 : place + len(data) + 4] == bytes(4) + after + bytes(4)


def test_fifos_delays_and_the_bridges_memory(rig: Rig) -> None:
    data = noise(4 * 9)
    commands = CommandList()
    commands.fifo_write(rig.register("SCRATCH"), data)
    commands.fifo_read(rig.register("SCRATCH"), 5)
    commands.xdata_write(0x8FFF, 0xA5)
    commands.xdata_read(0x8FFF, 1)
    commands.xdata_read(0x4092, 1, phy=True)
    for at in range(130):
        commands.xdata_write(SLOT_0 + at, at)
    commands.xdata_read(SLOT_0, 130)
    commands.delay(1500)
    before = rig.bridge.clock.now()
    assert rig.bridge.run(commands).values == (data[-4:] * 5, b"\xa5", b"\x43", bytes(range(130)))
    assert rig.bridge.clock.now() - before > 1.5e-3


@pytest.mark.slow
@pytest.mark.parametrize("lists", [True, False])
def test_packets_of_high_speed(lists: bool) -> None:
    """The slow tests do everything at both speeds; payload and results depend on it most."""
    rig = rig_of(powered(HIGH), lists=lists)
    for dwords in (127, 128, 1300):
        test_blocks_of_all_lengths(rig, dwords)
    test_results_of_any_size(rig)
    test_slots_towards_the_host(rig, 95)


def test_loops(rig: Rig) -> None:
    commands = CommandList()
    with commands.loop(5):
        commands.read(rig.ram)
        commands.block_write(rig.ram, b"".join(value.to_bytes(4, "little") for value in range(1, 6)))
    rig.memory[:4] = bytes(4)
    assert rig.bridge.run(commands).values == (0, 1, 2, 3, 4)
    assert rig.memory[:4] == b"\x05\0\0\0"


def test_results_of_any_size(rig: Rig) -> None:
    """More than the firmware keeps, before and behind payload of which it can keep nothing."""
    data = noise(30_000, 3)
    commands = CommandList()
    rig.memory[:30_000] = data
    commands.block_read(rig.ram, 5000)
    commands.block_write(rig.ram + 0x10000, data)
    commands.block_read(rig.ram + 0x10000, 7500)
    assert rig.bridge.run(commands).values == (data[:20_000], data)


def _random_lists(rig: Rig, seeds: range) -> None:
    for seed in seeds:
        model = Model(random.Random(seed), rig.ram)
        rig.memory[: 4 * AREA] = model.bytes(0, AREA)
        for _ in range(model.rng.randrange(40)):
            model.add()
        assert list(rig.bridge.run(model.built).values) == model.values, f"seed {seed}"
        rig.bridge.clock.sleep(1e-3)  # a posted stream's last packet may still be in the CPU
        assert bytes(rig.memory[: 4 * AREA]) == model.bytes(0, AREA), f"seed {seed}"


@pytest.mark.slow
def test_random_lists_do_what_a_model_does(rig: Rig) -> None:
    _random_lists(rig, range(8))


@pytest.mark.slow
def test_more_random_lists(rig: Rig, request: pytest.FixtureRequest) -> None:
    """By requests, which take 20 times as long, each of them at one of the two speeds."""
    lists, speed = request.node.callspec.params["rig"]
    _random_lists(rig, range(8, SEEDS) if lists else range(8 + (speed is HIGH), SEEDS, 2))


# -- slots ----------------------------------------------------------------------------------------------


def test_slots_towards_the_device(rig: Rig) -> None:
    data = noise(3 * SLOT_SIZE - SECTOR, 5)
    commands = CommandList()
    commands.slot_out(7, 3, data)
    rig.bridge.run(commands)
    commands = CommandList()
    rig.copy_in(commands, 0x1_0000, SRAM_ADDRESS + 7 * SLOT_SIZE, len(data))
    rig.bridge.run(commands)
    assert rig.memory[0x1_0000 : 0x1_0000 + len(data)] == data


@pytest.mark.parametrize("sectors", [1, 3, 32, 95])
def test_slots_towards_the_host(rig: Rig, sectors: int) -> None:
    """The device fills them, and writes the completion entry when the host may already wait."""
    size = sectors * SECTOR
    rig.memory[0x2_0000 : 0x2_0000 + size] = noise(size, sectors)
    commands = CommandList()
    commands.read(rig.ram + 0x2_0000)
    rig.copy_out(commands, 0x2_0000, SRAM_ADDRESS + 4 * SLOT_SIZE, size)
    commands.write(rig.register("FENCE"), TRIGGER)
    commands.slot_in(4, 3, sectors)
    commands.delay(2000)
    commands.write(rig.register("SIGNAL"), 0)
    commands.sync()
    commands.read(rig.ram + 0x2_0000)
    reply = rig.bridge.run(commands)
    assert reply.data == noise(size, sectors)
    assert reply.values[0] == reply.values[-1] == int.from_bytes(noise(size, sectors)[:4], "little")


@pytest.mark.parametrize("each", [True, False], ids=["sync-each", "sync-once"])
def test_slots_in_a_loop(rig: Rig, each: bool) -> None:
    """The next transfer may wait for the host itself."""
    rig.memory[:1024] = noise(1024, 9)
    commands = CommandList()
    rig.copy_out(commands, 0, SRAM_ADDRESS + SLOT_SIZE, 1024)
    commands.write(rig.register("FENCE"), TRIGGER)
    with commands.loop(5):
        commands.slot_in(1, 1, 2)
        commands.write(rig.register("SIGNAL"), 0)
        if each:
            commands.sync()
    if not each:
        commands.sync()
    assert rig.bridge.run(commands).data == noise(1024, 9) * 5


@pytest.mark.slow
@pytest.mark.parametrize("lists", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_stream_paced_by_fences(lists: bool) -> None:
    """Both halves of the SRAM in turn, in a loop; the device writes fences."""
    device = benchmark.StreamDevice()
    rig = rig_of(powered(function=device), lists=lists)
    commands, parts, data = benchmark.stream(rounds=9)
    rig.board.usb.pump.post(lambda: device.expect(parts))
    before = rig.bridge.clock.now()
    rig.kinds()
    rig.bridge.run(commands)
    rate = len(data) / (rig.bridge.clock.now() - before)
    assert device.memory[: len(data)] == data
    if lists:
        assert rig.kinds() == {"bulk-out": 5, "bulk-in": 1}
        assert rate > 0.9 * LINK


# -- failures -------------------------------------------------------------------------------------------


def fails(rig: Rig, commands: CommandList, cause: str, index: int, address: int) -> tuple[int | bytes, ...]:
    """A list fails with this cause, and the bridge works afterwards; returns the results before it."""
    with pytest.raises(ListFailed) as failed:
        rig.bridge.run(commands)
    failure = failed.value.failure
    assert (failure.cause, failure.index, failure.address) == (CAUSE[cause], index, address), str(failure)
    assert failure.opcode == commands.operations[index].opcode.code
    assert cause in str(failed.value)
    rig.works()
    return failed.value.values


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["read", "modify", "poll", "block_read", "fifo_read"])
@pytest.mark.parametrize("cause", ["unsupported request", "completer abort"])
def test_requests_that_are_refused(rig: Rig, operation: str, cause: str) -> None:
    address = rig.ram + ELSEWHERE if cause[0] == "u" else rig.register("ABORTED")
    arguments = {"modify": (1, 1), "poll": (0,), "block_read": (3,), "fifo_read": (3,)}.get(operation, ())
    rig.memory[:4] = bytes(4)
    commands = CommandList()
    commands.write(rig.register("SCRATCH"), 7)
    commands.read(rig.register("SCRATCH"))
    options = {"microseconds": 100} if operation == "poll" else {}
    getattr(commands, operation)(address, *arguments, **options)
    commands.write(rig.ram, 1)
    values = fails(rig, commands, cause, 2, address)
    assert values[0] == 7
    assert rig.memory[:4] == bytes(4), "nothing runs after it"


def test_functions_that_do_not_exist(rig: Rig) -> None:
    commands = CommandList()
    commands.config_read(config_address(9, 0, 0, 0))
    fails(rig, commands, "unsupported request", 0, 9 << 24)


@pytest.mark.parametrize("dwords", [1, 5, 128, 256, 300])
def test_a_block_that_fails_says_where(rig: Rig, dwords: int) -> None:
    commands = CommandList()
    commands.block_read(rig.ram + RAM_SIZE - 4 * dwords, dwords + 7)
    assert fails(rig, commands, "unsupported request", 0, rig.ram + RAM_SIZE) == ()


def test_conditions_that_do_not_come_true(rig: Rig) -> None:
    scratch = rig.register("SCRATCH")
    commands = CommandList()
    commands.write(scratch, 0x77)
    commands.poll(scratch, 0x78, microseconds=20_000)
    before = rig.bridge.clock.now()
    assert fails(rig, commands, "condition timeout", 1, scratch) == (0x77,)
    assert 20e-3 < rig.bridge.clock.now() - before < 40e-3
    commands = CommandList()
    for at in range(4):
        commands.xdata_write(SLOT_0 + 0x10 + at, 0)
    with commands.loop(3):
        commands.fence(0x10, 0xFFFF_FFFE, step=1, microseconds=1000)  # -2, -1, 0
    commands.fence(0x10, 1, microseconds=1000)
    fails(rig, commands, "condition timeout", 7, 0x10)


def test_reads_that_are_late_and_reads_that_never_end(rig: Rig) -> None:
    commands = CommandList()
    commands.write(rig.register("DELAY"), int(20e-3 * 114e6))
    commands.read(rig.register("DELAYED"))
    assert rig.bridge.run(commands).values == (0x4C57_4F54,)
    commands = CommandList()
    commands.write(rig.register("DELAY"), 0xFFFF_FFFF)
    commands.read(rig.register("DELAYED"))
    fails(rig, commands, "completion timeout", 1, rig.register("DELAYED"))


@pytest.mark.slow
@pytest.mark.parametrize("lists", [True, False])
def test_slots_that_are_never_read(lists: bool) -> None:
    """The endpoint belongs to the slot DMA then: failures are reported differently, and a reset frees it."""
    rig = rig_of(Board.of("firmware"), lists=lists)
    commands = CommandList()
    commands.slot_in(4, 1, 4)
    commands.read(rig.ram + ELSEWHERE)
    commands.sync()
    fails(rig, commands, "unsupported request", 1, rig.ram + ELSEWHERE)
    commands = CommandList()
    commands.slot_in(4, 1, 4)
    commands.sync()
    with pytest.raises(TimedOut):
        rig.bridge.run(commands)
    rig.works()


@pytest.mark.slow
def test_without_a_link() -> None:
    for lists in (True, False):
        rig = rig_of(powered(), lists=lists)
        rig.bridge.power(False)
        commands = CommandList()
        commands.read(rig.ram)
        with pytest.raises(ListFailed, match="link down") as failed:
            rig.bridge.run(commands)
        assert failed.value.hint
        rig.bridge.power(True)
        commands = CommandList()
        commands.config_read(0)
        assert rig.bridge.run(commands).values == (0x2463_1B21,)


# -- the cable ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("lists", [True, False])
def test_a_device_that_stops_answering(lists: bool) -> None:
    """The wait ends in bounded time, and the device works when it is back."""
    rig = rig_of(Board.of("firmware"), lists=lists)
    commands = CommandList()
    commands.block_write(rig.ram, noise(5000))
    rig.storm(3.5)
    before = rig.bridge.clock.now()
    with pytest.raises(TimedOut):
        rig.bridge.run(commands)
    assert rig.bridge.clock.now() - before < 3.5
    rig.bridge.clock.sleep(3.5)
    rig.works()


@pytest.mark.slow
@pytest.mark.parametrize("lists", [True, False])
def test_a_cable_that_is_pulled(lists: bool) -> None:
    rig = rig_of(powered(), lists=lists)
    clock = rig.board.machine.clock
    rig.board.usb.pump.post(lambda: clock.after(50_000, rig.board.usb.unplug))
    commands = CommandList()
    commands.poll(rig.ram, 0, 1, microseconds=1)
    commands.block_write(rig.ram, noise(1 << 17))
    commands.slot_out(1, 31, noise(31 * SLOT_SIZE))
    with pytest.raises(Disconnected):
        rig.bridge.run(commands)
    with pytest.raises(Disconnected):
        rig.works()
    rig.bridge.close()
    rig.board.usb.plug()
    again = rig_of(rig.board, lists=lists)
    again.works()


@pytest.mark.slow
@pytest.mark.parametrize("after", range(6))
def test_an_interruption_at_any_point(rig: Rig, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between any two transfers; the next list runs normally."""
    left = [after]
    transport = rig.transport
    begin, perform = transport.submit, transport.perform

    def interrupted(real):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        return call

    rig.memory[:1024] = noise(1024)
    commands = CommandList()
    commands.write(rig.register("FENCE"), TRIGGER)
    commands.block_write(rig.ram, noise(3000))
    commands.slot_in(4, 1, 4)
    commands.write(rig.register("SIGNAL"), 0)
    commands.sync()
    with monkeypatch.context() as patch:
        patch.setattr(transport, "submit", interrupted(begin))
        patch.setattr(transport, "perform", interrupted(perform))
        try:
            rig.bridge.run(commands)
        except KeyboardInterrupt:
            assert left[0] < 0
    rig.works()
    assert len(rig.bridge.run(commands).data) == 4 * SECTOR


@pytest.mark.slow
@pytest.mark.parametrize("left", ["slots in", "slots out", "stream in", "stream out", "list", "payload"])
@pytest.mark.parametrize("lists", [True, False])
def test_whatever_a_killed_program_left(rig: Rig, left: str, lists: bool) -> None:
    """A program opens the bridge while another one's operation was unfinished."""
    device = rig.transport
    stream = struct.pack("<III", rig.ram & 0xFFFF_FFFF, rig.ram >> 32, 5000)
    match left:
        case "slots in":
            device.control_out(0x40, 0xF2, value=0x8004, index=0x0104)
        case "slots out":
            device.control_out(0x40, 0xF2, value=0x0004, index=0x0104)
            device.bulk_out(bytes(1024))
        case "stream in":
            device.control_out(0x40, 0xF0, value=0x0F20, index=2, data=stream)
        case "stream out":
            device.control_out(0x40, 0xF0, value=0x0F60, index=1, data=stream)
            device.bulk_out(bytes(1024))
        case "list" | "payload":
            commands = CommandList()
            commands.block_write(rig.ram, noise(9000))
            packed = b"".join(commands.pack(7, device.packet_size))
            device.control_out(0x40, 0xF8, value=1, index=7)
            device.bulk_out(packed[: 10 if left == "list" else 4 * device.packet_size])
    again = Rig(rig.board, device, bridge.attach(device, lists=lists), [], rig.ram, rig.registers)
    again.works()
    rig.bridge._in_step = False  # another program used it
    rig.works()


# -- invalid lists --------------------------------------------------------------------------------------


def test_lists_that_are_not_complete(rig: Rig) -> None:
    commands = CommandList()
    commands.slot_in(1, 1, 1)
    with pytest.raises(ListError, match=r"(?i)sync"):
        rig.bridge.run(commands)
    commands = CommandList()
    with commands.loop(2), pytest.raises(ListError, match=r"(?i)loop"):
        rig.bridge.run(commands)
    rig.works()


def test_an_empty_list(rig: Rig) -> None:
    assert rig.bridge.run(CommandList()) == Reply((), b"")
