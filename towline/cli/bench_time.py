"""The time of a network on a device that models none: an estimate, beside what was measured."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sdk.artifact import Artifact
from sdk.errors import InvalidInput, UsageError
from sdk.estimate import Cache, Estimate, Estimates
from sdk.report import table
from sdk.session import Session
from sdk.target import Profile
from towline.cli.options import cache_bytes

ONE = "ms_one_context"

LONGEST = 1e15
"""Microseconds that are a time: 30 years. A JSON file may have numbers that are no floats."""

_LEAST = ("cycles", "most wait for", "DDR bytes", "stalls")

WAYS = {1: ONE, 2: "ms_two_contexts"}
"""The estimates of an inference, by the contexts that compute it."""


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("of a network on hexagon-*")
    group.add_argument(
        "--l2",
        metavar="SIZE",
        help="size of the L2 that is modelled and that a model is compiled for, such as 512K (default: 1M)",
    )
    group.add_argument(
        "--warm", action="store_true", help="the time of a second inference, whose L2 is in use"
    )
    group.add_argument(
        "--from", dest="times", metavar="TIMES.json", help="compare with times of `towline push --times`"
    )


def refuse(args: argparse.Namespace, *, counted: bool = False) -> None:
    """Raises UsageError: options of an estimate, without one; or a baseline (`counted`) of another L2."""
    if args.l2 is None and not args.warm and args.times is None:
        return
    if not counted:
        raise UsageError("--l2, --warm and --from are for a network on hexagon-*")
    if args.baseline and (args.l2 is not None or args.warm):
        raise UsageError("a baseline holds the usual L2", hint="leave --l2 and --warm out")


def cache(args: argparse.Namespace) -> Cache:
    """The L2 of the options. Raises UsageError: it is not written so."""
    nbytes = cache_bytes(args.l2)
    return Cache(warm=args.warm) if nbytes is None else Cache(nbytes, warm=args.warm)


def estimated(session: Session, profile: Profile, args: argparse.Namespace) -> Estimate | None:
    """The time of what was profiled; None for a device that is not estimated.

    Raises:
        UsageError: options for such a device with another, or an L2 that cannot be.
        DeviceFailed, EnvironmentMissing: as `Estimates.estimate`.
    """
    device = session.on_device
    if not isinstance(device, Estimates):
        refuse(args)
        return None
    refuse(args, counted=True)
    return device.estimate(profile, cache(args))


def add(document: dict[str, Any], estimate: Estimate) -> None:
    """Put an estimate into bench's document: its counts are compared with a baseline like any other."""
    document["total"] |= estimate.counts
    document["estimate"] = {**estimate.ms, "assumptions": list(estimate.assumptions)}
    for layer, one in zip(document["layers"], estimate.layers, strict=True):
        layer |= {**one.counts, **one.ms, "stalls_mostly": one.cause}


def read_times(path: str, network: Artifact) -> dict[str, Any]:
    """What `towline push --times` wrote.

    Raises:
        UsageError: there is no such file, or it is of another network.
        InvalidInput: it is damaged, or of another schema.
    """
    from towline.phone.job import network_digest

    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError("no such file", where=path, hint="`towline push --times` writes it") from None
    except (OSError, ValueError, RecursionError) as problem:
        raise InvalidInput(f"the times cannot be read: {problem}", where=path) from problem
    if not isinstance(document, dict) or document.get("schema") != 1 or not _is_times(document):
        raise InvalidInput(
            "holds no times of schema 1", where=path, hint="`towline push --times` writes them"
        )
    if document.get("network") != network_digest(network.program):
        raise UsageError(
            "these are the times of another network",
            where=path,
            hint="give the .tow that was pushed: code, weights and compiler have to be the same",
        )
    return document


def _is_times(document: Mapping[str, Any]) -> bool:
    layers = document.get("layers", [])
    runs = document.get("runs_us")
    if not isinstance(runs, list) or not runs:
        return False
    device, contexts = document.get("device_us", runs), document.get("contexts", [1] * len(runs))
    return (
        all(isinstance(each, list) and len(each) == len(runs) for each in (device, contexts))
        and all(_is_time(time) for time in (*runs, *device))
        and all(type(count) is int and count in WAYS for count in contexts)
        and isinstance(layers, list)
        and all(
            isinstance(one, dict) and isinstance(one.get("name"), str) and _is_time(one.get("us"))
            for one in layers
        )
    )


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST


def beside(document: dict[str, Any], estimate: Estimate, times: Mapping[str, Any]) -> None:
    """Put what a phone measured into bench's document: of the inferences by as many contexts as most had."""
    measured = {one["name"]: one["us"] / 1000 for one in times.get("layers", [])}
    for layer, one in zip(document["layers"], estimate.layers, strict=True):
        if one.name in measured:
            layer["measured_ms"] = measured[one.name]
    # Files of older versions have no contexts: they were computed by one.
    contexts = times.get("contexts", [1] * len(times["runs_us"]))
    usual = statistics.mode(contexts)

    def median(key: str) -> float:
        of_usual = (time for time, count in zip(times[key], contexts, strict=True) if count == usual)
        return float(statistics.median(of_usual)) / 1000

    document["measured"] = {
        "device": str(times.get("device", "unknown")),
        "contexts": usual,
        "ms": median("runs_us"),
    }
    if "device_us" in times:
        document["measured"]["device_ms"] = median("device_us")


def text(document: Mapping[str, Any], estimate: Estimate) -> str:
    """The estimate as tables, and all that it assumes."""
    measured = document.get("measured")
    contexts = measured["contexts"] if measured else 1
    way = WAYS[contexts]
    headers = [
        "layer",
        "stalls",
        "most wait for",
        "cycles",
        "DDR bytes",
        "ms" if contexts == 1 else f"ms, {contexts} contexts",
        *(["ms measured"] * bool(measured)),
    ]
    rows = [
        (
            one.name,
            one.counts["stalls"],
            one.cause,
            one.counts["cycles"],
            one.counts["ddr_bytes"],
            round(one.ms[way], 3),
            *([layer.get("measured_ms")] if measured else []),
        )
        for layer, one in zip(document["layers"], estimate.layers, strict=True)
    ]
    counts = estimate.counts
    # The estimate is of the DSP alone.
    own = measured.get("device_ms", measured["ms"]) if measured else 0.0
    total = [own] if measured else []
    rows.append(
        (
            "total",
            counts["stalls"],
            "",
            counts["cycles"],
            counts["ddr_bytes"],
            round(estimate.ms[way], 3),
            *total,
        )
    )
    lines = [table(headers, rows, least=_LEAST), ""]
    times = ", ".join(
        f"{value:.2f} ms {name.removeprefix('ms_').replace('_', ' ')}" for name, value in estimate.ms.items()
    )
    lines.append(f"estimate: {times}")
    if measured:
        ratio = own / estimate.ms[way] if estimate.ms[way] else 0.0
        clock = f", {own:.2f} ms by the DSP's clock" if "device_ms" in measured else ""
        whose = "one context's" if contexts == 1 else "two contexts'"
        lines.append(
            f"measured: {measured['ms']:.2f} ms on {measured['device']}{clock}, {ratio:.2f} of {whose}"
        )
    lines += ["assumed:", *(f"  {one}" for one in estimate.assumptions)]
    return "\n".join(lines)
