"""The registered targets: AMD GPUs of RDNA3 and RDNA4 behind a USB bridge."""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from sdk import settings, toolchain
from sdk.errors import InternalError, Unsupported
from sdk.graph import Graph, Node
from sdk.lowering import verdict
from sdk.opencl.calls import At, KernelSource
from sdk.opencl.views import View
from sdk.passes import unsigned_activations
from sdk.plan import BufferPlan, TuningPlan
from sdk.target import Arithmetic, Candidate, Device, KernelCount, OpenOptions, Options, Program, Verdict
from sdk.targets import EMULATED
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.seam import Gpu
from usbgpu.target import checksum
from usbgpu.target.build import Image, build
from usbgpu.target.calls import kernarg
from usbgpu.target.device import device_of
from usbgpu.target.lowering import Lowered, lower
from usbgpu.target.plain import tuning
from usbgpu.target.plain.tuning import Cuts
from usbgpu.target.plan import MARGIN, CardPlan, KernelPlan, LaunchPlan, TensorPlan

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
    cost = "nanoseconds"
    device_kinds = ("emulated", "usb", "replay")
    later_parts = ()
    verifies_transfers = True
    """See `sdk.target.VerifiesTransfers`."""

    def __init__(
        self,
        chip: str,
        open_gpu: Callable[[str, str | None, OpenOptions], Gpu] | None = None,
    ) -> None:
        self.name = f"amd-{chip}"
        self._chip = CHIPS[chip]
        self.description = f"AMD {chip} GPU plugged in over USB: {self._chip.product}"
        self._open_gpu = open_gpu or connect

    @property
    def power_caps(self) -> tuple[int, int]:
        """See `sdk.target.CapsPower`."""
        return self._chip.power_caps

    def supports(self, graph: Graph, node: Node) -> Verdict:
        return verdict(graph, node, lambda network: lower(network, self._chip))

    def compile(self, graph: Graph, options: Options) -> Program:
        started = time.perf_counter()
        cuts = Cuts(self._chip, options.tuning)
        lowered = lower(unsigned_activations(graph), self._chip, options.guard, options.states, cuts.of)
        lowering = time.perf_counter()
        _require_countable(lowered)
        kernels = list(dict.fromkeys([*(call.kernel for call in lowered.calls), checksum.KERNEL]))
        image = build(kernels, self._chip.name)
        seconds = {"lowering": lowering - started, "kernels": time.perf_counter() - lowering}
        return Program(
            target=self.name,
            graph=graph,
            plan=_plan(self._chip.name, lowered, kernels, image, cuts.plan).to_json(),
            weights=lowered.weights,
            code=image.files,
            seconds=seconds,
        )

    def candidates(self, graph: Graph) -> Sequence[Candidate]:
        cuts = Cuts(self._chip)
        lower(unsigned_activations(graph), self._chip, cut=cuts.of)
        return tuning.candidates(self._chip, [product for _, product in cuts.products])

    def kernels(self, candidate: Candidate) -> str:
        return tuning.kernel_hash(self._chip)

    def measure(self, candidate: Candidate) -> int:
        one = tuning.ready(self._chip, candidate.work)
        with _measuring(self._chip.name, self._open_gpu) as gpu:
            return tuning.measure(gpu, one)

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

    def check(self, program: Program) -> None:
        CardPlan.of(program)

    def open(self, device: str | None, options: OpenOptions = OpenOptions()) -> Device:
        return device_of(self._open_gpu(self._chip.name, device, options), verify=options.verify_transfers)

    def devices(self) -> Sequence[tuple[str, str]]:
        from usbgpu.transport import sysfs

        bridges = list(sysfs.bridges())
        plugged = [
            (
                f"usb:port={each.name}" if len(bridges) > 1 else "usb",
                f"the USB bridge {each.name} ({each.vendor:04x}:{each.product:04x}), if a {self._chip.name} "
                "is behind it" + ("" if each.usable else "; no permission to open it"),
            )
            for each in bridges
        ]
        return [
            ("emulated", f"the emulated USB bridge with an emulated {self._chip.name} behind it"),
            *plugged,
        ]


def connect(chip: str, device: str | None, options: OpenOptions) -> Gpu:
    """Open the GPU behind a bridge; an emulated bridge has this chip behind it by default.

    Raises:
        UsageError: no such device string, or the card takes no such power cap.
        DeviceMissing, DeviceFailed, EnvironmentMissing: bridge, card or firmware are missing, or fail.
    """
    from usbgpu import emulation  # pyusb is needed to run a program, not to compile one
    from usbgpu.amd import gpu

    named = options.firmware or settings.FIRMWARE.value()
    directory = Path(named) if named else None
    opened = gpu.open(emulation.with_card(device, chip), directory, log.info, options.power_cap)
    return cast(Gpu, opened)  # it takes and gets only its own buffers


_opened: dict[str, Gpu] = {}
_opening = threading.Lock()


@contextlib.contextmanager
def _measuring(chip: str, open_gpu: Callable[[str, str | None, OpenOptions], Gpu]) -> Iterator[Gpu]:
    """An emulated GPU for one measurement.

    Booting one takes longer than many measurements: the next one gets the same, until the process ends.
    """
    with _opening:
        if chip not in _opened or open_gpu is not connect:
            _close(chip)
            _opened[chip] = open_gpu(chip, EMULATED, OpenOptions())
        try:
            yield _opened[chip]
        except BaseException:
            _close(chip)  # nothing is known of what it is doing
            raise


def _close(chip: str) -> None:
    if chip in _opened:
        _opened.pop(chip).close()


@atexit.register
def _close_all() -> None:
    for chip in list(_opened):
        _close(chip)


def _require_countable(lowered: Lowered) -> None:
    """Refuse launches that the card cannot count."""
    for call in lowered.calls:
        if call.groups[1] >= GROUPS_Y:
            raise Unsupported(f"a launch of {call.groups[1]} rows of workgroups", where=f"node {call.name}")


def _plan(
    chip: str, lowered: Lowered, sources: Sequence[KernelSource], image: Image, tuned: TuningPlan
) -> CardPlan:
    numbers = {source: number for number, source in enumerate(sources)}
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
        tensors={name: _tensor(view) for name, view in lowered.tensors.items()},
        status=None if lowered.status is None else lowered.status.offset,
        states=lowered.states,
        tuning=tuned,
        checksum=numbers[checksum.KERNEL],
        sums=checksum.sums(lowered.weights).tolist(),
    )


def _launches(
    lowered: Lowered, numbers: dict[KernelSource, int], kernels: Sequence[KernelPlan]
) -> list[LaunchPlan]:
    launches = []
    for call in lowered.calls:
        arguments, relocations = kernarg(call)
        number = numbers[call.kernel]
        launches.append(
            LaunchPlan(
                name=call.name,
                op=call.op,
                macs=call.macs,
                kernel=number,
                groups=(*call.groups, 1),
                kernarg=arguments.ljust(kernels[number].kernarg, b"\0"),
                relocations=relocations,
                tensor=call.tensor,
                weights=call.weights,
            )
        )
    return launches


def _tensor(view: View) -> TensorPlan:
    if not isinstance(view.at, At):
        raise InternalError("a launch made a constant")
    return TensorPlan(view.at.offset, view.steps)


def __getattr__(name: str) -> Callable[[], AmdTarget]:
    """The entry points of pyproject.toml: a chip's name here is what makes its target."""
    if name not in CHIPS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(AmdTarget, name)
