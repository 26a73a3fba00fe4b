"""`towline run --twice`, and what it finds: planted races in kernels, between launches, and in counts."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from sdk import artifact, compiler
from sdk.expression.trace import apply
from sdk.graph import MatMul
from sdk.opencl import maps
from sdk.session import Session
from sdk.target import Profile
from sdk.twice import run_twice
from tests import reference_target, shader_gpu
from tests.plain_graphs import PlainBuilder
from tests.shader_gpu import ShaderPrepared
from towline.cli import main

CHIP = "amd-gfx1100"


def network():
    """A matrix product between two Maps of four workgroups."""
    b = PlainBuilder(3)
    x = b.map(lambda v: v * 2.0, b.input((16, 16)))
    y = b.node(MatMul, (x, b.constant((16, 16))), transposed=False)
    b.map(lambda v: apply("tanh", v), y)
    return b.graph(), b.inputs


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """Compile and open the network on the shader executor; and what runs its workgroups backwards."""
    shader_gpu.register(monkeypatch, tmp_path)
    sessions = []

    def opening():
        graph, inputs = network()
        compiled = compiler.compile(graph, CHIP)
        session = Session(compiled)
        sessions.append(session)
        executor = session.on_device._gpu.executor
        return compiled, session, inputs, lambda second: setattr(executor, "backwards", second)

    yield opening
    for session in sessions:
        session.close()


def test_what_is_the_same_twice(opened):
    compiled, session, inputs, disturb = opened()
    found = run_twice(compiled, session, inputs, disturb)
    assert found.difference is None
    assert found.elements == 256 * found.tensors
    assert found.tensors == len({node.output for node in compiled.program.graph.nodes})
    assert found.scheduled == len(compiled.program.plan["launches"])


def test_two_work_items_that_write_one_element(opened, monkeypatch):
    """All four workgroups write the first quarter of the elements: the last one wins."""
    source = maps.source

    def racing(*args):
        kernel = source(*args)
        return dataclasses.replace(kernel, text=kernel.text.replace("(y + (at[0] ", "(y + (at[0] % 64 "))

    monkeypatch.setattr(maps, "source", racing)
    compiled, session, inputs, disturb = opened()
    assert run_twice(compiled, session, inputs).difference is None  # always the same order
    first = compiled.program.graph.nodes[0]
    found = run_twice(compiled, session, inputs, disturb).difference
    assert (found.layer, found.tensor, found.elements) == (first.name, first.output, 64)


def test_a_launch_that_does_not_wait(opened, monkeypatch):
    """The last launch runs before the one that makes its input; one by one they are in order."""
    compiled, session, inputs, _ = opened()
    session.run(inputs)
    arena = session.on_device._arena

    def overlapping(self, *args, run=ShaderPrepared.run):
        if len(self.launches) > 1:
            session.on_device._gpu.upload(arena, bytes(arena.size))  # else what ran before would do
            *before, product, last = self.launches
            self = ShaderPrepared(self.gpu, [*before, last, product])
        return run(self, *args)

    monkeypatch.setattr(ShaderPrepared, "run", overlapping)
    found = run_twice(compiled, session, inputs).difference
    assert found.tensor == compiled.graph.outputs[-1]


def test_a_schedule_that_is_not_the_same(opened, monkeypatch):
    compiled, session, inputs, _ = opened()
    times = itertools.count()
    profile = session.on_device.profile

    def another():
        found = profile()
        last = found.layers[-1]
        changed = dataclasses.replace(last, counters={**last.counters, "waves": next(times)})
        return Profile([*found.layers[:-1], changed], found.total, found.memory)

    monkeypatch.setattr(session.on_device, "profile", another)
    found = run_twice(compiled, session, inputs).difference
    assert (found.layer, found.tensor) == (compiled.program.plan["launches"][-1]["name"], None)


@pytest.mark.parametrize("racing", [False, True])
def test_the_command(monkeypatch, tmp_path, capsys, racing):
    reference_target.register(monkeypatch, tmp_path / "site")
    monkeypatch.delenv("TOWLINE_DEVICE", raising=False)
    monkeypatch.chdir(tmp_path)
    compiled = compiler.compile(reference_target.small_network(), reference_target.NAME)
    artifact.save(compiled, "net.tow")
    np.save("x.npy", np.zeros((1, 1, 4, 4), np.float32))
    node = compiled.program.graph.nodes[0]
    if racing:
        trace, times = reference_target.ReferenceDevice.trace, itertools.count()

        def racing_trace(self, inputs):
            values = trace(self, inputs)
            return values | {node.output: values[node.output] + np.uint8(next(times) % 2)}

        monkeypatch.setattr(reference_target.ReferenceDevice, "trace", racing_trace)
    code = main(["run", "net.tow", "x.npy", "--twice", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert code == int(racing)
    found = document["result"]["twice"]
    if racing:
        assert found["difference"]["layer"] == node.name
        assert node.name in document["error"]["message"]
    else:
        assert found["difference"] is None
        assert found["tensors"] >= len(compiled.program.graph.nodes)
