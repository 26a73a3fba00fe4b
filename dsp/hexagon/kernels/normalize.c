/* Rows of bytes normalised, in integers: sdk/reference/integer_islands.py has the definition. */
#include "divide.h"
#include "exact.h"
#include "map.h"

enum { ROOT_BITS = 24, RECIPROCAL_BITS = 54, SPREAD_BITS = 14, EXPONENT = 14 };

/* Of a row its elements' sum, and that of their squares. */
INLINE void sums_of_row(const u8 *x, u32 vectors, HVX_VectorPred last, u32 *sum, u32 *squares) {
  Vector acc = Q6_V_vzero(), of_squares = Q6_V_vzero();
  for (u32 v = 0; v < vectors; v++) {
    Vector bytes = ((const Unaligned *)x)[v];
    if (v + 1 == vectors) bytes = Q6_V_vand_QV(last, bytes);
    acc = Q6_Vuw_vrmpyacc_VuwVubRub(acc, bytes, 0x01010101);
    of_squares = Q6_Vuw_vrmpyacc_VuwVubVub(of_squares, bytes, bytes);
  }
  *sum = (u32)Q6_R_vextract_VR(add_all(acc), 0);
  *squares = (u32)Q6_R_vextract_VR(add_all(of_squares), 0);
}

/* 2^54 divided by the roots of words of 31 or 32 bits, which count as multiples of 2^16. */
INLINE Vector reciprocal_roots(Vector words) {
  Vector rest = Q6_V_vzero(), root = Q6_V_vzero(), one = Q6_V_vsplat_R(1);
  for (u32 bit = 0; bit < ROOT_BITS; bit++) {
    rest = Q6_Vw_vaslacc_VwVwR(Q6_Vuw_vlsr_VuwR(words, 30), rest, 2);
    words = Q6_Vw_vasl_VwR(words, 2);
    Vector trial = Q6_Vw_vaslacc_VwVwR(one, root, 2);
    HVX_VectorPred below = Q6_Q_vcmp_gt_VwVw(trial, rest);
    rest = Q6_Vw_condnac_QnVwVw(below, rest, trial);
    root = Q6_Vw_condacc_QnVwVw(below, Q6_Vw_vadd_VwVw(root, root), one);
  }
  Vector quotient;
  divide(&quotient, &root, 1, 1u << (RECIPROCAL_BITS - 32), 32, 0);
  return Q6_Vw_vsub_VwVw(quotient, Q6_Vuw_vlsr_VuwR(quotient, 31)); /* 2^31 is one too much */
}

struct row {
  s32 base, shift, less; /* shifts of the distances to the left, of their multiplier to the right */
};

/* A row's sum of squared distances as a word of 31 or 32 bits, by a shift of twice what its elements' shift lacks;
 * without any distance the shift is of no account. */
INLINE u32 prepare(const struct normalize *op, u32 sum, u32 squares, struct row *row) {
  u64 spread = (u64)squares * op->elements;
  if (op->centred) {
    spread -= (u64)sum * sum;
    row->base = (s32)sum;
  } else {
    spread -= (u64)op->slope * sum;
    row->base = (s32)op->base;
  }
  spread = (spread << SPREAD_BITS) + (op->spread_low | (u64)op->spread_high << 32);
  s32 half = (33 - (s32)__builtin_clzll(spread)) >> 1; /* of the bits beyond 31, rounded down */
  row->shift = half < EXPONENT ? EXPONENT - half : 0;
  row->less = half - EXPONENT + row->shift;
  return (u32)(half < 0 ? spread << (-2 * half) : spread >> (2 * half));
}

INLINE void normalize(const int by_row, const struct normalize *op, const struct context *c) {
  const Vector *factors = (const Vector *)(c->weights + op->factors);
  const Vector *offsets = (const Vector *)(c->weights + op->offsets);
  Vector zero_point = Q6_V_vsplat_R((s32)op->zero_point), elements = Q6_V_vsplat_R((s32)op->elements);
  u32 vectors = (op->elements + VECTOR_BYTES - 1) / VECTOR_BYTES;
  HVX_VectorPred last = Q6_Q_vsetq2_R((s32)(op->elements - (vectors - 1) * VECTOR_BYTES));
  struct range rows = share(op->rows, c);
  for (u32 first = rows.begin; first < rows.end; first += VECTOR_PIXELS) {
    u32 count = rows.end - first < VECTOR_PIXELS ? rows.end - first : VECTOR_PIXELS;
    const u8 *x = c->arena + op->x + first * op->elements;
    u8 *y = c->arena + op->y + first * op->elements;
    Vector spreads = Q6_V_vsplat_R(-1), multipliers;
    struct row row[VECTOR_PIXELS];
    for (u32 i = 0; i < count; i++) {
      u32 sum, squares;
      sums_of_row(x + i * op->elements, vectors, last, &sum, &squares);
      ((u32 *)&spreads)[i] = prepare(op, sum, squares, &row[i]);
    }
    multipliers = reciprocal_roots(spreads);
    for (u32 i = 0; i < count; i++, x += op->elements, y += op->elements) {
      Vector base = Q6_V_vsplat_R(-row[i].base);
      Vector multiplier = Q6_V_vsplat_R(((const s32 *)&multipliers)[i] >> row[i].less);
      Vector factor = Q6_V_vzero(), offset = Q6_V_vzero();
      if (by_row) factor = Q6_V_vsplat_R(((const s32 *)factors)[first + i]);
      if (by_row) offset = Q6_V_vsplat_R(((const s32 *)offsets)[first + i]);
      u32 left = op->elements;
      for (u32 v = 0; v < vectors; v++, left -= VECTOR_BYTES) {
        Vector words[4];
        words_of_bytes(words, ((const Unaligned *)x)[v]);
        UNROLL for (int k = 0; k < 4; k++) {
          if (!by_row) factor = factors[4 * v + k], offset = offsets[4 * v + k];
          Vector word = Q6_Vw_vmpyieacc_VwVwVuh(base, elements, words[k]);
          word = requantize(Q6_Vw_vasl_VwR(word, row[i].shift), multiplier);
          word = Q6_Vw_vadd_VwVw(requantize(Q6_Vw_vasl_VwR(word, (s32)op->shift), factor), offset);
          words[k] = Q6_Vw_vasr_VwR(word, (s32)op->bits);
        }
        store_up_to(y + v * VECTOR_BYTES, bytes_of_words(words, zero_point), left);
      }
    }
  }
}

void normalize_by_element(const void *descriptor, const struct context *c) { normalize(0, descriptor, c); }
void normalize_by_row(const void *descriptor, const struct context *c) { normalize(1, descriptor, c); }
