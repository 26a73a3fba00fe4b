"""The parts of the Hexagon target that can be tested without running it."""

import copy
import dataclasses
import functools
import os
import stat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp.hexagon import build
from dsp.hexagon.calls import At
from dsp.hexagon.layout import Geometry, Pitches, Window, element_index, phase_planes, plain_planes
from dsp.hexagon.lowering import lower
from dsp.hexagon.packing import (
    Blob,
    conv_weights,
    depthwise_weights,
    gemm_weights,
    pixel_bounds,
    pixel_mask,
    three_by_three_weights,
)
from dsp.hexagon.plan import HexagonPlan, span
from sdk import cache, reference
from sdk.arena import ALIGNMENT, Buffer, plan
from sdk.errors import InvalidArtifact, OutputFailed, ToolMissing
from sdk.graph import Quantization, Tensor
from sdk.target import Options
from sdk.targets import get_target
from sdk.weights import Weights
from tests.graph_builder import GraphBuilder, mobilenet_v2

SPANS = st.lists(
    st.tuples(st.integers(1, 50), st.integers(0, 20), st.integers(0, 6)), min_size=1, max_size=25
)


@pytest.mark.slow
@given(SPANS, st.sampled_from([0, 100]))
def test_live_buffers_never_share_bytes(spans, guard):
    buffers = [
        Buffer(str(i), size * ALIGNMENT, first, first + length)
        for i, (size, first, length) in enumerate(spans)
    ]
    arena = plan(buffers, guard)
    for i, a in enumerate(buffers):
        assert 0 <= a.offset <= a.offset + a.nbytes <= arena
        assert a.offset % ALIGNMENT == 0
        for b in buffers[:i]:
            apart = guard or 0
            disjoint = a.offset + a.nbytes + apart <= b.offset or b.offset + b.nbytes + apart <= a.offset
            assert disjoint or not (guard or a.overlaps_in_time(b))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "width"),
    [(96, 0.35), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((224, 1.0), (160, 0.5)))],
)
def test_the_arena_stays_near_the_largest_live_set(size, width):
    lowered = lower(mobilenet_v2(size, width, 10))
    assert lowered.arena <= 1.3 * lowered.live_peak


@settings(max_examples=30)
@given(
    height=st.integers(2, 12),
    width=st.integers(2, 12),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
)
def test_taps_of_phases_lead_to_the_right_pixels(height, width, kernel, strides, pads):
    """Cell by cell: output position plus tap offset is the padded pixel that ONNX's window reads."""
    window = Window(kernel, strides, pads)
    rows = (height + pads[0] + pads[2] - kernel[0]) // strides[0] + 1
    columns = (width + pads[1] + pads[3] - kernel[1]) // strides[1] + 1
    if rows < 1 or columns < 1:
        return
    x = Tensor("x", (1, 4, height, width), "uint8", Quantization.per_tensor(1, 0))
    y = Tensor("y", (1, 4, rows, columns), "uint8", Quantization.per_tensor(1, 0))
    pitch = columns + (kernel[1] - 1) // strides[1]
    planes = phase_planes("x", x, window, y, pitch, 0)
    cells = element_index((1, 1, height, width), planes.geometry)[0, 0] // 4
    pixel_at = {}  # what a cell holds, for the pixels that have one
    for (row, column), cell in np.ndenumerate(cells):
        padded_row, padded_column = row + pads[0], column + pads[1]
        if padded_row // strides[0] < planes.rows and padded_column // strides[1] < pitch:
            pixel_at[int(cell)] = (row, column)
    for row in range(rows):
        for column in range(columns):
            for tap_row, tap_column in window.taps():
                pixel = (row * strides[0] + tap_row - pads[0], column * strides[1] + tap_column - pads[1])
                inside = 0 <= pixel[0] < height and 0 <= pixel[1] < width
                cell = (row * pitch + column) + planes.tap(tap_row, tap_column) // 4
                assert pixel_at.get(cell) == (pixel if inside else None)


def test_bounds_force_the_padding_and_pass_the_pixels():
    x = Tensor("x", (1, 3, 5, 6), "uint8", Quantization.per_tensor(1, 0))
    planes = plain_planes("x", x, 7, 8, 8, 0)
    mask, bounds = pixel_mask(planes), pixel_bounds(planes, (10, 200), 77)
    low, high = bounds[:, 0].reshape(-1), bounds[:, 1].reshape(-1)
    assert mask.view(np.int32).tolist().count(-1) == 30
    assert (low[mask == 0] == 77 * 0x01010101).all()
    assert (high[mask == 0] == 77 * 0x01010101).all()
    assert (low[mask != 0] == 10 * 0x01010101).all()
    assert (high[mask != 0] == 200 * 0x01010101).all()


def test_pitches_join_what_walks_in_step():
    b = GraphBuilder((1, 4, 8, 8))
    x = b.conv("x", 8)
    y = b.add(b.conv(b.depthwise(x, pads=1), 8), x)
    b.conv(y, 4, 3, strides=2, pads=1)
    pitches = Pitches(b.graph())
    assert {pitches.pitch(name) for name in ("x", x, y)} == {9}  # one padding column serves both sides
    assert pitches.pitch(b.nodes[-1].output) == 5


def test_a_narrow_producer_is_pushed_into_phases_and_a_wide_one_is_not():
    b = GraphBuilder((1, 4, 8, 8))
    wide = b.conv("x", 24)
    b.depthwise(wide, strides=2, pads=1)
    narrow = b.conv(b.nodes[-1].output, 4)
    b.conv(narrow, 4, 3, strides=2, pads=1)
    assert list(Pitches(b.graph()).pushed) == [wide]


def test_packed_weights_hold_every_weight_where_the_kernels_look():
    random = np.random.default_rng(3)
    conv = random.integers(-127, 128, (13, 5, 4), "int8")
    packed = conv_weights(conv, 8)
    assert packed.shape == (16 * 5 * 4,)
    assert packed[(3 * 8 + 6) * 4 + 2] == conv[6, 3, 2]  # tile 0: [step][8][4]
    assert packed[8 * 5 * 4 + (4 * 8 + 1) * 4 + 3] == conv[9, 4, 3]
    packed = conv_weights(conv, 4)
    assert packed[2 * 4 * 5 * 4 + (3 * 4 + 1) * 4 + 2] == conv[9, 3, 2]  # tile 2: [step][4][4]
    depthwise = random.integers(-127, 128, (6, 9), "int8")
    words = depthwise_weights(depthwise, 2, True)
    assert words.shape == (2, 3, 4, 4)
    assert (words[1, 1, 1] == depthwise[5, 4:8]).all()
    assert words[0, 2, 3].tolist() == [0, 0, 0, depthwise[3, 8]]  # the single tap, in its channel's own byte
    columns = three_by_three_weights(depthwise, (0, 2, 1))
    assert columns.shape == (2, 2, 3, 2, 4)
    assert columns[0, 0, 0, 1].tolist() == [*depthwise[2, 0::3], 0]  # channel 2: its first column, a gap
    assert columns[1, 1, 1, 0].tolist() == [*depthwise[5, 2:6:3], 0, depthwise[5, 8]]  # channel 5: its last
    assert not columns[1, :, :, 1].any()  # there are no channels 6 and 7
    gemm = random.integers(-127, 128, (40, 7), "int8")
    blocks = gemm_weights(gemm)
    assert blocks.shape == (2, 2, 32, 4)
    assert blocks[1, 1, 3, 2] == gemm[35, 6]
    assert blocks[1, 1, 3, 3] == 0


def test_equal_pieces_of_the_blob_are_stored_once():
    blob = Blob()
    first = blob.add(np.arange(5, dtype=np.int8))
    blob.add(np.ones(200, np.int8))
    assert blob.add(np.arange(5, dtype=np.int8)) == first
    assert len(bytes(blob.weights())) == 3 * ALIGNMENT


@pytest.fixture
def graph():
    b = GraphBuilder((1, 4, 5, 5))
    b.conv("x", 4)
    return b.graph()


@pytest.mark.slow
def test_kernels_come_from_the_cache_the_second_time(graph, tmp_path, monkeypatch):
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path))
    target = get_target("hexagon-v65")
    target.compile(graph, Options())
    objects = {path: path.stat().st_mtime_ns for path in cache.directory(build.CACHE).iterdir()}
    assert objects
    target.compile(graph, Options())
    assert objects == {path: path.stat().st_mtime_ns for path in cache.directory(build.CACHE).iterdir()}


@pytest.mark.slow
def test_a_damaged_cache_entry_is_replaced(graph, tmp_path, monkeypatch):
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path))
    target = get_target("hexagon-v65")
    whole = target.compile(graph, Options())
    for path in cache.directory(build.CACHE).iterdir():
        path.write_bytes(path.read_bytes()[:100])
    assert target.compile(graph, Options()).code == whole.code


@pytest.mark.slow
def test_a_cache_that_cannot_be_made_is_an_output_error(graph, tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("TOWLINE_CACHE", str(file))
    with pytest.raises(OutputFailed) as caught:
        get_target("hexagon-v65").compile(graph, Options())
    assert "TOWLINE_CACHE" in caught.value.hint


@pytest.mark.parametrize("variable", ["TOWLINE_CLANG", pytest.param("TOWLINE_LLD", marks=pytest.mark.slow)])
def test_a_missing_tool_names_its_package(graph, variable, tmp_path, monkeypatch):
    monkeypatch.setenv(variable, str(tmp_path / "absent"))
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path))
    with pytest.raises(ToolMissing) as caught:
        get_target("hexagon-v65").compile(graph, Options())
    assert "apt-get install" in caught.value.hint
    objects = list(tmp_path.rglob("*.o"))
    assert not [path for path in objects if path.name.startswith(".")]  # no half-written one
    assert bool(objects) == (variable == "TOWLINE_LLD")


def test_nothing_half_written_in_the_cache_when_the_compiler_fails(graph, tmp_path, monkeypatch):
    fake = tmp_path / "clang"
    fake.write_text(
        "#!/bin/sh\ncase $1 in --version) echo clang version 19.1.7;; *) echo boom >&2; exit 1;; esac\n"
    )
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("TOWLINE_CLANG", str(fake))
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(Exception, match="boom"):
        get_target("hexagon-v65").compile(graph, Options())
    left = [name for _, _, names in os.walk(tmp_path / "cache") for name in names]
    assert left == []


@pytest.mark.slow
def test_the_live_peak_counts_what_a_fused_add_reads():
    b = GraphBuilder((1, 4, 32, 32))
    x = b.conv("x", 32)
    y = b.conv("x", 32)
    b.add(b.conv(x, 32), y)
    assert lower(b.graph()).live_peak == 3 * 32 * 32 * 32  # both operands' sources and the sum


@pytest.mark.slow
def test_no_kernel_reads_beyond_the_margin():
    """Every vector load of every call, from the descriptors: within the arena and its margins."""
    big = GraphBuilder((1, 3, 40, 23))
    x = big.conv("x", 8, (5, 7), pads=(4, 6, 0, 3), dilations=(2, 3))
    x = big.conv(x, 24)
    x = big.depthwise(x, 5, strides=3, pads=2)
    x = big.max_pool(big.add(x, big.conv(x, 24, 3, pads=1)), 3, pads=1)
    big.average_pool(x, (4, 3), pads=(3, 2, 0, 0))
    row = GraphBuilder((1, 4, 1, 9))  # whose phases end the arena
    row.depthwise("x", strides=2, pads=1)
    small = GraphBuilder((1, 64, 14, 14))
    small.conv("x", 64)
    for graph in (big.graph(), row.graph(), small.graph(), mobilenet_v2(32, 0.25, 10)):
        lowered = lower(graph)
        for layer in lowered.layers:
            for call in layer.calls:
                for first, last in reads(lowered, call):
                    assert first >= -lowered.margin, (layer.name, call.struct)
                    assert last <= lowered.arena + lowered.margin, (layer.name, call.struct)


def reads(lowered, call):
    """[first, last) arena bytes of the loads of the calls that read beyond their own pixels."""
    fields = {k: build.resolve(v) if isinstance(v, At) else v for k, v in call.fields.items()}

    def table(length):
        return np.frombuffer(lowered.weights[fields["table"] :][: 4 * length], "<i4")

    x = fields.get("x", 0)
    if call.struct == "conv" and "TABLE" in call.kernel.defines:
        steps = next(int(d.split("=")[1]) for d in call.kernel.defines if d.startswith("STEPS="))
        yield x + table(steps).min(), x + table(steps).max() + fields["vectors"] * ALIGNMENT
    elif call.struct == "conv" and "PIPELINED" in call.kernel.defines:  # a group's first pixels too many
        yield x, x + (fields["vectors"] + 1) * ALIGNMENT
    elif (
        call.struct == "taps"
    ):  # two vectors from the last row's last block of 128 pixels, at a stride of two
        stride = 2 if "STRIDE=2" in call.kernel.defines else 1
        channels = next(int(d.split("=")[1]) for d in call.kernel.defines if d.startswith("CHANNELS="))
        last = channels * fields["height"] * fields["width"] - fields["width"]
        block = (fields["columns"] - 1) // ALIGNMENT * ALIGNMENT * stride
        yield x - fields["left"], x + last + block + stride * ALIGNMENT + len(fields["begin"])
    elif call.struct == "lanes":  # the next unit's pixels and sums, also behind the last one
        cells, pixels = 64 * (fields["groups"] + 1), call.kernel.symbol.count("_") - 1
        steps = int(call.kernel.symbol.split("_")[1])
        yield x, x + steps * fields["x_plane"] + cells
        yield fields["sums"], fields["sums"] + (fields["groups"] + 1) * pixels * ALIGNMENT
    elif call.struct in ("depthwise", "maxpool"):
        by_hand = "THREE_BY_THREE" in call.kernel.defines
        quads = 4 * fields.get("quads", 0) + ("SINGLE=1" in call.kernel.defines)
        taps = table(6 if by_hand else fields.get("taps", quads))
        vectors = fields["vectors"] + (3 if by_hand else 0)  # where its reading ends
        end = (fields["planes"] - 1) * fields["x_plane"] + vectors * ALIGNMENT
        yield x + taps.min(), x + taps.max() + end
    elif call.struct == "gather":
        for a, rows in enumerate(fields["row"]):
            row = rows["begin"] * fields["stride_y"] + a - fields["top"]
            first = x + (row * fields["x_pitch"] - fields["left"]) * 4
            count = rows["end"] - rows["begin"]
            step = fields["x_pitch"] * fields["stride_y"] * 4
            width = -(-fields["pitch"] * 4 // ALIGNMENT) * ALIGNMENT * fields["stride_x"]
            planes = (fields["planes"] - 1) * fields["x_plane"]
            yield first, first + max(count - 1, 0) * step + width + planes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("height", "width", "channels"),
    [
        (15, 13, 12),  # seven vectors; after the strides two and, by the compiled kernel, one
        *(
            pytest.param(height, width, channels, marks=pytest.mark.slow)
            for height, width in (
                (2, 9),
                (4, 8),
                (5, 12),
                (7, 7),
                (6, 20),
                (9, 16),
                (12, 14),
                (15, 13),
                (19, 15),
            )
            for channels in (8, 20)
        ),
    ],
)
def test_loops_by_hand_hold_for_any_number_of_vectors(height, width, channels):
    """Odd and even numbers of planes and vectors, whole and in halves, at strides of one and two."""
    b = GraphBuilder((1, channels, height, width), seed=width)
    x = b.depthwise(b.conv("x", channels + 4), pads=1)
    x = b.add(b.conv(x, channels + 4), x)
    x = b.depthwise(b.conv(x, channels + 8), strides=2, pads=1)
    b.depthwise(b.conv(x, 6), strides=2, pads=1)
    assert_exact(b.graph())


@pytest.mark.slow
def test_rows_of_several_vectors_and_what_is_left_over():
    """Phases of wide pictures, padded or pushed; a single vector; a padded sum; blocks of a matrix."""
    b = GraphBuilder((1, 4, 5, 70))
    wide = b.depthwise("x", strides=2, pads=1)
    pushed = b.depthwise(b.conv("x", 12), strides=2, pads=1)
    gathered = b.max_pool("x", 3, pads=1)
    small = b.depthwise(b.max_pool(pushed, 3, strides=3), pads=1)
    summed = b.depthwise(b.add(b.conv("x", 4), "x"), pads=1)
    matrix = b.gemm(b.reshape(b.global_average_pool(wide)), 21 * 32 + 5)  # in halves: 11 blocks
    assert_exact(b.graph(pushed, gathered, small, summed, matrix))


def assert_exact(graph):
    """Every layer is the reference's, run whole and in the halves of two contexts."""
    tensor = graph.tensor("x")
    inputs = {"x": np.random.default_rng(1).integers(0, 256, tensor.shape, "uint8")}
    target = get_target("hexagon-v65")
    expected = reference.run(graph, inputs, target.arithmetic)
    with target.open(None).load(target.compile(graph, Options())) as session:
        for poison, trace in ((0, session.trace), (0xFF, session.trace_halves)):
            session.poison(poison)
            for name, value in trace(inputs).items():
                np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.slow
def test_both_contexts_get_their_share():
    target = get_target("hexagon-v65")
    program = target.compile(mobilenet_v2(32, 0.25, 10), Options())
    with target.open(None).load(program) as session:
        profile = session.profile()
    assert profile.total["packets_longer_half"] < 0.75 * profile.total["packets"]


def test_refusals_follow_the_numbers_that_matter():
    target = get_target("hexagon-v65")
    b = GraphBuilder((1, 4, 7, 7))
    y = b.global_average_pool("x")
    graph = b.graph()
    out = graph.tensor(y)
    fine = Quantization.per_tensor(graph.tensor("x").scale / 300, 3)  # over 49 pixels: a scale of 6
    graph.tensors[y] = type(out)(y, out.shape, out.dtype, fine)
    assert target.supports(graph, graph.nodes[0]).supported
    b = GraphBuilder((1, 2048, 1, 1))
    y = b.conv("x", 4, per_channel=False)
    graph = b.graph()
    weight, out = graph.tensor("conv0.w"), graph.tensor(y)
    around = Quantization(weight.quantization.scale, np.asarray(128, np.int32))
    small = (weight.data.astype(np.int16) % 3 + 127).astype(np.uint8)  # -1..1, stored around 128
    graph.tensors["conv0.w"] = type(weight)("conv0.w", weight.shape, "uint8", around, small)
    scale = graph.tensor("x").scale * float(weight.quantization.scale) / 50
    graph.tensors[y] = type(out)(y, out.shape, out.dtype, Quantization.per_tensor(scale, 3))
    assert target.supports(graph, graph.nodes[0]).supported


@settings(max_examples=50)
@given(
    shape=st.tuples(st.integers(1, 4), *[st.integers(1, 40)] * 3),
    strides=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    starts=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    steps=st.tuples(*[st.integers(0, 300)] * 4),
)
def test_the_span_of_a_geometry_is_its_last_element_s(shape, strides, starts, steps):
    at = Geometry(*steps, strides, *starts)
    assert span(shape, at) == 1 + element_index(shape, at).max()


@functools.cache
def compiled():
    b = GraphBuilder((1, 3, 9, 9))
    x = b.conv("x", 12)
    b.depthwise(x, strides=2, pads=1)
    b.global_average_pool(b.nodes[-1].output)
    return get_target("hexagon-v65").compile(b.graph(), Options())


DAMAGE = {
    "a tensor of no layer": ("plan.layers[0]", lambda plan: plan["layers"][0].update(tensor="conv0.w")),
    "a trace too short": ("plan.layers[0].trace_bytes", lambda plan: plan["layers"][0].update(trace_bytes=9)),
    "a trace beyond the arena": (
        "plan.layers[0].trace_bytes",
        lambda plan: plan["layers"][0].update(trace_bytes=1 << 30),
    ),
    "a farther plane": (
        "plan.layers[0].trace_bytes",
        lambda plan: plan["layers"][0]["geometry"].update(plane=1 << 20),
    ),
    "planes beyond any": (
        "plan.layers[0].geometry",
        lambda plan: plan["layers"][0]["geometry"].update(plane=1 << 62),
    ),
    "backwards": ("plan.layers[0].geometry", lambda plan: plan["layers"][0]["geometry"].update(pitch=-9)),
    "no stride": (
        "plan.layers[0].geometry",
        lambda plan: plan["layers"][0]["geometry"].update(stride=[0, 1]),
    ),
    "a buffer beyond the arena": ("plan.buffers[0]", lambda plan: plan["buffers"][0].update(offset=1 << 30)),
    "no arena": ("plan.memory", lambda plan: plan["memory"].pop("arena")),
    "a version of no tool": ("plan.toolchain.clang", lambda plan: plan["toolchain"].update(clang=17)),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_plan_is_refused(damage):
    program = dataclasses.replace(compiled(), plan=copy.deepcopy(compiled().plan))
    where, change = DAMAGE[damage]
    change(program.plan)
    with pytest.raises(InvalidArtifact) as caught:
        HexagonPlan.of(program)
    assert caught.value.where == where


@pytest.mark.slow
@pytest.mark.parametrize("change", [lambda w: w[:-128], lambda w: w + b"R\0\0\0"], ids=["short", "long"])
def test_weights_of_another_length_are_refused(graph, change):
    target = get_target("hexagon-v65")
    program = target.compile(graph, Options())
    program.weights = Weights.of(change(bytes(program.weights)))
    with pytest.raises(InvalidArtifact):
        target.open(None).load(program)
