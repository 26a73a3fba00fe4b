"""The HDP through the whole card: an engine that is already running overtakes the host's writes."""

from __future__ import annotations

import struct

import pytest

from emulator.amdgpu.card import AmdCard
from tests.amdgpu_driver import HEAP, SRAM_VA, VA, Driver
from tests.amdgpu_host import Host
from tests.amdgpu_queues import Sdma
from tests.chips import GENERATIONS
from usbgpu.amd.facts.chips import CHIPS

COPY = HEAP + 0x1000
GO = SRAM_VA + 0x100
"""The signal is in the bridge's memory, which is not reached through the HDP."""


@pytest.mark.parametrize("chip", GENERATIONS)
@pytest.mark.parametrize("flushed", [True, False])
def test_a_running_engine_reads_old_bytes_without_a_flush(chip: str, flushed: bool) -> None:
    card = AmdCard(chip, 256 << 20)
    host = Host(card)
    driver = Driver(host, CHIPS[chip])
    driver.boot()
    driver.vram(HEAP, b"old!")
    host.sram[0x100:0x104] = bytes(4)
    queue = Sdma(driver)
    queue.run(queue.poll(GO, 7), queue.copy(VA + HEAP, VA + COPY, 4))
    driver.sleep(1e-3)
    assert driver.word(queue.signal) == 0, "the engine waits"
    assert card.diagnosis.findings == []

    driver.vram(HEAP, b"new!")
    if flushed:
        driver.flush_hdp()
    host.sram[0x100:0x104] = struct.pack("<I", 7)
    queue.wait()
    assert driver.vram_read(COPY, 4) == (b"new!" if flushed else b"old!")
    assert card.diagnosis.steps == (set() if flushed else {"hdp-flush"})
