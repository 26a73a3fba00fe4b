"""`towline bench zoo`: every network of the zoo on every target, or on one: right, how large, how long."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sdk import artifact, compiler, files
from sdk.check import check
from sdk.errors import CheckFailed, EnvironmentMissing, Unsupported
from sdk.report import Console, Result, size, table
from sdk.session import Session
from sdk.targets import get_target, target_names
from sdk.zoo.benchmark import write, write_quantized
from sdk.zoo.catalogue import FLOAT, INT8, ZOO, Name, find, names
from sdk.zoo.inputs import example_inputs
from towline.cli.runtime import logged, open_options

COUNTERS = ("packets", "wave_instructions", "work_items", "bytes")
"""What a target counts: the first of these that it has is shown."""

LARGE = ("driving_50m", "driving_large")
"""Left out: they differ from driving_small in width alone."""


def run(args: argparse.Namespace, shape: str | None, console: Console) -> Result:
    """Write each network once in each of its precisions, then compile, run and check it on each target.

    The document: `networks[].{network,precision,target,refused,mismatches,elements,float_elements,outside,
    ties,sqnr_db,counter,count,bytes,compile_seconds}`. `sqnr_db` is of a quantised network's worst output,
    `count` of one inference, None with parts of the host in mid-graph; `bytes` of the `.tow`;
    `compile_seconds` includes what the cache holds. Of a network that the target refuses, `refused` says why
    and the rest is None.

    Targets whose tools or emulated device are missing are left out, with a warning.

    Args:
        args: of `towline bench`.
        shape: WIDTH_SIZE of the classifiers, which are quantised, and the only ones then; None for all
            networks at their own.
        console: for progress.

    Raises:
        UsageError: a target, width or size that does not exist.
        EnvironmentMissing: something that the one target needs is missing.
    """
    targets = [args.target] if args.target else target_names()
    for target in targets:
        get_target(target)
    rows: list[dict[str, Any]] = []
    for name in _names(shape):
        with files.scratch_directory() as directory:
            model = directory / "network.onnx"
            console.note(f"{name.network}, {name.precision}: {', '.join(targets)}")
            sqnr = _written(name, model)
            for target in list(targets):
                try:
                    row = _measured(name, model, target, args, console)
                except EnvironmentMissing as problem:
                    if args.target:
                        raise
                    console.warn(f"{target} is skipped: {problem}; {problem.hint}")
                    targets.remove(target)
                    continue
                rows.append(row | {"sqnr_db": sqnr})
    wrong = [f"{row['network']} on {row['target']}" for row in rows if row["mismatches"] or row["outside"]]
    failure = None
    if wrong:
        hint = "`towline debug` names the layer"
        failure = CheckFailed(f"results differ from the reference: {', '.join(wrong)}", hint=hint)
    return Result({"shape": shape, "networks": rows}, _text(rows), failure)


def _names(shape: str | None) -> Iterator[Name]:
    for text in names():
        classifier = text in ZOO and ZOO[text].precision == INT8
        if text in LARGE or (shape is not None and not classifier):
            continue
        found = find(text if shape is None else f"{text}_{shape}")
        assert found is not None  # by its name
        yield found
        if found.precision == FLOAT and not found.entry.unquantized:
            yield Name(found.network, found.width, found.size, INT8)


def _written(name: Name, model: Path) -> float | None:
    """Write a network; the SQNR of its worst output in dB, if it is quantised."""
    if name.precision == FLOAT:
        write(name, model)
        return None
    return min(output.sqnr_db for output in write_quantized(name, model).outputs)


def _measured(
    name: Name, model: Path, target: str, args: argparse.Namespace, console: Console
) -> dict[str, Any]:
    row: dict[str, Any] = {"network": name.network, "precision": name.precision, "target": target}
    figures = ("refused", "mismatches", "elements", "float_elements", "outside", "ties")
    row |= dict.fromkeys((*figures, "counter", "count", "bytes", "compile_seconds"))
    started = time.perf_counter()
    try:
        compiled = compiler.compile(model, target)
    except Unsupported as refusal:
        return row | {"refused": str(refusal)}
    seconds = time.perf_counter() - started
    path = model.with_suffix(f".{target}.tow")
    artifact.save(compiled, path)
    with logged(console), Session(compiled, args.device, open_options(args)) as session:
        outcome = check(compiled, session, example_inputs(model, seed=1))
        single = len(compiled.programs) == 1  # counts are of one part for the device
        total: Mapping[str, Any] = session.profile().total if single else {}
    counter = next((counter for counter in COUNTERS if counter in total), None)
    return row | {
        "mismatches": outcome.mismatches,
        "elements": outcome.elements,
        "float_elements": outcome.float_elements,
        "outside": outcome.outside,
        "ties": outcome.ties,
        "counter": counter,
        "count": None if counter is None else total[counter],
        "bytes": path.stat().st_size,
        "compile_seconds": seconds,
    }


def _text(rows: list[dict[str, Any]]) -> str:
    headers = (
        "network",
        "precision",
        "target",
        "mismatches",
        "of elements",
        "outside",
        "of floats",
        "SQNR dB",
        "count",
        "of one inference",
        ".tow",
        "compiled in s",
    )
    done = [row for row in rows if row["refused"] is None]
    shown = [
        (
            row["network"],
            row["precision"],
            row["target"],
            row["mismatches"],
            row["elements"],
            row["outside"],
            row["float_elements"],
            row["sqnr_db"],
            row["count"],
            (row["counter"] or "").replace("_", " "),
            size(row["bytes"]),
            round(row["compile_seconds"], 2),
        )
        for row in done
    ]
    least = ("of elements", "of floats", "of one inference", "compiled in s", ".tow")
    refusals = [
        f"{row['network']}, {row['precision']}, on {row['target']}: refused: {row['refused']}"
        for row in rows
        if row["refused"] is not None
    ]
    return "\n".join([table(headers, shown, least=least), *([""] if refusals else []), *refusals])
