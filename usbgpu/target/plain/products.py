"""Convolutions and matrix products of floats: launches of kernels/plain/product.cl and fma.cl.

Pure functions of extents, strides and element types. What a product reads may lie anywhere: a transpose, a
slice or a broadcast is other strides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sdk.errors import InternalError, Unsupported
from sdk.opencl.calls import KernelSource, Words, divisor
from sdk.opencl.product import BATCH_AXES, OPERANDS, Constant, Matrix, Operand, Product, Window
from usbgpu.amd.facts.chips import Chip
from usbgpu.target.packing import TILE, round_up
from usbgpu.target.plain.packing import MATRIX_TYPES
from usbgpu.target.tiling import Tiling, Work, product_cuts, product_cycles, product_tiling, strip

REACH = 1 << 31
"""Bytes of a batch of an operand: a buffer's offsets have 32 bits, of which one says "nowhere"."""
SLACK = 32
"""Bytes behind an operand that a kernel may load, and never uses: there must be memory."""
TYPES = {"float16": "half", "bfloat16": "bf16", "float32": "float"}
"""What kernels call them."""


@dataclass(frozen=True)
class Launch:
    """A product's kernel and its arguments.

    Attributes:
        groups: workgroups in x and y.
        words: the struct behind the pointers, which are x, w, bias (None without one), y, and the epilogue's
            operands.
        cut: how it is cut into waves.
    """

    kernel: KernelSource
    groups: tuple[int, int]
    words: Words
    cut: Tiling


def cuts(chip: Chip, product: Product) -> dict[Tiling, float]:
    """The ways to cut a product, with the shader cycles that the cost model says they take.

    Raises:
        Unsupported: an operand reaches too far.
    """
    _check(product)
    flat = _flattened(product)
    work = _work(chip, flat, _orders(flat))
    return {cut: product_cycles(chip, cut, work) for cut in product_cuts(work)}


def pointer_nbytes(product: Product) -> list[int | None]:
    """Bytes that a launch may access from each of its pointers on; None for one that it has not."""
    flat = _flattened(product)
    orders = _orders(flat)
    total = flat.taps * -(-flat.k // TILE)
    x, w = _reaches(flat, orders, total)

    def further(of: Operand | Matrix | Constant) -> int:
        return sum((n - 1) * step for n, step in zip(flat.batches, of.batches, strict=False))

    def stored(of: Operand) -> int:
        last = sum((n - 1) * step for n, step in zip(flat.pixels, of.pixel, strict=True))
        return (last + (round_up(flat.channels) - 1) * of.inner + 1 + further(of)) * NBYTES[of.dtype] + SLACK

    sets = 1 + further(flat.w) if isinstance(flat.w, Constant) else 1
    w = w * sets if isinstance(flat.w, Constant) else w + further(flat.w) * NBYTES[flat.w.dtype]
    bias = sets * round_up(flat.channels) * NBYTES["float32"] if flat.bias else None
    x += further(flat.x) * NBYTES[flat.x.dtype]
    return [x + SLACK, w + SLACK, bias, *map(stored, (flat.y, *flat.operands))]


def launch(chip: Chip, product: Product, cut: Tiling | None = None) -> Launch:
    """The launch of a product.

    Args:
        chip: whose compute units it runs on.
        product: what to compute.
        cut: for tests and measurements; else the fastest one by `tiling.product_tiling`.

    Raises:
        Unsupported: an operand reaches too far.
    """
    _check(product)
    flat = _flattened(product)
    steps = -(-flat.k // TILE)
    total = flat.taps * steps
    pixels, batches = math.prod(flat.pixels), math.prod(flat.batches)
    matrix = takes_matrix(flat)
    orders = _orders(flat)
    if cut is None:
        cut = product_tiling(chip, _work(chip, flat, orders))
    elif not matrix:
        cut = Tiling(1, 1, cut.split)  # all that fma.cl offers
    across = -(-flat.channels // (TILE * cut.tiles))
    features = [f"SPLIT={cut.split}", f"X_ORDER={orders[0]}"]
    if matrix:
        features += [f"TILES={cut.tiles}", f"PIXELS={cut.pixels}", *["TAIL"] * bool(flat.k % TILE)]
    if matrix and isinstance(flat.w, Matrix):
        features.append(f"W_ORDER={orders[1]}")
    features += ["PACKED"] * isinstance(flat.w, Constant) + ["BATCHES"] * (batches > 1)
    words: Words = [pixels, flat.channels, flat.k, steps, total, -(-total // cut.split), *divisor(steps)]
    words += [*_reaches(flat, orders, total), *_places(flat)]
    if batches > 1:
        words += _batches(flat, across, total)
    if flat.window is not None:
        words += _window(flat, flat.window)
    kernel = _kernel("plain/product" if matrix else "plain/fma", 32 * cut.split, flat, features)
    width = cut.pixels * (TILE if matrix else LANES)
    return Launch(kernel, (-(-pixels // width), across * batches), words, cut)


def cycles(chip: Chip, product: Product) -> float:
    """Shader cycles of a product's launch, by `tiling.product_cycles`."""
    flat = _flattened(product)
    work = _work(chip, flat, _orders(flat))
    return product_cycles(chip, product_tiling(chip, work), work)


def depthwise(chip: Chip, product: Product) -> Launch:
    """The launch of a convolution that has its own weights for each channel.

    Args:
        chip: whose compute units it runs on.
        product: with a window, `k` of 1, w a constant of `packing.depthwise_weights`, and x whose `inner` is
            the stride of channels: 1. As many channels in x as in y; no batches.

    Raises:
        Unsupported: the window is too wide, or x reaches too far; `launch` with a batch a group takes it.
    """
    window = product.window
    if window is None or product.batches or product.k != 1 or product.x.inner != 1:
        raise InternalError(
            "a depthwise convolution has a window, a k of 1, channels in a row and no batches"
        )
    if window.size[1] > COLUMNS_LIMIT:
        raise Unsupported(f"a depthwise window is at most {COLUMNS_LIMIT} wide, not {window.size[1]}")
    pictures, rows, columns = product.pixels
    eights = -(-product.channels // 8)
    reach = replace(product, k=product.channels)
    pixels = strip(chip, pictures * rows, columns, eights)
    items = eights * -(-columns // pixels)
    features = [
        *(f"ROWS={window.size[0]}", f"COLUMNS={window.size[1]}", f"STRIP={pixels}"),
        *(f"STRIDE_X={window.strides[1]}", f"STEP_X={window.dilations[1]}"),
    ]
    words: Words = [eights, items, *divisor(eights), *divisor(rows), rows]
    words += [math.prod(product.pixels), product.channels, 1, 1, 1, 1, *divisor(1)]
    words += [*_reaches(reach, (ALONG, ALONG), 1), *_places(product), *_window(product, window)]
    kernel = _kernel("plain/depthwise", 64, product, features)
    return Launch(kernel, (-(-items // 64), pictures * rows), words, Tiling(1, pixels, 1))


COLUMNS_LIMIT = 32
"""Of the window of depthwise.cl, which is unrolled."""


def _places(product: Product) -> Words:
    words: Words = [*product.x.pixel, product.x.inner]
    words += [product.w.channel, product.w.k] if isinstance(product.w, Matrix) else [0, 0]
    for one in (product.y, *product.operands):
        words += [*one.pixel, one.inner]
    return words


def _work(chip: Chip, product: Product, orders: tuple[int, int]) -> Work:
    return Work(
        pixels=math.prod(product.pixels),
        tiles=-(-product.channels // TILE),
        steps=product.taps * -(-product.k // TILE),
        batches=math.prod(product.batches),
        taps=product.taps,
        loads=(loads(chip, orders[0]), loads(chip, orders[1])),
        width=NBYTES[product.y.dtype],
        matrix=takes_matrix(product),
        finish=product.epilogue.instructions if product.epilogue else 0,
    )


def loads(chip: Chip, order: int) -> Mapping[int, int]:
    """Memory instructions that load one, two and four operands."""
    if order == ALONG:
        each = 2 if chip.generation == 11 else 1
        return {count: each * count for count in (1, 2, 4)}
    held = 16 if chip.generation == 11 else 8
    return {count: held * (1 if order == ACROSS else count) for count in (1, 2, 4)}


LANES = 32
"""Pixels that a wave of fma.cl makes at a time."""


def takes_matrix(product: Product) -> bool:
    """Whether WMMA takes it."""
    return product.x.dtype == product.w.dtype and product.x.dtype in MATRIX_TYPES


def _check(product: Product) -> None:
    every = (product.x, product.w, product.y, *product.operands)
    if len(product.batches) > BATCH_AXES or len(product.operands) > OPERANDS:
        raise InternalError(f"{len(product.batches)} batch axes, {len(product.operands)} operands")
    if any(len(one.batches) not in (0, len(product.batches)) for one in every):
        raise InternalError(f"strides of batches do not fit {len(product.batches)} batch axes")


def _flattened(product: Product) -> Product:
    """With pixels as one axis where one stride says where they are, and without a window of one tap."""
    window = product.window
    if window is not None and (window.size != (1, 1) or window.strides != (1, 1) or window.pads != (0, 0)):
        return product
    tensors = (product.x, product.y, *product.operands)
    strides = [_single(product.pixels, one.pixel) for one in tensors]
    if None in strides:
        return product if window else replace(product, window=Window((1, 1), product.pixels[1:]))
    x, y, *others = (
        replace(one, pixel=(0, 0, stride or 0)) for one, stride in zip(tensors, strides, strict=True)
    )
    epilogue = replace(product.epilogue, operands=tuple(others)) if product.epilogue else None
    pixels = (1, 1, math.prod(product.pixels))
    return replace(product, pixels=pixels, window=None, x=x, y=y, epilogue=epilogue)


def _single(extents: Sequence[int], strides: Sequence[int]) -> int | None:
    """The stride of all axes as one; None if there is none."""
    stride, count = None, 1
    for extent, step in reversed(list(zip(extents, strides, strict=True))):
        if extent == 1:
            continue
        if stride is None:
            stride = step
        elif step != stride * count:
            return None
        count *= extent
    return stride or 0


ALONG, ACROSS, STRIDED, SAME = range(4)
"""How elements lie (kernels/plain/product.h)."""


def _orders(product: Product) -> tuple[int, int]:
    """How the elements of x and of w lie (kernels/plain/product.cl)."""
    x = ALONG if product.x.inner == 1 or product.k == 1 else STRIDED
    if x == STRIDED and product.window is None and product.x.pixel[2] == 1:
        x = ACROSS
    w = ALONG
    if isinstance(product.w, Matrix) and product.w.k != 1 and product.k > 1:
        w = ACROSS if product.w.channel == 1 else STRIDED
    return x, w


def _reaches(product: Product, orders: tuple[int, int], total: int) -> tuple[int, int]:
    """Bytes of x and of w, from the first element of a batch to the end of what is loaded."""
    _, rows, columns = product.pixels if product.window is None else (0, *product.window.x)
    last = [product.pixels[0] - 1, rows - 1, columns - 1]
    x = reach(sum(i * stride for i, stride in zip(last, product.x.pixel, strict=True)), product.k,
               product.x.inner, orders[0], product.x.dtype)  # fmt: skip
    if isinstance(product.w, Matrix):
        w = reach(
            (product.channels - 1) * product.w.channel, product.k, product.w.k, orders[1], product.w.dtype
        )
    else:
        w = round_up(product.channels) * total * TILE * NBYTES[product.w.dtype]
    if max(x, w) >= REACH:
        raise Unsupported(f"an operand of {max(x, w)} bytes is too large (limit: {REACH})")
    return x, w


def reach(outer: int, k: int, stride: int, order: int, dtype: str) -> int:
    """What is loaded in a row ends up to 15 elements behind the last one, what is loaded across up to 3."""
    end = outer + round_up(k) if order == ALONG else outer + (k - 1) * stride + 1
    return end * NBYTES[dtype] + (6 if order == ACROSS else 0)


NBYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


def _batches(product: Product, across: int, total: int) -> Words:
    words: Words = [*divisor(across), across]
    extents = (*product.batches, *(1,) * BATCH_AXES)[:BATCH_AXES]
    tile = total * TILE * TILE
    for axis in range(BATCH_AXES):
        within = math.prod(extents[axis + 1 :])

        def step(of: Operand | Matrix | Constant, axis: int = axis) -> int:
            return of.batches[axis] if axis < len(of.batches) else 0

        w, bias = step(product.w), 0
        if isinstance(product.w, Constant):
            bias = w * round_up(product.channels)
            w *= round_up(product.channels) // TILE * tile
        words += [*divisor(within), within, step(product.x), w, bias, step(product.y)]
        words += [step(one) for one in product.operands]
    return words


def _window(product: Product, window: Window) -> Words:
    _, rows, columns = product.pixels
    words: Words = [*divisor(rows * columns), *divisor(columns), *divisor(window.size[1])]
    words += [rows * columns, columns, window.size[1]]
    return [*words, *window.pads, *window.strides, *window.dilations, *window.x]


def _kernel(source: str, threads: int, product: Product, features: Sequence[str]) -> KernelSource:
    """A variant of kernels/SOURCE.cl, named after its macros."""
    names = {"X": product.x.dtype, "W": product.w.dtype, "Y": product.y.dtype}
    features = [*(f"{name}={TYPES[dtype]}" for name, dtype in names.items()), *features]
    features += ["WINDOW"] * (product.window is not None) + ["BIAS"] * product.bias
    features += ["EIGHTS"] * (product.y.inner == 1 and product.channels % 8 == 0)
    text = ""
    if product.epilogue is not None:
        features += [f"OPERANDS={len(product.operands)}", f"EPILOGUE={product.epilogue.function}"]
        for number, one in enumerate(product.operands):
            order = {0: SAME, 1: ALONG}.get(one.inner, STRIDED)
            features += [f"OPERAND{number}={TYPES[one.dtype]}", f"ORDER{number}={order}"]
        text = f'#include "plain/plain.h"\n{product.epilogue.text}\n#include "{source}.cl"\n'
    name = source.rsplit("/", 1)[-1]
    symbol = "_".join([name, *(feature.replace("=", "").lower() for feature in features)])
    return KernelSource(source, symbol, threads, (f"NAME={symbol}", *features), text)
