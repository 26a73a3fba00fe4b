/* Fully connected layer on one row: 32 outputs a vector, the input's bytes broadcast four at a time.
 *
 * -DNAME=symbol [-DSHIFTED] [-DBLOCKS=n] [-DQ15]. */
#include "kernels.h"

#ifndef BLOCKS /* side by side, so that one broadcast serves as many vrmpy */
#define BLOCKS 16
#endif

INLINE void compute(const int blocks, const struct gemm *op, const struct context *c, u32 block) {
  const u32 *x = (const u32 *)(c->arena + op->x);
  const Vector *weights[BLOCKS];
  Vector acc[BLOCKS], words[BLOCKS];
  UNROLL for (int b = 0; b < blocks; b++) {
    weights[b] = (const Vector *)(c->weights + op->weights) + (block + b) * op->steps;
    acc[b] = ((const Vector *)(c->weights + op->bias))[block + b];
  }
#pragma clang loop unroll_count(4)
  for (u32 step = 0; step < op->steps; step++) {
    Vector four = Q6_V_vsplat_R(*x++);
    UNROLL for (int b = 0; b < blocks; b++) acc[b] = Q6_Vw_vrmpyacc_VwVubVb(acc[b], four, *weights[b]++);
  }
  UNROLL for (int b = 0; b < blocks; b++) {
#ifdef SHIFTED
    acc[b] = Q6_Vw_vasl_VwVw(acc[b], ((const Vector *)(c->weights + op->shift))[block + b]);
#endif
    words[b] = requantize(acc[b], ((const Vector *)(c->weights + op->multiplier))[block + b]);
  }
  const u32 *multipliers = (const u32 *)(c->weights + op->multiplier);
  struct packing p = packing_of(op->zero_point, op->low, op->high, *multipliers);
  UNROLL for (int b = 0; b < blocks; b++)
      store_bytes(c->arena + op->y + (block + b) * VECTOR_PIXELS, VECTOR_PIXELS, pack_in_order(words[b], p));
}

void NAME(const void *descriptor, const struct context *c) {
  const struct gemm *op = descriptor;
  struct range blocks = share(op->blocks, c);
  u32 block = blocks.begin;
  for (; block + BLOCKS <= blocks.end; block += BLOCKS) compute(BLOCKS, op, c, block);
  for (; block + 4 <= blocks.end; block += 4) compute(4, op, c, block);
  for (; block < blocks.end; block++) compute(1, op, c, block);
}
