// What generated expressions call (sdk/expression/operations.py, dialect "opencl"): elementary functions,
// each within the units in the last place that its operation declares, for all floats; infinities, NaN and
// signed zeros as IEEE 754 has them. "/" is the compiler's: v_rcp_f32 between two scalings, within 2.5 units.
//
// exp2, log2, 1/x and the square root are instructions, within one unit (RDNA3 and RDNA4 ISA manuals) for
// normal numbers; they take subnormal ones for zero and return none. The limits hold if each of their results
// is one unit beside the correctly rounded one, too (tests/unit/test_amd_maths.py). A subnormal result may be
// zero. In units: the limit, the largest error seen in 2 million floats with correctly rounded instructions,
// and the one with those moved by a unit:
//
//     exp    3   1.0  2.4     tanh   5   2.6  2.6     tan    5   3.3  4.2     asinh  4   1.9  2.0
//     expm1  3   1.5  1.5     sinh   4   1.5  3.5     asin   4   2.3  3.3     acosh  4   2.0  3.2
//     log    3   1.4  2.6     cosh   4   1.0  2.1     acos   4   1.2  2.1     atanh  5   1.9  1.9
//     log1p  2   1.4  1.4     sin    4   2.4  2.4     atan   5   1.9  2.5     pow   16   6.0  11.0
//     erf   16   3.8  4.1     cos    4   2.4  2.4     sqrt   3   0.5          "/"  2.5   1.5
//
// Polynomials are minimax fits of the relative error of the whole expression they stand in: least squares on
// 400 Chebyshev points with Lawson's weights, of functions computed in 120 bits; then coefficients rounded to
// float one after the other, from the lowest, the rest fitted again. The error that a comment names is that
// of the rounded coefficients.
#pragma once
#include "expressions.h"

#define EXP2(x) __builtin_amdgcn_exp2f(x)
#define LOG2(x) __builtin_amdgcn_logf(x)
#define RECIPROCAL(x) __builtin_amdgcn_rcpf(x)
#define ROOT(x) __builtin_amdgcn_sqrtf(x)
#define SCALE(x, exponent) __builtin_ldexpf(x, exponent)
#define SIGNED(magnitude, x) __builtin_copysignf(magnitude, x)
#define MAGNITUDE(x) __builtin_fabsf(x)
#define NORMAL(x) __builtin_amdgcn_classf(x, 0x108) // of any sign: not 0, subnormal, infinite or NaN

// OpenCL's own functions of these names are only declared: no device library is linked.
#define sqrt(x) __builtin_sqrtf(x) // v_sqrt_f32, of subnormal numbers scaled
#define exp(x) maths_exp(x)
#define expm1(x) maths_expm1(x)
#define log(x) maths_log(x)
#define log1p(x) maths_log1p(x)
#define erf(x) maths_erf(x)
#define tanh(x) maths_tanh(x)
#define sinh(x) maths_sinh(x)
#define cosh(x) maths_cosh(x)
#define sin(x) maths_sin(x)
#define cos(x) maths_cos(x)
#define tan(x) maths_tan(x)
#define asin(x) maths_asin(x)
#define acos(x) maths_acos(x)
#define atan(x) maths_atan(x)
#define asinh(x) maths_asinh(x)
#define acosh(x) maths_acosh(x)
#define atanh(x) maths_atanh(x)
#define pow(x, y) maths_pow(x, y)
#define fmod(x, y) maths_fmod(x, y)
#define fabs(x) __builtin_fabsf(x)
#define floor(x) __builtin_floorf(x)
#define ceil(x) __builtin_ceilf(x)
#define rint(x) __builtin_rintf(x)
#define sign(x) sign_of(x)

// Constants, some as the sum of two floats.
#define LOG2_E 1.44269502f
#define LN_2 0.693147182f
#define LN_2_LOW (-1.90465421e-09f)
#define HALF_PI 1.57079637f
#define HALF_PI_LOW (-4.37113883e-08f)
#define PI 3.14159274f

// -- exponentials -------------------------------------------------------------------------------------------

// x - t ln(2): for t = x log2(e), rounded, at most 2^-17, so that e^x = 2^t (1 + rest).
static inline float rest_of_exp(float x, float t) { return FMA(-t, LN_2_LOW, FMA(-t, LN_2, x)); }

static inline float maths_exp(float x) {
    float t = x * LOG2_E, power = EXP2(t);
    return NORMAL(power) ? FMA(power, rest_of_exp(x, t), power) : power;
}

// With n = x log2(e) as a whole number and r the rest: 2^n (e^r - 1) + (2^n - 1), all of it halved, because
// 2^128 is not a float. e^r - 1 = r + r^2 P(r) for |r| < 0.3475, within 2^-26.1.
static inline float maths_expm1(float x) {
    float from = x < -20.0f ? -20.0f : x; // where the result is -1
    float n = __builtin_fminf(__builtin_rintf(from * LOG2_E), 128.0f);
    float r = FMA(-n, LN_2_LOW, FMA(-n, LN_2, from));
    float p = FMA(r, FMA(r, FMA(r, FMA(r, 0.00138698542f, 0.00836644694f), 0.0416674465f), 0.16666545f),
                  0.49999997f);
    float power = SCALE(0.5f, (s32)n), part = FMA(power, FMA(r * r, p, r), power - 0.5f);
    return SIGNED(part + part, x);
}

// Where the difference would cancel x + x^3 P(x^2), |x| < 0.625, within 2^-22.9; else 1 - 2 / (e^2x + 1).
static inline float maths_tanh(float x) {
    float a = MAGNITUDE(x), z = x * x;
    float p = FMA(z, FMA(z, FMA(z, 0.0151958037f, -0.0519482531f), 0.133081838f), -0.333323419f);
    float large = FMA(-2.0f, RECIPROCAL(EXP2(a * (2 * LOG2_E)) + 1.0f), 1.0f);
    return SIGNED(a < 0.625f ? FMA(a * z, p, a) : large, x);
}

// e^a / 2 + e^-a / 2 of a magnitude, for quarter = 1/4; e^a / 2 - e^-a / 2 for -1/4. t stays below 129, to
// which it would be rounded where the result is not yet infinite.
static inline float hyperbolic(float a, float quarter) {
    float t = __builtin_fminf(a * LOG2_E, 0x1.01fffep+7f), power = EXP2(t - 1.0f);
    float other = quarter * RECIPROCAL(power);
    return power + FMA(rest_of_exp(a, t), power - other, other);
}

static inline float maths_cosh(float x) { return hyperbolic(MAGNITUDE(x), 0.25f); }

// x + x^3 P(x^2) for |x| < 1.5, within 2^-28.3.
static inline float maths_sinh(float x) {
    float a = MAGNITUDE(x), z = x * x;
    float p = FMA(z, FMA(z, FMA(z, 2.89344052e-06f, 0.000198157722f), 0.00833351631f), 0.166666627f);
    return SIGNED(a < 1.5f ? FMA(a * z, p, a) : hyperbolic(a, -0.25f), x);
}

// x + x P(x^2) for |x| < 1, within 2^-24.5. Else 1 - 2^P(|x|), where P is log2 of 1 - erf, fitted on [1, 4]
// to 2^-22.2 of erf; from 4 on the result is 1.
static inline float maths_erf(float x) {
    float a = MAGNITUDE(x), z = x * x, b = __builtin_fminf(a, 4.0f);
    float p = FMA(z, -0.000562834262f, 0.00491675548f);
    p = FMA(z, FMA(z, FMA(z, FMA(z, p, -0.0267105773f), 0.112801515f), -0.37612322f), 0.128379121f);
    float q = FMA(b, FMA(b, FMA(b, 0.00871370081f, -0.0904572085f), -0.998530209f), -1.57353044f);
    float large = 1.0f - EXP2(FMA(b, q, -0.0146140596f));
    return SIGNED(a > 1.0f ? large : FMA(a, p, a), x);
}

// -- logarithms ---------------------------------------------------------------------------------------------

static inline float maths_log(float x) {
    s32 shift = x < 0x1p-126f ? 32 : 0;
    return (LOG2(SCALE(x, shift)) - (float)shift) * LN_2;
}

// ln(2^shift (u + low)): u positive and normal, `low` less than its last place. u = 2^n m with m from
// sqrt(1/2) to sqrt(2); f = m - 1 and `low` with it. ln(1 + f) = f - f^2 / 2 + f^3 P(f), within 2^-27.3.
static inline float log_of_sum(float u, float low, s32 shift) {
    u32 bits = bits_of(u);
    s32 n = (s32)(bits - 0x3f3504f3) >> 23;
    float f = float_of(bits - ((u32)n << 23)) - 1.0f + SCALE(low, -n), exponent = (float)(n + shift);
    float p = FMA(f, FMA(f, FMA(f, -0.0763889998f, 0.127650887f), -0.131600991f), 0.142012283f);
    p = FMA(f, FMA(f, FMA(f, FMA(f, p, -0.166233182f), 0.20001252f), -0.250008225f), 0.333333313f);
    return FMA(exponent, LN_2, FMA(exponent, LN_2_LOW, FMA(f * f, FMA(f, p, -0.5f), f)));
}

static inline float maths_log1p(float x) {
    float u = 1.0f + x, result = log_of_sum(u, x - (u - 1.0f), 0);
    result = u > 0 ? result : LOG2(u); // -infinity of -1, NaN below
    return SIGNED(x < INFINITY ? result : x, x);
}

// ln(x + sqrt(x^2 + 1)) = log1p(x + x^2 / (1 + sqrt(1 + x^2))); for large x ln(2 x).
static inline float maths_asinh(float x) {
    float a = MAGNITUDE(x), z = a * a, y = FMA(z, RECIPROCAL(1.0f + ROOT(1.0f + z)), a), u = 1.0f + y;
    s32 large = a > 4096.0f;
    float result = log_of_sum(large ? a : u, large ? 0 : y - (u - 1.0f), large);
    return SIGNED(a < INFINITY ? result : a, x);
}

// ln(x + sqrt(x^2 - 1)) = log1p(t + sqrt(t^2 + 2 t)) with t = x - 1; for large x ln(2 x).
static inline float maths_acosh(float x) {
    float a = x >= 1.0f ? x : NAN, t = a - 1.0f, y = t + ROOT(FMA(t, t, t + t)), u = 1.0f + y;
    s32 large = a > 4096.0f;
    float result = log_of_sum(large ? a : u, large ? 0 : y - (u - 1.0f), large);
    return a < INFINITY ? result : a;
}

// log1p(2 x / (1 - x)) / 2; the quotient is corrected once.
static inline float maths_atanh(float x) {
    float a = MAGNITUDE(x), twice = a + a, below = 1.0f - a, inverse = RECIPROCAL(below);
    float y = twice * inverse;
    y = below > 0 ? FMA(FMA(-y, below, twice), inverse, y) : -LOG2(below); // infinity of 1, NaN beyond
    return SIGNED(0.5f * maths_log1p(y), x);
}

// -- powers and remainders ----------------------------------------------------------------------------------

// a^y = 2^(y log2(a)), where log2(a) is the sum of two floats, within 2^-27: a = 2^n m with m from sqrt(1/2)
// to sqrt(2); with s = (m - 1) / (m + 1), in two floats, log2(m) = 2 log2(e) s + s^3 P(s^2), within
// 2^-30.1. `exact` + `low` is 2 log2(e) s in two floats.
static inline float power_of_magnitude(float a, float y) {
    float m = __builtin_amdgcn_frexp_mantf(a);
    s32 low_half = m < 0.707106769f;
    float n = (float)(__builtin_amdgcn_frexp_expf(a) - low_half);
    m = SCALE(m, low_half);
    float f = m - 1.0f, d = m + 1.0f, inverse = RECIPROCAL(d), s = f * inverse;
    float s_low = FMA(-s, m - (d - 1.0f), FMA(-s, d, f)) * inverse, z = s * s;
    float p = FMA(z, FMA(z, 0.430903465f, 0.576756477f), 0.961798251f);
    float exact = s * (2 * LOG2_E), low = FMA(s, 2 * LOG2_E, -exact);
    low = FMA(s * z, p, FMA(s_low, 2 * LOG2_E, FMA(s, 3.85192607e-08f, low)));
    float sum = n + exact;
    low += (n - sum) + exact;
    float log2 = sum + low;
    low += sum - log2;
    float t = y * log2, rest = FMA(y, low, FMA(y, log2, -t)), power = EXP2(t);
    return NORMAL(power) ? FMA(power, rest * LN_2, power) : power;
}

static inline float maths_pow(float x, float y) {
    float a = MAGNITUDE(x), result = power_of_magnitude(a, y), halved = 0.5f * y;
    result = a == 0 || a == INFINITY ? ((a == 0) == (y < 0) ? INFINITY : 0) : result;
    result = a == 1.0f ? 1.0f : result;
    result = x < 0 && a < INFINITY && __builtin_rintf(y) != y ? NAN : result;
    // Odd: whole, and half of it not. An infinity and any large number are even.
    result = __builtin_rintf(y) == y && __builtin_rintf(halved) != halved ? SIGNED(result, x) : result;
    result = x != x || y != y ? NAN : result;
    return y == 0 || x == 1.0f ? 1.0f : result;
}

// Exact: the significand of x, 18 bits at a time, less the nearest multiple of that of y; both are multiples
// of 2^-24, and so is the rest, of at most 0.7 of y's. Of infinities, 0 and NaN the significands make NaN.
static inline float maths_fmod(float x, float y) {
    float a = MAGNITUDE(x), b = MAGNITUDE(y);
    if (a < b)
        return x;
    float m = __builtin_amdgcn_frexp_mantf(a), d = __builtin_amdgcn_frexp_mantf(b), inverse = RECIPROCAL(d);
    s32 exponent = __builtin_amdgcn_frexp_expf(b), bits = __builtin_amdgcn_frexp_expf(a) - exponent;
    for (;;) {
        s32 step = min(bits, 18);
        m = SCALE(m, step);
        m = FMA(-__builtin_rintf(m * inverse), d, m);
        bits -= step;
        if (bits == 0)
            break;
    }
    return SIGNED(SCALE(m < 0 ? m + d : m, exponent), x);
}

// -- sine, cosine, tangent ----------------------------------------------------------------------------------

struct angle {
    float rest;  // at most a little over pi / 4
    u32 quarter; // how many times pi / 2 beside it; modulo 4
};

// The upper word of two, moved left by less than 32 bits.
static inline u32 shifted(u32 high, u32 low, u32 by) {
    return (u32)(((unsigned long)high << 32 | low) << by >> 32);
}

// a = M 2^E, of 2^16 and more, by the bits of 2 / pi that say how many quarters of a turn, modulo 4, M 2^E
// are: M times 96 of them, beginning with the one that stands for 2^(1 - E) (Payne and Hanek, 1983). Of the
// float that is nearest to a multiple of pi / 2 the rest has 34 bits that are right.
static inline struct angle reduced_large(float a) {
    // Behind a word of zeros the bits are a2f9836e 4e441529 fc2757d1 f534ddc0 db629599 3c439041; those behind
    // them are too small. Words are selected, 4, 2 and 1 further on: a table would be data beside the code.
    u32 bits = bits_of(a), m = (bits & 0x7fffff) | 0x800000, from = (bits >> 23) - 120;
    u32 by4 = from & 128, by2 = from & 64, by1 = from & 32, by = from & 31;
    u32 a0 = by4 ? 0xf534ddc0 : 0, a1 = by4 ? 0xdb629599 : 0xa2f9836e, a2 = by4 ? 0x3c439041 : 0x4e441529;
    u32 a3 = by4 ? 0 : 0xfc2757d1;
    u32 b0 = by2 ? a2 : a0, b1 = by2 ? a3 : a1, b2 = by2 ? 0xf534ddc0 : a2, b3 = by2 ? 0xdb629599 : a3;
    u32 c0 = by1 ? b1 : b0, c1 = by1 ? b2 : b1, c2 = by1 ? b3 : b2;
    u32 c3 = by1 ? (by2 ? 0x3c439041 : 0xf534ddc0) : b3;
    unsigned long low = (unsigned long)m * shifted(c2, c3, by);
    unsigned long middle = (unsigned long)m * shifted(c1, c2, by) + (low >> 32);
    u32 high = m * shifted(c0, c1, by) + (u32)(middle >> 32);
    unsigned long quarters = (unsigned long)high << 32 | (u32)middle; // 2 bits before the point
    long rest = (long)(quarters << 2 | (u32)low >> 30);               // from -1/2 to 1/2, in 64 bits
    struct angle angle = {(float)rest * (0x1p-64f * HALF_PI), (u32)(quarters >> 62) + (rest < 0)};
    return angle;
}

// Of a magnitude. n quarters in three parts of pi / 2 (its next float is -1.72e-15): the first difference is
// exact below 2^21 quarters.
static inline struct angle reduced(float a) {
    struct angle angle;
    if (a < 65536.0f) {
        float n = __builtin_rintf(a * (1.0f / HALF_PI));
        angle.rest = FMA(-n, -1.71512451e-15f, FMA(-n, HALF_PI_LOW, FMA(-n, HALF_PI, a)));
        angle.quarter = (u32)n;
    } else {
        angle = reduced_large(a);
        angle.rest = a < INFINITY ? angle.rest : NAN;
    }
    return angle;
}

// Of |rest| < 0.79: sine r + r^3 P(r^2), within 2^-27.8; cosine 1 - r^2 / 2 + r^4 P(r^2), within 2^-23.4.
static inline float wave(struct angle angle) {
    float r = angle.rest, z = r * r;
    float p = FMA(z, FMA(z, -0.000195078828f, 0.00833210628f), -0.166666538f);
    float q = FMA(z, FMA(z, -0.00136458909f, 0.0416609384f), -0.5f);
    float result = angle.quarter & 1 ? FMA(z, q, 1.0f) : FMA(r * z, p, r);
    return float_of(bits_of(result) ^ (angle.quarter & 2) << 30);
}

static inline float maths_sin(float x) {
    float result = wave(reduced(MAGNITUDE(x)));
    return float_of(bits_of(result) ^ (bits_of(x) & 0x80000000));
}

static inline float maths_cos(float x) {
    struct angle angle = reduced(MAGNITUDE(x));
    angle.quarter += 1;
    return wave(angle);
}

// r + r^3 P(r^2), |r| < 0.79, within 2^-25.6.
static inline float maths_tan(float x) {
    struct angle angle = reduced(MAGNITUDE(x));
    float r = angle.rest, z = r * r, p = FMA(z, 0.00950860605f, 0.00291344128f);
    p = FMA(z, FMA(z, FMA(z, FMA(z, p, 0.0245578159f), 0.0533757955f), 0.133392245f), 0.333331406f);
    float tangent = FMA(r * z, p, r), result = angle.quarter & 1 ? -RECIPROCAL(tangent) : tangent;
    return float_of(bits_of(result) ^ (bits_of(x) & 0x80000000));
}

// -- their inverses -----------------------------------------------------------------------------------------

// asin(s) for s^2 = z up to 1/4: s + s^3 P(s^2), within 2^-27.6.
static inline float asin_within(float s, float z) {
    float p = FMA(z, FMA(z, 0.0421583056f, 0.0241847783f), 0.0454691499f);
    return FMA(s * z, FMA(z, FMA(z, p, 0.0749530941f), 0.166667521f), s);
}

// Beyond 1/2 pi / 2 - 2 asin(sqrt((1 - x) / 2)).
static inline float maths_asin(float x) {
    float a = MAGNITUDE(x), rest = FMA(a, -0.5f, 0.5f);
    s32 large = a > 0.5f;
    float result = asin_within(large ? ROOT(rest) : a, large ? rest : a * a);
    return SIGNED(large ? FMA(-2.0f, result, HALF_PI) : result, x);
}

static inline float maths_acos(float x) {
    float a = MAGNITUDE(x), rest = FMA(a, -0.5f, 0.5f);
    s32 large = a > 0.5f;
    float result = asin_within(large ? ROOT(rest) : x, large ? rest : x * x);
    float twice = result + result, left = x < 0 ? PI - twice : twice;
    return large ? left : HALF_PI - result;
}

// x + x^3 P(x^2) up to 1, within 2^-25.8; beyond pi / 2 less that of 1 / x.
static inline float maths_atan(float x) {
    float a = MAGNITUDE(x), b = a > 1.0f ? RECIPROCAL(a) : a, z = b * b;
    float p = FMA(z, FMA(z, FMA(z, 0.00291951792f, -0.0163634513f), 0.0432049856f), -0.0755167082f);
    p = FMA(z, FMA(z, FMA(z, FMA(z, p, 0.106657706f), -0.14211002f), 0.199937671f), -0.333331525f);
    float result = FMA(b * z, p, b);
    return SIGNED(a > 1.0f ? HALF_PI - result : result, x);
}
