"""The limits of operands: those of the firmware, so that no list is packed that it refuses."""

from __future__ import annotations

from firmware.asm2464pd.registers.memory import SLOT_SIZE
from firmware.protocol import commands
from firmware.protocol.operations import ALL_BYTES, DWORD, SECTOR, SLOTS, ListError


def config_address(bus: int, device: int, function: int, register: int) -> int:
    """The address of a dword of configuration space.

    Raises:
        ListError: bus, device, function or register is out of range; registers are below 4096.
    """
    if not (0 <= bus < 256 and 0 <= device < 32 and 0 <= function < 8 and 0 <= register < 4096):
        raise ListError(
            f"no configuration space {bus:02x}:{device:02x}.{function:x}, register {register:#x}: "
            "the limits are ff:1f.7, register 0xfff"
        )
    return config_dword(bus << 24 | device << 19 | function << 16 | register)


# Each of these returns its argument, or raises ListError.


def dword(value: int) -> int:
    """A number of 32 bits."""
    return _within(value, 1 << 32, "a dword")


def word(value: int) -> int:
    """A number of 16 bits."""
    return _within(value, 1 << 16, "a count or 16-bit number")


def duration(microseconds: int) -> int:
    """A time-out or delay."""
    return _within(microseconds, commands.MICROSECONDS, "a time in microseconds")


def byte_enables(enables: int) -> int:
    """The byte enables of a dword."""
    return _within(enables, ALL_BYTES + 1, "byte enables")


def dword_address(address: int) -> int:
    """The PCIe address of a dword."""
    if _within(address, 1 << 64, "an address") % DWORD:
        raise ListError(f"address {address:#x} is not a multiple of 4")
    return address


def config_dword(address: int) -> int:
    """The address of a dword of configuration space."""
    if _within(address, 1 << 32, "an address of configuration space") % DWORD:
        raise ListError(f"register {address & 0xFFF:#x} is not a multiple of 4")
    return address


def dwords_from(address: int, dwords: int) -> int:
    """The first address of a block of dwords. One that begins below 4 GiB may not go beyond it."""
    end = dword_address(address) + DWORD * word(dwords)
    if end > 1 << 64 or address < 1 << 32 < end:
        bits = 64 if end > 1 << 64 else 32
        raise ListError(f"{dwords} dwords from {address:#x} go beyond the last {bits}-bit address")
    return address


def sectors_in(slot: int, slots: int, sectors: int) -> int:
    """The number of sectors of a transfer to or from SRAM slots."""
    room = slots * SLOT_SIZE // SECTOR
    if not (slot >= 0 and 0 < slots <= SLOTS - slot and 0 < sectors <= room):
        raise ListError(
            f"{sectors} sectors in {slots} slots from slot {slot} on: there are slots 0 to {SLOTS - 1}, of "
            f"{SLOT_SIZE // SECTOR} sectors each, and a transfer has at least one sector"
        )
    return sectors


def _within(value: int, limit: int, what: str) -> int:
    if not 0 <= value < limit:
        raise ListError(f"{what} of {value:#x}: it must be 0 to {limit - 1:#x}")
    return value
