"""The socket of `towline stream`: hostile readers, and hostile publishers before `towline gpu top`."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from sdk.errors import TowlineError
from sdk.telemetry.metrics import Identity, Link, Metrics, Supply, Traffic
from sdk.telemetry.publisher import Publisher
from sdk.telemetry.reader import Reader
from tests.campaigns.campaign import Case, Surface
from tests.campaigns.hostile import PATIENCE, Flat, attack
from towline.cli import main

METRICS = Metrics(
    *(1.5, 12.0, 40.0, 45.0, 50.0, {"GFXCLK": 500, "UCLK": 900}, 30.0, 1200, False),
    *(Link(16.0, 4), Traffic(5, 6, 7, 8), Supply(11.9, 3.5), 100, 20.0),
).to_json()
STREAM = {
    "state": "running",
    "rate": 20.0,
    "frames": {"ok": 99, "late": 1},
    "event": {"time": 1.0, "frame": 3, "kind": "recovered", "cause": "link-drop", "recovered_ms": 45.0},
}
ABOUT = {"name": "bad", "pid": 1, "device": "emulated", "place": None, "serial": None, "chip": "gfx1100"}
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1e308, float("nan"), float("inf"), 10**400, "", "x" * 2000, "\x1b[2J\n", "\ud800"),
    *([], [1], {}, {"a": {}}, [[[[]]]]),
)


def garbage(rng: Random) -> bytes:
    """What a reader sends: it should send nothing."""
    return rng.randbytes(rng.choice((0, 1, 10, 3000, 70_000)))


def document(rng: Random) -> bytes:
    """Lines of a publisher with other values in some places, or damaged."""
    sent = b""
    for _ in range(rng.randint(1, 6)):
        whole: Any = {"schema": 1, "publisher": ABOUT, "wall": 1e9, "metrics": METRICS, "stream": STREAM}
        whole = json.loads(json.dumps(whole))
        for _ in range(rng.choice((0, 0, 1, 1, 2, 5))):
            at = whole
            while True:
                key = rng.choice([*at])
                if not isinstance(at[key], dict) or not at[key] or rng.random() < 0.2:
                    break
                at = at[key]
            if rng.random() < 0.2:
                del at[key]
                if not whole:
                    break
            else:
                at[key] = rng.choice(VALUES)
        line = bytearray(json.dumps(whole).encode() + b"\n")
        if rng.random() < 0.1:
            line[rng.randrange(len(line))] = rng.randrange(256)
        if rng.random() < 0.05:
            line = bytearray(
                rng.choice((b"[" * 70_000, b"\n", b"\xff\n", b'{"schema": 1}\n', b"1" * 5000 + b"\n"))
            )
        sent += line
    if rng.random() < 0.5:
        sent += json.dumps({"schema": 1, "publisher": ABOUT, "end": rng.choice(VALUES)}).encode() + b"\n"
    return sent[: rng.randrange(len(sent))] if rng.random() < 0.1 else sent


@contextlib.contextmanager
def opened(scratch: Path) -> Iterator[Case]:
    """A publisher in this process; `towline gpu top` reads a hostile one."""
    scratch.chmod(0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(scratch)
    numbers = itertools.count(1)
    with Publisher("emulated", Identity("emulated", "A7", "gfx1100"), "good") as publisher:
        good, bad = scratch / "towline" / "good.sock", scratch / "towline" / "bad.sock"

        def connect() -> socket.socket:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            link.settimeout(5.0)
            link.connect(os.fspath(good))
            return link

        def seen(number: int) -> str | None:
            """Whether an honest reader gets that number; while 16 others are connected it is refused."""
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                with contextlib.suppress(TowlineError), Reader(good) as reader:
                    while reader.ended is None and time.monotonic() < end:
                        line = reader.line(1.0)
                        if line is not None and line["metrics"] == number:
                            return None
            return f"an honest reader does not get {number}"

        flat = Flat()

        def case(rng: Random) -> str | None:
            if rng.random() < 0.5:
                top(rng, bad)
                return flat.grown()
            number = next(numbers)
            with attack(rng, connect, lambda: garbage(rng)):
                publisher.publish({"metrics": number})
                wrong = seen(number)
            return wrong or flat.grown()

        yield case


def top(rng: Random, path: Path) -> None:
    """`towline gpu top` on what such a publisher sends.

    Raises:
        AssertionError: it ends otherwise than a user's command may.
    """
    data = document(rng)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(os.fspath(path))
        listener.listen()
        listener.settimeout(0.02)
        over = threading.Event()

        def publish() -> None:
            while not over.is_set():  # it is looked for, listed and read
                with contextlib.suppress(OSError), listener.accept()[0] as link:
                    link.sendall(data)

        thread = threading.Thread(target=publish)
        thread.start()
        out, err = io.StringIO(), io.StringIO()
        options = rng.choice(([], ["--json"], ["--list"], ["--list", "--json"]))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["gpu", "top", "--device", "bad", *options, "-vv"])
        over.set()
        thread.join()
    path.unlink()
    said = out.getvalue() + err.getvalue()
    assert code in (0, 1, 2, 3), code
    assert "bug in Towline" not in said, said
    assert "\x1b" not in said, "control characters"


TELEMETRY = Surface(
    "telemetry", "readers of what a stream publishes, and lines before `gpu top`", opened, slice=40
)
