"""SIGKILL at any moment of a command: the same command works then, gives the same, and leaves no litter.

A case draws a moment, as a part of the time that the command takes, and whether the cache is cold. What a
killed process left is given an age, because a later run removes what is old alone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from emulator import image_file
from firmware.asm2464pd.image import body, wrap
from sdk import compiler, files
from sdk.quantizer import quantize
from tests.amount import amount
from tests.campaigns.campaign import Case, Surface
from tests.onnx_models import saved, small_float_model

TOWLINE = ("-m", "towline")
AGE = 2 * files.LITTER_SECONDS
KEEPER = """
import os, sys
from pathlib import Path
from sdk import cache
folder = cache.directory("campaign")
for number in range(300):
    path = folder / f"entry-{number % 3}"
    cache.keep(path, bytes([number % 251]) * 30_000)
    assert cache.load(path) is not None
    made = folder / f".towline-{os.getpid():08}.tmp"
    made.write_bytes(bytes([number % 251]) * 30_000)
    cache.keep_files(folder / "folder", {"a": made})
for number in range(3):
    cache.keep(folder / f"entry-{number}", b"at the end")
assert cache.has_files(folder / "folder", ["a"])
Path("done.txt").write_text("done")
"""


@dataclass(frozen=True)
class Command:
    """What is killed.

    Attributes:
        words: of Python's command line.
        output: the file that it writes; its bytes are the same each time.
        needs: files and folders that it reads.
    """

    words: tuple[str, ...]
    output: str
    needs: tuple[str, ...] = ()


def _towline(line: str) -> tuple[str, ...]:
    return (*TOWLINE, *line.split())


COMMANDS = {
    "quantize": Command(
        _towline("quantize net.onnx --calibrate pictures -o q.onnx"), "q.onnx", ("net.onnx", "pictures")
    ),
    "compile": Command(_towline("compile q.onnx --target hexagon-v65 -o h.tow"), "h.tow", ("q.onnx",)),
    "tune": Command(
        _towline("tune q.onnx --target hexagon-v65 --jobs 1 -o tuning.json"), "tuning.json", ("q.onnx",)
    ),
    "run": Command(_towline("run c.tow pictures/0.png --output y.npz"), "y.npz", ("c.tow", "pictures")),
    "flash": Command(
        _towline("firmware flash other.bin --device emulated --flash board.flash --yes"),
        "board.flash",
        ("other.bin",),
    ),
    "cache": Command(("-c", KEEPER), "done.txt"),
}


class Place:
    """Directories of one command's runs: where it works, and all that it may write to besides."""

    def __init__(self, scratch: Path, stock: Path, command: Command) -> None:
        self.work = scratch / "work"
        self.work.mkdir()
        for name in command.needs:
            if (stock / name).is_dir():
                shutil.copytree(stock / name, self.work / name)
            else:
                shutil.copy(stock / name, self.work / name)
        self.command = command
        self.known = {entry.name for entry in self.work.iterdir()} | {command.output}
        self.temporary, self.cache, self.state = (scratch / name for name in ("tmp", "cache", "state"))
        self.temporary.mkdir()

    def start(self) -> subprocess.Popen[bytes]:
        environment = dict(os.environ) | {
            "TMPDIR": str(self.temporary),
            "TOWLINE_CACHE": str(self.cache),
            "XDG_STATE_HOME": str(self.state),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        return subprocess.Popen(
            [sys.executable, *self.command.words],
            cwd=self.work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self) -> str:
        """The digest of its output. Raises AssertionError if it fails."""
        process = self.start()
        _, errors = process.communicate()
        assert process.returncode == 0, errors.decode("utf-8", "replace")[-3000:]
        return self.digest()

    def digest(self) -> str:
        """Of the output; "" if it is not there."""
        path = self.work / self.command.output
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""

    def litter(self) -> list[Path]:
        """What is left of intermediate files."""
        found = [
            path
            for folder in (self.temporary, self.work)
            for path in folder.iterdir()
            if path.name not in self.known
        ]
        for folder in (self.cache, self.state):
            found += folder.rglob(f"{files.PREFIX}*")
        return found


def started(group: int) -> list[str]:
    """The processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            number = int(entry.name)
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == group and fields[0] != "Z":
                found.append(f"{number} {(entry / 'comm').read_text().strip()}")
    return found


def stock(folder: Path) -> None:
    """A small network with all that the commands read."""
    saved(small_float_model().model(["y"]), folder, "net.onnx")
    (folder / "pictures").mkdir()
    noise = np.random.default_rng(0)
    for number in range(4):
        picture = noise.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(picture).save(folder / "pictures" / f"{number}.png")
    quantize(folder / "net.onnx", folder / "pictures", folder / "q.onnx")
    compiler.compile(folder / "q.onnx", "c", output=folder / "c.tow")
    code = image_file.load(image_file.locate("firmware"))
    (folder / "other.bin").write_bytes(wrap(body(code.banks, code.loaded) + bytes(300)))


@contextlib.contextmanager
def opened(name: str, scratch: Path) -> Iterator[Case]:
    """The command's time and result come from a run that is left alone."""
    source = scratch / "stock"
    source.mkdir()
    stock(source)
    place = Place(scratch, source, COMMANDS[name])
    begun = time.monotonic()
    expected = place.run()
    length = time.monotonic() - begun
    place.known |= {path.name for path in place.litter() if path.name == ".ses"}  # onnxruntime's, one for all
    assert place.litter() == [], place.litter()

    def case(rng: random.Random) -> str | None:
        if rng.random() < 0.7:
            shutil.rmtree(place.cache, ignore_errors=True)
        (place.work / place.command.output).unlink(missing_ok=True)
        process = place.start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(length * rng.uniform(0.02, 1.0))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        end = time.monotonic() + 5.0
        while (left := started(process.pid)) and time.monotonic() < end:
            time.sleep(0.01)
        if left:
            return f"processes outlive it: {left}"
        if place.digest() not in ("", expected):
            return "its output is half written"
        past = time.time() - AGE
        for path in place.litter():
            os.utime(path, (past, past))
        if place.run() != expected:
            return "the next run gives another result"
        if left := place.litter():
            return f"left after the next run: {[str(path.relative_to(scratch)) for path in left]}"
        return None

    yield case


def _surface(name: str, what: str, slice: int) -> Surface:
    return Surface(f"kill-{name}", what, functools.partial(opened, name), seconds=900.0, slice=slice)


SURFACES = (
    _surface("quantize", "SIGKILL while a network is quantised", amount(0, 1)),
    _surface("compile", "SIGKILL while a network is compiled for the DSP", amount(0, 1)),
    _surface("tune", "SIGKILL while a network is tuned", 0),
    _surface("run", "SIGKILL while a network is built and run", 1),
    _surface("flash", "SIGKILL while an emulated board is flashed", 1),
    _surface("cache", "SIGKILL while entries of the cache are written", 2),
)
