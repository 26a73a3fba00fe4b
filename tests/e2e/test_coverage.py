"""`towline firmware coverage` and `emulate --coverage` as a user runs them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from emulator import images
from emulator.coverage import Coverage
from firmware import build as product
from towline.cli import main

ROOT = Path(__file__).parents[2]
CONDITIONAL = {0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, *range(0xB4, 0xC0), 0xD5, *range(0xD8, 0xE0)}
"""JBC, JB, JNB, JC, JNC, JZ, JNZ, CJNE, DJNZ."""


def run(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def result(capfd: pytest.CaptureFixture[str], *arguments: object) -> dict:
    code, out, err = run(capfd, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)["result"]


def never(document: dict) -> set[str]:
    return {entry["name"] for entry in document["functions"] if not entry["times"]}


@pytest.mark.slow
def test_runs_add_up_in_a_file(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, page = tmp_path / "a.cov", tmp_path / "a.html"
    emulate = ("emulate", "firmware", "--coverage", path, "--profile", "--for")
    assert run(capfd, *emulate, "1ms", "--no-host")[0] == 0
    first = Coverage.read(path)
    assert run(capfd, *emulate, "220ms", "--control", "C0:F9:0:0:20")[0] == 0
    both = Coverage.read(path)
    assert (first.runs, both.runs) == (1, 2)
    assert (both.times > first.times).sum() > (first.times > 0).sum()
    assert not (first.sides & ~both.sides).any()

    found = result(capfd, "firmware", "coverage", "--no-suite", "--merge", path, "--html", page)
    assert (found["runs"], found["build"]) == (2, both.build)
    assert "main" not in never(found)
    assert "block_write" in never(found)
    assert "<title>Coverage of firmware</title>" in page.read_text()


def test_another_build_is_refused_before_it_runs(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "a.cov"
    Coverage("00" * 32, "older").write(path)
    before = path.read_bytes()
    code, out, err = run(capfd, "emulate", "firmware", "--coverage", path)
    assert (code, out) == (1, "")
    assert "is of another build: older 00000000, not firmware" in err
    code, _, err = run(capfd, "emulate", "firmware", "--coverage", path, "--pcap", path)
    assert code == 2
    assert "the same file for" in err
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--no-suite"], 2, "name files with --merge"),
        (["--no-suite", "--merge", "a", "--speed", "high"], 2, "--speed is the suite's"),
        (["--no-suite", "--merge", "none.cov"], 1, "No such file"),
        (["--source", "none"], 2, "is not a directory"),
        (["--html", ""], 2, "--html"),
        (["--save", "none/a.cov"], 1, "its directory does not exist"),
        (["--save", "."], 1, "is not a regular file"),
        (["--html", "a", "--save", "./a"], 2, "--save would overwrite"),
        (["storage"], 1, "C lines"),
    ],
)
def test_wrong_input(
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    found, _, err = run(capfd, "firmware", "coverage", *arguments)
    assert found == code
    assert says in err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_suite_reaches_nearly_all_of_the_firmware(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page, saved = tmp_path / "a.html", tmp_path / "a.cov"
    found = result(capfd, "firmware", "coverage", "--html", page, "--save", saved)
    reached, lines = found["lines"]["reached"], found["lines"]["all"]
    figure = f"{reached:,} of {lines:,} ({reached / lines:.1%}); ".replace("%", " %")
    figure += f"{found['sides']['reached']} of {found['sides']['all']} |"
    assert figure in (ROOT / "README.md").read_text(encoding="utf-8")
    assert reached > 0.95 * lines
    assert found["sides"]["reached"] > 0.8 * found["sides"]["all"]
    assert len(never(found)) < 5
    assert result(capfd, "firmware", "coverage", "--no-suite", "--merge", saved) == found
    text = page.read_text()
    for name in ("block.c", "usb.c", "vendor.c"):
        source = (product.SOURCES / name).read_text().splitlines()
        assert text.count(f'id="{name}-') == len(source)


@pytest.mark.slow
def test_lines_and_sides_are_those_of_the_listings(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Counted again, from the linker's text and the file alone; assembly in C is one line there."""
    path = tmp_path / "a.cov"
    assert run(capfd, "emulate", "firmware", "--for", "250ms", "--coverage", path)[0] == 0
    ran = {place: (times, sides) for place, times, sides in json.loads(path.read_bytes())["executed"]}
    expected: dict[tuple[str, int], tuple[int, int, int]] = {}
    line = None
    for text in product.build().rst.read_text().splitlines():
        if record := re.search(r"\tC\$(\w+\.c)\$(\d+)\$\S+ ==\.", text):
            line = record[1], int(record[2])
        elif "\t.area " in text:
            line = None
        elif line and (code := re.match(r" {6}(\w{6}) ((?:\w\w )+) *\[\d\d\]", text)):
            times, sides = ran.get(int(code[1], 16), (0, 0))
            data = bytes.fromhex(code[2])
            both = 2 * (data[0] in CONDITIONAL and data[-1] != 0)
            most, all_sides, reached = expected.get(line, (0, 0, 0))
            went = (sides >> 1 & 1) + (sides >> 2) if both else 0
            expected[line] = max(most, times), all_sides + both, reached + went
    found = result(capfd, "firmware", "coverage", "--no-suite", "--merge", path)
    assert found["sides"]["reached"] > 100
    assert found["sides"]["all"] == sum(sides for _, sides, _ in expected.values())
    assert found["sides"]["reached"] == sum(reached for _, _, reached in expected.values())
    compared = 0
    for file in found["files"]:
        lines = {
            number: times
            for number, times in file["times"].items()
            if (file["name"], int(number)) in expected
        }
        missed = Counter(side["line"] for side in file["missed"])
        for number, times in lines.items():
            most, sides, reached = expected[file["name"], int(number)]
            assert (times, missed[int(number)]) == (most, sides - reached), (file["name"], number)
        compared += len(lines)
    assert compared > 1000


@pytest.mark.slow
def test_an_image_with_its_sources_elsewhere(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    built, sources = images.build("firmware"), tmp_path / "c"
    for path in (built.ihx, built.map, built.cdb):
        shutil.copy(path, tmp_path)
    with (tmp_path / built.cdb.name).open("a") as symbols:
        symbols.write("\n")  # of another build than today's, whose sources would be known
    sources.mkdir()
    shutil.copy(product.SOURCES / "main.c", sources)
    image, saved, page = tmp_path / built.ihx.name, tmp_path / "a.cov", tmp_path / "a.html"
    assert run(capfd, "emulate", image, "--for", "1ms", "--no-host", "--coverage", saved)[0] == 0
    arguments = ("firmware", "coverage", image, "--no-suite", "--merge", saved, "--html", page)
    assert run(capfd, *arguments, "--source", sources)[0] == 0
    text = page.read_text()
    assert '<tr class="hit" id="main.c-18">' in text
    assert text.count("its source was not found") == text.count("<details") - 1


FILES = {
    "half.h": """static unsigned char half(unsigned char value)
{
    return value >> 1;
}
""",
    "one.c": """#include "half.h"
volatile __xdata __at(0x100) unsigned char out;
extern unsigned char pick(unsigned char n);
void never(void) { out = half(1); }
void main(void)
{
    unsigned char i;
    for (i = 0; i < 3; i++)
        if (i == 1 && out != 7)
            out = pick(i);
    while (1)
        ;
}
""",
    "two.c": """extern volatile __xdata __at(0x100) unsigned char out;
void put(unsigned char value) { out = value; }
unsigned char pick(unsigned char n)
{
    switch (n) {
    case 0:
        return 4;
    case 1:
        put(9);
        return 5;
    case 2:
        return 6;
    case 3:
        return 7;
    default:
        return 0;
    }
}
""",
}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sdcc") is None, reason="needs sdcc")
def test_a_program_of_ones_own(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Loops, conditions in parts, jump tables, a function in a header, one that is never called."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for arguments in (["-c", "one.c"], ["-c", "two.c"], ["one.rel", "two.rel", "-o", "both.ihx"]):
        subprocess.run(["sdcc", "-mmcs51", "--debug", *arguments], cwd=tmp_path, check=True)
    both, path = tmp_path / "both.ihx", tmp_path / "a.cov"
    assert run(capfd, "emulate", both, "--for", "1ms", "--no-host", "--coverage", path)[0] == 0
    found = result(capfd, "firmware", "coverage", both, "--no-suite", "--merge", path)
    header, one, two = found["files"]
    assert (header["name"], header["lines"]) == ("half.h", {"reached": 0, "all": 3})
    assert {number: one["times"][number] for number in ("4", "5", "8", "9", "10")} == {
        "4": 0, "5": 1, "8": 3, "9": 3, "10": 1
    }  # fmt: skip
    assert one["times"]["11"] > 1000
    assert one["sides"] == {"reached": 5, "all": 6}  # the comparison in line 8 is not a branch
    assert [(side["line"], side["instruction"][:8], side["side"]) for side in one["missed"]] == [
        (9, "cjne r6,", "not taken")
    ]
    missed = {int(number) for number, times in two["times"].items() if not times}
    assert {7, 12, 14, 16} <= missed
    assert {2, 3, 5, 9, 10, 18} <= {*map(int, two["times"])} - missed
    assert never(found) == {"half", "never"}
