"""Damaged artefacts: as a bad disk leaves them, and with every digest right again."""

from __future__ import annotations

import hashlib
import json
import random
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from sdk import compiler
from sdk.archive import CHUNK
from sdk.artifact import MANIFEST, Artifact, load, save
from sdk.dtypes import storage
from sdk.graph import Graph
from sdk.importers.onnx import graph_of
from sdk.pictures import Pictures
from sdk.preprocess import InputStatistics, Preprocessing
from sdk.session import Session
from sdk.target import ChecksPrograms
from sdk.targets import get_target
from tests.campaigns.campaign import Case, Surface
from tests.campaigns.damage import changed, damaged, dumps, number, zipped
from tests.onnx_models import OnnxBuilder
from tests.reference_target import small_network

RUN = 0.05
"""Share of the sealed cases that also run; most of them compile a program for it."""
RUNNING = ("c", "hexagon-v65")
"""Targets whose programs run in processes of their own."""


def _with_state() -> Graph:
    """A float network with a state: h' = tanh(x w + h u)."""
    b = OnnxBuilder()
    rng = np.random.default_rng(0)
    b.input("x", [1, 6])
    b.input("h", [1, 5])
    b.constant("w", rng.normal(size=(6, 5)), np.float32)
    b.constant("u", rng.normal(size=(5, 5)), np.float32)
    b.node("Add", [b.node("MatMul", ["x", "w"], "xw"), b.node("MatMul", ["h", "u"], "hu")], "sum")
    b.node("Tanh", ["sum"], "next_h")
    b.node("Softmax", ["next_h"], "y")
    return graph_of(b.model(["y", "next_h"]))


def artifacts() -> Iterator[Artifact]:
    """Of each family of targets one of a classifier of pictures, and of those of floats one with a state."""
    recipe = Preprocessing((4, 4), None, "GRAY", 1 / 255, (0.5,), (0.5,))
    for target in ("c", "hexagon-v65", "adreno-a6xx", "amd-gfx1100"):
        found = compiler.compile(small_network(), target, preprocessing=recipe, labels=["a", "ü", "猫"])
        picture = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 1, 4, 4)
        found.input_statistics = InputStatistics.of([picture], "NCHW").to_json()
        yield found
    for target in ("c", "adreno-a6xx", "amd-gfx1100"):
        yield compiler.compile(_with_state(), target)


def _sealed(members: dict[str, bytes], rng: random.Random) -> bytes:
    """A zip file of changed members whose manifest has their sizes and digests."""
    manifest = json.loads(members[MANIFEST])
    manifest["files"] = {
        name: {
            "size": len(data),
            "sha256": [
                hashlib.sha256(data[at : at + CHUNK]).hexdigest() for at in range(0, len(data), CHUNK)
            ],
        }
        for name, data in members.items()
        if name != MANIFEST
    }
    head = dumps(changed(manifest, rng)) if rng.random() < 0.3 else dumps(manifest)
    return zipped({**members, MANIFEST: head}, rng)


def _altered(members: dict[str, bytes], rng: random.Random) -> set[str]:
    """Change some members in place; which."""
    names = rng.sample(sorted(members.keys() - {MANIFEST}), rng.choice((1, 1, 1, 2)))
    for name in names:
        data = members[name]
        if name.endswith(".json") and rng.random() < 0.95:
            members[name] = dumps(changed(json.loads(data), rng))
        elif name.endswith(".bin") and data and rng.random() < 0.3:
            at = 4 * rng.randrange(max(len(data) // 4, 1))
            edge = (number(rng) & 0xFFFF_FFFF).to_bytes(4, "little")
            members[name] = data[:at] + edge + data[at + 4 :]
        else:
            members[name] = damaged(data, rng)
    return {*names}


def _members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@contextmanager
def artifact(scratch: Path) -> Iterator[Case]:
    """Artefacts loaded and checked as a session does before it opens a device; some of them run."""
    originals = []
    for index, made in enumerate(artifacts()):
        path = scratch / f"{index}.tow"
        save(made, path)
        rng = np.random.default_rng(1)
        inputs = {name: made.graph.tensor(name) for name in made.graph.inputs}
        feeds = {name: np.asarray(rng.random(t.shape) * 2, storage(t.dtype)) for name, t in inputs.items()}
        answers = None
        if made.target in RUNNING:
            with Session(path) as session:
                answers = session.run(feeds)
        originals.append((path.read_bytes(), _members(path), feeds, answers))
    path, again = scratch / "net.tow", scratch / "again.tow"

    def case(rng: random.Random) -> str | None:
        data, members, feeds, answers = rng.choice(originals)
        sealed, touched = rng.random() < 0.7, set[str]()
        if sealed:
            members = dict(members)
            touched = _altered(members, rng) if rng.random() < 0.9 else touched
            path.write_bytes(_sealed(members, rng))
        else:
            path.write_bytes(damaged(data, rng))
        found = load(path)
        target = get_target(found.target)
        if isinstance(target, ChecksPrograms):
            for program in found.programs:
                target.check(program)
        Pictures(found)
        if not sealed:
            save(found, again)
            if again.read_bytes() != data:
                return "damage was taken"
        if answers is not None and found.target in RUNNING and (not sealed or rng.random() < RUN):
            if any("/code/" in name for name in touched):
                return None  # it is code of this machine: anything may happen
            with Session(found) as session:
                results = session.run(feeds)
            if not sealed and any((results[name] != answers[name]).any() for name in answers):
                return "a damaged artefact gives another answer"
        return None

    yield case


SURFACES = (
    Surface(
        "artifact",
        "a .tow, damaged or changed with its digests made right: loaded, checked; some run",
        artifact,
        slice=120,
    ),
)
