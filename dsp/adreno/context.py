"""What the lowerings of all nodes share: tensors, the launches so far, constants and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsp.adreno.plan import LIMIT, TEXEL, Layout
from sdk.arithmetic import require_scales
from sdk.errors import InternalError, Unsupported
from sdk.graph import Array, Clamp, Graph, Lookup, Node, Tensor, macs
from sdk.opencl.calls import At, Call, Weights
from sdk.opencl.context import PlainContext
from sdk.opencl.views import View, dense_steps
from sdk.target import Sums

TABLES_ALIGNMENT = 16
"""Kernels read tables as int4."""

C_TYPES: Mapping[str, str] = {
    "source": "SOURCE",
    "target": "TARGET",
    "weights": "WEIGHTS",
    "tables": "TABLES",
    "memory": "__global uchar *",
    "offset": "const int",
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
class Operand:
    """A parameter of a kernel, and this launch's argument for it.

    Attributes:
        kind: one of C_TYPES.
        value: the tensor, its place, the weights' number, the number, or words.
    """

    name: str
    kind: str
    value: Value | At | int | float | tuple[int, ...] = 0


@dataclass(frozen=True)
class KernelText:
    """A kernel of the program: launches that differ only in arguments share it.

    Attributes:
        parameters: in C.
        body: in C.
        constants: for the plan.
        head: declarations before a kernel that was written for plain tensors.
        threads: work-items that its work-groups must have; 0 for any.
        whole: whether the body is all of its text, after the headers of plain tensors.
    """

    function: str
    parameters: tuple[str, ...]
    body: str
    constants: tuple[tuple[str, int], ...] = ()
    head: str = ""
    threads: int = 0
    whole: bool = False


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


class Context(PlainContext):
    """The state of a network's lowering.

    Attributes:
        limit: the largest width and height of an image, in texels.
        sums: how products of float16 are added.
        weights: of each layer of integers; `blob` has all other constants.
        values: how quantised tensors lie in texels, by name; one that needs no launch shares another's.
        dense: where quantised tensors lie in C order, by name.
    """

    def __init__(self, graph: Graph, limit: int = LIMIT, sums: Sums = "half") -> None:
        super().__init__(graph)
        self.limit, self.sums = limit, sums
        self.weights: list[Array] = []
        self.steps: list[Step] = []
        self.values: dict[str, Value] = {}
        self.dense: dict[str, At] = {}

    def _for(self, body: Graph) -> Context:
        found = Context(body, self.limit, self.sums)
        found.steps = self.steps
        return found

    @property
    def is_inner(self) -> bool:
        """Whether this is a graph within another: its tensors are not the network's."""
        return self._inner

    @property
    def now(self) -> int:
        return len(self.steps)

    # -- plain tensors ----------------------------------------------------------------------------------

    def append(self, call: Call) -> None:
        kernel = call.kernel
        parameters: list[str] = []
        operands: list[Operand] = []
        begin: list[str] = []
        for declared, pointer in zip(kernel.parameters, call.pointers, strict=True):
            kind, name = declared.rsplit("*", 1)
            name = name.split()[-1]
            base = "__global const uchar *" if "const" in kind else "__global uchar *"
            parameters += [f"{base}{name}_", f"const int {name}_at"]
            begin.append(f"  {kind}*{name} = ({kind}*)({name}_ + {name}_at);")
            if isinstance(pointer, At):
                pointer.buffer.last = max(pointer.buffer.last, self.now)
                operands += [Operand(name, "memory", pointer), Operand(name, "offset", pointer.delta)]
            elif isinstance(pointer, Weights):
                operands += [Operand(name, "tables"), Operand(name, "constants", pointer.offset)]
            else:
                raise InternalError(f"no address for {name}", where=f"node {call.name}")
        parameters.append(f"const struct {kernel.struct} m")
        words = np.array([_bits(word) for word in call.words], np.int64)
        operands.append(Operand("m", "words", tuple((words & 0xFFFFFFFF).tolist())))
        body = "\n".join([*begin, kernel.text])
        text = KernelText(kernel.symbol, tuple(parameters), body, kernel.numbers, kernel.head, kernel.threads)
        across, down = call.groups
        items = across * kernel.threads, down, 1
        tensors = [] if call.tensor is None else [call.tensor]
        self.steps.append(Step(call.name, call.op, [call.name], call.macs, text, operands, items, 0, tensors))

    def complete(self, node: Node) -> None:
        if not self._inner:
            self.steps[-1].tensors.append(node.output)
            self.made[node.output] = self.view(node.output)

    def _quantised_view(self, tensor: Tensor) -> View:
        return View(self.as_dense(tensor.name), tensor.shape, dense_steps(tensor.shape), tensor.dtype)

    def _new_quantised_view(self, tensor: Tensor) -> View:
        return View(self.new_dense(tensor), tensor.shape, dense_steps(tensor.shape), tensor.dtype)

    def new_dense(self, tensor: Tensor) -> At:
        """Room for a quantised tensor in C order."""
        self.dense[tensor.name] = at = self.buffer(f"{tensor.name} in C order", tensor.nbytes)
        return at

    def as_dense(self, name: str) -> At:
        """A quantised tensor in C order, converted if need be."""
        if name not in self.dense:
            x = self.read(name)
            at = self.new_dense(self.graph.tensor(name))
            fields: Fields = {"channels": x.layout.channels, "from": x.layout}
            operands = [Operand("x", "source", x), Operand("y", "memory", at), Operand("y_at", "offset", 0)]
            self._layout("to_output", operands, ["x", "y + y_at"], fields, x, name)
        return self.dense[name]

    def _layout(
        self,
        function: str,
        operands: Sequence[Operand],
        arguments: Sequence[str],
        fields: Fields,
        texels: Value,
        name: str,
    ) -> None:
        """A launch between texels and C order."""
        grid = items(texels.layout)
        self.step(
            [], function, operands, [("move", fields)], grid, arguments=arguments, name=name, op="Layout"
        )

    # -- tensors ----------------------------------------------------------------------------------------

    def read(self, name: str) -> Value:
        """A quantised tensor for the next step to read, converted if need be."""
        if name not in self.values:
            at = self.dense[name]
            y = self.make(name)
            fields: Fields = {"channels": y.layout.channels, "to": y.layout}
            start = Operand("x_at", "offset", at.delta)
            operands = [Operand("x", "memory", at), start, Operand("y", "target", y)]
            at.buffer.last = max(at.buffer.last, self.now)
            self._layout("from_input", operands, ["x + x_at", "y"], fields, y, name)
            self.steps[-1].tensors.append(name)
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

    def same(self, name: str, source: str) -> None:
        """Give an existing tensor another name."""
        self.values[name] = self.read(source)
        made = next(step for step in reversed(self.steps) if source in step.tensors)
        made.tensors.append(name)

    # -- constants --------------------------------------------------------------------------------------

    def table(self, array: Array) -> int:
        """Where an array is in the tables, in int4."""
        return self.blob.add(array) // TABLES_ALIGNMENT

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
        self.launch(nodes, function, body, operands, items, flat, trips=trips, name=name, op=op)

    def launch(
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


def _bits(word: int | float) -> int:
    return int(np.float32(word).view(np.uint32)) if isinstance(word, float) else word
