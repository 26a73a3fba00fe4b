"""Convolutions and matrix products of floats: launches of kernels/plain/float_*.cl.

Pure functions of extents, strides and element types. What lies in texels of four, by channels or by k, is
read as a one-dimensional image of the buffer that it is in; anything else element by element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from dsp.adreno.packing import blocks
from dsp.adreno.plan import TEXEL
from sdk import dtypes
from sdk.graph import Array
from sdk.opencl.calls import Words
from sdk.opencl.product import BATCH_AXES, Constant, Epilogue, Matrix, Operand, Product, Window
from sdk.target import Sums

KERNELS = Path(__file__).parent / "kernels/plain"

RUN = 16
"""Products that are added in half arithmetic."""

TYPES = {"float16": "half", "float32": "float"}
"""What kernels call them."""

TILES = {"half": 12, "float32": 21}
"""Pixels times blocks of channels that a work-item makes at most: what does not fit 48 registers of an a6xx
is spilled (measured with Mesa's ir3)."""
MOST_PIXELS, MOST_BLOCKS = 8, 3
POINTER_TILE = 4
"""The same where operands are no images, and a texel takes four loads."""

LOAD = 3
"""Issue slots of a texel: the instruction, its coordinate, and a 0 behind that (measured with Mesa's ir3)."""
PARALLEL = 2 * 128 * 4
"""Work-items below which a launch takes no less time: two processors, waves of 128, four of them to hide
waits for memory (grade: inferred from Adreno 630's two shader processors)."""

COLUMNS_LIMIT = RUN
"""A depthwise window is at most so wide: its row is unrolled."""

ZEROS = 16
"""Bytes: a texel of what is beside x."""

Kind = Literal["image", "pointer"]


@dataclass(frozen=True)
class Memory:
    """An argument: an image1d_buffer_t of RGBA texels, or a pointer.

    The kernel's next arguments, an int for each of these in the same order, are the bytes before what it
    reads or writes there; then come those before the memory of x, of which the last ZEROS are zeros; then the
    struct.

    Attributes:
        role: "x", "w", "bias", "y", or "operand" in their order.
        dtype: float16 or float32.
    """

    role: str
    kind: Kind
    dtype: str


@dataclass(frozen=True)
class Launch:
    """A product's kernel and its arguments.

    Attributes:
        function: the kernel's name in `text`.
        text: OpenCL C, after kernels/plain/numbers.h.
        memories: the first arguments.
        items: work-items in x, y, z.
        words: the struct at the end: 32 bits each.
        tile: (pixels, blocks of four channels) of a work-item.
        constants: what a plan says of the kernel, for its figures; `ir3.floats.of_words` has the rest.
        trips: iterations of the inner loop.
        sums: how it adds.
    """

    function: str
    text: str
    memories: tuple[Memory, ...]
    items: tuple[int, int, int]
    words: Words
    tile: tuple[int, int]
    sums: Sums
    constants: tuple[tuple[str, int], ...]
    trips: int


# -- products -----------------------------------------------------------------------------------------------


def launch(
    product: Product,
    sums: Sums = "half",
    *,
    x_texels: bool = True,
    w_texels: bool = True,
    tile: tuple[int, int] | None = None,
) -> Launch:
    """The launch of a product.

    Args:
        product: of float16 and float32.
        sums: what is wanted; anything of float32 is added in float32.
        x_texels: whether x begins at a texel of a buffer that can be read as an image.
        w_texels: the same of w, if that is an activation.
        tile: for tests and measurements; else the one of the fewest issue slots.
    """
    flat = _flattened(product)
    sums = _sums(flat, sums)
    image = x_texels and _is_texels(flat, flat.x.inner, (*_used(flat, flat.x), *_batches(flat, flat.x)))
    form = _w_form(flat, w_texels)
    if tile is None:
        tile = _tile(flat, sums, image and form != "ELEMENTS")
    pixels, across = tile
    strips = -(-blocks(flat.channels) // across)
    batch = math.prod(flat.batches)
    pictures, rows, columns = flat.pixels
    features = [f"PIXELS {pixels}", f"BLOCKS {across}", f"W_{form}"]
    features += ["X_IMAGE"] * image + ["TAIL"] * bool(flat.k % TEXEL) + ["BATCHES"] * (batch > 1)
    features += ["WINDOW"] * (flat.window is not None)
    memories = [
        Memory("x", "image" if image else "pointer", flat.x.dtype),
        Memory("w", "pointer" if form == "ELEMENTS" else "image", flat.w.dtype),
    ]
    words: Words = [columns, pictures * rows, rows, flat.channels, strips]
    words += [flat.k // TEXEL, flat.k % TEXEL]
    words += (1,) * (BATCH_AXES - len(flat.batches)) + flat.batches
    words += [*_place(flat, flat.x, TEXEL if image else 1), *_place(flat, flat.y)]
    words += _w_words(flat, form, strips, across)
    if flat.window is not None:
        words += _window(flat.window)
    items = -(-columns // pixels), pictures * rows, strips * batch
    return _launch("float_product", flat, features, memories, words, items, tile, sums)


def product_weights(weights: Array, across: int) -> Array:
    """[sets, O, taps, k] -> texels [sets, strips of `across` blocks, taps, k / 4, across, 4 of k, 4 of O]."""
    sets, outputs, taps, k = weights.shape
    strips, fours = -(-blocks(outputs) // across), blocks(k)
    full = np.zeros((sets, strips * across * TEXEL, taps, fours * TEXEL), weights.dtype)
    full[:, :outputs, :, :k] = weights
    split = full.reshape(sets, strips, across, TEXEL, taps, fours, TEXEL)
    return np.ascontiguousarray(split.transpose(0, 1, 4, 5, 2, 6, 3))


def product_bias(bias: Array) -> Array:
    """[sets, O] -> [sets, whole blocks], float32."""
    full = np.zeros((len(bias), blocks(bias.shape[1]) * TEXEL), np.float32)
    full[:, : bias.shape[1]] = bias
    return full


def _flattened(product: Product) -> Product:
    """With as few axes of pixels as strides allow; a window of one tap without borders is none."""
    window = product.window
    if window is not None and window.size == (1, 1) and window.pads == (0, 0):
        last = [(n - 1) * s for n, s in zip(product.pixels[1:], window.strides, strict=True)]
        if all(at < extent for at, extent in zip(last, window.x, strict=True)):
            n, h, w = product.x.pixel
            x = replace(product.x, pixel=(n, h * window.strides[0], w * window.strides[1]))
            product, window = replace(product, window=None, x=x), None
    if window is not None:
        return product
    streams = (product.x, product.y, *product.operands)
    extents = list(product.pixels)
    steps = [list(stream.pixel) for stream in streams]
    for outer in (1, 0):  # rows and columns; pictures and those
        inner = outer + 1
        if extents[outer] == 1 or all(one[outer] == extents[inner] * one[inner] for one in steps):
            extents[outer], extents[inner] = 1, extents[outer] * extents[inner]
        elif extents[inner] == 1:
            extents[outer], extents[inner] = 1, extents[outer]
            for one in steps:
                one[inner] = one[outer]
        else:
            break
    if extents[0] > 1 and extents[1] == 1:  # pictures are rows
        extents[0], extents[1] = 1, extents[0]
        for one in steps:
            one[1] = one[0]
    x, y, *others = (
        replace(stream, pixel=(one[0], one[1], one[2])) for stream, one in zip(streams, steps, strict=True)
    )
    epilogue = product.epilogue
    if epilogue is not None:
        epilogue = replace(epilogue, operands=tuple(others))
    return replace(product, pixels=(extents[0], extents[1], extents[2]), x=x, y=y, epilogue=epilogue)


def _sums(product: Product, wanted: Sums) -> Sums:
    dtypes = {product.x.dtype, product.w.dtype, product.y.dtype}
    return wanted if dtypes == {"float16"} else "float32"


def _used(product: Product, operand: Operand) -> tuple[int, ...]:
    """Strides of pixels of x along which there are several."""
    extents = product.pixels
    if product.window is not None:
        extents = product.pixels[0], *product.window.x
    return tuple(step for step, n in zip(operand.pixel, extents, strict=True) if n > 1)


def _batches(product: Product, of: Operand | Matrix) -> tuple[int, ...]:
    return tuple(step for step, n in zip(of.batches, product.batches, strict=False) if n > 1)


def _is_texels(product: Product, inner: int, steps: Sequence[int]) -> bool:
    return (inner == 1 or product.k == 1) and all(step % TEXEL == 0 for step in steps)


def _w_form(product: Product, w_texels: bool) -> str:
    """How the kernel reads w (float_product.cl)."""
    w = product.w
    if isinstance(w, Constant):
        return "PACKED"
    batches = _batches(product, w)
    if w_texels and w.channel == 1 and all(step % TEXEL == 0 for step in (w.k, *batches)):
        return "ROWS"
    if w_texels and w.k == 1 and all(step % TEXEL == 0 for step in (w.channel, *batches)):
        return "COLUMNS"
    return "ELEMENTS"


def _tile(product: Product, sums: Sums, images: bool) -> tuple[int, int]:
    """Of the fewest issue slots: idle work-items count, and a launch has PARALLEL of them at least."""
    columns, channels = product.pixels[2], blocks(product.channels)
    lines = math.prod(product.pixels[:2]) * math.prod(product.batches)
    most = TILES[sums] if images else POINTER_TILE

    def slots(tile: tuple[int, int]) -> float:
        pixels, across = tile
        items = -(-columns // pixels) * lines * -(-channels // across)
        return max(items, PARALLEL) * (16 * pixels * across + LOAD * (pixels + TEXEL * across))

    sizes = [(p, b) for b in range(1, MOST_BLOCKS + 1) for p in range(1, MOST_PIXELS + 1) if p * b <= most]
    return min((size for size in sizes if size[0] <= columns), key=slots)


def _w_words(product: Product, form: str, strips: int, across: int) -> Iterator[int]:
    """w_block, w_channel, w_k, w_batch[3], w_last, bias_batch[3] of float_product.cl."""
    w = product.w
    bias = [0] * BATCH_AXES
    if isinstance(w, Constant):
        block = product.taps * blocks(product.k) * TEXEL * across
        batches = [step * strips * block for step in _axes(w.batches)]
        bias = [step * blocks(product.channels) * TEXEL for step in _axes(w.batches)]
        yield from (block, 0, 0)
    else:
        unit = 1 if form == "ELEMENTS" else TEXEL
        batches = [step // unit for step in _axes(w.batches)]
        if form == "ROWS":
            yield from (1, 0, w.k // TEXEL)
        else:  # of COLUMNS, w.k is within a texel
            yield from (TEXEL * w.channel // unit, w.channel // unit, w.k)
    yield from batches
    yield blocks(product.channels) - 1
    yield from bias


def _axes(steps: Sequence[int]) -> Sequence[int]:
    """Of all batch axes, the last ones those that there are."""
    return (*(0,) * (BATCH_AXES - len(steps)), *steps)


def _place(product: Product, operand: Operand, unit: int = 1) -> Iterator[int]:
    """`struct place`: in texels where the unit is four."""
    yield from (step // unit for step in operand.pixel)
    yield operand.inner
    yield from (step // unit for step in _axes(operand.batches))


def _window(window: Window) -> Iterator[int]:
    """`struct taps`."""
    yield from (*window.size, *window.strides, *window.dilations, *window.pads, *window.x)


# -- depthwise ----------------------------------------------------------------------------------------------


def takes_depthwise(product: Product, x_texels: bool = True) -> bool:
    """Whether `depthwise` takes a convolution of each channel alone."""
    window = product.window
    wide = window is None or window.size[1] > COLUMNS_LIMIT
    return not wide and x_texels and product.x.inner == 1 and not any(s % TEXEL for s in product.x.pixel)


def depthwise(product: Product, sums: Sums = "half", *, pixels: int | None = None) -> Launch:
    """The launch of a convolution that has weights of its own for each channel.

    Args:
        product: one of `takes_depthwise`: a window, `k` of 1, as many channels in x as in y, no batches.
        sums: as for `launch`.
        pixels: of a work-item; by default those of the fewest issue slots.
    """
    window = product.window
    assert window is not None
    sums = _sums(product, sums)
    pictures, rows, columns = product.pixels
    stride = window.strides[1]
    if window.dilations[1] > 1:
        pixels, stride = 1, 1  # no texel is in the windows of neighbours
    if pixels is None:
        pixels = _depthwise_pixels(product, stride)
    taps = window.size[1]
    features = [f"PIXELS {pixels}", f"COLUMNS {taps}", f"STRIDE {stride}", f"ROWS {RUN // taps}"]
    memories = [Memory("x", "image", product.x.dtype), Memory("w", "image", product.w.dtype)]
    words: Words = [columns, pictures * rows, rows, product.channels]
    n, h, w = product.x.pixel
    words += [n // TEXEL, h // TEXEL, w // TEXEL, 1, *(0,) * BATCH_AXES]
    words += [*_place(product, product.y), *_window(window)]
    items = -(-columns // pixels), pictures * rows, blocks(product.channels)
    return _launch("float_depthwise", product, features, memories, words, items, (pixels, 1), sums)


def depthwise_weights(weights: Array) -> Array:
    """[C, kh, kw] -> texels [C / 4, kh, kw, 4]."""
    channels = len(weights)
    full = np.zeros((blocks(channels) * TEXEL, *weights.shape[1:]), weights.dtype)
    full[:channels] = weights
    return np.ascontiguousarray(full.reshape(-1, TEXEL, *weights.shape[1:]).transpose(0, 2, 3, 1))


def _depthwise_pixels(product: Product, stride: int) -> int:
    assert product.window is not None
    _, columns = product.window.size
    width = product.pixels[2]
    lines = math.prod(product.pixels[:2]) * blocks(product.channels)

    def slots(pixels: int) -> float:
        loads = (pixels - 1) * stride + 2 * columns
        items = -(-width // pixels) * lines
        return max(items, PARALLEL) * (TEXEL * pixels * columns + LOAD * loads)

    return min(range(1, min(width, MOST_PIXELS) + 1), key=slots)


# -- the kernel's text --------------------------------------------------------------------------------------


def _launch(
    function: str,
    product: Product,
    features: list[str],
    memories: list[Memory],
    words: Words,
    items: tuple[int, int, int],
    tile: tuple[int, int],
    sums: Sums,
) -> Launch:
    features += ["PICTURES"] * (product.pixels[0] > 1) + ["HALF_SUMMED"] * (sums == "half")
    for name, dtype in (("X", product.x.dtype), ("W", product.w.dtype), ("Y", product.y.dtype)):
        features.append(f"{name}_TYPE {TYPES[dtype]}")
    bias = ("__global const float *restrict bias,", "const int bias_at,") if product.bias else ("", "")
    features += ["BIAS"] * product.bias + [f"BIAS_PARAMETER {bias[0]}", f"BIAS_PLACE {bias[1]}"]
    memories += [Memory("bias", "pointer", "float32")] * product.bias
    memories.append(Memory("y", "pointer", product.y.dtype))
    memories += [Memory("operand", "pointer", one.dtype) for one in product.operands]
    for one in product.operands:
        words += _place(product, one)
    body = (KERNELS / f"{function}.cl").read_text(encoding="ascii")
    defines = [f"#define {feature}" for feature in features]
    text = "\n".join([*defines, *_finished(function, product.epilogue), body])
    window = product.window
    half = sums == "half"
    constants = {
        "pixels": tile[0],
        "blocks": tile[1],
        "half_sums": int(half),
        "x_bits": 8 * dtypes.dtype(product.x.dtype).nbytes,
        "w_bits": 8 * dtypes.dtype(product.w.dtype).nbytes,
        "images": int(all(memory.kind == "image" for memory in memories[:2])),
        "columns_of_w": int("W_COLUMNS" in features),
        "window": int(window is not None),
        "stride": window.strides[1] if window and function == "float_depthwise" else 1,
        "bias": int(product.bias),
        "y_bits": 8 * dtypes.dtype(product.y.dtype).nbytes,
    }
    return Launch(
        function, text, tuple(memories), items, words, tile, sums, tuple(constants.items()), blocks(product.k)
    )


def _finished(function: str, epilogue: Epilogue | None) -> Iterator[str]:
    """What becomes of four sums: the epilogue's function of each, with the operands' elements."""
    operands = () if epilogue is None else epilogue.operands
    numbers = range(len(operands))
    types = [TYPES[one.dtype] for one in operands]
    pointers = "".join(f", __global const {kind} *restrict z{i}" for i, kind in enumerate(types))
    yield f"#define OPERANDS {len(operands)}"
    yield f"#define OPERAND_PARAMETERS {pointers}"
    yield "#define OPERAND_PLACES " + "".join(f", const int z{i}_at" for i in numbers)
    if epilogue is None:
        yield "#define FINISHED(sums) (sums)"
        return
    yield epilogue.text
    fetched = "".join(
        f", fetch_{kind}(z{i}, z{i}_at / BYTES_{kind} + place_of(&m.operand[{i}], &e),"
        f" m.operand[{i}].channel, e.count)"
        for i, kind in enumerate(types)
    )
    yield f"#define FINISHED(sums) finished(sums{fetched})"
    yield "static inline float4 finished(float4 sums" + "".join(f", float4 v{i}" for i in numbers) + ") {"
    yield "  float4 found;"
    for part in "xyzw":
        values = ", ".join(f"v{i}.{part}" for i in numbers) or "0"
        yield f"  {{ const float z[] = {{{values}}}; found.{part} = {epilogue.function}(sums.{part}, z); }}"
    yield "  return found;\n}"
