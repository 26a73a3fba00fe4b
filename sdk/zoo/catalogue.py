"""The networks of the zoo by name: NETWORK, NETWORK_WIDTH or NETWORK_WIDTH_SIZE, and what is in each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sdk.errors import UsageError
from sdk.extras import require
from sdk.states import PREFIX
from sdk.suggestions import did_you_mean
from sdk.zoo.builder import Network
from sdk.zoo.decoder import decoder
from sdk.zoo.depth import depth
from sdk.zoo.detector_one_stage import detector_one_stage
from sdk.zoo.driving import driving
from sdk.zoo.keyword_spotter import keyword_spotter
from sdk.zoo.networks import NETWORKS
from sdk.zoo.nv12 import camera
from sdk.zoo.segmentation import segmentation
from sdk.zoo.vision_transformer import vision_transformer

INT8, FLOAT = "int8", "float"


@dataclass(frozen=True)
class Entry:
    """A network of the zoo.

    Attributes:
        build: of width, and of size unless that is 0; a Network, or an onnx.ModelProto.
        width: by default.
        size: by default: pixels, samples or positions; 0 of a network that has one size.
        precision: in which its name alone is meant: "int8", quantised by us, or "float", as it is built.
        unquantized: why it is not quantised; "" of one that is.
    """

    build: Callable[..., Any]
    width: float = 1.0
    size: int = 224
    precision: str = FLOAT
    unquantized: str = ""


ZOO: Mapping[str, Entry] = {
    **{name: Entry(build, precision=INT8) for name, build in NETWORKS.items()},
    "camera": Entry(camera, size=128, unquantized="its bytes stay what they are, and its places are floats"),
    "decoder": Entry(
        decoder, size=128, unquantized="its inputs are integers, and its cache would be rounded"
    ),
    "depth": Entry(depth, size=256),
    "detector_one_stage": Entry(detector_one_stage, size=320),
    "driving": Entry(driving, 1.75, 0, unquantized="it is a float16 network"),
    "keyword_spotter": Entry(keyword_spotter, size=16000),
    "segmentation": Entry(segmentation, size=256),
    "vision_transformer": Entry(vision_transformer),
}
"""By the first part of a name."""

ALIASES = {"driving_small": "driving_1.0", "driving_50m": "driving", "driving_large": "driving_7.5"}
"""Names of one width each: 18, 50 and 880 million parameters."""

PATTERN = re.compile(
    rf"(?P<network>{'|'.join(sorted(ZOO, key=len, reverse=True))})"
    rf"(_(?P<width>\d+\.\d+)(_(?P<size>\d+))?)?(_(?P<precision>{INT8}|{FLOAT}))?"
)
"""NETWORK_WIDTH_SIZE, as TensorFlow's model zoo spells it, mobilenet_v2_1.0_224; parts may be left out."""


@dataclass(frozen=True)
class Name:
    """A name of the zoo, its parts filled in."""

    network: str
    width: float
    size: int
    precision: str

    @property
    def entry(self) -> Entry:
        return ZOO[self.network]

    def build(self, seed: int = 0) -> Any:
        """The float network: a Network, or an onnx.ModelProto.

        Raises:
            UsageError: a width or size that no such network has.
        """
        size = {"size": self.size} if self.size else {}
        return self.entry.build(width=self.width, **size, seed=seed)


def names() -> list[str]:
    """All names without width and size, those of one width in place of the network's own."""
    widths = {ALIASES[alias].split("_")[0] for alias in ALIASES}
    return sorted({*ZOO, *ALIASES} - widths)


def find(name: str) -> Name | None:
    """What a name stands for; None for no network of the zoo.

    Raises:
        UsageError: a precision or a size that the network does not have.
    """
    base, _, precision = name.rpartition("_")
    if precision in (INT8, FLOAT) and base in ALIASES:
        name = f"{ALIASES[base]}_{precision}"
    match = PATTERN.fullmatch(ALIASES.get(name, name))
    if match is None:
        return None
    entry = ZOO[match["network"]]
    if match["size"] and not entry.size:
        raise UsageError(
            f"{match['network']} has one size: {name!r} names another", hint="leave out the size"
        )
    found = Name(
        match["network"],
        float(match["width"] or entry.width),
        int(match["size"] or entry.size),
        match["precision"] or entry.precision,
    )
    if found.precision == INT8:
        require_quantized(found)
    return found


def require_quantized(name: Name) -> None:
    """Refuse to quantise what is not quantised.

    Raises:
        UsageError: with the reason.
    """
    if reason := name.entry.unquantized:
        raise UsageError(f"{name.network} is not quantised: {reason}", hint=f"use {name.network} as it is")


def unknown(name: str, others: tuple[str, ...] = ()) -> UsageError:
    """The error for what is no network of the zoo; `others` may be asked for in the same place."""
    network = max((known for known in ZOO if name.startswith(known)), key=len, default=None)
    if network is not None and name[len(network) :][:1] == "_":
        example = f"{network}_{ZOO[network].width}" + f"_{ZOO[network].size}" * (ZOO[network].size > 0)
        parts = "a width such as 1.0 or 0.35, and a size," if ZOO[network].size else "a width such as 1.0"
        return UsageError(
            f"{name!r} is not NETWORK_WIDTH_SIZE: {parts} may follow {network}", hint=f"for example {example}"
        )
    suggestion = did_you_mean(re.sub(r"(_[\d.]+){1,2}$", "", name), [*ZOO, *ALIASES, *others])
    known = f"networks of the zoo: {', '.join(names())}; a width and a size may follow: mobilenet_v2_1.0_224"
    return UsageError(
        f"{name!r} is not a network of the zoo, and no file of that name is here",
        hint="; ".join(filter(None, [suggestion, known])),
    )


# --- what is in a network -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """What is in a network, of its plan.

    Attributes:
        inputs, outputs: (dtype, shape) by name.
        macs: multiply-accumulates of its products.
        parameters: elements of its float constants; `nbytes` of all constants.
        states: (output, input) pairs.
        dtype: of its weights.
    """

    inputs: Mapping[str, tuple[str, tuple[int, ...]]]
    outputs: Mapping[str, tuple[str, tuple[int, ...]]]
    macs: int
    parameters: int
    nbytes: int
    states: tuple[tuple[str, str], ...]
    dtype: str


def facts(name: Name) -> Facts:
    """What is in the float network of that name.

    Raises:
        UsageError: a width or size that no such network has.
    """
    onnx = require("onnx")
    built = name.build()
    model = built.plan() if isinstance(built, Network) else built
    inferred = onnx.shape_inference.infer_shapes(model).graph
    dtype_of = onnx.helper.tensor_dtype_to_np_dtype

    def described(value: Any) -> tuple[str, tuple[int, ...]]:
        kind = value.type.tensor_type
        return str(dtype_of(kind.elem_type)), tuple(dim.dim_value for dim in kind.shape.dim)

    shapes = {
        value.name: described(value)[1] for value in (*inferred.value_info, *inferred.input, *inferred.output)
    }
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in inferred.initializer}
    kinds = {tensor.name: dtype_of(tensor.data_type) for tensor in inferred.initializer}
    counts = {key: math.prod(shapes[key]) for key in kinds}
    weights = max((key for key in kinds if kinds[key].kind == "f"), key=counts.__getitem__)
    inputs = {value.name: described(value) for value in inferred.input}
    outputs = {value.name: described(value) for value in inferred.output}
    return Facts(
        inputs,
        outputs,
        macs=sum(_macs(node, shapes) for node in inferred.node),
        parameters=sum(counts[key] for key in kinds if kinds[key].kind == "f"),
        nbytes=sum(counts[key] * kinds[key].itemsize for key in kinds),
        states=tuple((PREFIX + key, key) for key in inputs if outputs.get(PREFIX + key) == inputs[key]),
        dtype=str(kinds[weights]),
    )


def _macs(node: Any, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Multiply-accumulates of a node: of the operators that the zoo's networks have."""
    if node.op_type == "Conv":
        return math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])
    if node.op_type in ("Gemm", "MatMul"):
        transposed = any(one.name == "transA" and one.i for one in node.attribute)
        return math.prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if transposed else -1]
    if node.op_type == "GRU":
        steps, batch = shapes[node.input[0]][:2]
        return steps * batch * (math.prod(shapes[node.input[1]]) + math.prod(shapes[node.input[2]]))
    return 0
