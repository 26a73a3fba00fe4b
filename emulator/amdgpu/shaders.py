"""The shader engines, made when the first wave is to run: booting the card needs no LLVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from emulator.amdgpu.diagnosis import Diagnosis
from emulator.amdgpu.seams import AddressSpace, Dispatch, Outcome
from emulator.amdgpu.vram import Vram
from usbgpu.amd.facts.chips import Chip

if TYPE_CHECKING:
    from emulator.amdgpu.capture import Capture
    from emulator.amdgpu.isa.executor import Executor


class LateShaders:
    """Implements `seams.Shaders` by an executor made at the first dispatch. Resets leave it alone: it keeps
    translated kernels, and nothing of the card's state.

    Args:
        chip: the facts.
        vram: video memory.
        diagnosis: collects mistakes of the driver.
        name: of the kernel at an address, for captures.

    Attributes:
        keep: gets a capture of each dispatch, if it is not None.
        backwards: the order of workgroups and waves, as of `isa.executor.Executor`.
    """

    def __init__(
        self, chip: Chip, vram: Vram, diagnosis: Diagnosis, name: Callable[[int], str] = hex
    ) -> None:
        self._chip = chip
        self._vram = vram
        self._diagnosis = diagnosis
        self._name = name
        self._executor: Executor | None = None
        self.backwards = False
        self.keep: Callable[[Capture], None] | None = None

    def run(self, dispatch: Dispatch, memory: AddressSpace) -> Outcome:
        """See seams.Shaders. Raises EnvironmentMissing: llvmlite, libLLVM or the C compiler is missing."""
        if self._executor is None:
            from emulator.amdgpu.isa.executor import Executor

            self._executor = Executor(self._chip, self._vram, self._diagnosis)
        self._executor.backwards = self.backwards
        if self.keep is None:
            return self._executor.run(dispatch, memory)
        from emulator.amdgpu.capture import Capturing

        return Capturing(self._executor, self._chip.name, self.keep, self._name).run(dispatch, memory)
