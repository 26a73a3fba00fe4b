"""`towline eval`: a compiled network on a folder of pictures, beside the models that it was made from."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from sdk import files
from sdk.errors import CheckFailed
from sdk.report import Console, Result, table
from towline.cli.options import HTML, ONNX, TOW, add_pool, positive, require_suffix
from towline.cli.runtime import add_device, firmware_directory, logged

if TYPE_CHECKING:
    from sdk.evaluation import Evaluation

EXAMPLE = (
    "towline eval net.tow --model q.onnx --float net.onnx --images pictures/ --labels labels.csv\n"
    "towline eval net.tow --float net.onnx --images arrays.npz --html report.html"
)

MANY = 10
"""Lines of a table of the text; `--json` and `--html` have more."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("network", metavar="NET.tow", help="the compiled network")
    parser.add_argument(
        "--images",
        required=True,
        metavar="DIR",
        help="a directory of pictures (or a picture), or an .npz or .npy file of arrays as the network takes "
        "them",
    )
    parser.add_argument("--model", metavar="Q.onnx", help="the quantised model that it was compiled from")
    parser.add_argument("--float", dest="real", metavar="NET.onnx", help="the float model that was quantised")
    parser.add_argument(
        "--labels",
        metavar="FILE",
        help="the class of each picture: lines `picture,class`, or the word `folders` where a picture's "
        "folder is its class",
    )
    parser.add_argument(
        "--limit", type=positive, metavar="N", help="take at most N, evenly spaced (default: all)"
    )
    add_pool(parser, "inputs evaluated")
    parser.add_argument("--html", metavar="REPORT.html", help="write the report as one HTML file")
    add_device(parser, power_cap=False)


def run(args: argparse.Namespace, console: Console) -> Result:
    from sdk.evaluation import evaluate
    from sdk.evaluation.page import page

    path = require_suffix(args.network, TOW)
    for model in (args.model, args.real):
        if model is not None:
            require_suffix(model, ONNX)
    if args.html is not None:
        require_suffix(args.html, HTML, exists=False)
    console.note(f"running the code in {path}; run only a .tow that you trust")
    with logged(console):
        found = evaluate(
            path,
            args.images,
            real=args.real,
            model=args.model,
            labels=args.labels,
            limit=args.limit,
            device=args.device,
            firmware=firmware_directory(args),
            jobs=args.jobs,
            scheduler=args.scheduler,
            progress=console.progress,
        )
    for record in found.skipped[:MANY]:
        console.warn(f"{record.name}: not evaluated: {record.skipped}")
    for line in found.warnings:
        console.warn(line)
    document: dict[str, Any] = {"file": path, **found.to_json()}
    text = _text(found)
    if args.html is not None:
        files.write(args.html, page(found, path.name).encode())
        document["html"] = args.html
        text += f"\n\nreport written: {args.html}"
    return Result(document, text, _failure(found))


def _failure(found: Evaluation) -> CheckFailed | None:
    if not found.exact or not found.wrong:
        return None
    first = found.wrong[0]
    return CheckFailed(
        f"the target's outputs differ from the reference's for {len(found.wrong)} of {len(found.found)} "
        f"inputs, in {found.mismatches:,} of {found.elements:,} elements",
        where=first.name,
        hint="find the layer: towline debug NET.tow with this input",
    )


def _text(found: Evaluation) -> str:
    from sdk.evaluation.document import confusion, pictures, summary, verdict

    images = f"{len(found.found)} inputs" if len(found.found) != 1 else "1 input"
    of = f" of {found.available}" if found.available > len(found.found) else ""
    kind = ", steps of one sequence," if found.sequence else ""
    parts = [
        f"{found.target} ({found.arithmetic} arithmetic) on {found.device}, {images}{of}{kind} from "
        f"{found.source}",
        _table(summary(found)) if len(summary(found)) > 1 else "",
        "\n".join([verdict(found), *(f"not compared: {line}" for line in found.not_compared)]),
    ]
    for title, rows in (
        ("lowest SQNR on the target", pictures(found, found.worst)),
        (f"class changed on the target ({len(found.changed)})", pictures(found, found.changed)),
        (f"class by the {found.against} model and by the target", confusion(found)),
    ):
        if next(iter(rows.values()), []):
            parts.append(f"{title}\n{_table(rows)}")
    return "\n\n".join(filter(None, parts))


def _table(columns: dict[str, list[Any]]) -> str:
    rows = list(zip(*columns.values(), strict=True))
    text = table(list(columns), rows[:MANY])
    return text if len(rows) <= MANY else f"{text}\n... and {len(rows) - MANY} more"
