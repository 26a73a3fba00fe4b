"""`towline bench zoo`: every network of the zoo on every target, or on one: right, how large, how long."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sdk import artifact, compiler, files
from sdk.check import check
from sdk.errors import CheckFailed, EnvironmentMissing
from sdk.report import Console, Result, size, table
from sdk.session import Session
from sdk.target import get_target, target_names
from sdk.zoo import NETWORKS
from sdk.zoo.benchmark import quantized_benchmark
from towline.cli.runtime import logged, open_options

SHAPE = "1.0_224"
"""Width and size, unless `zoo_WIDTH_SIZE` gives others."""

COUNTERS = ("packets", "wave_instructions", "work_items", "bytes")
"""What a target counts: the first of these that it has is shown."""


def run(args: argparse.Namespace, shape: str, console: Console) -> Result:
    """Quantise each network once, then compile, run and check it on each target.

    The document: `networks[].{network,target,mismatches,elements,counter,count,bytes,compile_seconds}`;
    `count` is of one inference, `bytes` of the `.tow`, `compile_seconds` with what the cache holds.

    Targets whose tools or emulated device are missing are left out, with a warning.

    Raises:
        UsageError: a target, width or size that does not exist.
        EnvironmentMissing: something that the one target needs is missing.
    """
    targets = [args.target] if args.target else target_names()
    for target in targets:
        get_target(target)
    rows: list[dict[str, Any]] = []
    with files.scratch_directory() as directory:
        for network in NETWORKS:
            model = quantized_benchmark(f"{network}_{shape}", directory)
            assert model is not None  # by its name
            console.note(f"{network}: {', '.join(targets)}")
            for target in list(targets):
                try:
                    rows.append(_measured(network, model, target, args, console))
                except EnvironmentMissing as problem:
                    if args.target:
                        raise
                    console.warn(f"{target} is skipped: {problem}; {problem.hint}")
                    targets.remove(target)
    wrong = [f"{row['network']} on {row['target']}" for row in rows if row["mismatches"]]
    failure = None
    if wrong:
        hint = "`towline debug` names the layer"
        failure = CheckFailed(f"results differ from the reference: {', '.join(wrong)}", hint=hint)
    return Result({"shape": shape, "networks": rows}, _text(rows), failure)


def _measured(
    network: str, model: Path, target: str, args: argparse.Namespace, console: Console
) -> dict[str, Any]:
    started = time.perf_counter()
    compiled = compiler.compile(model, target)
    seconds = time.perf_counter() - started
    path = model.with_suffix(f".{target}.tow")
    artifact.save(compiled, path)
    (name,) = compiled.graph.inputs
    picture = np.random.default_rng(1).normal(size=compiled.graph.tensor(name).shape).astype(np.float32)
    with logged(console), Session(compiled, args.device, open_options(args)) as session:
        outcome = check(compiled, session, {name: picture})
        total: Mapping[str, Any] = session.profile().total
    counter = next(name for name in COUNTERS if name in total)
    return {
        "network": network,
        "target": target,
        "mismatches": outcome.mismatches,
        "elements": outcome.elements,
        "counter": counter,
        "count": total[counter],
        "bytes": path.stat().st_size,
        "compile_seconds": seconds,
    }


def _text(rows: list[dict[str, Any]]) -> str:
    headers = (
        "network",
        "target",
        "mismatches",
        "of elements",
        "count",
        "of one inference",
        ".tow",
        "compiled in s",
    )
    shown = [
        (
            row["network"],
            row["target"],
            row["mismatches"],
            row["elements"],
            row["count"],
            row["counter"].replace("_", " "),
            size(row["bytes"]),
            round(row["compile_seconds"], 2),
        )
        for row in rows
    ]
    return table(headers, shown, least=("of elements", "compiled in s", ".tow"))
