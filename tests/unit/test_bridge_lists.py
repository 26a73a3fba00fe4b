"""The driver of command lists: how many transfers it takes, and how it handles damage in transit."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from emulator.board import Board
from firmware.protocol.command_list import CommandList
from firmware.protocol.operations import SECTOR
from sdk.errors import UsageError
from tests.bridge_rig import Rig, rig_of
from usbgpu.bridge import ListFailed
from usbgpu.bridge.base import CAUSE, PIECE, patience
from usbgpu.bridge.lists import ListBridge
from usbgpu.transport import Call, CallKind, TimedOut


@pytest.fixture(scope="module")
def shared() -> Rig:
    return rig_of(Board.of("firmware"))


@pytest.fixture
def rig(shared: Rig) -> Rig:
    shared.kinds()
    return shared


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def one_write(rig: Rig, value: int = 1) -> CommandList:
    commands = CommandList()
    commands.write(rig.ram, value)
    return commands


def damage(
    monkeypatch: pytest.MonkeyPatch, rig: Rig, place: int, *, times: int = 1, endpoint: int = 0x02
) -> Callable[[], int]:
    """Invert a bit of what the next transfers send; returns how many are still to be damaged."""
    submit, left = rig.transport.submit, [times]

    def damaging(call: Call):
        if call.kind is CallKind.BULK_OUT and len(call.data) > place and left[0]:
            left[0] -= 1
            data = bytearray(call.data)
            data[place] ^= 0x10
            call = rig.transport.out_call(data, timeout=call.timeout)
        return submit(call)

    monkeypatch.setattr(rig.transport, "submit", damaging)
    return lambda: left[0]


# -- transfers ------------------------------------------------------------------------------------------


def test_a_list_is_two_transfers(rig: Rig) -> None:
    commands = CommandList()
    for place in range(100):
        commands.write(rig.ram + 8 * place, place)
        commands.read(rig.ram + 8 * place)
    assert rig.bridge.run(commands).values == tuple(range(100))
    assert rig.kinds() == {"bulk-out": 1, "bulk-in": 1}


@pytest.mark.slow
def test_payload_travels_in_pieces(rig: Rig) -> None:
    """The last one alone is short, whatever the sizes; the firmware sees one transfer."""
    data = noise(5 * PIECE // 2 // 4 * 4)
    commands = CommandList()
    for start in range(0, len(data), 0x20000):
        commands.block_write(rig.ram + start, data[start : start + 0x20000])
    rig.bridge.run(commands)
    assert rig.memory[: len(data)] == data
    sizes = [len(call.data) for call in rig.calls if call.kind is CallKind.BULK_OUT]
    assert sizes[:2] == [PIECE, PIECE]
    assert len(sizes) == 3
    assert len(rig.calls) == 4


def test_long_results_travel_in_pieces(rig: Rig) -> None:
    rig.memory[:0x20000] = noise(0x20000)
    commands = CommandList()
    for _ in range(10):
        commands.block_read(rig.ram, 0x8000)
    assert rig.bridge.run(commands).values == (noise(0x20000),) * 10
    assert rig.kinds() == {"bulk-out": 1, "bulk-in": 2}


def test_opening_and_power(rig: Rig) -> None:
    again = rig_of(Board.of("firmware"), enumerated=False)
    assert len(again.calls) == 4
    again.kinds()
    again.bridge.power(True)
    assert again.kinds() == {"control": 2}
    commands = CommandList()
    commands.config_read(0)
    again.bridge.run(commands)
    assert again.kinds() == {"clear-halt": 2, "control": 1, "bulk-out": 1, "bulk-in": 1}


def test_a_failure_costs_nothing_more(rig: Rig) -> None:
    commands = CommandList()
    commands.read(rig.ram + 0x4000_0000)
    commands.block_write(rig.ram, noise(50_000))
    with pytest.raises(ListFailed):
        rig.bridge.run(commands)
    rig.works()
    assert rig.kinds() == {"bulk-out": 2, "bulk-in": 2}


def test_sequence_numbers_begin_again(rig: Rig) -> None:
    assert isinstance(rig.bridge, ListBridge)
    rig.bridge._sequence = 0xFFFE
    rig.bridge._in_step = False
    for _ in range(4):
        rig.works()
    assert rig.bridge._sequence == 2


# -- damage ---------------------------------------------------------------------------------------------


def test_a_list_that_arrives_damaged_is_sent_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = damage(monkeypatch, rig, 20)
    rig.bridge.run(one_write(rig, 0x77))
    assert left() == 0
    assert rig.memory[:4] == b"\x77\0\0\0"
    assert "sent again" in caplog.text
    assert rig.kinds() == {"bulk-out": 2, "bulk-in": 2, "clear-halt": 2, "control": 1}


def test_a_list_that_always_arrives_damaged(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.memory[:4] = bytes(4)
    with monkeypatch.context() as patch:
        damage(patch, rig, 20, times=9)
        with pytest.raises(ListFailed, match="refused: bad checksum"):
            rig.bridge.run(one_write(rig))
    assert rig.memory[:4] == bytes(4)
    rig.works()


def test_payload_that_arrives_damaged(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation and the packet are named; which part of it may be done twice is unknown."""
    commands = CommandList()
    commands.read(rig.ram)
    commands.block_write(rig.ram, noise(5000))
    damage(monkeypatch, rig, 1024 * 4 + 100)
    with pytest.raises(ListFailed) as failed:
        rig.bridge.run(commands)
    failure = failed.value.failure
    assert (failure.cause, failure.index, failure.address) == (CAUSE["bad payload"], 1, 3)
    assert len(failed.value.values) == 1
    rig.works()


def test_a_bridge_with_another_sequence_number(rig: Rig) -> None:
    """Another program opened list mode again; the list is refused, and sent again with another number."""
    rig.transport.control_out(0x40, 0xF8, value=1, index=0x4321)
    rig.works()


@pytest.mark.slow
def test_a_bridge_that_has_left_list_mode(rig: Rig) -> None:
    rig.transport.control_out(0x40, 0xF8, value=0)
    with pytest.raises(TimedOut):
        rig.bridge.run(one_write(rig))
    rig.works()


@pytest.mark.slow
def test_an_earlier_failure_is_not_taken_for_this_lists(rig: Rig) -> None:
    commands = CommandList()
    commands.read(rig.ram + 0x4000_0000)
    with pytest.raises(ListFailed):
        rig.bridge.run(commands)
    commands = CommandList()
    commands.slot_in(1, 1, 1)
    commands.sync()
    with pytest.raises(TimedOut):
        rig.bridge.run(commands)
    rig.works()


# -- limits ---------------------------------------------------------------------------------------------


def test_how_long_a_list_may_take() -> None:
    commands = CommandList()
    short = patience(commands)
    with commands.loop(10):
        commands.poll(0, 0, microseconds=500_000)
        commands.delay(100_000)
        commands.fence(0, 0, microseconds=400_000)
    assert 10 < patience(commands) - short < 10.1
    commands.slot_out(0, 32, bytes(512 << 10))
    commands.block_read(0, 0x8000)
    assert 10.6 < patience(commands) - short < 11


def test_results_where_sectors_are_expected(rig: Rig) -> None:
    commands = CommandList()
    commands.block_read(rig.ram, SECTOR // 4)
    commands.slot_in(1, 1, 1)
    commands.sync()
    with pytest.raises(UsageError, match="SYNC"):
        rig.bridge.run(commands)
    rig.works()


def test_more_results_than_are_read_while_payload_is_sent(rig: Rig) -> None:
    commands = CommandList()
    with commands.loop(20):
        commands.block_read(rig.ram, 0x8000)
    commands.block_write(rig.ram, bytes(4))
    with pytest.raises(UsageError, match="with payload"):
        rig.bridge.run(commands)
    rig.works()
