"""The range check: which layers of a float32 network a float16 has no room for.

Constants are looked at as they are. Activations are what the reference computes in float32 of sample inputs,
with masks out of the way. A tensor that reaches a quarter of the largest float16 stays float32, since
samples do not show everything; so does one that is tiny everywhere. Then the reference runs the float16
network, where a number that became zero may be divided by: the operands of what is infinite or NaN there, and
was finite before, stay float32 too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdk import dtypes, reference
from sdk.errors import InvalidInput, UsageError
from sdk.float16.convert import beyond, typed_operands, vanishing
from sdk.float16.masks import LARGEST, Masks, shrunk
from sdk.graph import Array, Graph, Map, Node, Recurrent
from sdk.inputs import check_inputs
from sdk.preprocess import InputStatistics
from sdk.states import Pairs

REACH = LARGEST / 4
"""What a tensor of the samples may reach."""
NORMAL = 2.0**-14
"""The smallest float16 of full precision: a tensor that does not reach it loses digits, or all."""
SHRUNK = LARGEST / 16
"""Masks, while tensors are looked at: sums of several do not reach REACH, and exp(-SHRUNK) is still zero."""
SAMPLES = 2
"""Random inputs, where none are given."""
STEPS = 6
"""The same of a network with states, which take time to grow."""

Feeds = Mapping[str, Array]


@dataclass(frozen=True)
class Kept:
    """A layer that stays float32.

    Attributes:
        node: the layer; "" of an input of the network.
        tensor: what is kept: its result, one of its constants, or the input.
        reason: why, as a clause: "reaches 1.2e5".
        reaches: the largest magnitude that was found; None where that is not the reason.
    """

    node: str
    tensor: str
    reason: str
    reaches: float | None = None

    def __str__(self) -> str:
        return f"{f'layer {self.node}' if self.node else f'input {self.tensor}'} {self.reason}"


def shown(value: float) -> str:
    """A number as people write it: 1.23e5."""
    return f"{value:.3g}".replace("e+0", "e").replace("e+", "e")


def of_constants(graph: Graph, masks: Masks) -> list[Kept]:
    """Layers, other than Maps, with constants that a float16 cannot hold."""
    found = []
    for node in graph.nodes:
        if isinstance(node, Map):
            continue  # it takes them in float32
        for index in typed_operands(node):
            tensor = graph.tensor(node.inputs[index])
            if tensor.name in masks.constants:
                continue
            if largest := beyond(tensor):
                reason = f"has the constant {tensor.name}, which reaches {shown(largest)}"
                found.append(Kept(node.name, tensor.name, reason, largest))
            elif share := vanishing(tensor):
                reason = f"has the constant {tensor.name}, of which {share:.0%} would become zero"
                found.append(Kept(node.name, tensor.name, reason))
    return found


@dataclass(frozen=True)
class Seen:
    """What the samples showed of a float32 network.

    Attributes:
        reaches: the largest finite magnitude of each float tensor; of a recurrence those of its steps too.
        finite: for each sample, the tensors without infinity and NaN.
    """

    reaches: Mapping[str, float]
    finite: Sequence[frozenset[str]]


def look(
    graph: Graph, masks: Masks, samples: Sequence[Feeds], states: Pairs, *, random: bool = False
) -> Seen:
    """Run a float32 network on samples.

    Args:
        graph: flat, of plain tensors.
        masks: of the graph.
        samples: arrays by input name, of the inputs' shapes and dtypes. States that are left out are zero
            in the first sample, and then what the last one left behind.
        states: pairs (output, input).
        random: whether the samples are `random_samples`.

    Raises:
        InvalidInput: an index out of range, naming its node; or arrays that do not fit the inputs.
        UsageError: the same of random samples.
    """
    bare = shrunk(graph, masks, SHRUNK)
    reaches: dict[str, float] = {}
    finite = []
    try:
        for values in _each(bare, samples, states):
            good = set()
            for name, array, largest in values:
                reaches[name] = max(reaches.get(name, 0.0), largest)
                if np.isfinite(array).all():
                    good.add(name)
            finite.append(frozenset(good))
    except InvalidInput as problem:
        if not random:
            raise
        raise UsageError(
            f"the range check of --float16 cannot run on random inputs: {problem.message}",
            where=problem.where,
            hint="give typical inputs with --calibrate",
        ) from problem
    return Seen(reaches, finite)


def of_activations(graph: Graph, seen: Seen) -> list[Kept]:
    """Layers, and inputs, whose values exceed REACH, or are all below NORMAL."""
    makers = {node.output: node.name for node in graph.nodes}
    return [
        Kept(
            makers.get(name, ""),
            name,
            f"{'reaches' if largest > REACH else 'is at most'} {shown(largest)}",
            largest,
        )
        for name, largest in seen.reaches.items()
        if graph.tensor(name).dtype == "float32" and (largest > REACH or 0 < largest < NORMAL)
    ]


def first_lost(
    half: Graph, graph: Graph, seen: Seen, samples: Sequence[Feeds], states: Pairs
) -> tuple[Node, str] | None:
    """The first node that gives infinity or NaN in float16 alone, as it is in `graph`, and what it gives.

    Args:
        half: the float16 network of `graph`.
        graph: the float32 one.
        seen: what `look` saw of it with the same samples.
        samples: as for `look`.
        states: pairs (output, input).
    """
    nodes = {node.output: node for node in graph.nodes}
    for number, values in enumerate(_each(half, samples, states)):
        for name, array, _ in values:
            if name in nodes and name in seen.finite[number] and not np.isfinite(array).all():
                return nodes[name], "NaN" if np.isnan(array).any() else "infinite"
    return None


Values = Iterator[tuple[str, Array, float]]
"""(tensor, its values in float64, the largest magnitude behind it)."""


def _each(graph: Graph, samples: Sequence[Feeds], states: Pairs) -> Iterator[Values]:
    """The float tensors of every sample in order of execution; each iterator is to be used up."""
    kept: dict[str, Array] = {
        name: np.zeros(graph.tensor(name).shape, dtypes.storage(graph.tensor(name).dtype))
        for _, name in states
    }
    for feeds in samples:
        outputs: dict[str, Array] = {}
        yield _run(graph, {**kept, **feeds}, outputs)
        kept = {name: outputs[output] for output, name in states}


def _run(graph: Graph, feeds: Feeds, outputs: dict[str, Array]) -> Values:
    """The float tensors of one inference; arrays are dropped when nothing reads them any more."""
    last = {name: index for index, node in enumerate(graph.nodes) for name in node.inputs}
    values = check_inputs(graph, feeds)
    for name in graph.inputs:
        yield from _real(graph, name, values[name])
    for index, node in enumerate(graph.nodes):
        result = reference.evaluate(graph, node, values, "f32")
        values[node.output] = result
        if isinstance(node, Recurrent):
            inner = _steps(graph, node, values)
            for name, array, largest in _real(graph, node.output, result):
                yield name, array, max(largest, inner)
        else:
            yield from _real(graph, node.output, result)
        for name in {*node.inputs, node.output}:
            if last.get(name, index) <= index and name in values and name not in graph.outputs:
                del values[name]
    outputs.update((name, values[name]) for name in graph.outputs if name in values)


def _real(graph: Graph, name: str, array: Array) -> Values:
    dtype = graph.tensor(name).dtype
    if dtypes.is_float(dtype):
        real = dtypes.decode(array, dtype)
        yield name, real, float(np.abs(real[np.isfinite(real)]).max(initial=0))


def _steps(graph: Graph, node: Recurrent, values: Mapping[str, Array]) -> float:
    """The largest magnitude within the steps of a recurrence."""
    operands = [_held(graph, name, values) for name in node.inputs]
    body, count = node.body, len(node.body.outputs)
    states = operands[node.sequences : node.sequences + count]
    largest = 0.0
    order = range(node.steps - 1, -1, -1) if node.backward else range(node.steps)
    for step in order:
        given = [array[step] for array in operands[: node.sequences]]
        feeds = [*given, *states, *operands[node.sequences + count :]]
        outputs: dict[str, Array] = {}
        found = _run(body, dict(zip(body.inputs, feeds, strict=True)), outputs)
        largest = max([largest, *(magnitude for _, _, magnitude in found)])
        states = [outputs[name] for name in body.outputs]
    return largest


def _held(graph: Graph, name: str, values: Mapping[str, Array]) -> Array:
    data = graph.tensor(name).data
    return values[name] if data is None else data


# -- inputs ---------------------------------------------------------------------------------------------


def random_samples(graph: Graph, statistics: InputStatistics | None, states: Pairs) -> list[Feeds]:
    """Seeded inputs: normal floats, of the mean and deviation that calibration found; small integers."""
    random = np.random.default_rng(0)
    names = [name for name in graph.inputs if name not in {given for _, given in states}]
    return [
        {name: _drawn(random, graph, name, statistics) for name in names}
        for _ in range(STEPS if states else SAMPLES)
    ]


def _drawn(random: np.random.Generator, graph: Graph, name: str, statistics: InputStatistics | None) -> Array:
    tensor = graph.tensor(name)
    kind = dtypes.dtype(tensor.dtype).kind
    if kind == "uint" and tensor.dtype == "uint8":
        return random.integers(0, 256, tensor.shape).astype(np.uint8)
    if kind != "float":
        return random.integers(0, 2, tensor.shape).astype(dtypes.storage(tensor.dtype))
    values = random.standard_normal(tensor.shape)
    if statistics is not None:
        shape: list[Any] = [1] * len(tensor.shape)
        if statistics.channel_axis is not None:
            shape[statistics.channel_axis] = -1
        values = values * np.reshape(statistics.std, shape) + np.reshape(statistics.mean, shape)
    return dtypes.encode(values, tensor.dtype)
