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
from sdk.dtypes import storage
from sdk.errors import DeviceFailed, InvalidInput, UsageError
from sdk.graph import Array, Dequantize, Graph, Node, Quantize, Requantize, Reshape, Softmax, Tensor
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


class Ticket:
    """An inference that was submitted and not yet collected."""


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
        self._graph = self.artifact.graph
        self._segments = self.artifact.segments
        artifact.check_programs(self.artifact)
        head = self._segments[0]
        self._head = head.graph.nodes if head.place == "host" else ()
        self._states: dict[str, Array] = {}
        self._tickets: dict[Ticket, dict[str, Array]] = {}
        recipe, statistics = self.artifact.preprocessing, self.artifact.input_statistics
        self._preprocessing = None if recipe is None else Preprocessing.from_json(recipe)
        self._statistics = None if statistics is None else InputStatistics.from_json(statistics)
        opened = open_device(self.artifact.target, self.device, options)
        self._sessions: list[DeviceSession] = []
        self._closed = False
        try:
            for program in self.artifact.programs:
                self._sessions.append(opened.load(program))
        except BaseException:
            self.close()
            raise
        self.reset()

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
        return is_emulated(self.artifact.target, self.device)

    @property
    def quantized_inputs(self) -> dict[str, Tensor]:
        """What may be given in place of float `inputs`: what the host's first part makes of them."""
        made = [node.output for node in self._head if isinstance(node, Quantize)]
        replaced = {node.inputs[0] for node in self._head if isinstance(node, Quantize)}
        names = [name for name in self._graph.inputs if name not in replaced]
        return {name: self._graph.tensor(name) for name in (*names, *made)}

    @property
    def on_device(self) -> DeviceSession:
        """The target's own session, for what only that target offers.

        Raises:
            UsageError: the session is closed.
            Unsupported: the host computes something in mid-graph, so that there are several.
        """
        sessions = self._open()
        _ = self.artifact.program  # one
        return sessions[0]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference; states are inputs and outputs like the others.

        Args:
            inputs: one array for each of `inputs`, of its shape. A float input takes any floating-point dtype
                (it is rounded to the input's, and must be in its range), an integer input its own alone.
                In place of a float input, the quantised tensors made from it (`quantized_inputs`) may be
                given.

        Returns:
            The outputs by name, of their tensors' shapes and dtypes.

        Raises:
            InvalidInput: a name missing or unknown, a wrong shape or dtype, or a value out of range.
            DeviceFailed: the device died or gave an invalid answer.
            UsageError: the session is closed.
        """
        values = self._values(inputs)
        return {name: values[name] for name in self._graph.outputs}

    def observe(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """As `run`, but returns every tensor that the host has, or the device materialises, by name.

        Raises:
            InvalidInput, DeviceFailed, UsageError: as `run`.
        """
        return self._values(inputs, trace=True)

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """As `run`, but returns every tensor that the device materialises, by name.

        Raises:
            InvalidInput, DeviceFailed, UsageError: as `run`.
        """
        values = self.observe(inputs)
        known = {name for program in self.artifact.programs for name in program.graph.tensors}
        host = {node.output for part in self._segments if part.place == "host" for node in part.graph.nodes}
        given = {*self._graph.inputs, *host}
        return {name: array for name, array in values.items() if name in known and name not in given}

    def quantize(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """What the device is given for `inputs`: the first program's inputs by name.

        Raises:
            InvalidInput: as `run`.
        """
        values = self._given(inputs)
        for node in self._head:
            if node.output not in values:
                values[node.output] = self._evaluate(node, values)
        return {name: values[name] for name in self.artifact.programs[0].graph.inputs}

    # -- states ---------------------------------------------------------------------------------------------

    def step(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference from the states that the last one left behind.

        A step that fails leaves the states as they were.

        Args:
            inputs: as for `run`, without the states.

        Returns:
            The outputs by name, without the next states.

        Raises:
            InvalidInput, DeviceFailed: as `run`.
            UsageError: the session is closed.
        """
        for name in inputs:
            if name in self._states:
                raise InvalidInput(
                    "is a state, which step feeds itself",
                    where=f"input {name}",
                    hint="leave it out, or give all inputs to run; reset() puts states in place",
                )
        outputs = self.run({**inputs, **self._states})
        self._states = {name: outputs[output] for output, name in self.artifact.states}
        kept = {output for output, _ in self.artifact.states}
        return {name: array for name, array in outputs.items() if name not in kept}

    def reset(self, states: Mapping[str, Array] | None = None) -> None:
        """Put states in place: those given, by the name of their input; the others become zero.

        Raises:
            InvalidInput: an unknown name, a wrong shape or dtype.
        """
        names = tuple(name for _, name in self.artifact.states)
        zeros = {name: _zero(self._graph.tensor(name)) for name in names}
        for name in states or {}:
            if name not in names:
                hint = f"its states: {', '.join(names) or 'none'}"
                raise InvalidInput(f"no state named {name!r}", where=self._graph.name, hint=hint)
        part = dataclasses.replace(self._graph, inputs=names)
        self._states = check_inputs(part, {**zeros, **(states or {})})

    def states(self) -> dict[str, Array]:
        """The states as they are now, by the name of their input."""
        return {name: array.copy() for name, array in self._states.items()}

    # -- several at once ------------------------------------------------------------------------------------

    def submit(self, inputs: Mapping[str, Array]) -> Ticket:
        """Begin an inference as `run` does; `collect` gives its outputs.

        A target that runs one inference at a time has finished it when this returns.

        Raises:
            InvalidInput, DeviceFailed, UsageError: as `run`.
        """
        outputs = self.run(inputs)
        ticket = Ticket()
        self._tickets[ticket] = outputs
        return ticket

    def collect(self, ticket: Ticket) -> dict[str, Array]:
        """The outputs of a submitted inference, once.

        Raises:
            UsageError: the ticket is of another session, or was collected.
        """
        if ticket not in self._tickets:
            raise UsageError("the ticket was collected, or is of another session")
        return self._tickets.pop(ticket)

    def profile(self) -> Profile:
        """The device's counters of one inference, layer by layer.

        Raises:
            DeviceFailed, UsageError: as `run`.
        """
        return self.on_device.profile()

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
            for session in reversed(self._sessions):
                session.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> list[DeviceSession]:
        if self._closed:
            raise UsageError("the session is closed")
        return self._sessions

    def _values(self, inputs: Mapping[str, Array], trace: bool = False) -> dict[str, Array]:
        """What is known after one inference; with `trace` also what is within the device's parts."""
        values = self._given(inputs)
        sessions = iter(self._open())
        for segment in self._segments:
            if segment.place == "host":
                for node in segment.graph.nodes:
                    if node.output not in values:
                        values[node.output] = self._evaluate(node, values)
                continue
            part, session = segment.graph, next(sessions)
            run = session.trace if trace else session.run
            results = run({name: values[name] for name in part.inputs})
            values |= _answered(part, results, [*results, *part.outputs])
        return values

    def _evaluate(self, node: Node, values: Mapping[str, Array]) -> Array:
        return reference.evaluate(self._graph, node, values, self.artifact.arithmetic)

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

    def _given(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The given arrays, checked; quantised tensors may stand for the float input they are made from."""
        heads = [node for node in self._head if isinstance(node, Quantize)]
        replaced = {
            node.inputs[0]: [other.output for other in heads if other.inputs == node.inputs]
            for node in heads
            if node.output in inputs
        }
        names = [name for given in self._graph.inputs for name in replaced.get(given, [given])]
        return check_inputs(dataclasses.replace(self._graph, inputs=tuple(names)), inputs)


def _zero(tensor: Tensor) -> Array:
    """A tensor of real zeros, as it is stored."""
    value = 0 if tensor.quantization is None else tensor.zero_point
    return np.full(tensor.shape, value, storage(tensor.dtype))


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
