"""Tensors [N,C,L] as pictures of one row: what is between one-dimensional convolutions stays in planes.

Importers make a one-dimensional Conv one of [N,C,1,L] between two Reshapes. A tensor between such Reshapes
has that shape on this target, and the Reshapes go away, if all that makes or reads it means the same on it.
"""

from __future__ import annotations

import dataclasses

from sdk.graph import Add, Concat, Graph, Lookup, Map, Mul, Node, Requantize, Reshape, Slice, Take, Tensor
from sdk.passes import eliminate_dead

SAME = Add | Concat | Lookup | Map | Mul | Requantize | Slice | Take
"""What means the same on a picture of one row."""


def picture(shape: tuple[int, ...]) -> tuple[int, ...]:
    """[N,C,L] with an axis of one row; any other shape as it is."""
    return (*shape[:2], 1, shape[2]) if len(shape) == 3 else shape


def in_rows(graph: Graph) -> Graph:
    """The network with such tensors as pictures, under their own names."""
    lifted = _lifted(graph)
    if not lifted:
        return graph
    tensors = dict(graph.tensors)
    for name in lifted:
        tensors[name] = dataclasses.replace(tensors[name], shape=picture(tensors[name].shape))
    same: dict[str, str] = {}  # what is an earlier tensor: which
    nodes: list[Node] = []
    for node in graph.nodes:
        node = dataclasses.replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        if isinstance(node, Reshape) and node.output not in graph.outputs:
            x, y = tensors[node.inputs[0]], tensors[node.output]
            if x.shape == y.shape:
                same[y.name] = x.name
                continue
        nodes.append(_on_pictures(node, tensors) if node.output in lifted else node)
    return eliminate_dead(dataclasses.replace(graph, tensors=tensors, nodes=tuple(nodes)))


def _lifted(graph: Graph) -> set[str]:
    """The tensors that can be pictures, and lie between Reshapes to some."""
    group = {tensor.name: {tensor.name} for tensor in graph.activations() if len(tensor.shape) == 3}
    wanted: set[str] = set()
    barred: set[str] = set()
    for node in graph.nodes:
        rows = [name for name in (*node.inputs, node.output) if name in group]
        if isinstance(node, Reshape):
            shapes = [graph.tensor(name).shape for name in (node.inputs[0], node.output)]
            if rows and any(picture(shape) == other for shape, other in (shapes, shapes[::-1])):
                wanted.update(rows)
            continue
        activations = [graph.tensor(name) for name in node.inputs if graph.tensor(name).data is None]
        if not isinstance(node, SAME) or any(len(x.shape) != 3 and x.size > 1 for x in activations):
            barred.update(rows)
        for name in rows[1:]:  # all or none
            merged = group[rows[0]] | group[name]
            group.update(dict.fromkeys(merged, merged))
    groups = {id(names): names for names in group.values()}.values()
    return {name for names in groups if names & wanted and not names & barred for name in names}


def _on_pictures(node: Node, tensors: dict[str, Tensor]) -> Node:
    """A node whose tensors became pictures; constants that it broadcasts get the axis too."""
    match node:
        case Concat(axis=2):
            return dataclasses.replace(node, axis=3)
        case Slice():
            starts, steps = ((*own[:2], fill, own[2]) for own, fill in ((node.starts, 0), (node.steps, 1)))
            return dataclasses.replace(node, starts=starts, steps=steps)
        case Take():
            return dataclasses.replace(node, indices=(*node.indices[:2], (), node.indices[2]))
        case Map():
            return dataclasses.replace(node, inputs=tuple(_widened(name, tensors) for name in node.inputs))
        case _:
            return node


def _widened(name: str, tensors: dict[str, Tensor]) -> str:
    tensor = tensors[name]
    if tensor.data is None or len(tensor.shape) < 2:
        return name
    shape = (*tensor.shape[:-1], 1, tensor.shape[-1])
    wide = f"{name} row"
    while wide in tensors and tensors[wide].shape != shape:
        wide += "'"
    tensors[wide] = dataclasses.replace(tensor, name=wide, shape=shape, data=tensor.data.reshape(shape))
    return wide
