"""Operators that onnxruntime's optimiser writes (domain com.microsoft), as the ONNX operators they stand for.

Definitions are those of onnxruntime's ContribOperators.md, and where that is silent its kernels for the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sdk.expression.trace import Symbol, apply, sigmoid
from sdk.extras import require
from sdk.importers.onnx_file import decode_node
from sdk.importers.plain.conversion import Conversion
from sdk.importers.plain.elementwise import Elementwise
from sdk.importers.values import Constant

Handler = Callable[[Conversion], None]
DOMAIN = "com.microsoft"
OPSET = 20
"""Of the ONNX operators that are written here."""


class Steps:
    """ONNX nodes that one operator stands for, converted one by one.

    Values are names; those that are made are OUTPUT/NUMBER_OPERATOR.
    """

    def __init__(self, c: Conversion) -> None:
        self.c = c
        self.count = 0
        self.opsets = {**c.walk.opsets, "": OPSET}

    def __call__(
        self,
        op: str,
        *inputs: str | ArrayLike,
        output: int | None = None,
        outputs: int = 1,
        **attributes: Any,
    ) -> str:
        """Convert one node and give the name of its (first) result.

        Args:
            op: the ONNX operator.
            inputs: names, or values of constants; "" for one left out.
            output: which of the operator's outputs it makes.
            outputs: how many it has; the others' names end in their number.
            attributes: of the node.
        """
        node, self.count = self.c.node, self.count + 1
        part = f"{self.count}_{op}"
        name = f"{self.c.first}/{part}" if output is None else node.outputs[output]
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        made = [name, *(f"{name}_{index}" for index in range(1, outputs))]
        own = node.name if output == 0 else f"{node.name}/{part}"
        proto = require("onnx.helper").make_node(op, names, made, name=own, **attributes)
        self.c.walk.convert(decode_node(proto, self.opsets))
        return name

    def constant(self, value: ArrayLike) -> str:
        """A constant's name; floats are of the operator's dtype."""
        array = np.asarray(value)
        if array.dtype.kind == "f":
            dtype = self.c.x(0).dtype
            array = array.astype("float16" if dtype == "float16" else "float32")
        self.count += 1
        name = f"{self.c.first}/{self.count}_constant"
        self.c.walk.values[name] = Constant(name, array)
        return name

    def given(self, index: int) -> str:
        """The name of input `index`, "" where it is left out."""
        names = self.c.node.inputs
        return names[index] if index < len(names) else ""

    def wanted(self, output: int) -> bool:
        """Whether output `output` has a reader."""
        names = self.c.node.outputs
        return output < len(names) and bool(names[output])

    def shape(self, index: int) -> tuple[int, ...]:
        """Of input `index`."""
        return self.c.x(index).shape


# --- elementwise ------------------------------------------------------------------------------------------


def _gelu(x: Symbol) -> Symbol:
    return x * 0.5 * (apply("erf", x * math.sqrt(0.5)) + 1)


def _fast_gelu(x: Symbol) -> Symbol:
    return x * 0.5 * (apply("tanh", (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1)


# --- normalisations ---------------------------------------------------------------------------------------


def simplified_layer_normalization(c: Conversion) -> None:
    """RMSNormalization."""
    _normalize(Steps(c), c.node.inputs[0], c.node.inputs[1], "", centre=False, epsilon=1e-5)


def skip_layer_normalization(c: Conversion) -> None:
    """Add and a normalisation: layer or RMS."""
    s, centre = Steps(c), c.node.op_type == "SkipLayerNormalization"
    total = s("Add", s.given(0), s.given(1))
    bias = s.given(4 if centre else 3)
    if bias:
        total = s("Add", total, bias)
    _normalize(s, total, s.given(2), s.given(3) if centre else "", centre=centre, epsilon=1e-12)
    if s.wanted(3):
        s("Identity", total, output=3)
    if s.wanted(1) or s.wanted(2):
        raise c.node.unsupported(f"the mean and the deviation of {c.node.op_type}", "leave out those outputs")


def _normalize(s: Steps, x: str, scale: str, bias: str, *, centre: bool, epsilon: float) -> None:
    attributes: dict[str, Any] = {
        "axis": s.c.node.integer("axis", -1),
        "epsilon": s.c.node.number("epsilon", epsilon),
    }
    if centre:
        s("LayerNormalization", x, scale, bias, output=0, **attributes)
        return
    s.opsets[""] = 23  # the first that has it
    s("RMSNormalization", x, scale, output=0, **attributes)


def embed_layer_normalization(c: Conversion) -> None:
    """Gathers, Adds and a LayerNormalization."""
    s = Steps(c)
    ids, segments, words, positions, kinds, gamma, beta, mask, places = (s.given(i) for i in range(9))
    rows, steps = s.shape(0)
    if places:
        chosen = s("Gather", positions, places, axis=0)
    else:
        chosen = s("Slice", positions, np.array([0]), np.array([steps]), np.array([0]))
    total = s("Add", s("Gather", words, ids, axis=0), chosen)
    if segments:
        total = s("Add", total, s("Gather", kinds, segments, axis=0))
    _normalize(s, total, gamma, beta, centre=True, epsilon=1e-12)
    if s.wanted(1):
        if mask:
            s("ReduceSum", mask, np.array([1]), output=1, keepdims=0)
        else:
            c.walk.values[c.node.outputs[1]] = Constant(c.node.outputs[1], np.zeros(rows, np.int32))
    if s.wanted(2):
        s("Identity", total, output=2)


# --- products ---------------------------------------------------------------------------------------------


def fused_matmul(c: Conversion) -> None:
    """MatMul, behind Transposes and before a factor where it has them."""
    s, sides, factor = Steps(c), [], c.node.number("alpha", 1.0)
    for index, side in enumerate("AB"):
        order = list(range(len(s.shape(index))))
        if c.node.integer(f"transBatch{side}", 0):  # the first axis is the last but one
            order = [*order[1:-1], order[0], order[-1]]
        if c.node.integer(f"trans{side}", 0) and len(order) > 1:
            order[-2:] = order[:-3:-1]
        plain = order == sorted(order)
        sides.append(s.given(index) if plain else s("Transpose", s.given(index), perm=order))
    if factor == 1:
        s("MatMul", *sides, output=0)
    else:
        s("Mul", s("MatMul", *sides), factor, output=0)


def fused_gemm(c: Conversion) -> None:
    """Gemm and an activation."""
    node, s = c.node, Steps(c)
    attributes = {
        name: node.attributes[name]
        for name in ("alpha", "beta", "transA", "transB")
        if name in node.attributes
    }
    result = s("Gemm", *filter(None, node.inputs), **attributes)
    _activate(s, result, [node.number(f"activation_{name}", 0.0) for name in ("alpha", "beta")])


def fused_conv(c: Conversion) -> None:
    """Conv, Add and an activation."""
    node, s = c.node, Steps(c)
    attributes = {name: value for name, value in node.attributes.items() if not name.startswith("activation")}
    result = s("Conv", *(name for name in node.inputs[:3]), **attributes)
    if s.given(3):
        result = s("Add", result, s.given(3))
    parameters = node.attributes.get("activation_params") or ()
    _activate(s, result, [float(value) for value in parameters])


ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("HardSwish", "Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"), ()),
    **dict.fromkeys(("Celu", "Elu", "LeakyRelu", "ThresholdedRelu"), ("alpha",)),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
}
"""Operators that products are fused with, and their attributes in the order of parameters."""


def _activate(s: Steps, x: str, parameters: Sequence[float]) -> None:
    """The activation that the node names, of these parameters, as its output."""
    name = s.c.node.text("activation", "")
    if name in ACTIVATIONS:
        given: dict[str, Any] = dict(zip(ACTIVATIONS[name], parameters, strict=False))
        s(name, x, output=0, **given)
    elif name == "Clip" and len(parameters) == 2:
        s("Clip", x, *(np.float32(bound) for bound in parameters), output=0)
    elif not name:
        s("Identity", x, output=0)
    else:
        raise s.c.node.unsupported(f"the activation {name!r} with parameters {list(parameters)}")


# --- attention --------------------------------------------------------------------------------------------


def attention(c: Conversion) -> None:
    """MatMuls, a Softmax and moves between them."""
    node, s = c.node, Steps(c)
    if node.integer("do_rotary", 0) or node.integer("past_present_share_buffer", 0) or s.given(6):
        raise node.unsupported("Attention with rotary embedding, or a past of variable length")
    (rows, steps, _), width = s.shape(0), s.shape(1)[-1]
    sizes = node.integers("qkv_hidden_sizes") or (width // 3,) * 3
    heads = _heads(c, sizes)
    joint = s("MatMul", s.given(0), s.given(1))
    if s.given(2):
        joint = s("Add", joint, s.given(2))
    parts = _split(s, joint, sizes, axis=2)
    query, key, value = (
        _by_head(s, part, (rows, steps, heads, size // heads))
        for part, size in zip(parts, sizes, strict=True)
    )
    total = steps
    if s.given(4):
        old = [s("Squeeze", part, np.array([0])) for part in _split(s, s.given(4), (1, 1), axis=0)]
        key, value = s("Concat", old[0], key, axis=2), s("Concat", old[1], value, axis=2)
        total += s.shape(4)[3]
    if s.wanted(1):
        both = [s("Unsqueeze", part, np.array([0])) for part in (key, value)]
        s("Concat", *both, output=1, axis=0)
    terms = [*_mask(s, 3, (rows, steps, total)), *filter(None, [s.given(5)])]
    _attend(s, query, key, value, terms, (rows, steps, total), (sizes[0] // heads, sizes[2]))


def multi_head_attention(c: Conversion) -> None:
    """MatMuls, a Softmax and moves between them."""
    node, s = c.node, Steps(c)
    if not s.given(1) or not s.given(2):
        raise node.unsupported("MultiHeadAttention of packed operands", "unpack query, key and value")
    if len(s.shape(0)) != 3 or s.given(8) or s.given(9) or s.wanted(3):
        raise node.unsupported("MultiHeadAttention with a shared buffer, or its scores as an output")
    rows, steps, width = s.shape(0)
    heads, value_shape = _heads(c, (width,)), s.shape(2)
    inner = value_shape[-1] if len(value_shape) == 3 else value_shape[1] * value_shape[3]
    names = [s.given(index) for index in range(3)]
    if s.given(3):
        biases = _split(s, s.given(3), (width, width, inner), axis=0)
        for index, bias in enumerate(biases):
            if len(s.shape(index)) == 3:
                names[index] = s("Add", names[index], bias)
    query, key, value = (
        name
        if len(shape := s.shape(index)) == 4
        else _by_head(s, name, (*shape[:2], heads, shape[2] // heads))
        for index, name in enumerate(names)
    )
    total = s.shape(1)[1] if len(s.shape(1)) == 3 else s.shape(1)[2]
    if s.given(6):
        key, value = s("Concat", s.given(6), key, axis=2), s("Concat", s.given(7), value, axis=2)
        total += s.shape(6)[2]
    for index, name in ((1, key), (2, value)):
        if s.wanted(index):
            s("Identity", name, output=index)
    terms = [*_mask(s, 4, (rows, steps, total)), *filter(None, [s.given(5)])]
    _attend(s, query, key, value, terms, (rows, steps, total), (width // heads, inner))


def _heads(c: Conversion, sizes: Sequence[int]) -> int:
    heads = c.node.integer("num_heads", 0)
    if heads < 1 or any(size % heads for size in sizes):
        raise c.node.invalid(f"{heads} heads of {list(sizes)} channels")
    return heads


def _split(s: Steps, x: str, sizes: Sequence[int], *, axis: int) -> list[str]:
    first = s("Split", x, np.array(sizes), outputs=len(sizes), axis=axis)
    return [first, *(f"{first}_{index}" for index in range(1, len(sizes)))]


def _by_head(s: Steps, x: str, shape: Sequence[int]) -> str:
    """[rows, steps, heads * size] as [rows, heads, steps, size]."""
    return s("Transpose", s("Reshape", x, np.array(shape)), perm=[0, 2, 1, 3])


def _mask(s: Steps, index: int, shape: tuple[int, int, int]) -> list[str]:
    """A term of the scores that leaves out keys as input `index` says: [rows, 1, steps or 1, total]."""
    if not s.given(index):
        return []
    (rows, _, total), mask, found = shape, s.given(index), s.shape(index)
    if found == (rows,) and (rows, total) != (1, 1):  # how many keys there are
        lengths = s("Cast", s("Unsqueeze", mask, np.array([1])), to=7)
        seen = s("Less", np.arange(total)[None], lengths)
    elif found in ((rows, total), (rows, *shape[1:])):
        seen = s("Cast", mask, to=9)
    else:
        raise s.c.node.unsupported(f"a mask {list(found)}", "give one of [rows, keys] or [rows, steps, keys]")
    seen = s("Unsqueeze", seen, np.array([1] if len(found) == 3 else [1, 2]))
    away = s.c.node.number("mask_filter_value", -10000.0)
    return [s("Where", seen, np.float32(0), np.float32(away))]


def _attend(
    s: Steps,
    query: str,
    key: str,
    value: str,
    terms: Sequence[str],
    shape: tuple[int, int, int],
    sizes: tuple[int, int],
) -> None:
    """Output 0: softmax of scaled products and terms, times values; `sizes` of a head and the result."""
    (rows, steps, total), node = shape, s.c.node
    scale = node.number("scale", 0.0) or 1 / math.sqrt(sizes[0])
    scores = s("Mul", s("MatMul", query, s("Transpose", key, perm=[0, 1, 3, 2])), np.float32(scale))
    for term in terms:
        scores = s("Add", scores, term)
    if node.integer("unidirectional", 0):
        node.require_room(steps * total)
        seen = np.tril(np.ones((steps, total), bool), total - steps)
        scores = s("Where", seen, scores, np.float32(-np.inf))
    found = s("MatMul", s("Softmax", scores, axis=-1), value)
    s("Reshape", s("Transpose", found, perm=[0, 2, 1, 3]), np.array([rows, steps, sizes[1]]), output=0)


def rotary_embedding(c: Conversion) -> None:
    """Gather, Slice, Mul, Add and Concat."""
    node, s = c.node, Steps(c)
    shape, places, width = s.shape(0), s.shape(1), node.integer("rotary_embedding_dim", 0)
    half, steps = s.shape(2)[1], shape[-2] if len(shape) == 4 else shape[1]
    if len(shape) == 3:
        heads = node.integer("num_heads", 0) or shape[2] // (width or 2 * half)
        x = _by_head(s, s.given(0), (*shape[:2], heads, shape[2] // heads))
        size = shape[2] // heads
    else:
        x, size = s.given(0), shape[3]
    width = width or size
    if node.number("scale", 1.0) != 1 or half * 2 != width or width > size:
        raise node.unsupported(
            f"a rotary embedding of {width} of {size} channels by {half} angles, or scaled"
        )
    first = s.given(1) if places == (shape[0], steps) else s("Add", s.given(1), np.arange(steps)[None])
    cosine, sine = (
        s("Unsqueeze", s("Gather", s.given(index), first, axis=0), np.array([1])) for index in (2, 3)
    )
    rest = []
    if width < size:
        x, rest = _split(s, x, (width, size - width), axis=3)[0], [f"{s.c.first}/{s.count - 1}_Split_1"]
    if node.integer("interleaved", 0):
        pairs = s("Reshape", x, np.array([0, 0, 0, half, 2]))
        a, b = (s("Gather", pairs, np.array(which), axis=4) for which in (0, 1))
    else:
        a, b = _split(s, x, (half, half), axis=3)
    turned = [
        s("Sub", s("Mul", a, cosine), s("Mul", b, sine)),
        s("Add", s("Mul", a, sine), s("Mul", b, cosine)),
    ]
    if node.integer("interleaved", 0):
        stacked = s("Concat", *(s("Unsqueeze", part, np.array([4])) for part in turned), axis=4)
        turned = [s("Reshape", stacked, np.array([0, 0, 0, width]))]
    result = s("Concat", *turned, *rest, axis=3)
    if len(shape) == 3:
        s("Reshape", s("Transpose", result, perm=[0, 2, 1, 3]), np.array(shape), output=0)
    else:
        s("Identity", result, output=0)


def same_as(op: str) -> Handler:
    """An operator that ONNX has taken over since."""

    def handler(c: Conversion) -> None:
        Steps(c)(op, *c.node.inputs, output=0, **c.node.attributes)

    handler.__doc__ = f"{op} of ONNX."
    return handler


HANDLERS: Mapping[tuple[str, str], Handler] = {
    (DOMAIN, "Attention"): attention,
    (DOMAIN, "BiasGelu"): Elementwise(lambda _, x, bias: _gelu(x + bias)),
    (DOMAIN, "EmbedLayerNormalization"): embed_layer_normalization,
    (DOMAIN, "FastGelu"): Elementwise(lambda _, x, *bias: _fast_gelu(x + bias[0] if bias else x)),
    (DOMAIN, "FusedConv"): fused_conv,
    (DOMAIN, "FusedGemm"): fused_gemm,
    (DOMAIN, "FusedMatMul"): fused_matmul,
    (DOMAIN, "Gelu"): Elementwise(lambda _, x: _gelu(x)),
    (DOMAIN, "GridSample"): same_as("GridSample"),
    (DOMAIN, "MultiHeadAttention"): multi_head_attention,
    (DOMAIN, "QuickGelu"): Elementwise(lambda n, x: x * sigmoid(x * n.number("alpha", 1.702))),
    (DOMAIN, "RotaryEmbedding"): rotary_embedding,
    (DOMAIN, "SkipLayerNormalization"): skip_layer_normalization,
    (DOMAIN, "SkipSimplifiedLayerNormalization"): skip_layer_normalization,
    (DOMAIN, "TransposeMatMul"): fused_matmul,
    (DOMAIN, "Trilu"): same_as("Trilu"),
    ("", "SimplifiedLayerNormalization"): simplified_layer_normalization,
}
