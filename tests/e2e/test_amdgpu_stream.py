"""The data path that everything builds on: one USB transfer through the bridge's SRAM into VRAM, and back.

The card is booted over USB by the test driver; everything runs as it will: the bridge's firmware on its
emulated CPU, its slot DMA, SDMA packets in a ring in VRAM.
"""

from __future__ import annotations

import pytest

from firmware.protocol.command_list import CommandList
from tests.amdgpu_bridge import SLOT, Bridge, booted
from tests.amdgpu_driver import HEAP, SRAM_VA, VA
from tests.amdgpu_queues import Sdma, halves
from tests.chips import GENERATIONS
from tests.list_host import noise
from tests.reference_host import IN
from towline.cli.benchmarks.firmware import DRAINED, LANDED

VRAM = 512 << 20
LINK = 700
"""MB/s of the bridge's slot DMA."""
WINDOW = 0xF000
"""XDATA address of slot 0."""
QUEUE_PAGE, TRIGGER = 0x82_2000, 12
"""PCIe address of the completion queue; a write there triggers an armed transfer."""
HALVES = ((1, 15), (16, 16))
"""Slots of the SRAM that are filled and drained in turn; the fences are in slot 0."""


def store(address: int, value: int) -> list[int]:
    """A fence packet: a dword, after everything before it."""
    return [5 | 3 << 16, *halves(address), value & 0xFFFF_FFFF]


def stream(sdma: Sdma, contents: list[bytes], target: int) -> CommandList:
    """Have SDMA wait for parts in the SRAM and copy them to VRAM; the list that brings them there."""
    program: list[int] = []
    for number, data in enumerate(contents):
        source = SRAM_VA + HALVES[number % 2][0] * SLOT
        program += sdma.poll(source + len(data) - 4, number + 1)
        program += store(SRAM_VA + LANDED, number + 1)
        program += sdma.copy(source, target, len(data))
        program += store(SRAM_VA + DRAINED, number + 1)
        target += len(data)
    sdma.run(program)
    built = CommandList()
    with built.loop(len(contents) // 2):
        for number, (slot, slots) in enumerate(HALVES):
            built.fence(DRAINED, number - 1 & 0xFFFF_FFFF, step=2, microseconds=1_000_000)
            built.fence(LANDED, number, step=2, microseconds=1_000_000)
            built.slot_out(slot, slots, b"".join(contents[number::2]))
    built.fence(DRAINED, len(contents), microseconds=1_000_000)
    return built


@pytest.mark.parametrize("chip", [pytest.param(name, marks=pytest.mark.slow) for name in GENERATIONS])
def test_a_transfer_goes_through_the_sram_into_vram_and_back(chip: str) -> None:
    driver = booted(chip, VRAM)
    bridge, sdma = driver.host, Sdma(driver)
    assert isinstance(bridge, Bridge)
    card, usb = bridge.card, bridge.usb
    rounds = 20
    contents = [
        noise(slots * SLOT - 4, number) + (number + 1).to_bytes(4, "little")
        for number, (_, slots) in enumerate(HALVES * rounds)
    ]
    data = b"".join(contents)

    # SLOT_OUT leaves EP 0x02 to the slot DMA until a part has landed; the device says so by a fence.
    for offset in (LANDED, DRAINED):
        for byte in range(4):
            usb.poke(WINDOW + offset + byte, 0)
    built = stream(sdma, contents, VA + HEAP)
    usb.open()
    before = usb.now
    result = usb.run(built)
    elapsed = usb.now - before
    usb.close()
    assert result.failure is None, str(result.failure)
    sdma.wait()
    assert card.vram.read(HEAP, len(data)) == data
    rate = len(data) / elapsed / 1e6
    print(
        f"{chip}: {len(data)} bytes into VRAM in one transfer: {rate:.0f} MB/s, {rate / LINK:.1%} of {LINK}"
    )
    assert rate >= 0.9 * LINK

    # Back: the slot DMA is armed first, and waits until SDMA has written the completion entry.
    size = 512 << 10
    trigger = driver.remap(0, QUEUE_PAGE, system=True) + TRIGGER
    usb.arm_slots(size // 512, 0, size // SLOT, to_host=True)
    before = usb.now
    sdma.run(sdma.copy(VA + HEAP + 4096, SRAM_VA, size), store(trigger, 0))
    assert usb.bulk(IN, size) == data[4096 : 4096 + size]
    elapsed = usb.now - before
    sdma.wait()
    print(f"{chip}: {size} bytes from VRAM: {size / elapsed / 1e6:.0f} MB/s, from the doorbell on")
    assert card.diagnosis.findings == []
