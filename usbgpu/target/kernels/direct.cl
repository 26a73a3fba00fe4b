// Convolutions of pictures with at most four channels, with dot4: a dword is a pixel. A work-item makes 16
// channels of a pixel; its weights are the same for the whole wave, so that they come by scalar loads.
//
// weights: [channels / 16][tap][16][4 bytes]; constants: [channels / 16][bias, scale, OFFSET: offset][16];
// other: of RESIDUAL or TABLE.
#include "kernel.h"

struct direct {
    u32 pixels, y_pitch, padding; // of the output; `padding` is a pixel of zero points
    struct range range;
    struct residual residual;
    struct window window;
#ifdef OFFSET
    u32 ones; // a byte of 1 for each channel
#endif
};

#ifdef OFFSET
#define CONSTANTS 3
#else
#define CONSTANTS 2
#endif

THREADS(64) kernel void NAME(global const u32 *x, constant u32 *weights, constant u32 *constants,
                             global u8 *y, global const u8 *other, struct direct d) {
    // Work-items beyond the last pixel make that one again.
    u32 tile = GROUP_Y, pixel = min(GROUP * 64 + LANE, d.pixels - 1);
    u32 line = divide(pixel, d.window.by_out_width);
    s32 row = (s32)line * d.window.stride_y - d.window.top;
    s32 column = (s32)(pixel - line * d.window.out_width) * d.window.stride_x - d.window.left;
    constant u32 *weight = weights + tile * (ROWS * COLUMNS * 16);
    constant u32 *own = constants + tile * (16 * CONSTANTS);
    s32 sum[16], count = 0;
    for (u32 i = 0; i < 16; i++)
        sum[i] = (s32)own[i];
    for (s32 dy = 0; dy < ROWS; dy++) {
        s32 at_y = row + dy * d.window.step_y;
        for (s32 dx = 0; dx < COLUMNS; dx++) {
            s32 at_x = column + dx * d.window.step_x;
            bool inside = (u32)at_y < (u32)d.window.height && (u32)at_x < (u32)d.window.width;
            u32 value = x[inside ? at_y * d.window.width + at_x : 0];
            value = inside ? value : d.padding;
#ifdef OFFSET
            count = dot4(d.ones, value, count);
#endif
            for (u32 i = 0; i < 16; i++)
                sum[i] = dot4(weight[(dy * COLUMNS + dx) * 16 + i], value, sum[i]);
        }
    }
#ifdef OFFSET
    for (u32 i = 0; i < 16; i++)
        sum[i] += (s32)own[32 + i] * count;
#endif
    u32x4 added = 0, result;
#ifdef RESIDUAL
    for (u32 i = 0; i < 4; i++)
        added[i] = ((global const u32 *)(other + (pixel * d.residual.other_pitch + tile * 16)))[i];
#endif
    for (u32 i = 0; i < 4; i++) {
        float scale[4];
        for (u32 j = 0; j < 4; j++)
            scale[j] = __builtin_bit_cast(float, own[16 + i * 4 + j]);
        result[i] = finish(sum + i * 4, scale, d.range, d.residual, added[i], other);
    }
    *(global u32x4 *)(y + (pixel * d.y_pitch + tile * 16)) = result;
}
