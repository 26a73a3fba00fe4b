"""What vector instructions mean, in numpy and exact rationals: written from the ISA manuals' descriptions,
and independent of the emulator's IR.

A Semantics has a signature, destinations first: `u32 mask = u32 u32 mask`. Types are numpy's; `mask` is one
bit a lane in an SGPR, `exec` is EXEC, `acc` the destination's old value. The function gets arrays of 32
lanes and the Mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

FORMATS = {
    "f16": (np.float16, 11, -14, 15),
    "f32": (np.float32, 24, -126, 127),
    "f64": (np.float64, 53, -1022, 1023),
}
INTEGERS = {"f16": np.uint16, "f32": np.uint32, "f64": np.uint64}


@dataclass(frozen=True)
class Semantics:
    signature: str
    function: Callable
    generations: tuple[int, ...] = (11, 12)
    clamps: bool = False
    op_sel: bool = False
    ulp: int = 0

    @property
    def targets(self) -> list[str]:
        return self.signature.split("=")[0].split()

    @property
    def sources(self) -> list[str]:
        return self.signature.split("=")[1].split()


TABLE: dict[str, Semantics] = {}


def define(names: str, signature: str, function: Callable, **options) -> None:
    for name in names.split():
        assert name not in TABLE, name
        TABLE[name] = Semantics(signature, function, **options)


# Exact float arithmetic


def rounded(value: Fraction, kind: str, mode: int) -> float:
    """Nearest even, up, down or to zero; a zero result is +0."""
    if value == 0:
        return 0.0
    _, digits, least, most = FORMATS[kind]
    size, sign = abs(value), 1 if value > 0 else -1
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    exponent = max(exponent, least)
    unit = Fraction(2) ** (exponent - digits + 1)
    whole, rest = divmod(size / unit, 1)
    up = {0: rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
          1: rest > 0 and value > 0, 2: rest > 0 and value < 0, 3: False}[mode]  # fmt: skip
    size = (whole + up) * unit
    if size >= Fraction(2) ** (most + 1):
        beyond = mode == 0 or (mode == 1 and value > 0) or (mode == 2 and value < 0)
        biggest = Fraction(2) ** (most + 1) - Fraction(2) ** (most - digits + 1)
        return math.copysign(math.inf if beyond else float(biggest), sign)
    return math.copysign(float(size), sign)


def mode_of(mode, kind: str) -> int:
    return mode.round if kind == "f32" else mode.round64


def exactly(kind: str, real: Callable, special: Callable, *columns: np.ndarray, mode: int) -> np.ndarray:
    """`real` of rationals, rounded once; `special` of f64s where an operand or nothing else is finite, and
    for the sign of a zero.
    """
    result = np.empty(len(columns[0]), FORMATS[kind][0])
    with np.errstate(all="ignore"):
        wide = [column.astype(np.float64) for column in columns]
        fallback = special(*wide)
        for lane, numbers in enumerate(zip(*wide, strict=True)):
            if not all(map(math.isfinite, numbers)):
                result[lane] = fallback[lane]
                continue
            exact = real(*(Fraction(float(number)) for number in numbers))
            result[lane] = rounded(exact, kind, mode) if exact else fallback[lane]
    return result


def fadd(kind: str):
    def work(a, b, mode):
        way = mode_of(mode, kind)
        result = exactly(kind, lambda x, y: x + y, lambda x, y: x + y, a, b, mode=way)
        if way == 2:
            result[(result == 0) & (np.signbit(a) | np.signbit(b))] = -0.0
        return result

    return work


def fmul(kind: str):
    return lambda a, b, mode: exactly(
        kind, lambda x, y: x * y, lambda x, y: x * y, a, b, mode=mode_of(mode, kind)
    )


def fma(kind: str):
    def special(x, y, z):
        """Signs of zeros and what is not finite; products that underflow keep their sign."""
        product = np.where(np.isfinite(x) & np.isfinite(y), np.sign(x) * np.sign(y), x * y)
        product = np.where((x == 0) | (y == 0), x * y, product)
        return np.where(np.isfinite(product) & np.isfinite(z), 0.0, product + z)

    def work(a, b, c, mode):
        way = mode_of(mode, kind)
        result = exactly(kind, lambda x, y, z: x * y + z, special, a, b, c, mode=way)
        zero = (result == 0) & np.isfinite(a) & np.isfinite(b)
        negative = np.signbit(a) ^ np.signbit(b)
        exact = np.array([
            all(map(math.isfinite, (x, y, z))) and Fraction(x) * Fraction(y) + Fraction(z) == 0
            for x, y, z in zip(map(float, a), map(float, b), map(float, c), strict=True)
        ])  # fmt: skip
        minus = (negative & np.signbit(c)) | ((negative | np.signbit(c)) & (way == 2))
        return np.where(zero & exact, np.where(minus, -0.0, 0.0), result).astype(result.dtype)

    return work


def convert(source: str, target: str, mode_kind: str | None = None, fixed: int | None = None):
    def work(a, mode):
        way = mode_of(mode, mode_kind or target) if fixed is None else fixed
        return exactly(target, lambda x: x, lambda x: x, a, mode=way)

    return work


def quiet(a: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(a), a.dtype.type(np.nan), a)


def is_signalling(a: np.ndarray) -> np.ndarray:
    digits = {2: 10, 4: 23, 8: 52}[a.itemsize]
    whole = a.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[a.itemsize])
    return np.isnan(a) & (whole >> whole.dtype.type(digits - 1) & whole.dtype.type(1) == 0)


def extreme(greater: bool):
    """The number of a number and a NaN, -0 below +0; RDNA3's IEEE mode: a signalling NaN wins."""

    def work(a, b, mode, generation):
        first = (a > b) if greater else (a < b)
        tie = (a == b) & (np.signbit(b) if greater else np.signbit(a))
        result = np.where(first | tie, a, b)
        result = np.where(np.isnan(a), b, np.where(np.isnan(b), a, result))
        if generation == 11 and mode.ieee:
            result = np.where(is_signalling(a) | is_signalling(b), a.dtype.type(np.nan), result)
        return result

    work.wants_generation = True
    return work


def strict_extreme(greater: bool):
    def work(a, b, mode):
        first = (a > b) if greater else (a < b)
        tie = (a == b) & (np.signbit(b) if greater else np.signbit(a))
        return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), np.where(first | tie, a, b))

    return work


def call(function, *args, mode, generation):
    if getattr(function, "wants_generation", False):
        return function(*args, mode=mode, generation=generation)
    return function(*args, mode=mode)


def chain(first, second):
    def work(a, b, c, mode, generation):
        part = call(first, a, b, mode=mode, generation=generation)
        return call(second, part, c, mode=mode, generation=generation)

    work.wants_generation = True
    return work


def median(a, b, c, mode, generation):
    """As the manuals have it, where +0 and -0 are equal: of (-0, +0, -1) it is +0."""
    least = chain(extreme(False), extreme(False))(a, b, c, mode, generation)
    top = np.fmax(np.fmax(a, b), c)
    ab, ac, bc = (extreme(True)(*pair, mode, generation) for pair in ((a, b), (a, c), (b, c)))
    middle = np.where(top == a, bc, np.where(top == b, ac, ab))
    return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), least, middle)


median.wants_generation = True
LOW, HIGH = extreme(False), extreme(True)
for kind in ("f16", "f32", "f64"):
    two, three = f"{kind} = {kind} {kind}", f"{kind} = {kind} {kind} {kind}"
    define(f"v_add_{kind}", two, fadd(kind))
    define(f"v_mul_{kind}", two, fmul(kind))
    define(f"v_fma_{kind}", three, fma(kind), op_sel=kind == "f16")
    for name, work in (("min", LOW), ("max", HIGH)):
        define(f"v_{name}_{kind}", two, work, generations=(11,))
        define(f"v_{name}_num_{kind}", two, work, generations=(12,))
        define(f"v_{name}imum_{kind}", two, strict_extreme(name == "max"), generations=(12,))
    if kind == "f64":
        continue
    subtract = fadd(kind)
    define(f"v_sub_{kind}", two, lambda a, b, mode, s=subtract: s(a, -b, mode))
    define(f"v_subrev_{kind}", two, lambda a, b, mode, s=subtract: s(b, -a, mode))
    define(f"v_fmac_{kind}", f"{kind} = {kind} {kind} acc", fma(kind))
    for name, work in (
        ("min3", chain(LOW, LOW)), ("max3", chain(HIGH, HIGH)), ("med3", median),
        ("minmax", chain(LOW, HIGH)), ("maxmin", chain(HIGH, LOW)),
    ):  # fmt: skip
        selects = kind == "f16" and name not in ("minmax", "maxmin")  # LLVM 19 takes none for these two
        define(f"v_{name}_{kind}", three, work, generations=(11,), op_sel=selects)
        define(f"v_{name}_num_{kind}", three, work, generations=(12,), op_sel=selects)
    low, high = strict_extreme(False), strict_extreme(True)
    for name, work in (
        ("minimum3", chain(low, low)), ("maximum3", chain(high, high)),
        ("minimummaximum", chain(low, high)), ("maximumminimum", chain(high, low)),
    ):  # fmt: skip
        define(f"v_{name}_{kind}", three, work, generations=(12,), op_sel=kind == "f16")


def dx9(work):
    def legacy(a, b, *rest, mode):
        return np.where(
            (a == 0) | (b == 0), rest[0] if rest else a.dtype.type(0), work(a, b, *rest, mode=mode)
        )

    return legacy


define("v_mul_dx9_zero_f32", "f32 = f32 f32", dx9(fmul("f32")))
define("v_fma_dx9_zero_f32", "f32 = f32 f32 f32", dx9(fma("f32")))
define("v_fmac_dx9_zero_f32", "f32 = f32 f32 acc", dx9(fma("f32")), generations=(11,))


def fraction(a, mode):
    with np.errstate(all="ignore"):
        digits = FORMATS[{2: "f16", 4: "f32", 8: "f64"}[a.itemsize]][1]
        wide = a.astype(np.float64)
        rest = wide - np.floor(wide) if a.itemsize < 8 else a - np.floor(a)
        return np.where(rest > 1 - 2.0**-digits, 1 - 2.0**-digits, rest).astype(a.dtype)


def plain(function):
    def work(*args, mode):
        with np.errstate(all="ignore"):
            return function(*args)

    return work


def mantissa(a):
    return np.where(np.isfinite(a), np.frexp(a)[0], a)


def exponent(a):
    return np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(np.int16 if a.itemsize == 2 else np.int32)


def ldexp(a, n, mode):
    kind = {2: "f16", 4: "f32", 8: "f64"}[a.itemsize]
    result = a.copy()
    for lane, (x, power) in enumerate(zip(a, n, strict=True)):
        if math.isfinite(x) and x != 0:
            power = max(-3000, min(3000, int(power)))
            value = rounded(Fraction(float(x)) * Fraction(2) ** power, kind, mode_of(mode, kind))
            result[lane] = math.copysign(value, x)
    return result


for kind in ("f16", "f32", "f64"):
    for name, work in (("trunc", np.trunc), ("ceil", np.ceil), ("floor", np.floor), ("rndne", np.rint)):
        define(f"v_{name}_{kind}", f"{kind} = {kind}", plain(work))
    define(f"v_fract_{kind}", f"{kind} = {kind}", fraction)
    define(f"v_frexp_mant_{kind}", f"{kind} = {kind}", plain(mantissa))
    define(f"v_ldexp_{kind}", f"{kind} = {kind} {'i16' if kind == 'f16' else 'i32'}", ldexp)
    define(f"v_frexp_exp_{'i16' if kind == 'f16' else 'i32'}_{kind}",
           f"{'i16' if kind == 'f16' else 'i32'} = {kind}", plain(exponent))  # fmt: skip

# Transcendentals: in f64, within 1 ulp


def flush32(a):
    return np.where(np.abs(a) < np.float32(2.0**-126), np.copysign(np.float32(0), a), a)


def transcendental(function, keeps=False):
    def work(a, mode):
        with np.errstate(all="ignore"):
            x = flush32(a) if a.dtype == np.float32 and not keeps else a
            result = function(x.astype(np.float64)).astype(a.dtype)
            return flush32(result) if a.dtype == np.float32 and not keeps else result

    return work


def wave(function):
    def work(x):
        turns = np.where(np.isfinite(x), np.fmod(x, 1.0), np.nan)
        exact = np.isin(turns % 0.25, 0)
        result = np.where(exact, np.rint(function(2 * np.pi * turns)), function(2 * np.pi * turns))
        return np.where(x != 0, result + 0.0, x * 0 + function(x * 0))  # no -0 but for 0 itself

    return work


for name, work in (
    ("rcp", lambda x: 1 / x), ("rsq", lambda x: 1 / np.sqrt(x)), ("sqrt", np.sqrt), ("exp", np.exp2),
    ("log", np.log2), ("sin", wave(np.sin)), ("cos", wave(np.cos)),
):  # fmt: skip
    for kind in ("f16", "f32"):
        keeps = name in ("sin", "cos")
        define(f"v_{name}_{kind}", f"{kind} = {kind}", transcendental(work, keeps), ulp=1)
define("v_rcp_iflag_f32", "f32 = f32", transcendental(lambda x: 1 / x), ulp=1)
define("v_rcp_f64", "f64 = f64", plain(lambda x: 1 / x))
define("v_rsq_f64", "f64 = f64", plain(lambda x: 1 / np.sqrt(x)), ulp=1)
define("v_sqrt_f64", "f64 = f64", plain(np.sqrt))

# Conversions

RANGES = {"i8": (-128, 127), "u8": (0, 255), "i16": (-(2**15), 2**15 - 1), "u16": (0, 2**16 - 1),
          "i32": (-(2**31), 2**31 - 1), "u32": (0, 2**32 - 1)}  # fmt: skip


def to_integer(kind: str, before=np.trunc):
    low, high = RANGES[kind]

    def work(a, mode):
        with np.errstate(all="ignore"):
            whole = np.nan_to_num(before(a.astype(np.float64)), nan=0.0, posinf=high, neginf=low)
        return np.clip(whole, low, high).astype(np.int64).astype(DTYPES[kind])

    return work


def nearest_up(x):
    return np.floor(x + 0.5)


DTYPES = {
    name: np.dtype({"u": "uint", "i": "int", "f": "float"}[name[0]] + name[1:])
    for name in ("u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f16", "f32", "f64")
}
for target, source in (
    ("i32", "f32"),
    ("u32", "f32"),
    ("i32", "f64"),
    ("u32", "f64"),
    ("i16", "f16"),
    ("u16", "f16"),
):
    define(f"v_cvt_{target}_{source}", f"{target} = {source}", to_integer(target))
for target, source in (
    ("f32", "i32"),
    ("f32", "u32"),
    ("f64", "i32"),
    ("f64", "u32"),
    ("f16", "i16"),
    ("f16", "u16"),
):
    define(f"v_cvt_{target}_{source}", f"{target} = {source}", convert(source, target))
for target, source in (("f16", "f32"), ("f32", "f16"), ("f32", "f64"), ("f64", "f32")):
    define(f"v_cvt_{target}_{source}", f"{target} = {source}", convert(source, target))
define("v_cvt_nearest_i32_f32", "i32 = f32", to_integer("i32", nearest_up))
define("v_cvt_floor_i32_f32", "i32 = f32", to_integer("i32", np.floor))
define("v_cvt_i32_i16", "i32 = i16", plain(lambda a: a.astype(np.int32)))
define("v_cvt_u32_u16", "u32 = u16", plain(lambda a: a.astype(np.uint32)))
for number in range(4):
    define(
        f"v_cvt_f32_ubyte{number}",
        "f32 = u32",
        plain(lambda a, n=number: (a >> np.uint32(8 * n) & np.uint32(255)).astype(np.float32)),
    )
define(
    "v_cvt_off_f32_i4",
    "f32 = u32",
    plain(lambda a: (((a & 15).astype(np.int64) ^ 8) - 8).astype(np.float32) / np.float32(16)),
)


def pair(low, high):
    low, high = (part.view(np.uint16).astype(np.uint32) for part in (low, high))
    return low | high << np.uint32(16)


def twice(work):
    return lambda a, b, mode: pair(work(a, mode), work(b, mode))


def clipped(kind):
    low, high = RANGES[kind]
    return lambda a, mode: np.clip(a.astype(np.int64), low, high).astype(DTYPES[kind])


def normalised(kind):
    scale = 32767 if kind == "i16" else 65535
    low = -scale if kind == "i16" else 0

    def work(a, mode):
        with np.errstate(all="ignore"):
            whole = np.nan_to_num(np.rint(a.astype(np.float64) * scale), nan=0, posinf=scale, neginf=low)
        return np.clip(whole, low, scale).astype(DTYPES[kind])

    return work


for kind, wide in (("i16", "i32"), ("u16", "u32")):
    define(f"v_cvt_norm_{kind}_f16", f"{kind} = f16", normalised(kind))
    define(f"v_cvt_pk_norm_{kind}_f16", "u32 = f16 f16", twice(normalised(kind)), op_sel=True)
    define(f"v_cvt_pk_norm_{kind}_f32", "u32 = f32 f32", twice(normalised(kind)))
    define(f"v_cvt_pk_{kind}_{wide}", f"u32 = {wide} {wide}", twice(clipped(kind)))
    define(f"v_cvt_pk_{kind}_f32", "u32 = f32 f32", twice(to_integer(kind)))
define("v_cvt_pk_rtz_f16_f32", "u32 = f32 f32", twice(convert("f32", "f16", fixed=3)))
define("v_pack_b32_f16", "u32 = f16 f16", plain(pair), op_sel=True)


def byte_into(a, position, old, mode):
    byte = to_integer("u8", np.rint)(a, mode).astype(np.uint32)
    count = (position & 3) * 8
    return old & ~(np.uint32(255) << count) | byte << count


define("v_cvt_pk_u8_f32", "u32 = f32 u32 u32", byte_into)

# Division


def fixup(q, d, n, mode):
    with np.errstate(all="ignore"):
        kind = {2: "f16", 4: "f32", 8: "f64"}[q.itemsize]
        sign = np.signbit(d) ^ np.signbit(n)
        one = np.where(sign, -1.0, 1.0).astype(q.dtype)
        result = np.copysign(np.where(np.isnan(q), np.inf, np.abs(q)), one)
        if kind != "f16":
            least = FORMATS[kind][2]
            powers = [np.where(np.abs(x) < 2.0**least, 0, np.frexp(x)[1] - least) for x in (n, d)]
            result = np.where(powers[0] - powers[1] < {"f32": -150, "f64": -1075}[kind], one * 0, result)
        result = np.where(np.isinf(d) | (n == 0), one * 0, result)
        result = np.where((d == 0) | np.isinf(n), one * np.inf, result)
        bad = (d == 0) & (n == 0) | np.isinf(d) & np.isinf(n) | np.isnan(d) | np.isnan(n)
        return np.where(bad, np.nan, result).astype(q.dtype)


for kind in ("f16", "f32", "f64"):
    define(f"v_div_fixup_{kind}", f"{kind} = {kind} {kind} {kind}", fixup, op_sel=kind == "f16")
