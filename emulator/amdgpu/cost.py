"""How long the card's work takes in virtual time: a model of a few constants, not a measurement.

A dispatch lasts as long as the slowest of four bounds, and a launch overhead:

* issue: instructions of each class over the units of the compute units that it can fill;
* latency: a wave alone on its SIMD waits for its own results; more waves on the SIMD hide each other's waits;
* cache: bytes that lanes ask for, over the caches of those compute units;
* memory: bytes that lanes write and the share of reads that misses the caches, over VRAM.

Clocks are what the SMU says now. The constants are in CONSTANTS, each with its grade; `describe` prints them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from emulator.amdgpu.seams import Dispatch, Outcome
from emulator.core.clock import clocks
from sdk.facts.registers import Evidence
from usbgpu.amd.facts.chips import Chip

LANES = 32
"""Of a wave: the model runs wave32 only."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A number of the model.

    Attributes:
        value: by generation, 11 and 12.
        unit: of the value.
        what: it says.
        grade: inferred (from published specifications and whitepapers) or guess.
    """

    value: tuple[float, float]
    unit: str
    what: str
    grade: Evidence


CONSTANTS: Mapping[str, Constant] = {
    "simds": Constant((2, 2), "", "SIMDs of a compute unit", Evidence.INFERRED),
    "wave_slots": Constant((16, 16), "waves", "that a SIMD holds at most", Evidence.INFERRED),
    "vgprs": Constant((1536, 1536), "registers", "of a SIMD, for each of 32 lanes", Evidence.INFERRED),
    "vgpr_granule": Constant((24, 24), "registers", "in which a wave is given them", Evidence.INFERRED),
    "lds": Constant((65536, 65536), "bytes", "of LDS for the groups of a compute unit", Evidence.INFERRED),
    "valu_cycles": Constant((1, 1), "cycles", "of a SIMD for a vector instruction", Evidence.INFERRED),
    "wmma_cycles": Constant(
        (32, 8), "cycles", "of a SIMD for a WMMA of 16x16x16 int8 (512 and 2048 a CU)", Evidence.INFERRED
    ),
    "salu_cycles": Constant(
        (1, 1), "cycles", "of a SIMD for a scalar or any other instruction", Evidence.GUESS
    ),
    "lds_cycles": Constant((1, 1), "cycles", "of a compute unit for an LDS instruction", Evidence.GUESS),
    "vmem_cycles": Constant((2, 2), "cycles", "of a compute unit for a memory instruction", Evidence.GUESS),
    "dependent": Constant(
        (5, 5), "cycles", "until the next instruction of a wave that is alone", Evidence.INFERRED
    ),
    "lds_latency": Constant((30, 30), "cycles", "that a wave waits for LDS", Evidence.GUESS),
    "memory_latency": Constant(
        (250, 250), "cycles", "that a wave waits for memory, caches counted in", Evidence.GUESS
    ),
    "overlap": Constant(
        (4, 4), "instructions", "to memory that a wave has under way at a time", Evidence.GUESS
    ),
    "cache_bytes": Constant(
        (64, 64), "bytes/cycle", "that a compute unit gets out of its caches", Evidence.INFERRED
    ),
    "miss": Constant((1 / 8, 1 / 8), "", "share of the bytes read that comes from VRAM", Evidence.GUESS),
    "vram_bandwidth": Constant((960e9, 640e9), "bytes/s", "of VRAM at its highest clock", Evidence.INFERRED),
    "vram_clock": Constant((1249, 1259), "MHz", "UCLK at which it has that bandwidth", Evidence.INFERRED),
    "wave_launch": Constant((1, 1), "cycles", "of a shader engine to start a wave", Evidence.GUESS),
    "launch": Constant(
        (1.5e-6, 1.5e-6), "s", "from a dispatch packet to the first wave, and the end", Evidence.GUESS
    ),
    "packet": Constant((80e-9, 80e-9), "s", "of an engine's firmware for a packet", Evidence.GUESS),
    "copy_start": Constant((600e-9, 600e-9), "s", "from a copy packet to the first byte", Evidence.GUESS),
    "copy_bandwidth": Constant((100e9, 100e9), "bytes/s", "of an SDMA engine within VRAM", Evidence.GUESS),
    "link_latency": Constant((1e-6, 1e-6), "s", "of a read beyond PCIe by an engine", Evidence.GUESS),
    "vram_latency": Constant((500e-9, 500e-9), "s", "of a read of VRAM by an engine", Evidence.GUESS),
}


class Cost:
    """The model for one card.

    Args:
        chip: whose.
        clock_mhz: what a clock (GFXCLK, UCLK) runs at.
        transfer_clocks: chip clocks that a DMA of that many bytes keeps the link busy.
    """

    def __init__(
        self, chip: Chip, clock_mhz: Callable[[str], int], transfer_clocks: Callable[[int], int]
    ) -> None:
        self._chip = chip
        self._clock_mhz = clock_mhz
        self._transfer_clocks = transfer_clocks
        column = 0 if chip.generation == 11 else 1
        self._constants = {name: constant.value[column] for name, constant in CONSTANTS.items()}

    def dispatch(self, outcome: Outcome, dispatch: Dispatch) -> int:
        """Chip clocks from the dispatch packet until the results are in memory, if it runs alone."""
        constant = self._constants
        cycle = 1 / (self._clock_mhz("GFXCLK") * 1e6)
        waves = max(outcome.waves, 1)
        slots = self.waves_per_simd(dispatch)
        simds = min(waves, int(self._chip.compute_units * constant["simds"]))
        units = -(-simds // int(constant["simds"]))
        count = outcome.instructions.get
        vector, matrix = count("valu", 0), count("wmma", 0)
        shared, memory = count("lds", 0), count("vmem", 0) + count("smem", 0)
        rest = outcome.total - vector - matrix - shared - memory
        # Waves do not always divide evenly: the busiest SIMD has one more.
        uneven = math.ceil(waves / simds) * simds / waves
        on_simd = vector * constant["valu_cycles"] + matrix * constant["wmma_cycles"]
        scalar = (rest + count("smem", 0)) * constant["salu_cycles"]
        on_unit = shared * constant["lds_cycles"] + count("vmem", 0) * constant["vmem_cycles"]
        issue = max(max(on_simd, scalar) / simds, on_unit / units) * uneven
        wave = (vector + rest) * constant["dependent"] + matrix * constant["wmma_cycles"]
        wave += shared * constant["lds_latency"] + memory * constant["memory_latency"] / constant["overlap"]
        rounds = math.ceil(waves / (simds * slots))
        cache = outcome.read / (units * constant["cache_bytes"])
        engines = min(self._chip.shader_engines, waves)
        starting = waves * constant["wave_launch"] / engines
        cycles = max(issue, wave / waves * rounds, cache, starting)
        moved = outcome.written + outcome.read * constant["miss"]
        bandwidth = constant["vram_bandwidth"] * self._memory_speed()
        return clocks(constant["launch"] + max(cycles * cycle, moved / bandwidth))

    def share(self, outcome: Outcome) -> float:
        """Share of the shader array's SIMDs that get a wave of a dispatch, 0 to 1."""
        return min(max(outcome.waves, 1) / (self._chip.compute_units * self._constants["simds"]), 1.0)

    def waves_per_simd(self, dispatch: Dispatch) -> int:
        """Waves of a kernel that fit a SIMD at a time, by its registers and LDS; at least 1."""
        constant = self._constants
        granule = constant["vgpr_granule"]
        registers = ((dispatch.rsrc1 & 0x3F) + 1) * 8
        slots = min(constant["wave_slots"], constant["vgprs"] // (math.ceil(registers / granule) * granule))
        if lds := (dispatch.rsrc2 >> 15 & 0x1FF) * 512:
            groups = constant["lds"] // lds
            slots = min(slots, groups * math.ceil(math.prod(dispatch.threads) / LANES) / constant["simds"])
        return max(int(slots), 1)

    def copy(self, size: int, system: bool) -> int:
        """Chip clocks of an engine's copy or fill of bytes; `system`: one end of it is beyond PCIe."""
        if system:
            return self._transfer_clocks(size)
        return clocks(size / (self._constants["copy_bandwidth"] * self._memory_speed()))

    def copy_start(self) -> int:
        """Chip clocks from a copy packet until its first byte moves."""
        return clocks(self._constants["copy_start"])

    def read(self, system: bool) -> int:
        """Chip clocks of an engine's read of one word; `system`: from beyond PCIe."""
        return clocks(self._constants["link_latency" if system else "vram_latency"])

    def packet(self) -> int:
        """Chip clocks of an engine's firmware for a packet."""
        return clocks(self._constants["packet"])

    def describe(self) -> list[dict[str, str | float]]:
        """The constants for this card: name, value, unit, what, grade."""
        return [
            {
                "name": name,
                "value": self._constants[name],
                "unit": constant.unit,
                "what": constant.what,
                "grade": constant.grade.value,
            }
            for name, constant in CONSTANTS.items()
        ]

    def _memory_speed(self) -> float:
        """Share of its bandwidth that VRAM has at its present clock."""
        return min(self._clock_mhz("UCLK") / self._constants["vram_clock"], 1.0)
