"""States of a network: outputs that a step leaves behind, and the inputs that they become in the next."""

from __future__ import annotations

from collections.abc import Sequence

from sdk.errors import UsageError
from sdk.graph import Graph, Tensor

PREFIX = "next_"
"""An output of this and an input's name is that input's next value, as exporters of such networks have it."""

Pairs = tuple[tuple[str, str], ...]
"""(output, input)."""


def find_states(graph: Graph) -> Pairs:
    """The pairs that names tell of: `next_NAME` and `NAME`, where they are alike."""
    pairs = []
    for name in graph.inputs:
        output = PREFIX + name
        if output in graph.outputs and not _difference(graph.tensor(output), graph.tensor(name)):
            pairs.append((output, name))
    return tuple(pairs)


def check_states(graph: Graph, pairs: Sequence[tuple[str, str]]) -> None:
    """Refuse pairs that are no states of a network.

    Raises:
        UsageError: a name that is no output, or no input; one that stands twice; or two tensors that differ
            in shape, dtype or quantisation.
    """
    seen: set[str] = set()
    for output, given in pairs:
        where = f"state {output}:{given}"
        if output not in graph.outputs:
            hint = f"the outputs are: {', '.join(graph.outputs)}"
            raise UsageError(f"the network has no output named {output!r}", where=where, hint=hint)
        if given not in graph.inputs:
            hint = f"the inputs are: {', '.join(graph.inputs)}"
            raise UsageError(f"the network has no input named {given!r}", where=where, hint=hint)
        for name in (f"output {output}", f"input {given}"):
            if name in seen:
                raise UsageError(f"the {name} is in two pairs; a state has one of each", where=where)
            seen.add(name)
        if difference := _difference(graph.tensor(output), graph.tensor(given)):
            raise UsageError(f"an output and the input it becomes must be alike: {difference}", where=where)


def _difference(output: Tensor, given: Tensor) -> str:
    """How two tensors differ, in words; empty for not at all."""
    if output.shape != given.shape or output.dtype != given.dtype:
        return f"{output} and {given}"
    if output.quantization is None and given.quantization is None:
        return ""
    if output.quantization is None or given.quantization is None:
        return "one of them is quantised"
    if not output.quantization.equals(given.quantization):
        return f"{output.quantization} and {given.quantization}"
    return ""
