// Convolutions and matrix products that WMMA does not take, such as those of float32, by fused multiply-adds.
// Arguments, macros and what happens at the end: product.h; how operands lie: product.cl, where X and W need
// not be the same type here.
//
// A wave makes 16 channels of 32 pixels, a lane those of a pixel. SPLIT waves of a workgroup share the steps
// of all taps and add their sums in LDS. PACKED: w is a constant, [channels / 16][tap][k / 16][channel][16 of
// k], the same for the whole wave, so that it comes by scalar loads; else a lane loads one of 16 channels of
// one of two k, and hands it to all.
#include "plain/product.h"

#ifdef PACKED
#define AT_ONCE 4 // of k
#else
#define AT_ONCE 2
#endif

THREADS(32 * SPLIT) kernel void NAME(POINTERS, struct product m) {
    u32 lane = LANE % 32, share = __builtin_amdgcn_readfirstlane(LANE / 32);
    struct tensors tensor = {x, w, bias, y, {OPERAND_POINTERS}, GROUP_Y};
    enter_batch(&tensor, &m);
    u32 channel = tensor.group * 16, pixel = GROUP * 32 + lane;
    struct place at = place_of(pixel, &m);

    buffer from_x = buffer_of(tensor.x, m.x_bytes);
#ifdef WINDOW
    struct taps taps = taps_of(at, &m);
    if (pixel >= m.pixels)
        taps.row = -0x40000000; // above any picture
    u32 at_x;
#else
    u32 at_x = pixel < m.pixels ? element_of(at, m.x) * sizeof(X) : NOWHERE;
#endif
#ifdef PACKED
    constant W *weights = (constant W *)(u64)tensor.w + (u64)tensor.group * m.total * 256;
#else
    buffer from_w = buffer_of(tensor.w, m.w_bytes);
    u32 at_w = ((channel + lane % 16) * m.w_channel + lane / 16 * m.w_k) * sizeof(W);
#endif

    float sum[16];
    for (u32 i = 0; i < 16; i++)
        sum[i] = 0;

    u32 next = share * m.chunk, left = next < m.total ? min(m.chunk, m.total - next) : 0;
    u32 tap = divide(next, m.by_steps), step = next - tap * m.steps;
#ifdef WINDOW
    u32 down = divide(tap, m.by_columns), right = tap - down * m.columns;
#endif
    while (left) {
#ifdef WINDOW
        at_x = tap_of(taps, down, right, &m);
        if (++right == m.columns)
            right = 0, down++;
#endif
        u32 end = min(step + left, m.steps);
        left -= end - step;
        for (; step < end; step++, next++) {
            // Behind k, x and w may hold anything.
            u32 exist = min(m.k - step * 16, 16u);
#pragma nounroll
            for (u32 part = 0; part < exist; part += AT_ONCE) {
                u32 first = step * 16 + part;
                float value[AT_ONCE];
#if X_ORDER == ALONG && defined PACKED
                PASTE(fetch4_, X)(from_x, at_x, first * sizeof(X), value);
#else
                for (u32 j = 0; j < AT_ONCE; j++)
                    value[j] = PASTE(fetch_, X)(from_x, at_x, (first + j) * m.x.channel * sizeof(X));
#endif
                for (u32 j = 0; j < AT_ONCE; j++)
                    value[j] = part + j < exist ? value[j] : 0;
#ifndef PACKED
                bool exists = channel + lane % 16 < m.channels && part + lane / 16 < exist;
                float held = PASTE(fetch_, W)(from_w, exists ? at_w : NOWHERE, first * m.w_k * sizeof(W));
#endif
                for (u32 j = 0; j < AT_ONCE; j++)
                    for (u32 i = 0; i < 16; i++) {
#ifdef PACKED
                        float weight = PASTE(widen_, W)(weights[next * 256 + i * 16 + part + j]);
#else
                        s32 bits = __builtin_amdgcn_readlane(__builtin_bit_cast(s32, held), j * 16 + i);
                        float weight = __builtin_bit_cast(float, bits);
#endif
                        sum[i] = __builtin_fmaf(weight, value[j], sum[i]);
                    }
            }
        }
        step = 0;
    }

#if SPLIT > 1
    local float sums[SPLIT - 1][16][32];
    if (share)
        for (u32 i = 0; i < 16; i++)
            sums[share - 1][i][lane] = sum[i];
    sync();
    if (share)
        return;
    for (u32 other = 0; other < SPLIT - 1; other++)
        for (u32 i = 0; i < 16; i++)
            sum[i] += sums[other][i][lane];
#endif
    if (pixel >= m.pixels)
        return;
    finish8(sum, at, channel, &tensor, &m);
    finish8(sum + 8, at, channel + 8, &tensor, &m);
}
