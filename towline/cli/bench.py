"""`towline bench`: the exact counters of one inference, layer by layer, and a comparison with a baseline.

A baseline is a JSON file of counts. They are exact, so a comparison needs no tolerance: a count above the
baseline's is worse. `--update-baseline` writes the counts of this run instead.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sdk import artifact, cache, compiler, files, settings
from sdk.artifact import Artifact
from sdk.errors import CheckFailed, InvalidInput, UsageError
from sdk.extras import require
from sdk.report import Console, Result, dumps, size, table
from sdk.session import Session
from sdk.target import CountsKernels, LayerProfile, Profile
from sdk.targets import get_target, open_device, target_names
from sdk.zoo.benchmark import benchmark, require_name
from sdk.zoo.catalogue import find
from towline.cli import bench_c, bench_time
from towline.cli.options import (
    MODEL,
    TOW,
    add_arithmetic,
    add_input_shape,
    cache_bytes,
    input_shapes,
    positive,
    require_directory,
    require_suffix,
)
from towline.cli.runtime import add_device, logged, open_options

EXAMPLE = "towline bench mobilenet_v2_1.0_224 --target hexagon-v65"

PEAK = 256
"""MACs per packet that HVX can do at most: two `vrmpy` of 128 products each (Hexagon v65 HVX reference)."""

BASELINE_SCHEMA = 1
USB = "usb"
KERNELS = "kernels"
LOAD = "load"
ONNX = "onnx"
GEMM = "gemm"
DRIVING = "driving"
POWER = "power"
C = "c"
SUBJECTS = ("mcs51", "firmware", "gpu", USB, LOAD, ONNX, GEMM, POWER, C, "zoo")
"""What is measured besides a network."""
ZOO = re.compile(r"zoo(_(?P<shape>\d+\.\d+_\d+))?")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "subject",
        metavar="NET",
        help="a compiled network (.tow), a quantised model (.onnx or .tflite), a network of the zoo by name "
        "(`towline zoo` lists them): NETWORK_WIDTH_SIZE, as mobilenet_v2_1.0_224; or mcs51, the speed of "
        "the bridge's emulated CPU; or firmware, the clocks of the bridge's data paths; or gpu, "
        "the emulated GPU's shaders: speed, and results of all kernels; or usb, what a GPU over USB costs "
        "its host; or load, --bytes of weights on their way to a card; or driving, that network's load and "
        "steps on a GPU over USB; or gemm, products of float16 on an emulated GPU; or power, what emulated "
        "cards draw, and how fast they are within power caps; or c, the time of a network's exported C; "
        "or kernels, each kernel of a target on three shapes; or onnx, ONNX's own node tests; or zoo, every "
        "network on every target, the classifiers at zoo_0.25_32 or another width and size",
    )
    parser.add_argument(
        "--target", metavar="NAME", help="the target for a model, a network of the zoo or the kernels"
    )
    add_device(parser)
    parser.add_argument("--baseline", metavar="FILE", help="fail if a count is worse than in this JSON file")
    parser.add_argument(
        "--update-baseline", action="store_true", help="write the counts to the --baseline file instead"
    )
    parser.add_argument(
        "--size",
        metavar="M,N,K",
        action="append",
        default=[],
        help="of gemm: a matrix product to measure, in place of the usual ones; may be given several times; "
        "of driving: small, 50m (default) or large",
    )
    parser.add_argument(
        "--steps", type=positive, default=None, metavar="N", help="of driving: steps measured (default: 10)"
    )
    parser.add_argument(
        "--no-check", action="store_true", help="of driving: do not compare its layers with the reference"
    )
    parser.add_argument("--bytes", metavar="SIZE", help="of load: how many weights, as 512M (default) or 4G")
    parser.add_argument("--only", metavar="PART", help="of onnx: only the tests whose names contain PART")
    add_arithmetic(parser)
    add_input_shape(parser)
    bench_time.configure(parser)
    bench_c.configure(parser)


def run(args: argparse.Namespace, console: Console) -> Result:
    if args.subject in (*SUBJECTS, KERNELS, DRIVING) or ZOO.fullmatch(args.subject):
        bench_time.refuse(args)
        if args.arithmetic is not None:
            raise UsageError(f"{args.subject} takes no --arithmetic", hint="only a network to compile does")
    if args.subject == C:
        return bench_c.run(args, console)
    bench_c.refuse(args)
    if args.subject == ONNX:
        return _onnx(args, console)
    if args.only is not None:
        raise UsageError(f"--only is for {ONNX}, whose tests have names")
    if args.bytes is not None and args.subject != LOAD:
        raise UsageError(f"--bytes is for {LOAD}, whose network has any size")
    if args.subject == DRIVING and (args.target or "").startswith("amd-"):
        return _driving(args, console)
    if args.size and args.subject != GEMM:
        raise UsageError(f"--size is for {GEMM} and {DRIVING} on amd-*")
    if args.steps is not None or args.no_check:
        raise UsageError(f"--steps and --no-check are for {DRIVING} on amd-*")
    if args.power_cap is not None and args.subject in (*SUBJECTS, KERNELS):
        raise UsageError(
            f"{args.subject} takes no --power-cap",
            hint=f"it is for a network and for {DRIVING}; {POWER} measures several caps",
        )
    if args.subject == POWER:
        return _power(args, console)
    if args.subject == GEMM:
        return _gemm(args, console)
    if args.subject == LOAD:
        return _load(args, console)
    if args.subject == "mcs51":
        return _mcs51(args)
    if args.subject == "firmware":
        return _firmware(args)
    if args.subject == "gpu":
        return _gpu(args, console)
    if args.subject == USB:
        return _usb(args, console)
    if args.subject == KERNELS:
        return _kernels(args, console)
    if zoo := ZOO.fullmatch(args.subject):
        return _zoo(args, zoo["shape"], console)
    baseline = _baseline(args)
    bench_time.cache(args)  # refused now, not after minutes of work
    network, compile_seconds = _subject(args, console)
    times = bench_time.read_times(args.times, network) if args.times is not None else None
    with logged(console), Session(network, args.device, open_options(args)) as session:
        profile = session.profile()
        estimate = bench_time.estimated(session, profile, args)
    document = summary(profile)
    document["compile_seconds"] = compile_seconds
    text = _text(network.target, profile, document)
    if estimate is not None:
        bench_time.add(document, estimate)
        if times is not None:
            bench_time.beside(document, estimate, times)
        text += f"\n\n{bench_time.text(document, estimate)}"
    return _compared(args, baseline, document, text, _counts(network, document))


def _baseline(args: argparse.Namespace) -> dict[str, Any] | None:
    """The baseline to compare with, read before anything is measured; None for none.

    Raises:
        UsageError, InvalidInput, OutputFailed: the options contradict each other, or the file is no baseline.
    """
    if args.update_baseline and not args.baseline:
        raise UsageError("--update-baseline needs --baseline FILE")
    if args.update_baseline:
        require_directory(args.baseline)
    return None if args.update_baseline or not args.baseline else read_baseline(Path(args.baseline))


def _compared(
    args: argparse.Namespace,
    baseline: Mapping[str, Any] | None,
    document: dict[str, Any],
    text: str,
    counts: dict[str, Any],
) -> Result:
    """What was measured, beside the baseline; or written as one."""
    if args.update_baseline:
        files.write(args.baseline, (dumps({"schema": BASELINE_SCHEMA, **counts}) + "\n").encode())
        return Result(document, f"{text}\n\nbaseline written: {args.baseline}")
    if baseline is None:
        return Result(document, text)
    worse, better = _compare(counts, baseline, args.baseline)
    if args.subject != USB:
        document["baseline"] = {"file": args.baseline, "worse": worse, "better": better}
    toolchain = baseline.get("toolchain")
    if toolchain != counts["toolchain"]:
        text += f"\n\nthe baseline was compiled by {toolchain}: counts may differ for that alone"
    text += f"\n\nagainst {args.baseline}: {len(worse)} counts worse, {len(better)} better"
    if worse or better:
        rows = [
            (
                e["name"],
                e["baseline"],
                e["now"],
                100 * (e["now"] / e["baseline"] - 1) if e["baseline"] else None,
            )
            for e in (*worse, *better)
        ]
        text += "\n" + table(("count", "baseline", "now", "change %"), rows)
    if not worse:
        return Result(document, text)
    names = ", ".join(entry["name"] for entry in worse[:5]) + (", ..." if len(worse) > 5 else "")
    failure = CheckFailed(
        f"{len(worse)} counts are worse than the baseline: {names}",
        where=args.baseline,
        hint="if that is intended, run it again with --update-baseline and explain the rise in the commit",
    )
    return Result(document, text, failure)


def summary(profile: Profile) -> dict[str, Any]:
    """A profile as `total`, `layers` and `memory`, with what follows from the counts."""
    macs = sum(layer.macs for layer in profile.layers)
    return {
        "total": {**profile.total, "macs": macs, **_rates(profile.total, macs, "percent_of_bound")},
        "layers": [
            {
                "name": layer.name,
                "op": layer.op,
                "macs": layer.macs,
                **layer.counters,
                **_rates(layer.counters, layer.macs, "percent_of_peak"),
                "limit": layer.note,
            }
            for layer in profile.layers
        ],
        "memory": dict(profile.memory),
    }


def _rates(counters: Mapping[str, Any], macs: int, percent: str) -> dict[str, float]:
    """What follows from a target's counters: of DSPs by packets, of GPUs by instructions of 32 lanes."""
    if packets := counters.get("packets"):
        return {"macs_per_packet": macs / packets, percent: 100 * macs / packets / PEAK}
    if instructions := counters.get("wave_instructions"):
        return {"macs_per_wave_instruction": macs / instructions}
    return {}


def _subject(args: argparse.Namespace, console: Console) -> tuple[Artifact, float | None]:
    require_name(args.subject, SUBJECTS)
    named = find(args.subject) is not None
    if not named:
        require_suffix(args.subject, TOW | MODEL)
    if (named or Path(args.subject).suffix.lower() in MODEL) and not args.target:
        raise UsageError("a network to compile needs a target", hint="add --target hexagon-v65")
    if args.target:
        _require_device(args.target, args, console)
    with files.scratch_directory() as directory:
        built = benchmark(args.subject, directory)
        return _compiled(built or Path(args.subject), args, console)


def _require_device(target: str, args: argparse.Namespace, console: Console) -> None:
    """Refuse a wrong target or device before minutes of work."""
    with logged(console):
        device = args.device or settings.DEVICE.value()
        opened: Any = open_device(target, device, open_options(args))
        if hasattr(opened, "close"):  # what is a real device may be opened once
            opened.close()


def _compiled(subject: Path, args: argparse.Namespace, console: Console) -> tuple[Artifact, float | None]:
    """The network to measure; of a model the wall seconds of compiling it with an empty kernel cache, too."""
    shapes = input_shapes(args.input_shape)
    if subject.suffix.lower() in MODEL:
        with cache.empty():
            started = time.perf_counter()
            how = {"l2": cache_bytes(args.l2), "arithmetic": args.arithmetic}
            network = compiler.compile(subject, args.target, input_shapes=shapes, **how)
            return network, time.perf_counter() - started
    if args.target or shapes or args.arithmetic:
        raise UsageError(
            "--target, --input-shape and --arithmetic are for a model; a .tow is compiled already"
        )
    network = artifact.load(subject)
    _require_device(network.target, args, console)
    return network, None


# -- the emulated bridge --------------------------------------------------------------------------------


def _mcs51(args: argparse.Namespace) -> Result:
    """CPU time of the emulated 8051 beside ucsim's; ratios of one run, so there is no baseline to hold."""
    _refuse_options(args)
    require("cffi", extra="emulator")
    from towline.cli.benchmarks.mcs51 import measure

    found = measure()
    rows = [
        ("CRC and memcpy loop", found["mips"], found["ratio"]),
        (f"the same on {found['reference']['name']}", found["reference"]["mips"], 1.0),
        ("PIO stream write to a RAM BAR", found["mips_mmio"], None),
    ]
    return Result(found, table(("8051 program", "MIPS", "ratio"), rows))


def _firmware(args: argparse.Namespace) -> Result:
    """Clocks of the firmware's data paths on the emulated board, beside the published loops."""
    _refuse_options(args)
    require("cffi", extra="emulator")
    from towline.cli.benchmarks.firmware import measure

    found = measure()
    per_dword, published, bulk = found["clocks_per_dword"], found["published"], found["bulk_mb_per_virtual_s"]
    paths = [
        ("stream of request F0, write", per_dword["pio_write"], published["write"]),
        ("stream of request F0, read", per_dword["pio_read"], published["read"]),
        ("command list, block write", per_dword["list_write"], published["write"]),
        ("command list, block read", per_dword["list_read"], published["read"]),
        ("command list, single writes", found["clocks_per_list_write"], None),
    ]
    text = table(("data path", "clocks a dword", "published loop"), paths)
    text += f"\n\n4.5 MB in one bulk transfer, through the SRAM to the device behind it: {bulk['out']} MB/s"
    text += f"\n496 KiB of the SRAM to the host: {bulk['in']} MB/s"
    return Result(found, f"{text}\ncode: {found['code_bytes']} bytes")


def _gpu(args: argparse.Namespace, console: Console) -> Result:
    """Speed of the emulated GPU's shader executor, and its results beside numpy's."""
    _refuse_options(args)
    require("cffi", extra="emulator")
    from towline.cli import bench_gpu

    return bench_gpu.run(console)


def _usb(args: argparse.Namespace, console: Console) -> Result:
    """Transfers and times of a GPU over USB, on both emulated cards; its exact counts make a baseline."""
    if args.target or args.device or args.input_shape:
        raise UsageError("usb takes no --target, --device or --input-shape: it measures both emulated cards")
    baseline = _baseline(args)
    from towline.cli import bench_usb

    document, text, counts = bench_usb.run(console)
    return _compared(args, baseline, document, text, counts)


def _power(args: argparse.Namespace, console: Console) -> Result:
    """What emulated cards draw; nothing of it is a count."""
    if args.device or args.input_shape or args.baseline or args.update_baseline:
        raise UsageError(
            f"{POWER} takes only --target: it measures emulated cards, and has no baseline",
            hint="give --target, or nothing for all of them",
        )
    from towline.cli import bench_gemm, bench_power

    return bench_power.run(bench_gemm.targets(args.target), console)


def _gemm(args: argparse.Namespace, console: Console) -> Result:
    """Products of float16 on an emulated GPU; their exact counts make a baseline."""
    if args.device or args.input_shape:
        raise UsageError("gemm takes no --device or --input-shape: it counts on the emulated shaders")
    if args.size and args.baseline:
        raise UsageError("--size excludes --baseline, which has the default products", hint="leave one out")
    from towline.cli import bench_gemm

    names = bench_gemm.targets(args.target)
    sizes = [bench_gemm.size(text) for text in args.size]
    if args.update_baseline and args.target:
        raise UsageError("--update-baseline measures all targets", hint="leave --target out")
    baseline = _baseline(args)
    document, text, counts, failure = bench_gemm.run(names, sizes, console)
    if failure is not None:
        return Result(document, text, failure)
    if baseline is not None and args.target:
        kept = {
            name: count for name, count in baseline["counts"].items() if name.startswith(f"{args.target} ")
        }
        baseline = {**baseline, "counts": kept}
    return _compared(args, baseline, document, text, counts)


def _load(args: argparse.Namespace, console: Console) -> Result:
    """The rate at which weights reach a card, and the host's memory meanwhile."""
    if args.baseline or args.update_baseline or args.input_shape:
        raise UsageError("load takes no --input-shape or --baseline: it has its own network and no baseline")
    from towline.cli import bench_load

    return bench_load.run(args, console)


def _driving(args: argparse.Namespace, console: Console) -> Result:
    """The driving network on a GPU over USB: load, steps, transfers; its exact counts make a baseline."""
    if args.input_shape:
        raise UsageError(f"{DRIVING} takes no --input-shape")
    get_target(args.target)
    baseline = _baseline(args)
    from towline.cli import bench_driving

    document, text, counts, failure = bench_driving.run(args, console)
    if failure is not None:
        return Result(document, text, failure)
    return _compared(args, baseline, document, text, counts)


def _kernels(args: argparse.Namespace, console: Console) -> Result:
    """Every kernel of a target on three shapes, with all its variants: exact counts."""
    if args.device or args.input_shape:
        raise UsageError("kernels takes no --device or --input-shape: it counts on emulated devices")
    if not args.target:
        raise UsageError("kernels needs --target NAME", hint=f"targets: {', '.join(target_names())}")
    target, baseline = get_target(args.target), _baseline(args)
    if not isinstance(target, CountsKernels):
        raise UsageError(f"the kernels of {target.name} have no exact counts")
    from towline.cli.benchmarks import kernels

    console.note(f"counting {target.counter} of the kernels of {target.name}")
    tools, found = target.count_kernels(kernels.network())
    rows = [(one.kernel, one.layer, one.count) for one in found]
    document = {
        "target": target.name,
        "kernels": [{"kernel": one.kernel, "layer": one.layer, target.counter: one.count} for one in found],
    }
    counts = {f"{kernel} ({layer}).{target.counter}": count for kernel, layer, count in rows}
    exact = {"target": target.name, "toolchain": dict(tools), "counts": counts}
    text = table(("kernel", "layer", target.counter.replace("_", " ")), rows)
    return _compared(args, baseline, document, text, exact)


def _onnx(args: argparse.Namespace, console: Console) -> Result:
    """The node tests of onnx."""
    if args.baseline or args.update_baseline or args.input_shape:
        raise UsageError(
            "onnx takes no --input-shape or --baseline: what passes is compared with onnx itself"
        )
    from towline.cli import bench_onnx

    return bench_onnx.run(args, console)


def _zoo(args: argparse.Namespace, shape: str | None, console: Console) -> Result:
    """Every network of the zoo on every target."""
    if args.baseline or args.update_baseline or args.input_shape:
        raise UsageError(
            "zoo takes no --input-shape or --baseline: its shapes are fixed, and it has no baseline"
        )
    from towline.cli import bench_zoo

    return bench_zoo.run(args, shape, console)


def _refuse_options(args: argparse.Namespace) -> None:
    if args.target or args.device or args.baseline or args.input_shape:
        raise UsageError(f"{args.subject} takes no --target, --device, --input-shape or --baseline")


# -- baselines ------------------------------------------------------------------------------------------


def _counts(network: Artifact, document: Mapping[str, Any]) -> dict[str, Any]:
    """The exact counts of a bench document, by name: what a baseline holds."""
    counts = {f"total.{name}": value for name, value in document["total"].items()}
    counts |= {f"memory.{name}": value for name, value in document["memory"].items()}
    for layer in document["layers"]:
        counts |= {f"layer {layer['name']}.{name}": value for name, value in layer.items()}
    exact = {
        name: count for name, count in counts.items() if type(count) is int and not name.endswith(".macs")
    }
    program = network.program
    return {
        "target": program.target,
        "toolchain": program.plan.get("toolchain"),
        "counts": exact,
    }


def read_baseline(path: Path) -> dict[str, Any]:
    """A file of `--update-baseline`.

    Raises:
        UsageError: there is none.
        InvalidInput: it is damaged, or of another schema.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            "no such baseline", where=str(path), hint="write it with --update-baseline"
        ) from None
    except (OSError, ValueError, RecursionError) as problem:
        raise InvalidInput(f"the baseline cannot be read: {problem}", where=str(path)) from problem
    counts = document.get("counts") if isinstance(document, dict) else None
    if not isinstance(counts, dict) or not all(type(count) is int for count in counts.values()):
        raise InvalidInput("is not a baseline", where=str(path), hint="write one with --update-baseline")
    if document.get("schema") != BASELINE_SCHEMA:
        raise InvalidInput(
            f"is a baseline of schema {document.get('schema')}, not {BASELINE_SCHEMA}",
            where=str(path),
            hint="write it again with --update-baseline",
        )
    return dict(document)


def _compare(
    now: Mapping[str, Any], baseline: Mapping[str, Any], where: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(worse, better) counts. A baseline of another network or target compares nothing, and is refused."""
    if now["target"] != baseline.get("target") or now["counts"].keys() != baseline["counts"].keys():
        unknown = sorted(now["counts"].keys() ^ baseline["counts"].keys())
        what = f"{unknown[0]} and {len(unknown) - 1} more counts differ" if unknown else "the target differs"
        raise CheckFailed(
            f"the baseline is of another network: {what}",
            where=where,
            hint="if the network's layers have changed, write it again with --update-baseline",
        )
    changes = [
        {"name": name, "baseline": baseline["counts"][name], "now": count}
        for name, count in now["counts"].items()
        if count != baseline["counts"][name]
    ]
    worse = [change for change in changes if change["now"] > change["baseline"]]
    return worse, [change for change in changes if change["now"] < change["baseline"]]


# -- text -----------------------------------------------------------------------------------------------


def _text(target: str, profile: Profile, document: Mapping[str, Any]) -> str:
    total, memory = document["total"], document["memory"]
    counters = sorted({name for layer in profile.layers for name in layer.counters}, key=_order)
    rates = [name for name in _RATES if name in total]
    rows = [_row(layer, counters, rates) for layer in profile.layers]
    beside = {
        name: total[name] - sum(layer.counters[name] for layer in profile.layers)
        for name in counters
        if name in total and all(name in layer.counters for layer in profile.layers)
    }
    if any(beside.values()):
        rows.append(("outside of layers", "", None, *map(beside.get, counters), *(None for _ in rates), ""))
    rows.append(("total", "", total["macs"], *(total.get(name) for name in (*counters, *rates)), ""))
    headers = ["layer", "operator", "MACs", *(name.replace("_", " ") for name in counters)]
    headers += [*(_RATES[name] for name in rates), "where the packets go"]
    if not any(layer.note for layer in profile.layers):
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    lines = [table(headers, rows, least=_LEAST), ""]
    if "percent_of_bound" in total:
        lines.append(
            f"{total['packets']:,} packets, {total['macs_per_packet']:.1f} MAC/packet: "
            f"{total['percent_of_bound']:.1f} % of {target}'s peak of {PEAK}"
        )
    if "issue_slots_per_mac" in total:
        lines.append(
            f"{total['issue_slots_per_mac']:.2f} issue slots per MAC of 1 x 1 convolutions and Gemm "
            "(inner: of their loops alone), as Mesa's ir3 compiles NIR written after the OpenCL C"
        )
    lines.append("memory: " + ", ".join(f"{name.replace('_', ' ')} {size(n)}" for name, n in memory.items()))
    if document["compile_seconds"] is not None:
        lines.append(f"compiled in {document['compile_seconds']:.1f} s with an empty kernel cache")
    return "\n".join(lines)


def _row(layer: LayerProfile, counters: list[str], rates: list[str]) -> tuple[str | int | float | None, ...]:
    shown = _rates(layer.counters, layer.macs, "percent_of_bound") if layer.macs else {}
    return (
        layer.name,
        layer.op,
        layer.macs,
        *(layer.counters.get(name) for name in counters),
        *(shown.get(name) for name in rates),
        layer.note,
    )


_RATES = {
    "macs_per_packet": "MAC/packet",
    "percent_of_bound": "% of peak",
    "macs_per_wave_instruction": "MAC/wave instruction",
}
_COLUMNS = (
    *("packets", "packets_longer_half", "instructions", "hvx_instructions"),
    *("waves", "wave_instructions", "wmma_instructions", "virtual_us"),
    *("work_items", "device_us", "inner", "issue_slots"),
)

_LEAST = (
    *("packets longer half", "hvx instructions", "instructions", "waves", "wmma instructions", "virtual us"),
    *("MAC/wave instruction", "MAC/packet", "operator", "work items", "inner"),
)
"""Columns that a narrow terminal does without, the first to go first."""


def _order(counter: str) -> tuple[int, str]:
    return (_COLUMNS.index(counter) if counter in _COLUMNS else len(_COLUMNS), counter)
