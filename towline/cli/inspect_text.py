"""What the verbs of `towline inspect` print in common: figures, operators, targets and reasons as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sdk.graph import Graph, Tensor, macs
from sdk.graph_json import node_to_json
from sdk.inspection import Figures, Outlook, Reason
from sdk.inspection.figures import shape, share
from sdk.report import plural, size, table
from sdk.tables import stdout_width

LABEL = 11
"""Width of the labels of a head."""
FEW, MANY = 3, 12
"""Names of nodes that are shown of a reason, without and with -v; without it so few reasons, too."""


def labelled(rows: Iterable[tuple[str, str]]) -> str:
    """Lines that begin with a label; what is wider than a terminal is continued below."""
    return "\n".join(wrapped(f"{name:<{LABEL}} {text}", " " * (LABEL + 1)) for name, text in rows if text)


def wrapped(text: str, indent: str) -> str:
    """A line no wider than the terminal; a pipe or a file gets it whole."""
    return textwrap.fill(
        text,
        stdout_width(),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        expand_tabs=False,
    )


def amount(count: int) -> str:
    """A large number in short: `16.7 M`."""
    for unit, factor in (("G", 10**9), ("M", 10**6)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count:,}"


def counted(counts: Mapping[str, int]) -> str:
    """`Conv 40, Add 12`, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count:,}" for name, count in ordered)


# -- a graph --------------------------------------------------------------------------------------------


def graph_document(graph: Graph, found: Figures) -> dict[str, Any]:
    """The figures of a graph and its nodes."""
    precision = found.precision
    return {
        "inputs": [tensor_document(graph.tensor(name)) for name in graph.inputs],
        "outputs": [tensor_document(graph.tensor(name)) for name in graph.outputs],
        "precision": {
            "words": precision.words,
            "activations": precision.activations,
            "weights": precision.weights,
            "islands": [{"dtype": one.dtype, "nodes": one.nodes} for one in precision.islands],
        },
        "parameters": {"count": found.parameters, "bytes": found.constant_bytes},
        "states": [{"output": output, "input": given} for output, given in found.states],
        "operators": [vars(one) for one in found.kinds],
        "families": [vars(one) for one in found.families],
        "nodes": [
            {
                **node_to_json(node),
                "macs": macs(graph, node),
                "output_tensor": tensor_document(graph.tensor(node.output)),
            }
            for node in graph.nodes
        ],
        "macs": found.macs,
        "constant_bytes": found.constant_bytes,
    }


def tensor_document(tensor: Tensor) -> dict[str, Any]:
    """A tensor without its data."""
    quantization = tensor.quantization
    return {
        "name": tensor.name,
        "shape": tensor.shape,
        "dtype": tensor.dtype,
        "scale": None if quantization is None else quantization.scale,
        "zero_point": None if quantization is None else quantization.zero_point,
    }


def ends(graph: Graph, found: Figures) -> str:
    """Inputs and outputs, and which of them are states."""
    after = dict(found.states)
    before = {given: output for output, given in found.states}
    rows = []
    for what, names in (("input", graph.inputs), ("output", graph.outputs)):
        for name in names:
            tensor = graph.tensor(name)
            note = ""
            if what == "input" and name in before:
                note = f"state, from {before[name]}"
            if what == "output" and name in after:
                note = f"state, becomes {after[name]}"
            rows.append((what, name, tensor.dtype, shape(tensor.shape), note))
    headers = ("", "tensor", "dtype", "shape", "")
    return table(headers, rows, least=("",))


def operators(found: Figures) -> str:
    """The work by kind of node, and by family."""
    rows = [
        (
            one.name,
            one.family,
            one.nodes,
            one.macs or None,
            share(one.macs, found.macs) if one.macs else None,
            size(one.constant_bytes) if one.constant_bytes else None,
        )
        for one in found.kinds
    ]
    headers = ("operator", "family", "nodes", "MACs", "share %", "constants")
    families = [
        f"{one.name} {plural(one.nodes, 'node')}"
        + (f" ({share(one.macs, found.macs):.1f} % of MACs)" if one.macs else "")
        for one in found.families
    ]
    return (
        table(headers, rows, least=("family", "constants"))
        + "\n\n"
        + labelled([("families", ", ".join(families))])
    )


def nodes(graph: Graph) -> str:
    """Every node, for -v."""
    rows = []
    for node in graph.nodes:
        tensor = graph.tensor(node.output)
        scale, zero_point = _quantization(tensor)
        weight = graph.tensors[node.inputs[1]] if len(node.inputs) > 1 else None
        rows.append(
            (
                node.name,
                node.op,
                shape(tensor.shape),
                tensor.dtype,
                scale,
                zero_point,
                shape(weight.shape) if weight is not None and weight.data is not None else "",
                macs(graph, node) or None,
            )
        )
    return table(
        ("node", "operator", "output", "dtype", "scale", "zero-point", "weight", "MACs"),
        rows,
        least=("zero-point", "scale", "dtype", "weight"),
    )


def _quantization(tensor: Tensor) -> tuple[str, int | None]:
    if tensor.quantization is None or tensor.quantization.axis is not None:
        return "", None
    return f"{tensor.scale:.6g}", tensor.zero_point


# -- targets --------------------------------------------------------------------------------------------


def outlook_document(graph: Graph, found: Outlook) -> dict[str, Any]:
    """What a target would do, in short."""
    return {
        "name": found.name,
        "counts": counts(found),
        "macs_device": found.macs_device,
        "round_trips": {"count": found.round_trips.count, "bytes": found.round_trips.nbytes},
        "compiles": found.compiles,
        "reasons": [reason_document(one) for one in found.reasons],
    }


def counts(found: Outlook) -> dict[str, int]:
    """Nodes by place."""
    return {"device": found.on_device, "host": len(found.placements) - found.on_device, "refused": 0}


def reason_document(reason: Reason) -> dict[str, Any]:
    """A reason with its nodes."""
    return {
        "reason": reason.text,
        "hint": reason.hint,
        "count": len(reason.nodes),
        "ops": dict(reason.ops.most_common()),
        "nodes": reason.nodes,
    }


def outlooks(graph: Graph, found: Sequence[Outlook], *, everything: bool) -> str:
    """A line a target, and below the reasons, of targets that give the same once."""
    total = graph.macs
    rows = [
        (
            one.name,
            one.on_device,
            len(one.placements) - one.on_device,
            share(one.macs_device, total) if total else None,
            one.compiles,
        )
        for one in found
    ]
    text = [table(("target", "device", "host", "MACs on device %", "compiles"), rows)]
    alike: dict[str, list[str]] = {}
    for one in found:
        if one.reasons:
            why = reasons(one.reasons, everything=everything)
            if cost := crossing(one.round_trips.count, one.round_trips.nbytes):
                why += "\n" + wrapped(f"  {cost}", "  ")
            alike.setdefault(why, []).append(one.name)
    for why, names in alike.items():
        text.append(wrapped(f"on the host with {', '.join(names)}:", "  ") + f"\n{why}")
    return "\n\n".join(text)


def crossing(count: int, nbytes: int) -> str:
    """What the host's parts in mid-graph cost; nothing if there are none."""
    if not count:
        return ""
    return f"in mid-graph: {plural(count, 'round trip')} a run, {size(nbytes)} in all; runs do not overlap"


def reasons(found: Sequence[Reason], *, everything: bool) -> str:
    """Reasons with the number of nodes, their operators, some of their names, and the hint."""
    lines = []
    for reason in found if everything else found[:FEW]:
        ops, number = reason.ops.most_common(), len(reason.nodes)
        if len(ops) == 1:
            lines.append(wrapped(f"  {number:,} x {ops[0][0]}: {reason.text}", "      "))
        else:
            kept = ops if everything else ops[:FEW]
            named = counted(dict(kept)) + (f" and {len(ops) - FEW} more" if len(ops) > len(kept) else "")
            lines.append(wrapped(f"  {number:,} x {reason.text} ({named})", "      "))
        names = reason.nodes[: MANY if everything else FEW]
        more = f" and {number - len(names):,} more" if number > len(names) else ""
        lines.append(wrapped(f"      {', '.join(names)}{more}", "      "))
        if reason.hint:
            lines.append(wrapped(f"      hint: {reason.hint}", "      "))
    if len(found) > FEW and not everything:
        lines.append(f"  and {plural(len(found) - FEW, 'more reason')}: -v shows them")
    return "\n".join(lines)
