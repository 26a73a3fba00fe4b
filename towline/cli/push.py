"""`towline push`: a compiled network on a phone by adb or ssh, checked here and timed there."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdk import files
from sdk.errors import UsageError
from sdk.report import Console, Result
from towline.cli.inputs import add_network_and_inputs, given, require_inputs, samples
from towline.cli.options import TOW, add_required_keys, positive, require_suffix, required_keys
from towline.cli.run import check_verdict, described, outputs_text

if TYPE_CHECKING:
    from dsp.hexagon.fastrpc.domain import Choice
    from sdk.artifact import Artifact
    from towline.phone.device import Phone
    from towline.phone.link import Link

EXAMPLE = """towline push net.tow --adb --input cat.jpg --check
towline push net.tow --ssh user@phone --input arrays.npz --runs 100 --times times.json"""

HVX = {1: "one HVX context", 2: "two HVX contexts"}


def configure(parser: argparse.ArgumentParser) -> None:
    add_network_and_inputs(parser)
    add_required_keys(parser)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument(
        "--adb", nargs="?", const="", metavar="SERIAL", help="an Android phone; SERIAL if there are several"
    )
    way.add_argument("--ssh", metavar="HOST", help="a phone with an ssh server: HOST as ssh takes it")
    parser.add_argument("--runs", type=_runs, default=10, metavar="N", help="timed inferences (default: 10)")
    parser.add_argument("--check", action="store_true", help="compare every layer with the reference, here")
    parser.add_argument("--top", type=positive, default=5, metavar="K", help="classes shown (default: 5)")
    parser.add_argument("--times", metavar="FILE.json", help="write the times, also layer by layer")
    parser.add_argument("--keep", action="store_true", help="leave the files on the phone for the next push")
    parser.add_argument(
        "--dsp",
        metavar="DEVICE",
        help="which DSP, as --device of run: fastrpc, fastrpc?node=android, fastrpc?pd=signed",
    )
    parser.add_argument(
        "--contexts",
        type=int,
        choices=(1, 2),
        help="HVX contexts of the DSP that share an inference (default: two, or one where there are not two)",
    )


def run(args: argparse.Namespace, console: Console) -> Result:
    from sdk import artifact
    from sdk.check import Check, check, combine
    from sdk.session import Session
    from towline.phone.device import Phone, PhoneSession
    from towline.phone.link import Adb, Ssh

    if args.adb and Path(args.adb).is_file():
        hint = "put --adb last, or --input before the pictures"
        raise UsageError(f"--adb took the file {args.adb} for a serial number", hint=hint)
    paths = given(args)
    path = require_suffix(args.network, TOW)
    if args.times is not None:
        require_suffix(args.times, {".json": "times"}, exists=False)
    require_inputs(paths)
    choice = _choice(args)
    network = artifact.load(path, required_keys(args))
    program = network.program
    for option, value in (("--contexts", args.contexts), ("--dsp", args.dsp)):
        if value is not None and not network.target.startswith("hexagon-"):
            raise UsageError(
                f"the network is for {network.target}: it does not run on a DSP",
                where=option,
                hint=f"leave {option} out, or compile with --target hexagon-v65",
            )
    link: Link = Adb(args.adb or None) if args.ssh is None else Ssh(args.ssh)
    console.note(f"running the code in {path} on {link.where}; run only a .tow that you trust")

    outputs: list[dict[str, Any]] = []
    checks: list[Check] = []
    with (
        Phone(
            link,
            runs=args.runs,
            traced=args.check,
            profiled=args.times is not None,
            keep=args.keep,
            choice=choice,
        ) as phone,
        Session(network, link.where, opened=phone) as session,
    ):
        for sample in samples(session, paths):
            outputs.append(described(session, sample.name, session.run(sample.feeds), args.top))
            if args.check:
                checks.append(check(network, session, sample.feeds))
            console.progress("push", len(outputs), max(len(outputs), len(paths)))
        device = session.on_device
        layers = device.layers if isinstance(device, PhoneSession) else []
        for name, nbytes in phone.sent:
            console.detail(f"sent {name[:16]}: {nbytes:,} bytes")

    times = _times(network, phone, program, layers)
    sent = sum(nbytes for _, nbytes in phone.sent)
    document = {
        "target": network.target,
        "device": phone.name,
        "outputs": outputs,
        "times": times,
        "sent_bytes": sent,
    }
    text = f"{outputs_text(outputs)}\n\n{_summary(phone.name, times)}\n{sent:,} bytes were sent"
    if args.times is not None:
        files.write(args.times, f"{json.dumps(times, indent=2)}\n".encode())
        text += f"\n\ntimes written: {args.times}"
    failure = None
    if args.check:
        found = combine(checks)
        document["check"] = found.to_json()
        verdict, failure = check_verdict(network, found)
        text += f"\n\n{verdict}"
    return Result(document, text, failure)


def _runs(text: str) -> int:
    from towline.phone.job import MOST_RUNS

    value = positive(text)
    if value > MOST_RUNS:
        raise argparse.ArgumentTypeError(f"{text} is more than {MOST_RUNS}")
    return value


def _choice(args: argparse.Namespace) -> Choice:
    from dsp.hexagon.fastrpc.domain import Choice

    choice = Choice.parse("fastrpc" if args.dsp is None else args.dsp)
    if args.contexts is None:
        return choice
    if choice.contexts not in (None, args.contexts):
        raise UsageError(f"--contexts {args.contexts} contradicts --dsp {args.dsp}", hint="leave one out")
    return dataclasses.replace(choice, contexts=args.contexts)


def _times(network: Artifact, phone: Phone, program: Any, layers: Sequence[str]) -> dict[str, Any]:
    """What `bench --from` reads: microseconds by the phone's clock; of layers the mean over the inputs.

    A node that is computed in stripes is one of several layers of its name.
    """
    from towline.phone.job import network_digest

    document: dict[str, Any] = {
        "schema": 1,
        "device": phone.name,
        "target": network.target,
        "network": network_digest(program),
        "runs_us": [time for done in phone.done for time in done.runs_us],
    }
    contexts = [count for done in phone.done for count in done.run_contexts]
    if all(contexts):  # on the processor there are none
        document["contexts"] = contexts
    device = [time for done in phone.done for time in done.device_us]
    if None not in device:
        document["device_us"] = device
    if phone.profiled:
        columns = zip(*(done.layers_us for done in phone.done), strict=True)
        means: dict[str, float] = {}
        for name, column in zip(layers, columns, strict=True):
            means[name] = means.get(name, 0.0) + sum(column) / len(column)
        document["layers"] = [{"name": name, "us": mean} for name, mean in means.items()]
    return document


def _summary(name: str, times: Mapping[str, Any]) -> str:
    """The times as lines: the phone's clock, the DSP's, who computed."""
    text = f"{name}: {len(times['runs_us'])} inferences, {_figures(times['runs_us'])}"
    if "device_us" in times:
        text += f"\nby the DSP's clock: {_figures(times['device_us'])}"
    if "contexts" in times:
        by = Counter(times["contexts"])
        text += f"\n{', '.join(f'{count} by {HVX[contexts]}' for contexts, count in sorted(by.items()))}"
    return text


def _figures(microseconds: Sequence[float]) -> str:
    import numpy as np

    low, middle, high = np.percentile(microseconds, [0, 50, 100]) / 1000
    return f"{low:.3f} ms at least, {middle:.3f} ms median, {high:.3f} ms at most"
