"""Elementwise expressions: what a Map computes of one element of each of its inputs.

An expression is a list of steps. It is built by calling a Python function on symbols (`trace`), so that an
operator is written as one reads it: ``x * tanh(softplus(x))``. What a step means stands in one table
(`operations`): its value, how it maps an interval, how exact it has to be, and how C11 and OpenCL C spell it.

Reals are computed in float32, or what a target declares; their definition is real arithmetic, computed in
float64. How far a target may be off is not written down for each operator: `intervals` carries the set of
results that correct implementations of the steps can have.
"""

from sdk.expression.expression import Expression, Interval, Step, evaluate, intervals, kinds
from sdk.expression.operations import Kind
from sdk.expression.printer import statements
from sdk.expression.trace import Symbol, apply, clip, constant, replay, trace

__all__ = [
    "Expression",
    "Interval",
    "Kind",
    "Step",
    "Symbol",
    "apply",
    "clip",
    "constant",
    "evaluate",
    "intervals",
    "kinds",
    "replay",
    "statements",
    "trace",
]
