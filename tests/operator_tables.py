"""Tables of docs/operators.md that are made of the importers' own tables, and by asking the targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sdk.expression.trace import apply
from sdk.graph import Graph, MatMul, Reduce, Softmax
from sdk.importers.operators import operator_table
from sdk.importers.plain.table import plain_table
from sdk.importers.tflite.table import tflite_table
from sdk.targets import get_target, target_names
from tests.graph_builder import GraphBuilder
from tests.plain_graphs import PlainBuilder

TFLITE = [name for names, _ in tflite_table() for name in names.split(", ")]

COUNTERPARTS: Mapping[str, str] = {
    "ARG_MAX": "ArgMax",
    "BATCH_MATMUL": "MatMul",
    "BROADCAST_TO": "Expand",
    "CONCATENATION": "Concat",
    "DEPTHWISE_CONV_2D": "Conv",
    "DEQUANTIZE": "DequantizeLinear",
    "EXPAND_DIMS": "Unsqueeze",
    "FULLY_CONNECTED": "Gemm",
    "L2_NORMALIZATION": "LpNormalization",
    "LOCAL_RESPONSE_NORMALIZATION": "LRN",
    "LOGICAL_AND": "And",
    "LOGICAL_NOT": "Not",
    "LOGICAL_OR": "Or",
    "LOGISTIC": "Sigmoid",
    "MAXIMUM": "Max",
    "MEAN": "ReduceMean",
    "MINIMUM": "Min",
    "MIRROR_PAD": "Pad",
    "PADV2": "Pad",
    "QUANTIZE": "QuantizeLinear",
    "RELU6": "Clip",
    "RELU_0_TO_1": "Clip",
    "RELU_N1_TO_1": "Clip",
    "RESIZE_BILINEAR": "Resize",
    "RESIZE_NEAREST_NEIGHBOR": "Resize",
    "SELECT": "Where",
    "SELECT_V2": "Where",
    "SPLIT_V": "Split",
    "STRIDED_SLICE": "Slice",
    "SUM": "ReduceSum",
    "TRANSPOSE_CONV": "ConvTranspose",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "LSTM",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "RNN",
}
"""ONNX's operator that does the same as one of TFLite, where the names differ by more than their spelling."""


def side_by_side() -> list[tuple[str, str, str, str]]:
    """Every operator that is taken: ONNX's name, TFLite's, what it becomes quantised, and plain."""
    quantized, plain = _by_name(operator_table()), _by_name(plain_table())
    names = sorted({*quantized, *plain}, key=lambda name: (name.startswith("com."), name.lower()))
    spelt = {name.lower(): name for name in names}
    same: dict[str, list[str]] = {}
    for tflite in sorted(TFLITE):
        plainly = tflite.removesuffix("_2D").replace("_", "").lower()
        same.setdefault(COUNTERPARTS.get(tflite) or spelt.get(plainly, ""), []).append(tflite)
    rows = [
        (name, ", ".join(same.get(name, ())), quantized.get(name, ""), plain.get(name, "")) for name in names
    ]
    meanings = _by_name(tflite_table())
    return rows + [("", name, "", meanings[name]) for name in same.get("", ())]


def _by_name(table: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: meaning for names, meaning in table for name in names.split(", ")}


# -- targets --------------------------------------------------------------------------------------------

Build = Callable[[GraphBuilder], str]

QUANTIZED: Mapping[str, Build] = {
    "Conv": lambda b: b.conv("x", 8, 3, pads=1),
    "Conv (depthwise)": lambda b: b.depthwise("x"),
    "Conv (dilated)": lambda b: b.conv("x", 8, 3, pads=2, dilations=2),
    "Gemm": lambda b: b.gemm(b.reshape("x"), 10),
    "Add": lambda b: b.add("x", "x"),
    "Mul": lambda b: b.mul("x", b.global_average_pool("x")),
    "Requantize": lambda b: b.requantize("x", relu=True),
    "Lookup": lambda b: b.lookup("x", abs),
    "AveragePool": lambda b: b.average_pool("x", 2, strides=2),
    "GlobalAveragePool": lambda b: b.global_average_pool("x"),
    "MaxPool": lambda b: b.max_pool("x", 2, strides=2),
    "Concat": lambda b: b.concat("x", "x"),
    "Resize": lambda b: b.resize("x", (0, 0, 1, 1), (0, 1, 2, 3)),
    "Transpose": lambda b: b.transpose("x", (0, 2, 3, 1)),
    "Pad": lambda b: b.pad("x", (1, 1, 1, 1)),
    "Reshape": lambda b: b.reshape("x"),
}
"""A small node of each kind on quantised tensors, in a graph whose input x is [1,8,8,8]."""

PLAIN: Mapping[str, Callable[[PlainBuilder], str]] = {
    "MatMul": lambda b: b.node(MatMul, [b.input((2, 8)), b.constant((8, 4))], transposed=False),
    "Map": lambda b: b.map(lambda x: apply("tanh", x), b.input((2, 8))),
    "Reduce": lambda b: b.node(Reduce, [b.input((2, 8))], shape=(2, 1), kind="sum", axes=(1,)),
    "Softmax": lambda b: b.node(Softmax, [b.input((2, 8))], axis=1),
}
"""The same of plain tensors, of float32."""


def target_rows() -> list[tuple[str, str, str]]:
    """Kinds of nodes, their form, and the targets that run them, asked about a small one of each."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, build in QUANTIZED.items():
        builder = GraphBuilder((1, 8, 8, 8))
        rows.setdefault(("quantised", _takers(builder.graph(build(builder)))), []).append(name)
    for name, make in PLAIN.items():
        plain = PlainBuilder()
        rows.setdefault(("float32", _takers(plain.graph(make(plain)))), []).append(name)
    return [(", ".join(names), form, takers) for (form, takers), names in rows.items()]


def _takers(graph: Graph) -> str:
    targets = map(get_target, target_names())
    return ", ".join(one.name for one in targets if one.supports(graph, graph.nodes[-1]).supported)
