"""Any writes of a driver, in any order: the card answers, and never fails itself."""

from __future__ import annotations

import logging
import random

import pytest

from emulator.amdgpu.card import AmdCard
from tests import amdgpu_queues as queues
from tests.amdgpu_driver import QUEUES, VA, Driver
from tests.amdgpu_host import Host as DriverHost
from tests.amount import amount
from tests.chips import GENERATIONS
from tests.unit.test_amdgpu_card import SRAM, Host
from usbgpu.amd.facts.chips import CHIPS

VALUES = (0, 1, 2, 3, 0xFF, 0x101, 0x1000, 0x8000_0000, 0xFFFF_FFFF, SRAM, 0x80, 0x8000, 0x10000, 0x20000)
"""Register values of a real driver are drawn from these often enough to get somewhere."""


PM4 = (0x10, 0x15, 0x16, 0x37, 0x3C, 0x3F, 0x40, 0x46, 0x49, 0x50, 0x58, 0x76, 0x79)
SDMA = (0, 1, 2, 4, 5, 6, 8, 11, 13)
"""Operations that exist."""


def abuse(chip: str, seed: int, steps: int) -> None:
    """Random accesses of all kinds; none of them is refused."""
    random_ = random.Random(seed)
    host = Host(chip, 256 << 20)
    known = sorted(host.card.chip.by_address)
    for _ in range(steps):
        match random_.choices(("write", "read", "vram", "doorbell", "far", "time"), (50, 8, 10, 8, 10, 14))[
            0
        ]:
            case "write":
                value = random_.choice(VALUES) if random_.random() < 0.7 else random_.getrandbits(32)
                host.card.registers.write(random_.choice(known), value)
            case "read":
                host.card.registers.read(random_.choice(known))
            case "vram":
                place = random_.choice((0, 0x1000, 0x10000, SRAM)) + random_.randrange(0, 256, 4)
                host.card.write(0, place, random_.randbytes(random_.choice((4, 8, 64))))
            case "doorbell":
                host.card.write(2, random_.choice((0, 0x18, 0x1C, 0x800, 0x804)), random_.randbytes(4))
            case "far":
                host.card.write(5, 4 * host.at("NBIO", "BIF_BX_PF0_RSMU_INDEX"), random_.randbytes(4))
                host.card.read(5, 4 * host.at("NBIO", "BIF_BX_PF0_RSMU_DATA"), 4)
            case "time":
                host.run(random_.choice((10, 1_000, 100_000)))
    host.run(100_000)


def submit(chip: str, seed: int) -> None:
    """A booted card with packets that are nearly right; registers and rings are overwritten meanwhile."""
    random_ = random.Random(seed)
    card = AmdCard(chip, 256 << 20)
    host = DriverHost(card)
    driver = Driver(host, CHIPS[chip])
    driver.boot()
    copies, compute = queues.Sdma(driver), queues.Compute(driver)
    known = sorted(card.chip.by_address)

    def operand() -> int:
        address = VA & 0xFFFF_FFFF | random_.randrange(0, 1 << 24, 4)
        return random_.choice((0, 1, 0x15, address, VA >> 32, random_.getrandbits(32)))

    for _ in range(40):
        match random_.choices(("pm4", "sdma", "register", "ring"), (35, 35, 20, 10))[0]:
            case "pm4":
                operation = random_.choice((*PM4, random_.randrange(256)))
                body = [operand() for _ in range(random_.randrange(1, 9))]
                compute.submit(queues.pm4(operation, *body), 4)
            case "sdma":
                header = random_.choice((*SDMA, random_.getrandbits(32))) | random_.choice(
                    (0, 0x100, 1 << 31)
                )
                copies.submit([header, *(operand() for _ in range(random_.randrange(1, 8)))], 1)
            case "register":
                value = random_.choice((0, 1, 2, 0xFFFF_FFFF, random_.getrandbits(32)))
                card.registers.write(random_.choice(known), value)
            case "ring":
                driver.vram(QUEUES + random_.randrange(0, 0x5_0000, 4), random_.randbytes(64))
        host.sleep(random_.choice((10, 1_000, 20_000)))
    host.sleep(1_000_000)


@pytest.mark.parametrize("chip", GENERATIONS)
@pytest.mark.parametrize("seed", range(2))
def test_bad_packets_never_fail_the_card(chip, seed, caplog):
    caplog.set_level(logging.CRITICAL, logger="emulator.amdgpu")
    submit(chip, seed)


@pytest.mark.slow
@pytest.mark.parametrize("chip", GENERATIONS)
def test_bad_packets_never_fail_the_card_for_long(chip, caplog):
    caplog.set_level(logging.CRITICAL, logger="emulator.amdgpu")
    for seed in range(100, amount(125, 200)):
        submit(chip, seed)


@pytest.mark.parametrize("chip", GENERATIONS)
@pytest.mark.parametrize("seed", range(2))
def test_the_card_never_fails(chip, seed, caplog):
    caplog.set_level(logging.CRITICAL, logger="emulator.amdgpu")
    abuse(chip, seed, 800)


@pytest.mark.slow
@pytest.mark.parametrize("chip", GENERATIONS)
def test_the_card_never_fails_for_long(chip, caplog):
    caplog.set_level(logging.CRITICAL, logger="emulator.amdgpu")
    for seed in range(100, amount(120, 150)):
        abuse(chip, seed, 4_000)
