"""An emulated board with a test endpoint, as a bridge that a program has opened."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from mmap import mmap

from emulator.board import Board
from emulator.core.clock import clocks
from emulator.mcs51.core import GUARDS
from emulator.options import Options
from emulator.pcie.endpoint import OFFSETS, Control, TestEndpoint
from emulator.pcie.function import PcieFunction
from emulator.usb.wire import Speed
from firmware.asm2464pd.registers.memory import NVME_CQ
from firmware.asm2464pd.wire import COMPLETION_TRIGGER
from firmware.protocol.command_list import CommandList
from usbgpu import bridge, pcie, transport
from usbgpu.transport import Call, Transport

TRIGGER = (NVME_CQ.pcie or 0) + COMPLETION_TRIGGER.start
"""PCIe address that a device writes to start an armed slot transfer towards the host."""


@dataclass
class Rig:
    """A bridge, and what is known of it.

    Attributes:
        calls: transfers since they were last cleared.
    """

    board: Board
    transport: Transport
    bridge: bridge.Bridge
    calls: list[Call] = field(default_factory=list)
    ram: int = 0
    registers: int = 0

    @property
    def memory(self) -> mmap:
        """Behind `ram`."""
        endpoint = self.board.endpoint
        assert isinstance(endpoint, TestEndpoint)
        return endpoint.memory

    def register(self, name: str) -> int:
        """The PCIe address of a register of the endpoint."""
        return self.registers + OFFSETS[name]

    def kinds(self) -> dict[str, int]:
        """The transfers since the last time, by kind."""
        found = dict(Counter(call.kind.value for call in self.calls))
        self.calls.clear()
        return found

    def works(self) -> None:
        """A list writes and reads correctly, by single requests and by streams."""
        data = bytes.fromhex("0d600d60") * 4
        commands = CommandList()
        commands.block_write(self.ram + 0xFF00, data)
        commands.read(self.ram + 0xFF00)
        commands.block_read(self.ram + 0xFF00, 4)
        assert self.bridge.run(commands).values == (0x600D_600D, data)

    def dma(self, commands: CommandList, local: int, upstream: int, size: int, control: int) -> None:
        """Make the endpoint copy, and wait for it."""
        for name, value in (("LOCAL", local), ("UPSTREAM", upstream), ("LENGTH", size), ("STATUS", 6)):
            commands.write(self.register(name), value)
        commands.write(self.register("CONTROL"), control)
        commands.poll(self.register("STATUS"), 2, 7, microseconds=100_000)

    def copy_in(self, commands: CommandList, local: int, upstream: int, size: int) -> None:
        """Make the endpoint copy to its memory, once the last dword is there."""
        self.dma(commands, local, upstream, size, Control.COPY_IN)

    def copy_out(self, commands: CommandList, local: int, upstream: int, size: int) -> None:
        """Make the endpoint copy from its memory."""
        self.dma(commands, local, upstream, size, Control.COPY_OUT)

    def storm(self, seconds: float) -> None:
        """The device does not answer for that long."""
        board = self.board
        board.usb.pump.post(lambda: board.chip.usb.nak_until(board.machine.clock.now + clocks(seconds)))


def powered(
    speed: Speed = Speed.SUPER_PLUS, function: PcieFunction | None = None, **options: object
) -> Board:
    """A board with --strict and all guards."""
    return Board.of(
        "firmware",
        Options(port=speed, strict=True, guards=frozenset(GUARDS), function=function, **options),  # type: ignore[arg-type]
    )


def rig_of(board: Board, *, lists: bool = True, enumerated: bool = True) -> Rig:
    """Open a board's bridge, and enumerate what is behind it."""
    opened = transport.attach(board.backend())
    calls: list[Call] = []
    opened.observers.append(lambda call, _: calls.append(call))
    rig = Rig(board, opened, bridge.attach(opened, lists=lists), calls)
    if enumerated:
        function = pcie.enumerate(rig.bridge)
        rig.ram = function.bars[0].address
        rig.registers = function.bars[2].address
    return rig
