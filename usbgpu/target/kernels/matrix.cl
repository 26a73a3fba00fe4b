// Convolutions and matrix products with WMMA, 16 channels x 16 pixels x 16 bytes of k at a time.
//
// A wave makes TILES x 16 channels of PIXELS x 16 pixels. SPLIT waves of a workgroup share the k of a tap and
// add their sums in LDS. The weight is the A operand, so that a lane ends with eight channels of a pixel: on
// gfx11 register i of lane l is row 2 i + l / 16, and the host has put channel 8 (r % 2) + r / 2 into row r;
// on gfx12 it is row i + 8 (l / 16).
//
// weights: [channels / 16][tap][k / 16][row][16 bytes of k]; constants: [channels / 16][bias, scale, OFFSET:
// offset][16]; padding: a pixel of zero points, and with OFFSET one of 1 for each channel; other: of RESIDUAL
// or TABLE.
#include "kernel.h"

struct matrix {
    u32 pixels, taps, steps;   // of the output; of the window; of 16 bytes of k in a tap
    u32 x_pitch, y_pitch;
    struct range range;
    struct residual residual;
    struct window window;
};

#ifdef __GFX12__
typedef s32x2 operand;
#define PART (upper * 8)
#define WMMA(a, b, c) __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(1, a, 0, b, c, 0)
#else
typedef s32x4 operand;
#define PART 0
#define WMMA(a, b, c) __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(1, a, 0, b, c, 0)
#endif

#ifdef OFFSET
#define CONSTANTS 3
#else
#define CONSTANTS 2
#endif

THREADS(32 * SPLIT) kernel void NAME(global const u8 *x, global const u8 *weights, global const u8 *constants,
                                     global const u8 *padding, global u8 *y, global const u8 *other,
                                     struct matrix m) {
    u32 lane = LANE % 32, share = __builtin_amdgcn_readfirstlane(LANE / 32);
    u32 within = lane % 16, upper = lane / 16;
    u32 tile = GROUP_Y * TILES, first = GROUP * (16 * PIXELS);
    u32 tap_bytes = m.steps * 256, tile_bytes = m.taps * tap_bytes;
    global const u8 *a = weights + tile * (unsigned long)tile_bytes + (within * 16 + PART);
    u32 pixel[PIXELS];
    s32 row[PIXELS], column[PIXELS];
    for (u32 p = 0; p < PIXELS; p++) {
        // Lanes beyond the last pixel make that one again.
        pixel[p] = min(first + p * 16 + within, m.pixels - 1);
#ifdef WINDOW
        u32 line = divide(pixel[p], m.window.by_out_width);
        row[p] = (s32)line * m.window.stride_y - m.window.top;
        column[p] = (s32)(pixel[p] - line * m.window.out_width) * m.window.stride_x - m.window.left;
#endif
    }
    s32x8 sum[TILES][PIXELS];
    for (u32 t = 0; t < TILES; t++)
        for (u32 p = 0; p < PIXELS; p++)
            sum[t][p] = 0;
#ifdef OFFSET
    global const u8 *ones = padding + (m.steps * 16 + PART);
    s32x8 count[PIXELS]; // of inputs; every row has the same
    for (u32 p = 0; p < PIXELS; p++)
        count[p] = 0;
#endif
#ifdef WINDOW
    for (s32 dy = 0; dy < m.window.rows; dy++)
        for (s32 dx = 0; dx < m.window.columns; dx++, a += tap_bytes) {
#endif
            global const u8 *b[PIXELS];
            for (u32 p = 0; p < PIXELS; p++) {
#ifdef WINDOW
                s32 at_y = row[p] + dy * m.window.step_y, at_x = column[p] + dx * m.window.step_x;
                bool inside = (u32)at_y < (u32)m.window.height && (u32)at_x < (u32)m.window.width;
                u32 offset = (u32)(at_y * m.window.width + at_x) * m.x_pitch;
                b[p] = (inside ? x + offset : padding) + PART;
#else
                b[p] = x + (pixel[p] * m.x_pitch + PART);
#endif
            }
            for (u32 k = share; k < m.steps; k += SPLIT) {
                operand left[TILES], right[PIXELS];
                for (u32 t = 0; t < TILES; t++)
                    left[t] = *(global const operand *)(a + (t * tile_bytes + k * 256));
                for (u32 p = 0; p < PIXELS; p++)
                    right[p] = *(global const operand *)(b[p] + k * 16);
                for (u32 t = 0; t < TILES; t++)
                    for (u32 p = 0; p < PIXELS; p++)
                        sum[t][p] = WMMA(left[t], right[p], sum[t][p]);
#ifdef OFFSET
                operand one = *(global const operand *)(ones + k * 16);
                for (u32 p = 0; p < PIXELS; p++)
                    count[p] = WMMA(one, right[p], count[p]);
#endif
            }
#ifdef WINDOW
        }
#endif
#ifdef OFFSET
    for (u32 t = 0; t < TILES; t++) {
        u32 own = (tile + t) * (CONSTANTS * 64) + 128 + upper * 32;
        s32x8 offset = *(global const s32x8 *)(constants + own);
        for (u32 p = 0; p < PIXELS; p++)
            sum[t][p] += offset * count[p];
    }
#endif
#if SPLIT > 1
    local s32x4 sums[SPLIT - 1][TILES * PIXELS * 2][32];
    if (share) {
        for (u32 t = 0; t < TILES; t++)
            for (u32 p = 0; p < PIXELS; p++) {
                sums[share - 1][(t * PIXELS + p) * 2][lane] = sum[t][p].lo;
                sums[share - 1][(t * PIXELS + p) * 2 + 1][lane] = sum[t][p].hi;
            }
    }
    sync();
    if (share)
        return;
    for (u32 other_share = 0; other_share < SPLIT - 1; other_share++)
        for (u32 t = 0; t < TILES; t++)
            for (u32 p = 0; p < PIXELS; p++) {
                sum[t][p].lo += sums[other_share][(t * PIXELS + p) * 2][lane];
                sum[t][p].hi += sums[other_share][(t * PIXELS + p) * 2 + 1][lane];
            }
#endif
    for (u32 t = 0; t < TILES; t++) {
        global const u8 *own = constants + (tile + t) * (CONSTANTS * 64) + upper * 32;
        s32x8 bias = *(global const s32x8 *)own;
        float scale[8];
        for (u32 i = 0; i < 8; i++)
            scale[i] = ((global const float *)(own + 64))[i];
        for (u32 p = 0; p < PIXELS; p++) {
            s32x8 total = sum[t][p] + bias;
            s32 words[8];
            for (u32 i = 0; i < 8; i++)
                words[i] = total[i];
            u32 channel = (tile + t) * 16 + upper * 8;
            u32x2 added = 0, result;
#ifdef RESIDUAL
            added = *(global const u32x2 *)(other + (pixel[p] * m.residual.other_pitch + channel));
#endif
            result.x = finish(words, scale, m.range, m.residual, added.x, other);
            result.y = finish(words + 4, scale + 4, m.range, m.residual, added.y, other);
            *(global u32x2 *)(y + (pixel[p] * m.y_pitch + channel)) = result;
        }
    }
}
