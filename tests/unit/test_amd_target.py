"""The AMD targets on the shader executor alone: bit-identity, plans, refusals, what a session does when."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdk import reference
from sdk.errors import DeviceFailed, InvalidArtifact, Unsupported
from sdk.graph import Conv, Quantization, macs
from sdk.report import size as human
from sdk.target import Options
from tests.contract.test_targets import GEOMETRY, assert_identical, fits, random_input
from tests.graph_builder import RANGES, GraphBuilder, mobilenet_v2
from tests.shader_gpu import ShaderGpu, target
from usbgpu.target import target as targets
from usbgpu.target.target import AmdTarget

CHIPS = ("gfx1100", "gfx1201")
CHIP = st.sampled_from(CHIPS)


@pytest.fixture(params=CHIPS)
def amd(request):
    return target(request.param)


def small():
    b = GraphBuilder((1, 3, 9, 9), seed=3)
    x = b.conv("x", 20, 3, pads=1, relu=True)
    b.gemm(b.reshape(b.global_average_pool(b.add(b.conv(x, 20), x))), 10)
    return b.graph()


# -- the same bits as the reference -------------------------------------------------------------------------


@settings(max_examples=8)
@given(
    chip=CHIP,
    g=GEOMETRY,
    kind=st.sampled_from(["full", "grouped", "depthwise", "multiplied"]),
    relu=st.booleans(),
    wide=st.booleans(),
)
def test_any_convolution(chip, g, kind, relu, wide):
    if not fits(g, g["kernel"], g["dilations"]):
        g = g | {"pads": (5, 5, 5, 5)}
    channels = g["channels"] * (8 if wide else 1) * (2 if kind == "grouped" else 1)
    group = {"grouped": 2, "depthwise": channels, "multiplied": channels}.get(kind, 1)
    outputs = {"depthwise": channels, "multiplied": channels * 2, "grouped": g["outputs"] * 2}.get(
        kind, g["outputs"]
    )
    b = GraphBuilder((1, channels, g["height"], g["width"]), seed=g["seed"])
    names = ("strides", "pads", "dilations")
    y = b.conv("x", outputs, g["kernel"], group=group, relu=relu, **{name: g[name] for name in names})
    b.conv(y, 5)
    assert_identical(target(chip), b.graph())


def odd_shapes():
    """Networks at the edges: nothing to launch, one pixel, narrow pitches, windows in the padding."""
    b = GraphBuilder((1, 3, 4, 5))
    b.reshape("x")
    yield "nothing to launch", b.graph()
    b = GraphBuilder((2, 3, 4, 5))
    b.conv(b.reshape("x", (1, 24, 1, 5)), 7)
    yield "a batch that is none", b.graph()
    b = GraphBuilder((1, 7, 5))
    b.add(b.requantize("x"), "x")
    yield "no picture", b.graph()
    b = GraphBuilder((1, 1))
    b.gemm("x", 1)
    yield "one number", b.graph()
    b = GraphBuilder((1, 1, 1, 1), dtype="int8")
    y = b.depthwise(b.conv("x", 1, 3, pads=1), 3, pads=(1, 2, 1, 0))
    b.max_pool(y, 2, pads=(1, 1, 0, 0))
    yield "one pixel", b.graph()
    b = GraphBuilder((1, 2, 8, 8))
    b.add(b.conv(b.conv("x", 40), 2), "x")
    yield "a residual of four bytes a pixel", b.graph()
    b = GraphBuilder((1, 4, 8, 4))
    b.add(b.conv("x", 4, 3, pads=1), "x")
    yield "a residual of four bytes a pixel, dot4", b.graph()
    b = GraphBuilder((1, 20, 3, 3))
    far = {"strides": 5, "pads": 7, "dilations": 4}
    b.depthwise(b.conv(b.conv("x", 40, 3, **far), 24), 3, **far)
    yield "windows in the padding", b.graph()
    b = GraphBuilder((1, 20, 1, 1))
    x = b.conv("x", 40)
    flat = b.reshape(x, (1, 40))
    yield "one memory, several names", b.graph(b.add(b.gemm(flat, 40), flat), x)
    b = GraphBuilder((1, 20, 5, 4))
    b.conv(b.conv("x", 24, pads=1), 20, pads=(0, 0, 1, 0), strides=2)
    yield "one tap in the padding", b.graph()
    b = GraphBuilder((1, 6, 5, 4), zero_point=133)
    b.average_pool(b.average_pool("x", 3, pads=1), (5, 4), pads=1)
    yield "averages of odd sums and of padding", b.graph()
    b = GraphBuilder((1, 20, 4, 4))
    x = b.requantize("x")
    y = b.conv(x, 20)
    yield "a product that an Add and others read", b.graph(b.max_pool(y, 2), b.add(y, x))
    b = GraphBuilder((1, 5, 6, 7))
    tensor = b.tensors["x"]
    b.tensors["other"] = dataclasses.replace(
        tensor, name="other", quantization=Quantization.per_tensor(0.03, 5)
    )
    b.values["other"] = b.values["x"][..., ::-1]
    y = b.add("x", "other")
    yield "two inputs", dataclasses.replace(b.graph(), inputs=("x", "other"))


ODD_SHAPES = dict(odd_shapes())


@pytest.mark.parametrize("what", ODD_SHAPES)
def test_odd_shapes(what):
    graph = ODD_SHAPES[what]
    assert_identical(target(CHIPS[len(graph.nodes) % 2]), graph)


def test_groups_apart_and_together(amd):
    """Groups of whole tiles get a launch each, others are one product with zeros."""
    for channels, groups in ((64, 2), (24, 3)):
        b = GraphBuilder((1, channels, 6, 7), seed=channels)
        x = b.conv("x", channels, 3, pads=1, group=groups)
        b.add(b.conv(x, channels, group=groups), x)
        assert_identical(amd, b.graph())
        launches = amd.compile(b.graph(), Options()).plan["launches"]
        names = [launch["name"] for launch in launches if launch["op"] != "Layout"]
        complete = [launch["tensor"] for launch in launches if launch["tensor"]]
        assert complete == ["conv0", "add2"]
        assert names == (["conv0"] * 2 + ["add2"] * 2 if groups == 2 else ["conv0", "add2"])


def test_adds_go_into_what_feeds_them(amd):
    b = GraphBuilder((1, 3, 6, 5), seed=6)
    x = b.conv("x", 18, 3, pads=1)  # a dot4 kernel
    x = b.add(x, b.depthwise(x, pads=1))
    x = b.add(b.depthwise(x, 5, pads=2), x, relu=True)
    x = b.add(b.conv(x, 18, 3, pads=1), x)
    flat = b.reshape(b.global_average_pool(x))
    flat = b.add(b.gemm(flat, 18), flat)
    graph = b.graph(x, flat)
    assert_identical(amd, graph)
    ops = [launch["op"] for launch in amd.compile(graph, Options()).plan["launches"]]
    assert [op for op in ops if op != "Layout"] == [
        *("Conv", "Conv+Add", "Conv+Add", "Conv+Add", "GlobalAveragePool", "Gemm+Add"),
    ]


def test_adds_that_stand_alone(amd):
    """Of an input with itself and with what others read too, and where a narrow pitch meets a wide one."""
    b = GraphBuilder((1, 3, 6, 5), seed=7)
    y = b.conv("x", 3)
    z = b.add(y, "x")
    graph = b.graph(y, z, b.add("x", "x"), b.requantize("x"), b.max_pool("x", 2))
    assert_identical(amd, graph)


def test_pictures_are_reshaped_in_c_order(amd):
    b = GraphBuilder((1, 5, 4, 7), seed=8)
    x = b.conv("x", 9, 3, pads=1)
    flat = b.gemm(b.reshape(x), 12)
    again = b.conv(b.reshape(x, (1, 6, 6, 7)), 8)
    assert_identical(amd, b.graph(flat, again, x))


@pytest.mark.parametrize(("dtype", "zero_point"), [("uint8", 128), ("int8", 1), ("uint8", 100)])
def test_weights_with_a_zero_point(amd, dtype, zero_point):
    graph = small()
    weight = graph.tensor("conv0.w")
    data = np.clip(weight.data.astype(np.int16) // 2 + zero_point, *RANGES[dtype])
    quantization = Quantization(weight.quantization.scale, np.full(20, zero_point, np.int32), 0)
    graph.tensors["conv0.w"] = dataclasses.replace(
        weight, dtype=dtype, data=data.astype(dtype), quantization=quantization
    )
    assert_identical(amd, graph)


@pytest.mark.slow
@settings(max_examples=150)
@given(chip=CHIP, seed=st.integers(0, 10_000))
def test_any_network(chip, seed):
    """Random graphs of everything, several outputs, tensors that live long."""
    random = np.random.default_rng(seed)
    shape = (1, int(random.integers(1, 40)), int(random.integers(1, 14)), int(random.integers(1, 14)))
    b = GraphBuilder(shape, seed=seed, dtype=str(random.choice(["uint8", "int8"])))
    known = ["x"]
    for _ in range(int(random.integers(2, 9))):
        x = str(random.choice(known))
        size = b.tensors[x].shape
        same = [name for name in known if b.tensors[name].shape == size]
        relu = bool(random.integers(2))
        match int(random.integers(7)):
            case 0:
                y = b.conv(x, int(random.integers(1, 70)), relu=relu)
            case 1:
                y = b.conv(x, int(random.integers(1, 33)), 3, pads=1, strides=int(random.integers(1, 3)))
            case 2:
                y = b.depthwise(x, pads=1, relu=relu)
            case 3:
                y = b.add(x, str(random.choice(same)), relu=relu)
            case 4:
                y = b.requantize(x, relu=relu)
            case 5:
                y = b.max_pool(x, 2, pads=(1, 1, 0, 0))
            case 6:
                y = b.average_pool(x, 3, pads=1, strides=int(random.integers(1, 3)))
        known.append(y)
    outputs = list(dict.fromkeys([known[-1], str(random.choice(known[1:]))]))
    used = {name for node in b.nodes for name in node.inputs} | set(outputs)
    assert_identical(target(chip), b.graph(*outputs, *(name for name in known[1:] if name not in used)))


@pytest.mark.slow
def test_mobilenet_v2_whole(amd):
    graph = mobilenet_v2(224, zero_point=114)
    assert sum(isinstance(node, Conv) for node in graph.nodes) == 52
    assert_identical(amd, graph)


# -- the session --------------------------------------------------------------------------------------------


def test_the_first_inference_streams_and_the_next_only_bring_inputs(amd, monkeypatch):
    graph = small()
    program = amd.compile(graph, Options())
    inputs = random_input(graph)
    expected = reference.run(graph, inputs)[graph.outputs[0]]
    log = []
    for name in ("stream", "prepare", "upload", "download"):
        original = getattr(ShaderGpu, name)
        monkeypatch.setattr(
            ShaderGpu, name, lambda self, *a, _f=original, _n=name: (log.append((_n, a)), _f(self, *a))[1]
        )
    with amd.open(None).load(program) as session:
        log.clear()
        np.testing.assert_array_equal(session.run(inputs)[graph.outputs[0]], expected)
        assert log[0][0] == "stream"
        (load, launches, _) = log[0][1]
        assert launches[0][1] < launches[-1][1] == sum(len(write.data) for write in load)
        for _ in range(2):
            log.clear()
            np.testing.assert_array_equal(session.run(inputs)[graph.outputs[0]], expected)
            moved = [(name, args) for name, args in log if name == "upload"]
            assert sum(len(args[1]) for name, args in moved if args[0] is session._arena) == 243
            assert not any(args[0] in (session._code, session._weights) for _, args in moved)
        assert [name for name, _ in log].count("prepare") == 0


def test_a_failure_closes_the_session_and_gives_everything_back(amd, monkeypatch):
    graph = small()
    gpu = amd._open_gpu(amd.name[4:], None)
    amd._open_gpu = lambda chip, device: gpu
    session = amd.open(None).load(amd.compile(graph, Options()))

    def broken(*_):
        raise DeviceFailed("the cable was pulled")

    monkeypatch.setattr(gpu, "stream", broken)
    with pytest.raises(DeviceFailed, match="cable"):
        session.run(random_input(graph))
    assert gpu.closed
    assert all(buffer.freed for buffer in gpu.buffers)
    with pytest.raises(DeviceFailed, match="closed"):
        session.run(random_input(graph))


def test_a_card_without_room_is_left_as_it_was(amd, monkeypatch):
    """Refused with the sizes of all of it, before anything is uploaded."""
    program = amd.compile(small(), Options())
    size = len(program.weights) + program.plan["memory"]["code"] + program.plan["memory"]["arena"] + 512
    for room in range(1 << 13, size, 1 << 13):
        gpu = ShaderGpu(amd.name[4:], room)
        amd._open_gpu = lambda chip, device, gpu=gpu: gpu
        monkeypatch.setattr(gpu, "stream", None)
        with pytest.raises(Unsupported, match=f"network takes {human(size)} .*weights.* do not fit"):
            amd.open(None).load(program)
        assert gpu.closed
        assert all(buffer.freed for buffer in gpu.buffers)


class LostGpu(ShaderGpu):
    """The cable is pulled in the middle of the first inference: nor can it be closed."""

    def stream(self, load, launches, outputs):
        raise KeyboardInterrupt

    def close(self):
        super().close()
        raise DeviceFailed("nobody there")


def test_what_went_wrong_first_is_what_is_told(caplog):
    gpu = LostGpu("gfx1100")
    amd = AmdTarget("gfx1100", lambda chip, device: gpu)
    program = amd.compile(small(), Options())
    session = amd.open(None).load(program)
    with pytest.raises(KeyboardInterrupt):
        session.run(random_input(program.graph))
    assert gpu.closed
    assert "nobody there" in caplog.text
    session.close()
    with pytest.raises(InvalidArtifact, match="gfx1100"):
        AmdTarget("gfx1201", lambda chip, device: LostGpu("gfx1100")).open(None).load(
            target("gfx1201").compile(small(), Options())
        )


def test_a_trace_and_a_profile_come_first_as_well(amd):
    """Without an inference before them; the profile's counters add up."""
    graph = small()
    program = amd.compile(graph, Options())
    inputs = random_input(graph)
    expected = reference.run(graph, inputs)
    with amd.open(None).load(program) as session:
        traced = session.trace(inputs)
        assert set(traced) == {node.output for node in graph.nodes} - {"conv1", "reshape4"}
        for name, value in traced.items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
    with amd.open(None).load(program) as session:
        profile = session.profile()
        for name in ("waves", "wave_instructions", "virtual_us"):
            assert profile.total[name] == pytest.approx(sum(layer.counters[name] for layer in profile.layers))
            assert all(layer.counters[name] > 0 for layer in profile.layers)
        assert profile.total["macs"] == sum(macs(graph, node) for node in graph.nodes)
        assert profile.total["launches"] == len(profile.layers)
        assert profile.memory == program.plan["memory"]
        np.testing.assert_array_equal(session.run(inputs)["gemm5"], expected["gemm5"])


# -- refusals -----------------------------------------------------------------------------------------------


def test_refused_nodes_say_why(amd):
    b = GraphBuilder((2, 4, 5, 5))
    b.conv("x", 4)
    assert "batch" in amd.supports(b.graph(), b.nodes[0]).reason
    graph = small()
    weight = graph.tensor("conv0.w")
    moved = Quantization(weight.quantization.scale, weight.quantization.zero_point + np.int32(3), 0)
    graph.tensors["conv0.w"] = dataclasses.replace(weight, quantization=moved)
    verdict = amd.supports(graph, graph.nodes[0])
    assert "zero-point" in verdict.reason
    assert verdict.hint
    graph = small()
    weight = graph.tensor("conv0.w")
    scales = weight.quantization.scale.copy()
    scales[7] = 1e6  # one channel of many
    graph.tensors["conv0.w"] = dataclasses.replace(
        weight, quantization=dataclasses.replace(weight.quantization, scale=scales)
    )
    assert "out of range" in amd.supports(graph, graph.nodes[0]).reason
    b = GraphBuilder((1, 4, 5, 5))
    y = b.average_pool("x", 3, pads=2)  # a corner has one element
    graph = b.graph()
    for scale, supported in ((0.02 / 511, True), (0.02 / 513, False)):
        quantization = Quantization.per_tensor(scale, 3)
        graph.tensors[y] = dataclasses.replace(graph.tensor(y), quantization=quantization)
        assert amd.supports(graph, graph.nodes[0]).supported == supported
    graph = small()
    out = graph.tensor("conv0")
    for scale in (1e-8, 1e-38):
        graph.tensors["conv0"] = dataclasses.replace(out, quantization=Quantization.per_tensor(scale, 3))
        assert "out of range" in amd.supports(graph, graph.nodes[0]).reason
    huge = dataclasses.replace(out, shape=(1, 20, 1 << 14, 1 << 14))
    graph.tensors["conv0"] = huge
    assert "too large" in amd.supports(graph, graph.nodes[0]).reason
    for name in ("pads", "strides", "dilations"):
        graph = small()
        conv = graph.nodes[0]
        conv = dataclasses.replace(conv, **{name: (1 << 15,) * len(getattr(conv, name))})
        assert f"{name} [32768" in amd.supports(graph, conv).reason


def test_weights_are_counted_as_they_will_lie_in_memory(amd):
    """Sixteen channels for one, and all groups in one product."""
    graph = small()
    for shape, supported in (((1, 1 << 25, 1, 1), True), ((1, 1 << 26, 1, 1), False), ((64, 1 << 24), False)):
        weight = dataclasses.replace(
            graph.tensor("conv0.w"),
            shape=shape,
            data=np.broadcast_to(np.int8(1), shape),
            quantization=Quantization.per_tensor(0.1, 0),
        )
        graph.tensors["conv0.w"] = weight
        verdict = amd.supports(graph, graph.nodes[0]) if not supported else None
        assert verdict is None or f"weights of {list(shape)} are too large" in verdict.reason


def test_a_program_beyond_what_a_plan_can_say_is_refused(amd, monkeypatch):
    program = amd.compile(small(), Options())
    for name, limit in (("weights", len(program.weights)), ("activations", program.plan["memory"]["arena"])):
        monkeypatch.setattr(targets, "LIMIT", limit)
        with pytest.raises(Unsupported, match=f"its {name} take"):
            amd.compile(small(), Options())
