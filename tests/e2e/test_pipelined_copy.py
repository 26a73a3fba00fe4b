"""The fastest published way to copy in: the next chunk is armed while this one streams."""

from __future__ import annotations

import pytest

from emulator.model import Model
from emulator.usb.wire import Outcome, Setup, Speed, Stall
from tests.amdgpu_bridge import Bridge, booted
from tests.amdgpu_driver import HEAP, SRAM_VA, VA
from tests.amdgpu_queues import Sdma, halves
from tests.chips import GENERATIONS
from tests.list_host import ListHost, noise
from tests.pipelined_copy import (
    FENCE,
    OUT,
    PUBLISHED,
    SENTINEL,
    SLOT,
    SLOTS,
    WINDOW,
    Copier,
    copy_in,
    window,
)
from tests.reference_host import power_up
from tests.unit.open_firmware import OpenFirmware
from tests.unit.test_chip_reference_sequences import enumerate_pcie

MODELS = pytest.mark.parametrize("model", ["queue", "replace"])
CHUNKS = 8


def contents(count: int = CHUNKS) -> list[bytes]:
    return [noise(WINDOW - 4, number) for number in range(count)]


def host_of(speed: Speed = Speed.SUPER_PLUS, model: str = "queue") -> ListHost:
    host = ListHost(power_up(speed, function=Copier(), model=Model.of([f"dma-arm={model}"])).board)
    host.set_up_pcie()
    return host


def expect(host: ListHost, chunks: int) -> None:
    device = host.board.endpoint
    assert isinstance(device, Copier)
    device.expect(chunks)


# -- the rate ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@MODELS
def test_through_our_firmware(model: str) -> None:
    host, data = host_of(model=model), contents()
    expect(host, CHUNKS)
    rate = copy_in(host.board.usb, data)
    assert host.ram[: CHUNKS * (WINDOW - 4)] == b"".join(data)
    print(f"our firmware, dma-arm={model}: {rate:.0f} MB/s; published on silicon: {PUBLISHED}")
    assert rate >= PUBLISHED


@pytest.mark.slow
@MODELS
def test_through_our_firmware_at_high_speed(model: str) -> None:
    host, data = host_of(Speed.HIGH, model), contents(4)
    expect(host, 4)
    rate = copy_in(host.board.usb, data)
    assert host.ram[: 4 * (WINDOW - 4)] == b"".join(data)
    assert rate > 35


def test_through_the_open_firmwares_register_accesses() -> None:
    firmware, data = OpenFirmware(endpoint=Copier()), contents()
    firmware.host.enumerate()
    enumerate_pcie(firmware.host)
    assert isinstance(firmware.endpoint, Copier)
    firmware.endpoint.expect(CHUNKS)
    rate = copy_in(firmware.host, data)
    assert firmware.endpoint.memory[: CHUNKS * (WINDOW - 4)] == b"".join(data)
    print(f"the open firmware, which answers at once: {rate:.0f} MB/s; published on silicon: {PUBLISHED}")
    assert rate >= PUBLISHED


def test_without_a_queue_the_open_firmware_loses_data() -> None:
    firmware = OpenFirmware(endpoint=Copier(), strict=False)
    firmware.chip.dma.queues = False
    firmware.host.enumerate()
    enumerate_pcie(firmware.host)
    assert isinstance(firmware.endpoint, Copier)
    firmware.endpoint.expect(CHUNKS)
    with pytest.raises(TimeoutError):
        copy_in(firmware.host, contents(), patience=2e-3)


@pytest.mark.parametrize("chip", [pytest.param(name, marks=pytest.mark.slow) for name in GENERATIONS])
def test_sdma_polls_and_copies(chip: str) -> None:
    driver = booted(chip, 512 << 20)
    bridge, sdma, data = driver.host, Sdma(driver), contents(16)
    assert isinstance(bridge, Bridge)
    fence = driver.remap(0, FENCE & ~0xFFF, system=True) + (FENCE & 0xFFF)
    program: list[int] = []
    for number, part in enumerate(data):
        source = SRAM_VA + window(number) * SLOT
        program += sdma.poll(source + WINDOW - 4, SENTINEL + number)
        program += sdma.copy(source, VA + HEAP + number * len(part), len(part))
        program += [5 | 3 << 16, *halves(fence), number + 1]
    bridge.usb.poke(0xA800, 0)
    sdma.run(program)
    rate = copy_in(bridge.usb.board.usb, data)
    sdma.wait()
    assert bridge.card.vram.read(HEAP, len(data) * (WINDOW - 4)) == b"".join(data)
    print(f"{chip}: {rate:.0f} MB/s into VRAM; published on silicon: {PUBLISHED}")
    assert rate >= PUBLISHED
    assert bridge.card.diagnosis.findings == []


# -- how our firmware waits -------------------------------------------------------------------------------


def arm(slot: int, sectors: int = 512, slots: int = SLOTS) -> Setup:
    return Setup(0x40, 0xF2, sectors, slots << 8 | slot, 0)


@pytest.fixture(name="host")
def _host() -> ListHost:
    """The first window has been armed, and nothing been sent."""
    host = host_of()
    host.board.usb.control(arm(0), timeout=1.0)
    return host


def sends(host: ListHost, *windows: int) -> None:
    """The engine takes these, in this order, and then nothing."""
    for number, first in enumerate(windows):
        host.bulk(OUT, noise(WINDOW, number))
        device = host.board.endpoint
        assert isinstance(device, Copier)
        assert device.upstream.dma_read(0x20_0000 + first * SLOT, WINDOW) == noise(WINDOW, number)
    assert host.board.chip.dma.remaining == 0


def test_the_status_stage_waits_as_long_as_the_link_needs_and_no_longer(host: ListHost) -> None:
    """The wait ends even if nothing is sent; the model queues then."""
    before = host.now
    host.board.usb.control(arm(16), timeout=1.0)
    waited = host.now - before
    assert WINDOW / 700e6 < waited < 1.2 * WINDOW / 700e6
    sends(host, 0, 16)


def test_a_host_that_sends_first_does_not_wait(host: ListHost) -> None:
    sends(host, 0)
    before = host.now
    host.board.usb.control(arm(16), timeout=1.0)
    assert host.now - before < 50e-6
    sends(host, 16)


def test_transfers_towards_the_host_are_not_waited_for() -> None:
    host = host_of()
    host.arm_slots(512, 0, SLOTS, to_host=True)
    device = host.board.endpoint
    assert isinstance(device, Copier)
    device.upstream.dma_write(0x82_200C, bytes(4))
    assert len(host.bulk(0x81, WINDOW)) == WINDOW
    before = host.now
    host.arm_slots(2, 0, 1)
    assert host.now - before < 50e-6


def test_wrong_slots_are_refused_after_the_wait(host: ListHost) -> None:
    with pytest.raises(Stall):
        host.board.usb.control(arm(20), timeout=1.0)
    host.board.usb.control(arm(16), timeout=1.0)
    sends(host, 0, 16)


def test_a_request_that_is_given_up_does_not_arm(host: ListHost) -> None:
    usb = host.board.usb
    with pytest.raises(TimeoutError):
        usb.control(arm(16), timeout=100e-6)
    host.peek(0x9100)
    usb.clock.sleep(2e-3)
    sends(host, 0)
    usb.control(arm(16), timeout=1.0)
    sends(host, 16)


@pytest.mark.slow
@pytest.mark.parametrize("tries", [2, 5])
def test_a_request_that_is_repeated_arms_once(host: ListHost, tries: int) -> None:
    usb = host.board.usb
    for _ in range(tries):
        with pytest.raises(TimeoutError):
            usb.control(arm(16), timeout=60e-6)
    usb.control(arm(16), timeout=1.0)
    sends(host, 0, 16)


def test_other_work_is_done_meanwhile(host: ListHost) -> None:
    """PCIe requests do not wait; the next of this kind waits at most for the rest."""
    before = host.now
    host.write32(0x8_0000_0000, 0x600D)
    assert host.read32(0x8_0000_0000) == 0x600D
    assert host.now - before < WINDOW / 700e6 / 2
    host.board.usb.control(arm(16), timeout=1.0)
    assert host.now - before < 2 * WINDOW / 700e6
    sends(host, 0, 16)


@pytest.mark.slow
def test_whenever_the_next_request_comes() -> None:
    """Also in the few clocks around the end of the wait."""
    host = host_of()
    for pause in range(0, 600, 7):
        host.board.usb.control(arm(0, 32, 1), timeout=1.0)
        transfer = host.begin(OUT, noise(32 * 512))
        host.sleep(pause * 0.1e-6)
        host.board.usb.control(arm(1, 32, 1), timeout=1.0)
        host.board.usb.wait(transfer, timeout=1.0)
        assert transfer.outcome is Outcome.DONE
        host.bulk(OUT, noise(32 * 512, 2))
        assert host.board.chip.dma.remaining == 0


def test_a_bus_reset_ends_the_wait(host: ListHost) -> None:
    usb = host.board.usb
    with pytest.raises(TimeoutError):
        usb.control(arm(16), timeout=100e-6)
    usb.reset()
    usb.enumerate()
    assert host.board.chip.dma.remaining == 0
    usb.control(arm(16), timeout=1.0)
    sends(host, 16)


def test_list_mode_ends_the_wait(host: ListHost) -> None:
    sends(host, 0)
    host.board.usb.control(arm(16), timeout=1.0)
    sends(host, 16)
    host.open()
    host.works()
    host.board.usb.control(arm(0), timeout=1.0)
    sends(host, 0)
