"""The registered targets: Hexagon DSPs with 128-byte HVX vectors."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dsp.hexagon import tuning
from dsp.hexagon.build import build, kernel_hash, trace_span
from dsp.hexagon.calls import Lowered
from dsp.hexagon.fastrpc import session as fastrpc
from dsp.hexagon.layout import MAX_STRIDE, is_planar, window_of
from dsp.hexagon.lowering import lower
from dsp.hexagon.moves import PERMUTE_RANK, moved_axes
from dsp.hexagon.plan import HexagonPlan, LayerPlan
from dsp.hexagon.session import EmulatedDevice
from sdk import toolchain
from sdk.arena import BufferPlan, align
from sdk.arithmetic import q31_add, q31_arrays, scale_ratio
from sdk.errors import ToolMissing, Unsupported, UsageError
from sdk.graph import (
    Add,
    AveragePool,
    Concat,
    Conv,
    Gemm,
    GlobalAveragePool,
    Graph,
    Lookup,
    MaxPool,
    Mul,
    Node,
    Pad,
    Requantize,
    Reshape,
    Resize,
    Transpose,
)
from sdk.lowering import centred_weights, channel_scales
from sdk.passes import unsigned_activations
from sdk.shapes import window_counts
from sdk.target import (
    SUPPORTED,
    Arithmetic,
    Candidate,
    Device,
    KernelCount,
    OpenOptions,
    Options,
    Program,
    Verdict,
    batch_verdict,
)

OPERATORS = (
    *(Add, AveragePool, Concat, Conv, Gemm, GlobalAveragePool, Lookup, MaxPool, Mul, Pad),
    *(Requantize, Reshape, Resize, Transpose),
)


class HexagonTarget:
    """One DSP version; `arithmetic` is q31, because HVX has no vector floats before v68.

    Args:
        version: as clang's -mcpu=hexagonVERSION takes it, for example "v65".
        qemu_flags: what qemu-hexagon needs to run its ELF.
    """

    arithmetic: Arithmetic = "q31"
    counter = "packets"
    device_kinds = ("emulated", "fastrpc")

    def __init__(self, version: str, qemu_flags: Sequence[str] = (), later_parts: Sequence[str] = ()) -> None:
        self.name = f"hexagon-{version}"
        self.description = f"Qualcomm Hexagon {version} DSP with HVX (128-byte vectors)"
        self.later_parts = [f"hexagon-{part}" for part in later_parts]
        self._version = version
        self._qemu_flags = list(qemu_flags)

    def supports(self, graph: Graph, node: Node) -> Verdict:
        if not isinstance(node, OPERATORS):
            return Verdict(False, "the operator has no kernel")
        x, y = graph.tensor(node.inputs[0]), graph.tensor(node.output)
        verdict = batch_verdict(graph, node)
        if not verdict.supported:
            return verdict
        window = window_of(graph, node)
        if window is not None and max(window.strides) > MAX_STRIDE:
            return Verdict(
                False,
                f"a stride of {max(window.strides)} exceeds {MAX_STRIDE}",
                "use a smaller stride, or pool",
            )
        if isinstance(node, Conv) and not (is_planar(x) or is_planar(y)) and _misses_the_pixel(graph, node):
            return Verdict(False, "no tap of its window lies on the only pixel of its input")
        if _axes(graph, node) > PERMUTE_RANK:
            return Verdict(False, f"it moves more than {PERMUTE_RANK} axes")
        return _arithmetic_verdict(graph, node)

    def compile(self, graph: Graph, options: Options) -> Program:
        started = time.perf_counter()
        lowered = lower(unsigned_activations(graph), options.guard)
        chosen, heuristic = tuning.apply(lowered, self._version, options.tuning)
        seconds = {"lowering": time.perf_counter() - started}
        code, stages = build(lowered, self._version)
        return Program(
            target=self.name,
            graph=graph,
            plan=_plan(lowered, chosen, heuristic).to_json(),
            weights=lowered.weights,
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
        program = Program(self.name, graph, _plan(lowered).to_json(), lowered.weights, code)
        with contextlib.closing(self.open(None).load(program)) as session:
            return int(session.profile().layers[0].counters["packets"])

    def count_kernels(self, body: Graph) -> tuple[Mapping[str, str], Sequence[KernelCount]]:
        lowered, names = tuning.apart(lower(unsigned_activations(body)))
        code, _ = build(lowered, self._version)
        plan = _plan(lowered)
        program = Program(self.name, body, plan.to_json(), lowered.weights, code)
        with contextlib.closing(self.open(None).load(program)) as session:
            layers = session.profile().layers
        found = [
            KernelCount(kernel, layer, int(profile.counters[self.counter]))
            for (kernel, layer), profile in zip(names, layers, strict=True)
        ]
        return plan.toolchain, found

    def open(self, device: str | None, options: OpenOptions = OpenOptions()) -> Device:
        if device in (None, "emulated"):
            return EmulatedDevice(self._qemu_flags)
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


def _plan(lowered: Lowered, chosen: Sequence[Mapping[str, str]] = (), heuristic: int = 0) -> HexagonPlan:
    return HexagonPlan(
        toolchain={tool: toolchain.version(tool) for tool in ("clang", "lld")},
        layers=[
            LayerPlan(
                name=layer.name,
                op=layer.op,
                tensor=layer.tensor,
                macs=layer.macs,
                costs=dict(layer.costs),
                trace_bytes=trace_span(layer)[1],
                geometry=None if layer.planes is None else layer.planes.geometry,
            )
            for layer in lowered.layers
        ],
        memory={
            "weights": len(lowered.weights),
            "arena": align(lowered.arena),
            "live_peak": lowered.live_peak,
            "laid_out_peak": lowered.laid_out_peak,
            "margin": lowered.margin,
        },
        buffers=[BufferPlan.of(buffer) for buffer in lowered.buffers],
        chosen=chosen,
        heuristic=heuristic,
    )


def _misses_the_pixel(graph: Graph, node: Conv) -> bool:
    kernel = graph.tensor(node.inputs[1]).shape[2:]
    return any(
        node.pads[axis] % node.dilations[axis] or node.pads[axis] // node.dilations[axis] >= kernel[axis]
        for axis in range(2)
    )


def _axes(graph: Graph, node: Node) -> int:
    """How many axes the permuting kernel would have to walk."""
    match node:
        case Transpose():
            return len(moved_axes(graph.tensor(node.inputs[0]).shape, node.perm)[0])
        case Mul():
            return len(graph.tensor(node.output).shape)
        case _:
            return 0


def _arithmetic_verdict(graph: Graph, node: Node) -> Verdict:
    """Whether the node's scales have constants, and its shifted accumulators fit 32 bits."""
    x, y = graph.tensor(node.inputs[0]), graph.tensor(node.output)
    try:
        match node:
            case Conv() | Gemm():
                weight = centred_weights(graph.tensor(node.inputs[1])).astype(np.int64)
                reach = 255 * np.abs(weight).reshape(len(weight), -1).sum(axis=1)
                if len(node.inputs) > 2 and (bias := graph.tensor(node.inputs[2]).data) is not None:
                    reach += np.abs(bias.astype(np.int64))
                _require_room(channel_scales(graph, node), reach)
            case Add():
                a, b = (scale_ratio(graph.tensor(name).scale, over=y.scale) for name in node.inputs)
                q31_add(float(a), float(b))
            case Mul():
                other = graph.tensor(node.inputs[1])
                _require_room(scale_ratio(x.scale, other.scale, over=y.scale), 255 * 255)
            case Requantize():
                _require_room(scale_ratio(x.scale, over=y.scale), 255)
            case GlobalAveragePool():
                area = math.prod(x.shape[2:])
                _require_room(scale_ratio(x.scale, over=y.scale * area), 255 * area)
            case AveragePool():
                area = math.prod(node.kernel)
                counts = window_counts(x.shape[2:], node.kernel, node.strides, node.pads)
                least = area if node.count_include_pad else int(counts.min())
                _require_room(scale_ratio(x.scale, over=y.scale * least), 255 * area)
    except Unsupported as problem:
        return Verdict(False, problem.message, problem.hint)
    return SUPPORTED


def _require_room(scales: NDArray[np.float32] | np.float32, bounds: NDArray[np.int64] | int) -> None:
    """Refuse a scale whose shift takes an accumulator of at most its bound out of 32 bits."""
    scales = np.atleast_1d(scales)
    _, shifts = q31_arrays(scales)
    if (over := bounds << shifts >= 2**31).any():
        raise Unsupported(f"its accumulator, scaled by {scales[over].max():g}, does not fit 32 bits")


def hexagon_v65() -> HexagonTarget:
    """Snapdragon 845-class DSPs."""
    return HexagonTarget("v65")


def hexagon_v66() -> HexagonTarget:
    """Snapdragon 855-class DSPs."""
    return HexagonTarget("v66")


def hexagon_v68() -> HexagonTarget:
    """Snapdragon 888-class DSPs, and later ones, which run the object code of earlier versions."""
    return HexagonTarget("v68", ("-cpu", "v67"), ("v69", "v73", "v75", "v79", "v81"))
