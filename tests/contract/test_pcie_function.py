"""What every PCIe function of the emulator must do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from emulator.amdgpu.card import AmdCard
from emulator.core.clock import Scheduler
from emulator.pcie.endpoint import TestEndpoint
from emulator.pcie.fabric import Fabric, Node
from emulator.pcie.function import PcieFunction, Reset, Status, UnsupportedRequest, Upstream
from emulator.pcie.ports import BRIDGES, BridgePort
from sdk.errors import InternalError
from tests.unit.pcie import RootRam
from usbgpu.amd.facts.chips import CHIPS

FUNCTIONS: dict[str, Callable[[], PcieFunction]] = {
    "test-endpoint": partial(TestEndpoint, 1 << 20),
    **{f"card-{name}": partial(AmdCard, name, 1 << 30) for name in CHIPS},
    **{
        f"bus-{bus}-{port.kind.replace(' ', '-')}": partial(BridgePort, port)
        for bus, port in enumerate(BRIDGES)
    },
}
"""Add a function here to test it."""

BASES = (0x4000_0000, 0x8_0000_0000)
"""Where BARs are put, 32-bit and 64-bit ones; each BAR as far above as its index times 16 GiB or 256 MiB."""


class Plugged:
    """A function, alone in a fabric."""

    def __init__(self, function: PcieFunction) -> None:
        self.function = function
        self.upstreams: list[Upstream] = []
        attach = function.attach

        def noted(upstream: Upstream) -> None:
            self.upstreams.append(upstream)
            attach(upstream)

        function.attach = noted  # type: ignore[method-assign]
        self.clock = Scheduler()
        self.memory = RootRam()
        self.fabric = Fabric(Node(function), self.memory, self.clock, bytes_per_second=10**9)

    @property
    def upstream(self) -> Upstream:
        return self.upstreams[0]

    def read(self, offset: int, enables: int = 0xF) -> int:
        completion = self.fabric.config_read(offset, enables, type1=False)
        assert completion.status is Status.SC
        assert completion.data is not None
        return int.from_bytes(completion.data, "little")

    def write(self, offset: int, value: int, enables: int = 0xF) -> None:
        completion = self.fabric.config_write(offset, value.to_bytes(4, "little"), enables, type1=False)
        assert completion.status is Status.SC
        assert completion.data is None

    def command(self, value: int) -> None:
        self.write(0x04, value, 0x3)

    def place_bars(self) -> dict[int, int]:
        """Give every BAR an address; by index."""
        bases = {}
        for bar in self.function.bars:
            base = BASES[1] + (bar.index << 34) if bar.wide else BASES[0] + (bar.index << 28)
            self.write(0x10 + 4 * bar.index, base & 0xFFFFFFFF)
            if bar.wide:
                self.write(0x14 + 4 * bar.index, base >> 32)
            bases[bar.index] = base
        return bases


@pytest.fixture(params=FUNCTIONS, name="plugged")
def _plugged(request):
    return Plugged(FUNCTIONS[request.param]())


def test_header_has_an_identity(plugged):
    identity = plugged.read(0x00)
    assert identity & 0xFFFF not in (0x0000, 0xFFFF)
    assert identity >> 16 not in (0x0000, 0xFFFF)
    assert plugged.read(0x08) >> 8 != 0
    assert plugged.read(0x0C) >> 16 & 0x7F in (0, 1)


def test_nothing_is_enabled_after_power_on(plugged):
    assert plugged.read(0x04, 0x3) == 0
    for bar in plugged.function.bars:
        assert plugged.read(0x10 + 4 * bar.index) & ~0xF == 0


def test_read_only_bits_hold(plugged):
    read_only = [0x00, 0x08, *([0x2C] if plugged.read(0x0C) >> 16 & 0x7F == 0 else [])]
    before = {offset: plugged.read(offset) for offset in read_only}
    for offset in read_only:
        plugged.write(offset, ~before[offset] & 0xFFFFFFFF)
    assert {offset: plugged.read(offset) for offset in read_only} == before
    kind = plugged.read(0x0C, 0x4)
    plugged.write(0x0C, 0x00FF0000, 0x4)
    assert plugged.read(0x0C, 0x4) == kind


def test_disabled_bytes_are_neither_read_nor_written(plugged):
    whole = plugged.read(0x00)
    for enables in range(16):
        mask = sum(0xFF << 8 * lane for lane in range(4) if enables >> lane & 1)
        assert plugged.read(0x00, enables) == whole & mask
    before = plugged.read(0x04)
    plugged.write(0x04, 0xFFFFFFFF, 0x0)
    plugged.write(0x04, 0x00000006, 0xC)
    assert plugged.read(0x04) == before
    plugged.write(0x04, 0xFFFF0006, 0x1)
    assert plugged.read(0x04, 0x3) == 0x0006


def test_bars_are_sound(plugged):
    taken = [index for bar in plugged.function.bars for index in range(bar.index, bar.index + 1 + bar.wide)]
    assert len(taken) == len(set(taken))
    for bar in plugged.function.bars:
        assert 0 <= bar.index <= 5 - bar.wide
        assert bar.size >= 16
        assert bar.size & (bar.size - 1) == 0
        if bar.memory is not None:
            assert len(bar.memory) >= bar.size


def test_bars_show_their_size(plugged):
    for bar in plugged.function.bars:
        place = 0x10 + 4 * bar.index
        kind = plugged.read(place) & 0xF
        assert kind == (0x4 if bar.wide else 0) | (0x8 if bar.prefetchable else 0)
        plugged.write(place, 0xFFFFFFFF)
        mask = plugged.read(place) & ~0xF
        if bar.wide:
            plugged.write(place + 4, 0xFFFFFFFF)
            mask |= plugged.read(place + 4) << 32
        assert (1 << (64 if bar.wide else 32)) - mask == bar.size
        plugged.write(place, 0xFFFFFFFF ^ bar.size & 0xFFFFFFFF)
        assert plugged.read(place) & 0xF == kind
        assert (plugged.read(place) & ~0xF & 0xFFFFFFFF) % min(bar.size, 1 << 32) == 0


def test_unused_bars_read_zero(plugged):
    bridge = plugged.read(0x0C) >> 16 & 0x7F == 1
    places = set(range(0x10, 0x18 if bridge else 0x28, 4))
    used = {0x10 + 4 * (bar.index + high) for bar in plugged.function.bars for high in range(1 + bar.wide)}
    for place in places - used:
        plugged.write(place, 0xFFFFFFFF)
        assert plugged.read(place) == 0


def test_memory_requests_need_memory_enable_and_an_address(plugged):
    bases = plugged.place_bars()
    fabric = plugged.fabric
    for bar in plugged.function.bars:
        base = bases[bar.index]
        plugged.command(0x0000)
        assert fabric.memory_read(base, 0xF).status is Status.UR
        assert fabric.raw_ranges() == []
        plugged.command(0x0002)
        assert fabric.memory_read(base, 0xF).status is Status.SC
        assert fabric.memory_read(base - 4, 0xF).status is Status.UR
        assert fabric.memory_read(base + bar.size, 0xF).status is Status.UR


def test_requests_outside_a_bar_are_refused(plugged):
    for index, size in [(bar.index, bar.size) for bar in plugged.function.bars] or [(0, 0)]:
        for offset in (size, size + 0x1000):
            with pytest.raises(UnsupportedRequest):
                plugged.function.read(index, offset, 4)
            with pytest.raises(UnsupportedRequest):
                plugged.function.write(index, offset, bytes(4))


def test_raw_memory_is_what_requests_see(plugged):
    bases = plugged.place_bars()
    plugged.command(0x0002)
    raw = {entry.base: entry for entry in plugged.fabric.raw_ranges()}
    for bar in plugged.function.bars:
        if bar.memory is None:
            assert bases[bar.index] not in raw
            continue
        entry = raw[bases[bar.index]]
        assert (entry.size, entry.offset) == (bar.size, 0)
        memory = entry.memory
        for place in (0, bar.size - 4):
            memory[place : place + 4] = b"\x11\x22\x33\x44"
            assert plugged.function.read(bar.index, place, 4) == b"\x11\x22\x33\x44"
            for enables in range(16):
                memory[place : place + 4] = b"\x11\x22\x33\x44"
                plugged.fabric.memory_write(bases[bar.index] + place, b"\xaa\xbb\xcc\xdd", enables)
                expected = bytes(
                    (b"\xaa\xbb\xcc\xdd" if enables >> lane & 1 else b"\x11\x22\x33\x44")[lane]
                    for lane in range(4)
                )
                assert bytes(memory[place : place + 4]) == expected
                read = plugged.fabric.memory_read(bases[bar.index] + place, enables).data
                assert read == bytes(expected[lane] if enables >> lane & 1 else 0 for lane in range(4))
        whole = bytes(range(256)) * 16
        plugged.function.write(bar.index, 0, whole)
        assert plugged.function.read(bar.index, 0, 4096) == whole


@pytest.mark.slow
@pytest.mark.parametrize("kind", Reset)
def test_a_reset_ends_decoding_and_mastering(plugged, kind):
    bases = plugged.place_bars()
    plugged.command(0x0006)
    before = plugged.read(0x00)
    plugged.fabric.reset(kind)
    assert plugged.read(0x00) == before
    assert plugged.read(0x04, 0x3) == 0
    for base in bases.values():
        assert plugged.fabric.memory_read(base, 0xF).status is Status.UR
    with pytest.raises(UnsupportedRequest):
        plugged.upstream.dma_read(0x200000, 4)
    plugged.place_bars()
    plugged.command(0x0006)
    for base in bases.values():
        assert plugged.fabric.memory_read(base, 0xF).status is Status.SC


def test_bus_mastering_needs_its_bit_and_a_target(plugged):
    plugged.memory.data[:4] = b"abcd"
    for command in (0x0000, 0x0002):
        plugged.command(command)
        with pytest.raises(UnsupportedRequest):
            plugged.upstream.dma_read(0x200000, 4)
        with pytest.raises(UnsupportedRequest):
            plugged.upstream.dma_write(0x200000, b"xyzw")
    assert plugged.memory.data[:4] == b"abcd"
    plugged.command(0x0004)
    assert plugged.upstream.dma_read(0x200000, 4) == b"abcd"
    plugged.upstream.dma_write(0x200001, b"--")
    assert plugged.memory.data[:4] == b"a--d"
    with pytest.raises(UnsupportedRequest):
        plugged.upstream.dma_write(0x100000, b"xyzw")


def test_a_reset_cancels_what_was_scheduled(plugged):
    happened = []
    plugged.upstream.schedule(10, lambda: happened.append("before"))
    plugged.clock.now = plugged.upstream.now() + 10
    plugged.clock.run_due()
    plugged.upstream.schedule(10, lambda: happened.append("after"))
    plugged.fabric.reset(Reset.HOT)
    plugged.clock.now += 10
    plugged.clock.run_due()
    assert happened == ["before"]


def test_capability_lists_end(plugged):
    assert plugged.read(0x04) >> 20 & 1, "the status register says that there is no list"
    seen = {}
    offset = plugged.read(0x34, 0x1)
    while offset:
        assert 0x40 <= offset <= 0xFC
        assert offset & 3 == 0
        assert offset not in seen
        header = plugged.read(offset)
        seen[offset] = header & 0xFF
        offset = header >> 8 & 0xFF
    assert list(seen.values()).count(0x10) == 1, "a PCI Express function has one PCI Express capability"
    seen = {}
    offset = 0x100
    while offset and plugged.read(offset):
        assert offset & 3 == 0
        assert offset not in seen
        header = plugged.read(offset)
        seen[offset] = header & 0xFFFF
        offset = header >> 20
    assert all(0x100 <= place <= 0xFFC for place in seen)


def test_power_state_d3_stops_memory_requests_and_bus_mastering(plugged):
    offset = plugged.read(0x34, 0x1)
    while offset and plugged.read(offset) & 0xFF != 0x01:
        offset = plugged.read(offset) >> 8 & 0xFF
    if not offset:
        pytest.skip("no power management capability")
    bases = plugged.place_bars()
    plugged.command(0x0006)
    plugged.write(offset + 4, 0x0003, 0x3)
    for base in bases.values():
        assert plugged.fabric.memory_read(base, 0xF).status is Status.UR
    with pytest.raises(UnsupportedRequest):
        plugged.upstream.dma_read(0x200000, 4)
    plugged.write(offset + 4, 0x0000, 0x3)
    for base in bases.values():
        assert plugged.fabric.memory_read(base, 0xF).status is Status.SC
    assert plugged.upstream.dma_read(0x200000, 4) == bytes(4)


def test_it_is_attached_once_and_before_anything_else(plugged):
    assert len(plugged.upstreams) == 1
    with pytest.raises(InternalError):
        plugged.function.attach(plugged.upstream)
