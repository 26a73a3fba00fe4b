"""The dock's supply: one source of 12 V for card and bridge, with the resistance of its cable.

What the load draws is power, so that a voltage that sags makes the current rise. Nominal voltage and current
are those of the one dock that is described in public (12 V, 100 W; inferred); resistance, the bridge's own
share, and where the converters give up are guesses.
"""

from __future__ import annotations

import math
from collections.abc import Callable

NOMINAL_VOLTS = 12.0
SOURCE_OHMS = 0.02
"""Of the source and its cable (guess)."""
BRIDGE_WATTS = 2.5
"""What the bridge itself draws (guess)."""
LEAST_VOLTS = 9.0
"""Below that the dock's converters stop (guess)."""


class Supply:
    """The supply.

    Args:
        card_watts: what the card draws now.

    Attributes:
        open_volts: of the source without load; a fault lowers it.
        fault: whether it reports a fault.
        sensor: whether there is a sensor on the I2C bus.
    """

    def __init__(self, card_watts: Callable[[], float], *, sensor: bool = True) -> None:
        self._card_watts = card_watts
        self.open_volts = NOMINAL_VOLTS
        self.fault = False
        self.sensor = sensor

    @property
    def watts(self) -> float:
        """What card and bridge draw."""
        return BRIDGE_WATTS + self._card_watts()

    @property
    def volts(self) -> float:
        """At the dock. A load beyond what the source can give gets half its voltage, where it gives most."""
        most = self.open_volts**2 / (4 * SOURCE_OHMS)
        share = max(0.0, 1.0 - self.watts / most) if most else 0.0
        return self.open_volts * (1 + math.sqrt(share)) / 2

    @property
    def amperes(self) -> float:
        """From the source."""
        return (self.open_volts - self.volts) / SOURCE_OHMS
