"""Functions of one element: what float operators compute, for the 256 values that a quantised one can have.

Definitions and defaults of attributes are those of ONNX's Operators.md. Arithmetic is float32, operation by
operation, as onnxruntime's kernels do it. What they approximate (exp, tanh, erf: MLAS has polynomials) is
computed in float64 here and rounded once, so that a table is the same on every machine; onnxruntime may
then differ in an entry that lies within its error of a tie. Measured with onnxruntime 1.31 on x86-64 over 100
random pairs of scales: in none of 25,600 entries, for each of the functions that it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from sdk.importers.onnx_file import OnnxNode

Float32 = NDArray[np.float32]
Function = Callable[[OnnxNode, Float32], Float32]

SELU_ALPHA, SELU_GAMMA = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def hard_sigmoid(x: Float32, alpha: float, beta: float) -> Float32:
    """``max(0, min(1, alpha * x + beta))``."""
    return np.asarray(np.clip(np.float32(alpha) * x + np.float32(beta), np.float32(0), np.float32(1)))


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-x)))


def _elu(x: NDArray[np.float64], alpha: float, gamma: float = 1.0) -> NDArray[np.float64]:
    return np.asarray(gamma * np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x))


def _celu(node: OnnxNode, x: NDArray[np.float64]) -> NDArray[np.float64]:
    alpha = node.number("alpha", 1.0)
    return np.asarray(np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)))


def _gelu(node: OnnxNode, x: NDArray[np.float64]) -> NDArray[np.float64]:
    if node.text("approximate", "none") == "tanh":
        return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
    return np.asarray(0.5 * x * (1 + _erf(x / math.sqrt(2))))


def _erf(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([math.erf(value) for value in x], np.float64)


def _softplus(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.logaddexp(x, 0))


def _leaky(x: Float32, slope: Float32) -> Float32:
    return np.where(x < 0, slope * x, x)


def _rounded(function: Callable[[OnnxNode, NDArray[np.float64]], NDArray[np.float64]]) -> Function:
    """A function computed in float64 and rounded to float32."""

    def apply(node: OnnxNode, x: Float32) -> Float32:
        with np.errstate(all="ignore"):  # infinities saturate, NaN is refused
            return np.asarray(function(node, x.astype(np.float64)), np.float32)

    return apply


FUNCTIONS: Mapping[str, Function] = {
    "Abs": lambda _, x: np.abs(x),
    "Celu": _rounded(_celu),
    "Elu": _rounded(lambda node, x: _elu(x, node.number("alpha", 1.0))),
    "Erf": _rounded(lambda _, x: _erf(x)),
    "Exp": _rounded(lambda _, x: np.exp(x)),
    "Gelu": _rounded(_gelu),
    "HardSigmoid": lambda node, x: hard_sigmoid(x, node.number("alpha", 0.2), node.number("beta", 0.5)),
    "HardSwish": lambda _, x: x * hard_sigmoid(x, 1 / 6, 0.5),
    "LeakyRelu": lambda node, x: _leaky(x, np.asarray(node.number("alpha", 0.01), np.float32)),
    "Log": _rounded(lambda _, x: np.log(x)),
    "Mish": _rounded(lambda _, x: x * np.tanh(_softplus(x))),
    "Neg": lambda _, x: -x,
    "Reciprocal": _rounded(lambda _, x: 1 / x),
    "Selu": _rounded(
        lambda node, x: _elu(x, node.number("alpha", SELU_ALPHA), node.number("gamma", SELU_GAMMA))
    ),
    "Sigmoid": _rounded(lambda _, x: _sigmoid(x)),
    "Softplus": _rounded(lambda _, x: _softplus(x)),
    "Softsign": lambda _, x: x / (1 + np.abs(x)),
    "Sqrt": _rounded(lambda _, x: np.sqrt(x)),
    "Swish": _rounded(lambda node, x: x * _sigmoid(node.number("alpha", 1.0) * x)),
    "Tanh": _rounded(lambda _, x: np.tanh(x)),
    "ThresholdedRelu": lambda node, x: np.where(x > np.float32(node.number("alpha", 1.0)), x, np.float32(0)),
}
"""Operators of one input, by name."""

ARITHMETIC: Mapping[str, Callable[[Float32, Float32], Float32]] = {
    "Add": np.add,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "PRelu": _leaky,
    "Pow": np.power,
    "Sub": np.subtract,
}
"""Operators of several inputs: functions of one element where the others are scalars or functions of it."""
