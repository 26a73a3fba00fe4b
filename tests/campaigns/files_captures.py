"""Damaged recordings of devices, captures of kernels, measurements, and the small texts that users give."""

from __future__ import annotations

import io
import json
import random
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from emulator.amdgpu import capture as captures
from emulator.board import Board
from emulator.coverage.data import Coverage
from firmware.asm2464pd.image import wrap
from sdk import signatures, targets, toolchain, tuning
from sdk.evaluation.data import Item, read_labels
from sdk.preprocess import parse
from sdk.target import Options, Tunable
from tests.campaigns.campaign import Case, Surface
from tests.campaigns.damage import changed, damaged, dumps, limit_memory, zipped
from tests.contract.loopback_function import BULK, ECHO, LOOPBACK, REFUSED
from tests.graph_builder import GraphBuilder
from tests.unit.amdgpu_shader_bench import Bench, build
from tests.unit.test_transport import Rig
from towline.cli.bench import read_baseline
from towline.cli.inputs import read_labels as read_names
from usbgpu import transport
from usbgpu.flash import state
from usbgpu.transport import trace


def _lines(text: bytes, rng: random.Random) -> bytes:
    """JSON by lines with values changed, lines repeated, left out or in another order; or bytes changed."""
    if rng.random() < 0.15:
        return damaged(text, rng)
    lines = text.splitlines()
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                lines.insert(at, rng.choice(lines))
            case 1 if len(lines) > 1:
                del lines[at]
            case _ if lines[at].startswith((b"{", b"[")):
                with suppress(ValueError, RecursionError):
                    lines[at] = dumps(changed(json.loads(lines[at]), rng)).replace(b"\n", b" ")
    return b"\n".join(lines) + b"\n"


# -- a device's recording -----------------------------------------------------------------------------------


def _program(device: transport.Transport) -> None:
    """Calls of each kind, short and long."""
    device.identify()
    device.control_out(0x40, ECHO, data=b"there")
    device.control_in(0xC0, ECHO, length=64)
    device.control_out(0x40, BULK, LOOPBACK)
    room = bytearray(3000)
    back = device.submit(device.in_call(room))
    device.bulk_out(bytes(range(250)) * 12)
    back.result()
    for act in (
        lambda: device.control_in(0xC0, REFUSED, 1, 2, 4),
        lambda: device.bulk_in(4096, timeout=0.5),
    ):
        with suppress(transport.Stalled, transport.TimedOut):
            act()
    device.reset()
    device.clear_halt(2)
    device.clock.sleep(1.0)


@contextmanager
def replay(scratch: Path) -> Iterator[Case]:
    """A recording in place of the device."""
    limit_memory()
    path = scratch / "trace.jsonl"
    with Rig().attach() as device, trace.record(device, path, whole=True):
        _program(device)
    original = path.read_bytes()

    def case(rng: random.Random) -> str | None:
        path.write_bytes(_lines(original, rng))
        with transport.open(f"replay:{path}") as device:
            _program(device)
        return None

    yield case


# -- a kernel's capture -------------------------------------------------------------------------------------

KERNEL = """
#define I __builtin_amdgcn_workitem_id_x()
__kernel void sums(__global const float *x, __global float *y, uint n) {
  uint i = 64 * __builtin_amdgcn_workgroup_id_x() + I;
  __local float shared[64];
  shared[I] = x[i];
  __builtin_amdgcn_s_barrier();
  float sum = 0;
  for (uint j = 0; j < n; j++) sum += shared[(I + j) & 63] * x[i];
  y[i] = sum;
}"""
REPLAYED = 0.2
"""Share of the captures that are also replayed."""


def _captured() -> list[bytes]:
    found = []
    for chip in ("gfx1100", "gfx1201"):
        bench, kept = Bench(chip), list[captures.Capture]()
        code = build(chip, KERNEL)
        ends = [bench.put(np.arange(128, dtype=np.float32)) for _ in range(2)]
        dispatch = bench.dispatch(code, "sums", (2, 1, 1), (64, 1, 1), [*ends, np.uint32(5)])
        recorder = captures.Capturing(bench.executor, chip, kept.append, lambda _: "sums")
        recorder.run(dispatch, bench.space)
        found.append(captures.pack(kept[0]))
    return found


@contextmanager
def capture(scratch: Path) -> Iterator[Case]:
    """Captures read; some replayed."""
    path, originals = scratch / "kernel.capture", _captured()

    def case(rng: random.Random) -> str | None:
        data = rng.choice(originals)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        if rng.random() < 0.2:
            data = damaged(data, rng)
        else:
            name = rng.choice(("capture.json", "capture.json", "memory", "writes"))
            if name == "capture.json":
                members[name] = dumps(changed(json.loads(members[name]), rng))
            else:
                members[name] = damaged(members[name], rng)
            data = zipped(members, rng, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))
        path.write_bytes(data)
        found = captures.load(path)
        if rng.random() < REPLAYED:
            captures.replay(found)
        return None

    yield case


# -- measurements -------------------------------------------------------------------------------------------

COMPILED = 0.02
"""Share of the tuning files with which a network is compiled."""


@contextmanager
def tuned(scratch: Path) -> Iterator[Case]:
    """Tuning files read; with some a network is compiled."""
    b = GraphBuilder((1, 8, 6, 6))
    b.conv("x", 8, relu=True)
    graph, name = b.graph(), "hexagon-v65"
    target = targets.get_target(name)
    assert isinstance(target, Tunable)
    entries = {
        one.signature: tuning.Entry(one.kernels, one.choice, 90, 100) for one in target.candidates(graph)
    }
    original = json.loads(tuning.Tuning(name, target.cost, entries).to_bytes())
    path = scratch / "tuning.json"

    def case(rng: random.Random) -> str | None:
        data = dumps(changed(original, rng))
        path.write_bytes(damaged(data, rng) if rng.random() < 0.2 else data)
        found = tuning.read(path, name)
        found.to_bytes()
        if rng.random() < COMPILED:
            target.compile(graph, Options(tuning=found))
        return None

    yield case


# -- small texts --------------------------------------------------------------------------------------------


SERIAL = bytes.fromhex("90C0017441F090C009E090C006E080F2")
"""A program that sends a character and reads the status, without end."""


@dataclass(frozen=True)
class Text:
    """A small file of a user's, and what reads it.

    Attributes:
        data: a good one.
        mutate: makes another of it.
        read: takes its path.
    """

    data: bytes
    mutate: Callable[[bytes, random.Random], bytes]
    read: Callable[[Path], Any]


def _document(data: bytes, rng: random.Random) -> bytes:
    return damaged(data, rng) if rng.random() < 0.2 else dumps(changed(json.loads(data), rng))


def _sealed(data: bytes, rng: random.Random) -> bytes:
    """A backup with another content, its digest right."""
    if rng.random() < 0.2:
        return damaged(data, rng)
    document = json.loads(data)
    document.pop(state.DIGEST)
    document = changed(document, rng)
    if isinstance(document, dict):
        document[state.DIGEST] = state.digest_of(document)
    return dumps(document)


def _words(data: bytes, rng: random.Random) -> bytes:
    """Lines of words, with some changed."""
    if rng.random() < 0.3:
        return damaged(data, rng)
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    word = rng.choice((b"", b"9" * 5000, "²".encode(), b"-1", b"\xff", b",", b"\0", b"x" * 5000))
    lines[at] = rng.choice(
        (word, lines[at] + word, lines[at].rpartition(b",")[0] + b"," + word, lines[at - 1])
    )
    return b"\n".join(lines)


@contextmanager
def texts(scratch: Path) -> Iterator[Case]:
    """Labels, recipes, baselines, backups, recordings and coverage."""
    items = [Item(f"{number}.png", f"{number}.png", {}) for number in range(5)]
    names = [item.name for item in items]
    blocks = (bytes(128), b"\xff" * 128)
    backup = state.Backup("2025-11-21T06:00:00+00:00", "a bridge", "00c0", blocks, b"\0\1" * 50, b"\xff" * 64)
    state.export(backup, scratch / "backup")
    coverage = Coverage("00" * 32, "image", 2)
    coverage.times[5:9] = 3
    coverage.sides[5:9] = 1
    coverage.write(scratch / "coverage")
    stream = io.StringIO()
    program = scratch / "image.bin"
    program.write_bytes(wrap(SERIAL))
    board = Board.of(program)
    recorder = board.record(stream)
    board.machine.run(20_000)
    recorder.finish()
    recipe = parse("imagenet", (1, 3, 8, 8)).to_json()
    kinds = [
        Text(b"\n".join(b"%d.png,%d" % (i, i) for i in range(5)), _words, lambda path: read_labels(
            str(path), items, names, 5, ["a", "b", "c", "d", "e"])),
        Text(b"cat\ndog\nbird\n", _words, lambda path: read_names(str(path), 3)),
        Text(dumps(recipe), _document, lambda path: parse(str(path), (1, 3, 8, 8))),
        Text(
            dumps({"schema": 1, "target": "c", "toolchain": None, "counts": {"packets": 3}}),
            _document,
            read_baseline,
        ),
        Text((scratch / "backup").read_bytes(), _sealed, state.Backup.read),
        Text((scratch / "coverage").read_bytes(), _document, Coverage.read),
        Text(
            stream.getvalue().encode(),
            _lines,
            lambda path: Board.of(program).replay(path),
        ),
    ]  # fmt: skip
    path = scratch / "text"

    def case(rng: random.Random) -> str | None:
        kind = rng.choice(kinds)
        path.write_bytes(kind.mutate(kind.data, rng))
        kind.read(path)
        return None

    yield case


@contextmanager
def signature(scratch: Path) -> Iterator[Case]:
    """Signatures and files of trusted keys; another content that is taken is a wrong answer."""
    toolchain.find("ssh")
    ours, theirs = scratch / "ours", scratch / "theirs"
    for key in (ours, theirs):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{key.name}@team", "-f", str(key)]
        subprocess.run(command, check=True)
    data = b"what was signed" * 20
    good, other = (signatures.sign(data, key) for key in (ours, theirs))
    trusted = ours.with_suffix(".pub").read_bytes()
    keys = scratch / "keys"

    def case(rng: random.Random) -> str | None:
        content, found, known = data, good, trusted
        match rng.randrange(4):
            case 0:
                content = damaged(data, rng)
            case 1:
                found = rng.choice((damaged(good, rng), other))
            case 2:
                known = damaged(trusted, rng)
            case 3:
                known = rng.choice((b"ours@team ", b'* namespaces="git" ', b"# ", b"@cert ", b"\n")) + trusted
                content = rng.choice((data, data + b"x"))
        keys.write_bytes(known)
        signatures.verify(content, found, keys, "the file")
        return "another content was taken" if content != data or found == other else None

    yield case


SURFACES = (
    Surface("replay", "the recording of a device: calls are made of it", replay, slice=500),
    Surface("capture", "the capture of a GPU kernel: read; some replayed", capture, slice=80),
    Surface("tuning", "a tuning file: read; with some a network is compiled", tuned, slice=250),
    Surface("texts", "labels, recipes, baselines, backups, recordings of a run, coverage", texts, slice=500),
    Surface(
        "signature", "a signature, trusted keys or signed content that were changed", signature, slice=30
    ),
)
