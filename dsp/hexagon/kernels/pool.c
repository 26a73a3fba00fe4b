/* Maximum pooling over a table of tap offsets, and the mean of whole planes ([-DQ15]). */
#include "kernels.h"

void maxpool(const void *descriptor, const struct context *c) {
  const struct maxpool *op = descriptor;
  const s32 *table = (const s32 *)(c->weights + op->table);
  struct range planes = share(op->planes, c);
  for (u32 plane = planes.begin; plane < planes.end; plane++) {
    const u8 *x = c->arena + op->x + plane * op->x_plane;
    Vector *y = (Vector *)(c->arena + op->y + plane * op->y_plane);
    for (u32 v = 0; v < op->vectors; v++) {
      Vector best = Q6_V_vzero();
      for (u32 t = 0; t < op->taps; t++)
        best = Q6_Vub_vmax_VubVub(best, *(const Unaligned *)(x + table[t] + v * VECTOR_BYTES));
      y[v] = best;
    }
  }
}

/* Sums of neighbouring lanes, `bytes` wide, of two vectors: the first's and the second's in turn. */
INLINE Vector add_neighbours(Vector first, Vector second, s32 bytes) {
  Pair both = Q6_W_vshuff_VVR(second, first, -bytes);
  return Q6_Vw_vadd_VwVw(Q6_V_lo_W(both), Q6_V_hi_W(both));
}

enum { TOGETHER = 4, BLOCK = VECTOR_PIXELS / 4 }; /* planes of a loop; and those whose channels are a vector of words */

/* Of each plane its four channels, eight partial sums of each: a, b, c, d, a, b, c, d ... */
INLINE void plane_sums(Vector sums[TOGETHER], const Vector *x[TOGETHER], const Vector *mask, u32 vectors) {
  Vector acc[TOGETHER][4];
  UNROLL for (int k = 0; k < TOGETHER; k++) UNROLL for (int i = 0; i < 4; i++) acc[k][i] = Q6_V_vzero();
  for (u32 v = 0; v < vectors; v++)
    UNROLL for (int k = 0; k < TOGETHER; k++) {
      Vector pixels = Q6_V_vand_VV(x[k][v], mask[v]);
      UNROLL for (int i = 0; i < 4; i++) acc[k][i] = Q6_Vw_vrmpyacc_VwVubRb(acc[k][i], pixels, 1u << (8 * i));
    }
  UNROLL for (int k = 0; k < TOGETHER; k++) {
    const Vector *of = acc[k];
    sums[k] = add_neighbours(add_neighbours(of[0], of[1], 4), add_neighbours(of[2], of[3], 4), 8);
  }
}

void global_pool(const void *descriptor, const struct context *c) {
  const struct global_pool *op = descriptor;
  struct packing p = packing_of(op->zero_point, op->low, op->high, op->multiplier);
  const Vector *mask = (const Vector *)(c->weights + op->mask);
  Vector multiplier = Q6_V_vsplat_R(op->multiplier), shift = Q6_V_vsplat_R(op->shift);
  Vector bias = Q6_V_vsplat_R(op->bias);
  struct range blocks = share((op->planes + BLOCK - 1) / BLOCK, c);
  for (u32 block = blocks.begin; block < blocks.end; block++) {
    Vector sum[BLOCK];
    UNROLL for (u32 first = 0; first < BLOCK; first += TOGETHER) {
      const Vector *x[TOGETHER];
      UNROLL for (u32 k = 0; k < TOGETHER; k++) {
        u32 plane = block * BLOCK + first + k, last = op->planes - 1; /* the last again for those behind it */
        x[k] = (const Vector *)(c->arena + op->x + (plane < last ? plane : last) * op->x_plane);
      }
      plane_sums(sum + first, x, mask, op->vectors);
    }
    UNROLL for (int bytes = 16; bytes < 16 * BLOCK; bytes *= 2)
        UNROLL for (int k = 0; k < 16 * BLOCK / 2 / bytes; k++)
            sum[k] = add_neighbours(sum[2 * k], sum[2 * k + 1], bytes);
    Vector word = requantize(Q6_Vw_vasl_VwVw(Q6_Vw_vadd_VwVw(sum[0], bias), shift), multiplier);
    store_bytes(c->arena + op->y + block * BLOCK * 4, BLOCK * 4, pack_in_order(word, p));
  }
}
