"""A started card with its queues: what is wrong with it, and how they are recovered."""

from __future__ import annotations

from usbgpu.amd import recover
from usbgpu.amd.batch import Batch
from usbgpu.amd.card import Card
from usbgpu.amd.queues import ComputeQueue, SdmaQueue
from usbgpu.amd.record import Record


class Doctor:
    """Implements `compute.Doctor`.

    Args:
        card: whose engines run.
        record: of its boot.
        compute, sdma: its queues.

    Attributes:
        card: as given.
        record: of its last boot.
    """

    def __init__(self, card: Card, record: Record, compute: ComputeQueue, sdma: SdmaQueue) -> None:
        self.card = card
        self.record = record
        self._compute = compute
        self._sdma = sdma

    def complaint(self) -> str | None:
        """See `compute.Doctor`. What it reports is cleared."""
        return recover.examine(self.card).complaint

    def restore(self) -> None:
        """See `compute.Doctor`."""
        recover.examine(self.card)
        recover.restart(self.card, self.record, self.init_queues)

    def init_queues(self, card: Card, batch: Batch) -> None:
        """Set the queues up, empty; a `start.Finish`."""
        self._compute.init(batch)
        self._sdma.init(batch)
