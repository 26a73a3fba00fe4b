"""Damaged models: ONNX by its messages' fields, TFLite by the places that its reader looks at."""

from __future__ import annotations

import importlib
import pkgutil
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from flatbuffers import encode
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper
from onnx.backend.test.case import node as node_tests

from sdk import compiler
from sdk.errors import TowlineError
from sdk.importers import load_model
from sdk.importers.tflite import import_tflite
from sdk.importers.tflite.file import parse_tflite
from sdk.inspection.model_file import read_model_file
from sdk.preprocess import InputStatistics, parse
from sdk.quantizer import read_metadata, read_quantization
from tests.campaigns.campaign import Case, Surface
from tests.campaigns.damage import changed, damaged, dumps, limit_memory, number
from tests.onnx_models import OnnxBuilder, small_float_model, small_qdq_model
from tests.unit import test_tflite_mixed as tflite_mixed
from tests.unit import test_tflite_plain as tflite_operators
from tests.unit import test_tflite_refusals as tflite_refusals
from tests.unit import test_tflite_states as tflite_states

SLOW = ("lppool", "averagepool", "maxpool", "attention", "image_decoder")
"""Onnx's modules of node tests that take longest to make: seconds, most of them."""
FOLDERS = ("simple", "pytorch-operator", "pytorch-converted")
METADATA = {
    "towline.preprocessing": parse("imagenet", (1, 3, 8, 8)).to_json(),
    "towline.input_statistics": InputStatistics.of([np.ones((1, 3, 8, 8), np.float32)], "NCHW").to_json(),
    "towline.quantization": {"method": "mse", "samples": 3, "inputs": ["0" * 12], "held_out_db": 30.0},
}
LARGEST = 40_000
"""Bytes of an original: larger ones only take longer."""


def _messages() -> list[ModelProto]:
    """Onnx's node tests, its small models, and quantised ones."""
    found = [b.model(["y"]) for b in (small_qdq_model(), small_float_model())]
    b = small_qdq_model()
    b.node("MaxPool", [b.qdq("y", 0.1, np.uint8(128))], "pooled", kernel_shape=[2, 2], strides=[2, 2])
    b.node("AveragePool", [b.qdq("pooled", 0.1, np.uint8(128))], "mean", kernel_shape=[4, 4])
    found.append(b.model({b.quantize("mean", "z", 0.1, np.uint8(128)): "uint8"}))
    b = OnnxBuilder(23)
    for name in "qkv":
        b.input(name, [1, 2, 3, 4])
    b.node("Attention", ["q", "k", "v"], "y")
    found.append(b.model(["y"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.iter_modules(node_tests.__path__):
            if module.name not in SLOW:
                importlib.import_module(f"{node_tests.__name__}.{module.name}")
    cases = {case.name: case.model for case in node_tests._NodeTestCases if case.model is not None}
    found += [model for _, model in sorted(cases.items()) if isinstance(model, ModelProto)]
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    files = sorted(path for folder in FOLDERS for path in (data / folder).rglob("*.onnx"))
    found += [onnx.load(path) for path in files]
    return [model for model in found if model.ByteSize() < LARGEST]


def _names(model: ModelProto) -> list[str]:
    return ["", "x" * 3000, *(name for node in model.graph.node for name in (*node.input, *node.output))]


def _node(model: ModelProto, rng: random.Random) -> None:
    """Operators, their names, order and edges."""
    nodes = model.graph.node
    index = rng.randrange(len(nodes))
    node = nodes[index]
    match rng.randrange(9):
        case 0 | 1 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(_names(model))
        case 2 if node.output:
            node.output[rng.randrange(len(node.output))] = rng.choice(_names(model))
        case 3:
            del nodes[index]
        case 4:
            nodes.append(node)
        case 5:
            node.op_type = rng.choice(
                [nodes[rng.randrange(len(nodes))].op_type, "Loop", "Identity", "Concat", "Reshape", "x"]
            )
        case 6:
            node.domain = rng.choice(("", "ai.onnx", "com.microsoft", "ai.onnx.ml", "x"))
        case 7:
            node.input.append(rng.choice(_names(model)))
        case 8 if node.input:
            del node.input[rng.randrange(len(node.input)) :]


def _attribute(node: NodeProto, rng: random.Random) -> None:
    """A field of one of a node's attributes."""
    if not node.attribute or rng.random() < 0.1:
        node.attribute.append(
            helper.make_attribute(rng.choice(("axis", "axes", "alpha", "x")), number(rng) % 99)
        )
        return
    at = rng.randrange(len(node.attribute))
    one: AttributeProto = node.attribute[at]
    match rng.randrange(6):
        case 0:
            del node.attribute[at]
        case 1:
            one.type = rng.randrange(15)
        case 2:
            one.name = rng.choice(("axis", "kernel_shape", "value", "to", one.name * 2))
        case _ if one.ints:
            which = rng.randrange(len(one.ints))
            match rng.randrange(3):
                case 0:
                    del one.ints[which]
                case 1:
                    one.ints.append(_int64(rng))
                case 2:
                    one.ints[which] = _int64(rng)
        case _ if one.floats:
            one.floats[rng.randrange(len(one.floats))] = _float(rng)
        case _ if one.HasField("t"):
            _tensor(one.t, rng)
        case _ if one.HasField("g") and one.g.node:
            _attribute(rng.choice(one.g.node), rng)
        case _ if one.s:
            one.s = rng.choice((b"", b"\xff\xfe", b"SAME_UPPER", b"linear", b"NOTSET", one.s * 2))
        case _ if one.HasField("f"):
            one.f = _float(rng)
        case _:
            one.i = _int64(rng)


def _int64(rng: random.Random) -> int:
    return (number(rng) + (1 << 63)) % (1 << 64) - (1 << 63)


def _float(rng: random.Random) -> float:
    return rng.choice((0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e-40, 3e38, rng.gauss(0, 100)))


def _tensor(tensor: TensorProto, rng: random.Random) -> None:
    """Shape, type or data of a constant."""
    match rng.randrange(7):
        case 0 | 1 if tensor.dims:
            tensor.dims[rng.randrange(len(tensor.dims))] = _int64(rng)
        case 2:
            tensor.dims.append(rng.choice((0, 1, 2, -1, 1 << 31, 1 << 62)))
        case 3:
            tensor.data_type = rng.randrange(30)
        case 4 if tensor.raw_data:
            tensor.raw_data = damaged(tensor.raw_data, rng)
        case 5:
            tensor.data_location = TensorProto.EXTERNAL
            entry = tensor.external_data.add()
            entry.key, entry.value = (
                "location",
                rng.choice(("w.bin", "../w", "/etc/passwd", "", "\0", "tiny.onnx")),
            )
            entry = tensor.external_data.add()
            entry.key, entry.value = (
                rng.choice(("offset", "length", "x")),
                str(rng.choice((number(rng), "x"))),
            )
        case _:
            tensor.name = rng.choice(("", "x", tensor.name * 2))


def _value(model: ModelProto, rng: random.Random) -> None:
    """Type or shape of an input or output."""
    values = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    if not values:
        return
    value = rng.choice(values)
    kind = value.type.tensor_type
    match rng.randrange(6):
        case 0 | 1 | 2 if kind.shape.dim:
            dim = kind.shape.dim[rng.randrange(len(kind.shape.dim))]
            dim.dim_value = _int64(rng)
        case 3:
            kind.shape.dim.add().dim_value = rng.choice((0, 1, 2, -1, 1 << 40))
        case 4:
            kind.elem_type = rng.randrange(30)
        case 5:
            value.name = rng.choice(("", "x", value.name * 2))


def _whole(model: ModelProto, rng: random.Random) -> None:
    """What concerns the model as a whole."""
    match rng.randrange(5):
        case 0 | 1 if model.opset_import:
            model.opset_import[0].version = rng.choice((_int64(rng), rng.randrange(30)))
        case 2:
            model.ir_version = _int64(rng)
        case 3:
            function = model.functions.add()
            function.name = rng.choice([node.op_type for node in model.graph.node])
            function.domain = rng.choice(("", "local"))
            function.node.extend(model.graph.node)
            function.opset_import.extend(model.opset_import)
        case 4:
            entry = model.metadata_props.add()
            entry.key = rng.choice(sorted(METADATA))
            made = dumps(changed(METADATA[entry.key], rng)).decode()
            entry.value = rng.choice((made, made, made, "", "\0", "[" * 100_000))


def _onnx(model: ModelProto, rng: random.Random) -> bytes:
    """A model with fields changed, now and then bytes too."""
    found = ModelProto()
    found.CopyFrom(model)
    for _ in range(rng.randint(1, 3)):
        match rng.randrange(10):
            case 0 | 1 | 2 if found.graph.node:
                _node(found, rng)
            case 3 | 4 | 5 if found.graph.node:
                _attribute(rng.choice(found.graph.node), rng)
            case 6 | 7 if found.graph.initializer:
                _tensor(rng.choice(found.graph.initializer), rng)
            case 8 if found.graph.node:
                _whole(found, rng)
            case _:
                _value(found, rng)
    data = found.SerializeToString()
    if rng.random() < 0.1:  # a name that is not text
        name = next((name.encode() for name in _names(found)[2:] if name), b"x")
        data = data.replace(name, b"\xff" * len(name), rng.choice((1, -1)))
    return damaged(data, rng) if rng.random() < 0.2 else data


def _flatbuffers() -> list[bytes]:
    """TFLite files: each operator, and what goes beyond one: states, loops, sparse and 16-bit tensors."""
    found = [case.write()[0] for _, case in sorted(tflite_operators.CASES.items())]
    found += [tflite_refusals.network(), tflite_mixed.sparse_network()[0], tflite_mixed.sixteen_bits()]
    found += [tflite_states.Lstm(peepholes=True, clip=0.5).content(), tflite_states.rnn()[0]]
    return [*found, tflite_states.svdf()[0], tflite_states.loop(), tflite_states.loop(bound=9.0)]


def _looked_at(content: bytes) -> list[tuple[int, int]]:
    """(place, width) of each number that the reader of a flatbuffer takes: offsets, lengths, fields."""
    places = set()

    def get(packer: Any, data: Any, at: int) -> Any:
        places.add((int(at), packer.size))
        return packer.unpack_from(data, at)[0]

    def vector(dtype: Any, data: Any, count: int, at: int) -> Any:
        width = np.dtype(dtype).itemsize
        places.update((int(at) + index * width, width) for index in range(min(count, 100)))
        return np.frombuffer(data, dtype, count, at)

    was = encode.Get, encode.GetVectorAsNumpy
    encode.Get, encode.GetVectorAsNumpy = get, vector
    try:
        with suppress(TowlineError):
            import_tflite(parse_tflite(content, "original"))
    finally:
        encode.Get, encode.GetVectorAsNumpy = was
    return sorted(places)


def _tflite(original: tuple[bytes, list[tuple[int, int]]], rng: random.Random) -> bytes:
    """A file with some of those numbers changed, now and then bytes too."""
    content, places = original
    found = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at, width = rng.choice(places)
        value = int.from_bytes(found[at : at + width], "little")
        other, wide = rng.choice(places)
        values = (
            *(number(rng), number(rng), value + rng.choice((-4, -2, -1, 1, 2, 4)), value * 2),
            int.from_bytes(found[other : other + wide], "little"),
        )
        found[at : at + width] = (rng.choice(values) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    return damaged(bytes(found), rng) if rng.random() < 0.2 else bytes(found)


@contextmanager
def models(path: Path, made: Callable[[random.Random], bytes]) -> Iterator[Case]:
    """Files loaded; some compiled or inspected."""
    limit_memory()
    warnings.simplefilter("ignore")

    def case(rng: random.Random) -> str | None:
        path.write_bytes(made(rng))
        match rng.randrange(8):
            case 0:
                compiler.compile(path, rng.choice(("c", "hexagon-v65", "adreno-a6xx")), host="any")
            case 1:
                read_model_file(path)
                if path.suffix == ".onnx":
                    read_metadata(path)
                    read_quantization(path)
            case _:
                load_model(path)
        return None

    yield case


@contextmanager
def onnx_model(scratch: Path) -> Iterator[Case]:
    originals = _messages()
    with models(scratch / "net.onnx", lambda rng: _onnx(rng.choice(originals), rng)) as case:
        yield case


@contextmanager
def tflite_model(scratch: Path) -> Iterator[Case]:
    originals = [(content, _looked_at(content)) for content in _flatbuffers()]
    with models(scratch / "net.tflite", lambda rng: _tflite(rng.choice(originals), rng)) as case:
        yield case


SURFACES = (
    Surface("onnx", "an ONNX file: loaded; some compiled for a target, or inspected", onnx_model, slice=120),
    Surface("tflite", "a TFLite file: the same", tflite_model, slice=200),
)
