"""Commands where the machine does not help: processes that fill one cold cache, clocks, full disks.

A full or read-only directory is a small file system of the command's own; without the right to mount one
(`unshare --mount`) those cases are not there, and the surface's preparation says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from sdk import files
from tests.campaigns.campaign import Case, Surface
from tests.campaigns.kills import stock

TOGETHER = 4
OUTPUTS = {
    "quantize": "quantize net.onnx --calibrate pictures -o {}/q2.onnx",
    "run": "run c.tow pictures/0.png --output {}/y.npz",
}
CLOCK = """
import os, time
_time, _shift, _at = time.time, float(os.environ["CAMPAIGN_SHIFT"]), float(os.environ["CAMPAIGN_AT"])
_begun = time.monotonic()
time.time = lambda: _time() + (_shift if time.monotonic() - _begun > _at else 0.0)
time.time_ns = lambda: int(time.time() * 1e9)
"""
FULL = """
set -e
mount -t tmpfs -o size=$1,mode=0700 none full
cp old/* full/ 2>/dev/null || true
if [ "$2" = ro ]; then mount -o remount,ro full; fi
shift 2
set +e
"$@"
code=$?
(cd full && find . -name '.towline-*' -o -type f -name '*.o' && sha256sum *) >after 2>/dev/null
exit $code
"""
CODES = ("output-failed", "environment", "build-failed")
"""Of errors, where a directory cannot be written: the compiler's is its own message."""


class Bench:
    """A directory in which commands run."""

    def __init__(self, scratch: Path) -> None:
        self.work, self.temporary = scratch / "work", scratch / "tmp"
        for folder in (self.work, self.temporary):
            folder.mkdir()
        stock(self.work)
        self.cache = scratch / "cache"

    def start(self, words: list[str], **environment: str) -> subprocess.Popen[bytes]:
        """A process; its standard output and errors can be read."""
        variables = {"TMPDIR": str(self.temporary), "TOWLINE_CACHE": str(self.cache)}
        path = os.pathsep.join(filter(None, (environment.pop("path", ""), *sys.path)))
        return subprocess.Popen(
            words,
            cwd=self.work,
            env={**os.environ, "PYTHONPATH": path, **variables, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def digest(self, name: str) -> str:
        """Of a file, which is removed."""
        data = (self.work / name).read_bytes()
        (self.work / name).unlink()
        return hashlib.sha256(data).hexdigest()


def towline(command: str, where: str) -> list[str]:
    """The words of a command that writes there."""
    return [sys.executable, "-m", "towline", *OUTPUTS[command].format(where).split(), "--json"]


def finished(process: subprocess.Popen[bytes]) -> tuple[int, Mapping[str, str]]:
    """The exit code and the error of its document, which says what to do."""
    out, err = process.communicate()
    assert b"bug in Towline" not in out + err, err.decode("utf-8", "replace")[-4000:]
    document = json.loads(out) if out.strip() else {}
    return process.returncode, document.get("error") or {}


@contextlib.contextmanager
def cold(scratch: Path) -> Iterator[Case]:
    """Processes with one cache in which nothing is."""
    bench = Bench(scratch)
    _, error = finished(bench.start(towline("run", ".")))
    assert not error, error
    expected = bench.digest("y.npz")

    def case(rng: random.Random) -> str | None:
        shutil.rmtree(bench.cache, ignore_errors=True)
        running = []
        for number in range(TOGETHER):
            (bench.work / str(number)).mkdir(exist_ok=True)
            running.append(bench.start(towline("run", str(number))))
            time.sleep(rng.choice((0.0, 0.0, 0.3)))
        ends = [finished(process) for process in running]
        if any(code for code, _ in ends):
            return f"ended with {ends}"
        if {bench.digest(f"{number}/y.npz") for number in range(TOGETHER)} != {expected}:
            return "another result"
        left = [*bench.cache.rglob(f"{files.PREFIX}*"), *bench.temporary.glob(f"{files.PREFIX}*")]
        return f"left: {left}" if left else None

    yield case


@contextlib.contextmanager
def clock(scratch: Path) -> Iterator[Case]:
    """The wall's clock is another when the command begins, or is set while it runs; files are of any time."""
    bench = Bench(scratch)
    (scratch / "site").mkdir()
    (scratch / "site" / "sitecustomize.py").write_text(CLOCK, encoding="utf-8")
    _, error = finished(bench.start(towline("run", ".")))
    assert not error, error
    expected = bench.digest("y.npz")

    def case(rng: random.Random) -> str | None:
        if rng.random() < 0.3:
            shutil.rmtree(bench.cache, ignore_errors=True)
        for path in (*bench.cache.rglob("*"), bench.work / "c.tow"):
            at = time.time() + rng.choice((-4e8, -90_000, 0, 90_000, 4e8))
            os.utime(path, (at, at))
        shift, at = rng.choice((-4e8, -90_000, -5, 90_000, 4e8)), rng.choice((0.0, rng.uniform(0.0, 2.0)))
        begun = time.monotonic()
        process = bench.start(
            towline("run", "."), path=str(scratch / "site"), CAMPAIGN_SHIFT=str(shift), CAMPAIGN_AT=str(at)
        )
        code, error = finished(process)
        if code:
            return f"ended with {code}: {error}"
        if bench.digest("y.npz") != expected:
            return "another result"
        took = time.monotonic() - begun
        return f"it took {took:.0f} s" if took > 60 else None

    yield case


@contextlib.contextmanager
def full(scratch: Path) -> Iterator[Case]:
    """The directory of results, of the cache or of intermediate files is full, or only to be read."""
    bench = Bench(scratch)
    (bench.work / "full").mkdir()
    (bench.work / "old").mkdir()
    probe = subprocess.run(
        ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none full"], cwd=bench.work, check=False
    )
    mounts = probe.returncode == 0
    expected = {}
    for command in OUTPUTS:
        _, error = finished(bench.start(towline(command, "old")))
        assert not error, error
        name = OUTPUTS[command].rpartition("/")[2]
        expected[name] = hashlib.sha256((bench.work / "old" / name).read_bytes()).hexdigest()
    old = dict.fromkeys(expected, hashlib.sha256(b"old").hexdigest())
    for name in expected:
        (bench.work / "old" / name).write_bytes(b"old")

    def case(rng: random.Random) -> str | None:
        if not mounts:
            return None
        command, which = rng.choice([*OUTPUTS]), rng.choice(("output", "TOWLINE_CACHE", "TMPDIR"))
        size, mode = rng.choice((8, 16, 64, 256, 2000)), rng.choice(("rw", "rw", "ro"))
        where = "full" if which == "output" else "."
        words = ["unshare", "--mount", "sh", "-c", FULL, "sh", f"{size}k", mode, *towline(command, where)]
        environment = {} if which == "output" else {which: str(bench.work / "full")}
        if rng.random() < 0.5:
            shutil.rmtree(bench.cache, ignore_errors=True)
        code, error = finished(bench.start(words, **environment))
        about = f"{command}, {which} of {size} KiB, {mode}: {code}, {dict(error)}"
        after = (bench.work / "after").read_text(encoding="utf-8")
        name = OUTPUTS[command].rpartition("/")[2]
        if ".towline-" in after or ".o\n" in after:
            return f"{about}: left: {after}"
        if code:
            if code not in (1, 3) or error.get("code") not in CODES or not error.get("hint"):
                return about
            kept = f"{old[name]}  {name}"
            return None if which != "output" or kept in after else f"{about}: the old result is gone: {after}"
        if which == "output":
            return None if f"{expected[name]}  {name}" in after else f"{about}: another result"
        return None if bench.digest(name) == expected[name] else f"{about}: another result"

    yield case


SURFACES = (
    Surface("cold", "four processes that fill one cold cache", cold, seconds=900.0, slice=1),
    Surface("clock", "clocks that are set back or forward, files from the future", clock, 900.0, 2),
    Surface("full", "full and read-only directories of results, cache and others", full, 900.0, 4),
)
