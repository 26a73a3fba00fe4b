"""Conv, ConvTranspose and MatMul, with the Maps that join them: what each is as a `Product`.

A target's `Kernels` make launches of these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from sdk import dtypes
from sdk.expression import Expression, statements
from sdk.graph import Array, Conv, ConvTranspose, Graph, Map, MatMul, Node, Tensor, macs
from sdk.opencl.calls import Pointer, Weights
from sdk.opencl.context import PlainContext
from sdk.opencl.maps import composed, maps
from sdk.opencl.product import (
    BATCH_AXES,
    OPERANDS,
    Constant,
    Epilogue,
    Matrix,
    Operand,
    Product,
    Window,
)
from sdk.opencl.products import dot
from sdk.opencl.views import View, dense_steps

ProductNode = Conv | ConvTranspose | MatMul
FINISH = "finish_map"
"""What a written epilogue is called."""


@dataclass(frozen=True)
class Placed:
    """A product of a network, or a part of one, and where its operands are.

    Attributes:
        node: whose output it stores.
        op: what tables call it.
        product: what is computed.
        x: where x begins.
        w: where an activation begins; or weights as stored, [sets, O, taps, k].
        bias: [sets, O], float32.
        y: where y begins.
        others: where what the epilogue reads begins.
        macs: multiply-accumulates of the network.
        complete: whether the output is there after it.
    """

    node: Node
    op: str
    product: Product
    x: Pointer
    w: Pointer | Array
    bias: Array | None
    y: Pointer
    others: Sequence[Pointer]
    macs: int
    complete: bool = True


class Kernels(Protocol):
    """A target's kernels of products.

    Attributes:
        types: dtypes of the operands that they take.
        headers: what an epilogue begins with.
    """

    types: Collection[str]
    headers: str

    def product(self, context: Any, placed: Placed) -> None:
        """Launches of any product."""
        ...

    def depthwise(self, context: Any, placed: Placed) -> bool:
        """Launches of a convolution that has weights of its own for each channel, of which x has as many; `k`
        is 1. False if it is to be a product with a batch for each group.
        """
        ...


def joins(types: Collection[str], graph: Graph, node: Node, chain: Sequence[Map]) -> bool:
    """Whether Maps can be computed of a product's sums, in its launch."""
    made, out = graph.tensor(node.output), graph.tensor(chain[-1].output)
    if not isinstance(node, ProductNode) or made.dtype not in types or out.dtype not in types:
        return False
    _, names = composed(graph, chain, node.output)
    others = [graph.tensor(name) for name in names[1:]]
    return len(others) <= OPERANDS and all(other.dtype in types for other in others)


def product(kernels: Kernels, context: PlainContext, group: Sequence[Node]) -> None:
    """A product and the Maps behind it."""
    first, *rest = group
    assert isinstance(first, ProductNode)
    fused = [node for node in rest if isinstance(node, Map)]
    if _lower(kernels, context, first, fused):
        return
    if not fused or not _lower(kernels, context, first, []):
        dot(context, first)
    if fused:
        maps(context, fused)


def _lower(kernels: Kernels, context: PlainContext, node: ProductNode, fused: Sequence[Map]) -> bool:
    """Launches of `kernels`, if they take the node."""
    graph = context.graph
    x, w = context.view(node.inputs[0]), _right(context, node)
    if any(view.dtype not in kernels.types or min(view.steps, default=0) < 0 for view in (x, w)):
        return False
    if graph.tensor(node.output).dtype not in kernels.types or min(x.size, w.size) == 0:
        return False
    ending = _ending(kernels, context, node, fused)
    if ending is None:
        return False
    if isinstance(node, MatMul):
        return _matmul(kernels, context, node, ending, x, w)
    if graph.tensor(node.inputs[1]).data is None:
        return False
    if isinstance(node, Conv):
        return _conv(kernels, context, node, ending, x)
    return _conv_transpose(kernels, context, node, ending, x)


def _right(context: PlainContext, node: ProductNode) -> View:
    """The second operand. A constant is stored packed alone: this view of it has no place."""
    tensor = context.graph.tensor(node.inputs[1])
    if tensor.data is None:
        return context.view(tensor.name)
    return View(Weights(0), tensor.shape, dense_steps(tensor.shape), tensor.dtype)


# -- the end of a product ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ending:
    """What becomes of a product's sums.

    Attributes:
        node: whose output is stored.
        op: what tables call it.
        others: what the epilogue reads, with the shape of the output.
        text: of the epilogue; None for none.
        bias: of the product, [O].
        instructions: of the epilogue, about.
    """

    node: Node
    op: str
    others: tuple[View, ...]
    text: str | None
    bias: Array | None
    instructions: int = 0

    def epilogue(self, operand: Callable[[View], Operand]) -> Epilogue | None:
        if self.text is None:
            return None
        return Epilogue(self.text, FINISH, tuple(operand(view) for view in self.others), self.instructions)

    def placed(
        self,
        product: Product,
        x: Pointer,
        w: Pointer | Array,
        sets: int,
        y: View,
        work: int,
        complete: bool = True,
    ) -> Placed:
        """A product that ends so, whose bias has so many sets."""
        bias = None
        if self.bias is not None:
            bias = np.broadcast_to(self.bias.reshape(-1, product.channels), (sets, product.channels))
        others = [view.pointer for view in self.others]
        return Placed(self.node, self.op, product, x, w, bias, y.pointer, others, work, complete)


def _ending(
    kernels: Kernels, context: PlainContext, node: ProductNode, fused: Sequence[Map]
) -> _Ending | None:
    graph = context.graph
    bias = None
    if len(node.inputs) > 2:
        tensor = graph.tensor(node.inputs[2])
        if tensor.data is None:
            return None
        bias = dtypes.decode(tensor.data, tensor.dtype).astype(np.float32)
    if not fused:
        return _Ending(node, node.op, (), None, bias)
    expression, names = composed(graph, fused, node.output)
    out = graph.tensor(fused[-1].output)
    others = tuple(context.view(name).broadcast(out.shape) for name in names[1:])
    if any(min(view.steps, default=0) < 0 for view in others):
        return None
    op = "+".join(one.op for one in (node, *fused))
    text = _finish(kernels.headers, expression, graph.tensor(node.output))
    return _Ending(fused[-1], op, others, text, bias, instructions(expression))


def instructions(expression: Expression) -> int:
    """A guess; elementary functions have 8 to 60 (kernels/plain/maths.h)."""
    simple = ("add", "sub", "mul", "neg", "abs", "min", "max", "round", "select", "constant")
    return sum(2 if step.op in simple else 15 for step in expression.steps if step.op != "constant")


def _finish(headers: str, expression: Expression, made: Tensor) -> str:
    """The function: what the product would have stored is rounded as that."""
    lines, result = statements(
        expression, ["own", *(f"operand[{i}]" for i in range(len(expression.inputs) - 1))], "opencl"
    )
    return "\n".join(
        [
            headers,
            f"static inline float {FINISH}(float sum, const float *operand) {{",
            f"  float own = round_{made.dtype}(sum);",
            *(f"  {line}" for line in lines),
            f"  return {result};",
            "}",
        ]
    )


# -- convolutions -----------------------------------------------------------------------------------------


def _conv(kernels: Kernels, context: PlainContext, node: Conv, ending: _Ending, x: View) -> bool:
    graph = context.graph
    weight = graph.tensor(node.inputs[1])
    assert weight.data is not None
    window = Window(
        (weight.shape[2], weight.shape[3]),
        (x.shape[2], x.shape[3]),
        node.strides,
        node.pads[:2],
        node.dilations,
    )
    work = macs(graph, node)
    y = context.new_view(graph.tensor(ending.node.output))
    outputs, per = weight.shape[:2]
    if per == 1 and node.group == x.shape[1] == outputs:
        own = Product(
            (y.shape[0], *y.shape[2:]),  # type: ignore[arg-type]
            outputs,
            1,
            _picture(x),
            Constant(weight.dtype),
            _picture(y),
            window=window,
            bias=ending.bias is not None,
            epilogue=ending.epilogue(_picture),
        )
        taps = weight.data.reshape(1, outputs, -1, 1)
        if kernels.depthwise(context, ending.placed(own, x.pointer, taps, 1, y, work)):
            return True
    _convolve(kernels, context, ending, x, y, weight.data, weight.dtype, node.group, window, work)
    return True


def _conv_transpose(
    kernels: Kernels, context: PlainContext, node: ConvTranspose, ending: _Ending, x: View
) -> bool:
    """A convolution for each position of the output modulo the strides, by the taps that reach it."""
    graph = context.graph
    weight = graph.tensor(node.inputs[1])
    assert weight.data is not None
    channels, per, *size = weight.shape
    split = weight.data.reshape(node.group, channels // node.group, per, *size)
    data = split.transpose(0, 2, 1, 3, 4).reshape(node.group * per, channels // node.group, *size)
    out = graph.tensor(ending.node.output)
    if any(extent < stride for extent, stride in zip(out.shape[2:], node.strides, strict=True)):
        return False
    places = [(row, column) for row in range(node.strides[0]) for column in range(node.strides[1])]
    reached = [[_reaching(node, axis, at, size[axis]) for axis, at in enumerate(place)] for place in places]
    if not all(taps for both in reached for taps in both):
        return False
    y = context.new_view(out)
    work = macs(graph, node) // len(places)
    for number, (place, both) in enumerate(zip(places, reached, strict=True)):
        shape = (
            *out.shape[:2],
            *(-(-(n - at) // s) for n, at, s in zip(out.shape[2:], place, node.strides, strict=True)),
        )
        start, strides = (0, 0, *place), (1, 1, *node.strides)
        picked = data[:, :, [tap for _, tap in both[0]]][:, :, :, [tap for _, tap in both[1]]]
        down, right = (taps[1][0] - taps[0][0] if len(taps) > 1 else 1 for taps in both)
        pads = -both[0][0][0], -both[1][0][0]
        window = Window(
            (len(both[0]), len(both[1])),
            (x.shape[2], x.shape[3]),
            (1, 1),
            pads,
            (down, right),
        )
        part = replace(ending, others=tuple(view.sliced(start, strides, shape) for view in ending.others))
        target = y.sliced(start, strides, shape)
        last = number == len(places) - 1
        _convolve(kernels, context, part, x, target, picked, weight.dtype, node.group, window, work, last)
    return True


def _reaching(node: ConvTranspose, axis: int, at: int, kernel: int) -> list[tuple[int, int]]:
    """The taps that add to positions `at`, `at` + stride, ...: where the first reads, and which, in order."""
    stride, dilation, pad = node.strides[axis], node.dilations[axis], node.pads[axis]
    found = [(at + pad - tap * dilation, tap) for tap in range(kernel)]
    return sorted((first // stride, tap) for first, tap in found if first % stride == 0)


def _convolve(
    kernels: Kernels,
    context: PlainContext,
    ending: _Ending,
    x: View,
    y: View,
    weights: Array,
    dtype: str,
    groups: int,
    window: Window,
    work: int,
    complete: bool = True,
) -> None:
    """Launches of a convolution with weights [O, I / groups, kh, kw]."""
    outputs, per = weights.shape[:2]
    each = outputs // groups

    def operand(view: View, channels: int = each) -> Operand:
        batches = (channels * view.steps[1],) if groups > 1 else ()
        return replace(_picture(view), batches=batches)

    own = Product(
        (y.shape[0], y.shape[2], y.shape[3]),
        each,
        per,
        operand(x, per),
        Constant(dtype, (1,) if groups > 1 else ()),
        operand(y),
        batches=(groups,) if groups > 1 else (),
        window=window,
        bias=ending.bias is not None,
        epilogue=ending.epilogue(operand),
    )
    taps = weights.reshape(groups, each, per, -1).transpose(0, 1, 3, 2)
    kernels.product(context, ending.placed(own, x.pointer, taps, groups, y, work, complete))


def _picture(view: View) -> Operand:
    n, c, h, w = view.steps
    return Operand(view.dtype, (n, h, w), c)


# -- matrices ---------------------------------------------------------------------------------------------


def _matmul(kernels: Kernels, context: PlainContext, node: MatMul, ending: _Ending, a: View, b: View) -> bool:
    graph = context.graph
    out = graph.tensor(ending.node.output)
    if len(a.shape) < 2 or len(b.shape) < 2 or len(out.shape) > 2 + BATCH_AXES:
        return False
    lead = out.shape[:-2]
    m, n, k = out.shape[-2], out.shape[-1], a.shape[-1]
    k_axis, n_axis = (-1, -2) if node.transposed else (-2, -1)
    data = graph.tensor(node.inputs[1]).data
    a_lead = View(a.at, a.shape[:-2], a.steps[:-2], a.dtype).broadcast(lead).steps
    b_lead = View(b.at, b.shape[:-2], b.steps[:-2], b.dtype).broadcast(lead).steps
    others = [view.steps for view in ending.others]
    y = context.new_view(out)
    # What has the same b is more rows of a.
    axes = joined(lead, a_lead, b_lead, y.steps[:-2], *(steps[:-2] for steps in others))
    rows = [axis for axis in axes if axis[1][1] == 0]
    batches = [axis for axis in axes if axis[1][1] != 0]
    while len(rows) > 2:
        batches.append(rows.pop(0))
    rows = [(1, (0,) * (3 + len(others)))] * (2 - len(rows)) + rows

    def operand(stream: int, row: int, inner: int, dtype: str) -> Operand:
        pixel = (rows[0][1][stream], rows[1][1][stream], row)
        return Operand(dtype, pixel, inner, tuple(steps[stream] for _, steps in batches))

    w: Constant | Matrix
    place: Pointer | Array = b.pointer
    sets = 1
    if data is not None:
        place = (data if node.transposed else data.swapaxes(-1, -2)).reshape(-1, n, 1, k)
        sets = len(place)
        w = Constant(b.dtype, tuple(steps[1] // (n * k) for _, steps in batches))
    else:
        w = Matrix(b.dtype, b.steps[n_axis], b.steps[k_axis], tuple(steps[1] for _, steps in batches))
    named = iter(range(3, 3 + len(others)))

    def other(view: View) -> Operand:
        return operand(next(named), view.steps[-2], view.steps[-1], view.dtype)

    own = Product(
        (rows[0][0], rows[1][0], m),
        n,
        k,
        operand(0, a.steps[-2], a.steps[-1], a.dtype),
        w,
        operand(2, y.steps[-2], y.steps[-1], y.dtype),
        batches=tuple(extent for extent, _ in batches),
        bias=ending.bias is not None,
        epilogue=ending.epilogue(other),
    )
    kernels.product(context, ending.placed(own, a.pointer, place, sets, y, macs(graph, node)))
    return True


def joined(extents: Sequence[int], *steps: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
    """Loops over axes in their order, with neighbours joined where all streams move as along one."""
    found: list[tuple[int, tuple[int, ...]]] = []
    for extent, *one in zip(extents, *steps, strict=True):
        if extent == 1:
            continue
        if found and all(outer == extent * step for outer, step in zip(found[-1][1], one, strict=True)):
            extent *= found.pop()[0]
        found.append((extent, tuple(one)))
    return found
