"""A card that hangs, faults or is hot; its interrupts, and what is mapped. Without a bridge."""

from __future__ import annotations

import itertools
import struct

import pytest

from firmware.protocol.command_list import CommandList
from firmware.protocol.commands import LIST_BYTES, RESULT_BYTES
from sdk.errors import DeviceFailed, InternalError
from tests.chips import EVERY
from tests.gpu_host import Bench, User
from usbgpu.amd import hub, ih, layout, monitor, recover, smu, tables
from usbgpu.amd.batch import RESULT_ROOM, Batch, GpuFailed
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.amd.facts.smu import DEBUG_MODE1_RESET
from usbgpu.amd.record import DIRTY
from usbgpu.amd.recover import CardLost, examine, restart

BOTH = pytest.mark.parametrize("chip", EVERY)
EITHER = pytest.mark.parametrize("chip", ["gfx1100", pytest.param("gfx1201", marks=pytest.mark.slow)])


pytestmark = pytest.mark.usefixtures("quiet_card")


# -- hangs and faults ---------------------------------------------------------------------------------------


@BOTH
def test_page_fault_is_reported_and_survived(chip):
    bench = Bench(chip)
    user = User(bench)
    assert examine(user.card).complaint is None
    wild = 0x7123_4567_8000
    user.misuse("store", wild, 7)
    bench.host.sleep(1_000_000)
    found = examine(user.card)
    fault = found.faults[0]
    assert (fault.hub, fault.client, fault.vmid, fault.address) == ("GC", "TCP", 0, wild)
    assert (fault.access, fault.mapped) == ("write", False)
    assert any(interrupt.name == "GFX UTCL2_FAULT" for interrupt in found.interrupts)
    assert found.complaint == f"page fault: write of the page at {wild:#x} by TCP: nothing is mapped there"
    assert examine(user.card).complaint is None  # it has been cleared
    restart(user.card, user.started.record, user.renew)
    user.work()
    assert user.close()
    assert not User(bench).started.cold


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "access", "mapped"),
    [
        ({"RW": 0, "PERMISSION_FAULTS": 3}, "read", False),
        ({"RW": 1, "PERMISSION_FAULTS": 5}, "write", False),
        ({"RW": 1, "PERMISSION_FAULTS": 4}, "write", True),
        ({"RW": 0, "PERMISSION_FAULTS": 8}, "execution", True),
    ],
)
@BOTH
def test_faults_as_text(chip, fields, access, mapped):
    bench = Bench(chip)
    card = bench.start().card
    name = hub.fault_status(card, "GC")
    status = card.chip.register("GC", name).pack(**fields, VMID=3, MORE_FAULTS=1)
    for register, value in ((name, status), *zip(ADDRESS, (0x8765_4321, 0xF), strict=True)):
        bench.card.registers.set("GC", register, value)
    (fault,) = examine(card).faults
    assert (fault.access, fault.mapped, fault.vmid, fault.more) == (access, mapped, 3, True)
    assert fault.address == 0xF_8765_4321_000


ADDRESS = tuple(f"GCVM_L2_PROTECTION_FAULT_ADDR_{half}32" for half in ("LO", "HI"))


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("hangs", [False, True])
def test_an_older_command_processor_that_keeps_its_queue_is_reset(chip, hangs, monkeypatch):
    """As by Linux: a gfx12's always takes its queues off by itself."""
    if hangs:
        monkeypatch.setattr(recover.gfx, "kill_waves", lambda batch: recover.gfx.select(batch, me=1))
    bench = Bench(chip)
    user = User(bench)
    register, bits = bench.card.chip.register("GC", "GRBM_SOFT_RESET"), []
    bench.card.register_observers.append(
        lambda kind, block, other, value: bits.append(value) if (kind, other) == ("write", register) else None
    )
    older = user.card.chip.family.soft_resets
    if hangs and not older:
        with pytest.raises(GpuFailed):
            restart(user.card, user.started.record, user.renew)
        return
    restart(user.card, user.started.record, user.renew)
    engine = register.pack(SOFT_RESET_SDMA0=1)
    both = register.pack(SOFT_RESET_CP=1, SOFT_RESET_CPC=1)
    assert bits == ([both, 0] if hangs else []) + [engine, 0]
    user.work()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "last", "seen"),
    [(0, 0, 0), (0, 3, 3), (8190, 2, 4), (5, 8191, ih.NEWEST // 32), (7000, 6999, ih.NEWEST // 32)],
)
def test_the_newest_interrupts_are_read_once(first, last, seen):
    """The ring has 8192 entries; the numbers are entries, each with its own number."""
    bench = Bench("gfx1100")
    card = bench.start().card
    entries = b"".join(struct.pack("<8I", 0x3F, *[0] * 3, number, *[0] * 3) for number in range(8192))
    bench.card.vram.memory[layout.INTERRUPTS : layout.INTERRUPTS + len(entries)] = entries
    ring = bench.card.blocks.ih._rings[0]
    ring.read, ring.write = 32 * first, 32 * last
    assert [each.data[0] for each in ih.drain(card)] == [(last - seen + at) % 8192 for at in range(seen)]
    assert ih.drain(card) == []


@pytest.mark.parametrize("size", [256 << 20, (1 << 30) + (64 << 20), 24560 << 20])
def test_what_is_mapped(size):
    """All but tables, PSP, TMR, and what the firmware keeps."""
    spans = [(offset, offset + ((2 << 20) << 9 * (level - 1))) for offset, level in tables._vram(size)]
    assert all(start % (end - start) == 0 for start, end in spans)
    gaps = [(end, start) for (_, end), (start, _) in itertools.pairwise(spans) if end != start]
    assert spans[0][0] == 2 << 20
    assert gaps == [(layout.TMR, layout.TMR + layout.TMR_SIZE)]
    assert size - layout.RESERVED_AT_TOP - (2 << 20) < spans[-1][1] <= size - layout.RESERVED_AT_TOP
    assert len(spans) < 1024


@pytest.mark.slow
@EITHER
def test_a_kernel_without_end_is_ended(chip):
    bench = Bench(chip)
    user = User(bench)
    flag = user.gpu.allocate(4096)
    user.gpu.upload(flag, bytes(4096))
    user.misuse("spin", flag)
    bench.host.sleep(10_000_000)
    assert not user.close()  # and the next one would reset it
    assert bench.card.blocks.smu.clock_mhz("GFXCLK") == 500
    batch = Batch(user.card, "test")
    dirty = batch.read("GC", DIRTY)
    batch.run()
    assert dirty.value
    for _ in range(2):
        restart(user.card, user.started.record, user.renew)
        user.work()
        user.misuse("spin", flag)
        bench.host.sleep(10_000_000)
    again = User(bench)
    assert again.started.cold
    again.work()


# -- power and heat -----------------------------------------------------------------------------------------


@BOTH
def test_metrics(chip):
    bench = Bench(chip)
    card = User(bench).card
    before = bench.runs
    found = monitor.measure(card)
    assert bench.runs - before == 1
    bench.clock.sleep(0.1)
    found = monitor.measure(card)
    assert found.power == CHIPS[chip].ready_power
    assert found.temperatures["HOTSPOT"] == 25
    assert found.clocks["GFXCLK"] == CHIPS[chip].clocks["GFXCLK"][-1]
    assert found.document()["power_watts"] == found.power
    assert not found.throttled


def test_a_hot_card_gets_no_work():
    bench = Bench("gfx1100")
    card = User(bench).card
    watch = monitor.Monitor(card)
    watch.check()
    before = bench.runs
    watch.check()
    assert bench.runs == before  # it has just been measured
    bench.clock.sleep(monitor.INTERVAL)
    bench.card.power.temperature = 95.0
    with pytest.raises(monitor.TooHot, match=r"hotspot 11\d \(limit 110\)") as caught:
        watch.check()
    assert "fans" in (caught.value.hint or "")
    with pytest.raises(monitor.TooHot):
        watch.check()
    bench.card.power.temperature = 40.0
    watch.check()


@EITHER
def test_no_protection_is_disabled(chip):
    """All messages to the power management, over a session with every operation."""
    said = set()
    bench = Bench(chip)
    bench.card.event_observers.append(
        lambda event: said.add(event.text.split(":")[0]) if event.source == "smu" else None
    )
    user = User(bench)
    user.work()
    monitor.Monitor(user.card).check()
    restart(user.card, user.started.record, user.renew)
    assert user.close()
    User(bench)
    User(bench)
    messages = {text.split()[0] for text in said}
    assert messages - {"debug"} <= smu.MAY_SEND
    assert {text for text in said if text.startswith("debug")} == {f"debug message {DEBUG_MODE1_RESET:#x}"}
    words = ("Fan", "Throttl", "Thermal", "Temp", "Hard", "Disable", "Dram2Smu", "Overdrive")
    assert not [name for name, word in itertools.product(smu.MAY_SEND, words) if word in name]
    assert not {"SetPptLimit", "GetPptLimit"} & messages
    with pytest.raises(InternalError, match="SetPptLimit"):
        smu.send(Batch(user.card, "test"), "SetPptLimit", CHIPS[chip].board_power + 1)


def test_a_batch_is_as_few_lists_as_it_fits():
    bench = Bench("gfx1100")
    card = bench.start().card
    lists: list[CommandList] = []
    bench.watch = lists.append
    batch = Batch(card, "test")
    parts = [batch.load(0, RESULT_ROOM), batch.word(0), batch.load(0, RESULT_ROOM - 4), batch.word(4)]
    batch.run()
    assert [len(commands.operations) for commands in lists] == [1, 2, 1]
    assert all(commands.result_size <= RESULT_BYTES for commands in lists)
    assert parts[0].value[:8] == b"".join(part.value.to_bytes(4, "little") for part in parts[1::2])
    lists.clear()
    for number in range(2 * LIST_BYTES // 16):
        batch.write("GC", DIRTY, number)
    batch.run()
    assert len(lists) == 3
    assert all(commands.size <= LIST_BYTES for commands in lists)


def test_a_condition_that_does_not_come_true_says_what_was_read():
    bench = Bench("gfx1100")
    card = bench.start().card
    batch = Batch(card, "test")
    batch.wait("GC", DIRTY, 2, seconds=0, what="two users")
    with pytest.raises(
        GpuFailed, match=r"two users \(SCRATCH_REG6 == 0x2\): condition timeout, it reads 0x1$"
    ) as caught:
        batch.run()
    assert caught.value.value == 1
    bench.card._dark = True
    batch.wait("GC", DIRTY, 2, seconds=0)
    with pytest.raises(GpuFailed, match="it reads 0xffffffff") as caught:
        batch.run()
    assert "all ones" in (caught.value.hint or "")


def test_errors_are_of_the_tree():
    assert issubclass(monitor.TooHot, DeviceFailed)
    assert issubclass(CardLost, GpuFailed)
