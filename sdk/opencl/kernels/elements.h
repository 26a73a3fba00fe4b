// Elements of plain tensors: stored little-endian in the tensor's dtype at an address that is a multiple of
// their size; computed as float, long or, of bool, int (sdk.expression.printer.TYPES). Storing a float rounds
// it once, half to even. Any NaN is stored as a NaN, not always the same one.
//
// plain/machine.h is the target's: types, bits_of, float_of, float16_of, from_float16 and how float16 is in
// memory, FMA, UNROLL. The other formats are made of bits, free of branches.
#pragma once
#include "plain/machine.h"

typedef unsigned short u16;
typedef short s16;
typedef long s64;

// -- formats: NAME_of is the stored element of a float, from_NAME the float of a stored element ------------

static inline u32 float32_of(float value) { return bits_of(value); }
static inline float from_float32(u32 stored) { return float_of(stored); }

// The upper half of a float. A NaN is made quiet: its payload may be in the lower half alone.
static inline u16 bfloat16_of(float value) {
    u32 bits = bits_of(value), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (u16)(value != value ? bits >> 16 | 0x40 : rounded);
}
static inline float from_bfloat16(u16 stored) { return float_of((u32)stored << 16); }

// Eight bits: `fraction` of them behind the point, 2^lowest the smallest normal number. Magnitudes are bits
// without the sign.

// The float of a magnitude. A subnormal number is a difference of two normal ones.
static inline u32 widened(u32 magnitude, u32 fraction, s32 lowest) {
    u32 moved = magnitude << (23 - fraction), base = (u32)(lowest + 127) << 23;
    u32 subnormal = bits_of(float_of(moved + base) - float_of(base));
    return magnitude < 1u << fraction ? subnormal : moved + base - (1u << 23);
}

// A float's magnitude rounded to the format, without a bound: what exceeds its range is a larger number. A
// subnormal result is the last bits of a sum that has the same last place.
static inline u32 narrowed(u32 magnitude, u32 fraction, s32 lowest) {
    u32 shift = 23 - fraction, unit = (u32)(lowest - (s32)fraction + 150) << 23;
    u32 subnormal = bits_of(float_of(magnitude) + float_of(unit)) - unit;
    u32 half_up = (1u << (shift - 1)) - 1 + (magnitude >> shift & 1);
    u32 normal = (magnitude - ((u32)(lowest + 126) << 23) + half_up) >> shift;
    return magnitude < (u32)(lowest + 127) << 23 ? subnormal : normal;
}

// OCP's E4M3 has no infinity: what exceeds 448 is 448.
static inline u8 float8e4m3fn_of(float value) {
    u32 bits = bits_of(value), magnitude = bits & 0x7fffffff, result = narrowed(magnitude, 3, -6);
    result = magnitude > 0x43e00000 ? 0x7e : result;
    result = value != value ? 0x7f : result;
    return (u8)(result | (bits >> 24 & 0x80));
}
static inline float from_float8e4m3fn(u8 stored) {
    u32 magnitude = stored & 0x7f, result = widened(magnitude, 3, -6);
    result = magnitude == 0x7f ? 0x7fc00000 : result;
    return float_of(result | (u32)(stored & 0x80) << 24);
}

// OCP's E5M2 is the upper half of a float16; but rounding twice is not rounding once.
static inline u8 float8e5m2_of(float value) {
    u32 bits = bits_of(value), magnitude = bits & 0x7fffffff, result = narrowed(magnitude, 2, -14);
    result = magnitude >= 0x47700000 ? 0x7c : result; // from halfway between 57344 and 65536 on
    result = value != value ? 0x7f : result;
    return (u8)(result | (bits >> 24 & 0x80));
}
static inline float from_float8e5m2(u8 stored) { return from_float16((u16)(stored << 8)); }

// -- memory -------------------------------------------------------------------------------------------------

#define FLOAT(name, bits)                                                                               \
    static inline float load_##name(global const u8 *p) { return from_##name(*(global const bits *)p); }\
    static inline void store_##name(global u8 *p, float value) { *(global bits *)p = name##_of(value); }

FLOAT(float32, u32)
FLOAT(bfloat16, u16)
FLOAT(float8e4m3fn, u8)
FLOAT(float8e5m2, u8)

// A value beyond the type's range keeps its low bits.
#define WHOLE(name, type)                                                                               \
    static inline long load_##name(global const u8 *p) { return *(global const type *)p; }              \
    static inline void store_##name(global u8 *p, long value) { *(global type *)p = (type)value; }

WHOLE(int8, s8)
WHOLE(uint8, u8)
WHOLE(int16, s16)
WHOLE(uint16, u16)
WHOLE(int32, s32)
WHOLE(int64, s64)

static inline int load_bool(global const u8 *p) { return *p != 0; }
static inline void store_bool(global u8 *p, long value) { *p = value != 0; }

#undef FLOAT
#undef WHOLE
