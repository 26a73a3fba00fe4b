"""Contradicting facts of the chip: which are followed, by name; the buffer at 0x7000 is one of them."""

from __future__ import annotations

import pytest

from emulator.asm2464pd.chip import Chip, Pins
from emulator.asm2464pd.flash_chip import FlashChip
from emulator.asm2464pd.undefined import Undefined
from emulator.core.bus import UNINITIALISED, WRITE_IGNORED, Bus
from emulator.core.clock import Scheduler
from emulator.model import CHOICES, Model
from emulator.options import described
from emulator.pcie.endpoint import TestEndpoint
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.disputes import DISPUTES as of_chip
from firmware.asm2464pd.registers import ASM2464PD
from sdk.errors import UsageError
from towline.cli import main
from usbgpu.amd.facts.disputes import DISPUTES as of_card
from usbgpu.amd.facts.disputes import RESET_VRAM


def chip(model: Model) -> Bus:
    bus = Bus(ASM2464PD, Scheduler(), strict=True)
    pins = Pins(lambda data: None, lambda: None)
    Chip(bus, FlashChip(bus.clock, b"from flash"), TestEndpoint(1 << 20), pins, model)
    return bus


def test_every_claim_can_be_chosen_and_the_first_is_the_default() -> None:
    for dispute in CHOICES.values():
        for claim in dispute.claims:
            model = Model.of([f"{dispute.name}={claim.value}"])
            assert model.follows(dispute, claim.value)
            assert sum(model.follows(dispute, other.value) for other in dispute.claims) == 1
            chip(model)
        assert Model().follows(dispute, dispute.claims[0].value)
    assert len(CHOICES) == len(of_chip) + len(of_card)


@pytest.mark.parametrize(
    "text", ["", "super-plus-code", "super-plus-code=4", "no-such=1", "flash-gate=", "="]
)
def test_what_there_is_to_choose_is_said(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Model.of([text])
    assert "super-plus-code=3|2" in caught.value.hint or "flash-gate=open|needed" in caught.value.hint


def test_the_device_string_has_the_same_choices() -> None:
    _, options = described("emulated:x?super-plus-code=2&link-masks=applied&speed=high")
    assert options.model == Model.of(["super-plus-code=2", "link-masks=applied"])
    _, options = described("emulated?gpu=gfx1100&reset-vram=garble")
    assert options.model == Model.of(["reset-vram=garble"])
    for spec in (
        *("emulated?super-plus-code=", "emulated?super-plus-code", "emulated?super-plus-code=9"),
        *("emulated?reset-vram=keep", "emulated?gpu=gfx1100&reset-vram=keep=keep"),
    ):
        with pytest.raises(UsageError):
            described(spec)


def test_the_cpu_writes_the_bulk_out_buffer() -> None:
    bus = chip(Model())
    assert not bus.planes[Space.XDATA].flags[0x7F00] & WRITE_IGNORED
    bus.cpu_write(Space.XDATA, 0x7F00, 0x5A)
    assert bus.cpu_read(Space.XDATA, 0x7F00) == 0x5A


def test_what_lands_in_the_bulk_out_buffer_is_never_uninitialised() -> None:
    bus = chip(Model())
    bus.guard_uninitialised()
    flags = bus.planes[Space.XDATA].flags
    assert not flags[0x7000] & UNINITIALISED
    assert flags[0x8000] & UNINITIALISED


def test_a_model_in_which_the_cpu_can_not() -> None:
    bus = chip(Model.of(["bulk-out-writes=ignored"]))
    assert bus.planes[Space.XDATA].flags[0x7F00] & WRITE_IGNORED
    bus.cpu_write(Space.XDATA, 0x7F00, 0x5A)
    assert bus.cpu_read(Space.XDATA, 0x7F00) == 0
    bus.store(Space.XDATA, 0x7F00, b"p")
    assert bus.cpu_read(Space.XDATA, 0x7F00) == ord("p"), "packets still land in it"


def test_a_write_of_the_cpu_under_a_flash_transaction_collides() -> None:
    bus = chip(Model())
    for address, value in ((0xC805, 2), (0xC8AA, 3), (0xC8AC, 7), (0xC8A4, 10), (0xC8A9, 1)):
        bus.cpu_write(Space.XDATA, address, value)
    bus.cpu_write(Space.XDATA, 0x7003, 0x5A)
    bus.clock.now = bus.clock.next or 0
    with pytest.raises(Undefined, match="0x7000 changed"):
        bus.clock.run_due()


def test_strict_takes_away_what_a_driver_must_not_rely_on_unless_it_is_chosen() -> None:
    assert Model().follows(RESET_VRAM, "keep")
    assert Model().follows(RESET_VRAM, "garble", strict=True)
    assert Model.of(["reset-vram=keep"]).follows(RESET_VRAM, "keep", strict=True)


@pytest.mark.parametrize("choice", ["dma-arm=often", "reset-vram=keep", ""])
def test_emulate_refuses_what_it_cannot_do(choice: str) -> None:
    assert main(["emulate", "firmware", "--model", choice]) == 2
