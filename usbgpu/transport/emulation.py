"""What an emulated device offers its host beyond a device: declared here, implemented by an emulator.

An emulator is reached by device string alone; nothing here imports one. What an entry point of the group
`towline.devices` makes is an `EmulatedBackend`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from usbgpu.transport.clock import Clock


class Emulation(Protocol):
    """What is emulated: a bridge, and the card behind it if there is one."""

    @property
    def firmware_directory(self) -> Path | None:
        """Firmware files that the card takes; None without a card."""

    def wave_instructions(self, last: int) -> Sequence[int] | None:
        """Instructions of 32 lanes that each of the last dispatches executed, the latest at the end.

        None without a card, and if fewer have run.
        """


@runtime_checkable
class EmulatedBackend(Protocol):
    """A pyusb backend whose devices live in virtual time."""

    @property
    def clock(self) -> Clock:
        """The time that the devices live in."""

    @property
    def emulation(self) -> Emulation | None:
        """What is in the ports; None if its backend provides none."""
