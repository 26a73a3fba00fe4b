"""Variants of the kernels, of which counted packets choose the best.

A variant computes the same bits with the same descriptor: it is the same source with other parameters (blocks
side by side, rows unrolled), or scheduled by other options of the compiler's back end. Which is best depends
on the extents of the call. A call's signature is its kernel and those extents; addresses, constants and
weights are not in it, because no kernel with variants branches on them. Loops written in assembly, packet by
packet, have no variants.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dsp.hexagon.build import KERNELS, kernel_hash, resolve, schedules
from dsp.hexagon.calls import At, Call, KernelSource, Layer, Lowered
from sdk.arena import Buffer, align
from sdk.errors import InvalidInput
from sdk.graph import Graph, Quantization, Tensor
from sdk.plan import Choice, TuningPlan
from sdk.target import Candidate
from sdk.tuning import Tuning, read

SHIPPED = Path(__file__).with_name("tuning.json")
SHIPPED_FOR = "hexagon-v65"

WRITTEN_BY_HAND = ("PIPELINED", "THREE_BY_THREE")
"""Defines of variants whose inner loop is assembly."""

UNSTRIPED = 1 << 62
"""An L2 that holds any layer: kernels are counted over whole tensors."""

BY_PLACE = ("copy", "pick", "resize")
"""Kernels whose count depends on where a row ends in a vector, or on a table's contents."""

NUMBERS: Mapping[str, Sequence[str]] = {
    "depthwise.c": ("UNROLLED=2",),
    "elementwise.c": ("SIDE_BY_SIDE=4", "SIDE_BY_SIDE=8"),
    "gemm.c": ("BLOCKS=2", "BLOCKS=4"),
}
"""Macros of a source: tried one at a time, as the schedules are."""

NO_EXTENTS = frozenset(
    (
        *("table", "weights", "bias", "multiplier", "shift", "bounds", "mask", "row_table", "column_table"),
        *("zero_point", "low", "high", "value", "a_zero", "b_zero", "addition", "split_tiles"),
        *("terms", "b_terms", "b"),
        *("starts", "networks", "row_taps", "column_taps", "rounding", "zero"),
    )
)
"""Descriptor fields that are no extents: offsets in the weights, values of arithmetic, and what follows from
other fields. At fields are offsets too."""


def choices(kernel: KernelSource) -> list[str]:
    """The names of a kernel's variants; the first, "", is the kernel as it is."""
    if (
        kernel.text
        or kernel.symbol in BY_PLACE
        or any(define in WRITTEN_BY_HAND for define in kernel.defines)
    ):
        return [""]
    return ["", *NUMBERS.get(kernel.source, ()), *schedules()]


def vary(kernel: KernelSource, choice: str) -> KernelSource:
    """A kernel's variant of this name, as a function of its own."""
    if not choice:
        return kernel
    numbers, schedule = ((choice,), "") if "=" in choice else ((), choice)
    suffix = "_" + re.sub(r"\W", "_", choice)
    renamed = tuple(f"{name}={name}{suffix}" for name in _functions(kernel.source) if name != "NAME")
    kept = tuple(d + suffix if d.startswith("NAME=") else d for d in kernel.defines)
    return KernelSource(kernel.source, kernel.symbol + suffix, (*kept, *renamed, *numbers), schedule)


@cache
def _functions(source: str) -> tuple[str, ...]:
    """The functions that a source defines: those of a variant beside it need other names."""
    return tuple(re.findall(r"^void (\w+)\(", (KERNELS / source).read_text(), re.MULTILINE))


def signature(call: Call) -> str:
    """The call's kernel and extents, as text."""
    extents = [
        f"{name}={_text(value)}"
        for name, value in call.fields.items()
        if name not in NO_EXTENTS and not isinstance(value, At)
    ]
    return " ".join([call.kernel.symbol, *extents])


def _text(value: Any) -> str:
    match value:
        case dict():
            return ":".join(map(_text, value.values()))
        case list():
            return ",".join(map(_text, value))
    return str(value)


# -- choosing -------------------------------------------------------------------------------------------


@cache
def shipped(target: str) -> Tuning:
    """The measurements in this package."""
    return read(SHIPPED, target) if target == SHIPPED_FOR else Tuning(target, "packets")


def apply(lowered: Lowered, version: str, users: Tuning | None) -> TuningPlan:
    """Take for every call of `lowered` the variant measured best.

    Raises:
        InvalidInput: a file names a variant that the kernel does not have.
    """
    target = f"hexagon-{version}"
    files = [("package", shipped(target))]
    if users is not None:
        files.insert(0, ("user", users))
    chosen: list[Choice] = []
    heuristic = 0
    hashes: dict[str, str] = {}
    for layer in lowered.layers:
        for i, call in enumerate(layer.calls):
            known = choices(call.kernel)
            if len(known) == 1:
                continue
            source, name = call.kernel.source, signature(call)
            if source not in hashes:
                hashes[source] = kernel_hash(source, version)
            found = ((by, tuning.choice(name, hashes[source])) for by, tuning in files)
            by, choice = next(((by, choice) for by, choice in found if choice), ("", ""))
            if not choice:
                heuristic += 1
                continue
            if choice not in known:
                raise InvalidInput(f"the tuning file of the {by} has a choice {choice!r} for {name}")
            layer.calls[i] = dataclasses.replace(call, kernel=vary(call.kernel, choice))
            chosen.append(Choice(layer.name, call.kernel.symbol, choice, by))
    return TuningPlan(chosen, heuristic)


# -- measuring ------------------------------------------------------------------------------------------


def candidates(lowered: Lowered, version: str) -> list[Candidate]:
    """Every variant of every distinct call of a network that has more than one."""
    calls = [call for layer in lowered.layers for call in layer.calls if len(choices(call.kernel)) > 1]
    uses = Counter(signature(call) for call in calls)
    first = {signature(call): call for call in reversed(calls)}
    return [
        Candidate(
            name,
            choice,
            kernel_hash(first[name].kernel.source, version),
            uses[name],
            _work(lowered, first[name], choice),
        )
        for name in uses
        for choice in choices(first[name].kernel)
    ]


def apart(lowered: Lowered) -> tuple[Lowered, list[tuple[str, str]]]:
    """The program with a layer for each kernel of a layer, and for each of its variants.

    What calls the same kernel over the same extents as an earlier layer is left out.

    Returns:
        The program, which is for counting: it computes the same several times; and (kernel, layer) of each of
        its layers.
    """
    layers: list[Layer] = []
    names: list[tuple[str, str]] = []
    seen: set[tuple[str, ...]] = set()
    for layer in lowered.layers:
        kernels: dict[KernelSource, list[Call]] = {}
        for call in layer.calls:
            kernels.setdefault(call.kernel, []).append(call)
        for kernel, calls in kernels.items():
            extents = tuple(map(signature, calls))
            if extents in seen:
                continue
            seen.add(extents)
            for choice in choices(kernel):
                varied = [dataclasses.replace(call, kernel=vary(kernel, choice)) for call in calls]
                layers.append(dataclasses.replace(layer, calls=varied))
                names.append((f"{kernel.symbol} {choice}".rstrip(), layer.name))
    return dataclasses.replace(lowered, layers=layers), names


def source_of(candidate: Candidate) -> str:
    """The source of the kernel of which a candidate is a variant."""
    return str(json.loads(candidate.work)["kernel"]["source"])


def alone(candidate: Candidate) -> tuple[Lowered, Graph]:
    """A network of one layer whose only call is the candidate's; its weights are zeros."""
    work = json.loads(candidate.work)
    kernel = work["kernel"]
    call = Call(
        KernelSource(kernel["source"], kernel["symbol"], tuple(kernel["defines"]), kernel["schedule"]),
        work["struct"],
        work["fields"],
    )
    arena = Buffer("arena", work["arena"], 0, 0, offset=0)
    pixel = Tensor("x", (1, 1), "uint8", Quantization.per_tensor(1, 0))
    layer = Layer("candidate", "", "x", calls=[call], start=At(arena, arena.nbytes - 1))
    lowered = Lowered(
        layers=[layer],
        weights=bytes(work["weights"]),
        arena=arena.nbytes,
        live_peak=0,
        laid_out_peak=0,
        margin=work["margin"],
        inputs=[(pixel, At(arena))],
        outputs=[(pixel, At(arena))],
        buffers=[],
    )
    return lowered, Graph("candidate", ("x",), ("x",), {"x": pixel}, ())


def _work(lowered: Lowered, call: Call, choice: str) -> str:
    document = {
        "kernel": dataclasses.asdict(vary(call.kernel, choice)),
        "struct": call.struct,
        "fields": _plain(call.fields),
        "arena": align(lowered.arena),
        "margin": lowered.margin,
        "weights": len(lowered.weights),
    }
    return json.dumps(document)


def _plain(value: Any) -> Any:
    match value:
        case At():
            return resolve(value)
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case list():
            return [_plain(item) for item in value]
    return value
