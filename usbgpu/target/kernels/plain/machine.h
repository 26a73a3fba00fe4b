// What sdk/opencl/kernels/elements.h asks of a target. float16 is what the machine converts; kernels keep its
// subnormal numbers (the default of clang's mode register).
#pragma once
#include "kernel.h"

#pragma OPENCL EXTENSION cl_khr_fp16 : enable

#define UNROLL _Pragma("unroll")
#define FMA(a, b, c) __builtin_fmaf(a, b, c)

static inline u32 bits_of(float value) { return __builtin_bit_cast(u32, value); }
static inline float float_of(u32 bits) { return __builtin_bit_cast(float, bits); }

static inline unsigned short float16_of(float value) {
    return __builtin_bit_cast(unsigned short, (half)value);
}
static inline float from_float16(unsigned short stored) { return (float)__builtin_bit_cast(half, stored); }

static inline float load_float16(global const u8 *p) { return from_float16(*(global const unsigned short *)p); }
static inline void store_float16(global u8 *p, float value) {
    *(global unsigned short *)p = float16_of(value);
}
