"""Figures of float products on Adreno 630, and their inner loops as clang sees them."""

import functools
import re

import pytest

from dsp.adreno.ir3.child import KernelInstance, figures
from dsp.adreno.ir3.floats import of_words
from dsp.adreno.ir3.kernels import iterations, macs_of_iteration
from dsp.adreno.plain_products import KERNELS, depthwise, launch
from sdk import toolchain
from sdk.errors import EnvironmentMissing
from sdk.opencl.product import Constant, Matrix, Product, Window
from tests.float_products import dense
from tests.unit.test_ir3_loops import innermost_loop


def product(channels, k, size=None, dtype="float16", **changes):
    """56 x 56 pixels; `size` of a window."""
    picture = (1, 56, 56, k)
    window = Window((size, size), (56, 56), pads=(size // 2, size // 2)) if size else None
    fields = {"w": Constant(dtype), "window": window, "bias": True, **changes}
    x, y = dense(picture, dtype), dense((1, 56, 56, channels), dtype)
    return Product((1, 56, 56), channels, k, x, y=y, **fields)


WIDE = Product((1, 1, 196), 196, 64, dense((1, 1, 196, 64), "float16"), Matrix("float16", 64, 1),
               dense((1, 1, 196, 196), "float16"))  # fmt: skip

CASES = {  # a launch, its inner loop's issue slots for a multiply-accumulate and waves, at worst and at least
    "pointwise, float32 sums": (launch(product(96, 128), "float32", tile=(7, 3)), 1.2, 4),
    "pointwise of float32": (launch(product(96, 128, dtype="float32"), "float32", tile=(7, 3)), 1.2, 4),
    "pointwise, smaller": (launch(product(96, 128), "float32", tile=(6, 2)), 1.3, 6),
    "pointwise, half sums": (launch(product(96, 128), "half", tile=(6, 2)), 1.34, 4),
    "3 x 3": (launch(product(96, 64, 3), "float32", tile=(7, 3)), 1.28, 4),
    "3 x 3, half sums": (launch(product(96, 64, 3), "half", tile=(6, 2)), 1.36, 4),
    "matrices": (launch(WIDE, "float32", tile=(7, 3)), 1.2, 4),
    "matrices, half sums": (launch(WIDE, "half", tile=(6, 2)), 1.37, 4),
    "depthwise": (depthwise(product(96, 1, 3), "float32", pixels=8), 1.9, 8),
    "depthwise, half sums": (depthwise(product(96, 1, 3), "half", pixels=8), 1.9, 12),
}


def instance(made):
    return KernelInstance(made.function, {**constants_of(made), "fused": 0}, (64, 1, 1))


def constants_of(made):
    constants = dict(made.constants)
    return {**constants, **of_words(made.function, constants["window"], made.words)}


FEW = ("pointwise, float32 sums", "3 x 3, half sums", "depthwise, half sums")
EVERY = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in FEW else pytest.mark.slow) for case in CASES]
)


@functools.cache
def measured(case):
    try:
        (found,) = figures([instance(CASES[case][0])])
    except EnvironmentMissing as missing:
        pytest.skip(missing.message)
    return found


@EVERY
def test_issue_slots_of_the_inner_loop(case):
    made, slots, waves = CASES[case]
    found, constants = measured(case), constants_of(made)
    assert found.spills == 0
    assert found.waves >= waves
    assert found.loops[-1].slots / macs_of_iteration(made.function, constants) <= slots
    assert found.total("slots", iterations(made.function, constants)) > found.loops[-1].slots


@pytest.mark.slow
def test_what_is_left_of_k_is_counted():
    measured(FEW[0])
    tails = [launch(product(96, k), sums, tile=(4, 2)) for k in (5, 30, 34) for sums in ("half", "float32")]
    for made, found in zip(tails, figures([instance(made) for made in tails]), strict=True):
        assert len(iterations(made.function, constants_of(made))) == len(found.loops)


READ = re.compile(r"call spir_func <4 x (?:half|float)> @_Z11read_image[fh]\w+\(.*?\) %([01]), ")
"""Of x, the first argument, or of w."""
PRODUCT = re.compile(r"@llvm\.fmuladd\.v4f(?:16|32)\(| fmul <4 x (?:half|float)> ")


@pytest.mark.slow
@EVERY
def test_inner_loop_is_that_of_the_opencl_c(case):
    """With half arithmetic, which PoCL has not."""
    made, _, _ = CASES[case]
    options = ["-x", "cl", "-cl-std=CL1.2", "-target", "spir64", "-O1", "-fno-unroll-loops", "-S"]
    options += ["-D", "HALF_NATIVE", "-Xclang", "-cl-ext=+cl_khr_fp16", "-emit-llvm", "-o", "-", "-"]
    headers = (KERNELS / "numbers.h").read_text(encoding="ascii").replace("#pragma once\n", "")
    done = toolchain.run("clang", options, input=(headers + made.text).encode(), timeout=60)
    functions = dict(re.findall(r"^define .*?@(\w+)\(.*?\{\n(.*?)^\}", done.stdout.decode(), re.M | re.S))
    text = innermost_loop(functions[made.function])
    reads = READ.findall(text)
    theirs = {
        "texture 0": reads.count("0"),
        "texture 1": reads.count("1"),
        "products": 4 * len(PRODUCT.findall(text)),
    }
    assert measured(case).operations[-1] == theirs
