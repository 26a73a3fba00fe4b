"""`--float16`: a float32 network as a float16 one, and which of its layers stay float32.

`masks` finds the constants that only mean "nothing here", `ranges` the layers that a float16 has no room for,
and `convert` writes the graph. The reference runs the float16 graph: what is rounded where is what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from sdk import dtypes
from sdk.errors import Unsupported, UsageError
from sdk.float16 import ranges
from sdk.float16.convert import flat, retyped
from sdk.float16.masks import find as find_masks
from sdk.float16.ranges import Feeds, Kept
from sdk.graph import Graph, macs
from sdk.preprocess import InputStatistics
from sdk.states import Pairs
from sdk.suggestions import did_you_mean
from sdk.verification import verify

__all__ = ["Float16", "Kept", "to_float16"]

ROUNDS = 16
"""Times that the float16 network is run to find what else stays float32."""


@dataclass(frozen=True)
class Float16:
    """What became of a network.

    Attributes:
        graph: the network to compile.
        already: whether most of its work was in 16-bit floats, so that only what was named has changed.
        kept: the layers that stay float32, in the order in which they were found.
    """

    graph: Graph
    already: bool
    kept: tuple[Kept, ...]


def to_float16(
    graph: Graph,
    *,
    keep: Sequence[str] = (),
    states: Pairs = (),
    samples: Sequence[Feeds] | None = None,
    statistics: InputStatistics | None = None,
) -> Float16:
    """Convert a float32 network.

    Float32 tensors become float16, except the network's inputs and outputs, which keep their dtype (those
    that are states become float16). bfloat16, float16, integers and truth values stay.

    Args:
        graph: verified.
        keep: nodes and tensors that stay float32, by name or pattern; the name of a node or tensor stands
            for all below it too ("block3" for "block3/conv").
        states: pairs (output, input), which stay of one dtype.
        samples: inputs of the range check, by name; None for a few random ones.
        statistics: what the first input looked like to calibration.

    Raises:
        Unsupported: the network is quantised.
        UsageError: a name that is none of the network's; or random inputs do not fit it.
        InvalidInput: the samples do not.
    """
    quantized = next((tensor for tensor in graph.tensors.values() if tensor.quantization is not None), None)
    if quantized is not None:
        raise Unsupported(
            f"--float16 is for float32 networks, and this one is quantised: {quantized}",
            where=graph.name,
            hint="leave --float16 out, or give it the float model that was quantised",
        )
    named = _named(graph, keep)
    already = _is_half(graph)
    if already and not named:
        return Float16(graph, already, ())
    whole = flat(graph)
    makers = {node.output: node.name for node in whole.nodes}
    kept = {name: Kept(makers.get(name, ""), name, "is named") for name in named}
    masks = find_masks(whole)

    def made() -> Graph:
        pairs = [pair for pair in states if not kept.keys().isdisjoint(pair)]
        wide = {*kept, *(name for pair in pairs for name in pair)}
        result = retyped(whole, wide, masks, {name for pair in states for name in pair}, narrow=not already)
        verify(result)
        return result

    if already:
        return Float16(made(), already, tuple(kept.values()))
    chosen = ranges.random_samples(whole, statistics, states) if samples is None else samples
    seen = ranges.look(whole, masks, chosen, states, random=samples is None)
    for one in (*ranges.of_constants(whole, masks), *ranges.of_activations(whole, seen)):
        kept.setdefault(one.tensor, one)
    half = made()
    for _ in range(ROUNDS):
        lost = ranges.first_lost(half, whole, seen, chosen, states)
        if lost is None:
            break
        node, what = lost
        for name in (node.output, *node.inputs):
            if dtypes.is_float(whole.tensor(name).dtype) and name not in kept:
                of = f"is {what} in float16"
                reason = of if name == node.output else f"is read by layer {node.name}, which {of}"
                kept[name] = Kept(makers.get(name, "" if name in whole.inputs else node.name), name, reason)
        half = made()
    return Float16(half, already, tuple(kept.values()))


def _named(graph: Graph, patterns: Sequence[str]) -> list[str]:
    """The tensors that names or patterns select, in the graph's order.

    Raises:
        UsageError: one that selects nothing.
    """
    found: set[str] = set()
    for pattern in patterns:
        matches = {
            tensor
            for name, tensor in (
                *((node.name, node.output) for node in graph.nodes),
                *((name, name) for name in graph.tensors),
            )
            if name == pattern or name.startswith(f"{pattern}/") or fnmatchcase(name, pattern)
        }
        matches = {name for name in matches if dtypes.is_float(graph.tensor(name).dtype)}
        if not matches:
            known = [*(node.name for node in graph.nodes), *graph.tensors]
            raise UsageError(
                f"no node or float tensor to keep in float32 is named {pattern!r}",
                where=graph.name,
                hint=did_you_mean(pattern, known) or "`towline inspect MODEL -v` lists the nodes",
            )
        found |= matches
    return [name for name in graph.tensors if name in found]


def _is_half(graph: Graph) -> bool:
    """Whether most multiply-accumulates, or without any most nodes, give 16-bit floats."""
    outputs = [(graph.tensor(node.output).dtype, macs(graph, node)) for node in graph.nodes]
    floats = [(dtype in ("float16", "bfloat16"), work) for dtype, work in outputs if dtypes.is_float(dtype)]
    total = sum(work for _, work in floats)
    if not total:
        floats, total = [(half, 1) for half, _ in floats], len(floats)
    return bool(floats) and 2 * sum(work for half, work in floats if half) > total
