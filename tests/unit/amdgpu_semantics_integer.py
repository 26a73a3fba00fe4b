"""The same for integers, comparisons, packed values, dot products: importing this completes TABLE."""

from __future__ import annotations

import decimal
import math
from fractions import Fraction

import numpy as np

from tests.unit.amdgpu_semantics import DTYPES, RANGES, TABLE, define, dx9, fmul, is_signalling, plain

U32 = np.uint32


def bits(kind: str) -> int:
    return int(kind[1:])


def wrap(value, kind: str) -> np.ndarray:
    """Python integers modulo the type."""
    mask = (1 << bits(kind)) - 1
    return np.array([int(v) & mask for v in value], f"uint{bits(kind)}").view(DTYPES[kind])


def saturate(value, kind: str) -> np.ndarray:
    low, high = RANGES[kind]
    return np.array([min(max(int(v), low), high) for v in value], DTYPES[kind])


def integers(kind: str, function, clamps: bool = False):
    """A function of Python integers, lane by lane."""

    def work(*args, mode, clamp=False):
        whole = [function(*map(int, lane)) for lane in zip(*args, strict=True)]
        return (saturate if clamp else wrap)(whole, kind)

    work.clamps = clamps
    return work


def lanewise(names: str, signature: str, function, **options) -> None:
    target = signature.split()[0]
    define(names, signature, integers(target, function, options.get("clamps", False)), **options)


for width in (16, 32, 64):
    kind, signed = f"u{width}", f"i{width}"
    count = {16: "u16", 32: "u32", 64: "u32"}[width]
    odd = {"op_sel": width == 16}
    lanewise(f"v_lshlrev_b{width}", f"{kind} = {count} {kind}", lambda n, a, w=width: a << n % w)
    lanewise(f"v_lshrrev_b{width}", f"{kind} = {count} {kind}", lambda n, a, w=width: a >> n % w)
    lanewise(f"v_ashrrev_i{width}", f"{signed} = {count} {signed}", lambda n, a, w=width: a >> n % w)
    if width == 64:
        continue
    for name, work in (("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b)):
        lanewise(f"v_{name}_b{width}", f"{kind} = {kind} {kind}", work)
    lanewise(f"v_not_b{width}", f"{kind} = {kind}", lambda a: ~a)
    for letter in "iu":
        k = f"{letter}{width}"
        two, three = f"{k} = {k} {k}", f"{k} = {k} {k} {k}"
        lanewise(f"v_min_{k}", two, min)
        lanewise(f"v_max_{k}", two, max)
        lanewise(f"v_min3_{k}", three, min, **odd)
        lanewise(f"v_max3_{k}", three, max, **odd)
        lanewise(f"v_med3_{k}", three, lambda a, b, c: sorted((a, b, c))[1], **odd)
        if width == 32:
            lanewise(f"v_minmax_{k}", three, lambda a, b, c: max(min(a, b), c))
            lanewise(f"v_maxmin_{k}", three, lambda a, b, c: min(max(a, b), c))
        if k != "u32":
            lanewise(f"v_add_nc_{k}", two, lambda a, b: a + b, clamps=True, **odd)
            lanewise(f"v_sub_nc_{k}", two, lambda a, b: a - b, clamps=True, **odd)
lanewise("v_add_nc_u32", "u32 = u32 u32", lambda a, b: a + b, clamps=True)
lanewise("v_sub_nc_u32", "u32 = u32 u32", lambda a, b: a - b, clamps=True)
lanewise("v_subrev_nc_u32", "u32 = u32 u32", lambda a, b: b - a, clamps=True)
lanewise("v_xnor_b32", "u32 = u32 u32", lambda a, b: ~(a ^ b))
lanewise("v_mov_b32", "u32 = u32", lambda a: a)
lanewise("v_and_or_b32", "u32 = u32 u32 u32", lambda a, b, c: a & b | c)
lanewise("v_or3_b32", "u32 = u32 u32 u32", lambda a, b, c: a | b | c)
lanewise("v_xor3_b32", "u32 = u32 u32 u32", lambda a, b, c: a ^ b ^ c)
lanewise("v_xad_u32", "u32 = u32 u32 u32", lambda a, b, c: (a ^ b) + c)
lanewise("v_add3_u32", "u32 = u32 u32 u32", lambda a, b, c: a + b + c)
lanewise("v_lshl_or_b32", "u32 = u32 u32 u32", lambda a, b, c: a << (b & 31) | c)
lanewise("v_lshl_add_u32", "u32 = u32 u32 u32", lambda a, b, c: (a << (b & 31)) + c)
lanewise("v_add_lshl_u32", "u32 = u32 u32 u32", lambda a, b, c: (a + b) << (c & 31))
lanewise("v_bfi_b32", "u32 = u32 u32 u32", lambda m, a, b: m & a | ~m & b)
lanewise("v_alignbit_b32", "u32 = u32 u32 u16", lambda a, b, c: (a << 32 | b) >> (c & 31))
lanewise("v_alignbyte_b32", "u32 = u32 u32 u16", lambda a, b, c: (a << 32 | b) >> 8 * (c & 3))
lanewise("v_bfm_b32", "u32 = u32 u32", lambda a, b: ((1 << (a & 31)) - 1) << (b & 31))
lanewise("v_bfe_u32", "u32 = u32 u32 u32", lambda a, b, c: a >> (b & 31) & (1 << (c & 31)) - 1)


def field(a: int, offset: int, width: int) -> int:
    width &= 31
    whole = a >> (offset & 31) & (1 << width) - 1
    return whole - (1 << width) if width and whole >> (width - 1) else whole


lanewise("v_bfe_i32", "i32 = i32 u32 u32", field)
lanewise("v_bfrev_b32", "u32 = u32", lambda a: int(f"{a:032b}"[::-1], 2))
lanewise("v_bcnt_u32_b32", "u32 = u32 u32", lambda a, b: a.bit_count() + b)
lanewise("v_clz_i32_u32", "i32 = u32", lambda a: 32 - a.bit_length() if a else -1)
lanewise("v_ctz_i32_b32", "i32 = u32", lambda a: (a & -a).bit_length() - 1)
lanewise(
    "v_cls_i32",
    "i32 = i32",
    lambda a: next((n for n in range(1, 32) if a >> (31 - n) & 1 != a >> 31 & 1), -1),
)


def add_carry(a, b, carry=None):
    total = [
        int(x) + int(y) + int(c) for x, y, c in zip(a, b, carry if carry is not None else a * 0, strict=True)
    ]
    return wrap(total, "u32"), np.array([t >> 32 for t in total], bool)


def sub_carry(a, b, carry=None):
    total = [
        int(x) - int(y) - int(c) for x, y, c in zip(a, b, carry if carry is not None else a * 0, strict=True)
    ]
    return wrap(total, "u32"), np.array([t < 0 for t in total], bool)


for name, work in (("add", add_carry), ("sub", sub_carry)):
    define(f"v_{name}_co_u32", "u32 mask = u32 u32", plain(work))
    define(f"v_{name}_co_ci_u32", "u32 mask = u32 u32 mask", plain(work))
define("v_subrev_co_u32", "u32 mask = u32 u32", plain(lambda a, b: sub_carry(b, a)))
define("v_subrev_co_ci_u32", "u32 mask = u32 u32 mask", plain(lambda a, b, c: sub_carry(b, a, c)))


def low24(a: int, signed: bool) -> int:
    a &= 0xFFFFFF
    return a - (1 << 24) if signed and a >> 23 else a


for letter, signed in (("i", True), ("u", False)):
    k = f"{letter}32"
    lanewise(f"v_mul_{k}_{letter}24", f"{k} = {k} {k}", lambda a, b, s=signed: low24(a, s) * low24(b, s))
    lanewise(
        f"v_mul_hi_{k}_{letter}24", f"{k} = {k} {k}", lambda a, b, s=signed: low24(a, s) * low24(b, s) >> 32
    )
    lanewise(f"v_mul_hi_{k}", f"{k} = {k} {k}", lambda a, b: a * b >> 32)
    lanewise(f"v_mad_{k}_{letter}24", f"{k} = {k} {k} {k}",
             lambda a, b, c, s=signed: low24(a, s) * low24(b, s) + c, clamps=True)  # fmt: skip
    lanewise(f"v_mad_{k}_{letter}16", f"{k} = {letter}16 {letter}16 {k}", lambda a, b, c: a * b + c,
             clamps=True, op_sel=True)  # fmt: skip
    lanewise(f"v_mad_{letter}16", f"{letter}16 = {letter}16 {letter}16 {letter}16", lambda a, b, c: a * b + c,
             clamps=True, op_sel=True)  # fmt: skip
lanewise("v_mul_lo_u32", "u32 = u32 u32", lambda a, b: a * b)
lanewise("v_mul_lo_u16", "u16 = u16 u16", lambda a, b: a * b)


def wide(kind: str):
    def work(a, b, c):
        total = [int(x) * int(y) + int(z) for x, y, z in zip(a, b, c, strict=True)]
        return wrap(total, kind), np.array([t >> 64 & 1 for t in total], bool)

    return plain(work)


define("v_mad_u64_u32", "u64 mask = u32 u32 u64", wide("u64"), generations=(11,))
define("v_mad_i64_i32", "i64 mask = i32 i32 i64", wide("i64"), generations=(11,))
define("v_mad_co_u64_u32", "u64 mask = u32 u32 u64", wide("u64"), generations=(12,))
define("v_mad_co_i64_i32", "i64 mask = i32 i32 i64", wide("i64"), generations=(12,))


def octets(a: int) -> list[int]:
    return [a >> 8 * n & 255 for n in range(4)]


def sad(a, b, c):
    return sum(abs(x - y) for x, y in zip(octets(a), octets(b), strict=True)) + c


lanewise("v_sad_u8", "u32 = u32 u32 u32", sad)
lanewise("v_sad_hi_u8", "u32 = u32 u32 u32", lambda a, b, c: (sad(a, b, 0) << 16) + c)
lanewise("v_msad_u8", "u32 = u32 u32 u32",
         lambda a, b, c: sum(abs(x - y) for x, y in zip(octets(a), octets(b), strict=True) if y) + c,
)  # fmt: skip
lanewise("v_sad_u16", "u32 = u32 u32 u32",
         lambda a, b, c: abs((a & 0xFFFF) - (b & 0xFFFF)) + abs((a >> 16) - (b >> 16)) + c)  # fmt: skip
lanewise("v_sad_u32", "u32 = u32 u32 u32", lambda a, b, c: abs(a - b) + c)
lanewise(
    "v_lerp_u8",
    "u32 = u32 u32 u32",
    lambda a, b, c: sum(
        (x + y + (z & 1)) // 2 << 8 * n
        for n, (x, y, z) in enumerate(zip(octets(a), octets(b), octets(c), strict=True))
    ),
)


def perm(a: int, b: int, selector: int) -> int:
    data = octets(b) + octets(a)
    result = 0
    for n, s in enumerate(octets(selector)):
        if s < 8:
            byte = data[s]
        elif s < 12:
            byte = 255 * (data[2 * (s - 8) + 1] >> 7)
        else:
            byte = 0 if s == 12 else 255
        result |= byte << 8 * n
    return result


lanewise("v_perm_b32", "u32 = u32 u32 selector", perm)
lanewise(
    "v_sat_pk_u8_i16",
    "u16 = u32",
    lambda a: sum(min(max((a >> 16 * n & 0xFFFF ^ 0x8000) - 0x8000, 0), 255) << 8 * n for n in (0, 1)),
)
define(
    "v_mbcnt_lo_u32_b32",
    "u32 = u32 u32",
    plain(
        lambda a, b: np.array(
            [
                (int(x) & (1 << lane) - 1).bit_count() + int(y) & 0xFFFFFFFF
                for lane, (x, y) in enumerate(zip(a, b, strict=True))
            ],
            U32,
        )
    ),
)
define("v_mbcnt_hi_u32_b32", "u32 = u32 u32", plain(lambda a, b: b))
lanewise("v_mov_b16", "u16 = u16", lambda a: a)
define("v_cndmask_b16", "u16 = u16 u16 mask", plain(lambda a, b, m: np.where(m, b, a)))
define("v_cndmask_b32", "u32 = u32 u32 mask", plain(lambda a, b, m: np.where(m, b, a)))

# Comparisons

ORDER = {
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
FLOATS = ORDER | {
    "lg": lambda a, b: (a < b) | (a > b),
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": lambda a, b: ~(a == b),
    "nlt": lambda a, b: ~(a < b),
}
INTEGER = ORDER | {"ne": lambda a, b: a != b}
CONSTANT = {"f": lambda a, b: np.zeros(32, bool), "t": lambda a, b: np.ones(32, bool)}


def classes(a, mask, mode):
    least = {2: 2.0**-14, 4: 2.0**-126, 8: 2.0**-1022}[a.itemsize]
    minus, size = np.signbit(a), np.abs(a)
    normal, denormal = np.isfinite(a) & (size >= least), (size > 0) & (size < least)
    negative = [minus & kind for kind in (np.isinf(a), normal, denormal, a == 0)]
    positive = [~minus & kind for kind in (a == 0, denormal, normal, np.isinf(a))]
    kinds = [is_signalling(a), np.isnan(a) & ~is_signalling(a), *negative, *positive]
    return np.array(
        [any(k[lane] and int(mask[lane]) >> n & 1 for n, k in enumerate(kinds)) for lane in range(32)]
    )


for kind in ("f16", "f32", "f64", "i16", "u16", "i32", "u32", "i64", "u64"):
    conditions = FLOATS if kind[0] == "f" else INTEGER
    for name, work in conditions.items():
        define(f"v_cmp_{name}_{kind}", f"mask = {kind} {kind}", plain(work))
        define(f"v_cmpx_{name}_{kind}", f"exec = {kind} {kind}", plain(work))
    if kind[0] == "f" or bits(kind) > 16:
        for name, work in CONSTANT.items():
            define(f"v_cmp_{name}_{kind}", f"mask = {kind} {kind}", plain(work), generations=(11,))
            define(f"v_cmpx_{name}_{kind}", f"exec = {kind} {kind}", plain(work), generations=(11,))
    if kind[0] == "f":
        source = "u16" if kind == "f16" else "u32"
        define(f"v_cmp_class_{kind}", f"mask = {kind} {source}", classes)
        define(f"v_cmpx_class_{kind}", f"exec = {kind} {source}", classes)

# 8-bit floats, by all their values


def eighths(kind: str) -> np.ndarray:
    """What the 256 codes stand for."""
    fraction, bias = (3, 7) if kind == "fp8" else (2, 15)
    result = np.zeros(256)
    for code in range(256):
        exponent, part = (code & 127) >> fraction, code & (1 << fraction) - 1
        if exponent:
            number = (1 + part / (1 << fraction)) * 2.0 ** (exponent - bias)
        else:
            number = part / (1 << fraction) * 2.0 ** (1 - bias)
        if kind == "fp8" and code & 127 == 127:
            number = math.nan
        if kind == "bf8" and exponent == 31:
            number = math.nan if part else math.inf
        result[code] = -number if code & 128 else number
    return result


def to_eighth(kind: str, value: float) -> int:
    """The nearest code, of two the even one; beyond the largest NaN or infinity."""
    codes = eighths(kind)[:128]
    largest = 126 if kind == "fp8" else 123
    if math.isnan(value):
        code = 0x7F if kind == "fp8" else 0x7E
        return code | 128 * (math.copysign(1, value) < 0)
    size = abs(value)
    limit = codes[largest] + (codes[largest] - codes[largest - 1]) / 2
    if size > limit or (size == limit and largest % 2):
        code = largest + 1
    else:
        distance = np.abs(codes[: largest + 1] - size)
        nearest = np.flatnonzero(distance == distance.min())
        code = int(next((n for n in nearest if n % 2 == 0), nearest[0]))
    return code | 128 * (math.copysign(1, value) < 0)


def pair_of_eighths(kind: str):
    def work(a, b):
        low, high = ([to_eighth(kind, float(x)) for x in each] for each in (a, b))
        return np.array([x | y << 8 for x, y in zip(low, high, strict=True)], np.uint16)

    return plain(work)


for kind in ("fp8", "bf8"):
    define(f"v_cvt_pk_{kind}_f32", "u16 = f32 f32", pair_of_eighths(kind), generations=(12,))

# For graphics


def lit(a, b, c, mode):
    most = np.finfo(np.float32).max
    nothing = (b == -most) | np.isneginf(b) | np.isnan(b) | (c <= 0) | np.isnan(c)
    return np.where(nothing, -most, dx9(fmul("f32"))(a, b, mode=mode))


def cube(along_z, along_y, along_x):
    def work(x, y, z):
        ax, ay, az = np.abs(x), np.abs(y), np.abs(z)
        deep = (az >= ax) & (az >= ay)
        return np.where(
            deep, along_z(x, y, z), np.where(ay >= ax, along_y(x, y, z), along_x(x, y, z))
        ).astype(np.float32)

    return plain(work)


THREE = "f32 = f32 f32 f32"
define("v_mullit_f32", THREE, lit)
define("v_cubeid_f32", THREE, cube(
    lambda x, y, z: np.where(z < 0, 5, 4), lambda x, y, z: np.where(y < 0, 3, 2),
    lambda x, y, z: np.where(x < 0, 1, 0)))  # fmt: skip
define("v_cubesc_f32", THREE, cube(
    lambda x, y, z: np.where(z < 0, -x, x), lambda x, y, z: x,
    lambda x, y, z: np.where(x < 0, z, -z)))  # fmt: skip
define("v_cubetc_f32", THREE, cube(
    lambda x, y, z: -y, lambda x, y, z: np.where(y < 0, -z, z), lambda x, y, z: -y))  # fmt: skip


def major(x, y, z, mode):
    longest = cube(lambda x, y, z: z, lambda x, y, z: y, lambda x, y, z: x)(x, y, z, mode=mode)
    return fmul("f32")(longest, np.full(32, 2, np.float32), mode)


define("v_cubema_f32", THREE, major)


def two_over_pi() -> int:
    """1,201 bits of the fraction, by Gauss and Legendre's iteration."""
    with decimal.localcontext() as context:
        context.prec = 480
        a, b, t, p = decimal.Decimal(1), 1 / decimal.Decimal(2).sqrt(), decimal.Decimal("0.25"), 1
        for _ in range(10):
            a, b, t, p = (a + b) / 2, (a * b).sqrt(), t - p * ((a - b) / 2) ** 2, 2 * p
        return int(2 / ((a + b) ** 2 / (4 * t)) * 2**1201)


def preop(a, segment, mode):
    bits_of_it, result = two_over_pi(), []
    for exponent, number in zip(a.view(np.uint64) >> np.uint64(52) & np.uint64(0x7FF), segment, strict=True):
        exponent = int(exponent)
        shift = 53 * (int(number) & 31) + max(0, exponent - 1077)
        part = (bits_of_it << shift & (1 << 1201) - 1) >> (1201 - 53)
        scale = -53 - shift + (128 if exponent >= 1968 else 0)
        result.append(float(Fraction(part) * Fraction(2) ** scale))
    return np.array(result)


define("v_trig_preop_f64", "f64 = f64 u32", preop)

# Division's scaling


def scale(kind: str):
    far, tiny, shift, low = {"f32": (96, 23, 64, -126), "f64": (768, 53, 128, -1022)}[kind]
    dtype = DTYPES[kind].type

    def one(s0, s1, s2):
        """Value and flag, as the manual's pseudocode has them."""

        def denormal(x):
            return 0 < abs(x) < dtype(2.0**low)

        def biased(x):
            return 0 if abs(x) < 2.0**low else (255 if kind == "f32" else 2047) if not math.isfinite(x) \
                else math.frexp(x)[1] - 1 + (127 if kind == "f32" else 1023)  # fmt: skip

        up, down = s0 * dtype(2.0**shift), s0 * dtype(2.0**-shift)
        distance = biased(s2) - biased(s1)
        # The manuals compare the quotient itself; hardware reports 1 for 2^low / 1.
        quotient = distance <= low
        if s2 == 0 or s1 == 0:
            return dtype(np.nan), distance >= far or quotient
        if distance >= far:
            return (up if s0 == s1 else s0), True
        if denormal(s1):
            return up, False
        inverse = denormal(dtype(1) / s1)
        if inverse and quotient:  # the manuals scale up, which would overflow
            return (down if s0 == s1 else s0), True
        if inverse:
            return down, False
        if quotient:
            return (up if s0 == s2 else s0), True
        if biased(s2) <= tiny:
            return up, False
        return s0, False

    def work(a, b, c):
        lanes = [one(*each) for each in zip(a, b, c, strict=True)]
        return np.array([v for v, _ in lanes], dtype), np.array([f for _, f in lanes], bool)

    return plain(work)


define("v_div_scale_f32", "f32 mask = f32 f32 f32", scale("f32"))
define("v_div_scale_f64", "f64 mask = f64 f64 f64", scale("f64"))
assert len(TABLE) > 300
