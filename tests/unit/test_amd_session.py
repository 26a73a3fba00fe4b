"""When a session of the AMD targets does what, on the shader executor alone: streaming, room, failures."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

from sdk import reference
from sdk.errors import DeviceFailed, InvalidArtifact, Unsupported
from sdk.graph import macs
from sdk.report import size as human
from sdk.target import Injects, OpenOptions, Options
from tests.contract.targets import assert_identical, random_input
from tests.graph_builder import GraphBuilder
from tests.shader_gpu import Memory, ShaderGpu, target
from tests.unit.test_amd_target import amd, small
from towline.cli.benchmarks import load
from usbgpu.target.device import CardDevice
from usbgpu.target.plan import CardPlan
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
        load, launches = log[0][1][:2]
        assert launches[0][1] < launches[-1][1] == sum(len(write.data) for write in load)
        for _ in range(2):
            log.clear()
            np.testing.assert_array_equal(session.run(inputs)[graph.outputs[0]], expected)
            moved = [(name, args) for name, args in log if name == "upload"]
            assert sum(len(args[1]) for name, args in moved if args[0] is session._arena) == 243
            assert not any(args[0] in (session._code, session._weights) for _, args in moved)
        assert [name for name, _ in log].count("prepare") == 0


def test_after_a_failure_nothing_runs_and_closing_frees_everything(amd, monkeypatch):
    graph = small()
    gpu = amd._open_gpu(amd.name[4:], None, OpenOptions())
    amd._open_gpu = lambda *_: gpu
    session = amd.open(None).load(amd.compile(graph, Options()))

    def broken(*_):
        raise DeviceFailed("the cable was pulled")

    monkeypatch.setattr(gpu, "stream", broken)
    with pytest.raises(DeviceFailed, match="cable"):
        session.run(random_input(graph))
    monkeypatch.undo()
    for use in (session.run, session.trace):
        with pytest.raises(DeviceFailed) as caught:
            use(random_input(graph))
        assert "recover" in caught.value.hint
    assert not gpu.closed
    session.close()
    assert gpu.closed
    assert all(buffer.freed for buffer in gpu.buffers)
    with pytest.raises(DeviceFailed, match="closed"):
        session.run(random_input(graph))


def test_a_gpu_without_a_cable_does_not_recover(amd):
    device = amd.open(None)
    with device:
        assert not isinstance(device, Injects)
        with pytest.raises(DeviceFailed) as caught:
            device.recover(1.0)
        assert caught.value.hint
    with pytest.raises(DeviceFailed, match="closed"):
        device.recover(1.0)


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

    def stream(self, load, launches, outputs, summing=None):
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
    session.close()
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


class FarGpu:
    """A card with any amount of memory, of which only addresses and what is written are kept."""

    chip = "gfx1100"

    def __init__(self):
        self.end, self.writes, self.launches, self.prepared = 1 << 45, [], [], 0

    def allocate(self, size, alignment=256):
        start = -(-self.end // alignment) * alignment
        self.end = start + size
        return Memory(start, size)

    def stream(self, load, launches, outputs, summing=None):
        self.writes, self.launches = list(load), list(launches)
        return [bytes(output.size) for output in outputs]

    def close(self):
        pass


def test_weights_of_gigabytes_are_sent_from_where_they_lie():
    """Five of them, of which the host has 16 MB, again and again: a copy would not go unnoticed."""
    nbytes = 5 << 30
    graph = load.network()
    small = target("gfx1100").compile(graph, Options())
    small.plan |= {"checksum": None, "sums": []}  # as of an earlier release; and no sums of so much
    program = load.spread(small, nbytes)
    gpu = FarGpu()
    tracemalloc.start()
    try:
        with CardDevice(gpu).load(program) as session:
            session.run(random_input(graph))
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    weights = next(write.buffer for write in gpu.writes if write.buffer.size >= nbytes)
    sent = [write for write in gpu.writes if write.buffer is weights]
    ends = [write.offset + len(write.data) for write in sent]
    assert [write.offset for write in sent] == [0, *ends[:-1]]
    assert ends[-1] == nbytes
    # Each launch has the addresses of its own weights, and waits for them; the last ones are beyond 4 GiB.
    plan = CardPlan.of(small)
    before = sum(len(write.data) for write in gpu.writes) - nbytes
    for (launch, needed), old in zip(gpu.launches, plan.launches, strict=True):
        for at, space, place in old.relocations:
            if space == "weights":
                address = int.from_bytes(launch.kernarg[at : at + 8], "little") - weights.address
                (data,) = (write.data for write in sent if write.offset == address)
                assert data == next(piece for offset, piece in small.weights.pieces if offset == place)
                assert address + len(data) <= needed - before
    assert address > 4 << 30


@pytest.mark.slow
def test_two_cameras_share_weights_and_code():
    """The same layers on two inputs: constants that are equal are there once, for all layers."""

    def network(passes):
        b = GraphBuilder((1, 32, 8, 8), seed=5)
        y = b.conv("x", 64, 3, pads=1)
        outputs = [y]
        for number in range(1, passes):
            x = b.input(f"x{number}", (1, 32, 8, 8))
            conv = dataclasses.replace(b.nodes[0], name=f"again{number}", output=f"again{number}")
            own = []
            for name in conv.inputs[1:]:  # equal, but other arrays
                tensor = b.tensors[name]
                own.append(f"{name}{number}")
                b.tensors[own[-1]] = dataclasses.replace(tensor, name=own[-1], data=tensor.data.copy())
            b.tensors[conv.output] = dataclasses.replace(b.tensors[y], name=conv.output)
            b.nodes.append(dataclasses.replace(conv, inputs=(x, *own)))
            outputs.append(conv.output)
        return b.graph(*outputs)

    amd = target("gfx1100")
    one, two = (amd.compile(network(passes), Options()) for passes in (1, 2))
    assert two.weights.nbytes == one.weights.nbytes
    assert two.plan["memory"]["code"] == one.plan["memory"]["code"]
    assert len(two.plan["launches"]) == 2 * len(one.plan["launches"])
