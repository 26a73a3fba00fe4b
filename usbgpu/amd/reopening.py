"""A card that failed, or was away, works again: warm if it is as it was left, else booted.

Warm, the engines are started again by `recover.restart`, and VRAM is as it was: no firmware, no upload. That
takes a card whose registers still say that it was booted, by this boot, and that this program has it. A reset
of any kind has cleared them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from sdk.errors import DeviceFailed, DeviceMissing
from usbgpu import bridge as bridges
from usbgpu import pcie
from usbgpu.amd import record as records
from usbgpu.amd import start
from usbgpu.amd.batch import Batch, GpuFailed
from usbgpu.amd.compute import Compute
from usbgpu.amd.doctor import Doctor
from usbgpu.amd.smu import PowerCap
from usbgpu.bridge.seam import ListFailed
from usbgpu.transport import DeviceBusy

log = logging.getLogger(__name__)

RETRY_INTERVAL = 0.1
"""Seconds after which an attempt that failed is made again."""


class Reopening:
    """Opens a card again, for a program that has it open.

    Args:
        doctor: of the card.
        directory: with firmware files; None for `firmware.DIRECTORY`.
        report: gets a line for each step of a boot.
        cap: the power limit of a card that is booted; None for the card's own.

    Attributes:
        lost: what was in VRAM is lost. It stays so until the owner of what was there knows, however many
            attempts that takes, and is set back by it.
        addresses_lost: the last `run` found the card without its addresses: link or power was gone.
    """

    def __init__(
        self,
        doctor: Doctor,
        directory: Path | None,
        report: Callable[[str], None],
        cap: PowerCap | None = None,
    ) -> None:
        self.lost = False
        self.addresses_lost = False
        self._doctor = doctor
        self._directory = directory
        self._report = report
        self._cap = cap

    def run(self, compute: Compute, seconds: float) -> None:
        """Make the card work again, its queues empty.

        Args:
            compute: of the card.
            seconds: to wait at most for a bridge or a link that is away; what is begun is ended.

        Raises:
            FirmwareUnsuitable, DeviceBusy: the bridge is not ours any more.
            DeviceFailed, DeviceMissing: it did not work in that time; it may be tried again.
        """
        clock = self._doctor.card.bridge.clock
        end = clock.now() + seconds
        self.addresses_lost = False
        while True:
            try:
                return self._attempt(compute, max(0.0, end - clock.now()))
            except (bridges.FirmwareUnsuitable, DeviceBusy):
                raise
            except (DeviceFailed, DeviceMissing) as problem:
                if clock.now() + RETRY_INTERVAL >= end:
                    raise
                log.info("once more: %s", problem)
            clock.sleep(RETRY_INTERVAL)

    def _attempt(self, compute: Compute, seconds: float) -> None:
        card = self._doctor.card
        ours = bridges.renew(card.bridge, seconds)
        function = pcie.programmed(card.bridge)
        addresses = {} if function is None else {index: bar.address for index, bar in function.bars.items()}
        self.addresses_lost = self.addresses_lost or addresses != card.bars
        if not (ours and addresses == card.bars and self._is_as_left()):
            self.lost = True
        if not self.lost:
            try:
                compute.recover()
                return
            except (GpuFailed, ListFailed) as problem:
                log.info("the engines do not start again: %s", problem)
                self.lost = True
        started = start.start(
            card.bridge,
            function or pcie.find(card.bridge),
            directory=self._directory,
            finish=self._doctor.init_queues,
            report=self._report,
            cap=self._cap,
        )
        if started.card != card:
            raise DeviceFailed(
                f"another card is in the slot: {started.card.chip.name} with {started.card.vram >> 20} MiB",
                where=card.bridge.name,
                hint="close it, and open it again",
            )
        self._doctor.record = started.record
        compute.forget()

    def _is_as_left(self) -> bool:
        """Whether the card has not been reset since this program opened it. One list."""
        batch = Batch(self._doctor.card, "state")
        records.expect(batch, self._doctor.record)
        try:
            batch.run()
        except (GpuFailed, ListFailed) as problem:
            log.info("it was reset: %s", problem)
            return False
        return True
