"""The supply's sensor, by its data sheet, and the supply that it measures."""

from __future__ import annotations

import pytest

from emulator.core.clock import clocks
from emulator.ina231 import Ina231
from emulator.supply import BRIDGE_WATTS, LEAST_VOLTS, SOURCE_OHMS, Supply
from firmware.asm2464pd import supply as facts

MILLISECOND = clocks(1e-3)


class Bench:
    def __init__(self, volts: float = 11.98, shunt: float = 0.020) -> None:
        self.now = 0
        self.volts, self.shunt = volts, shunt
        self.sensor = Ina231(lambda: self.now, lambda: self.volts, lambda: self.shunt)

    def get(self, register: int) -> int:
        self.sensor.write(bytes([register]))
        return int.from_bytes(self.sensor.read(2), "big")

    def set(self, register: int, value: int) -> None:
        self.sensor.write(bytes([register, *value.to_bytes(2, "big")]))


def test_the_registers_after_power_on() -> None:
    bench = Bench()
    assert [bench.get(register) for register in range(8)] == [0x4127, 0, 0, 0, 0, 0, 0, 0]


def test_voltages_of_the_data_sheets_example() -> None:
    """SBOS644, 8.5.1: 11.98 V, 20 mV over 2 mOhm, a calibration of 2560 for 1 mA a bit."""
    bench = Bench()
    bench.set(5, 2560)
    bench.now += 3 * MILLISECOND
    assert bench.get(2) == 9584
    assert bench.get(1) == 8000
    assert bench.get(4) == 10000
    assert bench.get(3) == 4792
    assert facts.millivolts(bench.get(2)) == 11980


def test_nothing_is_measured_before_a_conversion_ends_and_then_it_follows() -> None:
    bench = Bench()
    bench.now = clocks(2.1e-3)
    assert bench.get(2) == 0
    bench.now = clocks(2.3e-3)
    assert bench.get(2) == 9584
    bench.volts = 9.0
    bench.now += clocks(2.3e-3)
    assert bench.get(2) == 7200


def test_a_negative_current_and_the_ends_of_the_range() -> None:
    bench = Bench(volts=50.0, shunt=-0.020)
    bench.now = clocks(10e-3)
    assert (bench.get(1), bench.get(2)) == (0x10000 - 8000, 0x7FFF)
    assert facts.milliamperes(bench.get(1)) == -9103
    bench.shunt = 1.0
    bench.now += clocks(10e-3)
    assert bench.get(1) == 0x7FFF


def test_modes() -> None:
    bench = Bench()
    bench.set(0, 0x4120)  # power-down
    bench.now += 10 * MILLISECOND
    assert bench.get(2) == 0
    bench.set(0, 0x4122)  # the bus once
    bench.now += 2 * MILLISECOND
    assert (bench.get(1), bench.get(2)) == (0, 9584)
    bench.volts = 5.0
    bench.now += 10 * MILLISECOND
    assert bench.get(2) == 9584
    bench.set(0, 0x4F27)  # 1,024 averages: 2.25 s
    bench.now += 2000 * MILLISECOND
    assert bench.get(2) == 9584
    bench.now += 500 * MILLISECOND
    assert bench.get(2) == 4000
    bench.set(0, 0x8000)
    assert (bench.get(0), bench.get(2)) == (0x4127, 0)


@pytest.mark.parametrize(
    ("function", "limit", "alert"),
    [
        (0x8000, 7999, True), (0x8000, 8000, False), (0x4000, 8001, True), (0x2000, 9583, True),
        (0x2000, 9584, False), (0x1000, 9585, True), (0x0800, 4791, True), (0x0000, 0, False),
    ],
)  # fmt: skip
def test_alerts(function: int, limit: int, alert: bool) -> None:
    bench = Bench()
    bench.set(5, 2560)
    bench.set(7, limit)
    bench.set(6, function)
    bench.now += 3 * MILLISECOND
    assert bool(bench.get(6) & 0x10) is alert
    assert not bench.get(6) & 0x08, "reading has cleared the ready flag"


def test_read_only_and_unknown_registers() -> None:
    bench = Bench()
    bench.set(2, 0x1234)
    bench.set(0x40, 0x1234)
    assert (bench.get(2), bench.get(0x40)) == (0, 0)
    bench.set(6, 0xFFFF)
    assert bench.get(6) == 0xFC03


def test_currents_are_those_of_the_published_firmware() -> None:
    for shunt in (*range(0, 0x10000, 97), 0x7FFF, 0x8000, 0xFFFF):
        signed = shunt - 0x10000 if shunt & 0x8000 else shunt
        expected = int(signed * 2500 / 2197)  # C rounds to zero
        expected = (expected + 0x8000) % 0x10000 - 0x8000
        assert facts.milliamperes(shunt) == expected


def test_the_supply_gives_what_its_load_draws() -> None:
    watts = 97.5
    supply = Supply(lambda: watts)
    assert supply.volts * supply.amperes == pytest.approx(watts + BRIDGE_WATTS)
    assert supply.volts == pytest.approx(12 - supply.amperes * SOURCE_OHMS)
    light, watts = supply.volts, 197.5
    assert supply.volts < light
    supply.open_volts = 10.0
    assert LEAST_VOLTS < supply.volts < 10.0
    watts = 10_000.0
    assert supply.volts == 5.0, "more than the source can give"
    supply.open_volts = 0.0
    assert (supply.volts, supply.amperes) == (0.0, 0.0)
