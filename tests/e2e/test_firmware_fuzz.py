"""The firmware survives random hosts, devices and faults; tests/firmware_fuzz.py defines this."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress

import pytest

from emulator.usb.wire import Setup, Speed
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import interrupts
from firmware.protocol import requests
from firmware.protocol.requests import VENDOR_OUT
from tests.amount import amount
from tests.firmware_fuzz import Bench, Hang, Report, Violated, campaign, minimised, play
from tests.firmware_fuzz_actions import (
    CODES,
    LETHAL,
    Commands,
    Control,
    Operation,
    Player,
    Wait,
    Wire,
    is_lethal,
)

WORKERS = 2
SEEDS = amount(200, 1000)
"""Cases of the long campaign, for each worker."""
SIDES = amount(0.75, 0.85)
"""The least share of the branches' sides that the long campaign must reach."""

ARM = Setup(VENDOR_OUT, requests.SRAM_DMA.code, 1, 1, 0)
OPEN = Setup(VENDOR_OUT, requests.LIST.code, 1, 0, 0)
ARMING = tuple(Operation(CODES["SLOT_IN"], 16, 4, 1) for _ in range(4))
ENDLESS = (Operation(CODES["LOOP"], amount=4000), *ARMING, Operation(CODES["END"]))


class Deafen:
    """The host disables interrupts: one of the writes that the firmware need not survive."""

    def run(self, player: Player) -> None:
        place = interrupts.INT_CONTROL.address
        with suppress(TimeoutError):
            player.usb.control(Setup(VENDOR_OUT, requests.XDATA_WRITE.code, place, 0, 0), timeout=0.01)


def test_a_case_is_made_small():
    assert minimised(lambda part: {3, 17} <= set(part), tuple(range(40))) == (3, 17)
    assert minimised(lambda part: True, (1, 2, 3)) == ()


def test_which_writes_are_lethal():
    assert is_lethal(interrupts.INT_CONTROL.address, 0)
    assert not is_lethal(interrupts.INT_CONTROL.address, 1)
    assert not is_lethal(0xF000, 0)
    assert all(LETHAL)


@pytest.mark.slow
def test_a_few_cases_are_reproducible():
    report, again = campaign(range(20)), campaign(range(20))
    assert [str(failure) for failure in report.failures] == []
    assert report.seeds == 20
    assert report.reached > 0.4 * report.sides
    assert (report.actions, report.kept, report.virtual) == (again.actions, again.kept, again.virtual)
    assert (report.covered == again.covered).all()


@pytest.mark.slow
def test_a_deaf_device_and_one_whose_memory_is_overwritten_are_found():
    assert isinstance(play(Speed.SUPER_PLUS, (Wait(10), Deafen())), Hang)
    bench = Bench(Speed.SUPER_PLUS)
    bench.board.machine.bus.planes[Space.XDATA][0x5800] = 1
    with pytest.raises(Violated, match="behind the list"):
        bench.run(())


@pytest.mark.slow
def test_a_bus_reset_while_slot_dma_is_being_armed():
    """Found by the fuzzer: a DMA armed after a reset swallows the first packet of the next transfer."""
    bench = Bench(Speed.SUPER_PLUS)
    for delay in range(200, 2700, 50):
        bench.run((Wire(ARM, "", 0), Wait(delay)))
    for delay in range(8000, 9000, 23):
        bench.run((Control(OPEN), Commands(ENDLESS, patience=delay)))


@pytest.mark.slow
def test_thousands_of_cases():
    ranges = [range(1 + 100_000 * worker, 1 + 100_000 * worker + SEEDS) for worker in range(WORKERS)]
    report = Report()
    with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as pool:
        for part in pool.map(campaign, ranges):
            report.add(part)
    print(f"\n{report}")
    assert [str(failure) for failure in report.failures] == []
    assert report.hangs == 0
    assert report.seeds == WORKERS * SEEDS
    assert report.reached > SIDES * report.sides
