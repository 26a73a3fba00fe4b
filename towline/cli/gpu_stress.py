"""`towline gpu stress`: put cable, port, supply and card under load, and name the one that is to blame."""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sdk.errors import (
    CheckFailed,
    DeviceFailed,
    DeviceMissing,
    EnvironmentMissing,
    ToolMissing,
    TowlineError,
    UsageError,
)
from sdk.report import Console, Result, plural, size, table
from towline.cli.runtime import add_gpu_device, firmware_directory

if TYPE_CHECKING:
    from usbgpu.amd.gpu import Gpu
    from usbgpu.stress import Report
    from usbgpu.stress.memories import Driven, Memory
    from usbgpu.stress.record import Record

SUMMARY = "test cable, port, supply and card under load, and say which one is to blame"
EXAMPLE = """towline gpu stress --for 60s --device usb
towline gpu stress --for 100ms --device 'emulated?inject=bad-cable=1e-2'
towline gpu stress --for 1h --pattern random --device usb --json"""

SECONDS, EMULATED_SECONDS = 60.0, 0.1
"""How long the test takes if the user does not say: an emulated device is slower than a real one."""
UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "": 1.0}
OPENINGS = 3
"""How often it is tried to open a card over a link that may be bad."""


class LinkBad(CheckFailed):
    """The test found errors."""

    code = "stress-failed"


def configure(parser: argparse.ArgumentParser) -> None:
    add_gpu_device(parser)
    parser.add_argument(
        "--for",
        dest="seconds",
        metavar="TIME",
        type=duration,
        help=f"how long, in the device's time: 60s, 10m, 1h (default: {SECONDS:g}s; {EMULATED_SECONDS:g}s if "
        "emulated)",
    )
    parser.add_argument(
        "--pattern",
        metavar="NAME,...",
        help="only these: counting, random, walking, ones, zeros (default: all, in turn)",
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="seed of the patterns (default: 0)")
    parser.add_argument(
        "--no-card", action="store_true", help="test the bridge's memory, and leave a card behind it alone"
    )


def duration(text: str) -> float:
    """Seconds of a time as a user writes it."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|min|m|h|)", text)
    seconds = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write it like 60s, 10m or 1h")
    return seconds


def run(args: argparse.Namespace, console: Console) -> Result:
    from usbgpu import emulation, stress

    names = _names(args.pattern)
    if args.seed < 0:
        raise UsageError("--seed must be 0 or more")
    device = emulation.with_card(args.device) if not args.no_card else args.device
    with _opened(device, args, console) as bench:
        transport = bench.memory.bridge.transport
        found = transport.identify()
        seconds = args.seconds or (EMULATED_SECONDS if transport.is_emulated else SECONDS)

        def progress(done: float) -> None:
            console.progress("stress", min(round(100 * done / seconds), 100), 100)

        report = stress.run(bench.memory, stress.Plan(seconds, names, args.seed), progress, bench.record)
        console.end_progress()
        document = {
            "device": transport.name,
            "place": transport.place,
            "serial": found.serial,
            "running": found.running.value,
            "chip": bench.chip,
            "patterns": list(names),
            "seed": args.seed,
            **_document(report),
        }
    if bench.problem is not None and isinstance(bench.problem, DeviceFailed):
        document["evidence"].append(f"the card does not open: {bench.problem}")
        if document["verdict"] == stress.Verdict.GOOD.value:
            document["verdict"] = stress.Verdict.CARD.value
    return Result(document, text(document), _failure(document))


def _names(given: str | None) -> tuple[str, ...]:
    from usbgpu.stress import PATTERNS

    names = tuple(given.split(",")) if given is not None else tuple(PATTERNS)
    for name in names:
        if name not in PATTERNS:
            raise UsageError(f"there is no pattern {name!r}", hint=f"patterns: {', '.join(PATTERNS)}")
    return names


@dataclass(frozen=True, slots=True)
class _Bench:
    """What is tested.

    Attributes:
        memory: of the card, or of the bridge.
        chip: name of the card; None if the bridge's memory is tested.
        record: of what went wrong on the way to it.
        problem: why no card is; None if one is, or was not to be.
    """

    memory: Memory
    chip: str | None
    record: Record
    problem: TowlineError | None = None


@contextlib.contextmanager
def _opened(device: str | None, args: argparse.Namespace, console: Console) -> Iterator[_Bench]:
    """The card, or the bridge's own memory if no card can be opened."""
    from usbgpu import bridge as bridges
    from usbgpu import transport as transports
    from usbgpu.stress import BridgeMemory, CardMemory
    from usbgpu.stress.memories import Driven
    from usbgpu.stress.record import Record

    with transports.open(device) as transport:
        bridge = bridges.attach(transport)
        assert isinstance(bridge, Driven)
        problem, record = None, Record()
        if not args.no_card:
            transport.observers.append(record.saw)
            gpu, problem = _card(bridge, args, console, record)
            transport.observers.remove(record.saw)
            if gpu is not None:
                with gpu:
                    yield _Bench(CardMemory(gpu, _kernels(gpu.chip, console)), gpu.chip, record)
                return
            console.warn(f"no card is tested, only the bridge's memory: {problem}")
        yield _Bench(BridgeMemory(bridge), None, record, problem)


def _card(
    bridge: Driven, args: argparse.Namespace, console: Console, record: Record
) -> tuple[Gpu | None, TowlineError | None]:
    """Open the card; a link that is bad may take more than one attempt."""
    from usbgpu import bridge as bridges
    from usbgpu import emulation, pcie
    from usbgpu.amd import gpu as gpus
    from usbgpu.stress.run import PATIENCE

    firmware = firmware_directory(args) or emulation.firmware_directory(bridge)
    failed: TowlineError | None = None
    for _ in range(OPENINGS):
        try:
            if failed is not None:
                bridges.again(bridge, PATIENCE)
            return gpus.on_bridge(bridge, pcie.find(bridge), firmware, console.detail), None
        except (DeviceMissing, EnvironmentMissing) as problem:
            return None, problem
        except DeviceFailed as problem:
            record.repeated(0.0, "open")
            console.warn(f"the card does not open: {problem}")
            failed = problem
    with contextlib.suppress(DeviceFailed):
        bridges.again(bridge, PATIENCE)
    return None, failed


def _kernels(chip: str, console: Console) -> bytes | None:
    """The kernel's code; None, with a warning, where no compiler is."""
    from towline.gpu import compile_kernels
    from usbgpu.stress.memories import KERNEL

    try:
        return compile_kernels(KERNEL, chip)
    except ToolMissing as problem:
        console.warn(f"no kernels run beside the transfers: {problem}")
        return None


# -- what was found -----------------------------------------------------------------------------------------


def _document(report: Report) -> dict[str, Any]:
    record = report.record
    return {
        "seconds": report.seconds,
        "rounds": report.rounds,
        "transfers": record.transfers,
        "bytes": record.sent + record.received,
        "kernels": record.kernels,
        "errors": len(record.incidents),
        "errors_per_hour": report.errors_per_hour,
        "mb_per_s": {
            "out": _rate(record.out_bytes, record.out_seconds),
            "in": _rate(record.in_bytes, record.in_seconds),
        },
        "kinds": [
            {"kind": kind, "place": place, "count": count}
            for (kind, place), count in record.kinds.most_common()
        ],
        "wrong": [asdict(wrong) for wrong in record.wrong],
        "recoveries": [asdict(recovery) for recovery in record.recoveries],
        "supply": None
        if record.lowest is None or record.highest is None
        else {"volts": {"min": record.lowest.volts, "max": record.highest.volts}, "fault": record.fault},
        "link": None if report.speed is None else report.speed.value,
        "link_errors": None
        if report.link_errors is None
        else asdict(report.link_errors) | {"per_second": report.link_errors.per_second},
        "interrupted": report.interrupted,
        "gone": None if report.gone is None else str(report.gone),
        "verdict": report.verdict.value,
        "evidence": list(report.evidence),
    }


def _rate(count: int, seconds: float) -> float | None:
    return count / seconds / 1e6 if seconds else None


def _failure(document: Mapping[str, Any]) -> TowlineError | None:
    from usbgpu.stress.verdict import ADVICE, Verdict

    found = Verdict(document["verdict"])
    if found is Verdict.GOOD:
        return None
    return LinkBad(
        f"to blame: {found.value} (errors: {document['errors']:,})",
        where=document["device"],
        hint=ADVICE[found],
    )


def text(document: Mapping[str, Any]) -> str:
    """The document as text."""
    rates = document["mb_per_s"]
    ended = " (ended by Ctrl-C)" if document["interrupted"] else ""
    shown = [f"{way} {rate:,.0f} MB/s" for way, rate in rates.items() if rate is not None]
    kernels, rounds = plural(document["kernels"], "kernel"), plural(document["rounds"], "round")
    tested = f"{document['chip']}, {kernels} beside" if document["chip"] else "the bridge"
    rows = [
        ("tested", tested),
        ("time", f"{document['seconds']:,.3g} s of the device's clock, {rounds}{ended}"),
        ("transfers", f"{document['transfers']:,} over USB, {size(document['bytes'])} of patterns"),
        ("rate", ", ".join(shown) or "-"),
        ("link", document["link"] or "gone"),
        ("errors", f"{document['errors']:,}, {document['errors_per_hour']:,.0f} an hour"),
        ("verdict", document["verdict"]),
    ]
    parts = [table(("device", document["device"]), rows)]
    if document["kinds"]:
        kinds = [(each["kind"], each["place"] or "-", f"{each['count']:,}") for each in document["kinds"]]
        parts.append(table(("error", "place", "count"), kinds))
    if document["wrong"]:
        wrong = [
            (
                f"{each['address']:#x}",
                f"{each['count']:,}",
                f"{each['expected']:08x}",
                f"{each['found']:08x}",
                f"{each['bits']:08x}",
                each["where"],
            )
            for each in document["wrong"]
        ]
        parts.append(table(("wrong from", "bytes", "expected", "found", "bits", "where"), wrong))
    if document["recoveries"]:
        times = [each["seconds"] for each in document["recoveries"]]
        parts.append(f"recovered {len(times):,} times, in {max(times):.3g} s at most")
    parts += [textwrap.fill(sentence, 80) for sentence in document["evidence"]]
    return "\n\n".join(parts)
