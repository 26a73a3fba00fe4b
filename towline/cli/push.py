"""`towline push`: a compiled network on a phone by adb or ssh, checked here and timed there."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sdk import files
from sdk.errors import UsageError
from sdk.report import Console, Result
from towline.cli.inputs import add_network_and_inputs, given, require_inputs, samples
from towline.cli.options import TOW, add_required_keys, positive, require_suffix, required_keys
from towline.cli.run import check_verdict, described, outputs_text

if TYPE_CHECKING:
    from sdk.artifact import Artifact
    from towline.phone.device import Phone
    from towline.phone.job import Done
    from towline.phone.link import Link

EXAMPLE = """towline push net.tow --adb --input cat.jpg --check
towline push net.tow --ssh user@phone --input arrays.npz --runs 100 --times times.json"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_network_and_inputs(parser)
    add_required_keys(parser)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument(
        "--adb", nargs="?", const="", metavar="SERIAL", help="an Android phone; SERIAL if there are several"
    )
    way.add_argument("--ssh", metavar="HOST", help="a phone with an ssh server: HOST as ssh takes it")
    parser.add_argument(
        "--runs", type=positive, default=10, metavar="N", help="timed inferences (default: 10)"
    )
    parser.add_argument("--check", action="store_true", help="compare every layer with the reference, here")
    parser.add_argument("--top", type=positive, default=5, metavar="K", help="classes shown (default: 5)")
    parser.add_argument("--times", metavar="FILE.json", help="write the times, also layer by layer")
    parser.add_argument("--keep", action="store_true", help="leave the files on the phone for the next push")
    parser.add_argument(
        "--dsp",
        default="fastrpc",
        metavar="DEVICE",
        help="which DSP, as --device of run: fastrpc, fastrpc?node=android, fastrpc?pd=signed",
    )


def run(args: argparse.Namespace, console: Console) -> Result:
    from dsp.hexagon.fastrpc.domain import Choice
    from sdk import artifact
    from sdk.check import Check, check, combine
    from sdk.session import Session
    from towline.phone.device import Phone, PhoneSession
    from towline.phone.link import Adb, Ssh

    paths = given(args)
    path = require_suffix(args.network, TOW)
    if args.times is not None:
        require_suffix(args.times, {".json": "times"}, exists=False)
    require_inputs(paths)
    choice = Choice.parse(args.dsp)
    if choice.contexts == 2:
        raise UsageError(
            "the phone's program uses one HVX context", where="--dsp", hint="leave contexts=2 out"
        )
    network = artifact.load(path, required_keys(args))
    program = network.program
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
    text = f"{outputs_text(outputs)}\n\n{_line(phone.name, phone.done)}; {sent:,} bytes were sent"
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
    if phone.profiled:
        columns = zip(*(done.layers_us for done in phone.done), strict=True)
        means: dict[str, float] = {}
        for name, column in zip(layers, columns, strict=True):
            means[name] = means.get(name, 0.0) + sum(column) / len(column)
        document["layers"] = [{"name": name, "us": mean} for name, mean in means.items()]
    return document


def _line(name: str, results: Sequence[Done]) -> str:
    import numpy as np

    runs = [time for done in results for time in done.runs_us]
    low, middle, high = np.percentile(runs, [0, 50, 100]) / 1000
    figures = f"{low:.3f} ms at least, {middle:.3f} ms median, {high:.3f} ms at most"
    return f"{name}: {len(runs)} inferences, {figures}"
