"""A stream on every kind of target, whose device dies in the middle: its answers are the reference's still.

The device of `c` and of Hexagon is a process, which is killed; elsewhere an inference fails.
"""

import numpy as np
import pytest

from sdk import compiler
from sdk.errors import DeviceFailed, EnvironmentMissing
from sdk.session import Session
from sdk.stream import Stream
from sdk.stream.replay import Replay, is_exact
from tests.graph_builder import GraphBuilder
from tests.unit.test_states import recurrent_network

PROCESSES = ("c", "hexagon-v65")
OTHERS = (
    pytest.param("adreno-a6xx", marks=pytest.mark.slow),
    pytest.param("amd-gfx1100", marks=pytest.mark.slow),
)


def opened(network, target):
    artifact = compiler.compile(network, target)
    try:
        return artifact, Session(artifact, "emulated")
    except EnvironmentMissing as problem:
        pytest.skip(str(problem))


def quantised():
    b = GraphBuilder((1, 3, 9, 9), seed=3)
    b.gemm(b.reshape(b.global_average_pool(b.conv("x", 20, 3, pads=1, relu=True))), 10)
    return b.graph()


def dies(session):
    """The device fails in what it does next, once."""
    device = session.on_device
    if hasattr(device, "_child"):
        for one in (device, *(device._crew._all if hasattr(device, "_crew") else ())):
            one._child.process.kill()
        return

    names = [name for name in ("run", "step", "submit") if hasattr(device, name)]

    def fails(*_, **__):
        for name in names:
            delattr(device, name)
        raise DeviceFailed("the cable was pulled")

    for name in names:
        setattr(device, name, fails)


def frames(session, number):
    random = np.random.default_rng(1)
    held = {name for _, name in session.artifact.states}
    for frame in range(12):
        if frame == number:
            dies(session)
        inputs = {}
        for name, tensor in session.inputs.items():
            drawn = random.standard_normal(tensor.shape)
            if tensor.dtype == "uint8":
                inputs[name] = (128 + 30 * drawn).astype(np.uint8)
            elif name not in held:
                inputs[name] = drawn.astype(np.float32)
        yield inputs


@pytest.mark.slow
@pytest.mark.parametrize("target", [*PROCESSES, *OTHERS])
def test_a_device_that_dies_is_opened_again(target):
    artifact, session = opened(quantised(), target)
    assert is_exact(artifact)
    with session:
        replay = Replay(artifact, "device")
        stream = Stream(session, depth=3, observe=replay)
        results = list(stream.run(frames(session, 5)))
        assert [result.frame for result in results] == list(range(12))
        assert {result.status for result in results} == {"ok"}
        assert (replay.compared, replay.wrong) == (12, [])
        assert stream.summary().lost == 0
        assert len(stream.recoveries) == 1


@pytest.mark.parametrize("target", ["c", *OTHERS])
def test_states_are_kept_or_their_loss_is_said(target):
    artifact, session = opened(recurrent_network(), target)
    with session, Session(artifact, "emulated") as witness:
        replay = Replay(artifact, "device", witness)
        stream = Stream(session, depth=3, checkpoint_states=2, observe=replay)
        results = list(stream.run(frames(session, 5)))
        assert [result.frame for result in results] == list(range(12))
        assert replay.wrong == []
        assert replay.compared == 12
        assert replay.layers.passed
        (found,) = stream.recoveries
        assert {result.epoch for result in results} == ({0} if found.states else {0, 1})
        assert results[-1].descends_from == 10
