"""What a page draws of a network: its nodes, with what is known of each, and the tensors between them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sdk.expression.printer import statements
from sdk.graph import Graph, Map, Node, Recurrent, Region, Tensor, macs
from sdk.graph_json import node_to_json
from sdk.inspection.figures import family, kind, shape
from sdk.inspection.model_file import ModelFile, Value
from sdk.inspection.verdicts import Outlook
from sdk.states import Pairs

LONGEST = 12
"""Numbers of an attribute that are shown."""


@dataclass(frozen=True)
class Box:
    """A node.

    Attributes:
        name: unique.
        label: what it is: `Conv (1x1)`.
        family: of `sdk.inspection.figures.FAMILIES`, or "other".
        inputs, outputs: activations by name.
        macs: multiply-accumulates.
        details: what is shown when it is chosen, by heading.
        places: by target: "device", "host" or "refused", and why.
    """

    name: str
    label: str
    family: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    macs: int = 0
    details: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawing:
    """A network.

    Attributes:
        boxes: in order of execution.
        tensors: dtype and shape of each activation, by name; "" where they are unknown.
        inputs, outputs: of the network.
        states: pairs (output, input) that are fed back.
    """

    boxes: Sequence[Box]
    tensors: Mapping[str, str]
    inputs: Sequence[str]
    outputs: Sequence[str]
    states: Pairs = ()

    @property
    def targets(self) -> list[str]:
        """Whose places are known."""
        return list(dict.fromkeys(name for box in self.boxes for name in box.places))


def of_graph(graph: Graph, outlooks: Sequence[Outlook], states: Pairs) -> Drawing:
    """A drawing of a graph, with where its nodes would run."""
    places: dict[str, dict[str, tuple[str, str]]] = {}
    for one in outlooks:
        for placement in one.placements:
            reason = "" if placement.verdict.supported else placement.verdict.reason
            places.setdefault(placement.node.name, {})[one.name] = placement.place, reason
    boxes = [
        Box(
            node.name,
            kind(graph, node),
            family(node),
            [name for name in node.inputs if graph.tensor(name).data is None],
            [node.output],
            macs(graph, node),
            _details(graph, node),
            places.get(node.name, {}),
        )
        for node in graph.nodes
    ]
    tensors = {one.name: _short(one) for one in graph.activations()}
    return Drawing(boxes, tensors, graph.inputs, graph.outputs, states)


def with_places(drawing: Drawing, target: str, hosted: Sequence[str]) -> Drawing:
    """The drawing of a compiled network: nodes of those names run on the host."""
    names = set(hosted)
    boxes = [
        dataclasses.replace(box, places={target: ("host" if box.name in names else "device", "")})
        for box in drawing.boxes
    ]
    return dataclasses.replace(drawing, boxes=boxes)


def of_file(file: ModelFile, refused: Mapping[str, str]) -> Drawing:
    """A drawing of a model as its file has it; `refused` has the reasons of nodes that are."""
    boxes = []
    for one in file.operators:
        inputs, outputs = [n for n in one.inputs if n], [n for n in one.outputs if n]
        details = {"operator": one.op}
        for what, names in (("input", inputs), ("output", outputs)):
            for name in names:
                details[f"{what} {name}"] = _declared(file.values.get(name))
        places = {"import": ("refused", refused[one.name])} if one.name in refused else {}
        boxes.append(Box(one.name, one.op, _family(one.op), inputs, outputs, 0, details, places))
    tensors = {name: _declared(value) for name, value in file.values.items()}
    return Drawing(boxes, tensors, [one.name for one in file.inputs], [one.name for one in file.outputs])


def _family(op: str) -> str:
    """Of an operator of a file, by its name: for the colours alone."""
    plain = op.rpartition(".")[2].replace("_", "").lower()
    return next((family for family, pattern in _PATTERNS.items() if pattern.search(plain)), "map")


_PATTERNS = {
    family: re.compile(pattern)
    for family, pattern in {
        "other": "^(constant|identity|if|loop|scan|dequantize|quantize|callonce|varhandle)",
        "recurrence": "lstm|gru|rnn|svdf",
        "product": "conv|matmul|gemm|fullyconnected|einsum|attention",
        "window": "pool|resize|upsample",
        "reduction": "reduce|softmax|norm|argm|^mean$|^sum$|^lrn$",
        "move": "shape|transpose|concat|slice|split|gather|scatter|pad|squeeze|expand|tile|take|pack|space",
    }.items()
}


def _declared(value: Value | None) -> str:
    if value is None:
        return ""
    return f"{value.dtype} {'?' if value.shape is None else shape(value.shape)}"


def _short(tensor: Tensor) -> str:
    return f"{tensor.dtype} {shape(tensor.shape)}"


# -- details --------------------------------------------------------------------------------------------


def _details(graph: Graph, node: Node) -> dict[str, str]:
    found = {"operator": kind(graph, node)}
    for number, name in enumerate(node.inputs):
        tensor = graph.tensor(name)
        what = "constant" if tensor.data is not None else "input"
        found[f"{what} {_letter(number)}"] = _tensor(tensor)
    found["output"] = _tensor(graph.tensor(node.output))
    if isinstance(node, Map):
        lines, result = statements(node.expression, [_letter(number) for number in range(len(node.inputs))])
        found["expression"] = "\n".join([*lines, result])
    elif isinstance(node, Region):
        found["nodes"] = "\n".join(f"{kind(graph, one)}: {one.name}" for one in node.nodes)
    else:
        if isinstance(node, Recurrent):
            found["body"] = "\n".join(f"{kind(node.body, one)}: {one.name}" for one in node.body.nodes)
        skipped = {"op", "name", "inputs", "output", "body"}
        if graph.tensor(node.output).quantization is None:
            skipped.add("clamp")
        found |= {name: _text(value) for name, value in node_to_json(node).items() if name not in skipped}
    if work := macs(graph, node):
        found["MACs"] = f"{work:,}"
    return found


def _letter(number: int) -> str:
    """Of an input, by which an expression calls it."""
    return chr(ord("a") + number) if number < 19 else f"x{number}"  # t0, t1, ... are its own


def _tensor(tensor: Tensor) -> str:
    text = f"{tensor.name}, {_short(tensor)}"
    if (q := tensor.quantization) is not None:
        text += f", {repr(q)[1:-1]}"
    return text


def _text(value: Any) -> str:
    """An attribute; of long lists the first numbers."""
    if isinstance(value, list | tuple):
        shown = [_text(one) for one in value[:LONGEST]]
        more = [f"... {len(value):,} in all"] if len(value) > LONGEST else []
        return f"[{', '.join([*shown, *more])}]"
    return str(value)
