"""Recurrent: one launch for all steps, one a stage of a step, or the body's launches once for each step.

In one launch a workgroup makes a row of the states: they stay in LDS from step to step, and the weights in
registers if there is room. Larger states have a launch a step: a workgroup makes some channels, all gates of
them. What `bodies` does not take, and what the products' kernels do faster, is unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sdk import dtypes
from sdk.errors import Unsupported
from sdk.graph import Map, MatMul, Recurrent, macs
from sdk.opencl.calls import KernelSource, Pointer, Words
from sdk.opencl.product import Constant, Operand, Product
from sdk.opencl.recurrent import unrolled
from sdk.opencl.views import View, dense_steps
from usbgpu.target.calls import WRITTEN
from usbgpu.target.context import Context
from usbgpu.target.plain import products
from usbgpu.target.plain.bodies import Body, NotOfChannels, Read, Stage, body_of, packed_weights
from usbgpu.target.tiling import LAUNCH, Recurrence, RecurrentCut, pieces, recurrent_tiling


def recurrent(context: Context, node: Recurrent, lower_body: Callable[[Context], None]) -> None:
    """Lower a recurrence.

    Args:
        context: of the network.
        node: what is lowered.
        lower_body: lowers the graph of a context.
    """
    if any(tensor.quantization is not None for tensor in node.body.tensors.values()):
        raise Unsupported("its body is quantised")
    try:
        body = body_of(context.graph, node)
    except NotOfChannels:
        unrolled(context, node, lower_body)
        return
    stages = tuple((len(stage.dots), len(stage.vectors)) for stage in body.stages)
    width = dtypes.dtype(body.stages[0].dots[0].dtype).nbytes
    work = Recurrence(body.channels, body.rows, node.steps, stages, width)
    found = recurrent_tiling(context.chip, work)
    if found is None or found[1] > _unrolled_cycles(context, node):
        unrolled(context, node, lower_body)
    else:
        _Launches(context, node, body, found[0]).emit()


# -- by channels --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stream:
    """A number for each step, row and channel: `view` has these axes."""

    pointer: str
    view: View


class _Launches:
    """The launches of a recurrence by channels."""

    def __init__(self, context: Context, node: Recurrent, body: Body, cut: RecurrentCut) -> None:
        self.context, self.node, self.body, self.cut = context, node, body, cut
        self.y = context.new_view(context.graph.tensor(node.output))
        given = [context.view(name) for name in node.inputs]
        self.given = dict(zip(node.body.inputs, given, strict=True))
        self.sequences = set(node.body.inputs[: node.sequences])
        padded = -(-body.channels // cut.channels) * cut.channels
        self.weights = [context.constant(packed_weights(one, padded, cut.split)) for one in body.stages]
        self.reads = [[self._read(read) for read in stage.reads] for stage in body.stages]

    def emit(self) -> None:
        body, node = self.body, self.node
        shape, count = (body.rows, body.channels), len(body.states)
        states = {name: self._steady(self.given[name]) for name in body.states}
        ends = [replace(self._of_y(index), shape=(node.steps, *shape)) for index in range(count)]
        first, onwards = (node.steps - 1, -1) if node.backward else (0, 1)
        if self.cut.whole:
            self._launch(body.stages, states, ends, (node.steps, first, onwards), complete=True)
            return
        between = {
            name: self._steady(
                View(
                    self.context.buffer(name, 4 * body.rows * body.channels),
                    shape,
                    dense_steps(shape),
                    "float32",
                )
            )
            for stage in body.stages[:-1]
            for name, _ in stage.made
        }
        for number in range(node.steps):
            step = first + number * onwards
            for stage in body.stages:
                last = stage is body.stages[-1]
                made = ends if last else [between[name] for name, _ in stage.made]
                complete = last and number == node.steps - 1
                self._launch([stage], {**states, **between}, made, (1, step, 0), complete)
            states = {
                name: self._steady(end.moved(step * end.steps[0], shape, end.steps[1:]))
                for name, end in zip(body.states, ends, strict=True)
            }

    def _launch(
        self,
        stages: Sequence[Stage],
        vectors: dict[str, View],
        made: Sequence[View],
        steps: tuple[int, int, int],
        complete: bool,
    ) -> None:
        """A launch of all stages, or of one.

        Args:
            stages: that it computes.
            vectors: what products multiply and what states are before the first step, by name.
            made: what the last of the stages makes.
            steps: how many, the first, and from one to the next.
            complete: whether the node's output is there behind it.
        """
        body, cut, context = self.body, self.cut, self.context
        numbers = [body.stages.index(stage) for stage in stages]
        streams = [_Stream(f"y{i}", view) for i, view in enumerate(made)]
        for number in numbers:
            streams += [_Stream(f"x{number}_{i}", view) for i, view in enumerate(self.reads[number])]
        multiplied = dict.fromkeys(name for stage in stages for name in stage.vectors)
        own = sorted({index for stage in stages for index in stage.own})
        before = {name: vectors[name] for name in multiplied if not cut.whole or name in body.states}
        streams += [_Stream(f"v{i}", before[name]) for i, name in enumerate(multiplied) if name in before]
        streams += [_Stream(f"s{index}", vectors[body.states[index]]) for index in own]
        source = _source(self, stages, numbers, streams, list(multiplied), own)
        pointers: list[Pointer] = [stream.view.pointer for stream in streams]
        pointers += [self.weights[number] for number in numbers]
        words: Words = [*steps]
        for stream in streams:
            words += stream.view.steps
        threads = cut.channels * cut.split
        kernel = KernelSource("recurrent", "recurrent", threads, (), source)
        groups = -(-body.channels // cut.channels), body.rows
        work = macs(context.graph, self.node) // (1 if cut.whole else self.node.steps * len(body.stages))
        context.emit(self.node, self.node.op, kernel, groups, pointers, words, work, complete)

    def _of_y(self, index: int) -> View:
        """A state behind every step."""
        steps = self.y.steps
        shape = (self.node.steps, *self.y.shape[2:])
        return self.y.moved(index * steps[1], shape, (steps[0], *steps[2:]))

    def _steady(self, view: View) -> View:
        """With an axis of steps along which nothing moves."""
        steps = [0 if n == 1 else step for n, step in zip(view.shape, view.steps, strict=True)]
        return replace(view, shape=(self.node.steps, *view.shape), steps=(0, *steps))

    def _read(self, read: Read) -> View:
        """What a stage reads, with an axis of steps, of rows and of channels."""
        if read.data is not None:
            view = self._steady(self.context.constant_view(read.data, read.dtype))
        elif read.name in self.sequences:
            view = self.given[read.name]
        else:
            assert read.name is not None
            view = self._steady(self.given[read.name])
        outer, inner = list(view.steps[:-1]), view.steps[-1]
        if len(view.shape) == 2:
            outer.append(0)
        elif view.shape[1] == 1:
            outer[1] = 0
        steps = (*outer, inner * read.step)
        return view.moved(read.start * inner, (self.node.steps, self.body.rows, self.body.channels), steps)


def _source(
    of: _Launches,
    stages: Sequence[Stage],
    numbers: Sequence[int],
    streams: Sequence[_Stream],
    vectors: Sequence[str],
    own: Sequence[int],
) -> str:
    """The kernel's text.

    Args:
        of: the recurrence.
        stages: that the kernel computes, with `numbers`.
        numbers: theirs among the body's.
        streams: its arguments before the weights.
        vectors: what is in LDS.
        own: states whose element of its channel a work-item needs.
    """
    body, cut = of.body, of.cut
    threads = cut.channels * cut.split
    per = _per(body.stages[0])
    count = pieces(body.channels, 16 // per, cut.split)
    length = count * cut.split * per
    most = max(len(stage.dots) for stage in stages)
    places = {stream.pointer: i for i, stream in enumerate(streams)}
    given = {stream.pointer: stream.view for stream in streams}

    def load(pointer: str, t: str, channel: str) -> str:
        view = given[pointer]
        return f"load_{view.dtype}({pointer} + AT({places[pointer]}, {t}, {channel}) * {view.itemsize})"

    parameters = [f"global u8 *restrict {stream.pointer}" for stream in streams]
    parameters += [f"global const u32x4 *w{number}" for number in numbers]
    lines = [
        WRITTEN + "#define AT(i, time, which) \\",
        "  (m.at[i].step * (time) + m.at[i].row * row + m.at[i].channel * (s32)(which))",
        "struct steps { s32 step, row, channel; };",
        f"struct recurrent {{ u32 count; s32 first, onwards; struct steps at[{len(streams)}]; }};",
        f"THREADS({threads}) kernel void recurrent({', '.join(parameters)}, struct recurrent m) {{",
        f"  local float vectors[{len(vectors)}][{length}] __attribute__((aligned(16)));",
        f"  local float parts[{max(1, (cut.split - 1) * most * cut.channels)}];",
        f"  u32 lane = LANE % {cut.channels}, part = LANE / {cut.channels};",
        f"  u32 channel = GROUP * {cut.channels} + lane;",
        "  s32 row = (s32)GROUP_Y;",
        f"  bool mine = part == 0 && channel < {body.channels};",
        f"  for (u32 k = LANE; k < {length}; k += {threads}) {{",
    ]
    for i in range(len(vectors)):
        there = f"k < {body.channels} ? {load(f'v{i}', '0', 'k')} : 0" if f"v{i}" in places else "0"
        lines.append(f"    vectors[{i}][k] = {there};")
    lines.append("  }")
    steady = [s.pointer for s in streams if s.pointer[0] in "xs" and s.view.steps[0] == 0]
    moving = [s.pointer for s in streams if s.pointer[0] == "x" and s.view.steps[0] != 0]
    lines += [f"  float {_variable(pointer)} = 0;" for pointer in steady]
    lines += ["  if (mine) {"]
    lines += [f"    {_variable(pointer)} = {load(pointer, '0', 'channel')};" for pointer in steady]
    lines += ["  }"]
    if cut.held:
        for number, stage in zip(numbers, stages, strict=True):
            held = count * len(stage.dots)
            lines += [
                f"  u32x4 held{number}[{held}];",
                f"  UNROLL for (u32 i = 0; i < {held}; i++)",
                f"    held{number}[i] = w{number}[{_place(of, stage, count, 'i')}];",
            ]
    lines += [
        "  sync();",
        "  for (u32 i = 0; i < m.count; i++) {",
        "    s32 t = m.first + (s32)i * m.onwards;",
        *(f"    float {_variable(pointer)} = 0;" for pointer in moving),
        "    if (mine) {",
        *(f"      {_variable(pointer)} = {load(pointer, 't', 'channel')};" for pointer in moving),
        "    }",
    ]
    for number, stage in zip(numbers, stages, strict=True):
        lines += _stage(of, number, stage, count, vectors)
        if stage is stages[-1]:
            stores = [
                f"store_{given[f'y{i}'].dtype}(y{i} + AT({places[f'y{i}']}, t, channel) * "
                f"{given[f'y{i}'].itemsize}, new{number}_{i});"
                for i in range(len(stage.made))
            ]
            lines += ["    if (mine) {", *(f"      {store}" for store in stores), "    }"]
    lines += ["  }", "}", ""]
    return "\n".join(lines)


def _stage(of: _Launches, number: int, stage: Stage, count: int, vectors: Sequence[str]) -> list[str]:
    """The sums of a stage, what is made of them, and, where further steps follow, that in LDS."""
    body, cut = of.body, of.cut
    dots, per, dtype = len(stage.dots), _per(stage), stage.dots[0].dtype
    unroll = "UNROLL" if cut.held else _FEW
    lines = []
    if cut.held and per > 4:
        # The compiler would widen weights once and for all steps: twice the registers.
        lines.append(
            f'    UNROLL for (u32 k = 0; k < {count * dots}; k++) __asm__("" : "+v"(held{number}[k]));'
        )
    lines += [
        f"    float total{number}[{dots}] = {{0}};",
        f"    {unroll} for (u32 n = 0; n < {count}; n++) {{",
    ]
    for name in stage.vectors:
        x = vectors.index(name)
        lines.append(f"      f32x4 a{x}[{per // 4}];")
        lines.append(
            f"      UNROLL for (u32 q = 0; q < {per // 4}; q++) a{x}[q] = *(local const f32x4 *)"
            f"&vectors[{x}][(part * {count} + n) * {per} + q * 4];"
        )
    for g, dot in enumerate(stage.dots):
        x, total = vectors.index(dot.x), f"total{number}[{g}]"
        place = _place(of, stage, count, f"n * {dots} + {g}")
        piece = f"held{number}[n * {dots} + {g}]" if cut.held else f"w{number}[{place}]"
        weight = "float_of(w[e])" if per == 4 else f"from_{dtype}((u16)(w[e / 2] >> 16 * (e % 2)))"
        lines += [
            f"      {{ u32x4 w = {piece};",
            f"        UNROLL for (u32 e = 0; e < {per}; e++)",
            f"          {total} = __builtin_fmaf(a{x}[e / 4][e % 4], {weight}, {total});",
            "      }",
        ]
    lines.append("    }")
    if cut.split > 1:
        lines += [
            f"    if (part) UNROLL for (u32 g = 0; g < {dots}; g++)",
            f"      parts[((part - 1) * {dots} + g) * {cut.channels} + lane] = total{number}[g];",
        ]
    lines += ["    sync();"]
    lines += [f"    float new{number}_{i} = 0;" for i in range(len(stage.made))]
    lines += ["    if (mine) {"]
    for g in range(dots):
        lines.append(f"      float sum{g} = total{number}[{g}];")
    if cut.split > 1:
        lines.append(f"      {_FEW} for (u32 s = 0; s < {cut.split - 1}; s++) {{")
        lines += [
            f"        sum{g} += parts[(s * {dots} + {g}) * {cut.channels} + lane];" for g in range(dots)
        ]
        lines.append("      }")
    lines += [f"      float read{i} = read{number}_{i};" for i in range(len(stage.reads))]
    lines += [f"      {line}" for line in stage.lines]
    lines += [f"      new{number}_{i} = {variable};" for i, (_, variable) in enumerate(stage.made)]
    if cut.whole:
        last = stage is body.stages[-1]
        names = body.states if last else [name for name, _ in stage.made]
        for i, name in enumerate(names):
            if name in vectors:
                lines.append(f"      vectors[{vectors.index(name)}][channel] = new{number}_{i};")
            if last and any(i in one.own for one in body.stages):
                lines.append(f"      own{i} = new{number}_{i};")
    return [*lines, "    }", *["    sync();"] * cut.whole]


_FEW = '_Pragma("unroll 4")'
"""What else is unrolled has no room in the registers."""


def _variable(pointer: str) -> str:
    """What holds the element of a stream."""
    return f"read{pointer[1:]}" if pointer[0] == "x" else f"own{pointer[1:]}"


def _per(stage: Stage) -> int:
    """Weights of a piece."""
    return 16 // dtypes.dtype(stage.dots[0].dtype).nbytes


def _place(of: _Launches, stage: Stage, count: int, number: str) -> str:
    """Where the n-th piece of the stage's weights is that a work-item multiplies: of its part first."""
    padded = -(-of.body.channels // of.cut.channels) * of.cut.channels
    return f"(part * {count * len(stage.dots)} + {number}) * {padded} + channel"


# -- unrolled -----------------------------------------------------------------------------------------------


def _unrolled_cycles(context: Context, node: Recurrent) -> float:
    """About how long the body's launches take for all steps."""
    body = node.body
    total = 0.0
    fused = 0
    for one in body.nodes:
        if isinstance(one, MatMul):
            x, out = body.tensor(one.inputs[0]), body.tensor(one.output)
            rows, k = x.size // x.shape[-1], x.shape[-1]
            total += products.cycles(
                context.chip,
                Product(
                    (1, 1, rows),
                    out.shape[-1],
                    k,
                    Operand(x.dtype, (0, 0, k)),
                    Constant(body.tensor(one.inputs[1]).dtype),
                    Operand(out.dtype, (0, 0, out.shape[-1])),
                ),
            )
            fused += 1
        elif isinstance(one, Map):
            total += LAUNCH if fused == 0 else 0
            fused = max(fused - 1, 0)
    return total * node.steps
