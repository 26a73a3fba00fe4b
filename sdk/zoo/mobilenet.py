"""MobileNetV2 as data, and the float ONNX graph it becomes.

The structure is that of Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks"
(arXiv 1801.04381, table 2): a first convolution of 32 channels, seven groups of inverted residual
blocks, a last one of 1280 channels, global average pooling and a classifier. Channels are multiplied
by `width` and rounded to multiples of 8, never losing more than a tenth; the last convolution only
grows. Batch normalisation is taken as folded: every convolution has a weight and a bias.

The same `Architecture` drives the ONNX builder here and the training script, so that trained weights
fit by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk.errors import UsageError
from sdk.extras import require

Weights = Mapping[str, NDArray[np.float32]]
"""`NAME.weight` (OIHW; [classes, features] for the classifier) and `NAME.bias`, float32."""

# Expansion t, output channels c, repetitions n; and the stride s of each group's first block.
GROUPS = ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1))
STRIDES = (1, 2, 2, 2, 1, 2, 1)
STEM, LAST = 32, 1280
OPSET, IR_VERSION = 13, 8


@dataclass(frozen=True)
class Convolution:
    """One convolution with its folded batch normalisation; padding keeps the size at stride 1."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    stride: int
    groups: int
    relu6: bool

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        return (self.outputs, self.inputs // self.groups, self.kernel, self.kernel)


@dataclass(frozen=True)
class Block:
    """Convolutions in a row; with `residual` the block's input is added to the last one's output."""

    name: str
    convolutions: tuple[Convolution, ...]
    residual: bool = False


@dataclass(frozen=True)
class Architecture:
    """A network: input [1, channels, size, size], `blocks`, pooling, and `features` -> `classes`."""

    size: int
    channels: int
    classes: int
    blocks: tuple[Block, ...]

    @property
    def features(self) -> int:
        return self.blocks[-1].convolutions[-1].outputs

    def convolutions(self) -> Iterator[Convolution]:
        return (convolution for block in self.blocks for convolution in block.convolutions)


def architecture(
    width: float = 1.0,
    size: int = 224,
    classes: int = 1000,
    channels: int = 3,
    *,
    stem_stride: int = 2,
    strides: Sequence[int] = STRIDES,
) -> Architecture:
    """The paper's network; `stem_stride` and `strides` (one a group) may be smaller for small pictures.

    Raises:
        UsageError: a number out of range.
    """
    if not 0 < width <= 8:
        raise UsageError(f"a width multiplier of {width:g} is out of range", hint="choose 0.1 to 8")
    if min(size, classes, channels) < 1:
        raise UsageError("size, classes and channels must be positive")
    if len(strides) != len(GROUPS) or not {stem_stride, *strides} <= {1, 2}:
        raise UsageError(f"strides must be 1 or 2, one for each of the {len(GROUPS)} groups")
    stem = rounded(STEM * width)
    blocks = [Block("stem", (Convolution("stem", channels, stem, 3, stem_stride, 1, True),))]
    inputs = stem
    for (expansion, outputs, repetitions), first_stride in zip(GROUPS, strides, strict=True):
        outputs = rounded(outputs * width)
        for repetition in range(repetitions):
            stride = first_stride if repetition == 0 else 1
            blocks.append(_inverted_residual(f"block{len(blocks)}", inputs, outputs, expansion, stride))
            inputs = outputs
    last = Convolution("last", inputs, rounded(LAST * max(1.0, width)), 1, 1, 1, True)
    return Architecture(size, channels, classes, (*blocks, Block("last", (last,))))


def mobilenet_v2(
    width: float = 1.0, size: int = 224, classes: int = 1000, channels: int = 3, seed: int = 0
) -> Any:
    """A float ONNX MobileNetV2 with seeded weights, for benchmarks and tests: it classifies nothing.

    Returns:
        onnx.ModelProto, opset 13: `input` float32 [1, channels, size, size] -> `logits` [1, classes].

    Raises:
        UsageError: a number out of range.
        EnvironmentMissing: onnx is not installed.
    """
    network = architecture(width, size, classes, channels)
    return build(network, random_weights(network, seed), name=f"mobilenet_v2_{width:g}_{size}")


def random_weights(network: Architecture, seed: int) -> Weights:
    """Seeded weights (He et al., arXiv 1502.01852) under which activations neither vanish nor blow up.

    Channels get gains between 0.5 and 1.5, as folded batch normalisation leaves them unequal.
    """
    generator = np.random.default_rng(seed)
    weights: dict[str, NDArray[np.float32]] = {}

    def layer(name: str, shape: tuple[int, ...], gain: float) -> None:
        fan_in = int(np.prod(shape[1:]))
        channel_gain = generator.uniform(0.5, 1.5, (shape[0],) + (1,) * (len(shape) - 1))
        values = generator.standard_normal(shape) * channel_gain * np.sqrt(gain / fan_in)
        weights[f"{name}.weight"] = values.astype(np.float32)
        weights[f"{name}.bias"] = generator.normal(0.0, 0.1, shape[0]).astype(np.float32)

    for convolution in network.convolutions():
        layer(convolution.name, convolution.weight_shape, 2.0 if convolution.relu6 else 1.0)
    layer("classifier", (network.classes, network.features), 1.0)
    return weights


def build(network: Architecture, weights: Weights, *, name: str) -> Any:
    """The float ONNX model of `network` with `weights`; nodes and tensors are named after the layers.

    Returns:
        onnx.ModelProto, checked. The same arguments give the same bytes.
    """
    onnx = require("onnx")
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    constants: dict[str, NDArray[np.float32]] = {
        "relu6.min": np.asarray(0, np.float32),
        "relu6.max": np.asarray(6, np.float32),
    }
    nodes: list[Any] = []

    def add(op: str, name: str, inputs: Sequence[str], **attributes: Any) -> str:
        output = "logits" if name == "classifier" else name
        nodes.append(helper.make_node(op, list(inputs), [output], name=name, **attributes))
        return output

    def convolve(layer: Convolution, value: str) -> str:
        for part in (f"{layer.name}.weight", f"{layer.name}.bias"):
            constants[part] = weights[part]
        value = add(
            "Conv",
            layer.name,
            [value, f"{layer.name}.weight", f"{layer.name}.bias"],
            dilations=[1, 1],
            group=layer.groups,
            kernel_shape=[layer.kernel] * 2,
            pads=[layer.kernel // 2] * 4,
            strides=[layer.stride] * 2,
        )
        if layer.relu6:
            value = add("Clip", f"{layer.name}/relu6", [value, "relu6.min", "relu6.max"])
        return value

    value = "input"
    for block in network.blocks:
        entry = value
        for convolution in block.convolutions:
            value = convolve(convolution, value)
        if block.residual:
            value = add("Add", f"{block.name}/add", [value, entry])
    value = add("GlobalAveragePool", "pool", [value])
    value = add("Flatten", "flatten", [value], axis=1)
    for part in ("classifier.weight", "classifier.bias"):
        constants[part] = weights[part]
    add("Gemm", "classifier", [value, "classifier.weight", "classifier.bias"], transB=1)

    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("input", float32, [1, network.channels, network.size, network.size])],
        [helper.make_tensor_value_info("logits", float32, [1, network.classes])],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(value), key) for key, value in constants.items()],
    )
    model = helper.make_model(
        graph,
        producer_name="towline",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def _inverted_residual(name: str, inputs: int, outputs: int, expansion: int, stride: int) -> Block:
    hidden = inputs * expansion
    expand = Convolution(f"{name}/expand", inputs, hidden, 1, 1, 1, True)
    depthwise = Convolution(f"{name}/depthwise", hidden, hidden, 3, stride, hidden, True)
    project = Convolution(f"{name}/project", hidden, outputs, 1, 1, 1, False)
    convolutions = (depthwise, project) if expansion == 1 else (expand, depthwise, project)
    return Block(name, convolutions, residual=stride == 1 and inputs == outputs)


def rounded(channels: float) -> int:
    """The nearest multiple of 8, at least 8 and at least nine tenths of `channels`."""
    result = max(8, int(channels + 4) // 8 * 8)
    return result + 8 if result < 0.9 * channels else result
