/* Sums and extremes over one axis: along rows of bytes, across them, and of the channels of planes. */
#include "exact.h"
#include "map.h"

enum kind { SUM, MAX, MIN };

INLINE Vector neutral(const enum kind kind) { return kind == MIN ? Q6_V_vsplat_R(-1) : Q6_V_vzero(); }

INLINE Vector extreme(const enum kind kind, Vector a, Vector b) {
  return kind == MIN ? Q6_Vub_vmin_VubVub(a, b) : Q6_Vub_vmax_VubVub(a, b);
}

INLINE Vector scaled(Vector words, const struct rescale *k) {
  words = Q6_Vw_vasl_VwR(Q6_Vw_vadd_VwVw(words, Q6_V_vsplat_R(k->bias)), k->shift);
  return requantize(words, Q6_V_vsplat_R(k->multiplier));
}

/* -- along rows ------------------------------------------------------------------------------------------ */

INLINE u32 reduced_row(const enum kind kind, const u8 *x, u32 elements) {
  Vector none = neutral(kind), acc = none;
  for (u32 at = 0; at < elements; at += VECTOR_BYTES) {
    Vector bytes = *(const Unaligned *)(x + at);
    if (elements - at < VECTOR_BYTES) bytes = Q6_V_vmux_QVV(Q6_Q_vsetq_R((s32)(elements - at)), bytes, none);
    acc = kind == SUM ? Q6_Vw_vrmpyacc_VwVubRb(acc, bytes, 0x01010101) : extreme(kind, acc, bytes);
  }
  UNROLL for (int bytes = VECTOR_BYTES / 2; bytes >= (kind == SUM ? 4 : 1); bytes /= 2) {
    Vector turned = Q6_V_vror_VR(acc, bytes);
    acc = kind == SUM ? Q6_Vw_vadd_VwVw(acc, turned) : extreme(kind, acc, turned);
  }
  u32 word = (u32)Q6_R_vextract_VR(acc, 0);
  return kind == SUM ? word : word & 255;
}

INLINE void reduce_rows(const enum kind kind, const struct reduce_rows *op, const struct context *c) {
  struct packing p = packing(op->scale.zero_point, 0, 255);
  struct range rows = share(op->rows, c);
  for (u32 first = rows.begin; first < rows.end; first += VECTOR_PIXELS) {
    u32 count = rows.end - first < VECTOR_PIXELS ? rows.end - first : VECTOR_PIXELS;
    Vector words = Q6_V_vzero();
    for (u32 row = 0; row < count; row++) {
      const u8 *x = c->arena + op->x + (first + row) * op->elements;
      ((u32 *)&words)[row] = reduced_row(kind, x, op->elements);
    }
    store_exact(c->arena + op->y + first, pack_in_order(scaled(words, &op->scale), p), count);
  }
}

void reduce_rows_sum(const void *descriptor, const struct context *c) { reduce_rows(SUM, descriptor, c); }
void reduce_rows_max(const void *descriptor, const struct context *c) { reduce_rows(MAX, descriptor, c); }
void reduce_rows_min(const void *descriptor, const struct context *c) { reduce_rows(MIN, descriptor, c); }

/* -- across rows ----------------------------------------------------------------------------------------- */

/* 128 columns of `count` rows: words as in map.h. */
INLINE void reduced_columns(const enum kind kind, Vector words[4], const u8 *x, u32 count, u32 step) {
  if (kind != SUM) {
    Vector acc = neutral(kind);
    for (u32 row = 0; row < count; row++, x += step) acc = extreme(kind, acc, *(const Unaligned *)x);
    words_of_bytes(words, acc);
    return;
  }
  Pair even = Q6_W_vcombine_VV(Q6_V_vzero(), Q6_V_vzero()), odd = even;
  for (; count; count -= count > 1 ? 2 : 1, x += 2 * step) {
    Pair a = Q6_Wuh_vzxt_Vub(*(const Unaligned *)x);
    Pair b = Q6_Wuh_vzxt_Vub(count > 1 ? *(const Unaligned *)(x + step) : Q6_V_vzero());
    even = Q6_Ww_vaddacc_WwVuhVuh(even, Q6_V_lo_W(a), Q6_V_lo_W(b));
    odd = Q6_Ww_vaddacc_WwVuhVuh(odd, Q6_V_hi_W(a), Q6_V_hi_W(b));
  }
  words[0] = Q6_V_lo_W(even), words[1] = Q6_V_lo_W(odd);
  words[2] = Q6_V_hi_W(even), words[3] = Q6_V_hi_W(odd);
}

INLINE void reduce_columns(const enum kind kind, const struct reduce_columns *op, const struct context *c) {
  Vector zero_point = Q6_V_vsplat_R(op->scale.zero_point * 0x10001u);
  u32 across = (op->bytes + VECTOR_BYTES - 1) / VECTOR_BYTES;
  struct range all = {0, across};
  struct range blocks = op->blocks > 1 ? share(op->blocks, c) : (struct range){0, 1};
  struct range vectors = op->blocks > 1 ? all : share(across, c);
  for (u32 block = blocks.begin; block < blocks.end; block++)
    for (u32 v = vectors.begin; v < vectors.end; v++) {
      const u8 *x = c->arena + op->x + block * op->x_block + v * VECTOR_BYTES;
      u8 *y = c->arena + op->y + block * op->y_block + v * VECTOR_BYTES;
      Vector words[4];
      reduced_columns(kind, words, x, op->count, op->x_step);
      UNROLL for (int k = 0; k < 4; k++) words[k] = scaled(words[k], &op->scale);
      store_up_to(y, bytes_of_words(words, zero_point), op->bytes - v * VECTOR_BYTES);
    }
}

void reduce_columns_sum(const void *descriptor, const struct context *c) { reduce_columns(SUM, descriptor, c); }
void reduce_columns_max(const void *descriptor, const struct context *c) { reduce_columns(MAX, descriptor, c); }
void reduce_columns_min(const void *descriptor, const struct context *c) { reduce_columns(MIN, descriptor, c); }

/* -- channels of planes ---------------------------------------------------------------------------------- */

INLINE void reduce_channels(const enum kind kind, const struct reduce_channels *op, const struct context *c) {
  Vector used = Q6_V_vsplat_R(op->used), unused = Q6_V_vand_VV(neutral(kind), Q6_V_vsplat_R(~op->used));
  Vector zero_point = Q6_V_vsplat_R(op->scale.zero_point);
  struct range vectors = share(op->vectors, c);
  for (u32 v = vectors.begin; v < vectors.end; v++) {
    const u8 *x = c->arena + op->x + v * VECTOR_BYTES;
    Vector acc = neutral(kind);
    for (u32 plane = 0; plane < op->planes; plane++, x += op->x_plane) {
      Vector pixels = *(const Vector *)x;
      if (plane + 1 == op->planes) pixels = Q6_V_vor_VV(Q6_V_vand_VV(pixels, used), unused);
      acc = kind == SUM ? Q6_Vw_vrmpyacc_VwVubRb(acc, pixels, 0x01010101) : extreme(kind, acc, pixels);
    }
    if (kind != SUM) {
      acc = extreme(kind, acc, Q6_Vuw_vlsr_VuwR(acc, 16));
      acc = Q6_V_vand_VV(extreme(kind, acc, Q6_Vuw_vlsr_VuwR(acc, 8)), Q6_V_vsplat_R(255));
    }
    Vector words = Q6_Vw_vadd_VwVw_sat(scaled(acc, &op->scale), zero_point);
    words = Q6_Vw_vmin_VwVw(Q6_Vw_vmax_VwVw(words, Q6_V_vzero()), Q6_V_vsplat_R(255));
    *(Vector *)(c->arena + op->y + v * VECTOR_BYTES) = words;
  }
}

void reduce_channels_sum(const void *descriptor, const struct context *c) { reduce_channels(SUM, descriptor, c); }
void reduce_channels_max(const void *descriptor, const struct context *c) { reduce_channels(MAX, descriptor, c); }
void reduce_channels_min(const void *descriptor, const struct context *c) { reduce_channels(MIN, descriptor, c); }
