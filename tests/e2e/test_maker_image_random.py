"""A host that does anything to the image in the maker's style; recovery as the class has it must work."""

from __future__ import annotations

import contextlib
import random

import pytest

from emulator.board import Board
from emulator.mcs51.core import GUARDS
from emulator.options import Options
from emulator.usb.wire import Setup, Speed, Stall
from tests.bulk_only import EP_IN, EP_OUT, clear_halt, command, recover, wrapper, xdata

pytestmark = pytest.mark.slow

INQUIRY = bytes((0x12, 0, 0, 0, 36, 0))
ROUNDS, STEPS = 8, 6
LENGTHS = (0, 1, 13, 31, 36, 128, 512, 1024, 1536, 5000)
FREE = range(0x5800, 0x5F00)
"""XRAM that the image does not use."""


class Anything:
    """A host without manners, on a board under strict."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        port = self.random.choice((Speed.HIGH, Speed.SUPER, Speed.SUPER_PLUS))
        guards = frozenset(GUARDS) - {"uninit"}  # E4 reads anything
        self.board = Board.of("maker", Options(port=port, strict=True, guards=guards))
        assert self.board.usb.wait_attached(1.0)
        self.board.usb.enumerate()

    def step(self) -> None:
        action = self.random.choice(
            (
                self.command,
                self.command,
                self.out,
                self.receive,
                self.clear,
                self.halt,
                self.request,
                self.wait,
            )
        )
        with contextlib.suppress(Stall, TimeoutError):
            action()

    def command(self) -> None:
        choose = self.random.choice
        operation = choose((0x00, 0x03, 0x12, 0x25, 0xE0, 0xE1, 0xE2, 0xE3, 0xE4, 0xE5, 0xC7))
        if operation in (0xE4, 0xE5):
            cdb = xdata(operation, self.random.randrange(256), choose(FREE))
        elif operation in (0xE2, 0xE3):
            size = choose((0, 1, 512, 1024, 3000, 70_000))
            cdb = bytes((operation, choose((0x50, 0xD0, 0x11)))) + size.to_bytes(4, "big")
        else:
            cdb = bytes((operation, choose((0, 1, 0x50)), choose((0, 1, 2)), 0, choose((0, 8, 36, 255)), 0))
        block = wrapper(cdb, choose(LENGTHS), to_host=choose((False, True)))
        if not self.random.randrange(8):
            block = choose((b"USBC", b"")) + self.random.randbytes(choose((27, 31, 0, 40)))
        self.transfer(EP_OUT, block)

    def out(self) -> None:
        self.transfer(EP_OUT, bytes(self.random.choice(LENGTHS)))

    def receive(self) -> None:
        self.transfer(EP_IN, self.random.choice(LENGTHS) or 512)

    def transfer(self, endpoint: int, what: bytes | int) -> None:
        """A transfer that may be cancelled under way."""
        usb = self.board.usb
        usb.wait(usb.submit(endpoint, what), timeout=self.random.choice((1e-5, 1e-4, 0.01, 0.2)))

    def clear(self) -> None:
        clear_halt(self.board, self.random.choice((EP_IN, EP_OUT)))

    def halt(self) -> None:
        self.board.usb.control(Setup(0x02, 3, 0, self.random.choice((EP_IN, EP_OUT)), 0))

    def request(self) -> None:
        choose = self.random.choice
        kind = choose((0x00, 0x01, 0x02, 0x80, 0x81, 0x82, 0x21, 0xA1, 0xC0))
        code = choose((0, 1, 3, 6, 8, 9, 10, 11, 48, 49, 0xFE, 0xFF))
        value, index = choose((0, 1, 2, 48, 0x100, 0x200, 0x301)), choose((0, 1, EP_IN, EP_OUT))
        setup = Setup(kind, code, value, index, choose((0, 1, 2, 6, 18, 255)))
        data = b"" if setup.is_in else bytes(setup.length)
        self.board.usb.control(setup, data, timeout=choose((1e-5, 5e-5, 2e-4, 0.1)))

    def wait(self) -> None:
        if self.random.randrange(4):
            self.board.usb.clock.sleep(self.random.choice((1e-6, 1e-5, 1e-4, 1e-3)))
        else:
            self.board.usb.reset()

    def again(self) -> None:
        """What a driver does to a device it has lost: it must answer then."""
        usb = self.board.usb
        if self.random.randrange(2):
            usb.enumerate()
        else:
            usb.control(Setup(0x00, 9, 1, 0, 0), timeout=0.5)
        recover(self.board)
        assert command(self.board, INQUIRY, expect=36, tag=self.random.randrange(1 << 32)).status == 0


@pytest.mark.parametrize("seed", range(40))
def test_the_image_recovers_from_anything(seed: int) -> None:
    host = Anything(seed)
    for _ in range(ROUNDS):
        for _ in range(STEPS):
            host.step()
        host.again()
    host.board.close()
