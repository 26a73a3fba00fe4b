"""ONNX files of others, a folder of them: which are accepted, and whether they compute what onnxruntime does.

`python -m tests.strangers FOLDER [WORD ...] [--json FILE] [--no-check]` imports, compiles for the target c,
runs and checks each .onnx file of the folder (those whose name has one of the words), and prints a table,
then every refusal and how many files have it. Exit code 1 where a result is wrong.

Where `test_data_set_0` of onnx's own tests lies beside a file, it has the inputs and the results. Else
extents that a file leaves open are the first of a few sizes that onnxruntime runs. `strangers.json` in the
folder says more of a file: {"NAME.onnx": {"shapes": {"input": [1, 3, 64, 64]}, "values": {"sr": 16000},
"ranges": {"tokens": [0, 256]}, "constants": {"mode": 1}, "outputs": ["box"]}}. `values` and `ranges` (of
whole numbers) are fed; `constants` and `outputs` are what `towline.compile` takes by those names.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import towline
from sdk import artifact, check, compiler, dtypes
from sdk.errors import TowlineError, Unsupported
from sdk.importers.cutting import cut
from sdk.importers.onnx_file import element_name
from sdk.report import table

Array = np.ndarray[Any, Any]

SIZES = (64, 32, 1, 128, 48, 320, 512, 16, 8, 4, 2)
"""What an open extent is tried with."""

LIMIT = 20
"""How many times onnxruntime's own spread a result may be away from it, as DESIGN has it."""


STORED_SPREAD = 1e-5
"""Of results that a file's tests have: nothing else is known of them."""


@dataclass
class Stranger:
    """One file and what became of it.

    Attributes:
        name: of the file.
        nodes: how many it has.
        verdict: accepted, refused, wrong, or odd (onnxruntime does not run it).
        why: of a verdict other than accepted.
        refusals: (operator, reason) of each refused node.
        elements, outside, ties: of the check.
        difference: from onnxruntime, as a part of the largest magnitude, of the worst output.
        limit: for that output.
        seconds: of CPU time: import, and all until the check has ended.
    """

    name: str
    nodes: int = 0
    verdict: str = ""
    why: str = ""
    refusals: list[tuple[str, str]] = field(default_factory=list)
    shapes: dict[str, list[int]] = field(default_factory=dict)
    elements: int = 0
    outside: int = 0
    ties: int = 0
    worst_share: float = 0.0
    difference: float = 0.0
    limit: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)


def session(model: onnx.ModelProto, *, optimize: bool) -> onnxruntime.InferenceSession:
    """An onnxruntime session, with all optimisations or without any."""
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    options.log_severity_level = 4
    content = model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def open_inputs(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Inputs that no initializer fills, by name."""
    filled = {tensor.name for tensor in model.graph.initializer}
    return {value.name: value for value in model.graph.input if value.name not in filled}


def shape_trials(
    model: onnx.ModelProto, given: Mapping[str, Sequence[int]]
) -> Iterator[dict[str, list[int]]]:
    """Shapes of all inputs: those given, and each of SIZES for what is open; first extents are 1."""
    for size in SIZES:
        shapes = {}
        for name, value in open_inputs(model).items():
            dims = value.type.tensor_type.shape.dim
            shape = [dim.dim_value if dim.dim_value > 0 else size for dim in dims]
            if dims and dims[0].dim_value <= 0 and len(dims) > 1:
                shape[0] = 1
            if len(dims) == 4 and dims[1].dim_value <= 0:
                shape[1] = 3 if dims[3].dim_value != 3 else shape[1]
            shapes[name] = list(given.get(name, shape))
        yield shapes


def example(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], known: Mapping[str, Any]
) -> dict[str, Array]:
    """Inputs: noise over coarse noise for pictures, noise for sounds, zeros and ones for whole numbers."""
    random = np.random.default_rng(0)
    values = {**known.get("constants", {}), **known.get("values", {})}
    ranges = known.get("ranges", {})
    feeds: dict[str, Array] = {}
    for name, value in open_inputs(model).items():
        dtype = dtypes.storage(element_name(value.type.tensor_type.elem_type))
        shape = tuple(shapes[name])
        if name in values:
            feeds[name] = np.broadcast_to(np.asarray(values[name], dtype), shape).copy()
        elif np.issubdtype(dtype, np.floating):
            noise = random.standard_normal(shape)
            if len(shape) == 4 and min(shape[2:]) >= 32:
                rows, columns = (-(-extent // 8) for extent in shape[2:])
                coarse = random.standard_normal((*shape[:2], 8, 8)).repeat(rows, 2).repeat(columns, 3)
                noise = (noise + 2 * coarse[:, :, : shape[2], : shape[3]]) / 2
            feeds[name] = noise.astype(dtype)
        elif dtype == np.uint8 and len(shape) == 4:
            feeds[name] = random.integers(0, 256, shape).astype(dtype)
        else:
            feeds[name] = random.integers(*ranges.get(name, (0, 2)), shape).astype(dtype)
    return feeds


def trial(
    model: onnx.ModelProto, path: Path, known: Mapping[str, Any]
) -> tuple[dict[str, Array], dict[str, Array], list[dict[str, Array]]] | str:
    """Inputs that onnxruntime takes, its outputs, and others that are as right; or why there are none.

    The others are with all optimisations, and of inputs that are one rounding away.
    """
    stored = path.parent / "test_data_set_0"
    if stored.is_dir():
        inputs = list(open_inputs(model).values())
        feeds = _stored(stored, "input", [value.name for value in inputs])
        wanted = _stored(stored, "output", [value.name for value in model.graph.output])
        return feeds, wanted, []
    try:
        plain = session(model, optimize=False)
    except Exception as problem:
        return str(problem).split("\n")[0]
    names = [value.name for value in plain.get_outputs()]
    why = ""
    for shapes in shape_trials(model, known.get("shapes", {})):
        try:
            feeds = example(model, shapes, known)
            first = dict(zip(names, plain.run(names, feeds), strict=True))
        except Exception as problem:
            why = str(problem).split("\n")[0]
            continue
        optimized = session(model, optimize=True)
        others = [optimized.run(names, feeds), plain.run(names, nudged(feeds))]
        return feeds, first, [dict(zip(names, results, strict=True)) for results in others]
    return why


def _stored(folder: Path, kind: str, names: Sequence[str]) -> dict[str, Array]:
    """Tensors of a test data set by name, as far as they are tensors."""
    found = {}
    for index, name in enumerate(names):
        path = folder / f"{kind}_{index}.pb"
        found[name] = numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
    return found


def nudged(feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs one rounding away: how far results are then apart says what float32 leaves open."""
    random = np.random.default_rng(1)
    return {
        name: np.nextafter(array, random.choice([-np.inf, np.inf], array.shape).astype(array.dtype))
        if array.dtype.kind == "f"
        else array
        for name, array in feeds.items()
    }


def measure(path: Path, known: Mapping[str, Any], *, checks: bool = True) -> Stranger:
    """Import, compile, run, check and compare one file."""
    model = onnx.load(path)
    cut(model, outputs=known.get("outputs", ()), where=path.name)
    found = Stranger(path.name, len(model.graph.node))
    started = time.process_time()
    tried = trial(model, path, known)
    if isinstance(tried, str):
        found.verdict, found.why = "odd", f"onnxruntime: {tried}"
        return found
    feeds, plain, others = tried
    found.seconds["onnxruntime"] = time.process_time() - started
    found.shapes = {name: list(array.shape) for name, array in feeds.items()}
    options: dict[str, Any] = {name: known[name] for name in ("outputs", "constants") if name in known}
    open_ = {
        name: array.shape
        for name, array in feeds.items()
        if name not in known.get("constants", {}) and array.shape
    }
    started = time.process_time()
    try:
        network = compiler.compile(path, "c", input_shapes=open_, **options)
    except TowlineError as problem:
        found.verdict, found.why = "refused", str(problem)
        refusals = problem.refusals if isinstance(problem, Unsupported) else ()
        found.refusals = [(refusal.op, refusal.reason) for refusal in refusals]
        found.seconds["refusing"] = time.process_time() - started
        return found
    found.seconds["import"] = network.seconds["import"]
    found.seconds["compile"] = time.process_time() - started
    given = {name: array for name, array in feeds.items() if name in network.graph.inputs}
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        artifact.save(network, Path(folder) / "net.tow")
        with towline.Session(Path(folder) / "net.tow") as running:
            results = running.run(given)
            if checks:
                verdict = check.check(running.artifact, running, given)
                found.elements = verdict.elements + verdict.float_elements
                found.outside = verdict.mismatches + verdict.outside
                found.ties = verdict.ties
                found.worst_share = verdict.worst_share
    found.seconds["check"] = time.process_time() - started
    found.verdict = "accepted"
    for name in plain:
        compare(found, name, np.asarray(results[name]), plain[name], [other[name] for other in others])
    if found.outside:
        found.verdict, found.why = "wrong", f"{found.outside} elements outside their bound"
    return found


def compare(found: Stranger, name: str, ours: Array, plain: Array, others: Sequence[Array]) -> None:
    """Hold an output against onnxruntime's, as closely as that agrees with itself."""
    if ours.shape != plain.shape:
        found.verdict, found.why = "wrong", f"{name} is {ours.shape}, not {plain.shape}"
        return
    exact = plain.astype(np.float64)
    scale = float(np.abs(exact[np.isfinite(exact)]).max(initial=0)) or 1.0
    spread = max((_largest(other, exact) for other in others), default=STORED_SPREAD * scale) / scale
    limit = LIMIT * spread + 1e-6 if plain.dtype != np.float16 else max(LIMIT * spread, 3e-3)
    difference = _largest(ours, exact) / scale
    if difference > limit and found.verdict == "accepted":
        found.verdict, found.why = "differs", f"{name}: {difference:.2g} exceeds {limit:.2g}"
    if difference / limit >= found.difference / (found.limit or 1):
        found.difference, found.limit = difference, limit


def _largest(found: Array, exact: Array) -> float:
    """The largest difference; infinite where one is a number and the other is not."""
    found = found.astype(np.float64)
    same = (found == exact) | (np.isnan(found) & np.isnan(exact))
    with np.errstate(invalid="ignore"):
        distance = np.where(same, 0, np.abs(found - exact))
    return float(np.nan_to_num(distance, nan=np.inf).max(initial=0))


def known_of(folder: Path) -> dict[str, Any]:
    """What `strangers.json` says, by file name."""
    path = folder / "strangers.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.strangers")
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="*", help="files whose name has one of them")
    parser.add_argument("--json", type=Path, help="write all that was found")
    parser.add_argument("--no-check", action="store_true", help="compare outputs alone")
    args = parser.parse_args()
    known, strangers = known_of(args.folder), []
    for path in sorted(args.folder.rglob("*.onnx")):
        name = path.relative_to(args.folder).as_posix()
        if args.words and not any(word in name for word in args.words):
            continue
        try:
            one = measure(path, known.get(path.name, {}), checks=not args.no_check)
        except Exception as problem:  # a traceback is a defect; the others are still wanted
            one = Stranger("", verdict="crashed", why=f"{type(problem).__name__}: {problem}")
        one.name = name
        strangers.append(one)
        print(f"{one.name}: {one.verdict} {one.why[:300]}", file=sys.stderr, flush=True)
        if args.json:
            args.json.write_text(json.dumps([dataclasses.asdict(each) for each in strangers], indent=1))
    print(report(strangers))
    return int(any(one.verdict not in ("accepted", "refused", "odd") for one in strangers))


def report(strangers: Sequence[Stranger]) -> str:
    """The table, the counts, and how common each refusal is."""
    rows = [
        (
            one.name,
            one.nodes,
            one.verdict,
            one.elements,
            one.outside,
            one.ties,
            f"{one.difference:.1e}" if one.verdict != "refused" else "",
            f"{one.limit:.1e}" if one.verdict != "refused" else "",
            f"{one.seconds.get('import', one.seconds.get('refusing', 0)):.1f}",
        )
        for one in strangers
    ]
    head = ("file", "nodes", "verdict", "elements", "outside", "ties", "difference", "limit", "import s")
    counts = Counter(one.verdict for one in strangers)
    reasons = Counter(
        (op, reason.split("'")[0].split(":")[0])
        for one in strangers
        for op, reason in {(op or "-", why) for op, why in one.refusals or [("", one.why)]}
        if one.verdict == "refused"
    )
    lines = [
        table(head, rows),
        "",
        f"{len(strangers)} files: "
        + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())),
    ]
    lines += [f"{one.name}: {one.verdict}: {one.why}" for one in strangers if one.verdict != "accepted"]
    lines += [f"{count} files: {op}: {reason}" for (op, reason), count in reasons.most_common()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
