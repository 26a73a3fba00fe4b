"""An INA231: a sensor of voltage and current on an I2C bus.

Registers, scales and the rules of conversions and alerts are those of its data sheet (Texas Instruments
SBOS644). A conversion here has the values of the moment at which it is looked at, where the part averages
over it; of averaging only the time is modelled.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.core.clock import clocks
from firmware.asm2464pd.supply import BUS_MICROVOLTS, CONFIGURATION, SHUNT_NANOVOLTS, SensorRegister

RESET = 0x8000
"""Of the configuration: all registers are as after power-on."""
SHUNT_ON, BUS_ON, CONTINUOUS = 0x1, 0x2, 0x4
"""Bits of its mode."""
CONVERSION_MICROSECONDS = (140, 204, 332, 588, 1100, 2116, 4156, 8244)
"""Of one voltage, by the settings of its time."""
AVERAGES = (1, 4, 16, 64, 128, 256, 512, 1024)
LATCH, OVERFLOW, READY, ALERT, READY_ALERT = 0x0001, 0x0004, 0x0008, 0x0010, 0x0400
"""Bits of MASK_ENABLE: LEN, OVF, CVRF, AFF, CNVR."""
SETTINGS = 0xFC03
"""Bits of it that software writes."""
LARGEST_BUS = 0x7FFF
CURRENT_DIVISOR, POWER_DIVISOR = 2048, 20_000

_R = SensorRegister
_WRITABLE = {
    _R.CONFIGURATION: 0xFFFF,
    _R.CALIBRATION: 0x7FFF,
    _R.MASK_ENABLE: SETTINGS,
    _R.ALERT_LIMIT: 0xFFFF,
}


class Ina231:
    """The sensor; an `emulator.asm2464pd.i2c.Target`.

    Args:
        now: chip clocks.
        volts: at the bus pin.
        shunt_volts: between the two sides of the shunt.
    """

    def __init__(
        self, now: Callable[[], int], volts: Callable[[], float], shunt_volts: Callable[[], float]
    ) -> None:
        self._now = now
        self.volts = volts
        self.shunt_volts = shunt_volts
        self.power_on()

    def power_on(self) -> None:
        """All registers as after power-on; the first conversion begins."""
        self._values = dict.fromkeys(SensorRegister, 0)
        self._values[_R.CONFIGURATION] = CONFIGURATION
        self._pointer = 0
        self._convert()

    # -- Target -----------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """See Target: the pointer, and the two bytes of a register if there are any."""
        if data:
            self._pointer = data[0]
        if len(data) == 3:
            self._store(self._pointer, int.from_bytes(data[1:], "big"))

    def read(self, count: int) -> bytes:
        """See Target: the register at the pointer. What follows its two bytes is not described: ones."""
        self._update()
        register = self._pointer
        value = self._values.get(SensorRegister(register), 0) if register in set(SensorRegister) else 0
        if register == _R.MASK_ENABLE:
            self._values[_R.MASK_ENABLE] &= ~(READY | ALERT)
        return value.to_bytes(2, "big").ljust(count, b"\xff")[:count]

    # -- inside -----------------------------------------------------------------------------------------

    def _store(self, pointer: int, value: int) -> None:
        if pointer not in _WRITABLE:
            return
        self._update()
        register = SensorRegister(pointer)
        mask = _WRITABLE[register]
        self._values[register] = self._values[register] & ~mask | value & mask
        if register is _R.CONFIGURATION:
            if value & RESET:
                self.power_on()
                return
            self._values[_R.MASK_ENABLE] &= ~READY
            self._convert()

    @property
    def _mode(self) -> int:
        return self._values[_R.CONFIGURATION] & 0x7

    def _convert(self) -> None:
        """The first conversion of these settings begins, if they have any."""
        settings, micro = self._values[_R.CONFIGURATION], 0
        if self._mode & SHUNT_ON:
            micro += CONVERSION_MICROSECONDS[settings >> 3 & 7]
        if self._mode & BUS_ON:
            micro += CONVERSION_MICROSECONDS[settings >> 6 & 7]
        micro *= AVERAGES[settings >> 9 & 7]
        self._length = clocks(micro * 1e-6)
        self._begun: int | None = self._now() if micro else None

    def _update(self) -> None:
        """Take the values of the last conversion that has ended since the sensor was last looked at."""
        if self._begun is None:
            return
        ended = (self._now() - self._begun) // self._length
        if not ended:
            return
        self._begun = self._begun + ended * self._length if self._mode & CONTINUOUS else None
        values = self._values
        if self._mode & SHUNT_ON:
            measured = round(self.shunt_volts() * 1e9 / SHUNT_NANOVOLTS)
            values[_R.SHUNT] = min(max(measured, -0x8000), 0x7FFF) & 0xFFFF
        if self._mode & BUS_ON:
            values[_R.BUS] = min(max(round(self.volts() * 1e6 / BUS_MICROVOLTS), 0), LARGEST_BUS)
        current = _signed(values[_R.SHUNT]) * values[_R.CALIBRATION] // CURRENT_DIVISOR
        power = abs(current) * values[_R.BUS] // POWER_DIVISOR
        overflow = not -0x8000 <= current <= 0x7FFF or power > 0xFFFF
        values[_R.CURRENT], values[_R.POWER] = current & 0xFFFF, power & 0xFFFF
        self._flag(overflow)

    def _flag(self, overflow: bool) -> None:
        """The flags of a conversion that has ended."""
        mask = self._values[_R.MASK_ENABLE]
        kept = ALERT if mask & LATCH else 0
        mask = mask & (SETTINGS | kept) | READY | (OVERFLOW if overflow else 0)
        if self._beyond(mask):
            mask |= ALERT
        self._values[_R.MASK_ENABLE] = mask

    def _beyond(self, mask: int) -> bool:
        """Whether the chosen voltage or power is beyond the limit; of several the highest bit counts."""
        values, limit = self._values, self._values[_R.ALERT_LIMIT]
        shunt, bus = _signed(values[_R.SHUNT]), values[_R.BUS]
        rules = (
            (0x8000, shunt > _signed(limit)),
            (0x4000, shunt < _signed(limit)),
            (0x2000, bus > limit),
            (0x1000, bus < limit),
            (0x0800, values[_R.POWER] > limit),
        )
        return next((beyond for bit, beyond in rules if mask & bit), False)


def _signed(value: int) -> int:
    return value - 0x10000 if value & 0x8000 else value
