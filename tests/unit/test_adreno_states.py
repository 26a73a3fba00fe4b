"""States and queued inferences on an OpenCL device: steps equal those whose states the host feeds back, and
what is submitted together comes out as if it had run alone.
"""

import dataclasses

import numpy as np
import pytest

from sdk import compiler
from sdk.errors import InvalidInput
from sdk.graph import Gather
from sdk.session import Session
from tests.opencl_substitute import require_opencl
from tests.plain_graphs import PlainBuilder
from tests.unit.test_amd_states import STATES, assert_same, by_host, inputs, network

require_opencl()
STEPS = 6


@pytest.fixture(scope="module")
def compiled():
    return compiler.compile(network(), "adreno-a6xx")


@pytest.fixture(scope="module")
def expected(compiled):
    """Each step's outputs, and the states behind it, by the host."""
    with Session(by_host(compiled)) as session:
        return [(session.step(inputs(number)), session.states()) for number in range(STEPS)]


@pytest.mark.slow
def test_steps_equal_those_whose_states_the_host_feeds_back(compiled, expected):
    assert {given for _, given in compiled.program.plan["states"]} == STATES.keys()
    with Session(compiled) as session:
        assert session._states.keeper is not None
        for number, (outputs, states) in enumerate(expected):
            assert_same(session.step(inputs(number)), outputs)
            if number != 1:  # looking changes nothing
                assert_same(session.states(), states)


def test_a_run_between_steps_changes_no_state(compiled, expected):
    with Session(compiled) as session:
        zeros = {name: np.zeros(tensor.shape, tensor.dtype) for name, tensor in session.inputs.items()}
        for number, (outputs, _) in enumerate(expected[:4]):
            session.run(zeros)
            if number == 2:
                session.trace(zeros)
                session.profile()
            assert_same(session.step(inputs(number)), outputs)


def test_steps_that_are_submitted_together(compiled, expected):
    with Session(compiled) as session:
        tickets = [session.submit(inputs(number), step=True) for number in range(STEPS)]
        for number in (2, 0, 1, 5, 4, 3):
            assert_same(session.collect(tickets[number]), expected[number][0])
        assert_same(session.states(), expected[-1][1])


def test_an_index_out_of_range_ends_that_inference_alone():
    b = PlainBuilder(3)
    x, at = b.input((5, 3)), b.input((2,), "int64")
    y = b.node(Gather, (x, at), axis=0)
    network = compiler.compile(b.graph(y), "adreno-a6xx")
    good, bad = ({**b.inputs, at: np.array(each)} for each in ([4, -5], [1, 5]))
    with Session(network) as session:
        tickets = [session.submit(each) for each in (good, bad, good)]
        first = session.collect(tickets[0])
        with pytest.raises(InvalidInput) as caught:
            session.collect(tickets[1])
        assert caught.value.where == f"node {network.graph.nodes[0].name}"
        assert_same(session.collect(tickets[2]), first)
        np.testing.assert_array_equal(first[y], b.inputs[x][[4, 0]])


def test_a_state_without_a_place_on_the_device(compiled, expected):
    """A plan of another order of states gives the same steps."""
    (program,) = compiled.programs
    pairs = [*reversed(program.plan["states"])]
    other = dataclasses.replace(program, plan={**program.plan, "states": pairs})
    with Session(dataclasses.replace(compiled, programs=(other,))) as session:
        for number, (outputs, _) in enumerate(expected[:3]):
            assert_same(session.step(inputs(number)), outputs)
