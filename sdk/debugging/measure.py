"""Every layer of a network, measured: the target against the reference, that against onnxruntime and float.

Two kinds of figures are kept apart. What reaches a layer's output includes the errors of all layers before
it; a layer's own share is found by giving the reference the very inputs that the layer had: the target's,
or the float model's once quantised. A layer that is broken differs in its own share; one that only follows
a broken layer does not.

Layers are measured in execution order, and their tensors released after their last reader.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk import reference
from sdk.artifact import Artifact
from sdk.classification import probabilities
from sdk.debugging.figures import Difference, Divergence, FloatError, Layer, Report, squares
from sdk.debugging.oracle import Oracle
from sdk.debugging.sensitivity import SAMPLES, SECONDS, Scorer, Sensitivities, sensitivities
from sdk.errors import InvalidInput, InvalidModel, TowlineError, UsageError
from sdk.graph import Array, Conv, Gemm, Graph, Node, Quantize, Reshape, Tensor
from sdk.quantizer.fidelity import EXACT_DB
from sdk.quantizer.metadata import input_digest
from sdk.segments import split
from sdk.session import Session
from sdk.target import Arithmetic
from sdk.verification import INTEGER_RANGE

Progress = Callable[[str, int, int], None]
Sample = tuple[str, Mapping[str, Array]]
"""Name of an input, and what `Session.run` takes."""


def debug(
    artifact: Artifact,
    session: Session,
    samples: Iterable[Sample],
    *,
    quantized: Oracle | None = None,
    real: Oracle | None = None,
    scorer: Scorer | None = None,
    seconds: float = SECONDS,
    made: Mapping[str, Any] | None = None,
    progress: Progress = lambda *_: None,
) -> Report:
    """Run samples everywhere and compare layer by layer.

    Args:
        artifact: the network that `session` runs.
        session: an open session.
        samples: at least one.
        quantized: `quantized_oracle` of the model it was compiled from.
        real: `float_oracle` of the float model that was quantised.
        scorer: of the two models, to find which layers the outputs gain by in floats; needs `real`.
        seconds: how long that may take.
        made: how the quantised model was made (`metadata.read_quantization`).
        progress: called after every layer with (stage, done, total).

    Raises:
        InvalidInput: as `Session.trace`; or an input holds infinity, and there is a float model to take it.
        DeviceFailed: as `Session.trace`.
        UsageError: an oracle has other inputs than the network, or none of its tensors; no samples.
        InvalidModel: the float model computes NaN or infinity.
    """
    run = _Run(artifact, session, quantized, real, progress)
    run.calibration = frozenset((made or {}).get("inputs", ()))
    report = run.over(samples)
    report.made, report.seen = made, run.seen
    if scorer is not None and run.feeds:
        try:
            report.sensitivity = run.sensitivity(scorer, seconds)
        except TowlineError as problem:  # models of other tools: the rest of the report stands
            report.not_tried = str(problem)
    return report


class _Run:
    def __init__(
        self,
        artifact: Artifact,
        session: Session,
        quantized: Oracle | None,
        real: Oracle | None,
        progress: Progress,
    ) -> None:
        self.artifact, self.session = artifact, session
        self.quantized, self.real, self.progress = quantized, real, progress
        self.graph = artifact.program.graph
        whole = split(artifact.graph)
        self.head, self.tail = whole.head, whole.tail
        for oracle in (quantized, real):
            if oracle is not None and not oracle.names.keys() & self.graph.tensors.keys():
                raise UsageError(
                    "none of its tensors has the name of a tensor of the network",
                    where=oracle.where,
                    hint="give the models that the network was made from",
                )
        heads = [node for node in self.head if node.output in self.graph.inputs]
        self.nodes: list[Node] = [*heads, *self.graph.nodes]
        self.given = {node.output for node in heads}
        shown = [node for node in self.nodes if self.graph.tensor(node.output).quantization is not None]
        if not shown:
            raise UsageError(
                "none of its tensors is quantised to 8 bits",
                where=artifact.graph.name,
                hint="`towline run --check` compares other tensors with their definition, layer by layer",
            )
        self.layers = [_layer(self.graph, node) for node in shown]
        self.numbers = {node.output: number for number, node in enumerate(shown)}
        self.last_reader = {name: index for index, node in enumerate(self.nodes) for name in node.inputs}
        self.divergence: Divergence | None = None
        self.feeds: list[Mapping[str, Array]] = []
        self.calibration: frozenset[str] = frozenset()
        self.seen = 0

    def sensitivity(self, scorer: Scorer, seconds: float) -> Sensitivities:
        """Which layers the outputs gain by in floats; each layer's `gain_db` is set."""
        names = [
            node.inputs[0] if isinstance(node, Quantize) else layer.node
            for node, layer in zip(self.nodes, self.layers, strict=True)
        ]
        own = [layer.real.own_sqnr_db if layer.real else None for layer in self.layers]
        order = sorted(range(len(names)), key=lambda index: EXACT_DB if (db := own[index]) is None else db)
        found = sensitivities(scorer, self.feeds, [names[index] for index in order], seconds, self.progress)
        gains = {gain.node: gain.gain_db for gain in found.gains}
        for name, layer in zip(names, self.layers, strict=True):
            layer.gain_db = gains.get(name)
        return found

    def over(self, samples: Iterable[Sample]) -> Report:
        names, answers = [], []
        for name, feeds in samples:
            answers.append(self._sample(name, feeds))
            names.append(name)
        if not names:
            raise UsageError("debug needs at least one input")
        traced = {layer.tensor.name for layer in self.layers if layer.target is not None}
        known = {layer.tensor.name for layer in self.layers if layer.onnxruntime is not None}
        for node in self.nodes:
            if node.output not in self.numbers:
                continue
            layer = self.layers[self.numbers[node.output]]
            if layer.target is None and node.output not in self.given:
                layer.target_in = _held_in(self.graph, node, traced)
            if self.quantized is not None and layer.onnxruntime is None:
                layer.model_in = _held_in(self.graph, node, known)
        return Report(
            layers=self.layers,
            samples=names,
            target=self.artifact.target,
            arithmetic=self.artifact.arithmetic,
            device=self.session.device,
            answers=[answer for answer in answers if answer],
            divergence=self.divergence,
            plain=len(self.nodes) - len(self.layers),
        )

    def _sample(self, sample: str, feeds: Mapping[str, Array]) -> dict[str, int]:
        """Measure one sample; the class by evaluation."""
        body = self.session.quantize(feeds)
        model_values: dict[str, Array] = {}
        real_values: dict[str, Array] = {}
        outputs: dict[str, Mapping[str, Array]] = {}
        if self.real is not None:
            whole = self._whole(feeds, body)
            real_values, outputs["float"] = self.real.run(whole)
            self.seen += input_digest(whole) in self.calibration
            if len(self.feeds) < SAMPLES:
                self.feeds.append(whole)
        if self.quantized is not None:
            model_values, outputs["onnxruntime"] = self.quantized.run(self._whole(feeds, body))
        traced = self.session.trace(body)
        expected, actual = dict(body), dict(body)
        for index, node in enumerate(self.nodes):
            name, number = node.output, self.numbers.get(node.output)
            if name not in self.given:
                expected[name] = own = self._evaluate(node, expected)
                if any(actual.get(x) is not expected.get(x) for x in node.inputs):
                    own = self._evaluate(node, actual)
                found = traced.pop(name, None)
                if number is None:
                    actual[name] = expected[name] = self._plain(node, found, own, actual)
                else:
                    actual[name] = self._target(sample, number, found, own, expected[name])
            if number is None:
                for values in (model_values, real_values):
                    _fitting(values, self.graph.tensor(name))
            else:
                layer = self.layers[number]
                layer.counts += _histogram(layer.tensor, expected[name])
                self._onnxruntime(sample, layer, node, model_values, expected[name])
                self._float(layer, node, real_values, expected[name])
            for done in {*node.inputs, name}:
                if self.last_reader.get(done, index) <= index and done not in self.graph.outputs:
                    for values in (expected, actual, model_values, real_values):
                        values.pop(done, None)
            self.progress("compare layers", index + 1, len(self.nodes))
        outputs |= {"reference": self._outputs(body | expected), "target": self._outputs(body | actual)}
        if probabilities(self.artifact.graph, outputs["reference"]) is None:
            return {}
        (output,) = self.artifact.graph.outputs
        return {who: int(np.argmax(values[output])) for who, values in outputs.items() if output in values}

    def _evaluate(
        self, node: Node, values: Mapping[str, Array], arithmetic: Arithmetic | None = None
    ) -> Array:
        return reference.evaluate(self.graph, node, values, arithmetic or self.artifact.arithmetic)

    def _activations(self, node: Node) -> list[str]:
        return [name for name in node.inputs if self.graph.tensor(name).data is None]

    def _whole(self, feeds: Mapping[str, Array], body: Mapping[str, Array]) -> dict[str, Array]:
        """The network's inputs: where quantised ones were given in their place, what those stand for."""
        whole = {name: feeds[name] for name in self.artifact.graph.inputs if name in feeds}
        for node in self.head:
            if node.inputs[0] not in whole and node.output in body:
                whole[node.inputs[0]] = _real(self.graph.tensor(node.output), body[node.output])
        return whole

    def _outputs(self, values: dict[str, Array]) -> dict[str, Array]:
        for node in self.tail:
            graph, arithmetic = self.artifact.graph, self.artifact.arithmetic
            values[node.output] = reference.evaluate(graph, node, values, arithmetic)
        return {name: values[name] for name in self.artifact.graph.outputs}

    def _target(self, sample: str, index: int, traced: Array | None, own: Array, expected: Array) -> Array:
        """Compare what the target has; where it keeps nothing, use what follows from its inputs."""
        layer = self.layers[index]
        if traced is None:
            return own
        layer.target = layer.target or Difference()
        layer.target.add(sample, traced, expected, layer.tensor.zero_point)
        if np.array_equal(traced, expected):
            traced = expected
        elif self.divergence is None or index < self.divergence.layer:
            self.divergence = _divergence(index, sample, traced, expected)
        if traced is not own:
            layer.own_mismatches += int(np.count_nonzero(traced != own))
        return traced

    def _plain(self, node: Node, traced: Array | None, own: Array, values: Mapping[str, Array]) -> Array:
        """What layers behind a plain tensor are given: the target's values, where they are right."""
        if traced is None or not reference.is_plain(self.graph, node):  # Dequantize is exact
            return own
        spread = reference.expect(self.graph, node, values, actual=traced)
        right = not reference.compare(spread, traced, self.graph.tensor(node.output).dtype).outside
        return traced if right else own

    def _onnxruntime(
        self, sample: str, layer: Layer, node: Node, values: dict[str, Array], expected: Array
    ) -> None:
        value = _fitting(values, layer.tensor)
        if value is None:
            return
        layer.onnxruntime = layer.onnxruntime or Difference()
        layer.onnxruntime.add(sample, value, expected, layer.tensor.zero_point)
        if node.output not in self.given and values.keys() >= set(self._activations(node)):
            own = np.subtract(value, self._evaluate(node, values, "f32"), dtype=np.int32)
            layer.onnxruntime_own = max(layer.onnxruntime_own, int(np.abs(own).max()))

    def _float(self, layer: Layer, node: Node, values: dict[str, Array], expected: Array) -> None:
        tensor = layer.tensor
        value = _fitting(values, dataclasses.replace(tensor, dtype="float32"))
        if value is None:
            return
        if not np.isfinite(value).all():
            if node.output in self.given:
                raise InvalidInput("it holds infinity", where=f"input {node.inputs[0]}")
            where = f"tensor {tensor.name}"
            raise InvalidModel("the float model computes NaN or infinity", where=where)
        error = layer.real = layer.real or FloatError()
        signal = squares(value)
        error.signal += signal
        error.noise += squares(_real(tensor, expected) - value)
        levels, clipped = _quantize(tensor, value)
        error.clipped += clipped
        error.counts += _histogram(tensor, levels)
        if node.output in self.given:
            own = expected
        else:
            inputs = self._activations(node)
            if not values.keys() >= set(inputs):
                return
            given = {name: _as_given(self.graph.tensor(name), values[name]) for name in inputs}
            own = self._evaluate(node, given)
        error.own_signal += signal
        error.own_noise += squares(_real(tensor, own) - value)


def _layer(graph: Graph, node: Node) -> Layer:
    tensor = graph.tensor(node.output)
    clamp = getattr(node, "clamp", INTEGER_RANGE[tensor.dtype])
    return Layer(node.name, node.op, tensor, clamp, one_scale=_one_scale(graph, node))


def _one_scale(graph: Graph, node: Node) -> bool:
    """Whether a node has weights of several channels that share one scale."""
    if not isinstance(node, Conv | Gemm):
        return False
    weight = graph.tensor(node.inputs[1])
    return weight.shape[0] > 1 and weight.quantization is not None and weight.quantization.axis is None


def _fitting(values: dict[str, Array], tensor: Tensor) -> Array | None:
    """A model's value for a tensor; dropped if it is of another shape or type, and no counterpart."""
    value = values.get(tensor.name)
    if value is not None and value.shape == tensor.shape and value.dtype == tensor.dtype:
        return value
    values.pop(tensor.name, None)
    return None


def _held_in(graph: Graph, node: Node, known: Container[str]) -> str:
    """The operator whose result stands for this one's, where this one's is not kept."""
    if isinstance(node, Reshape) and node.inputs[0] in known:  # the same bytes
        before = graph.producer(node.inputs[0])
        return "" if before is None else before.name
    readers = graph.consumers(node.output)
    while len(readers) == 1:
        if readers[0].output in known:
            return readers[0].name
        readers = graph.consumers(readers[0].output)
    return ""


def _divergence(index: int, sample: str, actual: Array, expected: Array) -> Divergence:
    difference = np.abs(np.subtract(actual, expected, dtype=np.int32))
    if difference.ndim in (2, 4):
        channels, width = difference.shape[1], difference.shape[3] if difference.ndim == 4 else 1
        cube = np.moveaxis(difference, 1, 0).reshape(channels, -1, width)
    else:
        cube = difference.reshape(1, -1, difference.shape[-1] if difference.ndim else 1)
    return Divergence(index, sample, np.count_nonzero(cube, axis=(1, 2)), cube.max(axis=0))


def _real(tensor: Tensor, value: Array) -> NDArray[np.float32]:
    """Quantised values as the real ones they stand for."""
    return (value.astype(np.float32) - np.float32(tensor.zero_point)) * np.float32(tensor.scale)


def _quantize(tensor: Tensor, value: Array) -> tuple[Array, int]:
    """Real values quantised, and how many of them lie beyond the dtype's range."""
    low, high = INTEGER_RANGE[tensor.dtype]
    with np.errstate(over="ignore"):  # infinity is clipped like the rest
        levels = np.rint(value / np.float32(tensor.scale)) + np.float32(tensor.zero_point)
    clipped = int(np.count_nonzero(levels < low) + np.count_nonzero(levels > high))
    return np.clip(levels, low, high).astype(tensor.dtype), clipped


def _as_given(tensor: Tensor, value: Array) -> Array:
    """A float model's value as a layer reads it: quantised, unless the tensor is plain."""
    return value if tensor.quantization is None else _quantize(tensor, value)[0]


def _histogram(tensor: Tensor, value: Array) -> NDArray[np.int64]:
    """Elements by level, int64 [256]."""
    levels = value.astype(np.int16) - INTEGER_RANGE[tensor.dtype][0]
    return np.bincount(levels.reshape(-1), minlength=256)
