"""The bound of the firmware's stack: for assembled programs whose depth is known, and for the product."""

from __future__ import annotations

import pytest

from emulator.mcs51 import flow
from emulator.mcs51.flow import Place
from emulator.mcs51.stack import bound, stack
from firmware import build as product
from sdk.errors import CheckFailed

SPARE = 32
"""Bytes that the product's stack must leave free; another interrupt handler would take some of them."""


def program(**parts: str) -> tuple[flow.Graph, dict[str, Place]]:
    """A program of functions in hexadecimal: at 0x40, 0x80 and so on; `reset` and `int0` at their vectors."""
    code, loaded = bytearray(0x10000), bytearray(0x10000)
    places = {"reset": 0x00, "int0": 0x03}
    for name, text in parts.items():
        start = places.setdefault(name, 0x40 * len(places))
        data = bytes.fromhex(text)
        code[start : start + len(data)] = data
        loaded[start : start + len(data)] = b"\1" * len(data)
    names = {Place(0, places[name]): name for name in parts}
    banks = (bytes(code), bytes(loaded))
    graph = flow.analyse((banks[0],) * 2, (banks[1],) * 2, names)
    return graph, {name: Place(0, place) for name, place in places.items()}


START = "02 0080"  # reset: LJMP 0x80
LEAF = "C0E0 D0E0 22"  # PUSH ACC; POP ACC; RET


def test_calls_pushes_and_the_interrupt_add_up():
    graph, _ = program(
        reset=START,
        int0="02 0100",
        main="75 81 20  C0E0 12 00C0 D0E0 80 FE",  # MOV SP,#0x20; PUSH; LCALL leaf; POP; SJMP .
        leaf=LEAF,
        handler="C0E0 C0D0 D0D0 D0E0 32",
        lost="22",
    )
    found = stack(graph, [])
    assert found.start == 0x21
    assert (found.main.bytes, found.main.path) == (4, ("reset", "main", "leaf"))
    assert (found.interrupt.bytes, found.interrupt.path) == (4, ("int0", "handler"))
    assert (found.bytes, found.spare) == (8, 256 - 0x21 - 8)
    assert found.unreached == ("lost",)


def test_the_deepest_branch_counts():
    graph, _ = program(
        reset=START,
        main="60 05  12 00C0 80 FE  C0E0 12 00C0 D0E0 80 FE",  # JZ: with a byte pushed, or without
        leaf=LEAF,
    )
    assert stack(graph, []).main.bytes == 4


def test_a_call_through_a_pointer_is_to_any_target():
    graph, places = program(
        reset=START,
        main="12 00C0 80 FE",
        pointer="C082 C083 22",  # PUSH DPL; PUSH DPH; RET
        small="22",
        large="C0E0 C0E0 C0E0 D0E0 D0E0 D0E0 22",
    )
    assert stack(graph, [places["small"]]).main.bytes == 4
    found = stack(graph, [places["small"], places["large"]]).main
    assert (found.bytes, found.path[-1]) == (5, "large")


POINTER = "E4 73"  # CLR A; JMP @A+DPTR
HOLDS_SMALL = "75 21 80 75 22 01"  # MOV 0x21,#; MOV 0x22,#: the function at 0x180
TO_POINTER = "85 21 82 85 22 83 12 00C0"  # MOV DPL,0x21; MOV DPH,0x22; LCALL pointer
LARGE = "C0E0 C0E0 C0E0 D0E0 D0E0 D0E0 22"


@pytest.mark.parametrize(
    ("main", "setter", "deepest"),
    [
        (HOLDS_SMALL + TO_POINTER, "22", "small"),
        (HOLDS_SMALL + TO_POINTER, "85 82 21 85 83 22 22", "small"),  # stores an argument; is never called
        ("90 0140 12 0100" + HOLDS_SMALL + TO_POINTER, "85 82 21 85 83 22 22", "large"),  # is passed large
        (HOLDS_SMALL + "7E 40 7F 01 8E 21 8F 22" + TO_POINTER, "22", "large"),  # by R6 and R7
        (HOLDS_SMALL + "05 21" + TO_POINTER, "22", "large"),  # INC: could be anything
        (HOLDS_SMALL + "90 0140 12 00C0", "22", "large"),  # a constant in DPTR
        (HOLDS_SMALL + "12 00C0", "22", "large"),  # DPTR from anywhere
    ],
)
def test_a_call_through_a_variable_is_to_the_functions_stored_in_it(main, setter, deepest):
    graph, places = program(
        reset=START, main=main + "80 FE", pointer=POINTER, setter=setter, large=LARGE, small="22"
    )
    found = stack(graph, [places["small"], places["large"]])
    depths = {"small": (2, "main"), "large": (5, "large")}
    assert (found.main.bytes, found.main.path[-1]) == depths[deepest]
    assert "pointer" not in found.unreached


def test_a_function_may_call_a_pointer_to_a_sibling_of_its_caller():
    """Only if the pointer is known: else the caller and the function would seem to call each other."""
    calls = "12 00C0"
    knows, guesses = (
        program(reset=START, main=HOLDS_SMALL + "12 0140 80 FE", pointer=POINTER, stop=stop + "22",
                user="12 0100 22", small=LEAF)
        for stop in (TO_POINTER, calls)
    )  # fmt: skip
    targets = [knows[1][name] for name in ("user", "small")]
    assert stack(knows[0], targets).main.path == ("reset", "main", "user", "stop", "small")
    with pytest.raises(CheckFailed, match="recursion"):
        stack(guesses[0], targets)


@pytest.mark.parametrize(
    ("main", "message"),
    [
        ("12 00C0 80 FE", "recursion: .*loop > loop"),
        ("C0E0 80 FC", "main pushes and pops unevenly"),
        ("85 30 81 80 FE", "main computes the stack pointer"),
        ("05 81 80 FE", "main computes the stack pointer"),
        ("C0E0 D081 80 FE", "main computes the stack pointer"),  # POP SP
        ("C581 80 FE", "main computes the stack pointer"),  # XCH A,SP
        ("C0E0 22", "main pushes and pops unevenly"),
    ],
)
def test_a_program_without_a_bound_is_refused(main, message):
    graph, _ = program(reset=START, main=main, loop="12 00C0 22")
    with pytest.raises(CheckFailed, match=message):
        stack(graph, [])


def test_the_stack_pointer_may_be_read():
    graph, _ = program(reset=START, main="A881 E581 E8 80 FE")  # MOV R0,SP; MOV A,SP
    assert stack(graph, []).main.bytes == 0


@pytest.mark.slow
def test_the_product():
    found = bound(product.build())
    assert found.spare >= SPARE
    # sdcc 4.5 links its atomics with every interrupt handler.
    unused = [name for name in found.unreached if not name.startswith("sdcc_atomic_")]
    assert unused == [], "functions that nothing calls"
    assert {"list_run", "execute"} <= set(found.main.path)
    assert "usb_interrupt" in found.interrupt.path
