"""The plan that travels in a `.tow`: what the host must know about a Hexagon program to run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, TypeVar

from dsp.hexagon.layout import PIXEL, Geometry
from dsp.hexagon.rows import picture
from sdk.codec import names, require, within
from sdk.errors import InvalidArtifact
from sdk.graph import Tensor
from sdk.plan import LIMIT, BufferPlan, Count, Plan, Size, TuningPlan, activation_nbytes, check_buffers
from sdk.target import Program

T = TypeVar("T")

MOST_CALLS = 1 << 16
"""Of a layer: a bound for what a plan may make us allocate."""


@dataclass(frozen=True)
class LayerPlan:
    """One layer.

    Attributes:
        name, op, macs: for tables; the stripes of a node have its name, and their share.
        tensor: the activation it computes.
        channels: the first and how many of a stripe; None for all.
        costs: the fewest packets that it needs, by purpose.
        trace_bytes: how many bytes a trace sends for it.
        geometry: how they are laid out, from the first; None for C order.
        calls: of kernels, in its code.
        fetches: for each of them, offset and bytes of the weights that the L2 begins to fetch when it begins.
        meetings: before which of them two contexts meet, ascending, as sharing.py finds it; None in a program
            for one context.
    """

    name: str
    op: str
    tensor: str
    macs: Count
    channels: tuple[Count, Count] | None
    costs: Mapping[str, Count]
    trace_bytes: Size
    geometry: Geometry | None
    calls: Annotated[int, within(0, MOST_CALLS)]
    fetches: Sequence[tuple[Count, Count]]
    meetings: Sequence[Count] | None

    def picture(self, tensor: Tensor) -> tuple[int, ...]:
        """The shape of what the layer makes of its tensor, [N,C,H,W] if it lies in planes."""
        shape = picture(tensor.shape)
        return shape if self.channels is None else (shape[0], self.channels[1], *shape[2:])


@dataclass(frozen=True)
class HexagonPlan(Plan):
    """The whole plan.

    Attributes:
        toolchain: tool name -> version that made the code.
        memory: bytes by kind.
    """

    toolchain: Mapping[str, str]
    layers: Sequence[LayerPlan]
    memory: Annotated[Mapping[str, Size], names("weights", "arena", "live_peak", "laid_out_peak", "margin")]
    buffers: Sequence[BufferPlan]
    tuning: TuningPlan

    @property
    def reports(self) -> bool:
        """Whether the code has methods for contexts and clock, and reports: it is for two contexts."""
        return any(layer.meetings is not None for layer in self.layers)

    def schedule(self, contexts: int | None) -> bytes:
        """What to send to a device that computes with so many contexts; None: with as many as the code can.

        Returns:
            A byte for each call, 1 where two contexts meet before it; nothing for one context.

        Raises:
            InvalidArtifact: two contexts, and the plan does not say where they meet.
        """
        if contexts == 2 and not self.reports:
            raise InvalidArtifact(
                "the program is for one HVX context: its plan does not say where two have to meet",
                where="plan.layers",
                hint="compile the model again, or use contexts=1",
            )
        if contexts == 1 or not self.reports:
            return b""
        return bytes(call in (layer.meetings or ()) for layer in self.layers for call in range(layer.calls))

    def by_node(self, values: Iterable[T]) -> list[tuple[list[LayerPlan], list[T]]]:
        """The layers of each node, in order of its first, and what there is of each of them."""
        nodes: dict[str | int, tuple[list[LayerPlan], list[T]]] = {}
        for number, (layer, value) in enumerate(zip(self.layers, values, strict=True)):
            node = number if layer.channels is None else layer.tensor
            layers, found = nodes.setdefault(node, ([], []))
            layers.append(layer)
            found.append(value)
        return list(nodes.values())

    def check(self, program: Program) -> None:
        arena = self.memory["arena"]
        check_buffers(self.buffers, arena)
        self._check_channels(program)
        for number, layer in enumerate(self.layers):
            needed, kept = activation_nbytes(program.graph, layer.tensor, "layers", number), layer.trace_bytes
            if (at := layer.geometry) is not None:
                shape = layer.picture(program.graph.tensors[layer.tensor])
                path: tuple[str | int, ...] = ("layers", number, "geometry")
                require(len(shape) == 4, f"{shape} cannot lie in planes", *path)
                numbers = (
                    at.sample,
                    at.plane,
                    at.phase,
                    at.pitch,
                    at.top,
                    at.left,
                    *(step - 1 for step in at.stride),
                )
                require(all(0 <= n < LIMIT for n in numbers), f"a number is not from 0 to {LIMIT - 1}", *path)
                needed = span(shape, at)
            rule = f"{kept} is not from {needed} bytes, the tensor's, to {arena}, the arena's"
            require(needed <= kept <= arena, rule, "layers", number, "trace_bytes")
            self._check_fetches(layer, number)
            met, path = layer.meetings, ("layers", number, "meetings")
            require(
                (met is None) == (self.layers[0].meetings is None), "some layers have it, some not", *path
            )
            ascending = met is None or all(a < b for a, b in pairwise((-1, *met, layer.calls)))
            require(ascending, f"they do not ascend below {layer.calls}, the layer's calls", *path)

    def _check_fetches(self, layer: LayerPlan, number: int) -> None:
        path, weights = ("layers", number, "fetches"), self.memory["weights"]
        require(len(layer.fetches) == layer.calls, f"there is not one for each of {layer.calls} calls", *path)
        inside = all(start + nbytes <= weights for start, nbytes in layer.fetches)
        require(inside, f"one ends beyond the {weights:,} bytes of weights", *path)

    def _check_channels(self, program: Program) -> None:
        """The stripes of a tensor are all of its channels, in order, and lie in planes."""
        made: dict[str, int] = {}  # tensor -> channels so far
        last: dict[str, int] = {}
        for number, layer in enumerate(self.layers):
            if layer.channels is None:
                continue
            path = ("layers", number, "channels")
            activation_nbytes(program.graph, layer.tensor, "layers", number)
            shape, (first, count) = program.graph.tensors[layer.tensor].shape, layer.channels
            before = made.get(layer.tensor, 0)
            require(layer.geometry is not None and len(shape) > 2, "a stripe does not lie in planes", *path)
            require(
                first == before and 0 < count <= shape[1] - first,
                f"channels {first} to {first + count} of {shape[1]} do not follow the first {before}",
                *path,
            )
            made[layer.tensor], last[layer.tensor] = first + count, number
        for name, count in made.items():
            channels = program.graph.tensors[name].shape[1]
            rule = f"the last stripe ends at channel {count} of {channels}"
            require(count == channels, rule, "layers", last[name], "channels")


def span(shape: Sequence[int], at: Geometry) -> int:
    """Bytes from cell 0 of plane 0 to the last element, for which `layout.element_index` computes all."""
    vertical, horizontal = at.stride
    return (
        1
        + (shape[0] - 1) * at.sample
        + _farthest(0, shape[1], PIXEL, at.plane, 1)
        + _farthest(at.top, shape[2], vertical, at.pitch * PIXEL, horizontal * at.phase)
        + _farthest(at.left, shape[3], horizontal, PIXEL, at.phase)
    )


def _farthest(first: int, count: int, stride: int, step: int, phase: int) -> int:
    """The largest i // stride * step + i % stride * phase of `count` numbers i from `first` on."""
    last = first + count - 1
    ends = (last, last // stride * stride - 1)  # of the last group, and of the one before
    return max(i // stride * step + i % stride * phase for i in ends if i >= first)
