"""Command lists for the host's side: built operation by operation, packed for the wire, results unpacked.

    commands = CommandList()
    commands.write(0xF000_0000, 1)
    commands.poll(0xF000_0004, value=1, mask=1, microseconds=1000)
    with commands.loop(3):
        commands.read(0xF000_0008)
    out, payload = commands.pack(sequence=7, packet=1024)   # both may go in one transfer on EP 0x02
    ...
    result = commands.parse(answer, sequence=7)              # what one transfer on EP 0x81 brought
    result.values                                            # of POLL and the three READs

The wire format, and what the firmware makes of it, is specified in `commands`; here are its limits, so that a
list that is packed is one that the firmware does not refuse.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from firmware.asm2464pd import commands
from firmware.asm2464pd.commands import (
    EXTENSION,
    LIST_HEADER,
    LIST_TRAILER,
    OPERATION,
    PAYLOAD_HEADER,
    RESULT_TRAILER,
    Opcode,
)
from firmware.asm2464pd.registers.memory import SLOT_SIZE, SRAM, SRAM_WINDOW
from sdk.facts.structures import Malformed

DWORD = 4
SECTOR = 512
"""Bytes of a sector of the slot DMA."""
SLOTS = SRAM.size // SLOT_SIZE
ALL_BYTES = 0x0F
"""Byte enables of a whole dword."""
SYNC_PACKET = bytes(PAYLOAD_HEADER.size)
"""What SYNC waits for: a packet of payload with number 0 and no dwords; its checksum is 0 too."""
CAUSES = RESULT_TRAILER.member("cause").values
"""Why a list ended, in words."""
REFUSED = 0x20
"""Causes from here on, without an opcode, are of a list that was refused."""

Data = bytes | bytearray | memoryview
"""Bytes in somebody's memory; a memoryview is one of single bytes."""

_BY_NAME = {opcode.name: opcode for opcode in commands.OPCODES}
_BY_CODE = {opcode.code: opcode for opcode in commands.OPCODES}
_PHY = 1 << 16


class ListError(ValueError):
    """A list that cannot be, or a result that is none."""


class Parts:
    """Payload in pieces of somebody's memory, which must not change until the list has run.

    Args:
        rounds: of each round of the loop, or of the only one, its pieces in order; all rounds have one size.
    """

    def __init__(self, rounds: Sequence[Sequence[Data]]) -> None:
        self.rounds = rounds
        sizes = {sum(map(len, pieces)) for pieces in rounds}
        if len(sizes) != 1:
            raise ListError(f"payload of {len(sizes)} different sizes in the rounds of a loop")
        self._size = sizes.pop() * len(rounds)

    def __len__(self) -> int:
        """Bytes of all rounds."""
        return self._size


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, as OPERATION and EXTENSION in `commands`.

    Attributes:
        payload: its payload; in a loop that of all rounds, one after the other.
    """

    opcode: Opcode
    enables: int = 0
    count: int = 0
    address: int = 0
    value: int = 0
    mask: int = 0
    timeout: int = 0
    payload: bytes | Parts = b""

    def round(self, number: int, rounds: int) -> Sequence[Data]:
        """The pieces of its payload in one round of a loop."""
        if isinstance(self.payload, Parts):
            return self.payload.rounds[number]
        size = len(self.payload) // rounds
        return (memoryview(self.payload)[number * size : (number + 1) * size],)

    @property
    def size(self) -> int:
        """Bytes in the list."""
        return OPERATION.size + (EXTENSION.size if self.opcode.extended else 0)

    @property
    def result_size(self) -> int:
        """Bytes that it gives each time."""
        size = self.opcode.result * (1 if self.opcode.single else self.count)
        return -(-size // DWORD) * DWORD

    def pack(self) -> bytes:
        """Its bytes in the list."""
        data = OPERATION.pack(
            opcode=self.opcode.code,
            enables=self.enables,
            count=self.count,
            address=self.address,
            value=self.value,
        )
        if self.opcode.extended:
            data += EXTENSION.pack(mask=self.mask, timeout=self.timeout)
        return data


@dataclass(frozen=True, slots=True)
class Failure:
    """Why and where a list ended early.

    Attributes:
        cause: a code of CAUSES.
        index: of the operation in the list, from 0.
        opcode: its code, 0 of a refused list.
        address: where it failed: the operation's, of a block read that of the dword; of bad payload, the
            packet's number.
    """

    cause: int
    index: int
    opcode: int
    address: int

    def __str__(self) -> str:
        cause = CAUSES.get(self.cause, f"cause {self.cause:#04x}")
        if not self.opcode:
            return f"the list was refused: {cause}"
        name = _BY_CODE[self.opcode].name if self.opcode in _BY_CODE else f"opcode {self.opcode:#04x}"
        return f"operation {self.index} ({name}) failed at {self.address:#x}: {cause}"


@dataclass(frozen=True, slots=True)
class Result:
    """What a list gave.

    Attributes:
        values: of each operation that gives something, once a round: a dword, or the bytes of a block.
        failure: why it ended early, if it did; `values` has what was complete before.
        partial: what the failed operation had given.
    """

    values: tuple[int | bytes, ...]
    failure: Failure | None
    partial: bytes = b""


class CommandList:
    """Operations in order.

    The methods raise ListError for operands that the firmware would refuse. Addresses are PCIe addresses in
    bytes, dwords are unsigned integers of 32 bits.

    Attributes:
        operations: so far.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._rounds = 1
        self._in_loop = False
        self._unread = False  # sectors that the host has still to say it has read

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
        """Whether the host has to read the result while it still sends payload."""
        return self.result_size > commands.RESULT_BYTES

    # -- memory and configuration -----------------------------------------------------------------------

    def write(self, address: int, value: int, enables: int = ALL_BYTES) -> None:
        """Write a dword, or the bytes of it that are enabled."""
        self._add("WRITE", _enables(enables), address=_address(address), value=_dword(value))

    def read(self, address: int, enables: int = ALL_BYTES) -> None:
        """Read a dword; gives it."""
        self._add("READ", _enables(enables), address=_address(address))

    def modify(self, address: int, value: int, mask: int, enables: int = ALL_BYTES) -> None:
        """Read a dword and write it back with the bits of `mask` from `value`."""
        self._add(
            "MODIFY", _enables(enables), address=_address(address), value=_dword(value), mask=_dword(mask)
        )

    def poll(self, address: int, value: int, mask: int = 0xFFFFFFFF, *, microseconds: int) -> None:
        """Read a dword until it equals `value` in the bits of `mask`; gives the last one read."""
        self._add(
            "POLL",
            ALL_BYTES,
            address=_address(address),
            value=_dword(value),
            mask=_dword(mask),
            timeout=_time(microseconds),
        )

    def config_write(self, address: int, value: int, enables: int = ALL_BYTES) -> None:
        """Write configuration space; see `config_address`."""
        self._add("CONFIG_WRITE", _enables(enables), address=_config(address), value=_dword(value))

    def config_read(self, address: int, enables: int = ALL_BYTES) -> None:
        """Read configuration space; gives the dword."""
        self._add("CONFIG_READ", _enables(enables), address=_config(address))

    # -- blocks -----------------------------------------------------------------------------------------

    def block_write(self, address: int, data: bytes) -> None:
        """Write dwords to ascending addresses. In a loop, `data` is that of all rounds."""
        count = self._count(data, DWORD)
        self._add("BLOCK_WRITE", ALL_BYTES, count, _range(address, count), payload=data)

    def fifo_write(self, address: int, data: bytes) -> None:
        """Write dwords to one address. In a loop, `data` is that of all rounds."""
        self._add("FIFO_WRITE", ALL_BYTES, self._count(data, DWORD), _address(address), payload=data)

    def block_read(self, address: int, dwords: int) -> None:
        """Read dwords from ascending addresses; gives their bytes."""
        self._add("BLOCK_READ", ALL_BYTES, _word(dwords), _range(address, dwords))

    def fifo_read(self, address: int, dwords: int) -> None:
        """Read dwords from one address; gives their bytes."""
        self._add("FIFO_READ", ALL_BYTES, _word(dwords), _address(address))

    def fill(self, address: int, value: int, dwords: int) -> None:
        """Write a dword to ascending addresses."""
        self._add("FILL", ALL_BYTES, _word(dwords), _range(address, dwords), _dword(value))

    # -- the bridge -------------------------------------------------------------------------------------

    def delay(self, microseconds: int) -> None:
        """Wait at least so long."""
        self._add("DELAY", value=_time(microseconds))

    def xdata_write(self, address: int, value: int, *, phy: bool = False) -> None:
        """Write a byte of the bridge's XDATA, or of its PHY plane."""
        if not 0 <= value <= 0xFF:
            raise ListError(f"a byte cannot be {value:#x}")
        self._add("XDATA_WRITE", address=_word(address) | phy * _PHY, value=value)

    def xdata_read(self, address: int, count: int, *, phy: bool = False) -> None:
        """Read bytes of the bridge's XDATA, or of its PHY plane; gives them."""
        if not 0 < count <= 0x10000 - address:
            raise ListError(f"{count} bytes of XDATA from {address:#06x}")
        self._add("XDATA_READ", count=_word(count), address=_word(address) | phy * _PHY)

    def slot_out(self, slot: int, slots: int, data: bytes | Parts) -> None:
        """Have the next payload go to SRAM slots, past the CPU. In a loop, `data` is that of all rounds."""
        sectors = self._count(data, SECTOR)
        self._add("SLOT_OUT", count=slots, address=slot, value=_sectors(slot, slots, sectors), payload=data)

    def slot_in(self, slot: int, slots: int, sectors: int) -> None:
        """Have the host read SRAM slots from EP 0x81, once a device has written the completion entry.

        The next `slot_in`, and after the last one `sync`, waits until the host has sent SYNC_PACKET; it must
        not do so before it has read the sectors.
        """
        self._add("SLOT_IN", count=slots, address=slot, value=_sectors(slot, slots, sectors))
        self._unread = True

    def sync(self) -> None:
        """Wait until the host says that it has read what the last `slot_in` gave: by SYNC_PACKET."""
        self._add("SYNC")
        self._unread = False

    def fence(self, offset: int, value: int, *, step: int = 0, microseconds: int) -> None:
        """Wait until a device has written at least `value` at an offset of SRAM slot 0.

        Args:
            offset: in bytes, a multiple of 4.
            value: compared as a counter modulo 2^32.
            step: in a loop, added to the value after each round.
            microseconds: how long at most.
        """
        if offset % DWORD or not 0 <= offset < SRAM_WINDOW.size:
            raise ListError(f"a fence at offset {offset:#x}: it must be a dword below {SRAM_WINDOW.size:#x}")
        self._add(
            "FENCE", address=offset, value=_dword(value), mask=_dword(step), timeout=_time(microseconds)
        )

    @contextmanager
    def loop(self, rounds: int) -> Iterator[None]:
        """Have the operations that are added meanwhile run that many times."""
        if self._in_loop:
            raise ListError("loops do not nest")
        if not _word(rounds):
            raise ListError("a loop has at least one round")
        self._add("LOOP", count=rounds)
        self._in_loop, self._rounds = True, rounds
        yield
        self._in_loop, self._rounds = False, 1
        self._add("END")

    def steps(self) -> Iterator[tuple[Operation, int, int]]:
        """Each operation as it will run, in a loop again and again; with its round and how many there are."""
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

        One that has payload is padded to whole packets, so that both can be one transfer.

        Args:
            sequence: its sequence number.
            packet: bytes of the endpoint's largest packet, one of `commands.PACKETS`.

        Raises:
            ListError: it is too long, or not complete.
        """
        if packet not in commands.PACKETS:
            raise ListError(f"packets of {packet} bytes; they have {commands.PACKETS}")
        if self._in_loop:
            raise ListError("the loop has not ended yet")
        if self._unread:
            raise ListError("a slot transfer towards the host wants a sync after it")
        if self.size > commands.LIST_BYTES:
            raise ListError(f"{self.size} bytes; a list has at most {commands.LIST_BYTES}")
        data = bytearray(LIST_HEADER.pack(sequence=_word(sequence), length=self.size))
        for operation in self.operations:
            data += operation.pack()
        data += bytes(LIST_TRAILER.size)
        _seal(data, len(data) - 2)
        if any(len(operation.payload) for operation in self.operations):
            data += bytes(-len(data) % packet)
        return bytes(data)

    def payload(self, packet: int) -> Iterator[Data]:
        """The payload of its operations, piece by piece.

        Args:
            packet: as in `pack`.

        Raises:
            ListError: it does not fit packets of that size, or comes too late.
        """
        size = 0
        bare = synced = False  # the payload so far ends with that of a slot transfer; a sync has come
        for operation, number, rounds in self.steps():
            synced |= operation.opcode.name in ("SLOT_IN", "SYNC")
            if not len(operation.payload):
                continue
            if synced:
                raise ListError("payload after a SLOT_IN: put it into another list")
            if bare and size % packet:
                raise ListError(
                    f"payload of a slot transfer, before other, must be whole packets of {packet} bytes"
                )
            if padding := -size % packet:
                yield bytes(padding)
                size += padding
            bare = operation.opcode.name == "SLOT_OUT"
            for piece in operation.round(number, rounds):
                part = piece if bare else payload_packets(bytes(piece), packet)
                yield part
                size += len(part)

    def parse(self, data: bytes, sequence: int) -> Result:
        """What a transfer on EP 0x81 says of this list.

        Raises:
            ListError: it is no result, or another list's.
        """
        given, trailer = data[: -RESULT_TRAILER.size], data[-RESULT_TRAILER.size :]
        try:
            fields = RESULT_TRAILER.unpack(trailer)
        except Malformed as problem:
            raise ListError(f"{len(data)} bytes that are no result: {problem}") from problem
        refused = fields["cause"] >= REFUSED and not fields["opcode"]
        if fields["sequence"] != sequence and not refused:
            raise ListError(f"the result of list {fields['sequence']}, not of list {sequence}")
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
                raise ListError(f"a result of {len(data)} bytes; the list's has {self.result_size}")
            return Result(tuple(values), None)
        address = fields["address"]
        if fields["opcode"] == _BY_NAME["BLOCK_READ"].code:
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
        self.operations.append(
            Operation(_BY_NAME[name], enables, count, address, value, mask, timeout, given)
        )

    def _count(self, data: bytes | Parts, unit: int) -> int:
        """Units of `data` in each round."""
        if isinstance(data, Parts) and len(data.rounds) != self._rounds:
            raise ListError(f"payload of {len(data.rounds)} rounds in a loop of {self._rounds}")
        count, rest = divmod(len(data), unit * self._rounds)
        if rest:
            each = f" in each of {self._rounds} rounds" if self._rounds > 1 else ""
            raise ListError(f"{len(data)} bytes are not whole units of {unit} bytes{each}")
        return _word(count)


def config_address(bus: int, device: int, function: int, register: int) -> int:
    """The address of a dword of configuration space.

    Raises:
        ListError: there is none; the TLP engine reaches registers below 4096.
    """
    if not (0 <= bus < 256 and 0 <= device < 32 and 0 <= function < 8 and 0 <= register < 4096):
        raise ListError(f"no configuration space {bus:02x}:{device:02x}.{function:x}, register {register:#x}")
    return _config(bus << 24 | device << 19 | function << 16 | register)


def payload_packets(data: bytes, packet: int) -> bytes:
    """The payload of one block write, in packets; the last one may be short."""
    each = packet - PAYLOAD_HEADER.size
    whole, rest = divmod(len(data), each)
    full = np.zeros((whole, packet), np.uint8)
    full[:, PAYLOAD_HEADER.size :] = np.frombuffer(data, np.uint8, whole * each).reshape(whole, each)
    full[:, :2] = np.arange(whole, dtype="<u2").view(np.uint8).reshape(whole, 2)
    _seal_all(full, PAYLOAD_HEADER.offset("check"))
    if not rest:
        return full.tobytes()
    last = bytearray(PAYLOAD_HEADER.pack(number=whole) + data[whole * each :])
    _seal(last, PAYLOAD_HEADER.offset("check"))
    return full.tobytes() + bytes(last)


def unpack(data: bytes) -> tuple[int, tuple[Operation, ...]]:
    """Sequence number and operations, without payload, of a packed list.

    Raises:
        ListError: it is none that a firmware would run.
    """
    try:
        fields = LIST_HEADER.unpack(data[: LIST_HEADER.size])
    except Malformed as problem:
        raise ListError(f"no list: {problem}") from problem
    length = fields["length"]
    longest = min(len(data), commands.LIST_BYTES)
    if length % 8 or not LIST_HEADER.size + LIST_TRAILER.size <= length <= longest:
        raise ListError(f"a list of {length} bytes, of which {len(data)} are there")
    if _sums(np.frombuffer(data, np.uint8, length)[None, :]).any():
        raise ListError("the checksum is wrong")
    operations = []
    place, end = LIST_HEADER.size, length - LIST_TRAILER.size
    while place < end:
        opcode = _BY_CODE.get(data[place])
        if opcode is None or place + OPERATION.size + opcode.extended * EXTENSION.size > end:
            raise ListError(f"no operation at offset {place:#x}")
        base = OPERATION.unpack(data[place : place + OPERATION.size])
        place += OPERATION.size
        extension = {"mask": 0, "timeout": 0}
        if opcode.extended:
            extension = EXTENSION.unpack(data[place : place + EXTENSION.size])
            place += EXTENSION.size
        operations.append(
            Operation(
                opcode,
                base["enables"],
                base["count"],
                base["address"],
                base["value"],
                extension["mask"],
                extension["timeout"],
            )
        )
    return fields["sequence"], tuple(operations)


# -- checksums -----------------------------------------------------------------------------------------------


def _sums(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Fletcher's two sums of each row: a byte counts in the second as often as there are bytes from it on."""
    weights = np.arange(rows.shape[1], 0, -1)
    first = rows.sum(axis=1, dtype=np.int64)
    second = rows @ weights
    return np.stack((first, second), axis=1).astype(np.uint8)


def _seal_all(rows: npt.NDArray[np.uint8], place: int) -> None:
    """Put the check bytes of each row at `place`, where it has zeros; see `commands.check_bytes`."""
    first, second = _sums(rows).astype(np.int64).T
    weight = rows.shape[1] - place
    rows[:, place] = (-second + (weight - 1) * first) & 0xFF
    rows[:, place + 1] = (-first - rows[:, place]) & 0xFF


def _seal(data: bytearray, place: int) -> None:
    _seal_all(np.frombuffer(data, np.uint8)[None, :], place)


# -- operands ------------------------------------------------------------------------------------------------


def _within(value: int, limit: int, what: str) -> int:
    if not 0 <= value < limit:
        raise ListError(f"{what} cannot be {value:#x}")
    return value


def _dword(value: int) -> int:
    return _within(value, 1 << 32, "a dword")


def _word(value: int) -> int:
    return _within(value, 1 << 16, "a count or 16-bit number")


def _time(microseconds: int) -> int:
    return _within(microseconds, commands.MICROSECONDS, "a time in microseconds")


def _enables(enables: int) -> int:
    return _within(enables, ALL_BYTES + 1, "byte enables")


def _address(address: int) -> int:
    if _within(address, 1 << 64, "an address") % DWORD:
        raise ListError(f"address {address:#x} is no multiple of 4")
    return address


def _config(address: int) -> int:
    if _within(address, 1 << 32, "an address of configuration space") % DWORD:
        raise ListError(f"register {address & 0xFFF:#x} is no multiple of 4")
    return address


def _range(address: int, dwords: int) -> int:
    """The first address of so many dwords, which may not cross a boundary of 4 GiB if it is below one."""
    end = _address(address) + DWORD * _word(dwords)
    if end > 1 << 64 or address < 1 << 32 < end:
        raise ListError(f"{dwords} dwords from {address:#x} go beyond what an address of its size can reach")
    return address


def _sectors(slot: int, slots: int, sectors: int) -> int:
    room = slots * SLOT_SIZE // SECTOR
    if not (slot >= 0 and 0 < slots <= SLOTS - slot and 0 < sectors <= room):
        raise ListError(f"{sectors} sectors in {slots} slots from slot {slot} on: they hold {max(room, 0)}")
    return sectors


def _value(operation: Operation, part: bytes) -> int | bytes:
    if operation.opcode.single:
        return int.from_bytes(part, "little")
    return bytes(part[: operation.count * operation.opcode.result])
