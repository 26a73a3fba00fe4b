"""The SPI flash: its command bytes, its status register, its time limits.

The flash chip may differ from board to board. These are the commands that every common serial flash has, and
the two of Macronix's one-time programmable page. The open firmware and its flash script use them.
"""

from __future__ import annotations

from enum import IntEnum


class SpiCommand(IntEnum):
    """The first byte of a transaction; the names are the data sheets'."""

    WRSR = 0x01
    """Write status register: one byte."""
    PP = 0x02
    """Page program: address, data; only clears bits."""
    READ = 0x03
    """Read: address."""
    RDSR = 0x05
    """Read status register."""
    WREN = 0x06
    """Write enable, for one program, erase or status write."""
    RDID = 0x9F
    """Read identification: manufacturer, type, capacity."""
    ENSO = 0xB1
    """Enter secured OTP: READ and PP access the one-time programmable page until EXSO or power-off."""
    EXSO = 0xC1
    """Exit secured OTP."""
    SE = 0x20
    """Sector erase: address; 4 KiB. What the updater of a dock with this chip uses (trace: commaai/openpilot,
    chestnut/flash.py)."""
    BE = 0xD8
    """Block erase: address; 64 KiB. What the open firmware's flash script uses."""


class SpiStatus(IntEnum):
    """Bits of the status register."""

    WIP = 0x01
    """A program, erase or status write is under way."""
    WEL = 0x02
    """The write enable latch is set."""
    BP = 0x1C
    """Block protect: part of the memory cannot be changed."""


ADDRESS_BYTES = 3
ID_BYTES = 3
OTP_BYTES = 64
"""Bytes of the one-time programmable page; a read wraps around in it. Macronix MX25L8006E."""

PROGRAM_SECONDS = 0.1
ERASE_SECONDS = 10.0
STATUS_SECONDS = 1.0
"""Longest times of a page program, an erase and a status write. Data sheets of 1 MiB parts give 5 ms, 0.2 s
for 4 KiB, and 100 ms; the margin is for worn chips."""
