"""Tiny ONNX models for tests, and onnxruntime as the oracle over them.

The oracle is the CPU provider with all optimisations. With uint8 activations it is set to exact sums,
which it otherwise saturates on x86 without VNNI. With int8 activations that option leads it to kernels it
does not have; `session.qdqisint8allowed` keeps it from rewriting them to uint8 and losing the fusion, and
tests use weights of 7 bits (`SAFE_WEIGHTS`), whose sums no kernel saturates.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from sdk.graph import Graph
from sdk.importers import load_model

CONTRIB = "com.microsoft"
SAFE_WEIGHTS = (-64, 63)
RANGES = {"uint8": (0, 255), "int8": (-128, 127)}


class OnnxBuilder:
    """Nodes, constants and inputs by name; `model()` closes it."""

    def __init__(self, opset: int = 13) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def input(self, name: str, shape: Sequence[int | str], dtype: str = "float32") -> str:
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(helper.make_tensor_value_info(name, element, shape))
        return name

    def constant(self, name: str, array, dtype=None) -> str:
        if name not in [tensor.name for tensor in self.initializers]:
            self.initializers.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def node(self, op: str, inputs: Sequence[str], output: str, *, domain: str = "", **attributes) -> str:
        name = attributes.pop("name", f"{output}_node")
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, domain=domain, **attributes))
        return output

    def scale(self, name: str, scale, zero_point) -> tuple[str, str]:
        """Constants of a quantisation; `zero_point` is a numpy array or scalar, which says the dtype."""
        return (
            self.constant(f"{name}_scale", scale, np.float32),
            self.constant(f"{name}_zero_point", zero_point),
        )

    def quantize(self, x: str, output: str, scale, zero_point, **attributes) -> str:
        return self.node("QuantizeLinear", [x, *self.scale(output, scale, zero_point)], output, **attributes)

    def dequantize(self, x: str, scale, zero_point, **attributes) -> str:
        return self.node(
            "DequantizeLinear", [x, *self.scale(x, scale, zero_point)], f"{x}_real", **attributes
        )

    def qdq(self, x: str, scale, zero_point) -> str:
        """QuantizeLinear to `x`_q and DequantizeLinear back."""
        return self.dequantize(self.quantize(x, f"{x}_q", scale, zero_point), scale, zero_point)

    def weight(self, name: str, array: np.ndarray, scale, zero_point, axis: int = 0) -> str:
        self.constant(name, array)
        return self.dequantize(name, scale, zero_point, **({"axis": axis} if np.ndim(scale) else {}))

    def model(self, outputs: Mapping[str, str] | Sequence[str]) -> onnx.ModelProto:
        """Close it; `outputs` gives dtypes by name, or float32 names."""
        if not isinstance(outputs, Mapping):
            outputs = dict.fromkeys(outputs, "float32")
        values = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)
            for name, dtype in outputs.items()
        ]
        graph = helper.make_graph(self.nodes, "tiny", self.inputs, values, self.initializers)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def saved(model: onnx.ModelProto, directory: Path, name: str = "tiny.onnx") -> Path:
    path = directory / name
    path.write_bytes(model.SerializeToString())
    return path


def imported(model: onnx.ModelProto, **options) -> Graph:
    with tempfile.TemporaryDirectory() as directory:
        return load_model(saved(model, Path(directory)), **options)


def oracle(
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], *, signed: bool = False
) -> dict[str, np.ndarray]:
    """Outputs by name, by onnxruntime; `signed` where activations are int8."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    option = "session.qdqisint8allowed" if signed else "session.x64quantprecision"
    options.add_session_config_entry(option, "1")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def integers(random: np.random.Generator, dtype: str, shape: Sequence[int] | int = ()) -> np.ndarray:
    low, high = RANGES[dtype]
    return np.asarray(random.integers(low, high, shape, dtype, endpoint=True))


def small_float_model(*, channels: int = 4, size: int = 8, name: str = "conv") -> OnnxBuilder:
    """x -> Conv 3x3 -> y, open for more nodes."""
    builder = OnnxBuilder()
    random = np.random.default_rng(0)
    builder.input("x", [1, 3, size, size])
    builder.constant("w", random.normal(0, 1, (channels, 3, 3, 3)), np.float32)
    builder.constant("b", random.normal(0, 1, channels), np.float32)
    builder.node("Conv", ["x", "w", "b"], "y", name=name, pads=[1, 1, 1, 1])
    return builder


def small_qdq_model() -> OnnxBuilder:
    """x -> Q/DQ -> Conv with quantised weight and bias -> y (float), open for more nodes."""
    builder = OnnxBuilder()
    random = np.random.default_rng(0)
    builder.input("x", [1, 3, 8, 8])
    x = builder.qdq("x", 0.02, np.uint8(120))
    scale = np.array([0.01, 0.02, 0.03, 0.04])
    w = builder.weight("w", integers(random, "int8", (4, 3, 3, 3)), scale, np.zeros(4, np.int8))
    bias = random.integers(-2000, 2000, 4, np.int32)
    b = builder.weight("b", bias, (np.float32(0.02) * scale.astype(np.float32)), np.zeros(4, np.int32))
    builder.node("Conv", [x, w, b], "y", name="conv", pads=[1, 1, 1, 1])
    return builder
