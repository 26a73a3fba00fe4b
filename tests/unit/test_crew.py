"""Several inferences at a time, each in a session of its own."""

import threading

import numpy as np
import pytest

from sdk import compiler
from sdk.crew import Crew
from sdk.errors import DeviceFailed
from sdk.session import Session
from tests.graph_builder import GraphBuilder


class Meeting:
    """A session whose inferences wait for each other; it notices two at a time on itself."""

    barrier = threading.Barrier(2, timeout=5)

    def __init__(self):
        self.busy = threading.Lock()

    def run(self, inputs):
        assert self.busy.acquire(blocking=False)
        if inputs["x"] < 0:
            self.busy.release()
            raise DeviceFailed("it died")
        self.barrier.wait()
        self.busy.release()
        return {"y": inputs["x"] + 1}

    def close(self):
        pass


def test_as_many_at_a_time_as_there_may_be_sessions():
    made = []
    crew = Crew(lambda: made.append(Meeting()) or made[-1], 2)
    results = [crew.submit({"x": number}) for number in range(8)]
    assert [result()["y"] for result in results] == [*range(1, 9)]
    assert len(made) == 2
    with pytest.raises(DeviceFailed):
        crew.submit({"x": -1})()
    crew.close()
    crew.close()
    with pytest.raises(DeviceFailed):
        crew.submit({"x": 1})


@pytest.mark.slow
def test_a_network_on_the_emulated_dsp_twice_at_a_time():
    b = GraphBuilder((1, 4, 6, 6))
    b.conv("x", 8)
    with Session(compiler.compile(b.graph(), "hexagon-v65")) as session:
        random = np.random.default_rng(1)
        given = [{"x": random.integers(0, 256, (1, 4, 6, 6)).astype(np.uint8)} for _ in range(5)]
        expected = [session.run(inputs) for inputs in given]
        tickets = [session.submit(inputs) for inputs in given]
        found = [session.collect(ticket) for ticket in tickets]
        for one, other in zip(found, expected, strict=True):
            for name, array in one.items():
                np.testing.assert_array_equal(array, other[name])
        session.submit(given[0])  # closed meanwhile
