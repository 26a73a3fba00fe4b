"""Networks of the zoo against onnxruntime: how closely they must agree, and what is between their layers."""

import dataclasses
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from sdk.zoo.builder import Network
from sdk.zoo.catalogue import find
from sdk.zoo.inputs import example_inputs

PRODUCTS = ("Conv", "Gemm", "GRU", "MatMul")

LEAST = 2e-6
"""What a float32 network may differ by, as a part of the largest magnitude, where optimisations change
nothing: the order of a sum is left open even then."""


def session(model, *, optimize=False):
    options = onnxruntime.SessionOptions()
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    content = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run(runner, inputs):
    names = [value.name for value in runner.get_outputs()]
    return dict(zip(names, runner.run(names, inputs), strict=True))


def rms(array):
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))


def difference(found, wanted):
    """The largest difference, as a part of the largest magnitude."""
    exact = wanted.astype(np.float64)
    return float(np.abs(found.astype(np.float64) - exact).max() / np.abs(exact).max())


@dataclasses.dataclass
class Sample:
    """A float network of the zoo as a file, by its name."""

    name: str
    folder: Path

    @cached_property
    def path(self) -> Path:
        path = self.folder / f"{self.name}.onnx"
        built = find(self.name).build()
        assert isinstance(built, Network)
        built.save(path)
        return path

    @cached_property
    def model(self):
        return onnx.load(self.path)

    @cached_property
    def runner(self):
        return session(self.model)

    def inputs(self, seed=0):
        return example_inputs(self.path, seed)

    @cached_property
    def is_half(self):
        return any(tensor.data_type == TensorProto.FLOAT16 for tensor in self.model.graph.initializer)

    @cached_property
    def exact(self):
        """A float16 network in float32, and that with tensors rounded; a float32 one, and optimised."""
        if not self.is_half:
            return self.runner, session(self.model, optimize=True)
        wide = onnx.ModelProto()
        wide.CopyFrom(self.model)
        graph = wide.graph
        for value in [*graph.input, *graph.output]:
            if value.type.tensor_type.elem_type == TensorProto.FLOAT16:
                value.type.tensor_type.elem_type = TensorProto.FLOAT
        for tensor in graph.initializer:
            if tensor.data_type == TensorProto.FLOAT16:
                values = numpy_helper.to_array(tensor).astype(np.float32)
                tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
        for node in graph.node:
            for attribute in node.attribute:
                if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT16:
                    attribute.i = TensorProto.FLOAT
        rounded = onnx.ModelProto()
        rounded.CopyFrom(wide)
        del rounded.graph.node[:]
        for node in graph.node:
            output = node.output[0]
            rounded.graph.node.append(node)
            rounded.graph.node[-1].output[0] = f"{output}/exact"
            for source, target, kind in (("exact", "half", "FLOAT16"), ("half", "", "FLOAT")):
                result = f"{output}/{target}" if target else output
                to = getattr(TensorProto, kind)
                rounded.graph.node.append(helper.make_node("Cast", [f"{output}/{source}"], [result], to=to))
        return session(wide), session(rounded)

    def expected(self, inputs):
        """onnxruntime's outputs, and how far a target's may be from them, as a part of the largest magnitude.

        The limits: 20 times what onnxruntime's optimisations change
        of a float32 network; three times what rounding each tensor changes of a float16 one.
        """
        wide = inputs
        if self.is_half:
            wide = {key: a.astype(np.float32) if a.dtype == np.float16 else a for key, a in inputs.items()}
        one, other = (run(runner, wide) for runner in self.exact)
        spread = {key: difference(other[key], one[key]) for key in one}
        limits = {key: 3 * far if self.is_half else 20 * far + LEAST for key, far in spread.items()}
        return run(self.runner, inputs), limits

    def assert_close(self, found, inputs):
        """Outputs are onnxruntime's, within the limits."""
        wanted, limits = self.expected(inputs)
        for key, array in found.items():
            assert difference(array, wanted[key]) <= limits[key], key

    def between(self, inputs):
        """What the products give, by the names of their results; and the outputs."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        outputs = {value.name for value in model.graph.output}
        for node in model.graph.node:
            result = node.output[-1]
            if node.op_type in PRODUCTS and result not in outputs:
                model.graph.output.append(onnx.ValueInfoProto(name=result))
        return run(session(model), inputs)
