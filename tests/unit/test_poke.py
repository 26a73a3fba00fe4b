"""Pokes and behaviours: what a user changes of the chip, and what is refused."""

from __future__ import annotations

import io

import pytest

from emulator import poke
from emulator.behaviour import BehaviourFailed
from emulator.board import Board
from emulator.core.clock import clocks
from emulator.options import Options, described
from emulator.trace import Trace
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.image import wrap
from firmware.asm2464pd.registers import ASM2464PD, BLOCKS
from sdk.errors import InvalidInput, TowlineError, UsageError
from tests.unknown_register import UNKNOWN

PLACE = f"xdata:{UNKNOWN:x}"
COPY = bytes.fromhex("020100").ljust(0x100, b"\0") + bytes.fromhex(f"90{UNKNOWN:04X} E0 901000 F0 80F6")
"""Copies a byte, of which nothing is known, to XDATA 1000 again and again."""
WRITE = bytes.fromhex("020100").ljust(0x100, b"\0") + bytes.fromhex(
    f"7407 90{UNKNOWN:04X} F0 E0 901000 F0 80FE"
)
"""Writes 07 there once, reads it back, and stops."""


def board(tmp_path, code: bytes = COPY, *changes: str, behaviour: str | None = None, **options) -> Board:
    path = tmp_path / "code.bin"
    path.write_bytes(wrap(code))
    if behaviour is not None:
        (tmp_path / "idea.py").write_text(behaviour)
        options["behaviour"] = tmp_path / "idea.py"
    pokes = tuple(poke.parse(text, ASM2464PD) for text in changes)
    return Board.of(path, Options(port=None, pokes=pokes, **options))


def seen(made: Board, seconds: float) -> int:
    """What the CPU has read after so much more time."""
    made.usb.clock.sleep(seconds)
    return made.machine.bus.load(Space.XDATA, 0x1000, 1)[0]


@pytest.mark.parametrize(
    ("text", "space", "address", "data", "at", "always"),
    [
        ("xdata:c6b3=30@100ms", Space.XDATA, 0xC6B3, "30", clocks(0.1), False),
        ("XDATA:0xC6B3=0x30", Space.XDATA, 0xC6B3, "30", 0, False),
        ("phy:28=5@7:always", Space.PHY, 0x28, "05", 7, True),
        ("xdata:ffff=1", Space.XDATA, 0xFFFF, "01", 0, False),
        ("xdata:1000=123", Space.XDATA, 0x1000, "0123", 0, False),
        ("PCIE_LTSSM=78", Space.XDATA, 0xB450, "78", 0, False),
        ("msc_cbw_tag=12345678", Space.XDATA, 0x911F, "78563412", 0, False),
        ("BULK_IN_LENGTH=0102:always", Space.XDATA, ASM2464PD["BULK_IN_LENGTH"].address, "0102", 0, True),
    ],
)
def test_a_poke_as_it_is_written(text, space, address, data, at, always):
    assert poke.parse(text, ASM2464PD) == poke.Poke(space, address, bytes.fromhex(data), at, always)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "xdata:c6b3",
        "c6b3=30",
        "xdata:c6b3=",
        "xdata:c6b3=xy",
        "xdata:10000=1",
        "xdata:ffff=0102",
        "sram:0=1",
        "xdata:c6b3=30@",
        "xdata:c6b3=30@soon",
        "xdata:c6b3=30:never",
        "xdata:c6b3=30:always@1ms",
        "PCIE_LTSSN=78",
        "PCIE_LTSSM=178",
        "CPU_IE=1",
        "XRAM=1",
        " xdata:c6b3=30",
    ],
)
def test_what_is_no_poke(text):
    with pytest.raises(UsageError) as caught:
        poke.parse(text, ASM2464PD)
    assert caught.value.hint or "xdata" in caught.value.message or "register" in caught.value.message


def test_a_misspelt_register_is_recognised():
    with pytest.raises(UsageError) as caught:
        poke.parse("PCIE_LTSSN=78", ASM2464PD)
    assert "PCIE_LTSSM" in caught.value.hint


def test_a_poke_holds_until_it_is_overwritten(tmp_path):
    made = board(tmp_path, COPY, f"{PLACE}=30@2ms", f"{PLACE}=31@4ms")
    assert [seen(made, 1e-3), seen(made, 2e-3), seen(made, 2e-3)] == [0, 0x30, 0x31]
    assert seen(board(tmp_path, WRITE, f"{PLACE}=30"), 1e-3) == 7


def test_always_is_whatever_is_written(tmp_path):
    made = board(tmp_path, WRITE, f"{PLACE}=30:always", strict=True)
    assert seen(made, 1e-3) == 0x30
    assert made.machine.bus.load(Space.XDATA, UNKNOWN, 1) == b"\7", "the block behind it sees the write"
    later = board(tmp_path, COPY, f"{PLACE}=30@2ms:always")
    assert [seen(later, 1e-3), seen(later, 2e-3)] == [0, 0x30]


PLAIN = f"""
def ready(access):
    if access.kind == "R" and access.seconds > 1e-3:
        return access.value | 0x30

BEHAVIOUR = {{"{PLACE}": ready}}
"""

POWERFUL = f"""
calls = []

def copied(access):
    calls.append((access.kind, access.space, hex(access.address), access.value, access.pc))
    if access.kind == "W":
        access.set("TLP_TAG", 0x5A)
        access.write("{PLACE}", 0x44)
        access.later(1e-3, lambda: access.set("xdata:1000", access.get("TLP_TAG") + 1))
        return 0x11

BEHAVIOUR = {{"{PLACE}": copied}}
"""


@pytest.mark.slow
def test_a_function_stands_in_for_a_register(tmp_path):
    made = board(tmp_path, COPY, behaviour=PLAIN, strict=True)
    assert [seen(made, 0.9e-3), seen(made, 1e-3)] == [0, 0x30]


def test_what_a_function_may_do(tmp_path):
    made = board(tmp_path, WRITE, behaviour=POWERFUL)
    assert seen(made, 0.5e-3) == 0x11, "what it returned instead of 07 and 44"
    assert made.machine.bus.value(ASM2464PD["TLP_TAG"]) == 0x5A
    assert seen(made, 1e-3) == 0x5B, "a millisecond later"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def f(:\n", 1),
        ("x = 1\nraise KeyError('x')\n", 2),
        ("import sys\nsys.exit(0)\n", 2),
        ("import nothing_of_the_kind\n", 1),
        ("", None),
        ("BEHAVIOUR = []\n", None),
        ("BEHAVIOUR = {}\n", None),
        ("BEHAVIOUR = {'xdata:c6b3': 3}\n", None),
        ("BEHAVIOUR = {7: print}\n", None),
        ("BEHAVIOUR = {'NO_SUCH_REGISTER': print}\n", None),
        ("BEHAVIOUR = {'sfr:80': print}\n", None),
    ],
)
def test_a_file_of_behaviours_that_is_wrong(tmp_path, source, line):
    with pytest.raises(InvalidInput) as caught:
        board(tmp_path, COPY, behaviour=source)
    assert "idea.py" in caught.value.where
    assert line is None or caught.value.where.endswith(f"idea.py:{line}")


def test_a_file_of_behaviours_that_is_not_there(tmp_path):
    with pytest.raises(UsageError) as caught:
        Board(None, Options(port=None, behaviour=tmp_path / "none.py"))
    assert caught.value.where == str(tmp_path / "none.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "return 1 // 0",
        "return 256",
        "return -1",
        "return 'x'",
        "return True",
        "raise SystemExit",
        "access.set('NO_SUCH_REGISTER', 1)",
        "access.set('TLP_TAG', 0x1FF)",
        "access.write('xdata:9000', 256)",
        "access.get('xdata:')",
        "access.later(0, lambda: 1 // 0)",
        "access.nothing",
    ],
)
def test_a_function_that_fails_ends_the_run_with_its_line(tmp_path, body):
    made = board(tmp_path, COPY, behaviour=f"def f(access):\n    {body}\nBEHAVIOUR = {{'{PLACE}': f}}\n")
    with pytest.raises(BehaviourFailed) as caught:
        made.usb.clock.sleep(1e-3)
    assert isinstance(caught.value, TowlineError)
    assert "idea.py" in caught.value.where
    if body.startswith("return 1 //") or "access." in body:
        assert caught.value.where.endswith("idea.py:2")


def test_what_they_did_is_in_the_trace_whatever_is_traced(tmp_path):
    made = board(tmp_path, COPY, "TLP_TAG=44@1ms", f"{PLACE}=30@2ms:always")
    stream = io.StringIO()
    trace = Trace(made.machine.bus, BLOCKS, ["link"], lambda line: print(line, file=stream))
    made.usb.clock.sleep(3e-3)
    trace.close()
    lines = [line.split() for line in stream.getvalue().splitlines()]
    pokes = [line[1:] for line in lines if line[1] == "P"]
    assert pokes == [
        ["P", "TLP_TAG", "b216", "=", "00", "->", "44"],
        ["P", "xdata", f"{UNKNOWN:04x}", "=", "00", "->", "30"],
    ]
    reads = [line[1:] for line in lines if "R" in line]
    assert reads[0] == ["0103", "R", "xdata", f"{UNKNOWN:04x}", "=", "30"]
    assert "more" in stream.getvalue(), "the rest of a polling loop is counted"


def test_a_trace_shows_an_overridden_register_once(tmp_path):
    made = board(tmp_path, bytes.fromhex("020100").ljust(0x100, b"\0") + bytes.fromhex("90B450 E0 80FE"),
                 "PCIE_LTSSM=78:always")  # fmt: skip
    lines = []
    trace = Trace(made.machine.bus, BLOCKS, [], lines.append)
    made.usb.clock.sleep(1e-3)
    trace.close()
    assert [line.split()[2:] for line in lines if " R " in line] == [["R", "PCIE_LTSSM", "b450", "=", "78"]]


def test_a_device_string_takes_them(tmp_path):
    name, options = described(
        "emulated:x.bin?strict&poke=xdata:c6b3=30@100ms&poke=TLP_TAG=1&behaviour=idea.py"
    )
    assert name == "x.bin"
    assert options.strict
    assert [(change.address, change.at) for change in options.pokes] == [
        (0xC6B3, clocks(0.1)),
        (ASM2464PD["TLP_TAG"].address, 0),
    ]
    assert options.behaviour is not None
    for wrong in ("poke=x", "poke=", "poke", "behaviour=", "behaviour", "strict=1"):
        with pytest.raises(UsageError):
            described(f"emulated?{wrong}")
