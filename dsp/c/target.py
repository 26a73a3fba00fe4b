"""The registered target `c`: any processor with a C11 compiler; its device is this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dsp.c.lowering import flattened, lower
from dsp.c.plan import SOURCE, CPlan
from dsp.c.session import HostDevice
from sdk import toolchain
from sdk.errors import ToolMissing, UsageError
from sdk.graph import Graph, Node
from sdk.lowering import verdict
from sdk.passes import unsigned_activations
from sdk.plan import BufferPlan
from sdk.target import Arithmetic, OpenOptions, Options, Program, Verdict


class CTarget:
    """Portable C11; `arithmetic` is f32."""

    name = "c"
    arithmetic: Arithmetic = "f32"
    description = "portable C11 for any processor; `towline export` writes it out"
    device_kinds = ("host",)
    later_parts = ()

    def supports(self, graph: Graph, node: Node) -> Verdict:
        return verdict(graph, node, lambda network: lower(flattened(network), guard=0))

    def compile(self, graph: Graph, options: Options) -> Program:
        started = time.perf_counter()
        graph = flattened(graph)
        lowered = lower(unsigned_activations(graph), options.guard)
        memory = {
            "weights": lowered.weights.nbytes,
            "arena": lowered.arena,
            "live_peak": lowered.live_peak,
        }
        plan = CPlan(memory, [BufferPlan.of(buffer) for buffer in lowered.buffers], lowered.places)
        code = {SOURCE: lowered.source.encode("ascii")}
        seconds = {"lowering": time.perf_counter() - started}
        return Program(self.name, graph, plan.to_json(), lowered.weights, code, seconds)

    def check(self, program: Program) -> None:
        CPlan.of(program)

    def open(self, device: str | None, options: OpenOptions = OpenOptions()) -> HostDevice:
        if device in (None, "emulated", "host"):
            return HostDevice()
        raise UsageError(
            f"{self.name} has no device {device!r}", hint="devices: host (this machine, the default)"
        )

    def devices(self) -> Sequence[tuple[str, str]]:
        try:
            return [("host", f"this machine, by {toolchain.find('cc').name} {toolchain.version('cc')}")]
        except ToolMissing:
            return []


def c() -> CTarget:
    """The one C target."""
    return CTarget()
