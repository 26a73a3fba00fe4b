"""`towline bench gemm`: products of float16 on emulated GPUs, their time, counts and results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sdk import toolchain
from sdk.errors import CheckFailed, UsageError
from sdk.extras import require
from sdk.report import Console, table
from usbgpu.amd.facts.chips import CHIPS

PREFIX = "amd-"


def targets(name: str | None) -> list[str]:
    """The targets to measure: this one, or all. Raises UsageError for one that is no emulated GPU."""
    every = [f"{PREFIX}{chip}" for chip in CHIPS]
    if name is None:
        return every
    if name not in every:
        hint = f"one of {', '.join(every)}"
        raise UsageError(f"{name} is not an emulated GPU", where="--target", hint=hint)
    return [name]


def size(text: str) -> tuple[int, int, int]:
    """M,N,K of `--size`. Raises UsageError."""
    from towline.cli.benchmarks.gemm import LIMIT

    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(
            f"{text!r} is not three numbers of 1 or more", where="--size", hint="as 256,2048,1152"
        )
    m, n, k = (int(part) for part in parts)
    if math.prod((m, n, k)) > LIMIT or max(m * n, m * k, n * k) > LIMIT >> 8:
        raise UsageError(
            f"{text} is too large for the emulated shaders",
            where="--size",
            hint=f"M x N x K is at most {LIMIT:,}, and a matrix has at most {LIMIT >> 8:,} elements",
        )
    return m, n, k


def run(
    names: Sequence[str], sizes: Sequence[tuple[int, int, int]], console: Console
) -> tuple[dict[str, Any], str, dict[str, Any], CheckFailed | None]:
    """Measure and check.

    Args:
        names: of targets.
        sizes: (m, n, k); empty for the usual products.
        console: gets progress.

    Returns:
        The document (`sizes[]`, each with its `target`), text, counts of a baseline, and why it failed.

    Raises:
        ToolMissing, EnvironmentMissing: a compiler, a package or an extra is missing.
    """
    require("cffi", extra="emulator")
    from towline.cli.benchmarks import gemm
    from towline.cli.benchmarks.shaders import Shaders

    cases = [gemm.sized(*one) for one in sizes or gemm.SIZES]
    if not sizes:
        console.note(f"building {gemm.NETWORK} for its products")
        cases += gemm.of_network(gemm.NETWORK)
    found: list[dict[str, Any]] = []
    for name in names:
        shaders = Shaders(name.removeprefix(PREFIX), gemm.MEMORY)
        for number, case in enumerate(cases, 1):
            console.detail(f"{name}: {case.name} ({number} of {len(cases)})")
            found.append({"target": name, **gemm.measure(shaders, case)})
    counts = {f"{one['target']} {one['name']}.wave_instructions": one["wave_instructions"] for one in found}
    tools = {tool: toolchain.version(tool) for tool in ("clang", "lld")}
    wrong = [f"{one['name']} on {one['target']}" for one in found if one["outside"]]
    failure = CheckFailed(f"results outside of what is allowed: {', '.join(wrong)}") if wrong else None
    exact = {"target": "gemm", "toolchain": tools, "counts": counts}
    return {"sizes": found}, _text(found), exact, failure


def _text(found: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            one["target"],
            one["name"],
            one["virtual_us"],
            100 * one["share_of_peak"],
            one["wave_instructions"],
            100 * one["wmma_share"],
            "x".join(map(str, one["cut"])),
            one["outside"],
        )
        for one in found
    ]
    headers = (
        "target",
        "product",
        "virtual us",
        "% of peak",
        "wave instructions",
        "WMMA %",
        "cut",
        "outside",
    )
    title = "float16, m x n x k; times are the cost model's, a model, not a measurement:"
    return f"{title}\n{table(headers, rows, least=('cut', 'WMMA %'))}"
