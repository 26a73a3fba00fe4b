"""What is still refused, and how common it is in the models at hand: a section of docs/operators.md.

`python -m tests.refused_models [FOLDER ...]` counts the models of the given folders; without any, those of
the zoo, the files that come with onnx (its node tests have a section of their own), and the networks of
`tests.shared_networks` where they are present. It prints the section.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from sdk.errors import Refusal, TowlineError, Unsupported
from sdk.importers import load_model
from sdk.inspection.verdicts import general
from sdk.zoo.benchmark import write
from sdk.zoo.catalogue import FLOAT, ZOO, Name
from tests import shared_networks

ONNX = Path(onnx.__file__).parent / "backend" / "test" / "data"
KINDS = ("light", "pytorch-converted", "pytorch-operator", "simple")
"""Folders of onnx's own models."""


@dataclass
class Count:
    """Of the models of one source.

    Attributes:
        files: all of them.
        refused: those that are.
        why: models by operator and reason.
    """

    files: int = 0
    refused: int = 0
    why: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, path: Path) -> None:
        """Import a model and count why it is refused, each reason once."""
        found = refusals(path)
        self.files += 1
        self.refused += bool(found)
        self.why.update((one.op, one.reason) for one in found)


def refusals(path: Path) -> list[Refusal]:
    """Of a model: one for each operator and reason, without names and extents."""
    try:
        load_model(path)
    except Unsupported as problem:
        found = problem.refusals or (Refusal("", "", problem.message, None),)
        return list(dict.fromkeys(Refusal("", one.op, _short(one.reason), None) for one in found))
    except TowlineError as problem:
        return [Refusal("", "", _short(problem.message), None)]
    return []


def _short(reason: str) -> str:
    return general(reason.partition("; ")[0], ())


def sources(folder: Path) -> Iterator[tuple[str, Path]]:
    """What is counted without folders: the source's name and a model, made in `folder` where need be."""
    for name, entry in ZOO.items():
        path = folder / f"{name}.onnx"
        write(Name(name, 0.25, entry.size, FLOAT), path)
        yield "the zoo", path
    for kind in KINDS:
        for path in sorted((ONNX / kind).rglob("*.onnx")):
            yield f"onnx's {kind}", path
    if shared_networks.NETWORKS.is_dir():
        for name in shared_networks.NAMES:
            path = shared_networks.filled(name, folder)
            yield "networks as exporters wrote them", path
            path.unlink()


def count(models: Iterator[tuple[str, Path]]) -> dict[str, Count]:
    """By source."""
    found: dict[str, Count] = {}
    for source, path in models:
        found.setdefault(source, Count()).add(path)
    return found


def section(found: Mapping[str, Count]) -> str:
    """Two tables: what was counted, and the reasons, the most common first."""
    lines = ["| models | files | refused |", "|---|---|---|"]
    lines += [f"| {source} | {one.files} | {one.refused} |" for source, one in found.items()]
    total: Counter[tuple[str, str]] = Counter()
    for one in found.values():
        total.update(one.why)
    lines += ["", "| operator | reason | files |", "|---|---|---|"]
    ordered = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    lines += [f"| {op} | {reason.replace('|', '/')} | {number} |" for (op, reason), number in ordered]
    return "\n".join(lines)


def counted() -> str:
    """The section of what is counted without folders."""
    with tempfile.TemporaryDirectory() as folder:
        return section(count(sources(Path(folder))))


def main(folders: Sequence[str]) -> int:
    if not folders:
        print(counted())
        return 0
    models = (
        (folder, path)
        for folder in folders
        for path in sorted(Path(folder).rglob("*"))
        if path.suffix in (".onnx", ".tflite")
    )
    print(section(count(models)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
