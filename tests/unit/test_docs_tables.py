"""docs/compatibility.md names only tests and commands that exist; other pages' tables are the code's."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from emulator.faults import FORMS
from emulator.model import CHOICES
from sdk.errors import UsageError
from sdk.settings import SETTINGS
from sdk.targets import target_names
from sdk.zoo import NETWORKS
from tests.e2e import test_networks
from towline.cli import parser

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TABLE = re.compile(r"(?:^\|.*\n)+", re.M)
QUOTED = re.compile(r"`([^`]+)`")
EVIDENCE = "shown by"


def tables(path):
    """(heads, rows) of each table of a page."""
    for match in TABLE.finditer(path.read_text(encoding="utf-8")):
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in match[0].splitlines()]
        yield lines[0], lines[2:]


@pytest.fixture(scope="module")
def compatibility():
    return list(tables(DOCS / "compatibility.md"))


@cache
def names_in(path):
    """Functions of a test module."""
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def problem(quoted):
    """What is wrong with something that is named as evidence; None if it exists."""
    if quoted.startswith("tests/"):
        file, _, name = quoted.partition("::")
        path = ROOT / file
        if not path.is_file():
            return f"there is no {file}"
        if name and name.partition("[")[0] not in names_in(path):
            return f"there is no {name} in {file}"
        return None
    words = shlex.split(quoted)
    if words[0] == "towline":
        try:
            parser().parse_args(words[1:])
        except UsageError:
            return f"{quoted} is not a command"
        return None
    usage = (ROOT / "dev").read_text()
    return None if words[0] == "./dev" and f"\n{words[1]})" in usage else f"{quoted} is not evidence"


@pytest.mark.parametrize(
    ("quoted", "wrong"),
    [
        ("tests/unit/test_docs_tables.py", None),
        ("tests/unit/test_docs_tables.py::test_what_is_named_is_there[x]", None),
        ("tests/unit/test_docs_tables.py::test_nothing", "there is no test_nothing"),
        ("tests/unit/test_none.py::test_x", "there is no tests/unit/test_none.py"),
        ("towline bench usb", None),
        ("towline fly", "is not a command"),
        ("./dev test --slow", None),
        ("./dev fly", "is not evidence"),
        ("we tried it", "is not evidence"),
    ],
)
def test_what_is_named_is_there(quoted, wrong):
    found = problem(quoted)
    assert found is None if wrong is None else wrong in found


@pytest.mark.slow
def test_every_row_has_evidence_that_is_there(compatibility):
    judged = 0
    for heads, rows in compatibility:
        if heads[-1] != EVIDENCE:
            continue
        for row in rows:
            assert len(row) == len(heads), row
            assert all(row), f"an empty cell: {row}"
            evidence = QUOTED.findall(row[-1])
            assert [found for quoted in evidence if (found := problem(quoted))] == [], row
            assert evidence or row[-1] == "untested", f"no evidence: {row}"
            judged += 1
    assert judged > 40


def test_what_the_prose_names_is_there():
    text = TABLE.sub("", (DOCS / "compatibility.md").read_text(encoding="utf-8"))
    named = [quoted for quoted in QUOTED.findall(text) if quoted.startswith(("tests/", "towline ", "./dev "))]
    assert named
    assert [found for quoted in named if (found := problem(quoted))] == []


def test_networks_and_targets_are_all_there(compatibility):
    ((heads, rows),) = [(heads, rows) for heads, rows in compatibility if heads[0] == "network"]
    assert heads[1:] == target_names()
    assert [row[0] for row in rows] == list(NETWORKS)
    for row in rows:
        for target, cell in zip(heads[1:], row[1:], strict=True):
            refused = (target, row[0]) in test_networks.REFUSED
            assert cell == ("refused" if refused else "equal"), (row[0], target)


def test_every_target_has_a_row(compatibility):
    heads, rows = compatibility[0]
    assert heads[0] == "target"
    assert {name for row in rows for name in QUOTED.findall(row[0])} == set(target_names())


def test_the_index_lists_every_page():
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    listed = {target for target in re.findall(r"\]\(([^)#]+)\)", text) if "/" not in target}
    assert listed == {path.name for path in DOCS.glob("*.md")} - {"README.md"}


def test_every_front_has_a_row(compatibility):
    ((_, rows),) = [(heads, rows) for heads, rows in compatibility if heads[:2] == ["host", "device"]]
    said = " ".join(row[0] for row in rows).lower().replace("/", "")
    tree = ast.parse((ROOT / "tests" / "contract" / "usb_fixture.py").read_text())
    (rigs,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and [*map(ast.unparse, node.targets)] == ["RIGS"]
    )
    assert isinstance(rigs, ast.Dict)
    fronts = {key.value.partition("-")[0] for key in rigs.keys if isinstance(key, ast.Constant)}
    assert "pyusb" in fronts
    assert [front for front in sorted(fronts) if front not in said] == []


def test_the_environment_table_is_the_settings():
    found = [rows for heads, rows in tables(DOCS / "compile.md") if heads[0] == "environment variable"]
    expected = [
        [
            f"`{setting.name}`",
            setting.meaning,
            setting.default,
            ", ".join(f"`{reader}`" for reader in setting.readers),
        ]
        for setting in SETTINGS
    ]
    assert found == [expected]


def test_the_faults_are_those_that_can_be_injected():
    (rows,) = [rows for heads, rows in tables(DOCS / "emulator.md") if heads[0] == "fault"]
    assert rows == [[f"`{form.example}`", form.effect] for form in FORMS.values()]


def test_the_choices_of_the_model_are_the_disputes():
    rows = [row for heads, rows in tables(DOCS / "emulator.md") if heads[0] == "`--model`" for row in rows]
    shown = {QUOTED.fullmatch(row[0])[1]: [QUOTED.fullmatch(cell)[1] for cell in row[1:3]] for row in rows}
    assert shown == {dispute.name: [claim.value for claim in dispute.claims] for dispute in CHOICES.values()}
