"""Frames that are in flight together on an emulated card: answers are those of one after the other, and come
faster.
"""

from __future__ import annotations

import numpy as np
import pytest

from sdk import compiler
from sdk.errors import DeviceFailed, InvalidInput, UsageError
from sdk.expression.trace import apply
from sdk.graph import Concat, Gather, MatMul, Slice
from sdk.session import Session
from tests.gpu_faults import Desk
from tests.graph_builder import GraphBuilder
from tests.plain_graphs import PlainBuilder
from tests.unit.test_states import renamed
from usbgpu.target.device import CardDevice

pytestmark = pytest.mark.usefixtures("quiet_card")

CHIP = "gfx1100"
SLOW = pytest.mark.slow


def small():
    b = GraphBuilder((1, 3, 12, 12), seed=4)
    x = b.conv("x", 16, 3, strides=2, pads=1, relu=True)
    b.gemm(b.reshape(b.global_average_pool(x)), 10)
    return b.graph()


def deep():
    """Launches that take longer than the transfers."""
    b = GraphBuilder((1, 8, 6, 6), seed=8)
    x = "x"
    for _ in range(40):
        x = b.conv(x, 8, 3, pads=1, relu=True)
    return b.graph()


def picture():
    """An input of several parts: more than half of the bridge's SRAM."""
    b = GraphBuilder((1, 3, 320, 288), seed=5)
    x = b.conv("x", 4, 16, strides=16)
    b.gemm(b.reshape(b.global_average_pool(x)), 10)
    return b.graph()


def planes():
    """Outputs of several transfers."""
    b = GraphBuilder((1, 2, 128, 96), seed=6)
    b.conv("x", 8, 1)
    return b.graph()


def wide():
    """Both."""
    b = GraphBuilder((1, 20, 128, 112), seed=7)
    b.conv("x", 6, 1)
    return b.graph()


def memory(indexed: bool = False):
    """h' = tanh(W h + x), which is an output as well; a shift register of inputs; perhaps a table."""
    b = PlainBuilder(9)
    x, h, history = b.input((1, 16)), b.input((1, 16)), b.input((1, 6, 16))
    w = b.node(MatMul, (h, b.constant((16, 16))), transposed=False)
    state = b.map(lambda p, q: apply("tanh", p * 0.5 + q), w, x)
    whole = b.node(Concat, (history, b.reshape(x, (1, 1, 16))), axis=1)
    shifted = b.node(Slice, (whole,), starts=(0, 1, 0), steps=(1, 1, 1), shape=(1, 6, 16))
    first = b.node(Slice, (whole,), starts=(0, 0, 0), steps=(1, 1, 1), shape=(1, 1, 16))
    y = b.map(lambda p, q: p + q * 2, state, b.reshape(first, (1, 16)))
    names = {x: "x", h: "h", history: "history", y: "y", state: "next_h", shifted: "next_history"}
    if not indexed:
        return renamed(b.graph(y, state, shifted), names)
    index = b.input((1,), "int64")
    looked = b.node(Gather, (b.constant((8, 3)), index), axis=0)
    return renamed(b.graph(y, looked, state, shifted), names | {index: "index", looked: "looked"})


@pytest.fixture(scope="module")
def desk():
    return Desk(CHIP)


@pytest.fixture(scope="module")
def device(desk):
    with CardDevice(desk.open()) as device:
        yield device


@pytest.fixture
def clock(desk):
    return desk.board.machine.clock


def opened(device, graph):
    return Session(compiler.compile(graph, f"amd-{CHIP}"), "emulated", opened=device)


def frames(session, count, seed=1, without=()):
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        found.append({})
        for name, tensor in session.quantized_inputs.items():
            if name in without:
                continue
            noise = random.standard_normal(tensor.shape) * 40
            found[-1][name] = noise.astype(tensor.dtype)
    return found


def collected(session, given, **options):
    """The answers to frames that are in flight together."""
    tickets = [session.submit(frame, **options) for frame in given]
    return [session.collect(ticket) for ticket in tickets]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one.keys() == other.keys()
        for name, array in other.items():
            np.testing.assert_array_equal(one[name], array, err_msg=f"frame {number}, {name}")


LARGE = (pytest.param(graph, marks=SLOW) for graph in (picture, planes, wide))


@pytest.mark.slow
@pytest.mark.parametrize("graph", [small, deep, *LARGE])
def test_frames_in_flight(device, graph):
    with opened(device, graph()) as session:
        given = frames(session, 9)
        expected = [session.run(frame) for frame in given]
        for count in (2, 9):  # the programs are used again
            assert_same(collected(session, given[:count]), expected[:count])
        assert_same(collected(session, given[::-1]), expected[::-1])
        assert_same([session.run(given[3])], expected[3:4])


@pytest.mark.slow
def test_the_first_frames_bring_the_network_along(device):
    with opened(device, small()) as session:
        given = frames(session, 5)
        found = collected(session, given)
        assert_same(found, [session.run(frame) for frame in given])


def test_frames_are_collected_in_any_order(device):
    with opened(device, small()) as session:
        given = frames(session, 6)
        expected = [session.run(frame) for frame in given]
        tickets = [session.submit(frame) for frame in given]
        order = (3, 0, 5, 1, 4, 2)
        assert_same([session.collect(tickets[number]) for number in order], [expected[n] for n in order])
        with pytest.raises(UsageError):
            session.collect(tickets[0])
        ticket = session.submit(given[0])
        assert_same([session.run(given[1]), session.collect(ticket)], [expected[1], expected[0]])


@pytest.mark.slow
def test_steps_in_flight(device):
    with opened(device, memory()) as session:
        given = frames(session, 11, without=("h", "history"))
        expected = [session.step(frame) for frame in given]
        last = session.states()
        for first in (1, 2):  # states may be in either place when frames begin to overlap
            session.reset()
            found = [session.step(frame) for frame in given[:first]]
            found += collected(session, given[first:], step=True)
            assert_same(found, expected)
            assert_same([session.states()], [last])
        session.reset()
        tickets = [session.submit(frame, step=True) for frame in given[:5]]
        states = session.states()  # after all that was submitted
        assert_same([session.collect(ticket) for ticket in tickets], expected[:5])
        session.reset(states)
        assert_same(collected(session, given[5:], step=True), expected[5:])


@SLOW
def test_a_step_that_is_refused_is_not_followed_by_others_from_its_states(device):
    with opened(device, memory(indexed=True)) as session:
        given = frames(session, 6, without=("h", "history"))
        for number, frame in enumerate(given):
            frame["index"] = np.array([number])
        session.step(given[0])
        expected = [session.step(frame) for frame in given[1:]]
        session.reset()
        session.step(given[0])
        wrong = {**given[3], "index": np.array([99])}
        tickets = [session.submit(frame, step=True) for frame in (*given[1:3], wrong, *given[3:])]
        bad = tickets.pop(2)
        with pytest.raises(InvalidInput):
            session.collect(bad)
        assert_same([session.collect(ticket) for ticket in tickets], expected)


@pytest.mark.slow
def test_frames_in_flight_are_faster(device, clock):
    with opened(device, small()) as session:
        given = frames(session, 16)
        collected(session, given)
        spent = []
        for run in (lambda: [session.run(frame) for frame in given], lambda: collected(session, given)):
            before = clock.now
            run()
            spent.append(clock.now - before)
        assert spent[0] > 1.9 * spent[1]


@SLOW
def test_an_answer_is_there_before_the_frames_behind_it(device, clock):
    with opened(device, picture()) as session:
        given = frames(session, 8)
        collected(session, given)
        before = clock.now
        tickets = [session.submit(frame) for frame in given]
        session.collect(tickets[0])
        first = clock.now - before
        session.collect(tickets[-1])
        assert first < (clock.now - before) / 1.8


@SLOW
def test_failures_in_flight(desk):
    """The answers that were here before it are right; the others have none."""
    answers, failures = 0, 0
    for number in range(2, 40, 4):
        with CardDevice(desk.open()) as device, opened(device, small()) as session:
            given = frames(session, 8)
            expected = [session.run(frame) for frame in given]
            collected(session, given)
            desk.calm()
            desk.break_off(number, 1e-6)
            tickets = [session.submit(frame) for frame in given]
            for frame, ticket in enumerate(tickets):
                try:
                    assert_same([session.collect(ticket)], expected[frame : frame + 1])
                    answers += 1
                except DeviceFailed:
                    failures += 1
            desk.calm()
    assert answers
    assert failures
