"""Figures of Softmax, reductions and pools on Adreno 630, and their loops as clang sees them."""

import functools
import re

import pytest

from dsp.adreno import ir3
from dsp.adreno.ir3.child import figures
from dsp.adreno.ir3.kernels import inner, iterations
from dsp.adreno.lowering import lower
from sdk import toolchain
from sdk.errors import EnvironmentMissing
from sdk.graph import AveragePool, GlobalAveragePool, MaxPool, Reduce, Softmax
from tests.plain_graphs import PlainBuilder
from tests.unit.test_ir3_loops import loops

POOL = {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
MEAN = {"count_include_pad": False, "clamp": None}

CASES = {  # a node; slots for an element in the inner loop, at worst; work-items of a row
    "Softmax of 20": ((Softmax, {"axis": 2}, (1, 64, 20), "float16"), 60, 1),
    "Softmax of 196": ((Softmax, {"axis": 2}, (1, 64, 196), "float16"), 60, 32),
    "Softmax of 4000": ((Softmax, {"axis": 1}, (1, 4000), "float32"), 56, 256),
    "GlobalAveragePool": ((GlobalAveragePool, {"clamp": None}, (1, 64, 14, 14), "float16"), 46, 32),
    "GlobalAveragePool of 4096": ((GlobalAveragePool, {"clamp": None}, (1, 64, 64, 64), "float16"), 46, 256),
    "a maximum of rows": ((Reduce, {"kind": "max", "axes": (1, 3)}, (1, 8, 4, 90), "float32"), 121, 32),
    "MaxPool": ((MaxPool, {**POOL, "dilations": (1, 1)}, (1, 16, 57, 57), "float16"), 81, 1),
    "AveragePool": ((AveragePool, {**POOL, **MEAN}, (1, 16, 57, 57), "float16"), 73, 1),
}  # fmt: skip
FEW = ("Softmax of 196", "GlobalAveragePool", "MaxPool")
EVERY = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in FEW else pytest.mark.slow) for case in CASES]
)


@functools.cache
def lowered(case):
    operator, fields, shape, dtype = CASES[case][0]
    b = PlainBuilder()
    b.node(operator, (b.input(shape, dtype),), **fields)
    return lower(b.graph())


@functools.cache
def measured(case):
    """(kernel, its figures)"""
    plan = lowered(case).plan
    (kernel,) = (kernel for step in plan.steps if (kernel := ir3.kernel_of(plan, step)))
    try:
        return kernel, *figures([kernel])
    except EnvironmentMissing as missing:
        pytest.skip(missing.message)


@EVERY
def test_issue_slots_of_the_inner_loop(case):
    _, slots, width = CASES[case]
    kernel, found = measured(case)
    assert found.spills == 0
    assert found.waves == 16
    assert kernel.constants.get("width", 1) == width
    assert inner(kernel.function, kernel.constants, found.loops) <= slots
    counted = found.total("slots", iterations(kernel.function, kernel.constants))
    assert counted > sum(one.slots for one in found.loops)


OPERATIONS = {
    "load": r"call spir_func float @_Z10vload_half|= load (?:i32|float), .*addrspace\(1\)",
    "store": r"call spir_func void @_Z15vstore_half_rte|  store (?:i32|float) .*addrspace\(1\)",
    "load local": r"= load .*addrspace\(3\)",
    "store local": r"  store .*addrspace\(3\)",
    "barrier": r"call spir_func void @_Z7barrier",
    "fadd": r"= f(?:add|sub) ",
    "fmul": r"= fmul ",
    "fexp2": r"call spir_func float @_Z3exp",
    "bcsel": r"= select .*float",
}
"""In LLVM IR, by NIR's names."""


@pytest.mark.slow
@EVERY
def test_loops_are_those_of_the_opencl_c(case):
    """Loops over the two streams are unrolled, others are not."""
    options = ["-x", "cl", "-cl-std=CL1.2", "-target", "spir64", "-O2", "-S", "-emit-llvm", "-o", "-", "-"]
    options += ["-mllvm", "-unroll-full-max-count=2", "-mllvm", "-unroll-runtime=0", "-fno-vectorize"]
    done = toolchain.run("clang", options, input=lowered(case).source, timeout=60)
    functions = dict(re.findall(r"^define .*?@(\w+)\(.*?\{\n(.*?)^\}", done.stdout.decode(), re.M | re.S))
    kernel, found = measured(case)
    (function,) = (text for name, text in functions.items() if name.startswith(f"{kernel.function}_"))
    theirs = [{name: len(re.findall(op, one)) for name, op in OPERATIONS.items()} for one in loops(function)]
    theirs = [{name: count for name, count in one.items() if count} for one in theirs]
    assert [*found.operations] == theirs
