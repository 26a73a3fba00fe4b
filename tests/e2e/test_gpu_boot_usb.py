"""The emulated card behind the emulated bridge with our firmware: what opening costs and survives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from emulator.amdgpu.card import AmdCard
from emulator.board import Board
from emulator.options import Options
from emulator.pcie.function import Reset
from tests.amount import amount
from tests.chips import ANY, SAMPLE
from usbgpu import bridge as bridges
from usbgpu import pcie, transport
from usbgpu.amd.batch import Batch
from usbgpu.amd.card import Card
from usbgpu.amd.facts import psp as psp_facts
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.amd.facts.psp import BOOTLOADER
from usbgpu.amd.queues import ComputeQueue, SdmaQueue
from usbgpu.amd.start import Started, close, start
from usbgpu.bridge.seam import SRAM_SIZE
from usbgpu.transport import Call, Disconnected, Outcome, Transport

BOTH = pytest.mark.parametrize("chip", SAMPLE)
EITHER = pytest.mark.parametrize("chip", ["gfx1100", pytest.param("gfx1201", marks=pytest.mark.slow)])
VRAM = 512 << 20
STRIDE = amount(10, 3)
"""Transfers between two moments at which something happens to a boot."""
COLD = {11: 18, 12: 20}
"""Transfers of a cold start that carry no firmware, after PCIe's enumeration."""
BLOB = 16 << 10
"""Bytes of a transfer from which on its payload is firmware: command lists are shorter."""


pytestmark = pytest.mark.usefixtures("quiet_card")


class Killed(Exception):
    """The program has been killed."""


class Desk:
    """A bridge with a card, which outlives the programs that use it.

    Attributes:
        calls: of the last program.
        lives: transfers that the next program survives; None for all.
        pulled: transfers after which the cable is pulled.
    """

    def __init__(self, chip: str) -> None:
        self.chip = chip
        self.board = Board.of("firmware", Options(gpu=chip, vram=VRAM))
        self.backend = self.board.backend()
        self.calls: list[Call] = []
        self.lives: int | None = None
        self.pulled: int | None = None

    @property
    def card(self) -> AmdCard:
        return self.board.endpoint  # type: ignore[return-value]

    @contextmanager
    def program(self) -> Iterator[Transport]:
        """A program that opens the device and may be killed, so that nothing is closed."""
        self.calls = []
        opened = transport.attach(self.backend)
        opened.observers.append(self._seen)
        try:
            yield opened
        finally:
            opened.close()  # as the system does when a process ends

    def _seen(self, call: Call, outcome: Outcome) -> None:
        self.calls.append(call)
        if self.lives is not None and len(self.calls) > self.lives:
            raise Killed
        if len(self.calls) == self.pulled:
            self.board.usb.unplug()

    def use(self, *, shut: bool = True) -> Started:
        """Open the card, and close it."""
        with self.program() as opened:
            bridge = bridges.attach(opened)
            function = pcie.find(bridge)
            started = start(bridge, function, directory=self.board.firmware_directory, finish=queues)
            if shut:
                assert close(started.card, started.record)
            return started

    @property
    def blobs(self) -> int:
        return sum(len(call.data) > BLOB and call.kind.name == "BULK_OUT" for call in self.calls)


def queues(card: Card, batch: Batch) -> None:
    ComputeQueue(card).init(batch)
    SdmaQueue(card).init(batch)


@EITHER
def test_what_it_costs(chip):
    desk = Desk(chip)
    with desk.program() as opened:
        bridge = bridges.attach(opened)
        assert len(desk.calls) <= 6
        function = pcie.enumerate(bridge)
        before = len(desk.calls)
        started = start(bridge, function, directory=desk.board.firmware_directory, finish=queues)
        assert started.cold
        blobs = desk.blobs
        assert len(desk.calls) - before - blobs == COLD[CHIPS[chip].generation]
        cold = len(desk.calls) - blobs
        assert cold <= 30
        desk.calls.clear()
        assert close(started.card, started.record)
        assert len(desk.calls) == 2
    assert not desk.use(shut=False).cold
    assert len(desk.calls) <= 12
    took = sum(step.seconds for step in started.steps)
    assert took < 0.08
    print(f"{chip}: cold {cold} transfers and {blobs} blobs, {1e3 * took:.0f} ms; warm {len(desk.calls)}")
    assert desk.card.diagnosis.findings == []


def killed(desk: Desk, lives: int) -> bool:
    """Kill a program after `lives` transfers; False if it ended before."""
    desk.lives = lives
    try:
        desk.use()
    except Killed:
        return True
    finally:
        desk.lives = None
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("chip", "moments"), [("gfx1100", 1), ("gfx1201", amount(1, 9))])
def test_sigkill_and_open_again(chip, moments):
    for lives in random.Random(chip).sample(range(8, 30), moments):
        desk = Desk(chip)
        assert killed(desk, lives)
        desk.use()
        assert not desk.use().cold


@pytest.mark.slow
@BOTH
def test_sigkill_after_every_transfer(chip):
    desk = Desk(chip)
    desk.use()
    for lives in range(0, len(desk.calls), STRIDE):
        desk = Desk(chip)
        assert killed(desk, lives)
        desk.use()
        assert not desk.use().cold
    desk.use(shut=False)
    lives = 0
    while killed(desk, lives):  # during a reset and a boot, repeatedly
        lives += amount(5, 1)
    assert lives > 25
    assert not desk.use().cold


@pytest.mark.slow
@BOTH
def test_cable_pulled_during_a_boot(chip):
    desk = Desk(chip)
    desk.use()
    whole = len(desk.calls)
    for pulled in range(5, whole, STRIDE):  # the bridge is open
        desk = Desk(chip)
        desk.pulled = pulled
        with pytest.raises(Disconnected) as caught:
            desk.use()
        assert caught.value.hint
        desk.pulled = None
        desk.board.usb.plug()
        desk.use()
        assert not desk.use().cold


@pytest.mark.slow
@pytest.mark.parametrize("chip", ANY)
def test_power_is_switched_off_as_the_last_resort(chip):
    """An earlier program left the boot loader of the security processor with an error."""
    desk = Desk(chip)
    prefix = psp_facts.PREFIXES[CHIPS[chip].versions["MP"][0]]
    mailbox = CHIPS[chip].address("MP", f"{prefix}_SMN_C2PMSG_35")
    desk.card.registers.write(mailbox, BOOTLOADER["SOS"])
    started = desk.use()
    assert started.cold
    assert any("switching its power" in step.what for step in started.steps)
    assert not desk.use().cold


@pytest.mark.slow
def test_a_card_that_lost_its_power_is_booted():
    desk = Desk("gfx1100")
    desk.use(shut=False)
    desk.card.reset(Reset.PERST)
    assert desk.use().cold
    assert not desk.use().cold


@pytest.mark.slow
@BOTH
def test_boot_by_compatible_requests(chip):
    desk = Desk(chip)
    for cold in (True, False):
        with desk.program() as opened:
            bridge = bridges.attach(opened, lists=False)
            function = pcie.find(bridge)
            started = start(bridge, function, directory=desk.board.firmware_directory, finish=queues)
            assert started.cold == cold
            assert close(started.card, started.record)
            print(f"{chip}, compatible: {len(desk.calls)} transfers, cold {cold}")
    assert desk.card.diagnosis.findings == []
    assert SRAM_SIZE == 512 << 10
