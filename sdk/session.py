"""A compiled network, ready to run: the public `Session`.

The device runs the integer body. What comes before it (quantising a float input) and after it (Dequantize,
Softmax) is done here, by the reference's own operators, the same for every target.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from sdk import artifact, reference, settings
from sdk.artifact import Artifact
from sdk.errors import DeviceFailed, InvalidArtifact, InvalidInput, UsageError
from sdk.graph import Array, Dequantize, Graph, Quantize, Requantize, Reshape, Softmax, Tensor
from sdk.passes import split
from sdk.preprocess import Channels, InputStatistics, Preprocessing, from_pixels
from sdk.target import (
    EMULATED,
    DeviceSession,
    OpenOptions,
    Profile,
    check_inputs,
    is_emulated,
    open_device,
)

log = logging.getLogger("towline")


@dataclass(frozen=True)
class Prediction:
    """One class of a classification.

    Attributes:
        index: the class's place in the output.
        label: its name, None if the artefact has no labels.
        score: its probability; the softmax of the outputs where the network does not end in one.
    """

    index: int
    label: str | None
    score: float


class Session:
    """An artefact loaded on a device. A context manager; to be used by one thread at a time.

    Args:
        source: an artefact, or the path of a `.tow`. A `.tow` holds code: open only those you trust.
        device: a device string; by default the environment's TOWLINE_DEVICE, and without it "emulated".
        options: what else is chosen when the device is opened: an AMD card's firmware files.

    Attributes:
        artifact: what is loaded.
        device: the device string in use.

    Raises:
        InvalidArtifact: the file is damaged, or its parts do not fit each other.
        UsageError: the artefact's target is not installed, or has no such device.
        DeviceMissing, ToolMissing: the device, or a tool it needs, is missing.
        DeviceFailed: the device died while loading.
    """

    def __init__(
        self,
        source: Artifact | str | os.PathLike[str],
        device: str | None = None,
        options: OpenOptions = OpenOptions(),
    ) -> None:
        self.artifact = source if isinstance(source, Artifact) else artifact.load(source)
        self.device = device or settings.DEVICE.value() or EMULATED
        program = self.artifact.program
        self._graph = self.artifact.graph
        self._split = split(self._graph)
        if (self._split.body.inputs, self._split.body.outputs) != (
            program.graph.inputs,
            program.graph.outputs,
        ):
            raise InvalidArtifact(
                "the program does not fit its network: their inputs and outputs differ",
                hint="compile it again",
            )
        recipe, statistics = self.artifact.preprocessing, self.artifact.input_statistics
        self._preprocessing = None if recipe is None else Preprocessing.from_json(recipe)
        self._statistics = None if statistics is None else InputStatistics.from_json(statistics)
        self._session = open_device(program.target, self.device, options).load(program)
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Session on {self.device}, {state}, of {self.artifact}>"

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The network's inputs by name, in order; `Tensor` has shape and dtype."""
        return {name: self._graph.tensor(name) for name in self._graph.inputs}

    @property
    def outputs(self) -> dict[str, Tensor]:
        """The network's outputs by name, in order."""
        return {name: self._graph.tensor(name) for name in self._graph.outputs}

    @property
    def emulated(self) -> bool:
        """Whether the device is emulated: its wall times are the emulator's, not the part's."""
        return is_emulated(self.artifact.program.target, self.device)

    @property
    def quantized_inputs(self) -> dict[str, Tensor]:
        """The integer body's inputs by name: what may be given in place of float `inputs`."""
        return {name: self._graph.tensor(name) for name in self._split.body.inputs}

    @property
    def on_device(self) -> DeviceSession:
        """The target's own session, for what only that target offers.

        Raises:
            UsageError: the session is closed.
        """
        return self._open()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference.

        Args:
            inputs: one array for each of `inputs`, of its shape. A float input takes any floating-point dtype
                (float64 is rounded to float32, and must be in its range), an integer input its own alone.
                In place of a float input, the quantised tensors made from it (`quantized_inputs`) may be
                given.

        Returns:
            The outputs by name, of their tensors' shapes and dtypes.

        Raises:
            InvalidInput: a name missing or unknown, a wrong shape or dtype, a value out of range, or a NaN.
            DeviceFailed: the device died or gave an invalid answer.
            UsageError: the session is closed.
        """
        values = self._head(inputs)
        body = self._split.body
        results = self._open().run({name: values[name] for name in body.inputs})
        values |= _answered(body, results, body.outputs)
        for node in self._split.tail:
            values[node.output] = reference.evaluate(self._graph, node, values, self.artifact.arithmetic)
        return {name: values[name] for name in self._graph.outputs}

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """As `run`, but returns every tensor of the integer body that the device materialises, by name.

        Raises:
            InvalidInput, DeviceFailed, UsageError: as `run`.
        """
        body = self.artifact.program.graph
        results = self._open().trace(self.quantize(inputs))
        return _answered(body, results, [*results, *body.outputs])

    def quantize(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """What the device is given for `inputs`: the integer body's inputs by name.

        Raises:
            InvalidInput: as `run`.
        """
        values = self._head(inputs)
        return {name: values[name] for name in self._split.body.inputs}

    def profile(self) -> Profile:
        """The device's counters of one inference, layer by layer.

        Raises:
            DeviceFailed, UsageError: as `run`.
        """
        return self._open().profile()

    def prepare(self, picture: Any, *, channels: Channels = "rgb") -> dict[str, Array]:
        """A picture as the network's input, of its dtype, preprocessed as the calibration's were.

        Args:
            picture: the path of a picture file, a PIL.Image, or an array of pixels, uint8 [H, W, 3] or, grey,
                [H, W].
            channels: the order of an array's channels. OpenCV's frames are "bgr".

        Raises:
            InvalidInput: not a picture; or the artefact does not say how pictures become its input.
            UsageError: an unknown `channels`, or one given for something that has an order of its own.
            EnvironmentMissing: Pillow is not installed.
        """
        if channels not in get_args(Channels):
            raise UsageError(
                f"unknown order of channels {channels!r}", hint=f"one of {', '.join(get_args(Channels))}"
            )
        if isinstance(picture, np.ndarray):
            picture = from_pixels(picture, channels)
        elif channels != "rgb":
            raise UsageError(
                "channels is the order in an array; a picture has its own", hint="leave channels out"
            )
        # By its attribute: a PIL.Image is known without importing Pillow.
        elif not isinstance(picture, str | os.PathLike) and not hasattr(picture, "getexif"):
            raise InvalidInput(
                f"a {type(picture).__name__} is not a picture",
                hint="give a path, a PIL.Image or an array of pixels; what run returned goes to rank",
            )
        if self._preprocessing is None or len(self._graph.inputs) != 1:
            raise InvalidInput(
                "the artefact does not say how a picture becomes its input",
                where=self._graph.name,
                hint="quantise the model with pictures or --preprocess, or give arrays",
            )
        return {self._graph.inputs[0]: self._as_input(self._preprocessing.apply(picture))}

    def unlike_calibration(self, inputs: Mapping[str, Array]) -> str | None:
        """A warning if a float input is nothing like the calibration's inputs, else None."""
        name = self._graph.inputs[0]
        if self._statistics is None or name not in inputs:
            return None
        array = np.asarray(inputs[name])
        return self._statistics.unlike_calibration(array) if array.dtype == np.float32 else None

    def classify(self, picture: Any, top: int = 5, *, channels: Channels = "rgb") -> list[Prediction]:
        """The likeliest classes of a picture, best first; a picture unlike the calibration's gets a warning
        in the log.

        Args:
            picture: as for `prepare`: a file, a PIL.Image, or an array of pixels.
            top: how many classes.
            channels: the order of an array's channels; an OpenCV frame has "bgr".

        Raises:
            InvalidInput: as `prepare` and `rank`.
            DeviceFailed: as `run`.
            UsageError: as `prepare`, `run` and `rank`.
        """
        inputs = self.prepare(picture, channels=channels)
        if (warning := self.unlike_calibration(inputs)) is not None:
            array = isinstance(picture, np.ndarray)
            log.warning("%s: %s", f"array {list(picture.shape)}" if array else picture, warning)
        return self.rank(self.run(inputs), top)

    def rank(self, outputs: Mapping[str, Array], top: int = 5) -> list[Prediction]:
        """The likeliest classes in what `run` returned, best first; of equals, the first.

        Raises:
            InvalidInput: `outputs` is not what `run` returns, or the network is not a classifier, which
                has one output with one axis longer than 1.
            UsageError: `top` is not a whole number of 1 or more.
        """
        if not isinstance(top, int | np.integer) or top < 1:
            raise UsageError(f"top must be a whole number of 1 or more, not {top!r}")
        for name, tensor in self.outputs.items():
            array = outputs.get(name) if isinstance(outputs, Mapping) else None
            if array is None:
                raise InvalidInput(f"no output named {name!r} was given", hint="give what run returned")
            found = np.asarray(array)
            if found.shape != tensor.shape or found.dtype != np.dtype(tensor.dtype):
                raise InvalidInput(
                    f"{found.dtype} {list(found.shape)}, expected {tensor.dtype} {list(tensor.shape)}",
                    where=f"output {name}",
                    hint="give what run returned",
                )
        scores = probabilities(self._graph, outputs)
        if scores is None:
            shapes = ", ".join(f"{tensor.name} {list(tensor.shape)}" for tensor in self.outputs.values())
            raise InvalidInput(
                f"it is not a classifier: its outputs are {shapes}", where=self._graph.name, hint="use run"
            )
        labels = self.artifact.labels or []
        return [
            Prediction(int(index), labels[index] if index < len(labels) else None, float(scores[index]))
            for index in np.argsort(-scores, kind="stable")[:top]
        ]

    def close(self) -> None:
        """Release the device. Closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self._session.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> DeviceSession:
        if self._closed:
            raise UsageError("the session is closed")
        return self._session

    def _as_input(self, real: NDArray[np.float32]) -> Array:
        """Real values as the first input's integers, if that is not float."""
        tensor = self._graph.tensor(self._graph.inputs[0])
        if tensor.quantization is None:
            return real
        values = {"real": real}
        quantize = Quantize("", ("real",), tensor.name)
        known = {"real": Tensor("real", real.shape, "float32"), tensor.name: tensor}
        graph = dataclasses.replace(self._graph, tensors=known)
        return reference.evaluate(graph, quantize, values, self.artifact.arithmetic)

    def _head(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The given arrays, checked, and what the head makes of them."""
        replaced = {
            node.inputs[0]: [other.output for other in self._split.head if other.inputs == node.inputs]
            for node in self._split.head
            if node.output in inputs
        }
        names = [name for given in self._graph.inputs for name in replaced.get(given, [given])]
        values = check_inputs(dataclasses.replace(self._graph, inputs=tuple(names)), inputs)
        for node in self._split.head:
            if node.output not in values:
                values[node.output] = reference.evaluate(self._graph, node, values, self.artifact.arithmetic)
        return values


def probabilities(graph: Graph, outputs: Mapping[str, Array]) -> NDArray[np.float64] | None:
    """A classifier's output as probabilities, float64 [classes]; None if the network is not a classifier.

    A classifier has one output, with one axis longer than 1. Where the network does not end in a Softmax,
    the probabilities are the softmax of its output.
    """
    if len(graph.outputs) != 1:
        return None
    tensor = graph.tensor(graph.outputs[0])
    if tensor.size < 2 or max(tensor.shape) != tensor.size:
        return None
    scores: NDArray[np.float64] = np.asarray(outputs[tensor.name]).reshape(-1).astype(np.float64)
    if tensor.quantization is not None:
        scores = tensor.scale * (scores - tensor.zero_point)
    if _ends_in_softmax(graph, tensor.name):
        return scores
    scores = np.exp(scores - scores.max())
    return scores / np.float64(scores.sum())


def _ends_in_softmax(graph: Graph, name: str) -> bool:
    """Whether a tensor is a Softmax's result, however it was quantised or reshaped since."""
    node = graph.producer(name)
    while isinstance(node, Quantize | Dequantize | Requantize | Reshape):
        node = graph.producer(node.inputs[0])
    return isinstance(node, Softmax)


def _answered(graph: Graph, results: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """The device's answer, checked against the graph."""
    for name in names:
        tensor = graph.tensors.get(name)
        if tensor is None or tensor.data is not None:
            raise DeviceFailed(
                f"the device answered with {name!r}, which is not an activation of the program"
            )
        array = results.get(name)
        if array is None:
            raise DeviceFailed("the device did not answer with it", where=f"tensor {name}")
        if array.shape != tensor.shape or array.dtype != np.dtype(tensor.dtype):
            raise DeviceFailed(
                f"the device answered {array.dtype} {list(array.shape)}, "
                f"not {tensor.dtype} {list(tensor.shape)}",
                where=f"tensor {name}",
            )
    return dict(results)
