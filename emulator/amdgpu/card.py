"""The card: a PCIe endpoint, and its blocks behind three BARs.

BAR 0 is the start of VRAM, through the HDP; BAR 2 the doorbells; BAR 5 the first registers, in dwords.
A request without a meaning is an unsupported request. Resets of any kind end what the blocks are doing: they
are made again, as after power-on, and VRAM is lost (grade: guess for all but the fundamental reset). A mode-1
reset keeps VRAM (grade: trace: a published driver writes page tables before it and uses them after it), or
loses it (grade: inferred: Linux takes it for lost): `usbgpu.amd.facts.disputes`, reset-vram.

Identities and capabilities follow lspci listings of RDNA cards (grade: inferred): among them is no function
level reset, so the capability does not offer one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from emulator.amdgpu import discovery
from emulator.amdgpu.blocks import Blocks
from emulator.amdgpu.context import Context, Event, Span
from emulator.amdgpu.diagnosis import BootStep, Diagnosis
from emulator.amdgpu.disturbance import Disturbance
from emulator.amdgpu.power import Power
from emulator.amdgpu.registers import RegisterFile
from emulator.amdgpu.scoreboard import Scoreboard
from emulator.amdgpu.shaders import LateShaders
from emulator.amdgpu.vram import Vram
from emulator.core.clock import clocks
from emulator.pcie import config_space
from emulator.pcie.config_space import (
    MEBIBYTE,
    Capability,
    ConfigSpace,
    ConfiguredFunction,
    Identity,
    Item,
    Resizable,
)
from emulator.pcie.function import Bar, Reset, UnsupportedRequest
from sdk.errors import UsageError
from usbgpu.amd.facts import doorbells as doorbell_facts
from usbgpu.amd.facts.chips import CHIPS, VENDOR, Chip
from usbgpu.amd.facts.describe import DwordRegister
from usbgpu.amd.facts.discovery import OFFSET_FROM_END

if TYPE_CHECKING:
    from emulator.amdgpu.capture import Capture

VRAM_BAR, DOORBELL_BAR, REGISTER_BAR = 0, 2, 5
SMALLEST_VRAM_BAR = 256 * MEBIBYTE
DISPLAY = 0x030000
"""Class code: VGA compatible controller."""

MODE1_DELAY = clocks(10e-3)
"""From the request of a mode-1 reset until the card is gone (grade: guess)."""
MODE1_CLOCKS = clocks(200e-3)
"""How long it is gone then; drivers wait for 500 ms (grade: guess, below that)."""

STEPS: tuple[BootStep, ...] = (
    BootStep(
        "pcie-bus-master",
        "PCI command register: bus master enable (bit 2) = 1",
        "every access of an engine to the bridge's memory",
        "engines' accesses to system memory are refused",
        "hardware",
    ),
)


class _Link:
    """The way upstream of blocks that live until the next reset; implements `context.Link`."""

    def __init__(self, card: AmdCard) -> None:
        self._card = card
        self.alive = True

    def dma_read(self, address: int, size: int) -> bytes:
        try:
            return self._card.upstream.dma_read(address, size)
        except UnsupportedRequest:
            self._refused("read of", address)
            raise

    def dma_write(self, address: int, data: bytes) -> None:
        try:
            self._card.upstream.dma_write(address, data)
        except UnsupportedRequest:
            self._refused("write to", address)
            raise

    def transfer_clocks(self, size: int) -> int:
        return self._card.upstream.transfer_clocks(size)

    def now(self) -> int:
        return self._card.upstream.now()

    def schedule(self, clocks: int, action: Callable[[], None]) -> None:
        self._card.upstream.schedule(clocks, lambda: action() if self.alive else None)

    def _refused(self, what: str, address: int) -> None:
        command = self._card.config.value(config_space.COMMAND, 2)
        symptom = f"an engine's {what} PCIe address {address:#x} is refused"
        if not command & config_space.BUS_MASTER:
            self._card.diagnosis.missing("pcie-bus-master", symptom)
        else:
            self._card.diagnosis.wrong(f"{symptom}: nothing upstream answers there")


class AmdCard(ConfiguredFunction):
    """The card.

    Args:
        chip: which, by name.
        vram_size: bytes, in MiB; the card's own if None.
        keeps_vram: whether VRAM outlives a mode-1 reset.
        hdp_drains: whether what waits in the HDP drains by itself.

    Attributes:
        chip: the facts.
        vram: video memory.
        diagnosis: findings about the driver; resets keep it.
        scoreboard: what has run on it; resets keep it.
        disturbance: what is rehearsed; resets keep it.
        shaders: its shader engines.
        registers: all registers, since the last reset.
        context: of the blocks, since the last reset.
        blocks: since the last reset.
        power: of the board, since the last reset; its temperature outlives that.
        powered: whether the slot has its supply, as far as it is known.
        register_observers: called as those of `RegisterFile`.
        event_observers, span_observers: called as those of `Context`.

    Raises:
        UsageError: the chip is unknown, or it cannot have that much memory.
    """

    def __init__(
        self, chip: str, vram_size: int | None = None, *, keeps_vram: bool = True, hdp_drains: bool = True
    ) -> None:
        self.chip = _chip(chip)
        self._keeps_vram = keeps_vram
        self._hdp_drains = hdp_drains
        size = self.chip.vram if vram_size is None else vram_size
        self.vram = _vram(size)
        self.diagnosis = Diagnosis(lambda: self.upstream.now())
        self.scoreboard = Scoreboard()
        self.disturbance = Disturbance()
        self.powered: Callable[[], bool] = lambda: True
        self._guard: tuple[float, Callable[[], None]] | None = None
        self._before: Power | None = None
        names = self.scoreboard.names
        self.shaders = LateShaders(
            self.chip, self.vram, self.diagnosis, lambda code: names.get(code, hex(code))
        )
        self.register_observers: list[Callable[[str, str, DwordRegister, int], None]] = []
        self.event_observers: list[Callable[[Event], None]] = []
        self.span_observers: list[Callable[[Span], None]] = []
        bars = (
            Bar(VRAM_BAR, SMALLEST_VRAM_BAR, wide=True, prefetchable=True),
            Bar(DOORBELL_BAR, doorbell_facts.SIZE, wide=True, prefetchable=True),
            Bar(REGISTER_BAR, self.chip.family.register_bar),
        )
        steps = ((size - 1) // SMALLEST_VRAM_BAR).bit_length() + 1
        resizable = (Resizable(VRAM_BAR, tuple(SMALLEST_VRAM_BAR << step for step in range(steps))),)
        identity = Identity(
            VENDOR, self.chip.device, DISPLAY, subsystem_vendor=VENDOR, subsystem=self.chip.device
        )
        super().__init__(
            ConfigSpace(
                config_space.type0(identity),
                bars,
                (
                    config_space.power_management(0x50),
                    config_space.pci_express(0x64, "endpoint", generation=4, lanes=16),
                    Capability(0x000B, 0x100, 16, (Item(4, 4, 0x0101_0001),)),
                    config_space.resizable_bars(0x200, resizable, bars),
                ),
                resizable,
            )
        )
        self._power_on()

    # -- PcieFunction -----------------------------------------------------------------------------------

    @property
    def bars(self) -> Sequence[Bar]:
        """VRAM at its present size, doorbells, registers. VRAM is not raw: writes go through the HDP."""
        return (
            Bar(VRAM_BAR, self.config.sizes[VRAM_BAR], wide=True, prefetchable=True),
            Bar(DOORBELL_BAR, doorbell_facts.SIZE, wide=True, prefetchable=True),
            Bar(REGISTER_BAR, self.chip.family.register_bar),
        )

    def read(self, bar: int, offset: int, size: int) -> bytes:
        """See PcieFunction. Doorbells read 0 (grade: guess); during a mode-1 reset all is ones."""
        if bar == REGISTER_BAR:
            if size != 4 or offset & 3 or not 0 <= offset <= self.chip.family.register_bar - 4:
                raise UnsupportedRequest
            if self._dark:
                return b"\xff\xff\xff\xff"
            return self.registers.read(offset >> 2).to_bytes(4, "little")
        self._check(bar, offset, size)
        if self._dark:
            return b"\xff" * size
        return self._hdp.read(offset, size) if bar == VRAM_BAR else bytes(size)

    def write(self, bar: int, offset: int, data: bytes) -> None:
        """See PcieFunction. During a mode-1 reset it is lost."""
        if bar == VRAM_BAR:
            self._check(bar, offset, len(data))
            if not self._dark:
                self._hdp.write(offset, data)
        elif bar == REGISTER_BAR:
            if len(data) != 4 or offset & 3 or not 0 <= offset <= self.chip.family.register_bar - 4:
                raise UnsupportedRequest
            if not self._dark:
                self._register_write(offset >> 2, int.from_bytes(data, "little"))
        else:
            self._check(bar, offset, len(data))
            if len(data) not in (4, 8) or offset & (len(data) - 1):
                raise UnsupportedRequest
            if not self._dark:
                self._hdp.drain()
                for place in range(0, len(data), 4):
                    value = int.from_bytes(data[place : place + 4], "little")
                    self.blocks.doorbells.write(offset + place, value)

    def reset(self, kind: Reset) -> None:
        """See PcieFunction."""
        self.context.event("card", lambda: f"{kind.value} reset")
        super().reset(kind)
        self._lose(vram=True)
        self._power_on()

    # -- for its user -----------------------------------------------------------------------------------

    def capture(self, keep: Callable[[Capture], None] | None) -> None:
        """Call `keep` with a capture of every dispatch from now on, also after resets; None stops that.

        Kernels have the names of `scoreboard.names`. A dispatch that has to run twice is captured twice.
        """
        self.shaders.keep = keep

    def watts(self) -> float:
        """What the board draws now from the slot and its own connectors; 0 without a supply."""
        return self.power.watts() if self.powered() else 0.0

    def guard(self, most: float, lost: Callable[[], None]) -> None:
        """Call `lost` whenever the board draws more than `most` watts."""
        self._guard = most, lost
        self.power.guard(most, lost)

    # -- for blocks -------------------------------------------------------------------------------------

    def mode1_reset(self) -> None:
        """Everything but configuration space is reset: after MODE1_DELAY, for MODE1_CLOCKS.

        Configuration space stays as it is (grade: inferred: the published driver sets nothing but bus
        mastering afterwards, which it clears before).
        """
        self.context.link.schedule(MODE1_DELAY, self.go_dark)

    # -- faults -----------------------------------------------------------------------------------------

    def go_dark(self) -> None:
        """A mode-1 reset begins, requested by a driver or not."""
        self.context.event("card", lambda: "mode-1 reset begins")
        self._lose(vram=not self._keeps_vram)
        self._dark = True
        lost = self._link
        self.upstream.schedule(MODE1_CLOCKS, lambda: self._come_back(lost))

    # -- inside -----------------------------------------------------------------------------------------

    def _come_back(self, lost: _Link) -> None:
        if self._link is lost:  # not reset in another way since
            self._power_on()
            self.context.event("card", lambda: "mode-1 reset is over")

    def _lose(self, *, vram: bool) -> None:
        """Drop what the blocks had scheduled and what waits in the HDP (guess); the contents of VRAM too."""
        self._link.alive = False
        self.vram.on_read = None
        if vram:
            self.vram.clear()

    def _power_on(self) -> None:
        """Make all blocks again, so that they keep no earlier state."""
        self._dark = False
        self.vram.write(self.vram.size - OFFSET_FROM_END, discovery.binary(self.chip))
        self._link = _Link(self)
        self.registers = RegisterFile(self.chip, self.diagnosis)
        self.registers.observers = self.register_observers
        self.context: Context = Context(
            self.chip,
            self.vram,
            self.registers,
            self._link,
            self.diagnosis,
            self.event_observers,
            self.span_observers,
            self.disturbance,
        )
        self.power = self._before = Power(self.context, self._before)
        if self._guard is not None:
            self.power.guard(*self._guard)
        self.blocks = Blocks(
            self.context,
            self.shaders,
            self.scoreboard.dispatched,
            self.mode1_reset,
            self.power,
            hdp_drains=self._hdp_drains,
        )
        self._hdp = self.blocks.hdp

    def _register_write(self, index: int, value: int) -> None:
        if index == self.blocks.nbio.flush_index:
            self._hdp.flush("host")
        else:
            self.registers.write(index, value)

    def _check(self, bar: int, offset: int, size: int) -> None:
        """Whether a request falls into what is behind a BAR."""
        if bar == VRAM_BAR:
            limit = min(self.config.sizes[VRAM_BAR], self.vram.size)
        elif bar == DOORBELL_BAR:
            limit = doorbell_facts.SIZE
        else:
            raise UnsupportedRequest
        if not 0 <= offset <= limit - size:
            raise UnsupportedRequest


def _chip(name: str) -> Chip:
    if name not in CHIPS:
        raise UsageError(f"there is no emulated GPU {name!r}", hint=f"GPUs: {', '.join(CHIPS)}")
    return CHIPS[name]


def _vram(size: int) -> Vram:
    if size < SMALLEST_VRAM_BAR or size % MEBIBYTE:
        raise UsageError(f"VRAM cannot have {size} bytes", hint="give whole MiB or GiB, at least 256M")
    try:
        return Vram(size, garbage=True)
    except (OSError, ValueError, OverflowError) as problem:
        raise UsageError(
            f"the host refused {size >> 20} MiB of address space: {problem}",
            hint="emulate a card with less memory: vram=1G",
        ) from problem
