// The mean of a whole picture, by channel: 8 groups of 32 work-items share its pixels, a work-item has four
// channels and every eighth pixel, and sums are added in LDS.
#include "kernel.h"

#define SHARES 8

struct mean {
    u32 quads, pixels, x_pitch;
    s32 bias;
    float scale;
    struct range range;
};

THREADS(32 * SHARES) kernel void NAME(global const u8 *x, global u8 *y, struct mean m) {
    local s32x4 sums[SHARES][32];
    u32 lane = LANE % 32, share = LANE / 32;
    u32 quad = GROUP * 32 + lane;
    s32x4 sum = 0;
    if (quad < m.quads)
        for (u32 pixel = share; pixel < m.pixels; pixel += SHARES) {
            u32 value = *(global const u32 *)(x + (pixel * m.x_pitch + quad * 4));
            for (u32 i = 0; i < 4; i++)
                sum[i] = dot4(1u << 8 * i, value, sum[i]);
        }
    sums[share][lane] = sum;
    sync();
    if (share || quad >= m.quads)
        return;
    for (u32 i = 1; i < SHARES; i++)
        sum += sums[i][lane];
    s32 words[4];
    float scale[4];
    struct residual none = {};
    for (u32 i = 0; i < 4; i++) {
        words[i] = sum[i] + m.bias;
        scale[i] = m.scale;
    }
    *(global u32 *)(y + quad * 4) = finish(words, scale, m.range, none, 0, 0);
}
