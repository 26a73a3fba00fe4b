"""The SPI NOR flash beside the controller: a Macronix MX25L8006E, 1 MiB.

Which part a board carries is not known. The open firmware enters and leaves the one-time programmable area
with B1h and C1h, which are Macronix's commands, and firmware images need less than 256 KiB; commands, status
register, protected areas and times are those of this part's data sheet, as are the identification bytes.

The chip is accessed as on its pins: bytes shifted out while the chip is selected, bytes shifted in after
them. It knows no controller. Program, erase and status writes take their time, during which only the status
can be read; a power cut in the middle leaves the work that was done by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from emulator.asm2464pd import timing
from emulator.core.clock import Scheduler, Timing
from sdk.errors import InvalidInput

SIZE = 0x100000
PAGE = 0x100
SECTOR = 0x1000
BLOCK = 0x10000
OTP_SIZE = 64
JEDEC_ID = bytes((0xC2, 0x20, 0x14))
"""Macronix, memory type, 2**0x14 bytes."""
ADDRESS_BYTES = 3


class Command(IntEnum):
    """Command bytes that the chip knows, by the data sheet's names."""

    WRSR = 0x01
    """Write status register."""
    PP = 0x02
    """Page program: bits can only be cleared; the address wraps within the page."""
    READ = 0x03
    WRDI = 0x04
    """Write disable."""
    RDSR = 0x05
    """Read status register."""
    WREN = 0x06
    """Write enable, for one program, erase or status write."""
    SE = 0x20
    """Sector erase, 4 KiB."""
    RDID = 0x9F
    """Read identification."""
    ENSO = 0xB1
    """Enter secured OTP: READ and PP mean the one-time programmable area."""
    EXSO = 0xC1
    """Exit secured OTP."""
    BE = 0xD8
    """Block erase, 64 KiB."""


class Status(IntEnum):
    """Bits of the status register."""

    WIP = 0x01
    """Write in progress."""
    WEL = 0x02
    """Write enable latch."""
    BP = 0x1C
    """Block protect: how much of the memory, counted from its end, can not be programmed or erased."""
    SRWD = 0x80
    """Status register write disable; without the WP# pin it does nothing."""


WRITABLE = Status.BP | Status.SRWD
PROTECTED_BLOCKS = (0, 1, 2, 4, 8, 16, 16, 16)
"""64 KiB blocks protected at the end of the memory, by the value of the block protect bits."""


@dataclass(frozen=True, slots=True)
class _Operation:
    """Internal work that takes time: bytes of `target` from `start` on become `result`, in order."""

    began: int
    ends: int
    target: bytearray
    start: int
    result: bytes


class FlashChip:
    """The flash chip.

    Args:
        clock: virtual time.
        contents: initial contents, the rest is erased.
        otp: initial contents of the one-time programmable area, the rest is erased.

    Raises:
        InvalidInput: more than the chip holds.
    """

    def __init__(self, clock: Scheduler, contents: bytes = b"", otp: bytes = b"") -> None:
        self._clock = clock
        self._memory = _filled(contents, SIZE, "flash contents")
        self._otp = _filled(otp, OTP_SIZE, "OTP area")
        self._status = bytearray(1)
        self._write_enabled = False
        self._otp_mode = False
        self._operation: _Operation | None = None
        self._commands: dict[int, Callable[[bytes, int], bytes]] = {
            Command.WRSR: self._write_status,
            Command.PP: self._program,
            Command.READ: self._read,
            Command.WRDI: self._write_disable,
            Command.WREN: self._write_enable,
            Command.SE: self._erase_sector,
            Command.RDID: self._identify,
            Command.ENSO: self._enter_otp,
            Command.EXSO: self._exit_otp,
            Command.BE: self._erase_block,
        }

    # -- on the pins ------------------------------------------------------------------------------------

    def transfer(self, out: bytes, size: int = 0) -> bytes:
        """Select the chip, shift `out` in (command, address, data), shift `size` bytes out, deselect it.

        An undriven line reads FFh: an unknown command, one that is cut short, and anything but RDSR
        while the chip is busy.
        """
        self._settle()
        if out[:1] == bytes((Command.RDSR,)):
            return bytes((self._read_status(),)) * size
        command = self._commands.get(out[0]) if out and self._operation is None else None
        answer = command(out[1:], size) if command is not None else b""
        return answer.ljust(size, b"\xff")

    @property
    def busy_clocks(self) -> int:
        """Clocks until the chip is ready, 0 if it is."""
        self._settle()
        return self._operation.ends - self._clock.now if self._operation is not None else 0

    # -- for the owner of the board ---------------------------------------------------------------------

    @property
    def contents(self) -> bytes:
        """All of the memory, as a programmer would read it."""
        self._settle()
        return bytes(self._memory)

    @property
    def otp(self) -> bytes:
        """The one-time programmable area."""
        self._settle()
        return bytes(self._otp)

    def save(self) -> bytes:
        """What survives without power: memory, one-time programmable area, protection bits."""
        return self.contents + self.otp + bytes((self._status[0] & WRITABLE,))

    @classmethod
    def restore(cls, clock: Scheduler, saved: bytes) -> FlashChip:
        """A chip with what `save` gave, or with a dump of the memory alone.

        Raises:
            InvalidInput: neither length fits.
        """
        if len(saved) not in (SIZE, SIZE + OTP_SIZE + 1):
            raise InvalidInput(
                f"a saved flash chip has {SIZE} or {SIZE + OTP_SIZE + 1} bytes, this has {len(saved)}",
                hint="delete the file to start with an erased chip",
            )
        chip = cls(clock, saved[:SIZE], saved[SIZE : SIZE + OTP_SIZE])
        chip._status[:] = bytes(value & WRITABLE for value in saved[SIZE + OTP_SIZE :]) or b"\0"
        return chip

    def flip(self, address: int, bit: int) -> None:
        """A fault: one bit of the memory, 0 to 7 of a byte, changes its value.

        Raises:
            InvalidInput: there is no such bit.
        """
        if not (0 <= address < SIZE and 0 <= bit < 8):
            raise InvalidInput(
                f"the flash has no bit {bit} at {address:#x}", hint=f"below {SIZE:#x}, bits 0-7"
            )
        self._settle()
        self._memory[address] ^= 1 << bit

    def cut_power(self) -> None:
        """Power is cut and restored: work under way stays as far as it got, bytes in order of address."""
        self._settle()
        work, self._operation = self._operation, None
        self._write_enabled = self._otp_mode = False
        if work is not None:
            done = len(work.result) * (self._clock.now - work.began) // (work.ends - work.began)
            work.target[work.start : work.start + done] = work.result[:done]

    # -- commands: the bytes after the command byte, the number of bytes wanted -----------------------

    def _read_status(self) -> int:
        busy = Status.WIP if self._operation is not None else 0
        return self._status[0] | busy | (Status.WEL if self._write_enabled else 0)

    def _write_enable(self, out: bytes, size: int) -> bytes:
        self._write_enabled = True
        return b""

    def _write_disable(self, out: bytes, size: int) -> bytes:
        self._write_enabled = False
        return b""

    def _enter_otp(self, out: bytes, size: int) -> bytes:
        self._otp_mode = True
        return b""

    def _exit_otp(self, out: bytes, size: int) -> bytes:
        self._otp_mode = False
        return b""

    def _identify(self, out: bytes, size: int) -> bytes:
        return (JEDEC_ID * (size // len(JEDEC_ID) + 1))[:size]

    def _read(self, out: bytes, size: int) -> bytes:
        array = self._array
        if len(out) < ADDRESS_BYTES:
            return b""
        start = int.from_bytes(out[:ADDRESS_BYTES], "big") % len(array)
        data = bytes(array[start : start + size])
        while len(data) < size:
            data += bytes(array[: size - len(data)])
        return data

    def _program(self, out: bytes, size: int) -> bytes:
        array = self._array
        address, data = int.from_bytes(out[:ADDRESS_BYTES], "big") % len(array), out[ADDRESS_BYTES:]
        if not data or self._refused(address):
            return b""
        length = min(PAGE, len(array))
        page = address - address % length
        result = bytearray(array[page : page + length])
        latched = {(address + place) % length: value for place, value in enumerate(data)}
        for place, value in latched.items():
            result[place] &= value
        self._begin(timing.FLASH_PAGE_PROGRAM, array, page, bytes(result))
        return b""

    def _write_status(self, out: bytes, size: int) -> bytes:
        if len(out) == 1 and self._write_enabled:
            self._begin(timing.FLASH_STATUS_WRITE, self._status, 0, bytes((out[0] & WRITABLE,)))
        return b""

    def _erase_sector(self, out: bytes, size: int) -> bytes:
        return self._erase(out, SECTOR, timing.FLASH_SECTOR_ERASE)

    def _erase_block(self, out: bytes, size: int) -> bytes:
        return self._erase(out, BLOCK, timing.FLASH_BLOCK_ERASE)

    # -- inside -----------------------------------------------------------------------------------------

    @property
    def _array(self) -> bytearray:
        return self._otp if self._otp_mode else self._memory

    def _erase(self, out: bytes, size: int, duration: Timing) -> bytes:
        address = int.from_bytes(out, "big") % SIZE
        if len(out) == ADDRESS_BYTES and not self._otp_mode and not self._refused(address):
            self._begin(duration, self._memory, address - address % size, b"\xff" * size)
        return b""

    def _refused(self, address: int) -> bool:
        if self._otp_mode:
            return not self._write_enabled
        protected = PROTECTED_BLOCKS[(self._status[0] & Status.BP) >> 2]
        return not self._write_enabled or address >= SIZE - protected * BLOCK

    def _begin(self, duration: Timing, target: bytearray, start: int, result: bytes) -> None:
        now = self._clock.now
        self._operation = _Operation(now, now + duration.clocks, target, start, result)

    def _settle(self) -> None:
        """Finish work whose time has passed."""
        work = self._operation
        if work is not None and self._clock.now >= work.ends:
            work.target[work.start : work.start + len(work.result)] = work.result
            self._operation = None
            self._write_enabled = False


def _filled(data: bytes, size: int, what: str) -> bytearray:
    if len(data) > size:
        raise InvalidInput(f"{what}: {len(data)} bytes, the flash chip has {size}", hint="shorten it")
    return bytearray(data.ljust(size, b"\xff"))
