"""The registered targets: Hexagon DSPs with 128-byte HVX vectors."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence

from dsp.hexagon import tuning
from dsp.hexagon.build import build, kernel_hash, trace_span
from dsp.hexagon.calls import Lowered
from dsp.hexagon.fastrpc import session as fastrpc
from dsp.hexagon.lowering import lower
from dsp.hexagon.plan import HexagonPlan, LayerPlan
from dsp.hexagon.session import EmulatedDevice
from dsp.hexagon.sharing import meetings
from sdk import toolchain
from sdk.arena import align
from sdk.errors import ToolMissing, UsageError
from sdk.graph import Graph, Node
from sdk.lowering import verdict
from sdk.passes import unsigned_activations
from sdk.plan import UNTUNED, BufferPlan, TuningPlan
from sdk.target import (
    Arithmetic,
    Candidate,
    Device,
    KernelCount,
    OpenOptions,
    Options,
    Program,
    Verdict,
)
from sdk.weights import Weights


class HexagonTarget:
    """One DSP version; it requantises in integers, because HVX has no vector floats before v68.

    Args:
        version: as clang's -mcpu=hexagonVERSION takes it, for example "v65".
        qemu_flags: what qemu-hexagon needs to run its ELF.
    """

    arithmetic: Arithmetic = "q31"
    arithmetics: Sequence[Arithmetic] = ("q31", "q15")
    counter = cost = "packets"
    device_kinds = ("emulated", "fastrpc")
    l2_sizes = range(128 << 10, (64 << 20) + 1)

    def __init__(self, version: str, qemu_flags: Sequence[str] = (), later_parts: Sequence[str] = ()) -> None:
        self.name = f"hexagon-{version}"
        self.description = f"Qualcomm Hexagon {version} DSP with HVX (128-byte vectors)"
        self.later_parts = [f"hexagon-{part}" for part in later_parts]
        self._version = version
        self._qemu_flags = list(qemu_flags)

    def supports(self, graph: Graph, node: Node) -> Verdict:
        return verdict(graph, node, lower)

    def compile(self, graph: Graph, options: Options) -> Program:
        started = time.perf_counter()
        arithmetic = options.arithmetic or self.arithmetic
        lowered = lower(unsigned_activations(graph), options.guard, options.l2, arithmetic)
        tuned = tuning.apply(lowered, self._version, options.tuning)
        seconds = {"lowering": time.perf_counter() - started}
        code, stages = build(lowered, self._version)
        return Program(
            target=self.name,
            graph=graph,
            plan=_plan(lowered, meetings(lowered), tuned).to_json(),
            weights=Weights.of(lowered.weights),
            code=code,
            seconds=seconds | stages,
        )

    def candidates(self, graph: Graph) -> Sequence[Candidate]:
        return tuning.candidates(lower(unsigned_activations(graph)), self._version)

    def kernels(self, candidate: Candidate) -> str:
        return kernel_hash(tuning.source_of(candidate), self._version)

    def measure(self, candidate: Candidate) -> int:
        lowered, graph = tuning.alone(candidate)
        code, _ = build(lowered, self._version)
        program = Program(self.name, graph, _plan(lowered).to_json(), Weights.of(lowered.weights), code)
        with contextlib.closing(self.open(None).load(program)) as session:
            return int(session.profile().layers[0].counters["packets"])

    def count_kernels(self, body: Graph) -> tuple[Mapping[str, str], Sequence[KernelCount]]:
        lowered, names = tuning.apart(lower(unsigned_activations(body), l2=tuning.UNSTRIPED))
        code, _ = build(lowered, self._version)
        plan = _plan(lowered)
        program = Program(self.name, body, plan.to_json(), Weights.of(lowered.weights), code)
        with contextlib.closing(self.open(None).load(program)) as session:
            layers = session.profile().layers
        found = [
            KernelCount(kernel, layer, int(profile.counters[self.counter]))
            for (kernel, layer), profile in zip(names, layers, strict=True)
        ]
        return plan.toolchain, found

    def check(self, program: Program) -> None:
        HexagonPlan.of(program)

    def open(self, device: str | None, options: OpenOptions = OpenOptions()) -> Device:
        if device is None or device.partition("?")[0] == "emulated":
            return EmulatedDevice(device or "emulated", self._qemu_flags)
        if device.partition("?")[0] == "fastrpc":
            return fastrpc.FastrpcDevice(device)
        raise UsageError(
            f"{self.name} has no device {device!r}",
            hint="devices: emulated (qemu-hexagon, the default), "
            f"fastrpc (a Snapdragon's DSP; {fastrpc.UNTESTED})",
        )

    def devices(self) -> Sequence[tuple[str, str]]:
        try:
            emulated = [("emulated", f"qemu-hexagon {toolchain.version('qemu-hexagon')}")]
        except ToolMissing:
            emulated = []
        return [*emulated, *fastrpc.devices()]


def _plan(
    lowered: Lowered, met: Sequence[list[int]] | None = None, tuned: TuningPlan = UNTUNED
) -> HexagonPlan:
    """Without `met`, the meetings of two contexts, for one: for programs whose packets are to be counted."""
    return HexagonPlan(
        toolchain={tool: toolchain.version(tool) for tool in ("clang", "lld")},
        layers=[
            LayerPlan(
                name=layer.name,
                op=layer.op,
                tensor=layer.tensor,
                macs=layer.macs,
                channels=layer.channels,
                costs=dict(layer.costs),
                trace_bytes=trace_span(layer)[1],
                geometry=None if layer.planes is None else layer.planes.geometry,
                calls=len(layer.calls),
                fetches=[call.fetch for call in layer.calls],
                meetings=None if met is None else met[number],
            )
            for number, layer in enumerate(lowered.layers)
        ],
        memory={
            "weights": len(lowered.weights),
            "arena": align(lowered.arena),
            "live_peak": lowered.live_peak,
            "laid_out_peak": lowered.laid_out_peak,
            "margin": lowered.margin,
        },
        buffers=[BufferPlan.of(buffer) for buffer in lowered.buffers],
        tuning=tuned,
    )


def hexagon_v65() -> HexagonTarget:
    """Snapdragon 845-class DSPs."""
    return HexagonTarget("v65")


def hexagon_v66() -> HexagonTarget:
    """Snapdragon 855-class DSPs."""
    return HexagonTarget("v66")


def hexagon_v68() -> HexagonTarget:
    """Snapdragon 888-class DSPs, and later ones, which run the object code of earlier versions."""
    return HexagonTarget("v68", ("-cpu", "v67"), ("v69", "v73", "v75", "v79", "v81"))
