"""Routing through the bridges of the board, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.core.clock import Scheduler
from emulator.pcie.endpoint import OFFSETS, TestEndpoint
from emulator.pcie.fabric import Fabric, Node, chain
from emulator.pcie.function import Reset, Status, UnsupportedRequest
from emulator.pcie.ports import BRIDGES, BridgePort, bridges
from tests.unit.pcie import PREFETCHABLE, WINDOW, RootRam

MEMORY, MASTER = 0x2, 0x4


class Host:
    """Programs a fabric without a chip."""

    def __init__(self, *endpoints):
        self.endpoints = endpoints or (TestEndpoint(1 << 20),)
        self.clock = Scheduler()
        self.memory = RootRam()
        ports = [BridgePort(port) for port in BRIDGES]
        node = tuple(Node(endpoint, device) for device, endpoint in enumerate(self.endpoints))
        for port in reversed(ports):
            node = (Node(port, below=node),)
        self.fabric = Fabric(node[0], self.memory, self.clock, bytes_per_second=10**9)

    def address(self, bus, register, device=0):
        return bus << 24 | device << 19 | register

    def read(self, bus, register, device=0):
        answer = self.fabric.config_read(self.address(bus, register, device), 0xF, type1=bus > 0)
        return answer if answer.status else int.from_bytes(answer.data, "little")

    def write(self, bus, register, value, device=0, enables=0xF):
        data = value.to_bytes(4, "little")
        address = self.address(bus, register, device)
        return self.fabric.config_write(address, data, enables, type1=bus > 0).status

    def numbers(self):
        for bus in range(4):
            assert self.write(bus, 0x18, 4 << 16 | bus + 1 << 8) is Status.SC

    def open(self):
        self.numbers()
        for bus in range(4):
            self.write(bus, 0x20, 0xFFFF << 16 | WINDOW >> 16)
            self.write(bus, 0x24, 0xFFFF << 16 | PREFETCHABLE >> 16 & 0xFFFF)
            self.write(bus, 0x28, PREFETCHABLE >> 32)
            self.write(bus, 0x2C, 0xFFFFFFFF)
            self.write(bus, 0x04, MEMORY | MASTER)
        for device in range(len(self.endpoints)):
            self.write(4, 0x10, device << 24, device)
            self.write(4, 0x14, PREFETCHABLE >> 32, device)
            self.write(4, 0x18, WINDOW | device << 24, device)
            self.write(4, 0x04, MEMORY | MASTER, device)


def test_buses_appear_as_their_numbers_are_written():
    host = Host()
    for bus in range(1, 5):
        assert host.read(bus, 0x00).status is Status.UR
        host.write(bus - 1, 0x18, 4 << 16 | bus << 8)
        assert host.read(bus, 0x00) >> 16 in (0x2463, 0x1478, 0x1479, 0x70E1)
    assert host.read(4, 0x00) == 0x70E11234
    assert host.read(5, 0x00).status is Status.UR
    assert host.read(4, 0x00, device=1).status is Status.UR


def test_type_0_is_for_the_root_port_alone():
    host = Host()
    host.numbers()
    assert host.fabric.config_read(0, 0xF, type1=False).data == bytes.fromhex("211b6324")
    assert host.fabric.config_read(1 << 19, 0xF, type1=False).status is Status.UR
    assert host.fabric.config_read(0, 0xF, type1=True).status is Status.UR


def test_a_completion_names_its_completer():
    host = Host()
    host.open()
    assert host.fabric.config_read(4 << 24, 0xF, type1=True).completer == 0x0400
    assert host.fabric.memory_read(WINDOW, 0xF).completer == 0x0400


@pytest.mark.parametrize("bus", range(5))
def test_every_bridge_on_the_way_must_decode_memory(bus):
    host = Host()
    host.open()
    assert host.fabric.memory_read(WINDOW, 0xF).status is Status.SC
    assert host.fabric.memory_read(PREFETCHABLE, 0xF).status is Status.SC
    assert len(host.fabric.raw_ranges()) == 1
    host.write(bus, 0x04, MASTER)
    assert host.fabric.memory_read(WINDOW, 0xF).status is Status.UR
    assert host.fabric.memory_read(PREFETCHABLE, 0xF).status is Status.UR
    assert host.fabric.raw_ranges() == []


@pytest.mark.parametrize("bus", range(5))
def test_every_bridge_on_the_way_must_master_the_bus(bus):
    host = Host()
    host.open()
    upstream = host.endpoints[0].upstream
    assert upstream.dma_read(0x200000, 4) == bytes(4)
    host.write(bus, 0x04, MEMORY)
    with pytest.raises(UnsupportedRequest):
        upstream.dma_read(0x200000, 4)


@pytest.mark.parametrize("bus", range(4))
def test_windows_bound_what_passes(bus):
    host = Host()
    host.open()
    host.write(bus, 0x20, 0x2FF0 << 16 | 0x2000)
    assert host.fabric.memory_read(WINDOW, 0xF).status is Status.UR
    assert host.fabric.memory_read(PREFETCHABLE, 0xF).status is Status.SC
    host.write(4, 0x18, 0x2FFFF000)
    assert host.fabric.memory_read(0x2FFFF000, 0xF).status is Status.SC
    host.write(bus, 0x20, 0x1FF0 << 16 | 0x2000)
    assert host.fabric.memory_read(0x2FFFF000, 0xF).status is Status.UR


def test_a_window_that_covers_half_a_bar_lets_half_through():
    host = Host(TestEndpoint(4 << 20))
    host.open()
    host.write(2, 0x24, 0x0010 << 16 | 0x0000)
    host.write(2, 0x2C, PREFETCHABLE >> 32)
    (raw,) = host.fabric.raw_ranges()
    assert (raw.base, raw.size, raw.offset) == (PREFETCHABLE, 2 << 20, 0)
    assert host.fabric.memory_read(PREFETCHABLE + (2 << 20) - 4, 0xF).status is Status.SC
    assert host.fabric.memory_read(PREFETCHABLE + (2 << 20), 0xF).status is Status.UR


def test_a_bus_master_does_not_reach_what_is_behind_bridges():
    host = Host()
    host.open()
    with pytest.raises(UnsupportedRequest):
        host.endpoints[0].upstream.dma_read(WINDOW, 4)


def test_two_functions_on_one_bus():
    host = Host(TestEndpoint(1 << 20), TestEndpoint(1 << 20))
    host.open()
    host.fabric.memory_write(PREFETCHABLE | 1 << 24, b"abcd", 0xF)
    assert [endpoint.memory[:4] for endpoint in host.endpoints] == [bytes(4), b"abcd"]
    assert [entry.completer for entry in host.fabric.raw_ranges()] == [0x0400, 0x0408]


def test_bars_on_top_of_each_other_are_not_raw():
    host = Host(TestEndpoint(1 << 20), TestEndpoint(1 << 20))
    host.open()
    host.write(4, 0x10, 0, device=1)
    assert host.fabric.raw_ranges() == []
    host.fabric.memory_write(PREFETCHABLE, b"abcd", 0xF)
    assert [endpoint.memory[:4] for endpoint in host.endpoints] == [b"abcd", bytes(4)]


def test_secondary_bus_reset_resets_and_hides_what_is_below():
    host = Host()
    host.open()
    host.write(1, 0x3C, 0x0040 << 16, enables=0xC)
    assert host.read(2, 0x00).status is Status.UR
    assert host.fabric.memory_read(WINDOW, 0xF).status is Status.UR
    host.write(1, 0x3C, 0, enables=0xC)
    assert host.read(2, 0x18) == 0
    host.numbers()
    assert host.read(4, 0x04) & 0xFFFF == 0
    assert host.read(1, 0x04) & 0xFFFF == MEMORY | MASTER


def test_function_level_reset_is_requested_in_device_control():
    host = Host()
    host.open()
    capability = 0x60
    happened = []
    host.endpoints[0].upstream.schedule(1, lambda: happened.append(1))
    host.write(4, capability + 8, 0x8000, enables=0x3)
    assert host.read(4, 0x04) & 0xFFFF == 0
    host.clock.now += 1
    host.clock.run_due()
    assert happened == []
    host.write(3, 0x58 + 8, 0x8000, enables=0x3)
    assert host.read(3, 0x04) & 0xFFFF == MEMORY | MASTER, "ports have no function level reset"


def test_listeners_get_changed_routes_only():
    host = Host()
    heard = []
    host.fabric.on_route_change(lambda: heard.append(1))
    host.write(0, 0x3C, 0x55, enables=0x1)
    assert heard == []
    host.write(0, 0x04, MEMORY)
    assert heard == [1]
    host.fabric.reset(Reset.PERST)
    assert heard == [1, 1]


def test_retry_is_for_configuration_only():
    host = Host()
    host.open()
    host.fabric.memory_write(WINDOW + OFFSETS["RETRY"], (100).to_bytes(4, "little"), 0xF)
    assert host.read(4, 0x00).status is Status.CRS
    assert host.write(4, 0x04, 0) is Status.CRS
    assert host.fabric.memory_read(WINDOW, 0xF).status is Status.SC
    host.clock.now += 100
    assert host.read(4, 0x00) == 0x70E11234


@given(st.integers(0, 15), st.integers(0, 0xFFFF), st.binary(min_size=4, max_size=4))
def test_byte_enables(enables, dword, data):
    host = HOST
    address = PREFETCHABLE + 4 * dword
    host.endpoints[0].memory[4 * dword : 4 * dword + 4] = b"\x01\x02\x03\x04"
    host.fabric.memory_write(address, data, enables)
    expected = bytes(data[lane] if enables >> lane & 1 else lane + 1 for lane in range(4))
    assert host.endpoints[0].memory[4 * dword : 4 * dword + 4] == expected
    read = host.fabric.memory_read(address, enables).data
    assert read == bytes(expected[lane] if enables >> lane & 1 else 0 for lane in range(4))


HOST = Host()
HOST.open()


def test_the_board_has_its_buses():
    node = chain(*bridges(), TestEndpoint(1 << 20))
    depth = 0
    while node.below:
        (node,) = node.below
        depth += 1
    assert depth == 4
