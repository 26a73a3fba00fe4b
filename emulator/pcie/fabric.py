"""The PCIe tree behind the TLP engine: where a request goes, and what comes back.

Routing follows the headers that the host has programmed, and nothing else (PCI Express base specification,
7.3 and 7.5; PCI-to-PCI bridge architecture): configuration requests by bus number, memory requests by BARs
and bridge windows as far as memory decoding is on all the way, bus masters' requests upward as far as bus
mastering is. What no function claims is an unsupported request. The fabric reads headers through the
functions' own `config_read` after every configuration write and reset, so that any function routes alike.

Requests from one function to another (peer to peer) are refused.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from emulator.core.clock import Scheduler, clocks
from emulator.pcie import config_space
from emulator.pcie.function import (
    Bar,
    PcieFunction,
    RawMemory,
    RequestFailed,
    Reset,
    Status,
    UnsupportedRequest,
)

log = logging.getLogger(__name__)

Span = tuple[int, int]
"""Addresses from the first to before the second."""

EVERYWHERE: Span = (0, 1 << 64)


class RootMemory(Protocol):
    """What bus masters reach above the root port: the bridge chip's memory."""

    def read(self, address: int, size: int) -> bytes:
        """Bytes of memory. Raises UnsupportedRequest where there is none."""

    def write(self, address: int, data: bytes) -> None:
        """Change memory. Raises UnsupportedRequest where there is none."""


@dataclass(frozen=True, slots=True)
class Node:
    """A function and its place in the tree.

    Attributes:
        function: what plugs in there.
        device: device number on its bus.
        number: function number of its device.
        below: what is on the secondary bus, if the function is a bridge.
    """

    function: PcieFunction
    device: int = 0
    number: int = 0
    below: tuple[Node, ...] = ()


def chain(*functions: PcieFunction) -> Node:
    """A tree without branches: each function on the secondary bus of the one before."""
    first, *rest = functions
    return Node(first, below=(chain(*rest),) if rest else ())


class Completion(NamedTuple):
    """The answer to a non-posted request.

    Attributes:
        status: completion status; None if no completion ever comes.
        data: the dword of a successful read, in memory order; disabled bytes are 0.
        completer: bus << 8 | device << 3 | function.
        delay: clocks it comes later than usual.
    """

    status: Status | None
    data: bytes | None = None
    completer: int = 0
    delay: int = 0


@dataclass(frozen=True, slots=True)
class RawRange:
    """Addresses behind which there is memory without side effects.

    Attributes:
        base: PCIe address.
        size: bytes.
        memory: where they are, from `offset` on.
        completer: as in Completion.
    """

    base: int
    size: int
    memory: RawMemory
    offset: int
    completer: int


@dataclass(frozen=True, slots=True)
class _Header:
    """What a function's configuration says about routing."""

    decodes: bool = False
    masters: bool = False
    secondary: int = 0
    subordinate: int = 0
    windows: tuple[Span, ...] = ()
    bars: tuple[tuple[int, Bar], ...] = ()
    holds_reset: bool = False


@dataclass(slots=True, eq=False)
class _Place:
    """A node of the running fabric; also the `Upstream` of its function."""

    fabric: Fabric
    node: Node
    parent: _Place | None
    header: _Header = field(default_factory=_Header)
    below: list[_Place] = field(default_factory=list)
    resets: int = 0

    @property
    def bus(self) -> int:
        return 0 if self.parent is None else self.parent.header.secondary

    @property
    def identity(self) -> int:
        return self.bus << 8 | self.node.device << 3 | self.node.number

    def walk(self) -> Iterator[_Place]:
        yield self
        for place in self.below:
            yield from place.walk()

    def dma_read(self, address: int, size: int) -> bytes:
        self._check(address, size)
        return self.fabric.memory.read(address, size)

    def dma_write(self, address: int, data: bytes) -> None:
        self._check(address, len(data))
        self.fabric.memory.write(address, data)

    def transfer_clocks(self, size: int) -> int:
        return clocks(size / self.fabric.bytes_per_second)

    def now(self) -> int:
        return self.fabric.clock.now

    def schedule(self, clocks: int, action: Callable[[], None]) -> None:
        resets = self.resets

        def unless_reset() -> None:
            if self.resets == resets:
                action()

        self.fabric.clock.after(clocks, unless_reset)

    def delay_completion(self, clocks: int) -> None:
        self.fabric.delay = clocks

    def _check(self, address: int, size: int) -> None:
        """Whether a request of this function makes it to the root."""
        place: _Place | None = self
        while place is not None:
            header = place.header
            claimed = any(low < address + size and address < high for low, high in header.windows)
            if not header.masters or (header.decodes and claimed):
                raise UnsupportedRequest
            place = place.parent


@dataclass(frozen=True, slots=True)
class _Route:
    """Addresses that reach a BAR."""

    low: int
    high: int
    place: _Place
    bar: Bar
    base: int


class Fabric:
    """The tree of functions below the TLP engine.

    Args:
        root: the root port, with everything below it.
        memory: what bus masters reach.
        clock: virtual time.
        bytes_per_second: what the link carries of a bus master's data.

    Attributes:
        delay: clocks by which the read being served is delayed.
    """

    def __init__(self, root: Node, memory: RootMemory, clock: Scheduler, *, bytes_per_second: int) -> None:
        self.memory = memory
        self.clock = clock
        self.bytes_per_second = bytes_per_second
        self.delay = 0
        self._root = self._place(root, None)
        self._routes: list[_Route] = []
        self._listeners: list[Callable[[], None]] = []
        for place in self._root.walk():
            place.node.function.attach(place)
        for place in self._root.walk():
            place.header = _snoop(place.node.function)
        self._reroute()

    def on_route_change(self, action: Callable[[], None]) -> None:
        """Call `action` whenever memory requests may go elsewhere than before."""
        self._listeners.append(action)

    def reset(self, kind: Reset) -> None:
        """Reset every function of the tree."""
        self._reset(self._root, kind)
        self._reroute()

    # -- requests from above ----------------------------------------------------------------------------

    def config_read(self, address: int, byte_enables: int, *, type1: bool) -> Completion:
        """A configuration read.

        Args:
            address: bus << 24 | device << 19 | function << 16 | register, as in the TLP.
            byte_enables: of the dword.
            type1: routed by bus number; type 0 is for the function at the end of the link, the root port.
        """
        place = self._configured(address, type1)
        if place is None:
            return Completion(Status.UR)
        try:
            value = place.node.function.config_read(address & 0xFFC, byte_enables)
        except RequestFailed as failure:
            return Completion(failure.status, completer=place.identity)
        return Completion(Status.SC, value.to_bytes(4, "little"), place.identity)

    def config_write(self, address: int, data: bytes, byte_enables: int, *, type1: bool) -> Completion:
        """A configuration write of a dword; arguments as for `config_read`."""
        place = self._configured(address, type1)
        if place is None:
            return Completion(Status.UR)
        completer = place.identity
        register, value = address & 0xFFC, int.from_bytes(data, "little")
        try:
            resets = _initiates_reset(place.node.function, register, value, byte_enables)
            place.node.function.config_write(register, value, byte_enables)
        except RequestFailed as failure:
            return Completion(failure.status, completer=completer)
        if resets:
            place.resets += 1
            place.node.function.reset(Reset.FUNCTION)
        self._learn(place)
        return Completion(Status.SC, completer=completer)

    def memory_read(self, address: int, byte_enables: int) -> Completion:
        """A read of the enabled bytes of a dword. With none enabled it reads nothing, but is completed."""
        route = self._route(address & ~3)
        if route is None:
            return Completion(Status.UR)
        data = bytearray(4)
        self.delay = 0
        try:
            for lane, size in _RUNS[byte_enables]:
                offset = (address & ~3) + lane - route.base
                data[lane : lane + size] = route.place.node.function.read(route.bar.index, offset, size)
        except RequestFailed as failure:
            return Completion(failure.status, completer=route.place.identity, delay=self.delay)
        return Completion(Status.SC, bytes(data), route.place.identity, self.delay)

    def memory_write(self, address: int, data: bytes, byte_enables: int) -> None:
        """A posted write of the enabled bytes of a dword; a failure is only logged."""
        route = self._route(address & ~3)
        try:
            if route is None:
                raise UnsupportedRequest
            for lane, size in _RUNS[byte_enables]:
                offset = (address & ~3) + lane - route.base
                route.place.node.function.write(route.bar.index, offset, data[lane : lane + size])
        except RequestFailed as failure:
            log.info("write to PCIe address %#x is lost: %s", address, type(failure).__name__)

    def raw_ranges(self) -> list[RawRange]:
        """Where memory requests mean nothing but storage, at this moment."""
        ordered = sorted(self._routes, key=lambda route: route.low)
        if any(one.high > other.low for one, other in itertools.pairwise(ordered)):
            return []  # BARs on top of each other: first come, first served is for `_route` to decide
        ranges = []
        for route in ordered:
            memory = route.bar.memory
            if memory is not None and len(memory) >= route.bar.size:
                offset, size = route.low - route.base, route.high - route.low
                ranges.append(RawRange(route.low, size, memory, offset, route.place.identity))
        return ranges

    # -- inside -----------------------------------------------------------------------------------------

    def _place(self, node: Node, parent: _Place | None) -> _Place:
        place = _Place(self, node, parent)
        place.below = [self._place(child, place) for child in node.below]
        return place

    def _configured(self, address: int, type1: bool) -> _Place | None:
        """The function that a configuration request is for."""
        bus, slot = address >> 24 & 0xFF, (address >> 19 & 0x1F, address >> 16 & 0x7)
        places = [self._root]
        while type1:
            for place in places:
                header = place.header
                if header.secondary and header.secondary <= bus <= header.subordinate:
                    places = place.below
                    type1 = bus != header.secondary
                    break
            else:
                return None
        return next((place for place in places if slot == (place.node.device, place.node.number)), None)

    def _route(self, address: int) -> _Route | None:
        for route in self._routes:
            if route.low <= address < route.high:
                return route
        return None

    def _learn(self, place: _Place) -> None:
        """A function's configuration may have changed."""
        before, place.header = place.header, _snoop(place.node.function)
        if place.header.holds_reset and not before.holds_reset:
            for child in place.below:
                self._reset(child, Reset.HOT)
        if place.header != before:
            self._reroute()

    def _reset(self, top: _Place, kind: Reset) -> None:
        for place in top.walk():
            place.resets += 1
            place.node.function.reset(kind)
            place.header = _snoop(place.node.function)

    def _reroute(self) -> None:
        self._routes = list(_routes([self._root], (EVERYWHERE,)))
        for listener in self._listeners:
            listener()


def _routes(places: list[_Place], spans: tuple[Span, ...]) -> Iterator[_Route]:
    """The BARs on a bus and below it, as far as requests for `spans` arrive there."""
    for place in places:
        header = place.header
        if not header.decodes:
            continue
        for base, bar in header.bars:
            for low, high in _common(((base, base + bar.size),), spans):
                yield _Route(low, high, place, bar, base)
        if place.below:
            yield from _routes(place.below, _common(header.windows, spans))


def _common(some: tuple[Span, ...], others: tuple[Span, ...]) -> tuple[Span, ...]:
    """The addresses that are in both."""
    parts = ((max(a, c), min(b, d)) for a, b in some for c, d in others)
    return tuple((low, high) for low, high in parts if low < high)


def _snoop(function: PcieFunction) -> _Header:
    """What a function's configuration says about routing; nothing while it is not ready."""
    try:
        command = _value(function, config_space.COMMAND, 2)
        awake = _power_state(function) == 0
        decodes = awake and bool(command & config_space.MEMORY_ENABLE)
        masters = awake and bool(command & config_space.BUS_MASTER)
        bars = tuple((_bar_base(function, bar), bar) for bar in function.bars)
        if _value(function, config_space.HEADER_TYPE, 1) & 0x7F != config_space.BRIDGE:
            return _Header(decodes, masters, bars=bars)
        if _value(function, config_space.BRIDGE_CONTROL, 2) & config_space.SECONDARY_BUS_RESET:
            return _Header(decodes, masters, bars=bars, holds_reset=True)
        return _Header(
            decodes,
            masters,
            _value(function, config_space.SECONDARY_BUS, 1),
            _value(function, config_space.SUBORDINATE_BUS, 1),
            _windows(function),
            bars,
        )
    except RequestFailed:
        return _Header()


def _value(function: PcieFunction, offset: int, size: int) -> int:
    """A register of configuration space of at most a dword."""
    lane = offset & 3
    enables = (1 << size) - 1 << lane
    return function.config_read(offset & ~3, enables) >> 8 * lane


def _bar_base(function: PcieFunction, bar: Bar) -> int:
    offset = config_space.BAR0 + 4 * bar.index
    low = _value(function, offset, 4) & ~0xF
    return _value(function, offset + 4, 4) << 32 | low if bar.wide else low


def _windows(function: PcieFunction) -> tuple[Span, ...]:
    """A bridge's two windows, as far as they are not closed (limit below base)."""
    window = _value(function, config_space.MEMORY_BASE, 4)
    prefetchable = _value(function, config_space.PREFETCHABLE_BASE, 4)
    base_high = _value(function, config_space.PREFETCHABLE_BASE_HIGH, 4) << 32
    limit_high = _value(function, config_space.PREFETCHABLE_LIMIT_HIGH, 4) << 32
    spans = (
        ((window & 0xFFF0) << 16, (window & 0xFFF00000) + 0x100000),
        (
            base_high | (prefetchable & 0xFFF0) << 16,
            (limit_high | prefetchable & 0xFFF00000) + 0x100000,
        ),
    )
    return tuple((low, high) for low, high in spans if low < high)


def _capability(function: PcieFunction, identity: int) -> int | None:
    """Where a capability is; None if the function does not have it."""
    offset = _value(function, config_space.CAPABILITIES, 1) & ~3
    for _ in range(48):  # as many as fit below 0x100
        if offset == 0:
            return None
        header = _value(function, offset, 2)
        if header & 0xFF == identity:
            return offset
        offset = header >> 8 & ~3
    return None


def _power_state(function: PcieFunction) -> int:
    offset = _capability(function, config_space.POWER_MANAGEMENT)
    return 0 if offset is None else _value(function, offset + config_space.PMCSR, 2) & 3


def _initiates_reset(function: PcieFunction, register: int, value: int, byte_enables: int) -> bool:
    """Whether a configuration write asks for a function level reset."""
    offset = _capability(function, config_space.PCI_EXPRESS)
    if offset is None or register != offset + config_space.DEVICE_CONTROL or not byte_enables & 2:
        return False
    able = _value(function, offset + config_space.DEVICE_CAPABILITIES, 4) & config_space.FUNCTION_LEVEL_RESET
    return bool(able and value & config_space.INITIATE_RESET)


def _runs(byte_enables: int) -> Iterator[tuple[int, int]]:
    """First byte and length of each run of enabled bytes."""
    lane = 0
    for enabled, group in itertools.groupby(byte_enables >> bit & 1 for bit in range(4)):
        size = len(list(group))
        if enabled:
            yield lane, size
        lane += size


_RUNS = tuple(tuple(_runs(byte_enables)) for byte_enables in range(16))
