"""Random networks of all integer operators: every layer on a target equals the reference, bit for bit.

    python -m tests.contract.random_networks 1000 hexagon-v65 c

tries a thousand on each, as they are made and after the passes; `--first 17` begins with that seed, and
without targets all are tried. Status 1 if one differs; its seed and its nodes are printed. What a network is
depends on its seed alone. A tensor may have several readers, be an output as well, and be read by one node
twice: what a target fuses, lays over something or makes in the place of something else must hold in all that.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback

import numpy as np

from sdk import reference
from sdk.graph import Graph
from sdk.passes import optimize
from sdk.target import Target
from sdk.targets import target_names
from tests.contract.targets import assert_identical, quick, random_input
from tests.graph_builder import RANGES, GraphBuilder

NODES = (4, 14)
"""Nodes of one network, fewest and most."""
LARGEST = 6000
"""Elements of a tensor that nodes read: a network takes milliseconds."""
RECENT = 6
"""A node reads one of so many last tensors, and any as its second operand."""
FINER = 7
"""Targets take ratios of scales below 256, and the builder's outputs are up to 32 times finer than inputs."""
EXTRA_OUTPUTS = 0.25
"""How often a tensor that others read is an output too."""

FUNCTIONS = (np.tanh, lambda x: np.tanh(x / 2) / 2 + 0.5, lambda x: x * np.clip(x + 3, 0, 6) / 6)
WEIGHTS = {
    "residual": 5,
    "add": 4,
    "convolution": 3,
    "concat": 3,
    "bottleneck": 2,
    "pointwise": 2,
    "depthwise": 2,
    "lookup": 2,
    "mul": 2,
} | dict.fromkeys(
    (
        *("gemm", "grouped", "requantize", "average_pool", "max_pool", "global_pool"),
        *("resize", "pad", "reshape", "transpose"),
    ),
    1,
)
"""The methods of `Network` that add nodes, and how often each is tried."""


def network(seed: int) -> Graph:
    """The network of this seed; it is verified, and every target takes it."""
    return Network(seed).graph()


class Network:
    """A network that grows: each method adds a node or two behind `x`, or answers None: none fits."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        channels = self.random.choice((1, 3, 4, 7, 8, 33))
        shape = (1, channels, self.random.randint(1, 9), self.random.randint(1, 35))
        self.builder = GraphBuilder(shape, dtype=self.random.choice(tuple(RANGES)), seed=seed)
        self.live = ["x"]
        if self.random.random() < 0.25:
            self.live.append(self.builder.input("x1", shape))
        for _ in range(self.random.randint(*NODES)):
            self.grow()

    def grow(self) -> None:
        """Add what fits behind a recent tensor."""
        added = None
        while added is None:
            (kind,) = self.random.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))
            added = getattr(self, kind)(self.random.choice(self.live[-RECENT:]))
        self._keep(added)

    def _keep(self, name: str) -> str:
        """From here on others may read it, but for what is large: that is an output."""
        if self.builder.tensors[name].size <= LARGEST:
            self.live.append(name)
        return name

    def graph(self) -> Graph:
        """Its outputs are all that nothing reads, and some others."""
        read = {name for node in self.builder.nodes for name in node.inputs}
        made = [node.output for node in self.builder.nodes]
        return self.builder.graph(
            *(name for name in made if name not in read or self.random.random() < EXTRA_OUTPUTS)
        )

    # -- products ---------------------------------------------------------------------------------------

    def convolution(self, x: str) -> str | None:
        kernel = self.random.choice(((1, 1), (3, 3), (1, 3), (3, 1), (2, 2), (5, 5)))
        return self._convolution(x, self._channels(x), kernel)

    def pointwise(self, x: str) -> str | None:
        return self.builder.conv(x, self._channels(x), relu=self._rarely()) if self._is_picture(x) else None

    def residual(self, x: str) -> str | None:
        """The sum of a convolution and of what it read, or of another tensor of the same shape."""
        if not self._is_picture(x):
            return None
        kernel = self.random.choice((1, 1, 3))
        y = self._keep(self.builder.conv(x, self._shape(x)[1], kernel, pads=kernel // 2))
        return self.add(y)

    def bottleneck(self, x: str) -> str | None:
        """More channels, then a window with a stride over them."""
        channels = self._shape(x)[1] * 2
        if not self._is_picture(x) or channels > 80 or not self._fits(x, (3, 3), (1, 1, 1, 1)):
            return None
        y = self._keep(self.builder.conv(x, channels, relu=True))
        group = self.random.choice((1, channels))
        return self.builder.conv(y, channels, 3, strides=2, pads=1, group=group)

    def depthwise(self, x: str) -> str | None:
        return self._convolution(
            x, self._shape(x)[1], self.random.choice(((3, 3), (5, 5))), self._shape(x)[1]
        )

    def grouped(self, x: str) -> str | None:
        channels = self._shape(x)[1]
        return self._convolution(x, channels * 2, (3, 3), 2) if channels % 2 == 0 else None

    def _convolution(self, x: str, outputs: int, kernel: tuple[int, int], group: int = 1) -> str | None:
        dilations = self.random.choice(((1, 1), (1, 1), (1, 2)))
        strides, pads = self._strides(), self._pads(kernel)
        covered = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        if not self._is_picture(x) or not self._fits(x, covered, pads):
            return None
        return self.builder.conv(
            x,
            outputs,
            kernel,
            strides=strides,
            pads=pads,
            dilations=dilations,
            group=group,
            relu=self._rarely(),
            per_channel=not self._rarely(),
            weight_zero_point=self.random.choice((None, None, None, 117)),
        )

    def gemm(self, x: str) -> str | None:
        """Of a row; a picture is made one first."""
        if self.builder.tensors[x].size > LARGEST // 4:
            return None
        if len(self._shape(x)) != 2:
            x = self._keep(self.builder.reshape(x))
        return self.builder.gemm(x, self.random.randint(1, 40), relu=self._rarely())

    # -- elementwise ------------------------------------------------------------------------------------

    def add(self, x: str) -> str:
        return self.builder.add(*self._in_any_order(x, self._other(x)), relu=self._rarely())

    def mul(self, x: str) -> str | None:
        shape = self._shape(x)
        narrower = [
            name
            for name in self.live
            if len(self._shape(name)) == len(shape)
            and self.builder.tensors[name].scale < FINER
            and all(extent in (1, whole) for extent, whole in zip(self._shape(name), shape, strict=True))
        ]
        other = self.random.choice(narrower) if narrower else None
        return other and self.builder.mul(x, other, relu=self._rarely())

    def requantize(self, x: str) -> str:
        return self.builder.requantize(x, relu=self._rarely())

    def lookup(self, x: str) -> str:
        return self.builder.lookup(
            x, self.random.choice(FUNCTIONS), dtype=self.random.choice((None, *RANGES))
        )

    # -- windows ----------------------------------------------------------------------------------------

    def average_pool(self, x: str) -> str | None:
        kernel, pads = self._window(x)
        if not kernel:
            return None
        counted = self._rarely()
        return self.builder.average_pool(
            x, kernel, strides=self._strides(), pads=pads, count_include_pad=counted
        )

    def max_pool(self, x: str) -> str | None:
        kernel, pads = self._window(x)
        return self.builder.max_pool(x, kernel, strides=self._strides(), pads=pads) if kernel else None

    def global_pool(self, x: str) -> str | None:
        return self.builder.global_average_pool(x) if self._is_picture(x) else None

    def resize(self, x: str) -> str | None:
        if not self._is_picture(x) or self.builder.tensors[x].size * 4 > LARGEST:
            return None
        rows, columns = self._shape(x)[2:]
        if self._rarely():
            return self.builder.resize(x, range(0, rows, 2), range(0, columns, 2))
        return self.builder.resize(x, np.arange(2 * rows) // 2, np.arange(2 * columns) // 2)

    def _window(self, x: str) -> tuple[tuple[int, int], tuple[int, ...]]:
        """A pool's kernel and pads, less than the kernel; no kernel where none fits."""
        kernel = self.random.choice(((2, 2), (3, 3), (1, 2), (3, 2)))
        pads = tuple(self.random.randrange(extent) if self._rarely() else 0 for extent in (*kernel, *kernel))
        return (kernel if self._is_picture(x) and self._fits(x, kernel, pads) else ()), pads

    # -- moves ------------------------------------------------------------------------------------------

    def concat(self, x: str) -> str | None:
        shape = self._shape(x)
        axis = self.random.randrange(1, len(shape)) if self._rarely() else 1
        fitting = [
            name
            for name in self.live
            if len(self._shape(name)) == len(shape)
            and self._near(name, x)
            and all(
                a == b for i, (a, b) in enumerate(zip(self._shape(name), shape, strict=True)) if i != axis
            )
        ]
        parts = [x]
        for _ in range(self.random.randint(1, 2)):
            part = self.random.choice(fitting)
            parts.append(part if self._alike(part, x) else self.builder.alike(part, x))
        if sum(self.builder.tensors[name].size for name in parts) > LARGEST:
            return None
        return self.builder.concat(*self._in_any_order(*parts), axis=axis)

    def transpose(self, x: str) -> str | None:
        rank = len(self._shape(x))
        if rank < 3:
            return None
        axes = list(range(1, rank))
        self.random.shuffle(axes)
        return self.builder.transpose(x, (0, *axes))

    def pad(self, x: str) -> str | None:
        pads = tuple(self.random.randint(0, 2) for _ in range(4))
        return self.builder.pad(x, pads) if self._is_picture(x) else None

    def reshape(self, x: str) -> str:
        _, *extents = self._shape(x)
        size = self.builder.tensors[x].size
        if len(extents) > 2 and self._rarely():
            return self.builder.reshape(x, (1, extents[0] * extents[1], extents[2], 1))
        if len(extents) > 1:
            return self.builder.reshape(x)
        rows = self.random.choice([n for n in range(1, 10) if size % n == 0])
        return self.builder.reshape(x, (1, rows, 1, size // rows))

    # -- what fits --------------------------------------------------------------------------------------

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.builder.tensors[name].shape

    def _is_picture(self, name: str) -> bool:
        return len(self._shape(name)) == 4

    def _alike(self, name: str, other: str) -> bool:
        """Whether both have one dtype and one quantisation."""
        a, b = self.builder.tensors[name], self.builder.tensors[other]
        return a.dtype == b.dtype and a.quantization.equals(b.quantization)

    def _other(self, x: str) -> str:
        """A tensor of the same shape; x itself where there is no other, and sometimes else."""
        same = [name for name in self.live if self._shape(name) == self._shape(x) and self._near(name, x)]
        others = [name for name in same if name != x]
        return self.random.choice(others) if others and self.random.random() < 0.85 else x

    def _near(self, name: str, other: str) -> bool:
        """Whether a sum of both has ratios of scales in every target's range."""
        a, b = self.builder.tensors[name].scale, self.builder.tensors[other].scale
        return max(a / b, b / a) < FINER

    def _in_any_order(self, *names: str) -> list[str]:
        return self.random.sample(names, len(names))

    def _rarely(self) -> bool:
        return self.random.random() < 0.3

    def _channels(self, x: str) -> int:
        return self.random.choice((self._shape(x)[1], self.random.randint(1, 40), 32))

    def _strides(self) -> tuple[int, int]:
        return self.random.choice(((1, 1), (1, 1), (1, 1), (2, 2), (2, 1)))

    def _pads(self, kernel: tuple[int, int]) -> tuple[int, ...]:
        """As much as keeps a picture's size with stride 1, or less on some sides."""
        same = (kernel[0] // 2, kernel[1] // 2) * 2
        return tuple(self.random.randint(0, pad) for pad in same) if self._rarely() else same

    def _fits(self, x: str, window, pads: tuple[int, ...]) -> bool:
        """Whether a window lies within rows and columns; on a single pixel it has to cover it."""
        rows, columns = self._shape(x)[2:]
        if (rows, columns) == (1, 1):
            return (
                pads[0] < window[0] <= pads[0] + pads[2] + 1 and pads[1] < window[1] <= pads[1] + pads[3] + 1
            )
        return rows + pads[0] + pads[2] >= window[0] and columns + pads[1] + pads[3] >= window[1]


def check(target: Target, seed: int) -> None:
    """Fail unless every layer of that network is the reference's, without the passes and with.

    The passes themselves may change no output either.
    """
    graph = network(seed)
    better = optimize(graph, check=True)
    inputs = random_input(graph)
    before, after = (reference.run(one, inputs, target.arithmetic) for one in (graph, better))
    for name in graph.outputs:
        np.testing.assert_array_equal(after[name], before[name], err_msg=f"{name} behind the passes")
    assert_identical(target, graph)
    assert_identical(target, better, guard=128, l2=1)  # nothing fits: all that can be is striped


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.contract.random_networks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("count", type=int, help="networks on each target")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"any of {', '.join(target_names())}")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first one's seed (0)")
    args = parser.parse_args(argv)
    failed = 0
    for name in args.targets or target_names():
        target, started = quick(name), time.monotonic()
        wrong = [
            seed for seed in range(args.first, args.first + args.count) if not _identical(target, name, seed)
        ]
        seconds = time.monotonic() - started
        print(f"{name}: {args.count} networks, {len(wrong)} wrong, {seconds:.0f} s", flush=True)
        failed += len(wrong)
    return 1 if failed else 0


def _identical(target: Target, name: str, seed: int) -> bool:
    try:
        check(target, seed)
    except Exception:
        print(f"{name}: the network of seed {seed}", file=sys.stderr)
        for node in network(seed).nodes:
            print(f"  {node}", file=sys.stderr)
        traceback.print_exc(limit=-4)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
