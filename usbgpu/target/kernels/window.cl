// Layers that keep channels apart: depthwise convolutions, AveragePool (AVERAGE) and MaxPool (MAXIMUM).
//
// A work-item makes four channels of STRIP pixels of a row. Four rows of the window are taken together: the
// dwords of a column, which have four channels each, are transposed, so that each dot4 has four taps of one
// channel; the pixels of the strip share what they have in common. With ROWS and COLUMNS the window, its
// stride and its dilation are constants and its loops are unrolled; else they come from the arguments.
//
// weights: [tap][pitch]; constants: [bias, scale, OFFSET: offset][pitch], AVERAGE: [pixel][scale]; other: of
// RESIDUAL or TABLE.
#include "kernel.h"

#if !defined AVERAGE && !defined MAXIMUM
#define DEPTHWISE
#endif

struct pool {
    u32 quads, items, pixels_x;   // dwords of channels; quads x strips of a row; pixels of a row
    u32 x_pitch, y_pitch, weight_pitch;
    u32 padding;                  // four times the zero point
    s32 bias;                     // of AVERAGE, for all channels
    struct range range;
    struct residual residual;
    struct divisor by_quads;
    struct window window;
};

#ifndef ROWS
#define STRIP 1
#define ROWS p.window.rows
#define COLUMNS p.window.columns
#define STRIDE_X p.window.stride_x
#define STEP_Y p.window.step_y
#define STEP_X p.window.step_x
#define UNROLL _Pragma("nounroll")
#define TAPS(left) 4
#else
#define UNROLL _Pragma("unroll")
#define TAPS(left) min(left, 4)
#endif

#ifndef MAXIMUM
#define PERMUTED __builtin_amdgcn_perm

// Four channels of `count` pixels to `count` pixels of each channel, and zeros behind these.
static inline u32x4 transposed(u32x4 pixel, s32 count) {
    if (count == 1)
        return (u32x4){pixel.x & 255, pixel.x >> 8 & 255, pixel.x >> 16 & 255, pixel.x >> 24};
    u32 low = PERMUTED(pixel.y, pixel.x, 0x05010400), high = PERMUTED(pixel.y, pixel.x, 0x07030602);
    if (count == 2)
        return (u32x4){low & 0xffff, low >> 16, high & 0xffff, high >> 16};
    if (count == 3)
        return (u32x4){PERMUTED(pixel.z, low, 0x0c040100), PERMUTED(pixel.z, low, 0x0c050302),
                       PERMUTED(pixel.z, high, 0x0c060100), PERMUTED(pixel.z, high, 0x0c070302)};
    u32 low_2 = PERMUTED(pixel.w, pixel.z, 0x05010400), high_2 = PERMUTED(pixel.w, pixel.z, 0x07030602);
    return (u32x4){PERMUTED(low_2, low, 0x05040100), PERMUTED(low_2, low, 0x07060302),
                   PERMUTED(high_2, high, 0x05040100), PERMUTED(high_2, high, 0x07060302)};
}
#endif

THREADS(64) kernel void NAME(global const u8 *x, global const u8 *weights, global const u8 *constants,
                             global u8 *y, global const u8 *other, struct pool p) {
    u32 item = GROUP * 64 + LANE, y_row = GROUP_Y;
    if (item >= p.items)
        return;
    u32 strip = divide(item, p.by_quads), channel = (item - strip * p.quads) * 4;
    s32 row = (s32)y_row * p.window.stride_y - p.window.top;
    s32 column = (s32)(strip * STRIP) * STRIDE_X - p.window.left;
#if defined DEPTHWISE
    s32x4 bias = *(global const s32x4 *)(constants + channel * 4);
#elif defined AVERAGE
    s32x4 bias = p.bias;
#else
    s32x4 bias = 0;
#endif
    s32 sum[STRIP][4], count[STRIP][4];
    for (u32 s = 0; s < STRIP; s++)
        for (u32 i = 0; i < 4; i++) {
            sum[s][i] = bias[i];
            count[s][i] = 0;
        }
    UNROLL for (s32 dy = 0; dy < ROWS; dy += 4) {
        s32 left = ROWS - dy, taps = TAPS(left);
        u32 ones = 0x01010101u >> 8 * (4 - min(left, 4));
        global const u8 *line[4];
        bool row_inside[4];
        for (s32 j = 0; j < 4; j++) {
            s32 at_y = row + (dy + j) * STEP_Y;
            row_inside[j] = (j < left) & ((u32)at_y < (u32)p.window.height);
            line[j] = x + (row_inside[j] ? (u32)(at_y * p.window.width) : 0) * p.x_pitch;
        }
        UNROLL for (s32 dx = 0; dx < COLUMNS; dx++) {
            u32x4 weight = ones;
#ifdef DEPTHWISE
            u32 quad = (dy * COLUMNS + dx) * p.weight_pitch + channel, below = COLUMNS * p.weight_pitch;
            for (s32 j = 0; j < 4; j++)
                weight[j] = j < left ? *(global const u32 *)(weights + (quad + j * below)) : 0;
            weight = transposed(weight, taps);
#endif
            for (u32 s = 0; s < STRIP; s++) {
                s32 at_x = column + (s32)s * STRIDE_X + dx * STEP_X;
                bool inside = (u32)at_x < (u32)p.window.width;
                u32 offset = (inside ? (u32)at_x : 0) * p.x_pitch + channel;
                u32x4 value = p.padding;
                for (s32 j = 0; j < 4; j++) {
                    u32 read = *(global const u32 *)(line[j] + offset);
                    value[j] = (inside & row_inside[j]) ? read : p.padding;
                }
#ifdef MAXIMUM
                for (u32 i = 0; i < 4; i++)
                    for (s32 j = 0; j < taps; j++)
                        sum[s][i] = max(sum[s][i], (s32)(value[j] >> 8 * i & 255));
#else
                value = transposed(value, taps);
                for (u32 i = 0; i < 4; i++)
                    sum[s][i] = dot4(weight[i], value[i], sum[s][i]);
#endif
#ifdef OFFSET
                for (u32 i = 0; i < 4; i++)
                    count[s][i] = dot4(ones, value[i], count[s][i]);
#endif
            }
        }
    }
#ifdef DEPTHWISE
    f32x4 factor = *(global const f32x4 *)(constants + (p.weight_pitch + channel) * 4);
#ifdef OFFSET
    s32x4 offset = *(global const s32x4 *)(constants + (2 * p.weight_pitch + channel) * 4);
#endif
#endif
    for (u32 s = 0; s < STRIP; s++) {
        u32 x_column = strip * STRIP + s;
        if (x_column >= p.pixels_x)
            return;
        u32 pixel = y_row * p.pixels_x + x_column, added = 0;
#ifdef RESIDUAL
        added = *(global const u32 *)(other + (pixel * p.residual.other_pitch + channel));
#endif
#ifdef MAXIMUM
        u32 result = pack(sum[s][0], sum[s][1], sum[s][2], sum[s][3]);
#else
        float scale[4];
        for (u32 i = 0; i < 4; i++) {
#ifdef AVERAGE
            scale[i] = ((global const float *)constants)[pixel];
#else
#ifdef OFFSET
            sum[s][i] += offset[i] * count[s][i];
#endif
            scale[i] = factor[i];
#endif
        }
        u32 result = finish(sum[s], scale, p.range, p.residual, added, other);
#endif
        *(global u32 *)(y + (pixel * p.y_pitch + channel)) = result;
    }
}
