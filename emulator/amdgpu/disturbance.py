"""What disturbs a card, for rehearsals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Disturbance:
    """Faults of a card that are not its driver's. Resets leave it alone.

    Attributes:
        dispatches: how many have begun.
        hangs: what is called when the dispatch of a number, from 1, begins, which then never ends.
        on_heat: called when `heat` has changed.
    """

    dispatches: int = 0
    hangs: dict[int, Callable[[], None]] = field(default_factory=dict)
    on_heat: Callable[[], None] = lambda: None
    _heat: float = 0.0

    @property
    def heat(self) -> float:
        """Degrees Celsius that its sensors report beyond the model's."""
        return self._heat

    @heat.setter
    def heat(self, value: float) -> None:
        self._heat = value
        self.on_heat()

    def hang(self) -> bool:
        """A dispatch begins: whether it never ends."""
        self.dispatches += 1
        struck = self.hangs.pop(self.dispatches, None)
        if struck is not None:
            struck()
        return struck is not None
