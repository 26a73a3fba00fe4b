"""One process's part of an evaluation: float model, quantised model, reference and target on one input.

Nothing here depends on which process computes it: the models run on one thread each, so that no sum is
ordered by the number of cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from sdk import artifact, dtypes, reference
from sdk.classification import class_count
from sdk.errors import InvalidInput, InvalidModel
from sdk.evaluation.data import Item
from sdk.evaluation.fit import inputs_of
from sdk.graph import Array, Graph
from sdk.importers.onnx_file import element_name, read_onnx
from sdk.inputs import check_inputs
from sdk.ort import onnxruntime_errors, quantized_session, session
from sdk.quantizer.fidelity import relative_error
from sdk.quantizer.metadata import input_digest, read_quantization
from sdk.reference import is_plain
from sdk.session import Session
from sdk.target import OpenOptions

FLOAT, MODEL, REFERENCE, TARGET = "float", "onnxruntime", "reference", "target"
"""What is evaluated: the float model, the quantised model under onnxruntime, and the compiled network as it
is defined and on the device."""


@dataclass(frozen=True)
class Job:
    """What every process opens.

    Attributes:
        network: the `.tow`.
        real, model: the float and the quantised ONNX file, None for none.
        device: a device string, None for the default.
        firmware: an AMD card's firmware files.
        sequence: whether the items are steps of one sequence, each from the states that the last one left.
    """

    network: str
    real: str | None = None
    model: str | None = None
    device: str | None = None
    firmware: Path | None = None
    sequence: bool = False


@dataclass(frozen=True)
class Record:
    """What was found for one item.

    Attributes:
        name: the item's.
        skipped: why it could not be read; the rest is empty then.
        classes: the class by what gave it; empty if the network is not a classifier.
        errors: the relative error against the float model (`trial.relative_error`) by what has it.
        max_abs_diff: the largest difference from the float model, in the outputs' units.
        elements: of all outputs.
        mismatches: of those, how many the target computes otherwise than the reference.
        max_mismatch: by how much at most.
        unlike: what about the input is nothing like the calibration's; "" for nothing.
        seen: whether the quantised model was calibrated on it; None if that is unknown.
        seconds: wall seconds by what took them.
    """

    name: str
    skipped: str
    classes: Mapping[str, int]
    errors: Mapping[str, float]
    max_abs_diff: Mapping[str, float]
    elements: int
    mismatches: int
    max_mismatch: float
    unlike: str
    seen: bool | None
    seconds: Mapping[str, float]


BEYOND = 1e30
"""In place of an infinite error, so that it still has a number of decibels."""


class Evaluator:
    """The models and the device of a job, open; a context manager.

    Raises:
        InvalidArtifact, InvalidModel, UsageError, DeviceMissing, ToolMissing, DeviceFailed: as `Session`, and
            as onnxruntime refuses a model.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self.network = artifact.load(job.network)
        self._graph = self.network.graph
        self._outputs = _real_outputs(self._graph)
        self._calibration: frozenset[str] | None = None
        self._runners: dict[str, Callable[[dict[str, Array]], Mapping[str, Array]]] = {}
        if job.real is not None:
            self._runners[FLOAT] = _Model(job.real, quantized=False).run
        if job.model is not None:
            made = read_quantization(job.model) or {}
            self._calibration = frozenset(made["inputs"]) if "inputs" in made else None
            self._runners[MODEL] = _Model(job.model, quantized=True).run
        self._runners[REFERENCE] = self._reference
        self._session = Session(self.network, job.device, OpenOptions(firmware=job.firmware))
        self._runners[TARGET] = self._session.run
        self._states = {who: self._session.states() for who in self._runners}

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the device."""
        self._session.close()

    def evaluate(self, item: Item) -> Record:
        """Run one item everywhere.

        Raises:
            InvalidInput: arrays that the network does not take; a picture that cannot be read is a record.
            InvalidModel: the float model computes NaN or infinity.
            DeviceFailed: as `Session.run`.
        """
        started = time.perf_counter()
        seconds: dict[str, float] = {}
        feeds = item.feeds
        if item.picture:
            try:
                feeds = self._session.prepare(item.picture)
            except InvalidInput as problem:
                if problem.where != item.picture:  # not the picture, but the network takes none
                    raise
                return Record(item.name, problem.message, {}, {}, {}, 0, 0, 0.0, "", None, {})
        seconds["inputs"] = time.perf_counter() - started
        stored: dict[str, Mapping[str, Array]] = {}
        for who, run in self._runners.items():
            started = time.perf_counter()
            given = {**feeds, **self._states[who]} if self._job.sequence else dict(feeds)
            stored[who] = run(given)
            if self._job.sequence:
                self._states[who] = {name: stored[who][output] for output, name in self.network.states}
            seconds[who] = time.perf_counter() - started
        return self._record(item.name, feeds, stored, seconds)

    def _record(
        self,
        name: str,
        feeds: Mapping[str, Array],
        stored: Mapping[str, Mapping[str, Array]],
        seconds: Mapping[str, float],
    ) -> Record:
        outputs = {who: _real(self._graph, values) for who, values in stored.items()}
        classes, errors, greatest = {}, {}, {}
        if class_count(self._graph) is not None:
            (output,) = self._graph.outputs
            classes = {who: int(np.argmax(values[output])) for who, values in outputs.items()}
        if (real := outputs.get(FLOAT)) is not None:
            if not all(np.isfinite(value).all() for value in real.values()):
                raise InvalidModel(
                    f"the float model computes NaN or infinity for {name}",
                    where=self._job.real,
                    hint="check the model's weights, and that the input is preprocessed",
                )
            for who, values in outputs.items():
                if who != FLOAT:
                    errors[who], greatest[who] = _differences(values, real, self._outputs)
        wrong, by = _mismatches(stored[TARGET], stored[REFERENCE])
        return Record(
            name=name,
            skipped="",
            classes=classes,
            errors=errors,
            max_abs_diff=greatest,
            elements=sum(np.asarray(value).size for value in stored[TARGET].values()),
            mismatches=wrong,
            max_mismatch=by,
            unlike=self._session.unlike_calibration(feeds) or "",
            seen=None if self._calibration is None else input_digest(dict(feeds)) in self._calibration,
            seconds=seconds,
        )

    def _reference(self, feeds: dict[str, Array]) -> dict[str, Array]:
        values = reference.run(self._graph, check_inputs(self._graph, feeds), self.network.arithmetic)
        return {name: values[name] for name in self._graph.outputs}


def exact(network: artifact.Artifact) -> bool:
    """Whether every result of the device is defined bit for bit."""
    return not any(
        is_plain(program.graph, node) for program in network.programs for node in program.graph.nodes
    )


class _Model:
    """An ONNX file under onnxruntime; its names are the compiled network's (`fit.require_same_network`)."""

    def __init__(self, path: str, *, quantized: bool) -> None:
        self._where, model = path, read_onnx(path)
        self._kinds = {
            value.name: element_name(value.type.tensor_type.elem_type) for value in inputs_of(model)
        }
        self._outputs = [value.name for value in model.graph.output]
        with onnxruntime_errors("run the model", path):
            self._session = (quantized_session if quantized else session)(model, threads=1)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        given = {name: array.astype(dtypes.storage(self._kinds[name])) for name, array in feeds.items()}
        with onnxruntime_errors("run the model", self._where):
            values = self._session.run(self._outputs, given)
        return dict(zip(self._outputs, values, strict=True))


def _real_outputs(graph: Graph) -> list[str]:
    """The outputs that stand for real values, or all if none does."""
    tensors = [graph.tensor(name) for name in graph.outputs]
    real = [t.name for t in tensors if t.quantization is not None or dtypes.is_float(t.dtype)]
    return real or list(graph.outputs)


def _real(graph: Graph, values: Mapping[str, Array]) -> dict[str, NDArray[np.float64]]:
    """Outputs as the real values they stand for."""
    result = {}
    for name in graph.outputs:
        tensor, value = graph.tensor(name), np.asarray(values[name])
        if value.dtype.kind == "f":
            result[name] = value.astype(np.float64)
        elif tensor.quantization is not None:
            result[name] = tensor.scale * (value.astype(np.float64) - tensor.zero_point)
        else:
            result[name] = dtypes.decode(value, tensor.dtype).astype(np.float64)
    return result


def _differences(
    values: Mapping[str, NDArray[np.float64]], real: Mapping[str, NDArray[np.float64]], names: list[str]
) -> tuple[float, float]:
    """Relative error and largest difference of the outputs of these names; NaN counts as infinity."""
    found = [np.nan_to_num(values[name], nan=np.inf) for name in names]
    expected = [real[name] for name in names]
    with np.errstate(over="ignore", invalid="ignore"):
        error = relative_error(found, expected)
    pairs = zip(found, expected, strict=True)
    greatest = max(float(np.abs(ours - theirs).max(initial=0.0)) for ours, theirs in pairs)
    return min(error, BEYOND), greatest


def _mismatches(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> tuple[int, float]:
    wrong, by = 0, 0.0
    for name, value in expected.items():
        found = actual[name]
        same = (found == value) | ((found != found) & (value != value))
        if same.all():
            continue
        wrong += int(np.count_nonzero(~same))
        with np.errstate(invalid="ignore"):
            difference = np.abs(found.astype(np.float64) - value.astype(np.float64))
        by = max(by, float(np.nan_to_num(difference[~same], nan=np.inf).max()))
    return wrong, by
