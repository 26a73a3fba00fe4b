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


def compiled_functions(program, *more):
    """(name, LLVM IR) of each function."""
    options = ["-x", "cl", "-cl-std=CL1.2", "-target", "spir64", "-O1", "-fno-unroll-loops", "-S", *more]
    options += ["-emit-llvm", "-o", "-", "-"]
    done = toolchain.run("clang", options, input=program.encode(), timeout=60)
    return re.findall(r"^define .*?@(\w+)\(.*?\{\n(.*?)^\}", done.stdout.decode(), re.M | re.S)


@pytest.fixture(scope="module")
def compiled():
    """LLVM IR of a kernel per case: case -> its lines."""
    stubs = []
    for number, (function, constants) in enumerate(CASES.values()):
        stubs.append(STUB % (f"case{number}", function, function, fields(constants)))
    functions = dict(compiled_functions(source.write({}) + "".join(stubs)))
    return {case: functions[f"case{number}"] for number, case in enumerate(CASES)}


def natural_loops(function):
    """(lines of each block, the blocks of each loop in the order in which the loops begin)"""
    blocks, name = {}, "entry"
    for line in function.splitlines():
        if label := re.match(r"([\w.]+):", line):
            name = label[1]
        blocks.setdefault(name, []).append(line)
    follow = {name: re.findall(r"label %([\w.]+)", "".join(lines)) for name, lines in blocks.items()}
    before = {name: [other for other in blocks if name in follow[other]] for name in blocks}
    found, finished, path = {}, [], []

    def visit(block):
        path.append(block)
        for other in follow[block]:
            if other in path:
                body, waiting = found.setdefault(other, {other}), [block]
                while waiting:
                    one = waiting.pop()
                    if one not in body:
                        body.add(one)
                        waiting += before[one]
            elif other not in finished:
                visit(other)
        finished.append(path.pop())

    visit(next(iter(blocks)))
    order = finished[::-1]
    return blocks, [found[head] for head in sorted(found, key=order.index)]


def loops(function):
    """The texts of the loops, each without those inside it."""
    blocks, found = natural_loops(function)
    own = [loop.difference(*(other for other in found if other < loop)) for loop in found]
    return ["\n".join(line for one in blocks if one in loop for line in blocks[one]) for loop in own]


def innermost_loop(function):
    """The text of the smallest loop."""
    blocks, found = natural_loops(function)
    smallest = min(found, key=len)
    return "\n".join(line for one in blocks if one in smallest for line in blocks[one])


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
    return {case: one.operations[-1] for case, one in zip(CASES, made, strict=True)}


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


SLOTS = {650: 1.05, 660: 0.54}
"""For a multiply-accumulate by dot products, at worst: Adreno 650 adds two products, 660 four."""

DOT = "int dot_acc_sat_4x8packed_su_int(uint a, uint b, int sum);\n"
WORD = re.compile(r"@_Z12read_imageui14\w+\([^%]*%([01]), ")
"""Of x, the first argument, or of the weights."""


def test_dot_products_read_words():
    """A dot product for four products, of two words, without a conversion."""
    constants = pointwise(8, 1)
    try:
        made = figures(
            [KernelInstance("pointwise", {**constants, "fused": 0}, (16, 8, 1), one) for one in SLOTS]
        )
    except EnvironmentMissing as missing:
        pytest.skip(missing.message)
    program = DOT + source.write({}) + STUB % ("dots", "pointwise", "pointwise", fields(constants))
    (text,) = (text for name, text in compiled_functions(program, "-D", "DOT_PRODUCT_KHR") if name == "dots")
    text = innermost_loop(text)
    reads = WORD.findall(text)
    products = 4 * len(re.findall("call .*@dot_acc_sat_4x8packed_su_int", text))
    theirs = {"texture 0": reads.count("0"), "texture 1": reads.count("1"), "products": products}
    assert not re.search("= (?:trunc|zext i8|sext i8|shl|lshr|and) ", text)
    for found, slots in zip(made, SLOTS.values(), strict=True):
        assert found.operations[-1] == theirs
        assert found.loops[-1].slots / 128 <= slots
        assert found.spills == 0
