"""What every block of the card may use: facts, registers, memory, the way out to the bridge, time.

A block is a class made with a Context. It claims its registers, and offers methods to other blocks, which
`card` hands to them. It never looks into another block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from emulator.amdgpu.diagnosis import Diagnosis
from emulator.amdgpu.disturbance import Disturbance
from emulator.amdgpu.registers import RegisterFile
from emulator.amdgpu.vram import Vram
from usbgpu.amd.facts.chips import Chip


class Link(Protocol):
    """The card's way upstream, and its time; `emulator.pcie.function.Upstream` as far as blocks need it."""

    def dma_read(self, address: int, size: int) -> bytes:
        """Read the bridge's memory. Raises UnsupportedRequest."""

    def dma_write(self, address: int, data: bytes) -> None:
        """Write the bridge's memory. Raises UnsupportedRequest."""

    def transfer_clocks(self, size: int) -> int:
        """Clocks that a DMA of that many bytes keeps the link busy."""

    def now(self) -> int:
        """Chip clocks since power-on."""

    def schedule(self, clocks: int, action: Callable[[], None]) -> None:
        """Call `action` in that many clocks, unless the card is reset before."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, for the trace.

    Attributes:
        source: the block's module: pm4, sdma, psp, smu, hub, ih, dispatch, ...
        text: in the field's names, as `DISPATCH_DIRECT 4x1x1, ...`.
    """

    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time, for a timeline.

    Attributes:
        source: what was busy with it, such as `sdma queue 0`.
        text: as in Event.
        start: chip clocks since power-on when it began.
        end: when it was over.
    """

    source: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Context:
    """Shared by the blocks of one card.

    Attributes:
        chip: the facts.
        vram: video memory.
        registers: of all blocks.
        link: upstream memory and time.
        diagnosis: collects mistakes of the driver.
        observers: called with events, for traces; usually empty.
        span_observers: called with what took time, at its end.
        disturbance: what is rehearsed.
    """

    chip: Chip
    vram: Vram
    registers: RegisterFile
    link: Link
    diagnosis: Diagnosis
    observers: list[Callable[[Event], None]] = field(default_factory=list)
    span_observers: list[Callable[[Span], None]] = field(default_factory=list)
    disturbance: Disturbance = field(default_factory=Disturbance)

    def event(self, source: str, text: Callable[[], str]) -> None:
        """Call the observers; the text is only made if there is one."""
        if self.observers:
            event = Event(source, text())
            for observer in self.observers:
                observer(event)

    def span(self, source: str, start: int, text: Callable[[], str]) -> None:
        """Call the observers with what began at a clock and ends now."""
        if self.span_observers:
            span = Span(source, text(), start, self.link.now())
            for observer in self.span_observers:
                observer(span)
