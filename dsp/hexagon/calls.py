"""What lowering produces: layers of kernel calls whose arena offsets are still symbolic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dsp.hexagon.layout import Planes
from sdk.arena import Buffer
from sdk.graph import Clamp, Tensor

MACS_PER_PACKET = 256  # two vrmpy of 128 multiply-accumulates each


@dataclass(frozen=True)
class At:
    """An arena offset: a buffer, and bytes from its start."""

    buffer: Buffer
    delta: int = 0


@dataclass(frozen=True)
class KernelSource:
    """A function of kernels/SOURCE; with `defines` it is one of that file's variants.

    Attributes:
        schedule: how its code is scheduled, of `build.SCHEDULES`; the default if "".
        text: of a generated source, which is no file of kernels/.
    """

    source: str
    symbol: str
    defines: tuple[str, ...] = ()
    schedule: str = ""
    text: str = ""


Fields = Mapping[str, Any]
"""Descriptor fields by C name; values are int, At, nested Fields or lists of them."""


@dataclass(frozen=True)
class Call:
    """One call of a kernel.

    Attributes:
        kernel, struct, fields: the function, and its descriptor's type and contents.
        reach: of a kernel that makes each plane of y from the same of x: from which byte to which of that, in
            its neighbours too, a result depends; None if it is not known.
        constants: where in the weights those end that were added for it and the calls before.
        fetch: offset and bytes of the weights that are fetched when it begins, for later ones (prefetch.py).
    """

    kernel: KernelSource
    struct: str
    fields: Fields
    reach: tuple[int, int] | None = None
    constants: int = 0
    fetch: tuple[int, int] = (0, 0)


@dataclass
class Layer:
    """One step of the network, the unit of profile and check.

    Attributes:
        name, op: of the node whose output it produces.
        tensor: that output's name.
        planes: its form; None when it is dense (C-order bytes from `start`).
        macs: including those of a fused convolution.
        channels: the first and how many, of a layer that makes some of the tensor's; None for all.
        requantised_by: packets that a vector of accumulators needs at least to be requantised.
        costs: the fewest packets that the layer needs, by purpose; 256 multiply-accumulates a packet.
    """

    name: str
    op: str
    tensor: str
    macs: int = 0
    channels: tuple[int, int] | None = None
    requantised_by: int = 2
    calls: list[Call] = field(default_factory=list)
    start: At | None = None
    planes: Planes | None = None
    costs: Counter[str] = field(default_factory=Counter)

    def multiplies(self, vrmpy: int, requantised: int) -> None:
        """Note the packets that this many vrmpy and requantised accumulator vectors take at least."""
        useful = self.macs // MACS_PER_PACKET
        self.costs["multiplies"] += useful
        self.costs["unused lanes"] += max(vrmpy // 2 - useful, 0)
        self.costs["requantisation"] += self.requantised_by * requantised


@dataclass(frozen=True)
class Lowered:
    """All that code generation needs.

    Attributes:
        arena: bytes.
        live_peak: the largest sum of dense tensor bytes alive at one layer.
        laid_out_peak: the same of the buffers they really take, a lower bound of any arena's size.
        margin: bytes that kernels may read (never use, never write) on either side of the arena.
    """

    layers: list[Layer]
    weights: bytes
    arena: int
    live_peak: int
    laid_out_peak: int
    margin: int
    inputs: list[tuple[Tensor, At]]
    outputs: list[tuple[Tensor, At]]
    buffers: list[Buffer]


def walk(y: Planes, **operands: Planes) -> dict[str, Any]:
    """Descriptor fields of a kernel that goes through the planes of y and of its operands, by their names."""
    fields: dict[str, Any] = {"y": At(y.buffer, y.base), "y_plane": y.plane, "planes": y.planes}
    for name, planes in operands.items():
        fields |= {name: At(planes.buffer, planes.base), f"{name}_plane": planes.plane}
    return fields


def splat(byte: int) -> int:
    return byte * 0x01010101


def range_fields(y: Tensor, clamp: Clamp) -> Fields:
    return {"zero_point": y.zero_point, "low": clamp[0], "high": clamp[1]}


def variant(
    stem: str, values: Mapping[str, int], features: Mapping[str, bool], **tuning: int
) -> KernelSource:
    """STEM.c compiled with these macros, as a function named after them; `tuning` follows from the values."""
    chosen = [name for name, wanted in features.items() if wanted]
    symbol = "_".join([stem, *map(str, values.values()), *(name.lower() for name in chosen)])
    numbers = {**values, **tuning}
    macros = (f"NAME={symbol}", *(f"{name}={value}" for name, value in numbers.items()), *chosen)
    return KernelSource(f"{stem}.c", symbol, macros)
