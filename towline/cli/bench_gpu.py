"""`towline bench gpu`: the emulated GPU's shaders, their speed and their results beside numpy's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from sdk.errors import CheckFailed
from sdk.report import Console, Result, table


def run(console: Console) -> Result:
    """Measure and check; -v prints all tables.

    Raises:
        ToolMissing, EnvironmentMissing: something is not installed.
    """
    from towline.cli.benchmarks import gpu as benchmark

    found = benchmark.measure()
    return Result(found, text(found, everything=bool(console.verbose)), failure(found))


def text(found: Mapping[str, Any], *, everything: bool = False) -> str:
    """What `measure` has found, as text; with `everything`, by kernel, encoding and constant."""
    speed, vector = found["wave_instructions_per_second"], found["vector_share"]
    rates = (
        ("int8 GEMM by dot4", speed["dot4_gemm"], vector["dot4_gemm"]),
        ("arithmetic alone", speed["alu"], vector["alu"]),
    )
    parts = [
        f"{found['chip']}, wave-instructions a second of the host's time:",
        *(f"  {name:18} {rate / 1e6:8,.1f} M  ({share:.0%} vector)" for name, rate, share in rates),
        f"  first use of a kernel, nothing cached: {found['first_use_seconds']:.2f} s",
    ]
    tables = "\n\n".join(_tables(found)) if everything else _summary(found)
    return "\n".join(parts) + f"\n\n{tables}"


def _summary(found: Mapping[str, Any]) -> str:
    """A line a kernel, a line a chip."""
    chips = list(found["scoreboard"])
    wrong = Counter({one["name"]: 0 for one in found["kernels"]})
    for one in found["kernels"]:
        wrong[one["name"]] += one["mismatches"]
    times = {
        (one["name"], chip): round(one["virtual_us"], 2)
        for chip in chips
        for one in found["scoreboard"][chip]["kernels"]
    }
    rows = [(name, count, *(times[name, chip] for chip in chips)) for name, count in wrong.items()]
    headers = ("kernel", "wrong", *(f"{chip} us" for chip in chips))
    lines = [
        f"{chip}: {sum(one['implemented'] for one in encodings):,} of "
        f"{sum(one['exist'] for one in encodings):,} instructions are implemented, clang emits "
        f"{sum(one['emitted'] for one in encodings):,}, of which "
        f"{sum(len(one['emitted_but_missing']) for one in encodings):,} are not"
        for chip, encodings in found["instructions"].items()
    ]
    title = (
        "elements that differ from numpy's, all chips together, and microseconds by the cost model:\n"
        "a model, not a measurement"
    )
    more = "-v prints instructions by encoding, and the model's constants"
    return "\n".join((title, table(headers, rows), "", *lines, more))


def _tables(found: Mapping[str, Any]) -> Iterator[str]:
    for chip, board in found["scoreboard"].items():
        wrong = {one["name"]: one["mismatches"] for one in found["kernels"] if one["chip"] == chip}
        kernels = [
            (
                one["name"],
                wrong[one["name"]],
                one["waves"],
                one["wave_instructions"],
                one["read"],
                one["written"],
                round(one["virtual_us"], 2),
            )
            for one in board["kernels"]
        ]
        headers = ("kernel", "mismatches", "waves", "wave-instructions", "read", "written", "virtual us")
        yield f"{chip}, times by the cost model:\n{table(headers, kernels)}"
    for chip, encodings in found["instructions"].items():
        counts = [
            (
                one["encoding"],
                one["exist"],
                one["implemented"],
                one["emitted"],
                len(one["emitted_but_missing"]),
            )
            for one in encodings
        ]
        sums = (sum(column) for column in list(zip(*counts, strict=True))[1:])
        titles = ("encoding", "exist", "implemented", "emitted by clang", "of these not implemented")
        yield f"instructions of {chip}:\n{table(titles, [*counts, ('total', *sums)])}"
    constants = [
        (one["name"], f"{one['value']:g}", one["unit"], one["what"], one["grade"])
        for one in found["cost"][found["chip"]]
    ]
    listed = table(("constant", "value", "unit", "what", "grade"), constants)
    yield f"the cost model of {found['chip']}, a model, not a measurement:\n{listed}"


def failure(found: Mapping[str, Any]) -> CheckFailed | None:
    """Why the outcome is bad, if it is."""
    wrong = [f"{one['name']} on {one['chip']}" for one in found["kernels"] if one["mismatches"]]
    return CheckFailed(f"wrong results: {', '.join(wrong)}") if wrong else None
