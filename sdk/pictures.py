"""Pictures in, classes out: what a `Session` does before and behind an inference of a classifier."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from sdk import reference
from sdk.artifact import Artifact
from sdk.classification import Prediction, probabilities
from sdk.dtypes import storage
from sdk.errors import InvalidInput, UsageError
from sdk.graph import Array, Quantize, Tensor
from sdk.preprocess import Channels, InputStatistics, Preprocessing, from_pixels


class Pictures:
    """How pictures become a network's input, and what its outputs mean.

    Args:
        artifact: of the network.
    """

    def __init__(self, artifact: Artifact) -> None:
        recipe, statistics = artifact.preprocessing, artifact.input_statistics
        self._artifact = artifact
        self._graph = artifact.graph
        self._preprocessing = None if recipe is None else Preprocessing.from_json(recipe)
        self._statistics = None if statistics is None else InputStatistics.from_json(statistics)

    def prepare(self, picture: Any, channels: Channels) -> dict[str, Array]:
        """As `Session.prepare`."""
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
                hint="it takes the frames of a camera: give arrays of their bytes"
                if self._artifact.cameras
                else "quantise the model with pictures or --preprocess, or give arrays",
            )
        return {self._graph.inputs[0]: self._as_input(self._preprocessing.apply(picture))}

    def unlike_calibration(self, inputs: Mapping[str, Array]) -> str | None:
        """As `Session.unlike_calibration`."""
        name = self._graph.inputs[0]
        if self._statistics is None or name not in inputs:
            return None
        array = np.asarray(inputs[name])
        return self._statistics.unlike_calibration(array) if array.dtype == np.float32 else None

    def rank(self, outputs: Mapping[str, Array], top: int) -> list[Prediction]:
        """As `Session.rank`."""
        if not isinstance(top, int | np.integer) or top < 1:
            raise UsageError(f"top must be a whole number of 1 or more, not {top!r}")
        tensors = {name: self._graph.tensor(name) for name in self._graph.outputs}
        for name, tensor in tensors.items():
            array = outputs.get(name) if isinstance(outputs, Mapping) else None
            if array is None:
                raise InvalidInput(f"no output named {name!r} was given", hint="give what run returned")
            found = np.asarray(array)
            if found.shape != tensor.shape or found.dtype != storage(tensor.dtype):
                raise InvalidInput(
                    f"{found.dtype} {list(found.shape)}, expected {tensor.dtype} {list(tensor.shape)}",
                    where=f"output {name}",
                    hint="give what run returned",
                )
        scores = probabilities(self._graph, outputs)
        if scores is None:
            shapes = ", ".join(f"{tensor.name} {list(tensor.shape)}" for tensor in tensors.values())
            raise InvalidInput(
                f"it is not a classifier: its outputs are {shapes}", where=self._graph.name, hint="use run"
            )
        labels = self._artifact.labels or []
        return [
            Prediction(int(index), labels[index] if index < len(labels) else None, float(scores[index]))
            for index in np.argsort(-scores, kind="stable")[:top]
        ]

    def _as_input(self, real: NDArray[np.float32]) -> Array:
        """Real values as the first input's integers, if that is not float."""
        tensor = self._graph.tensor(self._graph.inputs[0])
        if tensor.quantization is None:
            return real
        values = {"real": real}
        quantize = Quantize("", ("real",), tensor.name)
        known = {"real": Tensor("real", real.shape, "float32"), tensor.name: tensor}
        graph = dataclasses.replace(self._graph, tensors=known)
        return reference.evaluate(graph, quantize, values, self._artifact.arithmetic)
