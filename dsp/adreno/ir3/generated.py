"""NIR of kernels that sdk/opencl generates, written by hand: Softmax and Reduce (reductions.py), pools
(windows.py), of float16 and float32.

What the generated text has as numbers is a constant here, and what its struct has is an argument. A tap of a
window beside the picture is counted like one inside. `exp` is the part's own exp2 of a product, as OpenCL's
native_exp may be: a driver's exp, which must be within 3 units in the last place, may take more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from dsp.adreno.ir3.shader import Operand, Shader, Value

Y, Y_AT, X, X_AT, NUMBERS = 0, 1, 2, 3, 4
"""Arguments: pointers, bytes behind them, and from NUMBERS on the fields of the struct."""
STREAMS = 2
"""Of x and y."""
LOG2_E = math.log2(math.e)
KINDS = ("softmax", "sum", "mean", "prod", "max", "min")
"""Of rows: a constant of that name is there."""

Constants = Mapping[str, int]


class _Arguments:
    """What all kernels have: where x and y begin, and the words of the struct, each by a name."""

    def __init__(self, s: Shader, k: Constants) -> None:
        self._shader, self._constants = s, k
        self._numbers: dict[str, int] = {}

    def __getitem__(self, name: str) -> Value:
        return self._shader.argument(NUMBERS + self._numbers.setdefault(name, len(self._numbers)))

    def load(self, place: Operand) -> Value:
        """Of x, so many elements from its first."""
        return self._shader.load_number(self._pointer(X, X_AT), place, self._constants["x_bits"])

    def store(self, place: Operand, value: Value) -> None:
        self._shader.store_number(self._pointer(Y, Y_AT), place, value, self._constants["y_bits"])

    def _pointer(self, pointer: int, at: int) -> Value:
        s = self._shader
        return s.alu("iadd", s.argument(pointer, pointer=True), s.alu("i2i64", s.argument(at)))


def _item(s: Shader, group: Value, own: Value) -> Value:
    return s.alu("iadd", s.alu("ishl", group, s.local[0].bit_length() - 1), own)


# -- rows ---------------------------------------------------------------------------------------------------


def reduce(s: Shader, k: Constants) -> None:
    """A row for each work-item, or for each work-group of `width`."""
    width, of = k["width"], _Arguments(s, k)
    group = s.components(s.intrinsic("load_workgroup_id", components=3))[0]
    own = s.components(s.intrinsic("load_local_invocation_id", components=3))[0]
    row = group if width > 1 else _item(s, group, own)
    lane: Operand = own if width > 1 else 0
    s.local_memory(4 * width if width > 1 else 0)
    with s.when(s.alu("ult", row, of["rows"])):
        start: Sequence[Operand] = [s.constant(0)] * STREAMS
        base = _decoded(s, of, "outer", k["outer"], row, start)
        kind = _kind(k)
        if kind == "softmax":
            _softmax(s, k, of, base, lane)
            return
        first = {"prod": 1.0, "max": -math.inf, "min": math.inf}.get(kind, 0.0)
        total = s.register(s.constant(first))
        with _over(s, k, of, base, lane) as place:
            s.write(total, _combined(s, kind, s.read(total), of.load(place(0))))
        _shared(s, width, lane, total, kind)
        result = s.read(total)
        if kind == "mean":
            result = s.alu("fdiv", result, s.alu("i2f32", of["count"]))
        with s.when(s.alu("ieq", lane, 0)):
            of.store(base[1], result)


def _kind(k: Constants) -> str:
    return next(kind for kind in KINDS if kind in k)


def _softmax(s: Shader, k: Constants, of: _Arguments, base: Sequence[Value], lane: Operand) -> None:
    top, total = s.register(s.constant(-math.inf)), s.register(0.0)

    def power(at: Value) -> Value:
        s.tally("fexp2")
        s.tally("fadd")
        difference = s.alu("fsub", of.load(at), s.read(top))
        return s.alu("fexp2", s.alu("fmul", difference, LOG2_E))

    with _over(s, k, of, base, lane) as place:
        s.write(top, _combined(s, "max", s.read(top), of.load(place(0))))
    _shared(s, k["width"], lane, top, "max")
    with _over(s, k, of, base, lane) as place:
        s.write(total, _combined(s, "sum", s.read(total), power(place(0))))
    _shared(s, k["width"], lane, total, "sum")
    factor = s.alu("frcp", s.read(total))
    with _over(s, k, of, base, lane) as place:
        s.tally("fmul")
        of.store(place(1), s.alu("fmul", power(place(0)), factor))


def _combined(s: Shader, kind: str, a: Value, b: Value) -> Value:
    if kind in ("max", "min"):
        return _most(s, a, b, kind)
    op = "fmul" if kind == "prod" else "fadd"
    s.tally(op)
    return s.alu(op, a, b)


def _most(s: Shader, a: Value, b: Value, kind: str = "max") -> Value:
    """most(a, b) or least(a, b): a NaN stays one."""
    s.tally("bcsel")
    better = s.alu("flt", b, a) if kind == "max" else s.alu("flt", a, b)
    return s.alu("bcsel", s.alu("ior", better, s.alu("fneu", a, a)), a, b)


def _decoded(
    s: Shader, of: _Arguments, axes: str, count: int, rest: Value, base: Sequence[Operand]
) -> list[Value]:
    """The place of item `rest` in each stream (`text.decode`)."""
    places = [s.alu("iadd", one, 0) for one in base]
    for i in range(count):
        here = rest
        if i + 1 < count:
            high = s.alu("umul_high", s.alu("ishl", rest, 1), of[f"{axes} {i} multiplier"])
            outer = s.alu("ushr", high, of[f"{axes} {i} shift"])
            here = s.alu("isub", rest, s.alu("imul", outer, of[f"{axes} {i} extent"]))
            rest = outer
        for j in range(STREAMS):
            places[j] = s.alu("iadd", places[j], s.alu("imul", here, of[f"{axes} {i} steps {j}"]))
    return places


@contextmanager
def _over(
    s: Shader, k: Constants, of: _Arguments, base: Sequence[Value], lane: Operand
) -> Iterator[Callable[[int], Value]]:
    """A loop over the elements of a row, of which each work-item has one; gives their place in a stream."""
    counter = s.register(lane)
    with s.loop():
        at = s.read(counter)
        places = _decoded(s, of, "inner", k["inner"], at, base)
        yield places.__getitem__
        following = s.alu("iadd", at, k["width"])
        s.write(counter, following)
        s.leave_if(s.alu("uge", following, of["count"]))


def _shared(s: Shader, width: int, lane: Operand, value: Value, kind: str) -> None:
    """Make the work-items' values of a row one."""
    if width == 1:
        return
    s.barrier()
    s.store_local(lane, s.read(value))
    s.barrier()
    near = s.register(width // 2)
    with s.loop():
        now = s.read(near)
        with s.when(s.alu("ult", lane, now)):
            own, other = s.load_local(lane), s.load_local(s.alu("iadd", lane, now))
            s.store_local(lane, _combined(s, kind, own, other))
        s.barrier()
        s.write(near, s.alu("ushr", now, 1))
        s.leave_if(s.alu("ult", now, 2))
    s.write(value, s.load_local(0))


# -- pools --------------------------------------------------------------------------------------------------


def each(s: Shader, k: Constants) -> None:
    """A pool: an element for each work-item."""
    of = _Arguments(s, k)
    group = s.components(s.intrinsic("load_workgroup_id", components=3))[0]
    own = s.components(s.intrinsic("load_local_invocation_id", components=3))[0]
    rest = _item(s, group, own)
    with s.when(s.alu("ult", rest, of["items"])):
        to = s.constant(0)
        at: dict[int, Value] = {}
        order = sorted(range(4), key=lambda axis: k[f"order.{axis}"])
        for i, axis in enumerate(order):
            here = rest
            if i + 1 < len(order):
                high = s.alu("umul_high", s.alu("ishl", rest, 1), of[f"{axis} multiplier"])
                outer = s.alu("ushr", high, of[f"{axis} shift"])
                here = s.alu("isub", rest, s.alu("imul", outer, of[f"{axis} extent"]))
                rest = outer
            at[axis] = here
            to = s.alu("iadd", to, s.alu("imul", here, of[f"{axis} step"]))
        start = _sum(s, [at[0], at[1]], [k["x.n"], k["x.c"]])
        largest = bool(k["largest"])
        total, count = s.register(s.constant(-math.inf if largest else 0.0)), s.register(0)
        with _taps(s, k, "row", at[2]) as h, _taps(s, k, "column", at[3]) as w:
            x = of.load(s.alu("iadd", start, _sum(s, [h, w], [k["x.row"], k["x.column"]])))
            if largest:
                s.write(total, _most(s, s.read(total), x))
            else:
                s.tally("fadd")
                s.write(total, s.alu("fadd", s.read(total), x))
                s.write(count, s.alu("iadd", s.read(count), 1))
        result = s.read(total)
        if not largest:
            taps = k["window.rows"] * k["window.columns"]
            whole = s.constant(float(taps)) if k["whole"] else s.alu("u2f32", s.read(count))
            result = s.alu("fdiv", result, whole)
        of.store(to, result)


def _sum(s: Shader, values: Sequence[Value], factors: Sequence[int]) -> Value:
    terms = [s.alu("imul", value, factor) for value, factor in zip(values, factors, strict=True) if factor]
    total = s.constant(0)
    for term in terms:
        total = s.alu("iadd", total, term)
    return total


@contextmanager
def _taps(s: Shader, k: Constants, axis: str, at: Value) -> Iterator[Value]:
    """A loop over the taps along an axis; the body has the coordinate, and runs if it is in the picture."""
    start = s.alu("isub", s.alu("imul", at, k[f"{axis}.stride"]), k[f"{axis}.pad"])
    counter = s.register(0)
    with s.loop():
        tap = s.read(counter)
        where = s.alu("iadd", start, s.alu("imul", tap, k[f"{axis}.step"]))
        with s.when(s.alu("ult", where, k[f"{axis}.extent"])):
            yield where
        following = s.alu("iadd", tap, 1)
        s.write(counter, following)
        s.leave_if(s.alu("ige", following, k[f"window.{axis}s"]))


# -- counts -------------------------------------------------------------------------------------------------


def iterations(function: str, k: Constants) -> list[int]:
    """How often a work-item executes the code outside of loops, and each loop."""
    if function == "each":
        return [1, k["window.rows"], k["window.rows"] * k["window.columns"]]
    elements, steps = [-(-k["count"] // k["width"])], [k["width"].bit_length() - 1]
    shared = steps if k["width"] > 1 else []
    if _kind(k) == "softmax":
        return [1, *elements, *shared, *elements, *shared, *elements]
    return [1, *elements, *shared]


def inner_loops(function: str, k: Constants) -> Sequence[int]:
    """The loops that read an element in each iteration."""
    if function == "each":
        return [2]
    if _kind(k) == "softmax":
        return [1, 3, 5] if k["width"] > 1 else [1, 2, 3]
    return [1]


def of_words(function: str, words: Sequence[int]) -> Constants:
    """What the struct of a launch says of its loops."""
    return {"count": words[1]} if function == "reduce" else {}


GENERATED = {"reduce": reduce, "each": each}
"""By the name of the generated function."""
