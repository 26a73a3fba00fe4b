/* Pixels as weighted sums of neighbouring rows and columns: the linear and cubic Resize.
 *
 * -DNAME=symbol -DROWS=k -DCOLUMNS=l: taps along either axis. A column's 32 sources lie within a vector of each
 * other; a delta network brings them into their places. */
#include "exact.h"

void NAME(const void *descriptor, const struct context *c) {
  const struct interpolate *op = descriptor;
  struct packing p = packing(op->zero_point, op->low, op->high);
  Vector zero = Q6_V_vsplat_R(op->zero), rounding = Q6_V_vsplat_R(op->rounding);
  const struct row_tap *row_taps = (const struct row_tap *)(c->weights + op->row_taps);
  const u32 *starts = (const u32 *)(c->weights + op->starts);
  const Vector *column_taps = (const Vector *)(c->weights + op->column_taps);
  struct range rows = share(op->rows, c);
  for (u32 plane = 0; plane < op->planes; plane++)
    for (u32 row = rows.begin; row < rows.end; row++) {
      const u8 *x = c->arena + op->x + plane * op->x_plane;
      u8 *y = c->arena + op->y + plane * op->y_plane + row * op->y_row;
      const u32 *start = starts;
      const Vector *tap = column_taps;
      const u8 *line[ROWS];
      u32 weight[ROWS];
      UNROLL for (int k = 0; k < ROWS; k++) {
        line[k] = x + row_taps[row * ROWS + k].start;
        weight[k] = row_taps[row * ROWS + k].weight;
      }
      for (u32 left = op->bytes;; left -= VECTOR_BYTES, y += VECTOR_BYTES) {
        Vector words[4] = {rounding, rounding, rounding, rounding};
        UNROLL for (int l = 0; l < COLUMNS; l++, start++, tap += 2) {
          Pair even, odd;
          UNROLL for (int k = 0; k < ROWS; k++) {
            Vector pixels = Q6_V_vdelta_VV(*(const Unaligned *)(line[k] + *start), tap[0]);
            Pair x16 = Q6_Wh_vsub_VubVub(pixels, zero);
            even = k ? Q6_Ww_vmpyacc_WwVhRh_sat(even, Q6_V_lo_W(x16), weight[k]) : Q6_Ww_vmpy_VhRh(Q6_V_lo_W(x16), weight[k]);
            odd = k ? Q6_Ww_vmpyacc_WwVhRh_sat(odd, Q6_V_hi_W(x16), weight[k]) : Q6_Ww_vmpy_VhRh(Q6_V_hi_W(x16), weight[k]);
          }
          words[0] = Q6_Vw_vmpyieacc_VwVwVh(words[0], Q6_V_lo_W(even), tap[1]);
          words[1] = Q6_Vw_vmpyieacc_VwVwVh(words[1], Q6_V_lo_W(odd), tap[1]);
          words[2] = Q6_Vw_vmpyieacc_VwVwVh(words[2], Q6_V_hi_W(even), tap[1]);
          words[3] = Q6_Vw_vmpyieacc_VwVwVh(words[3], Q6_V_hi_W(odd), tap[1]);
        }
        UNROLL for (int i = 0; i < 4; i++) words[i] = Q6_Vw_vasr_VwR(words[i], op->shift);
        store_up_to(y, pack(words, p), left);
        if (left <= VECTOR_BYTES) break;
      }
    }
}
