"""The code that a kernel can reach, as basic blocks.

Addresses count from the kernel's entry, so that the same code is the same wherever it is loaded. Where a
call goes is followed from s_getpc_b64 through the additions of constants that compilers put after it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from emulator.amdgpu.isa.decode import LONGEST, Decoder, Undecodable
from emulator.amdgpu.isa.emit import Refused
from emulator.amdgpu.isa.operands import SCALARS, Instruction

Fetch = Callable[[int, int], bytes]
"""Reads code: address from the kernel's entry, bytes. Raises PageFault."""

CHUNK = 256
"""Bytes that are fetched at a time. Kernels start at a multiple of 256, so no chunk lies in two pages."""

LIMIT = 1 << 17
"""Instructions of the largest kernel; more are code that runs into data."""

ENDS = frozenset({"s_endpgm", "s_endpgm_saved", "s_endpgm_ordered_ps_done", "s_trap"})
"""Nothing follows these; the model has no trap handler that would come back."""

DEPTH = 256
"""Calls within calls, as far as they are followed."""
CALL = "s_swappc_b64"
JUMP = "s_setpc_b64"
_ADDITIONS = frozenset({"s_add_u32", "s_add_co_u32", "s_add_i32", "s_add_co_i32"})


@dataclass(frozen=True)
class Block:
    """Instructions that are entered at the first and left after the last.

    Attributes:
        instructions: at least one.
        successors: addresses of the blocks that may follow; a jump to a register names all candidates.
    """

    instructions: tuple[Instruction, ...]
    successors: tuple[int, ...]

    @property
    def start(self) -> int:
        return self.instructions[0].address

    @property
    def last(self) -> Instruction:
        return self.instructions[-1]


@dataclass(frozen=True)
class Program:
    """A kernel.

    Attributes:
        blocks: by address, in order of address.
        chunks: the code that was fetched, by address, each CHUNK bytes.
        entries: addresses that a jump to a register may go to.
    """

    blocks: Mapping[int, Block]
    chunks: Mapping[int, bytes]
    entries: tuple[int, ...]

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """All of them, by address."""
        return tuple(part for block in self.blocks.values() for part in block.instructions)


class _Reader:
    """Fetches chunks and decodes out of them."""

    def __init__(self, decoder: Decoder, fetch: Fetch) -> None:
        self.decoder = decoder
        self.fetch = fetch
        self.chunks: dict[int, bytes] = {}

    def instruction(self, address: int) -> Instruction:
        data = self._bytes(address)
        try:
            found = self.decoder.decode(data, address)
        except Undecodable as problem:
            raise Refused(address, str(problem)) from None
        if found.size > CHUNK - address % CHUNK:
            self._chunk(address + found.size - 1)
        return found

    def _bytes(self, address: int) -> bytes:
        """The bytes there; those of the next chunk only if the instruction may need them."""
        data = self._chunk(address)[address % CHUNK :]
        if len(data) < LONGEST and not self.decoder.disassemble(data)[0]:
            data += self._chunk(address + CHUNK)
        return data

    def _chunk(self, address: int) -> bytes:
        start = address - address % CHUNK
        if start not in self.chunks:
            self.chunks[start] = self.fetch(start, CHUNK)
        return self.chunks[start]


def read(decoder: Decoder, fetch: Fetch) -> Program:
    """Decode all that can be reached from address 0.

    Raises:
        PageFault: code is not mapped.
        Refused: bytes that are not an instruction, or a call whose target is not known.
    """
    reader = _Reader(decoder, fetch)
    found: dict[int, Instruction] = {}
    leaders = {0}
    todo = [0]
    for _ in range(DEPTH):
        while todo:
            _follow(todo.pop(), reader, found, leaders, todo)
        targets = _indirect(found, leaders)
        todo.extend({target for candidates in targets.values() for target in candidates} - leaders)
        if not todo:
            return _blocks(found, leaders, targets, reader.chunks)
        leaders |= set(todo)
    raise Refused(min(todo), f"calls within calls, nested more than {DEPTH} deep")


def _follow(
    address: int, reader: _Reader, found: dict[int, Instruction], leaders: set[int], todo: list[int]
) -> None:
    """Decode from an address until the flow ends or joins what is known."""
    while address not in found:
        if len(found) >= LIMIT:
            raise Refused(address, f"more than {LIMIT} instructions: the code runs into something else")
        here = found[address] = reader.instruction(address)
        if here.mnemonic.startswith(("s_cbranch_", "s_branch")):
            leaders |= {here.target, here.end}
            todo.append(here.target)
        if here.mnemonic in (*ENDS, "s_branch", JUMP):
            return
        if here.mnemonic == CALL:
            leaders.add(here.end)
        address = here.end
    leaders.add(address)  # of code that was read in two ways, one may run into the other


def _indirect(found: Mapping[int, Instruction], leaders: set[int]) -> dict[int, set[int]]:
    """Candidates for the targets of calls and jumps, by their address.

    What a block computes before it calls is exact. A pointer that comes from elsewhere may be any that any
    block ever left in that register, and a jump through a register that holds none is a return.
    """
    left: dict[int, set[int]] = {}  # by the low register of a pair
    users: list[tuple[Instruction, int | None]] = []
    pointers: dict[int, tuple[int, bool]] = {}  # of the block: address, and whether it is complete
    copies: set[tuple[int, int]] = set()
    for here in sorted(found.values(), key=lambda each: each.address):
        if here.address in leaders:
            pointers = {}
        if here.mnemonic in (CALL, JUMP):
            value, complete = pointers.get(here.operands[-1].index, (0, False))
            users.append((here, value if complete else None))
        _step(here, pointers, left, copies)
    if not users:
        return {}
    for _ in range(SCALARS):  # no chain of copies is longer
        for target, source in copies:
            left.setdefault(target, set()).update(left.get(source, ()))
    returns = {here.end for here, _ in users if here.mnemonic == CALL}
    known = {}
    for here, exact in users:
        candidates = {exact} if exact is not None else left.get(here.operands[-1].index, set())
        if not candidates and here.mnemonic == JUMP:
            candidates = returns
        if not candidates:
            raise Refused(here.address, f"{here.text}: where it goes is not known before it runs", here)
        known[here.address] = set(candidates)
    return known


def _step(
    here: Instruction,
    pointers: dict[int, tuple[int, bool]],
    left: dict[int, set[int]],
    copies: set[tuple[int, int]],
) -> None:
    """What one instruction does to the pointers of its block."""
    name, operands = here.mnemonic, here.operands
    if not operands or operands[0].kind != "s":
        return
    target = operands[0].index
    source = operands[1].index if len(operands) > 1 and operands[1].kind == "s" else -1
    if name == "s_getpc_b64":
        pointers[target] = (here.end, False)
    elif name in _ADDITIONS and operands[2].constant and source in pointers:
        step = struct.unpack("<i", struct.pack("<I", int(operands[2].value) & 0xFFFF_FFFF))[0]
        pointers[target] = (pointers[source][0] + step, True)
        left.setdefault(target, set()).add(pointers[target][0])
    elif name in ("s_mov_b32", "s_mov_b64") and source >= 0:
        copies.add((target, source))
        if source in pointers:
            pointers[target] = pointers[source]
    else:
        pointers.pop(target, None)


def _blocks(
    found: Mapping[int, Instruction],
    leaders: set[int],
    targets: Mapping[int, set[int]],
    chunks: Mapping[int, bytes],
) -> Program:
    blocks: dict[int, Block] = {}
    for start in sorted(leaders & found.keys()):
        run = [found[start]]
        follows = _successors(run[-1], targets)
        while follows == (run[-1].end,) and run[-1].end not in leaders and run[-1].mnemonic != CALL:
            run.append(found[run[-1].end])
            follows = _successors(run[-1], targets)
        blocks[start] = Block(tuple(run), follows)
    entries = sorted({target for candidates in targets.values() for target in candidates})
    return Program(blocks, dict(sorted(chunks.items())), tuple(entries))


def _successors(here: Instruction, targets: Mapping[int, set[int]]) -> tuple[int, ...]:
    if here.mnemonic in ENDS:
        return ()
    if here.address in targets:
        return tuple(sorted(targets[here.address]))
    if here.mnemonic == "s_branch":
        return (here.target,)
    if here.mnemonic.startswith("s_cbranch_"):
        return (here.target, here.end)
    return (here.end,)
