"""Networks of any size with seeded weights, for benchmarks and tests: they classify nothing.

Structures are the papers': MobileNets (arXiv 1704.04861, table 1), MobileNetV3-Small (1905.02244, table 2),
ResNet-18 and -50 (1512.03385, table 1; the stride of a bottleneck in its 3x3, as most implementations have
it), EfficientNet-Lite0 (EfficientNet-B0 of 1905.11946, table 1, without squeeze-and-excitation, with ReLU6,
stem and head not scaled), and a detector in the manner of SSD (1512.02325) with a feature pyramid of two
levels. Channels are multiplied by `width` and rounded to multiples of 8. Batch normalisation is taken as
folded.

Each builder returns an onnx.ModelProto, opset 14: `input` float32 [1, channels, size, size] -> `logits`
[1, classes] unless it says otherwise; and raises UsageError for a number out of range,
EnvironmentMissing where onnx is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sdk.errors import UsageError
from sdk.zoo.builder import Classifier
from sdk.zoo.mobilenet import mobilenet_v2, rounded

# Outputs and stride of each pair of a depthwise and a pointwise convolution.
MOBILENET_V1 = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)

# Kernel, expanded channels, output channels, squeeze-and-excitation, activation and stride of each block.
MOBILENET_V3_SMALL = (
    (3, 16, 16, True, "Relu", 2),
    (3, 72, 24, False, "Relu", 2),
    (3, 88, 24, False, "Relu", 1),
    (5, 96, 40, True, "HardSwish", 2),
    (5, 240, 40, True, "HardSwish", 1),
    (5, 240, 40, True, "HardSwish", 1),
    (5, 120, 48, True, "HardSwish", 1),
    (5, 144, 48, True, "HardSwish", 1),
    (5, 288, 96, True, "HardSwish", 2),
    (5, 576, 96, True, "HardSwish", 1),
    (5, 576, 96, True, "HardSwish", 1),
)

# Expansion, kernel, first stride, output channels and repetitions of each stage.
EFFICIENTNET_B0 = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def mobilenet_v1(
    width: float = 1.0, size: int = 224, classes: int = 1000, channels: int = 3, seed: int = 0
) -> Any:
    """MobileNetV1 with ReLU6."""
    b = _builder("mobilenet_v1", width, size, channels, seed)
    x = b.convolve("stem", "input", rounded(32 * width), 3, 2, activation="Relu6")
    for index, (outputs, stride) in enumerate(MOBILENET_V1):
        x = _separable(b, f"block{index + 1}", x, rounded(outputs * width), stride)
    return _classified(b, x, classes)


def mobilenet_v3_small(
    width: float = 1.0, size: int = 224, classes: int = 1000, channels: int = 3, seed: int = 0
) -> Any:
    """MobileNetV3-Small: HardSwish, squeeze-and-excitation, depthwise 5x5."""
    b = _builder("mobilenet_v3_small", width, size, channels, seed)
    x = b.convolve("stem", "input", rounded(16 * width), 3, 2, activation="HardSwish")
    for index, (kernel, expanded, outputs, excited, activation, stride) in enumerate(MOBILENET_V3_SMALL):
        x = _inverted(
            b,
            f"block{index + 1}",
            x,
            (rounded(expanded * width), rounded(outputs * width)),
            kernel,
            stride,
            activation=activation,
            excited=excited,
        )
    x = b.convolve("last", x, rounded(576 * width), activation="HardSwish")
    x = b.dense("features", b.pool(x), rounded(1024 * width), activation="HardSwish")
    return b.returns(_logits(b, x, classes)).model()


def efficientnet_lite0(
    width: float = 1.0, size: int = 224, classes: int = 1000, channels: int = 3, seed: int = 0
) -> Any:
    """EfficientNet-Lite0: inverted residuals with 3x3 and 5x5 depthwise convolutions and ReLU6."""
    b = _builder("efficientnet_lite0", width, size, channels, seed)
    x = b.convolve("stem", "input", rounded(32 * width), 3, 2, activation="Relu6")
    for stage, (expansion, kernel, first, outputs, repetitions) in enumerate(EFFICIENTNET_B0):
        for repetition in range(repetitions):
            stride = first if repetition == 0 else 1
            sizes = (b.channels[x] * expansion, rounded(outputs * width))
            x = _inverted(b, f"stage{stage + 1}.{repetition}", x, sizes, kernel, stride, activation="Relu6")
    x = b.convolve("last", x, rounded(1280 * width), activation="Relu6")
    return _classified(b, x, classes)


def resnet18(
    width: float = 1.0, size: int = 224, classes: int = 1000, channels: int = 3, seed: int = 0
) -> Any:
    """ResNet-18: two 3x3 convolutions a block."""
    return _resnet("resnet18", (2, 2, 2, 2), 0, width, size, classes, channels, seed)


def resnet50(
    width: float = 1.0, size: int = 224, classes: int = 1000, channels: int = 3, seed: int = 0
) -> Any:
    """ResNet-50: bottlenecks of 1x1, 3x3 and 1x1 with four times the channels."""
    return _resnet("resnet50", (3, 4, 6, 3), 4, width, size, classes, channels, seed)


def detector(width: float = 1.0, size: int = 224, classes: int = 20, channels: int = 3, seed: int = 0) -> Any:
    """A detector of `classes` kinds of things: features at strides 8 and 16, 3 anchors at each place.

    Returns:
        onnx.ModelProto, opset 14: `input` float32 [1, channels, size, size] -> `boxes` [1, anchors, 4] and
        `scores` [1, anchors, classes], after a sigmoid.
    """
    if size % 16:
        raise UsageError(f"a detector's size is a multiple of 16, not {size}")
    b = _builder("detector", width, size, channels, seed)
    x = b.convolve("stem", "input", rounded(24 * width), 3, 2, activation="Relu6")
    x = _separable(b, "block1", x, rounded(48 * width), 2)
    fine = _separable(b, "block2", x, rounded(96 * width), 2)
    x = _separable(b, "block3", fine, rounded(192 * width), 2)
    coarse = _separable(b, "block4", x, rounded(192 * width), 1)
    lateral = b.convolve("lateral", coarse, rounded(96 * width), activation="Relu6")
    scales = b.constant("up.scales", [1, 1, 2, 2])
    up = b.add(
        "Resize",
        "up",
        [lateral, "", scales],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    joined = b.add("Concat", "joined", [up, fine], b.channels[up] + b.channels[fine], axis=1)
    fine = _separable(b, "fine", joined, rounded(96 * width), 1)
    boxes, scores = [], []
    for name, features in (("fine", fine), ("coarse", coarse)):
        boxes.append(_head(b, f"{name}/boxes", features, 4))
        scores.append(_head(b, f"{name}/scores", features, classes))
    b.add("Concat", "boxes", boxes, axis=1)
    b.add("Sigmoid", "scores", [b.add("Concat", "logits", scores, axis=1)])
    return b.returns("boxes", "scores").model()


NETWORKS: Mapping[str, Callable[..., Any]] = {
    "detector": detector,
    "efficientnet_lite0": efficientnet_lite0,
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v3_small": mobilenet_v3_small,
    "resnet18": resnet18,
    "resnet50": resnet50,
}
"""Builders by name; all take `width`, `size`, `classes`, `channels` and `seed`."""


def _builder(name: str, width: float, size: int, channels: int, seed: int) -> Classifier:
    if not 0 < width <= 8:
        raise UsageError(f"a width multiplier of {width:g} is out of range", hint="choose 0.1 to 8")
    return Classifier(f"{name}_{width:g}_{size}", size, channels, seed)


def _separable(b: Classifier, name: str, x: str, outputs: int, stride: int) -> str:
    x = b.depthwise(f"{name}/depthwise", x, 3, stride, activation="Relu6")
    return b.convolve(f"{name}/pointwise", x, outputs, activation="Relu6")


def _inverted(
    b: Classifier,
    name: str,
    x: str,
    sizes: tuple[int, int],
    kernel: int,
    stride: int,
    *,
    activation: str,
    excited: bool = False,
) -> str:
    """An inverted residual of (expanded, output) channels; no expansion to the channels it already has."""
    entry, (expanded, outputs) = x, sizes
    if expanded != b.channels[x]:
        x = b.convolve(f"{name}/expand", x, expanded, activation=activation)
    x = b.depthwise(f"{name}/depthwise", x, kernel, stride, activation=activation)
    if excited:
        x = b.excite(name, x, rounded(expanded / 4))
    x = b.convolve(f"{name}/project", x, outputs)
    residual = stride == 1 and b.channels[entry] == outputs
    return b.add("Add", f"{name}/add", [x, entry]) if residual else x


def _resnet(
    name: str,
    repetitions: Sequence[int],
    bottleneck: int,
    width: float,
    size: int,
    classes: int,
    channels: int,
    seed: int,
) -> Any:
    b = _builder(name, width, size, channels, seed)
    x = b.convolve("stem", "input", rounded(64 * width), 7, 2, activation="Relu")
    x = b.add("MaxPool", "stem/pool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for stage, count in enumerate(repetitions):
        inner = rounded(64 * 2**stage * width)
        outputs = inner * bottleneck if bottleneck else inner
        for repetition in range(count):
            prefix, stride = f"stage{stage + 1}.{repetition}", 2 if stage and not repetition else 1
            entry = x
            if bottleneck:
                x = b.convolve(f"{prefix}/reduce", x, inner, activation="Relu")
            x = b.convolve(f"{prefix}/middle", x, inner, 3, stride, activation="Relu")
            x = b.convolve(f"{prefix}/last", x, outputs, 1 if bottleneck else 3, gain=0.25)
            if stride > 1 or b.channels[entry] != outputs:
                entry = b.convolve(f"{prefix}/shortcut", entry, outputs, 1, stride)
            x = b.activate(b.add("Add", f"{prefix}/add", [x, entry]), "Relu")
    return _classified(b, x, classes)


def _head(b: Classifier, name: str, x: str, values: int, anchors: int = 3) -> str:
    """Predictions [1, places * anchors, values] of features [1, C, H, W]."""
    x = b.convolve(name, x, anchors * values, 3)
    x = b.add("Transpose", f"{name}/last", [x], perm=[0, 2, 3, 1])
    return b.add("Reshape", f"{name}/flat", [x, b.constant(f"shape{values}", [1, -1, values], np.int64)])


def _classified(b: Classifier, x: str, classes: int) -> Any:
    return b.returns(_logits(b, b.pool(x), classes)).model()


def _logits(b: Classifier, x: str, classes: int) -> str:
    x = b.dense("classifier", x, classes)
    return b.add("Identity", "logits", [x])
