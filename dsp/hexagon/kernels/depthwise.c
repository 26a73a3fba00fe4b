/* Depthwise convolution and average pooling, of any window through a table of tap offsets.
 *
 * -DNAME=symbol -DQUADS=n -DSINGLE=0|1 [-DVECTORS=n: few enough to unroll] [-DPOSITIONAL] [-DSHIFTED]. Four taps are transposed so that one vrmpy
 * with a scalar sums them for one channel; a single left-over tap needs no transposition, because a scalar
 * with one weight in the channel's own byte picks it. The loop is rotated by one vector, across planes too:
 * the taps of the next overlap the requantisation of the last.
 */
#include "kernels.h"

enum { TAPS = QUADS * 4 + SINGLE, WORDS = (QUADS + SINGLE) * 4 };

INLINE void sum_taps(Vector acc[4], const Vector bias[4], const Unaligned *tap[TAPS], const u32 *weights) {
  UNROLL for (int c = 0; c < 4; c++) acc[c] = bias[c];
  UNROLL for (int q = 0; q < QUADS; q++) {
    Vector channel[4];
    Vector t0 = *tap[q * 4]++, t1 = *tap[q * 4 + 1]++, t2 = *tap[q * 4 + 2]++, t3 = *tap[q * 4 + 3]++;
    transpose(channel, t0, t1, t2, t3);
    UNROLL for (int c = 0; c < 4; c++) acc[c] = Q6_Vw_vrmpyacc_VwVubRb(acc[c], channel[c], weights[q * 4 + c]);
  }
#if SINGLE
  Vector last = *tap[QUADS * 4]++;
  UNROLL for (int c = 0; c < 4; c++) acc[c] = Q6_Vw_vrmpyacc_VwVubRb(acc[c], last, weights[QUADS * 4 + c]);
#endif
}

/* Accumulators that wait for requantisation, and where their pixels go. */
struct pending {
  Vector acc[4], multiplier[4], shift[4];
  const Vector *positional;
  Vector *y;
};

INLINE void finish(struct pending *last, struct packing p) {
#ifdef SHIFTED
  UNROLL for (int c = 0; c < 4; c++) last->acc[c] = Q6_Vw_vasl_VwVw(last->acc[c], last->shift[c]);
#endif
#ifdef POSITIONAL
  Vector multiplier = *last->positional++;
  UNROLL for (int c = 0; c < 4; c++) last->acc[c] = requantize(last->acc[c], multiplier);
#else
  UNROLL for (int c = 0; c < 4; c++) last->acc[c] = requantize(last->acc[c], last->multiplier[c]);
#endif
  *last->y++ = pack(last->acc, p);
}

void NAME(const void *descriptor, const struct context *c) {
  const struct depthwise *op = descriptor;
  struct packing p = packing(op->zero_point, op->low, op->high);
  const s32 *table = (const s32 *)(c->weights + op->table);
  struct range planes = share(op->planes, c);
#ifndef VECTORS
  u32 vectors = op->vectors; /* here, because a store through y might change it for all clang knows */
#endif
  Vector nowhere, next[4], bias[4];
  u32 weights[WORDS];
  const Unaligned *tap[TAPS];
  struct pending last = {.positional = (const Vector *)(c->weights + op->multiplier), .y = &nowhere};
  UNROLL for (int k = 0; k < 4; k++) last.acc[k] = last.multiplier[k] = last.shift[k] = Q6_V_vzero();

  for (u32 plane = planes.begin; plane < planes.end; plane++) {
    const u8 *x = c->arena + op->x + plane * op->x_plane;
    const u32 *packed = (const u32 *)(c->weights + op->weights) + plane * WORDS;
    const s32 *words = (const s32 *)(c->weights + op->bias) + plane * 4;
    UNROLL for (int k = 0; k < WORDS; k++) weights[k] = packed[k];
    UNROLL for (int k = 0; k < TAPS; k++) tap[k] = (const Unaligned *)(x + table[k]);
    UNROLL for (int k = 0; k < 4; k++) bias[k] = Q6_V_vsplat_R(words[k]);
    sum_taps(next, bias, tap, weights);
    finish(&last, p); /* of the plane before; nothing, nowhere, for the first */
    last.y = (Vector *)(c->arena + op->y + plane * op->y_plane);
    last.positional = (const Vector *)(c->weights + op->multiplier);
    words = (const s32 *)(c->weights + op->multiplier) + plane * 4;
    UNROLL for (int k = 0; k < 4; k++) last.multiplier[k] = Q6_V_vsplat_R(words[k]);
#ifdef SHIFTED
    words = (const s32 *)(c->weights + op->shift) + plane * 4;
    UNROLL for (int k = 0; k < 4; k++) last.shift[k] = Q6_V_vsplat_R(words[k]);
#endif
    UNROLL for (int k = 0; k < 4; k++) last.acc[k] = next[k];
#ifdef VECTORS
    UNROLL for (u32 v = 1; v < VECTORS; v++) {
#else
#pragma clang loop unroll(disable)
    for (u32 v = 1; v < vectors; v++) {
#endif
      sum_taps(next, bias, tap, weights);
      finish(&last, p);
      UNROLL for (int k = 0; k < 4; k++) last.acc[k] = next[k];
    }
  }
  finish(&last, p);
}
