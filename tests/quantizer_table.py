"""What calibration methods are worth: `python -m tests.quantizer_table`, with names of networks or none.

Each network is quantised by each method on 4, 8 and 26 pictures, their files in order and in reverse, and
judged by SQNR at its outputs on 16 crops of other pictures, under onnxruntime. Networks and pictures that are
not there are left out.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime

from sdk.preprocess import default_for
from sdk.quantizer import quantize
from sdk.quantizer.fidelity import decibels
from sdk.zoo import digits
from tests import pictures
from tests.external_data import DATA
from tests.shared_networks import NETWORKS, filled

COUNTS = (4, 8, 26)
METHODS = ("minmax", "mse", "percentile", "auto")
EVALUATED = 16


def networks(folder):
    """Name -> (float model, inputs for calibration, inputs to judge by), of those that are there."""
    found = {}
    model = digits()
    others = model.inputs(model.test()[0])
    found["digits"] = (model.model, model.calibration()[:: 150 // 26][:26], others)
    if (path := DATA / "mobilenet_v2_imagenet.onnx").exists():
        found["mobilenet_v2"] = (path, *crops(224))
    if NETWORKS.is_dir():
        found["detector"] = (filled("detector", folder), *crops(320))
        found["vit-tiny"] = (filled("vit-tiny", folder), *crops(224))
    return found


def crops(size):
    recipe = default_for((1, 3, size, size))
    return [
        np.concatenate([recipe.apply(picture) for picture in part])
        for part in (pictures.calibration(max(COUNTS), size=320), pictures.evaluation(EVALUATED, size=320))
    ]


def runner(path):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda inputs: [session.run(None, {name: inputs[i : i + 1]})[0] for i in range(len(inputs))]


def sqnr(expected, results):
    """Mean and minimum over samples, in dB."""
    each = [
        decibels(float((a.astype(float) ** 2).sum()), float(((a.astype(float) - b) ** 2).sum()))
        for a, b in zip(expected, results, strict=True)
    ]
    same = np.mean([a.argmax() == b.argmax() for a, b in zip(expected, results, strict=True)])
    return np.mean(each), np.min(each), same


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", help="names (default: all)")
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--counts", nargs="*", type=int, default=COUNTS)
    parser.add_argument("--search", action="store_true", help="with `quantize(search=True)` too")
    parser.add_argument("--forward", action="store_true", help="do not repeat with the files in reverse")
    args = parser.parse_args()
    print("network       pictures  method      mean dB  min dB  top-1 %  CPU s  order  ranges")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for network, (path, data, others) in networks(folder).items():
            if args.networks and network not in args.networks:
                continue
            expected = runner(path)(others)
            for count in args.counts:
                for method in [*args.methods, *(["search"] if args.search else [])]:
                    options = {"search": True} if method == "search" else {"method": method}
                    output, again = folder / "q.onnx", folder / "again.onnx"
                    start = time.process_time()
                    report = quantize(path, data[:count], output, **options)
                    seconds = time.process_time() - start
                    order = "-"
                    if not args.forward:
                        quantize(path, data[:count][::-1], again, **options)
                        order = "equal" if output.read_bytes() == again.read_bytes() else "DIFFERS"
                    mean, least, same = sqnr(expected, runner(output)(others))
                    print(
                        f"{network:13} {count:8}  {method:10} {mean:8.1f} {least:7.1f} {100 * same:8.1f} "
                        f"{seconds:6.0f}  {order:5}  {report.ranges}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
