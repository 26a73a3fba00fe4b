"""The order of a model's nodes, and what each reads."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from sdk.errors import InvalidModel

if TYPE_CHECKING:
    import onnx


def read(node: onnx.NodeProto) -> set[str]:
    """The names that a node reads, those that its graphs take from around it among them; "" too."""
    names = set(node.input)
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            own = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
            for inner in graph.node:
                names |= read(inner) - own
                own.update(inner.output)
            names |= {value.name for value in graph.output} - own
    return names


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Put each node behind those whose results it reads, if some are not; ONNX demands it, files break it.

    Raises:
        InvalidModel: nodes read each other's results in a circle.
    """
    nodes = list(graph.node)
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needs = [{maker[name] for name in read(node) if name in maker} for node in nodes]
    if all(max(needed, default=-1) < index for index, needed in enumerate(needs)):
        return
    readers: list[list[int]] = [[] for _ in nodes]
    for index, needed in enumerate(needs):
        for other in needed:
            readers[other].append(index)
    ready = [index for index, needed in enumerate(needs) if not needed]  # a heap: the file's order
    order = []
    while ready:
        order.append(index := heapq.heappop(ready))
        for reader in readers[index]:
            needs[reader].discard(index)
            if not needs[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        node = nodes[next(index for index, needed in enumerate(needs) if needed)]
        name = node.name or f"{node.op_type}_{next(iter(node.output), '')}"
        message = "it is in, or depends on, a cycle of nodes"
        raise InvalidModel(message, where=f"node {name}", hint="export the model again")
    copies = [type(nodes[index]).FromString(nodes[index].SerializeToString()) for index in order]
    del graph.node[:]
    graph.node.extend(copies)
