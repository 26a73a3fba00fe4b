"""An expression as source code: C11 and OpenCL C."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from sdk.expression.expression import Expression, Step, kinds
from sdk.expression.operations import OPERATIONS, Kind

Dialect = Literal["c", "opencl"]

TYPES: Mapping[Dialect, Mapping[Kind, str]] = {
    "c": {"real": "float", "int": "int64_t", "bool": "int"},
    "opencl": {"real": "float", "int": "long", "bool": "int"},
}


def statements(
    expression: Expression, inputs: Sequence[str], dialect: Dialect = "c", prefix: str = "t"
) -> tuple[list[str], str]:
    """Declarations, one a step, and the C expression that is the result.

    What the operations call beside the language and its library (`most`, `least`, `whole`, `sign_of`,
    `divide`, `absolute`, `remainder_of`, `round_TYPE`) the program has to define; in OpenCL C, whose "/" need
    not be correctly rounded, `quotient` too, which is.

    Args:
        expression: verified.
        inputs: C expressions of the inputs' elements, of the types that TYPES has for their kinds. Each is
            written once for every use.
        dialect: the language.
        prefix: of the names of variables.
    """
    known = kinds(expression)
    written = list(inputs)
    lines = []
    for number, step in enumerate(expression.steps):
        kind = known[len(inputs) + number]
        if step.op == "constant":
            written.append(_literal(step))
            continue
        operands = [written[arg] for arg in step.args]
        text = _call(step, operands, known[step.args[-1]], dialect)
        if dialect == "opencl" and step.op == "round" and step.dtype == "float32":
            text = _quotient(expression, step, written) or text
        if number == len(expression.steps) - 1:
            written.append(text)
            continue
        name = f"{prefix}{number}"
        lines.append(f"const {TYPES[dialect][kind]} {name} = {text};")
        written.append(name)
    return lines, written[-1]


def _quotient(expression: Expression, step: Step, written: Sequence[str]) -> str | None:
    """What rounds a division to float32: it has to be that of the real quotient."""
    number = step.args[0] - len(expression.inputs)
    if number < 0 or expression.steps[number].op != "div":
        return None
    a, b = (written[arg] for arg in expression.steps[number].args)
    return f"quotient({a}, {b})"


def _call(step: Step, operands: Sequence[str], kind: Kind, dialect: Dialect) -> str:
    if step.op == "round":
        return f"round_{step.dtype}({operands[0]})"
    operation = OPERATIONS[step.op]
    form = operation.c
    if dialect == "opencl" and operation.opencl is not None:
        form = operation.opencl
    if kind == "int" and operation.c_int is not None:
        form = operation.c_int
    return form.format(*operands)


def _literal(step: Step) -> str:
    value = step.value
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return f"(-INT64_C({-value - 1}) - 1)" if value < 0 else f"INT64_C({value})"
    if value is None or math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = f"{abs(value):.9g}"  # all of a float32
    text += "" if "." in text or "e" in text else ".0"
    return f"(-{text}f)" if math.copysign(1, value) < 0 else f"{text}f"
