"""The plan that travels in a `.tow`: what the host must know about a Hexagon program to run it.

Written by the target, read by the runtimes. Reading trusts nothing: a plan comes from a file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsp.hexagon.layout import Geometry, element_index
from sdk.arena import BufferPlan
from sdk.errors import InvalidArtifact
from sdk.fields import count, text
from sdk.graph import Graph

LIMIT = 2**31
"""All sizes and counts of a plan are below this: addresses have 32 bits."""

CHOSEN = ("layer", "kernel", "choice", "by")
"""The fields of a measured variant."""


@dataclass(frozen=True)
class LayerPlan:
    """One layer.

    Attributes:
        name, op, macs: for tables.
        tensor: the activation it computes.
        costs: the fewest packets that it needs, by purpose.
        trace_bytes: how many bytes a trace sends for it.
        geometry: how they are laid out, from the first; None for C order.
    """

    name: str
    op: str
    tensor: str
    macs: int
    costs: Mapping[str, int]
    trace_bytes: int
    geometry: Geometry | None


@dataclass(frozen=True)
class HexagonPlan:
    """The whole plan.

    Attributes:
        toolchain: tool name -> version that made the code.
        memory: bytes by kind: weights, arena, live_peak, laid_out_peak, margin.
        chosen: of each call whose kernel is a measured variant: layer, kernel, choice, and by which file.
        heuristic: how many calls have variants of which none was measured.
    """

    toolchain: Mapping[str, str]
    layers: Sequence[LayerPlan]
    memory: Mapping[str, int]
    buffers: Sequence[BufferPlan]
    chosen: Sequence[Mapping[str, str]] = ()
    heuristic: int = 0

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = dataclasses.asdict(self)
        document["tuning"] = {"chosen": document.pop("chosen"), "heuristic": document.pop("heuristic")}
        document["buffers"] = [buffer.to_json() for buffer in self.buffers]
        for layer in document["layers"]:
            if layer["geometry"] is not None:
                layer["geometry"]["stride"] = list(layer["geometry"]["stride"])
        return document

    @staticmethod
    def from_json(document: Any, graph: Graph) -> HexagonPlan:
        """Read a plan for `graph`.

        Raises:
            InvalidArtifact: a field is missing, ill-typed or out of range, or names what the graph lacks.
        """
        try:
            return _read(document, graph)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as problem:
            raise InvalidArtifact(
                f"the plan is damaged: {type(problem).__name__}: {problem}", hint="compile the model again"
            ) from problem


def _read(document: Any, graph: Graph) -> HexagonPlan:
    memory = {text(name): _size(size) for name, size in document["memory"].items()}
    for name in ("weights", "arena", "live_peak", "margin"):
        if name not in memory:
            raise ValueError(f"memory.{name} is missing")
    layers = [_layer(layer, graph) for layer in document["layers"]]
    for layer in layers:
        if layer.trace_bytes > memory["arena"]:
            raise ValueError(f"{layer.trace_bytes} bytes of {layer.tensor} are more than the arena")
    tuning = document.get("tuning", {"chosen": [], "heuristic": 0})
    return HexagonPlan(
        toolchain={text(tool): text(version) for tool, version in document["toolchain"].items()},
        layers=layers,
        memory=memory,
        buffers=[
            BufferPlan(text(b["name"]), *(_size(b[key]) for key in ("offset", "size", "first", "last")))
            for b in document["buffers"]
        ],
        chosen=[{key: text(entry[key]) for key in CHOSEN} for entry in tuning["chosen"]],
        heuristic=count(tuning["heuristic"]),
    )


def _layer(document: Any, graph: Graph) -> LayerPlan:
    tensor = graph.tensors[text(document["tensor"])]
    if tensor.data is not None or tensor.dtype not in ("uint8", "int8"):
        raise ValueError(f"{tensor.name} is not an activation")
    size = _size(document["trace_bytes"])
    geometry = None
    needed = tensor.size
    if document["geometry"] is not None:
        fields = dict(document["geometry"])
        vertical, horizontal = (_size(step) for step in fields.pop("stride"))
        numbers = {name: _size(value) for name, value in fields.items()}
        geometry = Geometry(stride=(vertical, horizontal), **numbers)
        if len(tensor.shape) != 4 or min(vertical, horizontal) < 1:
            raise ValueError(f"{tensor.name} cannot lie in planes")
        needed = 1 + int(element_index(tensor.shape, geometry).max())
    if needed > size:
        raise ValueError(f"{size} bytes of {tensor.name} do not hold its elements")
    return LayerPlan(
        name=text(document["name"]),
        op=text(document["op"]),
        tensor=tensor.name,
        macs=count(document["macs"]),
        costs={text(name): count(cost) for name, cost in document["costs"].items()},
        trace_bytes=size,
        geometry=geometry,
    )


def _size(value: Any) -> int:
    return count(value, LIMIT)
