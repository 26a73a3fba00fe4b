"""ONNX networks with seeded weights, layer by layer: what the builders of the zoo share.

Weights are normal with the variance under which activations keep theirs (He et al., arXiv 1502.01852).
A `Network` holds a weight as what it is to be drawn from, and draws it when the file is written: a
network larger than memory is planned, counted and written tensor by tensor.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk import files
from sdk.errors import UsageError
from sdk.extras import require
from sdk.zoo.mobilenet import IR_VERSION

Shape = tuple[int, ...]

EXTERNAL = 1 << 30
"""Bytes of constants from which on they are in a file of their own: protobuf has at most 2 GiB a message."""

ALIGNMENT = 4096
"""Of each tensor in that file, so that it can be mapped; ONNX's external data asks for the same."""

RANGES_KEY = "towline.input_ranges"
"""Metadata of a model: {input: values}, the integers from 0 that an input may be."""

CENTRED = 16
"""Weights of at least so many products have no mean over them: what all inputs share would drown the rest."""

VARIANCES = {"": 1.0, "Relu": 2.9, "Elu": 1.75, "Gelu": 2.8, "Silu": 2.9, "HardSwish": 2.8}
"""Of a layer's sums, by what follows it: such that what comes out varies by about 1. For centred weights."""

MEAN_SQUARES = {"": 1.0, "Relu": 2.0, "Relu6": 2.0, "HardSwish": 2.3, "Silu": 2.3}
MEAN_SQUARES |= {"HardSigmoid": 1.0, "Sigmoid": 1.0}
"""The same of weights that are not centred: such that what comes out has a mean square of about 1."""


@dataclass(frozen=True)
class Weight:
    """A constant that is drawn when it is written: normal numbers of this mean and deviation.

    Attributes:
        centred: axes over which the numbers have exactly that mean.
    """

    shape: Shape
    dtype: str
    deviation: float
    mean: float = 0.0
    centred: Shape = ()

    def values(self, name: str, seed: int) -> NDArray[Any]:
        """The numbers; they depend on the seed and the tensor's name alone."""
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        values = random.standard_normal(self.shape, np.float32)
        if self.centred:
            values -= values.mean(self.centred, keepdims=True)
        values *= np.float32(self.deviation)
        values += np.float32(self.mean)
        return values.astype(self.dtype, copy=False)


class Network:
    """A network, planned layer by layer and then written.

    Each layer returns the name of its result, which has `channels[name]` channels. Channels are what a
    product sums over: axis 1 of pictures and sounds, the last axis of tokens.

    Args:
        name: the graph's.
        seed: of the weights.
        opset: of ONNX's operators.
        dtype: of activations and weights, float32 or float16.
        centred: whether weights over many products have no mean over them. Then outputs depend more on the
            inputs, and rounding shows more: a deep network that is to be quantised has them uncentred.

    Raises:
        UsageError: a number out of range.
    """

    def __init__(
        self, name: str, seed: int, opset: int, dtype: str = "float32", *, centred: bool = True
    ) -> None:
        self.name, self.opset, self.dtype, self.centred = name, opset, dtype, centred
        self.variances = VARIANCES if centred else MEAN_SQUARES
        self.channels: dict[str, int] = {}
        self._onnx = require("onnx")
        self._seed = seed
        self._nodes: list[Any] = []
        self._constants: dict[str, NDArray[Any] | Weight] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._ranges: dict[str, int] = {}

    # --- constants, inputs and operators ----------------------------------------------------------------

    def input(self, name: str, shape: Sequence[int], channels: int, dtype: str = "", below: int = 0) -> str:
        """An input of the network; integers of it are from 0 to `below` - 1."""
        if min(shape) < 1:
            raise UsageError(f"the input {name} has the shape {list(shape)}: every extent must be positive")
        self._inputs.append(
            self._onnx.helper.make_tensor_value_info(name, self.element(dtype or self.dtype), list(shape))
        )
        if below:
            self._ranges[name] = below
        self.channels[name] = channels
        return name

    def add(self, op: str, name: str, inputs: Sequence[str], channels: int = 0, **attributes: Any) -> str:
        """Any operator; its result has the channels of the first input by default."""
        self.channels[name] = channels or self.channels[inputs[0]]
        self._nodes.append(self._onnx.helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def split(self, name: str, x: str, channels: Sequence[int], axis: int) -> list[str]:
        """Parts of so many channels along an axis, by the names NAME.0, NAME.1 and so on."""
        parts = [f"{name}.{index}" for index in range(len(channels))]
        sizes = self.constant(f"{name}.sizes", channels, np.int64)
        self._nodes.append(self._onnx.helper.make_node("Split", [x, sizes], parts, name=name, axis=axis))
        self.channels.update(zip(parts, channels, strict=True))
        return parts

    def constant(self, name: str, values: Any, dtype: Any = None) -> str:
        """A constant of the network's dtype, or another; a name stands for one constant."""
        self._constants[name] = np.asarray(values, dtype or self.dtype)
        return name

    def weight(
        self,
        name: str,
        shape: Sequence[int],
        deviation: float,
        *,
        mean: float = 0.0,
        centred: Shape = (),
        dtype: str = "",
    ) -> str:
        """A constant that is drawn when the file is written, unless one of this name is there already."""
        if min(shape) < 1:
            raise UsageError(f"the layer {name.rpartition('.')[0]} has a weight of shape {list(shape)}")
        self._constants.setdefault(
            name, Weight(tuple(shape), dtype or self.dtype, deviation, mean, tuple(centred))
        )
        return name

    def product_weight(self, name: str, shape: Sequence[int], axes: Shape, variance: float) -> str:
        """A weight whose products over `axes` add up to sums of that variance, if inputs vary by 1."""
        terms = math.prod(shape[axis] for axis in axes)
        # Taps of one channel keep their mean: without it a depthwise layer would see edges alone.
        centred = axes if self.centred and terms >= CENTRED and shape[axes[0]] > 1 else ()
        return self.weight(name, shape, math.sqrt(variance / max(terms, 1)), centred=centred)

    def recurrence(self, name: str, x: str, weights: Sequence[str], hidden: int) -> str:
        """A GRU over [steps, 1, channels], from zero; its last state, [1, 1, hidden]."""
        self.channels[name] = hidden
        inputs = [x, *weights]
        node = self._onnx.helper.make_node(
            "GRU", inputs, ["", name], name=name, hidden_size=hidden, linear_before_reset=1
        )
        self._nodes.append(node)
        return name

    # --- layers -----------------------------------------------------------------------------------------

    def convolve(
        self,
        name: str,
        x: str,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        *,
        groups: int = 1,
        dilation: int = 1,
        rank: int = 2,
        padded: bool = True,
        activation: str = "",
        gain: float = 1.0,
        weights: str = "",
    ) -> str:
        """A convolution with bias and activation; padding keeps the size at stride 1.

        `rank` is 1 of sounds and 2 of pictures; `padded` is False where padding comes before it; `weights`
        says whose weights it has, by default those of its own name.
        """
        weight = self._weights(
            weights or name, (outputs, self.channels[x] // groups, *[kernel] * rank), gain, activation
        )
        x = self.add(
            "Conv",
            name,
            [x, *weight],
            outputs,
            dilations=[dilation] * rank,
            group=groups,
            kernel_shape=[kernel] * rank,
            pads=[kernel // 2 * dilation * padded] * (2 * rank),
            strides=[stride] * rank,
        )
        return self.activate(x, activation)

    def dense(self, name: str, x: str, outputs: int, *, activation: str = "", gain: float = 1.0) -> str:
        """A matrix with bias and activation, over [1, channels]."""
        weight = self._weights(name, (outputs, self.channels[x]), gain, activation)
        return self.activate(self.add("Gemm", name, [x, *weight], outputs, transB=1), activation)

    def project(
        self, name: str, x: str, outputs: int, *, bias: bool = True, activation: str = "", gain: float = 1.0
    ) -> str:
        """A matrix, with bias and activation, over the last axis of tokens."""
        shape = (self.channels[x], outputs)
        weight = self.product_weight(f"{name}.weight", shape, (0,), gain * self.variances[activation])
        if not bias:
            return self.activate(self.add("MatMul", name, [x, weight], outputs), activation)
        x = self.add("MatMul", f"{name}/matmul", [x, weight], outputs)
        x = self.add("Add", name, [x, self.weight(f"{name}.bias", (outputs,), 0.1)])
        return self.activate(x, activation)

    def activate(self, x: str, activation: str) -> str:
        """An activation by its name in ONNX, or none; and Silu, which is x * sigmoid(x).

        Gelu is written out where the opset has none, as exporters do it.
        """
        if not activation:
            return x
        name = f"{x}/{activation.lower()}"
        if activation == "Silu":
            return self.add("Mul", name, [x, self.add("Sigmoid", f"{x}/sigmoid", [x])])
        if activation != "Gelu" or self.opset >= 20:
            return self.add(activation, name, [x])
        scaled = self.add("Div", f"{name}/scaled", [x, self.constant("gelu.sqrt2", math.sqrt(2))])
        erf = self.add("Erf", f"{name}/erf", [scaled])
        raised = self.add("Add", f"{name}/raised", [erf, self.constant("gelu.one", 1)])
        both = self.add("Mul", f"{name}/both", [x, raised])
        return self.add("Mul", name, [both, self.constant("gelu.half", 0.5)])

    def reshape(self, name: str, x: str, shape: Sequence[int], channels: int) -> str:
        label = "shape." + "x".join(map(str, shape))
        return self.add("Reshape", name, [x, self.constant(label, shape, np.int64)], channels)

    def slice(self, name: str, x: str, start: int, stop: int, axis: int, channels: int = 0) -> str:
        """A part of an axis."""
        numbers = [self.constant(f"index.{number}", [number], np.int64) for number in (start, stop, axis)]
        return self.add("Slice", name, [x, *numbers], channels)

    # --- the file ---------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of all constants."""
        return sum(
            math.prod(constant.shape) * np.dtype(constant.dtype).itemsize
            for constant in self._constants.values()
        )

    def returns(self, *names: str, dtype: str = "") -> Network:
        """Make these results outputs."""
        element = self.element(dtype or self.dtype)
        self._outputs += [self._onnx.helper.make_tensor_value_info(name, element, None) for name in names]
        return self

    def model(self) -> Any:
        """The network with its weights.

        Returns:
            onnx.ModelProto, checked. The same layers and seed give the same bytes.

        Raises:
            UsageError: it has more constants than one file of ONNX may; `save` writes it.
        """
        if self.nbytes >= EXTERNAL:
            raise UsageError(
                f"{self.name} has {self.nbytes} bytes of weights, and one message of ONNX at most {EXTERNAL}",
                hint="write it with `save`",
            )
        tensors = [self._onnx.numpy_helper.from_array(self._values(name), name) for name in self._constants]
        model = self._model(tensors)
        self._onnx.checker.check_model(model, full_check=True)
        return model

    def plan(self) -> Any:
        """The same without the values of weights: for counting.

        Returns:
            onnx.ModelProto, in which each drawn constant is said to be in an external file.
        """
        tensors = []
        for name, constant in self._constants.items():
            if isinstance(constant, Weight):
                tensors.append(self._external(name, constant, "none", 0))
            else:
                tensors.append(self._onnx.numpy_helper.from_array(constant, name))
        return self._model(tensors)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network, whole or not at all; constants of 1 GiB or more to PATH.data, one at a time.

        Memory: about twice the network up to that size; above it, three times the largest constant.

        Raises:
            OutputFailed: it cannot be written.
        """
        if self.nbytes < EXTERNAL:
            files.write(path, self.model().SerializeToString())
            return
        data = Path(os.fspath(path) + ".data")
        tensors = []
        with files.replacing(data) as file:
            for name, constant in self._constants.items():
                if isinstance(constant, Weight):
                    file.write(bytes(-file.tell() % ALIGNMENT))
                    tensors.append(self._external(name, constant, data.name, file.tell()))
                    file.write(self._values(name).data)
                else:
                    tensors.append(self._onnx.numpy_helper.from_array(constant, name))
        files.write(path, self._model(tensors).SerializeToString())

    def _model(self, tensors: Sequence[Any]) -> Any:
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, tensors)
        model = helper.make_model(
            graph,
            producer_name="towline",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", self.opset)],
        )
        if self._ranges:
            helper.set_model_props(model, {RANGES_KEY: json.dumps(self._ranges)})
        inferred = self._onnx.shape_inference.infer_shapes(model, strict_mode=True)
        del inferred.graph.value_info[:]
        return inferred

    def _values(self, name: str) -> NDArray[Any]:
        constant = self._constants[name]
        return constant.values(name, self._seed) if isinstance(constant, Weight) else constant

    def _external(self, name: str, weight: Weight, location: str, offset: int) -> Any:
        tensor = self._onnx.TensorProto(
            name=name, data_type=self.element(weight.dtype), dims=weight.shape, data_location="EXTERNAL"
        )
        length = math.prod(weight.shape) * np.dtype(weight.dtype).itemsize
        for key, value in (("location", location), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor

    def element(self, dtype: str) -> int:
        """ONNX's number of a dtype."""
        return int(self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def _weights(self, name: str, shape: Shape, gain: float, activation: str) -> tuple[str, str]:
        """Weight and bias of a layer whose products are over all axes but the first."""
        axes = tuple(range(1, len(shape)))
        variance = gain * self.variances[activation]
        weight = self.product_weight(f"{name}.weight", shape, axes, variance)
        return weight, self.weight(f"{name}.bias", shape[:1], 0.1)


CLASSIFIER_OPSET = 14
"""The first with HardSwish."""


class Classifier(Network):
    """Networks of one float32 picture, [1, channels, size, size] by the name `input`, opset 14.

    Channels get gains between 0.5 and 1.5, as folded batch normalisation leaves them unequal.

    Raises:
        UsageError: a number out of range.
    """

    def __init__(self, name: str, size: int, channels: int, seed: int) -> None:
        super().__init__(name, seed, CLASSIFIER_OPSET, centred=False)
        if min(size, channels) < 1:
            raise UsageError("size and channels must be positive")
        self.input("input", (1, channels, size, size), channels)
        self._random = np.random.default_rng(seed)

    def depthwise(self, name: str, x: str, kernel: int, stride: int = 1, *, activation: str = "") -> str:
        channels = self.channels[x]
        return self.convolve(name, x, channels, kernel, stride, groups=channels, activation=activation)

    def activate(self, x: str, activation: str) -> str:
        """Relu, Relu6, HardSwish, HardSigmoid (of slope 1/6, as MobileNetV3 has it), Sigmoid or none."""
        if activation == "Relu6":
            limits = [self.constant("relu6.min", 0), self.constant("relu6.max", 6)]
            return self.add("Clip", f"{x}/relu6", [x, *limits])
        if activation == "HardSigmoid":
            return self.add(activation, f"{x}/hardsigmoid", [x], alpha=1 / 6, beta=0.5)
        return super().activate(x, activation)

    def excite(self, name: str, x: str, squeezed: int) -> str:
        """Squeeze and excitation (arXiv 1709.01507): channels weighted by a gate of their means."""
        gate = self.add("GlobalAveragePool", f"{name}/gate", [x])
        gate = self.convolve(f"{name}/gate/reduce", gate, squeezed, activation="Relu", gain=4)
        gate = self.convolve(f"{name}/gate/expand", gate, self.channels[x], activation="HardSigmoid", gain=2)
        return self.add("Mul", f"{name}/excite", [x, gate])

    def pool(self, x: str) -> str:
        """Global mean, flattened to [1, channels]."""
        x = self.add("GlobalAveragePool", "pool", [x])
        return self.add("Flatten", "flatten", [x], axis=1)

    def _weights(self, name: str, shape: Shape, gain: float, activation: str) -> tuple[str, str]:
        if min(shape) < 1:
            raise UsageError(f"the layer {name} has a weight of shape {list(shape)}")
        gains = self._random.uniform(0.5, 1.5, (shape[0],) + (1,) * (len(shape) - 1))
        variance = gain * self.variances[activation]
        values = self._random.standard_normal(shape) * gains * np.sqrt(variance / np.prod(shape[1:]))
        bias = self._random.normal(0.0, 0.1, shape[0])
        return self.constant(f"{name}.weight", values), self.constant(f"{name}.bias", bias)
