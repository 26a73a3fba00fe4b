"""The C that `towline export` writes, timed beside onnxruntime and LiteRT on the same network, in one run.

One thread, the processor's time, medians. All take turns, round by round, so that what else the machine does
meets each of them alike; times of one run compare, those of two runs do not.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dsp.c.export import export
from sdk import files, ort, toolchain
from sdk.artifact import Artifact
from sdk.check import check
from sdk.errors import BuildFailed, CheckFailed, UsageError
from sdk.extras import require
from sdk.graph import Array
from sdk.importers import read_onnx
from sdk.session import Session
from towline.cli.export import random_inputs, recorded

NAME = "net"
ROUNDS, RUNS = 5, 5
"""Turns, and inferences of each in a turn; one more of each comes before, which does not count."""
MOST_SECONDS = 4.0
"""Of one contender's turn: a slow one has fewer inferences in it."""


@dataclass
class Contender:
    """One of those that take turns.

    Attributes:
        name: for tables.
        run: makes so many inferences, and returns the milliseconds of each.
        milliseconds: those so far.
    """

    name: str
    run: Callable[[int], Sequence[float]]
    milliseconds: list[float] = field(default_factory=list)
    text_bytes: int | None = None
    different: int | None = None
    kernels: str | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)


@dataclass(frozen=True)
class Build:
    """A compiler and its flags."""

    compiler: str
    flags: str


def usual() -> list[Build]:
    """Gcc and clang, as they are installed, from portable code to this machine's own."""
    every = ["gcc", *(str(toolchain.find("cc")),)]
    compilers = list(dict.fromkeys(Path(one).name for one in every if shutil.which(one)))
    return [Build(cc, flags) for cc in compilers for flags in ("-O2", "-O3", "-O3 -march=native")]


def measure(
    network: Artifact,
    model: Path | None,
    tflite: Path | None,
    builds: Sequence[Build],
    note: Callable[[str], None],
    rounds: int = ROUNDS,
) -> list[Contender]:
    """Time each build, then onnxruntime and LiteRT if there is a file for them.

    Raises:
        CheckFailed: a layer is not the reference's.
        BuildFailed: a compiler refused the C.
        EnvironmentMissing: make or a package is missing.
    """
    inputs = random_inputs(network.graph)
    with Session(network) as session:
        outcome = check(network, session, inputs)
    if outcome.mismatches or outcome.outside:
        raise CheckFailed("its layers differ from the reference", hint="`towline debug` names the layer")
    with files.scratch_directory() as directory:
        everything = export(network.graph, network.program, NAME, recorded=recorded(network))
        contenders = []
        for number, build in enumerate(builds):
            note(f"compiling with {build.compiler} {build.flags}")
            contenders.append(_built(everything, build, directory / str(number)))
        if model is not None:
            contenders.append(Contender("onnxruntime", _onnxruntime(model, inputs)))
        if tflite is not None:
            contenders.append(Contender("LiteRT", _litert(tflite)))
        for turn in range(rounds + 1):
            note(f"round {turn} of {rounds}" if turn else "warming up")
            for one in contenders:
                spent = one.run(1) if not turn else one.run(_runs(one))
                one.milliseconds += spent
                if turn == 1:
                    del one.milliseconds[:1]  # of warming up
    return contenders


def _runs(one: Contender) -> int:
    return max(1, min(RUNS, int(MOST_SECONDS * 1e3 / max(one.milliseconds[-1], 1e-3))))


def _built(
    everything: Mapping[str, bytes],
    build: Build,
    folder: Path,
) -> Contender:
    folder.mkdir()
    for name, data in everything.items():
        files.write(folder / name, data)
    arguments: list[str | Path] = ["--silent", "-C", folder, f"CC={build.compiler}", f"CFLAGS={build.flags}"]
    try:
        toolchain.run("make", arguments, timeout=600)
    except BuildFailed as problem:
        raise BuildFailed(
            problem.message, where=f"{build.compiler} {build.flags}", hint=problem.hint
        ) from None
    program, sample = folder / f"{NAME}_main", folder / f"{NAME}_check.input"

    def run(count: int) -> list[float]:
        done = _run([program, "-t", str(count), sample])
        return [float(line) for line in done.split()]

    found = folder / "found"
    _run([program, sample, found])
    said = _run([program, "-c", found, folder / f"{NAME}_check.output"], statuses=(0, 1))
    text = _text_bytes(folder / f"{NAME}.o")
    kernels = _run([program, "-k"]).strip()
    return Contender(f"{build.compiler} {build.flags}", run, [], text, int(said.split()[0]), kernels)


def _run(argv: Sequence[str | Path], statuses: Sequence[int] = (0,)) -> str:
    done = subprocess.run(toolchain.dying_with_us(argv), capture_output=True, text=True, check=False)
    if done.returncode not in statuses or not (done.stdout or statuses == (0,)):
        raise toolchain.failure(Path(argv[0]).name, done.returncode, done.stderr.encode())
    return done.stdout


def _text_bytes(path: Path) -> int:
    """Of an object file: its code."""
    elf = require("elftools.elf.elffile", extra="compile")
    with path.open("rb") as stream:
        sections = elf.ELFFile(stream).iter_sections()
        return sum(one.data_size for one in sections if one.name.startswith(".text"))


def _timed(infer: Callable[[], object]) -> Callable[[int], list[float]]:
    def run(count: int) -> list[float]:
        spent = []
        for _ in range(count):
            started = time.process_time()
            infer()
            spent.append(1e3 * (time.process_time() - started))
        return spent

    return run


def _onnxruntime(model: Path, inputs: Mapping[str, Array]) -> Callable[[int], list[float]]:
    session = ort.session(read_onnx(model), threads=1)
    names = {one.name for one in session.get_inputs()}
    feeds = {name: array for name, array in inputs.items() if name in names}
    return _timed(lambda: session.run(None, feeds))


def _litert(path: Path) -> Callable[[int], list[float]]:
    package = require("ai_edge_litert.interpreter", extra="litert")
    interpreter = package.Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    random = np.random.default_rng(1)
    for entry in interpreter.get_input_details():
        dtype = np.dtype(entry["dtype"])
        shape = tuple(entry["shape"])
        values = random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 100, shape)
        interpreter.set_tensor(entry["index"], values.astype(dtype))
    return _timed(interpreter.invoke)


def source_beside(network: Artifact, path: Path) -> Path | None:
    """The model that a `.tow` was compiled from, if it lies beside it unchanged."""
    if network.source is None:
        return None
    model = path.parent / Path(network.source.name).name
    if model.suffix != ".onnx" or not model.is_file():
        return None
    with model.open("rb") as file:
        return model if hashlib.file_digest(file, "sha256").hexdigest() == network.source.sha256 else None


def builds(compilers: Sequence[str], flags: Sequence[str]) -> list[Build]:
    """Those asked for; the usual ones if none is.

    Raises:
        UsageError: there is no such compiler.
    """
    if not compilers and not flags:
        return usual()
    for compiler in compilers:
        if shutil.which(compiler) is None:
            raise UsageError(f"there is no compiler {compiler!r}", where="--cc")
    chosen = compilers or [one.compiler for one in usual() if one.flags == "-O2"]
    for one in flags:
        try:
            shlex.split(one)
        except ValueError as problem:
            raise UsageError(f"{one!r} cannot be read: {problem}", where="--cflags") from None
    return [Build(compiler, one) for compiler in chosen for one in (flags or ["-O2"])]
