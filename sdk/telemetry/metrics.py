"""The figures of a device: power, temperatures, clocks, link, supply; and of the work on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

GENERATIONS: Mapping[float, int] = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""Of PCI Express, by the GT/s of a lane (its base specification)."""
LOW_VOLTS = 11.04
"""Below it a supply sags: cards work on 12 V - 8 % (PCIe CEM 5.0, quoted in Intel's design guide ATX 3.0)."""
LATELY = 64
"""Inferences over which a rate is counted, at most."""


@dataclass(frozen=True, slots=True)
class Link:
    """The narrowest PCIe link on the way to a card, as it is trained now.

    Attributes:
        rate_gt: GT/s of a lane; 0 if the port reports an unknown one.
        lanes: how many.
    """

    rate_gt: float
    lanes: int

    @property
    def generation(self) -> int | None:
        """Of PCI Express; None if the rate is unknown."""
        return GENERATIONS.get(self.rate_gt)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"generation": self.generation, "rate_gt": self.rate_gt, "lanes": self.lanes}


@dataclass(frozen=True, slots=True)
class Traffic:
    """What went over the cable.

    Attributes:
        transfers: that ended, control transfers included.
        bytes_in, bytes_out: of those that succeeded, seen from the host.
        errors: transfers that failed: by wire errors, time-outs, a halted endpoint, a device that left. Those
            that were cancelled with one before them do not count, nor do requests that the device refused.
    """

    transfers: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    errors: int = 0

    def since(self, before: Traffic) -> Traffic:
        """What has been added."""
        return Traffic(
            self.transfers - before.transfers,
            self.bytes_in - before.bytes_in,
            self.bytes_out - before.bytes_out,
            self.errors - before.errors,
        )


@dataclass(frozen=True, slots=True)
class Supply:
    """What feeds a dock: bridge and card.

    Attributes:
        volts: at the dock, now.
        amperes: from the source; negative towards it.
        fault: the supply reports a fault.
    """

    volts: float
    amperes: float
    fault: bool = False

    @property
    def watts(self) -> float:
        """What bridge and card draw."""
        return self.volts * self.amperes


@dataclass(frozen=True, slots=True)
class Identity:
    """Which device it is.

    Attributes:
        place: where it is plugged in, as in `usb-2-1.4`.
        serial: its serial number, "" if it has none.
        chip: of the card.
    """

    place: str
    serial: str
    chip: str


@dataclass(frozen=True)
class Metrics:
    """The figures of a device; None for what is unknown, or what it does not have.

    Attributes:
        time: when it was measured, in seconds of the device's clock; None if nothing was.
        watts: that the card draws.
        gpu_celsius, hotspot_celsius, memory_celsius: temperatures: of the die's edge, of its hottest spot,
            and of the memory.
        clocks_mhz: by name, such as GFXCLK (shaders) and UCLK (memory); empty if unknown.
        activity_percent: of the shaders.
        fan_rpm: revolutions a minute.
        throttled: whether something limits the clocks.
        link: to the card.
        traffic: over the cable, since the network was loaded; of a device by itself, since it was opened.
        supply: of the dock.
        frames: inferences that returned their results since the network was loaded.
        frames_per_second: of the last ones.
    """

    time: float | None = None
    watts: float | None = None
    gpu_celsius: float | None = None
    hotspot_celsius: float | None = None
    memory_celsius: float | None = None
    clocks_mhz: Mapping[str, int] = field(default_factory=dict)
    activity_percent: float | None = None
    fan_rpm: int | None = None
    throttled: bool | None = None
    link: Link | None = None
    traffic: Traffic | None = None
    supply: Supply | None = None
    frames: int | None = None
    frames_per_second: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "time": None if self.time is None else round(self.time, 9),
            "watts": self.watts,
            "gpu_celsius": self.gpu_celsius,
            "hotspot_celsius": self.hotspot_celsius,
            "memory_celsius": self.memory_celsius,
            "clocks_mhz": dict(self.clocks_mhz),
            "activity_percent": self.activity_percent,
            "fan_rpm": self.fan_rpm,
            "throttled": self.throttled,
            "link": None if self.link is None else self.link.to_json(),
            "traffic": None if self.traffic is None else asdict(self.traffic),
            "supply": None if self.supply is None else asdict(self.supply),
            "frames": self.frames,
            "frames_per_second": self.frames_per_second,
        }


_WHOLE = Metrics(
    *(0.0, 0.0, 0.0, 0.0, 0.0, {}, 0.0, 0, False),
    *(Link(0.0, 1), Traffic(), Supply(0.0, 0.0), 0, 0.0),
).to_json()
_MOST = 1e18
"""No figure is larger."""


def understood(document: object) -> bool:
    """Whether this has the form of `Metrics.to_json`; another process wrote it."""
    return isinstance(document, Mapping) and all(
        document.get(key) is None or _is_like(document[key], like) for key, like in _WHOLE.items()
    )


def _is_like(value: object, like: object) -> bool:
    """Whether a value is of the kind of another: a number, a truth value, or the same of each member."""
    if isinstance(like, Mapping):
        if not isinstance(value, Mapping):
            return False
        pairs = [(value.get(key), one) for key, one in like.items()] or [(one, 0) for one in value.values()]
        return all(_is_like(*pair) for pair in pairs)
    if like is None and value is None:  # a generation that is unknown
        return True
    if isinstance(like, bool):
        return isinstance(value, bool)
    return is_figure(value)


def is_figure(value: object) -> bool:
    """Whether it is a number that can be shown: no truth value, not NaN, not infinite."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -_MOST <= value <= _MOST


class Frames:
    """Counts inferences as they end.

    Attributes:
        count: so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._ends: deque[float] = deque(maxlen=LATELY)

    def restart(self) -> None:
        """Count from 0: what ended so far was no frame."""
        self.count = 0
        self._ends.clear()

    def ended(self, now: float) -> None:
        """One more returned its results."""
        self.count += 1
        self._ends.append(now)

    def rate(self, now: float) -> float | None:
        """A second, of the last ones; it falls once they have stopped. None before the second one."""
        if len(self._ends) < 2:
            return None
        periods, first, last = len(self._ends) - 1, self._ends[0], self._ends[-1]
        if now - last > (last - first) / periods:  # the next one is overdue
            last = now
        return periods / (last - first) if last > first else None
