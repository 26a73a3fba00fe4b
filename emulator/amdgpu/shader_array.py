"""The shader array in time: dispatches run side by side, and share it when together they would fill it.

A dispatch alone takes the time that it is given. As long as the shares of the array that all of them can fill
add up to no more than 1, none hinders another; beyond that all are slowed alike (model; grade: guess). What
the power limit takes away comes on top: `emulator.amdgpu.power`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from emulator.amdgpu.context import Link
from emulator.amdgpu.cost import Work
from emulator.amdgpu.power import Power


@dataclass(slots=True, eq=False)
class Running:
    """A dispatch that is under way.

    Attributes:
        left: chip clocks that it would take yet, if it were alone and power did not matter.
        work: what it asks of the card.
        spans: what it will have written: first address and end of stretches that rise and do not touch.
        alive: whether it has not been killed.
        ended: called at its end.
        behind: called when it has ended, or was killed.
        rate: its speed within the power limit, 1 if that does not matter.
    """

    left: float
    work: Work
    spans: Sequence[tuple[int, int]]
    alive: Callable[[], bool]
    ended: Callable[[], None]
    behind: list[Callable[[], None]] = field(default_factory=list)
    rate: float = 1.0


class ShaderArray:
    """The array.

    Args:
        link: time.
        power: of the board.
    """

    def __init__(self, link: Link, power: Power) -> None:
        self._link = link
        self._power = power
        power.replan = self._replan
        self._running: list[Running] = []
        self._since = 0
        self._plan = 0

    def begin(self, dispatch: Running) -> None:
        """Run a dispatch from now on."""
        self._pass()
        self._running.append(dispatch)
        self._schedule()

    def settle(self) -> None:
        """Some may have been killed: the others have the array to themselves."""
        self._pass()
        dead = [one for one in self._running if not one.alive()]
        self._running = [one for one in self._running if one.alive()]
        self._schedule()
        for one in dead:
            self._free(one)

    def writer(self, spans: Sequence[tuple[int, int]]) -> Running | None:
        """A dispatch under way that will have written some of these bytes too."""
        return next((one for one in self._running if one.alive() and touch(one.spans, spans)), None)

    # -- inside -----------------------------------------------------------------------------------------

    @property
    def _speed(self) -> float:
        return 1 / max(1.0, sum(one.work.share for one in self._running))

    def _replan(self) -> None:
        """Power or clocks have changed."""
        if self._running:
            self._pass()
            self._schedule()

    def _pass(self) -> None:
        """Account for the time since the last change."""
        now = self._link.now()
        done = (now - self._since) * self._speed
        self._since = now
        for one in self._running:
            one.left -= done * one.rate

    def _schedule(self) -> None:
        self._plan += 1
        plan = self._plan
        rates = self._power.run([one.work for one in self._running], self._speed)
        for one, rate in zip(self._running, rates, strict=True):
            one.rate = rate
        if self._running:
            soonest = max(min(one.left / one.rate for one in self._running), 0)
            # Rounded, so that a sum of fractions does not cost a clock.
            wait = math.ceil(round(soonest / self._speed, 3))
            self._link.schedule(wait, lambda: self._end() if plan == self._plan else None)

    def _end(self) -> None:
        self._pass()
        ended = [one for one in self._running if one.left < 0.5]
        self._running = [one for one in self._running if one.left >= 0.5]
        self._schedule()
        for one in ended:
            if one.alive():
                one.ended()
            self._free(one)

    def _free(self, one: Running) -> None:
        for action in one.behind:
            action()


def spans(writes: Sequence[tuple[int, bytes]]) -> list[tuple[int, int]]:
    """Where memory is written: first address and end of stretches that rise and do not touch."""
    found: list[tuple[int, int]] = []
    for start, end in sorted((address, address + len(data)) for address, data in writes):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def touch(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> bool:
    """Whether two lists of stretches have a byte in common."""
    i = j = 0
    while i < len(one) and j < len(other):
        if one[i][0] < other[j][1] and other[j][0] < one[i][1]:
            return True
        if one[i][1] <= other[j][1]:
            i += 1
        else:
            j += 1
    return False
