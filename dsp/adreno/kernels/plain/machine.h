// What sdk/opencl/kernels/elements.h asks of a target, in OpenCL C 1.2. float16 needs no extension in memory;
// a value is rounded to it by storing it. Elementary functions are OpenCL's own.
#pragma once

typedef uchar u8;
typedef char s8;
typedef uint u32;
typedef int s32;

#define LANE ((u32)get_local_id(0))
#define GROUP ((u32)get_group_id(0))
#define GROUP_Y ((u32)get_group_id(1))
#define THREADS(x) __attribute__((reqd_work_group_size(x, 1, 1)))
#define UNROLL _Pragma("unroll")
#define sync() barrier(CLK_LOCAL_MEM_FENCE)

// A product and its sum, rounded once where that is as fast as twice.
#ifdef FP_FAST_FMAF
#define FMA(a, b, c) fma(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

// Division by a number known to the host: value < 2^31, multiplier = ceil(2^(31+shift) / divisor), shift =
// log2 of the divisor, rounded up.
struct divisor {
    u32 multiplier, shift;
};

__attribute__((overloadable)) static inline u32 divide(u32 value, struct divisor by) {
    return mul_hi(value << 1, by.multiplier) >> by.shift;
}

static inline u32 bits_of(float value) { return as_uint(value); }
static inline float float_of(u32 bits) { return as_float(bits); }

static inline float load_float16(global const u8 *p) { return vload_half(0, (global const half *)p); }
static inline void store_float16(global u8 *p, float value) { vstore_half_rte(value, 0, (global half *)p); }

static inline ushort float16_of(float value) {
    ushort stored;
    vstore_half_rte(value, 0, (private half *)&stored);
    return stored;
}
static inline float from_float16(ushort stored) { return vload_half(0, (private const half *)&stored); }

// a / b, correctly rounded: OpenCL's own division is within 2.5 units in the last place.
static inline float quotient(float a, float b) {
    const float near = a / b, better = near + fma(-near, b, a) / b;
    return isfinite(better) ? better : near;
}

#define sign(x) sign_of(x) // of NaN it is NaN, not OpenCL's 0
