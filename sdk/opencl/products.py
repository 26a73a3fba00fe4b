"""Products of any types and steps: slow, for what no other kernel takes."""

from __future__ import annotations

from sdk import dtypes
from sdk.errors import Unsupported
from sdk.graph import Conv, ConvTranspose, MatMul, macs
from sdk.opencl import text
from sdk.opencl.context import PlainContext
from sdk.opencl.views import View
from sdk.opencl.windows import NAMES, each_element


def dot(context: PlainContext, node: Conv | ConvTranspose | MatMul) -> None:
    """A work-item sums one element: for what no other kernel takes."""
    x, w, *biases = (context.view(name) for name in node.inputs)
    y = context.new_view(context.graph.tensor(node.output))
    integral = dtypes.dtype(x.dtype).kind != "float"
    kind = "long" if integral else "float"
    work = macs(context.graph, node)
    if isinstance(node, MatMul):
        x, w = (View(v.at, *_rank(v, len(y.shape)), v.dtype) for v in (x, w))
        names = [f"a{axis}" for axis in range(len(y.shape))]
        batch = names[:-2]
        k_of, n_of = (-1, -2) if node.transposed else (-2, -1)
        x_at = text.place([*batch, names[-2], "k"], [*_still(x, -2), *x.steps[-2:]])
        w_at = text.place([*batch, names[-1], "k"], [*_still(w, -2), w.steps[n_of], w.steps[k_of]])
        loop, end = [f"  for (s32 k = 0; k < {x.shape[-1]}; k++) {{"], ["  }"]
        channel = names[-1]
    else:
        names = list(NAMES)
        per = w.shape[1] if isinstance(node, Conv) else x.shape[1] // node.group
        outputs = y.shape[1] // node.group
        channel = "c"
        shown = [f"  s32 group = (s32)(c / {outputs}), o = (s32)c - group * {outputs};"]
        loop = [
            *shown,
            f"  for (s32 dy = 0; dy < {w.shape[2]}; dy++) for (s32 dx = 0; dx < {w.shape[3]}; dx++) {{",
        ]
        if isinstance(node, Conv):
            loop += [
                f"    s32 i = (s32)row * {node.strides[0]} - {node.pads[0]} + dy * {node.dilations[0]};",
                f"    s32 j = (s32)column * {node.strides[1]} - {node.pads[1]} + dx * {node.dilations[1]};",
            ]
            w_at = text.place(["(s32)c", "k", "dy", "dx"], w.steps)
        else:
            loop += [
                f"    s32 i = (s32)row + {node.pads[0]} - dy * {node.dilations[0]};",
                f"    s32 j = (s32)column + {node.pads[1]} - dx * {node.dilations[1]};",
                f"    if (i % {node.strides[0]} || j % {node.strides[1]}) continue;",
                f"    i /= {node.strides[0]}; j /= {node.strides[1]};",
            ]
            w_at = text.place([f"(group * {per} + k)", "o", "dy", "dx"], w.steps)
        loop += [
            f"    if ((u32)i >= {x.shape[2]}u || (u32)j >= {x.shape[3]}u) continue;",
            f"    for (s32 k = 0; k < {per}; k++) {{",
        ]
        x_at = text.place(["n", f"(group * {per} + k)", "i", "j"], x.steps)
        end = ["    }", "  }"]
    a = f"load_{x.dtype}(x + ({x_at}) * {x.itemsize})"
    b = f"load_{w.dtype}(w0 + ({w_at}) * {w.itemsize})"
    step = f"sum += {a} * {b};" if integral else f"sum = FMA({a}, {b}, sum);"
    bias = ""
    if biases:
        size, dtype = biases[0].itemsize, biases[0].dtype
        bias = f"  sum += load_{dtype}(w1 + (s32){channel} * {biases[0].steps[-1] * size});"
    store = f"  store_{y.dtype}(y + to * {y.itemsize}, sum);"
    body = [f"  {kind} sum = 0;", *loop, f"    {step}", *end, bias, store]
    if integral and any(dtypes.dtype(view.dtype).kind == "float" for view in (w, y)):
        raise Unsupported(f"a product of {x.dtype} and {w.dtype} has no kernel")
    each_element(context, node, y, body, [x, w, *biases], names, work)


def _rank(view: View, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and steps with extents of 1 before them."""
    more = rank - len(view.shape)
    return (1,) * more + view.shape, (0,) * more + view.steps


def _still(view: View, end: int) -> list[int]:
    """Steps of the leading axes, 0 where there is one element for all."""
    return [0 if n == 1 else step for n, step in zip(view.shape[:end], view.steps[:end], strict=True)]
