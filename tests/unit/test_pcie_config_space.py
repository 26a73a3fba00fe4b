"""Configuration space: masks, resets, links, resizable BARs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.pcie import config_space
from emulator.pcie.config_space import Capability, ConfigSpace, Identity, Item, Resizable
from emulator.pcie.function import Bar, Reset
from sdk.errors import InternalError

ODD = Capability(
    0x09, 0x40, 12, (Item(4, 4, 0x12345678, writable=0x00FF00FF, clears=0x0F000000, sticky=0x000000FF),)
)


def space(**settings):
    return ConfigSpace(config_space.type0(Identity(0x1234, 0x5678, 0x020000)), **settings)


def test_registers_may_not_overlap():
    with pytest.raises(InternalError, match="0x44"):
        space(capabilities=(ODD, Capability(0x11, 0x44, 4)))
    with pytest.raises(InternalError, match="0x10"):
        space(bars=(Bar(0, 4096), Bar(0, 4096)))


def test_capabilities_are_linked_by_offset():
    config = space(
        capabilities=(
            config_space.power_management(0x60),
            ODD,
            config_space.pci_express(0x70, "endpoint", generation=3, lanes=2),
        )
    )
    assert config.value(0x34, 1) == 0x40
    assert [config.value(place, 2) for place in (0x40, 0x60, 0x70)] == [0x6009, 0x7001, 0x0010]
    assert config.value(0x72, 2) == 0x0002
    assert config.value(0x7C, 4) == 0x23


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 0xFFFFFFFF), st.integers(0, 15)), max_size=6))
def test_a_write_changes_what_its_masks_allow(writes):
    config = space(capabilities=(ODD,))
    model = 0x12345678
    for value, enables in writes:
        config.write(0x44, value, enables)
        mask = sum(0xFF << 8 * lane for lane in range(4) if enables >> lane & 1)
        model = model & ~(0x00FF00FF & mask) | value & 0x00FF00FF & mask
        model &= ~(value & 0x0F000000 & mask)
        assert config.read(0x44) == model
    config.reset(Reset.HOT)
    assert config.read(0x44) == 0x12345600 | model & 0xFF
    config.reset(Reset.PERST)
    assert config.read(0x44) == 0x12345678


def resizable():
    bars = (Bar(0, 4 << 20, wide=True, prefetchable=True),)
    entries = (Resizable(0, tuple(1 << 20 + step for step in range(6))),)
    return space(
        bars=bars, capabilities=(config_space.resizable_bars(0x100, entries, bars),), resizable=entries
    )


def sized(config):
    config.write(0x10, 0xFFFFFFFF)
    config.write(0x14, 0xFFFFFFFF)
    return (1 << 64) - (config.value(0x10, 8) & ~0xF)


def test_resizable_bar():
    config = resizable()
    assert config.read(0x100) == 0x00010015
    assert config.read(0x104) == 0x3F0
    assert config.read(0x108) == 0x220
    assert sized(config) == 4 << 20
    config.write(0x108, 5 << 8)
    assert sized(config) == config.sizes[0] == 32 << 20
    assert config.base(0) == (1 << 64) - (32 << 20)
    config.write(0x108, 9 << 8)
    assert config.sizes[0] == 32 << 20, "512 MiB is not supported"
    config.reset(Reset.HOT)
    assert sized(config) == config.sizes[0] == 4 << 20


def test_a_resize_clears_address_bits_below_the_size():
    config = resizable()
    config.write(0x10, 0x00400000)
    assert config.base(0) == 0x00400000
    config.write(0x108, 5 << 8)
    assert config.base(0) == 0
    assert config.read(0x10) == 0xC


def test_the_function_changes_read_only_bits_itself():
    config = space()
    config.set(0x06, 2, 0x0110)
    assert config.value(0x06, 2) == 0x0110
