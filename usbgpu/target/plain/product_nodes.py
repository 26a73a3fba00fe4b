"""Products of plain tensors on a card: launches of `products`."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sdk.opencl.calls import Pointer
from sdk.opencl.product_nodes import Placed
from usbgpu.target.calls import WRITTEN
from usbgpu.target.context import Context
from usbgpu.target.plain import products
from usbgpu.target.plain.packing import depthwise_weights, product_bias, product_weights
from usbgpu.target.plain.products import COLUMNS_LIMIT, TYPES, Launch


class CardKernels:
    """Of kernels/plain."""

    types: Collection[str] = TYPES
    headers = WRITTEN.rstrip()

    def product(self, context: Context, placed: Placed) -> None:
        own, w = placed.product, placed.w
        if isinstance(w, np.ndarray):
            dtype = own.w.dtype if products.takes_matrix(own) else "float32"
            w = context.constant(product_weights(w, dtype, context.chip.generation))
        made = products.launch(context.chip, own, context.cut(placed.node.name, own))
        _emit(context, placed, made, w)

    def depthwise(self, context: Context, placed: Placed) -> bool:
        own, w = placed.product, placed.w
        assert own.window is not None
        assert isinstance(w, np.ndarray)
        if own.x.inner != 1 or own.window.size[1] > COLUMNS_LIMIT or own.w.dtype not in TYPES:
            return False
        packed = context.constant(depthwise_weights(w.reshape(-1, *own.window.size)))
        _emit(context, placed, products.depthwise(context.chip, own), packed)
        return True


def _emit(context: Context, placed: Placed, made: Launch, w: Pointer) -> None:
    bias = None if placed.bias is None else context.constant(product_bias(placed.bias))
    pointers = [placed.x, w, bias, placed.y, *placed.others]
    context.emit(
        placed.node,
        placed.op,
        made.kernel,
        made.groups,
        pointers,
        made.words,
        placed.macs,
        complete=placed.complete,
    )
