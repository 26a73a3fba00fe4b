"""Power, PERST# and the link: what brings it up and down."""

from __future__ import annotations

import itertools

import pytest

from emulator.asm2464pd import timing
from emulator.asm2464pd.phy import Phy
from emulator.model import Model
from emulator.pcie.function import UnsupportedRequest
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import link, phy, tlp
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


UP, TRAINS, DOWN = (0x78, 0x02, 0x44), (0x10, 0, 0), (0, 0, 0)


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
