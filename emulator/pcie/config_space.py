"""A PCI Express configuration space, declared as data: which bits there are, what writes do, what resets do.

Layouts and reset rules are those of the PCI Express base specification (chapter 7) and, for the bridge
header, of the PCI-to-PCI bridge architecture. Only what a host without interrupts and without error
reporting looks at is here: headers, BARs with sizing, power management, the PCI Express capability,
resizable BARs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from emulator.pcie.function import Bar, Reset, Upstream
from sdk.errors import InternalError

SIZE = 4096
"""Bytes of a configuration space."""

COMMAND = 0x04
MEMORY_ENABLE = 0x0002
BUS_MASTER = 0x0004
HEADER_TYPE = 0x0E
BAR0 = 0x10
BRIDGE = 1
"""Layout number of a bridge's header, in HEADER_TYPE."""
CAPABILITIES = 0x34
EXTENDED_CAPABILITIES = 0x100
STATUS_CAPABILITIES = 0x0010
"""Bit of the status register: there is a capability list."""

POWER_MANAGEMENT = 0x01
PMCSR = 0x04
"""Power management control and status, from the start of its capability; bits 1:0 are the D state."""
PCI_EXPRESS = 0x10
DEVICE_CAPABILITIES = 0x04
DEVICE_CONTROL = 0x08
FUNCTION_LEVEL_RESET = 1 << 28
"""In the device capabilities: bit 15 of the device control resets the function."""
INITIATE_RESET = 1 << 15
LINK_CONTROL, LINK_STATUS, LINK_CONTROL_2 = 0x10, 0x12, 0x30
RETRAIN_LINK = 0x0020
"""In the link control; reads 0."""
RESIZABLE_BAR = 0x0015

SECONDARY_BUS = 0x19
SUBORDINATE_BUS = 0x1A
MEMORY_BASE = 0x20
PREFETCHABLE_BASE = 0x24
PREFETCHABLE_BASE_HIGH = 0x28
PREFETCHABLE_LIMIT_HIGH = 0x2C
BRIDGE_CONTROL = 0x3E
SECONDARY_BUS_RESET = 0x0040

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Item:
    """A register of configuration space.

    Attributes:
        offset: from the start of the structure it is in.
        size: bytes.
        reset: its value after a reset.
        writable: bits that hold what is written.
        clears: bits that writing 1 clears.
        sticky: bits that only the fundamental reset resets.
    """

    offset: int
    size: int
    reset: int = 0
    writable: int = 0
    clears: int = 0
    sticky: int = 0


@dataclass(frozen=True, slots=True)
class Capability:
    """An element of the capability list, or of the extended one.

    Attributes:
        identity: capability id.
        offset: of its first byte.
        size: bytes.
        items: registers, with offsets from its first byte; not the id and the link to the next.
        version: of an extended capability.
    """

    identity: int
    offset: int
    size: int
    items: tuple[Item, ...] = ()
    version: int = 1

    @property
    def extended(self) -> bool:
        return self.offset >= EXTENDED_CAPABILITIES


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a function says it is.

    Attributes:
        class_code: base class, subclass and interface.
    """

    vendor: int
    device: int
    class_code: int
    revision: int = 0
    subsystem_vendor: int = 0
    subsystem: int = 0


def type0(identity: Identity) -> tuple[Item, ...]:
    """The header of an endpoint, without BARs."""
    return (
        *_common(identity, writable=0x0546),
        Item(0x2C, 2, identity.subsystem_vendor),
        Item(0x2E, 2, identity.subsystem),
    )


def type1(identity: Identity) -> tuple[Item, ...]:
    """The header of a bridge without an I/O window, with 64-bit prefetchable memory."""
    return (
        *_common(identity, writable=0x0547),
        Item(HEADER_TYPE, 1, BRIDGE),
        Item(0x18, 1, writable=0xFF),
        Item(SECONDARY_BUS, 1, writable=0xFF),
        Item(SUBORDINATE_BUS, 1, writable=0xFF),
        Item(0x1E, 2, clears=0xF900),
        Item(MEMORY_BASE, 2, writable=0xFFF0),
        Item(MEMORY_BASE + 2, 2, writable=0xFFF0),
        Item(PREFETCHABLE_BASE, 2, 0x0001, writable=0xFFF0),
        Item(PREFETCHABLE_BASE + 2, 2, 0x0001, writable=0xFFF0),
        Item(PREFETCHABLE_BASE_HIGH, 4, writable=0xFFFFFFFF),
        Item(PREFETCHABLE_LIMIT_HIGH, 4, writable=0xFFFFFFFF),
        Item(BRIDGE_CONTROL, 2, writable=0x0043),
    )


def _common(identity: Identity, writable: int) -> tuple[Item, ...]:
    return (
        Item(0x00, 2, identity.vendor),
        Item(0x02, 2, identity.device),
        Item(COMMAND, 2, writable=writable),
        Item(0x06, 2, STATUS_CAPABILITIES, clears=0xF900),
        Item(0x08, 1, identity.revision),
        Item(0x09, 3, identity.class_code),
        Item(0x0C, 1, writable=0xFF),
        Item(0x3C, 1, writable=0xFF),
    )


def power_management(offset: int) -> Capability:
    """Power management 1.2 with D0 and D3hot, which loses nothing on the way back."""
    return Capability(
        POWER_MANAGEMENT, offset, 8, (Item(2, 2, 0x0003), Item(PMCSR, 2, 0x0008, writable=0x0003))
    )


PORT_TYPES: Mapping[str, int] = {"endpoint": 0, "root port": 4, "upstream port": 5, "downstream port": 6}
"""Device/port types of the PCI Express capability."""


def pci_express(
    offset: int, port: str, *, generation: int, lanes: int, resettable: bool = False
) -> Capability:
    """The PCI Express capability, version 2.

    Args:
        offset: of its first byte.
        port: a key of PORT_TYPES.
        generation: best link speed, 1 to 5; stated as the current one too.
        lanes: widest link; stated as the current width too.
        resettable: it does function level resets.
    """
    link = lanes << 4 | generation
    return Capability(
        PCI_EXPRESS,
        offset,
        0x3C,
        (
            Item(0x02, 2, PORT_TYPES[port] << 4 | 2),
            Item(DEVICE_CAPABILITIES, 4, 0x8001 | (FUNCTION_LEVEL_RESET if resettable else 0)),
            Item(DEVICE_CONTROL, 2, 0x2810, writable=0x7FFF),
            Item(0x0A, 2, clears=0x000F),
            Item(0x0C, 4, link),
            Item(LINK_CONTROL, 2, writable=0x0FFB & ~RETRAIN_LINK),
            Item(LINK_STATUS, 2, link),
            Item(0x28, 2, writable=0x001F),
            Item(0x2C, 4, (1 << generation) - 1 << 1),
            Item(LINK_CONTROL_2, 2, generation, writable=0x000F, sticky=0x000F),
        ),
    )


@dataclass(frozen=True, slots=True)
class Resizable:
    """A BAR whose size can be chosen.

    Attributes:
        bar: its index.
        sizes: those it can have, bytes; powers of two from 1 MiB on.
    """

    bar: int
    sizes: tuple[int, ...]


def resizable_bars(offset: int, entries: Sequence[Resizable], bars: Sequence[Bar]) -> Capability:
    """The resizable BAR capability, with the BARs' present sizes."""
    present = {bar.index: bar.size for bar in bars}
    items = []
    for number, entry in enumerate(entries):
        supported = sum(1 << _exponent(size) + 4 for size in entry.sizes)
        count = len(entries) << 5 if number == 0 else 0
        chosen = _exponent(present[entry.bar]) << 8
        items.append(Item(4 + 8 * number, 4, supported))
        items.append(Item(8 + 8 * number, 4, chosen | count | entry.bar, writable=0x3F00))
    return Capability(RESIZABLE_BAR, offset, 4 + 8 * len(entries), tuple(items))


def _exponent(size: int) -> int:
    """How the capability counts sizes: 0 is 1 MiB, 1 is 2 MiB."""
    return (size // MEBIBYTE).bit_length() - 1


@dataclass(slots=True)
class _Masks:
    """One byte plane each; `values` is what reads return."""

    values: bytearray = field(default_factory=lambda: bytearray(SIZE))
    reset: bytearray = field(default_factory=lambda: bytearray(SIZE))
    writable: bytearray = field(default_factory=lambda: bytearray(SIZE))
    clears: bytearray = field(default_factory=lambda: bytearray(SIZE))
    sticky: bytearray = field(default_factory=lambda: bytearray(SIZE))


class ConfigSpace:
    """The configuration space of one function.

    Args:
        header: `type0` or `type1` of its identity.
        bars: base address registers, with their sizes after a reset.
        capabilities: in any order; linked by rising offset.
        resizable: which BARs the resizable BAR capability among them is about.

    Raises:
        InternalError: two registers overlap, or one does not fit.
    """

    def __init__(
        self,
        header: Iterable[Item],
        bars: Sequence[Bar] = (),
        capabilities: Iterable[Capability] = (),
        resizable: Sequence[Resizable] = (),
    ) -> None:
        self._bytes = _Masks()
        self._taken = bytearray(SIZE)
        self._bars = tuple(bars)
        self._resizable = {entry.bar: entry for entry in resizable}
        self.sizes = {bar.index: bar.size for bar in bars}
        self.offsets: dict[int, int] = {}
        """Where each capability id is; extended ids are counted from 0x10000."""
        for item in header:
            self._lay(item, 0)
        for bar in bars:
            kind = (0x4 if bar.wide else 0) | (0x8 if bar.prefetchable else 0)
            self._lay(Item(BAR0 + 4 * bar.index, 8 if bar.wide else 4, kind), 0)
        ordered = sorted(capabilities, key=lambda capability: capability.offset)
        self._link([entry for entry in ordered if not entry.extended])
        self._link([entry for entry in ordered if entry.extended])
        self.reset(Reset.PERST)

    def read(self, offset: int, byte_enables: int = 0xF) -> int:
        """A dword; disabled bytes read 0."""
        return int.from_bytes(self._bytes.values[offset : offset + 4], "little") & _spread(byte_enables)

    def write(self, offset: int, value: int, byte_enables: int = 0xF) -> None:
        """Write the enabled bytes of a dword, as far as they can be written."""
        planes = self._bytes
        for lane in range(4):
            if byte_enables >> lane & 1:
                place, byte = offset + lane, value >> 8 * lane & 0xFF
                keep = planes.values[place] & ~planes.writable[place]
                planes.values[place] = (keep | byte & planes.writable[place]) & ~(byte & planes.clears[place])
        capability = self.offsets.get(0x10000 | RESIZABLE_BAR)
        if capability is not None and capability <= offset < capability + 4 + 8 * len(self._resizable):
            self._resize()

    def value(self, offset: int, size: int) -> int:
        """What a register holds."""
        return int.from_bytes(self._bytes.values[offset : offset + size], "little")

    def set(self, offset: int, size: int, value: int) -> None:
        """The function itself changes a register, read-only bits included."""
        self._bytes.values[offset : offset + size] = value.to_bytes(size, "little")

    def base(self, bar: int) -> int:
        """The address that a BAR has been given."""
        entry = next(entry for entry in self._bars if entry.index == bar)
        return self.value(BAR0 + 4 * bar, 8 if entry.wide else 4) & ~0xF

    def reset(self, kind: Reset) -> None:
        """Registers go back to their reset values; sticky bits only in a fundamental reset."""
        planes = self._bytes
        if kind is Reset.PERST:
            planes.values[:] = planes.reset
        else:
            planes.values[:] = bytes(
                now & stays | then & ~stays
                for now, then, stays in zip(planes.values, planes.reset, planes.sticky, strict=True)
            )
        if self._resizable:
            self._resize()
        for bar in self._bars:
            self._size_bar(bar, self.sizes[bar.index])

    def _lay(self, item: Item, start: int) -> None:
        first = start + item.offset
        places = range(first, first + item.size)
        if places.stop > SIZE or any(self._taken[place] for place in places):
            raise InternalError(f"configuration register {first:#x} overlaps another, or does not fit")
        for index, place in enumerate(places):
            self._taken[place] = 1
            for name in ("reset", "writable", "clears", "sticky"):
                getattr(self._bytes, name)[place] = getattr(item, name) >> 8 * index & 0xFF

    def _link(self, capabilities: Sequence[Capability]) -> None:
        following = (*(entry.offset for entry in capabilities[1:]), 0)
        for entry, after in zip(capabilities, following, strict=False):
            if entry.extended:
                self._lay(Item(0, 4, after << 20 | entry.version << 16 | entry.identity), entry.offset)
            else:
                self._lay(Item(0, 2, after << 8 | entry.identity), entry.offset)
            self.offsets[(0x10000 if entry.extended else 0) | entry.identity] = entry.offset
            for item in entry.items:
                self._lay(item, entry.offset)
        if capabilities and not capabilities[0].extended:
            self._lay(Item(CAPABILITIES, 1, capabilities[0].offset), 0)

    def _resize(self) -> None:
        """BARs take the sizes that the resizable BAR capability now holds; unsupported ones do nothing."""
        start = self.offsets[0x10000 | RESIZABLE_BAR]
        for number, (index, entry) in enumerate(self._resizable.items()):
            size = MEBIBYTE << (self.value(start + 8 + 8 * number, 4) >> 8 & 0x3F)
            if size in entry.sizes and size != self.sizes[index]:
                self.sizes[index] = size
                self._size_bar(next(bar for bar in self._bars if bar.index == index), size)

    def _size_bar(self, bar: Bar, size: int) -> None:
        """Address bits below the size are hard-wired to 0, which is how software reads it."""
        width = 8 if bar.wide else 4
        place = slice(BAR0 + 4 * bar.index, BAR0 + 4 * bar.index + width)
        mask = (1 << 8 * width) - size
        self._bytes.writable[place] = mask.to_bytes(width, "little")
        kind = self._bytes.reset[place.start]
        now = int.from_bytes(self._bytes.values[place], "little")
        self._bytes.values[place] = (now & mask | kind).to_bytes(width, "little")


class ConfiguredFunction:
    """What functions with such a configuration space have in common.

    Args:
        config: its configuration space.
    """

    def __init__(self, config: ConfigSpace) -> None:
        self.config = config
        self._upstream: Upstream | None = None

    @property
    def upstream(self) -> Upstream:
        """What `attach` brought.

        Raises:
            InternalError: the function is not attached.
        """
        if self._upstream is None:
            raise InternalError("a PCIe function is used before it is attached to a fabric")
        return self._upstream

    def attach(self, upstream: Upstream) -> None:
        """Take the fabric's end of the seam.

        Raises:
            InternalError: the function is attached already.
        """
        if self._upstream is not None:
            raise InternalError("a PCIe function is attached twice")
        self._upstream = upstream

    def config_read(self, offset: int, byte_enables: int) -> int:
        """See PcieFunction."""
        return self.config.read(offset, byte_enables)

    def config_write(self, offset: int, value: int, byte_enables: int) -> None:
        """See PcieFunction."""
        self.config.write(offset, value, byte_enables)

    def reset(self, kind: Reset) -> None:
        """See PcieFunction."""
        self.config.reset(kind)


@functools.cache
def _spread(byte_enables: int) -> int:
    """The bits of a dword that its byte enables stand for."""
    return sum(0xFF << 8 * lane for lane in range(4) if byte_enables >> lane & 1)
