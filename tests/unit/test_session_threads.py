"""One session in several threads: every answer belongs to its question."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sdk import reference
from sdk.compiler import compile
from sdk.errors import TowlineError, UsageError
from sdk.session import Session
from sdk.stream.stream import Stream
from tests.graph_builder import GraphBuilder

RUNS = 60


def network():
    b = GraphBuilder((1, 4, 6, 6), seed=5)
    return b.graph(b.conv(b.conv("x", 8, 3, pads=1), 8, 3, pads=1))


def inputs(seed):
    return {"x": np.random.default_rng(seed).integers(0, 256, (1, 4, 6, 6)).astype(np.uint8)}


def wrong(session, graph, arithmetic, infer):
    """How many of RUNS answers, from six threads, are not the reference's."""
    expected = [reference.run(graph, inputs(seed), arithmetic) for seed in range(RUNS)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda seed: infer(session, inputs(seed)), range(RUNS)))
    return sum(
        not all(np.array_equal(answer[name], known[name]) for name in answer)
        for answer, known in zip(found, expected, strict=True)
    )


WAYS = {
    "run": lambda session, x: session.run(x),
    "submit": lambda session, x: session.collect(session.submit(x)),
    "trace": lambda session, x: session.observe(x),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("target", "arithmetic"), [("c", "f32"), ("hexagon-v65", "q31")])
def test_threads_that_share_a_session(target, arithmetic, way):
    graph = network()
    with Session(compile(graph, target)) as session:
        assert wrong(session, session.artifact.graph, arithmetic, WAYS[way]) == 0


@pytest.mark.slow
def test_threads_that_share_a_card():
    graph = network()
    with Session(compile(graph, "amd-gfx1100")) as session:
        assert wrong(session, session.artifact.graph, "f32", WAYS["run"]) == 0
        assert wrong(session, session.artifact.graph, "f32", WAYS["submit"]) == 0


@pytest.mark.slow
def test_closing_waits_for_another_thread_s_inference():
    session = Session(compile(network(), "c"))
    outcomes, started = [], threading.Event()

    def work():
        try:
            for seed in range(10_000):
                session.run(inputs(seed))
                started.set()
        except TowlineError as problem:
            outcomes.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    started.wait(60)
    session.close()
    thread.join(60)
    assert [type(problem) for problem in outcomes] == [UsageError], "it is closed between two inferences"


@pytest.mark.slow
def test_a_stream_refuses_a_second_thread():
    """Two threads that take results at once: one of them gets Python's own error, none a wrong result."""
    with Session(compile(network(), "c")) as session:

        def frames():
            for seed in range(20):
                time.sleep(0.01)
                yield inputs(seed)

        results = Stream(session).run(frames())

        def take():
            try:
                return [next(results) for _ in range(10)]
            except ValueError as problem:
                return problem

        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda _: take(), range(2)))
        assert sorted(isinstance(one, ValueError) for one in found) == [False, True]
        results.close()
