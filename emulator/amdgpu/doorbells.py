"""Doorbells: writes through BAR 2 that give an engine the write pointer of a queue.

Each doorbell has 64 bits. The bridge writes dwords, so that a doorbell is rung by its low dword, together
with the high one as it was written last; a high dword that changes rings again (grade: guess; it matters only
to queues whose pointer has reached 4 Gi).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emulator.amdgpu.context import Context
from emulator.amdgpu.diagnosis import BootStep
from usbgpu.amd.facts.doorbells import SIZE

ENGINES = ("cp", "sdma")
"""Those whose work waits for a doorbell."""

STEPS: tuple[BootStep, ...] = (
    BootStep(
        "nbio-doorbell-aperture",
        "RCC_DOORBELL_APER_EN.BIF_DOORBELL_APER_EN = 1",
        "every doorbell",
        "doorbells vanish: no queue ever sees its work",
        "inferred",
    ),
    BootStep(
        "nbio-doorbell-route-cp",
        "S2A_DOORBELL_ENTRY_0_CTRL: enable, AWID 3",
        "doorbells of compute queues",
        "doorbells reach no engine: compute queues never start",
        "inferred",
    ),
    BootStep(
        "nbio-doorbell-route-sdma",
        "S2A_DOORBELL_ENTRY_2_CTRL: enable, AWID 0xe, range of the queue's doorbell in dwords",
        "doorbells of SDMA queues",
        "the doorbell goes to the command processor, which has no such queue: SDMA never starts",
        "inferred",
    ),
)


@dataclass(frozen=True, slots=True)
class _Subscriber:
    first: int
    last: int
    kind: str
    ring: Callable[[int, int], None]


class Doorbells:
    """Hands doorbells to the engines that they are routed to; implements `seams.Doorbells`.

    Args:
        context: of the card.
        enabled: whether the aperture is.
        route: the kind of engine that a doorbell at an offset in bytes goes to; "" for none.
    """

    def __init__(self, context: Context, enabled: Callable[[], bool], route: Callable[[int], str]) -> None:
        self._context = context
        self._enabled = enabled
        self._route = route
        self._subscribers: list[_Subscriber] = []
        self._latched: dict[int, int] = {}

    def subscribe(self, first: int, last: int, kind: str, ring: Callable[[int, int], None]) -> None:
        """See seams.Doorbells."""
        self._subscribers.append(_Subscriber(first, last, kind, ring))

    def write(self, offset: int, value: int) -> None:
        """A dword written into the aperture; offset in bytes, a multiple of 4."""
        if not self._enabled():
            symptom = "a doorbell is written and nothing sees it"
            self._context.diagnosis.missing("nbio-doorbell-aperture", symptom)
            return
        place = offset & ~7
        before = self._latched.get(place, 0)
        if offset & 4:
            value = value << 32 | before & 0xFFFF_FFFF
            self._latched[place] = value
            if value == before:
                return
        else:
            value |= before & ~0xFFFF_FFFF
            self._latched[place] = value
        self._ring(place, value)

    def _ring(self, offset: int, value: int) -> None:
        kind = self._route(offset)
        self._context.event("doorbells", lambda: f"{offset:#x} = {value:#x} to {kind or 'no engine'}")
        interested = [one for one in self._subscribers if one.first <= offset <= one.last]
        routed = [one for one in interested if one.kind == kind]
        for one in routed:
            one.ring(offset, value)
        # A subscriber of this one doorbell comes before a subscriber of a range.
        reach = min((one.last - one.first for one in routed), default=SIZE)
        others = [one for one in interested if one.kind in ENGINES and one.kind != kind]
        others = [one for one in others if one.last - one.first < reach]
        nearest = min((one.last - one.first for one in others), default=SIZE)
        missed = {one.kind for one in others if one.last - one.first == nearest}
        if not routed and not missed and not kind:
            missed = {"cp"}
        where = f"the doorbell {offset:#x} goes to {kind or 'no engine'}"
        for other in sorted(missed):
            self._context.diagnosis.missing(f"nbio-doorbell-route-{other}", where)
        if not routed and not missed:
            self._context.diagnosis.wrong(f"{where}, where no queue expects it")
