"""How much of a stream's rate a device's temperatures allow: the decision alone, without a device.

Below every limit less MARGIN a stream has its full rate; from there on half of it; at a limit it stops. What
was lowered is raised again HYSTERESIS below the temperature at which it was lowered, so that it does not
swing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sdk.telemetry.metrics import Metrics

GPU, MEMORY = 100.0, 95.0
"""Degrees Celsius at which a card in a car is given no more work (what public software of cars takes)."""
MARGIN = 5.0
"""Degrees below a limit from which on the rate is lowered."""
HYSTERESIS = 5.0
"""Degrees."""
STEPS: Mapping[float, float] = {0.0: 0.0, MARGIN: 0.5}
"""Degrees below a limit, and the share of the rate from there on, the lowest first."""


@dataclass(frozen=True)
class Limits:
    """Degrees Celsius at which the stream stops.

    Attributes:
        gpu: of the hottest place of the device's processor.
        memory: of its memory.
    """

    gpu: float = GPU
    memory: float = MEMORY


CAR = Limits()


class Pace:
    """The share of the rate that may be used.

    Args:
        limits: of the temperatures.

    Attributes:
        share: 1 for all of it, 0 for a pause.
        cause: of what it is, in words; "" before the first reading.
    """

    def __init__(self, limits: Limits = CAR) -> None:
        self.share = 1.0
        self.cause = ""
        self._limits = limits
        self._credit = 1.0

    def take(self, reading: Metrics) -> bool:
        """Take a reading; whether the share has changed. Sensors that are not known limit nothing."""
        hottest = reading.gpu_celsius if reading.hotspot_celsius is None else reading.hotspot_celsius
        measured = [
            (name, celsius, limit)
            for name, celsius, limit in (
                ("GPU", hottest, self._limits.gpu),
                ("memory", reading.memory_celsius, self._limits.memory),
            )
            if celsius is not None
        ]
        if not measured:
            return False
        name, celsius, limit = max(measured, key=lambda one: one[1] - one[2])
        below, before = limit - celsius, self.share
        allowed = next((share for margin, share in STEPS.items() if below <= margin), 1.0)
        # A share that is in force stays until it has cooled down by the hysteresis.
        kept = next((share for margin, share in STEPS.items() if below < margin + HYSTERESIS), 1.0)
        self.share = min(allowed, max(before, kept))
        self.cause = f"{name} {celsius:g} degrees Celsius, the limit is {limit:g}"
        return self.share != before

    def admits(self) -> bool:
        """Whether the next frame may be computed: of several, the share."""
        self._credit = min(1.0, self._credit + self.share)
        if self._credit < 1.0 or not self.share:
            return False
        self._credit -= 1.0
        return True
