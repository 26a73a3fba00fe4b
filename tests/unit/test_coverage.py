"""Which parts of an image have run: counting, adding up, files, and where they are in the source."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
from concurrent.futures import ProcessPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from emulator import images
from emulator.board import Board
from emulator.coverage import PLACES, Coverage, Program, Recording, Report, environment, page
from emulator.coverage.data import digest
from emulator.coverage.program import _written
from emulator.image_file import CodeImage, Kind
from emulator.symbols import Function, Line, Symbols
from firmware.asm2464pd import image
from sdk import settings
from sdk.errors import InvalidInput, OutputFailed
from tests.unit.mcs51_bench import Bench

BODY = bytes.fromhex("7F03 DFFE 7002 4000 A5")
"""MOV R7,#3; DJNZ R7,$; JNZ +2; JC to the next, which is the reserved opcode."""
LONG = 1 << 40
SOURCE = """void main(void)
{
    do {} while (--i);
    __asm
        jnz     00001$ ; A &lt; <b>
        jc      00001$
00001$:
        .db     0xA5
    __endasm;
}
"""


class Started:
    """The part of a board that a recording uses."""

    def __init__(self, body: bytes = BODY) -> None:
        self.bench = Bench()
        self.body = body
        self.takes = []

    def on_start(self, take) -> None:
        self.takes.append(take)
        self.start(self.body)

    def start(self, body: bytes) -> None:
        self.bench.cpu.load(body)
        self.bench.cpu.reset()
        for take in self.takes:
            take(self.bench.cpu, body)

    def run(self) -> None:
        self.bench.cpu.run(LONG)


class Off(Started):
    """Waits in the boot loader for its firmware."""

    def on_start(self, take) -> None:
        self.takes.append(take)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """BODY, from a file of C."""
    (tmp_path / "main.c").write_text(SOURCE)
    code = BODY.ljust(0x10000, b"\xff")
    loaded = (b"\1" * len(BODY)).ljust(0x10000, b"\0")
    names = Symbols(
        (Function("main", 0, 0, len(BODY), "main"),),
        tuple(
            Line(0, address, "main.c", line) for address, line in ((0, 1), (0, 2), (0, 3), (4, 9), (8, 10))
        ),
    )
    made = CodeImage((code, code), (loaded, loaded), Kind.BINARY, tmp_path / "main.bin")
    return Program(made, names, "main", [tmp_path])


def ran(body: bytes = BODY) -> Coverage:
    board = Started(body)
    recording = Recording(board, image="main")
    board.run()
    return recording.taken()


def test_times_and_sides_by_place():
    found = ran()
    assert (found.build, found.runs) == (digest(BODY), 1)
    assert found.times[[0, 2, 4, 6, 8]].tolist() == [1, 3, 1, 1, 0]
    assert found.sides[[0, 2, 4, 6, 8]].tolist() == [1, 1 | 2 | 4, 1 | 4, 1 | 4, 0]


def test_only_the_build_is_recorded():
    board = Started(b"\x04\xa5")
    recording = Recording(board, digest(BODY))
    board.run()
    assert recording.taken() is None
    for body in (BODY, BODY, *[b"\x04\xa5"] * 9):
        board.start(body)
        board.run()
    assert recording.taken().times[:4].tolist() == [2, 0, 6, 0]


def test_profile_and_recording_share_what_the_core_counts():
    board = Started()
    profile = board.bench.cpu.profile()
    recording = Recording(board)
    board.run()
    assert sum(profile) == board.bench.cpu.clock
    assert recording.taken().times.sum() == board.bench.cpu.instructions


def test_what_runs_of_the_firmware_is_every_instruction():
    board = Board.of("firmware")
    recording = Recording(board)
    board.usb.clock.sleep(1e-3)
    found = recording.taken()
    assert found.times.sum() == board.machine.cpu.instructions > 1000
    assert (found.sides[found.times > 0] & 1).all()
    assert found.build == Program.of("firmware").build


# -- files ----------------------------------------------------------------------------------------------


def test_a_file_sums_up(tmp_path: Path):
    path = tmp_path / "a.cov"
    one = ran()
    one.add_to(path)
    one.add_to(path)
    both = Coverage.read(path)
    assert (both.build, both.image, both.runs) == (one.build, "main", 2)
    assert (both.times == 2 * one.times).all()
    assert (both.sides == one.sides).all()
    assert list(tmp_path.iterdir()) == [path]


def test_another_build_is_refused_and_the_file_stays(tmp_path: Path):
    path = tmp_path / "a.cov"
    ran().add_to(path)
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match=r"a\.cov: is of another build: main") as refused:
        ran(b"\x04\xa5").add_to(path)
    assert "delete it" in refused.value.hint
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"coverage": "Z80"},
        {"build": "00"},
        {"build": None},
        {"image": 1},
        {"runs": -1},
        {"runs": True},
        {"executed": None},
        {"executed": [[1, 2]]},
        {"executed": [[1, 2, 1], [1]]},
        {"executed": [[PLACES, 1, 1]]},
        {"executed": [[-1, 1, 1]]},
        {"executed": [[0, 0, 1]]},
        {"executed": [[0, 1.5, 1]]},
        {"executed": [[0, 1 << 64, 1]]},
        {"executed": [[0, 1, 2]]},
        {"executed": [[0, 1, 9]]},
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: dict):
    path = tmp_path / "a.cov"
    ran().write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InvalidInput, match="not a coverage file"):
        Coverage.read(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[" * 100_000, ":00000001FF"])
def test_other_files_are_refused(tmp_path: Path, text: str):
    (tmp_path / "a.cov").write_text(text)
    with pytest.raises(InvalidInput, match="not a coverage file"):
        Coverage.read(tmp_path / "a.cov")


def test_where_nothing_can_be_written(tmp_path: Path):
    with pytest.raises(OutputFailed):
        ran().add_to(tmp_path / "none" / "a.cov")
    with pytest.raises(InvalidInput, match="is not a regular file"):
        ran().add_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")  # reading it would block
    with pytest.raises(InvalidInput, match="is not a regular file"):
        Coverage.read(tmp_path / "pipe")


def add(path: Path) -> None:
    ran().add_to(path)


@pytest.mark.slow
def test_processes_that_write_at_once_lose_nothing(tmp_path: Path):
    with ProcessPoolExecutor(4, multiprocessing.get_context("fork")) as pool:
        list(pool.map(add, [tmp_path / "a.cov"] * 100))
    found = Coverage.read(tmp_path / "a.cov")
    assert (found.runs, found.times[2]) == (100, 300)


# -- the environment ------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "all.cov"
    monkeypatch.setenv(settings.COVERAGE.name, str(path))
    monkeypatch.setattr(environment, "_files", {})
    return path


def test_boards_add_to_the_file_whether_they_still_exist_or_not(file: Path):
    boards = [Started(), Started(), Started(b"\x04\xa5")]
    for board in boards:
        environment.record(board, "main")
        board.run()
    del boards[0], board
    environment.record(Started(), "main")  # never runs
    assert len(environment._files[file]._boards) == 3
    environment.flush()
    boards[0].run()  # after it
    environment.flush()
    found = Coverage.read(file)
    assert (found.build, found.runs, found.times[2]) == (digest(BODY), 3, 6)


def test_the_file_says_which_build_counts(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv(settings.COVERAGE.name, file.name)
    environment.begin(digest(BODY), "main")
    environment.begin(digest(BODY), "main")
    monkeypatch.chdir("/")
    for body in (b"\x04\xa5", BODY):
        board = Started(body)
        environment.record(board, "")
        board.run()
    environment.flush()
    assert (Coverage.read(file).runs, Coverage.read(file).image) == (1, "main")
    with pytest.raises(InvalidInput, match="of another build"):
        environment.begin(digest(b"\x04\xa5"), "other")


def test_a_board_that_starts_late_with_another_build_is_ignored(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv(settings.COVERAGE.name, file.name)
    late, board = Off(), Started()
    for one in (late, board):
        environment.record(one, "main")
    late.start(b"\x04\xa5")
    for one in (late, board):
        one.run()
    monkeypatch.chdir("/")
    environment.flush()
    assert (Coverage.read(file).build, Coverage.read(file).runs) == (digest(BODY), 1)


def test_an_impossible_file_is_refused_at_once(file: Path, monkeypatch: pytest.MonkeyPatch):
    file.write_text("something else")
    with pytest.raises(InvalidInput, match="not a coverage file") as refused:
        environment.record(Started(), "main")
    assert "TOWLINE_COVERAGE names it" in refused.value.hint
    assert file.read_text() == "something else"
    monkeypatch.setenv(settings.COVERAGE.name, str(file.parent / "none" / "a.cov"))
    with pytest.raises(OutputFailed, match="there is no such directory"):
        environment.record(Started(), "main")


def boot(_: int) -> None:
    Board.of("firmware").usb.clock.sleep(1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_processes_add_to_the_file_when_they_end(file: Path, start: str):
    boot(0)  # of this process, not of the children
    with ProcessPoolExecutor(2, multiprocessing.get_context(start)) as pool:
        list(pool.map(boot, range(4)))
    found = Coverage.read(file)
    assert (found.runs, found.times[0]) == (4, 4)
    environment.flush()
    assert Coverage.read(file).runs == 5


# -- where it is ----------------------------------------------------------------------------------------


def test_lines_of_c_and_of_assembly_in_it(program: Program):
    lines = {place: program.where(place)[1] for place in program.instructions}
    assert lines == {0: 3, 2: 3, 4: 5, 6: 6, 8: 10}
    assert program.shared == {("main.c", 1): (0,)}


def test_a_jump_to_the_next_instruction_is_not_a_branch(program: Program):
    assert program.branches.tolist() == [2, 4]
    assert program.reached(ran().sides) == 3
    assert [str(side) for side in program.missed(ran().sides)] == [
        "main.c:5 main 0x0004: jnz 0x0008 never taken"
    ]


def test_assembly_that_is_not_what_the_code_has_stays_one_line(program: Program, tmp_path: Path):
    (tmp_path / "main.c").write_text(SOURCE.replace("jc ", "jnc "))
    assert program.where(4) == program.where(6) == ("main.c", 9)


def test_assembly_at_the_end_of_a_function(program: Program, tmp_path: Path):
    names = Symbols(
        (Function("main", 0, 0, 8, "main"), Function("next", 0, 8, 9, "")),
        (Line(0, 0, "main.c", 1), Line(0, 4, "main.c", 9)),
    )
    found = Program(program._code, names, "main", [tmp_path])
    assert [found.where(place) for place in (4, 6, 8)] == [("main.c", 5), ("main.c", 6), None]


def test_macros_are_where_they_are_called():
    source = [
        "__asm", ".macro twice ; x", " nop", " inc a", ".endm", "__endasm;", "int x;",
        "__asm", " twice", "1$: djnz r7,1$", "; nop", "loop:", "a: twice", "__endasm;",
    ]  # fmt: skip
    assert list(_written(source, 14)) == [
        (9, "NOP"), (9, "INC"), (10, "DJNZ"), (13, "NOP"), (13, "INC")
    ]  # fmt: skip


def test_a_source_that_is_shorter_than_the_symbols_say_is_another_one(program: Program, tmp_path: Path):
    (tmp_path / "main.c").write_text("int x;\n")
    assert program.source("main.c") is None
    assert "its source was not found" in page(Report(program, ran()))


def test_code_of_bank_1(tmp_path: Path):
    """Code at 0 switches to bank 1, which has two JNZ; bank 0 has nothing at those addresses."""
    bank0 = bytes.fromhex("759601 028000").ljust(0x10000, b"\xa5")
    bank1 = bank0[:0x8000] + bytes.fromhex("7401 7001 A5 70FE").ljust(0x8000, b"\xa5")
    loaded = tuple(bytes(byte != 0xA5 for byte in bank) for bank in (bank0, bank1))
    names = Symbols(
        (Function("start", 0, 0, 6, "a"), Function("far", 1, 0x8000, 0x8007, "b")),
        (Line(0, 0, "a.c", 1), *(Line(1, 0x8000 + at, "b.c", line) for at, line in ((0, 9), (0, 1), (5, 2)))),
    )
    code = CodeImage((bank0, bank1), loaded, Kind.BINARY, tmp_path / "a.bin")
    program, bench = Program(code, names), Bench()
    body = image.body(code.banks, code.loaded)

    class Banked(Started):
        def start(self, body: bytes) -> None:
            bench.cpu.load(bank0, bank1)
            for take in self.takes:
                take(bench.cpu, body)

    recording = Recording(Banked(body))
    bench.cpu.run(40)
    found = recording.taken()
    assert {place: program.where(place) for place in np.flatnonzero(found.times)} == {
        0: ("a.c", 1), 3: ("a.c", 1), 0x18000: ("b.c", 1), 0x18002: ("b.c", 1), 0x18005: ("b.c", 2)
    }  # fmt: skip
    assert program.branches.tolist() == [0x18002, 0x18005]
    report = Report(program, found)
    assert (report.lines, report.sides) == ((4, 4), (2, 4))
    assert program.shared == {("b.c", 9): (0x18000,)}
    assert "b.c:2 far 1:0x8005: jnz 0x8005 never not taken" in report.text(every_side=True)


def test_code_that_ran_counts_however_it_was_reached(tmp_path: Path):
    """By RET, to an address that was computed and pushed: JNZ, at 0x40."""
    main = bytes.fromhex("7420 2420 C0E0 E4 C0E0 22")
    body = b"\x80\x2e".ljust(0x30, b"\xa5") + main.ljust(0x10, b"\xa5") + bytes.fromhex("7001 A5")
    code = body.ljust(0x10000, b"\xff")
    loaded = bytes(at == len(body) - 1 or 0xA5 != byte != 0xFF for at, byte in enumerate(code))
    names = Symbols(
        (Function("main", 0, 0, len(body), "a"),), (Line(0, 0, "a.c", 1), Line(0, 0x40, "a.c", 2))
    )
    program = Program(CodeImage((code, code), (loaded, loaded), Kind.BINARY, tmp_path / "a.bin"), names)
    assert Report(program, Coverage(program.build)).lines == (0, 1)
    report = Report(program, ran(body))
    assert (report.lines, report.sides) == ((2, 2), (1, 2))


def test_an_image_without_c_is_refused():
    with pytest.raises(InvalidInput, match="C lines"):
        Program.of("storage")


# -- reports --------------------------------------------------------------------------------------------


def test_a_report_distinguishes_lines_and_branches(program: Program):
    report = Report(program, ran())
    (file,) = report.files
    assert {number: (line.times, len(line.missed)) for number, line in file.lines.items()} == {
        1: (1, 0), 3: (3, 0), 5: (1, 1), 6: (1, 0), 10: (0, 0)
    }  # fmt: skip
    assert (report.lines, report.sides) == ((4, 5), (3, 4))
    assert report.text().endswith("branches that went one way only:\n  main.c: 5")
    assert "main.c:5 main 0x0004: jnz 0x0008 never taken" in report.text(every_side=True)
    document = report.document()
    assert document["files"][0]["times"] == {"1": 1, "3": 3, "5": 1, "6": 1, "10": 0}
    assert json.dumps(document)


def test_nothing_and_everything(program: Program):
    nothing = Report(program, Coverage(program.build))
    assert (nothing.lines, nothing.sides) == ((0, 5), (0, 4))
    assert "functions never entered:\n  main" in nothing.text()
    assert nothing.text().endswith("lines never executed:\n  main.c: 1-10")
    full = Coverage(program.build, runs=1)
    full.times[list(program.instructions)] = 1
    full.sides[list(program.instructions)] = 7
    assert "never" not in Report(program, full).text()
    assert Report(program, full).summary().startswith("5 of 5 lines (100.0 %), ")


def test_of_another_build_there_is_no_report(program: Program):
    with pytest.raises(InvalidInput, match="another build"):
        Report(program, Coverage(digest(b"\x04")))


class Page(HTMLParser):
    """Rows by id: their class and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: dict[str, tuple[str, str]] = {}
        self.tags: list[str] = []
        self.row = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        given = dict(attrs)
        assert not {"src", "onclick"} & given.keys()
        assert given.get("href", "#").startswith("#")
        if tag == "tr":
            self.row = given.get("id", "")
            self.rows[self.row] = (given.get("class", ""), "")

    def handle_data(self, data):
        if self.row:
            kind, text = self.rows[self.row]
            self.rows[self.row] = kind, text + data


def test_the_page_marks_every_line(program: Program):
    found = Page(page(Report(program, ran())))
    assert not {"script", "link", "img"} & set(found.tags)
    assert {name.removeprefix("main.c-"): kind for name, (kind, _) in found.rows.items() if name} == {
        "1": "hit", "2": "none", "3": "hit", "4": "none", "5": "half", "6": "hit", "7": "none",
        "8": "none", "9": "none", "10": "miss",
    }  # fmt: skip
    assert "A &lt; <b>" in found.rows["main.c-5"][1]
    assert "jnz 0x0008 never taken" in found.rows["main.c-5"][1]
    nothing = Page(page(Report(program, Coverage(program.build))))
    assert nothing.rows["main.c-3"][0] == "miss"
    assert "never" not in nothing.rows["main.c-5"][1]


def test_what_was_not_reached_is_known_by_function(program: Program):
    (entry,) = Report(program, ran()).unreached
    assert (entry.name, entry.entered, entry.lines, entry.half) == ("main", True, (10,), (5,))
    (entry,) = Report(program, Coverage(program.build)).unreached
    assert (entry.entered, entry.lines, entry.half) == (False, (1, 3, 5, 6, 10), ())
    full = Coverage(program.build, runs=1)
    full.times[list(program.instructions)] = 1
    full.sides[list(program.instructions)] = 7
    assert not Report(program, full).unreached


def test_the_page_opens_with_what_was_not_reached(program: Program):
    text = page(Report(program, ran()))
    first, _, rest = text.partition("<h2>Files</h2>")
    links = re.findall(r'href="#([^"]+)"', first)
    assert {"main.c-5", "main.c-10"} <= set(links)
    assert all(f'id="{link}"' in rest for link in links)
    assert "5 never jumps" in first


@pytest.mark.slow
def test_every_instruction_of_assembly_in_the_firmware_has_its_line():
    program = Program.of("firmware")
    written = sum(
        len(re.findall("__endasm", path.read_text())) for path in images.product.SOURCES.glob("*.c")
    )
    ends = {
        (line.file, line.line)
        for line in program._symbols.lines
        if "__endasm" in program.source(line.file)[line.line - 1]
    }
    assert len(ends) == written
    assert not ends & {program.where(place) for place in program.instructions}
    assert not ends & program.shared.keys()
