"""The dock's supply, as its sensor measures it: by the request SUPPLY, or through the bridge's registers.

Firmware that has the request is asked. An older one refuses it (ours), or leaves it unanswered (the published
one); then the sensor is read over the bridge's I2C bus, with the requests E4 and E5, as the dock's published
tools do it. That takes 70 transfers, so what a bridge needs is remembered.
"""

from __future__ import annotations

from firmware.asm2464pd import supply as facts
from firmware.asm2464pd.describe import ByteRegister
from firmware.asm2464pd.registers import i2c as regs
from firmware.asm2464pd.registers.flash import FLASH_BUFFER
from firmware.asm2464pd.registers.memory import XRAM_E800
from firmware.asm2464pd.supply import SensorRegister
from firmware.protocol import requests
from sdk.errors import DeviceFailed
from sdk.telemetry.metrics import Supply
from usbgpu.transport import Disconnected, Stalled, TimedOut, Transport

PATIENCE = 0.1
"""Seconds that firmware may take for the request: as long as the dock's published tools wait."""
TRANSACTION = 0.05
"""Seconds that a transaction on the I2C bus may take; likewise."""
UNFAULTED = 4
"""Bytes of the first published answers, which had no fault."""

_POINTED, _READ = (
    regs.I2C_CSR["DONE"] | regs.I2C_CSR.field("OUTCOME").put(code)
    for code, name in regs.I2C_CSR.field("OUTCOME").values.items()
    if name in ("POINTED", "READ")
)
_PINS = ((regs.PIN_SCL, 0x13), (regs.PIN_SDA, 0x14))
_CLOCK = ((regs.I2C_MODE, 0xC4), (regs.I2C_CLOCK_LOW, 0x18), (regs.I2C_CLOCK_HIGH, 0x4A))
"""What published firmware writes at its start."""


class SensorMissing(DeviceFailed):
    """No sensor answers on the bridge's I2C bus: the dock has none, or it is broken."""

    code = "sensor-missing"


class SupplyReader:
    """Reads the supply of a bridge.

    Args:
        transport: to firmware that answers E4 and E5.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._has_request = True

    def read(self) -> Supply:
        """A measurement of now.

        Raises:
            SensorMissing: no sensor answers.
            DeviceFailed, DeviceMissing: the transport's errors.
        """
        if self._has_request:
            try:
                return self._asked()
            except Disconnected:
                raise
            except (Stalled, TimedOut):
                self._has_request = False
        return self._measured()

    # -- by the request ---------------------------------------------------------------------------------

    def _asked(self) -> Supply:
        request, layout = requests.SUPPLY, requests.SUPPLY_STATUS
        data = self._transport.control_in(
            request.request_type, request.code, length=layout.size, timeout=PATIENCE
        )
        if len(data) not in (UNFAULTED, layout.size):
            raise DeviceFailed(
                f"the bridge described its supply in {len(data)} bytes, expected {layout.size}",
                where=self._transport.name,
                hint="another program may use the bridge: end it, or flash other firmware",
            )
        found = layout.unpack(data.ljust(layout.size, b"\0"))
        if layout.member("fault").field("SENSOR").get(found["fault"]):
            raise self._missing()
        amperes = int.from_bytes(found["milliamperes"].to_bytes(2, "little"), "little", signed=True) / 1e3
        return Supply(found["millivolts"] / 1e3, amperes, bool(found["fault"]))

    # -- through the bridge's registers -----------------------------------------------------------------

    def _measured(self) -> Supply:
        for register, value in (*_PINS, *_CLOCK):
            if self._get(register) != value:
                self._set(register, value)
        shunt, bus = (self._sensor(register) for register in (SensorRegister.SHUNT, SensorRegister.BUS))
        good = self._get(regs.PIN_LEVELS) & regs.PIN_LEVELS["SUPPLY_GOOD"]
        return Supply(facts.millivolts(bus) / 1e3, facts.milliamperes(shunt) / 1e3, not good)

    def _sensor(self, register: SensorRegister) -> int:
        """A register of the sensor."""
        target = regs.I2C_TARGET.field("ADDRESS").put(facts.ADDRESS)
        for place, value in ((regs.I2C_TARGET, target), (regs.I2C_DATA, register), (regs.I2C_WRITES, 0)):
            self._set(place, value)
        for offset in (regs.I2C_SOURCE, regs.I2C_DESTINATION):
            self._set(offset, 0)
        self._set(regs.I2C_LENGTH, 1)
        self._transfer(_POINTED)
        for place, value in (
            (regs.I2C_TARGET, target | regs.I2C_TARGET["READ"]),
            (regs.I2C_DATA, 0),
            (regs.I2C_LENGTH, 2),
        ):
            self._set(place, value)
        before = self._get(FLASH_BUFFER)
        self._set(FLASH_BUFFER, before | FLASH_BUFFER["I2C_RECEIVE"])
        try:
            self._transfer(_READ)
            read = requests.XDATA_READ
            data = self._transport.control_in(read.request_type, read.code, value=XRAM_E800.address, length=2)
        finally:
            self._set(FLASH_BUFFER, before & ~FLASH_BUFFER["I2C_RECEIVE"])
        return int.from_bytes(data, "big")

    def _transfer(self, expected: int) -> None:
        """Run a transaction. Raises SensorMissing if it ends otherwise than expected, or not at all."""
        self._set(regs.I2C_CSR, 0xFF)
        self._set(regs.I2C_CSR, regs.I2C_CSR["START"])
        end = self._transport.clock.now() + TRANSACTION
        while True:
            late = self._transport.clock.now() >= end
            status = self._get(regs.I2C_CSR)
            if status & regs.I2C_CSR["DONE"] or late:
                break
        self._set(regs.I2C_CSR, regs.I2C_CSR["DONE"])
        if status != expected:
            raise self._missing()

    def _get(self, register: ByteRegister) -> int:
        read = requests.XDATA_READ
        return self._transport.control_in(read.request_type, read.code, value=register.address, length=1)[0]

    def _set(self, register: ByteRegister, value: int) -> None:
        """Write every byte of a register."""
        write = requests.XDATA_WRITE
        for place, byte in zip(register.addresses, value.to_bytes(register.size, "big"), strict=True):
            self._transport.control_out(write.request_type, write.code, value=place, index=byte)

    def _missing(self) -> SensorMissing:
        return SensorMissing(
            "no sensor of the dock's supply answers",
            where=self._transport.name,
            hint="this board has none, or its I2C bus does not work; all else works without it",
        )
