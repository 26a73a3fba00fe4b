"""The bus: what each access kind does to a CPU write, what is called, what strict refuses."""

from __future__ import annotations

import functools
import logging

import pytest

from emulator.core import bus as bus_module
from emulator.core.bus import Bus, Unmodelled
from emulator.core.clock import Scheduler
from firmware.asm2464pd.describe import ByteRegister, Map, Memory, Space
from sdk.facts.registers import Access, Evidence, Field

X = Space.XDATA
TRACE = Evidence.TRACE


def register(name: str, address: int, access: Access = Access.RW, **rest: object) -> ByteRegister:
    return ByteRegister(name, X, address, rest.pop("evidence", TRACE), "", access=access, **rest)  # type: ignore[arg-type]


PLAIN = register("PLAIN", 0x9000, reset=0x5A)
STATUS = register("STATUS", 0x9001, Access.RO, reset=0x80)
EVENTS = register("EVENTS", 0x9002, Access.W1C)
COMMAND = register("COMMAND", 0x9003, Access.SELF_CLEARING)
QUEUE = register("QUEUE", 0x9004, Access.FIFO)
WORD = register("WORD", 0x9010, size=2)
LITTLE = register("LITTLE", 0x9012, size=2, little=True)
DOUBTFUL = register("DOUBTFUL", 0x9020, evidence=Evidence.GUESS)
UNCLAIMED = register("UNCLAIMED", 0x9021)
MIXED = register(
    "MIXED",
    0x9030,
    Access.RW,
    fields=(Field("FLAG", 0, access=Access.W1C), Field("REST", 1, 7, access=Access.W1C)),
)
ALL = (PLAIN, STATUS, EVENTS, COMMAND, QUEUE, WORD, LITTLE, DOUBTFUL, UNCLAIMED, MIXED)
MEMORIES = (
    Memory("RAM", X, 0x0000, 0x1000, TRACE, ""),
    Memory("MIRROR", X, 0x1000, 0x100, TRACE, "", mirror=0x0000),
    Memory("WINDOW", X, 0xF000, 0x1000, TRACE, "", sram=0, pcie=0x200000),
    Memory("LANDING", X, 0x7000, 0x1000, TRACE, "", writable=False),
)


@pytest.fixture
def bus() -> Bus:
    made = Bus(Map(ALL, MEMORIES), Scheduler())
    for entry in ALL:
        if entry is not UNCLAIMED:
            made.map(entry, "test")
    return made


def test_storage_begins_at_the_reset_value(bus: Bus) -> None:
    assert bus.value(PLAIN) == 0x5A
    assert bus.value(STATUS) == 0x80


@pytest.mark.parametrize(
    ("entry", "before", "written", "after"),
    [
        (PLAIN, 0x0F, 0xF0, 0xF0),
        (STATUS, 0x0F, 0xF0, 0x0F),
        (EVENTS, 0x0F, 0x05, 0x0A),
        (COMMAND, 0x00, 0xFF, 0x00),
        (MIXED, 0x0F, 0x05, 0x0A),
    ],
)
def test_access_kind_decides_what_a_write_leaves(
    bus: Bus, entry: ByteRegister, before: int, written: int, after: int
) -> None:
    bus.set(entry, before)
    bus.cpu_write(X, entry.address, written)
    assert bus.value(entry) == after


def test_native_flags_say_the_same_as_cpu_write(bus: Bus) -> None:
    flags = bus.planes[X].flags
    assert flags[PLAIN.address] == 0
    assert flags[STATUS.address] == bus_module.WRITE_IGNORED
    assert flags[EVENTS.address] == bus_module.WRITE_CLEARS
    assert flags[COMMAND.address] == bus_module.WRITE_IGNORED
    assert flags[MIXED.address] == bus_module.WRITE_CLEARS
    assert flags[UNCLAIMED.address] == bus_module.READ_CALLS | bus_module.WRITE_CALLS
    assert flags[0x0123] == 0
    assert flags[0x7123] == bus_module.WRITE_IGNORED
    assert flags[0x6123] == bus_module.READ_CALLS | bus_module.WRITE_CALLS


def test_functions_are_called_after_the_storage_changed(bus: Bus) -> None:
    seen = []
    bus.map(EVENTS, "test", write=lambda value: seen.append((value, bus.value(EVENTS))))
    bus.map(QUEUE, "test", read=lambda: 0x42)
    bus.set(EVENTS, 0x03)
    bus.cpu_write(X, EVENTS.address, 0x01)
    assert seen == [(0x01, 0x02)]
    assert bus.cpu_read(X, QUEUE.address) == 0x42
    assert bus.planes[X].flags[QUEUE.address] & bus_module.READ_CALLS


def test_byte_order_of_wide_registers(bus: Bus) -> None:
    bus.set(WORD, 0x1234)
    bus.set(LITTLE, 0x1234)
    assert bus.load(X, 0x9010, 4) == bytes.fromhex("12343412")
    assert (bus.value(WORD), bus.value(LITTLE)) == (0x1234, 0x1234)


def test_windows_and_mirrors_are_one_store(bus: Bus) -> None:
    bus.store(Space.SRAM, 0x234, b"\x77")
    assert bus.load(X, 0xF234, 1) == b"\x77"
    bus.store(X, 0xF235, b"\x78")
    assert bus.load(Space.SRAM, 0x235, 1) == b"\x78"
    bus.store(X, 0x1012, b"\x79")
    assert bus.load(X, 0x0012, 1) == b"\x79"


def test_doubtful_accesses_are_reported_once(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    bus.program_counter = lambda: 0x1234
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            bus.cpu_read(X, DOUBTFUL.address)
            bus.cpu_read(X, UNCLAIMED.address)
            bus.cpu_write(X, 0x9FFF, 1)
    assert [record.getMessage() for record in caplog.records] == [
        "xdata 0x9020, accessed at PC 0x1234: DOUBTFUL is only a guess",
        "xdata 0x9021, accessed at PC 0x1234: UNCLAIMED is declared but not modelled",
        "xdata 0x9fff, accessed at PC 0x1234: unknown address (nearest: MIXED at 0x9030)",
    ]
    for address in (DOUBTFUL.address, UNCLAIMED.address, 0x9FFF):
        assert bus.planes[X].flags[address] == 0, "once reported, it runs at full speed"


@pytest.mark.parametrize("address", [0x9020, 0x9021, 0x9022])
def test_strict_refuses_every_time(address: int) -> None:
    bus = Bus(Map(ALL, MEMORIES), Scheduler(), strict=True)
    bus.map(DOUBTFUL, "test")
    for _ in range(2):
        with pytest.raises(Unmodelled, match=r"DOUBTFUL|UNCLAIMED|unknown address") as caught:
            bus.cpu_write(X, address, 0)
        assert f"{address:#06x}" in str(caught.value)


def test_watched_bytes_come_to_the_observers(bus: Bus) -> None:
    class Observer:
        def __init__(self) -> None:
            self.seen: list[object] = []

        def accessed(self, kind: str, space: Space, address: int, value: int) -> None:
            self.seen.append((kind, address, value))

        def changed(self, space: Space, address: int, data: bytes) -> None:
            self.seen.append(("C", address, data))

        def line(self, number: int, level: bool) -> None:
            self.seen.append(("L", number, level))

    observer = Observer()
    bus.observers.append(observer)
    bus.watch(X, PLAIN.address)
    assert bus.planes[X].flags[PLAIN.address] == bus_module.READ_CALLS | bus_module.WRITE_CALLS
    bus.cpu_write(X, PLAIN.address, 1)
    bus.cpu_read(X, PLAIN.address)
    bus.set(STATUS, 2)
    bus.interrupt(0, True)
    assert observer.seen == [("W", 0x9000, 1), ("R", 0x9000, 1), ("C", 0x9001, b"\x02"), ("L", 0, True)]


def test_uninitialised_ram_is_marked_until_stored(bus: Bus) -> None:
    bus.guard_uninitialised()
    flags = bus.planes[X].flags
    assert flags[0x0010] & bus_module.UNINITIALISED
    assert not flags[0xF010] & bus_module.UNINITIALISED, "a device may have written the SRAM"
    bus.store(X, 0x0010, b"\0")
    assert not flags[0x0010] & bus_module.UNINITIALISED


def test_clock_orders_events_and_cancels_them() -> None:
    clock = Scheduler()
    seen: list[str] = []
    clock.at(20, lambda: seen.append("late"))
    clock.at(10, lambda: seen.append("first"))
    clock.at(10, lambda: seen.append("second"))
    clock.cancel(clock.at(10, lambda: seen.append("never")))
    clock.now = 10
    clock.run_due()
    assert seen == ["first", "second"]
    assert clock.next == 20
    clock.now = 25
    clock.at(5, lambda: seen.append("overdue"))
    clock.run_due()
    assert seen == ["first", "second", "late", "overdue"]
    assert clock.next is None


def test_cancelled_events_do_not_pile_up() -> None:
    clock = Scheduler()
    seen: list[int] = []
    for number in range(10_000):
        clock.cancel(clock.at(1_000_000, lambda: seen.append(-1)))
        if number % 1000 == 0:
            clock.at(20 - number // 1000, functools.partial(seen.append, number))
    assert len(clock._events) < 1000
    clock.now = 2_000_000
    clock.run_due()
    assert seen == list(range(9000, -1, -1000))
    assert clock.next is None


def test_special_function_registers_are_questioned_like_the_others(caplog: pytest.LogCaptureFixture) -> None:
    known = ByteRegister("CPU_KNOWN", Space.SFR, 0xA8, TRACE, "")
    guess = ByteRegister("CPU_GUESS", Space.SFR, 0xA0, Evidence.GUESS, "")
    bus = Bus(Map((known, guess), ()), Scheduler())
    assert bus.questionable_sfrs == set(range(0x80, 0x100)) - {0xA8}
    bus.program_counter = lambda: 0x1234
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            bus.question_sfr(0xA0)
            bus.question_sfr(0xFA)
    assert [record.getMessage() for record in caplog.records] == [
        "sfr 0x00a0, accessed at PC 0x1234: CPU_GUESS is only a guess",
        "sfr 0x00fa, accessed at PC 0x1234: unknown address (nearest: CPU_KNOWN at 0x00a8)",
    ]
    bus.strict = True
    for _ in range(2):
        with pytest.raises(Unmodelled, match="0x00fa"):
            bus.question_sfr(0xFA)


def test_registers_of_unknown_meaning_are_counted_in_one_line(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    mystery = register("MYSTERY", 0x9040, size=3)
    bus.map(mystery, "test", counted=True)
    assert bus.summary() == ""
    for _ in range(2):
        bus.cpu_write(X, 0x9040, 5)
        assert bus.cpu_read(X, 0x9041) == 0
    assert bus.cpu_read(X, 0x9040) == 5
    assert caplog.messages == []
    assert "2 accessed addresses (xdata 9040-9041)" in bus.summary()
    assert bus.planes[X].flags[0x9040] == 0, "counted once, it runs at full speed"
    bus.strict = True
    bus.cpu_read(X, 0x9042)
    assert "3 accessed addresses (xdata 9040-9042)" in bus.summary(), "strict does not stop at them"


def test_many_unknown_addresses_are_summed_up(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    for address in (*range(0x9100, 0x9200), 0xA000):
        bus.cpu_read(X, address)
        bus.cpu_read(Space.PHY, address)
    assert len(caplog.messages) == 8
    where = "phy 9100-91ff a000, xdata 9100-91ff a000"
    assert bus.summary() == f"of 514 accessed addresses ({where}) nothing is known: here they are storage"
    bus.cpu_read(X, DOUBTFUL.address)
    assert "DOUBTFUL" in caplog.messages[-1], "a guess is always named"


def test_a_protected_memory_ignores_the_cpu(bus: Bus) -> None:
    ram = MEMORIES[0]
    bus.watch(X, 0x0010)
    bus.protect(ram)
    assert bus.planes[X].flags[0x0020] == bus_module.WRITE_IGNORED
    bus.cpu_write(X, 0x0010, 1)
    assert bus.cpu_read(X, 0x0010) == 0
