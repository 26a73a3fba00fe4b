"""`towline bench firmware`: what the firmware's data paths cost, in chip clocks of the emulated board.

Per dword, clocks are marginal: between blocks of 1,024 and 4,096 dwords, from the host's side, so that they
hold all that a packet costs and nothing of what a transfer costs. `published` is the same for the image
`calibration`, whose loops have the clocks published of the open firmware. A list write is from the
acknowledgement of the last OUT packet of a list of 500 to the arming of its result. Everything is exact: two
runs give the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from emulator import images
from emulator.board import Board
from emulator.core.clock import seconds
from emulator.options import Options
from emulator.pcie.endpoint import OFFSETS, POLL_CLOCKS, TestEndpoint
from emulator.usb.wire import Outcome, Setup, Speed, Transfer
from firmware.asm2464pd import wire
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import memory
from firmware.asm2464pd.registers.tlp import FMT_TYPES
from firmware.asm2464pd.registers.usb import BULK_COMMAND, BULK_EVENTS
from firmware.protocol import requests
from firmware.protocol.command_list import CommandList
from firmware.protocol.operations import DWORD, SECTOR
from firmware.protocol.payload import SYNC_PACKET
from sdk.errors import InternalError

OUT, IN = 0x02, 0x81
RAM, REGISTERS = 0x8_0000_0000, 0x1000_0000
"""Where the BARs of the test endpoint go; the first takes 64-bit addresses."""
FEW, MANY = 1024, 4096
WRITES = 500
SLOT, SLOTS = 1, 31
"""Slots of a slot transfer: all but the one for fences."""
HALVES = ((1, 15), (16, 16))
"""The SRAM's slots as a stream uses them in turn: first slot and how many."""
LANDED, DRAINED = 0, 4
"""Offsets in slot 0 of the fences of a stream: parts that the device has seen, and has copied."""
STREAM_ROUNDS = 9
"""Times that a stream goes through the SRAM: 4.5 MB."""

_KINDS = {name: code for code, name in FMT_TYPES.items()}
_STREAM_WRITE, _STREAM_READ = 1, 2
_TIMEOUT = 5.0
_PATIENCE = 1_000_000
"""Microseconds that a fence may take."""
_SRAM = memory.SRAM.pcie or 0
_TRIGGER = (memory.NVME_CQ.pcie or 0) + wire.COMPLETION_TRIGGER.start


def measure() -> dict[str, Any]:
    """Measure the firmware, and the published loops beside it.

    Returns:
        `clocks_per_dword.{pio_write,pio_read,list_write,list_read}`, `published.{write,read}`,
        `clocks_per_list_write`, `code_bytes`, `bulk_mb_per_virtual_s.{out,in}`.

    Raises:
        ToolMissing: sdcc is not installed.
        BuildFailed: the firmware does not compile.
    """
    ours, published = _Bridge("firmware"), _Bridge("calibration")
    pio = {"pio_write": _marginal(ours.stream_write), "pio_read": _marginal(ours.stream_read)}
    ours.open_lists()
    lists = {"list_write": _marginal(ours.list_write), "list_read": _marginal(ours.list_read)}
    return {
        "clocks_per_dword": pio | lists,
        "published": {
            "write": _marginal(published.stream_write),
            "read": _marginal(published.stream_read),
        },
        "clocks_per_list_write": round(ours.list_of_writes(), 1),
        "code_bytes": images.build("firmware").bin.stat().st_size,
        "bulk_mb_per_virtual_s": {"out": ours.stream_out(), "in": ours.slots_in()},
    }


def _marginal(clocks: Callable[[int], int]) -> float:
    """Clocks of each further dword; the first call warms up."""
    clocks(FEW)
    few, many = clocks(FEW), clocks(MANY)
    return round((many - few) / (MANY - FEW), 2)


def _pattern(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


class StreamDevice(TestEndpoint):
    """A device that takes parts of a stream from the SRAM by itself, as a GPU's copy engine would.

    Every microsecond it checks whether the last dword of the next part has become the part's number, from 1.
    Then it writes that number to LANDED, copies the part at the link's rate, and writes it to DRAINED.
    """

    def expect(self, parts: Sequence[tuple[int, int]]) -> None:
        """Expect parts, each of so many slots from a slot on; they go to the RAM one behind the other."""
        self._parts = parts
        self._landed = self._drained = self._place = self._free = 0
        self.upstream.schedule(POLL_CLOCKS, self._look)

    def _look(self) -> None:
        slot, slots = self._parts[self._landed]
        address, size = _SRAM + slot * memory.SLOT_SIZE, slots * memory.SLOT_SIZE
        number = (self._landed + 1).to_bytes(DWORD, "little")
        if self.upstream.dma_read(address + size - DWORD, DWORD) == number:
            self._landed += 1
            self.upstream.dma_write(_SRAM + LANDED, number)
            now = self.upstream.now()
            self._free = max(now, self._free) + self.upstream.transfer_clocks(size)
            self.upstream.schedule(self._free - now, lambda: self._copied(address, size))
        if self._landed < len(self._parts):
            self.upstream.schedule(POLL_CLOCKS, self._look)

    def _copied(self, address: int, size: int) -> None:
        self.memory[self._place : self._place + size] = self.upstream.dma_read(address, size)
        self._place += size
        self._drained += 1
        self.upstream.dma_write(_SRAM + DRAINED, self._drained.to_bytes(DWORD, "little"))


def stream(rounds: int = STREAM_ROUNDS) -> tuple[CommandList, list[tuple[int, int]], bytes]:
    """A list that streams through both halves of the SRAM in turn, `rounds` times, paced by a StreamDevice.

    Returns:
        the list, the parts as (first slot, slots) for the device, and the data that must arrive.
    """
    parts = [half for _ in range(rounds) for half in HALVES]
    contents = [
        _pattern(slots * memory.SLOT_SIZE - DWORD, number) + (number + 1).to_bytes(DWORD, "little")
        for number, (_, slots) in enumerate(parts)
    ]
    built = CommandList()
    for offset in (LANDED, DRAINED):
        for byte in range(DWORD):
            built.xdata_write(memory.SRAM_WINDOW.address + offset + byte, 0)
    with built.loop(rounds):
        for number, (slot, slots) in enumerate(HALVES):
            # The part before the last one has left this half; the last one has landed in the other.
            built.fence(DRAINED, (number - 1) & 0xFFFF_FFFF, step=2, microseconds=_PATIENCE)
            built.fence(LANDED, number, step=2, microseconds=_PATIENCE)
            built.slot_out(slot, slots, b"".join(contents[number::2]))
    built.fence(DRAINED, len(parts), microseconds=_PATIENCE)
    return built, parts, b"".join(contents)


class _ResultTimes:
    """Watches the bulk endpoints: when packets were taken, and when EP 0x81 was armed."""

    def __init__(self, board: Board) -> None:
        self._clock = board.machine.clock
        self.taken: list[int] = []
        self.armed: list[int] = []

    def accessed(self, kind: str, space: Space, address: int, value: int) -> None:
        del kind, space
        if address == BULK_COMMAND.address and value & BULK_COMMAND["ARM_IN"]:
            self.armed.append(self._clock.now)

    def changed(self, space: Space, address: int, data: bytes) -> None:
        del space
        if address == BULK_EVENTS.address and data[0] & BULK_EVENTS["OUT_DONE"]:
            self.taken.append(self._clock.now)

    def line(self, number: int, level: bool) -> None:
        del number, level


class _Bridge:
    """The host of a board at SuperSpeed, with the endpoint's BARs assigned."""

    def __init__(self, image: str) -> None:
        self.device = StreamDevice()
        self.board = Board.of(image, Options(port=Speed.SUPER_PLUS, function=self.device))
        self._sequence = 0
        if not self.board.usb.wait_attached(_TIMEOUT):
            raise InternalError(f"the image {image} does not start")
        self.board.usb.enumerate()
        window = RAM >> 32
        for bus in range(4):
            for register, value in (
                (0x18, bus | bus + 1 << 8 | 4 << 16),
                (0x20, REGISTERS >> 16 | REGISTERS & 0xFFFF_0000),
                (0x24, 0xFFF1_0001),
                (0x28, window),
                (0x2C, window),
                (0x04, 0x0006),
            ):
                self._configure(bus, register, value)
        for register, value in ((0x10, 0), (0x14, window), (0x18, REGISTERS), (0x04, 0x0006)):
            self._configure(4, register, value)

    # -- requests ---------------------------------------------------------------------------------------

    def _request(self, kind: int, address: int, value: int, mode: int = 0) -> None:
        data = requests.TLP_REQUEST.pack(
            address_low=address & 0xFFFF_FFFF, address_high=address >> 32, value=value
        )
        setup = Setup(requests.VENDOR_OUT, requests.TLP_START.code, 0x0F00 | kind, mode, len(data))
        self.board.usb.control(setup, data, timeout=_TIMEOUT)

    def _configure(self, bus: int, register: int, value: int) -> None:
        self._request(_KINDS["CFGWR1" if bus else "CFGWR0"], bus << 24 | register, value)
        status = Setup(requests.VENDOR_IN, requests.TLP_STATUS.code, 0, 0, requests.TLP_RESULT.size)
        if requests.TLP_RESULT.unpack(self.board.usb.control(status, timeout=_TIMEOUT))["status"]:
            raise InternalError(f"configuration of bus {bus} failed", where=f"register {register:#x}")

    def _finish(self, transfer: Transfer) -> Transfer:
        self.board.usb.wait(transfer, timeout=_TIMEOUT)
        if transfer.outcome is not Outcome.DONE:
            raise InternalError(f"a bulk transfer ended as {transfer.outcome}")
        return transfer

    def stream_write(self, dwords: int) -> int:
        """Clocks of a stream of request F0 into memory."""
        self._request(_KINDS["MWR64"], RAM, dwords, _STREAM_WRITE)
        clocks = _clocks(self._finish(self.board.usb.submit(OUT, _pattern(4 * dwords))))
        self.board.usb.clock.sleep(1e-3)  # the last packet is with the CPU when the host is done
        return clocks

    def stream_read(self, dwords: int) -> int:
        """Clocks of a stream of request F0 out of memory."""
        self._request(_KINDS["MRD64"], RAM, dwords, _STREAM_READ)
        return _clocks(self._finish(self.board.usb.submit(IN, 4 * dwords)))

    # -- lists ------------------------------------------------------------------------------------------

    def open_lists(self) -> None:
        """Begin list mode."""
        setup = Setup(requests.VENDOR_OUT, requests.LIST.code, 1, self._sequence, 0)
        self.board.usb.control(setup, timeout=_TIMEOUT)

    def _run(self, built: CommandList) -> int:
        """Clocks from the first submission to the result."""
        answer = self._send(built)
        self._end(built, self._finish(answer))
        return _clocks(answer)

    def _send(self, built: CommandList) -> Transfer:
        """Submit a list with its payload; the transfer that its result comes in."""
        out, payload = built.pack(self._sequence, 1024)
        answer = self.board.usb.submit(IN, built.result_size + 1024)
        self._finish(self.board.usb.submit(OUT, out + payload))
        return answer

    def _end(self, built: CommandList, answer: Transfer) -> None:
        found = built.parse(bytes(answer.data), self._sequence)
        if found.failure is not None:
            raise InternalError(f"a list of the benchmark failed: {found.failure}")
        self._sequence += 1

    def list_write(self, dwords: int) -> int:
        """Clocks of a list with one BLOCK_WRITE."""
        built = CommandList()
        built.block_write(RAM, _pattern(4 * dwords))
        return self._run(built)

    def list_read(self, dwords: int) -> int:
        """Clocks of a list with one BLOCK_READ."""
        built = CommandList()
        built.block_read(RAM, dwords)
        return self._run(built)

    def list_of_writes(self) -> float:
        """Clocks of each WRITE of a list of them, to distinct 64-bit addresses."""
        built = CommandList()
        for place in range(WRITES):
            built.write(RAM + 4 * place, place)
        times = _ResultTimes(self.board)
        self.board.machine.bus.observers.append(times)
        self._run(built)
        self.board.machine.bus.observers.remove(times)
        armed = times.armed[-1]
        return (armed - max(clock for clock in times.taken if clock < armed)) / WRITES

    # -- slots ------------------------------------------------------------------------------------------

    def stream_out(self) -> float:
        """Megabytes a second of a stream longer than the SRAM, as one list in one bulk transfer."""
        built, parts, data = stream()
        self.device.expect(parts)
        answer = self._send(built)
        self._end(built, self._finish(answer))
        if self.device.memory[: len(data)] != data:
            raise InternalError("the stream did not arrive as it was sent")
        return _rate(len(data), _clocks(answer))

    def slots_in(self) -> float:
        """Megabytes a second of the other way, from the list's submission to the last sector."""
        size = SLOTS * memory.SLOT_SIZE
        built = CommandList()
        built.write(REGISTERS + OFFSETS["FENCE"], _TRIGGER)
        built.slot_in(SLOT, SLOTS, size // SECTOR)
        built.write(REGISTERS + OFFSETS["SIGNAL"], 0)
        built.sync()
        out, _ = built.pack(self._sequence, 1024)
        sectors = self.board.usb.submit(IN, size)
        self._finish(self.board.usb.submit(OUT, out))
        self._finish(sectors)
        answer = self.board.usb.submit(IN, 1024)
        self._finish(self.board.usb.submit(OUT, SYNC_PACKET))
        self._end(built, self._finish(answer))
        return _rate(size, _clocks(sectors))


def _clocks(transfer: Transfer) -> int:
    return transfer.completed - transfer.submitted


def _rate(size: int, clocks: int) -> float:
    return round(size / seconds(clocks) / 1e6, 1)
