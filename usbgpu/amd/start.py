"""From a PCIe function to a card whose engines run.

A card that this driver has booted and closed is opened again in two lists: only its engines are started again
(warm). Any other is booted (cold); one that a program used and did not close is reset before: by the power
management processor if that answers (mode 1), or else by switching the PCIe slot off and on.

    with usbgpu.bridge.open(device) as bridge:
        started = start(bridge, pcie.find(bridge), report=print)
        ...
        close(started.card, started.record)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sdk.errors import DeviceFailed, DeviceMissing
from usbgpu import pcie
from usbgpu.amd import discovery, gfx, hub, ih, psp, recover, sdma_engine, smu, tables
from usbgpu.amd import firmware as firmwares
from usbgpu.amd import record as records
from usbgpu.amd.batch import Batch, GpuFailed
from usbgpu.amd.card import DOORBELL_BAR, REGISTER_BAR, VRAM_BAR, Card
from usbgpu.amd.facts.chips import CHIPS, VENDOR
from usbgpu.amd.record import DIRTY, Record
from usbgpu.amd.smu import PowerCap
from usbgpu.bridge.base import POWER_OFF
from usbgpu.bridge.seam import Bridge

log = logging.getLogger(__name__)

Finish = Callable[[Card, Batch], None]
"""Adds to the last batch of a start what its caller needs set up, such as queues. May be called again, with
another batch, if the first did not finish."""
Report = Callable[[str], None]


class Function(Protocol):
    """A PCIe function, as far as it is used here; `usbgpu.pcie.Function` is one."""

    @property
    def vendor(self) -> int:
        """Its id."""

    @property
    def device(self) -> int:
        """Its id."""

    @property
    def class_code(self) -> int:
        """Base class, subclass and interface."""

    @property
    def bars(self) -> Mapping[int, pcie.Bar]:
        """Addresses and sizes by index."""

    def config(self, register: int) -> int:
        """A register's address for operations of configuration space."""


@dataclass(frozen=True, slots=True)
class StartStep:
    """A part of the start.

    Attributes:
        what: what was done, as text.
        seconds: that it took, in the device's time.
    """

    what: str
    seconds: float


@dataclass(frozen=True)
class Started:
    """A card whose engines run with raised clocks.

    Attributes:
        card: it.
        function: its PCIe function; a reset may have given it other addresses.
        record: what its boot has found; `close` and `recover` need it.
        cold: whether it was booted.
        steps: that were taken.
    """

    card: Card
    function: Function
    record: Record
    cold: bool
    steps: tuple[StartStep, ...]


def start(
    bridge: Bridge,
    function: Function,
    *,
    directory: Path | None = None,
    finish: Finish = lambda card, batch: None,
    report: Report = lambda line: None,
    again: Callable[[], Function] | None = None,
    cap: PowerCap | None = None,
) -> Started:
    """Open a card, and boot it if need be.

    Args:
        bridge: where it is plugged in.
        function: its PCIe function, which decodes memory and is a bus master.
        directory: with firmware files; None for `firmware.DIRECTORY`. Only a cold start looks there.
        finish: adds to the last batch.
        report: gets a line for each step: at most 12 cold, 3 warm.
        again: switches the slot off and on, and returns the function; None for the implementation
            by the bridge and `pcie`.
        cap: the power limit; None for the card's own.

    Raises:
        UsageError: the card does not take this power limit; it is as it was.
        Unsupported: its chip is unknown.
        DeviceMissing: the function is not an AMD GPU.
        FirmwareMissing, InvalidFirmware: as `firmware.load`; the card is as it was.
        GpuFailed: it refuses an operation, or hangs, also after a reset.
        DeviceFailed: it does not answer; the bridge's errors.
    """
    return _Start(
        bridge, function, directory, finish, report, again or (lambda: _power_cycle(bridge)), cap
    ).run()


def require_gpu(name: str, function: Function) -> None:
    """Refuse a function that is not an AMD GPU, before anything is done to it.

    Args:
        name: of the device, for messages.
        function: what is behind the bridge.

    Raises:
        DeviceMissing: it is something else.
        DeviceFailed: it lacks the BARs of one.
    """
    display = function.class_code >> 16 == 0x03 or function.class_code >> 8 == 0x1200
    if function.vendor != VENDOR or not display:
        raise DeviceMissing(
            f"the function in the slot is not an AMD GPU: PCI {function.vendor:04x}:{function.device:04x}, "
            f"class {function.class_code:06x}",
            where=name,
            hint=f"known: {', '.join(CHIPS)}",
        )
    absent = [str(bar) for bar in (VRAM_BAR, DOORBELL_BAR, REGISTER_BAR) if bar not in function.bars]
    if absent:
        raise DeviceFailed(
            f"the card has no BAR {' and no BAR '.join(absent)}", where=name, hint=discovery.POWER_HINT
        )


def close(card: Card, record: Record, cap: PowerCap | None = None) -> bool:
    """Take the queues off, stop the engines, lower the clocks, take a power limit off. Idempotent.

    Returns:
        Whether all of it worked. If not, the next start resets the card.

    Raises:
        DeviceFailed, DeviceMissing: the bridge's errors.
    """
    batch = _closing(card)
    gfx.stop(batch)
    sdma_engine.reset(batch)
    smu.lower_clocks(batch, record.clocks)
    if cap is not None:
        cap.restore(batch)
    for block in hub.PREFIXES:
        batch.wait(block, hub.fault_status(card, block), 0, seconds=0, what=f"no page fault in {block}")
    batch.write("GC", DIRTY, 0)
    try:
        batch.run()
    except GpuFailed as problem:
        log.info("%s is not left clean, and will be reset next time: %s", card.chip.name, problem)
    else:
        return True
    batch = _closing(card)
    smu.lower_clocks(batch, record.clocks)  # also of one that hangs
    with suppress(GpuFailed):
        batch.run()
    return False


def _closing(card: Card) -> Batch:
    """A batch that ends at once if the card has been reset meanwhile: what it waits for would not come."""
    batch = Batch(card, "close")
    batch.wait("GC", records.BOOTED, records.MAGIC, seconds=0, what="booted by this driver")
    return batch


def _power_cycle(bridge: Bridge) -> Function:
    bridge.power(False)
    bridge.clock.sleep(POWER_OFF)
    bridge.power(True)
    return pcie.enumerate(bridge)


@dataclass
class _Start:
    """One start. Arguments as of `start`."""

    bridge: Bridge
    function: Function
    directory: Path | None
    finish: Finish
    report: Report
    again: Callable[[], Function]
    cap: PowerCap | None
    steps: list[StartStep] = field(default_factory=list)
    since: float = 0.0
    powered: bool = False
    """Its power has been switched off and on: nothing more can be tried."""

    def run(self) -> Started:
        require_gpu(self.bridge.name, self.function)
        self.since = self.bridge.clock.now()
        look = self.look()
        known = records.read(self.bridge, self.bars, self.window, look)
        if known is not None:
            card, record, checksum = known
            self.require_cap(card)
            self.done(f"{card.chip.name} with {card.vram >> 20} MiB is known")
            if self.warm(card, record, checksum):
                return self.started(card, record, cold=False)
        card = discovery.read_table(self.bridge, self.bars, self.window, look)
        self.require_cap(card)
        self.done(f"{card.chip.name} with {card.vram >> 20} MiB, {card.compute_units} compute units")
        firmware = firmwares.load(card.chip, self.directory)
        order = psp.load_order(card.chip, firmware.blobs)
        uploads = f"{order.size / 1e6:.2f} MB in {len(order.uploads)} uploads"
        self.done(f"firmware in {firmware.directory}: {uploads}")
        return self.booted(card, firmware, order)

    def look(self) -> discovery.FirstLook:
        """The first read; a second one, after a reset, of a card that does not answer."""
        try:
            return discovery.first_look(self.bridge, self.bars)
        except DeviceFailed as problem:
            log.info("once more after a reset: %s", problem)
        self.cycle_power()
        return discovery.first_look(self.bridge, self.bars)

    def require_cap(self, card: Card) -> None:
        """Refuse a power limit that a card does not take, before anything is done to it."""
        if self.cap is not None:
            self.cap.require(card)

    @property
    def bars(self) -> dict[int, int]:
        return {index: bar.address for index, bar in self.function.bars.items()}

    @property
    def window(self) -> int:
        return self.function.bars[0].size

    def done(self, what: str) -> None:
        """Report a step."""
        now = self.bridge.clock.now()
        self.steps.append(StartStep(what, now - self.since))
        self.report(f"{1e3 * (now - self.since):8.2f} ms  {what}")
        self.since = now

    def started(self, card: Card, record: Record, *, cold: bool) -> Started:
        return Started(card, self.function, record, cold, tuple(self.steps))

    # -- warm -------------------------------------------------------------------------------------------

    def warm(self, card: Card, record: Record, checksum: int) -> bool:
        """Start the engines of a card that is up; False if it is not, or not intact."""
        batch = Batch(card, "warm start")
        for name, value, what in (
            (records.BOOTED, records.MAGIC, "booted by this driver"),
            (records.CHECKSUM, checksum, "not reset since"),
            (DIRTY, 0, "closed"),
        ):
            batch.wait("GC", name, value, seconds=0, what=what)
        for block in hub.PREFIXES:
            batch.wait(block, hub.fault_status(card, block), 0, seconds=0, what=f"no page fault in {block}")
        batch.write("GC", DIRTY, 1)
        gfx.reset(batch, record.starts)
        gfx.start(batch)
        sdma_engine.start(batch)
        smu.raise_clocks(batch, record.clocks)
        if self.cap is not None:
            self.cap.set(batch)
        self.finish(card, batch)
        try:
            batch.run()
        except GpuFailed as problem:
            log.info("no warm start: %s", problem)
            return False
        self.done("engines started, clocks up")
        return True

    # -- cold -------------------------------------------------------------------------------------------

    def booted(self, card: Card, firmware: firmwares.Firmware, order: psp.LoadOrder) -> Started:
        """Boot a card, which is reset before if it was booted, and after a boot that failed."""
        if self.alive(card):
            card = self.reset(card)
        while True:
            try:
                record = self.boot(card, firmware, order)
            except GpuFailed as problem:
                if self.powered:
                    raise
                log.info("the boot failed, once more after a reset: %s", problem)
            else:
                return self.started(card, record, cold=True)
            self.cycle_power()
            card = discovery.identify(self.bridge, self.bars, self.window)

    def alive(self, card: Card) -> bool:
        """Whether its security processor runs more than the bootloader, or is about to."""
        batch = Batch(card, "state")
        state = batch.read("MP", psp.mailbox(card, 81))
        batch.run()
        return state.value != 0

    def reset(self, card: Card) -> Card:
        """A card as after power-on; if need be, by switching its power off and on."""
        with suppress(DeviceFailed):
            recover.mode1_reset(card, self.function)
            fresh = discovery.identify(self.bridge, self.bars, self.window)
            if not self.alive(fresh):
                self.done("reset (mode 1): the last program did not close it")
                return fresh
        self.cycle_power()
        return discovery.identify(self.bridge, self.bars, self.window)

    def cycle_power(self) -> None:
        self.function = self.again()
        self.powered = True
        self.done("reset by switching its power off and on")

    def boot(self, card: Card, firmware: firmwares.Firmware, order: psp.LoadOrder) -> Record:
        """Boot a card that is as after power-on."""
        vram = self.prepare(card, order)
        clocks = self.load(card, vram, order)
        record = Record(vram.first, firmware.starts, clocks)
        batch = Batch(card, "engines")
        hub.init(batch, "GC", vram)
        hub.invalidate(batch, "GC")
        gfx.reset_front(batch, firmware.starts)
        gfx.reset(batch, firmware.starts)
        gfx.init(batch)
        gfx.start(batch)
        sdma_engine.start(batch)
        sdma_engine.route(batch)
        smu.raise_clocks(batch, clocks)
        if self.cap is not None:
            self.cap.set(batch)
        gfx.gate_clocks(batch)
        batch.write("GC", DIRTY, 1)
        self.finish(card, batch)
        records.store(batch, record)
        batch.run()
        self.done("engines started, clocks up")
        return record

    def prepare(self, card: Card, order: psp.LoadOrder) -> hub.Memory:
        """Page tables, the MM hub, interrupts; and the first upload."""
        batch = Batch(card, "memory")
        base, top = hub.find_memory(batch)
        batch.run()
        vram = hub.memory(base.value, top.value)
        if vram.last - vram.first < card.vram - 1:
            raise GpuFailed(
                f"VRAM of {card.vram >> 20} MiB is reported at {vram.first:#x} to {vram.last:#x}",
                where=f"{self.bridge.name}, MM hub",
            )
        batch = Batch(card, "memory")
        records.forget(batch)
        tables.write(batch, order.views)
        batch.flush_hdp()
        batch.set("NBIO", "RCC_DEV0_EPF2_STRAP2", STRAP_NO_SOFT_RESET_DEV0_F2=0)
        batch.write("NBIO", "RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1)
        hub.init(batch, "MMHUB", vram)
        hub.invalidate(batch, "MMHUB")
        ih.init(batch, vram.first)
        psp.wait_for_bootloader(batch)
        state = batch.read("MP", psp.mailbox(card, 81))
        batch.upload(psp.image(order.uploads[0]))
        batch.run()
        if state.value:  # an earlier program had just started it
            raise GpuFailed("the secure OS runs before it was loaded", where=f"{self.bridge.name}, PSP")
        self.done("page tables, MM hub, interrupts")
        return vram

    def load(self, card: Card, vram: hub.Memory, order: psp.LoadOrder) -> smu.Ranges:
        """Load all firmware by the security processor, each upload while it is idle.

        Returns:
            The ranges of the clocks that the power management then reports.
        """
        processor = psp.Psp(card, vram.first)
        try:
            for number, pieces in enumerate(order.uploads):
                batch = Batch(card, "PSP")
                processor.load(batch, pieces)
                if number + 1 < len(order.uploads):
                    batch.upload(psp.image(order.uploads[number + 1]))
                    batch.run()
                if number == 0:
                    self.done("secure OS of the security processor")
            processor.autoload(batch)
            smu.init(batch, vram.first)
            asked = smu.query_ranges(batch)
            gfx.wait_for_engines(batch)
            batch.run()
        except GpuFailed as problem:
            raise processor.explain(problem) from problem
        self.done("firmware of all engines, power management")
        return smu.ranges(asked)
