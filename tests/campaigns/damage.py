"""Damage to what a file holds: bytes, JSON documents, and the members of a zip file."""

from __future__ import annotations

import copy
import io
import json
import random
import resource
import zipfile
from collections.abc import Mapping
from typing import Any

NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 16, 100, 127, 128, 255, 256, 1000),
    *(1 << 15, (1 << 16) - 1, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31, -(1 << 31), (1 << 32) - 1, 1 << 32),
    *(1 << 40, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, -(1 << 63), (1 << 64) - 1, 1 << 64, 10**400),
)
"""Whole numbers at which widths end, and plain ones."""
TEXTS = ("", "x", "0", "\0", "é", "\ud800", "../../x", "a" * 5000, "%s{0}", " ", "\n", "-1", "1e999", "None")
VALUES: tuple[Any, ...] = (
    *(None, True, False, [], {}, [[]], 0.0, -0.0, 0.5, 1e-320, 1e308, -1e308),
    *(float("nan"), float("inf"), [0] * 100, {"x": {}}),
)


def number(rng: random.Random) -> int:
    """Any whole number, rather one at an edge."""
    return rng.choice(NUMBERS) if rng.random() < 0.7 else rng.randrange(-300, 70_000)


def damaged(data: bytes, rng: random.Random, most: int = 4) -> bytes:
    """One to `most` changes of bytes."""
    found = bytearray(data)
    for _ in range(rng.randint(1, most)):
        at = rng.randrange(len(found) + 1)
        length = min(rng.choice((1, 1, 2, 4, 4, 8, 64, 1000)), len(found) - at)
        match rng.randrange(8):
            case 0 | 1 if at < len(found):
                found[at] ^= 1 << rng.randrange(8)
            case 2 | 3:
                found[at : at + length] = rng.randbytes(length)
            case 4:
                width = rng.choice((1, 2, 4, 8))
                value = number(rng) & ((1 << 8 * width) - 1)
                found[at : at + width] = value.to_bytes(width, rng.choice(("little", "big")))
            case 5:
                del found[at : at + length]
            case 6:
                start = rng.randrange(len(found) + 1)
                found[at:at] = found[start : start + length] or rng.randbytes(4)
            case 7 if rng.random() < 0.3:
                del found[at:]
    return bytes(found)


def places(document: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value in a JSON document."""
    found, waiting = [], [document]
    while waiting:
        one = waiting.pop()
        items = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
        for key, value in items:
            found.append((one, key))
            waiting.append(value)
    return found


def changed(document: Any, rng: random.Random, most: int = 2) -> Any:
    """A copy of a JSON document with one to `most` of its values changed, left out, swapped or repeated."""
    holder = {"": copy.deepcopy(document)}
    for _ in range(rng.randint(1, most)):
        every = places(holder)
        container, key = rng.choice(every[1:] or every)
        other, where = rng.choice(every)
        match rng.randrange(8):
            case 0:
                del container[key]
            case 1:
                container[key], other[where] = copy.deepcopy(other[where]), copy.deepcopy(container[key])
            case 2 if isinstance(container, list):
                container.insert(key, copy.deepcopy(other[where]))
            case 2 if key:
                container[f"{key}{rng.choice(TEXTS[:4])}"] = copy.deepcopy(other[where])
            case 3:
                container[key] = copy.deepcopy(rng.choice((*VALUES, *TEXTS)))
            case 4 if rng.random() < 0.1:
                container[key] = rng.choice((DEEP, LONG))
            case _:
                container[key] = _neighbour(container[key], rng)
    return holder.get("")


DEEP, LONG = "<deep>", "<long>"
"""Values that `dumps` writes as lists within lists, and as a number of many digits."""


def dumps(document: Any) -> bytes:
    """A document as JSON; values that JSON does not have as Python writes them."""
    text = json.dumps(document, indent=1)
    return text.replace(f'"{DEEP}"', "[" * 50_000 + "]" * 50_000).replace(f'"{LONG}"', "9" * 5000).encode()


def zipped(members: Mapping[str, bytes], rng: random.Random, method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip file of these members with right checksums; now and then another is added, or one is missing."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            if rng.random() < 0.97:
                archive.writestr(zipfile.ZipInfo(name), data, method)
            if rng.random() < 0.02:
                extra = rng.choice((name + "2", "../" + name, "x", "/etc/x", name.upper(), "a/" * 100))
                archive.writestr(zipfile.ZipInfo(extra), data[: 1 << 12], method)
    return file.getvalue()


def _neighbour(value: Any, rng: random.Random) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return rng.choice((number(rng), value + 1, value - 1, value * 2, -value, value // 2))
        case float():
            return rng.choice((*VALUES[5:], -value, value * 1e30, number(rng) % 1000 + 0.5))
        case str() if value and rng.random() < 0.6:
            at = rng.randrange(len(value))
            return rng.choice((value[:at], value[:at] + rng.choice("aZ0_.$é-") + value[at + 1 :], value * 2))
        case str():
            return rng.choice(TEXTS)
        case list() if value:
            return rng.choice((value[:-1], value[::-1], value * 2, [*value, value[0]], value[:1]))
    return rng.choice(VALUES)


def limit_memory(nbytes: int = 4 << 30) -> None:
    """Let this process have so much memory of its own at most: what asks for more fails."""
    resource.setrlimit(resource.RLIMIT_DATA, (nbytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))
