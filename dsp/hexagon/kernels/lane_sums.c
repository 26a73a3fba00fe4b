/* What weights that are 128 too large add to the sums of lanes.h: 128 times each pixel's sum over the channels.
 *
 * A vector for each pixel, all of its words the same; `cells` says where the pixels of a group of 16 cells are, group
 * by group. */
#include "kernels.h"

enum { AT_ONCE = 4, GROUPS = VECTOR_PIXELS / GROUP_CELLS };

INLINE void sum_planes(const int vectors, const struct lane_sums *op, const struct context *c, u32 vector) {
  Vector sum[AT_ONCE];
  const u8 *x = c->arena + op->x + vector * VECTOR_BYTES;
  UNROLL for (int v = 0; v < vectors; v++) sum[v] = Q6_V_vzero();
#pragma clang loop unroll_count(4)
  for (u32 plane = 0; plane < op->planes; plane++, x += op->x_plane)
    UNROLL for (int v = 0; v < vectors; v++) sum[v] =
        Q6_Vuw_vrmpyacc_VuwVubRub(sum[v], ((const Vector *)x)[v], 0x01010101u);
  for (int v = 0; v < vectors; v++) {
    union {
      Vector vector;
      u32 word[VECTOR_PIXELS];
    } cells = {Q6_Vw_vasl_VwR(sum[v], 7)};
    for (u32 half = 0; half < GROUPS; half++) {
      u32 group = (vector + v) * GROUPS + half;
      if (group >= op->groups) return;
      Vector *y = (Vector *)(c->arena + op->y) + group * op->pixels;
      u32 pixels = group == op->groups - 1 ? op->last : op->cells;
      for (u32 cell = 0; cell < GROUP_CELLS; cell++)
        if (pixels >> cell & 1) *y++ = Q6_V_vsplat_R(cells.word[half * GROUP_CELLS + cell]);
    }
  }
}

void lane_sums(const void *descriptor, const struct context *c) {
  const struct lane_sums *op = descriptor;
  struct range vectors = share((op->groups + GROUPS - 1) / GROUPS, c);
  u32 vector = vectors.begin;
  for (; vector + AT_ONCE <= vectors.end; vector += AT_ONCE) sum_planes(AT_ONCE, op, c, vector);
  for (; vector + 2 <= vectors.end; vector += 2) sum_planes(2, op, c, vector);
  for (; vector < vectors.end; vector++) sum_planes(1, op, c, vector);
}
