"""Arrows beside a listing: they join the lines that jump with those that they jump to, and no others."""

from hypothesis import given
from hypothesis import strategies as st

from sdk.jumps import beside

LINES = 12
JUMPS = st.lists(st.tuples(st.integers(0, LINES - 1), st.integers(0, LINES - 1)), max_size=12)


def picture(jumps, columns=8, lines=LINES):
    """The arrows alone, of lines that are a dot each."""
    return [line.removesuffix(".") for line in beside(["."] * lines, jumps, columns)]


def arrows(drawn):
    """What a picture says: lines with an arrowhead, and the lines that each vertical joins."""
    heads = {number for number, line in enumerate(drawn) if ">" in line}
    joined = []
    for column in range(max(map(len, drawn))):
        inside = None
        for number, line in enumerate(drawn):
            match line[column : column + 1]:
                case "/":
                    assert inside is None
                    inside = {number}
                case "+" | "\\":
                    inside.add(number)
                    if line[column] == "\\":
                        joined.append(frozenset(inside))
                        inside = None
                case "|":
                    assert inside is not None
                case other:
                    assert inside is None
                    assert other in ("", " ", "-", ">")
        assert inside is None
    return heads, sorted(joined, key=sorted)


def groups(jumps):
    found = {}
    for source, target in jumps:
        if source != target:
            found.setdefault(target, {target}).add(source)
    return found


@given(JUMPS)
def test_every_jump_is_drawn_and_nothing_else(jumps):
    heads, joined = arrows(picture(jumps, columns=LINES))
    expected = groups(jumps)
    assert heads == set(expected)
    assert joined == sorted(map(frozenset, expected.values()), key=sorted)


@given(JUMPS, st.integers(0, 3))
def test_what_finds_no_room_is_left_out(jumps, columns):
    drawn = picture(jumps, columns)
    assert max(map(len, drawn)) <= (columns + 3 if columns else 0)
    heads, joined = arrows(drawn)
    expected = groups(jumps)
    assert heads <= set(expected)
    for lines in joined:
        assert any(target in lines and lines <= every for target, every in expected.items())


def test_the_picture():
    assert beside(["a", "b", "c", "d", "e", "f"], [(1, 3), (4, 0), (5, 3), (2, 1)]) == [
        " /--> a",
        "/|/-> b",
        "||\\-- c",
        "+|--> d",
        "|\\--- e",
        "\\---- f",
    ]
    assert beside(["a", "b"], [(1, 1)]) == ["a", "b"]
    assert beside([], []) == []
