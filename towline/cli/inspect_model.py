"""`towline inspect` of a model: what its file holds, what it becomes, and what targets would do with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdk.errors import Refusal, TowlineError, Unsupported
from sdk.graph import Graph
from sdk.importers import load_model, read_onnx
from sdk.importers.cutting import cut
from sdk.inspection import Figures, ModelFile, Outlook, Reason, figures, outlook, read_model_file, reasons
from sdk.inspection.figures import shape
from sdk.passes import optimize
from sdk.quantizer.prepare import check
from sdk.report import Result, plural, size, table
from sdk.segments import Placement
from sdk.targets import get_target
from towline.cli import inspect_text as text_of
from towline.cli.inspect_text import labelled
from towline.cli.options import Reading

NAMES = {"onnx": "ONNX", "tflite": "TFLite"}
AT_THE_ENDS = "quantising an input, and dequantising at the end, are the host's"


@dataclass(frozen=True)
class Inspected:
    """A model: its file, and what it becomes or why it is refused.

    Attributes:
        refusal: what the importer raised.
        refusals: every node that it refuses, or one of the model as a whole.
        outlooks: of the targets asked about; none where the model is refused.
    """

    file: ModelFile
    graph: Graph | None
    figures: Figures | None
    refusal: TowlineError | None
    refusals: tuple[Refusal, ...]
    outlooks: tuple[Outlook, ...]

    @property
    def by_node(self) -> bool:
        """Whether nodes are refused, rather than the model as a whole."""
        return isinstance(self.refusal, Unsupported) and bool(self.refusal.refusals)

    @property
    def reasons(self) -> list[Reason]:
        """Of the refusals."""
        values = {one.name: one for one in self.file.operators}
        return reasons(
            (
                one,
                (*values[one.name].inputs, *values[one.name].outputs, one.name) if one.name in values else (),
            )
            for one in self.refusals
        )


def inspected(path: Path, reading: Reading, targets: list[str]) -> Inspected:
    """Read a model and ask targets about it.

    Raises:
        UsageError: no such target; a shape that the model contradicts.
        TowlineError: the file cannot be read as a model.
    """
    chosen = [get_target(name) for name in targets]
    file = read_model_file(path)
    try:
        graph = optimize(load_model(path, **reading))
    except Unsupported as problem:
        whole = Refusal(problem.where or path.name, "", problem.message, problem.hint)
        return Inspected(file, None, None, problem, problem.refusals or (whole,), ())
    found = tuple(outlook(graph, target) for target in chosen)
    return Inspected(file, graph, figures(graph), None, (), found)


# -- the whole ------------------------------------------------------------------------------------------


def described(
    path: Path, one: Inspected, reading: Reading, *, everything: bool
) -> tuple[dict[str, Any], list[str]]:
    """The document, and the paragraphs of the text."""
    file = one.file
    document: dict[str, Any] = {
        "file": path,
        "kind": file.format,
        "quantized": file.quantized,
        "bytes": file.nbytes,
        "producer": file.producer,
    }
    if file.format == "onnx":
        document |= {"opsets": file.opsets, "onnx_operators": file.counts}
    else:
        document |= {"tflite_operators": file.counts}
    document |= _document(one)
    verdict = ""
    if file.format == "onnx" and not file.quantized:
        document["unquantizable"], verdict = _float_verdict(path, reading)
    return document, _paragraphs(path, one, verdict, everything=everything)


def _document(one: Inspected) -> dict[str, Any]:
    graph, found = one.graph, one.figures
    if graph is None or found is None:
        return {
            "inputs": [vars(value) for value in one.file.inputs],
            "outputs": [vars(value) for value in one.file.outputs],
            "precision": {"words": one.file.precision},
            "parameters": {"count": one.file.parameters, "bytes": one.file.constant_bytes},
            "constant_bytes": one.file.constant_bytes,
            "refused": [
                {"by": "import", "node": r.name, "op": r.op or None, "reason": r.reason, "hint": r.hint}
                for r in one.refusals
            ],
            "reasons": [text_of.reason_document(reason) for reason in one.reasons],
            "targets": [],
        }
    return {
        **text_of.graph_document(graph, found),
        "memory": {"live_peak": found.live_peak, "estimate": True},
        "targets": [text_of.outlook_document(graph, each) for each in one.outlooks],
        "refused": [
            {
                "by": each.name,
                "node": placement.node.name,
                "op": placement.node.op,
                "reason": placement.verdict.reason,
                "hint": placement.verdict.hint,
            }
            for each in one.outlooks
            for placement in each.placements
            if not placement.verdict.supported
        ],
    }


def _float_verdict(path: Path, reading: Reading) -> tuple[list[dict[str, Any]], str]:
    """Whether `towline quantize` takes a float ONNX model."""
    try:
        model = read_onnx(path, external=False)
        cut(model, outputs=reading["outputs"], constants=reading["constants"], where=str(path))
        check(model, reading["input_shapes"], path.parent)
    except TowlineError as refusal:
        why = {
            "by": "quantise",
            "node": refusal.where,
            "op": None,
            "reason": refusal.message,
            "hint": refusal.hint,
        }
        return [why], f"no: {refusal}"
    return [], "yes: towline quantize"


def _paragraphs(path: Path, one: Inspected, quantizable: str, *, everything: bool) -> list[str]:
    file, graph, found = one.file, one.graph, one.figures
    opsets = ", ".join(f"opset {n}" if d == "ai.onnx" else f"{d} {n}" for d, n in file.opsets.items())
    producer = f"by {file.producer}" if file.producer else ""
    head = [
        ("file", ", ".join(filter(None, (NAMES[file.format], size(file.nbytes), opsets, producer)))),
        ("precision", found.precision.words if found else file.precision),
    ]
    count = found.parameters if found else file.parameters
    nbytes = found.constant_bytes if found else file.constant_bytes
    head.append(("parameters", f"{text_of.amount(count)}; constants take {size(nbytes)}"))
    if graph is not None and found is not None:
        head += [
            ("work", f"{text_of.amount(found.macs)} MACs in {plural(len(graph.nodes), 'node')}"),
            ("memory", f"about {size(found.live_peak)} of activations alive at once (an estimate)"),
            ("states", ", ".join(f"{output} -> {given}" for output, given in found.states)),
        ]
        head.append(("quantisable", quantizable))
    inner = f"; and {file.inner:,} in branches and bodies" if file.inner else ""
    head.append(("operators", text_of.counted(file.counts) + inner))
    text = [f"{path}\n{labelled(head)}"]
    if graph is None or found is None:
        return [*text, _file_ends(file), _refused(one, everything=everything)]
    text += [text_of.ends(graph, found), text_of.operators(found)]
    if everything:
        text.append(text_of.nodes(graph))
    return [*text, text_of.outlooks(graph, one.outlooks, everything=everything)]


def _file_ends(file: ModelFile) -> str:
    rows = [
        (what, value.name, value.dtype, "unknown" if value.shape is None else shape(value.shape))
        for what, values in (("input", file.inputs), ("output", file.outputs))
        for value in values
    ]
    return table(("", "tensor", "dtype", "shape"), rows)


def _refused(one: Inspected, *, everything: bool) -> str:
    """Why the importer refuses the model, for all targets."""
    assert one.refusal is not None
    number = len(one.refusals)
    if not one.by_node:
        hint = f"\n  hint: {one.refusal.hint}" if one.refusal.hint else ""
        lines = f"refused, for every target: {one.refusal}{hint}"
        others = one.file.open_inputs
        if len(others) > 1 and one.refusal.where == f"input {others[0].name}":
            lines += f"\n  inputs that need a shape: {', '.join(value.name for value in others)}"
        return lines
    head = f"refused, for every target: {plural(number, 'node')} of {len(one.file.operators):,}"
    return f"{head}\n{text_of.reasons(one.reasons, everything=everything)}"


# -- one target -----------------------------------------------------------------------------------------


def places(one: Inspected, target: str, *, everything: bool) -> tuple[dict[str, Any], str]:
    """Where each node would run on a target: the document, and the text."""
    if one.graph is None:
        nodes = [
            {"name": r.name, "op": r.op, "place": None, "reason": r.reason, "hint": r.hint}
            for r in one.refusals
        ]
        document: dict[str, Any] = {"counts": {"device": 0, "host": 0, "refused": len(nodes)}}
        document |= {"reasons": [text_of.reason_document(reason) for reason in one.reasons]}
        text = _refused(one, everything=everything)
    else:
        (found,) = one.outlooks
        nodes = [_node(placement) for placement in found.placements]
        document = text_of.outlook_document(one.graph, found)
        text = text_of.outlooks(one.graph, [found], everything=False)
        rows = [(n["name"], n["op"], n["place"], n["reason"]) for n in nodes if everything or n["reason"]]
        if everything and rows:
            text += "\n\n" + table(("node", "operator", "place", "reason"), rows)
    return {"target": target, "nodes": nodes, **document}, text


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


def result(path: Path, one: Inspected, reading: Reading, target: str | None, *, everything: bool) -> Result:
    """What the command prints of a model, for one target or for all.

    Raises:
        TowlineError: with a target, what refuses the model as a whole.
    """
    if target is not None:
        if one.refusal is not None and not one.by_node:
            raise one.refusal
        document, text = places(one, target, everything=everything)
        return Result({"file": path, **document}, text)
    document, paragraphs = described(path, one, reading, everything=everything)
    return Result(document, "\n\n".join(paragraphs))
