"""A boot in the order of the chip maker's firmware, on the 8051; it waits for the chip without time-outs."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.board import Board
from emulator.core.clock import clocks
from emulator.options import Options
from emulator.usb.wire import Speed
from firmware.asm2464pd import image


def put(address: int, value: int) -> bytes:
    """mov dptr, #address; mov a, #value; movx @dptr, a"""
    return bytes((0x90, address >> 8, address & 0xFF, 0x74, value, 0xF0))


def wait(address: int, mask: int, *, until: bool = True) -> bytes:
    """mov dptr, #address; again: movx a, @dptr; anl a, #mask; jz again (or jnz)"""
    return bytes((0x90, address >> 8, address & 0xFF, 0xE0, 0x54, mask, 0x60 if until else 0x70, 0xFB))


def dpx(value: int) -> bytes:
    """mov 93h, #value"""
    return bytes((0x75, 0x93, value))


def say(letter: str) -> bytes:
    return put(0xC001, ord(letter))


STEPS = {
    "PHY ready": wait(0xC6B3, 0x30),
    "fill": b"".join(
        put(address, value)
        for address, value in ((0xC8B2, 0xA0), (0xC8B3, 0), (0xC8B4, 0x0F), (0xC8B5, 0xFF), (0xC8B7, 0))
    )
    + put(0xC8D8, 2)
    + put(0xC8B6, 0x84)
    + put(0xC8B8, 1)
    + wait(0xC8B8, 1, until=False)
    + put(0xC8D8, 0)
    + put(0xC8B8, 1)
    + wait(0xC8B8, 1, until=False),
    "masks": put(0x9303, 0x33) + put(0x9304, 0x3F) + put(0x9305, 0x40) + put(0x9302, 0xBF),
    "storage engine": put(0x900B, 7)
    + put(0x900B, 0)
    + put(0xC42A, 0x1F)
    + put(0xC42A, 0)
    + put(0x901A, 0x0D)
    + put(0xC42C, 1)
    + put(0xC42D, 0),
    "registers without a name": put(0xCC32, 1) + put(0xE710, 4) + dpx(1) + put(0x2805, 0) + dpx(0),
    "start pulse": put(0x91C0, 1) + put(0x91C0, 0) + wait(0xE318, 0x10),
    "training": wait(0x91D1, 0x01) + wait(0x92FB, 0x69) + put(0x91C0, 2) + put(0x91D1, 1),
    "link": wait(0x9300, 0x06),
}


@pytest.mark.parametrize("best", [Speed.SUPER_PLUS, Speed.HIGH])
def test_no_step_of_the_boot_hangs(tmp_path: Path, best: Speed, caplog: pytest.LogCaptureFixture) -> None:
    letters = "ABCDEFGH"
    code = bytes((0x02, 0x00, 0x10)) + bytes(13)  # ljmp 0x0010
    code += b"".join(step + say(letter) for step, letter in zip(STEPS.values(), letters, strict=True))
    path = tmp_path / "boot.bin"
    path.write_bytes(image.wrap(code + b"\x80\xfe"))
    board = Board.of(path, Options(port=best, strict=True))
    heard: list[int] = []
    board.on_uart(heard.append)
    board.machine.run(clocks(0.06))
    reached = bytes(heard).decode()
    assert reached == letters, f"after {list(STEPS)[len(reached)]}"
    assert not caplog.messages
    board.close()
    assert len(caplog.messages) == 1, "one line for the registers whose meaning is not known"
    assert "3 accessed addresses (phy 2805, xdata cc32 e710)" in caplog.messages[0]
