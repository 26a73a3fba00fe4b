// What generated expressions call beside elementary functions (sdk/expression/operations.py, dialect
// "opencl"), as dsp/c/kernels/plain/expressions.h has it.
#pragma once
#include "elements.h"

#ifndef INT64_C
#define INT64_C(digits) digits##L
#endif

// A NaN stays one.
static inline float most(float a, float b) { return a > b || a != a ? a : b; }
static inline float least(float a, float b) { return a < b || a != a ? a : b; }
static inline float sign_of(float a) { return a != a ? a : (float)((a > 0) - (a < 0)); }

// Towards zero, within 64 bits: up to the largest number below 2^63 that a double has. NaN is 0.
static inline long whole(float a) {
    if (a != a)
        return 0;
    if (a >= 0x1p63f)
        return 0x7ffffffffffffc00L;
    if (a <= -0x1p63f)
        return -0x7fffffffffffffffL - 1;
    return (long)a;
}

static inline long absolute(long a) { return a < 0 ? (long)(0 - (unsigned long)a) : a; }

// Towards zero; by 0 it is as by 1 without a sign. Beside that of indices, which is of other types.
__attribute__((overloadable)) static inline long divide(long a, long b) {
    if (b == -1)
        return (long)(0 - (unsigned long)a);
    return b ? a / b : a;
}

// With the sign of the divisor; 0 of a division by 0.
static inline long remainder_of(long a, long b) {
    long rest = b == 0 || b == -1 ? 0 : a % b;
    return rest && (rest < 0) != (b < 0) ? rest + b : rest;
}

static inline float round_float16(float x) { return from_float16(float16_of(x)); }
static inline float round_bfloat16(float x) { return from_bfloat16(bfloat16_of(x)); }
static inline float round_float8e4m3fn(float x) { return from_float8e4m3fn(float8e4m3fn_of(x)); }
static inline float round_float8e5m2(float x) { return from_float8e5m2(float8e5m2_of(x)); }
static inline float round_float32(float x) { return x; } // what expressions compute in

// Of integers, towards minus infinity.
static inline long floor_divide(long a, long b) { return a / b - (a % b < 0 ? 1 : 0); }
