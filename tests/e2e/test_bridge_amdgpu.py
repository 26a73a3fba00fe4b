"""A bridge and the emulated card behind it, by device string: found, given addresses, and reached."""

from __future__ import annotations

import random

import pytest

from firmware.protocol.command_list import CommandList
from usbgpu import bridge, pcie, transport
from usbgpu.amd.facts.chips import CHIPS

RCC_CONFIG_MEMSIZE = 0xDE3
"""Dword index in BAR 5: MiB of VRAM."""


@pytest.mark.slow
@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize(("chip", "device"), [("gfx1100", 0x744C), ("gfx1201", 0x7550)])
def test_a_card(chip: str, device: int, lists: bool) -> None:
    opened = transport.open(f"emulated?gpu={chip}&vram=512M")
    calls = []
    opened.observers.append(lambda call, _: calls.append(call))
    with bridge.attach(opened, lists=lists) as plugged:
        plugged.power(True)
        function = pcie.enumerate(plugged)
        if lists:
            assert len(calls) <= 4 + 2 + 3 + 4, "opening, power, list mode again, enumeration"
        assert (function.vendor, function.device, function.bdf) == (0x1002, device, "04:00.0")
        assert {index: bar.size for index, bar in function.bars.items()} == {
            0: 512 << 20,
            2: 2 << 20,
            5: CHIPS[chip].family.register_bar,
        }
        data = random.Random(1).randbytes(5000)
        top = function.bars[0].address + (512 << 20) - len(data)
        commands = CommandList()
        commands.read(function.bars[5].address + 4 * RCC_CONFIG_MEMSIZE)
        commands.block_write(top, data)
        commands.block_read(top, len(data) // 4)
        assert plugged.run(commands).values == (512, data)
        assert pcie.programmed(plugged) == function
        assert str(pcie.link(plugged, function)) == "8 GT/s x4"
        plugged.power(False)
        assert pcie.programmed(plugged) is None
        assert pcie.find(plugged) == function, "it has power again"


def test_a_card_that_is_up_is_found_in_six_transfers() -> None:
    """Recognised, opened, and found unchanged: a warm open begins with these."""
    opened = transport.open("emulated?gpu=gfx1100&vram=512M")
    with bridge.attach(opened) as plugged:
        function = pcie.enumerate(plugged)
        calls = []
        opened.observers.append(lambda call, _: calls.append(call))
        again = bridge.attach(opened)
        assert pcie.programmed(again) == function
        assert len(calls) == 6
