"""The `.tow` artefact: a zip that holds the definition of the compute, the data and the code apart.

======================== ================================================================================
manifest.json            schema, maker, target, arithmetic, what runs on the host, states, cameras,
                         source model, preprocessing, input statistics, labels, and of every other member
                         the size and the SHA-256 of each 4 MiB
graph.json               the whole network, and of each program the graph as the target runs it; bulk data
                         by its place in ...
constants.bin            ... constants and per-channel scales, each once, if no program's weights hold it
programs/N/plan.json     of device segment N: the target's layout and schedule
programs/N/weights.bin   its weights in plan order
programs/N/code/NAME     ELF, code objects, OpenCL C
======================== ================================================================================

Every member is stored, not compressed, with zip's 64-bit extensions where they are needed: weights hardly
compress, and the file is mapped rather than read. Members of bulk data begin at multiples of 4096 bytes in
the file. The hashes find damage; they are not a signature. A `.tow` holds code: run only those you trust.
Loading unpacks nothing to the disk.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sdk import archive, files, settings, signatures
from sdk.archive import CHUNK, JSON_LIMIT, digests
from sdk.camera.inputs import CameraInput, check_cameras
from sdk.codec import from_json, pattern, shown, to_json, within
from sdk.errors import InvalidArtifact, InvalidInput, TowlineError, Unsupported, UsageError
from sdk.files import Mapped
from sdk.graph import Graph
from sdk.graph_json import CONSTANTS, Constants, Members, graph_from_json, graph_to_json
from sdk.preprocess import InputStatistics, Preprocessing, require_shape
from sdk.segments import Segment, boundary, cut
from sdk.states import check_states
from sdk.target import Arithmetic, Program
from sdk.verification import verify
from sdk.weights import Weights

if TYPE_CHECKING:
    from sdk.float16 import Float16

SCHEMA = 2
"""Raised when a reader of the old schema would misread the new one."""


MANIFEST, GRAPH = "manifest.json", "graph.json"
SIGNATURE = "manifest.sig"
PLAN, WEIGHTS, CODE = "plan.json", "weights.bin", "code/"
PROGRAM = re.compile(
    r"programs/(0|[1-9][0-9]{0,3})/(plan\.json|weights\.bin|code/[A-Za-z0-9_][A-Za-z0-9._-]*)"
)


@dataclass(frozen=True)
class Source:
    """The model file an artefact was compiled from: its name without directories, and its SHA-256."""

    name: str
    sha256: str


@dataclass(frozen=True)
class FileJson:
    """A member: its size in bytes, and the SHA-256 of each CHUNK of it."""

    size: Annotated[int, within(0, 1 << 63)]
    sha256: Sequence[Annotated[str, pattern("[0-9a-f]{64}")]]


@dataclass(frozen=True)
class Manifest:
    """manifest.json."""

    schema: int
    towline: str
    target: str
    arithmetic: Arithmetic
    hosted: Sequence[str] | None
    states: Sequence[tuple[str, str]]
    cameras: Sequence[CameraInput]
    source: Source | None
    preprocessing: Mapping[str, Any] | None
    input_statistics: Mapping[str, Any] | None
    labels: Sequence[str] | None
    files: Mapping[str, FileJson]


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
        cameras: in front of the network.
        preprocessing: `Preprocessing.to_json()`, or None if the network takes no pictures.
        input_statistics: `InputStatistics.to_json()`, or None.
        labels: names of the classes in order, or None.
        source: the model file, None for a graph built in memory.
        made_by: the version of Towline that compiled it.
        float16: what `compile` made float16, and what stayed float32; informative, never stored.
        seconds: stage name -> wall seconds of the compilation; informative, never stored.
    """

    programs: tuple[Program, ...]
    graph: Graph
    arithmetic: Arithmetic
    hosted: tuple[str, ...] | None = None
    states: tuple[tuple[str, str], ...] = ()
    cameras: tuple[CameraInput, ...] = ()
    preprocessing: dict[str, Any] | None = None
    input_statistics: dict[str, Any] | None = None
    labels: list[str] | None = None
    source: Source | None = None
    made_by: str = field(default_factory=lambda: _version())
    float16: Float16 | None = field(default=None, compare=False)
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


def check_programs(artifact: Artifact) -> None:
    """Refuse programs that do not fit their network.

    Raises:
        InvalidArtifact: not a program for each device segment, with its inputs and outputs.
    """
    parts = [segment.graph for segment in artifact.segments if segment.place == "device"]
    if len(parts) != len(artifact.programs):
        raise InvalidArtifact(
            f"it has {len(artifact.programs)} programs for {len(parts)} parts of its network on the device",
            hint="compile it again",
        )
    for number, (part, program) in enumerate(zip(parts, artifact.programs, strict=True)):
        for kind, expected, found in (
            ("inputs", _ends(part, part.inputs), _ends(program.graph, program.graph.inputs)),
            ("outputs", _ends(part, part.outputs), _ends(program.graph, program.graph.outputs)),
        ):
            if expected != found:
                raise InvalidArtifact(
                    f"the {kind} of program {number} are {shown(found)}, and its part of the network has "
                    f"{shown(expected)}",
                    hint="compile it again",
                )


def _ends(graph: Graph, names: Sequence[str]) -> list[str]:
    return [str(graph.tensor(name)) for name in names]


def save(artifact: Artifact, path: str | os.PathLike[str]) -> None:
    """Write an artefact, whole or not at all. Equal artefacts give equal bytes.

    Raises:
        OutputFailed: it cannot be written.
        Unsupported: its graph or plan is larger than `load` accepts.
    """
    members: dict[str, Weights] = {}
    for number, program in enumerate(artifact.programs):
        folder = f"programs/{number}/"
        members[folder + PLAN] = _json(program.plan, artifact.graph.name)
        members[folder + WEIGHTS] = program.weights
        members |= {f"{folder}{CODE}{name}": Weights.of(data) for name, data in program.code.items()}
    constants = Constants({name: data for name, data in members.items() if name.endswith(WEIGHTS)})
    graphs = {
        "network": graph_to_json(artifact.graph, constants),
        "programs": [graph_to_json(program.graph, constants) for program in artifact.programs],
    }
    members[GRAPH] = _json(graphs, artifact.graph.name)
    members[CONSTANTS] = constants.weights()
    manifest = Manifest(
        SCHEMA,
        artifact.made_by,
        artifact.target,
        artifact.arithmetic,
        artifact.hosted,
        artifact.states,
        artifact.cameras,
        artifact.source,
        artifact.preprocessing,
        artifact.input_statistics,
        artifact.labels,
        {name: FileJson(data.nbytes, digests(data)) for name, data in sorted(members.items())},
    )
    members[MANIFEST] = _json(to_json(manifest), artifact.graph.name)
    # The manifest comes first, so that it is what a pager or `head` shows.
    order = sorted(members, key=lambda name: (name != MANIFEST, name))
    with files.replacing(path) as stream:
        archive.write(stream, {name: members[name] for name in order})


def sign(path: str | os.PathLike[str], key: str | os.PathLike[str], output: str | os.PathLike[str]) -> None:
    """Write an artefact again with a signature of its manifest, in place of one that it has.

    Raises:
        UsageError: there is no such file or key.
        InvalidArtifact: it is not a whole zip file with a manifest.
        OutputFailed: it cannot be written.
        ToolMissing: there is no OpenSSH.
    """
    mapped = _mapped(path)
    manifest, members = _manifest(mapped)
    members.pop(SIGNATURE, None)
    signature = signatures.sign(manifest, key)
    with files.replacing(output) as stream:
        first = {MANIFEST: Weights.of(manifest), SIGNATURE: Weights.of(signature)}
        archive.write(stream, first | members)


def signer(path: str | os.PathLike[str], keys: str | os.PathLike[str]) -> str:
    """Who signed an artefact's manifest, by a file of trusted keys; nothing else of it is read.

    Raises:
        SignatureRefused: none of them.
        UsageError, InvalidArtifact, ToolMissing: as `sign`.
    """
    return _signer(*_manifest(_mapped(path)), keys, os.fspath(path))


def load(path: str | os.PathLike[str], keys: str | os.PathLike[str] | None = None) -> Artifact:
    """Read an artefact and check all of it: members, sizes, hashes, JSON, the graphs' invariants.

    Args:
        path: of the file.
        keys: a file of trusted keys, one of which must have signed it; by default the environment's
            TOWLINE_REQUIRE_SIGNATURE, and without it no signature is needed.

    The file is mapped: constants and weights are views of it, and valid as long as its bytes do not change.
    That another file takes its name does not matter. Where a signature is needed, a copy in memory is mapped:
    what was checked is what is used.

    Raises:
        UsageError: there is no such file, or it cannot be read.
        InvalidArtifact: it is cut short, altered, of another schema, or not a .tow at all.
        SignatureRefused: it is not signed by a trusted key; nothing else of it was parsed then.
    """
    where = os.fspath(path)
    required = keys or settings.SIGNERS.value()
    mapped = _mapped(path, private=required is not None)
    try:
        manifest, members = _manifest(mapped)
        if required is not None:
            _signer(manifest, members, required, where)
        members.pop(SIGNATURE, None)
        return _assemble(_parsed(manifest, members), members)
    except InvalidArtifact as error:
        place = f"{where}: {error.where}" if error.where else where
        raise InvalidArtifact(error.message, where=place, hint=error.hint) from error.__cause__


def _mapped(path: str | os.PathLike[str], *, private: bool = False) -> Mapped:
    where = os.fspath(path)
    try:
        if not Path(path).is_file():  # reading a pipe may never end
            missing = not Path(path).exists()
            what = "no such file" if missing else "not a regular file"
            raise UsageError(f"cannot be read: {what}", where=where)
        return Mapped(path, private=private)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", where=where) from None


def _signer(manifest: bytes, members: Mapping[str, Weights], keys: str | os.PathLike[str], where: str) -> str:
    held = members.get(SIGNATURE)
    if held is not None and held.nbytes > signatures.MOST_BYTES:
        raise signatures.SignatureRefused(
            f"its signature exceeds {signatures.MOST_BYTES:,} bytes", where=where
        )
    return signatures.verify(manifest, None if held is None else bytes(held), keys, where)


# -- the members --------------------------------------------------------------------------------------------


def _manifest(mapped: Mapped) -> tuple[bytes, dict[str, Weights]]:
    """The manifest as it is stored, and the other members as parts of the file; none is read yet."""
    data, members = archive.read(mapped, MANIFEST)
    if data is None:
        raise InvalidArtifact(
            "has no manifest.json, so it is not a .tow", hint="make one with towline compile"
        )
    return data, members


def _parsed(data: bytes, members: Mapping[str, Weights]) -> Manifest:
    """The manifest; there are the members that it lists, and no others."""
    manifest = _object(_parse(MANIFEST, data), MANIFEST)
    _check_schema(manifest)
    manifest.setdefault("cameras", [])  # the first artefacts of this schema have none
    found = from_json(Manifest, manifest, "manifest")
    _check_members(found.files, members)
    return found


def _check_schema(manifest: Mapping[str, Any]) -> None:
    schema = manifest.get("schema")
    if type(schema) is not int:
        raise InvalidArtifact("'schema' in the manifest is not a number", hint="compile it again")
    if schema > SCHEMA:
        raise InvalidArtifact(
            f"was made by a newer Towline ({manifest.get('towline')}): its schema is {schema}, this one "
            f"reads {SCHEMA}",
            hint="upgrade Towline",
        )
    if schema != SCHEMA:
        source, target = manifest.get("source"), manifest.get("target")
        name = source.get("name") if isinstance(source, dict) else None
        model, chosen = (
            shlex.quote(value) if isinstance(value, str) else other
            for value, other in ((name, "MODEL"), (target, "T"))
        )
        raise InvalidArtifact(
            f"its schema is {schema}, this Towline reads {SCHEMA}",
            hint=f"make a new one from its model: towline compile {model} --target {chosen} -o FILE.tow",
        )


def _check_members(listed: Mapping[str, FileJson], members: Mapping[str, Weights]) -> None:
    """Whether there are exactly those that the manifest lists, and those that every artefact has."""
    programs = {int(match[1]) for name in listed if (match := PROGRAM.fullmatch(name))}
    required = {GRAPH, CONSTANTS}
    for number in range(max(programs, default=0) + 1):
        required |= {f"programs/{number}/{PLAN}", f"programs/{number}/{WEIGHTS}"}
    if missing := sorted(({*listed, *required}) - members.keys()):
        raise InvalidArtifact(f"has no {missing[0]!r}", hint="compile it again")
    if surplus := sorted(members.keys() - listed):
        raise InvalidArtifact(
            f"holds {surplus[0]!r}, which its manifest does not list", hint="do not trust this file"
        )
    for name, file in listed.items():
        if name not in required and not PROGRAM.fullmatch(name):
            raise InvalidArtifact(
                f"the member {name!r} does not belong in a .tow", hint="do not trust this file"
            )
        if file.size != members[name].nbytes or len(file.sha256) != -(-file.size // CHUNK):
            raise _damaged(name)


# -- hashes ---------------------------------------------------------------------------------------------


def _check_hashes(members: Mapping[str, Weights], listed: Mapping[str, FileJson], users: Members) -> None:
    """Refuse members that do not match their hashes; `users` says which tensors read what, for the error."""
    wrong = archive.damaged(members, {name: listed[name].sha256 for name in members})
    for name, index in wrong:
        first, end = CHUNK * index, min(CHUNK * (index + 1), members[name].nbytes)
        raise _damaged(name, first, end, users)


def _damaged(name: str, first: int = 0, end: int = 0, users: Members | None = None) -> InvalidArtifact:
    """The error for a member, or a chunk of one, that differs from what the manifest says."""
    tensors = [] if users is None else users.within(name, first, end)
    what = ""
    if tensors:
        shown_names = ", ".join(map(repr, tensors[:3])) + (
            f" and {len(tensors) - 3} more" if tensors[3:] else ""
        )
        what = f" in bytes {first:,} to {end - 1:,}: {'tensors' if tensors[1:] else 'tensor'} {shown_names}"
    return InvalidArtifact(
        f"the member {name!r} does not match its hash in the manifest{what}",
        hint="the file was damaged or altered: compile or copy it again",
    )


# -- the contents ---------------------------------------------------------------------------------------


def _assemble(manifest: Manifest, members: Mapping[str, Weights]) -> Artifact:
    bulk = {name: data for name, data in members.items() if name.endswith(".bin")}
    small = {name: data for name, data in members.items() if name not in bulk}
    views = Members({name: data.buffer() for name, data in bulk.items()})
    _check_hashes(small, manifest.files, views)
    graphs = _object(_parse(GRAPH, bytes(members[GRAPH])), GRAPH)
    bodies = graphs.get("programs")
    count = sum(name.endswith(f"/{WEIGHTS}") for name in members)
    if not isinstance(bodies, list) or len(bodies) != count:
        raise InvalidArtifact(f"its graphs are not those of {count} programs", hint="compile it again")
    try:
        network = graph_from_json(graphs.get("network"), views)
        parts = [graph_from_json(body, views, f"programs[{n}]") for n, body in enumerate(bodies)]
        _check_hashes(bulk, manifest.files, views)
        for graph in (network, *parts):
            verify(graph)
    except InvalidArtifact:
        raise
    except (TowlineError, MemoryError) as error:  # a damaged window size may need any amount of memory
        raise InvalidArtifact(f"its graph is invalid: {error}", hint="compile it again") from error
    preprocessing, statistics = (
        None if recipe is None else dict(recipe)
        for recipe in (manifest.preprocessing, manifest.input_statistics)
    )
    artifact = Artifact(
        programs=tuple(_program(manifest.target, n, part, members) for n, part in enumerate(parts)),
        graph=network,
        arithmetic=manifest.arithmetic,
        hosted=None if manifest.hosted is None else tuple(manifest.hosted),
        states=tuple(manifest.states),
        cameras=tuple(manifest.cameras),
        preprocessing=preprocessing,
        input_statistics=statistics,
        labels=None if manifest.labels is None else list(manifest.labels),
        source=manifest.source,
        made_by=manifest.towline,
    )
    try:
        if artifact.labels is not None:
            check_labels(artifact.labels, network)
        _check_pictures(network, preprocessing, statistics)
        if unknown := {*(artifact.hosted or ())} - {node.name for node in network.nodes}:
            raise InvalidInput(f"{min(unknown)!r} is on the host, and the network has no such node")
        check_states(network, artifact.states)
        check_cameras(network, artifact.cameras)
        check_programs(artifact)
    except (InvalidInput, UsageError, Unsupported) as error:
        raise InvalidArtifact(f"its manifest is invalid: {error}", hint="compile it again") from error
    return artifact


def _program(target: str, number: int, graph: Graph, members: Mapping[str, Weights]) -> Program:
    folder = f"programs/{number}/"
    plan, code = folder + PLAN, folder + CODE
    return Program(
        target=target,
        graph=graph,
        plan=_object(_parse(plan, bytes(members[plan])), plan),
        weights=members[folder + WEIGHTS],
        code={name[len(code) :]: bytes(data) for name, data in members.items() if name.startswith(code)},
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


def _json(document: Any, where: str) -> Weights:
    text = json.dumps(document, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode()
    if len(text) > JSON_LIMIT:
        raise Unsupported(
            f"its description takes {len(text):,} bytes; the limit of an artefact is {JSON_LIMIT:,}",
            where=where,
        )
    return Weights.of(text)


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


def _version() -> str:
    try:
        return version("towline")
    except PackageNotFoundError:
        return "unknown"
