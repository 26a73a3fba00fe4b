"""Float32 networks as float16 ones: how closely they must agree with onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.zoo_networks import difference, run, session

LARGEST = 65504.0
LIMIT = 3
"""How many times what rounding each tensor changes a float16 network may differ by."""


def rounded(model: onnx.ModelProto) -> onnx.ModelProto:
    """A float32 model whose constants, and whose tensors behind every node, are rounded to float16.

    Sums stay in float32. What is finite stays finite, as masks do.
    """
    known = onnx.shape_inference.infer_shapes(model).graph
    values = (*known.value_info, *known.output)
    floats = {value.name for value in values if value.type.tensor_type.elem_type == TensorProto.FLOAT}
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    for tensor in _constants(graph):
        if tensor.data_type == TensorProto.FLOAT:
            data = numpy_helper.to_array(tensor)
            limited = np.where(np.isfinite(data), np.clip(data, -LARGEST, LARGEST), data)
            half = np.asarray(limited.astype(np.float16), np.float32)
            tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
    del graph.node[:]
    low, high = f"{graph.name}/low", f"{graph.name}/high"
    graph.initializer.append(numpy_helper.from_array(np.float32(-LARGEST), low))
    graph.initializer.append(numpy_helper.from_array(np.float32(LARGEST), high))
    for node in model.graph.node:
        graph.node.append(node)
        exact = graph.node[-1]
        for index, output in enumerate(node.output):
            if node.op_type == "Constant" or output not in floats:
                continue
            exact.output[index] = f"{output}/exact"
            steps = (
                ("Clip", (f"{output}/exact", low, high), f"{output}/clipped", {}),
                ("Cast", (f"{output}/clipped",), f"{output}/half", {"to": TensorProto.FLOAT16}),
                ("Cast", (f"{output}/half",), output, {"to": TensorProto.FLOAT}),
            )
            for op, inputs, name, attributes in steps:
                graph.node.append(helper.make_node(op, inputs, [name], **attributes))
    return result


def _constants(graph):
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                yield attribute.t


class Oracle:
    """What onnxruntime gives of a float32 model, and how far a float16 network may be from it."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.exact, self.rounded = session(model), session(rounded(model))

    def assert_close(self, found, inputs, least=0.0):
        """Outputs differ by at most three times what rounding each tensor changes.

        Args:
            found: outputs by name, of the float16 network; integers may differ in ties.
            inputs: that both had.
            least: what is allowed in any case, as a part of the largest magnitude.
        """
        wanted, other = (run(runner, inputs) for runner in (self.exact, self.rounded))
        for name, array in found.items():
            if wanted[name].dtype.kind == "f":
                allowed = max(LIMIT * difference(other[name], wanted[name]), least)
                share = difference(array, wanted[name])
                assert share <= allowed, (name, share, allowed)
