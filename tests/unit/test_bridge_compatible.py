"""The driver of single requests: as few transfers as they allow."""

from __future__ import annotations

import random
import struct

import pytest

from emulator.board import Board
from emulator.pcie.endpoint import TestEndpoint
from firmware.protocol.command_list import CommandList
from firmware.protocol.requests import TLP_START
from tests.bridge_rig import Rig, rig_of


@pytest.fixture(scope="module")
def shared() -> Rig:
    return rig_of(Board.of("firmware"), lists=False)


@pytest.fixture
def rig(shared: Rig) -> Rig:
    shared.kinds()
    return shared


def test_opening_takes_only_recognition_and_a_reset() -> None:
    rig = rig_of(Board.of("firmware"), lists=False, enumerated=False)
    assert rig.kinds() == {"control": 2, "reset": 1}


def test_enumeration_takes_fewer_transfers_than_the_peers() -> None:
    rig = rig_of(Board.of("firmware"), lists=False, enumerated=True)
    assert len(rig.calls) - 3 <= 120
    assert isinstance(rig.board.endpoint, TestEndpoint)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "transfers"),
    [
        ("write", (1,), {"control": 1}),
        ("write", (1, 0b0010), {"control": 1}),
        ("read", (), {"control": 2}),
        ("modify", (1, 1), {"control": 3}),
        ("block_write", (bytes(4),), {"control": 1}),
        ("block_write", (bytes(8),), {"control": 2}),
        ("block_write", (bytes(12),), {"control": 1, "bulk-out": 1}),
        ("block_write", (bytes(1 << 17),), {"control": 1, "bulk-out": 1}),
        ("fill", (7, 0x4000), {"control": 1, "bulk-out": 1}),
        ("block_read", (1,), {"control": 2}),
        ("block_read", (2,), {"control": 1, "bulk-in": 1}),
        ("block_read", (0x4000,), {"control": 1, "bulk-in": 1}),
        ("block_read", (0,), {}),
        ("block_write", (b"",), {}),
    ],
)
def test_transfers_of_an_operation(rig: Rig, name: str, arguments: tuple, transfers: dict[str, int]) -> None:
    commands = CommandList()
    getattr(commands, name)(rig.ram, *arguments)
    rig.bridge.run(commands)
    assert rig.kinds() == transfers


def test_writes_one_behind_the_other_are_one_stream(rig: Rig) -> None:
    rig.memory[:0x400] = bytes(0x400)
    commands = CommandList()
    for place in range(50):
        commands.write(rig.ram + 4 * place, place)
    commands.block_write(rig.ram + 200, b"\x11" * 40)
    commands.fill(rig.ram + 240, 0x2222_2222, 10)
    commands.write(rig.ram + 0x200, 3)
    commands.write(rig.ram + 0x300, 4)
    rig.bridge.run(commands)
    assert rig.kinds() == {"control": 3, "bulk-out": 1}
    rig.bridge.clock.sleep(1e-3)
    assert rig.memory[:200:4] == bytes(range(50))
    assert rig.memory[200:280] == b"\x11" * 40 + b"\x22" * 40
    assert (rig.memory[0x200], rig.memory[0x300]) == (3, 4)


def test_what_is_written_is_there_before_what_follows(rig: Rig) -> None:
    """A write with byte enables, a read, an address that was written before: each in its turn."""
    commands = CommandList()
    for value in range(5):
        commands.write(rig.ram + 4 * value, 0x0101_0101)
    commands.write(rig.ram + 20, 0xAAAA_AAAA, enables=0b0001)
    commands.write(rig.ram + 16, 0x0202_0202)
    commands.read(rig.ram + 16)
    commands.write(rig.ram + 16, 0x0303_0303)
    commands.modify(rig.ram + 16, 0x04, 0xFF)
    commands.read(rig.ram + 16)
    assert rig.bridge.run(commands).values == (0x0202_0202, 0x0303_0304)


def test_a_stream_ends_where_addresses_become_64_bit(rig: Rig) -> None:
    """A request has an address of 32 bits or of 64; those below 4 GiB must be of 32."""
    commands = CommandList()
    for place in range(-3, 3):
        commands.write((1 << 32) + 4 * place, place & 0xFF)
    rig.bridge.run(commands)
    started = [call for call in rig.calls if call.request == TLP_START.code]
    assert [call.value & 0xFF for call in started] == [0x40, 0x60]
    assert [struct.unpack("<III", call.data) for call in started] == [(0xFFFF_FFF4, 0, 3), (0, 1, 3)]


def test_a_mixture_of_two_values_does_not_pass_a_fence(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes are read one by one: 0xFF becomes 0x100 while the lower one has been read already."""
    seen = iter((0x00FF, 0x01FF, 0x00FF, 0x0101, 0x0101))
    monkeypatch.setattr(rig.bridge, "xdata", lambda *_: next(seen).to_bytes(4, "little"))
    commands = CommandList()
    commands.fence(0, 0x100, microseconds=100_000)
    rig.bridge.run(commands)
    assert list(seen) == []


def test_polls_back_off(rig: Rig) -> None:
    """Polls come at growing intervals, and the last one when the time is up."""
    commands = CommandList()
    commands.poll(rig.ram, 0x8000_0001, microseconds=100_000)
    rig.memory[:4] = bytes(4)
    board = rig.board
    late = round(60e-3 * 114.2857e6)
    board.usb.pump.post(
        lambda: board.machine.clock.after(late, lambda: rig.memory.__setitem__(slice(4), b"\x01\0\0\x80"))
    )
    assert rig.bridge.run(commands).values == (0x8000_0001,)
    assert rig.kinds()["control"] < 60


def test_random_writes_arrive(rig: Rig) -> None:
    rng = random.Random(3)
    for _ in range(20):
        model = bytearray(rng.randbytes(256))
        rig.memory[:256] = model
        commands = CommandList()
        place = rng.randrange(32)
        for _ in range(rng.randrange(60)):
            place = (place + 1) % 64 if rng.random() < 0.8 else rng.randrange(64)
            value = rng.getrandbits(32)
            commands.write(rig.ram + 4 * place, value)
            model[4 * place : 4 * place + 4] = value.to_bytes(4, "little")
        rig.bridge.run(commands)
        rig.bridge.clock.sleep(1e-3)
        assert rig.memory[:256] == model
