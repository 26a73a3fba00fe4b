"""A GPU of the runtime on the emulated card, without a bridge: the base of its tests."""

from __future__ import annotations

import numpy as np

from emulator.amdgpu.kernels.cases import Array, Case
from tests.gpu_host import Bench, firmware
from usbgpu.amd.gpu import Gpu, Module, on_bridge

BORDER = 256
"""Bytes on both sides of a case's buffers that must not be written."""


def opened(chip: str) -> tuple[Gpu, Bench]:
    """A GPU that our driver has booted, and its bridge's replacement, which has the emulated card."""
    bench = Bench(chip)
    return on_bridge(bench, bench, firmware(chip)), bench


class Placed:
    """A case of the emulator's kernels in a GPU's memory.

    Attributes:
        launch: of the case.
    """

    def __init__(self, gpu: Gpu, module: Module, case: Case) -> None:
        self._gpu, self._case = gpu, case
        self._buffers = {}
        arguments = []
        for name, value in case.arguments.items():
            if isinstance(value, np.ndarray):
                whole = gpu.allocate(value.nbytes + 2 * BORDER)
                gpu.upload(whole, b"\x5a" * BORDER + value.tobytes() + b"\x5a" * BORDER)
                self._buffers[name] = whole
                arguments.append(whole.view(BORDER, value.nbytes))
            else:
                arguments.append(value)
        self.launch = module[case.kernel].launch(case.groups, *arguments, threads=case.threads)

    def mismatches(self) -> int:
        """Wrong elements; also one for each border that was written."""
        results: dict[str, Array] = {}
        wrong = 0
        for name, before in self._case.buffers.items():
            data = self._gpu.download(self._buffers[name], before.nbytes + 2 * BORDER)
            wrong += {data[:BORDER], data[-BORDER:]} != {b"\x5a" * BORDER}
            results[name] = np.frombuffer(data[BORDER:-BORDER], before.dtype).reshape(before.shape)
        return wrong + self._case.mismatches(results)

    def free(self) -> None:
        for buffer in self._buffers.values():
            buffer.free()
