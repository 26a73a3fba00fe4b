/* Maximum pooling over a table of tap offsets, and the mean of whole planes. */
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

/* One vector of a, b, c, d, a, b, c, d ...: each word the sum of all lanes of one accumulator. */
INLINE Vector sum_lanes(const Vector acc[4]) {
  Pair ab = Q6_W_vshuff_VVR(acc[1], acc[0], -4), cd = Q6_W_vshuff_VVR(acc[3], acc[2], -4);
  Vector sum_ab = Q6_Vw_vadd_VwVw(Q6_V_lo_W(ab), Q6_V_hi_W(ab));
  Vector sum_cd = Q6_Vw_vadd_VwVw(Q6_V_lo_W(cd), Q6_V_hi_W(cd));
  Pair abcd = Q6_W_vshuff_VVR(sum_cd, sum_ab, -8);
  Vector sum = Q6_Vw_vadd_VwVw(Q6_V_lo_W(abcd), Q6_V_hi_W(abcd));
  UNROLL for (int bytes = 64; bytes >= 16; bytes /= 2) sum = Q6_Vw_vadd_VwVw(sum, Q6_V_vror_VR(sum, bytes));
  return sum;
}

void global_pool(const void *descriptor, const struct context *c) {
  const struct global_pool *op = descriptor;
  struct packing p = packing(op->zero_point, op->low, op->high);
  const Vector *mask = (const Vector *)(c->weights + op->mask);
  Vector multiplier = Q6_V_vsplat_R(op->multiplier), shift = Q6_V_vsplat_R(op->shift), bias = Q6_V_vsplat_R(op->bias);
  struct range planes = share(op->planes, c);
  for (u32 plane = planes.begin; plane < planes.end; plane++) {
    const Vector *x = (const Vector *)(c->arena + op->x + plane * op->x_plane);
    Vector acc[4] = {Q6_V_vzero(), Q6_V_vzero(), Q6_V_vzero(), Q6_V_vzero()};
    for (u32 v = 0; v < op->vectors; v++) {
      Vector pixels = Q6_V_vand_VV(x[v], mask[v]);
      UNROLL for (int k = 0; k < 4; k++) acc[k] = Q6_Vw_vrmpyacc_VwVubRb(acc[k], pixels, 1u << (8 * k));
    }
    Vector sum = Q6_Vw_vadd_VwVw(sum_lanes(acc), bias);
    Vector word = requantize(Q6_Vw_vasl_VwVw(sum, shift), multiplier);
    store_bytes(c->arena + op->y + plane * 4, 4, pack_in_order(word, p));
  }
}
