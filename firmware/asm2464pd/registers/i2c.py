"""Registers of the I2C master and of the pins that the dock's supply monitor is on.

A transaction is one address and a transfer in one direction; there is no repeated start. Which transfer it is
follows from four registers:

    I2C_TARGET.READ  I2C_WRITES  I2C_LENGTH     on the bus
    0                0           0              address, stop
    0                0           not 0          address, I2C_DATA, stop: sets a target's register pointer
    0                not 0       any            address, I2C_DATA, the two bytes at 0xE800, stop
    1                0           n              address, n bytes to 0xE800 if I2C_RECEIVE is set, stop

Published firmware for the dock and a published tool that goes through E4 and E5 do the second and the last
(hardware: they read the dock's supply with them).
"""

from __future__ import annotations

from firmware.asm2464pd.describe import ByteRegister, Space
from sdk.facts.registers import Access, Evidence, Field

_OPEN = "open firmware, i2c.h"
_TOOL = "the dock's published tools, i2c.py"
_PINS = "open firmware, gpio.h"

I2C_TARGET = ByteRegister(
    "I2C_TARGET",
    Space.XDATA,
    0xC870,
    Evidence.HARDWARE,
    "The target, and the direction of the transfer.",
    fields=(Field("READ", 0, doc="1 reads"), Field("ADDRESS", 1, 7, "of the target, 7 bits")),
    source=f"{_OPEN}; {_TOOL}",
)
I2C_DATA = ByteRegister(
    "I2C_DATA",
    Space.XDATA,
    0xC871,
    Evidence.HARDWARE,
    "The first byte behind the address of a write; 0 for a read.",
    source=f"{_OPEN}; {_TOOL}",
)
I2C_WRITES = ByteRegister(
    "I2C_WRITES",
    Space.XDATA,
    0xC873,
    Evidence.TRACE,
    "Not 0: a write goes on with two bytes from 0xE800.",
    source=_OPEN,
)
I2C_LENGTH = ByteRegister(
    "I2C_LENGTH",
    Space.XDATA,
    0xC874,
    Evidence.HARDWARE,
    "Bytes of a read; of a write not 0 if I2C_DATA is to be sent.",
    source=f"{_OPEN}; {_TOOL}",
)
I2C_CSR = ByteRegister(
    "I2C_CSR",
    Space.XDATA,
    0xC875,
    Evidence.HARDWARE,
    "Starts a transaction and reports its end. Before a start 0xFF is written, which clears it; 0x40 after "
    "the end. That bit 0 reads 1 while the transaction runs is inferred.",
    access=Access.SELF_CLEARING,
    fields=(
        Field("START", 0, doc="write 1 to start"),
        Field(
            "OUTCOME",
            1,
            5,
            "once DONE is set",
            values={0x01: "POINTED", 0x02: "WRITTEN", 0x04: "READ", 0x0C: "READ_NAK", 0x10: "WRITE_NAK"},
        ),
        Field("DONE", 6, doc="the transaction is over; write 1 to clear"),
    ),
    source=f"{_OPEN}, registers.h; {_TOOL}",
)
I2C_CLOCK_LOW = ByteRegister(
    "I2C_CLOCK_LOW",
    Space.XDATA,
    0xC876,
    Evidence.TRACE,
    "Clock of the bus; published firmware writes 0x18. The frequency that this gives is not known.",
    source=_OPEN,
)
I2C_CLOCK_HIGH = ByteRegister(
    "I2C_CLOCK_HIGH",
    Space.XDATA,
    0xC877,
    Evidence.TRACE,
    "Clock of the bus, and a mode; published firmware writes its reset value.",
    reset=0x4A,
    source=_OPEN,
)
I2C_SOURCE = ByteRegister(
    "I2C_SOURCE",
    Space.XDATA,
    0xC878,
    Evidence.TRACE,
    "Offset from 0xE800 of the bytes of a write; 0 in every known use.",
    size=2,
    source=f"{_OPEN}; {_TOOL}",
)
I2C_HANG = ByteRegister(
    "I2C_HANG",
    Space.XDATA,
    0xC87A,
    Evidence.HARDWARE,
    "Not used; the bus hangs once bit 3 has been written as 1.",
    fields=(Field("HANG", 3, doc="never write 1"),),
    source="open firmware, registers.h",
)
I2C_MODE = ByteRegister(
    "I2C_MODE",
    Space.XDATA,
    0xC87B,
    Evidence.TRACE,
    "Mode; published firmware writes its reset value.",
    reset=0xC4,
    source=_OPEN,
)
I2C_DESTINATION = ByteRegister(
    "I2C_DESTINATION",
    Space.XDATA,
    0xC87C,
    Evidence.HARDWARE,
    "Holds what is written, without effect: the bytes of a read always go to 0xE800. 0 in every known use.",
    size=2,
    source=f"{_OPEN}; {_TOOL}",
)

PIN_FAULT = ByteRegister(
    "PIN_FAULT",
    Space.XDATA,
    0xC621,
    Evidence.TRACE,
    "Use of pin 1, which the dock's supply pulls low when it has a fault (that published firmware reports "
    "this pin in SUPPLY is inferred from its name, BOB_FLT_N).",
    fields=(Field("FUNCTION", 0, 5, values={0: "INPUT", 2: "LOW", 3: "HIGH"}),),
    source=_PINS,
)
PIN_SCL = ByteRegister(
    "PIN_SCL",
    Space.XDATA,
    0xC629,
    Evidence.TRACE,
    "Use of pin 9, the clock of the dock's I2C bus. That nothing reaches the bus before it is set is "
    "inferred.",
    fields=(Field("FUNCTION", 0, 5, values={0: "INPUT", 0x13: "I2C"}),),
    source=f"{_PINS}; {_OPEN}",
)
PIN_SDA = ByteRegister(
    "PIN_SDA",
    Space.XDATA,
    0xC62A,
    Evidence.TRACE,
    "Use of pin 10, the data of the dock's I2C bus; as PIN_SCL.",
    fields=(Field("FUNCTION", 0, 5, values={0: "INPUT", 0x14: "I2C"}),),
    source=f"{_PINS}; {_OPEN}",
)
PIN_LEVELS = ByteRegister(
    "PIN_LEVELS",
    Space.XDATA,
    0xC650,
    Evidence.TRACE,
    "Levels of pins 0 to 7. That an open pin reads 1 is seen in published scripts.",
    access=Access.RO,
    reset=0xFF,
    fields=(Field("SUPPLY_GOOD", 1, doc="0: the dock's supply reports a fault", evidence=Evidence.INFERRED),),
    source=_PINS,
)
