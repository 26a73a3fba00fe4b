/* Phases of pixels side by side again: output pixel (i, j) is one of phase (i, j) modulo the strides.
 *
 * -DNAME=symbol -DSTRIDE=n (of the columns). */
#include "kernels.h"
#include "shuffle.h"

void NAME(const void *descriptor, const struct context *c) {
  const struct spread *op = descriptor;
  const u32 *row_table = (const u32 *)(c->weights + op->row_table);
  const u32 *column_table = (const u32 *)(c->weights + op->column_table);
  struct range planes = share(op->planes, c);
  for (u32 plane = planes.begin; plane < planes.end; plane++) {
    u8 *y = c->arena + op->y + plane * op->y_plane;
    for (u32 row = 0; row < op->rows; row++, y += op->y_row) { /* ascending: a row's last vector runs over */
      const u8 *x = c->arena + op->x + plane * op->x_plane + row_table[row];
#if STRIDE == 1 || STRIDE == 2 || STRIDE == 4
      Unaligned *to = (Unaligned *)y;
      u32 vectors = (op->columns + VECTOR_PIXELS - 1) / VECTOR_PIXELS;
      for (u32 at = 0; at < vectors; at += STRIDE, x += VECTOR_BYTES) {
        Vector a[STRIDE];
        UNROLL for (int k = 0; k < STRIDE; k++) a[k] = *(const Unaligned *)(x + column_table[k]);
        merge(STRIDE, 4, a);
        UNROLL for (int k = 0; k < STRIDE; k++)
          if (at + k < vectors) to[at + k] = a[k];
      }
#else
      u32 *to = (u32 *)y;
      for (u32 column = 0, k = 0; column < op->columns; column++) {
        to[column] = *(const u32 *)(x + column_table[k]);
        if (++k == STRIDE) k = 0, x += 4;
      }
#endif
    }
  }
}
