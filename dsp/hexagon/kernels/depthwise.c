/* Depthwise convolution and average pooling, of any window through a table of tap offsets.
 *
 * -DNAME=symbol -DQUADS=n -DSINGLE=0|1 [-DVECTORS=n: few enough to unroll] [-DPOSITIONAL] [-DSHIFTED]. Four taps are transposed so that one vrmpy
 * with a scalar sums them for one channel; a single left-over tap needs no transposition, because a scalar
 * with one weight in the channel's own byte picks it. The loop is rotated by one vector, across planes too:
 * the taps of the next overlap the requantisation of the last. -DROLLED instead of QUADS and SINGLE is for
 * windows too large for that: loops over the quads.
 */
#include "kernels.h"

/* Accumulators that wait for requantisation, and where their pixels go. */
struct pending {
  Vector acc[4];
#ifdef POSITIONAL
  const Vector *positional; /* [vector][multiplier, shift] */
#else
  Vector multiplier[4], shift[4];
#endif
  Vector *y;
};

INLINE void finish(struct pending *last, struct packing p) {
#ifdef POSITIONAL
  Vector multiplier = last->positional[0], shift = last->positional[1];
  last->positional += 2;
  UNROLL for (int c = 0; c < 4; c++) last->acc[c] = requantize(Q6_Vw_vasl_VwVw(last->acc[c], shift), multiplier);
#else
#ifdef SHIFTED
  UNROLL for (int c = 0; c < 4; c++) last->acc[c] = Q6_Vw_vasl_VwVw(last->acc[c], last->shift[c]);
#endif
  UNROLL for (int c = 0; c < 4; c++) last->acc[c] = requantize(last->acc[c], last->multiplier[c]);
#endif
  *last->y++ = pack(last->acc, p);
}

/* From here on, accumulators of this plane. */
INLINE void enter_plane(struct pending *last, const struct depthwise *op, const struct context *c, u32 plane) {
  last->y = (Vector *)(c->arena + op->y + plane * op->y_plane);
#ifdef POSITIONAL
  last->positional = (const Vector *)(c->weights + op->multiplier);
#else
  const s32 *multiplier = (const s32 *)(c->weights + op->multiplier) + plane * 4;
  UNROLL for (int k = 0; k < 4; k++) last->multiplier[k] = Q6_V_vsplat_R(multiplier[k]);
#ifdef SHIFTED
  const s32 *shift = (const s32 *)(c->weights + op->shift) + plane * 4;
  UNROLL for (int k = 0; k < 4; k++) last->shift[k] = Q6_V_vsplat_R(shift[k]);
#endif
#endif
}

#ifndef ROLLED

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
  struct pending last;
  enter_plane(&last, op, c, 0);
  last.y = &nowhere;
  UNROLL for (int k = 0; k < 4; k++) last.acc[k] = Q6_V_vzero();

  for (u32 plane = planes.begin; plane < planes.end; plane++) {
    const u8 *x = c->arena + op->x + plane * op->x_plane;
    const u32 *packed = (const u32 *)(c->weights + op->weights) + plane * WORDS;
    const s32 *words = (const s32 *)(c->weights + op->bias) + plane * 4;
    UNROLL for (int k = 0; k < WORDS; k++) weights[k] = packed[k];
    UNROLL for (int k = 0; k < TAPS; k++) tap[k] = (const Unaligned *)(x + table[k]);
    UNROLL for (int k = 0; k < 4; k++) bias[k] = Q6_V_vsplat_R(words[k]);
    sum_taps(next, bias, tap, weights);
    finish(&last, p); /* of the plane before; nothing, nowhere, for the first */
    enter_plane(&last, op, c, plane);
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

#else

void NAME(const void *descriptor, const struct context *c) {
  const struct depthwise *op = descriptor;
  struct packing p = packing(op->zero_point, op->low, op->high);
  const s32 *table = (const s32 *)(c->weights + op->table);
  u32 quads = op->quads, vectors = op->vectors;
  struct range planes = share(op->planes, c);
  struct pending last;

  for (u32 plane = planes.begin; plane < planes.end; plane++) {
    const u32 *weights = (const u32 *)(c->weights + op->weights) + plane * quads * 4;
    const s32 *bias = (const s32 *)(c->weights + op->bias) + plane * 4;
    enter_plane(&last, op, c, plane);
    for (u32 v = 0; v < vectors; v++) {
      const u8 *x = c->arena + op->x + plane * op->x_plane + v * VECTOR_BYTES;
      UNROLL for (int k = 0; k < 4; k++) last.acc[k] = Q6_V_vsplat_R(bias[k]);
      for (u32 q = 0; q < quads; q++) {
        Vector tap[4], channel[4];
        UNROLL for (int k = 0; k < 4; k++) tap[k] = *(const Unaligned *)(x + table[q * 4 + k]);
        transpose(channel, tap[0], tap[1], tap[2], tap[3]);
        UNROLL for (int k = 0; k < 4; k++)
            last.acc[k] = Q6_Vw_vrmpyacc_VwVubRb(last.acc[k], channel[k], weights[q * 4 + k]);
      }
      finish(&last, p);
    }
  }
}

#endif
