// What all kernels share: names for what the compiler offers (no device library is linked), the layout of
// tensors, and the end of every layer: requantisation, clamp, and a residual Add or a Lookup.
//
// An activation is u8 (int8 ones have the top bit turned), NHWC, `pitch` bytes a pixel: its channels and then
// bytes of any value, which only weights of 0 meet. A signed operand of dot4 and WMMA is always the weight;
// with OFFSET it is a weight less its channel's offset, and what that is to the sum is offset x the sum of
// inputs.
//
// Every operation rounds: build.py has clang contract none into a fused multiply-add. Sums wrap, too.

#pragma once

#pragma once

typedef unsigned char u8;
typedef signed char s8;
typedef unsigned int u32;
typedef int s32;
typedef unsigned int u32x2 __attribute__((ext_vector_type(2)));
typedef unsigned int u32x4 __attribute__((ext_vector_type(4)));
typedef int s32x2 __attribute__((ext_vector_type(2)));
typedef int s32x4 __attribute__((ext_vector_type(4)));
typedef int s32x8 __attribute__((ext_vector_type(8)));
typedef float f32x4 __attribute__((ext_vector_type(4)));

#define LANE __builtin_amdgcn_workitem_id_x()
#define GROUP __builtin_amdgcn_workgroup_id_x()
#define GROUP_Y __builtin_amdgcn_workgroup_id_y()
#define THREADS(x) __attribute__((reqd_work_group_size(x, 1, 1)))
#define min(a, b) __builtin_elementwise_min(a, b)
#define max(a, b) __builtin_elementwise_max(a, b)

// All waves of the workgroup are here, and what they wrote to LDS is there.
static inline void sync(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Division by a number known to the host: value < 2^31, multiplier = ceil(2^(31+shift) / divisor), shift =
// log2 of the divisor, rounded up.
struct divisor {
    u32 multiplier, shift;
};

static inline u32 divide(u32 value, struct divisor by) {
    return (u32)((unsigned long)(value << 1) * by.multiplier >> 32) >> by.shift;
}

static inline s32 dot4(u32 weights, u32 x, s32 sum) {
    return __builtin_amdgcn_sudot4(1, (s32)weights, 0, (s32)x, sum, 0);
}

// -- the end of a layer -----------------------------------------------------------------------------------

// What a result is clamped to, less its zero point, and that.
struct range {
    float low, high;
    s32 zero;
};

// 1.5 * 2^23: a number of less than 2^22 added to it is rounded to an integer, half to even.
#define INTEGER 12582912.0f

// accumulator * scale, clamped, rounded to an integer, plus INTEGER; bounds are integers, so clamping first is
// the same.
static inline float rounded(float product, struct range range) {
    return __builtin_amdgcn_fmed3f(product, range.low, range.high) + INTEGER;
}

// That integer and the zero point, in the low byte; the other bits are rubbish.
static inline u32 byte_of(float rounded, struct range range) {
    return __builtin_bit_cast(u32, rounded) + (u32)range.zero;
}

// The low bytes of four words.
static inline u32 pack(u32 a, u32 b, u32 c, u32 d) {
    u32 low = __builtin_amdgcn_perm(b, a, 0x0c0c0400), high = __builtin_amdgcn_perm(d, c, 0x04000c0c);
    return low | high;
}

static inline float byte_at(u32 word, u32 i) { return (float)(word >> 8 * i & 255); }

// rint((a - za) * ratio_a + (b - zb) * ratio_b), each operation rounded, plus INTEGER: a is what the layer
// itself computed.
struct residual {
    float own_ratio, other_ratio, other_zero;
    u32 other_pitch;
    struct range range;
};

static inline float add(float own, float other, struct residual add) {
    return rounded(own * add.own_ratio + (other - add.other_zero) * add.other_ratio, add.range);
}

// Four accumulators to four bytes; with RESIDUAL, `other` has those of the other operand; with TABLE, they
// are looked up.
static inline u32 finish(const s32 *sum, const float *scale, struct range range, struct residual residual,
                         u32 other, global const u8 *table) {
    u32 bytes[4];
    for (u32 i = 0; i < 4; i++) {
        float value = rounded((float)sum[i] * scale[i], range);
#ifdef RESIDUAL
        bytes[i] = byte_of(add(value - INTEGER, byte_at(other, i), residual), residual.range);
#elif defined TABLE
        bytes[i] = table[byte_of(value, range) & 255];
#else
        bytes[i] = byte_of(value, range);
#endif
    }
    return pack(bytes[0], bytes[1], bytes[2], bytes[3]);
}

// -- windows ----------------------------------------------------------------------------------------------

// A window over a picture of height x width; positions outside of it hold the zero point.
struct window {
    s32 height, width;        // of the picture
    s32 top, left;            // padding
    s32 stride_y, stride_x;
    s32 step_y, step_x;       // dilation
    s32 rows, columns;        // of the window
    u32 out_width;
    struct divisor by_out_width;
};
