"""How a layer is cut into waves: a small cost formula, and the shape with the lowest cost.

In shader cycles. A wave waits for what it computes (WAIT an instruction) and for memory (LATENCY a load, with
a few under way at a time); many waves hide each other's waits, so that the array as a whole is bound by what
a SIMD issues and by what the caches deliver. Grade: inferred from AMD's RDNA whitepapers, latencies a guess;
where it is off, a layer is slower, never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from usbgpu.amd.facts.chips import Chip

WAIT = 5
LATENCY = 62
LDS_LATENCY = 30
MATRIX = {11: 32, 12: 8}
"""Cycles of a SIMD for a WMMA of 16 x 16 x 16 int8: on gfx11 the rate of dot4, on gfx12 four times that."""
CACHE = 64
"""Bytes a cycle of a compute unit."""
SIMDS = 2
"""Of a compute unit."""
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
    matrix = MATRIX[chip.generation]
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
