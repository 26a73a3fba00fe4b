"""PCI Express enumeration: the one function behind the bridge, found and given its addresses.

    function = pcie.find(bridge)
    print(function.bdf, function.bars[0].address)

Behind the bridge is a chain of ports, each alone on its bus, and at its end the function: on an AMD card on
bus 4, behind two ports of the bridge chip and two of the card's own switch (hardware: lspci listings).
Enumeration tries that first, and walks down only if it is not there. Register layouts and the ways to size
and resize BARs are the PCI Express base specification's (chapter 7; resizable BARs: 7.8.6).

Everything that is programmed here is lost with a reset. `enumerate` then does it again, and assigns the same
addresses. A BAR is placed where the lowest bit that is set in its address is its size: so `programmed` can
tell sizes from addresses alone, and need not write ones into the BARs of a card that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from firmware.protocol.command_list import CommandList
from firmware.protocol.operands import config_address
from sdk.errors import DeviceFailed, DeviceMissing
from usbgpu.bridge.base import CAUSE
from usbgpu.bridge.seam import Bridge, ListFailed, Reply

USUAL_DEPTH = 4
"""Bridges before the function of an AMD card, and so its bus."""
DEEPEST = 16
READY = 1.0
"""Seconds that a function may take to answer after a reset (PCI Express base specification, 6.6.1)."""
RETRY_INTERVAL = 0.01

MEBIBYTE = 1 << 20
MEMORY = range(0x1000_0000, 0xF000_0000)
"""Addresses for BARs that are not prefetchable, or of 32 bits; the bridge's own memory is below."""
PREFETCHABLE = range(0x8_0000_0000, 0x100_0000_0000)
"""Addresses for prefetchable BARs of 64 bits."""
LARGEST = 256 << 30
"""Bytes of the largest size that a resizable BAR is given: PREFETCHABLE has room for it."""
LARGEST_32 = 256 << 20
"""The same in MEMORY."""

# -- registers: of the headers of types 0 and 1, and of capabilities -----------------------------------------

IDENTITY, COMMAND, CLASS, HEADER, BARS, SUBSYSTEM, CAPABILITIES = 0x00, 0x04, 0x08, 0x0C, 0x10, 0x2C, 0x34
BUS_NUMBERS, WINDOW, PREFETCHABLE_WINDOW, WINDOW_HIGH, LIMIT_HIGH = 0x18, 0x20, 0x24, 0x28, 0x2C
EXTENDED_CAPABILITIES = 0x100
PCI_EXPRESS, LINK_CAPABILITIES, LINK_STATUS = 0x10, 0x0C, 0x10
"""The capability's id, the dword with what the link could be, and that with its status in the upper half."""
SLOT_PORT, CARD_PORT = 1, 2
"""Buses of the two ends of the link in the slot: the bridge's second port, and the card's first."""
RESIZABLE_BAR = 0x15

MEMORY_ENABLE, BUS_MASTER = 0x2, 0x4
BRIDGE = 1
BAR_COUNT = 6
BAR_REGISTERS = range(BARS, BARS + 4 * BAR_COUNT, 4)
COMMAND_BYTES = 0b0011
"""Byte enables that leave the status register alone."""
ONES = 0xFFFF_FFFF
ON = MEMORY_ENABLE | BUS_MASTER

NEEDED = (IDENTITY, CLASS, HEADER, SUBSYSTEM, CAPABILITIES)
HEADER_AND_CAPABILITIES = range(0, EXTENDED_CAPABILITIES, 4)
SNAPSHOT = range(0, 0x400, 4)
"""What is read of the function in advance where that costs no transfers: lists of capabilities are chains."""
RATES = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
"""GT/s of a lane, by the link status' speed."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A base address register that has been given an address.

    Attributes:
        address: on PCIe.
        size: bytes.
        prefetchable: reading has no side effects.
    """

    address: int
    size: int
    prefetchable: bool


@dataclass(frozen=True, slots=True)
class Function:
    """The function, with its addresses.

    Attributes:
        bus: its bus; device and function are 0. Also the number of bridges before it.
        vendor: id; so are the next three.
        class_code: base class, subclass and interface.
        bars: by index; those of I/O space are left out.
    """

    bus: int
    vendor: int
    device: int
    subsystem_vendor: int
    subsystem: int
    revision: int
    class_code: int
    bars: Mapping[int, Bar]

    @property
    def bdf(self) -> str:
        """Bus, device and function, as lspci writes them."""
        return f"{self.bus:02x}:00.0"

    def config(self, register: int) -> int:
        """A register's address for operations of configuration space; `register` is a multiple of 4."""
        return config_address(self.bus, 0, 0, register)


@dataclass(frozen=True, slots=True)
class Link:
    """A link as it was trained.

    Attributes:
        rate: GT/s of a lane; 0 if the port reports an unknown one.
        lanes: how many.
    """

    rate: float
    lanes: int

    def __str__(self) -> str:
        return f"{self.rate:g} GT/s x{self.lanes}"

    @property
    def throughput(self) -> float:
        """To compare links by."""
        return self.rate * self.lanes


@dataclass(frozen=True, slots=True)
class Links:
    """The links between the bridge and a function.

    Attributes:
        narrowest: of them, as trained.
        bridge: the best that the bridge's port of the slot could do.
        card: the best that the card's port there could do.
    """

    narrowest: Link
    bridge: Link
    card: Link


def find(bridge: Bridge) -> Function:
    """The function with its addresses: as it was left, or enumerated, with the slot powered first if need be.

    Raises: as `enumerate`.
    """
    function = programmed(bridge)
    if function is not None:
        return function
    try:
        return enumerate(bridge)
    except ListFailed as problem:
        if problem.failure.cause != CAUSE["link down"]:
            raise
    bridge.power(True)
    return enumerate(bridge)


def enumerate(bridge: Bridge) -> Function:
    """Number the buses, size the BARs, make resizable ones as large as can be, assign and enable everything.

    Meanwhile the function decodes no memory. Two lists, four transfers, if the function is where it
    usually is.

    Raises:
        DeviceMissing: nothing is behind the bridge, or it is not ready within READY.
        DeviceFailed: the BARs do not fit into the available addresses.
        ListFailed: another failure of the link or the card.
    """
    end = bridge.clock.now() + READY
    while True:
        try:
            return _program(bridge, _look(bridge))
        except (_NotThere, ListFailed) as problem:
            if bridge.clock.now() >= end or not _may_pass(problem):
                raise
        bridge.clock.sleep(RETRY_INTERVAL)


def programmed(bridge: Bridge) -> Function | None:
    """The function, if everything is as `enumerate` has left it; None if it is not. One list of reads.

    Looks only where the function usually is.
    """
    bus = USUAL_DEPTH
    commands = CommandList()
    for port in range(bus):
        for register in (COMMAND, BUS_NUMBERS, WINDOW, PREFETCHABLE_WINDOW, WINDOW_HIGH, LIMIT_HIGH):
            commands.config_read(config_address(port, 0, 0, register))
    registers = (IDENTITY, COMMAND, CLASS, HEADER, SUBSYSTEM, *BAR_REGISTERS)
    for register in registers:
        commands.config_read(config_address(bus, 0, 0, register))
    try:
        values = _dwords(bridge.run(commands))
    except ListFailed:
        return None
    known = dict(zip(registers, values[6 * bus :], strict=True))
    bars = {
        index: Bar(address, address & -address, prefetchable)
        for index, address, _, prefetchable in _bars([known[register] for register in BAR_REGISTERS])
    }
    for port in range(bus):
        command, numbers, *windows = values[6 * port : 6 * port + 6]
        if command & ON != ON or numbers & 0xFF_FFFF != _numbers(port, bus):
            return None
        # The lowest bits of base and limit only say that they have 64 bits.
        windows = [windows[0] & 0xFFF0_FFF0, windows[1] & 0xFFF0_FFF0, *windows[2:]]
        if windows != list(_windows(bars).values()):
            return None
    if not bars or known[COMMAND] & ON != ON or _layout(known[HEADER]) == BRIDGE:
        return None
    return _function(bus, known, bars)


def link(bridge: Bridge, function: Function) -> Link:
    """The narrowest link between the bridge and a function, as the ports report."""
    return links(bridge, function).narrowest


def links(bridge: Bridge, function: Function) -> Links:
    """The links between the bridge and a function, as the ports report; one transfer over lists."""
    trained: list[Link] = []
    best: dict[int, Link] = {}
    for space, place in _ports(_spaces(bridge, range(function.bus + 1))):
        trained.append(_link(space[place + LINK_STATUS] >> 16))
        best[space.bus] = _link(space[place + LINK_CAPABILITIES])
    unknown = Link(0.0, 0)
    return Links(
        _narrowest(trained),
        best.get(min(SLOT_PORT, function.bus - 1), unknown),
        best.get(min(CARD_PORT, function.bus), unknown),
    )


def link_registers(bridge: Bridge, bus: int) -> list[int]:
    """Where the ports' link statuses are, down to the function on a bus: for `link_now`."""
    spaces = _spaces(bridge, range(bus + 1))
    return [config_address(space.bus, 0, 0, place + LINK_STATUS) for space, place in _ports(spaces)]


def link_now(bridge: Bridge, registers: Sequence[int]) -> Link:
    """The same as `link`, of registers that are known: one short list."""
    commands = CommandList()
    for register in registers:
        commands.config_read(register)
    return _narrowest(_link(dword >> 16) for dword in _dwords(bridge.run(commands)))


def _ports(spaces: Iterable[_Space]) -> Iterator[tuple[_Space, int]]:
    """Those of PCI Express, each with the place of that capability."""
    for space in spaces:
        for place in _capabilities(space):
            if space[place] & 0xFF == PCI_EXPRESS:
                yield space, place


def _link(fields: int) -> Link:
    """Of speed and width as link status and link capabilities have them."""
    return Link(RATES.get(fields & 0xF, 0.0), fields >> 4 & 0x3F)


def _narrowest(links: Iterable[Link]) -> Link:
    return min(links, key=lambda each: each.throughput, default=Link(0.0, 0))


# -- looking -------------------------------------------------------------------------------------------------


class _NotThere(DeviceMissing):
    """Nothing answers behind the bridge."""


def _may_pass(problem: _NotThere | ListFailed) -> bool:
    """Whether it is what happens while a function, or a switch before it, is not ready yet."""
    return isinstance(problem, _NotThere) or problem.failure.cause in _PASSING


_PASSING = frozenset(CAUSE[words] for words in ("configuration retry", "completion timeout", "no completion"))


def _look(bridge: Bridge) -> _Found:
    """Number the buses, and look at the function."""
    found = _survey(bridge, USUAL_DEPTH)
    if found is None:
        bus = _walk(bridge)
        found = _survey(bridge, bus)
        if found is None:
            raise _NotThere(f"the function on PCIe bus {bus} is gone", where=bridge.name)
    return found


class _Space:
    """Configuration space of the function on a bus, read when asked for.

    Args:
        known: registers that have been read.
    """

    def __init__(self, bridge: Bridge, bus: int, known: dict[int, int]) -> None:
        self.bus = bus
        self.known = known
        self._bridge = bridge

    def __getitem__(self, register: int) -> int:
        if register not in self.known:
            commands = CommandList()
            commands.config_read(config_address(self.bus, 0, 0, register))
            self.known[register] = _dwords(self._bridge.run(commands))[0]
        return self.known[register]


def _spaces(bridge: Bridge, buses: Iterable[int]) -> list[_Space]:
    """Configuration spaces whose first 256 bytes have been read, where that costs no transfers."""
    spaces = [_Space(bridge, bus, {}) for bus in buses]
    if bridge.has_lists:
        commands = CommandList()
        for space in spaces:
            for register in HEADER_AND_CAPABILITIES:
                commands.config_read(config_address(space.bus, 0, 0, register))
        values = iter(_dwords(bridge.run(commands)))
        for space in spaces:
            space.known.update((register, next(values)) for register in HEADER_AND_CAPABILITIES)
    return spaces


@dataclass(frozen=True, slots=True)
class _Found:
    """A function that has been looked at, and decodes nothing.

    Attributes:
        space: its registers.
        masks: of its BARs: what they read after ones have been written.
    """

    space: _Space
    masks: Sequence[int]


def _survey(bridge: Bridge, bus: int) -> _Found | None:
    """Number the buses down to that one and look at the function on it; None if it is not there.

    What is written to functions that turn out to be others is written again once the right one is found.
    """
    commands = CommandList()
    for port in range(bus):
        commands.config_read(config_address(port, 0, 0, HEADER))
        commands.config_write(config_address(port, 0, 0, BUS_NUMBERS), _numbers(port, bus))
    registers = SNAPSHOT if bridge.has_lists else NEEDED
    for register in registers:
        commands.config_read(config_address(bus, 0, 0, register))
    commands.config_write(config_address(bus, 0, 0, COMMAND), 0, COMMAND_BYTES)
    for register in BAR_REGISTERS:
        commands.config_write(config_address(bus, 0, 0, register), ONES)
        commands.config_read(config_address(bus, 0, 0, register))
    try:
        values = _dwords(bridge.run(commands))
    except ListFailed as problem:
        if problem.failure.cause != CAUSE["unsupported request"]:
            raise
        return None
    headers, values, masks = values[:bus], values[bus:-BAR_COUNT], values[-BAR_COUNT:]
    space = _Space(bridge, bus, dict(zip(registers, values, strict=True)))
    if any(_layout(header) != BRIDGE for header in headers) or _layout(space[HEADER]) == BRIDGE:
        return None
    if space[IDENTITY] == ONES:  # some bridges answer so for what is not there
        return None
    return _Found(space, masks)


def _walk(bridge: Bridge) -> int:
    """Go down from bridge to bridge; the bus of the first function that is not a bridge."""
    for bus in range(DEEPEST):
        commands = CommandList()
        if bus:
            commands.config_write(config_address(bus - 1, 0, 0, BUS_NUMBERS), _numbers(bus - 1, 0xFF))
        commands.config_read(config_address(bus, 0, 0, HEADER))
        try:
            header = _dwords(bridge.run(commands))[0]
        except ListFailed as problem:
            if problem.failure.cause != CAUSE["unsupported request"]:
                raise
            raise _NotThere(
                f"nothing answers on PCIe bus {bus}",
                where=bridge.name,
                hint="check that a card is in the slot and its own power is connected",
            ) from problem
        if _layout(header) != BRIDGE:
            return bus
    raise DeviceFailed(f"more than {DEEPEST} PCIe bridges in a row", where=bridge.name)


def _layout(header: int) -> int:
    return header >> 16 & 0x7F


def _capabilities(space: _Space) -> Iterator[int]:
    """Where the capabilities are, from the list in the first 256 bytes."""
    place = space[CAPABILITIES] & 0xFC
    for _ in range(48):  # as many as have room
        if not place:
            return
        yield place
        place = space[place] >> 8 & 0xFC


def _extended_capabilities(space: _Space) -> Iterator[int]:
    place = EXTENDED_CAPABILITIES
    for _ in range(960):  # as many as have room
        if place < EXTENDED_CAPABILITIES or space[place] in (0, ONES):
            return
        yield place
        place = space[place] >> 20 & 0xFFC


def _bars(values: Sequence[int]) -> Iterator[tuple[int, int, bool, bool]]:
    """BARs of memory by what the registers hold: index, address or mask, whether of 64 bits, prefetchable."""
    index = 0
    while index < BAR_COUNT:
        low = values[index]
        wide = low & 0x7 == 0x4 and index + 1 < BAR_COUNT
        value = low & ~0xF | (values[index + 1] << 32 if wide else 0)
        if not low & 1 and value:
            yield index, value, wide, bool(low & 0x8)
        index += 1 + wide


# -- assigning -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Wanted:
    """A BAR that has no address yet."""

    index: int
    size: int
    wide: bool
    prefetchable: bool

    @property
    def window(self) -> range:
        return PREFETCHABLE if self.wide and self.prefetchable else MEMORY


def _program(bridge: Bridge, found: _Found) -> Function:
    """Give a function its addresses, and open the way to them."""
    space, bus = found.space, found.space.bus
    wanted = {
        index: _Wanted(index, _size(mask, wide), wide, prefetchable)
        for index, mask, wide, prefetchable in _bars(found.masks)
    }
    commands = CommandList()
    for register, value in _resized(space, wanted):
        commands.config_write(config_address(bus, 0, 0, register), value)
    bars = _placed(bridge, wanted.values())
    values = {index: 0 for index, mask in zip(range(BAR_COUNT), found.masks, strict=True) if mask}
    for index, bar in bars.items():
        values[index] = bar.address & ONES
        if wanted[index].wide:
            values[index + 1] = bar.address >> 32
    for index, value in values.items():  # also those of I/O space, which hold ones
        commands.config_write(config_address(bus, 0, 0, BAR_REGISTERS[index]), value)
    for port in range(bus):
        for register, value in _windows(bars).items():
            commands.config_write(config_address(port, 0, 0, register), value)
        commands.config_write(config_address(port, 0, 0, COMMAND), ON, COMMAND_BYTES)
    commands.config_write(config_address(bus, 0, 0, COMMAND), ON, COMMAND_BYTES)
    bridge.run(commands)
    return _function(bus, space.known, bars)


def _size(mask: int, wide: bool) -> int:
    """Bytes of a BAR by the address bits that it has."""
    return (1 << (64 if wide else 32)) - mask


def _resized(space: _Space, wanted: Mapping[int, _Wanted]) -> Iterator[tuple[int, int]]:
    """Settings of the resizable BAR capability, by register, for the largest sizes; those go to `wanted`."""
    for place in _extended_capabilities(space):
        if space[place] & 0xFFFF != RESIZABLE_BAR:
            continue
        count = space[place + 8] >> 5 & 0x7
        for entry in range(place, place + 8 * count, 8):
            sizes, control = space[entry + 4] >> 4, space[entry + 8]
            bar = wanted.get(control & 0x7)
            if bar is None:
                continue
            limit = LARGEST if bar.window is PREFETCHABLE else LARGEST_32
            possible = [bit for bit in range(28) if sizes >> bit & 1 and MEBIBYTE << bit <= limit]
            if possible:
                bar.size = MEBIBYTE << possible[-1]
                yield entry + 8, control & ~0x3F00 | possible[-1] << 8


def _placed(bridge: Bridge, wanted: Iterable[_Wanted]) -> dict[int, Bar]:
    """Addresses for BARs, each an odd multiple of its size."""
    bars = {}
    free = {MEMORY: MEMORY.start, PREFETCHABLE: PREFETCHABLE.start}
    for bar in sorted(wanted, key=lambda bar: -bar.size):
        twice = 2 * bar.size
        address = -(-(free[bar.window] - bar.size) // twice) * twice + bar.size
        free[bar.window] = address + bar.size
        if address + bar.size > bar.window.stop:
            raise DeviceFailed(
                f"BAR {bar.index} of {bar.size >> 20} MiB does not fit into the addresses from "
                f"{bar.window.start:#x} to {bar.window.stop:#x}",
                where=bridge.name,
            )
        bars[bar.index] = Bar(address, bar.size, bar.prefetchable)
    return dict(sorted(bars.items()))


def _windows(bars: Mapping[int, Bar]) -> dict[int, int]:
    """Windows of a bridge for exactly these BARs, by register."""
    low, high = ([bar for bar in bars.values() if bar.address in window] for window in (MEMORY, PREFETCHABLE))
    base, last = _span(low)
    prefetchable_base, prefetchable_last = _span(high)
    return {
        WINDOW: _halves(base, last),
        PREFETCHABLE_WINDOW: _halves(prefetchable_base, prefetchable_last),
        WINDOW_HIGH: prefetchable_base >> 32,
        LIMIT_HIGH: prefetchable_last >> 32,
    }


def _span(bars: Sequence[Bar]) -> tuple[int, int]:
    """First and last address of a window; one that ends before it begins is closed."""
    if not bars:
        return 0xFFF0_0000, 0
    return min(bar.address for bar in bars), max(bar.address + bar.size for bar in bars) - 1


def _halves(base: int, last: int) -> int:
    """A dword of base and limit, in units of 1 MiB."""
    return base >> 16 & 0xFFF0 | last & 0xFFF0_0000


def _numbers(port: int, last: int) -> int:
    """Primary, secondary and subordinate bus of the bridge on a bus, with `last` the lowest one down."""
    return last << 16 | port + 1 << 8 | port


def _function(bus: int, known: Mapping[int, int], bars: Mapping[int, Bar]) -> Function:
    return Function(
        bus,
        vendor=known[IDENTITY] & 0xFFFF,
        device=known[IDENTITY] >> 16,
        subsystem_vendor=known[SUBSYSTEM] & 0xFFFF,
        subsystem=known[SUBSYSTEM] >> 16,
        revision=known[CLASS] & 0xFF,
        class_code=known[CLASS] >> 8,
        bars=bars,
    )


def _dwords(reply: Reply) -> list[int]:
    return [value for value in reply.values if isinstance(value, int)]
