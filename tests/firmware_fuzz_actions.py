"""The actions on a fuzzed board, as data: the repr of an action is the Python that creates it.

Times are chip clocks. An action waits until its transfers end, at most `patience`; transfers that have not
ended then are cancelled, or (keep) continue during the next actions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from emulator.board import Board
from emulator.core.clock import clocks, seconds
from emulator.usb.wire import Setup, Transfer
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import interrupts, system, usb
from firmware.asm2464pd.registers.memory import XRAM
from firmware.protocol import commands
from firmware.protocol.commands import LIST_BYTES, LIST_HEADER, LIST_TRAILER, PAYLOAD_HEADER
from firmware.protocol.requests import LIST, PCIE_POWER, VENDOR_OUT, XDATA_WRITE

OUT, IN = 0x02, 0x81
RAM, REGISTERS = 0x8_0000_0000, 0x1000_0000
"""Addresses that SetUp gives to the BARs of the endpoint on bus 4."""
PATIENCE = clocks(1.2e-3)
SECTOR = 512
CODES = {opcode.name: opcode.code for opcode in commands.OPCODES}
EXTENDED = {opcode.code for opcode in commands.OPCODES if opcode.extended}

LETHAL: dict[str, tuple[range, ...]] = {
    "the firmware's variables, and the list that runs": (XRAM.addresses,),
    "without these no USB link comes up": (
        range(0xC280, 0xC380),  # both lanes
        usb.USB_POWER_STATUS.addresses,
        usb.USB_MODE.addresses,
        usb.USB_PHY_CONTROL.addresses,
        usb.USB_LINK_SPEED.addresses,
    ),
    "no event reaches the CPU any more": (interrupts.INT_CONTROL.addresses,),
    "an event that the firmware has not seen yet is taken from it": (
        usb.USB_LINK_EVENTS.addresses,
        usb.USB_LINK_STATUS.addresses,
    ),
    "time stands still": (range(system.TIMER0_MODE.address, system.TIMER3_THRESHOLD.address + 2),),
}
"""Writes that the firmware need not survive, with the reason. Everything else in XDATA, and all of the PHY
plane, may be written."""


def is_lethal(address: int, plane: int) -> bool:
    """Whether a write by the host is allowed to stop the firmware."""
    return plane == 0 and any(address in span for spans in LETHAL.values() for span in spans)


def pattern(size: int) -> bytes:
    """Bytes for transfers whose content does not matter."""
    return bytes((7 * place + (place >> 8)) & 0xFF for place in range(size))


class Player:
    """A board and its host, in the middle of a case.

    Attributes:
        board: the board.
        usb: its host port.
        sequence: the sequence number expected of the next list.
        pending: transfers that continue during the actions.
        calm: the clock at which all scheduled events are over.
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self.usb = board.usb
        self.sequence = 0
        self.pending: list[Transfer] = []
        self.calm = 0

    @property
    def packet(self) -> int:
        """Bytes of the largest bulk packet."""
        return commands.PACKETS[self.usb.speed is not None and self.usb.speed.is_super]

    def sleep(self, delay: int) -> None:
        """Let time pass."""
        self.usb.clock.sleep(seconds(delay))

    def finish(self, transfer: Transfer, patience: int, *, keep: bool = False) -> None:
        """Wait for a transfer; if it takes too long, cancel it or (keep) leave it pending."""
        if keep:
            self.sleep(patience)
            self.pending.append(transfer)
        else:
            with suppress(TimeoutError):
                self.usb.wait(transfer, timeout=seconds(patience))

    def later(self, delay: int, action: Callable[[], object], length: int = 0) -> None:
        """Schedule a call on the board during the next actions; its effects last for `length`."""
        clock = self.board.machine.clock
        self.calm = max(self.calm, clock.now + delay + length)
        clock.after(delay, _nothing(action))

    def now(self, action: Callable[[], object]) -> None:
        """Call something on the board at this clock."""
        self.usb.pump.post(_nothing(action))

    def calm_down(self) -> None:
        """Wait until all scheduled events are over."""
        if self.calm > self.board.machine.clock.now:
            self.sleep(self.calm - self.board.machine.clock.now + 1)

    def give_up(self) -> None:
        """Cancel all pending transfers."""
        for transfer in self.pending:
            self.usb.cancel(transfer)
        self.pending.clear()


def _nothing(action: Callable[[], object]) -> Callable[[], None]:
    """An action whose result is ignored."""

    def run() -> None:
        action()

    return run


class Action(Protocol):
    """One action of a case."""

    def run(self, player: Player) -> None:
        """Do it."""


@dataclass(frozen=True)
class Control:
    """A control transfer."""

    setup: Setup
    data: bytes = b""
    patience: int = PATIENCE

    def run(self, player: Player) -> None:
        setup = self.setup
        writes = (setup.request_type, setup.request) == (VENDOR_OUT, XDATA_WRITE.code)
        if writes and is_lethal(setup.value, setup.index >> 8):
            return
        if (setup.request_type, setup.request) == (VENDOR_OUT, LIST.code):
            player.sequence = setup.index
        data = b"" if setup.is_in else self.data.ljust(setup.length, b"\xa5")[: setup.length]
        player.finish(player.usb.submit_control(setup, data), self.patience)


@dataclass(frozen=True)
class Wire:
    """Packets of EP0 that no host controller sends: a missing or extra stage, or one in the wrong direction.

    Attributes:
        setup: the SETUP packet.
        stages: what follows: `o` and `O` a short and a full OUT packet, `i` an IN packet, `s` the status.
        gap: clocks between packets.
    """

    setup: Setup
    stages: str
    gap: int

    def run(self, player: Player) -> None:
        setup = self.setup
        if (setup.request_type, setup.request) == (VENDOR_OUT, XDATA_WRITE.code):
            return
        function = player.board.chip.usb
        full = 512 if player.packet == 1024 else 64
        player.now(lambda: function.setup(setup.pack()))
        stages: dict[str, Callable[[], object]] = {
            "o": lambda: function.control_out(pattern(12)),
            "O": lambda: function.control_out(pattern(full)),
            "i": function.control_in,
            "s": function.status,
        }
        for stage in self.stages:
            player.sleep(self.gap)
            player.now(stages[stage])


@dataclass(frozen=True)
class Bulk:
    """A bulk transfer: that many bytes, or these."""

    endpoint: int
    what: int | bytes
    patience: int = PATIENCE
    keep: bool = False

    def run(self, player: Player) -> None:
        what = self.what
        if self.endpoint == OUT and isinstance(what, int):
            what = pattern(what)
        player.finish(player.usb.submit(self.endpoint, what), self.patience, keep=self.keep)


class Operation(NamedTuple):
    """An operation of a command list; mask and time-out go with opcodes that have them."""

    opcode: int
    address: int = 0
    value: int = 0
    amount: int = 0
    enables: int = 15
    mask: int = 0
    timeout: int = 0

    def pack(self) -> bytes:
        """Its bytes."""
        if self.opcode == CODES["XDATA_WRITE"] and is_lethal(self.address & 0xFFFF, self.address >> 16 & 1):
            return Operation(CODES["DELAY"]).pack()
        head = (self.opcode, self.enables, self.amount, self.address, self.value)
        tail = (self.mask, self.timeout) if self.opcode in EXTENDED else ()
        return struct.pack("<BBHQI" + "I" * len(tail), *head, *tail)


@dataclass(frozen=True)
class Commands:
    """A command list with its payload in one bulk transfer, and a transfer for its result.

    Attributes:
        operations: of the list.
        payload: for each operation that takes some: dwords in numbered packets if positive, sectors of bare
            bytes if negative, an empty packet if 0.
        ahead: added to the expected sequence number.
        damage: bytes of the transfer that are changed: (place, modulo its length; exclusive-or).
        cut: bytes that are missing at the transfer's end.
        answer: bytes to read.
        keep: the transfers continue during the next actions.
    """

    operations: tuple[Operation, ...]
    payload: tuple[int, ...] = ()
    ahead: int = 0
    damage: tuple[tuple[int, int], ...] = ()
    cut: int = 0
    answer: int = 0x4000
    patience: int = PATIENCE
    keep: bool = False

    def run(self, player: Player) -> None:
        data = bytearray(self.pack(player))
        for place, change in self.damage:
            data[place % len(data)] ^= change
        if not self.damage:
            player.sequence = player.sequence + 1 & 0xFFFF
        out = player.usb.submit(OUT, bytes(data[: max(len(data) - self.cut, 0)]))
        player.finish(player.usb.submit(IN, self.answer), self.patience, keep=self.keep)
        player.pending.append(out)
        if not self.keep:
            player.give_up()

    def pack(self, player: Player) -> bytes:
        """The bytes of the transfer, without damage."""
        packed = b"".join(operation.pack() for operation in self.operations)
        packed = packed[: LIST_BYTES - LIST_HEADER.size - LIST_TRAILER.size]
        sequence = player.sequence + self.ahead & 0xFFFF
        length = LIST_HEADER.size + len(packed) + LIST_TRAILER.size
        body = LIST_HEADER.pack(sequence=sequence, length=length) + packed + bytes(LIST_TRAILER.size)
        check = commands.check_bytes(body, len(body) - 2)
        parts = [body[:-2] + check]
        for amount in self.payload:
            parts[-1] += bytes(-len(parts[-1]) % player.packet)
            parts.append(pattern(-amount * SECTOR) if amount < 0 else _packets(amount, player.packet))
        return b"".join(parts)


def _packets(dwords: int, size: int) -> bytes:
    """Payload in packets of that size."""
    data, room = pattern(4 * dwords), size - PAYLOAD_HEADER.size
    packets = []
    for number, start in enumerate(range(0, max(len(data), 1), room)):
        packet = PAYLOAD_HEADER.pack(number=number) + data[start : start + room]
        place = PAYLOAD_HEADER.offset("check")
        check = commands.check_bytes(packet, place)
        packets.append(packet[:place] + check + packet[place + 2 :])
    return b"".join(packets)


@dataclass(frozen=True)
class Wait:
    """Nothing happens."""

    delay: int

    def run(self, player: Player) -> None:
        player.sleep(self.delay)


@dataclass(frozen=True)
class GiveUp:
    """The host cancels all pending transfers."""

    def run(self, player: Player) -> None:
        player.give_up()


@dataclass(frozen=True)
class Reset:
    """A bus reset; the device stays unconfigured."""

    def run(self, player: Player) -> None:
        with suppress(ConnectionError):
            player.usb.reset()


@dataclass(frozen=True)
class Drop:
    """The USB link goes down in `delay`, and trains again `length` later."""

    delay: int
    length: int

    def run(self, player: Player) -> None:
        player.later(self.delay, lambda: player.board.chip.usb.drop_link(self.length), self.length)


@dataclass(frozen=True)
class Storm:
    """From `delay` on every endpoint answers NAK for `length`."""

    delay: int
    length: int

    def run(self, player: Player) -> None:
        clock = player.board.machine.clock
        chip = player.board.chip
        player.later(self.delay, lambda: chip.usb.nak_until(clock.now + self.length), self.length)


@dataclass(frozen=True)
class LinkDown:
    """The PCIe link goes down in `delay`."""

    delay: int

    def run(self, player: Player) -> None:
        chip = player.board.chip
        player.later(self.delay, lambda: chip.link.drop(None))


@dataclass(frozen=True)
class Perst:
    """PERST# gets stuck asserted, or works again."""

    stuck: bool

    def run(self, player: Player) -> None:
        player.now(lambda: setattr(player.board.chip.link, "perst_stuck", self.stuck))


@dataclass(frozen=True)
class Device:
    """The device behind PCIe writes a dword to the bridge, in `delay`."""

    delay: int
    address: int
    value: int

    def run(self, player: Player) -> None:
        data = self.value.to_bytes(4, "little")
        player.later(self.delay, lambda: player.board.chip.upstream.write(self.address, data))


@dataclass(frozen=True)
class SetUp:
    """Power and PCIe link on, bridges and BARs set up, by one list."""

    def run(self, player: Player) -> None:
        if not player.board.chip.link.up:
            Control(Setup(VENDOR_OUT, PCIE_POWER.code, 1, 0, 0), patience=clocks(0.4)).run(player)
        Control(Setup(VENDOR_OUT, LIST.code, 1, 1, 0)).run(player)
        write = CODES["CONFIG_WRITE"]
        ports = (
            Operation(write, bus << 24 | register, value)
            for bus in range(4)
            for register, value in (
                (0x18, bus | bus + 1 << 8 | 4 << 16),
                (0x20, 0x1000_1000),
                (0x24, 0xFFF1_0001),
                (0x28, 8),
                (0x2C, 8),
                (0x04, 6),
            )
        )
        bars = ((0x10, RAM & 0xFFFF_FFFF), (0x14, RAM >> 32), (0x18, REGISTERS), (0x04, 6))
        endpoint = (Operation(write, 4 << 24 | register, value) for register, value in bars)
        Commands((*ports, *endpoint)).run(player)


assert commands.OPERATION.size == len(Operation(CODES["READ"]).pack())
assert commands.OPERATION.size + commands.EXTENSION.size == len(Operation(CODES["POLL"]).pack())
assert XRAM.space is Space.XDATA
