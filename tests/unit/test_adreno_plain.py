"""Plain tensors on OpenCL: the networks of the target c's tests, against their definition."""

import dataclasses

import numpy as np
import pytest

from dsp.adreno.session import OpenClSession
from dsp.adreno.target import adreno_a6xx
from sdk import graph as ops
from sdk.graph import NO_CLAMP
from sdk.target import Options
from tests.amount import amount
from tests.opencl_substitute import require_opencl
from tests.plain_families import CASES, ON_CARDS, TWICE, families
from tests.plain_graphs import PlainBuilder, bits

FOUND = require_opencl()

QUICK = ((families.test_matrices, ("float32",)), (families.test_products_of_narrow_floats, ("bfloat16",)))
"""The others take PoCL seconds each where its cache is cold: tens of kernels."""
FAMILIES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
    for case in CASES
    if case not in amount((*TWICE, *ON_CARDS), ())
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "arguments"), FAMILIES, ids=lambda part: getattr(part, "__name__", str(part))
)
def test_a_family(monkeypatch, case, arguments):
    monkeypatch.setattr(families, "TARGET", adreno_a6xx())
    case(*arguments)


def network():
    """Products whose operands are read as texels, of half sums and of floats, and a Concat of results."""
    b = PlainBuilder(5)
    x, a, c = b.input((1, 8, 9, 7), "float16"), b.input((3, 20, 12), "float16"), b.input((5, 16))
    fields = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "clamp": NO_CLAMP}
    wide = b.node(ops.Conv, (x, b.constant((12, 8, 3, 3), "float16")), group=1, **fields)
    alone = b.node(ops.Conv, (wide, b.constant((12, 1, 3, 3), "float16")), group=12, **fields)
    b.node(ops.MatMul, (a, b.constant((3, 12, 8), "float16")), transposed=False)
    b.node(ops.MatMul, (c, b.constant((16, 24))), transposed=False)
    b.node(ops.Concat, (wide, alone), axis=1)
    return b


@pytest.mark.slow
def test_a_device_without_images_of_halves_gives_the_same_bits(caplog):
    b = network()
    program = adreno_a6xx().compile(b.graph(), Options())
    found = {}
    for texels in (FOUND.buffer_texels, 0, 16):
        with OpenClSession(program, dataclasses.replace(FOUND, buffer_texels=texels)) as session:
            found[texels] = session.trace(b.inputs)
        assert ("read as buffers" in caplog.text) == (texels != FOUND.buffer_texels)
    images, *others = found.values()
    for other in others:
        for name, array in images.items():
            np.testing.assert_array_equal(bits(other[name]), bits(array), err_msg=name)


def test_whose_half_arithmetic_it_is():
    graph = network().graph()
    for sums, extensions, half in (
        ("half", FOUND.extensions - {"cl_khr_fp16"}, "emulated"),
        ("float32", FOUND.extensions, None),
    ):
        program = adreno_a6xx().compile(graph, Options(sums=sums))
        with OpenClSession(program, dataclasses.replace(FOUND, extensions=extensions)) as session:
            assert session.half_arithmetic == half
