"""Mistakes planted in the kernels that sdk.opencl writes, which the check must find on each target."""

import dataclasses
import re

import numpy as np
import pytest

from sdk import graph as ops
from sdk.graph import NO_CLAMP
from sdk.reference import compare, expect
from sdk.target import Options
from sdk.verification import verify
from tests.plain_graphs import PlainBuilder

TRUNCATED = """
static inline u16 truncated(float value) {
    u16 near = float16_of(value);
    return fabs(from_float16(near)) > fabs(value) ? near - 1 : near;
}
#define store_float16(p, value) (*(global u16 *)(p) = truncated(value))
"""


def text(old, new, count=0):
    """A mutation: what the pattern finds in the kernel's text is something else."""

    def mutate(call):
        found = re.sub(old, new, call.kernel.text, count=count)
        assert found != call.kernel.text, (old, call.kernel.text)
        return dataclasses.replace(call, kernel=dataclasses.replace(call.kernel, text=found))

    return mutate


def word(place, change):
    """A mutation: another number in the launch's words."""

    def mutate(call):
        words = list(call.words)
        words[place] = change(words[place])
        return dataclasses.replace(call, words=words)

    return mutate


def swapped(a, b):
    """A mutation: two of the launch's words in each other's place."""

    def mutate(call):
        words = list(call.words)
        words[a], words[b] = words[b], words[a]
        return dataclasses.replace(call, words=words)

    return mutate


def truncation(call):
    """Rounding to float16 towards zero."""
    return dataclasses.replace(
        call, kernel=dataclasses.replace(call.kernel, head=TRUNCATED + call.kernel.head)
    )


# -- a node of each family ----------------------------------------------------------------------------------


def conv(b):
    """Of a kind that no kernel of products takes: its weights are an input."""
    x, w = b.input((1, 12, 7, 9), "float16"), b.input((4, 12, 3, 3), "float16")
    fields = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1, "clamp": NO_CLAMP}
    return b.node(ops.Conv, (x, w), **fields)


def long_sum(b):
    return b.node(ops.Reduce, (b.input((40, 2100), "float16"),), kind="sum", axes=(1,), shape=(40,))


def square_mean(b):
    return b.node(ops.Reduce, (b.input((9, 9), "float32"),), kind="mean", axes=(1,), shape=(9, 1))


def largest(b):
    x = b.input((6, 50), "float32", np.arange(300, dtype=np.float32).reshape(6, 50))
    return b.node(ops.Reduce, (x,), kind="max", axes=(1,), shape=(6, 1))


def softmax(b):
    return b.node(ops.Softmax, (b.input((6, 70), "float16"),), axis=1)


def normalize(b):
    operands = b.input((6, 70), "float16"), b.constant((70,), "float16"), b.constant((70,), "float16")
    return b.node(ops.Normalize, operands, axes=(1,), epsilon=1e-5, centre=True)


def average(b):
    fields = {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1), "count_include_pad": False}
    return b.node(ops.AveragePool, (b.input((1, 3, 6, 7), "float16"),), **fields, clamp=NO_CLAMP)


def product(b):
    return b.map(lambda v: v * 3, b.input((33, 40), "float16"))


def chain(b):
    """Two Maps in one launch: the tensor between is float16, and infinite where a square is too large."""
    x = b.input((33, 40), "float16", (100 * b.random.standard_normal((33, 40))).astype(np.float16))
    return b.map(lambda v: v * 0.001, b.map(lambda v: v * v, x))


def broadcast(b):
    return b.map(lambda v, w: v + w, b.input((5, 6, 7)), b.input((6, 1)))


def concat(b):
    return b.node(ops.Concat, (b.input((3, 4)), b.input((3, 5))), axis=1)


def gather(b):
    return b.node(ops.Gather, (b.input((6, 6)), b.constant((4,), "int64", [5, 0, -2, 3])), axis=1)


def scatter(b):
    indices = b.constant((5, 1), "int64", [[1], [3], [1], [0], [3]])
    return b.node(ops.Scatter, (b.input((4, 6)), indices, b.input((5, 6))), reduction="none")


def top_k(b):
    values = [[0, 1, 1, 0, 2, 2, 0, 1, 2]] * 3
    x = b.input((3, 9), "float32", np.array(values, np.float32))
    return b.node(ops.TopK, (x,), axis=1, k=5, largest=True, dtype="int64")


def fill(b):
    fields = {"befores": (1, 0), "afters": (1, 2), "value": 0.5}
    return b.node(ops.Fill, (b.input((5, 6), "float16"),), **fields)


def grid_sample(b):
    operands = b.input((1, 2, 5, 6)), b.input((1, 4, 4, 2))
    fields = {"mode": "linear", "padding_mode": "border", "align_corners": False}
    return b.node(ops.GridSample, operands, **fields)


PARTIAL = r"parts_sum\[lane\] = sum;"
MUTATIONS = {
    "dropped tap": (conv, text(r"dx < 3", "dx < 2")),
    "swapped taps": (conv, text(r"dy \* 3", "(2 - dy) * 3")),
    "wrong pad": (conv, text(r"row \* 1 - 1", "row * 1 - 0")),
    "a sum in half": (conv, text(r"sum = (FMA\(.*?, sum\));", r"sum = round_float16(\1);")),
    "truncation": (conv, truncation),
    "a tap beside the picture": (average, text(r"continue;", ";", 1)),
    "a mean of all taps": (average, text(r"\(float\)count", "9.0f")),
    "a reduction in half": (long_sum, text(r"sum = a \+ b; ", "sum = round_float16(a + b); ")),
    "a partial sum in half": (long_sum, text(PARTIAL, "parts_sum[lane] = round_float16(sum);")),
    "a truncated sum": (long_sum, truncation),
    "a lost partial sum": (long_sum, text(r"near = WIDTH / 2", "near = WIDTH / 4")),
    "one element too few": (square_mean, word(1, lambda count: count - 1)),
    "a wrong axis": (square_mean, swapped(5, 10)),
    "no maximum of the last": (largest, word(1, lambda count: count - 1)),
    "a factor in half": (softmax, text(r"float factor = ([^;]*);", r"float factor = round_float16(\1);")),
    "exponentials in half": (softmax, text(r"sum \+= (exp.*?);", r"sum = round_float16(sum + \1);")),
    "a row too short": (normalize, word(1, lambda count: count - 1)),
    "no epsilon": (normalize, text(r"m\.epsilon", "0.3f")),
    "truncated normalization": (normalize, truncation),
    "a missing rounding": (chain, text(r"round_float16\((\w+)\)", r"\1", 1)),
    "a truncated product": (product, truncation),
    "a wrong broadcast": (broadcast, swapped(6, 11)),
    "operands one too far": (concat, text(r"x0 \+ ", "x0 + 4 + ")),
    "a gather of the other axis": (gather, text(r"\(s32\)a0 \* 6 \+ \(s32\)k \* 1", "a0 * 1 + k * 6")),
    "the first of duplicates": (scatter, text(r"value = update; }", "value = update; break; }")),
    "the last of equals": (top_k, text("j < k", "j > k")),
    "another border": (fill, word(1, lambda bits: bits + 1)),
    "a corner of another pixel": (grid_sample, text(r"pixel\(top \+ 1, left\)", "pixel(top, left)")),
}
"""By what is wrong: the node, and the mutation of its (first) launch."""


def outside(target, context, sums="half"):
    """How many elements are outside of each, right and planted: one program with all of them.

    Args:
        target: compiles and opens its emulated device.
        sums: of products of float16.
        context: the target's class of contexts; mistakes are planted where launches are appended.
    """
    b = PlainBuilder(7)
    nodes = {name: make(b) for name, (make, _) in MUTATIONS.items()}
    graph = b.graph(*nodes.values())
    verify(graph)
    mutations = {nodes[name]: mutate for name, (_, mutate) in MUTATIONS.items()}
    append = context.append

    def planted(self, call):
        whole = len(self.graph.nodes) >= len(MUTATIONS)  # not a node alone, to see whether it is supported
        mutate = mutations.get(call.name) if whole else None
        first = all(step.name != call.name for step in (*self.calls, *getattr(self, "steps", ())))
        append(self, mutate(call) if mutate is not None and first else call)

    results = {}
    for plant in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if plant:
                patch.setattr(context, "append", planted)
            program = target.compile(graph, Options(sums=sums))
        with target.open(None).load(program) as session:
            values = b.inputs | session.trace(b.inputs)
        results[plant] = {
            name: _outside(program.graph, node, values, program.precision) for name, node in nodes.items()
        }
    return results


def _outside(graph, name, values, precision):
    """Elements outside, of the last node of a chain whose tensors between are not there."""
    known = dict(values)
    for node in graph.nodes:
        if node.output == name:
            spread = expect(graph, node, known, precision, values[name])
            return compare(spread, values[name], graph.tensor(name).dtype).outside
        if node.output not in known:
            known[node.output] = expect(graph, node, known, precision)
    raise AssertionError(name)
