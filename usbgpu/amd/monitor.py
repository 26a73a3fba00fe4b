"""Power, temperatures and clocks of a card; and a limit above which it gets no work.

The card protects itself: its power management lowers clocks and switches off, independently of a driver, and
this one changes none of that (`smu.MAY_SEND`), but for a power limit that its user wants lower. The check
here stops before that, with an error that says why the card would be slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sdk.errors import DeviceFailed
from usbgpu.amd import ih, layout, smu
from usbgpu.amd.batch import Batch
from usbgpu.amd.card import Card
from usbgpu.amd.facts import smu as facts

LIMITS = facts.THERMAL_LIMITS
"""Degrees Celsius above which no work is submitted. The card's own table of limits is not read."""
INTERVAL = 1.0
"""Seconds of the device's time between two measurements of `Monitor.check`."""


class TooHot(DeviceFailed):
    """The card is too hot for more work."""

    code = "gpu-too-hot"


@dataclass(frozen=True, slots=True)
class Metrics:
    """What the power management reports.

    Attributes:
        power: of the board, in watts.
        temperatures: in degrees Celsius, by sensor: EDGE, HOTSPOT, MEM and others.
        clocks: in MHz, by clock: GFXCLK, UCLK, FCLK, SOCCLK and others.
        activity: of the shaders, in per cent.
        fan: revolutions a minute.
        throttled: whether something limits the clocks.
        heat: interrupts by which the power management has reported since the last measurement that heat
            makes it lower clocks.
    """

    power: int
    temperatures: Mapping[str, int]
    clocks: Mapping[str, int]
    activity: int
    fan: int
    throttled: bool
    heat: int = 0

    def document(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return {
            "power_watts": self.power,
            "temperatures_celsius": dict(self.temperatures),
            "clocks_mhz": dict(self.clocks),
            "activity_percent": self.activity,
            "fan_rpm": self.fan,
            "throttled": self.throttled,
            "heat_interrupts": self.heat,
        }


def measure(card: Card) -> Metrics:
    """Measure a card that is up, and see whether it has reported heat. One list, and two or three if it has.

    Raises:
        GpuFailed: the power management does not answer.
        DeviceFailed, DeviceMissing: the bridge's errors.
    """
    interface = facts.interface(card.chip)
    table = interface.metrics
    batch = Batch(card, "metrics")
    smu.send(batch, "TransferTableSmu2Dram", facts.TABLES["SMU_METRICS"])
    found = batch.load(layout.SMU_TABLE, -(-table.size // 4) * 4)
    pointers = ih.ask(batch)
    smu.acknowledge(batch)
    batch.run()
    data = found.value
    return Metrics(
        power=table.get(data, "AverageTotalBoardPower") or table.get(data, "AverageSocketPower"),
        temperatures={
            name: table.get(data, "AvgTemperature", place)
            for place, name in enumerate(interface.temperatures)
        },
        clocks={name: table.get(data, "CurrClock", place) for place, name in enumerate(interface.clocks)},
        activity=table.get(data, "AverageGfxActivity"),
        fan=table.get(data, "AvgFanRpm"),
        throttled=any(
            table.get(data, "ThrottlingPercentage", place) for place in range(interface.throttlers)
        ),
        heat=ih.throttlings(card, pointers),
    )


class Monitor:
    """Watches a card for code that submits work to it.

    Args:
        card: that is up.
        limits: degrees Celsius by sensor.

    Attributes:
        metrics: of the last measurement; None before the first.
    """

    def __init__(self, card: Card, limits: Mapping[str, int] = LIMITS) -> None:
        self.metrics: Metrics | None = None
        self._card = card
        self._limits = limits
        self._looked = 0.0

    def cool_down(self, end: float) -> None:
        """Wait until the card is not too hot, up to a time of the device's clock. Raises as `check` does."""
        clock = self._card.bridge.clock
        while True:
            try:
                return self.check(0)
            except TooHot:
                if clock.now() >= end:
                    raise
            clock.sleep(INTERVAL)

    def look(self) -> Metrics:
        """Measure the card; `check` needs not do so for a while then. Raises as `measure`."""
        metrics = measure(self._card)
        self.metrics, self._looked = metrics, self._card.bridge.clock.now()
        return metrics

    def check(self, interval: float = INTERVAL) -> None:
        """Measure the card if the last measurement is `interval` seconds old. Call it before submitting work.

        Raises:
            TooHot: a sensor is above its limit. As long as it is, every call measures.
            GpuFailed, DeviceFailed, DeviceMissing: as `measure`.
        """
        metrics, now = self.metrics, self._card.bridge.clock.now()
        if metrics is None or now >= self._looked + interval or self._hot(metrics):
            metrics = self.look()
        hot = self._hot(metrics)
        if hot:
            text = ", ".join(
                f"{name.lower()} {value} (limit {self._limits[name]})" for name, value in hot.items()
            )
            raise TooHot(
                f"the card is too hot for more work: {text} degrees Celsius",
                where=self._card.bridge.name,
                hint="let it cool down, and check its fans and its airflow",
            )

    def _hot(self, metrics: Metrics) -> dict[str, int]:
        """The sensors above their limits, with what they measure."""
        found = metrics.temperatures
        return {name: found[name] for name, limit in self._limits.items() if found.get(name, 0) > limit}
