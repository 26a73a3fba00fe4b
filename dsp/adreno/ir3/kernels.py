"""NIR of kernels/pointwise.cl and kernels/depthwise.cl, written by hand.

tinymesa has no OpenCL front end, so these follow the OpenCL C function by function, and the figures describe
this NIR. tests/unit/test_ir3_loops.py checks that the inner loops equal what clang generates from the
OpenCL C: the same reads of activations, reads of weights and multiplications per iteration.

What is the same for all launches of a kernel is a constant, as in the OpenCL C; the rest are arguments.
Work-items are numbered without a global offset.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dsp.adreno.ir3 import floats, generated
from dsp.adreno.ir3.listing import Count
from dsp.adreno.ir3.mesa import Mesa
from dsp.adreno.ir3.shader import Compiled, Operand, Shader, Value
from sdk.errors import BuildFailed

X, WEIGHTS, OTHER = 0, 1, 2
"""Textures."""
Y = 0
"""The image written to."""
TABLES, AT, NUMBERS = 0, 1, 2
"""Arguments: a pointer, an index into it, and the floats of `struct output`."""
ALONE, WITH_ADD, WITH_LOOKUP = 0, 1, 2
"""`output.fused` of kernels/products.cl."""

Constants = Mapping[str, int]
KernelBuilder = Callable[[Shader, Constants], None]


@dataclass(frozen=True)
class Picture:
    """struct picture of kernels/texel.cl."""

    blocks: int
    height: int
    width: int
    fold: int

    @staticmethod
    def of(constants: Constants, name: str) -> Picture:
        return Picture(*(constants[f"{name}.{field}"] for field in ("blocks", "height", "width", "fold")))

    def column(self, s: Shader, block: Value, w: Operand) -> Value:
        if self.fold == 1:
            return s.alu("iadd", w, 0)
        return mad24(s, s.alu("iand", block, self.fold - 1), self.width, w)

    def row(self, s: Shader, block: Value, h: Operand) -> Value:
        below = block if self.fold == 1 else s.alu("ushr", block, self.fold.bit_length() - 1)
        return mad24(s, below, self.height, h)


def mad24(s: Shader, a: Operand, b: Operand, c: Operand) -> Value:
    return s.alu("iadd", s.alu("imul24", a, b), c)


def multiply(s: Shader, sums: Sequence[Value], a: Sequence[Operand], b: Sequence[Operand]) -> None:
    """mad24(a, b, sums) of int4, back into the registers of the sums."""
    s.tally("products", len(sums))
    for register, one, other in zip(sums, a, b, strict=True):
        s.write(register, mad24(s, one, other, s.read(register)))


def numbers_of(s: Shader, texel: list[Value]) -> list[Value]:
    """The four of a texel of activations, which are in one word where there are dot products."""
    if not s.has_dots:
        return texel
    return [s.alu("ubfe", texel[0], 8 * number, 8) for number in range(4)]


def multiply_words(s: Shader, sums: Sequence[Value], weights: Sequence[Value], word: Value) -> None:
    """The dot product of a word of weights and one of activations, on top of each sum."""
    s.tally("products", 4 * len(sums))
    for register, weight in zip(sums, weights, strict=True):
        s.write(register, s.alu("sudot_4x8_iadd_sat", weight, word, s.read(register)))


# -- kernels/pointwise.cl ---------------------------------------------------------------------------------


def pointwise(s: Shader, k: Constants) -> None:
    """`pixels` of a row x 4 output channels a work-item."""
    source, weights, to = (Picture.of(k, name) for name in ("from", "weights", "to"))
    with work_item(s, to, k["pixels"]) as (w, h, block):
        sums, scale = begin(s, block, k["pixels"])
        dots = s.has_dots and bool(k["dots"])
        at, line = weights.column(s, block, 0), weights.row(s, block, 0)
        lines = [s.alu("iadd", line, n) for n in range(4)]

        def products(side: Operand, start: Operand) -> None:
            row = s.register(h)
            with counted(s, source.blocks, start=side, step=source.fold) as b:
                tile = [s.texel(WEIGHTS, s.alu("iadd", at, b), one, signed=not dots) for one in lines]
                for p, total in enumerate(sums):
                    texel = s.texel(X, s.alu("iadd", start, p), s.read(row))
                    if dots:
                        multiply_words(s, total, [one[0] for one in tile], texel[0])
                        continue
                    texel = numbers_of(s, texel)
                    for channel, weight in zip(texel, zip(*tile, strict=True), strict=True):
                        multiply(s, total, [channel] * 4, weight)
                s.write(row, s.alu("iadd", s.read(row), source.height))

        if source.fold == 1:
            products(0, w)
        else:
            with counted(s, source.fold) as side:
                products(side, mad24(s, side, source.width, w))
        finish(s, k, to, (block, h, w), sums, scale)


# -- kernels/depthwise.cl ---------------------------------------------------------------------------------


def depthwise(s: Shader, k: Constants) -> None:
    """`pixels` of a row x 4 channels a work-item, the columns of the window unrolled."""
    source, to = Picture.of(k, "from"), Picture.of(k, "to")
    stride, columns, pixels = k["window.stride_x"], k["window.columns"], k["pixels"]
    beyond = source.width + k["window.left"] - (to.width - pixels) * stride
    with work_item(s, to, pixels) as (w, h, block):
        left = mad24(s, w, stride, -k["window.left"])
        sums, scales = begin(s, block, pixels)

        with counted(s, k["window.rows"]) as ky:
            in_y = in_h = mad24(
                s, h, k["window.stride_y"], mad24(s, ky, k["window.step_y"], -k["window.top"])
            )
            if k["outside"]:
                in_h = s.alu("imin", s.alu("imax", in_y, 0), source.height - 1)
            taps = [s.texel(WEIGHTS, mad24(s, ky, columns, kx), block, signed=True) for kx in range(columns)]
            for j in range((pixels - 1) * stride + columns):
                in_x = in_w = s.alu("iadd", left, j)
                if j < k["window.left"]:
                    in_w = s.alu("imax", in_w, 0)
                if j >= beyond:
                    in_w = s.alu("imin", in_w, source.width - 1)
                moved = [s.alu("ine", a, b) for a, b in ((in_h, in_y), (in_w, in_x)) if a is not b]
                texel = numbers_of(s, s.texel(X, source.column(s, block, in_w), source.row(s, block, in_h)))
                texel = _unless(s, moved, texel, k["zero_point"])
                for p, total in enumerate(sums):
                    if 0 <= j - p * stride < columns:
                        multiply(s, total, texel, taps[j - p * stride])
        finish(s, k, to, (block, h, w), sums, scales)


def _unless(s: Shader, conditions: Sequence[Value], texel: list[Value], other: int) -> list[Value]:
    """The texel, or four times `other` if one of the conditions holds."""
    if not conditions:
        return texel
    any_of = functools.reduce(lambda a, b: s.alu("ior", a, b), conditions)
    return [s.alu("bcsel", any_of, other, number) for number in texel]


# -- kernels/products.cl and what a compiler adds ---------------------------------------------------------


@contextmanager
def work_item(s: Shader, to: Picture, pixels: int) -> Iterator[tuple[Value, Value, Value]]:
    """(first column, row, block) of a work-item's strip; the body runs unless the work-item is idle."""
    group = s.components(s.intrinsic("load_workgroup_id", components=3))
    item = s.components(s.intrinsic("load_local_invocation_id", components=3))
    w, h, block = (mad24(s, *three) for three in zip(group, s.local, item, strict=True))
    w = s.alu("imul24", w, pixels) if pixels > 1 else w
    inside = s.alu("iand", s.alu("ilt", w, to.width), s.alu("ilt", h, to.height))
    with s.when(s.alu("iand", inside, s.alu("ilt", block, to.blocks))):
        yield s.alu("imin", w, to.width - pixels), h, block


@contextmanager
def counted(s: Shader, end: int, *, start: Operand = 0, step: int = 1) -> Iterator[Value]:
    """The counter of a C `for` from `start` to before `end`, which runs at least once."""
    counter = s.register(start)
    with s.loop():
        i = s.read(counter)
        yield i
        following = s.alu("iadd", i, step)
        s.write(counter, following)
        s.leave_if(s.alu("ige", following, end))


def begin(s: Shader, block: Value, pixels: int) -> tuple[list[list[Value]], list[Value]]:
    """(registers of the sums, four for each pixel, that begin with the block's biases; its scales)."""
    tables, index = s.argument(TABLES, pointer=True), s.alu("iadd", s.argument(AT), s.alu("ishl", block, 1))
    biases = s.load_int4(tables, index)
    scales = s.load_int4(tables, s.alu("iadd", index, 1))
    return [[s.register(bias) for bias in biases] for _ in range(pixels)], scales


def finish(
    s: Shader,
    k: Constants,
    to: Picture,
    at: tuple[Value, Value, Value],
    sums: Sequence[Sequence[Value]],
    scale: Sequence[Value],
) -> None:
    """Requantise and store a strip that begins at (block, row, column)."""
    block, h, w = at
    for p, total in enumerate(sums):
        _finish(s, k, to, (block, h, s.alu("iadd", w, p)), total, scale)


def _finish(
    s: Shader,
    k: Constants,
    to: Picture,
    at: tuple[Value, Value, Value],
    sums: Sequence[Value],
    scale: Sequence[Value],
) -> None:
    """Requantise four sums, with what is fused to the convolution, and store the texel."""
    block, h, w = at
    numbers = map(s.argument, range(NUMBERS, NUMBERS + 16))

    def clamped(x: Value, low: Value, high: Value) -> Value:
        return s.alu("fmin", s.alu("fmax", s.alu("fround_even", x), low), high)

    x, y = to.column(s, block, w), to.row(s, block, h)
    low, high, zero_point = next(numbers), next(numbers), next(numbers)
    products = [s.alu("fmul", s.alu("i2f32", s.read(a)), b) for a, b in zip(sums, scale, strict=True)]
    own = [clamped(product, low, high) for product in products]
    if k["fused"] == WITH_ADD:
        ratio, other_ratio, other_zero = next(numbers), next(numbers), next(numbers)
        low, high, zero_point = next(numbers), next(numbers), next(numbers)
        stored = numbers_of(s, s.texel(OTHER, x, y))
        operand = [s.alu("fsub", s.alu("i2f32", q), other_zero) for q in stored]
        own = [
            clamped(s.alu("fadd", s.alu("fmul", a, ratio), s.alu("fmul", b, other_ratio)), low, high)
            for a, b in zip(own, operand, strict=True)
        ]
    result = [s.alu("f2i32", s.alu("fadd", q, zero_point)) for q in own]
    if k["fused"] == WITH_LOOKUP:
        table = s.alu("ishl", next(numbers), 4)
        pointer = s.argument(TABLES, pointer=True)
        result = [s.load_uchar(pointer, s.alu("iadd", table, q)) for q in result]
    if s.has_dots:
        word = s.alu("iand", result[0], 0xFF)
        for number, q in enumerate(result[1:], 1):
            word = s.alu("ior", word, s.alu("ishl", s.alu("iand", q, 0xFF), 8 * number))
        result = [word] * 4
    s.store_texel(Y, x, y, s.vector(*result))


KERNELS: Mapping[str, KernelBuilder] = {
    "pointwise": pointwise,
    "depthwise": depthwise,
    **floats.FLOATS,
    **generated.GENERATED,
}
"""By the name of the OpenCL C function."""


MOST = 256
"""The most pixels of a work-item, columns, and texels that it loads of a row: a kernel's size grows with
them. `dsp.adreno.products` uses fewer; but plans come from files."""


def iterations(function: str, k: Constants) -> list[int]:
    """How often a work-item executes the code outside of loops, and each loop."""
    if function in floats.FLOATS:
        return floats.iterations(function, k)
    if function in generated.GENERATED:
        return generated.iterations(function, k)
    if function == "depthwise":
        return [1, k["window.rows"]]
    fold, blocks = k["from.fold"], k["from.blocks"]
    return [1, blocks] if fold == 1 else [1, fold, blocks]


def macs_of_iteration(function: str, k: Constants) -> int:
    """Multiply-accumulates of an iteration of the innermost loop; 0 without any."""
    if function in floats.FLOATS:
        return floats.macs_of_iteration(function, k)
    if function in generated.GENERATED:
        return 0
    return k["pixels"] * (16 if function == "pointwise" else 4 * k["window.columns"])


def inner(function: str, k: Constants, loops: Sequence[Count]) -> float | None:
    """Issue slots in the innermost loops, for each multiply-accumulate or, without any, element that is read.

    Args:
        function: of `KERNELS`.
        k: its constants.
        loops: its `Figures.loops`.
    """
    if function in generated.GENERATED:
        numbers = generated.inner_loops(function, k)
        return sum(loops[number].slots for number in numbers) / len(numbers)
    macs = macs_of_iteration(function, k)
    return loops[-1].slots / macs if macs else None


def compiled(mesa: Mesa, function: str, constants: Constants, local: tuple[int, int, int]) -> Compiled:
    """Machine code of one of our kernels.

    Args:
        mesa: the library.
        function: of `KERNELS`.
        constants: the numbers common to its launches, named as in OpenCL C: "pixels", "from.width", "fused".
        local: work-items of a work-group.

    Raises:
        KeyError: a constant is missing.
        BuildFailed: a loop would be unrolled more than `MOST` times.
    """
    pixels, columns = constants.get("pixels", 1), constants.get("window.columns", 1)
    stride = constants.get("window.stride_x", constants.get("stride", 1))
    texels = (pixels - 1) * stride + columns
    counts = [pixels, columns, texels, pixels * constants.get("blocks", 1)]
    counts += [constants.get(name, 1) for name in ("outer", "inner", "width")]
    if not all(1 <= count <= MOST for count in counts):
        raise BuildFailed(
            f"{pixels} pixels, {columns} columns and {texels} texels are not unrolled: the limit is {MOST}"
        )
    shader = Shader(mesa, function, local)
    KERNELS[function](shader, constants)
    return shader.compile()
