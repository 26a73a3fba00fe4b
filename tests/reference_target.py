"""A target whose silicon is the reference itself: it tests the host's side of the SDK."""

from __future__ import annotations

import numpy as np

from sdk import reference
from sdk.arena import Blob
from sdk.errors import UsageError
from sdk.graph import Conv, Dequantize, Gemm, Graph, Quantization, Quantize, Reshape, Softmax, Tensor
from sdk.target import SUPPORTED, LayerProfile, Profile, Program, require_supported

NAME = "test-reference"
ENTRY_POINTS = f"[towline.targets]\n{NAME} = tests.reference_target:ReferenceTarget\n"


def install(directory):
    """Make the target known to processes with `directory` on their path: an entry point of a package."""
    info = directory / "towline_test_target-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: towline-test-target\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)


def register(monkeypatch, directory):
    """Make the target known here, for one test."""
    install(directory)
    monkeypatch.syspath_prepend(str(directory))


class ReferenceTarget:
    name = NAME
    arithmetic = "q31"
    description = "numpy"
    device_kinds = ("emulated", "wrong", "silent")
    later_parts = ()
    opened = 0

    def supports(self, graph, node):
        return SUPPORTED

    def compile(self, graph, options):
        require_supported(self, graph)
        blob = Blob(64)
        for tensor in graph.tensors.values():
            if tensor.data is not None:
                blob.add(tensor.data)
        plan = {"order": [node.name for node in graph.nodes], "guard": options.guard}
        return Program(
            self.name, graph, plan, blob.weights(), {"network.txt": b"run the reference"}, {"code": 0.0}
        )

    def open(self, device, options=None):
        if device not in (None, *self.device_kinds):
            raise UsageError(f"no device {device!r}")
        return ReferenceDevice(device)

    def devices(self):
        return [("emulated", "numpy")]


class ReferenceDevice:
    """`wrong` is a device with one bit flipped in its first layer, `silent` one without an answer."""

    def __init__(self, device):
        self.device = device

    def load(self, program):
        ReferenceTarget.opened += 1
        self.graph = program.graph
        return self

    def trace(self, inputs):
        if self.device == "silent":
            return {}
        values, traced = dict(inputs), {}
        for node in self.graph.nodes:
            result = reference.evaluate(self.graph, node, values, "q31")
            if self.device == "wrong" and not traced:
                result = result.copy()
                result.reshape(-1)[1] ^= 2
            values[node.output] = traced[node.output] = result
        return traced

    def run(self, inputs):
        traced = self.trace(inputs)
        return {name: traced[name] for name in self.graph.outputs if name in traced}

    def profile(self):
        layers = [LayerProfile(node.name, node.op, 0, {"steps": 1}) for node in self.graph.nodes]
        return Profile(layers, {"steps": len(layers)}, {"weights": 0, "arena": 0, "live_peak": 0})

    def close(self):
        ReferenceTarget.opened -= 1


def small_network(seed=0):
    """picture [1,1,4,4] float -> Quantize -> Conv 3x3 -> Reshape -> Gemm -> Dequantize -> Softmax [1,3]."""
    random = np.random.default_rng(seed)

    def per_tensor(scale, zero_point):
        return Quantization.per_tensor(scale, zero_point)

    def per_channel(scales):
        return Quantization(np.array(scales, np.float32), np.zeros(len(scales), np.int32), 0)

    def weight(name, *shape):
        scales = random.uniform(0.01, 0.02, shape[0])
        data = random.integers(-127, 128, shape, np.int8)
        return Tensor(name, shape, "int8", per_channel(scales), data), scales

    conv_weight, conv_scales = weight("conv.weight", 2, 1, 3, 3)
    gemm_weight, gemm_scales = weight("gemm.weight", 3, 32)
    bias = Tensor(
        "conv.bias", (2,), "int32", per_channel(conv_scales * 0.0078), np.array([300, -200], np.int32)
    )
    zero = Tensor("gemm.bias", (3,), "int32", per_channel(gemm_scales * 0.05), np.array([7, -9, 0], np.int32))
    tensors = [
        Tensor("picture", (1, 1, 4, 4), "float32"),
        Tensor("picture_q", (1, 1, 4, 4), "uint8", per_tensor(0.0078, 128)),
        Tensor("features", (1, 2, 4, 4), "uint8", per_tensor(0.05, 100)),
        Tensor("flat", (1, 32), "uint8", per_tensor(0.05, 100)),
        Tensor("logits_q", (1, 3), "uint8", per_tensor(0.2, 128)),
        Tensor("logits", (1, 3), "float32"),
        Tensor("probabilities", (1, 3), "float32"),
        *(conv_weight, bias, gemm_weight, zero),
    ]
    nodes = (
        Quantize("quantize", ("picture",), "picture_q"),
        Conv(
            "conv",
            ("picture_q", "conv.weight", "conv.bias"),
            "features",
            strides=(1, 1),
            pads=(1, 1, 1, 1),
            dilations=(1, 1),
            group=1,
            clamp=(100, 255),
        ),
        Reshape("flatten", ("features",), "flat"),
        Gemm("gemm", ("flat", "gemm.weight", "gemm.bias"), "logits_q", clamp=(0, 255)),
        Dequantize("dequantize", ("logits_q",), "logits"),
        Softmax("softmax", ("logits",), "probabilities", axis=1),
    )
    return Graph(
        "small",
        ("picture",),
        ("probabilities",),
        {t.name: t for t in tensors},
        nodes,
        {"producer": "a test"},
    )
