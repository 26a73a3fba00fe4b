"""Launches of the AMD target's kernels on the shader executor alone, without a card around it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emulator.amdgpu.code_object import parse
from emulator.amdgpu.cost import Cost
from emulator.amdgpu.diagnosis import Diagnosis
from emulator.amdgpu.isa.executor import Executor
from emulator.amdgpu.kernels.cases import Array, Case
from emulator.amdgpu.kernels.launch import place
from emulator.amdgpu.seams import Outcome
from emulator.amdgpu.vram import Vram
from emulator.core.clock import seconds
from sdk.errors import InternalError
from sdk.opencl.calls import KernelSource
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.target.build import code_object, headers, units_of


@dataclass(frozen=True)
class Run:
    """What a launch did.

    Attributes:
        arrays: what is behind each pointer now.
        outcome: its counts.
        virtual_us: its time by the cost model, at the highest clocks.
        scratch: bytes that a work-item keeps in memory because registers do not suffice.
    """

    arrays: list[Array | None]
    outcome: Outcome
    virtual_us: float
    scratch: int


class Shaders:
    """The executor of a chip, with memory of its own.

    Args:
        chip: its name.
        memory: bytes.

    Raises:
        EnvironmentMissing: something that the executor needs is not installed.
    """

    def __init__(self, chip: str, memory: int) -> None:
        self.chip = CHIPS[chip]
        self.clocks = {name: levels[-1] for name, levels in CHIPS[chip].clocks.items()}
        self.cost = Cost(self.chip, self.clocks.__getitem__, lambda size: size)
        self._vram = Vram(memory)
        self._executor = Executor(self.chip, self._vram, Diagnosis(lambda: 0))

    def run(
        self,
        kernel: KernelSource,
        groups: tuple[int, int],
        pointers: Sequence[Array | None],
        words: Sequence[int | float],
    ) -> Run:
        """Run a kernel, given what `usbgpu.target.calls.Call` has of it; arrays are copied.

        Raises:
            InternalError: a wave faulted, or wrote outside of the arrays.
            ToolMissing, BuildFailed: it cannot be compiled.
        """
        (unit,) = units_of([kernel])
        symbol = unit.symbols[kernel]
        code = parse(code_object(unit, self.chip.name, headers()))
        data = b"".join(
            struct.pack("<f", word) if isinstance(word, float) else struct.pack("<I", word & 0xFFFFFFFF)
            for word in words
        )
        arguments: dict[str, Any] = {
            f"pointer {number}": 0 if array is None else array for number, array in enumerate(pointers)
        }
        described = code.kernels[symbol]
        if described.arguments[len(pointers)].size != len(data):
            raise InternalError(f"{len(data)} bytes of arguments do not fit", where=kernel.symbol)
        arguments["words"] = int.from_bytes(data, "little")
        case = Case(symbol, kernel.source, (*groups, 1), (kernel.threads, 1, 1), arguments, {})
        placed = place(case, code, self._vram)
        outcome = placed.run(self._executor)
        if outcome.fault is not None:
            raise InternalError(f"a wave faulted: {outcome.fault.text}", where=kernel.symbol)
        results = placed.results()
        found = [results.get(f"pointer {number}") for number in range(len(pointers))]
        virtual = seconds(self.cost.dispatch(outcome, placed.dispatch)) * 1e6
        return Run(found, outcome, virtual, described.scratch)
