"""Products of floats on the shader executor alone: laid out with any strides, run, compared with float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from emulator.amdgpu.seams import Outcome
from sdk import dtypes
from sdk.graph import Array
from sdk.opencl.product import Matrix, Product
from sdk.reference.comparison import Comparison, compare
from tests import float_products
from tests.float_products import laid_out, nan, operand_strides, view
from towline.cli.benchmarks.shaders import Shaders
from usbgpu.target.build import KERNELS
from usbgpu.target.plain.packing import depthwise_weights, product_bias, product_weights
from usbgpu.target.plain.products import Launch, depthwise, launch
from usbgpu.target.tiling import Tiling

MEMORY = 32 << 20
Mutation = Callable[[str], str]
"""Of the source of a kernel, headers of its own included."""


def whole(source: str) -> str:
    """The text of a kernel with the header of products in it."""
    header = (KERNELS / "plain/product.h").read_text().replace("#pragma once\n", "")
    return (KERNELS / f"{source}.cl").read_text().replace('#include "plain/product.h"', header)


class Trial(float_products.Trial):
    """Runs on the executor."""

    def run(
        self, shaders: Shaders, cut: Tiling | None = None, mutation: Mutation | None = None
    ) -> tuple[Array, Outcome]:
        """What the kernel stores, as [batches.., pictures, rows, columns, channels]."""
        p = self.product
        made = launch(shaders.chip, p, cut)
        kernel = made.kernel
        if mutation is not None:
            kernel = replace(kernel, text=mutation(whole(kernel.source)))
        if isinstance(p.w, Matrix):
            w = laid_out(self.w, (*p.w.batches, p.w.channel, p.w.k), nan(p.w.dtype))
        else:
            w = product_weights(self.w, p.w.dtype, shaders.chip.generation)
        return self._stored(shaders, replace(made, kernel=kernel), w)

    def run_depthwise(self, shaders: Shaders) -> Array:
        """The same of a convolution of each channel: x is [pictures, rows, columns, channels]."""
        window = self.product.window
        assert window is not None
        w = depthwise_weights(self.w.reshape(-1, *window.size))
        return self._stored(shaders, depthwise(shaders.chip, self.product), w)[0]

    def _stored(self, shaders: Shaders, made: Launch, w: Array) -> tuple[Array, Outcome]:
        p = self.product
        shape = (*p.batches, *p.pixels, p.channels)
        x = laid_out(self.x, operand_strides(p.x), nan(p.x.dtype))
        bias = None if self.bias is None else product_bias(self.bias)
        storage = dtypes.storage(p.y.dtype)
        filling = np.full((), 0x7DA5 if storage.itemsize == 2 else 0x7FA5A5A5, f"u{storage.itemsize}").view(
            storage
        )
        y = laid_out(np.full(shape, filling), operand_strides(p.y), filling)
        others = [
            laid_out(array, operand_strides(one), nan(one.dtype))
            for array, one in zip(self.others, p.operands, strict=True)
        ]
        run = shaders.run(made.kernel, made.groups, [x, w, bias, y, *others], made.words)
        assert not run.scratch, "registers do not suffice"
        stored = run.arrays[3]
        assert stored is not None
        result = view(stored, shape, operand_strides(p.y)).copy()
        view(stored, shape, operand_strides(p.y))[...] = filling
        raw = f"u{stored.itemsize}"
        np.testing.assert_array_equal(stored.view(raw), y.view(raw), "elements of others were written")
        return result, run.outcome

    def check(
        self, shaders: Shaders, cut: Tiling | None = None, mutation: Mutation | None = None
    ) -> Comparison:
        """Run it, and compare it with its definition; not for one with an epilogue."""
        result, _ = self.run(shaders, cut, mutation)
        return compare(self.expected().stored(self.product.y.dtype), result, self.product.y.dtype)


def trial(product: Product, seed: int = 0) -> Trial:
    """With random data."""
    made = float_products.trial(product, seed)
    return Trial(made.product, made.x, made.w, made.bias, made.others)
