"""The registered targets: AMD GPUs of RDNA3 and RDNA4 behind a USB bridge."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from sdk import settings, toolchain
from sdk.arena import BufferPlan
from sdk.arithmetic import scale_ratio
from sdk.errors import Unsupported
from sdk.graph import Add, AveragePool, Conv, Gemm, GlobalAveragePool, Graph, Mul, Node, Requantize
from sdk.lowering import channel_scales
from sdk.passes import unsigned_activations
from sdk.report import size as human
from sdk.shapes import window_counts
from sdk.target import (
    SUPPORTED,
    Arithmetic,
    Device,
    KernelCount,
    OpenOptions,
    Options,
    Program,
    Verdict,
    batch_verdict,
)
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.seam import Gpu
from usbgpu.target.build import Image, build
from usbgpu.target.calls import Lowered, Picture
from usbgpu.target.context import extent
from usbgpu.target.lowering import OPERATORS, lower
from usbgpu.target.packing import round_up
from usbgpu.target.plan import LIMIT, MARGIN, CardPlan, KernelPlan, LaunchPlan, TensorPlan
from usbgpu.target.products import groups_apart
from usbgpu.target.session import CardDevice

SCALE_LIMIT = 2.0**9
"""No requantisation scale reaches this: no usable network has one, and every target refuses it."""

TENSOR_LIMIT = 1 << 30
"""Bytes of a tensor as it lies in memory: offsets in kernels have 32 bits."""

WINDOW_LIMIT = 1 << 15
"""Of padding, strides and dilations: positions in kernels have 32 bits."""

log = logging.getLogger(__name__)


class AmdTarget:
    """One GPU; `arithmetic` is f32: its shaders have floats.

    Args:
        chip: as LLVM calls it, such as gfx1100.
        open_gpu: opens a GPU, given the chip, a device string or None, and options; `connect` by default.
    """

    arithmetic: Arithmetic = "f32"
    counter = "wave_instructions"
    device_kinds = ("emulated", "usb", "replay")
    later_parts = ()

    def __init__(
        self,
        chip: str,
        open_gpu: Callable[[str, str | None, OpenOptions], Gpu] | None = None,
    ) -> None:
        self.name = f"amd-{chip}"
        self.description = f"AMD {chip} GPU plugged in over USB"
        self._chip = CHIPS[chip]
        self._open_gpu = open_gpu or connect

    def supports(self, graph: Graph, node: Node) -> Verdict:
        if not isinstance(node, OPERATORS):
            return Verdict(False, "the operator has no kernel")
        verdicts = (batch_verdict, _size_verdict, _weights_verdict, _scale_verdict)
        return next((v for ask in verdicts if not (v := ask(graph, node)).supported), SUPPORTED)

    def compile(self, graph: Graph, options: Options) -> Program:
        started = time.perf_counter()
        lowered = lower(unsigned_activations(graph), self._chip, options.guard)
        lowering = time.perf_counter()
        _require_room(graph, lowered)
        kernels = list(dict.fromkeys(call.kernel for call in lowered.calls))
        image = build(kernels, self._chip.name)
        seconds = {"lowering": lowering - started, "kernels": time.perf_counter() - lowering}
        return Program(
            target=self.name,
            graph=graph,
            plan=_plan(self._chip.name, lowered, image).to_json(),
            weights=lowered.weights,
            code=image.files,
            seconds=seconds,
        )

    def count_kernels(self, body: Graph) -> tuple[Mapping[str, str], Sequence[KernelCount]]:
        program = self.compile(body, Options())
        plan = CardPlan.from_json(program.plan, program.graph, program.code)
        with contextlib.closing(self.open(None).load(program)) as session:
            layers = session.profile().layers
        found = [
            KernelCount(plan.kernels[launch.kernel].name, launch.name, int(layer.counters[self.counter]))
            for launch, layer in zip(plan.launches, layers, strict=True)
        ]
        return plan.toolchain, found

    def open(self, device: str | None, options: OpenOptions = OpenOptions()) -> Device:
        return CardDevice(self._open_gpu(self._chip.name, device, options))

    def devices(self) -> Sequence[tuple[str, str]]:
        from usbgpu.transport import sysfs

        plugged = [
            (
                "usb",
                f"the USB bridge {each.name} ({each.vendor:04x}:{each.product:04x}), if a {self._chip.name} "
                "is behind it" + ("" if each.usable else "; no permission to open it"),
            )
            for each in sysfs.bridges()
        ]
        return [
            ("emulated", f"the emulated USB bridge with an emulated {self._chip.name} behind it"),
            *plugged,
        ]


def connect(chip: str, device: str | None, options: OpenOptions) -> Gpu:
    """Open the GPU behind a bridge; an emulated bridge has this chip behind it by default.

    Raises:
        UsageError: no such device string.
        DeviceMissing, DeviceFailed, EnvironmentMissing: bridge, card or firmware are missing, or fail.
    """
    from usbgpu import emulation  # pyusb is needed to run a program, not to compile one
    from usbgpu.amd import gpu

    named = options.firmware or settings.FIRMWARE.value()
    opened = gpu.open(emulation.with_card(device, chip), Path(named) if named else None, log.info)
    return cast(Gpu, opened)  # it takes and gets only its own buffers


def _require_room(graph: Graph, lowered: Lowered) -> None:
    for what, size in (("weights", len(lowered.weights)), ("activations", lowered.arena)):
        if size >= LIMIT:
            raise Unsupported(
                f"its {what} take {human(size)}, and a program has at most {human(LIMIT)} of them",
                where=graph.name,
            )


def _plan(chip: str, lowered: Lowered, image: Image) -> CardPlan:
    numbers = {kernel.name: number for number, kernel in enumerate(image.kernels)}
    return CardPlan(
        toolchain={tool: toolchain.version(tool) for tool in ("clang", "lld")},
        chip=chip,
        image=image.slices,
        kernels=image.kernels,
        launches=_launches(lowered, numbers, image.kernels),
        memory={
            "code": image.size,
            "weights": len(lowered.weights),
            "arena": lowered.arena,
            "live_peak": lowered.live_peak,
            "margin": MARGIN,
        },
        buffers=[BufferPlan.of(buffer) for buffer in lowered.buffers],
        inputs={tensor.name: at.offset for tensor, at in lowered.inputs},
        outputs={tensor.name: at.offset for tensor, at in lowered.outputs},
        tensors={name: _tensor(picture) for name, picture in lowered.tensors.items()},
    )


def _launches(lowered: Lowered, numbers: dict[str, int], kernels: Sequence[KernelPlan]) -> list[LaunchPlan]:
    launches = []
    for call in lowered.calls:
        kernarg, relocations = call.kernarg()
        number = numbers[call.kernel.symbol]
        launches.append(
            LaunchPlan(
                name=call.name,
                op=call.op,
                macs=call.macs,
                kernel=number,
                groups=(*call.groups, 1),
                kernarg=kernarg.ljust(kernels[number].kernarg, b"\0"),
                relocations=relocations,
                tensor=call.tensor,
                weights=call.weights,
            )
        )
    return launches


def _tensor(form: Picture) -> TensorPlan:
    return TensorPlan(form.at.offset, form.pixels, form.channels, form.pitch)


def _size_verdict(graph: Graph, node: Node) -> Verdict:
    """Whether offsets and positions fit the kernels' integers."""
    for tensor in (graph.tensor(name) for name in (*node.inputs[:1], node.output)):
        height, width, channels = extent(tensor)
        if max(tensor.size, height * width * round_up(channels)) >= TENSOR_LIMIT:
            return Verdict(
                False, f"{tensor.name} of {list(tensor.shape)} is too large (limit: {TENSOR_LIMIT} bytes)"
            )
    names = ("pads", "strides", "dilations")
    if max(value for name in names for value in getattr(node, name, (0,))) >= WINDOW_LIMIT:
        values = ", ".join(f"{name} {list(getattr(node, name))}" for name in names if hasattr(node, name))
        return Verdict(False, f"padding, strides and dilations must be below {WINDOW_LIMIT}: {values}")
    return SUPPORTED


def _weights_verdict(graph: Graph, node: Node) -> Verdict:
    if not isinstance(node, Conv | Gemm):
        return SUPPORTED
    weight = graph.tensor(node.inputs[1])
    if weight.quantization is None or weight.data is None:
        return Verdict(False, "its weights are not constant")
    outputs, inputs, *window = weight.shape
    together = node.group // groups_apart(graph, node) if isinstance(node, Conv) else 1
    if round_up(outputs) * round_up(inputs * together) * math.prod(window) >= TENSOR_LIMIT:
        return Verdict(
            False, f"its weights of {list(weight.shape)} are too large (limit: {TENSOR_LIMIT} bytes)"
        )
    return SUPPORTED


def _scale_verdict(graph: Graph, node: Node) -> Verdict:
    """Whether every scale of the node is finite and in range."""
    x, y = graph.tensor(node.inputs[0]), graph.tensor(node.output)
    try:
        match node:
            case Conv() | Gemm():
                _require_scale(float(channel_scales(graph, node).max()))
            case Add():
                for name in node.inputs:
                    _require_scale(float(scale_ratio(graph.tensor(name).scale, over=y.scale)))
            case Mul():
                factor = graph.tensor(node.inputs[1])
                _require_scale(float(scale_ratio(x.scale, factor.scale, over=y.scale)))
            case Requantize():
                _require_scale(float(scale_ratio(x.scale, over=y.scale)))
            case GlobalAveragePool():
                _require_scale(float(scale_ratio(x.scale, over=y.scale * math.prod(x.shape[2:]))))
            case AveragePool():
                least = math.prod(node.kernel)
                if not node.count_include_pad:
                    counts = window_counts(x.shape[2:], node.kernel, node.strides, node.pads)
                    least = int(np.min(counts))
                _require_scale(float(scale_ratio(x.scale, over=y.scale * least)))
    except Unsupported as problem:
        return Verdict(False, problem.message, problem.hint)
    return SUPPORTED


def _require_scale(scale: float) -> None:
    if not scale < SCALE_LIMIT:  # nor is an infinity, nor a NaN
        raise Unsupported(
            f"a requantisation scale of {scale:g} is out of range",
            hint="quantise the model again, on inputs like those it will see",
        )


def gfx1100() -> AmdTarget:
    """RDNA3: Radeon RX 7900 series."""
    return AmdTarget("gfx1100")


def gfx1201() -> AmdTarget:
    """RDNA4: Radeon RX 9070 series."""
    return AmdTarget("gfx1201")
