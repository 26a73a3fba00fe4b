"""Tables and the terminal's width: what is wrapped, what is left out, and that nothing is broken."""

import os
import pty
import re

from hypothesis import given
from hypothesis import strategies as st

from sdk.tables import ENDLESS, stdout_width, table

HEADERS = ("layer", "operator", "MACs", "where the time goes")
ROWS = [
    ("block1/depthwise", "Conv", 36864, "loads and loops 60%, unused lanes 21%, requantisation 12%"),
    ("block1/project", "Gemm", 1234567, "multiplies 35%"),
]
LEFT_OUT = re.compile(r"(\d+) columns? left out: (.*); --json has them, or widen the terminal")


def test_whole_where_there_is_room():
    text = table(HEADERS, ROWS, width=200)
    assert text == table(HEADERS, ROWS, width=ENDLESS)
    assert len(text.splitlines()) == 3


def test_texts_are_wrapped_before_anything_is_left_out():
    lines = table(HEADERS, ROWS, width=70).splitlines()
    assert max(map(len, lines)) <= 70
    assert not LEFT_OUT.search(lines[-1])
    assert all("1,234,567" in line or "1,2" not in line for line in lines)
    assert lines[1].startswith("block1/depthwise  Conv         36,864  loads")
    assert lines[2].startswith(" " * 39)


def test_the_least_columns_go_first_and_are_named():
    lines = table(HEADERS, ROWS, least=("operator",), width=52).splitlines()
    assert LEFT_OUT.fullmatch(lines[-1]).groups() == ("1", "operator")
    assert max(map(len, lines[:-1])) <= 52
    lines = table(HEADERS, ROWS, width=30).splitlines()
    assert LEFT_OUT.fullmatch(lines[-1]).groups() == ("2", "MACs, where the time goes")


def test_the_first_column_stays():
    lines = table(HEADERS, ROWS, width=3).splitlines()
    assert lines[:3] == ["layer", "block1/depthwise", "block1/project"]
    assert LEFT_OUT.fullmatch(lines[3])[1] == "3"


words = st.text("abcxyz/", min_size=1, max_size=12)
cells = st.one_of(
    st.none(), st.integers(0, 10**12), st.floats(0, 1e9), st.lists(words, max_size=9).map(" ".join)
)


@given(
    st.integers(1, 6).flatmap(
        lambda count: st.tuples(
            st.lists(words, min_size=count, max_size=count),
            st.lists(st.lists(cells, min_size=count, max_size=count), max_size=5),
        )
    ),
    st.integers(1, 120),
)
def test_nothing_is_broken_at_any_width(content, width):
    headers, rows = content
    lines = table(headers, rows, width=width).splitlines()
    whole = table(headers, rows, width=ENDLESS).split()
    left_out = LEFT_OUT.fullmatch(lines[-1])
    shown = lines[:-1] if left_out else lines
    if left_out is None:
        assert sorted(" ".join(shown).split()) == sorted(whole)
    else:
        assert set(" ".join(shown).split()) <= set(whole)
    first = max(
        map(len, [headers[0], *(part for part in re.split(r" {2,}|\n", "\n".join(shown)))]), default=0
    )
    assert max(map(len, shown), default=0) <= max(width, first)


def test_what_is_no_terminal_has_no_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert stdout_width() == ENDLESS  # pytest reads it


def test_a_terminal_has_one(monkeypatch):
    monkeypatch.setenv("COLUMNS", "77")
    leader, follower = pty.openpty()
    with os.fdopen(leader, "rb", 0), os.fdopen(follower, "w") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        assert stdout_width() == 77
