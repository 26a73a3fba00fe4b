"""The GPUs of `towline demo`: each in a process of its own, beside the DSP and beside each other.

    python -m towline.cli.demo_gpus QUANTIZED TARGET PICTURES OUTPUTS

compiles the quantised model for a target and runs the pictures (float32 [N, ...], .npy) on its emulated
device. OUTPUTS gets float32 [N, classes], and standard output one JSON document: what was found, `skipped` if
something is not installed, or `error`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk import files, report, toolchain
from sdk.artifact import Artifact
from sdk.check import Check, check, combine
from sdk.compiler import compile
from sdk.errors import DeviceFailed, EnvironmentMissing, TowlineError
from sdk.report import Console
from sdk.session import Session
from sdk.targets import target_names

GPUS = ("adreno-", "amd-")
"""How the names of targets begin that run beside the DSP."""
EMULATED = "emulated"
PICTURES, LAYER_CHECKS = 90, 4
"""Pictures whose outputs are compared, and whose every layer is."""

Floats = NDArray[np.float32]


def run(session: Session, inputs: Floats, console: Console | None = None) -> Floats:
    """The device's outputs: float32 [N, classes] of [N, ...]."""
    (name,), (output,) = session.inputs, session.outputs
    rows = []
    for done, one in enumerate(inputs, 1):
        if console is not None:
            console.progress("device", done, len(inputs))
        rows.append(session.run({name: one[np.newaxis]})[output])
    return np.concatenate(rows)


def layers(network: Artifact, session: Session, inputs: Floats) -> Check:
    """Every layer of every picture beside the reference's."""
    (name,) = session.inputs
    return combine(check(network, session, {name: one[np.newaxis]}) for one in inputs)


# -- one of them, in its process ----------------------------------------------------------------------------


def measure(quantized: Path, target: str, pictures: Path, outputs: Path) -> dict[str, Any]:
    """What a GPU makes of the pictures; or why it is left out.

    Raises:
        TowlineError: the target or its device failed.
    """
    inputs = np.load(pictures)
    began = time.perf_counter()
    try:
        network = compile(quantized, target)
        compiled = time.perf_counter()
        with Session(network, EMULATED) as session:
            _save(outputs, run(session, inputs))
            found = layers(network, session, inputs[:LAYER_CHECKS])
            profile = session.profile()
    except EnvironmentMissing as problem:
        return {"skipped": f"{problem}; {problem.hint}" if problem.hint else str(problem)}
    return {
        "arithmetic": network.arithmetic,
        "check": found.to_json(),
        "differs": None if found.first_mismatch is None else found.first_mismatch.node,
        "total": dict(profile.total),
        "memory": dict(profile.memory),
        "seconds": {
            f"compile for {target}": compiled - began,
            f"run and check {target}": time.perf_counter() - compiled,
        },
    }


def main(argv: Sequence[str]) -> int:
    quantized, target, pictures, outputs = argv
    try:
        document = measure(Path(quantized), target, Path(pictures), Path(outputs))
    except TowlineError as error:
        document = report.failure(error)
    print(report.dumps(document))
    return 0


# -- all of them, from outside ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gpu:
    """A target at work.

    Attributes:
        target: its name.
        process: the one that measures it.
        outputs: the file that it writes.
    """

    target: str
    process: subprocess.Popen[bytes]
    outputs: Path

    def result(self) -> tuple[dict[str, Any], Floats | None]:
        """What `measure` found, and its outputs (None if it is left out), once it has ended.

        Raises:
            DeviceFailed: the target or its device failed, or the process ended before it printed anything.
        """
        said, _ = self.process.communicate()
        try:
            document = json.loads(said)
        except ValueError:
            status = self.process.returncode
            raise DeviceFailed(f"its process ended with status {status}", where=self.target) from None
        if error := document.get("error"):
            raise DeviceFailed(error["message"], where=self.target, hint=error["hint"])
        return document, None if "skipped" in document else np.load(self.outputs)


@contextlib.contextmanager
def started(quantized: Path, inputs: Floats) -> Iterator[list[Gpu]]:
    """All targets of GPUs, at work on the pictures until the block ends.

    Raises:
        OutputFailed: there is no room for the pictures.
        BuildFailed: a process could not be started.
    """
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    with files.scratch_directory() as directory, contextlib.ExitStack() as stack:
        pictures = directory / "pictures.npy"
        _save(pictures, inputs)
        gpus = []
        for target in (name for name in target_names() if name.startswith(GPUS)):
            outputs = directory / f"{target}.npy"
            program = [sys.executable, "-P", "-m", "towline.cli.demo_gpus"]
            process = toolchain.launch(
                [*program, quantized, target, pictures, outputs],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C is for us: we stop them
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            gpus.append(Gpu(target, process, outputs))
        yield gpus


def _save(path: Path, array: Floats) -> None:
    with files.replacing(path) as file:
        np.save(file, array)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
