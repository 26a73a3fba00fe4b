"""TFLite files for tests: written table by table, or from an integer graph, so that it exists as both.

`Writer` is the schema with numpy arrays; `from_graph` turns NCHW to NHWC, uint8 to int8 where TFLite's
kernels want that, and ONNX's paddings into SAME, VALID or a PAD.
"""

from __future__ import annotations

import math

import flatbuffers
import numpy as np
import tflite

from sdk import graph as g
from sdk.shapes import window_positions
from sdk.verification import INTEGER_RANGE

NHWC = (0, 2, 3, 1)


class Writer:
    """Tensors and operators by number; `content()` closes it."""

    def __init__(self, **options) -> None:
        self.tensors: list[dict] = []
        self.operators: list[tuple] = []
        self.options = options

    def tensor(
        self,
        name,
        shape,
        dtype="int8",
        *,
        scale=None,
        zero_point=0,
        axis=0,
        data=None,
        signature=None,
        variable=False,
        sparsity=None,
    ):
        """A tensor; scale and zero-point are numbers, or one for each channel of `axis`.

        `sparsity` is (order, blocks, levels), a level an extent or (segments, indices).
        """
        scale = None if scale is None else np.atleast_1d(np.asarray(scale, np.float32))
        zeros = None if scale is None else np.broadcast_to(np.asarray(zero_point, np.int64), scale.shape)
        self.tensors.append(
            {
                "name": name,
                "shape": tuple(map(int, shape)),
                "dtype": str(dtype),
                "scale": scale,
                "zeros": zeros,
                "axis": axis,
                "data": data,
                "signature": signature,
                "variable": variable,
                "sparsity": sparsity,
            }
        )
        return len(self.tensors) - 1

    def constant(self, name, array, **quantization):
        array = np.asarray(array)
        return self.tensor(name, array.shape, array.dtype, data=array, **quantization)

    def operator(self, op, inputs, outputs, table="", *, custom=None, **options):
        """`options` are the schema's fields as the generated functions name them: StrideH=2."""
        outputs = [outputs] if isinstance(outputs, int) else outputs
        self.operators.append((op, list(inputs), list(outputs), table, custom, options))
        return outputs[0] if outputs else None

    def content(self, inputs, outputs, others=()) -> bytes:
        """The file; `others` are its other subgraphs: (writer, inputs, outputs)."""
        builder = flatbuffers.Builder(1 << 16)
        graphs = [(self, inputs, outputs), *others]
        ops = list(dict.fromkeys(op for writer, *_ in graphs for op, *_ in writer.operators))
        buffers = [_table(builder, "Buffer")]
        subgraphs = [writer._subgraph(builder, ops, buffers, *ends) for writer, *ends in graphs]
        model = _table(
            builder,
            "Model",
            Version=3,
            OperatorCodes=_offsets(builder, [self._code(builder, op) for op in ops]),
            Subgraphs=_offsets(builder, subgraphs),
            Description=builder.CreateString(self.options.get("description", "made by a test")),
            Buffers=_offsets(builder, buffers),
        )
        builder.Finish(model, b"TFL3")
        return bytes(builder.Output())

    def _subgraph(self, builder, ops, buffers, inputs, outputs):
        tensors = []
        for tensor in self.tensors:
            number = 0
            if tensor["data"] is not None:
                number = len(buffers)
                data = np.ascontiguousarray(tensor["data"]).tobytes()
                buffers.append(_table(builder, "Buffer", Data=_bytes(builder, data)))
            tensors.append(self._tensor(builder, tensor, number))
        operators = [self._operator(builder, ops, *operator) for operator in self.operators]
        return _table(
            builder,
            "SubGraph",
            Tensors=_offsets(builder, tensors),
            Inputs=_vector(builder, np.int32, inputs),
            Outputs=_vector(builder, np.int32, outputs),
            Operators=_offsets(builder, operators),
            Name=builder.CreateString("main"),
        )

    @staticmethod
    def _tensor(builder, tensor, number):
        quantization = None
        if tensor["scale"] is not None:
            quantization = _table(
                builder,
                "QuantizationParameters",
                Scale=_vector(builder, np.float32, tensor["scale"]),
                ZeroPoint=_vector(builder, np.int64, tensor["zeros"]),
                QuantizedDimension=tensor["axis"],
            )
        signature = tensor["signature"]
        return _table(
            builder,
            "Tensor",
            Shape=_vector(builder, np.int32, tensor["shape"]),
            Type=getattr(tflite.TensorType, tensor["dtype"].upper()),
            Buffer=number,
            Name=builder.CreateString(tensor["name"]),
            Quantization=quantization,
            ShapeSignature=None if signature is None else _vector(builder, np.int32, signature),
            IsVariable=tensor["variable"] or None,
            Sparsity=None if tensor["sparsity"] is None else _sparsity(builder, *tensor["sparsity"]),
        )

    @staticmethod
    def _code(builder, op):
        number = getattr(tflite.BuiltinOperator, op, tflite.BuiltinOperator.CUSTOM)
        custom = None if hasattr(tflite.BuiltinOperator, op) else builder.CreateString(op)
        return _table(
            builder,
            "OperatorCode",
            DeprecatedBuiltinCode=min(number, 127),
            BuiltinCode=number,
            CustomCode=custom,
            Version=VERSIONS.get(op, 2),
        )

    @staticmethod
    def _operator(builder, ops, op, inputs, outputs, table, custom, options):
        fields = {} if custom is None else {"CustomOptions": _bytes(builder, custom)}
        if table:

            def vector(values):
                return _vector(builder, np.int32, values)

            made = {list: vector, tuple: vector, str: builder.CreateString}
            options = {
                name: made[type(value)](value) if type(value) in made else value
                for name, value in options.items()
            }
            fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, table)
            fields["BuiltinOptions"] = _table(builder, table, **options)
        return _table(
            builder,
            "Operator",
            OpcodeIndex=ops.index(op),
            Inputs=_vector(builder, np.int32, inputs),
            Outputs=_vector(builder, np.int32, outputs),
            **fields,
        )


VERSIONS = {
    **dict.fromkeys(("EXPAND_DIMS", "HARD_SWISH", "PACK", "RESHAPE", "SHAPE", "SQUEEZE"), 1),
    **dict.fromkeys(("ADD_N", "CEIL", "COS", "CUMSUM", "ELU", "FLOOR", "L2_POOL_2D", "LOGICAL_AND"), 1),
    **dict.fromkeys(("LOCAL_RESPONSE_NORMALIZATION", "LOGICAL_NOT", "LOGICAL_OR", "NEG", "ONE_HOT"), 1),
    **dict.fromkeys(("POW", "PRELU", "REDUCE_ALL", "REDUCE_ANY", "RELU_0_TO_1", "RELU_N1_TO_1"), 1),
    **dict.fromkeys(("REVERSE_V2", "ROUND", "SQUARE", "CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE"), 1),
    **dict.fromkeys(("ASSIGN_VARIABLE", "WHILE", "IF", "DENSIFY", "UNIDIRECTIONAL_SEQUENCE_LSTM"), 1),
    **dict.fromkeys(("BIDIRECTIONAL_SEQUENCE_LSTM", "SVDF", "UNIDIRECTIONAL_SEQUENCE_RNN"), 1),
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), 3),
    "FULLY_CONNECTED": 4,
}
"""The first versions of the schema's operators that take int8, or the only ones; interpreters check them."""


def _sparsity(builder, order, blocks, levels):
    made = []
    for level in levels:
        if isinstance(level, int):
            made.append(_table(builder, "DimensionMetadata", Format=0, DenseSize=level))
            continue
        parts = [
            _table(builder, "Int32Vector", Values=_vector(builder, np.int32, values)) for values in level
        ]
        fields = {"ArraySegments": parts[0], "ArrayIndices": parts[1]}
        kinds = {"ArraySegmentsType": 1, "ArrayIndicesType": 1}
        made.append(_table(builder, "DimensionMetadata", Format=1, **kinds, **fields))
    return _table(
        builder,
        "SparsityParameters",
        TraversalOrder=_vector(builder, np.int32, order),
        BlockMap=_vector(builder, np.int32, blocks) if blocks else None,
        DimMetadata=_offsets(builder, made),
    )


def _table(builder, name, **fields):
    """A table by the functions generated for it; fields that are None are left out."""
    getattr(tflite, f"{name}Start")(builder)
    for field, value in fields.items():
        if value is not None:
            getattr(tflite, f"{name}Add{field}")(builder, value)
    return getattr(tflite, f"{name}End")(builder)


def _vector(builder, dtype, values):
    return builder.CreateNumpyVector(np.asarray(values, dtype))


def _bytes(builder, data):
    return builder.CreateByteVector(data)


def _offsets(builder, values):
    builder.StartVector(4, len(values), 4)
    for value in reversed(values):
        builder.PrependUOffsetTRelative(value)
    return builder.EndVector()


class GraphWriter:
    """One integer graph as TFLite, activations int8 (or, `legacy`, uint8, TFLite's first type)."""

    def __init__(self, graph: g.Graph, *, boundary: str = "int8", legacy: bool = False) -> None:
        self.graph = graph
        self.boundary = boundary
        self.dtype = "uint8" if legacy else "int8"
        self.writer = Writer()
        self.numbers: dict[str, int] = {}

    def content(self) -> bytes:
        inputs = [self._input(self.graph.tensor(name)) for name in self.graph.inputs]
        for node in self.graph.nodes:
            getattr(self, f"_{node.op.lower()}")(node)
        return self.writer.content(inputs, [self.numbers[name] for name in self.graph.outputs])

    # -- tensors

    def _input(self, tensor):
        if tensor.quantization is not None:
            return self._number(tensor.name)
        if self.boundary == "float32":
            return self._number(tensor.name)
        quantize = next(node for node in self.graph.nodes if tensor.name in node.inputs)
        out = self.graph.tensor(quantize.output)
        self.numbers[tensor.name] = self._activation(out, tensor.name)
        if self.dtype == self.boundary:
            self.numbers[out.name] = self.numbers[tensor.name]
        return self.numbers[tensor.name]

    def _activation(self, tensor, name, dtype=None):
        shape = _nhwc(tensor.shape)
        if tensor.quantization is None:
            return self.writer.tensor(name, shape, "float32")
        return self.writer.tensor(
            name, shape, self.dtype, scale=tensor.scale, zero_point=self._zero_point(tensor)
        )

    def _zero_point(self, tensor):
        return tensor.zero_point + INTEGER_RANGE[self.dtype][0] - INTEGER_RANGE[tensor.dtype][0]

    def _number(self, name):
        if name not in self.numbers:
            self.numbers[name] = self._activation(self.graph.tensor(name), name)
        return self.numbers[name]

    def _like(self, number, name, shape):
        """A tensor quantised as another."""
        known = self.writer.tensors[number]
        fields = {"scale": known["scale"], "zero_point": known["zeros"]} if known["scale"] is not None else {}
        return self.writer.tensor(name, shape, known["dtype"], **fields)

    def _emit(self, node, op, table="", inputs=None, **options):
        inputs = [self._number(name) for name in node.inputs] if inputs is None else inputs
        self.writer.operator(op, inputs, self._number(node.output), table, **options)

    def _activation_function(self, node):
        out = self.graph.tensor(node.output)
        low, high = INTEGER_RANGE[out.dtype]
        six = min(out.zero_point + math.floor(6 / out.scale + 0.5), high)
        zero = max(low, out.zero_point)
        known = {(low, high): 0, (zero, high): 1, (zero, six): 3}
        return known[node.clamp]

    # -- operators

    def _quantize(self, node):
        if self.numbers.get(node.output) is None or self.numbers[node.output] != self.numbers[node.inputs[0]]:
            self._emit(node, "QUANTIZE", "QuantizeOptions")

    def _dequantize(self, node):
        self._emit(node, "DEQUANTIZE", "DequantizeOptions")

    def _requantize(self, node):
        name = {0: "QUANTIZE", 1: "RELU", 3: "RELU6"}[self._activation_function(node)]
        self._emit(node, name)

    def _softmax(self, node):
        self._emit(node, "SOFTMAX", "SoftmaxOptions", Beta=1.0)

    def _conv(self, node):
        x, weight = self.graph.tensor(node.inputs[0]), self.graph.tensor(node.inputs[1])
        depthwise = node.group > 1
        assert not depthwise or node.group == x.shape[1]
        order = (1, 2, 3, 0) if depthwise else (0, 2, 3, 1)
        data, zero_point = weight.data.transpose(order), weight.quantization.zero_point
        if self.dtype == "uint8":
            assert weight.quantization.axis is None
            if weight.dtype == "int8":
                data, zero_point = data.view(np.uint8) ^ 0x80, zero_point + 128
        parameters = [
            self.writer.constant(
                weight.name,
                data,
                scale=weight.quantization.scale,
                zero_point=zero_point,
                axis=3 if depthwise else 0,
            )
        ]
        parameters += [self._bias(name) for name in node.inputs[2:]]
        number, padding = self._padded(node, x, weight.shape[2:])
        table = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
        self._emit(
            node,
            "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D",
            table,
            [number, *parameters],
            Padding=padding,
            StrideH=node.strides[0],
            StrideW=node.strides[1],
            DilationHFactor=node.dilations[0],
            DilationWFactor=node.dilations[1],
            FusedActivationFunction=self._activation_function(node),
            **({"DepthMultiplier": weight.shape[0] // x.shape[1]} if depthwise else {}),
        )

    def _bias(self, name):
        bias = self.graph.tensor(name)
        return self.writer.constant(name, bias.data, scale=bias.quantization.scale)

    def _padded(self, node, x, kernel):
        """The input's number and the schema's Padding, behind a PAD where neither SAME nor VALID fits."""
        number = self._number(x.name)
        dilations = getattr(node, "dilations", (1, 1))
        rows = window_positions(x.shape[2:], kernel, node.strides, node.pads, dilations)
        totals = [
            max((rows[i] - 1) * node.strides[i] + (kernel[i] - 1) * dilations[i] + 1 - x.shape[2 + i], 0)
            for i in (0, 1)
        ]
        same = (totals[0] // 2, totals[1] // 2, totals[0] - totals[0] // 2, totals[1] - totals[1] // 2)
        if node.pads == (0, 0, 0, 0):
            return number, 1
        if node.pads == same and all(rows[i] == -(-x.shape[2 + i] // node.strides[i]) for i in (0, 1)):
            return number, 0
        top, left, bottom, right = node.pads
        amounts = np.array([[0, 0], [top, bottom], [left, right], [0, 0]], np.int32)
        n, c, h, w = x.shape
        padded = self._like(number, f"{node.name}_padded", (n, h + top + bottom, w + left + right, c))
        self.writer.operator("PAD", [number, self.writer.constant("amounts", amounts)], padded, "PadOptions")
        return padded, 1

    def _gemm(self, node):
        weight = self.graph.tensor(node.inputs[1])
        assert weight.dtype == "int8"
        scale = weight.quantization.scale
        parameters = [self.writer.constant(weight.name, weight.data, scale=scale)]
        parameters += [self._bias(name) for name in node.inputs[2:]]
        fused = self._activation_function(node)
        inputs = [self._number(node.inputs[0]), *parameters]
        table = "FullyConnectedOptions"
        self._emit(node, "FULLY_CONNECTED", table, inputs, FusedActivationFunction=fused)

    def _add(self, node):
        self._emit(node, "ADD", "AddOptions", FusedActivationFunction=self._activation_function(node))

    def _mul(self, node):
        self._emit(node, "MUL", "MulOptions", FusedActivationFunction=self._activation_function(node))

    def _lookup(self, node):
        # A table does not say what function it is of; its values do.
        x, out = self.graph.tensor(node.inputs[0]), self.graph.tensor(node.output)
        low, high = INTEGER_RANGE[x.dtype]
        real = x.scale * (np.arange(low, high + 1) - x.zero_point)
        table = self.graph.tensor(node.inputs[1]).data.astype(int)
        for op, function in FUNCTIONS.items():
            values = np.rint(function(real) / out.scale) + out.zero_point
            if np.abs(np.clip(values, *INTEGER_RANGE[out.dtype]) - table).max() <= 1:
                self._emit(node, op, inputs=[self._number(x.name)])
                return
        assert (
            np.abs(np.clip(np.rint(HARD_SIGMOID(real) / out.scale) + out.zero_point, low, high) - table).max()
            <= 1
        )
        self._hard_sigmoid(node, x)

    def _hard_sigmoid(self, node, x):
        """As Keras has it: ADD of 3 with RELU6, MUL by a sixth."""
        three = self.writer.constant("three", np.array(100, self.dtype), scale=0.03)
        sixth = self.writer.constant("sixth", np.array(100, self.dtype), scale=1 / 600)
        low = INTEGER_RANGE[self.dtype][0]
        six = self.writer.tensor(
            f"{node.name}_six", _nhwc(x.shape), self.dtype, scale=6 / 255, zero_point=low
        )
        inputs = [self._number(x.name), three]
        self.writer.operator("ADD", inputs, six, "AddOptions", FusedActivationFunction=3)
        self._emit(node, "MUL", "MulOptions", [six, sixth])

    def _globalaveragepool(self, node):
        axes = self.writer.constant("axes", np.array([1, 2], np.int32))
        self._emit(node, "MEAN", "ReducerOptions", [self._number(node.inputs[0]), axes], KeepDims=True)

    def _averagepool(self, node):
        self._pool(node, "AVERAGE_POOL_2D", self._activation_function(node))

    def _maxpool(self, node):
        self._pool(node, "MAX_POOL_2D", 0)

    def _pool(self, node, op, fused):
        number, padding = self._padded(node, self.graph.tensor(node.inputs[0]), node.kernel)
        self._emit(
            node,
            op,
            "Pool2DOptions",
            [number],
            Padding=padding,
            StrideH=node.strides[0],
            StrideW=node.strides[1],
            FilterHeight=node.kernel[0],
            FilterWidth=node.kernel[1],
            FusedActivationFunction=fused,
        )

    def _reshape(self, node):
        x, out = self.graph.tensor(node.inputs[0]), self.graph.tensor(node.output)
        number = self._number(x.name)
        if len(x.shape) == 4 and x.shape[2] * x.shape[3] > 1:  # ONNX flattens channels first
            moved = self._like(number, f"{node.name}_nchw", x.shape)
            perm = self.writer.constant("perm", np.array([0, 3, 1, 2], np.int32))
            self.writer.operator("TRANSPOSE", [number, perm], moved, "TransposeOptions")
            number = moved
        assert len(out.shape) != 4
        shape = self.writer.constant("shape", np.array(out.shape, np.int32))
        self._emit(node, "RESHAPE", "ReshapeOptions", [number, shape], NewShape=out.shape)

    def _transpose(self, node):
        perm = [NHWC.index(node.perm[axis]) for axis in NHWC] if len(node.perm) == 4 else node.perm
        constant = self.writer.constant("perm", np.array(perm, np.int32))
        self._emit(node, "TRANSPOSE", "TransposeOptions", [self._number(node.inputs[0]), constant])

    def _concat(self, node):
        rank = len(self.graph.tensor(node.output).shape)
        axis = NHWC.index(node.axis) if rank == 4 else node.axis
        self._emit(node, "CONCATENATION", "ConcatenationOptions", Axis=axis)

    def _resize(self, node):
        size = self.writer.constant("size", np.array([len(node.rows), len(node.columns)], np.int32))
        inputs = [self._number(node.inputs[0]), size]
        self._emit(node, "RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions", inputs)


FUNCTIONS = {
    "LOGISTIC": lambda x: 1 / (1 + np.exp(-x)),
    "HARD_SWISH": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "TANH": np.tanh,
}

HARD_SIGMOID = lambda x: np.clip(x + 3, 0, 6) / 6  # noqa: E731


def from_graph(graph: g.Graph, **options) -> bytes:
    """The graph as a .tflite; `boundary` is the dtype of inputs that are float in the graph."""
    return GraphWriter(graph, **options).content()


def _nhwc(shape):
    return tuple(shape[axis] for axis in NHWC) if len(shape) == 4 else tuple(shape)
