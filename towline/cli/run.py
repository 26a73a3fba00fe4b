"""`towline run`: a compiled network on pictures or arrays, checked against the reference if asked."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sdk import files
from sdk.errors import CheckFailed
from sdk.report import Console, Result, table
from towline.cli import run_time, run_transfers
from towline.cli.inputs import (
    add_network_and_inputs,
    class_count,
    given,
    read_labels,
    require_inputs,
    samples,
)
from towline.cli.options import TOW, add_required_keys, positive, require_suffix, required_keys
from towline.cli.runtime import add_device, logged, open_options

if TYPE_CHECKING:
    from sdk.artifact import Artifact
    from sdk.check import Check, LayerCheck
    from sdk.graph import Array
    from sdk.session import Session
    from sdk.twice import Twice

HALF = {"device": "the device's", "emulated": "emulated: each operation is rounded to half by code"}

EXAMPLE = """towline run net.tow cat.jpg --check --labels classes.txt
towline run net.tow arrays.npz --repeat 100 --warmup 10 --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_network_and_inputs(parser)
    parser.add_argument("--check", action="store_true", help="compare every layer with the reference")
    add_required_keys(parser)
    parser.add_argument(
        "--twice", action="store_true", help="run each input again, and compare every byte and the schedule"
    )
    parser.add_argument("--top", type=positive, default=5, metavar="K", help="classes shown (default: 5)")
    parser.add_argument("--labels", metavar="FILE", help="names of the classes, one a line")
    run_time.add_repeat(parser)
    add_device(parser)
    parser.add_argument(
        "--trace-out",
        metavar="FILE.json",
        help="write a timeline (ui.perfetto.dev): of all that an emulated card does, else by layer",
    )
    parser.add_argument("--output", metavar="FILE.npz", help="keep the raw outputs, stacked by name")


def run(args: argparse.Namespace, console: Console) -> Result:
    from sdk import artifact
    from sdk.check import check, combine
    from sdk.twice import run_twice as compare
    from towline.cli import run_layers, run_trace, run_twice

    paths = given(args)
    path = require_suffix(args.network, TOW)
    if args.output is not None:
        require_suffix(args.output, {".npz": "a file of arrays"}, exists=False)
    if args.trace_out is not None:
        require_suffix(args.trace_out, {".json": "a timeline"}, exists=False)
    require_inputs(paths)
    network = artifact.load(path, required_keys(args))
    if args.labels is not None:
        network.labels = read_labels(args.labels, class_count(network.graph))
    console.note(f"running the code in {path} for {network.target}; run only a .tow that you trust")

    outputs: list[dict[str, Any]] = []
    raw: list[dict[str, Array]] = []
    checks: list[Check] = []
    twice: list[Twice] = []
    stopwatch = run_time.Stopwatch(args.repeat, args.warmup)
    with (
        logged(console),
        run_twice.disturbing(network, args.device) as disturb,
        run_trace.opened(args.trace_out, network, args.device, open_options(args)) as session,
    ):
        for sample in samples(session, paths):
            if (warning := session.unlike_calibration(sample.feeds)) is not None:
                console.warn(f"{sample.name}: {warning}")
            raw.append(stopwatch.run(session, sample.feeds))
            outputs.append(described(session, sample.name, raw[-1], args.top))
            if args.check:
                checks.append(check(network, session, sample.feeds))
            if args.twice:
                twice.append(compare(network, session, sample.feeds, disturb))
            console.progress("run", len(raw), max(len(raw), len(paths)))
        time = stopwatch.to_json(session)
        half = session.half_arithmetic
        verified = run_transfers.cost(session)
        # A timeline of all that a card does must not hold one more inference.
        if (
            console.verbose
            and args.trace_out is None
            and (scores := run_layers.most_expensive(session)) is not None
        ):
            console.detail(scores)
    if args.output is not None:
        _save(args.output, raw)
    document: dict[str, Any] = {"target": network.target, "outputs": outputs, "time": time}
    text = outputs_text(outputs)
    if half is not None:
        document["half_arithmetic"] = half
        text += f"\n\nhalf arithmetic: {HALF[half]}"
    if verified is not None:
        document["verified"] = verified
        text += f"\n\n{run_transfers.line(verified)}"
    if args.repeat > 1 or args.warmup:
        text += f"\n\n{run_time.line(time)}"
    if "device" in time:
        text += f"\n\n{run_time.device_line(time)}"
    if args.output is not None:
        document["output"] = args.output
        text += f"\n\noutputs written: {args.output}"
    failures = []
    if args.check:
        found = combine(checks)
        document["check"] = found.to_json()
        verdict, failure = check_verdict(network, found)
        if (overflow := found.first_overflow) is not None:
            console.warn(overflow_text(overflow))
        text += f"\n\n{verdict}"
        failures.append(failure)
    if args.twice:
        document["twice"] = run_twice.to_json(twice)
        verdict, failure = run_twice.verdict(twice)
        text += f"\n\n{verdict}"
        failures.append(failure)
    return Result(document, text, next((failure for failure in failures if failure is not None), None))


def _save(path: str, raw: Sequence[dict[str, Array]]) -> None:
    import numpy as np

    stacked: dict[str, Any] = {name: np.concatenate([values[name] for values in raw]) for name in raw[0]}
    with files.replacing(path) as file:
        np.savez(file, **stacked)


def described(session: Session, name: str, values: dict[str, Array], count: int) -> dict[str, Any]:
    """What `--json` says of one input's outputs, with the `count` best classes of a classifier."""
    from sdk.classification import probabilities

    classifier = probabilities(session.artifact.graph, values) is not None
    return {
        "input": name,
        "top": [dataclasses.asdict(one) for one in session.rank(values, count)] if classifier else [],
        "tensors": {
            tensor: {"dtype": str(array.dtype), "shape": array.shape} for tensor, array in values.items()
        },
    }


def outputs_text(outputs: Sequence[dict[str, Any]]) -> str:
    """The same as a table."""
    if not any(output["top"] for output in outputs):
        rows = [
            (output["input"], name, tensor["dtype"], "x".join(map(str, tensor["shape"])))
            for output in outputs
            for name, tensor in output["tensors"].items()
        ]
        return table(("input", "output", "dtype", "shape"), rows)
    return table(
        ("input", "class", "label", "score"),
        [
            (
                output["input"] if rank == 0 else "",
                str(entry["index"]),
                entry["label"],
                f"{entry['score']:.4f}",
            )
            for output in outputs
            for rank, entry in enumerate(output["top"])
        ],
    )


def overflow_text(layer: LayerCheck) -> str:
    """What a tensor had no room for, and what to do."""
    return (
        f"layer {layer.node} overflows: {layer.overflows:,} elements of {layer.tensor} are infinite, and "
        f"would reach {layer.reaches:.3g}; keep it in float32: compile the network with --float16 "
        f"--keep-float32 {shlex.quote(layer.node)}"
    )


def check_verdict(network: Artifact, found: Check) -> tuple[str, CheckFailed | None]:
    """A check in words, and its failure if there is one."""
    parts = []
    if found.elements or not found.float_elements:
        parts.append(
            f"check: {found.elements:,} elements of every layer against the {network.arithmetic} reference, "
            f"{found.mismatches:,} mismatches"
        )
    if found.float_elements:
        parts.append(
            f"check: {found.float_elements:,} plain elements of every layer against their definition, "
            f"{found.outside:,} outside its bound, {found.ties:,} ties; "
            f"the largest error is {found.worst_share:.0%} of its bound"
        )
    text = "\n".join(parts)
    first = found.first_mismatch
    if first is None or first.first is None:
        return text, None
    index, device, expected = first.first
    wrong, elements = found.mismatches + found.outside, found.elements + found.float_elements
    return (
        f"{text}, the largest by {first.max_abs_diff:g} in {first.node}",
        CheckFailed(
            f"{wrong:,} of {elements:,} elements differ from the reference; the first is "
            f"element {list(index)} of {first.tensor}: {device} instead of {expected}",
            where=f"node {first.node}",
            hint="this is a bug in the target: please report it with the network and the input",
        ),
    )
