"""`towline inspect MODEL --target T`: where each node of a model would run, and why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from sdk.errors import Unsupported
from sdk.importers import load_model
from sdk.passes import optimize
from sdk.report import table
from sdk.segments import Placement, place
from sdk.target import get_target
from towline.cli.options import Shape

AT_THE_ENDS = "quantising an input, and dequantising at the end, are the host's"


def described(path: Path, target: str, shapes: dict[str, Shape] | None) -> tuple[dict[str, Any], str]:
    """The document and the text: all nodes, those refused with their reasons.

    Raises:
        TowlineError: no such target; a model that cannot be read, or is refused for another reason than its
            nodes.
    """
    chosen = get_target(target)
    try:
        graph = optimize(load_model(path, input_shapes=shapes))
    except Unsupported as problem:
        if not problem.refusals:
            raise
        nodes = [
            {"name": r.name, "op": r.op, "place": None, "reason": r.reason, "hint": r.hint}
            for r in problem.refusals
        ]
    else:
        nodes = [_node(placement) for placement in place(graph, chosen)]
    found = Counter(node["place"] or "refused" for node in nodes)
    counts = {name: found[name] for name in ("device", "host", "refused")}
    text = f"{target}: {counts['device']:,} nodes on the device, {counts['host']:,} on the host"
    if counts["refused"]:
        refused = counts["refused"]
        text = f"{refused:,} {'node is' if refused == 1 else 'nodes are'} refused, for every target"
    rows = [
        (node["name"], node["op"], node["place"] or "refused", node["reason"])
        for node in nodes
        if node["reason"]
    ]
    if rows:
        text += "\n\n" + table(("node", "operator", "place", "reason"), rows)
    hints = list(dict.fromkeys(node["hint"] for node in nodes if node["hint"]))
    text += "".join(f"\nhint: {hint}" for hint in hints)
    return {"target": target, "nodes": nodes, "counts": counts}, text


def _node(placement: Placement) -> dict[str, Any]:
    verdict, node = placement.verdict, placement.node
    at_the_ends = placement.place == "host" and verdict.supported
    return {
        "name": node.name,
        "op": node.op,
        "place": placement.place,
        "reason": AT_THE_ENDS if at_the_ends else verdict.reason,
        "hint": verdict.hint,
    }
