"""Writing through the SPI controller, over a flash in memory, which may be worn."""

from __future__ import annotations

import pytest

from firmware.asm2464pd.flash_layout import IMAGE, SECTOR_SIZE
from tests.flash_bench import CONFIG, filler
from usbgpu.flash import plan, programmer
from usbgpu.flash.plan import Contents, Program
from usbgpu.flash.programmer import SpiProgrammer, VerifyFailed, Written

NEW = Contents(CONFIG, filler(300))


class MemoryFlash:
    """Replaces `SpiFlash`. `worn` has bits of bytes, by address, that stay 1 whatever is programmed."""

    def __init__(self) -> None:
        self.memory = bytearray(plan.AREA)
        self.worn: dict[int, int] = {}

    def unprotect(self) -> None:
        pass

    def spoil(self, expected: bytes) -> None:
        pass

    def erase(self, address: int) -> None:
        self.memory[address : address + SECTOR_SIZE] = b"\xff" * SECTOR_SIZE

    def program(self, step: Program) -> None:
        for place, value in enumerate(step.data, step.address):
            self.memory[place] &= value | self.worn.get(place, 0)

    def read(self, address: int, size: int) -> bytes:
        return bytes(self.memory[address : address + size])


@pytest.fixture
def flash(monkeypatch) -> MemoryFlash:
    flash = MemoryFlash()
    monkeypatch.setattr(programmer, "SpiFlash", lambda device: flash)
    return flash


def test_a_flash_holds_what_was_written(flash: MemoryFlash) -> None:
    assert SpiProgrammer(None).write(NEW, lambda *_: None) == Written(len(NEW.memory), 0)
    assert flash.memory[: len(NEW.memory)] == NEW.memory


@pytest.mark.parametrize("address", [0x20, IMAGE.address, IMAGE.address + 0x21])
def test_a_worn_bit_is_reported_wherever_it_is(flash: MemoryFlash, address: int) -> None:
    """In the configuration; in the length field, which is programmed last and on its own; in the image."""
    flash.worn[address] = ~NEW.memory[address] & 0xFF
    with pytest.raises(VerifyFailed) as caught:
        SpiProgrammer(None).write(NEW, lambda *_: None)
    assert caught.value.where == f"flash address {address:#07x}"
