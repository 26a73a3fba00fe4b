"""What a product of floats is to a kernel: extents, strides, element types, and what becomes of the sums.

Nothing here has an address. What a product reads may lie anywhere: a transpose, a slice or a broadcast is
other strides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BATCH_AXES = 3
OPERANDS = 4
"""Tensors that an epilogue may read."""


@dataclass(frozen=True)
class Operand:
    """Where the elements of a tensor are, from its pointer on; strides are in elements, 0 or more.

    Attributes:
        dtype: float16, bfloat16 or float32.
        pixel: strides of (picture, row, column); of x: those of its own rows and columns.
        inner: stride of a channel; of x: of k.
        batches: strides of the product's batch axes.
    """

    dtype: str
    pixel: tuple[int, int, int]
    inner: int = 1
    batches: tuple[int, ...] = ()


@dataclass(frozen=True)
class Constant:
    """Weights that the target has packed.

    Attributes:
        dtype: of x, too, if that is float16 or bfloat16.
        batches: how many sets further a step along each batch axis goes; 0 where all have the same.
    """

    dtype: str
    batches: tuple[int, ...] = ()


@dataclass(frozen=True)
class Matrix:
    """The right side of a matrix product that is an activation.

    Attributes:
        channel, k: strides of a channel of y (a column of the matrix, as ONNX has it), and of k.
        batches: strides of the batch axes.
    """

    dtype: str
    channel: int
    k: int
    batches: tuple[int, ...] = ()


@dataclass(frozen=True)
class Window:
    """Which pixels of x make a pixel of y.

    Attributes:
        size: rows and columns of taps.
        strides, dilations: as Conv has them.
        pads: above and left. What is beside x counts as 0.
        x: rows and columns of x.
    """

    size: tuple[int, int]
    x: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    dilations: tuple[int, int] = (1, 1)


@dataclass(frozen=True)
class Epilogue:
    """What is stored in place of a sum.

    Attributes:
        text: OpenCL C that defines `float FUNCTION(float sum, const float *operand)`, after the target's
            kernels/expressions.h. `sum` has the bias, and is not rounded.
        function: its name.
        operands: the tensors that `operand` has the elements of: pixels and channels of y.
        instructions: about how many it has.
    """

    text: str
    function: str
    operands: tuple[Operand, ...] = ()
    instructions: int = 0


@dataclass(frozen=True)
class Product:
    """y[batch, pixel, channel] = bias[channel] + sum over taps and k of x * w, in float32.

    Attributes:
        batches: extents of at most three axes: of a matrix product, or the groups of a convolution.
        pixels: pictures, rows and columns of y.
        channels: of y, in a batch.
        k: of a tap.
        window: of a convolution; None: every pixel of y is made of that pixel of x.
        bias: whether there is one: float32, with as many sets as a constant w.
    """

    pixels: tuple[int, int, int]
    channels: int
    k: int
    x: Operand
    w: Constant | Matrix
    y: Operand
    batches: tuple[int, ...] = ()
    window: Window | None = None
    bias: bool = False
    epilogue: Epilogue | None = None

    @property
    def taps(self) -> int:
        return math.prod(self.window.size) if self.window else 1

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Of the epilogue."""
        return self.epilogue.operands if self.epilogue else ()

    @property
    def macs(self) -> int:
        return math.prod((*self.batches, *self.pixels, self.taps, self.channels, self.k))
