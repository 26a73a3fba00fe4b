"""The TLP engine in the CPU core's loop: the same outcome and the same clocks on both of its paths."""

from __future__ import annotations

import pytest

from emulator.asm2464pd import timing
from emulator.machine import Machine
from emulator.mcs51.core import Mcs51
from emulator.pcie.endpoint import MAGIC, OFFSETS
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import tlp
from tests.unit.pcie import PREFETCHABLE, WINDOW, Requester

READ = timing.PCIE_READ.clocks
MRD64 = 0x20


def dptr(address: int) -> bytes:
    return bytes((0x90, address >> 8, address & 0xFF))


LAUNCH_AND_WAIT = (
    dptr(tlp.TLP_LAUNCH.address)
    + bytes.fromhex("74 0f f0")  # mov a,#0fh; movx @dptr,a
    + dptr(tlp.TLP_STATUS.address)
    + bytes.fromhex("e0 54 03 60 fb")  # wait: movx a,@dptr; anl a,#3; jz wait
    + bytes.fromhex("f5 30")  # mov 30h,a
    + dptr(tlp.TLP_DATA.address + 3)
    + bytes.fromhex("e0 f5 99 80 fe")  # movx a,@dptr; mov sbuf,a; sjmp $
)
"""Launches what the registers hold, waits for its end, keeps the status and sends the data's lowest byte."""

POLL = 5 + 2 + 4
"""Clocks of a round of its loop."""


def prepared(fmt_type: int, address: int, program: bytes, *, skip: bool = True) -> tuple[Requester, Machine]:
    """A chip with the link up, a request in the registers, and a CPU about to run the program."""
    requester = Requester()
    requester.power_on()
    requester.enumerate()
    requester.endpoint.memory[:4] = b"\x11\x22\x33\x44"
    requester.launch(fmt_type, address)
    requester.run(READ)
    requester.write(tlp.TLP_STATUS, 7)
    requester.write(tlp.TLP_DATA, 0)
    cpu = Mcs51([requester.bus.planes[Space.XDATA], requester.bus.planes[Space.PHY]], skip=skip)
    cpu.attach_device(requester.engine.device)
    cpu.load(program)
    cpu.clock = requester.clock.now
    return requester, Machine(requester.bus, cpu, requester.engine.service)


def run(machine: Machine, limit: int) -> tuple[int, int]:
    """Clocks until the program has sent its byte, and the byte."""
    sent = []
    start = machine.clock.now
    machine.serial = sent.append
    while not sent and machine.clock.now < start + limit:
        machine.step(start + limit)
    return machine.clock.now - start, sent[0]


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(("address", "byte"), [(PREFETCHABLE, 0x11), (WINDOW + OFFSETS["ID"], MAGIC & 0xFF)])
def test_a_read_takes_the_round_trip_on_either_path(skip, address, byte):
    requester, machine = prepared(MRD64, address, LAUNCH_AND_WAIT, skip=skip)
    served = requester.engine.served
    took, sent = run(machine, 10 * READ)
    assert machine.cpu.iram[0x30] == tlp.TLP_STATUS["COMPLETE"]
    assert sent == byte
    assert READ < took < READ + 2 * POLL + 40
    assert requester.engine.served - served == (address == PREFETCHABLE)


def test_both_paths_take_the_same_clocks():
    taken = set()
    for address in (PREFETCHABLE, WINDOW):
        _, machine = prepared(MRD64, address, LAUNCH_AND_WAIT)
        taken.add(run(machine, 10 * READ)[0])
    assert len(taken) == 1


def test_watching_the_launch_changes_nothing():
    taken = set()
    for watched in (False, True):
        requester, machine = prepared(MRD64, PREFETCHABLE, LAUNCH_AND_WAIT)
        if watched:
            requester.bus.watch(Space.XDATA, tlp.TLP_LAUNCH.address)
            requester.engine.notify = True
        took, sent = run(machine, 10 * READ)
        taken.add(took)
        assert sent == 0x11
    assert len(taken) == 1


def test_a_time_out_ends_the_wait():
    requester, machine = prepared(MRD64, PREFETCHABLE, LAUNCH_AND_WAIT)
    requester.engine.late(range(PREFETCHABLE, PREFETCHABLE + 4), 2 * timing.PCIE_TIMEOUT.clocks, stale=False)
    took, _ = run(machine, 2 * timing.PCIE_TIMEOUT.clocks)
    assert machine.cpu.iram[0x30] == tlp.TLP_STATUS["ERROR"]
    assert timing.PCIE_TIMEOUT.clocks < took < timing.PCIE_TIMEOUT.clocks + 2 * POLL + 40
