"""How good a compiled network is on a set of inputs: float model, reference and target side by side."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sdk import artifact, tuner
from sdk.artifact import Artifact
from sdk.classification import class_count
from sdk.errors import InvalidInput, UsageError
from sdk.evaluation import data, spread
from sdk.evaluation.compute import REFERENCE, Job, Record, exact
from sdk.evaluation.data import Item
from sdk.evaluation.figures import Evaluation
from sdk.evaluation.fit import require_same_network
from sdk.importers.onnx_file import read_onnx
from sdk.quantizer.calibration import spread as evenly
from sdk.targets import chosen_device, is_shareable

__all__ = ["Evaluation", "Record", "evaluate"]

STAGE = "evaluate"

UNRELATED_DB = 3.0
"""Below this mean SQNR the float model is hardly the one that was quantised."""


def evaluate(
    network: str | os.PathLike[str],
    images: str | os.PathLike[str],
    *,
    real: str | os.PathLike[str] | None = None,
    model: str | os.PathLike[str] | None = None,
    labels: str | None = None,
    limit: int | None = None,
    device: str | None = None,
    firmware: Path | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Evaluation:
    """Run a compiled network on many inputs, on the target and as it is defined, and beside its models.

    Args:
        network: a `.tow`. It holds code: evaluate only those you trust.
        images: a directory of pictures (with all below it), a picture, or an .npz or .npy file of arrays as
            the network takes them, samples along the first axis. For a network with states the arrays,
            without the states, are one sequence in their order; with them, they are single inferences.
        real: the float ONNX model that was quantised; without it there is no SQNR.
        model: the quantised ONNX model that was compiled, which onnxruntime runs as well.
        labels: the class of each input: a file with lines `picture,class`, or "folders" where a picture's
            folder is its class (`data.read_labels`).
        limit: the most inputs to take, evenly spaced; None for all.
        device: a device string; by default the environment's TOWLINE_DEVICE, and without it "emulated".
        firmware: the directory of an AMD card's firmware files.
        jobs: processes side by side, each with a session of its own; by default one a core. A
            real device is one process's.
        scheduler: the address of a Dask scheduler, "tcp://host:8786", whose workers evaluate instead.
        progress: called with ("evaluate", inputs done, inputs).

    Returns:
        The figures; the same wherever they were computed, but for the seconds.

    Raises:
        UsageError: an invalid argument, a missing file, or a model that is not this network's.
        InvalidInput: no input could be read, or the labels do not fit the inputs.
        InvalidArtifact, InvalidModel: a file is damaged.
        EnvironmentMissing: the device, the scheduler, a tool or a package is missing.
        DeviceFailed: the device died.
    """
    started = time.perf_counter()
    if limit is not None and limit < 1:
        raise UsageError(f"the limit must be a whole number of 1 or more, not {limit!r}")
    if jobs is not None and (jobs < 1 or scheduler is not None):
        raise UsageError("jobs must be 1 or more, and cannot be combined with a scheduler")
    loaded = artifact.load(network)
    graph = loaded.graph
    for path, quantized in ((model, True), (real, False)):
        if path is not None:
            require_same_network(read_onnx(path), os.fspath(path), graph, quantized=quantized)
    states = [name for _, name in loaded.states]
    inputs = {name: graph.tensor(name) for name in graph.inputs}
    available = data.items(images, inputs)
    _require_pictures(loaded, available)
    items = [available[index] for index in evenly(len(available), limit)]
    sequence = bool(states) and not set(states) & items[0].feeds.keys()
    known = None if labels is None else _labels(labels, loaded, items, available)
    where = chosen_device(loaded.target, device)
    job = Job(
        network=os.fspath(network),
        real=None if real is None else os.fspath(real),
        model=None if model is None else os.fspath(model),
        device=where,
        firmware=firmware,
        sequence=sequence,
    )
    processes = _processes(job, jobs, scheduler)

    def done(count: int, total: int) -> None:
        progress(STAGE, count, total)

    done(0, len(items))
    if scheduler is not None:
        with tuner.dask(scheduler) as pool:
            records = spread.remote(job, items, pool, done)
    elif processes:
        records = spread.local(job, items, processes, done)
    else:
        records = spread.here(job, items, done)
    if all(record.skipped for record in records):
        raise InvalidInput(
            f"none of {len(records)} could be read; the first: {records[0].skipped}",
            where=os.fspath(images),
        )
    result = Evaluation(
        target=loaded.target,
        device=where,
        arithmetic=loaded.arithmetic,
        source=os.fspath(images),
        records=records,
        available=len(available),
        labels=known,
        class_names=loaded.labels,
        classifier=class_count(graph) is not None,
        exact=exact(loaded),
        sequence=sequence,
        warnings=[],
        not_compared=_not_compared(job),
        paths={item.name: item.picture for item in items if item.picture},
        seconds=time.perf_counter() - started,
    )
    return dataclasses.replace(result, warnings=_warnings(loaded, job, result))


def _require_pictures(network: Artifact, items: Sequence[Item]) -> None:
    if items[0].picture and (network.preprocessing is None or len(network.graph.inputs) != 1):
        raise InvalidInput(
            "the network does not say how a picture becomes its input",
            where=network.graph.name,
            hint="quantise the model with pictures or --preprocess, or give arrays (.npz)",
        )


def _labels(
    labels: str, network: Artifact, items: Sequence[Item], available: Sequence[Item]
) -> dict[str, int]:
    classes = class_count(network.graph)
    if classes is None:
        raise UsageError("labels are for a classifier, which has one output", where=network.graph.name)
    names = [item.name for item in available]
    return data.read_labels(labels, items, names, classes, network.labels)


def _processes(job: Job, jobs: int | None, scheduler: str | None) -> int:
    """How many to start; 0 for this process alone.

    Raises:
        UsageError: a real device for several processes, or a sequence.
    """
    several = scheduler is not None or (jobs or 1) > 1
    shareable = is_shareable(job.device)
    if several and not shareable:
        raise UsageError(
            "one process owns a real device",
            where=f"device {job.device}",
            hint="leave out --jobs and --scheduler, or use the emulated device",
        )
    if several and job.sequence:
        raise UsageError(
            "the steps of a sequence follow one another, in one process",
            where=job.network,
            hint="leave out --jobs and --scheduler, or give arrays of the states too",
        )
    if not shareable:
        return 0
    return 1 if job.sequence else jobs or os.cpu_count() or 1


def _not_compared(job: Job) -> list[str]:
    missing = []
    if job.real is None:
        missing.append("float: give the float model with --float for SQNR and its classes")
    if job.model is None:
        missing.append("onnxruntime: give the quantised model with --model")
    return missing


def _warnings(network: Artifact, job: Job, result: Evaluation) -> list[str]:
    warnings = []
    if job.model is not None and network.source is not None:
        with open(job.model, "rb") as file:
            same = network.source.sha256 == hashlib.file_digest(file, "sha256").hexdigest()
        if not same:
            warnings.append(f"{job.model}: this is not the file that the network was compiled from")
    if result.sqnr_db is not None and result.sqnr_db[REFERENCE]["mean"] < UNRELATED_DB:
        warnings.append(f"{job.real}: the network hardly agrees with it; is it the model that was quantised?")
    if result.seen:
        warnings.append(
            f"{result.seen} of {len(result.found)} inputs served to calibrate: "
            "their figures say less of others"
        )
    if result.unlike:
        first = result.unlike[0]
        warnings.append(
            f"{len(result.unlike)} of {len(result.found)} inputs are unlike the calibration's; "
            f"the first is {first.name}: {first.unlike}"
        )
    return warnings
