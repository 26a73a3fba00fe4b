"""The code of a compiled network, kernel by kernel, as packets in basic blocks, by LLVM's disassembler.

`network.elf` has no symbols. Which kernel computes a layer is read from the table of calls that the network
consists of (struct network of kernels/kernels.h), which is found by the sizes in it that the plan has too.

Hardware loops jump back without a jump: bits 15:14 of the first two words of a packet say that it ends one
(Hexagon V65 Programmer's Reference Manual, "Packets", "End of loop"); its start is given by loop0 or loop1.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sdk.disassembler import Disassembler
from sdk.errors import InvalidArtifact, Unsupported
from sdk.extras import require
from sdk.jumps import beside

TRIPLE = "hexagon-unknown-elf"
LONGEST = 16
"""Bytes of the longest packet, four words."""
PACKETS = 100_000
"""The most packets of a kernel; none of ours has as many."""

_NETWORK = struct.Struct("<12I")
_LAYER = struct.Struct("<4I")
_CALL = struct.Struct("<2I")
_JUMP = re.compile(r"\bjump(?::n?t)? (0x[0-9a-f]+)")
_LOOP = re.compile(r"\bloop([01])\((0x[0-9a-f]+)")
_LEAVES = re.compile(r"^(?:jumpr\b|dealloc_return\b|r31:30 = dealloc_return\b|r\d+:\d+ = dealloc_return\b)")
_CONDITION = re.compile(r"\bif \(")


@dataclass(frozen=True, slots=True)
class Packet:
    """Instructions that execute at once.

    Attributes:
        address: in the ELF file.
        nbytes: of its machine code.
        lines: an instruction each, as LLVM writes it.
        ends: hardware loops that end with it, 0 the inner one.
    """

    address: int
    nbytes: int
    lines: tuple[str, ...]
    ends: tuple[int, ...]

    @property
    def following(self) -> int:
        return self.address + self.nbytes

    @property
    def jumps(self) -> list[int]:
        """Targets of its jumps that name an address, without calls."""
        return [int(found[1], 16) for line in self.lines for found in _JUMP.finditer(line)]

    @property
    def leaves(self) -> bool:
        """Whether the next packet is not executed after it, except as the target of a jump."""
        return any(
            not _CONDITION.search(line)
            and (_JUMP.search(line) is not None or _LEAVES.match(line) is not None)
            for line in self.lines
        )


@dataclass(frozen=True, slots=True)
class Block:
    """Packets that run one after another.

    Attributes:
        packets: at least one.
        successors: addresses of the blocks that may come after it.
    """

    packets: tuple[Packet, ...]
    successors: tuple[int, ...]

    @property
    def address(self) -> int:
        return self.packets[0].address


class Program:
    """The code of a network.

    Args:
        elf: network.elf.
        version: of the DSP, such as v65.

    Attributes:
        end: the address behind its code and data.

    Raises:
        InvalidArtifact: it is not an ELF file for Hexagon.
        EnvironmentMissing: pyelftools or libLLVM is missing.
    """

    def __init__(self, elf: bytes, version: str) -> None:
        require("elftools", extra="compile")
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile

        try:
            file = ELFFile(io.BytesIO(elf))
            loaded = [part for part in file.iter_segments() if part["p_type"] == "PT_LOAD"]
            self._parts = [(int(part["p_vaddr"]), part.data(), bool(part["p_flags"] & 1)) for part in loaded]
            self.end = max((int(part["p_vaddr"] + part["p_memsz"]) for part in loaded), default=0)
            machine = file["e_machine"]
        except (ELFError, ValueError, KeyError) as problem:
            raise InvalidArtifact(
                f"the DSP's code is not an ELF file: {problem}", where="network.elf"
            ) from None
        if machine != "EM_QDSP6":
            raise InvalidArtifact(f"the code is for {machine}, not for Hexagon", where="network.elf")
        self._disassembler = Disassembler(
            "Hexagon", TRIPLE, f"hexagon{version}", f"+hvx{version},+hvx-length128b"
        )

    def kernels(self, memory: Mapping[str, int]) -> list[list[int]]:
        """Addresses of the kernels that each layer calls, in order of layers.

        Args:
            memory: of the plan: weights, arena, margin.

        Raises:
            InvalidArtifact: the table is missing, or points outside of the file.
        """
        for data in (data for _, data, executable in self._parts if not executable):
            for place in range(0, len(data) - _NETWORK.size + 1, 4):
                words = _NETWORK.unpack_from(data, place)
                arena, *sizes = words[1:4]
                if sizes == [memory["margin"], memory["weights"]] and arena >= memory["arena"]:
                    return self._layers(words[7], *words[10:])
        raise InvalidArtifact("the table of calls was not found", where="network.elf")

    def blocks(self, entry: int) -> list[Block]:
        """What can be reached from an address without a call, in order of address.

        Raises:
            InvalidArtifact: it leads to something that is not code.
            Unsupported: there are more than `PACKETS` packets.
        """
        packets: dict[int, Packet] = {}
        leaders = {entry}
        todo = [entry]
        while todo:
            address = todo.pop()
            while address not in packets:
                packet = packets[address] = self.packet(address)
                if len(packets) > PACKETS:
                    raise Unsupported(f"the kernel at {entry:#x} has more than {PACKETS:,} packets")
                leaders.update(packet.jumps)
                todo += packet.jumps
                if packet.leaves:
                    break
                address = packet.following
        return list(_blocks(packets, leaders, _loop_starts(packets)))

    def packet(self, address: int) -> Packet:
        """The packet at an address. Raises InvalidArtifact: there is none."""
        for start, data, executable in self._parts:
            if executable and start <= address < start + len(data):
                code = data[address - start : address - start + LONGEST]
                nbytes, text = self._disassembler.disassemble(code, address)
                if nbytes:
                    lines = (line.strip() for line in re.split("[\n\v]", text))
                    kept = tuple(line for line in lines if line and not line.startswith(":endloop"))
                    return Packet(address, nbytes, kept, tuple(_ends(code[:nbytes])))
        raise InvalidArtifact(f"there is no instruction at {address:#x}", where="network.elf")

    # -- inside -----------------------------------------------------------------------------------------

    def _layers(self, count: int, layers: int, calls: int) -> list[list[int]]:
        found = []
        for number in range(count):
            first, many, _, _ = _LAYER.unpack(self._bytes(layers + number * _LAYER.size, _LAYER.size))
            places = (calls + (first + index) * _CALL.size for index in range(min(many, PACKETS)))
            found.append([_CALL.unpack(self._bytes(place, _CALL.size))[0] for place in places])
        return found

    def _bytes(self, address: int, nbytes: int) -> bytes:
        for start, data, _ in self._parts:
            if start <= address <= start + len(data) - nbytes:
                return data[address - start : address - start + nbytes]
        raise InvalidArtifact(f"it refers to {address:#x}, which is not in the file", where="network.elf")


def _ends(code: bytes) -> Iterator[int]:
    """Hardware loops that end with a packet: parse bits 10 of its first word for 0, of its second for 1."""
    for loop, place in enumerate(range(0, min(len(code), 8), 4)):
        if code[place + 1] >> 6 == 0b10:
            yield loop


def _loop_starts(packets: Mapping[int, Packet]) -> dict[tuple[int, int], int]:
    """Where the loop that a packet ends began: (address of the packet, loop) -> start.

    It is that of the last loop0 or loop1 before it in memory whose start is not behind it.
    """
    found: dict[tuple[int, int], int] = {}
    last: dict[int, int] = {}
    for address in sorted(packets):
        for line in packets[address].lines:
            for loop, start in _LOOP.findall(line):
                last[int(loop)] = int(start, 16)
        for loop in packets[address].ends:
            if last.get(loop, address + 1) <= address:
                found[address, loop] = last[loop]
    return found


def _blocks(
    packets: Mapping[int, Packet], leaders: set[int], loops: Mapping[tuple[int, int], int]
) -> Iterator[Block]:
    leaders = leaders | set(loops.values()) | {packets[place].following for place, _ in loops}
    part: list[Packet] = []
    for address in sorted(packets):
        packet = packets[address]
        part.append(packet)
        ways = [*packet.jumps, *(loops[address, loop] for loop in packet.ends if (address, loop) in loops)]
        if not packet.leaves:
            ways.append(packet.following)
        if packet.leaves or len(ways) > 1 or packet.following in leaders or packet.following not in packets:
            yield Block(tuple(part), tuple(dict.fromkeys(ways)))
            part = []


def labels(blocks: Sequence[Block]) -> dict[int, str]:
    """A name for each block, by address."""
    return {block.address: f"L{number}" if number else "entry" for number, block in enumerate(blocks)}


def shown(block: Block) -> Iterator[str]:
    """Its packets, one instruction per line: each packet is in braces."""
    for packet in block.packets:
        yield from _lines(packet)


def as_text(blocks: Sequence[Block]) -> str:
    """The blocks of a kernel with their addresses, and arrows for jumps and hardware loops."""
    names = labels(blocks)
    lines: list[str] = []
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    for block in blocks:
        starts[block.address] = len(lines)
        lines.append(f"{names[block.address]}:")
        for packet in block.packets:
            first, *more = _lines(packet)
            lines += [f"  {packet.address:6x}  {first}", *(f"{'':10}{line}" for line in more)]
        ends[block.address] = len(lines) - 1
    jumps = (
        (ends[block.address], starts[place])
        for block in blocks
        for place in block.successors
        if place in starts and place != block.packets[-1].following
    )
    return "\n".join(beside(lines, jumps)) + "\n"


def as_data(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """The same for JSON."""
    names = labels(blocks)
    return [
        {
            "label": names[block.address],
            "address": block.address,
            "successors": [names[place] for place in block.successors if place in names],
            "packets": [
                {
                    "address": packet.address,
                    "instructions": list(packet.lines),
                    "ends_loops": list(packet.ends),
                }
                for packet in block.packets
            ],
        }
        for block in blocks
    ]


def _lines(packet: Packet) -> Iterator[str]:
    for index, line in enumerate(packet.lines):
        start = "{ " if index == 0 else "  "
        ends = "".join(f":endloop{loop}" for loop in packet.ends)
        yield f"{start}{line}{' }' + ends if index == len(packet.lines) - 1 else ''}"
