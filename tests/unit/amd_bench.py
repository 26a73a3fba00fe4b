"""Kernels of a few lines, made of the AMD target's own headers, on the shader executor."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from emulator.amdgpu.code_object import parse
from emulator.amdgpu.diagnosis import Diagnosis
from emulator.amdgpu.isa.executor import Executor
from emulator.amdgpu.kernels.cases import Case, poison
from emulator.amdgpu.kernels.launch import place
from emulator.amdgpu.vram import Vram
from sdk import cache, toolchain
from sdk.files import scratch_directory, write
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.target.build import FLAGS, INCLUDES, headers

THREADS = 64


class Bench:
    """Functions of elements, one kernel each: kernel NAME(global x..., global u8 *y), a work-item an element.

    Args:
        chip: as LLVM calls it.
        header: of the target's kernels, included first.
        texts: by name of the kernel, what a work-item does; `i` is its number.
        inputs: the types of the buffers that are read, by name of the kernel.
        before: source before the header.
    """

    def __init__(
        self,
        chip: str,
        header: str,
        texts: Mapping[str, str],
        inputs: Mapping[str, tuple[str, ...]],
        before: str = "",
    ) -> None:
        kernels = []
        for name, text in texts.items():
            read = "".join(f"global const {kind} *{'abc'[n]}, " for n, kind in enumerate(inputs[name]))
            kernels.append(
                f"THREADS({THREADS}) kernel void {name}({read}global u8 *y) "
                f"{{ u32 i = GROUP * {THREADS} + LANE; {text} }}\n"
            )
        self._code = parse(_code_object(f'{before}\n#include "{header}"\n{"".join(kernels)}', chip))
        self._vram = Vram(64 << 20)
        self._executor = Executor(CHIPS[chip], self._vram, Diagnosis(lambda: 0))

    def __call__(self, name: str, dtype: str, *inputs: NDArray) -> NDArray:
        """The results, of a numpy dtype, for elements of the inputs."""
        count = inputs[0].size
        groups = -(-count // THREADS)
        filled = [np.resize(array.reshape(-1), groups * THREADS) for array in inputs]
        arguments = {"abc"[n]: array for n, array in enumerate(filled)}
        arguments["y"] = poison(groups * THREADS, np.dtype(dtype))
        case = Case(name, "", (groups, 1, 1), (THREADS, 1, 1), arguments, {})
        placed = place(case, self._code, self._vram)
        outcome = placed.run(self._executor)
        assert outcome.fault is None
        return placed.results()["y"][:count].reshape(inputs[0].shape)


def _code_object(text: str, chip: str) -> bytes:
    facts = [toolchain.version("clang"), toolchain.version("lld"), chip, *FLAGS, text]
    facts += [text for _, text in sorted(headers().items())]
    cached = cache.directory("amd") / f"bench-{chip}-{cache.digest(facts)}.co"
    if not cached.exists():
        with scratch_directory() as directory:
            source, made = directory / "bench.cl", directory / "bench.o"
            write(source, text.encode())
            args = [*FLAGS, f"-mcpu={chip}", *INCLUDES, "-c", "-o", "-", str(source)]
            write(made, toolchain.run("clang", args, timeout=300).stdout)
            linked = toolchain.run("lld", ["-shared", "--build-id=none", "-o", "-", made], timeout=120)
            cache.keep(cached, linked.stdout)
    return cached.read_bytes()
