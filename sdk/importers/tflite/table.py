"""Which operators of TFLite are taken, and what each becomes: exact ones on 8 bits, plain ones, handles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sdk.errors import InvalidModel, Unsupported
from sdk.graph import Array
from sdk.importers.tflite import exact
from sdk.importers.tflite.file import TfliteOperator
from sdk.importers.tflite.plain.conversion import Conversion
from sdk.importers.tflite.plain.elementwise import Elementwise
from sdk.importers.tflite.plain.table import HANDLERS
from sdk.importers.tflite.states import shared_name
from sdk.importers.tflite.values import View
from sdk.importers.tflite.walk import Walk


def _var_handle(walk: Walk, node: TfliteOperator) -> None:
    """The name of a state."""
    walk.states.handles[walk.number, node.outputs[0]] = shared_name(node)


def _call_once(walk: Walk, node: TfliteOperator) -> None:
    """Initial values of states, where its subgraph assigns constants."""
    walk.states.call_once(node, walk.subgraph(node.option("CallOnceOptions", "InitSubgraphIndex")))


def _while(walk: Walk, node: TfliteOperator) -> None:
    """Its body as often as its condition, which constants have to decide, holds."""
    condition, body = (node.option("WhileOptions", f"{part}SubgraphIndex") for part in ("Cond", "Body"))
    values = [walk.value(node, index) for index in range(len(node.inputs))]
    for _ in range(LARGEST_LOOP):
        holds = next(iter(_run(walk, node, condition, values)), None)
        if holds is None or isinstance(holds, View) or holds.size != 1:
            raise node.unsupported(
                "how often its body runs depends on the inputs",
                "make the model with a fixed number of steps",
            )
        if not bool(holds.reshape(())):
            _define(walk, node, values)
            return
        values = _run(walk, node, body, values)
    raise node.unsupported(f"its body runs more than {LARGEST_LOOP} times", "make the model with fewer steps")


def _if(walk: Walk, node: TfliteOperator) -> None:
    """The branch that a constant chooses."""
    chosen = walk.value(node, 0)
    if isinstance(chosen, View) or chosen.size != 1:
        hint = "make the model with tf.where, or export the branch that is needed"
        raise node.unsupported("which branch runs depends on the inputs", hint)
    part = "Then" if bool(chosen.reshape(())) else "Else"
    values = [walk.value(node, index) for index in range(1, len(node.inputs))]
    _define(walk, node, _run(walk, node, node.option("IfOptions", f"{part}SubgraphIndex"), values))


def _run(walk: Walk, node: TfliteOperator, number: int, given: Sequence[Array | View]) -> list[Array | View]:
    """The outputs of a subgraph, its operators appended."""
    graph = walk.subgraph(number)
    if len(graph.inputs) != len(given) or number == walk.number:
        raise node.invalid(
            f"it gives {len(given)} inputs to subgraph {number}, which has {len(graph.inputs)}"
        )
    inner = walk.inside(number, given)
    for own in graph.operators:
        if len(walk.builder.nodes) > LARGEST_UNROLLED:
            raise node.unsupported(f"unrolled, the graph has more than {LARGEST_UNROLLED:,} nodes")
        try:
            convert(inner, own)
        except (Unsupported, InvalidModel) as problem:
            where = f"in {own.where} of its subgraph {number}"
            raise type(problem)(
                f"{where}: {problem.message}", where=node.where, hint=problem.hint
            ) from problem
    results: list[Array | View] = []
    for index in graph.outputs:
        if index not in inner.constants and index not in inner.views:
            raise node.invalid(f"nothing computes {graph.tensors[index].name!r} of its subgraph {number}")
        results.append(inner.constants[index] if index in inner.constants else inner.views[index])
    return results


def _define(walk: Walk, node: TfliteOperator, values: Sequence[Array | View]) -> None:
    if len(values) < len(node.outputs):
        raise node.invalid(f"{len(values)} results for {len(node.outputs)} outputs")
    for output, value in enumerate(values[: len(node.outputs)]):
        if isinstance(value, View):
            walk.alias(node, value, output)
        else:
            walk.fold(node, value, output)


LARGEST_LOOP = 1 << 10
LARGEST_UNROLLED = 1 << 15
"""Iterations of a loop, and nodes of the graph behind each of its operators."""

CONTROL: Mapping[str, Callable[[Walk, TfliteOperator], None]] = {
    "CALL_ONCE": _call_once,
    "IF": _if,
    "VAR_HANDLE": _var_handle,
    "WHILE": _while,
}

WITHOUT_RESULT = ("ASSIGN_VARIABLE", "CALL_ONCE")


def convert(walk: Walk, node: TfliteOperator) -> None:
    """Append what an operator becomes.

    Raises:
        Unsupported: there is no handler, or it is refused.
        InvalidModel: it contradicts itself or the file.
    """
    _check(node)
    if node.op in CONTROL:
        try:
            CONTROL[node.op](walk, node)
        except InvalidModel as problem:
            raise node.invalid(problem.message, problem.hint) from problem
        return
    tensors = [walk.model.tensors[i] for i in (*node.inputs, *node.outputs) if i >= 0]
    if node.op in exact.OPERATORS and any(t.is_quantized and t.index not in walk.constants for t in tensors):
        try:
            exact.OPERATORS[node.op](walk, node)
            return
        except Unsupported as problem:
            if node.op not in HANDLERS:
                raise
            first: Unsupported | None = problem
    else:
        first = None
    conversion = Conversion(walk, node)
    try:
        HANDLERS[node.op](conversion)
        conversion.finish()
    except Unsupported as problem:
        message, hint = (first.message, first.hint) if first else (problem.message, problem.hint)
        raise node.unsupported(message, hint) from problem
    except InvalidModel as problem:
        raise node.invalid(problem.message, problem.hint) from problem


def _check(node: TfliteOperator) -> None:
    if node.op not in HANDLERS and node.op not in CONTROL:
        message = f"{node.op} is not supported"
        raise node.unsupported(message, "cut the model before it; docs/tflite.md lists what is supported")
    if node.op not in WITHOUT_RESULT and (not node.outputs or node.outputs[0] < 0):
        raise node.invalid(f"{node.op} without a result")


def tflite_table() -> list[tuple[str, str]]:
    """TFLite operators that become the same, joined, and what that is; for the documentation."""
    rows: dict[str, list[str]] = {}
    for name in (*HANDLERS, *CONTROL):
        rows.setdefault(_meaning(name), []).append(name)
    return sorted((", ".join(sorted(names)), meaning) for meaning, names in rows.items())


def _meaning(name: str) -> str:
    handler = HANDLERS.get(name) or CONTROL[name]
    meaning = handler.meaning if isinstance(handler, Elementwise) else (handler.__doc__ or "").splitlines()[0]
    plain = meaning.rstrip(".")
    own = exact.OPERATORS.get(name)
    return f"{plain}. Exact in 8 bits: {exact.meaning(own)}." if own else f"{plain}."
