"""From a model to an artefact: import, optimise, place, compile for the target."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from sdk import artifact as artifacts
from sdk.artifact import Artifact, Source
from sdk.errors import Unsupported, UsageError
from sdk.graph import Graph
from sdk.importers import is_tflite, load_model
from sdk.importers.tflite import pixels
from sdk.passes import optimize
from sdk.quantization import read_metadata
from sdk.segments import HostPolicy, boundary, check_host, cut, place
from sdk.states import check_states, find_states
from sdk.target import Options, Program, Target, Tunable, get_target
from sdk.tuning import of_user
from sdk.verification import verify

DEFAULT_TARGET = "hexagon-v65"


def compile(
    model: str | os.PathLike[str] | Graph,
    target: str = DEFAULT_TARGET,
    output: str | os.PathLike[str] | None = None,
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    labels: Sequence[str] | None = None,
    options: Options | None = None,
    states: Sequence[tuple[str, str]] | None = None,
    host: HostPolicy = "default",
) -> Artifact:
    """Compile a network for a target.

    Args:
        model: the path of an ONNX file (quantised, QDQ or QOperator, or float) or .tflite, or a graph built
            in memory.
        target: a name of `targets()`.
        output: where to write the artefact, a `.tow`; nowhere by default.
        input_shapes: static shapes by name, for inputs whose shape is dynamic.
        labels: names of the classes, in order.
        options: for the target; by default what the user has measured with `towline tune`.
        states: pairs (output, input) of tensors that a step leaves behind for the next; by default every
            output `next_NAME` with an input `NAME` of its shape, dtype and quantisation.
        host: what may run on the host of the nodes that the target does not take: "default" is no product and
            at most 1 % of the multiply-accumulates, "any" is everything, "none" nothing.

    Returns:
        The artefact; `seconds` has the wall seconds of every stage.

    Raises:
        UsageError: no such target or model file, or `input_shapes` contradicts the model.
        InvalidInput: not as many labels as classes.
        InvalidModel: the file is damaged, or contradicts itself.
        Unsupported: the model holds something that Towline or the target does not support.
        ToolMissing, EnvironmentMissing: a compiler, or the extra `compile`, is not installed.
        BuildFailed: a compiler rejected its input.
        OutputFailed: the artefact could not be written.
    """
    chosen = get_target(target)
    seconds: dict[str, float] = {}
    started = time.perf_counter()
    preprocessing = statistics = source = None
    if isinstance(model, Graph):
        graph = model
    else:
        graph = load_model(model, input_shapes=input_shapes)
        if is_tflite(model):
            preprocessing = pixels(graph)
        else:
            preprocessing, statistics = read_metadata(model)
        source = _source(Path(model))
    seconds["import"] = time.perf_counter() - started

    started = time.perf_counter()
    graph = optimize(graph)
    verify(graph)
    pairs = find_states(graph) if states is None else tuple(states)
    check_states(graph, pairs)
    if labels is not None:
        artifacts.check_labels(list(labels), graph)
    seconds["optimise"] = time.perf_counter() - started

    if options is None:
        options = Options(tuning=of_user(target) if isinstance(chosen, Tunable) else None)
    hosted: Collection[str] = () if host == "none" else boundary(graph)
    try:
        programs = _programs(graph, hosted, chosen, options)
    except Unsupported:
        placements = place(graph, chosen, host)
        check_host(graph, placements, target, host)
        if all(placement.verdict.supported for placement in placements):
            raise  # only the whole exceeds a limit
        hosted = tuple(placement.node.name for placement in placements if placement.place == "host")
        programs = _programs(graph, hosted, chosen, options)
    for program in programs:
        for stage, spent in program.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + spent
    result = Artifact(
        programs=programs,
        graph=graph,
        arithmetic=chosen.arithmetic,
        hosted=tuple(node.name for node in graph.nodes if node.name in hosted),
        states=pairs,
        preprocessing=preprocessing.to_json() if preprocessing else None,
        input_statistics=statistics.to_json() if statistics else None,
        labels=list(labels) if labels is not None else None,
        source=source,
        seconds=seconds,
    )
    if output is not None:
        started = time.perf_counter()
        artifacts.save(result, output)
        seconds["write"] = time.perf_counter() - started
    return result


def _programs(graph: Graph, hosted: Collection[str], target: Target, options: Options) -> tuple[Program, ...]:
    parts = [segment.graph for segment in cut(graph, hosted) if segment.place == "device"]
    return tuple(target.compile(part, options) for part in parts)


def _source(path: Path) -> Source:
    try:
        # A name that is not text (bytes of another encoding) could not be written to the manifest.
        name = path.name.encode("utf-8", "replace").decode()
        with path.open("rb") as file:
            return Source(name, hashlib.file_digest(file, "sha256").hexdigest())
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
