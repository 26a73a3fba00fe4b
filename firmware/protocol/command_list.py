"""Command lists for the host's side: built operation by operation, packed for the wire, results unpacked.

    commands = CommandList()
    commands.write(0xF000_0000, 1)
    commands.poll(0xF000_0004, value=1, mask=1, microseconds=1000)
    with commands.loop(3):
        commands.read(0xF000_0008)
    out, payload = commands.pack(sequence=7, packet=1024)   # both may go in one transfer on EP 0x02
    ...
    result = commands.parse(answer, sequence=7)              # the data of one transfer on EP 0x81
    result.values                                            # of POLL and the three READs

`commands` specifies the wire format and how the firmware executes it. The limits are in `operands`, so the
firmware does not refuse a list that was packed here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from firmware.asm2464pd.registers.memory import SRAM_WINDOW
from firmware.protocol import commands
from firmware.protocol.commands import LIST_HEADER, LIST_TRAILER, RESULT_TRAILER
from firmware.protocol.operands import (
    byte_enables,
    config_dword,
    duration,
    dword,
    dword_address,
    dwords_from,
    sectors_in,
    word,
)
from firmware.protocol.operations import (
    ALL_BYTES,
    BY_NAME,
    DWORD,
    REFUSED,
    SECTOR,
    Data,
    Failure,
    ListError,
    Operation,
    Parts,
    Result,
)
from firmware.protocol.payload import payload_packets, seal
from sdk.facts.structures import Malformed

_PHY = 1 << 16
"""Bit of an XDATA address that selects the PHY plane."""


class CommandList:
    """Operations in order.

    The methods raise ListError for operands that the firmware would refuse. Addresses are PCIe addresses in
    bytes, dwords are unsigned integers of 32 bits.

    Attributes:
        operations: those added so far.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._rounds = 1
        self._in_loop = False
        self._unread = False  # sectors that the host has not yet reported as read

    @property
    def size(self) -> int:
        """Bytes of the list, header and trailer included."""
        return LIST_HEADER.size + sum(operation.size for operation in self.operations) + LIST_TRAILER.size

    @property
    def result_size(self) -> int:
        """Bytes of its result, if it does not fail."""
        return sum(operation.result_size for operation, _, _ in self.steps()) + RESULT_TRAILER.size

    @property
    def waits_for_host(self) -> bool:
        """Whether the host must read the result while it still sends payload."""
        return self.result_size > commands.RESULT_BYTES

    # -- memory and configuration -----------------------------------------------------------------------

    def write(self, address: int, value: int, enables: int = ALL_BYTES) -> None:
        """Write a dword, or the bytes of it that are enabled."""
        self._add("WRITE", byte_enables(enables), address=dword_address(address), value=dword(value))

    def read(self, address: int, enables: int = ALL_BYTES) -> None:
        """Read a dword; returns it in the result."""
        self._add("READ", byte_enables(enables), address=dword_address(address))

    def modify(self, address: int, value: int, mask: int, enables: int = ALL_BYTES) -> None:
        """Read a dword and write it back with the bits of `mask` from `value`."""
        self._add(
            "MODIFY",
            byte_enables(enables),
            address=dword_address(address),
            value=dword(value),
            mask=dword(mask),
        )

    def poll(self, address: int, value: int, mask: int = 0xFFFFFFFF, *, microseconds: int) -> None:
        """Read a dword until it equals `value` in the bits of `mask`; returns the last one read."""
        self._add(
            "POLL",
            ALL_BYTES,
            address=dword_address(address),
            value=dword(value),
            mask=dword(mask),
            timeout=duration(microseconds),
        )

    def config_write(self, address: int, value: int, enables: int = ALL_BYTES) -> None:
        """Write configuration space; see `config_address`."""
        self._add("CONFIG_WRITE", byte_enables(enables), address=config_dword(address), value=dword(value))

    def config_read(self, address: int, enables: int = ALL_BYTES) -> None:
        """Read configuration space; returns the dword."""
        self._add("CONFIG_READ", byte_enables(enables), address=config_dword(address))

    # -- blocks -----------------------------------------------------------------------------------------

    def block_write(self, address: int, data: bytes) -> None:
        """Write dwords to ascending addresses. In a loop, `data` is that of all rounds."""
        count = self._count(data, DWORD)
        self._add("BLOCK_WRITE", ALL_BYTES, count, dwords_from(address, count), payload=data)

    def fifo_write(self, address: int, data: bytes) -> None:
        """Write dwords to one address. In a loop, `data` is that of all rounds."""
        self._add("FIFO_WRITE", ALL_BYTES, self._count(data, DWORD), dword_address(address), payload=data)

    def block_read(self, address: int, dwords: int) -> None:
        """Read dwords from ascending addresses; returns their bytes."""
        self._add("BLOCK_READ", ALL_BYTES, word(dwords), dwords_from(address, dwords))

    def fifo_read(self, address: int, dwords: int) -> None:
        """Read dwords from one address; returns their bytes."""
        self._add("FIFO_READ", ALL_BYTES, word(dwords), dword_address(address))

    def fill(self, address: int, value: int, dwords: int) -> None:
        """Write a dword to ascending addresses."""
        self._add("FILL", ALL_BYTES, word(dwords), dwords_from(address, dwords), dword(value))

    # -- the bridge -------------------------------------------------------------------------------------

    def delay(self, microseconds: int) -> None:
        """Wait at least this long."""
        self._add("DELAY", value=duration(microseconds))

    def xdata_write(self, address: int, value: int, *, phy: bool = False) -> None:
        """Write a byte of the bridge's XDATA, or of its PHY plane."""
        if not 0 <= value <= 0xFF:
            raise ListError(f"the byte {value:#x} is not in the range 0 to 0xff")
        self._add("XDATA_WRITE", address=word(address) | phy * _PHY, value=value)

    def xdata_read(self, address: int, count: int, *, phy: bool = False) -> None:
        """Read bytes of the bridge's XDATA, or of its PHY plane; returns them."""
        if not 0 < count <= 0x10000 - address:
            raise ListError(
                f"{count} bytes of XDATA from {address:#06x}: a read has at least 1 and does not pass 0xffff"
            )
        self._add("XDATA_READ", count=word(count), address=word(address) | phy * _PHY)

    def slot_out(self, slot: int, slots: int, data: bytes | Parts) -> None:
        """Send the payload to SRAM slots, bypassing the CPU. In a loop, `data` is that of all rounds."""
        sectors = self._count(data, SECTOR)
        self._add("SLOT_OUT", count=slots, address=slot, value=sectors_in(slot, slots, sectors), payload=data)

    def slot_in(self, slot: int, slots: int, sectors: int) -> None:
        """Send SRAM slots to the host on EP 0x81, once a device has written the completion entry.

        The next `slot_in`, or the `sync` after the last one, waits for SYNC_PACKET. The host sends it after
        it has read the sectors, not before.
        """
        self._add("SLOT_IN", count=slots, address=slot, value=sectors_in(slot, slots, sectors))
        self._unread = True

    def sync(self) -> None:
        """Wait for SYNC_PACKET, by which the host reports that it has read the last `slot_in`."""
        self._add("SYNC")
        self._unread = False

    def fence(self, offset: int, value: int, *, step: int = 0, microseconds: int) -> None:
        """Wait until a device has written at least `value` at an offset of SRAM slot 0.

        Args:
            offset: in bytes, a multiple of 4.
            value: compared as a counter modulo 2^32.
            step: in a loop, added to the value after each round.
            microseconds: the longest wait.
        """
        if offset % DWORD or not 0 <= offset < SRAM_WINDOW.size:
            raise ListError(
                f"a fence at offset {offset:#x}: it must be a multiple of 4 below {SRAM_WINDOW.size:#x}"
            )
        self._add(
            "FENCE", address=offset, value=dword(value), mask=dword(step), timeout=duration(microseconds)
        )

    @contextmanager
    def loop(self, rounds: int) -> Iterator[None]:
        """Run the operations added in the context that many times."""
        if self._in_loop:
            raise ListError("loops do not nest")
        if not word(rounds):
            raise ListError("a loop of 0 rounds: it must have at least one round")
        self._add("LOOP", count=rounds)
        self._in_loop, self._rounds = True, rounds
        yield
        self._in_loop, self._rounds = False, 1
        self._add("END")

    def steps(self) -> Iterator[tuple[Operation, int, int]]:
        """Each operation in the order of running, in a loop once a round; with its round and their number."""
        operations = iter(self.operations)
        for operation in operations:
            if operation.opcode.name != "LOOP":
                yield operation, 0, 1
                continue
            body = list(itertools.takewhile(lambda inner: inner.opcode.name != "END", operations))
            for number in range(operation.count):
                yield from ((inner, number, operation.count) for inner in body)

    # -- the wire ---------------------------------------------------------------------------------------

    def pack(self, sequence: int, packet: int) -> tuple[bytes, bytes]:
        """The list and its payload, for the bulk OUT endpoint: `head` and all of `payload`."""
        return self.head(sequence, packet), b"".join(self.payload(packet))

    def head(self, sequence: int, packet: int) -> bytes:
        """The list, for the bulk OUT endpoint.

        A list with payload is padded to whole packets, so that both can be one transfer.

        Args:
            sequence: its sequence number.
            packet: the endpoint's largest packet in bytes, one of `commands.PACKETS`.

        Raises:
            ListError: it is too long, or incomplete.
        """
        if packet not in commands.PACKETS:
            sizes = " or ".join(map(str, commands.PACKETS))
            raise ListError(f"packets of {packet} bytes: lists need {sizes}")
        if self._in_loop:
            raise ListError("the loop has not ended yet")
        if self._unread:
            raise ListError("a slot_in needs a sync after it")
        if self.size > commands.LIST_BYTES:
            raise ListError(f"a list of {self.size} bytes: it may have at most {commands.LIST_BYTES}")
        data = bytearray(LIST_HEADER.pack(sequence=word(sequence), length=self.size))
        for operation in self.operations:
            data += operation.pack()
        data += bytes(LIST_TRAILER.size)
        seal(data, len(data) - 2)
        if any(len(operation.payload) for operation in self.operations):
            data += bytes(-len(data) % packet)
        return bytes(data)

    def payload(self, packet: int) -> Iterator[Data]:
        """The payload of its operations, piece by piece, if the host need not read meanwhile.

        Args:
            packet: as in `pack`.

        Raises:
            ListError: it does not fit packets of that size, or some of it follows a `slot_in`.
        """
        first, *others = self.segments(packet)
        yield from first
        if any(True for other in others for _ in other):
            raise ListError("payload after a SLOT_IN: the host must read before it sends that")

    def segments(self, packet: int) -> list[Iterator[Data]]:
        """Its payload, cut where the firmware waits for SYNC_PACKET: each segment but the first follows one.

        Between a `slot_in` and that wait there can be no payload: the endpoint's engine is the same.

        Args:
            packet: as in `pack`.

        Raises:
            ListError: while the pieces are taken: they do not fit packets of that size; or there is payload
                between a `slot_in` and the wait for its sectors.
        """
        segments: list[list[tuple[Operation, int, int]]] = [[]]
        unread = False
        for step in self.steps():
            operation = step[0]
            name = operation.opcode.name
            if name == "SYNC" or (name == "SLOT_IN" and unread):
                segments.append([])
            unread = name == "SLOT_IN" or (unread and name != "SYNC")
            if len(operation.payload):
                if unread:
                    raise ListError("payload between a SLOT_IN and its SYNC: put it before or after them")
                segments[-1].append(step)
        return [_payload(segment, packet) for segment in segments]

    def parse(self, data: bytes, sequence: int) -> Result:
        """The result of this list, from the data of a transfer on EP 0x81.

        Raises:
            ListError: the data is not a result, or is another list's.
        """
        given, trailer = data[: -RESULT_TRAILER.size], data[-RESULT_TRAILER.size :]
        try:
            fields = RESULT_TRAILER.unpack(trailer)
        except Malformed as problem:
            raise ListError(f"{len(data)} bytes that are not a result: {problem}") from problem
        refused = fields["cause"] >= REFUSED and not fields["opcode"]
        if fields["sequence"] != sequence and not refused:
            raise ListError(f"this is the result of list {fields['sequence']}, not of list {sequence}")
        values: list[int | bytes] = []
        place = 0
        for operation, _, _ in self.steps():
            if place + operation.result_size > len(given):
                break
            if operation.opcode.result:
                part = given[place : place + operation.result_size]
                values.append(_value(operation, part))
                place += operation.result_size
        partial = bytes(given[place:])
        if not fields["cause"]:
            if len(data) != self.result_size:
                raise ListError(f"a result of {len(data)} bytes: that of this list has {self.result_size}")
            return Result(tuple(values), None)
        address = fields["address"]
        if fields["opcode"] == BY_NAME["BLOCK_READ"].code:
            address += len(partial)
        failure = Failure(fields["cause"], fields["index"], fields["opcode"], address)
        return Result(tuple(values), failure, partial)

    # -- inside -----------------------------------------------------------------------------------------

    def _add(
        self,
        name: str,
        enables: int = 0,
        count: int = 0,
        address: int = 0,
        value: int = 0,
        mask: int = 0,
        timeout: int = 0,
        payload: bytes | Parts = b"",
    ) -> None:
        given = payload if isinstance(payload, Parts) else bytes(payload)
        self.operations.append(Operation(BY_NAME[name], enables, count, address, value, mask, timeout, given))

    def _count(self, data: bytes | Parts, unit: int) -> int:
        """Units of `data` in each round."""
        if isinstance(data, Parts) and len(data.rounds) != self._rounds:
            raise ListError(f"payload of {len(data.rounds)} rounds in a loop of {self._rounds}")
        count, rest = divmod(len(data), unit * self._rounds)
        if rest:
            each = f" in each of {self._rounds} rounds" if self._rounds > 1 else ""
            raise ListError(f"{len(data)} bytes are not whole units of {unit} bytes{each}")
        return word(count)


def _payload(steps: Sequence[tuple[Operation, int, int]], packet: int) -> Iterator[Data]:
    """The payload of operations, each with its round and their number, as it travels in one transfer."""
    size = 0
    bare = False  # the payload so far ends with sectors
    for operation, number, rounds in steps:
        if bare and size % packet:
            raise ListError(
                f"sectors before other payload must fill whole packets of {packet} bytes: they are {size}"
            )
        if padding := -size % packet:
            yield bytes(padding)
            size += padding
        bare = operation.opcode.name == "SLOT_OUT"
        for piece in operation.round(number, rounds):
            part = piece if bare else payload_packets(bytes(piece), packet)
            yield part
            size += len(part)


def _value(operation: Operation, part: bytes) -> int | bytes:
    if operation.opcode.single:
        return int.from_bytes(part, "little")
    return bytes(part[: operation.count * operation.opcode.result])
