"""How a layer is cut into waves: a small cost formula, and the shape with the lowest cost.

In shader cycles. A wave waits for what it computes (WAIT an instruction) and for memory (LATENCY a load, with
a few under way at a time); many waves hide each other's waits, so that the array as a whole is bound by what
a SIMD issues and by what the caches deliver. Grade: inferred from AMD's RDNA whitepapers, latencies a guess;
where it is off, a layer is slower, never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from usbgpu.amd.facts.chips import Chip

WAIT = 5
LATENCY = 62
LDS_LATENCY = 30
MATRIX = {11: {16: 32, 8: 32}, 12: {16: 16, 8: 8}}
"""Cycles of a SIMD for a WMMA of 16 x 16 x 16, by generation and bits of an element: 512 operations a cycle
of a compute unit on gfx11, 1024 and 2048 on gfx12, as AMD publishes."""
CACHE = 64
"""Bytes a cycle of a compute unit."""
SIMDS = 2
"""Of a compute unit."""
LONG_FINISH = 16
"""Instructions of an element from which an epilogue is long."""
EPILOGUE = 70
"""Instructions that finish 16 channels of 16 pixels."""
FRAME = 60
"""Instructions and waits at a wave's start."""
ENGINES = 6
"""Shader engines at the most; each starts a wave a cycle."""


@dataclass(frozen=True)
class Tiling:
    """A wave makes `tiles` x 16 channels of `pixels` x 16 pixels; `split` waves share the k."""

    tiles: int
    pixels: int
    split: int


def matrix_tiling(chip: Chip, pixels: int, tiles: int, taps: int, steps: int) -> Tiling:
    """The fastest cut of a product of `tiles` x 16 channels, pixels, and taps x steps x 16 bytes of k.

    Of equally fast ones, that with fewer instructions.
    """
    return min(candidates(tiles, steps), key=lambda cut: _cycles(chip, cut, pixels, tiles, taps, steps))


def candidates(tiles: int, steps: int) -> Iterator[Tiling]:
    """The cuts that kernels exist for; larger ones need more registers than their waves have."""
    for t in (1, 2, 4):
        for p in (1, 2, 4):
            for split in (1, 2, 4, 8):
                if tiles % t == 0 and split <= steps and t * p <= (8 if split <= 2 else 4):
                    yield Tiling(t, p, split)


def _cycles(chip: Chip, cut: Tiling, pixels: int, tiles: int, taps: int, steps: int) -> float:
    products = cut.tiles * cut.pixels
    rounds = taps * -(-steps // cut.split)
    matrix = MATRIX[chip.generation][8]
    loads = rounds * (cut.tiles + cut.pixels)
    instructions = FRAME + rounds * 6 + products * EPILOGUE + (taps * cut.pixels * 12 if taps > 1 else 0)
    alone = instructions * WAIT + rounds * products * matrix + loads * LATENCY
    if cut.split > 1:
        alone += (cut.split - 1) * products * 2 * LDS_LATENCY + products * 2 * LDS_LATENCY
    waves = tiles // cut.tiles * -(-pixels // (16 * cut.pixels)) * cut.split
    simds = chip.compute_units * SIMDS
    busy = math.ceil(waves / simds) * (instructions + rounds * products * matrix)
    operand = 512 if chip.generation == 11 else 256
    cache = waves * loads * operand / (min(-(-waves // SIMDS), chip.compute_units) * CACHE)
    # The last term breaks ties: what costs no time still costs power.
    return max(alone, busy, cache, waves / ENGINES) + waves * (instructions + loads) / simds / 8


def strip(chip: Chip, height: int, width: int, quads: int) -> int:
    """Pixels of a row that a work-item of kernels/window.cl makes: as many as leave each SIMD two waves."""
    for pixels in (4, 2):
        if height * -(-(-(-width // pixels) * quads) // 32) >= 2 * SIMDS * chip.compute_units:
            return pixels
    return 1


# -- products of floats -------------------------------------------------------------------------------------

REGISTERS, GRANULE, SLOTS = 1536, 24, 16
"""VGPRs of a SIMD, in which steps waves get them, and waves that it holds."""
LDS = 65536
"""Bytes of a compute unit."""
MISS = 1 / 8
"""Share of what is read that comes from memory."""
MEMORY = {11: 3.9, 12: 3.3}
"""Bytes a cycle for each compute unit, from VRAM: cards of a generation differ little in that."""
LAUNCH = 3700
"""Cycles of a launch beside those of its waves: what less time is worth less than."""


@dataclass(frozen=True)
class Work:
    """A product of floats, for the formula.

    Attributes:
        pixels, tiles: of y in a batch; those of 16 channels.
        steps: of 16 k, of all taps.
        batches: that are computed apart.
        taps: 1 without a window.
        loads: memory instructions for x and for w, a step: of one operand, of two and of four.
        width: bytes of y's elements.
        matrix: whether by WMMA; else by fused multiply-adds, 16 channels of 32 pixels at a time.
        finish: instructions that an epilogue has for an element.
    """

    pixels: int
    tiles: int
    steps: int
    batches: int
    taps: int
    loads: tuple[Mapping[int, int], Mapping[int, int]]
    width: int
    matrix: bool
    finish: int = 0


def product_tiling(chip: Chip, work: Work) -> Tiling:
    """The fastest cut of a product of floats; what is hardly slower and needs less instructions wins."""
    return min(product_cuts(work), key=lambda cut: product_cycles(chip, cut, work))


def product_cuts(work: Work) -> Iterator[Tiling]:
    """The cuts that make sense for a product."""
    sizes = (1, 2, 4) if work.matrix else (1,)
    for t in sizes:
        for p in sizes:
            for split in (1, 2, 4, 8, 16):
                # What an epilogue needs of registers comes on top of the sums.
                if work.finish >= LONG_FINISH and t * p > 4:
                    continue
                needed = t < 2 * work.tiles and 16 * p < 2 * work.pixels + 16 and split <= work.steps
                if needed and (split - 1) * t * p * (1024 if work.matrix else 2048) <= LDS:
                    yield Tiling(t, p, split)


def product_cycles(chip: Chip, cut: Tiling, work: Work) -> float:
    """Shader cycles of a product: the longest of what bounds it."""
    wide = 8 if chip.generation == 11 else 4
    lane = 16 if work.matrix else 32
    products, rounds = cut.tiles * cut.pixels, -(-work.steps // cut.split)
    columns = -(-work.pixels // (lane * cut.pixels))
    of_x, of_w = rounds * work.loads[0][cut.pixels], rounds * work.loads[1][cut.tiles]
    memory = of_x + of_w
    simds, shared = chip.compute_units * SIMDS, 0.0
    vector = FRAME + products * (25 + 8 * work.finish) / cut.split
    if work.taps > 1:
        vector += -(-work.taps // cut.split) * cut.pixels * 8
    matrix = rounds * products * MATRIX[chip.generation][16]
    if not work.matrix:
        vector, matrix = vector + rounds * 256, 0
    rest = FRAME + rounds * (6 + (cut.tiles + cut.pixels) * 1.3)
    if cut.split > 1:
        shared = products * 4 * (cut.split - 1) / cut.split
    alone = (vector + rest) * WAIT + matrix + memory * LATENCY + shared * LDS_LATENCY

    waves = work.batches * -(-work.tiles // cut.tiles) * columns * cut.split
    registers = 8 * products + wide * (cut.tiles + cut.pixels) + 21
    slots = min(SLOTS, REGISTERS // (-(-registers // GRANULE) * GRANULE))
    if cut.split > 1:
        slots = max(1, min(slots, LDS // ((cut.split - 1) * products * 1024) * cut.split // SIMDS))
    used = min(waves, simds)
    units = -(-used // SIMDS)
    busy = math.ceil(waves / used) * max(vector + matrix, rest)
    exist = work.pixels / (columns * lane * cut.pixels)  # beyond the last pixel nothing is loaded
    loaded = (of_w + of_x * exist) * 512
    cache = waves * loaded / (units * CACHE)
    written = work.batches * work.tiles * 16 * work.pixels * work.width
    moved = (written + waves * loaded * MISS) / (chip.compute_units * MEMORY[chip.generation])
    longest = max(alone * math.ceil(waves / (used * slots)), busy, cache, moved, waves / ENGINES)
    return LAUNCH + longest + waves * (vector + rest + memory) / simds / 8


# -- recurrences --------------------------------------------------------------------------------------------

PAIR = 2
"""Compute units that share a workgroup's waves: a work-group processor."""
BARRIER = 60
"""Cycles from the first wave that waits to all that go on, and what is finished between by some."""
GROUP_LIMIT = 1024
"""Work-items of a workgroup."""
BESIDE = 56
"""Registers of a wave for all but weights."""


@dataclass(frozen=True)
class Recurrence:
    """A recurrence, for the formula.

    Attributes:
        channels, rows: of a state.
        steps: of the sequence.
        stages: products of a channel and the vectors they multiply, for each part of a step that needs all
            channels of the one before.
        width: bytes of a weight.
    """

    channels: int
    rows: int
    steps: int
    stages: tuple[tuple[int, int], ...]
    width: int


def pieces(channels: int, width: int, split: int) -> int:
    """Loads of 16 bytes that each of `split` work-items needs for a row of weights of `width` bytes."""
    whole = -(-channels * width // 16)
    return -(-whole // split)


@dataclass(frozen=True)
class RecurrentCut:
    """A workgroup makes `channels` of a row; `split` work-items share each of them.

    Attributes:
        whole: one launch makes all steps: a workgroup has all channels.
        held: weights stay in registers from step to step.
    """

    channels: int
    split: int
    whole: bool
    held: bool


def recurrent_tiling(chip: Chip, work: Recurrence) -> tuple[RecurrentCut, float] | None:
    """The fastest cut of a recurrence, and its cycles; None if a state has no room in LDS."""
    times = {cut: recurrent_cycles(chip, cut, work) for cut in recurrent_cuts(chip, work)}
    return min(times.items(), key=lambda item: item[1]) if times else None


def recurrent_cuts(chip: Chip, work: Recurrence) -> Iterator[RecurrentCut]:
    """The cuts that there is room for."""
    whole = -(-work.channels // 32) * 32
    sizes = {8, 16, 32, 64, whole}
    for channels in sorted(size for size in sizes if size <= min(whole, GROUP_LIMIT)):
        for split in (1, 2, 4, 8, 16, 32):
            threads = channels * split
            if not 32 <= threads <= GROUP_LIMIT or (
                split > 1 and _pieces(work, split) == _pieces(work, split // 2)
            ):
                continue
            if _recurrent_lds(work, channels, split) > LDS:
                continue
            yield RecurrentCut(channels, split, whole=False, held=False)
            if channels == whole:
                yield RecurrentCut(channels, split, whole=True, held=False)
                waves = -(-threads // 32)
                registers = min(chip.vgprs * PAIR * SIMDS // max(waves, PAIR * SIMDS), 256) - BESIDE
                if 4 * _pieces(work, split) * sum(dots for dots, _ in work.stages) <= registers:
                    yield RecurrentCut(channels, split, whole=True, held=True)


def _pieces(work: Recurrence, split: int) -> int:
    return pieces(work.channels, work.width, split)


def _recurrent_lds(work: Recurrence, channels: int, split: int) -> int:
    vectors = sum(vectors for _, vectors in work.stages)
    length = _pieces(work, split) * split * 16 // work.width
    return 4 * (vectors * length + (split - 1) * max(dots for dots, _ in work.stages) * channels)


def recurrent_cycles(chip: Chip, cut: RecurrentCut, work: Recurrence) -> float:
    """Shader cycles of a recurrence: of each stage the longest of what bounds it, and its launch."""
    groups = -(-work.channels // cut.channels) * work.rows
    waves = -(-cut.channels * cut.split // 32)
    pairs = min(groups, chip.compute_units // PAIR)
    count, per = _pieces(work, cut.split), 16 // work.width
    total = float(LAUNCH) if cut.whole else 0.0
    for dots, vectors in work.stages:
        loads = 0 if cut.held else count * dots
        shared = vectors * count * per / 4 + dots * 2
        vector = FRAME + count * dots * per + 3 * EPILOGUE / cut.split + 2 * dots
        alone = vector * WAIT + shared * LDS_LATENCY + loads * LATENCY
        busy = groups * waves * vector / (pairs * min(waves, PAIR * SIMDS))
        loading = groups * waves * dots * count * 512 / (min(groups * PAIR, chip.compute_units) * CACHE)
        cache = 0.0 if cut.held else loading
        moved = groups * waves * loads * 512 * MISS / (chip.compute_units * MEMORY[chip.generation])
        each = max(alone * -(-groups // pairs), busy, cache, moved) + 2 * BARRIER
        if cut.held:
            total += max(dots * count * LATENCY, loading)
        if not cut.whole:
            each += LAUNCH + vectors * -(-work.channels // (cut.channels * cut.split)) * LATENCY + LATENCY
        total += work.steps * each
    return total
