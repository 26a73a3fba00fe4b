"""The codec of command lists: it unpacks what it packs, refuses damaged lists, and checks the limits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firmware.protocol import commands
from firmware.protocol.command_list import CommandList
from firmware.protocol.operands import config_address
from firmware.protocol.operations import ListError, Parts, unpack
from firmware.protocol.payload import payload_packets

DWORDS = st.integers(0, 0xFFFFFFFF)
ADDRESSES = st.one_of(st.integers(0, (1 << 30) - 1), st.integers(1 << 30, (1 << 62) - 1)).map(lambda a: 4 * a)
LOW = st.integers(0, 1 << 20).map(lambda a: 4 * a)
ENABLES = st.integers(0, 15)
TIMES = st.integers(0, commands.MICROSECONDS - 1)
COUNTS = st.integers(0, 0xFFFF)
BYTES = st.integers(0, 0xFF)

CALLS = st.one_of(
    st.tuples(st.just("write"), st.tuples(ADDRESSES, DWORDS, ENABLES)),
    st.tuples(st.just("read"), st.tuples(ADDRESSES, ENABLES)),
    st.tuples(st.just("modify"), st.tuples(ADDRESSES, DWORDS, DWORDS, ENABLES)),
    st.tuples(st.just("config_write"), st.tuples(LOW, DWORDS, ENABLES)),
    st.tuples(st.just("config_read"), st.tuples(LOW, ENABLES)),
    st.tuples(st.just("block_read"), st.tuples(LOW, COUNTS)),
    st.tuples(st.just("fifo_read"), st.tuples(ADDRESSES, COUNTS)),
    st.tuples(st.just("fill"), st.tuples(LOW, DWORDS, COUNTS)),
    st.tuples(st.just("delay"), st.tuples(TIMES)),
    st.tuples(st.just("xdata_write"), st.tuples(COUNTS, BYTES)),
    st.tuples(st.just("xdata_read"), st.tuples(st.integers(0, 0xFF00), st.integers(1, 0x100))),
)


def build(calls) -> CommandList:
    built = CommandList()
    for name, args in calls:
        getattr(built, name)(*args)
    return built


def some_list() -> CommandList:
    built = CommandList()
    built.write(0x8_0000_0000, 0x12345678)
    built.poll(0x1000, 1, 1, microseconds=50)
    with built.loop(3):
        built.read(0x2000)
        built.fence(8, 1, step=1, microseconds=7)
    return built


def result(built: CommandList, given: bytes, sequence: int = 0, **fields: int) -> bytes:
    return given + commands.RESULT_TRAILER.pack(sequence=sequence, **fields)


# -- lists ----------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.lists(CALLS, max_size=12), st.integers(0, 0xFFFF), st.sampled_from(commands.PACKETS))
def test_unpack_is_the_inverse_of_pack(calls, sequence, packet):
    built = build(calls)
    out, payload = built.pack(sequence, packet)
    assert unpack(out) == (sequence, tuple(built.operations))
    assert (len(out), payload) == (built.size, b"")
    assert commands.fletcher(out) == (0, 0)


def test_every_changed_bit_of_a_list_is_noticed():
    out, _ = some_list().pack(9, 1024)
    for bit in range(8 * len(out)):
        damaged = bytearray(out)
        damaged[bit // 8] ^= 1 << bit % 8
        assert commands.fletcher(bytes(damaged)) != (0, 0)


@given(st.binary(min_size=2, max_size=400), st.data())
def test_neighbours_that_change_places_are_noticed(data, draw):
    """In fact any two different bytes, unless distance times difference is a multiple of 256."""
    packed = bytearray(payload_packets(data + bytes(-len(data) % 4), 512))
    place = draw.draw(st.integers(4, len(packed) - 2))
    if packed[place] == packed[place + 1]:
        return
    packed[place], packed[place + 1] = packed[place + 1], packed[place]
    assert commands.fletcher(bytes(packed)) != (0, 0)


def test_a_damaged_list_does_not_unpack():
    out, _ = some_list().pack(9, 1024)
    for damaged, message in (
        (b"\0" + out[1:], "magic"),
        (out[:-8], f"a list of {len(out)} bytes"),
        (out[:20] + b"\xff" + out[21:], "checksum"),
        (out[:4], "length"),
    ):
        with pytest.raises(ListError, match=message):
            unpack(damaged)


# -- payload --------------------------------------------------------------------------------------------


@given(st.binary(max_size=5000).map(lambda data: data[: len(data) & ~3]), st.sampled_from(commands.PACKETS))
def test_payload_is_cut_into_packets_that_check_themselves(data, packet):
    packed = payload_packets(data, packet)
    found = b""
    for number, start in enumerate(range(0, len(packed), packet)):
        part = packed[start : start + packet]
        assert commands.fletcher(part) == (0, 0)
        assert commands.PAYLOAD_HEADER.unpack(part[:4])["number"] == number
        found += part[4:]
    assert found == data


def test_list_and_payload_begin_at_packets():
    built = CommandList()
    built.block_write(0x1000, b"\1" * 8)
    built.slot_out(1, 1, b"\2" * 1024)
    built.fifo_write(0x1000, b"\3" * 4)
    out, payload = built.pack(0, 1024)
    assert len(out) == 1024
    assert payload[:1024] == payload_packets(b"\1" * 8, 1024) + bytes(1012)
    assert payload[1024:2048] == b"\2" * 1024
    assert payload[2048:] == payload_packets(b"\3" * 4, 1024)


def test_payload_of_a_loop_is_sent_round_by_round():
    built = CommandList()
    with built.loop(2):
        built.slot_out(1, 1, b"a" * 512 + b"b" * 512)
        built.slot_out(2, 1, b"c" * 512 + b"d" * 512)
    assert built.pack(0, 512)[1] == b"".join(letter * 512 for letter in (b"a", b"c", b"b", b"d"))


# -- results --------------------------------------------------------------------------------------------


def test_values_of_a_result():
    built = CommandList()
    built.read(0)
    built.xdata_read(0x9000, 5)
    built.block_read(0, 2)
    assert built.result_size == 4 + 8 + 8 + 16
    found = built.parse(result(built, bytes(range(20))), 0)
    assert found.values == (0x03020100, bytes(range(4, 9)), bytes(range(12, 20)))
    assert found.failure is None


def test_a_failure_keeps_the_results_before_it():
    built = CommandList()
    built.read(0)
    built.block_read(0x1000, 8)
    found = built.parse(result(built, bytes(12), cause=1, opcode=9, index=1, address=0x1000), 0)
    assert found.values == (0,)
    assert found.partial == bytes(8)
    assert found.failure is not None
    assert found.failure.address == 0x1008
    assert str(found.failure) == "operation 1 (BLOCK_READ) failed at 0x1008: unsupported request"


def test_a_refusal_says_so():
    found = CommandList().parse(result(CommandList(), b"", sequence=77, cause=0x21), 5)
    assert str(found.failure) == "the list was refused: bad sequence"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a result"),
        (bytes(16), "not a result"),
        (result(CommandList(), b"", sequence=4), "of list 4, not of list 0"),
        (result(CommandList(), bytes(4)), "20 bytes"),
    ],
)
def test_data_that_is_not_a_result_of_the_list(data, message):
    with pytest.raises(ListError, match=message):
        CommandList().parse(data, 0)


# -- limits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda built: built.write(2, 0), "multiple of 4"),
        (lambda built: built.write(1 << 64, 0), "address"),
        (lambda built: built.write(0, 1 << 32), "dword"),
        (lambda built: built.write(0, 0, enables=16), "enables"),
        (lambda built: built.delay(commands.MICROSECONDS), "microseconds"),
        (lambda built: built.block_write(0, b"abc"), "whole units of 4"),
        (lambda built: built.block_write(0, bytes(4 << 16)), "count"),
        (lambda built: built.block_read(0xFFFF_FFFC, 2), "go beyond"),
        (lambda built: built.block_read((1 << 64) - 4, 2), "go beyond"),
        (lambda built: built.xdata_read(0xFFFF, 2), "XDATA"),
        (lambda built: built.xdata_write(0, 256), "byte"),
        (lambda built: built.slot_out(31, 2, bytes(512)), "sectors"),
        (lambda built: built.slot_in(1, 1, 33), "sectors"),
        (lambda built: built.fence(0x1000, 0, microseconds=0), "offset"),
        (lambda built: built.loop(0).__enter__(), "one round"),
        (lambda built: config_address(0, 32, 0, 0), "configuration space"),
    ],
)
def test_operands_that_are_not_allowed(call, message):
    with pytest.raises(ListError, match=message):
        call(CommandList())


def test_lists_that_are_not_allowed():
    built = CommandList()
    for _ in range(1024):
        built.write(0, 0)
    with pytest.raises(ListError, match="at most 16384"):
        built.pack(0, 1024)
    with pytest.raises(ListError, match="packets of 64"):
        CommandList().pack(0, 64)
    built = CommandList()
    built.slot_out(1, 1, bytes(512))
    built.slot_out(2, 1, bytes(512))
    with pytest.raises(ListError, match="whole packets of 1024"):
        built.pack(0, 1024)
    built.pack(0, 512)
    built = CommandList()
    built.slot_in(1, 1, 1)
    with pytest.raises(ListError, match="needs a sync"):
        built.pack(0, 1024)
    built.sync()
    built.block_write(0, bytes(4))
    with pytest.raises(ListError, match="after a SLOT_IN"):
        built.pack(0, 1024)
    built = CommandList()
    with pytest.raises(ListError, match="do not nest"), built.loop(2), built.loop(2):
        pass


def test_payload_may_come_in_pieces_of_the_callers_memory():
    data = bytes(range(256)) * 8
    view = memoryview(data)
    whole, pieces = CommandList(), CommandList()
    for built, payload in (
        (whole, data),
        (pieces, Parts([[view[:300], view[300:1024]], [view[1024:1025], view[1025:]]])),
    ):
        with built.loop(2):
            built.slot_out(1, 1, payload)
    assert pieces.pack(3, 1024) == whole.pack(3, 1024)
    assert [len(piece) for piece in pieces.payload(1024)] == [300, 724, 1, 1023]
    built = CommandList()
    with pytest.raises(ListError, match="1 rounds in a loop of 2"), built.loop(2):
        built.slot_out(1, 1, Parts([[view[:1024]]]))
    with pytest.raises(ListError, match="2 different sizes"):
        Parts([[view[:512]], [view[:1024]]])
    with pytest.raises(ListError, match="not whole units"):
        CommandList().slot_out(1, 1, Parts([[view[:100]]]))
