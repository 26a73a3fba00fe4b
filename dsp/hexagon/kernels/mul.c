/* The product of two tensors, element by element, or (-DPER_CHANNEL) of planes with one byte for each channel.
 *
 * -DNAME=symbol [-DPER_CHANNEL] [-DSHIFTED]. */
#include "kernels.h"

void NAME(const void *descriptor, const struct context *c) {
  const struct mul *op = descriptor;
  struct packing p = packing(op->zero_point, op->low, op->high);
  Vector a_zero = Q6_V_vsplat_R(op->a_zero), b_zero = Q6_V_vsplat_R(op->b_zero);
  Vector multiplier = Q6_V_vsplat_R(op->multiplier);
  struct range vectors = share(op->vectors, c);
  for (u32 plane = 0; plane < op->planes; plane++) {
    const Vector *a = (const Vector *)(c->arena + op->a + plane * op->a_plane);
    const Vector *b = (const Vector *)(c->arena + op->b + plane * op->b_plane);
    Vector *y = (Vector *)(c->arena + op->y + plane * op->y_plane);
#ifdef PER_CHANNEL
    Pair b16 = Q6_Wh_vsub_VubVub(Q6_V_vsplat_R(*(const u32 *)b), b_zero);
#endif
    for (u32 v = vectors.begin; v < vectors.end; v++) {
      Pair a16 = Q6_Wh_vsub_VubVub(a[v], a_zero);
#ifndef PER_CHANNEL
      Pair b16 = Q6_Wh_vsub_VubVub(b[v], b_zero);
#endif
      Pair even = Q6_Ww_vmpy_VhVh(Q6_V_lo_W(a16), Q6_V_lo_W(b16));
      Pair odd = Q6_Ww_vmpy_VhVh(Q6_V_hi_W(a16), Q6_V_hi_W(b16));
      Vector words[4] = {Q6_V_lo_W(even), Q6_V_lo_W(odd), Q6_V_hi_W(even), Q6_V_hi_W(odd)};
      UNROLL for (int k = 0; k < 4; k++) {
#ifdef SHIFTED
        words[k] = Q6_Vw_vasl_VwR(words[k], op->shift);
#endif
        words[k] = requantize(words[k], multiplier);
      }
      y[v] = pack(words, p);
    }
  }
}
