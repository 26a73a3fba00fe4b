"""Element types against numpy, and against ml_dtypes, which onnx brings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sdk import dtypes

ml_dtypes = pytest.importorskip("ml_dtypes")
OTHERS = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
}


@pytest.mark.parametrize("name", OTHERS)
def test_every_pattern_is_decoded(name):
    width = dtypes.dtype(name).nbytes
    stored = np.arange(1 << 8 * width).astype(dtypes.storage(name))
    with np.errstate(invalid="ignore"):  # signalling NaNs
        found, expected = dtypes.decode(stored, name), stored.view(OTHERS[name]).astype(np.float64)
    assert np.array_equal(found, expected, equal_nan=True)
    real = ~np.isnan(expected)
    assert np.array_equal(np.signbit(found[real]), np.signbit(expected[real]))
    assert np.array_equal(dtypes.decode(dtypes.encode(found, name), name), found, equal_nan=True)


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=30)
@given(values=arrays.arrays(np.float64, 8, elements=st.floats(allow_nan=True, allow_infinity=True, width=64)))
def test_values_are_rounded_half_to_even(name, values):
    found = dtypes.decode(dtypes.encode(values, name), name)
    with np.errstate(all="ignore"):
        expected = values.astype(OTHERS[name]).astype(np.float64)
    largest = dtypes.dtype(name).format.largest
    if name == "float8e4m3fn":  # has no infinity: ONNX saturates, ml_dtypes gives NaN
        beyond = np.abs(dtypes.round_to(values, name)) == largest
        expected = np.where(beyond & ~np.isnan(values), np.copysign(largest, values), expected)
    assert np.array_equal(found, expected, equal_nan=True)


@pytest.mark.parametrize("name", ["float16", "float32", "bfloat16", "float8e4m3fn", "float8e5m2"])
def test_unit_and_smallest(name):
    form = dtypes.dtype(name).format
    above = dtypes.round_to(np.array([1 + form.unit * 1.01, 1 + form.unit * 0.99]), name)
    assert above[0] == 1 + 2 * form.unit
    assert above[1] == 1
    assert dtypes.round_to(np.array([form.smallest, form.smallest * 0.49]), name).tolist() == [
        form.smallest,
        0,
    ]
    assert dtypes.round_to(np.array([form.largest]), name) == form.largest
