"""The supply monitor of the dock: an INA231 on the bridge's I2C bus.

The sensor's registers are those of its data sheet (Texas Instruments SBOS644). Its address and the shunt are
the dock's: the published firmware has both, and has calibrated the shunt against a known load twice. The
value here is that of the later revision of the board; the earlier one has 2408.
"""

from __future__ import annotations

from enum import IntEnum

ADDRESS = 0x45
"""Of the sensor, 7 bits (hardware)."""
SHUNT_MICROOHMS = 2197
"""The shunt (trace: open firmware, i2c.h)."""
BUS_MICROVOLTS = 1250
"""A bit of the bus voltage (data sheet)."""
SHUNT_NANOVOLTS = 2500
"""A bit of the shunt voltage (data sheet)."""
CONFIGURATION = 0x4127
"""Of the sensor after power-on: both voltages, continuously, 1.1 ms each, no averaging (data sheet)."""


class SensorRegister(IntEnum):
    """A register of the sensor: 16 bits, most significant byte first."""

    CONFIGURATION = 0x00
    SHUNT = 0x01
    BUS = 0x02
    POWER = 0x03
    CURRENT = 0x04
    CALIBRATION = 0x05
    MASK_ENABLE = 0x06
    ALERT_LIMIT = 0x07


def millivolts(bus: int) -> int:
    """The bus voltage register in mV, rounded down as the published firmware does."""
    return bus * BUS_MICROVOLTS // 1000


def milliamperes(shunt: int) -> int:
    """The shunt voltage register, 16 bits in two's complement, in mA; rounded to zero, wrapped to 16 bits."""
    voltage = shunt - 0x10000 if shunt & 0x8000 else shunt
    current = abs(voltage) * SHUNT_NANOVOLTS // SHUNT_MICROOHMS
    wrapped = (current if voltage >= 0 else -current) & 0xFFFF
    return wrapped - 0x10000 if wrapped & 0x8000 else wrapped
