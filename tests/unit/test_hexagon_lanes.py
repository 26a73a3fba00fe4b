"""Pointwise convolutions whose lanes are channels: generated packets, groups of cells, units in halves."""

import re

import numpy as np
import pytest

from dsp.hexagon.cycles.interlocks import Interlocks
from dsp.hexagon.disassembly import Packet
from dsp.hexagon.lane_packets import kernel, needs
from dsp.hexagon.lowering import lower
from dsp.hexagon.packets import ALU, LOAD, PERMUTE, VECTOR_ALU, VMPY32, VRMPY, Instruction, NoRoom, Schedule
from sdk import reference
from sdk.target import L2, Options
from sdk.targets import get_target
from tests.contract.targets import assert_identical, random_input
from tests.graph_builder import GraphBuilder

TARGET = get_target("hexagon-v65")
ROW_OF_14 = tuple(range(14))
ROWS_OF_7 = (*range(7), *range(8, 15))
ROW_OF_7 = tuple(range(7))


def calls(graph, kind="lanes", arithmetic="q31"):
    return [
        call
        for layer in lower(graph, arithmetic=arithmetic).layers
        for call in layer.calls
        if call.struct == kind
    ]


def network(height, width, channels, outputs, **options):
    """Two such convolutions, a padded window between them and a sum behind them."""
    b = GraphBuilder((1, 4, height, width), seed=height + outputs)
    x = b.conv("x", channels)
    wide = b.conv(x, outputs, **options)
    y = b.conv(b.depthwise(wide, pads=1), channels)
    b.add(y, x)
    return b.graph()


# -- when -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("height", "width", "channels", "outputs", "expected"),
    [
        pytest.param(14, 14, 64, 96, 2, id="both convolutions"),
        pytest.param(7, 7, 64, 96, 4, id="two rows, and the last one alone"),
        pytest.param(14, 14, 64, 80, 1, id="80 channels are no blocks of 32"),
        pytest.param(14, 14, 28, 64, 0, id="too few steps; 28 channels"),
        pytest.param(14, 16, 64, 96, 0, id="no column between rows of 16"),
        pytest.param(28, 28, 64, 96, 0, id="wide pictures waste few lanes"),
        pytest.param(5, 7, 64, 96, 0, id="groups that end within a vector"),
        pytest.param(6, 5, 64, 96, 0, id="rows of 5: packets too short"),
        pytest.param(14, 14, 40, 32, 0, id="the sums cost more than the lanes"),
    ],
)
def test_it_is_used_where_it_suits(height, width, channels, outputs, expected):
    assert len(calls(network(height, width, channels, outputs))) == expected


@pytest.mark.parametrize(("channels", "used"), [(176, 0), (208, 0), (216, 1)])
def test_in_q15_packing_takes_more_packets_than_the_multiplications(channels, used):
    b = GraphBuilder((1, channels, 14, 14))
    b.conv("x", 32)
    assert len(calls(b.graph(), arithmetic="q15")) == used


@pytest.mark.parametrize(("steps", "used"), [(2046, 1), (2048, 0)])
def test_a_loop_counts_so_many_steps(steps, used):
    b = GraphBuilder((1, 4 * steps, 14, 14))
    b.conv("x", 32)
    assert len(calls(b.graph())) == used


def test_weights_that_the_cache_does_not_hold_are_divided():
    b = GraphBuilder((1, 64, 14, 14))
    b.conv("x", 96)
    (layer, _) = lower(b.graph(), l2=1).layers
    assert [call.fields["blocks"] for call in layer.calls if call.struct == "lanes"] == [1, 1, 1]


def test_weights_of_nine_bits_take_the_other_kernel():
    for zero_point, used in ((None, 1), (200, 0)):
        b = GraphBuilder((1, 64, 14, 14))
        b.conv("x", 64, weight_zero_point=zero_point)
        assert len(calls(b.graph())) == used


# -- the same bits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("height", "width", "channels", "outputs"),
    [
        (7, 7, 64, 96),
        *(
            pytest.param(*shape, marks=pytest.mark.slow)
            for shape in (
                (14, 14, 40, 64),
                (14, 14, 64, 160),
                (7, 7, 136, 224),
                (8, 7, 64, 64),
                (2, 14, 64, 96),
                (4, 10, 64, 128),
                (4, 12, 72, 64),
                (2, 13, 64, 64),
                (4, 6, 64, 64),
            )
        ),
    ],
)
def test_every_layer_is_the_reference_s(height, width, channels, outputs):
    graph = network(height, width, channels, outputs, relu=True)
    assert calls(graph)
    assert calls(graph, arithmetic="q15") or channels == 40, "q15 saves less"
    assert_identical(TARGET, graph, guard=256)
    inputs = random_input(graph)
    for arithmetic, l2 in (("q31", L2), ("q15", L2), ("q31", 1)):  # the last with a block of channels a call
        expected = reference.run(graph, inputs, arithmetic)
        options = Options(arithmetic=arithmetic, l2=l2)
        with TARGET.open(None).load(TARGET.compile(graph, options)) as session:
            for name, value in session.trace_halves(inputs).items():
                np.testing.assert_array_equal(value, expected[name], err_msg=f"{name}, {arithmetic}")
            for order in (1, 2):
                session.order(order)
                for name, value in session.run(inputs).items():
                    np.testing.assert_array_equal(value, expected[name], err_msg=f"{name}, order {order}")


# -- the packets --------------------------------------------------------------------------------------------


def steady(pixels, steps, q15=False):
    """The packets of a unit, those of its loop once: lists of instructions, as a disassembler writes them."""
    lines = [line.removesuffix("\\n") for line in re.findall(r'  "(.*)" \\', kernel(pixels, steps, q15).text)]
    body = lines[lines.index("1:") + 1 : next(n for n, line in enumerate(lines) if "endloop1" in line) + 1]
    packets = [re.fullmatch(r"\{(.*)\}(?::endloop\d)?", line)[1] for line in body if not line.endswith(":")]
    return [packet.split(";") for packet in packets]


def spaced(text):
    """As the disassembler spaces it, which is how itineraries are found."""
    text = re.sub(r"\s*(\+=|-=|(?<![=!<>.])=(?!=))\s*", r" \1 ", text)
    return re.sub(r"^if\((!?p\d|q\d)\)", r"if (\1) ", text)


@pytest.mark.parametrize("q15", [False, True])
@pytest.mark.parametrize("pixels", [ROW_OF_14, ROWS_OF_7, ROW_OF_7])
def test_no_packet_waits(pixels, q15):
    packets = steady(pixels, needs(pixels, q15).steps + 2, q15)
    locks, waits = Interlocks("v65"), []
    for before, after in zip(packets, [*packets[1:], packets[0]], strict=True):
        first, second = (Packet(0, 0, tuple(map(spaced, p)), ()) for p in (before, after))
        waits.append(locks.waits(first, second))
    assert not any(waits)
    assert not {one for one in locks.unknown if "vrmpy" in one or "vpack" in one}


@pytest.mark.parametrize("pixels", [ROW_OF_14, ROWS_OF_7, ROW_OF_7])
def test_multipliers_never_rest(pixels):
    steps = needs(pixels).steps + 2
    packets = steady(pixels, steps)
    both = [sum("vrmpy" in one for one in p) == 2 or any("vmpy" in one for one in p) for p in packets]
    assert len(packets) == steps * -(-len(pixels) // 2) + 2 * len(pixels)
    assert both.count(False) == steps * (len(pixels) % 2)


@pytest.mark.parametrize("q15", [False, True])
@pytest.mark.parametrize("pixels", [ROW_OF_14, ROWS_OF_7, ROW_OF_7])
def test_a_pixel_is_multiplied_once_a_step_by_words_that_are_there(pixels, q15):
    """Each accumulator takes each step's weights once, and no word is loaded again before it was used."""
    steps = needs(pixels, q15).steps + 2
    taken, fresh = {}, set(range(8, 22))
    for packet in steady(pixels, steps, q15):
        for one in packet:
            if found := re.fullmatch(r"v(\d+)\.uw\+=vrmpy\(v(\d+)\.ub,r(\d+)\.ub\)", one):
                accumulator, weights, word = map(int, found.groups())
                assert word in fresh
                fresh.discard(word)
                taken.setdefault(accumulator, []).append(weights)
        for one in packet:
            if found := re.match(r"r(\d+)(?::(\d+))?=mem[dw]", one):
                fresh |= {int(number) for number in found.groups() if number}
    assert sorted(taken) == list(range(len(pixels)))
    assert set(map(tuple, taken.values())) == {(20, 21) * (steps // 2)}


def test_a_schedule_keeps_what_was_written_and_read():
    schedule = Schedule()
    schedule.reserve(6)
    schedule.hold(0, Instruction(VMPY32, "full"))
    schedule.put([Instruction(VRMPY, "no multiplier in packet 0")])
    schedule.put([Instruction(LOAD, "a", writes=("v1",)), Instruction(PERMUTE, "b", ("v2",), ("v1",))])
    schedule.put([Instruction(VECTOR_ALU, "c", ("v3",), ("v2",)), Instruction(ALU, "d", writes=("v1",))])
    where = {one.text: n for n, packet in enumerate(schedule.packets) for one in packet.instructions}
    assert where == {"full": 0, "no multiplier in packet 0": 1, "a": 0, "b": 2, "c": 3, "d": 2}
    with pytest.raises(NoRoom):
        schedule.reach(2, Instruction(VECTOR_ALU, "too early", reads=("v3",)))
    with pytest.raises(NoRoom):
        schedule.put([Instruction(PERMUTE, "too late", reads=("v3",))] * 3)
