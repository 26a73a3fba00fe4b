"""Random networks of floats: every layer on a target is within its definition.

    python -m tests.contract.random_plain_networks 1000 amd-gfx1100 c

tries a thousand on each; `--first 17` begins with that seed. Status 1 if one is outside; its seed and its
nodes are printed. What a network is depends on its seed alone: its floats are of one dtype or mixed, and
integers and truth values are among them. Tensors between nodes that no output reads may be fused away.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback

import numpy as np

from sdk import dtypes
from sdk import graph as ops
from sdk.errors import InvalidModel
from sdk.expression.trace import apply, clip, select, sigmoid
from sdk.graph import NO_CLAMP, Graph
from sdk.target import Target
from sdk.targets import target_names
from tests.contract.targets import quick
from tests.plain_graphs import PlainBuilder, assert_defined

NODES = (4, 14)
LARGEST = 4000
"""Elements of a tensor."""
RECENT = 6
EXTRA_OUTPUTS = 0.15
FLOATS = (("float16",), ("bfloat16",), ("float32",), ("float16", "float32"), ("bfloat16", "float32"))
"""What the floats of a network are."""

FUNCTIONS = (
    lambda v: v * sigmoid(v),
    lambda v: apply("max", v, 0),
    lambda v: apply("exp", clip(v, -8, 3)),
    lambda v: apply("tanh", v) + 0.5,
    lambda v: select(v > 0, v, v * 0.1),
    lambda v: apply("erf", v) * v,
    lambda v: -v,
    lambda v: 1 / (apply("abs", v) + 0.5),
    lambda v: apply("sqrt", apply("abs", v)),
)
JOINTS = (
    lambda v, w: v + w,
    lambda v, w: v * w,
    lambda v, w: v - w * 0.5,
    lambda v, w: apply("max", v, w),
    lambda v, w: select(v > w, v, w * 2.0),
    lambda v, w: v / (apply("abs", w) + 1),
)
WEIGHTS = {"map": 5, "joint": 5, "convolution": 3, "matrix": 2, "cast": 2, "concat": 2, "reduction": 2} | (
    dict.fromkeys(
        (
            *("depthwise", "transposed_convolution", "pool", "softmax", "normalization", "transpose"),
            *("reshape", "slice", "take", "fill", "gather", "scatter", "top", "truth", "attention"),
        ),
        1,
    )
)
"""The methods of `Network` that add nodes, and how often each is tried."""


def network(seed: int) -> tuple[Graph, dict[str, np.ndarray]]:
    """The network of this seed, and its inputs."""
    made = Network(seed)
    return made.graph(), made.builder.inputs


class Network:
    """A network that grows: each method adds a node or two behind `x`, or answers None: none fits."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.builder = PlainBuilder(seed)
        self.floats = self.random.choice(FLOATS)
        shape = self.random.choice(((1, 3, 9, 7), (2, 8, 5, 6), (1, 33, 4, 5), (6, 20), (2, 5, 16), (7,)))
        self.live = [self.builder.input(shape, self._float())]
        if self._rarely():
            self.live.append(self.builder.input(shape, self._float()))
        while len(self.builder.nodes) < self.random.randint(*NODES):
            self.grow()

    def grow(self) -> None:
        """Add what fits behind a recent tensor."""
        (kind,) = self.random.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))
        x = self.random.choice(self.live[-RECENT:])
        if not self._shape(x) and kind not in ("map", "joint", "cast", "truth"):
            return
        try:
            added = getattr(self, kind)(x)
        except InvalidModel:  # a window that does not fit
            return
        if added is not None and 0 < self.builder.tensors[added].size <= LARGEST:
            self.live.append(added)

    def graph(self) -> Graph:
        """Its outputs are all that nothing reads, and some others."""
        read = {name for node in self.builder.nodes for name in node.inputs}
        made = [node.output for node in self.builder.nodes]
        return self.builder.graph(
            *(name for name in made if name not in read or self.random.random() < EXTRA_OUTPUTS)
        )

    # -- products ---------------------------------------------------------------------------------------

    def convolution(self, x: str, group: int = 1) -> str | None:
        if len(self._shape(x)) != 4:
            return None
        channels = self._shape(x)[1]
        outputs = channels if group > 1 else self.random.choice((channels, 5, 16, 24))
        kernel = self.random.choice(((1, 1), (3, 3), (1, 3), (2, 2)))
        w = self._weights((outputs, channels // group, *kernel), self._dtype(x))
        fields = {"strides": self._pair(), "pads": self._pads(kernel), "dilations": (1, 1)}
        return self.builder.node(
            ops.Conv, (x, w, *self._bias(outputs, x)), **fields, group=group, clamp=NO_CLAMP
        )

    def depthwise(self, x: str) -> str | None:
        shape = self._shape(x)
        return self.convolution(x, shape[1]) if len(shape) == 4 and shape[1] > 1 else None

    def transposed_convolution(self, x: str) -> str | None:
        if len(self._shape(x)) != 4:
            return None
        w = self._weights((self._shape(x)[1], 6, 2, 3), self._dtype(x))
        fields = {"strides": self._pair(), "pads": (0, 1, 1, 0), "output_padding": (0, 0)}
        return self.builder.node(
            ops.ConvTranspose, (x, w, *self._bias(6, x)), **fields, dilations=(1, 1), group=1
        )

    def matrix(self, x: str) -> str | None:
        *_, columns = shape = self._shape(x)
        if len(shape) < 2:
            return None
        outputs, transposed = self.random.choice((1, 9, 16, 40)), self._rarely()
        size = (outputs, columns) if transposed else (columns, outputs)
        w = self._weights(size, self._dtype(x), columns)
        return self.builder.node(ops.MatMul, (x, w, *self._bias(outputs, x)), transposed=transposed)

    def attention(self, x: str) -> str | None:
        """Scores of x with itself, their Softmax, and its product with x."""
        if len(self._shape(x)) < 2:
            return None
        scores = self.builder.node(ops.MatMul, (x, x), transposed=True)
        if self.builder.tensors[scores].size > LARGEST:
            return None
        scaled = self.builder.map(lambda v: v * 0.25, scores)
        shares = self.builder.node(ops.Softmax, (scaled,), axis=len(self._shape(x)) - 1)
        return self.builder.node(ops.MatMul, (shares, x), transposed=False)

    # -- Maps -------------------------------------------------------------------------------------------

    def map(self, x: str) -> str:
        return self.builder.map(self.random.choice(FUNCTIONS), x)

    def joint(self, x: str) -> str:
        """With another tensor, or with a constant that is broadcast."""
        dtype, shape = self._dtype(x), self._shape(x)
        alike = [n for n in self.live if self._shape(n) == shape and self._dtype(n) == dtype]
        other = self.random.choice(alike)
        if self._rarely():
            kept = [extent if self._rarely() else 1 for extent in shape]
            other = self.builder.constant(kept[self.random.randint(0, len(kept)) :], dtype)
        operands = (x, other) if self._rarely() else (other, x)
        if len(self._shape(other)) < len(shape) or self._shape(other) != shape:
            operands = (x, other)
        return self.builder.map(self.random.choice(JOINTS), *operands)

    def cast(self, x: str) -> str:
        return self.builder.map(lambda v: v * 1, x, dtype=self._float())

    def truth(self, x: str) -> str:
        """A choice by a tensor of truth values."""
        mask = self.builder.map(lambda v: v > 0.1, x, dtype="bool")
        return self.builder.map(lambda m, v: select(m, v, 0.25), mask, x, dtype=self._dtype(x))

    # -- reductions and windows -------------------------------------------------------------------------

    def reduction(self, x: str) -> str:
        rank = len(self._shape(x))
        axes = tuple(sorted(self.random.sample(range(rank), self.random.randint(1, rank))))
        keep = self._rarely()
        shape = [1 if i in axes else n for i, n in enumerate(self._shape(x)) if keep or i not in axes]
        kind = self.random.choice(("sum", "mean", "max", "min"))
        return self.builder.node(ops.Reduce, (x,), kind=kind, axes=axes, shape=shape)

    def softmax(self, x: str) -> str:
        return self.builder.node(ops.Softmax, (x,), axis=self.random.randrange(len(self._shape(x))))

    def normalization(self, x: str) -> str:
        rank = len(self._shape(x))
        axes = tuple(range(self.random.randrange(rank), rank))
        scale = [self._shape(x)[-1]]
        operands = [self.builder.constant(scale, self._dtype(x)) for _ in range(self.random.randint(0, 2))]
        fields = {"axes": axes, "epsilon": 0.01, "centre": not self._rarely()}
        return self.builder.node(ops.Normalize, (x, *operands), **fields)

    def pool(self, x: str) -> str | None:
        if len(self._shape(x)) != 4 or min(self._shape(x)[2:]) < 3:
            return None
        window = {"kernel": (3, 2), "strides": self._pair(), "pads": (1, 0, 1, 1)}
        if self._rarely():
            return self.builder.node(ops.MaxPool, (x,), **window, dilations=(1, 1))
        return self.builder.node(
            ops.AveragePool, (x,), **window, count_include_pad=self._rarely(), clamp=NO_CLAMP
        )

    def top(self, x: str) -> str:
        """Where the largest are, as floats."""
        axis = self.random.randrange(len(self._shape(x)))
        k = self.random.randint(1, self._shape(x)[axis])
        fields = {"axis": axis, "k": k, "largest": not self._rarely()}
        found = self.builder.node(ops.TopK, (x,), **fields, dtype="int64")
        return self.builder.map(lambda v: apply("real", v), found, dtype=self._float())

    # -- moves ------------------------------------------------------------------------------------------

    def transpose(self, x: str) -> str:
        perm = list(range(len(self._shape(x))))
        self.random.shuffle(perm)
        return self.builder.node(ops.Transpose, (x,), perm=tuple(perm))

    def reshape(self, x: str) -> str:
        size = self.builder.tensors[x].size
        rows = self.random.choice([n for n in range(1, 10) if size % n == 0])
        shape = self.random.choice(((rows, size // rows), (1, rows, 1, size // rows), (size,)))
        return self.builder.reshape(x, shape)

    def slice(self, x: str) -> str:
        starts, steps, shape = [], [], []
        for extent in self._shape(x):
            step = self.random.choice((1, 1, 2, -1))
            start = self.random.randrange(extent) if self._rarely() else (extent - 1 if step < 0 else 0)
            left = start + 1 if step < 0 else extent - start
            starts.append(start)
            steps.append(step)
            shape.append(-(-left // abs(step)))
        return self.builder.node(ops.Slice, (x,), starts=tuple(starts), steps=tuple(steps), shape=shape)

    def take(self, x: str) -> str:
        indices = tuple(
            tuple(self.random.randrange(n) for _ in range(self.random.randint(1, n)))
            if self._rarely()
            else ()
            for n in self._shape(x)
        )
        return self.builder.node(ops.Take, (x,), indices=indices)

    def fill(self, x: str) -> str:
        befores, afters = ([self.random.randint(0, 2) for _ in self._shape(x)] for _ in range(2))
        return self.builder.node(ops.Fill, (x,), befores=tuple(befores), afters=tuple(afters), value=0.5)

    def concat(self, x: str) -> str | None:
        axis = self.random.randrange(len(self._shape(x)))

        def rest(name: str) -> tuple[int, ...]:
            shape = self._shape(name)
            return (*shape[:axis], *shape[axis + 1 :]) if len(shape) == len(self._shape(x)) else ()

        fitting = [n for n in self.live if rest(n) == rest(x) and self._dtype(n) == self._dtype(x)]
        parts = [x, *(self.random.choice(fitting) for _ in range(self.random.randint(1, 2)) if fitting)]
        if sum(self.builder.tensors[name].size for name in parts) > LARGEST or len(parts) < 2:
            return None
        self.random.shuffle(parts)
        return self.builder.node(ops.Concat, parts, axis=axis)

    def gather(self, x: str) -> str:
        axis = self.random.randrange(len(self._shape(x)))
        extent = self._shape(x)[axis]
        values = [self.random.randrange(-extent, extent) for _ in range(self.random.randint(1, 5))]
        indices = self.builder.constant((len(values),), "int64", values)
        return self.builder.node(ops.Gather, (x, indices), axis=axis)

    def scatter(self, x: str) -> str:
        extent, *rest = self._shape(x)
        rows = [[self.random.randrange(extent)] for _ in range(self.random.randint(1, 4))]
        indices = self.builder.constant((len(rows), 1), "int64", rows)
        updates = self.builder.constant((len(rows), *rest), self._dtype(x))
        reduction = self.random.choice(("none", "none", "add", "max"))
        if self._dtype(x) in ("float16", "bfloat16"):
            reduction = "none"  # c refuses the others: it would round at each update
        return self.builder.node(ops.Scatter, (x, indices, updates), reduction=reduction)

    # -- what fits --------------------------------------------------------------------------------------

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.builder.tensors[name].shape

    def _dtype(self, name: str) -> str:
        return self.builder.tensors[name].dtype

    def _float(self) -> str:
        return self.random.choice(self.floats)

    def _weights(self, shape: tuple[int, ...], dtype: str, k: int | None = None) -> str:
        values = self.builder.random.standard_normal(shape) / np.sqrt(k or np.prod(shape[1:]))
        return self.builder.constant(shape, dtype, dtypes.encode(values, dtype))

    def _bias(self, channels: int, x: str) -> list[str]:
        return [self.builder.constant((channels,), self._dtype(x))] if self._rarely() else []

    def _pair(self) -> tuple[int, int]:
        return self.random.choice(((1, 1), (1, 1), (2, 2), (2, 1)))

    def _pads(self, kernel: tuple[int, int]) -> tuple[int, ...]:
        return tuple(self.random.randint(0, n // 2) for n in (*kernel, *kernel))

    def _rarely(self) -> bool:
        return self.random.random() < 0.3


def check(target: Target, seed: int) -> None:
    """Fail unless every layer of that network is within its definition, in any memory."""
    graph, inputs = network(seed)
    assert_defined(target, graph, inputs, guard=0, poisons=(0x00, 0xA5))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.contract.random_plain_networks")
    parser.add_argument("count", type=int, help="networks on each target")
    parser.add_argument("targets", nargs="+", metavar="TARGET", help=f"any of {', '.join(target_names())}")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first one's seed (0)")
    args = parser.parse_args(argv)
    failed = 0
    for name in args.targets:
        target, started, wrong = quick(name), time.monotonic(), 0
        for seed in range(args.first, args.first + args.count):
            try:
                check(target, seed)
            except Exception:
                wrong += 1
                print(f"{name}: the network of seed {seed}", file=sys.stderr)
                for node in network(seed)[0].nodes:
                    print(f"  {node}", file=sys.stderr)
                traceback.print_exc(limit=-4)
        print(f"{name}: {args.count} networks, {wrong} wrong, {time.monotonic() - started:.0f} s", flush=True)
        failed += wrong
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
