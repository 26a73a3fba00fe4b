"""Attention as one launch: softmax(q k^T) v, whose scores stay in registers (kernels/plain/attention.cl).

Maps of one element of q or of k before it, and Maps of the scores before and behind the Softmax, are part of
it. What the graph stores between these nodes is rounded as it would be there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sdk import dtypes
from sdk.expression import Expression, kinds, statements
from sdk.expression.printer import TYPES as PRINTED
from sdk.graph import Graph, Map, MatMul, Node, Softmax, macs
from sdk.opencl.calls import KernelSource, Pointer, Words, divisor
from sdk.opencl.maps import ELEMENTS, INTEGERS, composed
from sdk.opencl.product import BATCH_AXES
from sdk.opencl.product_nodes import instructions, joined
from sdk.opencl.views import View
from usbgpu.amd.facts.chips import Chip
from usbgpu.target.context import Context
from usbgpu.target.packing import TILE
from usbgpu.target.plain.packing import MATRIX_TYPES
from usbgpu.target.plain.products import ACROSS, ALONG, REACH, STRIDED, TYPES, loads, reach
from usbgpu.target.tiling import CACHE, LATENCY, LAUNCH, LDS, LDS_LATENCY, MATRIX, SIMDS, SLOTS, WAIT

OPERANDS = 6
"""Tensors that the Maps of the scores may read."""
WAVES = (1, 2, 4, 8, 16)
TILES = 8
"""Of 16 keys, in a wave: what its registers hold."""
KEYS = WAVES[-1] * TILES * TILE


@dataclass(frozen=True)
class Region:
    """The nodes of an attention.

    Attributes:
        q_maps, k_maps: of one element of q, of k.
        first: of q and k.
        scores: what becomes of its result.
        softmax: over the keys.
        weights: what becomes of that.
        second: with v.
    """

    q_maps: tuple[Map, ...]
    k_maps: tuple[Map, ...]
    first: MatMul
    scores: tuple[Map, ...]
    softmax: Softmax
    weights: tuple[Map, ...]
    second: MatMul


# -- finding it -------------------------------------------------------------------------------------------


def gathered(
    graph: Graph, node: Node, found: Mapping[str, Sequence[Node]], uses: Mapping[str, int]
) -> list[str]:
    """The outputs of the groups that become one attention with a product; none if there is none.

    Args:
        graph: that holds the nodes.
        node: the second product.
        found: the groups before it, by their outputs.
        uses: how often each tensor is read.
    """
    if not isinstance(node, MatMul) or len(node.inputs) != 2:
        return []
    name: str | None = node.inputs[0]
    taken: list[str] = []
    chain: list[Node] = []
    while name is not None:
        taken.append(name)
        chain = [*found.get(name, ()), *chain]
        if not chain or isinstance(chain[0], MatMul):
            break
        made = {one.output for one in chain}
        reads = Counter(one for each in chain for one in each.inputs if one not in made)
        ahead = [one for one in reads if reads[one] == uses[one] and _leads(graph, one, found)]
        name = ahead[0] if len(ahead) == 1 else None
    first = chain[0] if chain else None
    if not isinstance(first, MatMul) or uses[node.inputs[0]] != 1:
        return []
    for side in first.inputs[:2]:
        maps = found.get(side, ())
        if uses[side] == 1 and _is_elementwise(graph, maps):
            taken.append(side)
            chain = [*maps, *chain]
    return taken if parsed(graph, [*chain, node]) else []


def _leads(graph: Graph, name: str, found: Mapping[str, Sequence[Node]]) -> bool:
    """Whether a tensor is on the way from the first product to the second."""
    nodes = found.get(name, ())
    if not nodes or isinstance(nodes[0], MatMul | Softmax):
        return bool(nodes)
    if not all(isinstance(node, Map) for node in nodes):
        return False
    inputs = {one for node in nodes for one in node.inputs} - {node.output for node in nodes}
    shape = graph.tensor(name).shape
    return any(graph.tensor(one).shape == shape and _leads(graph, one, found) for one in inputs)


def _is_elementwise(graph: Graph, nodes: Sequence[Node]) -> bool:
    """Whether these are Maps of one tensor, whose elements stay what they are."""
    if not nodes or not all(isinstance(node, Map) for node in nodes):
        return False
    _, names = composed(graph, nodes)
    ends = [graph.tensor(name) for name in (*names, nodes[-1].output)]
    return len({(end.shape, end.dtype) for end in ends}) == 1 and len(names) == 1


def parsed(graph: Graph, nodes: Sequence[Node]) -> Region | None:
    """The parts of an attention; None if the nodes are none that the kernel can compute."""
    products = [node for node in nodes if isinstance(node, MatMul)]
    softmaxes = [node for node in nodes if isinstance(node, Softmax)]
    others = [node for node in nodes if isinstance(node, Map)]
    if len(products) != 2 or len(softmaxes) != 1 or len(others) != len(nodes) - 3:
        return None
    (first, second), (softmax,) = products, softmaxes
    shape = graph.tensor(first.output).shape
    if len(first.inputs) != 2 or len(second.inputs) != 2 or softmax.axis % len(shape) != len(shape) - 1:
        return None
    if second is not nodes[-1] or not 2 < len(shape) + 1 <= 3 + BATCH_AXES:
        return None
    q_maps, k_maps = (tuple(_backwards(name, others)) for name in first.inputs)
    inner = [one for one in others if one not in (*q_maps, *k_maps)]
    before = nodes.index(softmax)
    scores = tuple(one for one in inner if nodes.index(one) < before)
    weights = tuple(one for one in inner if nodes.index(one) > before)
    region = Region(q_maps, k_maps, first, scores, softmax, weights, second)
    return region if _is_computed(graph, region) else None


def _backwards(name: str, maps: Sequence[Map]) -> list[Map]:
    """Those that lead to a tensor."""
    found: list[Map] = []
    wanted = {name}
    for node in reversed(maps):
        if node.output in wanted:
            wanted |= set(node.inputs)
            found.insert(0, node)
    return found


def _is_computed(graph: Graph, region: Region) -> bool:
    q, k = region.first.inputs
    p, v = region.second.inputs
    types = {graph.tensor(name).dtype for name in (q, k, p, v, region.second.output)}
    within = [region.first, *region.scores, region.softmax, *region.weights]
    shape = graph.tensor(region.first.output).shape
    chained = [*(node.output for node in within), region.second.inputs[0]]
    if len(types) != 1 or not types <= set(MATRIX_TYPES):
        return False
    if any(graph.tensor(name).shape != shape for name in chained) or shape[-1] > KEYS or 0 in shape:
        return False
    ends = (region.scores[-1].output if region.scores else region.first.output, region.softmax.output, p)
    if any(graph.tensor(name).dtype not in TYPES for name in (region.first.output, *ends)):
        return False
    if region.softmax.inputs[0] != ends[0] or p not in (within[-1].output,):
        return False
    made = {node.output for node in within}
    _, before = _composed(graph, region.scores, region.first.output)
    _, behind = _composed(graph, region.weights, region.softmax.output)
    read = [*before, *behind]
    known = [graph.tensor(name) for name in read]
    if made & set(read) or len(read) > OPERANDS or any(one.quantization is not None for one in known):
        return False
    return all(one.dtype in ELEMENTS + INTEGERS for one in known)


def _composed(graph: Graph, nodes: Sequence[Map], given: str) -> tuple[Expression | None, list[str]]:
    """What Maps make of a tensor, and what they read beside it."""
    if not nodes:
        return None, []
    expression, names = composed(graph, nodes, given)
    return expression, names[1:]


# -- the launch -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """Waves of a workgroup, 16 keys that each has, and 16 channels that are made at a time."""

    waves: int
    tiles: int
    channels: int


@dataclass(frozen=True)
class _Extents:
    """What the formula needs: `orders` and memory instructions as in products.py."""

    queries: int
    keys: int
    channels: int
    depth: int
    batches: int
    orders: tuple[int, int, int]
    score: int


def attention(context: Context, region: Region) -> bool:
    """Its launch; False if the kernel does not take operands that lie like this."""
    graph = context.graph
    q_name, k_name = (
        composed(graph, maps)[1][0] if maps else name
        for maps, name in zip((region.q_maps, region.k_maps), region.first.inputs, strict=True)
    )
    q, k, v = (context.view(name) for name in (q_name, k_name, region.second.inputs[1]))
    if region.first.transposed:
        k = k.transposed([*range(len(k.shape) - 2), -1, -2])
    if region.second.transposed:
        v = v.transposed([*range(len(v.shape) - 2), -1, -2])
    if any(min(view.steps, default=0) < 0 for view in (q, k, v)):
        return False
    shape = graph.tensor(region.first.output).shape
    score, before = _composed(graph, region.scores, region.first.output)
    weight, behind = _composed(graph, region.weights, region.softmax.output)
    operands = [context.view(name).broadcast(shape) for name in (*before, *behind)]
    queries, keys, depth, channels = *shape[-2:], q.shape[-1], v.shape[-1]
    lead = graph.tensor(region.second.output).shape[:-2]
    if lead != shape[:-2]:
        return False
    leads = [View(one.at, one.shape[:-2], one.steps[:-2], one.dtype).broadcast(lead) for one in (q, k, v)]
    sides = [one.steps for one in leads] + [one.steps[:-2] for one in operands]
    orders = (
        ALONG if q.steps[-1] == 1 or depth == 1 else STRIDED,
        ALONG if k.steps[-2] == 1 or depth == 1 else STRIDED,
        ALONG if v.steps[-2] == 1 or keys == 1 else ACROSS if v.steps[-1] == 1 else STRIDED,
    )
    bytes_of = (
        reach((queries - 1) * q.steps[-2], depth, q.steps[-1], orders[0], q.dtype),
        reach((keys - 1) * k.steps[-1], depth, k.steps[-2], orders[1], k.dtype),
        reach((channels - 1) * v.steps[-1], keys, v.steps[-2], orders[2], v.dtype),
    )
    # A k that lies the other way is loaded element by element, for each 16 queries again.
    if max(bytes_of) >= REACH or orders[1] != ALONG:
        return False
    extents = _Extents(
        queries, keys, channels, depth, math.prod(lead), orders,
        sum(instructions(one) for one in (score, weight) if one is not None),
    )  # fmt: skip
    y = context.new_view(graph.tensor(region.second.output))
    axes = joined(lead, *sides, y.steps[:-2])
    axes = axes or [(1, (0,) * (4 + len(operands)))]
    cut = min(_cuts(extents), key=lambda one: _cycles(context.chip, one, extents))
    row = -(-channels // cut.channels) * cut.channels
    ends = orders[2] == ACROSS and v.steps[-2] >= row
    if ends:  # what is loaded of the last key reaches no other
        bytes_of = (*bytes_of[:2], ((keys - 1) * v.steps[-2] + row) * v.itemsize)
    steps = -(-depth // TILE)
    words: Words = [queries, keys, channels, steps, depth, *bytes_of]
    words += [q.steps[-2], q.steps[-1], k.steps[-1], k.steps[-2], v.steps[-2], v.steps[-1], *y.steps[-2:]]
    for axis in (-2, -1):
        words += [*(one.steps[axis] * one.itemsize for one in operands), 0]
    for number, (_, moved) in enumerate(axes):
        within = math.prod(extent for extent, _ in axes[number + 1 :])
        own = [step * one.itemsize for step, one in zip(moved[3:-1], operands, strict=True)]
        words += [*divisor(within), within, *moved[:3], moved[-1], *own, 0]
    text = source(graph, region, score, weight, operands, len(before))
    element = TYPES[q.dtype]
    features = [f"X={element}", f"WAVES={cut.waves}", f"TILES={cut.tiles}", f"CHANNELS={cut.channels}"]
    features += [f"{name}_ORDER={order}" for name, order in zip("QKV", orders, strict=True)]
    features += [f"AXES={len(axes)}", *["TAIL"] * bool(depth % TILE), *["MASKED"] * (not ends)]
    features += ["FOURS"] * (y.steps[-1] == 1 and channels % 4 == 0)
    symbol = "_".join(["attention", *(feature.replace("=", "").lower() for feature in features)])
    kernel = KernelSource("plain/attention", symbol, 32 * cut.waves, (f"NAME={symbol}", *features), text)
    pointers: list[Pointer] = [one.pointer for one in (q, k, v, y, *operands)]
    work = macs(graph, region.first) + macs(graph, region.second)
    groups = (-(-queries // TILE), math.prod(lead))
    context.emit(region.second, "Attention", kernel, groups, pointers, words, work)
    return True


def _cuts(extents: _Extents) -> Iterator[Cut]:
    tiles = -(-extents.keys // TILE)
    wanted = -(-extents.channels // TILE)
    for waves in WAVES:
        each = -(-tiles // waves)
        channels = next(n for n in (1, 2, 4) if n >= min(wanted, 4))
        if each <= TILES and (waves == 1 or waves < 2 * tiles):
            yield Cut(waves, each, channels)


def _cycles(chip: Chip, cut: Cut, extents: _Extents) -> float:
    """Shader cycles, by the formula of tiling.py."""
    steps = -(-extents.depth // TILE)
    rounds = -(-extents.channels // (TILE * cut.channels))
    q, k, v = (loads(chip, order) for order in extents.orders)
    memory = steps * (q[1] + cut.tiles * k[1]) + rounds * cut.tiles * v[cut.channels]
    products = cut.tiles * (steps + rounds * cut.channels)
    vector = 400 + cut.tiles * 8 * (13 + extents.score) + 3 * memory + rounds * cut.channels * 24
    shared, slots = 0, SLOTS
    if cut.waves > 1:
        shared = cut.waves // 2 + rounds * cut.channels * 4
        slots = max(1, min(SLOTS, LDS // (cut.waves * cut.channels * 1024) * cut.waves // SIMDS))
    matrix = products * MATRIX[chip.generation][16]
    alone = vector * WAIT + matrix + memory * LATENCY + shared * LDS_LATENCY
    waves = cut.waves * -(-extents.queries // TILE) * extents.batches
    simds = chip.compute_units * SIMDS
    used = min(waves, simds)
    busy = math.ceil(waves / used) * (vector + matrix)
    cache = waves * memory * 512 / (-(-used // SIMDS) * CACHE)
    alone *= math.ceil(waves / (used * slots))
    return LAUNCH + max(alone, busy, cache) + waves * (vector + memory) / simds / 8


# -- text -------------------------------------------------------------------------------------------------


def source(
    graph: Graph,
    region: Region,
    score: Expression | None,
    weight: Expression | None,
    operands: Sequence[View],
    before: int,
) -> str:
    """What the kernel's file includes."""
    count = len(operands)
    lines = ['#include "plain/plain.h"', '#include "plain/written.h"', f"#define OPERANDS {count}"]
    parameters = "".join(f", global const u8 *operand{i}" for i in range(count))
    lines += [f"#define OPERAND_PARAMETERS {parameters}"]
    lines += [f"#define OPERAND_LIST {', '.join(f'operand{i}' for i in range(count)) or '0'}"]
    for name, maps in (("Q_MAP", region.q_maps), ("K_MAP", region.k_maps)):
        if maps:
            expression, _ = composed(graph, maps)
            body, result = statements(expression, ["own"], "opencl")
            lines += [f"static inline float {name.lower()}(float own) {{", *(f"  {line}" for line in body)]
            lines += [f"  return {result};", "}", f"#define {name} {name.lower()}"]
    first, softmax = graph.tensor(region.first.output), graph.tensor(region.softmax.output)
    taken = graph.tensor(region.softmax.inputs[0])
    lines += _eight("score8", first.dtype, score, taken.dtype, operands[:before], 0)
    p = graph.tensor(region.second.inputs[0])
    lines += _eight("weight8", softmax.dtype, weight, p.dtype, operands[before:], before)
    lines += ["#define SCORE8 score8", "#define WEIGHT8 weight8", '#include "plain/attention.cl"', ""]
    return "\n".join(lines)


def _eight(
    name: str, given: str, expression: Expression | None, stored: str, operands: Sequence[View], base: int
) -> list[str]:
    """The function that changes eight elements in place: rounded as `given`, then the Maps, then `stored`."""
    lines = [
        f"static inline void {name}(float *own, global const u8 *const *operand, const s32 *step, u32 key,"
        " u32 count) {"
    ]
    lines.append(f"  for (u32 i = 0; i < 8; i++) own[i] = {_rounded(given, 'own[i]')};")
    if expression is not None:
        known, types = kinds(expression), PRINTED["opencl"]
        for number, view in enumerate(operands):
            kind, at = types[known[number + 1]], base + number
            load = f"load_{view.dtype}(operand[{at}] + (s64)((s32)(key + i) * step[{at}]))"
            if view.steps[-1] == 0:
                lines.append(f"  {kind} all{number} = load_{view.dtype}(operand[{at}]);")
                continue
            lines.append(f"  {kind} each{number}[8];")
            each = f"for (u32 i = 0; i < 8; i++) each{number}[i] = key + i < count ? {load} : 0;"
            if view.steps[-1] == 1 and view.dtype in TYPES:
                eight = f"load8_{TYPES[view.dtype]}(operand[{at}], key, each{number});"
                each = f"if (key + 8 <= count) {eight} else {each}"
            lines.append(f"  {each}")
        names = [f"all{i}" if view.steps[-1] == 0 else f"each{i}[i]" for i, view in enumerate(operands)]
        body, result = statements(expression, ["own[i]", *names], "opencl")
        lines += ["  for (u32 i = 0; i < 8; i++) {", *(f"    {line}" for line in body)]
        lines += [f"    own[i] = {_rounded(stored, result)};", "  }"]
    return [*lines, "}"]


def _rounded(dtype: str, value: str) -> str:
    return value if dtype == "float32" or not dtypes.is_float(dtype) else f"round_{dtype}({value})"
