// Convolutions and matrix products of float16 and bfloat16 with WMMA: 16 channels x 16 pixels x 16 of k at a
// time. Arguments, macros and what happens at the end: product.h.
//
// A wave makes TILES x 16 channels of PIXELS x 16 pixels. SPLIT waves of a workgroup share the steps of all
// taps and add their sums in LDS. w is the A operand, so that a lane ends with eight channels of a pixel
// (matrix.h).
//
// x and w come from buffers, which give 0 for the padding and for pixels and channels that do not exist. With
// TAIL, the last step of a tap ends beyond k: what lies there counts as 0, be it NaN.
//
// PACKED: w is a constant, [channels / 16][tap][k / 16][row][16 of k]. How else an operand lies: X_ORDER,
// W_ORDER: ALONG: its k are in a row; ACROSS: its pixels or channels are; STRIDED: neither.
#include "plain/matrix.h"
#include "plain/product.h"

#ifdef PACKED
#define W_ORDER ALONG
#endif

#define PIXEL(within, p) (X_ORDER == ACROSS ? within * PIXELS + p : p * 16 + within)

THREADS(32 * SPLIT) kernel void NAME(POINTERS, struct product m) {
    u32 lane = LANE % 32, share = __builtin_amdgcn_readfirstlane(LANE / 32);
    u32 within = lane % 16, upper = lane / 16;
    struct tensors tensor = {x, w, bias, y, {OPERAND_POINTERS}, GROUP_Y};
    enter_batch(&tensor, &m);
    u32 first = GROUP * (16 * PIXELS), channel = tensor.group * (16 * TILES);

    buffer from_x = buffer_of(tensor.x, m.x_bytes);
    u32 at_x[PIXELS];
#ifdef WINDOW
    struct taps taps[PIXELS];
#endif
    for (u32 p = 0; p < PIXELS; p++) {
        u32 pixel = first + PIXEL(within, p);
        struct place at = place_of(pixel, &m);
#ifdef WINDOW
        taps[p] = taps_of(at, &m);
        if (pixel >= m.pixels)
            taps[p].row = -0x40000000; // above any picture
#else
        at_x[p] = pixel < m.pixels ? (element_of(at, m.x) + FIRST * m.x.channel) * 2 : NOWHERE;
#endif
    }

    u32 at_w[TILES];
#ifdef PACKED
    u32 tile_bytes = m.total * 512;
    buffer from_w = buffer_of(tensor.w + (u64)(tensor.group * TILES) * tile_bytes,
                              m.w_bytes - tensor.group * TILES * tile_bytes);
    for (u32 t = 0; t < TILES; t++)
        at_w[t] = t * tile_bytes + within * 32 + FIRST * 2;
#else
    buffer from_w = buffer_of(tensor.w, m.w_bytes);
    for (u32 t = 0; t < TILES; t++) {
        u32 row = ROW(within), at = W_ORDER == ACROSS ? channel + row * TILES + t : channel + t * 16 + row;
        at_w[t] = at < m.channels ? (at * m.w_channel + FIRST * m.w_k) * 2 : NOWHERE;
    }
#endif

    f32x8 sum[TILES][PIXELS];
    for (u32 t = 0; t < TILES; t++)
        for (u32 p = 0; p < PIXELS; p++)
            sum[t][p] = 0;

#ifdef TAIL
    operand kept; // of the last step of a tap
    for (u32 i = 0; i < WORDS; i++) {
        u32 low = (m.steps - 1) * 16 + FIRST + 2 * i;
        kept[i] = (low < m.k ? 0xffff : 0) | (low + 1 < m.k ? 0xffff0000 : 0);
    }
#endif

    u32 next = share * m.chunk, left = next < m.total ? min(m.chunk, m.total - next) : 0;
    u32 tap = divide(next, m.by_steps), step = next - tap * m.steps;
#ifdef WINDOW
    u32 down = divide(tap, m.by_columns), right = tap - down * m.columns;
#endif
    while (left) {
#ifdef WINDOW
        for (u32 p = 0; p < PIXELS; p++)
            at_x[p] = tap_of(taps[p], down, right, &m) + FIRST * m.x.channel * 2;
        if (++right == m.columns)
            right = 0, down++;
#endif
        u32 end = min(step + left, m.steps);
        left -= end - step;
        for (; step < end; step++, next++) {
            operand a[TILES], b[PIXELS];
#ifdef PACKED
            load(a, TILES, ALONG, from_w, at_w, next * 256, 1);
#else
            load(a, TILES, W_ORDER, from_w, at_w, step * 16, m.w_k);
#endif
            load(b, PIXELS, X_ORDER, from_x, at_x, step * 16, m.x.channel);
#ifdef TAIL
            if (step + 1 == m.steps) {
                for (u32 p = 0; p < PIXELS; p++)
                    b[p] &= kept;
#ifndef PACKED
                for (u32 t = 0; t < TILES; t++)
                    a[t] &= kept;
#endif
            }
#endif
            for (u32 p = 0; p < PIXELS; p++)
                for (u32 t = 0; t < TILES; t++)
                    sum[t][p] = WMMA(a[t], b[p], sum[t][p]);
        }
        step = 0;
    }

#if SPLIT > 1
    local f32x4 sums[SPLIT - 1][TILES * PIXELS * 2][32];
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
#endif

    for (u32 p = 0; p < PIXELS; p++) {
#if SPLIT > 1
#pragma nounroll
        for (u32 other = 0; other < SPLIT - 1; other++)
            for (u32 t = 0; t < TILES; t++) {
                sum[t][p].lo += sums[other][(t * PIXELS + p) * 2][lane];
                sum[t][p].hi += sums[other][(t * PIXELS + p) * 2 + 1][lane];
            }
#endif
        // Computed once more: the loop needs the registers.
        __asm__("" : "+v"(within));
        u32 pixel = first + PIXEL(within, p);
        if (pixel >= m.pixels)
            continue;
        struct place at = place_of(pixel, &m);
        for (u32 t = 0; t < TILES; t++) {
            float eight[8];
            for (u32 i = 0; i < 8; i++)
                eight[i] = W_ORDER == ACROSS ? sum[(t * 8 + i) % TILES][p][(t * 8 + i) / TILES] : sum[t][p][i];
            u32 from = W_ORDER == ACROSS ? upper * 8 * TILES + t * 8 : t * 16 + upper * 8;
            finish8(eight, at, channel + from, &tensor, &m);
        }
    }
}
