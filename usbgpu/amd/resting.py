"""A card that is not used for a while: its clocks are low, or its slot has no power."""

from __future__ import annotations

from sdk.errors import DeviceFailed
from sdk.target import Rest
from usbgpu.amd import smu
from usbgpu.amd.batch import Batch
from usbgpu.amd.doctor import Doctor


class Resting:
    """Puts a card to rest and wakes it. Nothing is under way on it meanwhile.

    Args:
        doctor: of the card.

    Attributes:
        state: in which the card is. Idle: the clocks are low, all else is as it was. Off: without power; what
            the card held is lost.
    """

    def __init__(self, doctor: Doctor) -> None:
        self.state: Rest = "awake"
        self._doctor = doctor

    def rest(self, *, off: bool) -> None:
        """Lower the clocks, or switch the slot off. Raises DeviceFailed, DeviceMissing."""
        card = self._doctor.card
        if off:
            card.bridge.power(False)
            self.state = "off"
        elif self.state == "awake":
            batch = Batch(card, "clocks")
            smu.lower_clocks(batch, self._doctor.record.clocks)
            batch.run()
            self.state = "idle"

    def wake(self) -> None:
        """Raise the clocks.

        Raises:
            DeviceFailed: its power is off; errors of card and bridge.
            DeviceMissing: the bridge is gone.
        """
        if self.state == "off":
            raise DeviceFailed(
                "the power of the card's slot is off",
                where=self._doctor.card.bridge.name,
                hint="recover() switches it on and boots the card",
            )
        if self.state == "idle":
            batch = Batch(self._doctor.card, "clocks")
            smu.raise_clocks(batch, self._doctor.record.clocks)
            batch.run()
            self.state = "awake"

    def recovered(self, *, intact: bool) -> None:
        """The card works again after a failure; with the clocks that it had, or else booted."""
        if not intact:
            self.state = "awake"
        self.wake()
