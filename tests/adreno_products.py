"""Products of floats on an OpenCL device alone: laid out with any strides, run, compared with float64."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dsp.adreno import opencl
from dsp.adreno.plain_products import (
    KERNELS,
    ZEROS,
    Launch,
    depthwise,
    depthwise_weights,
    launch,
    product_bias,
    product_weights,
)
from dsp.adreno.workgroups import choose
from sdk import dtypes
from sdk.graph import Array
from sdk.opencl.product import Matrix, Product
from sdk.reference.comparison import Comparison, compare
from sdk.target import Sums
from tests import float_products
from tests.float_products import laid_out, nan, operand_strides, view

BEFORE = 3 * 16
"""Bytes before anything: nothing begins at its buffer's first byte."""
Mutation = Callable[[str], str]
"""Of a program."""


@functools.cache
def device() -> tuple[Any, Any, Any]:
    """(pyopencl, a context, a queue)."""
    cl = opencl._pyopencl()
    context = cl.Context([opencl.choose(None).handle])
    return cl, context, cl.CommandQueue(context)


class Trial(float_products.Trial):
    """Runs by OpenCL."""

    def run(self, sums: Sums = "half", mutation: Mutation | None = None, **choices: Any) -> Array:
        """What the kernel stores, as [batches.., pictures, rows, columns, channels]."""
        p = self.product
        made = launch(p, sums, **choices)
        if isinstance(p.w, Matrix):
            w = laid_out(self.w, (*p.w.batches, p.w.channel, p.w.k), nan(p.w.dtype))
        else:
            w = product_weights(self.w, made.tile[1])
        return self._stored(made, w, mutation)

    def run_depthwise(self, sums: Sums = "half", mutation: Mutation | None = None, **choices: Any) -> Array:
        """The same of a convolution of each channel: x is [pictures, rows, columns, channels]."""
        window = self.product.window
        assert window is not None
        w = depthwise_weights(self.w.reshape(-1, *window.size))
        return self._stored(depthwise(self.product, sums, **choices), w, mutation)

    def _stored(self, made: Launch, w: Array, mutation: Mutation | None) -> Array:
        cl, context, queue = device()
        p = self.product
        shape = (*p.batches, *p.pixels, p.channels)
        arrays = {
            "x": laid_out(self.x, operand_strides(p.x), nan(p.x.dtype)),
            "w": w.reshape(-1),
        }
        if self.bias is not None:
            arrays["bias"] = product_bias(self.bias).reshape(-1)
        storage = dtypes.storage(p.y.dtype)
        filling = np.full((), 0x7DA5 if storage.itemsize == 2 else 0x7FA5A5A5, f"u{storage.itemsize}")
        filling = filling.view(storage)
        arrays["y"] = laid_out(np.full(shape, filling), operand_strides(p.y), filling)
        operands = [
            laid_out(array, operand_strides(one), nan(one.dtype))
            for array, one in zip(self.others, p.operands, strict=True)
        ]
        kernel = self._kernel(made, mutation)
        number = len(made.memories)
        waiting = iter(operands)
        kept = []
        for place, memory in enumerate(made.memories):
            values = next(waiting) if memory.role == "operand" else arrays[memory.role]
            unit = dtypes.storage(memory.dtype).itemsize * (4 if memory.kind == "image" else 1)
            whole = _placed(values, memory.dtype, zeros=memory.role == "x")
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            buffer = argument = cl.Buffer(context, flags, hostbuf=whole)
            if memory.kind == "image":
                kind = "HALF_FLOAT" if memory.dtype == "float16" else "FLOAT"
                form = cl.ImageFormat(cl.channel_order.RGBA, getattr(cl.channel_type, kind))
                texels = (len(whole) // unit,)
                argument = cl.create_image(context, cl.mem_flags.READ_ONLY, form, texels, buffer=buffer)
            kept.append((buffer, argument))
            kernel.set_arg(place, argument)
            kernel.set_arg(number + place, np.int32(BEFORE))
            if memory.role == "y":
                target, stored = buffer, whole
        kernel.set_arg(2 * number, np.int32(BEFORE))
        kernel.set_arg(2 * number + 1, np.array(made.words, np.int32))
        local, _ = choose(made.items)
        whole_items = tuple(-(-items // size) * size for items, size in zip(made.items, local, strict=True))
        cl.enqueue_nd_range_kernel(queue, kernel, whole_items, local)
        cl.enqueue_copy(queue, stored, target)
        found = stored[BEFORE:].view(storage)
        result = view(found, shape, operand_strides(p.y)).copy()
        view(found, shape, operand_strides(p.y))[...] = filling
        expected = _placed(arrays["y"], p.y.dtype, zeros=False)
        np.testing.assert_array_equal(stored, expected, "elements of others were written")
        return result

    def _kernel(self, made: Launch, mutation: Mutation | None) -> Any:
        cl, context, _ = device()
        source = (KERNELS / "numbers.h").read_text() + made.text
        source = source.replace("#pragma once\n", "")
        if mutation is not None:
            source = mutation(source)
        program = cl.Program(context, source).build(["-cl-std=CL1.2", "-Werror"], cache_dir=False)
        return getattr(program, made.function)

    def check(self, sums: Sums = "half", mutation: Mutation | None = None, **choices: Any) -> Comparison:
        """Run it, and compare it with its definition; not for one with an epilogue."""
        result = self.run(sums, mutation, **choices)
        halves = launch(self.product, sums).sums == "half"
        return compare(self.expected(halves).stored(self.product.y.dtype), result, self.product.y.dtype)


def _placed(values: Array, dtype: str, *, zeros: bool) -> Array:
    """Bytes of a buffer: values behind zeros or NaN, and NaN behind them."""
    storage = dtypes.storage(dtype)
    poison = nan(dtype)
    before = np.full(BEFORE // storage.itemsize, poison, storage)
    if zeros:
        before[-(ZEROS // storage.itemsize) :] = 0
    behind = np.full(-len(values) % (16 // storage.itemsize), poison, storage)
    return np.concatenate([before, values.astype(storage, copy=False), behind]).view(np.uint8)


def trial(product: Product, seed: int = 0) -> Trial:
    """With random data."""
    made = float_products.trial(product, seed)
    return Trial(made.product, made.x, made.w, made.bias, made.others)
