"""Power, temperatures and clocks of a card, with its link and its supply; and a limit above which it gets no
work. All readings of a card that is at work are made by its `Monitor`.

The card protects itself: its power management lowers clocks and switches off, independently of a driver, and
this one changes none of that (`smu.MAY_SEND`), but for a power limit that its user wants lower. The check
here stops before that, with an error that says why the card would be slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sdk.errors import DeviceFailed
from sdk.telemetry import metrics as figures
from usbgpu import pcie
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
        bus: of the card on PCIe; None if its link is not to be looked at.

    Attributes:
        metrics: of the last measurement; None before the first.
        reading: of the same one, as all devices report it; link and supply are those of the last `read`.
    """

    def __init__(self, card: Card, limits: Mapping[str, int] = LIMITS, bus: int | None = None) -> None:
        self.metrics: Metrics | None = None
        self.reading: figures.Metrics | None = None
        self._card = card
        self._limits = limits
        self._bus = bus
        self._links: list[int] | None = None
        self._hot: dict[str, int] = {}

    def read(self) -> figures.Metrics:
        """Measure the card, its link and its supply now: two lists, and a request where the supply has a
        monitor.

        Raises:
            GpuFailed, DeviceFailed, DeviceMissing: as `measure`.
        """
        bridge, link = self._card.bridge, None
        if self._bus is not None:
            if self._links is None:
                self._links = pcie.link_registers(bridge, self._bus)
            now = pcie.link_now(bridge, self._links)
            link = figures.Link(now.rate, now.lanes)
        supply = bridge.supply()
        known = None if supply is None else figures.Supply(supply.volts, supply.amperes, supply.fault)
        return self._measured(link, known)

    def _measured(self, link: figures.Link | None, supply: figures.Supply | None) -> figures.Metrics:
        """Measure the card; beside it, what is known of link and supply."""
        self.metrics = found = measure(self._card)
        self._hot = {
            name: found.temperatures[name]
            for name, limit in self._limits.items()
            if found.temperatures.get(name, 0) > limit
        }
        bridge = self._card.bridge
        self.reading = figures.Metrics(
            time=bridge.clock.now(),
            watts=found.power,
            gpu_celsius=found.temperatures.get("EDGE"),
            hotspot_celsius=found.temperatures.get("HOTSPOT"),
            memory_celsius=found.temperatures.get("MEM"),
            clocks_mhz=found.clocks,
            activity_percent=found.activity,
            fan_rpm=found.fan,
            throttled=found.throttled,
            link=link,
            traffic=bridge.traffic,
            supply=supply,
        )
        return self.reading

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
        """Measure the card alone; `check` needs not do so for a while then. Raises as `measure`."""
        last = self.reading
        self._measured(None if last is None else last.link, None if last is None else last.supply)
        assert self.metrics is not None
        return self.metrics

    def check(self, interval: float = INTERVAL) -> None:
        """Measure the card if the last measurement is `interval` seconds old. Call it before submitting work:
        the work waits for it then, so a caller that has time in between should `read` more often.

        Raises:
            TooHot: a sensor is above its limit. As long as it is, every call measures.
            GpuFailed, DeviceFailed, DeviceMissing: as `measure`.
        """
        last, now = self.reading, self._card.bridge.clock.now()
        if last is not None and last.time is not None and now < last.time + interval and not self._hot:
            return
        self.look()
        if self._hot:
            text = ", ".join(
                f"{name.lower()} {value} (limit {self._limits[name]})" for name, value in self._hot.items()
            )
            raise TooHot(
                f"the card is too hot for more work: {text} degrees Celsius",
                where=self._card.bridge.name,
                hint="let it cool down, and check its fans and its airflow",
            )
