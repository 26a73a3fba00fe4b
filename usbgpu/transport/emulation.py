"""What an emulated device offers its host beyond a device: declared here, implemented by an emulator.

An emulator is reached by device string alone; nothing here imports one. What an entry point of the group
`towline.devices` makes is an `EmulatedBackend`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from sdk.clock import Clock


class Emulation(Protocol):
    """What is emulated: a bridge, and the card behind it if there is one."""

    @property
    def firmware_directory(self) -> Path | None:
        """Firmware files that the card takes; None without a card."""

    def wave_instructions(self, last: int) -> Sequence[int] | None:
        """Instructions of 32 lanes that each of the last dispatches executed, the latest at the end.

        None without a card, and if fewer have run.
        """

    def wmma_instructions(self, last: int) -> Sequence[int] | None:
        """Of these, the matrix instructions."""

    @property
    def torments(self) -> Sequence[str]:
        """A fault of each kind that passes, of about the usual severity, as `inject` takes it."""

    def uart(self) -> bytes:
        """What the bridge's UART has sent since it was asked last, at most the last 64 KiB of it."""

    def inject(self, fault: str) -> None:
        """Plan a fault, or several joined by commas; times and numbers count from now on.

        Raises:
            UsageError: there is no such fault, or it is not written so.
        """

    def faults(self) -> Sequence[tuple[str, float | None]]:
        """The faults that were planned, each with the seconds at which it fired; None if it has not."""

    def dispatch_nanoseconds(self, last: int) -> Sequence[int] | None:
        """How long each of the last dispatches took by the model of the card; else as `wave_instructions`."""


@runtime_checkable
class EmulatedBackend(Protocol):
    """A pyusb backend whose devices live in virtual time.

    Attributes:
        patience: seconds of that time for which a search waits for a device that is not attached.
    """

    patience: float

    @property
    def clock(self) -> Clock:
        """The time that the devices live in."""

    @property
    def emulation(self) -> Emulation | None:
        """What is in the ports; None if its backend provides none."""
