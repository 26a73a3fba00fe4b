"""IH: what it puts into its rings, and what it reports about them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.amdgpu import ih as ih_module
from emulator.amdgpu.ih import InterruptHandler
from tests.unit.amdgpu_bench import SRAM, read, write
from tests.unit.amdgpu_hub_bench import FB_BASE, START, Bench
from usbgpu.amd.facts import interrupts as facts

GRBM_CP, EOP = 0x14, 181


class Ih:
    """An interrupt handler with rings of 8 entries at 0x3000 and 0x4000 of VRAM."""

    def __init__(self, chip="gfx1100", *, skip=(), cntl=0):
        self.hub = Bench(chip, "MMHUB")
        self.context, self.vram = self.hub.context, self.hub.context.vram
        self.ih = InterruptHandler(self.context, self.hub.memory(client="OSSSYS"))
        self.hub.hub.faults.interrupts = self.ih
        for suffix, place in (("", 0x3000), ("_RING1", 0x4000)):
            overflow = 1 << 16 if not suffix else 0
            values = {
                "IH_RB_BASE": FB_BASE + place >> 8 & 0xFFFF_FFFF,
                "IH_RB_BASE_HI": FB_BASE >> 40,
                "IH_RB_CNTL": 4 << 28 | 6 << 1 | overflow | cntl,
                "IH_RB_WPTR": 0,
                "IH_RB_RPTR": 0,
                "IH_DOORBELL_RPTR": 0,
            }
            for name, value in values.items():
                if name + suffix not in skip:
                    self.write(name + suffix, value)
            if "enable" + suffix not in skip and f"IH_RB_CNTL{suffix}" not in skip:
                self.write(f"IH_RB_CNTL{suffix}", self.read(f"IH_RB_CNTL{suffix}") | 1)

    def write(self, name, value):
        write(self.context, "OSSSYS", name, value)

    def read(self, name):
        return read(self.context, "OSSSYS", name)

    def entry(self, index, ring=0x3000):
        return struct.unpack("<8I", self.vram.read(ring + 32 * index, 32))

    @property
    def steps(self):
        return self.context.diagnosis.steps


@pytest.fixture(name="ih", params=["gfx1100", "gfx1201"])
def _ih(request):
    return Ih(request.param)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    client=st.integers(0, 31),
    source=st.integers(0, 255),
    ring=st.integers(0, 255),
    vmid=st.integers(0, 15),
    data=st.tuples(*[st.integers(0, (1 << 32) - 1)] * 4),
)
def test_entries_read_as_the_kernel_reads_them(client, source, ring, vmid, data):
    ih = Ih()
    ih.context.link.run(8000)
    ih.ih.post(client, source, ring=ring, vmid=vmid, data=data)
    dwords = ih.entry(0)
    assert dwords[0] & 0xFF == client
    assert dwords[0] >> 8 & 0xFF == source
    assert dwords[0] >> 16 & 0xFF == ring
    assert dwords[0] >> 24 & 0xF == vmid
    assert dwords[0] >> 31 == (client == facts.CLIENTS["VMC"])
    assert dwords[1] | (dwords[2] & 0xFFFF) << 32 == 7000  # 8000 clocks are 70 us
    assert dwords[3] == 0
    assert dwords[4:] == data
    assert ih.read("IH_RB_WPTR") == 32
    assert not ih.steps


def test_a_ring_goes_round_while_it_is_read(ih):
    for number in range(20):
        ih.ih.post(GRBM_CP, EOP, data=(number, 0, 0, 0))
        assert ih.entry(number % 8)[4] == number
        assert ih.read("IH_RB_WPTR") == 32 * (number + 1) % 256
        ih.write("IH_RB_RPTR", ih.read("IH_RB_WPTR"))
    assert ih.read("IH_RB_RPTR") == 32 * 20 % 256
    assert not ih.context.diagnosis.findings


def test_a_full_ring_overflows_until_that_is_cleared(ih):
    for _ in range(7):
        ih.ih.post(GRBM_CP, EOP)
    assert not ih.read("IH_RB_WPTR") & 1
    ih.ih.post(GRBM_CP, EOP)
    assert ih.read("IH_RB_WPTR") == 1
    assert ih.read("IH_STATUS") & 1 << 5
    cntl = ih.read("IH_RB_CNTL")
    ih.write("IH_RB_CNTL", cntl | 1 << 31)
    assert ih.read("IH_RB_WPTR") == 0
    ih.write("IH_RB_WPTR", 1)
    ih.write("IH_RB_CNTL", cntl | 1 << 31)  # no change from 0 to 1
    assert ih.read("IH_RB_WPTR") == 1


def test_ring_1_gets_what_is_diverted(ih):
    ih.write("IH_RING1_CLIENT_CFG_INDEX", 3)
    ih.write("IH_RING1_CLIENT_CFG_DATA", 1 << 16 | 0 << 8 | 0x0A)
    ih.write("IH_RING1_CLIENT_CFG_INDEX", 0)
    assert ih.read("IH_RING1_CLIENT_CFG_DATA") == 0
    ih.ih.post(0x0A, 0, data=(5, 0, 0, 0))
    ih.ih.post(0x0A, 49, data=(6, 0, 0, 0))
    assert (ih.read("IH_RB_WPTR"), ih.read("IH_RB_WPTR_RING1")) == (32, 32)
    assert (ih.entry(0)[4], ih.entry(0, 0x4000)[4]) == (6, 5)
    for _ in range(8):
        ih.ih.post(0x0A, 0)
    assert ih.read("IH_RB_WPTR_RING1") == 32 * 7
    assert any("ring 1 is full" in finding.symptom for finding in ih.context.diagnosis.findings)


def test_the_write_pointer_goes_to_memory_if_enabled():
    ih = Ih(cntl=1 << 8)
    ih.write("IH_RB_WPTR_ADDR_LO", 0x5000)
    ih.write("IH_RB_WPTR_ADDR_HI", FB_BASE >> 32)
    ih.ih.post(GRBM_CP, EOP)
    assert ih.vram.read(0x5000, 4) == struct.pack("<I", 32)


def test_a_ring_in_host_memory():
    ih = Ih()
    ih.write("IH_RB_BASE", SRAM >> 8)
    ih.write("IH_RB_BASE_HI", 0)
    ih.write("IH_RB_CNTL", 2 << 28 | 6 << 1 | 1 << 16 | 1)
    ih.ih.post(GRBM_CP, EOP)
    assert ih.context.link.dma_read(SRAM, 2) == bytes((GRBM_CP, EOP))
    ih.write("IH_RB_BASE", 0)
    ih.ih.post(GRBM_CP, EOP)
    assert ih.steps == {"ih-ring"}


def test_a_ring_that_faults_does_not_recurse():
    ih = Ih()
    ih.hub.no_dummy()
    ih.write("IH_RB_BASE", START + 0x10_0000 >> 8 & 0xFFFF_FFFF)
    ih.write("IH_RB_BASE_HI", START >> 40)
    ih.ih.post(GRBM_CP, EOP)
    assert ih.steps == {"ih-ring"}
    assert ih.read("IH_RB_WPTR") == 0


def test_a_page_fault_gets_into_the_ring():
    ih = Ih()
    ih.hub.memory().write(START + 0x7000, b"nowhere")
    page = START + 0x7000 >> 12
    assert ih.entry(0)[0] == 0x12 | 1 << 31
    assert ih.entry(0)[4:] == (page & 0xFFFF_FFFF, page >> 32 | 0x20, 0, 0)


def test_the_read_pointer_may_come_by_doorbell(ih):
    """As the kernel has it."""
    ih.write("IH_DOORBELL_RPTR", 1 << 28 | 0x2F0)
    for _ in range(7):
        ih.ih.post(GRBM_CP, EOP)
    ih.write("IH_RB_RPTR", 64)
    assert ih.read("IH_RB_RPTR") == 0
    ih.ih.rung(0xBC0, 64)
    assert ih.read("IH_RB_RPTR") == 64
    ih.ih.post(GRBM_CP, EOP)
    assert ih.context.diagnosis.findings == []
    ih.ih.rung(0x18, 0)
    assert "no doorbell at 0x18" in ih.context.diagnosis.findings[0].symptom


SKIPPED = {
    "ih-ring": {"skip": ("IH_RB_CNTL",)},
    "ih-overflow": {},
    "ih-enable": {"skip": ("enable",)},
    "ih-ring1": {"skip": ("enable_RING1",)},
}


@pytest.mark.parametrize("step", ih_module.STEPS, ids=lambda step: step.key)
def test_each_step_that_is_left_out_is_noticed(step):
    ih = Ih(**SKIPPED[step.key])
    if step.key == "ih-ring":
        ih.write("IH_RB_CNTL", 4 << 28 | 1 << 16 | 1)
    if step.key == "ih-overflow":
        ih.write("IH_RB_CNTL", ih.read("IH_RB_CNTL") & ~(1 << 16))
    if step.key == "ih-ring1":
        ih.write("IH_RING1_CLIENT_CFG_DATA", GRBM_CP)
    for _ in range(9):
        ih.ih.post(GRBM_CP, EOP)
        ih.write("IH_RB_RPTR", 0 if step.key == "ih-overflow" else ih.read("IH_RB_WPTR") & ~1)
    assert ih.steps == {step.key}
