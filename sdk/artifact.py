"""The `.tow` artefact: a zip that holds the definition of the compute, the data and the code apart.

============== ==========================================================================================
manifest.json  schema, maker, target, arithmetic, source model, preprocessing, input statistics, labels,
               and the size and SHA-256 of every other member
graph.json     the whole network and its integer body as the target runs it; bulk data by offset into ...
constants.bin  ... constants and per-channel scales, each once
plan.json      the target's layout and schedule
weights.bin    the target's weights in plan order, at a multiple of 4096 bytes in the file, for DMA
code/NAME      ELF, code objects, OpenCL C
============== ==========================================================================================

Every member is stored, not compressed: weights hardly compress, members can be mapped from the file, the
bytes depend on no zlib, and what is read can never be larger than the file. The hashes find damage; they
are not a signature. A `.tow` holds code: run only those you trust. Loading unpacks nothing to the disk.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import stat
import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from sdk import files
from sdk.errors import InvalidArtifact, InvalidInput, TowlineError, Unsupported, UsageError
from sdk.graph import Graph
from sdk.graph_json import Constants, graph_from_json, graph_to_json
from sdk.preprocess import InputStatistics, Preprocessing, require_shape
from sdk.segments import Segment, boundary, cut
from sdk.target import Arithmetic, Program
from sdk.verification import verify

SCHEMA = 2
"""Raised when a reader of the old schema would misread the new one."""

LIMIT = 2**31 - 1
"""Bytes of a whole artefact: below what a zip holds without its 64-bit extensions."""

JSON_LIMIT = 32 * 2**20
MEMBER_LIMIT = 1024
ALIGNMENT = 4096

MANIFEST, GRAPH, CONSTANTS, PLAN, WEIGHTS = REQUIRED = (
    "manifest.json",
    "graph.json",
    "constants.bin",
    "plan.json",
    "weights.bin",
)
CODE = re.compile(r"code/([A-Za-z0-9_][A-Za-z0-9._-]*)")

T = TypeVar("T")

EPOCH = (1980, 1, 1, 0, 0, 0)  # the zip format's first moment
ALIGNMENT_FIELD = 0xD935  # extra field of Android's zipalign; readers skip it
LOCAL_HEADER = 30  # bytes before a member's name (APPNOTE.TXT 4.3.7)


@dataclass(frozen=True)
class Source:
    """The model file an artefact was compiled from: its name without directories, and its SHA-256."""

    name: str
    sha256: str


@dataclass(repr=False)
class Artifact:
    """A compiled network and everything a session needs to know about it.

    Attributes:
        programs: what the device runs, a program for each of its segments, in order of execution.
        graph: the whole network.
        arithmetic: of `sdk.reference`, in which quantised tensors are bit-identical to it.
        hosted: names of the nodes that the host runs, in order; None for those at a quantised network's ends
            (`sdk.segments.boundary`).
        states: pairs (output, input): what a step leaves behind for the next.
        preprocessing: `Preprocessing.to_json()`, or None if the network takes no pictures.
        input_statistics: `InputStatistics.to_json()`, or None.
        labels: names of the classes in order, or None.
        source: the model file, None for a graph built in memory.
        made_by: the version of Towline that compiled it.
        seconds: stage name -> wall seconds of the compilation; informative, never stored.
    """

    programs: tuple[Program, ...]
    graph: Graph
    arithmetic: Arithmetic
    hosted: tuple[str, ...] | None = None
    states: tuple[tuple[str, str], ...] = ()
    preprocessing: dict[str, Any] | None = None
    input_statistics: dict[str, Any] | None = None
    labels: list[str] | None = None
    source: Source | None = None
    made_by: str = field(default_factory=lambda: _version())
    seconds: dict[str, float] = field(default_factory=dict, compare=False)

    @property
    def program(self) -> Program:
        """The only one.

        Raises:
            Unsupported: there are several, with parts of the host between them.
        """
        if len(self.programs) != 1:
            raise Unsupported(
                f"it has {len(self.programs)} parts for the device, with parts of the host between them",
                where=self.graph.name,
                hint="compile it with --no-host to see what the target refuses",
            )
        return self.programs[0]

    @property
    def target(self) -> str:
        """Registry name of what it is compiled for."""
        return self.programs[0].target

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The network by place, in order of execution; each device segment has the program of its rank."""
        return cut(self.graph, boundary(self.graph) if self.hosted is None else self.hosted)

    def __repr__(self) -> str:
        return f"<Artifact for {self}>"

    def __str__(self) -> str:
        """Target, inputs, outputs and size in a line."""
        return f"{self.target}, {self.graph}"


def save(artifact: Artifact, path: str | os.PathLike[str]) -> None:
    """Write an artefact, whole or not at all. Equal artefacts give equal bytes.

    Raises:
        OutputFailed: it cannot be written.
        Unsupported: it would be larger than `load` accepts.
    """
    files.write(path, to_bytes(artifact))


def to_bytes(artifact: Artifact) -> bytes:
    """The artefact as the bytes of its file.

    Raises:
        Unsupported: it would be larger than `load` accepts.
    """
    program = artifact.program
    constants = Constants()
    graphs = {
        "network": graph_to_json(artifact.graph, constants),
        "body": graph_to_json(program.graph, constants),
    }
    members = {
        GRAPH: _json(graphs),
        CONSTANTS: constants.data(),
        PLAN: _json(program.plan),
        WEIGHTS: program.weights,
        **{f"code/{name}": data for name, data in program.code.items()},
    }
    source = artifact.source
    members[MANIFEST] = _json(
        {
            "schema": SCHEMA,
            "towline": artifact.made_by,
            "target": program.target,
            "arithmetic": artifact.arithmetic,
            "hosted": None if artifact.hosted is None else list(artifact.hosted),
            "states": [list(pair) for pair in artifact.states],
            "source": None if source is None else {"name": source.name, "sha256": source.sha256},
            "preprocessing": artifact.preprocessing,
            "input_statistics": artifact.input_statistics,
            "labels": artifact.labels,
            "files": {name: _fingerprint(data) for name, data in sorted(members.items())},
        }
    )
    # The manifest comes first, so that it is what a pager or `head` shows.
    order = sorted(members, key=lambda name: (name != MANIFEST, name))
    overhead = ALIGNMENT * (len(members) + 1)
    largest_json = max(len(members[name]) for name in (MANIFEST, GRAPH, PLAN))
    if sum(map(len, members.values())) + overhead > LIMIT or largest_json > JSON_LIMIT:
        raise Unsupported("the network is too large for an artefact", where=artifact.graph.name)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
        for name in order:
            info = zipfile.ZipInfo(name, EPOCH)
            info.create_system = 3  # Unix, wherever we run
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            if name == WEIGHTS:
                info.extra = _alignment_field(stream.tell() + LOCAL_HEADER + len(name))
            archive.writestr(info, members[name])
    return stream.getvalue()


def load(path: str | os.PathLike[str]) -> Artifact:
    """Read an artefact and check all of it: members, sizes, hashes, JSON, the graph's invariants.

    Raises:
        UsageError: there is no such file, or it cannot be read.
        InvalidArtifact: it is cut short, altered, of a newer schema, or not a .tow at all.
    """
    where = os.fspath(path)
    try:
        if not Path(path).is_file():  # reading a pipe may never end
            missing = not Path(path).exists()
            what = "no such file" if missing else "not a regular file"
            raise UsageError(f"cannot be read: {what}", where=where)
        with Path(path).open("rb") as stream:
            nbytes = os.fstat(stream.fileno()).st_size
            if nbytes > LIMIT:
                raise InvalidArtifact("is too large for an artefact")
            data = stream.read(LIMIT)
        return from_bytes(data)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", where=where) from None
    except InvalidArtifact as error:
        raise InvalidArtifact(error.message, where=error.where or where, hint=error.hint) from error.__cause__


def from_bytes(data: bytes) -> Artifact:
    """The artefact that `to_bytes` turned into these bytes.

    Raises:
        InvalidArtifact: as `load`.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = _members(archive, len(data))
            manifest = _object(_parse(MANIFEST, _read(archive, members, MANIFEST)), MANIFEST)
            _check_schema(manifest)
            contents = _contents(archive, members, manifest)
    except zipfile.BadZipFile as error:
        raise InvalidArtifact(
            f"is not a whole zip file: {error}",
            hint="the file is cut short or damaged: compile or copy it again",
        ) from error
    except (
        NotImplementedError,
        RuntimeError,
        ValueError,
        EOFError,
        OSError,
        struct.error,
        LookupError,
    ) as error:
        # zipfile lets these through on damaged headers
        raise InvalidArtifact(f"is damaged: {error}", hint="compile or copy it again") from error
    return _assemble(manifest, contents)


# -- the zip --------------------------------------------------------------------------------------------


def _members(archive: zipfile.ZipFile, nbytes: int) -> dict[str, zipfile.ZipInfo]:
    """The archive's directory, its names, kinds and sizes checked."""
    members: dict[str, zipfile.ZipInfo] = {}
    infos = archive.infolist()
    if len(infos) > MEMBER_LIMIT:
        raise InvalidArtifact(f"holds {len(infos)} members")
    for info in infos:
        name = info.orig_filename  # zipfile has sanitised `filename` already
        if name.startswith("/") or "\\" in name or ".." in name.split("/") or ":" in name or "\0" in name:
            raise InvalidArtifact(
                f"the member {name!r} points outside the file", hint="do not trust this file"
            )
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise InvalidArtifact(f"the member {name!r} is not a plain file", hint="do not trust this file")
        if name in members:
            raise InvalidArtifact(f"holds {name!r} twice", hint="do not trust this file")
        members[name] = info
    # Stored members cannot overlap without adding up to more than the file.
    if sum(info.compress_size for info in infos) > nbytes:
        raise InvalidArtifact("its members are larger than the file", hint="do not trust this file")
    if MANIFEST not in members:
        raise InvalidArtifact(
            "has no manifest.json, so it is not a .tow", hint="make one with towline compile"
        )
    return members


def _read(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], name: str) -> bytes:
    info = members[name]
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise InvalidArtifact(
            f"the member {name!r} is compressed or misstates its size",
            hint="do not pack a .tow again: use the file as the compiler wrote it",
        )
    if name.endswith(".json") and "/" not in name and info.file_size > JSON_LIMIT:
        raise InvalidArtifact(f"the member {name!r} has {info.file_size} bytes")
    return archive.read(info)


def _check_schema(manifest: Mapping[str, Any]) -> None:
    schema = _typed(manifest.get("schema"), int, "schema")
    if schema > SCHEMA:
        raise InvalidArtifact(
            f"was made by a newer Towline ({manifest.get('towline')}): its schema is {schema}, this one "
            f"reads {SCHEMA}",
            hint="upgrade Towline",
        )
    if schema != SCHEMA:
        raise InvalidArtifact(f"its schema is {schema}, this Towline reads {SCHEMA}", hint="compile it again")


def _contents(
    archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], manifest: Mapping[str, Any]
) -> dict[str, bytes]:
    """Every member but the manifest, its hash checked; exactly those that the manifest lists."""
    listed = _typed(manifest.get("files"), dict, "files")
    expected = {MANIFEST, *listed}
    if missing := sorted((expected | set(REQUIRED)) - members.keys()):
        raise InvalidArtifact(f"has no {missing[0]!r}", hint="compile it again")
    if surplus := sorted(members.keys() - expected):
        raise InvalidArtifact(
            f"holds {surplus[0]!r}, which its manifest does not list", hint="do not trust this file"
        )
    contents = {}
    for name in listed:
        if name not in REQUIRED and not CODE.fullmatch(name):
            raise InvalidArtifact(
                f"the member {name!r} does not belong in a .tow", hint="do not trust this file"
            )
        contents[name] = _read(archive, members, name)
        if _fingerprint(contents[name]) != listed[name]:
            raise InvalidArtifact(
                f"the member {name!r} does not match its hash in the manifest",
                hint="the file was damaged or altered: compile or copy it again",
            )
    return contents


def _alignment_field(offset: int) -> bytes:
    """An extra field after which, the name having ended at `offset`, data starts aligned."""
    length = -(offset + 4) % ALIGNMENT
    return struct.pack("<HH", ALIGNMENT_FIELD, length) + bytes(length)


def _fingerprint(data: bytes) -> dict[str, Any]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


# -- the JSON -------------------------------------------------------------------------------------------


def _assemble(manifest: Mapping[str, Any], contents: Mapping[str, bytes]) -> Artifact:
    graphs = _object(_parse(GRAPH, contents[GRAPH]), GRAPH)
    try:
        network, body = (graph_from_json(graphs.get(key), contents[CONSTANTS]) for key in ("network", "body"))
        verify(network)
        verify(body)
    except (TowlineError, MemoryError) as error:  # a damaged window size may need any amount of memory
        raise InvalidArtifact(f"its graph is invalid: {error}", hint="compile it again") from error
    arithmetic = manifest.get("arithmetic")
    if arithmetic not in get_args(Arithmetic):
        raise InvalidArtifact(f"its arithmetic is {arithmetic!r}", hint="compile it again")
    source = _optional(manifest, "source", dict)
    labels = _optional(manifest, "labels", list)
    preprocessing = _optional(manifest, "preprocessing", dict)
    statistics = _optional(manifest, "input_statistics", dict)
    try:
        if labels is not None:
            check_labels(labels, network)
        _check_pictures(network, preprocessing, statistics)
    except InvalidInput as error:
        raise InvalidArtifact(f"its manifest is invalid: {error}", hint="compile it again") from error
    program = Program(
        target=_typed(manifest.get("target"), str, "target"),
        graph=body,
        plan=_object(_parse(PLAN, contents[PLAN]), PLAN),
        weights=contents[WEIGHTS],
        code={match[1]: data for name, data in contents.items() if (match := CODE.fullmatch(name))},
    )
    hosted, states = _optional(manifest, "hosted", list), _typed(manifest.get("states"), list, "states")
    return Artifact(
        programs=(program,),
        graph=network,
        arithmetic=cast(Arithmetic, arithmetic),
        hosted=None if hosted is None else tuple(hosted),
        states=tuple((output, given) for output, given in states),
        preprocessing=preprocessing,
        input_statistics=statistics,
        labels=labels,
        source=None
        if source is None
        else Source(*(_typed(source.get(key), str, f"source.{key}") for key in ("name", "sha256"))),
        made_by=_typed(manifest.get("towline"), str, "towline"),
    )


def check_labels(labels: Sequence[str], graph: Graph) -> None:
    """Refuse names that do not go with the network's classes.

    Raises:
        InvalidInput: one is not text, the network has several outputs, or another number of classes.
    """
    for label in labels:
        # Half a surrogate pair is a str, but could not be written to the manifest.
        if not isinstance(label, str) or label.encode("utf-8", "replace").decode() != label:
            raise InvalidInput(f"the label {label!r} is not text", where=graph.name)
    sizes = [graph.tensor(name).size for name in graph.outputs]
    if sizes != [len(labels)]:
        raise InvalidInput(
            f"{len(labels)} labels do not fit outputs of {', '.join(map(str, sizes))} elements",
            where=graph.name,
            hint="one label for each element of a single output",
        )


def _check_pictures(
    graph: Graph, preprocessing: dict[str, Any] | None, statistics: dict[str, Any] | None
) -> None:
    """Refuse a recipe, or statistics, of another input than the network's single one."""
    if preprocessing is None and statistics is None:
        return
    if len(graph.inputs) != 1:
        raise InvalidInput("preprocessing is for networks with one input")
    shape = graph.tensor(graph.inputs[0]).shape
    if preprocessing is not None:
        require_shape(Preprocessing.from_json(preprocessing), shape)
    if statistics is not None:
        found = InputStatistics.from_json(statistics)
        axis = found.channel_axis
        if axis is not None and (axis >= len(shape) or shape[axis] != len(found.mean)):
            raise InvalidInput(f"statistics of {len(found.mean)} channels for an input of {list(shape)}")


def _json(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode()


def _parse(name: str, data: bytes) -> Any:
    def refuse(text: str) -> float:
        raise ValueError(f"{text} is not JSON")

    def number(text: str) -> float:
        value = float(text)
        return value if math.isfinite(value) else refuse(text)

    try:
        return json.loads(data.decode(), parse_constant=refuse, parse_float=number)
    except (ValueError, RecursionError) as error:
        raise InvalidArtifact(f"the member {name!r} is not JSON: {error}", hint="compile it again") from error


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArtifact(f"the member {name!r} is not a JSON object", hint="compile it again")
    return value


def _typed(value: Any, kind: type[T], name: str) -> T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InvalidArtifact(f"{name!r} in the manifest is not {kind.__name__}", hint="compile it again")
    return value


def _optional(manifest: Mapping[str, Any], name: str, kind: type[T]) -> T | None:
    value = manifest.get(name)
    return None if value is None else _typed(value, kind, name)


def _version() -> str:
    try:
        return version("towline")
    except PackageNotFoundError:
        return "unknown"
