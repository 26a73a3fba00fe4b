"""Float ONNX networks with seeded weights, layer by layer: what the builders of `sdk.zoo.networks` share.

Weights are normal with the variance under which activations keep theirs (He et al., arXiv 1502.01852);
channels get gains between 0.5 and 1.5, as folded batch normalisation leaves them unequal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk.errors import UsageError
from sdk.extras import require
from sdk.zoo.mobilenet import IR_VERSION

OPSET = 14
"""The first with HardSwish."""

VARIANCES = {"": 1.0, "Relu": 2.0, "Relu6": 2.0, "HardSwish": 2.3, "HardSigmoid": 1.0, "Sigmoid": 1.0}
"""Of a layer's sums, by what follows it: such that its output has a mean square of about 1."""


class NetworkBuilder:
    """Layers by name; each returns the name of its result, which has `channels[name]` of them.

    Args:
        name: the graph's.
        size, channels: of the input, [1, channels, size, size] by the name `input`.
        seed: of the weights.

    Raises:
        UsageError: a number out of range.
    """

    def __init__(self, name: str, size: int, channels: int, seed: int) -> None:
        if min(size, channels) < 1:
            raise UsageError("size and channels must be positive")
        self.name, self.size = name, size
        self.channels = {"input": channels}
        self._onnx = require("onnx")
        self._random = np.random.default_rng(seed)
        self._nodes: list[Any] = []
        self._constants: dict[str, NDArray[Any]] = {}

    def add(self, op: str, name: str, inputs: Sequence[str], channels: int = 0, **attributes: Any) -> str:
        """Any operator; its result has the channels of the first input by default."""
        self._nodes.append(self._onnx.helper.make_node(op, list(inputs), [name], name=name, **attributes))
        self.channels[name] = channels or self.channels[inputs[0]]
        return name

    def constant(self, name: str, values: Any, dtype: Any = np.float32) -> str:
        self._constants[name] = np.asarray(values, dtype)
        return name

    def convolve(
        self,
        name: str,
        x: str,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        *,
        groups: int = 1,
        activation: str = "",
        gain: float = 1.0,
    ) -> str:
        """A convolution with bias and activation; padding keeps the size at stride 1."""
        weight = self._weights(
            name, (outputs, self.channels[x] // groups, kernel, kernel), gain * VARIANCES[activation]
        )
        x = self.add(
            "Conv",
            name,
            [x, *weight],
            outputs,
            dilations=[1, 1],
            group=groups,
            kernel_shape=[kernel] * 2,
            pads=[kernel // 2] * 4,
            strides=[stride] * 2,
        )
        return self.activate(x, activation)

    def depthwise(self, name: str, x: str, kernel: int, stride: int = 1, *, activation: str = "") -> str:
        channels = self.channels[x]
        return self.convolve(name, x, channels, kernel, stride, groups=channels, activation=activation)

    def dense(self, name: str, x: str, outputs: int, *, activation: str = "") -> str:
        """A matrix with bias and activation, over [1, channels]."""
        weight = self._weights(name, (outputs, self.channels[x]), VARIANCES[activation])
        return self.activate(self.add("Gemm", name, [x, *weight], outputs, transB=1), activation)

    def activate(self, x: str, activation: str) -> str:
        """Relu, Relu6, HardSwish, HardSigmoid (of slope 1/6, as MobileNetV3 has it), Sigmoid or none."""
        if not activation:
            return x
        name = f"{x}/{activation.lower()}"
        if activation == "Relu6":
            limits = [self.constant("relu6.min", 0), self.constant("relu6.max", 6)]
            return self.add("Clip", name, [x, *limits])
        slope: dict[str, Any] = {"alpha": 1 / 6, "beta": 0.5} if activation == "HardSigmoid" else {}
        return self.add(activation, name, [x], **slope)

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

    def model(self, outputs: Sequence[str]) -> Any:
        """The network with these results.

        Returns:
            onnx.ModelProto, checked. The same layers and seed give the same bytes.
        """
        helper, float32 = self._onnx.helper, self._onnx.TensorProto.FLOAT
        shape = [1, self.channels["input"], self.size, self.size]
        graph = helper.make_graph(
            self._nodes,
            self.name,
            [helper.make_tensor_value_info("input", float32, shape)],
            [helper.make_tensor_value_info(name, float32, None) for name in outputs],
            [self._onnx.numpy_helper.from_array(value, name) for name, value in self._constants.items()],
        )
        model = helper.make_model(
            graph,
            producer_name="towline",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        inferred = self._onnx.shape_inference.infer_shapes(model, strict_mode=True)
        del inferred.graph.value_info[:]
        self._onnx.checker.check_model(inferred, full_check=True)
        return inferred

    def _weights(self, name: str, shape: tuple[int, ...], variance: float) -> tuple[str, str]:
        if min(shape) < 1:
            raise UsageError(f"the layer {name} has a weight of shape {list(shape)}")
        gains = self._random.uniform(0.5, 1.5, (shape[0],) + (1,) * (len(shape) - 1))
        values = self._random.standard_normal(shape) * gains * np.sqrt(variance / np.prod(shape[1:]))
        bias = self._random.normal(0.0, 0.1, shape[0])
        return self.constant(f"{name}.weight", values), self.constant(f"{name}.bias", bias)
