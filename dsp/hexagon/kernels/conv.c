/* Convolution as a sum over steps of four input channels: pointwise, or of any shape through a table.
 *
 * -DNAME=symbol -DSTEPS=n -DUNROLL_STEPS=n, and of these any: -DTABLE (each step reads at its own, unaligned offset),
 * -DRESIDUAL (an Add follows in the same pass), -DBOUNDED (cells that are no pixels become padding), -DSHIFTED
 * (scales of one and more shift the accumulator first). A tile is eight channels by two vectors: sixteen
 * accumulators, eight packets of two vrmpy for every step, four loads of eight weights beside them.
 */
#include "kernels.h"

/* The offsets of a short table live in registers. */
#if defined(TABLE) && STEPS <= 10
#define SHORT_TABLE
#define OFFSET(step) t->offset[step]
#else
#define OFFSET(step) t->table[step]
#endif

struct tile {
  const u8 *x;
  u32 x_plane;
  const s32 *table;
#ifdef SHORT_TABLE
  s32 offset[STEPS];
#endif
  const u64 *weights;
  Vector bias[8], multiplier[8], shift[8];
  u8 *y;
  u32 y_plane;
  struct packing packing;
  const Vector *bounds;
  const u8 *residual;
  u32 residual_plane;
  const struct addition *addition;
  struct packing residual_packing;
};

INLINE void compute(const int channels, const int vectors, const struct tile *t, u32 vector) {
  Vector acc[16];
  const u8 *x = t->x + vector * VECTOR_BYTES;
  const u64 *weights = t->weights;
  UNROLL for (int c = 0; c < channels; c++) UNROLL for (int v = 0; v < vectors; v++)
      acc[c * vectors + v] = t->bias[c];
#pragma clang loop unroll_count(UNROLL_STEPS)
  for (u32 step = 0; step < STEPS; step++) {
    Vector pixels[2];
#ifdef TABLE
    const Unaligned *source = (const Unaligned *)(x + OFFSET(step));
#else
    const Vector *source = (const Vector *)x;
    x += t->x_plane;
#endif
    UNROLL for (int v = 0; v < vectors; v++) pixels[v] = source[v];
    UNROLL for (int c = 0; c < channels; c += 2) {
      u64 pair = *weights++;
      UNROLL for (int v = 0; v < vectors; v++) {
        Vector *a = &acc[c * vectors + v];
        a[0] = Q6_Vw_vrmpyacc_VwVubRb(a[0], pixels[v], (u32)pair);
        a[vectors] = Q6_Vw_vrmpyacc_VwVubRb(a[vectors], pixels[v], (u32)(pair >> 32));
      }
    }
  }
#ifdef SHIFTED
  UNROLL for (int c = 0; c < channels; c++) UNROLL for (int v = 0; v < vectors; v++)
      acc[c * vectors + v] = Q6_Vw_vasl_VwVw(acc[c * vectors + v], t->shift[c]);
#endif
  UNROLL for (int group = 0; group < channels / 4; group++) UNROLL for (int v = 0; v < vectors; v++) {
    Vector words[4];
    UNROLL for (int c = 0; c < 4; c++)
      words[c] = requantize(acc[(group * 4 + c) * vectors + v], t->multiplier[group * 4 + c]);
#ifdef RESIDUAL
    struct packing last = t->residual_packing;
#else
    struct packing last = t->packing;
#endif
#ifdef BOUNDED
    last.low = t->bounds[(vector + v) * 2];
    last.high = t->bounds[(vector + v) * 2 + 1];
#endif
#ifdef RESIDUAL
    const Vector *residual = (const Vector *)(t->residual + group * t->residual_plane) + vector + v;
    Vector pixels = add(pack(words, t->packing), *residual, t->addition, last);
#else
    Vector pixels = pack(words, last);
#endif
    ((Vector *)(t->y + group * t->y_plane))[vector + v] = pixels;
  }
}

void NAME(const void *descriptor, const struct context *c) {
  const struct conv *op = descriptor;
  u32 tiles = (op->planes + 1) / 2;
  struct range tile_range = {0, tiles}, vector_range = {0, op->vectors};
  if (op->split_tiles)
    tile_range = share(tiles, c);
  else
    vector_range = share(op->vectors, c);

  struct tile t = {
      .x = c->arena + op->x,
      .x_plane = op->x_plane,
      .table = (const s32 *)(c->weights + op->table),
      .y_plane = op->y_plane,
      .packing = packing(op->zero_point, op->low, op->high),
      .bounds = (const Vector *)(c->weights + op->bounds),
      .residual_plane = op->residual_plane,
      .addition = &op->addition,
      .residual_packing = packing(op->addition.zero_point, op->addition.low, op->addition.high),
  };
#ifdef SHORT_TABLE
  UNROLL for (u32 step = 0; step < STEPS; step++) t.offset[step] = t.table[step];
#endif
  for (u32 i = tile_range.begin; i < tile_range.end; i++) {
    const s32 *bias = (const s32 *)(c->weights + op->bias) + i * 8;
    const s32 *multiplier = (const s32 *)(c->weights + op->multiplier) + i * 8;
    UNROLL for (int k = 0; k < 8; k++) {
      t.bias[k] = Q6_V_vsplat_R(bias[k]);
      t.multiplier[k] = Q6_V_vsplat_R(multiplier[k]);
    }
#ifdef SHIFTED
    const s32 *shift = (const s32 *)(c->weights + op->shift) + i * 8;
    UNROLL for (int k = 0; k < 8; k++) t.shift[k] = Q6_V_vsplat_R(shift[k]);
#endif
    t.weights = (const u64 *)(c->weights + op->weights) + i * STEPS * 4;
    t.y = c->arena + op->y + i * 2 * op->y_plane;
    t.residual = c->arena + op->residual + i * 2 * op->residual_plane;
    u32 vector = vector_range.begin;
    if (i * 2 + 1 < op->planes) {
      for (; vector + 2 <= vector_range.end; vector += 2) compute(8, 2, &t, vector);
      if (vector < vector_range.end) compute(8, 1, &t, vector);
    } else {
      for (; vector < vector_range.end; vector++) compute(4, 1, &t, vector);
    }
  }
}
