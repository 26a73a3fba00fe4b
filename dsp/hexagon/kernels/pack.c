/* An operand of a product of matrices in the order in which matmul.c reads it.
 *
 * -DNAME=symbol -DROWS=n (a power of two up to 32): rows, whose elements are summed over; without ROWS, columns. */
#include "kernels.h"
#include "shuffle.h"

/* Sums of the elements of as many rows or columns, repeated over the vector, to terms. */
INLINE void store_terms(const struct terms *op, const struct context *c, Vector sums, u32 matrix, u32 words,
                        u32 first, u32 count) {
  Vector result = Q6_Vw_vadd_VwVw(Q6_Vw_vmpyi_VwRh(sums, op->factor), Q6_V_vsplat_R(op->offset));
  if (op->biased)
    result = Q6_Vw_vadd_VwVw(result, *(const Unaligned *)((const u32 *)(c->weights + op->bias) + first));
  store_bytes(c->arena + op->y + (matrix * words + first) * 4, count * 4, result);
}

#ifdef ROWS

void NAME(const void *descriptor, const struct context *c) {
  const struct pack_rows *op = descriptor;
  struct range tiles = share(op->batches * op->tiles, c);
  u32 batch = 0, tile = tiles.begin;
  for (; tile >= op->tiles; tile -= op->tiles) batch++;
  u32 filled = ((op->bytes + 3) / 4 * ROWS + VECTOR_PIXELS - 1) / VECTOR_PIXELS; /* vectors of a tile */
  for (u32 i = tiles.begin; i < tiles.end; i++) {
    const u8 *x = c->arena + op->x + batch * op->x_matrix + tile * ROWS * op->x_row;
    Vector *y = (Vector *)(c->arena + op->y + i * op->y_tile);
    u32 first = tile * ROWS, rows = first < op->rows ? op->rows - first : 0, done = 0;
    Vector sums = Q6_V_vzero();
    for (u32 at = 0; at < op->bytes; at += VECTOR_BYTES) {
      Vector a[ROWS];
      UNROLL for (u32 k = 0; k < ROWS; k++)
          a[k] = k < rows ? *(const Unaligned *)(x + k * op->x_row + at) : Q6_V_vzero();
      if (op->bytes - at < VECTOR_BYTES) {
        HVX_VectorPred inside = Q6_Q_vsetq_R(op->bytes - at);
        UNROLL for (u32 k = 0; k < ROWS; k++) a[k] = Q6_V_vand_QV(inside, a[k]);
      }
      merge(ROWS, 4, a);
      UNROLL for (u32 k = 0; k < ROWS; k++) {
        sums = Q6_Vuw_vrmpyacc_VuwVubRub(sums, a[k], 0x01010101);
        if (done + k < filled) y[done + k] = a[k];
      }
      done += ROWS;
    }
    UNROLL for (u32 turn = ROWS * 4; turn < VECTOR_BYTES; turn *= 2)
        sums = Q6_Vw_vadd_VwVw(sums, Q6_V_vror_VR(sums, turn));
    store_terms(&op->terms, c, sums, batch, op->tiles * ROWS, tile * ROWS, ROWS);
    if (++tile == op->tiles) tile = 0, batch++;
  }
}

#else

void NAME(const void *descriptor, const struct context *c) {
  const struct pack_columns *op = descriptor;
  u32 chunks = (op->vectors + 3) / 4;
  struct range all = share(op->batches * chunks, c);
  u32 batch = 0, chunk = all.begin;
  for (; chunk >= chunks; chunk -= chunks) batch++;
  for (u32 i = all.begin; i < all.end; i++) {
    const u8 *x = c->arena + op->x + batch * op->rows * op->columns + chunk * VECTOR_BYTES;
    u8 *y = c->arena + op->y + (batch * op->vectors + chunk * 4) * op->y_vector;
    u32 count = op->vectors - chunk * 4;
    Vector sums[4] = {Q6_V_vzero(), Q6_V_vzero(), Q6_V_vzero(), Q6_V_vzero()};
    for (u32 row = 0; row < op->rows; row += 4, y += VECTOR_BYTES) {
      Vector a[4];
      UNROLL for (u32 k = 0; k < 4; k++, x += op->columns)
          a[k] = row + k < op->rows ? *(const Unaligned *)x : Q6_V_vzero();
      merge(4, 1, a);
      UNROLL for (u32 k = 0; k < 4; k++) {
        sums[k] = Q6_Vuw_vrmpyacc_VuwVubRub(sums[k], a[k], 0x01010101);
        if (k < count) *(Vector *)(y + k * op->y_vector) = a[k];
      }
    }
    UNROLL for (u32 k = 0; k < 4; k++)
      if (k < count)
        store_terms(&op->terms, c, sums[k], batch, op->vectors * VECTOR_PIXELS, (chunk * 4 + k) * VECTOR_PIXELS,
                    VECTOR_PIXELS);
    if (++chunk == chunks) chunk = 0, batch++;
  }
}

#endif
