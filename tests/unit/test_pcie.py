"""Enumeration, over the emulated PCIe tree without a chip, and over emulated boards."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from emulator.core.clock import Scheduler, clocks, seconds
from emulator.pcie import config_space
from emulator.pcie.config_space import Capability, ConfigSpace, ConfiguredFunction, Identity, Resizable
from emulator.pcie.endpoint import OFFSETS, TestEndpoint
from emulator.pcie.fabric import Fabric, chain
from emulator.pcie.function import Bar, PcieFunction, Reset, Status
from emulator.pcie.ports import ASM2464PD_ROOT, BRIDGES, NAVI_DOWNSTREAM, BridgePort, Port
from firmware.protocol.command_list import CommandList
from firmware.protocol.operations import Failure
from sdk.errors import DeviceFailed, DeviceMissing
from tests.unit.pcie import RootRam
from usbgpu import pcie
from usbgpu.bridge.base import CAUSE
from usbgpu.bridge.seam import ListFailed, Reply

CAUSES = {
    Status.UR: CAUSE["unsupported request"],
    Status.CRS: CAUSE["configuration retry"],
    None: CAUSE["completion timeout"],
}
GIB = 1 << 30


class FabricBridge:
    """A bridge whose lists go straight to an emulated tree."""

    name = "fabric"

    def __init__(self, function: PcieFunction | None, ports: Sequence[Port] = BRIDGES, *, lists: bool = True):
        self.has_lists = lists
        self.scheduler = Scheduler()
        functions = [*(BridgePort(port) for port in ports), *([function] if function else [])]
        self.fabric = Fabric(chain(*functions), RootRam(), self.scheduler, bytes_per_second=10**9)
        self.clock = self
        self.runs: list[CommandList] = []

    def now(self) -> float:
        return seconds(self.scheduler.now)

    def sleep(self, duration: float) -> None:
        self.scheduler.now += clocks(duration)
        self.scheduler.run_due()

    def run(self, commands: CommandList) -> Reply:
        self.runs.append(commands)
        values: list[int | bytes] = []
        for index, operation in enumerate(commands.operations):
            address, enables = operation.address, operation.enables
            if operation.opcode.name == "CONFIG_WRITE":
                data = operation.value.to_bytes(4, "little")
                answer = self.fabric.config_write(address, data, enables, type1=address >= 1 << 24)
            elif operation.opcode.name == "CONFIG_READ":
                answer = self.fabric.config_read(address, enables, type1=address >= 1 << 24)
            else:
                answer = self.fabric.memory_read(address, enables)
            if answer.status is not Status.SC:
                failure = Failure(CAUSES[answer.status], index, operation.opcode.code, address)
                raise ListFailed(failure, tuple(values), where=self.name)
            if operation.opcode.result:
                values.append(int.from_bytes(answer.data, "little"))
        return Reply(tuple(values))

    def read(self, address: int) -> int:
        commands = CommandList()
        commands.read(address)
        (value,) = self.run(commands).values
        assert isinstance(value, int)
        return value


class Card(ConfiguredFunction):
    """A function with given BARs, which read as their own index."""

    def __init__(self, *bars: Bar, resizable: tuple[Resizable, ...] = (), place: int = 0x200) -> None:
        capabilities = [
            config_space.power_management(0x48),
            config_space.pci_express(0x64, "endpoint", generation=3, lanes=8),
        ]
        if resizable and place > 0x100:
            capabilities.append(Capability(0x0B, 0x100, 8))  # the list begins there
        if resizable:
            capabilities.append(config_space.resizable_bars(place, resizable, bars))
        header = config_space.type0(Identity(0x1002, 0x744C, 0x030000, 0xC8, 0x1EAE, 0x7901))
        super().__init__(ConfigSpace(header, bars, capabilities, resizable))
        self._bars = bars

    @property
    def bars(self) -> Sequence[Bar]:
        return [
            Bar(bar.index, self.config.sizes[bar.index], wide=bar.wide, prefetchable=bar.prefetchable)
            for bar in self._bars
        ]

    def read(self, bar: int, offset: int, size: int) -> bytes:
        return bytes([bar]) * size

    def write(self, bar: int, offset: int, data: bytes) -> None:
        pass


def graphics_card(place: int = 0x200) -> Card:
    """BARs as RDNA cards have them; that of the memory can have 256 MiB to 16 GiB."""
    sizes = tuple(256 << 20 << step for step in range(7))
    return Card(
        Bar(0, 256 << 20, wide=True, prefetchable=True),
        Bar(2, 2 << 20, wide=True, prefetchable=True),
        Bar(5, 1 << 20),
        resizable=(Resizable(0, sizes),),
        place=place,
    )


def every_bar_answers(bridge: FabricBridge, function: pcie.Function) -> None:
    for index, bar in function.bars.items():
        for address in (bar.address, bar.address + bar.size - 4):
            assert bridge.read(address) == index * 0x0101_0101


@pytest.mark.parametrize("place", [0x100, 0x200, 0x3F0, 0x800])
@pytest.mark.parametrize("lists", [True, False])
def test_a_graphics_card(place: int, lists: bool) -> None:
    """Its memory BAR gets its largest size, wherever the capability for that is."""
    bridge = FabricBridge(graphics_card(place), lists=lists)
    function = pcie.enumerate(bridge)
    assert (function.bdf, function.vendor, function.device) == ("04:00.0", 0x1002, 0x744C)
    assert (function.class_code, function.revision) == (0x030000, 0xC8)
    assert (function.subsystem_vendor, function.subsystem) == (0x1EAE, 0x7901)
    assert {index: bar.size for index, bar in function.bars.items()} == {0: 16 * GIB, 2: 2 << 20, 5: 1 << 20}
    assert [bar.prefetchable for bar in function.bars.values()] == [True, True, False]
    assert function.bars[0].address >= pcie.PREFETCHABLE.start
    assert pcie.MEMORY.start <= function.bars[5].address < 1 << 32
    every_bar_answers(bridge, function)
    assert function.config(0x2C) == 0x0400_002C


def test_it_takes_two_lists_and_a_second_search_takes_one() -> None:
    bridge = FabricBridge(graphics_card())
    function = pcie.enumerate(bridge)
    assert len(bridge.runs) == 2
    assert pcie.programmed(bridge) == function
    assert len(bridge.runs) == 3
    assert {operation.opcode.name for operation in bridge.runs[-1].operations} == {"CONFIG_READ"}


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 5, 9])
def test_other_depths_are_walked(depth: int) -> None:
    """The first attempt writes into the wrong functions; those writes must not stay."""
    ports = ([ASM2464PD_ROOT] * 9)[:depth]
    bridge = FabricBridge(graphics_card(), ports)
    function = pcie.enumerate(bridge)
    assert function.bus == depth
    assert function.bars[0].size == 16 * GIB
    every_bar_answers(bridge, function)
    assert pcie.programmed(bridge) is None, "it reads the usual place only"


def test_the_endpoint_of_the_tests_and_its_bars() -> None:
    bridge = FabricBridge(TestEndpoint())
    function = pcie.enumerate(bridge)
    assert {index: bar.size for index, bar in function.bars.items()} == {0: 16 << 20, 2: 4096}
    assert bridge.read(function.bars[2].address) == 0x4C57_4F54


def test_bars_of_all_kinds() -> None:
    """Of 32 bits and prefetchable, of 64 bits and not, small ones; each where its requests can reach it."""
    card = Card(
        Bar(0, 64 << 20, prefetchable=True),
        Bar(1, 16),
        Bar(2, 8 << 20, wide=True),
        Bar(4, 1 << 20, wide=True, prefetchable=True),
    )
    bridge = FabricBridge(card)
    function = pcie.enumerate(bridge)
    assert {index: bar.size for index, bar in function.bars.items()} == {
        0: 64 << 20,
        1: 16,
        2: 8 << 20,
        4: 1 << 20,
    }
    assert [index for index, bar in function.bars.items() if bar.address >> 32] == [4]
    every_bar_answers(bridge, function)
    assert pcie.programmed(bridge) == function


def test_ports_of_io_space_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As BAR 4 of RDNA cards, of 256 bytes."""
    bridge = FabricBridge(graphics_card())
    place, kept = 4 << 24 | 0x20, [1]
    read, write = bridge.fabric.config_read, bridge.fabric.config_write

    def config_read(address: int, enables: int, *, type1: bool):
        answer = read(address, enables, type1=type1)
        return answer._replace(data=kept[0].to_bytes(4, "little")) if address == place else answer

    def config_write(address: int, data: bytes, enables: int, *, type1: bool):
        if address == place:
            kept[0] = int.from_bytes(data, "little") & 0xFFFF_FF00 | 1
        return write(address, data, enables, type1=type1)

    monkeypatch.setattr(bridge.fabric, "config_read", config_read)
    monkeypatch.setattr(bridge.fabric, "config_write", config_write)
    function = pcie.enumerate(bridge)
    assert list(function.bars) == [0, 2, 5]
    assert kept == [1], "no address, and no ones"
    assert pcie.programmed(bridge) == function
    every_bar_answers(bridge, function)


def test_a_card_decodes_nothing_while_its_bars_hold_ones() -> None:
    bridge = FabricBridge(graphics_card())
    pcie.enumerate(bridge)
    pcie.enumerate(bridge)
    enabled = True
    for operation in bridge.runs[-2].operations + bridge.runs[-1].operations:
        if operation.opcode.name != "CONFIG_WRITE" or operation.address >> 24 != 4:
            continue
        register = operation.address & 0xFFF
        if register == pcie.COMMAND:
            enabled = bool(operation.value & pcie.MEMORY_ENABLE)
        else:
            assert not enabled, f"{register:#x} is written"
    assert enabled


def test_bars_do_not_touch() -> None:
    spans = sorted(
        (bar.address, bar.address + bar.size)
        for bar in pcie.enumerate(FabricBridge(graphics_card())).bars.values()
    )
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    assert all(start & -start == end - start for start, end in spans), "the address gives the size"


def test_a_bar_that_is_too_large() -> None:
    bridge = FabricBridge(Card(Bar(0, GIB), Bar(1, GIB)))
    with pytest.raises(DeviceFailed, match="BAR 1 of 1024 MiB does not fit"):
        pcie.enumerate(bridge)


def test_sizes_beyond_the_free_space_are_not_chosen() -> None:
    sizes = tuple(1 << 20 << step for step in range(28))
    bridge = FabricBridge(
        Card(Bar(0, 1 << 20, wide=True, prefetchable=True), resizable=(Resizable(0, sizes),))
    )
    assert pcie.enumerate(bridge).bars[0].size == pcie.LARGEST


@pytest.mark.parametrize("kind", [Reset.HOT, Reset.PERST])
def test_after_a_reset_everything_gets_the_same_place_again(kind: Reset) -> None:
    bridge = FabricBridge(graphics_card())
    function = pcie.enumerate(bridge)
    bridge.fabric.reset(kind)
    assert pcie.programmed(bridge) is None
    assert pcie.enumerate(bridge) == function
    every_bar_answers(bridge, function)


def test_after_a_reset_of_the_function_alone() -> None:
    card = graphics_card()
    bridge = FabricBridge(card)
    function = pcie.enumerate(bridge)
    card.reset(Reset.FUNCTION)
    assert pcie.programmed(bridge) is None
    assert pcie.enumerate(bridge) == function


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bus", "register"),
    [(bus, register) for bus in range(4) for register in (0x04, 0x18, 0x20, 0x24, 0x28, 0x2C)]
    + [(4, register) for register in (0x04, 0x14, 0x18, 0x1C, 0x24)],
)
def test_a_change_is_noticed(bus: int, register: int) -> None:
    bridge = FabricBridge(graphics_card())
    pcie.enumerate(bridge)
    commands = CommandList()
    commands.config_write(bus << 24 | register, 0 if register == 4 else 0x5550_5550)
    bridge.run(commands)
    assert pcie.programmed(bridge) is None


def test_an_empty_slot() -> None:
    bridge = FabricBridge(None, BRIDGES[:2])
    with pytest.raises(DeviceMissing, match="bus 2") as missing:
        pcie.enumerate(bridge)
    assert missing.value.hint
    assert pcie.READY <= bridge.now() < pcie.READY + 0.1
    assert pcie.programmed(bridge) is None


def test_a_bus_that_reads_ones_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some bridges return ones for requests that nothing claims."""
    monkeypatch.setattr(pcie, "READY", 0.05)
    card = graphics_card()
    bridge = FabricBridge(card)
    card.config.set(0, 64, int.from_bytes(b"\xff" * 64, "little"))
    with pytest.raises(DeviceMissing):
        pcie.enumerate(bridge)


@pytest.mark.parametrize("cause", ["completion timeout", "no completion", "link down"])
def test_a_switch_that_is_not_ready_yet(cause: str) -> None:
    bridge = FabricBridge(graphics_card())
    run = bridge.run

    def late(commands: CommandList) -> Reply:
        if bridge.now() < 0.3:
            raise ListFailed(Failure(CAUSE[cause], 0, 6, 0), (), where=bridge.name)
        return run(commands)

    bridge.run = late  # type: ignore[method-assign]
    if cause == "link down":
        with pytest.raises(ListFailed, match=cause):
            pcie.enumerate(bridge)
    else:
        assert pcie.enumerate(bridge).vendor == 0x1002


@pytest.mark.slow
@pytest.mark.parametrize("late", [0.3, 2.0])
def test_a_function_that_is_not_ready_yet(late: float) -> None:
    endpoint = TestEndpoint()
    bridge = FabricBridge(endpoint)
    endpoint.write(2, OFFSETS["RETRY"], clocks(late).to_bytes(4, "little"))
    if late < pcie.READY:
        assert pcie.enumerate(bridge).vendor == 0x1234
        return
    with pytest.raises(ListFailed, match="configuration retry"):
        pcie.enumerate(bridge)
    assert bridge.now() < pcie.READY + 0.1


def test_a_loop_of_capabilities_ends() -> None:
    card = graphics_card()
    card.config.set(0x200, 4, 0x200 << 20 | 0x1_0001)
    card.config.set(0x49, 1, 0x48)
    bridge = FabricBridge(card)
    assert pcie.enumerate(bridge).bars[0].size == 256 << 20
    pcie.link(bridge, pcie.enumerate(bridge))


@pytest.mark.parametrize("lists", [True, False])
def test_the_narrowest_link_counts(lists: bool) -> None:
    bridge = FabricBridge(graphics_card(), (*BRIDGES[:3], NAVI_DOWNSTREAM), lists=lists)
    function = pcie.enumerate(bridge)
    links = pcie.links(bridge, function)
    assert str(links.narrowest) == "16 GT/s x4"
    assert (links.bridge, links.card) == (pcie.Link(16.0, 4), pcie.Link(16.0, 16))
    assert pcie.link_now(bridge, pcie.link_registers(bridge, function.bus)) == pcie.Link(16.0, 4)
    bridge = FabricBridge(graphics_card(), [NAVI_DOWNSTREAM] * 4, lists=lists)
    function = pcie.enumerate(bridge)
    before = len(bridge.runs)
    assert pcie.link(bridge, function) == pcie.Link(8.0, 8)
    assert len(bridge.runs) - before == 1 or not lists
    registers = pcie.link_registers(bridge, function.bus)
    before = len(bridge.runs)
    assert pcie.link_now(bridge, registers) == pcie.Link(8.0, 8)
    assert len(bridge.runs) - before == 1
