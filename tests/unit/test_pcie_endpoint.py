"""The test endpoint: its registers and its bus master."""

from __future__ import annotations

import pytest

from emulator.core.clock import Scheduler, clocks
from emulator.pcie.endpoint import (
    DONE,
    MAGIC,
    NEVER,
    OFFSETS,
    POLL_CLOCKS,
    REFUSED,
    REGISTERS,
    Control,
    TestEndpoint,
)
from emulator.pcie.fabric import Fabric, Node
from emulator.pcie.function import Reset, Status
from sdk.errors import UsageError
from tests.unit.pcie import WINDOW, RootRam

SRAM = 0x200000


class Bench:
    def __init__(self):
        self.clock = Scheduler()
        self.memory = RootRam()
        self.endpoint = TestEndpoint(1 << 20)
        self.fabric = Fabric(Node(self.endpoint), self.memory, self.clock, bytes_per_second=10**9)
        self.fabric.config_write(0x18, WINDOW.to_bytes(4, "little"), 0xF, type1=False)
        self.fabric.config_write(0x04, bytes([6, 0, 0, 0]), 0x3, type1=False)

    def set(self, **registers):
        for name, value in registers.items():
            self.fabric.memory_write(WINDOW + OFFSETS[name], value.to_bytes(4, "little"), 0xF)

    def get(self, name):
        return int.from_bytes(self.fabric.memory_read(WINDOW + OFFSETS[name], 0xF).data, "little")

    def run(self, count):
        end = self.clock.now + count
        while (due := self.clock.next) is not None and due <= end:
            self.clock.now = due
            self.clock.run_due()
        self.clock.now = end


@pytest.fixture(name="bench")
def _bench():
    return Bench()


def test_registers_hold_what_they_say(bench):
    for register in REGISTERS:
        if register.name in ("CONTROL", "SIGNAL", "RETRY", "ABORTED", "DELAYED"):
            continue
        bench.set(**{register.name: 0xFFFFFFFF})
        assert bench.get(register.name) == register.writable | register.reset
    bench.fabric.memory_write(WINDOW + OFFSETS["SCRATCH"], b"\x00\x12\x34\x00", 0x6)
    assert bench.get("SCRATCH") == 0xFF3412FF
    bench.fabric.reset(Reset.FUNCTION)
    assert bench.endpoint.read(2, OFFSETS["SCRATCH"], 4) == bytes(4)


def test_copy_in_takes_the_links_time(bench):
    bench.memory.data[:] = bytes(range(256)) * 256
    bench.set(UPSTREAM=SRAM + 1, LOCAL=0x1000, LENGTH=50_000, CONTROL=Control.COPY_IN)
    took = clocks(50_000 / 10**9)
    bench.run(took - 1)
    assert bench.get("STATUS") == 1
    assert bench.endpoint.memory[0x1000] == 0
    bench.run(1)
    assert bench.get("STATUS") == DONE
    assert bench.endpoint.memory[0x1000 : 0x1000 + 50_000] == bench.memory.data[1:50_001]
    assert bench.endpoint.memory[0x1000 + 50_000] == 0
    bench.set(STATUS=DONE)
    assert bench.get("STATUS") == 0


def test_copy_out_then_signal(bench):
    bench.endpoint.memory[:4] = b"data"
    bench.set(UPSTREAM=SRAM, LENGTH=4, FENCE=SRAM + 12, FENCE_VALUE=0x04030201)
    bench.set(CONTROL=Control.COPY_OUT | Control.SIGNAL)
    bench.run(clocks(1e-6))
    assert bench.memory.data[:16] == b"data" + bytes(8) + b"\x01\x02\x03\x04"
    assert bench.get("STATUS") == DONE


def test_a_signal_needs_no_copy(bench):
    bench.set(FENCE=SRAM, FENCE_VALUE=7, SIGNAL=0)
    assert bench.memory.data[:4] == b"\x07\0\0\0"


def test_poll_holds_the_copy_until_the_value_is_there(bench):
    bench.set(UPSTREAM=SRAM, LENGTH=4, POLL=SRAM + 0x100, POLL_VALUE=5)
    bench.set(CONTROL=Control.POLL | Control.COPY_IN)
    bench.run(10 * POLL_CLOCKS)
    assert bench.get("STATUS") == 1
    bench.memory.data[0:4] = b"late"
    bench.memory.data[0x100] = 5
    bench.run(2 * POLL_CLOCKS)
    assert bench.get("STATUS") == DONE
    assert bench.endpoint.memory[:4] == b"late"


def test_abort_stops_a_poll(bench):
    bench.set(POLL=SRAM, POLL_VALUE=5, CONTROL=Control.POLL)
    bench.set(CONTROL=Control.ABORT)
    bench.run(2 * POLL_CLOCKS)
    assert bench.get("STATUS") == 0
    assert bench.clock.next is None


@pytest.mark.parametrize(
    "registers",
    [
        {"UPSTREAM": 0x1000, "CONTROL": Control.COPY_IN},
        {"UPSTREAM": 0x1000, "CONTROL": Control.COPY_OUT},
        {"UPSTREAM": SRAM, "UPSTREAM_HIGH": 1, "CONTROL": Control.COPY_IN},
        {"UPSTREAM": SRAM, "LOCAL": 1 << 20, "CONTROL": Control.COPY_IN},
        {"POLL": 0x1000, "CONTROL": Control.POLL},
        {"FENCE": 0x1000, "CONTROL": Control.SIGNAL},
    ],
)
def test_refusals_are_counted(bench, registers):
    bench.set(LENGTH=64, **registers)
    bench.run(clocks(1e-6))
    assert bench.get("STATUS") == DONE | REFUSED
    assert bench.get("ERRORS") == 1


def test_mastering_off_refuses(bench):
    bench.fabric.config_write(0x04, bytes([2, 0, 0, 0]), 0x3, type1=False)
    bench.set(FENCE=SRAM, FENCE_VALUE=7, SIGNAL=0)
    assert bench.get("ERRORS") == 1
    assert bench.memory.data[0] == 0


def test_a_reset_ends_the_copy(bench):
    bench.set(UPSTREAM=SRAM, LENGTH=4, CONTROL=Control.COPY_IN)
    bench.memory.data[0] = 1
    bench.fabric.reset(Reset.HOT)
    bench.run(clocks(1e-3))
    assert bench.endpoint.memory[0] == 0


def test_late_aborted_and_missing_completions(bench):
    bench.set(DELAY=1234)
    answer = bench.fabric.memory_read(WINDOW + OFFSETS["DELAYED"], 0xF)
    assert (answer.status, answer.delay) == (Status.SC, 1234)
    assert int.from_bytes(answer.data, "little") == MAGIC
    assert bench.fabric.memory_read(WINDOW, 0xF).delay == 0
    bench.set(DELAY=NEVER)
    assert bench.fabric.memory_read(WINDOW + OFFSETS["DELAYED"], 0xF).status is None
    assert bench.fabric.memory_read(WINDOW + OFFSETS["ABORTED"], 0xF).status is Status.CA
    assert bench.fabric.memory_read(WINDOW + 0x800, 0xF).status is Status.UR


@pytest.mark.parametrize("size", [0, 1 << 19, 3 << 20])
def test_impossible_sizes_are_refused(size):
    with pytest.raises(UsageError):
        TestEndpoint(size)
