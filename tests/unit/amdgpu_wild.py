"""Wild kernels: random instructions on random registers, run until something stops them.

    python -m tests.unit.amdgpu_wild CHIP FIRST COUNT

runs that many seeds and prints how they ended. A process of its own, so that its death is seen.
"""

import collections
import random
import sys
from collections.abc import Sequence

from emulator.amdgpu.isa import ir, jit, table
from emulator.amdgpu.isa.decode import Undecodable, decoder
from emulator.amdgpu.isa.emit import Emitter, Mode, Refused, carry_out, find
from emulator.amdgpu.isa.operands import Instruction
from emulator.amdgpu.seams import Dispatch
from tests.unit.amdgpu_shader_bench import BASE, CODE, PRIVATE, SCRATCH, SHARED, SIZE, Bench

VALUES = BASE + (1 << 20)
"""Where a kernel's first registers come from."""
END = 0xBFB00000
EDGES = (
    0, 1, -1, 1 << 31, 1 << 32, 1 << 63, (1 << 47) - 4, SHARED << 32, PRIVATE << 32, VALUES, VALUES + 3,
    BASE, BASE - 4, BASE + 1, BASE + SIZE - 1, BASE + SIZE - 60, BASE + SIZE, BASE + (2 << 20) - 2,
)  # fmt: skip
FLATS = {"FLAT", "GLOBAL", "SCRATCH"}


def prologue(new: bool) -> list[int]:
    """s[16:31] and v[0:15] from the values that s[0:1] points to."""
    if new:
        loads = [0xF4008400, 0xF8000000]  # s_load_b512 s[16:31], s[0:1], 0x0
        loads += [0x30020084]  # v_lshlrev_b32 v1, 4, v0
        for at in range(2, 16, 4):  # global_load_b128 v[at:at+3], v1, s[0:1] offset:
            loads += [0xEE05C000, at, 1 | 64 * at << 8]
        return loads
    loads = [0xF4100400, 0xF8000000, 0x30020084]
    for at in range(2, 16, 4):
        loads += [0xDC5E0000 | 64 * at, at << 24 | 1]
    return loads


class Writer:
    """Random instructions of a chip."""

    def __init__(self, chip: str, generation: int) -> None:
        self.decoder = decoder(chip)
        self.generation = generation
        self.encodings = [*table.VALU, *table.SALU, *table.MEMORY[generation]]

    def instruction(self, draw: random.Random) -> bytes:
        """One that has semantics, in some form; 16 bytes were drawn for it."""
        while True:
            encoding = draw.choice(self.encodings)
            used = encoding.base | ((1 << encoding.width) - 1) << encoding.shift
            word = draw.getrandbits(128) & ~used & ~(0xFE << 24 if used < 1 << 32 and used > 1 << 30 else 0)
            word |= encoding.base | draw.getrandbits(encoding.width) << encoding.shift
            word = self._tamed(draw, encoding.name, word)
            data = word.to_bytes(16, "little")
            try:
                found = self.decoder.decode(data, 0)
            except Undecodable:
                continue
            parts = found.pair or (found,)
            if found.mnemonic.startswith("s_endpgm") and draw.random() < 0.95:
                continue
            if not all(find(part.mnemonic, self.generation) for part in parts):
                continue
            if not found.mnemonic.startswith("v_") or draw.random() < 0.02 or self._accepted(parts):
                return data[: found.size]

    def _accepted(self, parts: Sequence[Instruction]) -> bool:
        """Whether the vector instruction's modifiers are implemented: few random ones are."""
        e = Emitter(ir.Builder(), self.generation, Mode())
        e.begin_block()
        try:
            for part in parts:
                carry_out(e, part)
        except Refused:
            return False
        return True

    def _tamed(self, draw: random.Random, name: str, word: int) -> int:
        """Mostly small offsets and valid bases: else the first access ends the kernel."""

        def put(low: int, width: int, value: int) -> None:
            nonlocal word
            word = word & ~(((1 << width) - 1) << low) | value << low

        new = self.generation >= 12
        if name == "SOPP":
            put(0, 16, draw.randrange(-12, 12) & 0xFFFF if draw.random() < 0.9 else draw.getrandbits(16))
        elif name == "SMEM" and draw.random() < 0.8:
            put(0, 6, 0)
            put(32, 21, draw.randrange(64))
            put(57, 7, 0x7C)
        elif name == "DS" and draw.random() < 0.7:
            put(32, 8, 0)
        elif name in FLATS and draw.random() < 0.8:
            saddr = 0 if name == "GLOBAL" else 0x7C
            put(*((0, 7) if new else (48, 7)), saddr)
            put(*((64, 8) if new else (32, 8)), draw.choice((0, 1)))
            put(*((72, 24) if new else (0, 13)), draw.randrange(4096))
        return word


def code(writer: Writer, draw: random.Random, seed: int) -> bytes:
    if seed % 16 == 0:
        return draw.randbytes(256)
    words = b"".join(word.to_bytes(4, "little") for word in prologue(writer.generation >= 12))
    body = [writer.instruction(draw) for _ in range(draw.choice((4, 12, 40)))]
    if seed % 16 == 1:  # damaged
        body[draw.randrange(len(body))] = draw.randbytes(4)
    return words + b"".join(body) + END.to_bytes(4, "little")


def run(bench: Bench, writer: Writer, seed: int) -> str:
    """How a seed ended."""
    draw = random.Random(f"{bench.chip.name} {seed}")
    values = [
        draw.choice(EDGES) + draw.randrange(-8, 8) if draw.random() < 0.4 else draw.getrandbits(64)
        for _ in range(256)
    ]
    bench.vram.write(VALUES - BASE, b"".join((value % (1 << 64)).to_bytes(8, "little") for value in values))
    text = bytearray(code(writer, draw, seed))
    user = (VALUES & 0xFFFF_FFFF, VALUES >> 32, *(draw.getrandbits(32) for _ in range(14)))
    threads = draw.choice(((32, 1, 1), (1, 1, 1), (33, 1, 1), (4, 4, 5), (1024, 1, 1)))
    lds = draw.choice((0, 1, 128))
    rsrc2 = 16 << 1 | draw.getrandbits(4) << 7 | draw.getrandbits(2) << 11 | lds << 15
    rsrc1 = 0x1F | (0xC0 | (0x30 if draw.random() < 0.8 else 0)) << 12 | draw.getrandbits(1) << 21
    bench.space.piece = draw.choice((1 << 26, 4096, 1 << 16))
    bench.space.holes = [] if draw.random() < 0.5 else [(2 << 20, 3 << 20)]
    shared, private = draw.choice(((SHARED, PRIVATE), (0, 0)))
    dispatch = Dispatch(
        BASE + CODE, (draw.choice((1, 2, 3)), 1, draw.choice((1, 2))), threads, user, rsrc1, rsrc2, 0,
        BASE + SCRATCH, draw.choice((0, 1024, 1 << 16)), shared, private,
    )  # fmt: skip
    for _ in range(64):
        bench.vram.write(CODE, bytes(text) + bytes(512))
        before = bytes(bench.vram.memory[: 4 << 20])
        outcome = bench.executor.run(dispatch, bench.space)
        assert bytes(bench.vram.memory[: 4 << 20]) == before
        assert all(address >= 0 and data for address, data in outcome.writes)
        assert all(count >= 0 for count in outcome.instructions.values()), outcome
        fault = outcome.fault
        if fault is None:
            return "end"
        at = fault.pc - dispatch.code
        if fault.kind != "instruction" or outcome.waves or seed % 16 == 0 or not 0 <= at < len(text) - 4:
            break
        text[at : at + 4] = b"\0\0\x80\xbf"  # s_nop: refuse the next one
    return fault.kind


def main() -> None:
    chip, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    jit.keep = lambda name, data: None  # not used again
    ends = collections.Counter()
    bench = Bench(chip, budget=3000)
    writer = Writer(chip, bench.chip.generation)
    for seed in range(first, first + count):
        print(f"seed {seed}", file=sys.stderr, flush=True)
        ends[run(bench, writer, seed)] += 1
    print(*(f"{kind}: {number}" for kind, number in sorted(ends.items())), sep=", ")


if __name__ == "__main__":
    main()
