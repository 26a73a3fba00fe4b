"""NIR of kernels/plain/float_product.cl and float_depthwise.cl, written by hand.

Extents and steps are arguments, as in the OpenCL C; what macros choose is chosen here. What is left of a k
after the last whole run is not a loop, so that code has one loop in each depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from dsp.adreno.ir3.shader import Operand, Shader, Value

X, WEIGHTS = 0, 1
"""Textures."""
Y_POINTER, BIAS_POINTER, NUMBERS = 0, 1, 2
"""Arguments: pointers, and from NUMBERS on ints."""
RUN = 4
"""Texels of k that are added in half arithmetic (`RUN` of float_product.cl)."""
FOURS = 4

Constants = Mapping[str, int]


class _Arguments:
    """Ints of the kernel's struct, each by its name; ir3 keeps them in the constant file."""

    def __init__(self, s: Shader) -> None:
        self._shader = s
        self._numbers: dict[str, int] = {}

    def __getitem__(self, name: str) -> Value:
        return self._shader.argument(NUMBERS + self._numbers.setdefault(name, len(self._numbers)))


def float_product(s: Shader, k: Constants) -> None:
    """`pixels` of a row x `blocks` of four channels a work-item."""
    pixels, across, half = k["pixels"], k["blocks"], bool(k["half_sums"])
    fours, tail = k["fours"], k["tail"]
    of = _Arguments(s)
    with _work_item(s, of, pixels, "strips") as (first, row, strip):
        start = _mad(s, row, of["x.row"], of["x_at"])
        zero = s.constant(0.0)
        sums = [[s.register(zero) for _ in range(across * FOURS)] for _ in range(pixels)]
        at_w = s.register(_mad(s, strip, of["w_block"], of["w_at"]))
        with ExitStack() as taps:
            places: list[Value] | None = None
            steps: list[Operand] = [1] * pixels
            if k["window"]:
                ky = taps.enter_context(_counted(s, k["window.rows"]))
                kx = taps.enter_context(_counted(s, k["window.columns"]))
                places, steps = _window(s, of, k, first, row, start, ky, kx)
            else:
                base = s.register(_mad(s, first, of["x.column"], start))

            def x_texels() -> list[list[Value]]:
                found = []
                if places is not None:
                    for place, step in zip(places, steps, strict=True):
                        at = s.read(place)
                        found.append(s.buffer_texel(X, at, 16 if half else 32))
                        s.write(place, s.alu("iadd", at, step))
                    return found
                at = s.read(base)
                for p in range(pixels):  # p columns further: the same for all work-items
                    place = s.alu("iadd", at, of[f"{p} x.column"]) if p else at
                    found.append(s.buffer_texel(X, place, 16 if half else 32))
                s.write(base, s.alu("iadd", at, 1))
                return found

            def w_tiles() -> list[list[list[Value]]]:
                """Of each block and k: four channels."""
                at = s.read(at_w)
                if k["columns_of_w"]:  # a texel for each channel, which has four of k
                    texels = [
                        s.buffer_texel(WEIGHTS, s.alu("iadd", at, of[f"channel {i}"]), 16 if half else 32)
                        for i in range(across * FOURS)
                    ]
                    s.write(at_w, s.alu("iadd", at, 1))
                    return [
                        [[texels[FOURS * c + o][i] for o in range(FOURS)] for i in range(FOURS)]
                        for c in range(across)
                    ]
                tiles = [
                    [
                        s.buffer_texel(WEIGHTS, s.alu("iadd", at, FOURS * c + i), 16 if half else 32)
                        for i in range(FOURS)
                    ]
                    for c in range(across)
                ]
                s.write(at_w, s.alu("iadd", at, FOURS * across))
                return tiles

            def multiply(total: list[list[Value | None]], count: int = FOURS) -> None:
                tiles = w_tiles()
                for p, texel in enumerate(x_texels()):
                    s.tally("products", across * FOURS * FOURS)
                    for i, channel in enumerate(texel):
                        x = channel if i < count else s.constant(0.0, 16 if half else 32)
                        for c, tile in enumerate(tiles):
                            for o in range(FOURS):
                                own = total[p][FOURS * c + o]
                                total[p][FOURS * c + o] = _step(s, x, tile[i][o], own)

            def flush(total: Sequence[Sequence[Value | None]]) -> None:
                for registers, values in zip(sums, total, strict=True):
                    for register, value in zip(registers, values, strict=True):
                        if value is not None:
                            s.write(register, s.alu("fadd", s.alu("f2f32", value), s.read(register)))

            def nothing() -> list[list[Value | None]]:
                return [[None] * (across * FOURS) for _ in range(pixels)]

            def run(texels: Sequence[int]) -> None:
                """Texels of k, each with so many of the four."""
                if half:
                    total = nothing()
                    for count in texels:
                        multiply(total, count)
                    flush(total)
                    return
                for count in texels:
                    total = [[s.read(register) for register in registers] for registers in sums]
                    multiply(total, count)
                    for registers, values in zip(sums, total, strict=True):
                        for register, value in zip(registers, values, strict=True):
                            if value is not None:
                                s.write(register, value)

            whole = RUN if half else 1
            if fours >= whole:
                with _counted(s, fours // whole):
                    run([FOURS] * whole)
            rest = [FOURS] * (fours % whole) + [tail] * (tail > 0)
            if rest:
                run(rest)
        _store(s, of, k, sums, first, row, strip)


def _window(
    s: Shader,
    of: _Arguments,
    k: Constants,
    first: Value,
    row: Value,
    start: Value,
    ky: Value,
    kx: Value,
) -> tuple[list[Value], list[Operand]]:
    """Where the pixels of a tap begin, and their steps: 0 beside x."""
    in_y = _mad(s, row, of["stride_y"], _mad(s, ky, of["step_y"], of["-top"]))
    in_x = _mad(s, first, of["stride_x"], _mad(s, kx, of["step_x"], of["-left"]))
    line = _mad(s, in_y, of["x.row"], start)
    outside = s.alu("uge", in_y, of["height"])  # below 0 too
    places: list[Value] = []
    steps: list[Operand] = []
    for p in range(k["pixels"]):
        column = s.alu("iadd", in_x, of[f"{p} stride_x"]) if p else in_x
        beside = s.alu("ior", outside, s.alu("uge", column, of["width"]))
        place = _mad(s, column, of["x.column"], line)
        places.append(s.register(s.alu("bcsel", beside, of["zeros"], place)))
        steps.append(s.alu("bcsel", beside, 0, 1))
    return places, steps


def float_depthwise(s: Shader, k: Constants) -> None:
    """`pixels` of a row x four channels a work-item, a row of the window unrolled."""
    pixels, columns, stride, half = k["pixels"], k["window.columns"], k["stride"], bool(k["half_sums"])
    together = half and k["window.rows"] * columns <= RUN * FOURS  # else rows are, which costs no less
    bits = 16 if half else 32
    of = _Arguments(s)
    with _work_item(s, of, pixels, "blocks") as (first, row, block):
        start = _mad(s, block, of["x.channel"], of["x_at"])
        left = _mad(s, first, of["stride_x"], of["-left"])
        reach = (pixels - 1) * stride + columns
        across = [s.alu("iadd", left, j) for j in range(reach)]
        beside = [s.alu("uge", column, of["width"]) for column in across]
        across = [s.alu("imul24", column, of["x.column"]) for column in across]
        zero = s.constant(0.0, bits if together else 32)
        sums = [[s.register(zero) for _ in range(FOURS)] for _ in range(pixels)]
        taps_at = s.register(_mad(s, block, of["taps"], of["w_at"]))
        with _counted(s, k["window.rows"]) as ky:
            in_y = _mad(s, row, of["stride_y"], _mad(s, ky, of["step_y"], of["-top"]))
            line = _mad(s, in_y, of["x.row"], start)
            outside = s.alu("uge", in_y, of["height"])
            tap = s.read(taps_at)
            taps = [s.buffer_texel(WEIGHTS, s.alu("iadd", tap, i), bits) for i in range(columns)]
            total: list[list[Value | None]] = [[None] * FOURS for _ in range(pixels)]
            if together or not half:
                total = [[s.read(register) for register in registers] for registers in sums]
            for j in range(reach):
                none, place = s.alu("ior", outside, beside[j]), s.alu("iadd", line, across[j])
                texel = s.buffer_texel(X, s.alu("bcsel", none, of["zeros"], place), bits)
                for p in range(pixels):
                    if 0 <= j - p * stride < columns:
                        s.tally("products", FOURS)
                        for o in range(FOURS):
                            total[p][o] = _step(s, texel[o], taps[j - p * stride][o], total[p][o])
            for registers, values in zip(sums, total, strict=True):
                for register, value in zip(registers, values, strict=True):
                    if value is not None:
                        if half and not together:
                            value = s.alu("fadd", s.alu("f2f32", value), s.read(register))
                        s.write(register, value)
            s.write(taps_at, s.alu("iadd", tap, columns))
        _store(s, of, {**k, "blocks": 1}, sums, first, row, block)


def _step(s: Shader, a: Value, b: Value, total: Value | None) -> Value:
    return s.alu("fmul", a, b) if total is None else s.alu("ffma", a, b, total)


def _mad(s: Shader, a: Operand, b: Operand, c: Operand) -> Value:
    return s.alu("iadd", s.alu("imul24", a, b), c)


@contextmanager
def _work_item(s: Shader, of: _Arguments, pixels: int, depth: str) -> Iterator[tuple[Value, Value, Value]]:
    """(first column, row, block) of a work-item's strip; the body runs unless the work-item is idle."""
    group = s.components(s.intrinsic("load_workgroup_id", components=3))
    item = s.components(s.intrinsic("load_local_invocation_id", components=3))
    w, h, block = (_mad(s, *three) for three in zip(group, s.local, item, strict=True))
    w = s.alu("imul24", w, pixels) if pixels > 1 else w
    inside = s.alu("iand", s.alu("ilt", w, of["width of y"]), s.alu("ilt", h, of["rows"]))
    with s.when(s.alu("iand", inside, s.alu("ilt", block, of[depth]))):
        yield s.alu("imin", w, of["last strip"]), h, block


@contextmanager
def _counted(s: Shader, end: int) -> Iterator[Value]:
    """The counter of a C `for`, which runs at least once."""
    counter = s.register(0)
    with s.loop():
        i = s.read(counter)
        yield i
        following = s.alu("iadd", i, 1)
        s.write(counter, following)
        s.leave_if(s.alu("ige", following, end))


def _store(
    s: Shader,
    of: _Arguments,
    k: Constants,
    sums: Sequence[Sequence[Value]],
    first: Value,
    row: Value,
    strip: Value,
) -> None:
    """Blocks with their biases, whole ones, to where y has its channels in a row."""
    line = _mad(s, row, of["y.row"], of["y_at"])
    for c in range(k["blocks"]):
        block = _mad(s, strip, k["blocks"], c)
        bias: list[Value] | None = None
        if k["bias"]:
            bias = s.load_float4(s.argument(BIAS_POINTER, pointer=True), block)
        for p, registers in enumerate(sums):
            column = s.alu("iadd", first, p) if p else first
            place = s.alu("iadd", _mad(s, column, of["y.column"], line), s.alu("ishl", block, 2))
            values = [s.read(register) for register in registers[FOURS * c : FOURS * (c + 1)]]
            values = [s.alu("f2f32", value) if value.bits == 16 else value for value in values]
            if bias is not None:
                values = [s.alu("fadd", value, one) for value, one in zip(values, bias, strict=True)]
            s.store_numbers(s.argument(Y_POINTER, pointer=True), place, values, k["y_bits"])


def iterations(function: str, k: Constants) -> list[int]:
    """How often a work-item executes the code outside of loops, in the loop, in the loop inside that."""
    if function == "float_depthwise":
        return [1, k["window.rows"]]
    trips = [1]
    if k["window"]:
        trips += [k["window.rows"], k["window.rows"] * k["window.columns"]]
    whole = RUN if k["half_sums"] else 1
    if k["fours"] >= whole:
        trips.append(trips[-1] * (k["fours"] // whole))
    return trips


def macs_of_iteration(function: str, k: Constants) -> int:
    """Multiply-accumulates of an iteration of the innermost loop; 0 without a loop."""
    if function == "float_depthwise":
        return k["pixels"] * FOURS * k["window.columns"]
    whole = RUN if k["half_sums"] else 1
    texels = whole if k["fours"] >= whole else k["fours"] + (k["tail"] > 0) if k["window"] else 0
    return k["pixels"] * k["blocks"] * FOURS * FOURS * texels


def of_words(function: str, window: int, words: Sequence[int]) -> Constants:
    """What the struct of a launch says of its loops: the fields before are those of the OpenCL C's struct."""
    rows = {"float_product": 34, "float_depthwise": 18}[function]
    found = {"window.rows": 1, "window.columns": 1, "fours": 0, "tail": 0}
    if window:
        found |= {"window.rows": words[rows], "window.columns": words[rows + 1]}
    if function == "float_product":
        found |= {"fours": words[5], "tail": words[6]}
    return found


FLOATS = {"float_product": float_product, "float_depthwise": float_depthwise}
"""By the name of the OpenCL C function."""
