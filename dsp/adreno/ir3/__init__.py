"""Static figures of the Adreno target: the cost of its inner loops on Adreno 630, without the hardware.

The figures are counts in machine code that Mesa's ir3 generates for Adreno 630 from NIR written by hand
after kernels/pointwise.cl and depthwise.cl (`kernels`), kernels/plain/float_*.cl (`floats`) and some of what
sdk/opencl generates (`generated`). They describe that NIR: a driver's compiler generates other code from the
OpenCL C. Nothing is run, and no time follows. Issue slots are the cycles in which an instruction of a fibre
is issued or, by (nop) and `nop`, none can be; waits for texels and memory are not included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsp.adreno.ir3 import floats, generated
from dsp.adreno.ir3.child import Figures, KernelInstance, figures
from dsp.adreno.ir3.kernels import ALONE, KERNELS, WITH_ADD, WITH_LOOKUP, inner, iterations

if TYPE_CHECKING:  # the child, which imports this package, needs no numpy
    from dsp.adreno.plan import AdrenoPlan, StepPlan

Counters = dict[str, int | float]


@dataclass(frozen=True)
class Static:
    """Figures of a program.

    Attributes:
        layers: of each step, for `LayerProfile.counters`; empty for a step whose kernel has no NIR:
            `inner`, issue slots per multiply-accumulate in the inner loop, or in Softmax, Reduce and pools
            per element that is read; `issue_slots`, `instructions` and `nops` of all its fibres in one
            inference, idle ones included; `spills` in its code.
        total: the sums; and `issue_slots_per_mac` over 1 x 1 convolutions and Gemm of integers, with their
            requantisation, and all products of floats that are not depthwise.
    """

    layers: Sequence[Counters]
    total: Counters


def static(plan: AdrenoPlan) -> Static:
    """The figures of a program.

    Raises:
        EnvironmentMissing: tinymesa is not installed, or is of another release.
        BuildFailed: Mesa rejected a kernel.
    """
    kernels = {number: kernel for number, step in enumerate(plan.steps) if (kernel := kernel_of(plan, step))}
    made = dict(zip(kernels, figures(list(kernels.values())), strict=True))
    layers: list[Counters] = [{} for _ in plan.steps]
    total: Counters = {}
    slots = macs = 0
    for number, step in enumerate(plan.steps):
        if number in made:
            layers[number] = _counters(step, kernels[number], made[number])
            for name in ("issue_slots", "instructions", "nops", "spills"):
                total[name] = total.get(name, 0) + layers[number][name]
            if kernels[number].function in ("pointwise", "float_product"):
                slots += int(layers[number]["issue_slots"])
                macs += step.macs
    if macs:
        total["issue_slots_per_mac"] = slots / macs
    return Static(layers, total)


FUSED = {"Add": WITH_ADD, "Lookup": WITH_LOOKUP}
"""By the operator after the convolution."""


def kernel_of(plan: AdrenoPlan, step: StepPlan) -> KernelInstance | None:
    kernel = plan.kernels[step.kernel]
    if kernel.function not in KERNELS or not kernel.constants.get("images", 1):
        return None
    fused = FUSED.get(step.op.partition("+")[2], ALONE)
    constants = {**kernel.constants, "fused": fused}
    words = next((value for _, value in step.arguments if isinstance(value, Sequence)), ())
    if kernel.function in floats.FLOATS:
        constants |= floats.of_words(kernel.function, constants["window"], words)
    elif kernel.function in generated.GENERATED:
        if not kernel.constants:
            return None
        constants |= generated.of_words(kernel.function, words)
    return KernelInstance(kernel.function, constants, step.local)


def _counters(step: StepPlan, kernel: KernelInstance, made: Figures) -> Counters:
    trips, fibres = iterations(kernel.function, kernel.constants), math.prod(step.range)
    slots = inner(kernel.function, kernel.constants, made.loops)
    return {
        **({"inner": round(slots, 3)} if slots is not None else {}),
        "issue_slots": fibres * made.total("slots", trips),
        "instructions": fibres * made.total("instructions", trips),
        "nops": fibres * made.total("nops", trips),
        "spills": made.spills,
    }
