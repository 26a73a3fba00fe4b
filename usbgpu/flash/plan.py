"""What the flash must hold, and in which order it is written. No device is needed for that.

Facts of the layout are those of `firmware.asm2464pd.flash_layout`; the reasons for the order are in the
package's docstring.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from firmware.asm2464pd import image as images
from firmware.asm2464pd.flash_layout import BLOCK_SIZE, CONFIG_0, CONFIG_1, IMAGE, SECTOR_SIZE

ERASED = 0xFF
CHUNK = 0x80
"""Bytes of one page program. No more are known to pass through the buffer reliably; half a page."""
AREA = -(-(IMAGE.address + IMAGE.size) // BLOCK_SIZE) * BLOCK_SIZE
"""Bytes from address 0 that a backup holds: all that writing the largest image can change. The boot loader
erases two blocks."""
TAIL = IMAGE.address + IMAGE.size
"""Where the part of it begins that does not belong to the largest image, and is written back unchanged."""
LENGTH_FIELD = images.HEADER.size
INVALID_LENGTH = bytes(LENGTH_FIELD)
"""A length that no image has, and that any other can be programmed to without an erase."""


@dataclass(frozen=True, slots=True)
class Program:
    """One page program: `data` at `address`, inside one page."""

    address: int
    data: bytes

    @property
    def end(self) -> int:
        """The address behind its last byte."""
        return self.address + len(self.data)


@dataclass(frozen=True, slots=True)
class Stage:
    """What happens to one sector.

    Attributes:
        address: of the sector, which is erased first.
        programs: what is programmed into it, in this order.
        expected: what the sector then holds.
        commit: programmed when that was read back correctly: it makes the image valid.
    """

    address: int
    programs: tuple[Program, ...]
    expected: bytes
    commit: Program | None = None

    @property
    def operations(self) -> int:
        """Erases and programs."""
        return 1 + len(self.programs) + (self.commit is not None)


@dataclass(frozen=True, slots=True)
class Contents:
    """What the flash must hold.

    Attributes:
        config: the two configuration blocks, valid or not.
        image: the wrapped image.
        tail: the bytes between the largest image's end and the end of AREA, to be kept; b"" if that is
            unknown.
    """

    config: tuple[bytes, bytes]
    image: bytes
    tail: bytes = b""

    def __post_init__(self) -> None:
        if [len(block) for block in self.config] != [CONFIG_0.size, CONFIG_1.size]:
            raise ValueError("a configuration block has the wrong size")
        if len(self.image) > IMAGE.size or len(self.tail) not in (0, AREA - IMAGE.address - IMAGE.size):
            raise ValueError("an image or a tail does not fit its place")

    @property
    def memory(self) -> bytes:
        """The flash from address 0 to the end of the last sector that changes."""
        whole = bytearray([ERASED]) * AREA
        for region, data in ((CONFIG_0, self.config[0]), (CONFIG_1, self.config[1]), (IMAGE, self.image)):
            whole[region.address : region.address + len(data)] = data
        if self.tail:
            whole[-len(self.tail) :] = self.tail
        end = IMAGE.address + len(self.image)
        return bytes(whole[: -(-end // SECTOR_SIZE) * SECTOR_SIZE])


INVALIDATE = Program(IMAGE.address, INVALID_LENGTH)
"""Makes any image invalid, in one operation that needs no erase."""


def stages(contents: Contents) -> list[Stage]:
    """Erase and program so that the flash holds `contents`: the sector with the length field comes last."""
    memory = contents.memory
    result = []
    for address in range(len(memory) - SECTOR_SIZE, -1, -SECTOR_SIZE):
        sector = bytearray(memory[address : address + SECTOR_SIZE])
        commit = None
        if address == 0:
            field = slice(IMAGE.address, IMAGE.address + LENGTH_FIELD)
            commit = Program(IMAGE.address, bytes(sector[field]))
            sector[field] = bytes([ERASED]) * LENGTH_FIELD
        result.append(Stage(address, tuple(_programs(address, bytes(sector))), bytes(sector), commit))
    return result


def _programs(start: int, sector: bytes) -> Iterator[Program]:
    """Program an erased sector, upwards, so the configuration blocks first; erased bytes are skipped."""
    for place in range(0, len(sector), CHUNK):
        chunk = sector[place : place + CHUNK]
        used = [index for index, value in enumerate(chunk) if value != ERASED]
        if used:
            yield Program(start + place + used[0], chunk[used[0] : used[-1] + 1])


def image_in(memory: bytes) -> bytes | None:
    """The wrapped image that a piece of flash from address 0 holds, if it is whole."""
    wrapped = memory[IMAGE.address :]
    return None if images.examine(wrapped) else wrapped[: images.size(wrapped)]


def config_in(memory: bytes) -> tuple[bytes, bytes]:
    """The configuration blocks in a piece of flash from address 0."""
    first, second = (memory[part.address : part.address + part.size] for part in (CONFIG_0, CONFIG_1))
    return first, second


def tail_in(memory: bytes) -> bytes:
    """The bytes after the largest image, as `Contents.tail`; b"" if the piece of flash ends before."""
    return memory[TAIL:AREA] if len(memory) >= AREA else b""
