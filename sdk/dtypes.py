"""The element types of tensors: how they are stored, and what the stored bits mean.

numpy has neither bfloat16 nor the 8-bit floats. Their elements are kept as uint16 and uint8; `decode` and
`encode` give and take the values, so that running a network needs numpy alone. Formats: IEEE 754 (float16,
float32, float64), bfloat16 (the upper half of a float32), and OCP's 8-bit floats (OFP8 1.0: E4M3 has no
infinity, E5M2 has).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True)
class Float:
    """A binary floating-point format.

    Attributes:
        digits: of the significand, the hidden one included.
        lowest: exponent of the smallest normal number, as a power of 2.
        largest: the largest finite value.
        has_infinity: whether what exceeds `largest` becomes an infinity; else it saturates.
    """

    digits: int
    lowest: int
    largest: float
    has_infinity: bool = True

    @property
    def unit(self) -> float:
        """The unit roundoff: the largest relative error of rounding to nearest, 2^-digits."""
        return 2.0**-self.digits

    @property
    def smallest(self) -> float:
        """The smallest positive value, a subnormal."""
        return float(2.0 ** (self.lowest - self.digits + 1))


@dataclass(frozen=True)
class DType:
    """An element type.

    Attributes:
        name: ONNX's, in lower case, as numpy spells it where numpy has it.
        storage: the numpy dtype that holds its bits.
        kind: what its values are.
        format: of a float.
    """

    name: str
    storage: np.dtype[Any]
    kind: Kind
    format: Float | None = None

    @property
    def nbytes(self) -> int:
        """Of an element."""
        return int(self.storage.itemsize)

    @property
    def is_native(self) -> bool:
        """Whether numpy computes with it."""
        return self.storage.name == self.name

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type; (0, 1) of bool."""
        if self.kind == "bool":
            return 0, 1
        info = np.iinfo(self.storage)
        return int(info.min), int(info.max)


def _integers() -> dict[str, DType]:
    kinds: Mapping[str, Kind] = {"i": "int", "u": "uint", "b": "bool"}
    names = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
    return {name: DType(name, np.dtype(name), kinds[np.dtype(name).kind]) for name in names}


def _floats() -> dict[str, DType]:
    formats = {
        "float64": ("float64", Float(53, -1022, float(np.finfo(np.float64).max))),
        "float32": ("float32", Float(24, -126, float(np.finfo(np.float32).max))),
        "float16": ("float16", Float(11, -14, 65504.0)),
        "bfloat16": ("uint16", Float(8, -126, float(np.float64(2.0**128 - 2.0**120)))),
        "float8e4m3fn": ("uint8", Float(4, -6, 448.0, has_infinity=False)),
        "float8e5m2": ("uint8", Float(3, -14, 57344.0)),
    }
    return {name: DType(name, np.dtype(bits), "float", found) for name, (bits, found) in formats.items()}


DTYPES: Mapping[str, DType] = _integers() | _floats()


def dtype(name: str) -> DType:
    """The type of that name; KeyError on another (a bug: graphs are verified)."""
    return DTYPES[name]


def storage(name: str) -> np.dtype[Any]:
    """The numpy dtype that holds elements of the type of that name."""
    return DTYPES[name].storage


def is_float(name: str) -> bool:
    """Whether it is the name of a float type."""
    return name in DTYPES and DTYPES[name].kind == "float"


def unit(name: str) -> float:
    """The unit roundoff of a float type; 0 of an integer type."""
    found = DTYPES[name].format
    return 0.0 if found is None else found.unit


def decode(stored: Array, name: str) -> Array:
    """The values of stored elements: float64 of a float type; as they are of any other.

    Args:
        stored: of `storage(name)`.
        name: of the type.
    """
    found = DTYPES[name]
    if found.format is None:
        return stored
    if found.is_native:
        return stored.astype(np.float64)
    if name == "bfloat16":
        with np.errstate(invalid="ignore"):  # a signalling NaN
            return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    values: Array = _eight_bits(name)[stored]
    return values


def encode(values: Array, name: str) -> Array:
    """Real values as stored elements, rounded once, half to even.

    Args:
        values: float64 for a float type; for an integer type whole numbers within its range.
        name: of the type.

    Returns:
        Of `storage(name)`. What exceeds the largest value becomes an infinity, or that value where the
        format has none.
    """
    found = DTYPES[name]
    if found.format is None:
        return values.astype(found.storage)
    if found.is_native:
        with np.errstate(over="ignore"):
            return values.astype(found.storage)
    rounded = round_to(values, name)
    if name == "bfloat16":
        with np.errstate(over="ignore"):
            return (rounded.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return _encode_eight(rounded, name)


def round_to(values: Array, name: str) -> Array:
    """Real values rounded to those that a float type has, half to even: float64 in, float64 out."""
    form = DTYPES[name].format
    if form is None:
        raise TypeError(f"{name} is not a float type")
    values = np.asarray(values, np.float64)
    if name == "float64":
        return values
    if DTYPES[name].is_native:
        with np.errstate(over="ignore"):
            return values.astype(DTYPES[name].storage).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        _, exponent = np.frexp(values)
        step = np.ldexp(1.0, np.maximum(exponent - form.digits, form.lowest - form.digits + 1))
        rounded = np.where(np.isfinite(values), np.rint(values / step) * step, values)
        beyond = np.abs(rounded) > form.largest
        limit = np.inf if form.has_infinity else form.largest
    return np.asarray(np.where(beyond, np.copysign(limit, values), rounded))


@cache
def _eight_bits(name: str) -> NDArray[np.float64]:
    """The value of each of the 256 bit patterns of an 8-bit float."""
    form = DTYPES[name].format
    assert form is not None  # only floats come here
    bits = np.arange(256)
    fraction_bits = form.digits - 1
    exponent, fraction = bits >> fraction_bits & (0x7F >> fraction_bits), bits & ((1 << fraction_bits) - 1)
    subnormal = exponent == 0
    significand = np.where(subnormal, fraction, fraction + (1 << fraction_bits)).astype(np.float64)
    values = np.ldexp(significand, np.where(subnormal, 1, exponent) - 1 + form.lowest - fraction_bits)
    if form.has_infinity:
        top = exponent == 0x7F >> fraction_bits
        values = np.where(top, np.where(fraction == 0, np.inf, np.nan), values)
    else:
        values = np.where(bits & 0x7F == 0x7F, np.nan, values)
    return np.where(bits & 0x80, -values, values)


def _encode_eight(rounded: Array, name: str) -> Array:
    """The bit patterns of values that an 8-bit float has."""
    table = _eight_bits(name)[:128]
    finite = np.flatnonzero(~np.isnan(table))  # increasing
    magnitude = np.abs(rounded)
    index = finite[np.searchsorted(table[finite], np.where(np.isnan(magnitude), 0, magnitude))]
    index = np.where(np.isnan(magnitude), 0x7F, index)
    return np.asarray(index | np.where(np.signbit(rounded), 0x80, 0)).astype(np.uint8)
