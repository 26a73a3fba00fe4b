// What kernels of floats share: how elements are stored, and buffers that end.
//
// Every kernel computes in float32. TYPE is half, bf16 or float; conversions round to nearest, ties to even,
// and keep subnormals, infinities and NaN.
#pragma once
#include "elements.h"

typedef u16 bf16;
typedef unsigned long u64;
typedef unsigned int u32x8 __attribute__((ext_vector_type(8)));
typedef float f32x8 __attribute__((ext_vector_type(8)));

// Tensors begin at any element, so that vectors are aligned to elements only.
typedef half half8 __attribute__((ext_vector_type(8), aligned(2)));
typedef u16 bf16x8 __attribute__((ext_vector_type(8), aligned(2)));
typedef float float8 __attribute__((ext_vector_type(8), aligned(4)));

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)

static inline float widen_half(half value) { return (float)value; }
static inline float widen_bf16(bf16 value) { return from_bfloat16(value); }
static inline float widen_float(float value) { return value; }

static inline half narrow_half(float value) { return (half)value; }
static inline bf16 narrow_bf16(float value) { return bfloat16_of(value); }
static inline float narrow_float(float value) { return value; }

// load_TYPE(base, element), store_TYPE(base, element, value), and of eight elements in a row load8_TYPE and
// store8_TYPE.
#define ACCESS(type, vector)                                                                               \
    static inline float load_##type(global const void *base, u32 element) {                                \
        return widen_##type(((global const type *)base)[element]);                                         \
    }                                                                                                      \
    static inline void store_##type(global void *base, u32 element, float value) {                         \
        ((global type *)base)[element] = narrow_##type(value);                                             \
    }                                                                                                      \
    static inline void load8_##type(global const void *base, u32 element, float *values) {                 \
        vector loaded = *(global const vector *)((global const type *)base + element);                     \
        for (u32 i = 0; i < 8; i++)                                                                        \
            values[i] = widen_##type(loaded[i]);                                                           \
    }                                                                                                      \
    static inline void store8_##type(global void *base, u32 element, const float *values) {                \
        vector stored;                                                                                     \
        for (u32 i = 0; i < 8; i++)                                                                        \
            stored[i] = narrow_##type(values[i]);                                                          \
        *(global vector *)((global type *)base + element) = stored;                                        \
    }
ACCESS(half, half8)
ACCESS(bf16, bf16x8)
ACCESS(float, float8)

// -- buffers ------------------------------------------------------------------------------------------------

// A descriptor of `bytes` from `base` on: a load that ends beyond them gives 0. Word 3 as LLVM's MLIR has it
// for RDNA: bounds checked by bytes.
typedef __amdgpu_buffer_rsrc_t buffer;

static inline buffer buffer_of(global const void *base, u32 bytes) {
    return __builtin_amdgcn_make_buffer_rsrc((global void *)base, 0, (int)bytes, 0x31027000);
}

#define NOWHERE 0x80000000u // a lane's offset that is beyond every buffer

#define load_u16(from, lane, all) __builtin_amdgcn_raw_buffer_load_b16(from, lane, all, 0)
#define load_u32(from, lane, all) __builtin_amdgcn_raw_buffer_load_b32(from, lane, all, 0)
#define load_u32x2(from, lane, all) __builtin_amdgcn_raw_buffer_load_b64(from, lane, all, 0)
#define load_u32x4(from, lane, all) __builtin_amdgcn_raw_buffer_load_b128(from, lane, all, 0)

// fetch_TYPE(from, lane, all): the element at `lane` + `all` bytes; fetch4_TYPE and fetch8_TYPE: so many in a
// row.
static inline float fetch_half(buffer from, u32 lane, u32 all) {
    return (float)__builtin_bit_cast(half, (u16)load_u16(from, lane, all));
}
static inline float fetch_bf16(buffer from, u32 lane, u32 all) {
    return widen_bf16((u16)load_u16(from, lane, all));
}
static inline float fetch_float(buffer from, u32 lane, u32 all) {
    return __builtin_bit_cast(float, load_u32(from, lane, all));
}
static inline float half_of(u32 word, u32 i) {
    return (float)__builtin_bit_cast(half, (u16)(word >> 16 * (i % 2)));
}
static inline float bf16_of(u32 word, u32 i) { return widen_bf16((u16)(word >> 16 * (i % 2))); }
#define FETCH_16(type)                                                                                     \
    static inline void fetch4_##type(buffer from, u32 lane, u32 all, float *values) {                      \
        u32x2 words = load_u32x2(from, lane, all);                                                         \
        for (u32 i = 0; i < 4; i++)                                                                        \
            values[i] = type##_of(words[i / 2], i);                                                        \
    }                                                                                                      \
    static inline void fetch8_##type(buffer from, u32 lane, u32 all, float *values) {                      \
        u32x4 words = load_u32x4(from, lane, all);                                                         \
        for (u32 i = 0; i < 8; i++)                                                                        \
            values[i] = type##_of(words[i / 2], i);                                                        \
    }
FETCH_16(half)
FETCH_16(bf16)
static inline void fetch4_float(buffer from, u32 lane, u32 all, float *values) {
    // The vector as a whole: clang 19 takes the bits of an element from the first one.
    f32x4 loaded = __builtin_bit_cast(f32x4, load_u32x4(from, lane, all));
    for (u32 i = 0; i < 4; i++)
        values[i] = loaded[i];
}
static inline void fetch8_float(buffer from, u32 lane, u32 all, float *values) {
    fetch4_float(from, lane, all, values);
    fetch4_float(from, lane + 16, all, values + 4);
}
