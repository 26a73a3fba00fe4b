"""The mask ROM: chooses what runs at power-on, and is the boot loader that writes the flash.

The code of the ROM is not public; this is its behaviour. With the strap pin held it enumerates as a mass
storage device and takes the vendor commands E0h to E8h of cyrozap's tool and of the open firmware's flash
script; otherwise it starts the image in the flash. Grades:

* strap, identity, commands, their data and their order: trace and hardware, from those tools;
* that a damaged image ends in the boot loader too: inferred, and a switch;
* that the configuration block names the device, that 64 KiB blocks are erased (the two parts of an image
  meet at such a border), that the rest of the first block is kept, and that the flash is unprotected first:
  inferred;
* the standard SCSI commands: what a host asks of any disk, answered as a drive without a medium.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum

from emulator.asm2464pd import flash_chip, timing
from emulator.asm2464pd.flash_chip import Command as Spi
from emulator.asm2464pd.flash_chip import FlashChip, Status
from emulator.asm2464pd.rom_bot import RECEIVE, Command, Refused
from emulator.asm2464pd.rom_descriptors import Identity
from emulator.asm2464pd.rom_usb import BulkOnlyDevice
from emulator.core.bus import Bus
from emulator.model import DEFAULT, Model
from firmware.asm2464pd import bot, disputes, flash_layout, image
from firmware.asm2464pd.describe import Space
from sdk.facts.structures import Malformed, Struct


class Restart(Enum):
    """What a RESET command asks for."""

    CPU = 0x00
    """The CPU starts at 0."""
    SOFT = 0x01
    """The CPU, and something more; not known what."""
    COMMIT = 0x51
    """Start the firmware that has just been written."""


# -- what runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Boot:
    """What the ROM does at power-on.

    Attributes:
        body: the firmware's code, None if none runs.
        loader: whether the boot loader runs.
        reason: why, for the log.
    """

    body: bytes | None
    loader: bool
    reason: str


def find_image(chip: FlashChip) -> bytes | str:
    """The body of the image in the flash; or why there is none, in words."""
    start = flash_layout.IMAGE.address
    try:
        return image.unwrap(chip.contents[start : start + image.MAX_IMAGE])
    except Malformed as error:
        return str(error)


def boot(chip: FlashChip, *, strap: bool, fallback: bool = True) -> Boot:
    """Decide what runs.

    Args:
        chip: the flash.
        strap: the strap pin asks for the boot loader.
        fallback: without a valid image the boot loader runs; else nothing does. Inferred.
    """
    if strap:
        return Boot(None, True, "the strap asks for the boot loader")
    found = find_image(chip)
    if isinstance(found, bytes):
        return Boot(found, False, f"the flash holds an image of {len(found)} bytes")
    return Boot(None, fallback, f"no valid image in the flash: {found}")


def identity(chip: FlashChip) -> Identity:
    """What the boot loader calls itself: as configuration block 0 says, or the ROM's own."""
    region = flash_layout.CONFIG_0
    block = chip.contents[region.address : region.address + region.size]
    if flash_layout.examine(0, block):
        return Identity()
    fields = flash_layout.CONFIG_BLOCKS[0].unpack(block)
    return Identity(fields["vendor_id"], fields["product_id"], fields["bcd_device"])


# -- the boot loader ------------------------------------------------------------------------------------

_NOT_READY, _ILLEGAL_REQUEST = 0x2, 0x5
_NO_SENSE = Refused(0x0, 0x0000)
_MEDIUM_NOT_PRESENT = 0x3A00
_INVALID_COMMAND = 0x2000
_INVALID_FIELD = 0x2400
_INQUIRY = struct.pack(
    "BBBBB3x8s16s4s", 0x00, 0x80, 0x06, 0x02, 31, b"ASMT    ", b"ASM246X         ", b"0   "
)
"""Direct access, removable, SPC-4, 31 bytes follow; vendor and product as cyrozap's tool looks for them."""

_Work = Generator[int | None, bytes, None]
"""A part of a command that returns nothing."""


class MaskRom(BulkOnlyDevice):
    """The boot loader, in place of a firmware; a `Function`.

    Args:
        bus: memory that the XDATA commands reach, and the clock.
        chip: the flash.
        on_restart: called a moment after the host has the status of a RESET command; the device has left
            the bus by then.
        model: whether it wants a port reset.
    """

    def __init__(
        self, bus: Bus, chip: FlashChip, on_restart: Callable[[Restart], None], model: Model = DEFAULT
    ) -> None:
        wants_reset = model.follows(disputes.ROM_BULK, "reset")
        super().__init__(bus.clock, self, identity(chip), wants_reset=wants_reset)
        self._bus = bus
        self._chip = chip
        self._on_restart = on_restart
        self._sense = _NO_SENSE
        self._restart: Restart | None = None
        self._commands: dict[int, Callable[[bytes], Command]] = {
            0x00: self._test_unit_ready,
            0x03: self._request_sense,
            0x12: self._inquiry,
            0x1A: self._mode_sense,
            0x25: self._test_unit_ready,  # READ CAPACITY(10) fails for the same reason
            bot.CONFIG_READ.opcode: self._config_read,
            bot.CONFIG_WRITE.opcode: self._config_write,
            bot.FLASH_READ.opcode: self._flash_read,
            bot.FLASH_WRITE.opcode: self._flash_write,
            bot.XDATA_READ.opcode: self._xdata_read,
            bot.XDATA_WRITE.opcode: self._xdata_write,
            bot.RESET.opcode: self._reset,
        }

    def begin(self, cdb: bytes) -> Command:
        """Start a command (of the `CommandSet`)."""
        self._restart = None
        command = self._commands.get(cdb[0])
        if command is None:
            raise Refused(_ILLEGAL_REQUEST, _INVALID_COMMAND)
        return command(cdb.ljust(bot.CDB_SIZE, b"\0"))

    def refused(self, reason: Refused) -> None:
        """Keep the reason for REQUEST SENSE (of the `CommandSet`)."""
        self._sense = reason

    def finished(self) -> None:
        """Restart, if that was the command (of the `CommandSet`)."""
        restart, self._restart = self._restart, None
        if restart is not None:

            def go() -> None:
                self.disconnect()
                self._on_restart(restart)

            self._bus.clock.after(timing.ROM_RESTART.clocks, go)

    # -- commands of every disk -------------------------------------------------------------------------

    def _test_unit_ready(self, cdb: bytes) -> Command:
        raise Refused(_NOT_READY, _MEDIUM_NOT_PRESENT)

    def _request_sense(self, cdb: bytes) -> Command:
        sense, self._sense = self._sense, _NO_SENSE
        data = struct.pack(">BxB4xB4xH4x", 0x70, sense.key, 10, sense.code)
        return _answer(data[: cdb[4]])

    def _inquiry(self, cdb: bytes) -> Command:
        if cdb[1] & 0x01:  # vital product data
            raise Refused(_ILLEGAL_REQUEST, _INVALID_FIELD)
        return _answer(_INQUIRY[: int.from_bytes(cdb[3:5], "big")])

    def _mode_sense(self, cdb: bytes) -> Command:
        return _answer(bytes((3, 0, 0, 0))[: cdb[4]])

    # -- vendor commands --------------------------------------------------------------------------------

    def _config_read(self, cdb: bytes) -> Command:
        region = flash_layout.REGIONS[_config_index(bot.CONFIG_READ, cdb)]
        return self._read(region.address, region.size)

    def _config_write(self, cdb: bytes) -> Command:
        index = _config_index(bot.CONFIG_WRITE, cdb)
        region = flash_layout.REGIONS[index]

        def run() -> Command:
            block = b""
            while len(block) < region.size:
                block += yield RECEIVE
            kept = bytearray((yield from self._read(0, flash_chip.BLOCK)))
            kept[region.address : region.address + region.size] = block[: region.size]
            yield from self._erase(0)
            yield from self._program(0, bytes(kept))
            return b""

        return run()

    def _flash_read(self, cdb: bytes) -> Command:
        return self._read(*_part(bot.FLASH_READ, cdb))

    def _flash_write(self, cdb: bytes) -> Command:
        start, length = _part(bot.FLASH_WRITE, cdb)

        def run() -> Command:
            first = start - start % flash_chip.BLOCK
            kept = yield from self._read(first, start - first)
            for block in range(first, start + length, flash_chip.BLOCK):
                yield from self._erase(block)
            yield from self._program(first, kept)
            place = start
            while place < start + length:
                packet = yield RECEIVE
                yield from self._program(place, packet)
                place += len(packet)
            return b""

        return run()

    def _xdata_read(self, cdb: bytes) -> Command:
        fields = _fields(bot.XDATA_READ.cdb, cdb)
        space, address = _xdata_address(fields["address"])
        places = range(address, address + fields["count"])
        return _answer(bytes(self._bus.cpu_read(space, place & 0xFFFF) for place in places))

    def _xdata_write(self, cdb: bytes) -> Command:
        fields = _fields(bot.XDATA_WRITE.cdb, cdb)
        space, address = _xdata_address(fields["address"])
        self._bus.cpu_write(space, address, fields["value"])
        return _answer(b"")

    def _reset(self, cdb: bytes) -> Command:
        kind = _fields(bot.RESET.cdb, cdb)["kind"]
        if kind not in [restart.value for restart in Restart]:
            raise Refused(_ILLEGAL_REQUEST, _INVALID_FIELD)
        self._restart = Restart(kind)
        return _answer(b"")

    # -- the flash --------------------------------------------------------------------------------------

    def _read(self, address: int, size: int) -> Command:
        yield from self._ready()
        return self._chip.transfer(bytes((Spi.READ, *address.to_bytes(3, "big"))), size)

    def _erase(self, address: int) -> _Work:
        if self._chip.transfer(bytes((Spi.RDSR,)), 1)[0] & Status.BP:
            yield from self._enabled(bytes((Spi.WRSR, 0)))
        yield from self._enabled(bytes((Spi.BE, *address.to_bytes(3, "big"))))

    def _program(self, address: int, data: bytes) -> _Work:
        """Program erased memory, page by page; a page that stays erased costs nothing."""
        while data:
            page = data[: flash_chip.PAGE - address % flash_chip.PAGE]
            if page.count(0xFF) < len(page):
                yield from self._enabled(bytes((Spi.PP, *address.to_bytes(3, "big"))) + page)
            address += len(page)
            data = data[len(page) :]

    def _enabled(self, out: bytes) -> _Work:
        """A command that needs the write enable latch, and the time it takes."""
        yield from self._ready()
        self._chip.transfer(bytes((Spi.WREN,)))
        self._chip.transfer(out)
        yield from self._ready()

    def _ready(self) -> _Work:
        """Wait for the flash, which a command that was cut short may have left at work."""
        while busy := self._chip.busy_clocks:
            yield busy


def _answer(data: bytes) -> Command:
    """A command that is done at once."""
    return data
    yield  # makes a generator of it


def _fields(layout: Struct, cdb: bytes) -> dict[str, int]:
    try:
        return layout.unpack(cdb)
    except Malformed:
        raise Refused(_ILLEGAL_REQUEST, _INVALID_FIELD) from None


def _config_index(command: bot.Command, cdb: bytes) -> int:
    index = _fields(command.cdb, cdb)["index"]
    if index not in (0, 1):
        raise Refused(_ILLEGAL_REQUEST, _INVALID_FIELD)
    return index


def _part(command: bot.Command, cdb: bytes) -> tuple[int, int]:
    """Where in the flash a part of the image lies, and how many bytes are meant."""
    fields = _fields(command.cdb, cdb)
    first = flash_layout.IMAGE.address
    areas = {0x50: range(first, first + bot.PART_SIZE), 0xD0: range(first + bot.PART_SIZE, flash_chip.SIZE)}
    area = areas.get(fields["part"])
    if area is None or fields["length"] > len(area):
        raise Refused(_ILLEGAL_REQUEST, _INVALID_FIELD)
    return area.start, fields["length"]


def _xdata_address(address: int) -> tuple[Space, int]:
    """The plane and address that an XDATA command means: bit 16 chooses the plane."""
    if address & ~0x1FFFF != bot.XDATA_BASE:
        raise Refused(_ILLEGAL_REQUEST, _INVALID_FIELD)
    return (Space.PHY if address & 0x10000 else Space.XDATA), address & 0xFFFF
