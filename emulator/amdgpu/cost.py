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
GENERATIONS = (11, 12)
"""Of the columns of CONSTANTS."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A number of the model.

    Attributes:
        value: by generation (GENERATIONS), or of the chip.
        unit: of the value.
        what: it says.
        grade: inferred (from published specifications and whitepapers) or guess.
    """

    value: tuple[float, float] | Callable[[Chip], float]
    unit: str
    what: str
    grade: Evidence

    def of(self, chip: Chip) -> float:
        """Its value for a chip."""
        if callable(self.value):
            return self.value(chip)
        return self.value[GENERATIONS.index(chip.generation)]


CONSTANTS: Mapping[str, Constant] = {
    "simds": Constant((2, 2), "", "SIMDs of a compute unit", Evidence.INFERRED),
    "wave_slots": Constant((16, 16), "waves", "that a SIMD holds at most", Evidence.INFERRED),
    "vgprs": Constant(
        lambda chip: chip.vgprs, "registers", "of a SIMD, for each of 32 lanes", Evidence.INFERRED
    ),
    "vgpr_granule": Constant(
        lambda chip: chip.vgprs // 64, "registers", "in which a wave is given them", Evidence.INFERRED
    ),
    "lds": Constant((65536, 65536), "bytes", "of LDS for the groups of a compute unit", Evidence.INFERRED),
    "valu_cycles": Constant((1, 1), "cycles", "of a SIMD for a vector instruction", Evidence.INFERRED),
    "wmma_16_cycles": Constant(
        (32, 16), "cycles", "of a SIMD for 16x16x16 of 16 bits (512 and 1024 FLOPS a CU)", Evidence.INFERRED
    ),
    "wmma_8_cycles": Constant(
        (32, 8), "cycles", "of a SIMD for 16x16x16 of 8 bits (512 and 2048 a CU)", Evidence.INFERRED
    ),
    "wmma_4_cycles": Constant(
        (16, 4), "cycles", "of a SIMD for 16x16x16 of 4 bits (1024 and 4096 a CU)", Evidence.INFERRED
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
    "vram_bandwidth": Constant(
        lambda chip: chip.vram_bandwidth, "bytes/s", "of VRAM at its highest clock", Evidence.INFERRED
    ),
    "vram_clock": Constant(
        lambda chip: chip.clocks["UCLK"][-1], "MHz", "UCLK at which it has that bandwidth", Evidence.INFERRED
    ),
    "wave_launch": Constant((1, 1), "cycles", "of a shader engine to start a wave", Evidence.GUESS),
    # gfx11: a chain of 941 tiny dispatches in one command buffer takes 0.82 to 0.88 us a dispatch on a W7900
    # with Mesa's RADV (github.com/ROCm/rocm-systems/issues/10834). With 0.6 us here, and the fence's packets
    # and the kernel charged for besides, such a chain takes 0.87 us. Of gfx12 nothing is published.
    "launch": Constant(
        (0.6e-6, 1.5e-6),
        "s",
        "from a dispatch packet to the first wave, and the end; for gfx12 a guess",
        Evidence.INFERRED,
    ),
    "packet": Constant((80e-9, 80e-9), "s", "of an engine's firmware for a packet", Evidence.GUESS),
    "copy_start": Constant((600e-9, 600e-9), "s", "from a copy packet to the first byte", Evidence.GUESS),
    "copy_bandwidth": Constant((100e9, 100e9), "bytes/s", "of an SDMA engine within VRAM", Evidence.GUESS),
    "link_latency": Constant((1e-6, 1e-6), "s", "of a read beyond PCIe by an engine", Evidence.GUESS),
    "vram_latency": Constant((500e-9, 500e-9), "s", "of a read of VRAM by an engine", Evidence.GUESS),
}


@dataclass(frozen=True, slots=True)
class Work:
    """What a dispatch asks of the card, whatever its clocks are.

    Attributes:
        launch: seconds that no clock changes.
        cycles: of GFXCLK that it takes at least.
        moved: bytes to and from VRAM.
        issuing: cycles in which a SIMD issues, averaged over all of the card.
        share: of the card's SIMDs that get a wave, 0 to 1.
    """

    launch: float
    cycles: float
    moved: float
    issuing: float
    share: float

    def seconds(self, graphics: float, bandwidth: float) -> float:
        """From the dispatch packet until the results are in memory, if it runs alone.

        Args:
            graphics: GFXCLK in MHz.
            bandwidth: of VRAM, in bytes a second.
        """
        return self.launch + max(self.cycles * (1 / (graphics * 1e6)), self.moved / bandwidth)


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
        self._constants = {name: constant.of(chip) for name, constant in CONSTANTS.items()}

    def dispatch(self, outcome: Outcome, dispatch: Dispatch) -> int:
        """Chip clocks from the dispatch packet until the results are in memory, if it runs alone."""
        return self.lasts(self.work(outcome, dispatch))

    def lasts(self, work: Work) -> int:
        """The same for work that is known."""
        bandwidth = self._constants["vram_bandwidth"] * self._memory_speed()
        return clocks(work.seconds(self._clock_mhz("GFXCLK"), bandwidth))

    def work(self, outcome: Outcome, dispatch: Dispatch) -> Work:
        """What a dispatch asks of the card."""
        constant = self._constants
        waves = max(outcome.waves, 1)
        slots = self.waves_per_simd(dispatch)
        simds = min(waves, int(self._chip.compute_units * constant["simds"]))
        units = -(-simds // int(constant["simds"]))
        count = outcome.instructions.get
        vector, matrices = count("valu", 0), count("wmma", 0)
        # What does not say of which type its products are (a capture) is taken for 16 bits.
        products = outcome.products or {16: matrices}
        matrix = sum(constant[f"wmma_{bits}_cycles"] * made for bits, made in products.items())
        shared, memory = count("lds", 0), count("vmem", 0) + count("smem", 0)
        rest = outcome.total - vector - matrices - shared - memory
        # Waves do not always divide evenly: the busiest SIMD has one more.
        uneven = math.ceil(waves / simds) * simds / waves
        on_simd = vector * constant["valu_cycles"] + matrix
        scalar = (rest + count("smem", 0)) * constant["salu_cycles"]
        on_unit = shared * constant["lds_cycles"] + count("vmem", 0) * constant["vmem_cycles"]
        issue = max(max(on_simd, scalar) / simds, on_unit / units) * uneven
        wave = (vector + rest) * constant["dependent"] + matrix
        wave += shared * constant["lds_latency"] + memory * constant["memory_latency"] / constant["overlap"]
        rounds = math.ceil(waves / (simds * slots))
        cache = outcome.read / (units * constant["cache_bytes"])
        engines = min(self._chip.shader_engines, waves)
        starting = waves * constant["wave_launch"] / engines
        cycles = max(issue, wave / waves * rounds, cache, starting)
        everything = self._chip.compute_units * constant["simds"]
        return Work(
            launch=constant["launch"],
            cycles=cycles,
            moved=outcome.written + outcome.read * constant["miss"],
            issuing=max(on_simd, scalar) / everything,
            share=min(waves / everything, 1.0),
        )

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

    def matrix_rate(self, bits: int) -> float:
        """Multiply-adds of WMMA that a compute unit does in a cycle, by bits of an element."""
        return 16**3 * self._constants["simds"] / self._constants[f"wmma_{bits}_cycles"]

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
