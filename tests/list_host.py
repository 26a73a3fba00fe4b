"""A host that sends command lists to an emulated board."""

from __future__ import annotations

import random
from dataclasses import dataclass
from mmap import mmap

from emulator.board import Board
from emulator.pcie.endpoint import TestEndpoint
from emulator.usb.wire import Setup, Speed, Transfer
from firmware.asm2464pd.registers.memory import SRAM
from firmware.protocol import commands, requests
from firmware.protocol.command_list import CommandList
from firmware.protocol.operations import Result
from tests.reference_host import IN, OUT, RAM, Host, power_up

SECONDS = 5.0
SRAM_PCIE = SRAM.pcie or 0
CAUSE = {text: code for code, text in commands.RESULT_TRAILER.member("cause").values.items()}
"""Codes of causes, by their text."""


@dataclass
class ListHost(Host):
    """The host of a board in list mode."""

    board: Board
    _sequence: int = 0

    @property
    def sequence(self) -> int:
        """Of the next list; it has 16 bits, and wraps."""
        return self._sequence

    @sequence.setter
    def sequence(self, value: int) -> None:
        self._sequence = value & 0xFFFF

    @property
    def packet(self) -> int:
        speed = self.board.usb.speed
        assert speed is not None
        return 1024 if speed.is_super else 512

    @property
    def ram(self) -> mmap:
        """The memory behind RAM."""
        endpoint = self.board.endpoint
        assert isinstance(endpoint, TestEndpoint)
        return endpoint.memory

    def open(self, sequence: int = 0) -> None:
        self.sequence = sequence
        self.board.usb.control(
            Setup(requests.VENDOR_OUT, requests.LIST.code, 1, sequence, 0), timeout=SECONDS
        )

    def close(self) -> None:
        self.board.usb.control(Setup(requests.VENDOR_OUT, requests.LIST.code, 0, 0, 0), timeout=SECONDS)

    def info(self) -> dict[str, int]:
        request = Setup(requests.VENDOR_IN, requests.INFO.code, 0, 0, commands.INFO.size)
        return commands.INFO.unpack(self.board.usb.control(request, timeout=SECONDS))

    def send(self, built: CommandList) -> Transfer:
        """A list with its payload, in one transfer."""
        out, payload = built.pack(self.sequence, self.packet)
        return self.board.usb.submit(OUT, out + payload)

    def receive(self, limit: int = 1 << 20) -> Transfer:
        return self.board.usb.submit(IN, limit)

    def wait(self, transfer: Transfer, timeout: float = SECONDS) -> bytes:
        self.board.usb.wait(transfer, timeout=timeout)
        return bytes(transfer.data)

    def run(self, built: CommandList, *, reads_late: bool = False, timeout: float = SECONDS) -> Result:
        """A list and its result; the read begins with it, or only when all is sent."""
        answer = None if reads_late else self.receive()
        self.wait(self.send(built), timeout)
        answer = answer or self.receive()
        result = built.parse(self.wait(answer, timeout), self.sequence)
        self.sequence += 1
        return result

    def check(self, built: CommandList) -> tuple[int | bytes, ...]:
        """A list that succeeds; its values."""
        result = self.run(built)
        assert result.failure is None, str(result.failure)
        return result.values

    def raw(self, data: bytes) -> bytes:
        """Send bytes unchanged, and return the answer."""
        answer = self.receive()
        self.wait(self.board.usb.submit(OUT, data))
        return self.wait(answer)

    def works(self) -> None:
        """A list writes and reads correctly."""
        value = self.sequence
        built = CommandList()
        built.write(RAM + 0xFF00, value)
        built.read(RAM + 0xFF00)
        assert self.check(built) == (value,)


def host_of(speed: Speed = Speed.SUPER_PLUS, **options: object) -> ListHost:
    """A configured board in list mode."""
    host = ListHost(power_up(speed, **options).board)
    host.set_up_pcie()
    host.open(0xFFFE)
    return host


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def packed(host: ListHost, built: CommandList) -> bytearray:
    """A list with its payload, to be damaged."""
    return bytearray(b"".join(built.pack(host.sequence, host.packet)))


def one_write() -> CommandList:
    built = CommandList()
    built.write(RAM, 1)
    return built
