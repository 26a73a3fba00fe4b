"""Products of float16 on an emulated GPU: time by the cost model, counts, and results beside the reference.

Square and other matrix products by size, and those of the zoo's driving network as they are, convolutions
with their windows: `m` pixels by `n` channels by `k` taps x channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sdk import dtypes, files
from sdk import graph as ops
from sdk.graph import Array, Graph, Node, Tensor
from sdk.importers import load_model
from sdk.opencl.product import Constant, Matrix, Operand, Product, Window
from sdk.passes import optimize
from sdk.reference.comparison import compare
from sdk.reference.plain import expect
from sdk.zoo.benchmark import benchmark
from towline.cli.benchmarks.shaders import Shaders
from usbgpu.target.plain.packing import product_weights
from usbgpu.target.plain.products import launch

NETWORK = "driving_50m"
SIZES = ((1024, 1024, 1024), (256, 2048, 1152))
"""(m, n, k) that are always measured."""
DTYPE = "float16"
MEMORY = 256 << 20
LIMIT = 1 << 32
"""Multiply-accumulates of a size at most: some ten seconds of the executor."""


@dataclass(frozen=True)
class Case:
    """A product to measure.

    Attributes:
        name: what it is, unique.
        graph: with this one node.
        product: its extents and strides, x and y with channels innermost.
    """

    name: str
    graph: Graph
    product: Product

    @property
    def size(self) -> tuple[int, int, int]:
        """(m, n, k) of a batch."""
        p = self.product
        return math.prod(p.pixels), p.channels, p.taps * p.k


def sized(m: int, n: int, k: int) -> Case:
    """The product of x [m, k] and w [n, k], transposed."""
    node = ops.MatMul("product", ("x", "w"), "y", transposed=True)
    tensors = (Tensor("x", (m, k), DTYPE), _weights("w", (n, k)), Tensor("y", (m, n), DTYPE))
    return _case(node, {tensor.name: tensor for tensor in tensors})


def of_network(name: str) -> list[Case]:
    """Every product of a network of the zoo once, but for depthwise convolutions.

    Raises:
        EnvironmentMissing: the extra `compile` is not installed.
    """
    with files.scratch_directory() as directory:
        path = benchmark(name, directory)
        assert path is not None
        graph = optimize(load_model(path))
    cases = {}
    for node in _products(graph, graph.nodes):
        tensors = {each: graph.tensor(each) for each in (*node.inputs[:2], node.output)}
        case = _case(node, tensors)
        cases[case.name] = case
    return list(cases.values())


def _products(graph: Graph, nodes: Sequence[Node]) -> Iterator[ops.Conv | ops.MatMul]:
    for node in nodes:
        if isinstance(node, ops.Region):
            yield from _products(graph, node.nodes)
        elif isinstance(node, ops.MatMul) or (
            isinstance(node, ops.Conv) and graph.tensor(node.inputs[1]).shape[1] > 1
        ):
            yield node


def _case(node: ops.Conv | ops.MatMul, tensors: dict[str, Tensor]) -> Case:
    made = replace(node, name="product", inputs=node.inputs[:2])
    x, w = (tensors[name] for name in made.inputs)
    y = tensors[made.output]
    if w.data is not None:
        tensors = {**tensors, w.name: _weights(w.name, w.shape)}
    inputs = tuple(name for name in made.inputs if tensors[name].data is None)
    graph = Graph("product", inputs, (made.output,), tensors, (made,))
    if isinstance(made, ops.Conv):
        return Case(*_convolution(made, x, w, y, graph))
    product = _matrix_product(made, x, w, y)
    m, n, k = math.prod(product.pixels), product.channels, product.k
    label = f"{m}x{n}x{k}" + (f" x{math.prod(product.batches)}" if product.batches else "")
    return Case(label, graph, product)


def _convolution(node: ops.Conv, x: Tensor, w: Tensor, y: Tensor, graph: Graph) -> tuple[str, Graph, Product]:
    pictures, channels, *extents = x.shape
    _, outputs, *made = y.shape
    k, size = w.shape[1], (w.shape[2], w.shape[3])
    product = Product(
        pixels=(pictures, made[0], made[1]),
        channels=outputs // node.group,
        k=k,
        x=Operand(x.dtype, _pixels(extents, channels), batches=(k,)),
        w=Constant(w.dtype, (1,)),
        y=Operand(y.dtype, _pixels(made, outputs), batches=(outputs // node.group,)),
        batches=(node.group,),
        window=Window(size, (extents[0], extents[1]), node.strides, node.pads[:2], node.dilations),
    )
    label = f"conv {size[0]}x{size[1]}/{node.strides[0]}, {channels}x{extents[0]}x{extents[1]} to {outputs}"
    return label, graph, product


def _pixels(extents: Sequence[int], channels: int) -> tuple[int, int, int]:
    return extents[0] * extents[1] * channels, extents[1] * channels, channels


def _matrix_product(node: ops.MatMul, x: Tensor, w: Tensor, y: Tensor) -> Product:
    *lead, m, k = x.shape
    n = y.shape[-1]
    if w.data is not None:
        pixels = (1, math.prod(lead), m)
        return Product(
            pixels, n, k, Operand(x.dtype, (0, m * k, k)), Constant(w.dtype), Operand(y.dtype, (0, m * n, n))
        )
    batches = tuple(extent for extent in lead if extent > 1)
    steps = [math.prod(batches[axis + 1 :]) for axis in range(len(batches))]

    def strided(size: int) -> tuple[int, ...]:
        return tuple(step * size for step in steps)

    of_w = (k, 1) if node.transposed else (1, n)
    return Product(
        (1, 1, m),
        n,
        k,
        Operand(x.dtype, (0, 0, k), batches=strided(m * k)),
        Matrix(w.dtype, *of_w, batches=strided(k * n)),
        Operand(y.dtype, (0, 0, n), batches=strided(m * n)),
        batches=batches,
    )


def _weights(name: str, shape: tuple[int, ...]) -> Tensor:
    random = np.random.default_rng(math.prod(shape))
    scale = 1 / math.sqrt(math.prod(shape[1:]))
    return Tensor(name, shape, DTYPE, data=dtypes.encode(random.normal(size=shape) * scale, DTYPE))


def measure(shaders: Shaders, case: Case) -> dict[str, Any]:
    """Run a product once.

    Returns:
        `name`, `m`, `n`, `k`, `batches`, `dtype`, `virtual_us`, `share_of_peak` (of the WMMA rate of all
        compute units), `waves`, `wave_instructions`, `wmma_share`, `cut` (tiles, pixels, split), `outside`
        (elements that no correct product stores: 0) and `worst_share` (of what is allowed).
    """
    product, graph = case.product, case.graph
    node = graph.nodes[0]
    random = np.random.default_rng(1)
    values = {
        name: dtypes.encode(random.normal(size=graph.tensor(name).shape), graph.tensor(name).dtype)
        for name in graph.inputs
    }
    x, w = (graph.tensor(name) for name in node.inputs)
    y = graph.tensor(node.output)
    picture = isinstance(node, ops.Conv)
    stored_x = values[x.name]
    if w.data is None:
        stored_w: Array = values[w.name]
    else:
        stored_w = product_weights(_sets(node, w.data, product), w.dtype, shaders.chip.generation)
    made = launch(shaders.chip, product)
    result = np.zeros(y.shape if not picture else tuple(y.shape[axis] for axis in (0, 2, 3, 1)), np.float16)
    pointers = [_innermost(stored_x) if picture else stored_x, stored_w, None, result]
    run = shaders.run(made.kernel, made.groups, pointers, made.words)
    found = run.arrays[3]
    assert found is not None
    actual = found.transpose(0, 3, 1, 2) if picture else found
    comparison = compare(expect(graph, node, values), actual, y.dtype)
    m, n, k = case.size
    peak = shaders.cost.matrix_rate(16) * shaders.chip.compute_units * shaders.clocks["GFXCLK"]
    return {
        "name": case.name,
        "m": m,
        "n": n,
        "k": k,
        "batches": math.prod(product.batches),
        "dtype": product.x.dtype,
        "virtual_us": round(run.virtual_us, 3),
        "share_of_peak": round(product.macs / peak / run.virtual_us, 4),
        "waves": run.outcome.waves,
        "wave_instructions": run.outcome.total,
        "wmma_share": round(run.outcome.instructions["wmma"] / run.outcome.total, 4),
        "cut": [made.cut.tiles, made.cut.pixels, made.cut.split],
        "outside": comparison.outside,
        "worst_share": round(comparison.worst_share, 4),
    }


def _innermost(array: Array) -> Array:
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1))


def _sets(node: Node, w: Array, product: Product) -> Array:
    """[sets, channels, taps, k]."""
    if isinstance(node, ops.Conv):
        parts = w.reshape(-1, product.channels, product.k, product.taps)
        return parts.swapaxes(2, 3)
    by_channel = w if isinstance(node, ops.MatMul) and node.transposed else w.T
    return by_channel.reshape(1, product.channels, 1, product.k)
