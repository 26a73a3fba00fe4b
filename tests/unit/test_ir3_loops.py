"""Inner loops of kernels/*.cl, as clang sees them, beside those of the NIR that models them."""

import re

import pytest

from dsp.adreno import source
from dsp.adreno.ir3.child import KernelInstance, figures
from sdk import toolchain
from sdk.errors import EnvironmentMissing

STUB = """
__kernel void %s(SOURCE x, WEIGHTS weights, TABLES tables, SOURCE other, TARGET y, int at, float low) {
  const struct output out = {.fused = ALONE, .at = at, .own = {low, 9.0f, 0.0f}};
  %s(x, weights, tables, other, y, (struct %s){%s}, out);
}
"""

READ_ACTIVATION, READ_WEIGHT = re.compile(r"@_Z12read_imageui14"), re.compile(r"@_Z11read_imagei14")
PRODUCT = re.compile(r"@_Z5mad24Dv4_iS_S_")


def picture(name, blocks, height, width, fold):
    return {f"{name}.blocks": blocks, f"{name}.height": height, f"{name}.width": width, f"{name}.fold": fold}


def window(size, stride):
    names = ("rows", "columns", "stride_y", "stride_x", "step_y", "step_x", "top", "left")
    values = (size, size, stride, stride, 1, 1, size // 2, size // 2)
    return {f"window.{name}": value for name, value in zip(names, values, strict=True)}


def pointwise(pixels, fold):
    return {
        "pixels": pixels,
        "dots": 1,
        **picture("weights", 6, 4, 24, 1),
        **picture("from", 24, 40, 40, fold),
        **picture("to", 6, 40, 40, 1),
    }


def depthwise(pixels, size, stride, outside):
    return {
        "pixels": pixels,
        "outside": outside,
        "zero_point": 7,
        **window(size, stride),
        **picture("from", 24, 40, 40, 1),
        **picture("to", 24, 40 // stride, 40 // stride, 1),
    }


CASES = {
    "pointwise 1": ("pointwise", pointwise(1, 1)),
    "pointwise 7": ("pointwise", pointwise(7, 1)),
    "pointwise 4, in two loops": ("pointwise", pointwise(4, 4)),
    "depthwise 3x3": ("depthwise", depthwise(8, 3, 1, 1)),
    "depthwise 3x3 by 2": ("depthwise", depthwise(7, 3, 2, 1)),
    "depthwise 3x3 inside": ("depthwise", depthwise(4, 3, 1, 0)),
    "depthwise 5x5": ("depthwise", depthwise(1, 5, 1, 1)),
}


def fields(constants):
    """A struct's members in C."""
    grouped = {}
    for name, value in constants.items():
        outer, _, inner = name.partition(".")
        if inner:
            grouped.setdefault(outer, []).append(f".{inner} = {value}")
        else:
            grouped[outer] = str(value)
    return ", ".join(
        f".{name} = {value if isinstance(value, str) else '{' + ', '.join(value) + '}'}"
        for name, value in grouped.items()
    )


@pytest.fixture(scope="module")
def compiled():
    """LLVM IR of a kernel per case: case -> its lines."""
    stubs = []
    for number, (function, constants) in enumerate(CASES.values()):
        stubs.append(STUB % (f"case{number}", function, function, fields(constants)))
    options = ["-x", "cl", "-cl-std=CL1.2", "-target", "spir64", "-O1", "-fno-unroll-loops", "-S"]
    program = source.write({}) + "".join(stubs)
    done = toolchain.run(
        "clang", [*options, "-emit-llvm", "-o", "-", "-"], input=program.encode(), timeout=60
    )
    functions = dict(re.findall(r"^define .*?@(\w+)\(.*?\{\n(.*?)^\}", done.stdout.decode(), re.M | re.S))
    return {case: functions[f"case{number}"] for number, case in enumerate(CASES)}


def innermost_loop(function):
    """The text of the smallest natural loop."""
    blocks, name = {}, "entry"
    for line in function.splitlines():
        if label := re.match(r"([\w.]+):", line):
            name = label[1]
        blocks.setdefault(name, []).append(line)
    follow = {name: re.findall(r"label %([\w.]+)", "".join(lines)) for name, lines in blocks.items()}
    before = {name: [other for other in blocks if name in follow[other]] for name in blocks}
    order = list(blocks)
    loops = []
    for latch in blocks:
        for head in follow[latch]:
            if order.index(head) <= order.index(latch):
                body, waiting = {head}, [latch]
                while waiting:
                    one = waiting.pop()
                    if one not in body:
                        body.add(one)
                        waiting += before[one]
                loops.append(body)
    return "\n".join(line for one in min(loops, key=len) for line in blocks[one])


@pytest.fixture(scope="module")
def nir():
    """The tally of the innermost loop of the NIR of each case."""
    try:
        made = figures(
            [
                KernelInstance(name, {**constants, "fused": 0}, (16, 8, 1))
                for name, constants in CASES.values()
            ]
        )
    except EnvironmentMissing as missing:
        pytest.skip(missing.message)
    return {case: one.operations for case, one in zip(CASES, made, strict=True)}


@pytest.mark.parametrize("case", CASES)
def test_inner_loop_is_that_of_the_opencl_c(compiled, nir, case):
    text = innermost_loop(compiled[case])
    theirs = {
        "texture 0": len(READ_ACTIVATION.findall(text)),
        "texture 1": len(READ_WEIGHT.findall(text)),
        "products": 4 * len(PRODUCT.findall(text)),
    }
    assert theirs["products"]
    assert nir[case] == theirs
