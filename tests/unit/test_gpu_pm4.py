"""Packets of launches: compared with the values of published traces, and parsed again."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from usbgpu.amd import pm4
from usbgpu.amd.card import Card
from usbgpu.amd.facts import pm4 as facts
from usbgpu.amd.facts.chips import BASES, CHIPS
from usbgpu.seam import Launch

SCRATCH = pm4.Scratch(0x2000_0300_0000, 6 * 32 * 0x3300)


def programs(chip="gfx1100") -> pm4.Programs:
    return pm4.Programs(Card(SimpleNamespace(), CHIPS[chip], {}, 0, 0, 0, BASES))  # type: ignore[arg-type]


def launch(scratch=0) -> Launch:
    return Launch("k", 0x2000_1234_5600, 0x111, 0x222, 0x333, scratch, b"", (7, 8, 9), (64, 2, 1))


def taken_apart(words: list[int]) -> list[tuple[str, dict[str, int], list[int]]]:
    packets = []
    while words:
        size = facts.body_size(words[0])
        assert len(words) > size, "a packet exceeds the end"
        packet = facts.BY_OPCODE[facts.opcode(words[0])]
        body = words[1 : 1 + size]
        packets.append((packet.name, packet.unpack(body), body[packet.size :]))
        words = words[1 + size :]
    return packets


def registers(words: list[int]) -> dict[str, int]:
    """What SET_SH_REG packets set, by name."""
    found = {}
    for name, parts, data in taken_apart(words):
        if name == "SET_SH_REG":
            for index, value in enumerate(data, facts.SH_REGISTERS.start + parts["REG_OFFSET"]):
                found[CHIPS["gfx1100"].by_address[index][1].name] = value
    return found


def test_caches_and_signals_are_those_of_published_drivers():
    assert pm4.acquire()[-1] == 0xC3F1
    assert pm4.barrier()[-1] == 0x3F0
    assert pm4.barrier()[1] == 0x407
    assert pm4.release(0x1000, 5)[1:] == [0x0070_F514, 0x2000_0000, 0x1000, 0, 5, 0, 0]
    assert pm4.wait_memory(0x1_0000_1000, 9)[1:] == [0x15, 0x1000, 1, 9, 0xFFFF_FFFF, 4]
    assert pm4.indirect(0x2000_0000_1000, 0x123)[1:] == [0x1000, 0x2000, 1 << 23 | 0x123]


@pytest.mark.parametrize("chip", CHIPS)
def test_a_submission_begins_with_flushes(chip):
    words = programs(chip).begin()
    assert words[:7] == [0xC005_3C00, 0x43, 0xE26, 0xE27, 4, 4, 4], "as Linux has it"
    assert [name for name, _, _ in taken_apart(words)][1] == "ACQUIRE_MEM"
    assert set(registers(words).values()) == {0}


@pytest.mark.parametrize("chip", CHIPS)
def test_a_dispatch_sets_what_it_needs(chip):
    assert programs(chip).dispatch(launch())[1:] == [7, 8, 9, 0x8005]
    words = programs(chip).prepare(launch(), 0x2000_0000_4440)
    assert registers(words) == {
        "COMPUTE_PGM_LO": 0x0012_3456,
        "COMPUTE_PGM_HI": 0x20,
        "COMPUTE_PGM_RSRC1": 0x111,
        "COMPUTE_PGM_RSRC2": 0x222,
        "COMPUTE_PGM_RSRC3": 0x333,
        "COMPUTE_TMPRING_SIZE": 0,
        "COMPUTE_USER_DATA_0": 0x4440,
        "COMPUTE_USER_DATA_1": 0x2000,
        "COMPUTE_NUM_THREAD_X": 64,
        "COMPUTE_NUM_THREAD_Y": 2,
        "COMPUTE_NUM_THREAD_Z": 1,
    }


def test_only_registers_that_change_are_set_again():
    maker, held = programs(), {}
    maker.prepare(launch(), 0x4440, None, held)
    assert maker.prepare(launch(), 0x4440, None, held) == []
    other = replace(launch(100), threads=(32, 1, 1))
    assert registers(maker.prepare(other, 0x4450, SCRATCH, held)).keys() == {
        "COMPUTE_USER_DATA_0", "COMPUTE_USER_DATA_1",
        *(f"COMPUTE_NUM_THREAD_{axis}" for axis in "XYZ"),
        "COMPUTE_TMPRING_SIZE", "COMPUTE_DISPATCH_SCRATCH_BASE_LO", "COMPUTE_DISPATCH_SCRATCH_BASE_HI",
    }  # fmt: skip
    assert registers(maker.prepare(launch(), 0x4450, None, held))["COMPUTE_TMPRING_SIZE"] == 0


def test_scratch_memory_is_counted_in_waves_of_an_engine():
    assert pm4.scratch_wave(launch(100)) == 3328
    assert pm4.scratch_wave(launch(0)) == 0
    found = registers(programs().prepare(launch(100), 0, SCRATCH))
    assert found["COMPUTE_TMPRING_SIZE"] == SCRATCH.size // 3328 // 6 | 13 << 12
    assert found["COMPUTE_DISPATCH_SCRATCH_BASE_LO"] == SCRATCH.address >> 8 & 0xFFFF_FFFF
    assert found["COMPUTE_DISPATCH_SCRATCH_BASE_HI"] == SCRATCH.address >> 40


@pytest.mark.parametrize("dwords", [1, 2, 3, 100, 0x4000])
def test_padding_is_as_long_as_it_says(dwords):
    (word,) = pm4.nop(dwords)
    assert facts.opcode(word) == 0x10
    assert 1 + facts.body_size(word) == dwords
