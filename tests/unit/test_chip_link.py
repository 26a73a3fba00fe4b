"""Power, PERST# and the link: what brings it up and down."""

from __future__ import annotations

import itertools

import pytest

from emulator.asm2464pd import timing
from emulator.asm2464pd.phy import Phy
from emulator.model import Model
from emulator.pcie.function import UnsupportedRequest
from emulator.pcie.ports import USUAL, Slot
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import ASM2464PD, link, phy, tlp
from tests.unit.pcie import Requester

TRAINING = timing.PCIE_TRAINING.clocks

STEPS = (
    (link.PCIE_SLOT_3V3, 0x20, 0x00),
    (link.PCIE_SLOT_12V, 0x01, 0x00),
    (link.PCIE_PORT_POWER, 0x1C, 0x00),
    (link.PCIE_PERST, 0x00, 0x01),
)
"""What the link needs: register, value on, value off."""


def state(requester):
    return (
        requester.value(link.PCIE_LTSSM),
        requester.value(link.PCIE_LINK_STATUS),
        requester.value(link.PCIE_LINK_RATE),
    )


UP, TRAINS, DOWN = (0x78, 0x02, 0x43), (0x10, 0, 0), (0, 0, 0)


def test_perst_is_asserted_after_power_on():
    assert Requester().value(link.PCIE_PERST) == 1


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_link_comes_up_when_the_last_step_is_done(order):
    requester = Requester()
    for step in order:
        assert state(requester) == DOWN
        requester.run(2 * TRAINING)
        assert state(requester) == DOWN
        requester.write(STEPS[step][0], STEPS[step][1])
    assert state(requester) == TRAINS
    requester.run(TRAINING - 1)
    assert state(requester) == TRAINS
    requester.run(1)
    assert state(requester) == UP


@pytest.mark.parametrize("step", range(4))
def test_taking_anything_away_takes_the_link_down(step):
    requester = Requester()
    requester.power_on()
    requester.enumerate()
    assert state(requester) == UP
    register, on, off = STEPS[step]
    requester.write(register, off)
    assert state(requester) == DOWN
    with pytest.raises(UnsupportedRequest):
        requester.endpoint.upstream.dma_read(0x200000, 4)
    requester.write(register, on)
    requester.run(TRAINING)
    assert state(requester) == UP
    assert requester.config_read(0, 0x18) == 0, "what the host had programmed is gone"
    requester.enumerate()
    assert requester.config_read(4, 0x00) == 0x70E11234


def test_taking_it_away_while_training_stops_the_training():
    requester = Requester()
    for register, on, _ in STEPS:
        requester.write(register, on)
    requester.run(TRAINING // 2)
    requester.write(link.PCIE_PERST, 1)
    requester.run(TRAINING)
    assert state(requester) == DOWN


def test_other_bits_of_the_registers_are_storage():
    requester = Requester()
    requester.power_on()
    requester.write(link.PCIE_SLOT_3V3, 0xBB)
    requester.write(link.PCIE_SLOT_12V, 0xFF)
    requester.write(link.PCIE_TUNNEL_LINK_STATUS, 0x0C)
    assert state(requester) == UP
    assert requester.value(link.PCIE_SLOT_3V3) == 0xBB
    assert requester.value(link.PCIE_TUNNEL_LINK_STATUS) == 0x0C


def test_link_registers_cannot_be_written():
    requester = Requester()
    for register in (link.PCIE_LTSSM, link.PCIE_LINK_STATUS, link.PCIE_LINK_RATE):
        requester.write(register, 0xFF)
    assert state(requester) == DOWN


def test_perst_stuck():
    requester = Requester()
    requester.link.perst_stuck = True
    requester.power_on()
    assert requester.value(link.PCIE_PERST) == 0
    assert state(requester) == DOWN
    requester.link.perst_stuck = False
    requester.run(TRAINING)
    assert state(requester) == UP


def test_a_link_that_drops_trains_again_after_perst():
    requester = Requester()
    requester.power_on()
    requester.enumerate()
    requester.clock.after(100, lambda: requester.link.drop(None))
    requester.run(99)
    assert state(requester) == UP
    requester.run(1)
    assert state(requester) == DOWN
    requester.run(2 * TRAINING)
    assert state(requester) == DOWN
    requester.write(link.PCIE_PERST, 1)
    requester.write(link.PCIE_PERST, 0)
    requester.run(TRAINING)
    assert state(requester) == UP
    assert requester.config_read(0, 0x04) & 0xFFFF == 0


def test_tuning_registers_are_storage_under_strict():
    requester = Requester(strict=True)
    Phy(requester.bus)
    for register in phy.REGISTERS:
        requester.write(register, register.address & 0xFF)
    assert all(requester.value(register) == register.address & 0xFF for register in phy.REGISTERS)


def test_the_tuning_tables_are_complete():
    assert len(phy.USB_LANES) == 84
    assert {register.space for register in phy.USB_LANES} == {Space.XDATA}
    assert {register.space for register in phy.PCIE_LANES} == {Space.PHY}
    assert 0x6025 not in {register.address for register in phy.PCIE_LANES}
    assert 0x6425 in {register.address for register in phy.PCIE_LANES}


def test_a_model_whose_link_trains_in_reset():
    requester = Requester(model=Model.of(["perst-l0=asserted"]))
    for register, on, _ in STEPS[:3]:
        assert state(requester) == DOWN
        requester.write(register, on)
    requester.run(TRAINING)
    assert requester.value(link.PCIE_PERST) == 1
    assert state(requester) == UP
    requester.write(link.PCIE_ROUTING, 0x80)
    requester.write(tlp.TLP_LENGTH, 1)
    requester.launch(0x04, 0)
    assert requester.finish() & tlp.TLP_STATUS["ERROR"], "a card in reset answers nothing"
    requester.write(link.PCIE_PERST, 0)
    assert state(requester) == UP
    requester.enumerate()
    assert requester.config_read(4, 0x00) == 0x70E11234
    requester.write(link.PCIE_PERST, 1)
    assert state(requester) == UP
    requester.write(link.PCIE_PERST, 0)
    assert requester.config_read(0, 0x18) == 0, "it was reset"
    requester.write(link.PCIE_PORT_POWER, 0)
    assert state(requester) == DOWN


# -- width and rate -----------------------------------------------------------------------------------------


def trained(slot: Slot = USUAL, **registers: int) -> Requester:
    requester = Requester(slot=slot)
    for name, value in registers.items():
        requester.write(ASM2464PD[name], value)
    requester.power_on()
    return requester


def status(requester: Requester) -> list[tuple[int, int]]:
    """Lanes and generation: in the bridge's register, and in the link status of both ends."""
    requester.enumerate()
    found = [requester.value(link.PCIE_LINK_RATE)]
    found += [requester.config_read(bus, 0x58 + 0x10) >> 16 for bus in (1, 2)]
    return [(rate >> 4, rate & 0xF) for rate in found]


COMMITS = {f"PCIE_LANE_COMMIT_{lane}": 0x4F | (lane > 1) << 7 for lane in range(4)}


@pytest.mark.slow
@pytest.mark.parametrize("generation", [1, 2, 3, 4])
@pytest.mark.parametrize(("lanes", "width"), [(1, 1), (2, 2), (4, 4), (8, 4), (16, 4)])
def test_the_link_is_as_wide_and_fast_as_the_card_and_gen4_falls_back(lanes, width, generation):
    requester = trained(Slot(lanes, generation))
    held = min(generation, 3)
    assert status(requester) == [(width, held)] * 3
    assert requester.fabric.bytes_per_second == timing.pcie_bytes_per_second(held, width)
    could = [requester.config_read(bus, 0x58 + 0x0C) for bus in (1, 2)]
    assert [(each >> 4 & 0x3F, each & 0xF) for each in could] == [(4, 4), (lanes, generation)]


@pytest.mark.parametrize(
    ("registers", "width"),
    [
        ({"PCIE_TUNNEL_LINK_STATUS": 0x0E}, 1),  # the maker's firmware
        ({"PCIE_TUNNEL_LINK_STATUS": 0x0C}, 2),  # the published one
        (COMMITS, 2),
        ({**COMMITS, "PCIE_TUNNEL_LINK_STATUS": 0x0E}, 1),
        ({"PCIE_TUNNEL_LINK_STATUS": 0x00}, 4),
        ({"PCIE_TUNNEL_LINK_STATUS": 0xF0}, 4),
    ],
)
def test_firmware_keeps_lanes_out(registers, width):
    assert status(trained(**registers)) == [(width, 3)] * 3
    assert status(trained(Slot(1), **registers)) == [(1, 3)] * 3


def test_without_its_first_lane_the_link_does_not_train_and_says_why():
    requester = trained(PCIE_TUNNEL_LINK_STATUS=0x01)
    assert state(requester)[1:] == (0, 0)
    assert "PCIE_TUNNEL_LINK_STATUS" in requester.link.waits_for()


def test_what_firmware_writes_counts_from_the_next_training_on():
    requester = trained()
    requester.write(link.PCIE_TUNNEL_LINK_STATUS, 0x0E)
    assert status(requester)[0] == (4, 3)
    requester.write(link.PCIE_PORT_POWER, 0x00)
    requester.write(link.PCIE_PORT_POWER, 0x1C)
    requester.run(TRAINING)
    assert status(requester) == [(1, 3)] * 3


def test_software_has_the_link_trained_at_a_lower_rate():
    requester = trained()
    requester.enumerate()
    requester.config_write(1, 0x58 + 0x30, 0x0002, enables=0b0011)
    assert status(requester)[0] == (4, 3)
    requester.config_write(1, 0x58 + 0x10, 0x0020, enables=0b0011)
    assert status(requester) == [(4, 2)] * 3
    assert requester.config_read(1, 0x58 + 0x10) & 0x20 == 0
    assert requester.fabric.bytes_per_second == timing.pcie_bytes_per_second(2, 4)
    requester.config_write(1, 0x58 + 0x30, 0x0004, enables=0b0011)
    requester.config_write(1, 0x58 + 0x10, 0x0020, enables=0b0011)
    assert status(requester) == [(4, 3)] * 3


def test_a_reset_below_the_bridge_leaves_the_status_of_the_link():
    requester = trained(Slot(2, 2))
    requester.enumerate()
    requester.config_write(0, 0x3C, 0x40 << 16, enables=0b0100)
    requester.config_write(0, 0x3C, 0, enables=0b0100)
    assert status(requester) == [(2, 2)] * 3


def test_lanes_fail_and_return_without_a_reset():
    requester = trained()
    requester.enumerate()
    requester.link.change_width(1, 1000)
    assert state(requester) == (0x78, 0x02, 0x13)
    assert requester.config_read(4, 0x00) == 0x70E11234, "nothing was reset"
    assert requester.fabric.bytes_per_second == timing.pcie_bytes_per_second(3, 1)
    requester.run(1000)
    assert state(requester) == UP
    requester.link.change_width(2, None)
    assert requester.value(link.PCIE_LINK_RATE) == 0x23
    requester.write(link.PCIE_PERST, 1)
    requester.write(link.PCIE_PERST, 0)
    requester.run(TRAINING)
    assert state(requester) == UP


def test_a_link_that_trains_with_few_lanes_alone():
    requester = Requester()
    requester.link.most_lanes = 2
    requester.power_on()
    assert state(requester) == (0x4C, 0, 0)
    assert "stays in Configuration" in requester.link.waits_for()
    requester.write(link.PCIE_PORT_POWER, 0)
    requester.write(link.PCIE_TUNNEL_LINK_STATUS, 0x0C)
    requester.write(link.PCIE_PORT_POWER, 0x1C)
    requester.run(TRAINING)
    assert state(requester) == (0x78, 0x02, 0x23)


def test_a_link_that_does_not_hold_its_rate():
    requester = Requester()
    requester.link.best_generation = 2
    requester.power_on()
    assert state(requester) == UP
    for _ in range(2):
        requester.run(timing.PCIE_UNSTABLE.clocks)
        assert state(requester) == TRAINS
        requester.run(TRAINING)
        assert state(requester) == UP
    requester.enumerate()
    requester.config_write(1, 0x58 + 0x30, 0x0002, enables=0b0011)
    requester.config_write(1, 0x58 + 0x10, 0x0020, enables=0b0011)
    requester.run(2 * timing.PCIE_UNSTABLE.clocks)
    assert state(requester) == (0x78, 0x02, 0x42)
