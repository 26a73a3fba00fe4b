"""The registered targets: AMD GPUs of RDNA3 and RDNA4 behind a USB bridge."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from sdk import settings, toolchain
from sdk.errors import Unsupported
from sdk.graph import Graph, Node
from sdk.lowering import verdict
from sdk.passes import unsigned_activations
from sdk.plan import LIMIT, BufferPlan
from sdk.report import size as human
from sdk.target import (
    Arithmetic,
    Device,
    KernelCount,
    OpenOptions,
    Options,
    Program,
    Verdict,
)
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.seam import Gpu
from usbgpu.target.build import Image, build
from usbgpu.target.calls import Lowered, Picture
from usbgpu.target.lowering import lower
from usbgpu.target.plan import MARGIN, CardPlan, KernelPlan, LaunchPlan, TensorPlan
from usbgpu.target.session import CardDevice

GROUPS_Y = 1 << 16
"""Workgroups in y stay below: gfx12 gives a wave 16 bits of that number (TTMP7)."""

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
        return verdict(graph, node, lambda network: lower(network, self._chip))

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
        plan = CardPlan.of(program)
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
    """Refuse launches that the card cannot count, and a program beyond its limits."""
    for call in lowered.calls:
        if call.groups[1] >= GROUPS_Y:
            raise Unsupported(f"a launch of {call.groups[1]} rows of workgroups", where=f"node {call.name}")
    for what, nbytes in (("weights", lowered.weights.nbytes), ("activations", lowered.arena)):
        if nbytes >= LIMIT:
            raise Unsupported(
                f"its {what} take {human(nbytes)}, and a program has at most {human(LIMIT)} of them",
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
            "code": image.nbytes,
            "weights": lowered.weights.nbytes,
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


def gfx1100() -> AmdTarget:
    """RDNA3: Radeon RX 7900 series."""
    return AmdTarget("gfx1100")


def gfx1201() -> AmdTarget:
    """RDNA4: Radeon RX 9070 series."""
    return AmdTarget("gfx1201")
