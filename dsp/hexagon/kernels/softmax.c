/* Softmax of rows of bytes, in integers: sdk/arithmetic.py has the definition.
 *
 * What an element becomes depends, within a row, on its distance from the row's maximum alone: a first pass sums the
 * exponentials of these distances, then a table of 256 bytes is made for the row, and a second pass reads it. */
#include "divide.h"
#include "exact.h"
#include "map.h"

enum { EXPONENTIAL_BYTES = 3 };

/* -- along rows ------------------------------------------------------------------------------------------ */

/* Rows side by side, `count` of them (1 or 2): the steps of one fill the packets of the other. Of each its maximum, in
 * every byte, and its exponentials' sum. */
INLINE void rows_sums(const int count, const struct softmax *op, const u8 *x, HVX_VectorPred last, const Vector *table,
                      Vector best[], u64 total[]) {
  u32 vectors = (op->elements + VECTOR_BYTES - 1) / VECTOR_BYTES;
  Vector sum[2][EXPONENTIAL_BYTES];
  UNROLL for (int r = 0; r < count; r++) {
    best[r] = Q6_V_vand_QV(last, ((const Unaligned *)(x + r * op->elements))[vectors - 1]);
    UNROLL for (int k = 0; k < EXPONENTIAL_BYTES; k++) sum[r][k] = Q6_V_vzero();
  }
  for (u32 v = 0; v + 1 < vectors; v++)
    UNROLL for (int r = 0; r < count; r++) best[r] =
        Q6_Vub_vmax_VubVub(best[r], ((const Unaligned *)(x + r * op->elements))[v]);
  UNROLL for (int bytes = VECTOR_BYTES / 2; bytes; bytes /= 2)
    UNROLL for (int r = 0; r < count; r++) best[r] = Q6_Vub_vmax_VubVub(best[r], Q6_V_vror_VR(best[r], bytes));
  for (u32 v = 0; v < vectors; v++)
    UNROLL for (int r = 0; r < count; r++) {
      Vector distance = Q6_Vub_vsub_VubVub_sat(best[r], ((const Unaligned *)(x + r * op->elements))[v]);
      UNROLL for (int k = 0; k < EXPONENTIAL_BYTES; k++) {
        Vector bytes = look_up_bytes(distance, table + 2 * k);
        if (v + 1 == vectors) bytes = Q6_V_vand_QV(last, bytes);
        sum[r][k] = Q6_Vw_vrmpyacc_VwVubRb(sum[r][k], bytes, 0x01010101);
      }
    }
  Vector low[2], high[2];
  UNROLL for (int r = 0; r < count; r++) {
    low[r] = add_all(Q6_Vw_vadd_VwVw(sum[r][0], Q6_Vw_vasl_VwR(sum[r][1], 8)));
    high[r] = add_all(sum[r][2]);
  }
  UNROLL for (int r = 0; r < count; r++) total[r] =
      (u32)Q6_R_vextract_VR(low[r], 0) + ((u64)(u32)Q6_R_vextract_VR(high[r], 0) << 16);
}

/* A row's results: a table of them by the distance from the maximum, read for each element. */
INLINE void rows_results(const int count, const struct softmax *op, const u8 *x, u8 *y, const Vector best[],
                         const Vector multiplier[], const Vector *words) {
  u32 vectors = (op->elements + VECTOR_BYTES - 1) / VECTOR_BYTES, left = op->elements;
  Vector result[2][2], zero_point = Q6_V_vsplat_R((s32)op->zero_point);
  UNROLL for (int r = 0; r < count; r++)
    UNROLL for (int half = 0; half < 2; half++) {
      Vector rounded[4];
      UNROLL for (int k = 0; k < 4; k++) rounded[k] = requantize(words[4 * half + k], multiplier[r]);
      result[r][half] = bytes_of_words(rounded, zero_point);
    }
  for (u32 v = 0; v < vectors; v++, left -= VECTOR_BYTES)
    UNROLL for (int r = 0; r < count; r++) {
      u32 at = r * op->elements + v * VECTOR_BYTES;
      Vector distance = Q6_Vub_vsub_VubVub_sat(best[r], *(const Unaligned *)(x + at));
      store_up_to(y + at, look_up_bytes(distance, result[r]), left);
    }
}

/* Rows in groups of 32, whose sums divide the dividend together. */
void softmax_rows(const void *descriptor, const struct context *c) {
  const struct softmax *op = descriptor;
  const Vector *table = (const Vector *)(c->weights + op->table);
  const Vector *words = (const Vector *)(c->weights + op->words);
  u32 vectors = (op->elements + VECTOR_BYTES - 1) / VECTOR_BYTES;
  HVX_VectorPred last = Q6_Q_vsetq2_R((s32)(op->elements - (vectors - 1) * VECTOR_BYTES));
  struct range rows = share(op->rows, c);
  for (u32 first = rows.begin; first < rows.end; first += VECTOR_PIXELS) {
    u32 count = rows.end - first < VECTOR_PIXELS ? rows.end - first : VECTOR_PIXELS, row;
    const u8 *x = c->arena + op->x + first * op->elements;
    u8 *y = c->arena + op->y + first * op->elements;
    Vector sums = Q6_V_vzero(), multipliers;
    u8 most[VECTOR_PIXELS];
    for (row = 0; row < count; row += 2) {
      Vector best[2];
      u64 total[2];
      u32 together = count - row < 2 ? 1 : 2;
      if (together == 2)
        rows_sums(2, op, x + row * op->elements, last, table, best, total);
      else
        rows_sums(1, op, x + row * op->elements, last, table, best, total);
      for (u32 r = 0; r < together; r++) {
        most[row + r] = (u8)Q6_R_vextract_VR(best[r], 0);
        ((u32 *)&sums)[row + r] = (u32)(total[r] >> op->shift);
      }
    }
    divide(&multipliers, &sums, 1, op->start, op->bits, op->dividend);
    for (row = 0; row < count; row += 2, x += 2 * op->elements, y += 2 * op->elements) {
      const s32 *multiplier = (const s32 *)&multipliers + row;
      Vector best[2] = {Q6_Vb_vsplat_R(most[row]), Q6_Vb_vsplat_R(most[row + 1])};
      Vector by[2] = {Q6_V_vsplat_R(multiplier[0]), Q6_V_vsplat_R(multiplier[1])};
      if (count - row < 2)
        rows_results(1, op, x, y, best, by, words);
      else
        rows_results(2, op, x, y, best, by, words);
    }
  }
}

/* -- across rows ----------------------------------------------------------------------------------------- */

/* 128 columns at a time of `elements` rows of `bytes` bytes; the sums of their exponentials fit words. */
INLINE void softmax_column(const struct softmax *op, const Vector *table, const u8 *x, u8 *y, u32 bytes) {
  Vector best = Q6_V_vzero(), sums[4], multipliers[4], zero_point = Q6_V_vsplat_R(op->zero_point);
  UNROLL for (int k = 0; k < 4; k++) sums[k] = Q6_V_vzero();
  for (u32 i = 0; i < op->elements; i++)
    best = Q6_Vub_vmax_VubVub(best, *(const Unaligned *)(x + i * op->bytes));
  for (u32 i = 0; i < op->elements; i++) {
    Vector words[4], distance = Q6_Vub_vsub_VubVub_sat(best, *(const Unaligned *)(x + i * op->bytes));
    look_up_words(words, distance, table, EXPONENTIAL_BYTES);
    UNROLL for (int k = 0; k < 4; k++) sums[k] = Q6_Vw_vadd_VwVw(sums[k], words[k]);
  }
  UNROLL for (int k = 0; k < 4; k++) sums[k] = Q6_Vuw_vlsr_VuwR(sums[k], (s32)op->shift);
  divide(multipliers, sums, 4, op->start, op->bits, op->dividend);
  for (u32 i = 0; i < op->elements; i++, x += op->bytes, y += op->bytes) {
    Vector words[4], distance = Q6_Vub_vsub_VubVub_sat(best, *(const Unaligned *)x);
    look_up_words(words, distance, table, EXPONENTIAL_BYTES);
    UNROLL for (int k = 0; k < 4; k++) words[k] = requantize(words[k], multipliers[k]);
    store_up_to(y, bytes_of_words(words, zero_point), bytes);
  }
}

void softmax_columns(const void *descriptor, const struct context *c) {
  const struct softmax *op = descriptor;
  const Vector *table = (const Vector *)(c->weights + op->table);
  u32 across = (op->bytes + VECTOR_BYTES - 1) / VECTOR_BYTES;
  struct range vectors = share(across * op->rows, c);
  for (u32 i = vectors.begin, block = 0, at = vectors.begin; i < vectors.end; i++, at++) {
    for (; at >= across; at -= across) block++;
    u32 start = block * op->elements * op->bytes + at * VECTOR_BYTES;
    softmax_column(op, table, c->arena + op->x + start, c->arena + op->y + start, op->bytes - at * VECTOR_BYTES);
  }
}
