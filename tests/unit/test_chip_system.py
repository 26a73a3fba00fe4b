"""The system controls."""

from __future__ import annotations

import pytest

from emulator.asm2464pd.system import SystemControl
from emulator.core.bus import Bus
from emulator.core.clock import Scheduler
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import ASM2464PD


@pytest.fixture
def chip() -> tuple[Bus, list[str]]:
    bus = Bus(ASM2464PD, Scheduler(), strict=True)
    heard: list[str] = []
    SystemControl(bus, lambda: heard.append("restart"), lambda: heard.append("power cycle"))
    return bus, heard


@pytest.mark.parametrize(("address", "what"), [(0xCC31, "restart"), (0xCC28, "power cycle")])
def test_commands(chip: tuple[Bus, list[str]], address: int, what: str) -> None:
    bus, heard = chip
    bus.cpu_write(Space.XDATA, address, 0x00)
    bus.cpu_write(Space.XDATA, address, 0xFE)
    assert heard == []
    bus.cpu_write(Space.XDATA, address, 0x01)
    assert heard == [what]
    assert bus.cpu_read(Space.XDATA, address) == 0


def test_the_cause_of_int1_is_cleared_and_the_rest_is_storage(chip: tuple[Bus, list[str]]) -> None:
    bus, heard = chip
    bus.cpu_write(Space.XDATA, 0xCC33, 0x5E)
    assert bus.cpu_read(Space.XDATA, 0xCC33) == 0x5A
    assert heard == []
