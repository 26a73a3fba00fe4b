"""Programs for the copy engine."""

import pytest

from sdk.errors import InternalError
from sdk.facts.registers import FactError
from usbgpu.amd.facts import sdma
from usbgpu.amd.sdma import COPY_LIMIT, WRITE_LIMIT, Program


def packets(program, generation=11):
    """Name and parts of each packet; the dwords of a write come last."""
    words, found = list(program.dwords), []
    while words:
        kind = sdma.packet(words[0])
        size = sdma.length(words[0], generation)
        parts = kind.unpack(words[:size])
        if kind.name == "WRITE_UNTILED":
            size += parts["count"] + 1
        found.append((kind.name, parts, words[kind.size : size]))
        words = words[size:]
    return found


def test_packets_have_the_parts_they_are_given():
    program = Program()
    program.copy(0x2000_0000_1003, 0x2000_0000_2001, 5)
    program.fence(0x2000_0000_3000, -1 & 0x1_FFFF_FFFF)
    program.poll(0x2000_0000_3000, 7)
    program.poll_register(0x1234, 3)
    program.fill(0x2000_0000_4000, 64, 0xABCD)
    program.write(0x2000_0000_5000, bytes(range(8)))
    copy, fence, memory, register, fill, write = packets(program)
    assert copy[0] == "COPY_LINEAR"
    assert (copy[1]["src_addr"], copy[1]["dst_addr"], copy[1]["count"]) == (
        0x2000_0000_1003,
        0x2000_0000_2001,
        4,
    )
    assert (fence[1]["addr"], fence[1]["data"]) == (0x2000_0000_3000, 0xFFFF_FFFF)
    assert (memory[1]["mem_poll"], memory[1]["addr"], memory[1]["value"]) == (1, 0x2000_0000_3000, 7)
    assert memory[1]["retry_count"] == sdma.FOR_EVER
    assert sdma.FUNCTIONS[memory[1]["func"]] == "=="
    assert (register[1]["mem_poll"], register[1]["addr"], register[1]["value"]) == (0, 0x48D0, 3)
    assert (fill[1]["count"], fill[1]["src_data"], fill[1]["fillsize"]) == (63, 0xABCD, 2)
    assert (write[1]["dst_addr"], write[1]["count"], write[2]) == (
        0x2000_0000_5000,
        1,
        [0x03020100, 0x07060504],
    )
    assert len(program.pack()) == 4 * len(program)


def test_what_is_long_is_several_packets():
    program = Program()
    program.copy(0, 1 << 40, COPY_LIMIT + 1)
    program.write(0x100, bytes(4 * WRITE_LIMIT + 8))
    one, two, three, four = packets(program)
    assert [one[1]["count"], two[1]["count"]] == [COPY_LIMIT - 1, 0]
    assert (two[1]["src_addr"], two[1]["dst_addr"]) == (COPY_LIMIT, (1 << 40) + COPY_LIMIT)
    assert (len(three[2]), len(four[2])) == (WRITE_LIMIT, 2)
    assert four[1]["dst_addr"] == 0x100 + 4 * WRITE_LIMIT


@pytest.mark.parametrize("place", range(8))
def test_an_indirect_buffer_is_entered_where_the_engine_requires_it(place):
    program = Program()
    program.fence(0, 1)
    program.indirect(0x2000_0000_0020, 100, place)
    assert (place + len(program)) % sdma.IB_PACKET_END == 0
    name, parts, _ = packets(program)[-1]
    assert (name, parts["ib_base"], parts["ib_size"]) == ("INDIRECT", 0x2000_0000_0020, 100)
    assert all(name == "NOP" for name, _, _ in packets(program)[1:-1])


def test_invalid_packets_are_refused():
    with pytest.raises(InternalError, match="indirect"):
        Program().indirect(0x2000_0000_0004, 1, 0)
    with pytest.raises(FactError, match="does not fit"):
        Program().copy(1 << 64, 0, 1)
