"""Figures of our kernels as ir3 compiles them, computed in a child process and cached.

A child, because Mesa aborts its process on what it considers a malformed shader. The name of a cached figure
depends on everything that determines it: the kernel, tinymesa's version, and this package's source.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dsp.adreno.ir3.listing import Count
from dsp.adreno.ir3.mesa import PART
from sdk import cache, toolchain
from sdk.errors import BuildFailed, InternalError, OutputFailed

SECONDS = 120
"""A child that takes longer is stopped. A kernel takes some hundredths of a second."""

PREFIXES = ("IR3_", "FD_", "MESA_", "NIR_")
"""Environment variables that debug Mesa; they change its output."""


@dataclass(frozen=True)
class KernelInstance:
    """One of our kernels; kernels that are equal have equal figures.

    Attributes:
        function: of kernels/*.cl.
        constants: arguments that are the same at each launch, by their names in OpenCL C: "from.width".
        local: work-items of a work-group.
        part: of `mesa.CHIP_IDS`.
    """

    function: str
    constants: Mapping[str, int]
    local: tuple[int, int, int]
    part: int = PART

    @property
    def text(self) -> str:
        """JSON on one line."""
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True)
class Figures:
    """Machine code, counted.

    Attributes:
        loops: the code outside of loops, then each loop in the order in which they begin, without those
            inside it; each instruction once.
        registers: full registers of four components.
        waves: how many fit a processor at once, of 16.
        spills: stores to and loads from private memory.
        ss, sy: instructions that wait for others to complete.
        stalls: cycles that ir3 expects these waits to cost.
        operations: of an iteration of each loop as built: "texture 0" and "texture 1" are reads of
            activations and of weights, "products" the multiplications; others have NIR's names.
    """

    loops: Sequence[Count]
    registers: int
    waves: int
    spills: int
    ss: int
    sy: int
    stalls: int
    operations: Sequence[Mapping[str, int]]

    @staticmethod
    def of(document: Any) -> Figures:
        """From JSON.

        Raises:
            TypeError, KeyError: it does not hold figures.
        """
        return Figures(**{**document, "loops": [Count(**one) for one in document["loops"]]})

    def total(self, name: str, trips: Sequence[int]) -> int:
        """Sum of "slots", "instructions" or "nops" of one work-item.

        Args:
            name: of a field of `Count`.
            trips: how often each of `loops` is executed.

        Raises:
            InternalError: the kernel has a different number of loops.
        """
        if len(trips) != len(self.loops):
            raise InternalError(f"{len(trips) - 1} loops have become {len(self.loops) - 1} in machine code")
        return sum(times * int(getattr(one, name)) for times, one in zip(trips, self.loops, strict=True))


def figures(kernels: Sequence[KernelInstance]) -> list[Figures]:
    """The figures of each.

    Raises:
        EnvironmentMissing: there is no tinymesa of the release that we support.
        BuildFailed: Mesa rejected a kernel, or took too long.
    """
    version, _ = toolchain.tinymesa()
    directory = cache.directory("ir3")
    names = {one.text: directory / f"{cache.digest([version, _source(), one.text])}.json" for one in kernels}
    known = {text: _kept(path) for text, path in names.items()}
    missing = [text for text, made in known.items() if made is None]
    for text, made in zip(missing, _child(missing), strict=True):
        known[text] = Figures.of(made)
        try:
            cache.keep(names[text], json.dumps(made).encode())
        except OutputFailed:
            continue  # it is computed again next time
    return [made for one in kernels if (made := known[one.text]) is not None]


def _kept(path: Path) -> Figures | None:
    made = cache.load(path)
    return None if made is None else Figures.of(json.loads(made))


@functools.cache
def _source() -> str:
    """A digest of the code that builds NIR and counts."""
    return cache.digest(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))


def _child(kernels: Sequence[str]) -> Iterator[Any]:
    """The figures as JSON values, in order."""
    if not kernels:
        return
    clean = {name: value for name, value in os.environ.items() if not name.startswith(PREFIXES)}
    root = str(Path(__file__).parents[3])
    clean["PYTHONPATH"] = os.pathsep.join(filter(None, (root, clean.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            toolchain.dying_with_us([sys.executable, "-P", "-m", "dsp.adreno.ir3"]),
            input="\n".join(kernels).encode(),
            capture_output=True,
            timeout=SECONDS,
            env=clean,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"it did not finish within {SECONDS} s and was stopped", where="tinymesa") from None
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != len(kernels):
        where = f"tinymesa, kernel {kernels[min(len(lines), len(kernels) - 1)]}"
        found = toolchain.failure("tinymesa", done.returncode, done.stderr)
        raise BuildFailed(found.message, where=where, hint=found.hint)
    yield from map(json.loads, lines)
