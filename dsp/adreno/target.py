"""The registered target `adreno-a6xx`: OpenCL C for the GPU of a phone, and for any other OpenCL device."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from dsp.adreno import opencl
from dsp.adreno.lowering import lower
from dsp.adreno.plan import SOURCE, AdrenoPlan
from dsp.adreno.session import OpenClDevice
from sdk import toolchain
from sdk.graph import Graph, Node
from sdk.lowering import verdict
from sdk.passes import unsigned_activations
from sdk.target import (
    Arithmetic,
    Device,
    KernelCount,
    OpenOptions,
    Options,
    Program,
    Sums,
    Verdict,
    require_supported,
)


class AdrenoTarget:
    """Adreno 6xx; `arithmetic` is f32."""

    name = "adreno-a6xx"
    arithmetic: Arithmetic = "f32"
    description = "Qualcomm Adreno 6xx GPU, or any other device, by OpenCL C 1.2"
    counter = "issue_slots"
    device_kinds: Sequence[str] = ("emulated", "opencl")
    later_parts: Sequence[str] = ()
    sums: Sequence[Sums] = ("half", "float32")

    def supports(self, graph: Graph, node: Node) -> Verdict:
        return verdict(graph, node, lower)

    def compile(self, graph: Graph, options: Options) -> Program:
        started = time.perf_counter()
        require_supported(self, graph)  # lowering checks no window of a Conv that takes in an Add or Lookup
        lowered = lower(unsigned_activations(graph), options.guard, states=options.states, sums=options.sums)
        code = {SOURCE: lowered.source}
        seconds = {"lowering": time.perf_counter() - started}
        return Program(self.name, graph, lowered.plan.to_json(), lowered.weights, code, seconds)

    def count_kernels(self, body: Graph) -> tuple[Mapping[str, str], Sequence[KernelCount]]:
        """Those that have NIR, as Mesa compiles them; no device runs."""
        from dsp.adreno import ir3  # wants Mesa; compiling and running do not

        plan = lower(unsigned_activations(body)).plan
        found = [
            KernelCount(plan.kernels[step.kernel].function, step.name, int(counters[self.counter]))
            for step, counters in zip(plan.steps, ir3.static(plan).layers, strict=True)
            if counters
        ]
        return {"tinymesa": toolchain.tinymesa()[0]}, found

    def check(self, program: Program) -> None:
        AdrenoPlan.of(program)

    def open(self, device: str | None, options: OpenOptions = OpenOptions()) -> Device:
        return OpenClDevice(opencl.choose(device))

    def devices(self) -> Sequence[tuple[str, str]]:
        return opencl.devices()


def adreno_a6xx() -> AdrenoTarget:
    """Adreno 6xx, Adreno 630 (Snapdragon 845) as the reference part."""
    return AdrenoTarget()
