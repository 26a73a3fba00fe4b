"""From a model to an artefact: import, optimise, place, compile for the target."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from numpy.typing import ArrayLike

from sdk import artifact as artifacts
from sdk.artifact import Artifact, Source
from sdk.camera.inputs import Camera, CameraInput
from sdk.camera.join import join
from sdk.errors import InvalidInput, Unsupported, UsageError
from sdk.float16 import Float16, to_float16
from sdk.graph import Graph
from sdk.importers import is_tflite, load_model
from sdk.importers.tflite import pixels
from sdk.integer_islands import for_arithmetic
from sdk.passes import optimize
from sdk.preprocess import InputStatistics, Preprocessing, require_shape
from sdk.quantizer import calibration, read_metadata
from sdk.segments import HostPolicy, boundary, check_host, cut, place, states_within
from sdk.states import Pairs, check_states, find_states
from sdk.target import AddsInHalf, Arithmetic, FitsCache, Options, Program, Sums, Target, Tunable, arithmetics
from sdk.targets import get_target
from sdk.tuning import of_user
from sdk.verification import verify

DEFAULT_TARGET = "hexagon-v65"


def compile(
    model: str | os.PathLike[str] | Graph,
    target: str = DEFAULT_TARGET,
    output: str | os.PathLike[str] | None = None,
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    outputs: Sequence[str] = (),
    constants: Mapping[str, ArrayLike] | None = None,
    labels: Sequence[str] | None = None,
    options: Options | None = None,
    states: Sequence[tuple[str, str]] | None = None,
    host: HostPolicy = "default",
    preprocessing: Preprocessing | None = None,
    float16: bool = False,
    keep_float32: Sequence[str] = (),
    calibrate: calibration.Source | None = None,
    sums: Sums | None = None,
    l2: int | None = None,
    arithmetic: Arithmetic | None = None,
    cameras: Sequence[Camera] = (),
) -> Artifact:
    """Compile a network for a target.

    Args:
        model: the path of an ONNX file (quantised, QDQ or QOperator, or float) or .tflite, or a graph built
            in memory.
        target: a name of `targets()`.
        output: where to write the artefact, a `.tow`; nowhere by default.
        input_shapes: static shapes by name, for inputs whose shape is dynamic.
        outputs: of an ONNX file: tensors that become the outputs instead of the model's own; what is behind
            them is left out.
        constants: of an ONNX file: values of inputs that become constants, by name; a number fills any shape.
        labels: names of the classes, in order.
        options: for the target; by default what the user has measured with `towline tune`.
        states: pairs (output, input) of tensors that a step leaves behind for the next; by default every
            output `next_NAME` with an input `NAME` of its shape, dtype and quantisation.
        host: what may run on the host of the nodes that the target does not take: "default" is no product and
            at most 1 % of the multiply-accumulates, "any" is everything, "none" nothing.
        preprocessing: how a picture becomes the input; by default what the model says.
        float16: make a float16 network of a float32 one (`sdk.float16`). Its inputs and outputs keep their
            dtype; layers that would overflow stay float32.
        keep_float32: with `float16`, nodes and tensors that stay float32, by name or pattern.
        calibrate: with `float16`, typical inputs for its range check, as `quantize` takes them; by default
            a few random ones.
        sums: how a target that can add products of float16 in half arithmetic does so; by default in half.
        l2: bytes of the cache in which a Hexagon DSP is to keep what layers hand on; by default 1 MB.
        arithmetic: how a target that offers several requantises; by default in its own.
        cameras: put in front of inputs (`sdk.camera`): a frame's bytes, and a matrix, become inputs of the
            network in place of a picture's planes; `preprocessing` then says which colours these have.

    Returns:
        The artefact; `seconds` has the wall seconds of every stage, and `float16` what stayed float32.

    Raises:
        UsageError: no such target or model file; a camera for no input; `input_shapes`, `outputs`,
            `constants` or `keep_float32` contradict the model; `keep_float32` or `calibrate` without
            `float16`; `sums` or `arithmetic` that the target has not; or an `l2` that it has not.
        InvalidInput: not as many labels as classes; `preprocessing` or `calibrate` does not fit the inputs.
        InvalidModel: the file is damaged, or contradicts itself.
        Unsupported: the model holds something that Towline or the target does not support.
        ToolMissing, EnvironmentMissing: a compiler, or the extra `compile`, is not installed.
        BuildFailed: a compiler rejected its input.
        OutputFailed: the artefact could not be written.
    """
    chosen = get_target(target)
    if not float16 and (keep_float32 or calibrate is not None):
        raise UsageError("keep_float32 and calibrate are for float16", hint="give float16=True as well")
    if sums is not None and (not isinstance(chosen, AddsInHalf) or sums not in chosen.sums):
        raise UsageError(f"{target} adds products of float16 in float32", hint="leave sums out")
    if l2 is not None:
        _require_cache(chosen, l2)
    own = arithmetics(chosen)
    arithmetic = arithmetic or (options.arithmetic if options is not None else None) or own[0]
    if arithmetic not in own:
        raise UsageError(
            f"{target} does not requantise in {arithmetic}",
            hint=f"it does in {' or '.join(own)}; leave arithmetic out",
        )
    seconds: dict[str, float] = {}
    started = time.perf_counter()
    stored = statistics = source = None
    if isinstance(model, Graph):
        graph = model
    else:
        graph = load_model(model, input_shapes=input_shapes, outputs=outputs, constants=constants)
        if is_tflite(model):
            stored = pixels(graph)
        else:
            stored, statistics = read_metadata(model)
        source = _source(Path(model))
    if preprocessing is not None and not cameras:
        if len(graph.inputs) != 1:
            raise InvalidInput(
                f"preprocessing is for a network with one input; it has {len(graph.inputs)}", where=graph.name
            )
        require_shape(preprocessing, graph.tensor(graph.inputs[0]).shape)
    preprocessing = preprocessing or stored
    seconds["import"] = time.perf_counter() - started

    started = time.perf_counter()
    graph = optimize(graph)
    verify(graph)
    pairs = find_states(graph) if states is None else tuple(states)
    check_states(graph, pairs)
    if labels is not None:
        artifacts.check_labels(list(labels), graph)
    seconds["optimise"] = time.perf_counter() - started

    converted = None
    if float16:
        started = time.perf_counter()
        converted = _float16(graph, keep_float32, pairs, calibrate, preprocessing, statistics)
        graph = converted.graph
        seconds["float16"] = time.perf_counter() - started
    made: tuple[CameraInput, ...] = ()
    if cameras:
        started = time.perf_counter()
        joined = join(graph, cameras, preprocessing, pairs)
        graph, made, pairs = optimize(joined.graph), joined.cameras, pairs + joined.states
        preprocessing = statistics = None  # pictures are no input any more
        seconds["camera"] = time.perf_counter() - started
    graph = for_arithmetic(graph, arithmetic)

    if options is None:
        options = Options(tuning=of_user(target) if isinstance(chosen, Tunable) else None)
    options = dataclasses.replace(
        options, states=pairs, sums=sums or options.sums, l2=l2 or options.l2, arithmetic=arithmetic
    )
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
        arithmetic=arithmetic,
        hosted=tuple(node.name for node in graph.nodes if node.name in hosted),
        states=pairs,
        cameras=made,
        preprocessing=preprocessing.to_json() if preprocessing else None,
        input_statistics=statistics.to_json() if statistics else None,
        labels=list(labels) if labels is not None else None,
        source=source,
        float16=converted,
        seconds=seconds,
    )
    if output is not None:
        started = time.perf_counter()
        artifacts.save(result, output)
        seconds["write"] = time.perf_counter() - started
    return result


SAMPLES = 8
"""Of typical inputs, the most that a range check takes."""


def _require_cache(target: Target, l2: int) -> None:
    """Raises UsageError: the target lays nothing out for a cache of this many bytes."""
    if not isinstance(target, FitsCache):
        raise UsageError(f"{target.name} does not use the size of an L2", hint="leave l2 out")
    if l2 not in target.l2_sizes:
        sizes = target.l2_sizes
        raise UsageError(
            f"an L2 must have {sizes[0] >> 10:,} to {sizes[-1] >> 10:,} KB, not {l2:,} bytes",
            hint="as 512K or 1M",
        )


def _float16(
    graph: Graph,
    keep: Sequence[str],
    states: Pairs,
    calibrate: calibration.Source | None,
    preprocessing: Preprocessing | None,
    statistics: InputStatistics | None,
) -> Float16:
    samples = None
    if calibrate is not None:
        inputs = {
            name: calibration.Input(graph.tensor(name).shape, graph.tensor(name).dtype)
            for name in graph.inputs
        }
        given = {name for _, name in states}
        found = calibration.load(calibrate, inputs, preprocessing, SAMPLES, lambda *_: None, given)
        samples = found.samples
    return to_float16(graph, keep=keep, states=states, samples=samples, statistics=statistics)


def _programs(graph: Graph, hosted: Collection[str], target: Target, options: Options) -> tuple[Program, ...]:
    segments = cut(graph, hosted)
    options = dataclasses.replace(options, states=states_within(segments, options.states))
    parts = [segment.graph for segment in segments if segment.place == "device"]
    return tuple(target.compile(part, options) for part in parts)


def _source(path: Path) -> Source:
    try:
        # A name that is not text (bytes of another encoding) could not be written to the manifest.
        name = path.name.encode("utf-8", "replace").decode()
        with path.open("rb") as file:
            return Source(name, hashlib.file_digest(file, "sha256").hexdigest())
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
