"""Quantised files that contradict themselves: each is refused, naming the tensor or the node."""

import numpy as np
import pytest

from sdk.errors import InvalidModel, TowlineError, Unsupported
from tests.onnx_models import OnnxBuilder, imported
from tests.unit.test_importers_quantised_files import blocked, nbits, picture


def pair(scale, zero_point, read_scale=None, read_zero_point=None, *, opset=13, **attributes):
    """Quantisation of x and back, with scales and zero-points of its own for the way back."""
    builder = OnnxBuilder(opset)
    builder.input("x", [3, 8])
    names = []
    for name, array, dtype in (
        ("scale", scale, np.float32),
        ("zero_point", zero_point, None),
        ("read_scale", scale if read_scale is None else read_scale, np.float32),
        ("read_zero_point", zero_point if read_zero_point is None else read_zero_point, None),
    ):
        names.append(builder.constant(name, array, dtype))
    builder.node("QuantizeLinear", ["x", *names[:2]], "q", name="quantize", **attributes)
    builder.node("DequantizeLinear", ["q", *names[2:]], "y", name="dequantize", **attributes)
    return builder.model(["y"])


def matrix(array, scale, zero_point, **attributes):
    """A product of x [3,8] by a quantised constant."""
    builder, x = picture(shape=(3, 8))
    builder.constant("w", array)
    names = [builder.constant("ws", scale, np.float32), builder.constant("wz", zero_point)]
    real = builder.node("DequantizeLinear", ["w", *names], "real", name="weight", **attributes)
    builder.quantize(builder.node("MatMul", [x, real], "product"), "y", 0.05, np.uint8(9))
    return builder.model({"y": "uint8"})


ONES = np.ones((8, 6), np.int8)

CONTRADICTIONS = {
    "scale 0": (pair(0.0, np.uint8(1)), InvalidModel, "tensor q"),
    "scale NaN": (pair(np.nan, np.uint8(1)), InvalidModel, "tensor q"),
    "scale infinite": (pair(np.inf, np.uint8(1)), InvalidModel, "tensor q"),
    "scale negative": (pair(-0.5, np.uint8(1)), InvalidModel, "tensor q"),
    "no scale": (pair(np.zeros(0), np.uint8(1)), TowlineError, ""),
    "16 bits, scale 0": (pair(0.0, np.uint16(1), opset=21), InvalidModel, "tensor scale"),
    "8-bit floats, scale NaN": (matrix(ONES.astype(np.int16), np.nan, np.int16(0)), InvalidModel, "tensor w"),
    "another zero-point": (pair(0.5, np.uint8(1), None, np.uint8(2)), InvalidModel, "node dequantize"),
    "another scale": (pair(0.5, np.uint8(1), 0.25), InvalidModel, "node dequantize"),
    "another type": (pair(0.5, np.uint8(1), None, np.int8(1)), InvalidModel, "tensor q"),
    "a zero-point of floats": (pair(0.5, np.float32(1)), TowlineError, ""),
    "zero-points per channel": (pair(0.5, np.ones(8, np.uint8)), InvalidModel, "tensor q"),
    "weight: zero-point of another type": (matrix(ONES, 0.5, np.uint8(0)), InvalidModel, "tensor w"),
    "weight: scale 0": (matrix(ONES, 0.0, np.int8(0)), InvalidModel, "tensor w"),
    "weight: too few scales": (
        matrix(ONES, np.ones(5), np.zeros(5, np.int8), axis=1),
        InvalidModel,
        "tensor w",
    ),
    "weight: an axis out of range": (
        matrix(ONES, np.ones(6), np.zeros(6, np.int8), axis=2),
        InvalidModel,
        "tensor w",
    ),
    "weight: scales without zero-points": (
        matrix(ONES, np.ones(6), np.zeros(5, np.int8), axis=1),
        InvalidModel,
        "tensor w",
    ),
    "16 bits: too few scales": (
        matrix(ONES.astype(np.int16), np.ones(5), np.zeros(5, np.int16), axis=1),
        InvalidModel,
        "node weight",
    ),
    "16 bits: another zero-point": (matrix(ONES.astype(np.int16), 1, np.int8(0)), InvalidModel, "tensor w"),
    "blocks: too few scales": (blocked((8, 6), 4, 0, scales=(1, 6)), InvalidModel, "node blocks"),
    "blocks: of another axis": (blocked((8, 6), 4, 0, scales=(8, 2)), InvalidModel, "node blocks"),
    "packed: too short": (nbits(w=np.zeros(7, np.uint8))[0], InvalidModel, "node packed"),
    "packed: scales": (nbits(scales=np.ones(4, np.float32))[0], InvalidModel, "node packed"),
    "packed: NaN": (nbits(scales=np.full(18, np.nan, np.float32))[0], InvalidModel, "tensor scales"),
    "packed: blocks": (nbits(g_idx=np.full(40, 9, np.int32))[0], InvalidModel, "node packed"),
    "packed: 3 bits": (
        nbits(bits=3, block=16, w=np.zeros(6 * 3 * 6, np.uint8))[0],
        Unsupported,
        "node packed",
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictions_are_refused(case):
    model, error, where = CONTRADICTIONS[case]
    with pytest.raises(error) as caught:
        imported(model)
    assert caught.value.where.startswith(where), caught.value
