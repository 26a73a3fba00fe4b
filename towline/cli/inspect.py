"""`towline inspect`: what is in a model or a compiled network, and what each target would do with it."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from sdk import artifact, files
from sdk.errors import UsageError
from sdk.report import Console, Result
from sdk.targets import target_names
from towline.cli import graphs, inspect_model, inspect_page, inspect_tow
from towline.cli.options import HTML, MODEL, TOW, add_cut, add_input_shape, reading, require_suffix

EXAMPLE = """towline inspect q.onnx
towline inspect net.onnx --target hexagon-v65 -v
towline inspect net.onnx --html net.html
towline inspect net.tow --json
towline inspect net.tow --layer stem
towline inspect net.tow --graph stem.svg --layer stem"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="an .onnx, a .tflite or a .tow")
    add_input_shape(parser)
    add_cut(parser)
    parser.add_argument("--target", metavar="NAME", help="of a model: where each node would run, and why")
    parser.add_argument(
        "--html", metavar="FILE.html", help="write a page with the figures and the graph drawn"
    )
    parser.add_argument("--layer", metavar="NAME", help="of a .tow: list the machine code of this layer")
    graphs.add_graph(parser, "the code of --layer")


def run(args: argparse.Namespace, console: Console) -> Result:
    started = time.process_time()
    path = require_suffix(args.file, MODEL | TOW)
    compiled = path.suffix.lower() in TOW
    how = reading(args)
    _refuse_contradictions(args, compiled=compiled)
    everything = bool(console.verbose)
    network = artifact.load(path) if compiled else None
    if network is None:
        model = inspect_model.inspected(path, how, target_names() if args.target is None else [args.target])
        found = inspect_model.result(path, model, how, args.target, everything=everything)
    elif args.layer is not None or args.graph is not None:
        layer, listed = inspect_tow.code(path, network, args.layer)
        return listed if args.graph is None else Result(*graphs.written(args.graph, layer.chart))
    else:
        found = inspect_tow.result(path, network, everything=everything)
    if args.html is not None:
        page = (
            inspect_page.of_model(path, model) if network is None else inspect_page.of_network(path, network)
        )
        files.write(args.html, page.encode())
        found = Result({**found.document, "html": args.html}, f"{found.text}\n\npage written: {args.html}")
    console.detail(f"{time.process_time() - started:.1f} seconds of CPU time")
    return found


def _refuse_contradictions(args: argparse.Namespace, *, compiled: bool) -> None:
    graphs.check(args)
    if args.html is not None:
        if args.layer is not None or args.graph is not None:
            raise UsageError("--html shows the network, --layer and --graph the code of a layer: give one")
        require_suffix(args.html, HTML, exists=False)
        if Path(args.html).resolve() == Path(args.file).resolve():
            raise UsageError("the page would replace the file that is inspected", where=args.html)
    if not compiled and (args.layer is not None or args.graph is not None):
        raise UsageError("--layer shows code, and a model has none: compile it first", where=args.file)
    if compiled and args.target is not None:
        raise UsageError("--target is for a model; a .tow is compiled for one already", where=args.file)
    if compiled and (args.input_shape or args.outputs or args.constant):
        raise UsageError(
            "--input-shape, --outputs and --constant are for a model; a .tow is compiled already",
            where=args.file,
        )
