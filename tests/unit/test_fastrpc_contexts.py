"""What an inference by FastRPC takes of the DSP: two contexts, the clock rate, its time."""

import copy
import dataclasses
import struct

import numpy as np
import pytest

from dsp.hexagon.fastrpc.session import FastrpcDevice
from sdk import reference
from sdk.errors import DeviceFailed, InvalidArtifact
from tests.unit.test_fastrpc import HAP, MINOR, THREADS, kernel, load, network, random_input

__all__ = ["kernel"]  # a fixture


def assert_right(session, runs=3):
    graph = network()[1].graph
    for seed in range(runs):
        expected = reference.run(graph, random_input(seed), "q31")
        for name, value in session.run(random_input(seed)).items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.slow
def test_two_contexts_and_what_they_take_of_the_dsp(kernel):
    """A thread, HVX for both as long as they compute; the highest clock rate until the object is closed."""
    with load(kernel) as session:
        assert session.contexts == 2
        assert session.device_seconds is None
        assert_right(session, 30)
        session.trace(random_input())
        session.profile()
        assert session.device_seconds == 0.001
        (process,) = kernel.processes.values()
        image = process.state()
        assert (image.begun, image.joined, image.locks, image.most, image.requests) == (1, 0, 0, 2, 1)
        # type, at 8 dcvs, option, set_latency, at 12 the latency, set_corners, at 20 target, lowest, highest
        assert image.request == struct.pack("<B7x3BxIB3x3B17x", 7, 0, 16, 1, 100, 1, 6, 0, 0)
    assert (kernel.image.joined, kernel.image.requests) == (1, 2)
    assert kernel.image.request == struct.pack("<B7x2B30x", 7, 1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("lacks", [*THREADS, "qurt_thread_join", *MINOR, *HAP])
def test_an_image_that_lacks_a_function(kernel, lacks, caplog):
    kernel.image_lacks = (lacks,)
    with load(kernel) as session:
        contexts = 1 if lacks in THREADS else 2
        assert session.contexts == contexts
        assert_right(session)
        assert session.contexts == contexts
        assert session.device_seconds == (None if lacks == "HAP_perf_get_time_us" else 0.001)
    assert ("one HVX context" in caplog.text) == (lacks in THREADS)
    assert ("clock rate" in caplog.text) == (lacks == "HAP_power_set")
    if lacks == "qurt_thread_create":
        with pytest.raises(DeviceFailed, match="one HVX context"):
            load(kernel, "fastrpc?contexts=2")


@pytest.mark.slow
def test_another_process_has_the_other_context(kernel, caplog):
    with load(kernel) as session:
        (process,) = kernel.processes.values()
        for units, contexts in ((1, 1), (2, 2), (1, 1)):
            process.free(units)
            assert_right(session)
            assert session.contexts == contexts
        assert process.state().locks == 0
    assert caplog.text.count("another process") == 1


@pytest.mark.slow
def test_one_context(kernel):
    """Because it is asked for, or the program has no plan for two; nothing is asked of an older object."""
    with load(kernel, "fastrpc?contexts=1") as session:
        assert session.contexts == 1
        assert_right(session)
    assert (kernel.image.begun, kernel.image.most, kernel.image.requests) == (0, 1, 2)
    plan = copy.deepcopy(network()[1].plan)
    for layer in plan["layers"]:
        layer["meetings"] = None
    program = dataclasses.replace(network()[1], plan=plan)
    with FastrpcDevice("fastrpc", kernel).load(program) as session:
        assert_right(session)
        assert (session.contexts, session.device_seconds) == (1, None)
    assert kernel.image.requests == 0
    with pytest.raises(InvalidArtifact, match="one HVX context"):
        FastrpcDevice("fastrpc?contexts=2", kernel).load(program)


@pytest.mark.slow
def test_meetings_of_another_program_are_refused(kernel):
    plan = copy.deepcopy(network()[1].plan)
    plan["layers"][0]["calls"] += 1
    plan["layers"][0]["fetches"].append([0, 0])
    with pytest.raises(DeviceFailed, match="AEE_EBADPARM"):
        FastrpcDevice("fastrpc", kernel).load(dataclasses.replace(network()[1], plan=plan))
