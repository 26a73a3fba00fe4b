"""Every constant of the virtual-time model of the USB link and of the host on it, each with its grade."""

from __future__ import annotations

from emulator.core.clock import Timing, clocks
from sdk.facts.registers import Evidence

CONTROL_TURNAROUND = Timing(
    clocks(25e-6), Evidence.GUESS, "host side of a SuperSpeed control transfer: 25 us"
)
BULK_IDLE = Timing(clocks(15e-6), Evidence.GUESS, "bulk submission when nothing is queued: 15 us")
BULK_QUEUED = Timing(clocks(2e-6), Evidence.GUESS, "bulk submission behind a queued one: 2 us")
HIGH_SPEED_STAGE = Timing(clocks(125e-6), Evidence.GUESS, "a High Speed control stage: 125 us")
PORT_RESET = Timing(clocks(10e-3), Evidence.GUESS, "a hot reset and the recovery after it: 10 ms")
HIGH_SPEED_RESET = Timing(clocks(60e-3), Evidence.GUESS, "USB 2.0, 7.1.7.5: 50 ms reset, 10 ms recovery")
ADDRESS_RECOVERY = Timing(clocks(2e-3), Evidence.GUESS, "USB 2.0, 9.2.6.3: 2 ms after SET_ADDRESS")

HIGH_SPEED_BYTES_PER_SECOND = 40_000_000
"""Bulk at High Speed [assumption]."""
