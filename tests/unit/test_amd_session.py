"""When a session of the AMD targets does what, on the shader executor alone: streaming, room, failures."""

import numpy as np
import pytest

from sdk import reference
from sdk.errors import DeviceFailed, InvalidArtifact, Unsupported
from sdk.graph import macs
from sdk.report import size as human
from sdk.target import OpenOptions, Options
from tests.contract.targets import assert_identical, random_input
from tests.graph_builder import GraphBuilder
from tests.shader_gpu import ShaderGpu, target
from tests.unit.test_amd_target import amd, small
from usbgpu.target.target import AmdTarget

__all__ = ["amd"]


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


def test_a_failure_closes_the_session_and_frees_everything(amd, monkeypatch):
    graph = small()
    gpu = amd._open_gpu(amd.name[4:], None, OpenOptions())
    amd._open_gpu = lambda *_: gpu
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
    size = program.weights.nbytes + program.plan["memory"]["code"] + program.plan["memory"]["arena"] + 512
    for room in range(1 << 13, size, 1 << 13):
        gpu = ShaderGpu(amd.name[4:], room)
        amd._open_gpu = lambda *_, gpu=gpu: gpu
        monkeypatch.setattr(gpu, "stream", None)
        with pytest.raises(Unsupported, match=f"network takes {human(size)} .*weights.* do not fit"):
            amd.open(None).load(program)
        assert gpu.closed
        assert all(buffer.freed for buffer in gpu.buffers)


class LostGpu(ShaderGpu):
    """The cable is pulled in the middle of the first inference: it cannot be closed either."""

    def stream(self, load, launches, outputs):
        raise KeyboardInterrupt

    def close(self):
        super().close()
        raise DeviceFailed("no answer")


def test_the_first_error_is_the_one_reported(caplog):
    gpu = LostGpu("gfx1100")
    amd = AmdTarget("gfx1100", lambda *_: gpu)
    program = amd.compile(small(), Options())
    session = amd.open(None).load(program)
    with pytest.raises(KeyboardInterrupt):
        session.run(random_input(program.graph))
    assert gpu.closed
    assert "no answer" in caplog.text
    session.close()
    with pytest.raises(InvalidArtifact, match="gfx1100"):
        AmdTarget("gfx1201", lambda *_: LostGpu("gfx1100")).open(None).load(
            target("gfx1201").compile(small(), Options())
        )


def test_a_trace_reads_nothing_behind_the_last_pixel(amd):
    """A Concat's last operand begins so far within its pixels that the arena ends before its last pitch."""
    b = GraphBuilder((1, 4, 1, 2), seed=9)
    x = b.conv("x", 1600)
    b.conv(b.concat(x, b.alike(b.conv("x", 16), x)), 3)
    assert_identical(amd, b.graph())


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
