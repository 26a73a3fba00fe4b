"""From a quantised model to an artefact: import, optimise, part host from target, compile for the target."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sdk import artifact as artifacts
from sdk.artifact import Artifact, Source
from sdk.errors import Unsupported, UsageError
from sdk.graph import Graph
from sdk.importers import is_tflite, load_model
from sdk.importers.tflite import pixels
from sdk.passes import optimize, split, verify
from sdk.quantization import read_metadata
from sdk.target import Options, Tunable, get_target, require_supported
from sdk.tuning import of_user

DEFAULT_TARGET = "hexagon-v65"


def compile(
    model: str | os.PathLike[str] | Graph,
    target: str = DEFAULT_TARGET,
    output: str | os.PathLike[str] | None = None,
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    labels: Sequence[str] | None = None,
    options: Options | None = None,
) -> Artifact:
    """Compile a quantised network for a target.

    Args:
        model: the path of a quantised ONNX file (QDQ or QOperator) or .tflite, or a graph built in memory.
        target: a name of `targets()`.
        output: where to write the artefact, a `.tow`; nowhere by default.
        input_shapes: static shapes by name, for inputs whose shape is dynamic.
        labels: names of the classes, in order.
        options: for the target; by default what the user has measured with `towline tune`.

    Returns:
        The artefact; `program.seconds` has the wall seconds of every stage.

    Raises:
        UsageError: no such target or model file, or `input_shapes` contradicts the model.
        InvalidInput: not as many labels as classes.
        InvalidModel: the file is damaged, or contradicts itself.
        Unsupported: the model is float, or holds something that Towline or the target does not support.
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
    body = split(graph).body
    if labels is not None:
        artifacts.check_labels(list(labels), graph)
    seconds["optimise"] = time.perf_counter() - started

    if options is None:
        options = Options(tuning=of_user(target) if isinstance(chosen, Tunable) else None)
    try:
        program = chosen.compile(body, options)
    except Unsupported:
        require_supported(chosen, body)  # it names the node, unless only the whole exceeds a limit
        raise
    program.seconds = seconds | program.seconds
    result = Artifact(
        program=program,
        graph=graph,
        arithmetic=chosen.arithmetic,
        preprocessing=preprocessing.to_json() if preprocessing else None,
        input_statistics=statistics.to_json() if statistics else None,
        labels=list(labels) if labels is not None else None,
        source=source,
    )
    if output is not None:
        started = time.perf_counter()
        artifacts.save(result, output)
        program.seconds["write"] = time.perf_counter() - started
    return result


def _source(path: Path) -> Source:
    try:
        # A name that is not text (bytes of another encoding) could not be written to the manifest.
        name = path.name.encode("utf-8", "replace").decode()
        return Source(name, hashlib.sha256(path.read_bytes()).hexdigest())
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
