"""Which nodes to keep in floats: what the network's outputs gain by it, and what it costs.

A tensor stays float where every node that writes or reads it does. So the unit that is tried for a node is
the node with the readers of its result: kept in floats together they save the rounding of that tensor, and
that of their weights.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from sdk import files
from sdk.errors import InvalidInput, Unsupported, UsageError
from sdk.extras import require
from sdk.ort import onnxruntime_errors, quiet, session
from sdk.quantizer import layout
from sdk.quantizer.calibration import Feeds
from sdk.quantizer.layout import Layout
from sdk.quantizer.prepare import prepare, read_float
from sdk.quantizer.static import Ranges
from sdk.quantizer.trial import BOUNDS, MOVES, Trial
from sdk.suggestions import did_you_mean

PASSIVE = frozenset(MOVES.union(BOUNDS))


@dataclass(frozen=True)
class Gain:
    """What a unit is worth.

    Attributes:
        node: the node whose result becomes float; for an input of the network, the input's name.
        unit: names of all nodes that compute in floats for that.
        error: the mean relative error at the outputs with the unit in floats.
        gain_db: what that is less, in dB; below zero where errors happened to cancel.
        macs: multiply-accumulates of the unit.
    """

    node: str
    unit: tuple[str, ...]
    error: float
    gain_db: float
    macs: int


class Sensitivity:
    """Scores a quantised network with some of its nodes in floats.

    Attributes:
        units: names of nodes by the node (or input) whose result they make float, in graph order.
        error: the mean relative error at the outputs with no node in floats.
    """

    def __init__(
        self,
        prepared: Any,
        parts: Layout,
        ranges: Ranges,
        samples: Sequence[Feeds],
        expected: Sequence[Sequence[Any]],
        activation: str = "uint8",
        keep_float: Collection[str] = (),
    ) -> None:
        """Score the network as it is.

        Args:
            prepared: the float model, of `prepare.prepare`.
            parts: what of it is quantised.
            ranges: of each group.
            samples: inputs; a few suffice.
            expected: the float model's outputs for each.
            activation: the activations' type.
            keep_float: nodes that are in floats already.
        """
        self._prepared, self._parts, self._ranges = prepared, parts, ranges
        self._samples, self._expected, self._activation = samples, expected, activation
        self._kept = frozenset(keep_float)
        self._macs = macs(prepared)
        self.units = units(prepared, parts)
        self.error = self.mean_error(())

    def mean_error(self, keep_float: Collection[str]) -> float:
        """The mean relative error at the outputs with these nodes in floats."""
        trial = Trial(
            self._prepared,
            self._parts,
            self._samples,
            self._expected,
            activation=self._activation,
            keep_float=self._kept.union(keep_float),
        )
        return float(np.mean(trial.errors(self._ranges, range(len(self._samples)))))

    def gain(self, node: str) -> Gain:
        """What the outputs gain when the unit of this node (one of `units`) alone is in floats."""
        unit = self.units[node]
        error = self.mean_error(unit)
        gained = 10 * np.log10(max(self.error, 1e-20) / max(error, 1e-20))
        return Gain(node, unit, error, float(gained), sum(self._macs.get(name, 0) for name in unit))


def of_files(
    model: str | os.PathLike[str],
    quantized: str | os.PathLike[str],
    samples: Sequence[Feeds],
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Sensitivity:
    """The sensitivity of a model that `quantize` made.

    Args:
        model: the float model's file.
        quantized: the quantised one's.
        samples: inputs as the float model takes them.
        input_shapes: as `quantize` took them.

    Raises:
        InvalidInput: the quantised model was not made of this one by `quantize`.
        TowlineError: as `quantize`, for a float model that cannot be read.
    """
    onnx = require("onnx")
    with files.scratch_directory() as directory, quiet():
        prepared, *_ = prepare(read_float(os.fspath(model), input_shapes), directory, os.fspath(model))
        with onnxruntime_errors("read the quantised model", os.fspath(quantized)):
            integers = onnx.load(quantized)
        parts = layout.read(prepared, integers)
        if not parts.groups:
            raise InvalidInput(
                "it shares no quantised tensor with the float model",
                where=os.fspath(quantized),
                hint="give the float model from which `towline quantize` made it",
            )
        with onnxruntime_errors("run the model", os.fspath(model)):
            runner = session(prepared)
            expected = [runner.run(None, feeds) for feeds in samples]
        signed = layout.is_signed(integers)
        lowest = -128 if signed else 0
        ranges = {
            owner: ((lowest - zero) * scale, (lowest + 255 - zero) * scale)
            for owner, (scale, zero) in parts.scales.items()
        }
        return Sensitivity(prepared, parts, ranges, samples, expected, "int8" if signed else "uint8")


def units(prepared: Any, parts: Layout) -> dict[str, tuple[str, ...]]:
    """The nodes to keep in floats for each quantised tensor to be float, by the node that computes it."""
    quantized = set(parts.tensors)
    readers: dict[str, list[Any]] = {}
    for node in prepared.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)

    def reached(name: str) -> Iterable[Any]:
        for node in readers.get(name, ()):
            yield node
            if node.op_type in PASSIVE:
                yield from reached(node.output[0])

    found: dict[str, tuple[str, ...]] = {}
    for value in prepared.graph.input:
        if value.name in quantized:
            found[value.name] = tuple(dict.fromkeys(node.name for node in reached(value.name)))
    for node in prepared.graph.node:
        if node.op_type not in PASSIVE and quantized.intersection(
            [node.output[0], *(other.output[0] for other in readers.get(node.output[0], ()))]
        ):
            names = [node.name, *(other.name for other in reached(node.output[0]))]
            found[node.name] = tuple(dict.fromkeys(names))
    return found


def named(prepared: Any, patterns: Sequence[str]) -> frozenset[str]:
    """The nodes that names or patterns (`block3/*`) select.

    Raises:
        UsageError: one that selects nothing.
    """
    names = [node.name for node in prepared.graph.node]
    chosen: set[str] = set()
    for pattern in patterns:
        matches = {name for name in names if name == pattern or fnmatchcase(name, pattern)}
        if not matches:
            raise UsageError(
                f"no node to keep in floats is named {pattern!r}",
                hint=did_you_mean(pattern, names) or "`towline inspect NET.onnx` lists the nodes",
            )
        chosen |= matches
    return frozenset(chosen)


def macs(model: Any) -> dict[str, int]:
    """Multiply-accumulates of the products of a model with known shapes, by the name of the node."""
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)
    } | {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    counts: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
            continue
        result, left, right = (
            shapes.get(name, []) for name in (node.output[0], node.input[0], node.input[1])
        )
        if not (left and right):
            continue
        if node.op_type == "Conv":
            each = int(np.prod(right[1:]))
        elif node.op_type == "ConvTranspose":
            result, each = left, int(np.prod(right[1:]))
        elif node.op_type == "Gemm":
            each = (
                left[0] if any(entry.name == "transA" and entry.i for entry in node.attribute) else left[-1]
            )
        else:
            each = left[-1]
        counts[node.name] = int(np.prod(result)) * each
    return counts


def until(
    target_db: float,
    sensitivity: Sensitivity,
    score_db: Callable[[frozenset[str]], float],
    progress: Callable[[int, int], None],
) -> frozenset[str]:
    """The nodes to keep in floats for a figure: the units that cost most, as few as suffice.

    Args:
        target_db: the figure.
        sensitivity: ranks the units.
        score_db: the figure that a set of nodes reaches.
        progress: called with (done, all).

    Raises:
        Unsupported: no set reaches it but all of the network.
    """
    if score_db(frozenset()) >= target_db:
        return frozenset()
    gains = []
    for done, node in enumerate(sensitivity.units):
        progress(done, len(sensitivity.units))
        gains.append(sensitivity.gain(node))
    progress(len(gains), len(gains))
    gains.sort(key=lambda gain: (gain.error, gain.node))

    def first(count: int) -> frozenset[str]:
        return frozenset(name for gain in gains[:count] for name in gain.unit)

    everything = first(len(gains))
    low, high = 0, len(gains)  # `low` units do not suffice, `high` do, as everything in floats does
    while high - low > 1:
        middle = (low + high) // 2
        if score_db(first(middle)) >= target_db:
            high = middle
        else:
            low = middle
    if first(high) == everything:
        raise Unsupported(
            f"{target_db:g} dB at the outputs needs the whole network in floats",
            hint="ask for less, give more calibration samples, or compile the float model as it is",
        )
    return first(high)
