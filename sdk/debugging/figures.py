"""What `debug` measures of each layer: plain figures, summed over the samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk.debugging.sensitivity import Sensitivities
from sdk.graph import Array, Clamp, Tensor
from sdk.quantizer.fidelity import decibels
from sdk.verification import INTEGER_RANGE


def squares(value: Array) -> float:
    """The sum of squares."""
    return float(np.square(value, dtype=np.float64).sum())


@dataclass(frozen=True)
class Mismatch:
    """The first element that differs, in row-major order (NCHW for activations of a convolution).

    Attributes:
        sample: the input's name.
        index: of the element.
        actual, expected: quantised values.
    """

    sample: str
    index: tuple[int, ...]
    actual: int
    expected: int


@dataclass
class Difference:
    """A tensor against its expected values, summed over the samples.

    Attributes:
        elements: compared.
        mismatches: elements that differ.
        max_abs_diff: the greatest difference, in quantised units.
        signal, noise: sums of squares, of the expected values less their zero-point and of the differences.
        first: where it begins.
    """

    elements: int = 0
    mismatches: int = 0
    max_abs_diff: int = 0
    signal: float = 0.0
    noise: float = 0.0
    first: Mismatch | None = None

    @property
    def sqnr_db(self) -> float:
        """Signal to noise in dB; 200 for no difference at all."""
        return decibels(self.signal, self.noise)

    def add(self, sample: str, actual: Array, expected: Array, zero_point: int) -> None:
        """Count one sample's tensor."""
        self.elements += expected.size
        self.signal += squares(expected.astype(np.int32) - zero_point)
        if np.array_equal(actual, expected):
            return
        difference = np.subtract(actual, expected, dtype=np.int32)
        wrong = np.flatnonzero(difference)
        if self.first is None:
            index = tuple(map(int, np.unravel_index(wrong[0], expected.shape)))
            self.first = Mismatch(sample, index, int(actual[index]), int(expected[index]))
        self.mismatches += len(wrong)
        self.max_abs_diff = max(self.max_abs_diff, int(np.abs(difference).max()))
        self.noise += squares(difference)


@dataclass
class FloatError:
    """A tensor of the reference against the float model's, summed over the samples.

    Attributes:
        signal, noise: sums of squares of the float values and of the dequantised values' errors.
        own_signal, own_noise: the same for the layer alone: the reference's result for the float model's
            inputs to this layer, quantised.
        clipped: elements whose float value lies beyond what the quantised tensor can represent.
        counts: float values by quantised level, int64 [256]; the outermost hold what is clipped too.
    """

    signal: float = 0.0
    noise: float = 0.0
    own_signal: float = 0.0
    own_noise: float = 0.0
    clipped: int = 0
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(256, np.int64))

    @property
    def sqnr_db(self) -> float:
        return decibels(self.signal, self.noise)

    @property
    def own_sqnr_db(self) -> float | None:
        """None where an input of the layer has no counterpart in the float model."""
        return decibels(self.own_signal, self.own_noise) if self.own_signal or self.own_noise else None


@dataclass
class Layer:
    """One operator, and the figures of its output.

    Attributes:
        node, op: the operator; the head's Quantize come first, which the host runs.
        tensor: its output.
        clamp: the bounds of its output, in quantised units.
        counts: elements of the reference's output by level, int64 [256], level 0 being the dtype's least.
        target: target against reference; None where `target_in` names an operator.
        target_in: the operator in whose result the target keeps this one, "" if that is unknown.
        own_mismatches: elements that do not follow from the target's own inputs.
        onnxruntime: the quantised model against the reference; None without one, or where the model has no
            such tensor: then `model_in` is the operator that it was fused with.
        onnxruntime_own: the greatest difference of this layer alone: onnxruntime against the f32 reference on
            onnxruntime's own inputs. More than 1 is more than rounding.
        real: reference against the float model, None likewise.
        one_scale: whether its weights have a single scale, so that one a channel would lose less.
        gain_db: what the network's outputs gain when its result stays in floats; None where not tried.
    """

    node: str
    op: str
    tensor: Tensor
    clamp: Clamp
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(256, np.int64))
    target: Difference | None = None
    target_in: str = ""
    own_mismatches: int = 0
    onnxruntime: Difference | None = None
    onnxruntime_own: int = 0
    real: FloatError | None = None
    model_in: str = ""
    one_scale: bool = False
    gain_db: float | None = None

    @property
    def elements(self) -> int:
        return int(self.counts.sum())

    @property
    def differs(self) -> bool:
        """Whether its output on the target is not the reference's."""
        return self.target is not None and self.target.mismatches > 0

    @property
    def used(self) -> tuple[int, int]:
        """The least and the greatest value that occur, in quantised units."""
        levels = np.flatnonzero(self.counts) + INTEGER_RANGE[self.tensor.dtype][0]
        return int(levels[0]), int(levels[-1])

    @property
    def range_used(self) -> float:
        """Share of the dtype's range between them, 0 to 1."""
        return (self.used[1] - self.used[0]) / 255

    @property
    def saturated(self) -> float:
        """Share of elements at a bound of the clamp; those of real value 0 are a rectifier's, not counted."""
        bounds = {bound for bound in self.clamp if bound != self.tensor.zero_point}
        least = INTEGER_RANGE[self.tensor.dtype][0]
        return float(sum(int(self.counts[bound - least]) for bound in bounds)) / self.elements

    @property
    def zeros(self) -> float:
        """Share of elements of real value 0."""
        return (
            float(self.counts[self.tensor.zero_point - INTEGER_RANGE[self.tensor.dtype][0]]) / self.elements
        )


@dataclass(frozen=True)
class Divergence:
    """How the first diverging layer differs, on the first sample on which it does.

    Attributes:
        layer: index into `Report.layers`.
        sample: the input's name.
        channels: mismatches in each channel, int64 [C]: axis 1 of [N,C,H,W] and [N,C]; else there is one.
        peak: the greatest difference over the channels at each position, int32 [H,W]; H takes in the batch.
    """

    layer: int
    sample: str
    channels: NDArray[np.int64]
    peak: NDArray[np.int32]


@dataclass
class Report:
    """What `debug` found.

    Attributes:
        layers: of quantised tensors: the head's Quantize, then the body in execution order.
        samples: names of the inputs.
        target, arithmetic, device: what was compared.
        answers: for each sample, the class by evaluation (float, onnxruntime, reference, target); empty where
            the network is not a classifier.
        divergence: the first layer at which the target differs from the reference.
        plain: layers of plain tensors, which are computed but not compared here.
        sensitivity: which layers the outputs gain by in floats; None where that was not tried.
        not_tried: why not, where it was asked for.
        seen: of the samples, how many the model was calibrated on, as far as `made` says.
        made: how the quantised model was made, as its metadata says; None where it does not.
    """

    layers: list[Layer]
    samples: list[str]
    target: str
    arithmetic: str
    device: str
    answers: list[dict[str, int]]
    divergence: Divergence | None = None
    plain: int = 0
    sensitivity: Sensitivities | None = None
    not_tried: str = ""
    seen: int = 0
    made: Mapping[str, Any] | None = None

    @property
    def mismatches(self) -> int:
        return sum(layer.target.mismatches for layer in self.layers if layer.target is not None)

    @property
    def elements(self) -> int:
        return sum(layer.target.elements for layer in self.layers if layer.target is not None)

    @property
    def diverging(self) -> Layer | None:
        """The first layer whose output on the target is not the reference's."""
        return None if self.divergence is None else self.layers[self.divergence.layer]

    @property
    def broken(self) -> list[Layer]:
        """Layers that compute something wrong from right inputs, by themselves or fused with others."""
        return [layer for layer in self.layers if layer.differs and layer.own_mismatches]

    @property
    def misread(self) -> list[Layer]:
        """Layers that are right though an input of theirs, as the target shows it, is wrong."""
        return [layer for layer in self.layers if layer.own_mismatches and not layer.differs]
