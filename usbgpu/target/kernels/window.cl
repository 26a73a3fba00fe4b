// Layers that keep channels apart: depthwise convolutions, AveragePool (AVERAGE) and MaxPool (MAXIMUM).
//
// A work-item makes four channels of STRIP pixels of a row. The four bytes of a dword belong to different
// sums, so each is a dot4 with a weight whose other bytes are 0: no unpacking, and no more instructions than
// multiply-adds. With ROWS and COLUMNS the window, its stride and its dilation are constants and its loop is
// unrolled; else they come from the arguments.
//
// weights: [tap][pitch]; constants: [bias, scale, OFFSET: offset][pitch], AVERAGE: [pixel][scale]; other: of
// RESIDUAL or TABLE.
#include "kernel.h"

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
#else
#define UNROLL _Pragma("unroll")
#endif

THREADS(64) kernel void NAME(global const u8 *x, global const u8 *weights, global const u8 *constants,
                             global u8 *y, global const u8 *other, struct pool p) {
    u32 item = GROUP * 64 + LANE, y_row = GROUP_Y;
    if (item >= p.items)
        return;
    u32 strip = divide(item, p.by_quads), channel = (item - strip * p.quads) * 4;
    s32 row = (s32)y_row * p.window.stride_y - p.window.top;
    s32 column = (s32)(strip * STRIP) * STRIDE_X - p.window.left;
    s32 sum[STRIP][4], count[STRIP][4];
    for (u32 s = 0; s < STRIP; s++)
        for (u32 i = 0; i < 4; i++)
            sum[s][i] = count[s][i] = 0;
    UNROLL for (s32 dy = 0; dy < ROWS; dy++) {
        s32 at_y = row + dy * STEP_Y;
        bool row_inside = (u32)at_y < (u32)p.window.height;
        u32 line = row_inside ? (u32)(at_y * p.window.width) : 0;
        UNROLL for (s32 dx = 0; dx < COLUMNS; dx++) {
            u32 weight[4];
#if defined AVERAGE
            for (u32 i = 0; i < 4; i++)
                weight[i] = 1u << 8 * i;
#elif !defined MAXIMUM
            u32 quad = *(global const u32 *)(weights + ((dy * COLUMNS + dx) * p.weight_pitch + channel));
            for (u32 i = 0; i < 4; i++)
                weight[i] = quad & 255u << 8 * i;
#endif
            UNROLL for (u32 s = 0; s < STRIP; s++) {
                s32 at_x = column + (s32)s * STRIDE_X + dx * STEP_X;
                bool inside = row_inside && (u32)at_x < (u32)p.window.width;
                u32 offset = (line + (inside ? (u32)at_x : 0)) * p.x_pitch + channel;
                u32 value = *(global const u32 *)(x + offset);
                value = inside ? value : p.padding;
                for (u32 i = 0; i < 4; i++)
#ifdef MAXIMUM
                    sum[s][i] = max(sum[s][i], (s32)(value >> 8 * i & 255));
#else
                    sum[s][i] = dot4(weight[i], value, sum[s][i]);
#endif
#ifdef OFFSET
                for (u32 i = 0; i < 4; i++)
                    count[s][i] = dot4(1u << 8 * i, value, count[s][i]);
#endif
            }
        }
    }
#if !defined MAXIMUM && !defined AVERAGE
    s32x4 bias = *(global const s32x4 *)(constants + channel * 4);
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
            sum[s][i] += p.bias;
            scale[i] = ((global const float *)constants)[pixel];
#else
            sum[s][i] += bias[i];
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
