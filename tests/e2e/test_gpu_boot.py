"""Opening, closing, losing and finding the emulated card again, without a bridge."""

from __future__ import annotations

import itertools
import random
import re
import struct
import zlib

import pytest

from emulator.amdgpu import hdp
from emulator.amdgpu.boot_steps import STEPS
from emulator.core.clock import clocks
from emulator.pcie.function import Reset
from firmware.protocol.command_list import CommandList
from sdk.errors import DeviceFailed, DeviceMissing
from tests.amount import amount
from tests.chips import EVERY, GENERATIONS, SAMPLE
from tests.gpu_host import Bench, Died, User, firmware
from usbgpu.amd import hub, layout, monitor, psp, record
from usbgpu.amd.batch import Batch, GpuFailed
from usbgpu.amd.facts import psp as psp_facts
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.amd.firmware import FirmwareMissing, load
from usbgpu.amd.psp import load_order
from usbgpu.amd.recover import CardLost, examine
from usbgpu.bridge.seam import SRAM_SIZE
from usbgpu.pcie import Bar

BOTH = pytest.mark.parametrize("chip", EVERY)
EITHER = pytest.mark.parametrize(
    "chip", [SAMPLE[0], *(pytest.param(name, marks=pytest.mark.slow) for name in SAMPLE[1:])]
)
UPLOADS = {"gfx1100": 4, "gfx1102": 3, "gfx1200": 6, "gfx1201": 6}
"""Of firmware of its true size."""
STRIDE = amount(20, 6)
"""Operations of a boot between two deaths."""
OTHER_LISTS = 7
"""The first look, the table, two for the state, sOS, the last upload's loading, the engines'."""


pytestmark = pytest.mark.usefixtures("quiet_card")


def slow_but(quick, values):
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]


# -- cold and warm ------------------------------------------------------------------------------------------


@BOTH
def test_cold_and_warm(chip):
    bench = Bench(chip)
    user = User(bench)
    assert user.started.cold
    assert bench.runs == OTHER_LISTS + 1
    assert len(user.lines) <= 12
    assert all(re.match(r" *\d+\.\d\d ms  \w", line) for line in user.lines)
    assert sum(step.seconds for step in user.started.steps) < 0.1
    user.work()
    assert bench.card.blocks.smu.clock_mhz("GFXCLK") > 2000
    assert user.close()
    assert bench.card.blocks.smu.clock_mhz("GFXCLK") == 500
    assert bench.card.registers.get("GC", "CP_MEC_RS64_CNTL", "MEC_HALT") == 1
    assert bench.card.registers.get("GC", "SDMA0_QUEUE0_RB_CNTL", "RB_ENABLE") == 0
    before = bench.runs
    again = User(bench)
    assert not again.started.cold
    assert bench.runs - before == 2
    assert len(again.lines) <= 3
    assert again.card == user.card
    assert again.started.record == user.started.record
    assert bench.card.blocks.smu.clock_mhz("GFXCLK") > 2000
    again.work()
    assert again.close()
    assert again.close()
    assert bench.findings == []


@EITHER
def test_boot_takes_every_step_that_the_card_requires(chip):
    """All rows of the table of boot steps are done, or the card would have reported it; and it has rows."""
    bench = Bench(chip)
    User(bench).work()
    assert bench.card.diagnosis.steps & set(STEPS) == set()
    assert len(STEPS) > 75


@pytest.mark.slow
@BOTH
def test_whole_cards_boot(chip):
    bench = Bench(chip, CHIPS[chip].vram)
    user = User(bench)
    gpu = user.gpu
    user.work()
    top = gpu.allocate(4096)  # somewhere; and the last bytes that are mapped
    assert top.size == 4096
    assert bench.findings == []


@EITHER
def test_full_size_firmware_is_uploaded_in_few_pieces(chip):
    loaded = load_order(CHIPS[chip], load(CHIPS[chip], firmware(chip, full_size=True)).blobs)
    assert len(loaded.uploads) == UPLOADS[chip]
    for pieces in loaded.uploads:
        ends = 0
        for piece in pieces:
            if piece.what == "SPL" and CHIPS[chip].generation == 11:
                continue  # the key database again
            assert piece.offset >= ends
            assert piece.offset % psp_facts.FIRMWARE_ALIGNMENT == 0
            ends = piece.offset + len(piece.blob)
        assert ends <= SRAM_SIZE
    bench = Bench(chip)
    assert bench.start(directory=firmware(chip, full_size=True)).cold
    assert bench.runs == OTHER_LISTS + UPLOADS[chip]
    assert bench.findings == []


@pytest.mark.parametrize("vram", [512 << 20, 5 << 30])
def test_a_card_behind_a_small_window_boots(vram):
    """Only 256 MiB are within reach: the table is read through MM_INDEX."""
    bench = Bench("gfx1100", vram)
    control = bench.host.config_read(0x208)
    bench.host.config_write(0x208, control & ~0x1F00 | 8 << 8)
    assert bench.bars[0].size == 256 << 20
    user = User(bench)
    user.work()
    assert user.close()
    assert not User(bench).started.cold
    assert bench.findings == []


def test_missing_firmware_leaves_the_card_alone(tmp_path):
    bench = Bench("gfx1100")
    written = []
    bench.card.register_observers.append(lambda kind, *rest: written.append(kind))
    with pytest.raises(FirmwareMissing, match=r"psp_13_0_0_sos\.bin"):
        bench.start(directory=tmp_path)
    assert "write" not in written


@EITHER
@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        ("imu", "refuses LOAD_IP_FW IMU_I: SECURITY"),
        ("sos", "PSP bootloader ready for .*condition timeout, it reads 0x.*; its bootloader says 0x"),
    ],
)
def test_firmware_with_a_wrong_bit_is_refused_by_name(chip, spoiled, message, tmp_path):
    for file in firmware(chip).iterdir():
        data = bytearray(file.read_bytes())
        if spoiled in file.name:
            data[data.index(b"$PS1") + 0x200] ^= 1
        (tmp_path / file.name).write_bytes(data)
    with pytest.raises(GpuFailed, match=message) as caught:
        Bench(chip).start(directory=tmp_path)
    assert "doctor" in (caught.value.hint or "")


# -- earlier programs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps", [False, pytest.param(True, marks=pytest.mark.slow)])
@EITHER
def test_a_card_that_was_not_closed_is_reset(chip, keeps):
    """Whatever is in VRAM after that: what the earlier program left, or garbage."""
    bench = Bench(chip, keeps_vram=keeps)
    User(bench).work()
    again = User(bench)
    assert again.started.cold
    assert bench.cycles == 0
    assert any("mode 1" in line for line in again.lines)
    assert len(again.lines) <= 12
    again.work()
    assert bench.findings == []


# -- the host data path -------------------------------------------------------------------------------------


@EITHER
def test_all_works_if_the_host_data_path_never_drains(chip):
    bench = Bench(chip, hdp_drains=False)
    user = User(bench)
    user.work()
    assert user.close()
    warm = User(bench)
    assert not warm.started.cold
    warm.work()
    assert bench.findings == []


def test_without_its_flushes_the_driver_fails_there(monkeypatch):
    monkeypatch.setattr(Batch, "flush_hdp", lambda batch: None)
    bench = Bench("gfx1100", hdp_drains=False)
    with pytest.raises(GpuFailed):
        bench.start()
    assert "hdp-flush" in bench.card.diagnosis.steps


# -- earlier programs, again --------------------------------------------------------------------------------


@pytest.mark.slow
@EITHER
def test_a_card_that_lost_its_power_is_booted(chip):
    bench = Bench(chip)
    user = User(bench)
    assert user.close()
    bench.again()
    assert User(bench).started.cold
    bench = Bench(chip)
    user = User(bench)
    bench.again()
    with pytest.raises(CardLost, match="reset, or has lost its power"):
        examine(user.card)
    assert not user.close()
    User(bench).work()


def test_a_card_that_is_gone_is_reported():
    bench = Bench("gfx1201")
    user = User(bench)
    bench.card.reset(Reset.PERST)  # and it gets no addresses
    for use in (lambda: examine(user.card), lambda: monitor.measure(user.card)):
        with pytest.raises(GpuFailed, match="unsupported request"):
            use()
    assert not user.close()


@pytest.mark.slow
@pytest.mark.parametrize("register", [record.BOOTED, record.CHECKSUM])
def test_another_boot_is_not_taken_for_ours(register):
    bench = Bench("gfx1100")
    user = User(bench)
    assert user.close()
    batch = Batch(user.card, "test")
    batch.write("GC", register, 0xA000_0008)
    batch.run()
    assert User(bench).started.cold


@pytest.mark.parametrize(
    "damage",
    slow_but([b"", b'"vram":'], [b"", b"\x01", b"{", b'"vram":', b'"mc":', b'"starts":{"MEC":']),
)
def test_a_damaged_record_is_ignored(damage):
    bench = Bench("gfx1100")
    user = User(bench)
    assert user.close()
    kept = bytearray(bench.card.vram.memory[layout.RECORD : layout.RECORD + layout.RECORD_SIZE])
    kept[kept.index(damage) + len(damage)] ^= 1
    bench.card.vram.memory[layout.RECORD : layout.RECORD + len(kept)] = bytes(kept)
    assert User(bench).started.cold


def test_a_record_of_a_card_with_other_memory_is_ignored():
    bench = Bench("gfx1100")
    assert User(bench).close()
    bench.card.registers.on_read("NBIO", "RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE", lambda: 128)
    with pytest.raises(DeviceFailed, match="damaged"):
        bench.start()


def die(bench: Bench, lists: int, operations: int, life) -> None:
    """Run until a list, of which only `operations` operations are run."""
    bench.lives, bench.operations = lists, operations
    with pytest.raises(Died):
        life()
    bench.lives = None


def survive(bench: Bench, *, warm: bool = True) -> None:
    """The next program can use the card; and the one after that finds it intact."""
    after = User(bench)
    assert len(after.lines) <= 12
    assert after.close()
    if warm:
        assert not User(bench).started.cold
    allowed = "the SMU does not answer GetSmuVersion"  # the check whether it is alive
    assert [text for text in bench.findings if not text.startswith(allowed)] == []


def sizes(bench: Bench, life) -> list[int]:
    """Operations of each list of a program's life."""
    found: list[int] = []
    bench.watch = lambda commands: found.append(len(commands.operations))
    life()
    bench.watch = lambda commands: None
    return found


def deaths(counts: list[int]) -> list[tuple[int, int]]:
    """Moments to die at: in which list, after how many of its operations."""
    return [(number, at) for number, count in enumerate(counts) for at in range(count + 1)]


@pytest.mark.slow
def test_death_while_booting():
    """In each list once, at a random operation."""
    chance = random.Random(0)
    for lists, count in enumerate(sizes(fresh := Bench("gfx1100"), lambda: User(fresh))):
        bench = Bench("gfx1100")
        die(bench, lists, chance.randrange(count + 1), lambda: User(bench))  # noqa: B023
        survive(bench, warm=False)


@pytest.mark.slow
@pytest.mark.parametrize("chip", GENERATIONS)
def test_death_at_operations_of_a_boot(chip):
    every = deaths(sizes(fresh := Bench(chip), lambda: User(fresh)))
    for lists, operations in every[STRIDE // 2 * GENERATIONS.index(chip) :: STRIDE]:
        bench = Bench(chip)
        die(bench, lists, operations, lambda: User(bench))  # noqa: B023
        survive(bench, warm=False)


@pytest.mark.slow
def test_death_while_closing_or_opening():
    dying("gfx1201", 1)


@pytest.mark.slow
@pytest.mark.parametrize("chip", SAMPLE)
def test_death_while_closing_or_opening_often(chip):
    dying(chip, amount(6, 20))


def dying(chip: str, some: int) -> None:
    """Deaths at moments of a close, of a warm start, and of a reset with the boot after it."""
    chance = random.Random(some)

    def some_of(counts: list[int]) -> list[tuple[int, int]]:
        every = deaths(counts)
        return chance.sample(every, min(some, len(every)))

    bench = Bench(chip)
    user = User(bench)
    closing = sizes(bench, user.close)
    opening = sizes(bench, lambda: User(bench))
    resetting = sizes(bench, lambda: User(bench))[:9]
    assert User(bench).close()
    for lists, operations in some_of(closing):
        user = User(bench)
        die(bench, lists, operations, user.close)
        survive(bench, warm=False)
    for lists, operations in some_of(opening):
        die(bench, lists, operations, lambda: User(bench))
        survive(bench, warm=False)
    for lists, operations in some_of(resetting):
        User(bench)
        die(bench, lists, operations, lambda: User(bench))
        survive(bench)
        assert User(bench).close()


@pytest.mark.parametrize(("chip", "lists"), [("gfx1100", 4), ("gfx1201", 5)])
def test_a_firmware_that_does_not_start_is_power_cycled(chip, lists):
    """An earlier program left the boot loader with an error."""
    bench = Bench(chip)
    prefix = psp_facts.PREFIXES[CHIPS[chip].versions["MP"][0]]
    registers = bench.card.registers
    registers.write(CHIPS[chip].address("MP", f"{prefix}_SMN_C2PMSG_35"), psp_facts.BOOTLOADER["SOS"])
    user = User(bench)
    assert user.started.cold
    assert bench.cycles == 1
    assert len(user.lines) <= 12
    user.work()


def test_what_is_not_a_gpu_is_not_changed():
    bench = Bench("gfx1100")
    bench.vendor = 0x10DE
    with pytest.raises(DeviceMissing, match="10de:744c, class 030000"):
        bench.start()
    bench.vendor, bench.class_code = 0x1002, 0x04_0300  # its audio function
    with pytest.raises(DeviceMissing, match="class 040300"):
        bench.start()
    assert (bench.runs, bench.cycles) == (0, 0)


def test_a_gpu_without_registers_is_reported(monkeypatch):
    monkeypatch.setattr(Bench, "bars", {0: Bar(1 << 35, 1 << 28, True)})
    with pytest.raises(DeviceFailed, match=r"BAR 2 .*BAR 5"):
        Bench("gfx1100").start()


def test_a_card_that_does_not_answer_is_power_cycled():
    bench = Bench("gfx1100")
    assert User(bench).close()
    bench.card._dark = True
    user = User(bench)
    assert user.started.cold
    assert bench.cycles == 1
    assert len(user.lines) <= 12
    user.work()


def test_a_card_that_does_not_answer_afterwards_is_an_error(monkeypatch):
    bench = Bench("gfx1100")
    bench.card._dark = True
    monkeypatch.setattr(Bench, "again", lambda self: self)
    with pytest.raises(DeviceFailed, match="does not answer") as caught:
        bench.start()
    assert "power" in (caught.value.hint or "")
    assert bench.clock.now() < 5


@EITHER
def test_a_ring_that_an_earlier_secure_os_was_ready_for(chip):
    """What it left in its mailbox is not taken for the state of the one that is about to start."""
    bench = Bench(chip)
    bench.card.blocks.psp._set(64, psp_facts.READY)
    assert bench.start().cold
    assert bench.cycles == 0
    assert bench.findings == []


def test_a_secure_os_that_never_starts(monkeypatch):
    bench = Bench("gfx1100")
    monkeypatch.setattr(
        type(bench.card.blocks.psp), "_start_sos", lambda self: self._set(64, psp_facts.READY)
    )
    with pytest.raises(GpuFailed, match=r"secure OS .* 2 s"):
        bench.start()
    assert bench.cycles == 1
    assert bench.clock.now() < 10


@pytest.mark.slow
def test_a_ring_that_is_refused(monkeypatch):
    bench = Bench("gfx1100")
    monkeypatch.setattr(type(bench.card.blocks.psp), "_create_ring", lambda self: 6)
    with pytest.raises(GpuFailed, match=r"PSP ring created .*, it reads 0x80020006"):
        bench.start()


def test_an_answer_that_was_there_before_is_ignored(monkeypatch):
    """VRAM holds what looks like the answer to the first command; that is refused."""
    bench = Bench("gfx1100")

    def again() -> Bench:
        bench.again()
        bench.card.vram.memory[psp.FENCE : psp.FENCE + 4] = b"\1\0\0\0"
        return bench

    refusal = {"status": psp_facts.STATUS["GENERIC"]}, 0
    monkeypatch.setattr(type(bench.card.blocks.psp), "_load_toc", lambda self, body: refusal)
    with pytest.raises(GpuFailed, match="refuses LOAD_TOC: GENERIC"):
        bench.start(again=again)


def test_a_security_processor_that_only_reports_failures(monkeypatch):
    bench = Bench("gfx1100")
    bench.card.vram.memory[: layout.BOOT_REGION] = b"\xa5" * layout.BOOT_REGION
    processor = type(bench.card.blocks.psp)
    write, success = processor._write, psp_facts.RESPONSE.pack(status=0)
    monkeypatch.setattr(
        processor, "_write", lambda self, at, data: data[:4] == success[:4] or write(self, at, data)
    )
    assert bench.start().cold
    assert bench.cycles == 0


@EITHER
def test_what_vram_held_before_does_not_matter(chip):
    bench = Bench(chip)
    bench.card.vram.memory[: layout.BOOT_REGION] = b"\xa5" * layout.BOOT_REGION
    user = User(bench)
    user.work()
    assert bench.cycles == 0
    assert bench.findings == []


@EITHER
def test_nothing_is_left_to_drain_by_itself(chip, monkeypatch):
    """The host data path keeps what is written until it is flushed."""
    monkeypatch.setattr(hdp, "DRAIN_CLOCKS", clocks(3600))
    monkeypatch.setattr(hdp, "OUTSTANDING", 1 << 30)
    bench = Bench(chip)
    for cold in (True, False):
        user = User(bench)
        assert user.started.cold == cold
        user.work()
        assert user.close()
    assert bench.cycles == 0
    assert bench.findings == []


def test_a_secure_os_that_starts_meanwhile():
    """An earlier program has sent the command for it."""
    bench = Bench("gfx1100")
    lists = itertools.count()

    def watch(commands: CommandList) -> None:
        if next(lists) == 4:
            bench.card.blocks.psp.alive = True

    bench.watch = watch
    assert bench.start().cold
    assert bench.cycles == 1
    assert bench.findings == []


@pytest.mark.parametrize("block", hub.PREFIXES)
def test_a_card_with_a_page_fault_is_booted(block):
    bench = Bench("gfx1201")
    user = User(bench)
    assert user.close()
    bench.card.registers.set(block, hub.fault_status(user.card, block), 1)
    assert bench.start().cold


def test_vram_that_is_reported_at_an_impossible_place():
    bench = Bench("gfx1100")
    bench.card.registers.write(CHIPS["gfx1100"].address("MMHUB", "MMMC_VM_FB_LOCATION_TOP"), 0)
    assert bench.start().cold
    assert bench.cycles == 1


def test_a_boot_leaves_no_older_record():
    bench = Bench("gfx1100")
    counts = sizes(fresh := Bench("gfx1100"), fresh.start)
    bench.card.vram.memory[layout.RECORD : layout.RECORD + 4] = b"TOW\0"
    die(bench, len(counts) - 2, 0, bench.start)
    assert bytes(bench.card.vram.memory[layout.RECORD : layout.RECORD + 12]) == bytes(12)


@pytest.mark.parametrize("text", slow_but([b"[]"], [b"[]", b"{}", b"nope", b'{"chip":"gfx1100","clocks":7}']))
def test_a_record_of_another_program_is_ignored(text):
    bench = Bench("gfx1100")
    user = User(bench)
    assert user.close()
    checksum = zlib.crc32(text)
    data = struct.pack("<3I", record.MAGIC, len(text), checksum) + text
    bench.card.vram.memory[layout.RECORD : layout.RECORD + len(data)] = data
    batch = Batch(user.card, "test")
    batch.write("GC", record.CHECKSUM, checksum)
    batch.run()
    assert bench.start().cold
