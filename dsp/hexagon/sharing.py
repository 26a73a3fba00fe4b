"""Two HVX contexts at one network: before which calls they have to meet.

Each computes its half of every call, in the same order. A half may begin a call without the other half
having ended those before it, unless it reads or overwrites what the other one wrote since they last met, or
overwrites what the other one read. `share` of kernels/kernels.h says what a half is; here is what it touches.
Kernels that walk through planes are known in detail, of others the whole buffers count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dsp.hexagon.calls import At, Call, Lowered
from dsp.hexagon.layout import GROUP_CELLS, PIXEL, VECTOR_CHANNELS
from sdk.arena import ALIGNMENT

CONTEXTS = 2
"""HVX contexts of 128-byte vectors that every version has; v66 and later have four."""

BLOCK_PLANES = VECTOR_CHANNELS // PIXEL
GROUP_BYTES = GROUP_CELLS * PIXEL

Spans = list[tuple[int, int]]
"""[start, end) in the arena."""


class Touched(NamedTuple):
    """What half a call reads, as far as a result depends on it, and what it writes."""

    reads: Spans
    writes: Spans


def meetings(lowered: Lowered) -> list[list[int]]:
    """For every layer, before which of its calls the two contexts meet; the arena has been planned.

    They always meet before the first call of the network and after the last.
    """
    since = [Touched([], []), Touched([], [])]  # they last met, by half
    found: list[list[int]] = []
    for layer in lowered.layers:
        found.append([])
        for number, call in enumerate(layer.calls):
            halves = [touched(call, part) for part in range(CONTEXTS)]
            if any(_conflict(halves[part], since[1 - part]) for part in range(CONTEXTS)):
                found[-1].append(number)
                since = halves
            else:
                since = [
                    Touched(merged([*old.reads, *new.reads]), merged([*old.writes, *new.writes]))
                    for old, new in zip(since, halves, strict=True)
                ]
    return found


def touched(call: Call, part: int) -> Touched:
    """What half `part` of a call touches."""
    known = _KNOWN.get(call.struct, _anything)
    reads, writes = known(call, part)
    return Touched(merged(reads), merged(writes))


def _conflict(new: Touched, others: Touched) -> bool:
    return (
        _overlap(new.reads, others.writes)
        or _overlap(new.writes, others.writes)
        or _overlap(new.writes, others.reads)
    )


# -- kernels --------------------------------------------------------------------------------------------


def _half(items: int, part: int) -> tuple[int, int]:
    """`share` of kernels/kernels.h."""
    middle = (items + 1) // CONTEXTS
    return (middle, items) if part else (0, middle)


def _anything(call: Call, part: int) -> Touched:
    """Whole buffers: those of `y` fields are written, and all may be read."""
    del part
    places = list(_places(call.fields))
    return Touched(
        [_whole(at) for _, at in places], [_whole(at) for name, at in places if name.split(".")[-1] == "y"]
    )


def _elements(*operands: str) -> Callable[[Call, int], Touched]:
    """Half the vectors of every plane, from the same of the operands; or from a byte or a word of a plane."""

    def known(call: Call, part: int) -> Touched:
        fields = call.fields
        vectors, planes = _half(fields["vectors"], part), (0, fields["planes"])
        if vectors[0] == vectors[1]:
            return Touched([], [])
        reads: Spans = []
        for name in operands:
            ats, steps = fields[name], fields[f"{name}_plane"]
            for at, step in zip(ats, steps, strict=True) if isinstance(ats, list) else [(ats, steps)]:
                if not isinstance(at, At):  # constants
                    continue
                scalar = step == PIXEL or (step == 0 and isinstance(ats, list))
                reads += _planes(at, step, planes, (0, PIXEL) if scalar else _bytes(vectors))
        return Touched(reads, _planes(fields["y"], fields["y_plane"], planes, _bytes(vectors)))

    return known


def _windows(call: Call, part: int) -> Touched:
    """Half the planes, from the same; a window's first taps lie in the gap behind the plane before.

    Where the reach of a window is not known, all of the planes beside count.
    """
    first, last = _half(call.fields["planes"], part)
    if first == last:
        return Touched([], [])
    x, step = call.fields["x"], call.fields["x_plane"]
    reads = _planes(x, step, (first, last), call.reach or (-step, 2 * step))
    return Touched(reads, _planes(call.fields["y"], call.fields["y_plane"], (first, last), None))


def _fill(call: Call, part: int) -> Touched:
    """The padding of half the planes, anywhere in them; the first half also fills before plane 0."""
    fields = call.fields
    writes = _planes(fields["y"], fields["y_plane"], _half(fields["planes"], part), None)
    if part == 0:
        start = _start(fields["y"])
        writes.append((start - fields["before"], start))
    return Touched([], writes)


def _conv(call: Call, part: int) -> Touched:
    """Half the tiles of channels, from everything; or half the vectors, of a pointwise one from the same."""
    fields, defines = call.fields, call.kernel.defines
    vectors, planes = (0, fields["vectors"]), (0, fields["planes"])
    if fields["split_tiles"]:
        size = 1 if "PIPELINED" in defines else 2  # planes of a tile
        first, last = _half(-(-fields["planes"] // size), part)
        planes = (first * size, min(last * size, fields["planes"]))
    else:
        vectors = _half(fields["vectors"], part)
    if planes[0] == planes[1] or vectors[0] == vectors[1]:
        return Touched([], [])
    if "TABLE" in defines:
        reads = [_whole(fields["x"])]
    else:
        (steps,) = (int(define.partition("=")[2]) for define in defines if define.startswith("STEPS="))
        reads = _planes(fields["x"], fields["x_plane"], (0, steps), _bytes(vectors))
    return Touched(reads, _planes(fields["y"], fields["y_plane"], planes, _bytes(vectors)))


def _gemm(call: Call, part: int) -> Touched:
    """Half the blocks of 32 outputs, each from all inputs."""
    first, last = _half(call.fields["blocks"], part)
    if first == last:
        return Touched([], [])
    x, y = call.fields["x"], call.fields["y"]
    return Touched([_whole(x)], _planes(y, VECTOR_CHANNELS, (first, last), None))


def _lanes(call: Call, part: int) -> Touched:
    """Half the units, each a group of cells by a block of channels, from all channels of the group."""
    fields = call.fields
    blocks, planes = fields["blocks"], BLOCK_PLANES
    first, last = _half(fields["groups"] * blocks, part)
    if first == last:
        return Touched([], [])
    writes: Spans = []
    for group in range(first // blocks, (last - 1) // blocks + 1):
        own = [max(first - group * blocks, 0) * planes, min(last - group * blocks, blocks) * planes]
        cells = group * GROUP_BYTES, (group + 1) * GROUP_BYTES
        writes += _planes(fields["y"], fields["y_plane"], (own[0], own[1]), cells)
    return Touched([_whole(fields["x"]), _whole(fields["sums"])], writes)


def _lane_sums(call: Call, part: int) -> Touched:
    """The sums of half the vectors of cells."""
    fields = call.fields
    first, last = (2 * half for half in _half(-(-fields["groups"] // 2), part))
    step = fields["pixels"] * ALIGNMENT
    start, end = first * step, min(last, fields["groups"]) * step
    if start == end:
        return Touched([], [])
    return Touched([_whole(fields["x"])], _planes(fields["y"], 0, (0, 1), (start, end)))


def _global_pool(call: Call, part: int) -> Touched:
    """Half the blocks of eight planes, to as many words."""
    fields = call.fields
    first, last = _half(-(-fields["planes"] // BLOCK_PLANES), part)
    planes = first * BLOCK_PLANES, min(last * BLOCK_PLANES, fields["planes"])
    reads = _planes(fields["x"], fields["x_plane"], planes, _bytes((0, fields["vectors"])))
    return Touched(reads, _planes(fields["y"], VECTOR_CHANNELS, (first, last), None))


_KNOWN: Mapping[str, Callable[[Call, int], Touched]] = {
    "conv": _conv,
    "depthwise": _windows,
    "maxpool": _windows,
    "gather": _windows,
    "fill": _fill,
    "elementwise_add": _elements("a", "b"),
    "mul": _elements("a", "b"),
    "lookup": _elements("x"),
    "map": _elements("x"),
    "gemm": _gemm,
    "lanes": _lanes,
    "lane_sums": _lane_sums,
    "global_pool": _global_pool,
}
"""By the descriptor's structure."""


# -- spans ----------------------------------------------------------------------------------------------


def _start(at: At) -> int:
    return at.buffer.offset + at.delta


def _whole(at: At) -> tuple[int, int]:
    return at.buffer.offset, at.buffer.offset + at.buffer.nbytes


def _bytes(vectors: tuple[int, int]) -> tuple[int, int]:
    return vectors[0] * ALIGNMENT, vectors[1] * ALIGNMENT


def _planes(at: At, step: int, planes: tuple[int, int], inner: tuple[int, int] | None) -> Spans:
    """The bytes `inner`, by default all, of these planes, as far as they are in their buffer."""
    begin, end = inner or (0, step)
    low, high = _whole(at)
    spans = ((_start(at) + n * step + begin, _start(at) + n * step + end) for n in range(*planes))
    return [(max(first, low), min(last, high)) for first, last in spans]


def _places(value: Any, name: str = "") -> Iterator[tuple[str, At]]:
    match value:
        case At():
            yield name, value
        case Mapping():
            for key, item in value.items():
                yield from _places(item, f"{name}.{key}")
        case list():
            for item in value:
                yield from _places(item, name)


def merged(spans: Iterable[tuple[int, int]]) -> Spans:
    """The same bytes in ascending order, in the fewest spans."""
    found: Spans = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _overlap(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]]) -> bool:
    """Whether two merged lists share a byte."""
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i][0] < b[j][1] and b[j][0] < a[i][1]:
            return True
        if a[i][1] <= b[j][1]:
            i += 1
        else:
            j += 1
    return False
