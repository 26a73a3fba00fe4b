"""The codec: what each type of field accepts, and where an error points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from sdk.codec import Key, from_json, length, multiple, names, pattern, require, to_json, within
from sdk.errors import InvalidArtifact, InvalidModel

Size = Annotated[int, within(0, 10), multiple(3)]


@dataclass(frozen=True)
class Piece:
    name: Annotated[str, pattern("[a-z]+")]
    nbytes: Annotated[Size, Key("size")]


@dataclass(frozen=True)
class Whole:
    flag: bool
    count: int
    ratio: float
    word: str
    code: bytes
    kind: Literal["a", "b"]
    maybe: str | None
    number: int | float
    pair: tuple[int, str]
    several: Annotated[Sequence[int], length(1, 3)]
    table: Annotated[Mapping[str, Size], names("x", "y")]
    pieces: tuple[Piece, ...]
    by_name: Mapping[str, Piece | None]
    arguments: Sequence[tuple[Literal["at", "by"], int] | tuple[Literal["of"], str]]
    anything: Any

    def __post_init__(self) -> None:
        require(self.count != 13, "unlucky", "count")


DOCUMENT = {
    "flag": True,
    "count": -5,
    "ratio": 0.5,
    "word": "Hündin",
    "code": "00ff",
    "kind": "b",
    "maybe": None,
    "number": 1.5,
    "pair": [1, "x"],
    "several": [1, 2, 3],
    "table": {"x": 0, "y": 9},
    "pieces": [{"name": "a", "size": 3}],
    "by_name": {"p/q": {"name": "b", "size": 6}, "r": None},
    "arguments": [["at", 1], ["of", "b"]],
    "anything": [{"x": [1]}],
}


def test_a_document_reads_and_is_written_again():
    whole = from_json(Whole, DOCUMENT, "doc")
    assert whole.pieces == (Piece("a", 3),)
    assert (whole.code, whole.pair, whole.arguments) == (b"\0\xff", (1, "x"), (("at", 1), ("of", "b")))
    assert to_json(whole) == DOCUMENT
    assert list(to_json(whole)) == list(DOCUMENT)


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        *(("flag", value, "doc.flag") for value in (1, None, "true")),
        *(("count", value, "doc.count") for value in (True, 1.0, "1", None, 1 << 63, -(1 << 63) - 1, 13)),
        *(("ratio", value, "doc.ratio") for value in (1, True, float("inf"), float("nan"))),
        *(("word", value, "doc.word") for value in (1, None, "\ud800")),
        *(("code", value, "doc.code") for value in ("0", "0g", "0A", "00 ff", b"", 5)),
        *(("kind", value, "doc.kind") for value in ("c", 1, None, ["a"])),
        *(("maybe", value, "doc.maybe") for value in (1, [], "\udfff")),
        *(("number", value, "doc.number") for value in (True, "1", None)),
        *(("pair", value, "doc.pair") for value in ([1], [1, "x", 2], {}, (1, "x"))),
        ("pair", ["x", 1], "doc.pair[0]"),
        ("pair", [1, 1], "doc.pair[1]"),
        *(("several", value, "doc.several") for value in ([], [1] * 4, None, "abc")),
        ("several", [1, 1, None], "doc.several[2]"),
        *(("table", value, "doc.table") for value in ({"x": 0}, {"x": 0, "y": 0, "z": 0}, [], {})),
        ("table", {"x": 0, "y": 10}, "doc.table.y"),
        ("table", {"x": 0, "y": 4}, "doc.table.y"),
        ("pieces", [{"name": "a", "size": 3}, 5], "doc.pieces[1]"),
        ("pieces", [{"name": "a"}], "doc.pieces[0]"),
        ("pieces", [{"name": "a", "size": 3, "at": 0}], "doc.pieces[0]"),
        ("pieces", [{"name": "a", "nbytes": 3}], "doc.pieces[0]"),
        ("pieces", [{"name": "A", "size": 3}], "doc.pieces[0].name"),
        ("pieces", [{"name": "a", "size": -3}], "doc.pieces[0].size"),
        ("by_name", {"p/q": {"name": "b", "size": 1}}, "doc.by_name['p/q'].size"),
        ("by_name", {"p": 5}, "doc.by_name.p"),
        ("by_name", {5: None}, "doc.by_name[5]"),
        ("by_name", {"\ud800": None}, "doc.by_name['\\ud800']"),
        *(("arguments", [value], "doc.arguments[0]") for value in ([], ["in", 1], [[], 1], 5, [1, "at"])),
        ("arguments", [["at", "b"]], "doc.arguments[0][1]"),
        ("arguments", [["of", "b", 1]], "doc.arguments[0]"),
    ],
)
def test_what_breaks_a_rule_is_an_error_at_its_place(field, value, where):
    with pytest.raises(InvalidModel) as caught:
        from_json(Whole, DOCUMENT | {field: value}, "doc", InvalidModel)
    assert caught.value.where == where
    assert caught.value.hint


@pytest.mark.parametrize("document", [None, [], {}, 5, DOCUMENT | {"more": 1}, {**DOCUMENT, 5: 1}])
def test_another_document_is_an_error_at_its_root(document):
    with pytest.raises(InvalidArtifact) as caught:
        from_json(Whole, document, "doc")
    assert caught.value.where == "doc"


def test_a_value_of_any_size_and_depth_is_shown_in_a_few_words():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, "x" * 10**6, list(range(10**5)), {str(n): n for n in range(10**5)}):
        with pytest.raises(InvalidArtifact) as caught:
            from_json(Whole, DOCUMENT | {"count": value}, "doc")
        assert len(caught.value.message) < 300


def test_a_type_without_a_form_in_json_is_a_mistake_of_the_dataclass():
    @dataclass
    class Wrong:
        numbers: set[int]

    with pytest.raises(KeyError):
        from_json(Wrong, {"numbers": []}, "doc")
