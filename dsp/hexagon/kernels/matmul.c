/* A product of matrices: ROWS rows by VECTORS * 32 columns at a time, a step of four elements of a row broadcast.
 *
 * -DNAME=symbol -DROWS=n -DVECTORS=n [-DCONSTANT] (the right matrix is of the weights) [-DSHIFTED] [-DWHOLE] (a
 * block has all columns, and a tile's rows fill vectors: they are stored as they follow each other). */
#include "exact.h"

/* Vectors of words, up to four, as bytes in their order. */
INLINE Vector pack_row(const int vectors, const Vector *words, struct packing p) {
  int two = vectors > 1, three = vectors > 2 ? 2 : 0, four = vectors > 3 ? 3 : three + (three ? 0 : two);
  return pack_words(words[0], words[two], words[three], words[four], p);
}

INLINE void compute(const struct matmul *op, const struct context *c, u32 batch, u32 block, u32 tile) {
  const u64 *a = (const u64 *)(c->arena + op->a + batch * op->a_batch + tile * op->a_tile);
  u32 a_words = op->a_batch ? batch * op->tiles : 0, b_words = op->b_batch ? batch * op->blocks : 0;
  const s32 *row_terms = (const s32 *)(c->arena + op->a_terms) + (a_words + tile) * ROWS;
  u32 first = block * VECTORS;
#ifdef CONSTANT
  const u8 *memory = c->weights;
#else
  const u8 *memory = c->arena;
#endif
  const Vector *b = (const Vector *)(memory + op->b + batch * op->b_batch + first * op->b_vector);
  const Vector *terms = (const Vector *)(memory + op->b_terms) + b_words * VECTORS + first;
  const Vector *multiplier = (const Vector *)(c->weights + op->multiplier) + first;
  u32 next = op->b_vector / VECTOR_BYTES;
  Vector acc[ROWS * VECTORS];
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int v = 0; v < VECTORS; v++)
      acc[r * VECTORS + v] = Q6_Vw_vadd_VwVw(terms[v], Q6_V_vsplat_R(row_terms[r]));
  for (u32 step = 0; step < op->steps; step++, b++) {
    Vector columns[VECTORS];
    UNROLL for (int v = 0; v < VECTORS; v++) columns[v] = b[v * next];
    UNROLL for (int r = 0; r < ROWS; r += 2) {
      u64 pair = *a++;
      UNROLL for (int v = 0; v < VECTORS; v++) {
        Vector *sum = &acc[r * VECTORS + v];
        sum[0] = Q6_Vuw_vrmpyacc_VuwVubRub(sum[0], columns[v], (u32)pair);
        sum[VECTORS] = Q6_Vuw_vrmpyacc_VuwVubRub(sum[VECTORS], columns[v], (u32)(pair >> 32));
      }
    }
  }
  const u32 *multipliers = (const u32 *)(c->weights + op->multiplier);
  struct packing p = packing_of(op->zero_point, op->low, op->high, *multipliers);
  u32 rows = op->rows - tile * ROWS, left = op->columns - first * VECTOR_PIXELS;
  u8 *y = c->arena + op->y + (batch * op->rows + tile * ROWS) * op->columns + first * VECTOR_PIXELS;
  u32 bytes = left < VECTORS * VECTOR_PIXELS ? left : VECTORS * VECTOR_PIXELS;
  UNROLL for (int k = 0; k < ROWS * VECTORS; k++) {
#ifdef SHIFTED
    acc[k] = Q6_Vw_vasl_VwVw(acc[k], ((const Vector *)(c->weights + op->shift))[first + k % VECTORS]);
#endif
    acc[k] = requantize(acc[k], multiplier[k % VECTORS]);
  }
#ifdef WHOLE
  u32 count = (rows < ROWS ? rows : ROWS) * bytes;
  UNROLL for (u32 k = 0; k < ROWS * VECTORS / 4; k++)
    if (k * VECTOR_BYTES < count)
      store_up_to(y + k * VECTOR_BYTES, pack_row(4, acc + k * 4, p), count - k * VECTOR_BYTES);
#else
  UNROLL for (u32 r = 0; r < ROWS; r++, y += op->columns)
    if (r < rows) store_up_to(y, pack_row(VECTORS, acc + r * VECTORS, p), bytes);
#endif
}

void NAME(const void *descriptor, const struct context *c) {
  const struct matmul *op = descriptor;
  u32 matrix = op->blocks * op->tiles;
  struct range all = share(op->batches * matrix, c);
  u32 batch = 0, block = 0, tile = all.begin;
  for (; tile >= matrix; tile -= matrix) batch++;
  for (; tile >= op->tiles; tile -= op->tiles) block++;
  for (u32 i = all.begin; i < all.end; i++) {
    compute(op, c, batch, block, tile);
    if (++tile == op->tiles) {
      tile = 0;
      if (++block == op->blocks) block = 0, batch++;
    }
  }
}
