"""`towline inspect` of a compiled network: its graph, places, states, memory, or the code of a layer."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from sdk.artifact import Artifact
from sdk.graph import macs
from sdk.inspection import Figures, figures
from sdk.report import Result, plural, size, table
from towline.cli import inspect_text as text_of
from towline.cli import layers
from towline.cli.camera import camera_lines
from towline.cli.inspect_text import labelled
from towline.cli.options import tuning_line


def described(path: Path, network: Artifact, found: Figures, *, everything: bool) -> Result:
    """All of it."""
    graph = network.graph
    parts = {"file": path.stat().st_size}
    memory: dict[str, int] = {}
    buffers: list[dict[str, Any]] = []
    for number, program in enumerate(network.programs):
        prefix = f"{number}/" if len(network.programs) > 1 else ""
        parts[f"{prefix}weights"] = program.weights.nbytes
        parts |= {f"{prefix}code/{name}": len(data) for name, data in program.code.items()}
        memory |= {prefix + name: nbytes for name, nbytes in program.plan.get("memory", {}).items()}
        buffers += [one | {"name": prefix + one["name"]} for one in program.plan.get("buffers", [])]
    tuning = network.programs[0].plan.get("tuning")
    places = [
        (part.place, len(part.graph.nodes), sum(macs(graph, node) for node in part.graph.nodes))
        for part in network.segments
    ]
    document: dict[str, Any] = {
        "file": path,
        "kind": "tow",
        "target": network.target,
        "arithmetic": network.arithmetic,
        "made_by": network.made_by,
        "source": None
        if network.source is None
        else {"name": network.source.name, "sha256": network.source.sha256},
        "cameras": [dataclasses.asdict(camera) for camera in network.cameras],
        "preprocessing": network.preprocessing,
        "input_statistics": network.input_statistics,
        "labels": network.labels,
        "bytes": parts,
        "memory": memory,
        "tuning": tuning,
        "buffers": buffers,
        **text_of.graph_document(graph, found),
        "states": [{"output": output, "input": given} for output, given in network.states],
        "segments": [{"place": place, "nodes": nodes, "macs": work} for place, nodes, work in places],
    }
    made = f"by Towline {network.made_by}" + (f" from {network.source.name}" if network.source else "")
    head = [
        (
            "file",
            f"compiled for {network.target} ({network.arithmetic} arithmetic), {size(parts['file'])}, {made}",
        ),
        ("precision", found.precision.words),
        ("parameters", f"{text_of.amount(found.parameters)}; constants take {size(found.constant_bytes)}"),
        ("work", f"{text_of.amount(found.macs)} MACs in {plural(len(graph.nodes), 'node')}"),
        ("places", ", then ".join(f"{plural(nodes, 'node')} on the {place}" for place, nodes, _ in places)),
        ("states", ", ".join(f"{output} -> {given}" for output, given in network.states)),
        ("cameras", camera_lines(network.cameras).replace("camera: ", "").replace("\n", "; ")),
        ("pictures", "" if network.cameras else _recipe(network.preprocessing)),
    ]
    text = [
        f"{path}\n{labelled(head)}",
        table(("part", "bytes", ""), [(name, n, size(n)) for name, n in parts.items()]),
        table(("memory", "bytes", ""), [(k.replace("_", " "), n, size(n)) for k, n in memory.items()]),
        *filter(None, [tuning_line(tuning)]),
        text_of.ends(graph, found),
        text_of.operators(found),
    ]
    if everything:
        text.append(text_of.nodes(graph))
        if buffers:
            rows = [(b["name"], b["offset"], b["size"], f"{b['first']}..{b['last']}") for b in buffers]
            text.append(table(("buffer", "offset", "bytes", "live in layers"), rows))
    return Result(document, "\n\n".join(text))


def result(path: Path, network: Artifact, *, everything: bool) -> Result:
    """What the command prints of a compiled network."""
    return described(path, network, figures(network.graph), everything=everything)


def code(path: Path, network: Artifact, name: str | None) -> tuple[layers.LayerCode, Result]:
    """The machine code of a layer."""
    layer = layers.code(network, name)
    document = {
        "file": path,
        "target": network.target,
        "layer": layer.name,
        "op": layer.op,
        "kernels": layer.kernels,
    }
    return layer, Result(document, f"; {layer.name} ({layer.op})\n{layer.text}")


def _recipe(preprocessing: dict[str, Any] | None) -> str:
    if preprocessing is None:
        return "the file does not say how a picture becomes the input"
    return ", ".join(f"{name} {value}" for name, value in preprocessing.items() if value is not None)
