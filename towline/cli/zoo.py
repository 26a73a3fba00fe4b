"""`towline zoo`: the networks that come with Towline, as a table or as an ONNX file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sdk.errors import UsageError
from sdk.report import Console, Result, size, table
from sdk.zoo.benchmark import write, write_quantized
from sdk.zoo.catalogue import INT8, Facts, Name, facts, find, names, require_quantized, unknown
from towline.cli.options import ONNX, require_directory, require_suffix

EXAMPLE = """towline zoo
towline zoo keyword_spotter -o net.onnx
towline zoo detector_one_stage_0.5_320 --quantize -o q.onnx"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "network",
        metavar="NAME",
        nargs="?",
        help="NETWORK, NETWORK_WIDTH or NETWORK_WIDTH_SIZE, for example mobilenet_v2_1.0_224; by default all",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="NET.onnx",
        help="write it as float; weights of 1 GiB or more go to NET.onnx.data",
    )
    parser.add_argument(
        "--quantize", action="store_true", help="write it quantised, calibrated on seeded inputs"
    )


def run(args: argparse.Namespace, console: Console) -> Result:
    if args.output is None:
        if args.quantize:
            raise UsageError("--quantize needs -o NET.onnx")
        return _listed(names() if args.network is None else [args.network])
    if args.network is None:
        raise UsageError("-o needs the name of a network", hint="`towline zoo` lists them")
    name = _found(args.network)
    quantized = args.quantize or args.network.endswith(INT8)
    if quantized:
        require_quantized(name)
    output = require_suffix(args.output, ONNX, exists=False)
    require_directory(args.output)
    console.detail(f"writing {args.network}")
    known = facts(name)
    document = _row(args.network, name, known) | {"output": output, "sqnr_db": None}
    lines = [_table([document])]
    if quantized:
        report = write_quantized(name, output)
        document["sqnr_db"] = {one.name: one.sqnr_db for one in report.outputs}
        stays = len(report.stays_float)
        lines += [f"SQNR of {one.name}: {one.sqnr_db:.1f} dB" for one in report.outputs]
        lines += [f"stay float: {stays} nodes"] * (stays > 0)
    else:
        write(name, output)
    data = Path(f"{output}.data")
    nbytes = output.stat().st_size
    written = f"{output}: {'quantised' if quantized else 'float'}, {size(nbytes)}"
    if not quantized and nbytes < known.nbytes:
        written += f", and {data.name}, {size(data.stat().st_size)}"
    return Result(document, "\n\n".join([written, "\n".join(lines)]))


def _listed(chosen: list[str]) -> Result:
    rows = [_row(text, _found(text), facts(_found(text))) for text in chosen]
    return Result({"networks": rows}, _table(rows))


def _found(text: str) -> Name:
    found = find(text)
    if found is None:
        raise unknown(text)
    return found


def _row(text: str, name: Name, known: Facts) -> dict[str, Any]:
    return {
        "name": text,
        "width": name.width,
        "size": name.size or None,
        "inputs": [
            {"name": key, "dtype": dtype, "shape": shape} for key, (dtype, shape) in known.inputs.items()
        ],
        "outputs": [
            {"name": key, "dtype": dtype, "shape": shape} for key, (dtype, shape) in known.outputs.items()
        ],
        "macs": known.macs,
        "parameters": known.parameters,
        "bytes": known.nbytes,
        "precision": known.dtype,
        "quantizable": not name.entry.unquantized,
        "states": [{"output": output, "input": given} for output, given in known.states],
    }


def _table(networks: list[dict[str, Any]]) -> str:
    rows = [
        (
            one["name"],
            ", ".join(_input(given) for given in one["inputs"]),
            one["macs"] / 1e6,
            one["parameters"] / 1e6,
            one["precision"] + (", int8" if one["quantizable"] else ""),
            ", ".join(state["input"] for state in one["states"]),
        )
        for one in networks
    ]
    return table(
        ("network", "inputs", "M MACs", "M parameters", "precision", "states"), rows, least=("inputs",)
    )


def _input(given: dict[str, Any]) -> str:
    return f"{given['name']} {'x'.join(map(str, given['shape']))}"
