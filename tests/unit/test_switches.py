"""The switches of the models: in device strings, on the command line, in the documentation."""

import re
from pathlib import Path

import pytest

from emulator import switches
from emulator.board import Board, Options, described
from emulator.switches import SWITCHES
from sdk.errors import UsageError
from towline.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "emulator.md"


def test_the_documentation_has_every_switch_with_its_grades_and_its_default():
    rows = re.findall(r"^\| `([a-z-]+)=(\S+)`( \(default\))? \| ([a-z]+) \|", PAGE.read_text(), re.M)
    stated = [
        (switch.name, value, " (default)" if number == 0 else "", evidence.value)
        for switch in SWITCHES.values()
        for number, (value, (evidence, _)) in enumerate(switch.values.items())
    ]
    assert [(name, value, default, grade) for name, value, default, grade in rows] == stated


def test_a_device_string_has_them_among_its_options():
    _, options = described("emulated?gpu=gfx1100&reset-vram=garble&dma-arm=replace&hdp-drain=never")
    assert options.model == {"reset-vram": "garble", "dma-arm": "replace", "hdp-drain": "never"}
    assert described("emulated")[1].model == {}


@pytest.mark.parametrize(
    "text",
    ["emulated?dma-arm=often", "emulated?dma-arm", "emulated?dma-arm=", "emulated?vram-reset=keep",
     "emulated?reset-vram=keep", "emulated?gpu=gfx1100&reset-vram=keep=keep"],
)  # fmt: skip
def test_wrong_ones_are_refused(text):
    with pytest.raises(UsageError) as caught:
        described(text)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "=", "dma-arm", "dma-arm=", "speed=high"])
def test_the_command_line_takes_nothing_else(text):
    with pytest.raises(UsageError):
        switches.parse([text])


def test_the_last_of_a_name_counts():
    assert switches.parse(["dma-arm=replace", "dma-arm=queue"]) == {"dma-arm": "queue"}
    assert switches.parse([]) == {}


def test_strict_takes_away_what_a_driver_must_not_rely_on_unless_it_is_chosen():
    switch = SWITCHES["reset-vram"]
    assert switch.value({}) == "keep"
    assert switch.value({}, strict=True) == "garble"
    assert switch.value({"reset-vram": "keep"}, strict=True) == "keep"
    assert SWITCHES["dma-arm"].value({}, strict=True) == "queue"


@pytest.mark.parametrize(
    "arguments", [["--model", "dma-arm=often"], ["--model", "reset-vram=keep"], ["--model", ""]]
)
def test_emulate_refuses_what_it_cannot_do(arguments):
    assert main(["emulate", "firmware", *arguments]) == 2


@pytest.mark.parametrize("value", ["queue", "replace"])
def test_a_board_has_what_was_chosen(value):
    board = Board(None, Options(port=None, fallback=False, model={"dma-arm": value}))
    assert board.chip.dma.queues is (value == "queue")
