"""The body of a recurrence as what one work-item computes: element `channel` of the states of a row.

Rows of a batch do not meet in it, and a channel of the next states needs other channels only through products
of a whole state (or of what is computed of it: a stage of its own) by constant weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sdk import dtypes
from sdk.expression import statements
from sdk.graph import Array, Graph, Map, MatMul, Node, Recurrent, Slice
from usbgpu.target.plain.products import TYPES
from usbgpu.target.tiling import pieces


class NotOfChannels(Exception):
    """A body that is not of this kind; its message says why."""


@dataclass(frozen=True, eq=False)
class Read:
    """A number for each channel: element `start + channel * step` of the last axis of an input of the body.

    Attributes:
        name: of the input; None where `data` has the elements.
        dtype: of them.
    """

    name: str | None
    start: int
    step: int
    dtype: str
    data: Array | None = None


@dataclass(frozen=True, eq=False)
class Dot:
    """A product of a row of x, all of its channels, by constant weights.

    Attributes:
        x: a state or what a stage makes, [rows, channels].
        weights: [channels made, channels of x].
        dtype: of the weights.
    """

    x: str
    weights: Array
    dtype: str


@dataclass(eq=False)
class Stage:
    """What a work-item computes before others need it.

    Attributes:
        made: tensors, and the variable that has element `channel` of each.
        dots: `sum{i}` is the i-th; there is at least one. All weights of a body have one dtype.
        reads: `read{i}` is the i-th.
        own: states whose element `channel` is read; `own{i}` is that of the body's i-th state.
        lines: OpenCL C, in float32, roundings included.
        known: the variable of what was written so far, by tensor, first element and step.
    """

    made: list[tuple[str, str]] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    own: set[int] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    known: dict[tuple[str, int, int], str] = field(default_factory=dict)

    @property
    def vectors(self) -> list[str]:
        """What the dots multiply."""
        return list(dict.fromkeys(dot.x for dot in self.dots))


@dataclass(frozen=True)
class Body:
    """Of a Recurrent.

    Attributes:
        stages: in order; the last makes the next states.
        states: names of the states in the body.
        rows, channels: of a state.
        dtype: of the states.
    """

    stages: list[Stage]
    states: tuple[str, ...]
    rows: int
    channels: int
    dtype: str


def body_of(graph: Graph, node: Recurrent) -> Body:
    """A recurrence's body by channels.

    Args:
        graph: that the recurrence is part of.
        node: the recurrence.

    Raises:
        NotOfChannels: it computes something else.
    """
    return _Walk(graph, node).body()


class _Walk:
    def __init__(self, graph: Graph, node: Recurrent) -> None:
        self.graph = node.body
        self.makers: dict[str, Node] = {one.output: one for one in self.graph.nodes}
        count = len(self.graph.outputs)
        self.states = self.graph.inputs[node.sequences : node.sequences + count]
        self.known: dict[str, Array] = {}
        for number, (own, given) in enumerate(zip(self.graph.inputs, node.inputs, strict=True)):
            data = graph.tensor(given).data
            if data is not None and number >= node.sequences + count:
                self.known[own] = data
        shape = self.graph.tensor(self.states[0]).shape
        if len(shape) != 2 or 0 in shape:
            raise NotOfChannels(f"its states are {list(shape)}, not rows of channels")
        self.rows, self.channels = shape
        self.stages: list[Stage] = []
        self.staged: set[str] = set()

    def body(self) -> Body:
        for name in (*self.graph.inputs, *self.makers):
            tensor = self.graph.tensor(name)
            if tensor.dtype not in TYPES:
                raise NotOfChannels(f"{name} is {tensor.dtype}")
        self._stage(self.graph.outputs)
        types = {dot.dtype for stage in self.stages for dot in stage.dots}
        if len(types) != 1 or not all(stage.dots for stage in self.stages):
            raise NotOfChannels("a stage has no product of a state, or there are weights of several types")
        dtype = self.graph.tensor(self.states[0]).dtype
        return Body(self.stages, self.states, self.rows, self.channels, dtype)

    def _stage(self, names: tuple[str, ...]) -> None:
        stage = Stage()
        for name in names:
            if self.graph.tensor(name).shape != (self.rows, self.channels):
                raise NotOfChannels(f"{name} has another shape than the states")
            stage.made.append((name, self._element(stage, name, 0, 1)))
        self.stages.append(stage)
        self.staged.update(names)

    def _element(self, stage: Stage, name: str, start: int, step: int) -> str:
        """The variable that has element `start + channel * step` of a tensor's last axis."""
        key = name, start, step
        if key not in stage.known:
            stage.known[key] = self._computed(stage, name, start, step)
        return stage.known[key]

    def _computed(self, stage: Stage, name: str, start: int, step: int) -> str:
        tensor = self.graph.tensor(name)
        if len(tensor.shape) > 2 or (len(tensor.shape) == 2 and tensor.shape[0] not in (1, self.rows)):
            raise NotOfChannels(f"{name} {list(tensor.shape)} has no row for each row of the states")
        if name in self.states:
            if (start, step) != (0, 1):
                raise NotOfChannels(f"an element of the state {name} for another channel")
            index = self.states.index(name)
            stage.own.add(index)
            return f"own{index}"
        data = self._constant(name)
        if data is not None and data.size not in (1, *data.shape[-1:]):
            raise NotOfChannels(f"{name} has other constants for each row")
        if data is not None:
            return self._read(stage, Read(None, start, step, tensor.dtype, data.reshape(-1)))
        if name not in self.makers:
            return self._read(stage, Read(name, start, step, tensor.dtype))
        node = self.makers[name]
        match node:
            case Slice():
                before = self.graph.tensor(node.inputs[0])
                if len(before.shape) == 2 and (node.starts[0], node.steps[0]) != (0, 1):
                    raise NotOfChannels(f"{name} has other rows")
                if before.shape[:-1] != tensor.shape[:-1]:
                    raise NotOfChannels(f"{name} has other rows")
                first, each = node.starts[-1], node.steps[-1]
                return self._element(stage, node.inputs[0], first + start * each, step * each)
            case Map():
                return self._map(stage, node, start, step)
            case MatMul():
                return self._dot(stage, node, start, step)
        raise NotOfChannels(f"{node.op} {node.name}")

    def _map(self, stage: Stage, node: Map, start: int, step: int) -> str:
        out = self.graph.tensor(node.output)
        operands = []
        for name in node.inputs:
            shape = self.graph.tensor(name).shape
            alone = not shape or (shape[-1] == 1 and out.shape[-1] > 1)
            operands.append(self._element(stage, name, *((0, 0) if alone else (start, step))))
        made = f"made{len(stage.known)}"
        lines, result = statements(node.expression, operands, "opencl", f"{made}_")
        stage.lines += [*lines, f"const float {made} = round_{out.dtype}({result});"]
        return made

    def _dot(self, stage: Stage, node: MatMul, start: int, step: int) -> str:
        x, out = node.inputs[0], self.graph.tensor(node.output)
        weights = self._constant(node.inputs[1])
        if weights is None or weights.ndim != 2:
            raise NotOfChannels(f"{node.name} has no constant matrix")
        weights = weights if node.transposed else weights.T
        if weights.shape[1] != self.channels or self.graph.tensor(x).shape != (self.rows, self.channels):
            raise NotOfChannels(f"{node.name} does not multiply all channels of a row")
        if x not in self.states and x not in self.staged:
            if x not in self.makers:
                raise NotOfChannels(f"{node.name} multiplies neither a state nor what is made of one")
            self._stage((x,))
        chosen = start + step * np.arange(self.channels)
        dtype = self.graph.tensor(node.inputs[1]).dtype
        total = f"sum{len(stage.dots)}"
        stage.dots.append(Dot(x, weights[chosen], dtype))
        if len(node.inputs) > 2:
            total += " + " + self._element(stage, node.inputs[2], start, step)
        made = f"made{len(stage.known)}"
        stage.lines.append(f"const float {made} = round_{out.dtype}({total});")
        return made

    def _read(self, stage: Stage, read: Read) -> str:
        stage.reads.append(read)
        return f"read{len(stage.reads) - 1}"

    def _constant(self, name: str) -> Array | None:
        """The elements of a constant, or of a slice of one."""
        tensor = self.graph.tensor(name)
        if tensor.data is not None:
            return tensor.data
        if name in self.known:
            return self.known[name]
        node = self.makers.get(name)
        if not isinstance(node, Slice):
            return None
        whole = self._constant(node.inputs[0])
        if whole is None:
            return None
        chosen = [
            start + step * np.arange(n)
            for start, step, n in zip(node.starts, node.steps, tensor.shape, strict=True)
        ]
        return whole[np.ix_(*chosen)]


def packed_weights(stage: Stage, channels: int, split: int) -> Array:
    """[k in pieces of 16 bytes, dot, channels, 16 bytes of k]: what a work-item loads is one piece.

    Args:
        stage: whose dots the weights are of.
        channels: that work-items have, at least those of the body; the others have weights of 0.
        split: work-items that share a channel; there is a whole number of pieces for each.
    """
    own, k = stage.dots[0].weights.shape
    nbytes = dtypes.dtype(stage.dots[0].dtype).nbytes
    count, per = pieces(k, nbytes, split) * split, 16 // nbytes
    full = np.zeros((len(stage.dots), channels, count * per), stage.dots[0].weights.dtype)
    for number, dot in enumerate(stage.dots):
        full[number, :own, :k] = dot.weights
    split_up = full.reshape(len(stage.dots), channels, count, per)
    return np.ascontiguousarray(split_up.transpose(2, 0, 1, 3))
