"""The shader executor measured: its speed, its first use of a kernel, and its results against numpy.

Times are wall time of the host; the first use is that of a kernel which no cache has seen, code object apart.
"""

from __future__ import annotations

import time
from typing import Any

from emulator.amdgpu.capture import Capture, Capturing
from emulator.amdgpu.code_object import CodeObject
from emulator.amdgpu.cost import Cost
from emulator.amdgpu.diagnosis import Diagnosis
from emulator.amdgpu.isa import table
from emulator.amdgpu.isa.executor import Executor
from emulator.amdgpu.kernels import build
from emulator.amdgpu.kernels.cases import CASES, case
from emulator.amdgpu.kernels.launch import place
from emulator.amdgpu.scoreboard import Record, Scoreboard
from emulator.amdgpu.seams import Outcome
from emulator.amdgpu.vram import Vram
from emulator.core.clock import clocks
from sdk import cache
from sdk.errors import InternalError, UsageError
from usbgpu.amd.facts.chips import CHIPS

CHIP = "gfx1100"
"""Whose speed is measured."""
MEMORY = 64 << 20
SECONDS = 1.0
"""How long a rate is measured, at least."""
LARGE = {"gemm_dot4": {"m": 512, "n": 512, "k": 512}, "alu": {"items": 4096, "rounds": 4000}}
"""Sizes of the kernels whose rates are measured."""
LINK_BYTES_PER_SECOND = 1.6e9
"""Of the link in the cost model when no bridge is there (grade: guess)."""


class Runner:
    """Runs cases on an executor, without a card around it.

    Args:
        chip: name of the GPU.

    Attributes:
        scoreboard: of what it ran, at the clocks of the highest levels.

    Raises:
        UsageError: there is no such chip.
        EnvironmentMissing: something that the executor needs is not installed.
    """

    def __init__(self, chip: str) -> None:
        if chip not in CHIPS:
            raise UsageError(f"there is no emulated GPU {chip!r}", hint=f"GPUs: {', '.join(CHIPS)}")
        self.chip = chip
        self.scoreboard = Scoreboard()
        self.cost = Cost(
            CHIPS[chip],
            lambda clock: CHIPS[chip].clocks[clock][-1],
            lambda size: clocks(size / LINK_BYTES_PER_SECOND),
        )
        self._vram = Vram(MEMORY)
        self._executor = Executor(CHIPS[chip], self._vram, Diagnosis(lambda: 0))
        self._now = 0

    def check(self, kernel: str) -> int:
        """Run a kernel's case; how many elements are wrong. Raises UsageError, InternalError."""
        return self._run(kernel, self._executor)

    def capture(self, kernel: str) -> tuple[Capture, int]:
        """Run a kernel's case; what replays it, and how many elements are wrong."""
        captures: list[Capture] = []
        capturing = Capturing(self._executor, self.chip, captures.append, lambda code: kernel)
        mismatches = self._run(kernel, capturing)
        return captures[0], mismatches

    def rate(self, kernel: str) -> tuple[int, float]:
        """Wave-instructions a second of wall time, sustained, translation apart; the share of vector ones."""
        one = case(kernel, **LARGE[kernel])
        placed = place(one, self._code(kernel), self._vram)
        outcome = self._good(kernel, placed.run(self._executor))
        if wrong := one.mismatches(placed.results()):
            raise InternalError(
                f"{kernel} at the benchmark's size has {wrong} wrong elements", where=self.chip
            )
        started, count = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - started) < SECONDS:
            count += self._executor.run(placed.dispatch, placed.memory).total
        vector = sum(outcome.instructions[kind] for kind in ("valu", "wmma"))
        return round(count / elapsed), round(vector / outcome.total, 3)

    def first_use(self, kernel: str) -> float:
        """Wall seconds of the first launch of a kernel that neither this process nor a cache has seen."""
        placed = place(case(kernel), self._code(kernel), self._vram)
        with cache.empty():
            started = time.perf_counter()
            self._good(kernel, self._executor.run(placed.dispatch, placed.memory))
            return time.perf_counter() - started

    def _run(self, kernel: str, shaders: Executor | Capturing) -> int:
        one = case(kernel)
        placed = place(one, self._code(kernel), self._vram)
        outcome = self._good(kernel, placed.run(shaders))
        end = self._now + self.cost.dispatch(outcome, placed.dispatch)
        self.scoreboard.dispatched(Record(placed.dispatch, outcome, self._now, end, name=kernel))
        self._now = end
        return one.mismatches(placed.results())

    def _code(self, kernel: str) -> CodeObject:
        return build.build(case(kernel).source, self.chip)

    def _good(self, kernel: str, outcome: Outcome) -> Outcome:
        if outcome.fault is not None:
            raise InternalError(f"{kernel} faults: {outcome.fault.text}", where=self.chip)
        return outcome


def measure() -> dict[str, Any]:
    """Measure, and check all kernels on all chips.

    Returns:
        `wave_instructions_per_second.{dot4_gemm,alu}` and `first_use_seconds` on `chip`;
        `vector_share` (of the instructions that those rates count; the rest is cheap), and
        `kernels[].{name,chip,mismatches}`; by chip: `scoreboard`, `instructions` (by encoding, how many there
        are, are implemented, are emitted by clang, and what is emitted but missing), `cost` (the model's
        constants).

    Raises:
        ToolMissing, EnvironmentMissing: clang, lld, libLLVM or a package is missing.
    """
    kernels: list[dict[str, Any]] = []
    scoreboards: dict[str, Any] = {}
    instructions: dict[str, Any] = {}
    costs: dict[str, Any] = {}
    for chip in CHIPS:
        runner = Runner(chip)
        kernels += [{"name": name, "chip": chip, "mismatches": runner.check(name)} for name in CASES]
        scoreboards[chip] = runner.scoreboard.document()
        instructions[chip] = [
            {
                "encoding": row.encoding,
                "exist": len(row.exist),
                "implemented": len(row.implemented),
                "emitted": len(row.emitted),
                "emitted_but_missing": sorted(set(row.emitted) - set(row.implemented)),
            }
            for row in table.table(chip, CHIPS[chip].generation)
        ]
        costs[chip] = runner.cost.describe()
    runner = Runner(CHIP)
    gemm, alu = runner.rate("gemm_dot4"), runner.rate("alu")
    return {
        "chip": CHIP,
        "wave_instructions_per_second": {"dot4_gemm": gemm[0], "alu": alu[0]},
        "vector_share": {"dot4_gemm": gemm[1], "alu": alu[1]},
        "first_use_seconds": round(Runner(CHIP).first_use("gemm_dot4"), 3),
        "kernels": kernels,
        "scoreboard": scoreboards,
        "instructions": instructions,
        "cost": costs,
    }
