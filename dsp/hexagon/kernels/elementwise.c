/* Add and the 256-entry table (Requantize: a Relu, Clip or change of scale that nothing could absorb). */
#include "kernels.h"

#ifndef SIDE_BY_SIDE /* sums, so that one's multiplications overlap another's packing */
#define SIDE_BY_SIDE 6
#endif

void elementwise_add(const void *descriptor, const struct context *c) {
  const struct elementwise_add *op = descriptor;
  struct packing p = packing(op->addition.zero_point, op->addition.low, op->addition.high);
  struct range vectors = share(op->vectors, c);
  for (u32 plane = 0; plane < op->planes; plane++) {
    const Vector *a = (const Vector *)(c->arena + op->a + plane * op->a_plane);
    const Vector *b = (const Vector *)(c->arena + op->b + plane * op->b_plane);
    Vector *y = (Vector *)(c->arena + op->y + plane * op->y_plane);
    u32 v = vectors.begin;
    for (; v + SIDE_BY_SIDE <= vectors.end; v += SIDE_BY_SIDE) {
      Vector sum[SIDE_BY_SIDE];
      UNROLL for (u32 k = 0; k < SIDE_BY_SIDE; k++) sum[k] = add(a[v + k], b[v + k], &op->addition, p);
      UNROLL for (u32 k = 0; k < SIDE_BY_SIDE; k++) y[v + k] = sum[k];
    }
    for (; v < vectors.end; v++) y[v] = add(a[v], b[v], &op->addition, p);
  }
}

void lookup(const void *descriptor, const struct context *c) {
  const struct lookup *op = descriptor;
  const Vector *table = (const Vector *)(c->weights + op->table);
  /* vlut32 takes entry i of a table's quarter from bytes 2i (even half) and 2i+1 (odd half): shuffled once. */
  Vector low = Q6_Vb_vshuff_Vb(table[0]), high = Q6_Vb_vshuff_Vb(table[1]);
  struct range vectors = share(op->vectors, c);
  for (u32 plane = 0; plane < op->planes; plane++) {
    const Vector *x = (const Vector *)(c->arena + op->x + plane * op->x_plane);
    Vector *y = (Vector *)(c->arena + op->y + plane * op->y_plane);
    for (u32 v = vectors.begin; v < vectors.end; v++) {
      Vector r = Q6_Vb_vlut32_VbVbI(x[v], low, 0);
      r = Q6_Vb_vlut32or_VbVbVbI(r, x[v], low, 1);
      r = Q6_Vb_vlut32or_VbVbVbI(r, x[v], low, 2);
      r = Q6_Vb_vlut32or_VbVbVbI(r, x[v], low, 3);
      r = Q6_Vb_vlut32or_VbVbVbI(r, x[v], high, 4);
      r = Q6_Vb_vlut32or_VbVbVbI(r, x[v], high, 5);
      r = Q6_Vb_vlut32or_VbVbVbI(r, x[v], high, 6);
      y[v] = Q6_Vb_vlut32or_VbVbVbI(r, x[v], high, 7);
    }
  }
}
