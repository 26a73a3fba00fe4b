"""Elements of plain tensors in the AMD kernels: every stored one, and rounding, as sdk.dtypes has it."""

import numpy as np
import pytest

from sdk import dtypes
from tests.unit.amd_bench import Bench

FLOATS = ("float16", "bfloat16", "float8e4m3fn", "float8e5m2", "float32")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "int64")


@pytest.fixture(scope="module", params=["gfx1100", "gfx1201"])
def bench(request):
    texts, inputs = {}, {}
    for name in (*FLOATS, *INTEGERS, "bool"):
        size, kind = dtypes.storage(name).itemsize, "float" if name in FLOATS else "long"
        texts[f"load_of_{name}"] = f"((global {kind} *)y)[i] = load_{name}(a + i * {size});"
        inputs[f"load_of_{name}"] = ("u8",)
        texts[f"store_of_{name}"] = f"store_{name}(y + i * {size}, a[i]);"
        inputs[f"store_of_{name}"] = (kind,)
    return Bench(request.param, "elements.h", texts, inputs)


def everything(name):
    """All stored elements, or of a wide type random ones and those at its ends."""
    kind = dtypes.storage(name)
    if kind.itemsize <= 2 and name != "bool":
        return np.arange(1 << 8 * kind.itemsize, dtype=f"u{kind.itemsize}").view(kind)
    random = np.random.default_rng(1).integers(0, 256, 1 << 15, np.uint8).view(f"u{kind.itemsize}")
    ends = np.array([0, 1, -1, 1 << (8 * kind.itemsize - 1)], np.int64 if name != "int64" else object)
    ends = np.array([int(end) % (1 << 8 * kind.itemsize) for end in ends], random.dtype)
    return np.concatenate([ends, random]) if name == "bool" else np.concatenate([ends, random]).view(kind)


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOATS)
def test_every_stored_float_is_loaded(bench, name):
    stored = everything(name)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wanted = dtypes.decode(stored, name)
    np.testing.assert_array_equal(bench(f"load_of_{name}", "f4", stored), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOATS)
def test_stored_floats_are_rounded_once(bench, name):
    """Floats of all magnitudes, every stored one, what lies half between two, and their neighbours."""
    random = np.random.default_rng(2)
    with np.errstate(all="ignore"):  # NaNs, and what is beyond float32
        values = np.sort(dtypes.decode(everything(name), name).astype(np.float32))
        values = values[np.isfinite(values)]
        middles = (values[1:].astype(np.float64) + values[:-1]).astype(np.float32) / np.float32(2)
        beyond = np.float32([65504, 65519.996, 65520, 65536, 448, 464, 465, 480, 57344, 61440, 1e9, 3.4e38])
        exact = np.concatenate(
            [values, middles, beyond, -beyond, np.float32([np.inf, -np.inf, np.nan, -0.0])]
        )
        everywhere = random.integers(0, 1 << 32, 1 << 15, dtype=np.uint32).view(np.float32)
        near = [np.nextafter(exact, np.float32(end)) for end in (-np.inf, np.inf)]
        x = np.concatenate([exact, *near, everywhere]).astype(np.float32)
        wanted = dtypes.encode(x.astype(np.float64), name)
    found = bench(f"store_of_{name}", dtypes.storage(name).name, x)
    nan = np.isnan(x)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        assert np.isnan(dtypes.decode(found[nan], name)).all()
    unsigned = f"u{found.itemsize}"
    np.testing.assert_array_equal(found[~nan].view(unsigned), wanted[~nan].view(unsigned))


@pytest.mark.slow
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_keep_their_low_bits(bench, name):
    stored = everything(name)
    np.testing.assert_array_equal(bench(f"load_of_{name}", "i8", stored), stored.astype(np.int64))
    values = np.concatenate([everything("int64"), stored.astype(np.int64)])
    found = bench(f"store_of_{name}", name, values)
    np.testing.assert_array_equal(found, values.astype(name))


def test_any_bit_is_true(bench):
    stored = everything("bool")
    np.testing.assert_array_equal(bench("load_of_bool", "i8", stored), stored != 0)
    values = np.concatenate([np.arange(4), np.int64(1) << np.arange(63), -(np.int64(1) << np.arange(63))])
    np.testing.assert_array_equal(bench("store_of_bool", "u1", values), values != 0)
