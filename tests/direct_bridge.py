"""A `Bridge` with the emulated card on the other side, without a bridge chip: for tests of the card's driver.

It runs command lists operation by operation on the card's PCIe function. Time passes as little as it can.
"""

from __future__ import annotations

from collections.abc import Iterator

from emulator.amdgpu.card import AmdCard
from emulator.core.clock import clocks, seconds
from emulator.pcie.function import UnsupportedRequest
from firmware.asm2464pd.registers.memory import SLOT_SIZE
from firmware.protocol.command_list import CommandList
from firmware.protocol.operations import CAUSES, SECTOR, Failure, Operation
from sdk.telemetry.metrics import Supply, Traffic
from tests.amdgpu_host import ACCESS, Host
from usbgpu.bridge.seam import ListFailed, Reply

BARS = {0: 0x8_0000_0000, 2: 0x18_0000_0000, 5: 0x1000_0000}
"""Where a card's BARs are placed."""
_DOWN = sorted(BARS.items(), key=lambda bar: -bar[1])
PACKET = 256
"""Largest write in bytes."""
_CODES = {text: code for code, text in CAUSES.items()}
SLOT_PATIENCE = 1_000_000
"""Microseconds until slots are released."""
_QUEUE = 0x82_2000
"""PCIe address of the completion queue that an armed SLOT_IN waits for."""


class _Time:
    """A host's time, in seconds."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def now(self) -> float:
        return seconds(self._host.clock.now)

    def sleep(self, duration: float) -> None:
        self._host.sleep(clocks(duration))


class _Direct(Host):
    """A host that also takes what a card writes to the bridge's completion queue.

    Attributes:
        armed: slots that the next such write releases: first byte in the SRAM, and bytes.
        gone: what has been released since the list began.
    """

    def __init__(self, card: AmdCard) -> None:
        super().__init__(card)
        self.armed: tuple[int, int] | None = None
        self.gone = b""

    def dma_write(self, address: int, data: bytes) -> None:
        if not _QUEUE <= address < _QUEUE + 4096:
            super().dma_write(address, data)
        elif self.armed is not None:
            start, size = self.armed
            self.armed = None
            self.gone += bytes(self.sram[start : start + size])


class DirectBridge:
    """See `usbgpu.bridge.seam.Bridge`.

    Attributes:
        host: the host of the card.
        runs: lists that have been run.
    """

    name = "direct"
    has_lists = True
    traffic = Traffic()
    supplied: Supply | None = None

    def supply(self) -> Supply | None:
        return self.supplied

    def plugged(self) -> tuple[str, str]:
        return "usb-1-1", ""

    emulation = None

    def __init__(self, card: AmdCard) -> None:
        self.host = _Direct(card)
        self.clock = _Time(self.host)
        self.runs = 0

    def power(self, on: bool) -> None:
        self.host.sleep(clocks(0.1))

    def close(self) -> None:
        pass

    def run(self, commands: CommandList) -> Reply:
        self.runs += 1
        values: list[int | bytes] = []
        self.host.armed, self.host.gone = None, b""
        for index, operation, part in _flat(commands):
            cause = "done"
            try:
                result = self._do(operation, part)
            except UnsupportedRequest:
                result, cause = None, "unsupported request"
            except TimeoutError as late:
                result, cause = late.args[0], "condition timeout"
            if cause != "done":
                if operation.opcode.name == "POLL" and result is not None:
                    values.append(result)
                failure = Failure(_CODES[cause], index, operation.opcode.code, operation.address)
                raise ListFailed(failure, tuple(values), where=self.name)
            if result is not None:
                values.append(result)
        return Reply(tuple(values), self.host.gone)

    def _do(self, operation: Operation, part: bytes) -> int | bytes | None:
        host, address, count = self.host, operation.address, operation.count
        match operation.opcode.name:
            case "WRITE":
                self._write(address, operation.value.to_bytes(4, "little"))
            case "READ":
                return int.from_bytes(self._read(address, 4), "little")
            case "MODIFY":
                old = int.from_bytes(self._read(address, 4), "little")
                new = old & ~operation.mask | operation.value & operation.mask
                self._write(address, new.to_bytes(4, "little"))
            case "POLL":
                return self._poll(
                    lambda: int.from_bytes(self._read(address, 4), "little"),
                    lambda value: not (value ^ operation.value) & operation.mask,
                    operation.timeout,
                )
            case "CONFIG_READ":
                return host.config_read(address & 0xFFF)
            case "CONFIG_WRITE":
                host.config_write(address & 0xFFF, operation.value)
            case "BLOCK_WRITE":
                self._stream(address, part)
            case "BLOCK_READ":
                return b"".join(self._read(address + at, 4) for at in range(0, count * 4, 4))
            case "FILL":
                self._stream(address, operation.value.to_bytes(4, "little") * count)
            case "DELAY":
                host.sleep(clocks(operation.value / 1e6))
            case "SLOT_OUT":
                start = address * SLOT_SIZE
                host.sram[start : start + len(part)] = part
            case "SLOT_IN":
                self._let_go()
                host.armed = address * SLOT_SIZE, operation.value * SECTOR
            case "FENCE":
                self._poll(
                    lambda: int.from_bytes(host.sram[address : address + 4], "little"),
                    lambda value: not (value - operation.value) & 1 << 31,
                    operation.timeout,
                )
            case "XDATA_WRITE":
                if 0xF000 <= address < 0x1_0000:
                    host.sram[address - 0xF000] = operation.value
            case "SYNC":
                self._let_go()
            case name:
                raise NotImplementedError(name)
        return None

    def _let_go(self) -> None:
        """Wait for the completion entry of what is armed."""
        self._poll(lambda: self.host.armed, lambda armed: armed is None, SLOT_PATIENCE)

    def _poll(self, read, done, microseconds):
        end = self.host.clock.now + clocks(microseconds / 1e6)
        while not done(value := read()):
            if self.host.clock.now >= end:
                raise TimeoutError(value)
            due = self.host.clock.next
            self.host.sleep(max(ACCESS, min(end, due or end) - self.host.clock.now))
        return value

    def _read(self, address: int, size: int) -> bytes:
        self.host.sleep(ACCESS)
        bar, offset = self._place(address)
        return self.host.card.read(bar, offset, size)

    def _write(self, address: int, data: bytes) -> None:
        self.host.sleep(ACCESS)
        bar, offset = self._place(address)
        self.host.card.write(bar, offset, data)

    def _stream(self, address: int, data: bytes) -> None:
        """Write what is more than a dword, in packets."""
        for at in range(0, len(data), PACKET):
            part = data[at : at + PACKET]
            self.host.sleep(ACCESS * len(part) // 4)
            bar, offset = self._place(address + at)
            for place in range(0, len(part), PACKET if bar == 0 else 4):
                self.host.card.write(bar, offset + place, part[place : place + (PACKET if bar == 0 else 4)])

    def _place(self, address: int) -> tuple[int, int]:
        if not self.host.card.config_read(4, 0xF) & 2:
            raise UnsupportedRequest
        for bar, start in _DOWN:
            if address >= start:
                return bar, address - start
        raise UnsupportedRequest


def _flat(commands: CommandList) -> Iterator[tuple[int, Operation, bytes]]:
    """Operations as they run, with their index and what each has of its payload."""
    body: list[tuple[int, Operation]] | None = None
    rounds = 1
    for index, operation in enumerate(commands.operations):
        if operation.opcode.name == "LOOP":
            body, rounds = [], operation.count
        elif operation.opcode.name == "END":
            assert body is not None
            for number in range(rounds):
                for place, inner in body:
                    yield place, _round(inner, number), b"".join(inner.round(number, rounds))
            body = None
        elif body is not None:
            body.append((index, operation))
        else:
            yield index, operation, b"".join(operation.round(0, 1))


def _round(operation: Operation, number: int) -> Operation:
    """An operation in a round of a loop: the value of a fence grows."""
    if operation.opcode.name != "FENCE":
        return operation
    value = operation.value + number * operation.mask & 0xFFFF_FFFF
    return Operation(operation.opcode, address=operation.address, value=value, timeout=operation.timeout)


def direct(chip: str, vram: int = 256 << 20, **model: bool) -> DirectBridge:
    """A card just powered on: its BARs are assigned, bus mastering is on."""
    bridge = DirectBridge(AmdCard(chip, vram, **model))
    host = bridge.host
    place = 0x100
    while place:
        header = host.config_read(place)
        if header & 0xFFFF == 0x15:  # resizable BAR: the largest size
            sizes, control = host.config_read(place + 4) >> 4, host.config_read(place + 8)
            host.config_write(place + 8, control & ~0x1F00 | (sizes.bit_length() - 1) << 8)
        place = header >> 20
    for register, bar in ((0x10, 0), (0x18, 2), (0x24, 5)):
        host.config_write(register, BARS[bar] & 0xFFFF_FFFF)
        if bar != 5:
            host.config_write(register + 4, BARS[bar] >> 32)
    host.config_write(4, 7)
    return bridge
