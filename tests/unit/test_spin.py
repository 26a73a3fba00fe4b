"""A CPU that spins on what nothing changes: which loops are reported, which are not, and how."""

from __future__ import annotations

import logging

import pytest

from emulator import spin
from emulator.asm2464pd import timing
from emulator.board import Board
from emulator.core.clock import clocks
from emulator.core.clock import seconds as seconds_of
from emulator.mcs51.core import Stop
from emulator.options import Options
from firmware.asm2464pd.image import wrap
from firmware.asm2464pd.registers import ASM2464PD
from sdk.errors import DeviceFailed
from tests.unit.mcs51_bench import Bench
from tests.unknown_register import UNKNOWN

RAM = 0x1000
STORAGE = ASM2464PD["TLP_TAG"].address
"""A register that is storage, and that no block writes."""
LIVE = ASM2464PD["USB_EVENTS"].address
LONG = seconds_of(2 * spin.LIMIT)


def read(address: int) -> str:
    """MOV DPTR,#address; MOVX A,@DPTR."""
    return f"90{address:04X} E0"


def poll(*places: str) -> str:
    """A loop over some instructions, the last of which loads A, until A is not 0."""
    body = "".join(places).replace(" ", "")
    return f"{body} 60{-(len(body) // 2 + 2) & 0xFF:02X} 80FE"


def board(tmp_path, parts: dict[int, str] | str, **options) -> Board:
    """A board with code at 0x100, and what else is given."""
    code = {0: "020100"} | (parts if isinstance(parts, dict) else {0x100: parts})
    body = bytearray(b"\0" * (max(code) + 0x100))
    for address, text in code.items():
        data = bytes.fromhex(text)
        body[address : address + len(data)] = data
    path = tmp_path / "spin.bin"
    path.write_bytes(wrap(bytes(body)))
    return Board.of(path, Options(port=None, **options))


def reports(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == spin.__name__]


INTERRUPTS_ON = "75A882"
"""MOV IE,#82: timer 0."""
TIMER_ON = "758901 D28C"
"""MOV TMOD,#1; SETB TR0."""
SUBROUTINE = {0x180: "E0 5430 22"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        poll(read(UNKNOWN)),
        poll(read(UNKNOWN), "5430"),
        poll(read(STORAGE)),
        poll(read(UNKNOWN), read(STORAGE)),
        {0x100: poll(f"90{UNKNOWN:04X}", "120180"), **SUBROUTINE},
        # a variable in internal RAM, but no interrupt that could change it
        {0x100: "75A880" + poll(read(UNKNOWN), "4530")},
        # interrupted by a timer: the handler returns into the loop
        {0x0B: "0531 32", 0x100: TIMER_ON + INTERRUPTS_ON + poll(read(UNKNOWN))},
        # in the handler itself memory and live registers do not count as an end
        {0x0B: "020180", 0x100: TIMER_ON + INTERRUPTS_ON + "80FE",
         0x180: poll(read(RAM), read(LIVE), read(UNKNOWN))},
    ],
)  # fmt: skip
def test_a_loop_that_nothing_ends_is_reported_once(tmp_path, caplog, parts):
    made = board(tmp_path, parts)
    made.usb.clock.sleep(LONG)
    assert len(reports(caplog)) == 1
    assert "spinning for 25" in reports(caplog)[0]
    assert made.spinning
    made.usb.clock.sleep(LONG)
    assert len(reports(caplog)) == 1
    assert "spinning for 1000 ms" in made.spinning or "spinning for 99" in made.spinning


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        "80FE",
        poll("E530"),
        poll(read(RAM)),
        poll(read(LIVE)),
        poll(read(ASM2464PD["TIMER0_CSR"].address)),
        poll(read(ASM2464PD["PCIE_ROUTING"].address)),
        poll(read(UNKNOWN), read(RAM)),
        poll(read(UNKNOWN), read(LIVE)),
        INTERRUPTS_ON + poll(read(UNKNOWN), "4530"),
        INTERRUPTS_ON + "90" + f"{UNKNOWN:04X} E0 3000FC 80FE",
        poll(*(read(UNKNOWN + 1 + number) for number in range(9))),  # more than are kept
        # not a fixed point: it counts
        "7800 08 " + read(UNKNOWN) + "60F9 80FE",
    ],
)  # fmt: skip
def test_a_loop_that_may_end_is_not_reported(tmp_path, caplog, parts):
    made = board(tmp_path, parts)
    made.usb.clock.sleep(LONG)
    assert reports(caplog) == []
    assert made.spinning == ""


def wait_with_limit(milliseconds: int) -> str:
    """Wait for a register until the chip's timer 0 has run down, with its tick of 0.5 ms; then go on."""
    mode, csr, threshold = (ASM2464PD[f"TIMER0_{name}"] for name in ("MODE", "CSR", "THRESHOLD"))
    writes = (
        (mode.address, 4),
        (threshold.address, milliseconds * 2 >> 8),
        (threshold.address + 1, milliseconds * 2 & 0xFF),
        (csr.address, csr["ENABLE"]),
    )
    setup = "".join(f"90{address:04X} 74{value:02X} F0" for address, value in writes)
    expired = csr["EXPIRED"]
    loop = f"{read(UNKNOWN)} 7008 {read(csr.address)} 54{expired:02X} 60F2".replace(" ", "")
    return f"{setup} {loop} 80FE"


@pytest.mark.parametrize(("milliseconds", "reported"), [(200, 0), (1000, 1)])
def test_a_wait_with_a_limit_is_reported_only_if_the_limit_is_long(tmp_path, caplog, milliseconds, reported):
    made = board(tmp_path, wait_with_limit(milliseconds))
    made.usb.clock.sleep(1.5)
    assert len(reports(caplog)) == reported
    assert made.spinning == "", "the wait is over"
    assert made.machine.cpu.skipped > clocks(1.4)


def test_the_words(tmp_path, caplog):
    made = board(tmp_path, poll(read(UNKNOWN)))
    made.usb.clock.sleep(LONG)
    assert f"at 0x0100 (bank 0) on xdata {UNKNOWN:#06x} = 0x00, about which nothing is known" in made.spinning
    made = board(tmp_path, poll(read(STORAGE)))
    made.usb.clock.sleep(LONG)
    assert f"xdata {STORAGE:#06x} (TLP_TAG) = 0x00, which nothing but the CPU changes" in made.spinning


def test_strict_stops(tmp_path):
    made = board(tmp_path, poll(read(STORAGE)), strict=True)
    with pytest.raises(spin.Spinning) as caught:
        made.usb.clock.sleep(LONG)
    assert isinstance(caught.value, DeviceFailed)
    assert made.machine.clock.now < spin.LIMIT + clocks(2e-3)


def test_each_loop_is_reported(tmp_path, caplog):
    made = board(tmp_path, {0x100: read(UNKNOWN) + "60FA" + poll(read(STORAGE))})
    bus = made.machine.bus
    made.usb.clock.sleep(LONG)
    bus.poke(ASM2464PD["TLP_TAG"].space, UNKNOWN, b"\1")
    made.usb.clock.sleep(LONG)
    assert [(f"{UNKNOWN:#06x}" in text, "TLP_TAG" in text) for text in reports(caplog)] == [
        (True, False),
        (False, True),
    ]


def test_a_loop_that_is_left_and_entered_again_counts_from_zero(tmp_path, caplog):
    """Every 100 ms of it end with 10 ms of other work."""
    made = board(tmp_path, poll(read(UNKNOWN)))
    for _ in range(5):
        made.usb.clock.sleep(0.1)
        pc = made.machine.cpu.pc
        made.machine.cpu.pc = 0x104  # jz: falls through to sjmp .
        made.machine.cpu.set_sfr(0xE0, 1)
        made.usb.clock.sleep(0.01)
        made.machine.cpu.pc = pc
    assert reports(caplog) == []


def test_the_core_stops_once_for_a_loop():
    bench = Bench(f"{read(UNKNOWN)} 60FA 80FE", skip=True)
    cpu = bench.cpu
    cpu.spin_limit = 100_000
    stops = []
    for until in range(50_000, 450_000, 50_000):
        while cpu.clock < until:
            stops.append(cpu.run(until))
    assert stops.count(Stop.SPINNING) == 1
    assert stops.index(Stop.SPINNING) in (2, 3), "at 100,000 clocks or soon after"
    found = cpu.spin
    assert found.reads == ((0, UNKNOWN),)
    assert found.at == (0, 0)
    assert sorted(found.trail) == [(0, 0), (0, 3), (0, 4)]
    assert not found.in_handler
    assert found.seen - found.since > 390_000
    cpu.reset()
    assert cpu.spin is None


WORK = 0x20
"""Where the code below counts, which is no fixed point."""


@pytest.mark.parametrize(("spins", "works", "stopped"), [(380, 270, 0), (100, 200, 0), (200, 40, 1)])
def test_time_away_from_a_loop(spins, works, stopped):
    """So many thousands of clocks of it, and of other work, in turn."""
    bench = Bench({0: f"{read(UNKNOWN)} 60FA 80FE", WORK: "0530 80FC"}, skip=True)
    cpu, found = bench.cpu, 0
    cpu.spin_limit = 400_000
    for _ in range(4):
        for pc, clocks_ in ((0, spins), (WORK, works)):
            cpu.pc = pc
            until = cpu.clock + clocks_ * 1000
            while cpu.clock < until:
                found += cpu.run(until) is Stop.SPINNING
    assert found == stopped


def test_a_loop_is_over_when_the_cpu_does_something_else(tmp_path, caplog):
    made = board(tmp_path, {0x100: poll(read(UNKNOWN)), 0x100 + WORK: "0530 80FC"})
    made.usb.clock.sleep(LONG)
    assert made.spinning
    made.machine.cpu.pc = 0x100 + WORK
    made.usb.clock.sleep(0.01)
    assert made.spinning == ""
    made.machine.cpu.pc = 0x100
    made.usb.clock.sleep(LONG)
    assert made.spinning
    assert len(reports(caplog)) == 1, "not again"


def test_the_core_does_not_stop_without_a_limit_or_a_read():
    for code, limit in ((f"{read(UNKNOWN)} 60FA", 0), ("80FE", 1000)):
        bench = Bench(code, skip=True)
        bench.cpu.spin_limit = limit
        assert bench.cpu.run(400_000) is Stop.UNTIL


def test_the_limit_is_longer_than_the_waits_that_are_known():
    assert clocks(0.2) < spin.LIMIT < clocks(1.0)
    assert timing.PCIE_TRAINING.clocks < spin.LIMIT


@pytest.fixture(autouse=True)
def _warnings(caplog):
    caplog.set_level(logging.WARNING)
