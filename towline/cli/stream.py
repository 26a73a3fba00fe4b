"""`towline stream`: a network on every frame of a source, at a rate, through the device's failures."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sdk.errors import CheckFailed, TowlineError, UsageError
from sdk.report import Console, Result, dumps, failure, success
from towline.cli import run_layers, run_transfers, stream_check, stream_sources
from towline.cli.camera_source import add_camera_source, camera_source
from towline.cli.inputs import add_network_and_inputs
from towline.cli.options import TOW, add_required_keys, duration, positive, require_suffix, required_keys
from towline.cli.runtime import add_device, logged, open_options
from towline.cli.stream_show import Show, text

if TYPE_CHECKING:
    from sdk.artifact import Artifact
    from sdk.session import Session
    from sdk.stream import Stream
    from sdk.stream.torture import Torture
    from sdk.telemetry.publication import Publication

EXAMPLE = """towline stream net.tow --rate 20 --deadline 45ms --frames 200
towline stream net.tow clip.npz --rate 20 --fallback net-c.tow --device usb --power-cap 100W
towline stream net.tow --rate 20 --torture 1000 --check --timeline stream.json"""


def configure(parser: argparse.ArgumentParser) -> None:
    from sdk.stream.stream import DEPTH, DEPTH_AT_RATE, PATIENCE

    add_network_and_inputs(parser)
    stream_sources.add_source(parser)
    add_camera_source(parser)
    add_device(parser)
    add_required_keys(parser)
    parser.add_argument(
        "--frames", type=positive, metavar="N", help="number of frames; a source with fewer is repeated"
    )
    parser.add_argument(
        "--rate", type=_rate, metavar="N", help="frames a second (default: as many as the device answers)"
    )
    parser.add_argument("--deadline", type=duration, metavar="TIME", help="answers after this are late: 45ms")
    parser.add_argument(
        "--late", choices=("deliver", "drop"), default="deliver", help="what happens to late answers"
    )
    parser.add_argument(
        "--depth",
        type=positive,
        metavar="N",
        help=f"frames in flight (default: {DEPTH}, at a rate {DEPTH_AT_RATE})",
    )
    parser.add_argument(
        "--fallback",
        metavar="NET.tow[@DEVICE]",
        help="a network with the same inputs and outputs, which answers while the device is away or late; it "
        "runs on the emulated device if none is named",
    )
    parser.add_argument("--shadow", action="store_true", help="run the fallback on every frame")
    parser.add_argument(
        "--checkpoint-states",
        type=positive,
        metavar="N",
        help="download the states every N steps, for a device that loses them (without: zeros)",
    )
    parser.add_argument(
        "--patience",
        type=duration,
        default=PATIENCE,
        metavar="TIME",
        help=f"how long the device may be away (default: {PATIENCE:g}s)",
    )
    parser.add_argument("--wait", action="store_true", help="keep trying after --patience is over")
    parser.add_argument(
        "--idle",
        type=duration,
        metavar="TIME",
        help="lower an AMD card's clocks when there was no frame for that long (default: never)",
    )
    parser.add_argument(
        "--idle-off",
        action="store_true",
        help="with --idle: switch its slot off instead; the next frame waits for a cold start",
    )
    parser.add_argument(
        "--host-work",
        type=duration,
        default=0.0,
        metavar="TIME",
        help="how far the host's work on a frame advances an emulated card's time (default: not at all)",
    )
    parser.add_argument(
        "--check", action="store_true", help="compute every result again, from its states, and compare"
    )
    parser.add_argument(
        "--check-against",
        metavar="NET.tow[@DEVICE]",
        help="as --check, but by this network instead of the reference: faster",
    )
    parser.add_argument(
        "--torture", type=positive, metavar="N", help="N frames, and a random fault in every hundred of them"
    )
    parser.add_argument("--timeline", metavar="FILE.json", help="write a timeline (ui.perfetto.dev)")
    parser.add_argument(
        "--publish",
        metavar="NAME",
        help="name of the socket that `towline gpu top` reads (default: derived from the device)",
    )
    parser.add_argument("--no-publish", action="store_true", help="open no socket")


def run(args: argparse.Namespace, console: Console) -> Result:
    from sdk import artifact
    from sdk.session import Session
    from sdk.stream import Stream
    from sdk.stream.stream import DEPTH
    from sdk.stream.timeline import Timeline
    from sdk.stream.torture import Torture
    from sdk.telemetry.names import require_name

    lines = args.json or sys.stdout is None or not sys.stdout.isatty()
    console.lines = lines
    path = require_suffix(args.network, TOW)
    if args.timeline is not None:
        require_suffix(args.timeline, {".json": "a timeline"}, exists=False)
    if args.no_publish and args.publish is not None:
        raise UsageError("--publish and --no-publish exclude each other", hint="leave one out")
    if args.publish is not None:
        require_name(args.publish)
    if args.torture is not None and args.frames is not None:
        raise UsageError("--torture N is the number of frames, too", hint="leave --frames out")
    spare, witness = (
        None if one is None else _opener(one, args) for one in (args.fallback, args.check_against)
    )
    network = artifact.load(path, required_keys(args))
    console.note(f"running the code in {path} for {network.target}; run only a .tow that you trust")
    with contextlib.ExitStack() as stack:
        stack.enter_context(logged(console))
        session = stack.enter_context(Session(network, args.device, open_options(args)))
        fallback = None if spare is None else stack.enter_context(spare())
        found = camera_source(args, network) or stream_sources.source(args, session)
        checks = None
        if args.check or witness is not None:
            kept = (args.checkpoint_states or 0) + (args.depth or DEPTH) + 64
            checks = stream_check.Checks(session, fallback, witness, kept, stack)
        timeline = None if args.timeline is None else Timeline(f"{path}, {session.device}")
        show = Show(lines, session)
        publication = _publication(args, session, console)
        if publication is not None:
            stack.callback(publication.close, "the stream has ended")

        def watch(event: Any) -> None:
            show.event(event)
            if timeline is not None:
                timeline.changed(event)

        stream = Stream(
            session,
            args.rate,
            args.deadline,
            args.depth,
            fallback,
            late=args.late,
            shadow=args.shadow,
            checkpoint_states=args.checkpoint_states,
            patience=args.patience,
            wait=args.wait,
            host_work=args.host_work,
            idle=args.idle,
            idle_off=args.idle_off,
            observe=checks,
            watch=watch,
            publish=publication or False,
        )
        _remark(console, args, session, fallback, found)
        frames: Iterable[Any] = _Frames(found, args.torture or args.frames)
        torture = None
        if args.torture is not None:
            frames = torture = Torture(session, frames, args.torture, args.seed)
        problem: TowlineError | None = None
        interrupted = False
        try:
            with show.live(stream):
                for result in stream.run(frames):
                    show.result(result)
                    if timeline is not None:
                        timeline.add(result)
        except TowlineError as error:
            problem = error
        except KeyboardInterrupt:
            from towline.cli import Interrupted

            interrupted, problem = True, Interrupted("interrupted; the summary is of the frames until then")
        finally:
            stream.close()
        if checks is not None and not interrupted:
            checks.finish(console.progress)
        if timeline is not None:
            timeline.write(args.timeline)
        return _summary(args, network, session, stream, checks, torture, problem, lines)


def _publication(args: argparse.Namespace, session: Session, console: Console) -> Publication | None:
    """What `towline gpu top` reads; a stream whose user did not ask for it by name goes on without."""
    from sdk.telemetry.publication import Publication

    if args.no_publish:
        return None
    try:
        return Publication(session, args.publish)
    except TowlineError as problem:
        if args.publish is not None:
            raise
        console.warn(f"`towline gpu top` will not see this stream: {problem}")
        return None


class _Frames:
    """So many frames of a source."""

    def __init__(self, found: stream_sources.Source, count: int | None) -> None:
        self.live = found.live
        self._found = found
        self._count = count

    def __iter__(self) -> Iterator[Any]:
        return stream_sources.taken(self._found, self._count)


def _opener(text: str, args: argparse.Namespace) -> Callable[[], Session]:
    """Opens what NET.tow[@DEVICE] names."""
    name, at, device = text.rpartition("@")
    if not at or not name.lower().endswith(".tow"):
        name, device = text, ""
    path = require_suffix(name, TOW)

    def open_it() -> Session:
        from sdk import artifact
        from sdk.session import Session
        from sdk.targets import EMULATED

        options = replace(open_options(args), power_cap=None)  # that is of the stream's own card
        return Session(artifact.load(path, required_keys(args)), device or EMULATED, options)

    return open_it


def _remark(
    console: Console,
    args: argparse.Namespace,
    session: Session,
    fallback: Session | None,
    found: stream_sources.Source,
) -> None:
    """What a user should know before it begins."""
    steps = bool(session.artifact.states)
    if args.torture is not None and (session.injects is None or not session.injects.torments):
        raise UsageError(
            "faults cannot be injected on this device",
            where=f"--torture {args.torture}",
            hint="use an emulated card: a network for an amd target, with --device emulated",
        )
    if args.depth != 1 and not session.overlaps(step=steps):
        inside = session.artifact.segments[1:-1]
        hosted = [node.name for one in inside if one.place == "host" for node in one.graph.nodes]
        inner = len(session.artifact.programs) > 1
        why = (
            f"the host computes a part in mid-graph: {', '.join(hosted)}"
            if inner
            else f"{session.artifact.target} runs one inference at a time"
        )
        console.note(f"frames do not overlap: {why}")
    if steps and fallback is not None and not args.shadow:
        console.note("the fallback begins from reset states whenever it steps in; --shadow keeps them going")
    console.detail(f"frames: {found.name}")


def _summary(
    args: argparse.Namespace,
    network: Artifact,
    session: Session,
    stream: Stream,
    checks: stream_check.Checks | None,
    torture: Torture | None,
    problem: TowlineError | None,
    lines: bool,
) -> Result:
    summary = stream.summary()
    document: dict[str, Any] = {"target": network.target, "device": session.device, **summary.to_json()}
    parts = [text(summary)]
    bad = problem
    if checks is not None:
        document["wrong"], document["check"] = checks.wrong, checks.to_json()
        verdict, found = checks.verdict()
        parts.append(verdict)
        bad = bad or found
    if torture is not None:
        document["torture"] = stream_check.torture_json(torture, summary.recoveries)
        parts.append(stream_check.torture_text(torture, summary.recoveries))
    faults = [] if session.injects is None else list(session.injects.faults())
    if faults and torture is None:
        document["faults"] = [{"fault": fault, "fired": when} for fault, when in faults]
        parts.append(stream_check.faults_text(faults))
    if (floor := _floor(session)) is not None and summary.capacity is not None:
        share = floor * summary.capacity
        document["link"] = {"floor_ms": 1000 * floor, "share": share}
        parts.append(
            f"the link alone takes {1000 * floor:.3f} ms a frame: {share:.0%} of its limit is reached"
        )
    if (verified := _verified(session, stream)) is not None:
        document["verified"] = verified
        parts.append(run_transfers.line(verified))
    if summary.missed and (layer := _costliest(session, stream)) is not None:
        document["costliest"] = layer
        parts.append(layer)
    if args.timeline is not None:
        document["timeline"] = args.timeline
        parts.append(f"timeline written: {args.timeline}")
    if summary.lost:
        bad = bad or CheckFailed(f"{summary.lost:,} frames were lost", hint="this is a bug: please report it")
    if lines:
        whole = success(document) if bad is None else failure(bad, document)
        return Result(document, dumps(whole, line=True), bad)
    return Result(document, "\n\n".join(parts), bad)


def _verified(session: Session, stream: Stream) -> dict[str, Any] | None:
    if stream.state != "running":
        return None
    with contextlib.suppress(TowlineError):
        return run_transfers.cost(session)
    return None


def _floor(session: Session) -> float | None:
    with contextlib.suppress(TowlineError):  # a session that failed
        return session.link_seconds(step=bool(session.artifact.states))
    return None


def _costliest(session: Session, stream: Stream) -> str | None:
    """What to look at if frames are late, where the device counts it."""
    if stream.state != "running":
        return None
    with contextlib.suppress(TowlineError):
        return run_layers.costliest(session)
    return None


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of frames a second, such as 20")
    return value
