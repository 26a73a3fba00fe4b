"""A published driver, whose register accesses are known, is right: the card must report no finding."""

from __future__ import annotations

import gc
import random
import struct

import pytest

from emulator.amdgpu.card import MODE1_CLOCKS, MODE1_DELAY
from emulator.amdgpu.context import Event
from emulator.pcie.function import Reset
from tests.amdgpu_queues import RELEASE_MEM, halves, pm4
from tests.amdgpu_replay import QUEUES, QUEUES_VA, Replay
from tests.chips import GENERATIONS

BOTH = pytest.mark.parametrize("chip", GENERATIONS)
KEEP = pytest.mark.parametrize("keep", [False, True], ids=["as traced", "bits kept"])
SIGNAL, COPIES = 0x3000, 0x10_5000
"""Offsets from the queues: of what engines write to here; of what the driver's SDMA pointers are at."""


@BOTH
@KEEP
def test_the_published_boot_is_right(chip: str, keep: bool) -> None:
    replay = Replay(chip, keep=keep)
    replay.run("boot")
    replay.run("queues")
    card, blocks = replay.card, replay.card.blocks
    assert card.diagnosis.findings == []
    assert all(blocks.rlc.running(engine) for engine in ("rlc", "imu", "mec", "sdma"))
    assert blocks.smu.clock_mhz("GFXCLK") > 2000

    fence = pm4(RELEASE_MEM, 0x0070_F514, 0x2000_0000, *halves(QUEUES_VA + SIGNAL), 7, 0, 0)
    replay.vram(QUEUES, struct.pack(f"<{len(fence)}I", *fence))
    replay.vram(QUEUES + 0x2038, struct.pack("<Q", len(fence)))
    replay.host.write(2, 0x18, struct.pack("<Q", len(fence)))
    replay.host.wait("signal of the compute queue", lambda: replay.word(QUEUES + SIGNAL) == 7)

    copies = (5 | 3 << 16, *halves(QUEUES_VA + SIGNAL), 9)
    replay.vram(QUEUES + 0x5000, struct.pack(f"<{len(copies)}I", *copies))
    replay.vram(QUEUES + COPIES + 0x38, struct.pack("<Q", 4 * len(copies)))
    replay.host.write(2, 0x800, struct.pack("<Q", 4 * len(copies)))
    replay.host.wait("signal of SDMA", lambda: replay.word(QUEUES + SIGNAL) == 9)
    assert card.diagnosis.findings == []


def resets(chip: str, times: int) -> None:
    """Reset a card at random moments of its boot, in all ways; nothing continues, nothing accumulates."""
    chance = random.Random(times)
    replay = Replay(chip, keep=False)
    card = replay.card
    happened: list[Event] = []
    card.event_observers.append(happened.append)
    objects = 0
    for number in range(times):
        replay.run("boot", chance.randrange(20, 800))
        kind = chance.choice((*Reset, "mode 1", "mode 1"))
        if isinstance(kind, Reset):
            card.reset(kind)
        else:
            card.mode1_reset()
            replay.host.sleep(MODE1_DELAY)
        happened.clear()
        before = card.vram.read(0, 1 << 20)
        replay.host.sleep(MODE1_CLOCKS)
        assert [event for event in happened if event.source != "card"] == []
        assert card.vram.read(0, 1 << 20) == before
        replay.start()
        if number == times // 2:
            gc.collect()
            objects = len(gc.get_objects())
    replay.run("boot")
    replay.run("queues")
    assert card.diagnosis.findings == []
    card.reset(Reset.PERST)
    replay.host.sleep(MODE1_CLOCKS)
    gc.collect()
    assert len(gc.get_objects()) < objects + 500


@pytest.mark.slow
@BOTH
def test_resets_in_the_middle_of_things(chip: str) -> None:
    resets(chip, 12)


@pytest.mark.slow
@BOTH
def test_many_resets_in_the_middle_of_things(chip: str) -> None:
    resets(chip, 200)
