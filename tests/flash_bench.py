"""A board whose flash operations can be counted, and its power cut in the middle of any of them."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emulator import images
from emulator.asm2464pd.flash_chip import OTP_SIZE, SIZE
from emulator.board import Board
from emulator.options import Options
from emulator.usb.wire import Speed
from firmware.asm2464pd import flash_layout, image
from usbgpu import transport
from usbgpu.flash import job, state
from usbgpu.flash.programmer import Written
from usbgpu.transport import Identity, Transport

SERIAL = bytes.fromhex("00c0ffee")
CONFIG = (
    flash_layout.seal(0, b"\xff" * 4 + bytes(range(0x70)) + bytes.fromhex("4c17 6424 0001") + b"\xff" * 6),
    flash_layout.seal(1, b"\xff" * 4 + bytes(range(0x7C))),
)
TAIL = b"kept " * 20
PROTECTED = 0x1C


@functools.cache
def running() -> bytes:
    """A wrapped image that runs and answers E4 and E5: our firmware."""
    return image.wrap(images.build("firmware").bin.read_bytes())


@functools.cache
def makers() -> bytes:
    """A wrapped image that runs and takes the maker's commands."""
    return image.wrap(images.build("maker").bin.read_bytes())


def filler(size: int, *, every: int = 1) -> bytes:
    """A wrapped image that does not run: `size` bytes, all but one page in `every` of them erased."""
    pages = [
        bytes((index * 7 + place) & 0xFF for place in range(0x100)) if index % every == 0 else b"\xff" * 0x100
        for index in range(-(-size // 0x100))
    ]
    return image.wrap(b"".join(pages)[:size])


def saved(
    wrapped: bytes, *, config: tuple[bytes, bytes] = CONFIG, tail: bytes = TAIL, status: int = 0
) -> bytes:
    """A flash chip's contents, as the emulator keeps them."""
    memory = bytearray(b"\xff" * SIZE)
    memory[:0x100] = b"".join(config)
    memory[0x100 : 0x100 + len(wrapped)] = wrapped
    start = flash_layout.IMAGE.address + flash_layout.IMAGE.size
    memory[start : start + len(tail)] = tail
    return bytes(memory) + flash_layout.otp(SERIAL).ljust(OTP_SIZE, b"\xff") + bytes((status,))


@dataclass(frozen=True)
class Cut:
    """When the power is cut: in which operation (0 is the first), and how far that has got."""

    operation: int
    share: float


class Bench:
    """A board, and the host that flashes it.

    Attributes:
        operations: erases, programs and status writes of the last `flash`; the clocks that each takes.
    """

    def __init__(self, home: Path, contents: bytes) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self.file = home / "board.flash"
        self.state = home / "state"
        self.file.write_bytes(contents)
        self.operations: list[int] = []

    def copy(self, home: Path, contents: bytes | None = None) -> Bench:
        """The same host's disk, and the same board or one with other contents, to try something else."""
        shutil.rmtree(home, ignore_errors=True)
        other = Bench(home, self.contents if contents is None else contents)
        if self.state.exists():
            shutil.copytree(self.state, other.state)
        return other

    @property
    def contents(self) -> bytes:
        return self.file.read_bytes()

    def power(self, *, strap: bool = False, fallback: bool = True, port: Speed = Speed.SUPER_PLUS) -> Board:
        """Power on with what the flash holds."""
        return Board(None, Options(flash=self.file, strap=strap, fallback=fallback, port=port))

    def prepare(self, board: Board, wrapped: bytes | None, restore: Path | None = None) -> job.Prepared:
        device = transport.attach(board.backend())
        return job.prepare(device, self.state, image=wrapped, restore=restore, kind="emulated")

    def flash(
        self,
        board: Board,
        wrapped: bytes | None,
        *,
        restore: Path | None = None,
        cut: Cut | None = None,
        begun: Callable[[Board, int], None] = lambda board, operation: None,
    ) -> tuple[Written | None, Identity | None]:
        """The whole job; a new image is started only if it can run.

        Raises:
            FlashInterrupted: the power was cut; the flash file holds what is left.
        """
        prepared = self.prepare(board, wrapped, restore)
        self.operations = []
        watch(board, self.operations, cut, begun)
        try:
            _, journal = job.secure(prepared, self.state, "emulated")
            written = job.write(prepared, journal)
            runs = prepared.contents.image == running()
            return written, job.start(prepared, self.power_cycle) if runs else None
        finally:
            board.close()

    def power_cycle(self, device: Transport) -> Transport:
        device.close()
        return transport.attach(self.power().backend())

    def jobs(self) -> list[state.Job]:
        return state.jobs(self.state, "emulated")


def watch(board: Board, operations: list[int], cut: Cut | None, begun: Callable[[Board, int], None]) -> None:
    """Count the flash chip's operations, report each to `begun`, and cut the power."""
    begin = board.flash._begin

    def counted(duration, target, start, result):
        begin(duration, target, start, result)
        operations.append(duration.clocks)
        begun(board, len(operations) - 1)
        if cut is not None and len(operations) - 1 == cut.operation:
            board.machine.clock.after(int(duration.clocks * cut.share), board.cut_power)

    board.flash._begin = counted


def holds(contents: bytes, wrapped: bytes) -> bool:
    """Whether a flash has the configuration, the image and the serial number that it must have."""
    wanted = saved(wrapped)
    end = flash_layout.IMAGE.address + len(wrapped)
    otp = slice(SIZE, SIZE + OTP_SIZE)
    return contents[:end] == wanted[:end] and contents[otp] == wanted[otp]


def image_of(board: Board) -> bytes | None:
    """The wrapped image that a board boots."""
    return None if board.boot.body is None else image.wrap(board.boot.body)
