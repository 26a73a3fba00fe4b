"""`towline bench onnx`: onnx's own node tests, on a target or by the definition alone.

A test passes on the device if all its nodes run there (but those at a quantised network's ends, which are
the host's by choice), and on the host if some had to run there. A result in float32, an integer or a truth
value is compared with onnx's own; one with narrower floats is compared, layer by layer, with the bound of
the definition, and the definition with onnx.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from sdk.errors import CheckFailed, TowlineError, Unsupported, UsageError
from sdk.report import Console, Result, table
from towline.cli.benchmarks import batches
from towline.cli.benchmarks.batches import Answer, HeldDevice, Job
from towline.cli.benchmarks.onnx_nodes import (
    NodeTest,
    Outcome,
    Place,
    cases,
    define,
    judge,
    load_all,
    reason,
)
from towline.cli.runtime import logged, open_options


def run(args: argparse.Namespace, console: Console) -> Result:
    """Every test of onnx whose name has `--only` in it.

    The document: `target` (null: the definition alone, whose place is the host), `total`,
    `passed.{device,host}`, `refused`, `wrong[].{name,reason}`, `refusals[].{name,reason}`, `seconds`.

    Raises:
        UsageError: no such target or device, or no such test.
        EnvironmentMissing: onnx, or something that the target needs, is missing.
    """
    if args.device and not args.target:
        raise UsageError("--device needs --target NAME: without one the definition alone is run")
    started = time.perf_counter()
    with logged(console), contextlib.ExitStack() as stack:
        held = None
        if args.target:  # refused before half a minute of work
            held = stack.enter_context(HeldDevice(args.target, args.device, open_options(args)))
        names = [name for name in cases() if (args.only or "") in name]
        if not names:
            raise UsageError(f"onnx has no node test with {args.only!r} in its name")
        results = outcomes(names, held, console)
    document = summary(results) | {"target": args.target, "seconds": time.perf_counter() - started}
    failure = None
    if document["wrong"]:
        wrong = [entry["name"] for entry in document["wrong"]]
        shown = ", ".join(wrong[:5]) + (", ..." if len(wrong) > 5 else "")
        failure = CheckFailed(f"{len(wrong)} of onnx's tests have wrong results: {shown}")
    return Result(document, _text(document, results), failure)


def outcomes(
    names: list[str],
    held: HeldDevice | None,
    console: Console | None = None,
) -> dict[str, Outcome]:
    """Outcomes of tests, by name, in the order given.

    Args:
        names: of `cases()`.
        held: what to compile for and to run on; None for the definition alone.
        console: where progress is shown.
    """
    loaded = load_all(names)
    results = {name: test for name, test in loaded.items() if isinstance(test, Outcome)}
    tests = {name: test for name, test in loaded.items() if isinstance(test, NodeTest)}
    if held is None:
        results |= {name: define(test) for name, test in tests.items()}
    else:
        jobs = {name: Job(test.graph, test.inputs, test.narrow) for name, test in tests.items()}
        for name, answer in batches.run(jobs, held):
            results[name] = judged(tests[name], answer)
            if console is not None:
                console.progress("tests", len(results), len(names))
    return {name: results[name] for name in names}


def judged(test: NodeTest, answer: Answer) -> Outcome:
    """What a target's answer to a test is worth."""
    if answer.outputs is None:
        if isinstance(answer.failure, Unsupported):
            return Outcome("refused", str(answer.failure))
        kind = "" if isinstance(answer.failure, TowlineError) else f"{type(answer.failure).__name__}: "
        return Outcome("wrong", f"{kind}{answer.failure}")
    place: Place = "host" if answer.hosted else "device"
    if answer.check is None:
        return judge(test, answer.outputs, place)
    if (worst := answer.check.first_mismatch) is not None:
        return Outcome("wrong", f"{worst.node}: {worst.mismatches} of {worst.elements} are outside the bound")
    defined = define(test)
    return Outcome("passed", place=place) if defined.verdict == "passed" else defined


def summary(results: Mapping[str, Outcome]) -> dict[str, Any]:
    """The counts of the document, and the tests that did not pass."""
    places = Counter(one.place for one in results.values() if one.verdict == "passed")
    listed = {
        verdict: [
            {"name": name, "reason": one.why} for name, one in results.items() if one.verdict == verdict
        ]
        for verdict in ("wrong", "refused")
    }
    return {
        "total": len(results),
        "passed": {"device": places["device"], "host": places["host"]},
        "refused": len(listed["refused"]),
        "wrong": listed["wrong"],
        "refusals": listed["refused"],
    }


def reasons(results: Mapping[str, Outcome]) -> list[tuple[str, int]]:
    """Why tests are refused, the commonest first."""
    counts = Counter(reason(one) for one in results.values() if one.verdict == "refused")
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def headline(document: Mapping[str, Any]) -> str:
    """The counts in a line."""
    passed = document["passed"]
    where = f"{passed['device']:,} pass on the device, {passed['host']:,} with nodes on the host"
    if document.get("target") is None:
        where = f"{sum(passed.values()):,} pass"
    return (
        f"{document['total']:,} tests: {where}, {document['refused']:,} are refused, "
        f"{len(document['wrong']):,} are wrong"
    )


def _text(document: Mapping[str, Any], results: Mapping[str, Outcome]) -> str:
    parts = []
    if document["wrong"]:
        parts.append(table(("wrong", "why"), [(one["name"], one["reason"]) for one in document["wrong"]]))
    if len(results) <= SHOWN and document["refusals"]:
        rows = [(one["name"], one["reason"]) for one in document["refusals"]]
        parts.append(table(("refused", "why"), rows))
    elif document["refusals"]:
        parts.append(table(("refused because of", "tests"), reasons(results)))
    parts.append(f"{headline(document)} ({document['seconds']:.0f} s)")
    return "\n\n".join(parts)


SHOWN = 100
"""Tests up to which refusals are listed by name; of more they are counted by reason (`--json` has all)."""
