"""v_trig_preop_f64: 53 bits of 2 / pi, for the reduction of large angles.

Source: RDNA3 and RDNA4 ISA manuals: 1,201 bits of the fraction, shifted left by 53 times the second source's
low five bits, and by what the first source's exponent is above 1,077; scaled up by 2^128 from exponent 1,968.
"""

from __future__ import annotations

import functools

from emulator.amdgpu.isa.emit import Emitter
from emulator.amdgpu.isa.ir import F64, I64, Value
from emulator.amdgpu.isa.vector.division import biased
from emulator.amdgpu.isa.vector.floating import scaled
from emulator.amdgpu.isa.vector.frame import define, like

BITS = 1201
STEP = 53
WORDS = -(-BITS // 64)


@functools.cache
def two_over_pi() -> tuple[int, ...]:
    """The bits after the point, in words of 64, zeros after them. Pi is Machin's formula in integers."""
    one = 1 << BITS + 64

    def arctan_of_inverse(n: int) -> int:
        total, term, k = 0, one // n, 0
        while term:
            total += (-1) ** k * (term // (2 * k + 1))
            term //= n * n
            k += 1
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    fraction = (2 * one * one // pi) >> 64
    whole = fraction << 64 * WORDS - BITS
    return tuple(whole >> 64 * (WORDS - 1 - at) & (1 << 64) - 1 for at in range(WORDS))


def _preop(e: Emitter, a: Value, segment: Value) -> Value:
    b = e.b
    exponent = biased(e, a)
    shift = b.mul(b.to("zext", b.and_(segment, like(segment, 31)), I64), like(exponent, STEP))
    shift = b.add(shift, b.intrinsic("smax", b.sub(exponent, like(exponent, 1077)), like(exponent, 0)))
    place = b.lshr(shift, like(shift, 6))
    first = second = like(shift, 0)
    words = (*two_over_pi(), 0)
    for at, word in enumerate(words[:-1]):
        here = b.icmp("eq", place, like(place, at))
        signed = [number - (1 << 64) if number >> 63 else number for number in (word, words[at + 1])]
        first = b.select(here, like(shift, signed[0]), first)
        second = b.select(here, like(shift, signed[1]), second)
    top = b.intrinsic("fshl", first, second, b.and_(shift, like(shift, 63)))
    number = b.to("uitofp", b.lshr(top, like(top, 64 - STEP)), F64)
    scale = b.sub(like(shift, -STEP), shift)
    large = b.icmp("sge", exponent, like(exponent, 1968))
    return scaled(e, number, b.select(large, b.add(scale, like(scale, 128)), scale))


define("v_trig_preop_f64", "f64 = f64 b32", _preop)
