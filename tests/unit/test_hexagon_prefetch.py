"""What calls ask for ahead (l2fetch), and what the model makes of it."""

import copy
import dataclasses
import functools
import re

import numpy as np
import pytest

from dsp.hexagon.build import network_source
from dsp.hexagon.calls import At, Call, KernelSource, Layer
from dsp.hexagon.cycles.accesses import LINE, Traffic
from dsp.hexagon.cycles.cache import through
from dsp.hexagon.cycles.prefetch import Requests, Step, timeline, with_requests
from dsp.hexagon.disassembly import Program
from dsp.hexagon.lowering import lower
from dsp.hexagon.plan import HexagonPlan
from dsp.hexagon.prefetch import MOST_LINES, ask_ahead
from sdk.arena import Buffer
from sdk.errors import InvalidArtifact
from sdk.estimate import Cache
from sdk.target import Options
from sdk.targets import get_target
from tests.graph_builder import GraphBuilder

L2 = 64 << 10  # 48 KB with what is reserved taken off


def layers(constants, arena=4 << 10, kernel="new", **fields):
    """A layer a call, of a buffer of so many bytes, and with constants that end there."""
    buffer = Buffer("y", arena, 0, 9, offset=0)
    call = Call(KernelSource("new.c", kernel), kernel, {"y": At(buffer), **fields})
    return [Layer("", "", "", calls=[dataclasses.replace(call, constants=end << 10)]) for end in constants]


def fetches(made, weights, l2=L2):
    ask_ahead(made, weights << 10, l2)
    return [(offset >> 10, nbytes >> 10) for layer in made for offset, nbytes in (layer.calls[0].fetch,)]


def test_all_is_asked_for_at_once_if_the_cache_holds_it_twice():
    assert fetches(layers([4, 8, 16]), 16) == [(0, 16), (0, 0), (0, 0)]


def test_what_is_asked_for_stays_until_it_is_used():
    """(48 - 4) / 2 KB beyond the beginning of each call's own."""
    assert fetches(layers([10, 20, 30, 40]), 40) == [(0, 22), (22, 10), (32, 8), (0, 0)]
    assert fetches(layers([10, 20, 30, 40], arena=28 << 10), 40) == [(0, 10), (10, 10), (20, 10), (30, 10)]


def test_a_layer_that_fills_the_cache_asks_for_nothing():
    assert fetches(layers([10, 20], arena=48 << 10), 20) == [(0, 0), (0, 0)]


def test_a_matrix_of_one_row_is_asked_for_as_a_whole():
    gemm = {"kernel": "gemm", "blocks": 1, "x": At(Buffer("x", 128, 0, 0, offset=0))}
    assert fetches(layers([100, 300], steps=2, **gemm), 300) == [(0, 100), (100, 200)]
    assert fetches(layers([100], steps=25, **gemm), 100)[0][1] < 25  # sixteen blocks side by side do not stay


def test_what_was_not_asked_for_in_time_is_left_out():
    made = [*layers([10], arena=48 << 10), *layers([20])]
    assert fetches(made, 20) == [(0, 0), (10, 10)]


def test_one_request_has_a_limit():
    (asked,) = fetches(layers([16 << 10]), 16 << 10, l2=1 << 30)
    assert asked == (0, MOST_LINES * LINE >> 10)


@functools.cache
def compiled():
    b = GraphBuilder((1, 8, 9, 11))
    row = b.reshape(b.global_average_pool(b.conv("x", 24, 3)))
    return get_target("hexagon-v65").compile(b.graph(b.gemm(row, 40)), Options())


def test_the_stream_is_all_of_the_weights():
    lowered = lower(compiled().graph)
    asked = [call.fetch for layer in lowered.layers for call in layer.calls if call.fetch[1]]
    assert [offset for offset, _ in asked] == [0, *(offset + nbytes for offset, nbytes in asked[:-1])]
    assert sum(nbytes for _, nbytes in asked) == len(lowered.weights)


def test_the_code_asks_for_what_the_plan_says():
    (table,) = re.findall(r"struct span fetches\[\] = \{(.*)\};", network_source(lower(compiled().graph)))
    said = [(int(offset), int(nbytes)) for offset, nbytes in re.findall(r"\{(\d+)u, (\d+)u\}", table)]
    assert said == [tuple(one) for layer in compiled().plan["layers"] for one in layer["fetches"]]


@pytest.mark.slow
def test_the_loop_over_calls_executes_l2fetch():
    code = Program(compiled().code["network.elf"], "v65")
    assert any(
        "l2fetch" in line
        for address, data, executable in code._parts
        if executable
        for line in instructions(code, address, len(data))
    )


def instructions(code, address, nbytes):
    end = address + nbytes
    while address < end:
        try:
            packet = code.packet(address)
        except InvalidArtifact:  # padding
            address += 4
            continue
        yield from packet.lines
        address = packet.following


@pytest.mark.slow
@pytest.mark.parametrize("value", [[], [[0, 128]] * 9, [[0, 1 << 40]], [[1 << 40, 0]]])
def test_requests_that_cannot_be(value):
    plan = copy.deepcopy(compiled().plan)
    calls = len(plan["layers"][0]["fetches"])
    plan["layers"][0]["fetches"] = value if len(value) != 1 else value * calls
    with pytest.raises(InvalidArtifact) as caught:
        HexagonPlan.of(dataclasses.replace(compiled(), plan=plan))
    assert caught.value.where == "plan.layers[0].fetches"


# -- the model ------------------------------------------------------------------------------------------


def traffic(*calls):
    """Loads of vectors, call by call."""
    lines = np.array([line for call in calls for line in call], np.int64)
    when = np.repeat(np.arange(len(calls)), list(map(len, calls)))
    loads = np.zeros(len(lines), np.bool_)
    return Traffic(lines, loads, ~loads, when, loads, 0)


def fetched(given, requests):
    """Lines that are waited for, and that come ahead, of each call."""
    spans = [range(number, number + 1) for number in range(len(requests.calls))]
    whole = with_requests(given, spans, requests)
    read = through(Cache(nbytes=4 * LINE, ways=4), whole).read
    return [
        tuple(
            int((read & (whole.when == span.start) & (whole.ahead == ahead)).sum()) for ahead in (False, True)
        )
        for span in spans
    ]


def test_lines_that_came_before_are_not_waited_for():
    given = traffic([100], [0, 1])
    assert fetched(given, Requests(0, [(0, 0), (0, 0)])) == [(1, 0), (2, 0)]
    assert fetched(given, Requests(0, [(0, 2 * LINE), (0, 0)])) == [(1, 2), (0, 0)]
    assert fetched(given, Requests(LINE, [(0, 2 * LINE), (0, 0)])) == [(1, 2), (1, 0)]  # lines 1 and 2


def test_lines_that_come_too_early_are_read_twice():
    given = traffic([100, 101, 102, 103], [0])
    assert fetched(given, Requests(0, [(0, LINE), (0, 0)])) == [(4, 1), (1, 0)]


def test_what_a_call_asks_for_itself_comes_as_it_is_used():
    given = traffic([0, 1, 2, 3, 4, 5, 0])
    assert fetched(given, Requests(0, [(0, 6 * LINE)])) == [(1, 6)]  # the first is used again


def test_lines_that_are_there_cost_nothing():
    given = traffic([0], [0])
    assert fetched(given, Requests(0, [(0, 0), (0, LINE)])) == [(1, 0), (0, 0)]


def test_a_layer_takes_the_longer_of_computing_and_moving():
    steps = [Step(5, 100, 0, 0, 0), Step(5, 1000, 0, 0, 0)]
    assert timeline(steps, 100).ms == [5, 10]


def test_what_was_asked_for_comes_beside_the_computation():
    steps = [Step(5, 0, 400, 400, 0), Step(5, 0, 0, 400, 400)]
    assert timeline(steps, 100).ms == [5, 5]


def test_a_layer_waits_for_what_comes_late():
    steps = [Step(5, 0, 900, 900, 0), Step(1, 0, 0, 900, 600), Step(1, 0, 0, 900, 900)]
    assert timeline(steps, 100).ms == pytest.approx([5, 1, 3])
    steps[1] = Step(1, 0, 0, 900, 750)
    assert timeline(steps, 100).ms == pytest.approx([5, 2.5, 1.5])


def test_demands_come_first_and_the_rest_at_the_end():
    steps = [Step(1, 300, 200, 200, 0), Step(1, 0, 0, 200, 200)]
    assert timeline(steps, 100).ms == pytest.approx([3, 2])
    assert sum(timeline([Step(1, 0, 900, 900, 0)], 100).ms) == pytest.approx(9)


def test_requests_behind_three_others_are_counted():
    steps = [Step(1, 0, 1000, 1000 * n, 0) for n in range(1, 6)]
    assert timeline(steps, 100).crowded == 2
    assert timeline(steps, 10000).crowded == 0
    steps = [Step(1, 0, 1000, 1000, 0, requests=2), Step(1, 0, 1000, 2000, 0, requests=4)]
    assert timeline(steps, 100).crowded == 3
