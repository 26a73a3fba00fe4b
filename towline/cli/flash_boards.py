"""The boards that `towline firmware flash` can write: one on the bus, and an emulated one.

They differ in who switches the power off and on: the user, or this program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sdk.errors import InvalidInput
from sdk.report import Console

if TYPE_CHECKING:
    from usbgpu.transport import Transport


@dataclass
class RealBoard:
    """A board on the bus; the user switches its power."""

    device: str
    wait: float

    def open(self) -> Transport:
        from usbgpu import transport

        return transport.open(self.device)

    def power_cycle(self, device: Transport, console: Console) -> Transport | None:
        from usbgpu.transport import Disconnected

        if not self.wait:
            return None
        console.note(
            f"written and verified. Switch the board's power off (USB and supply), then on again; "
            f"waiting {self.wait:g} s"
        )
        try:
            device.reopen(self.wait)
        except Disconnected:
            return None
        return device


class EmulatedBoard:
    """A board in this process.

    Args:
        device: the device string.
        flash: the file that keeps its flash; what it holds runs if the device string names no image.
        injected: faults, until its power is switched off.
    """

    def __init__(self, device: str, flash: Path, injected: Sequence[str]) -> None:
        from emulator import board, faults
        from emulator.options import described

        self._name = device
        image, options = described(device)
        self._options = replace(options, flash=flash, strap=False)
        first = replace(
            self._options, strap=options.strap, faults=tuple(faults.parse(text) for text in injected)
        )
        if image or not flash.exists():
            self._board = board.Board.of(image or board.DEFAULT_IMAGE, first)
        else:
            self._board = board.Board(None, first)

    def open(self) -> Transport:
        from usbgpu import transport

        if not self._board.boot.loader and self._board.boot.body is None:
            raise InvalidInput(
                f"nothing runs on the emulated board: {self._board.boot.reason}",
                hint="set the strap: --device 'emulated?strap'",
            )
        return transport.attach(self._board.backend(), self._name)

    def power_cycle(self, device: Transport, console: Console) -> Transport:
        from emulator.board import Board
        from usbgpu import transport

        self._board.close()
        self._board = Board(None, self._options)
        return transport.attach(self._board.backend(), self._name)

    def close(self) -> None:
        """Power off; the flash stays in its file."""
        self._board.close()
