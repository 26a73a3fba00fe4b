"""JSON documents declared as frozen dataclasses: written field by field, read with every value checked.

    @dataclass(frozen=True)
    class Piece:
        file: str
        length: Annotated[int, within(0, 1 << 31)]

    from_json(Piece, {"file": "a.co", "length": -1}, "plan")

is an error at `plan.length`: -1 is not a number from 0 to 2147483647. Field types, and what they are in JSON:

============================== ==================================================================
bool, str, None, Literal       the same; a str is UTF-8, without half of a surrogate pair
int, float                     of 64 bits; finite; 1 is no float, neither 1.0 nor true is an int
NonFinite                      the str "inf", "-inf" or "nan"
bytes                          a str of hexadecimal digits in lower case
tuple[X, Y]                    a list of two
tuple[X, ...], Sequence[X]     a list
Mapping[str, X]                an object
a dataclass                    an object of exactly these fields
X | Y                          told apart by their JSON type; lists by their first item, a Literal
Any                            JSON that is not checked
============================== ==================================================================

Rules beyond the type are `Annotated`. A dataclass checks its fields against each other in `__post_init__`,
with `require`. Reading takes time in proportion to the document, and nests as deep as the dataclasses do.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from operator import length_hint
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from sdk.errors import InvalidArtifact, TowlineError

T = TypeVar("T")
Read = Callable[[Any], Any]

LONGEST = 1 << 20
"""Entries of a list or an object."""


class NonFinite(float):
    """The type, beside float, of a field that may be infinite or NaN."""


class Invalid(Exception):
    """A value that breaks a rule, and the path to it: names and indices."""

    def __init__(self, rule: str, *path: str | int) -> None:
        super().__init__(rule)
        self.path = path


def require(condition: bool, rule: str, *path: str | int) -> None:
    """Refuse what is at this path from here, unless the condition holds."""
    if not condition:
        raise Invalid(rule, *path)


@contextmanager
def reported(where: str, error: type[TowlineError]) -> Iterator[None]:
    """In here a broken rule raises this error; `where` begins its path, such as `plan.steps[3].offset`."""
    try:
        yield
    except Invalid as problem:
        steps = (f".{key}" if str(key).isidentifier() else f"[{shown(key)}]" for key in problem.path)
        raise error(str(problem), where=where + "".join(steps), hint="compile the model again") from None


def from_json(cls: type[T], document: Any, where: str, error: type[TowlineError] = InvalidArtifact) -> T:
    """Read a dataclass; lists become tuples.

    Raises:
        InvalidArtifact, or the given error: a field is missing, surplus or ill-typed, or breaks a rule.
    """
    with reported(where, error):
        value: T = _reader(cls).read(document)
    return value


def to_json(value: Any) -> Any:
    """A dataclass as plain JSON values, its fields in order."""
    if dataclasses.is_dataclass(value):
        return {key: to_json(getattr(value, name)) for name, key, _ in _fields(value.__class__)}
    if isinstance(value, Mapping):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


# -- rules ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Key:
    """A field's name in JSON, where it differs."""

    name: str


@dataclass(frozen=True)
class Rule:
    """What a value must be beyond its type; `text` completes "5 is not ..."."""

    text: str
    holds: Callable[[Any], object]


def within(low: int, high: int) -> Rule:
    """A number from `low` up to, not including, `high`."""
    return Rule(f"a number from {low} to {high - 1}", range(low, high).__contains__)


def multiple(of: int) -> Rule:
    return Rule(f"a multiple of {of}", lambda value: value % of == 0)


def length(fewest: int, most: int) -> Rule:
    """A list, an object or a str of so many entries, `most` included."""
    return Rule(f"of {fewest} to {most} entries", lambda value: fewest <= len(value) <= most)


def pattern(regex: str) -> Rule:
    """A str that matches as a whole."""
    return Rule(f"of the form {regex}", re.compile(regex).fullmatch)


def names(*expected: str) -> Rule:
    """An object of exactly these names."""
    return Rule(f"an object of {', '.join(expected)}", lambda value: value.keys() == set(expected))


# -- readers ----------------------------------------------------------------------------------------------


class Reader(NamedTuple):
    """Of one type; `heads` are the tags of a Literal, or of the list that begins with it."""

    kind: type
    read: Read
    heads: Sequence[Any] = ()


DEFAULTS: Mapping[Any, Sequence[Rule]] = {
    bool: (),
    int: (within(-(1 << 63), 1 << 63),),
    float: (Rule("finite", math.isfinite),),
    str: (Rule("UTF-8", lambda value: value.isascii() or value == value.encode(errors="replace").decode()),),
    NoneType: (),
}


def _reader(hint: Any, rules: Sequence[Rule] = ()) -> Reader:
    """Of a field's type; KeyError if it has no form in JSON."""
    origin, args = get_origin(hint), get_args(hint)
    kind: Any = hint
    then: Read | None = None
    heads: Sequence[Any] = ()
    if origin is Annotated:
        return _reader(args[0], [mark for mark in args[1:] if isinstance(mark, Rule)])
    if hint is Any:
        return Reader(object, lambda value: value)
    if origin in (Union, UnionType):
        return Reader(object, _union([_reader(arg) for arg in args]))
    if origin is Literal:
        kind, heads = type(args[0]), args
        rules = [Rule(f"one of {', '.join(map(repr, args))}", lambda value: value in args)]
    elif dataclasses.is_dataclass(hint):
        kind, then = dict, _object(kind)
    elif origin is Mapping:
        kind, then = dict, partial(_mapping, _reader(str).read, _reader(args[1]).read)
        rules = [length(0, LONGEST), *rules]
    elif origin is tuple and args[-1] is not Ellipsis:
        items = [_reader(arg) for arg in args]
        kind, then, heads = list, partial(_list, [item.read for item in items]), items[0].heads
        rules = [length(len(args), len(args)), *rules]
    elif origin in (tuple, Sequence):
        kind, then = list, partial(_list, repeat(_reader(args[0]).read))
        rules = [length(0, LONGEST), *rules]
    elif hint is NonFinite:
        kind, then, rules = str, float, [pattern("-?inf|nan")]
    elif hint is bytes:
        kind, then, rules = str, bytes.fromhex, [pattern("([0-9a-f]{2})*"), *rules]
    else:
        rules = rules or DEFAULTS[hint]
    return Reader(kind, _typed(kind, rules, then), heads)


def _typed(kind: type, rules: Sequence[Rule], then: Read | None = None) -> Read:
    """A JSON value of one type that obeys the rules; `then` reads what is in it."""
    checks = [(rule.holds, rule.text) for rule in rules]

    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise Invalid(f"{shown(value)} is not of the type {kind.__name__}")
        for holds, text in checks:
            if not holds(value):
                raise Invalid(f"{shown(value)} is not {text}")
        return then(value) if then else value

    return read


def _each(keys: Sequence[str | int], reads: Iterable[Read], values: Collection[Any]) -> list[Any]:
    rest = iter(values)
    try:
        return [read(value) for value, read in zip(rest, reads, strict=False)]  # `reads` may be endless
    except Invalid as problem:
        problem.path = (keys[len(values) - length_hint(rest) - 1], *problem.path)
        raise


def _list(reads: Iterable[Read], value: list[Any]) -> tuple[Any, ...]:
    return tuple(_each(range(len(value)), reads, value))


def _mapping(text: Read, item: Read, value: dict[Any, Any]) -> dict[str, Any]:
    names = [*value]
    return dict(
        zip(_each(names, repeat(text), names), _each(names, repeat(item), value.values()), strict=True)
    )


def _union(readers: Sequence[Reader]) -> Read:
    """What distinguishes them is the JSON type or, of lists that have one, the head."""
    reads = {head: one.read for one in readers for head in ((one.kind is list and one.heads) or [one.kind])}

    def read(value: Any) -> Any:
        head = value[0] if type(value) is list and value and type(value[0]) is str else type(value)
        if (known := reads.get(head) or reads.get(type(value))) is None:
            raise Invalid(f"{shown(value)} is none of {shown([*reads])}")
        return known(value)

    return read


@functools.cache
def _object(cls: Any) -> Read:
    """Reads an object; whether the value is one has been checked."""
    keys = [key for _, key, _ in _fields(cls)]
    reads = [_reader(hint).read for _, _, hint in _fields(cls)]
    known = frozenset(keys)

    def read(value: dict[Any, Any]) -> Any:
        if value.keys() != known:
            wrong = shown(sorted(map(str, value.keys() ^ known)))
            raise Invalid(f"missing or unknown fields: {wrong}")
        return cls(*_each(keys, reads, [value[key] for key in keys]))

    return read


@functools.cache
def _fields(cls: Any) -> Sequence[tuple[str, str, Any]]:
    """Name, name in JSON and type of each field."""
    hints = get_type_hints(cls, include_extras=True)
    marks = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    keys = {name: mark.name for name in hints for mark in marks[name] if isinstance(mark, Key)}
    return [(one.name, keys.get(one.name, one.name), hints[one.name]) for one in dataclasses.fields(cls)]


def shown(value: Any) -> str:
    """A value of any size in a few words."""
    return reprlib.repr(value)
