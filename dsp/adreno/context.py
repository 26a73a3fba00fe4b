"""What the lowerings of all nodes share: tensors, the launches so far, constants and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsp.adreno.plan import LIMIT, TEXEL, Layout
from sdk.arena import Blob
from sdk.arithmetic import require_scales
from sdk.errors import InternalError, Unsupported
from sdk.graph import Array, Clamp, Graph, Lookup, Node, Tensor, macs

TABLES_ALIGNMENT = 16
"""Kernels read tables as int4."""

C_TYPES: Mapping[str, str] = {
    "source": "SOURCE",
    "target": "TARGET",
    "weights": "WEIGHTS",
    "tables": "TABLES",
    "input": "__global const uchar *",
    "output": "__global uchar *",
    "int": "const int",
    "float": "const float",
}

Fields = dict[str, Any]
"""Fields of a struct of the kernels: integers, C as text, a Layout for `struct picture`, or fields again."""


@dataclass(eq=False)
class Value:
    """A tensor in texels, alive from step `first` to step `last`, both included.

    Attributes:
        storage: its number, once planned.
    """

    name: str
    layout: Layout
    first: int
    last: int
    storage: int = -1


@dataclass(frozen=True)
class Weights:
    """Texels of weights: int8 or int16 [height, width, 4]."""

    number: int


@dataclass(frozen=True)
class Operand:
    """A parameter of a kernel, and this launch's argument for it.

    Attributes:
        kind: one of C_TYPES.
        value: the tensor, the weights' number, the name of an input or output, or the number.
    """

    name: str
    kind: str
    value: Value | int | float | str = 0


@dataclass(frozen=True)
class KernelText:
    """A kernel of the program: launches that differ only in arguments share it.

    Attributes:
        parameters: in C.
        body: in C.
        constants: for the plan.
    """

    function: str
    parameters: tuple[str, ...]
    body: str
    constants: tuple[tuple[str, int], ...]


@dataclass
class Step:
    """A launch; see `dsp.adreno.plan.StepPlan`."""

    name: str
    op: str
    nodes: Sequence[str]
    macs: int
    kernel: KernelText
    operands: Sequence[Operand]
    items: tuple[int, int, int]
    trips: int
    tensors: list[str] = field(default_factory=list)


class Context:
    """The state of a network's lowering.

    Attributes:
        limit: the largest width and height of an image, in texels.
        tables: all constants except weights.
        weights: of each layer.
        values: how tensors lie, by name; a tensor that needs no launch shares another's.
    """

    def __init__(self, graph: Graph, limit: int = LIMIT) -> None:
        self.graph = graph
        self.limit = limit
        self.tables = Blob(TABLES_ALIGNMENT)
        self.weights: list[Array] = []
        self.steps: list[Step] = []
        self.values: dict[str, Value] = {}

    # -- tensors ----------------------------------------------------------------------------------------

    def read(self, name: str) -> Value:
        """A tensor for the next step to read."""
        value = self.values[name]
        value.last = max(value.last, len(self.steps))
        return value

    def make(self, name: str) -> Value:
        """A tensor for the next step to write."""
        now = len(self.steps)
        tensor = self.graph.tensor(name)
        value = Value(name, layout(tensor, self.limit), now, now)
        self.values[name] = value
        return value

    def alias(self, name: str, source: str) -> None:
        """Give an existing tensor another name."""
        self.values[name] = self.values[source]
        made = next(step for step in reversed(self.steps) if source in step.tensors)
        made.tensors.append(name)

    # -- constants --------------------------------------------------------------------------------------

    def table(self, array: Array) -> int:
        """Where an array is in the tables, in int4."""
        return self.tables.add(array) // TABLES_ALIGNMENT

    def lookup_table(self, node: Lookup) -> int:
        return self.table(constant(self.graph, node, 1))

    def add_weights(self, texels: Array) -> int:
        """Keep the weights of a layer, [height, width, 4]; returns their number."""
        height, width = texels.shape[:2]
        if max(height, width) > self.limit:
            raise Unsupported(
                f"its weights of {width} x {height} texels exceed an image of {self.limit} x {self.limit}"
            )
        self.weights.append(np.ascontiguousarray(texels))
        return len(self.weights) - 1

    # -- launches ---------------------------------------------------------------------------------------

    def step(
        self,
        nodes: Sequence[Node],
        function: str,
        operands: Sequence[Operand],
        structs: Sequence[tuple[str, Fields]],
        items: tuple[int, int, int],
        *,
        arguments: Sequence[str] = (),
        trips: int = 0,
        name: str = "",
        op: str = "",
    ) -> None:
        """Append a launch of a function of the kernels, which makes the output of the last node.

        Args:
            nodes: those that it computes.
            function: its name.
            operands: the kernel's parameters.
            structs: (type, fields) of the function's last parameters.
            items: work-items in x, y, z.
            arguments: names of the operands passed to the function; all by default.
            trips: as in the plan.
            name: by default the last node's.
            op: by default the operators of the nodes.
        """
        passed = [*(arguments or [operand.name for operand in operands])]
        passed += [f"(struct {kind}){literal(fields)}" for kind, fields in structs]
        flat = [item for _, fields in structs for item in flatten(fields)]
        body = f"  {function}({', '.join(passed)});"
        self.emit(nodes, function, body, operands, items, flat, trips=trips, name=name, op=op)

    def emit(
        self,
        nodes: Sequence[Node],
        function: str,
        body: str,
        operands: Sequence[Operand],
        items: tuple[int, int, int],
        constants: Sequence[tuple[str, int]] = (),
        *,
        trips: int = 0,
        name: str = "",
        op: str = "",
    ) -> None:
        """Append a launch of a kernel of this body."""
        parameters = tuple(f"{C_TYPES[operand.kind]} {operand.name}" for operand in operands)
        self.steps.append(
            Step(
                name=name or nodes[-1].name,
                op=op or "+".join(node.op for node in nodes),
                nodes=[node.name for node in nodes],
                macs=sum(macs(self.graph, node) for node in nodes),
                kernel=KernelText(function, parameters, body, tuple(constants)),
                operands=operands,
                items=items,
                trips=trips,
                tensors=[node.output for node in nodes[-1:]],
            )
        )


# -- layouts ----------------------------------------------------------------------------------------------


def picture(tensor: Tensor) -> tuple[int, int, int]:
    """(channels, height, width) of a tensor in texels: any other shape than [1,C,H,W] is one pixel."""
    if len(tensor.shape) == 4 and tensor.shape[0] == 1:
        channels, height, width = tensor.shape[1:]
        return channels, height, width
    return tensor.size, 1, 1


def fold(count: int, height: int, limit: int) -> int:
    """How many blocks lie side by side: the smallest power of two with which `count` of `height` rows fit."""
    below = max(limit // height, 1)
    return 1 << (-(-count // below) - 1).bit_length()


def layout(tensor: Tensor, limit: int = LIMIT) -> Layout:
    """How a tensor lies: its blocks below each other, as far as images go.

    Raises:
        Unsupported: it does not fit into an image.
    """
    channels, height, width = picture(tensor)
    made = Layout(channels, height, width, fold(-(-channels // TEXEL), height, limit))
    if made.columns > limit or made.rows > limit:
        raise Unsupported(
            f"{tensor.name} of {list(tensor.shape)} is larger than an image of {limit} x {limit} texels"
        )
    return made


def items(made: Layout, pixels: int = 1) -> tuple[int, int, int]:
    """Work-items that make a tensor, each `pixels` of a row and a block."""
    return -(-made.width // pixels), made.height, made.blocks


# -- C ----------------------------------------------------------------------------------------------------


def literal(fields: Fields) -> str:
    """A struct's initialiser."""
    return "{" + ", ".join(f".{name} = {_value(value)}" for name, value in fields.items()) + "}"


def _value(value: Any) -> str:
    if isinstance(value, Layout):
        return literal(picture_fields(value))
    return literal(value) if isinstance(value, dict) else str(value)


def picture_fields(made: Layout) -> dict[str, int]:
    """`struct picture` of kernels/texel.cl."""
    return {
        "blocks": made.blocks,
        "height": made.height,
        "width": made.width,
        "fold": made.fold,
        "pitch": made.columns,
    }


def flatten(fields: Fields, prefix: str = "") -> list[tuple[str, int]]:
    """The integers of a struct, by their names in C."""
    flat: list[tuple[str, int]] = []
    for name, value in fields.items():
        inner = picture_fields(value) if isinstance(value, Layout) else value
        if isinstance(inner, dict):
            flat += flatten(inner, f"{prefix}{name}.")
        elif isinstance(inner, int):
            flat.append((prefix + name, inner))
    return flat


# -- numbers ----------------------------------------------------------------------------------------------


def range_operands(prefix: str, zero_point: int, clamp: Clamp) -> list[Operand]:
    """The operands of a `struct range`."""
    bounds = {"low": clamp[0] - zero_point, "high": clamp[1] - zero_point, "zero_point": zero_point}
    return [Operand(prefix + name, "float", float(value)) for name, value in bounds.items()]


def range_fields(prefix: str) -> dict[str, str]:
    return {name: prefix + name for name in ("low", "high", "zero_point")}


def scale_operand(name: str, scale: NDArray[np.float32]) -> Operand:
    return Operand(name, "float", float(require_scales(scale)))


def constant(graph: Graph, node: Node, index: int) -> Array:
    data = graph.tensor(node.inputs[index]).data
    if data is None:
        raise InternalError(f"{node.inputs[index]} is not a constant", where=f"node {node.name}")
    return data
