/* Moving elements without changing them: planes to dense NCHW, Concat, Pad, Resize, and Transpose where nothing faster fits. */
#include "exact.h"

void unpack_output(const void *descriptor, const struct context *c) {
  const struct unpack_output *op = descriptor;
  u32 channel_bytes = op->width * op->height;
  struct range planes = share((op->channels + 3) / 4, c);
  for (u32 first = planes.begin * 4; first < planes.end * 4; first += 4)
    for (u32 row = 0; row < op->height; row++) {
      const u8 *x = c->arena + op->x + first / 4 * op->x_plane + row * op->pitch * 4;
      u8 *y = c->arena + op->y + first * channel_bytes + row * op->width;
      for (u32 at = 0; at < op->width; at += VECTOR_BYTES) {
        const Unaligned *pixels = (const Unaligned *)(x + at * 4);
        Pair low = Q6_W_vdeal_VVR(pixels[1], pixels[0], -2), high = Q6_W_vdeal_VVR(pixels[3], pixels[2], -2);
        Pair ab = Q6_W_vdeal_VVR(Q6_V_lo_W(high), Q6_V_lo_W(low), -1);
        Pair cd = Q6_W_vdeal_VVR(Q6_V_hi_W(high), Q6_V_hi_W(low), -1);
        Vector channel[4] = {Q6_V_lo_W(ab), Q6_V_hi_W(ab), Q6_V_lo_W(cd), Q6_V_hi_W(cd)};
        UNROLL for (u32 k = 0; k < 4; k++)
          if (first + k < op->channels) store_up_to(y + k * channel_bytes + at, channel[k], op->width - at);
      }
    }
}

void join(const void *descriptor, const struct context *c) {
  const struct join *op = descriptor;
  u32 up = op->shift * 8, down = 32 - up;
  Vector low = Q6_V_vsplat_R((1u << up) - 1);
  struct range vectors = share(op->vectors, c);
  for (u32 v = vectors.begin; v < vectors.end; v++) {
    const u8 *x = c->arena + op->x + v * VECTOR_BYTES;
    u8 *y = c->arena + op->y + v * VECTOR_BYTES;
    Vector before = *(const Vector *)y; /* what is there already; then what the last plane had too much */
    for (u32 plane = 0; plane < op->y_planes; plane++, x += op->x_plane, y += op->y_plane) {
      Vector pixels = plane < op->x_planes ? *(const Vector *)x : Q6_V_vzero();
      *(Vector *)y = Q6_V_vor_VV(Q6_V_vand_VV(before, low), Q6_Vw_vasl_VwR(pixels, up));
      before = Q6_Vuw_vlsr_VuwR(pixels, down);
    }
  }
}

void split(const void *descriptor, const struct context *c) {
  const struct join *op = descriptor;
  u32 down = op->shift * 8, up = 32 - down;
  struct range vectors = share(op->vectors, c);
  for (u32 v = vectors.begin; v < vectors.end; v++) {
    const u8 *x = c->arena + op->x + v * VECTOR_BYTES;
    u8 *y = c->arena + op->y + v * VECTOR_BYTES;
    Vector pixels = *(const Vector *)x;
    for (u32 plane = 1; plane <= op->y_planes; plane++, y += op->y_plane) {
      Vector next = plane < op->x_planes ? *(const Vector *)(x + plane * op->x_plane) : Q6_V_vzero();
      *(Vector *)y = Q6_V_vor_VV(Q6_Vuw_vlsr_VuwR(pixels, down), Q6_Vw_vasl_VwR(next, up));
      pixels = next;
    }
  }
}

void flood(const void *descriptor, const struct context *c) {
  const struct flood *op = descriptor;
  struct range vectors = share(op->vectors, c);
  Vector *y = (Vector *)(c->arena + op->y);
  for (u32 v = vectors.begin; v < vectors.end; v++) y[v] = Q6_V_vsplat_R(op->value);
}

void copy(const void *descriptor, const struct context *c) {
  const struct copy *op = descriptor;
  struct range rows = share(op->rows, c);
  for (u32 block = 0; block < op->blocks; block++)
    for (u32 row = rows.begin; row < rows.end; row++)
      copy_exact(c->arena + op->y + block * op->y_block + row * op->y_row,
                 c->arena + op->x + block * op->x_block + row * op->x_row, op->bytes);
}

/* A few bytes one by one; more by vectors. */
INLINE void copy_run(u8 *y, const u8 *x, u32 bytes) {
  if (bytes < 8)
    while (bytes--) *y++ = *x++;
  else
    copy_exact(y, x, bytes);
}

void take(const void *descriptor, const struct context *c) {
  const struct take *op = descriptor;
  const u32 *table = (const u32 *)(c->weights + op->table);
  struct range rows = share(op->rows, c);
  for (u32 block = 0; block < op->blocks; block++) {
    const u8 *x = c->arena + op->x + block * op->x_block;
    u8 *y = c->arena + op->y + (block * op->rows + rows.begin) * op->bytes;
    for (u32 row = rows.begin; row < rows.end; row++, y += op->bytes) copy_run(y, x + table[row], op->bytes);
  }
}

INLINE void double_pixels(u8 *y, const u8 *x, u32 columns) {
  for (u32 at = 0; at < columns; at += 2 * VECTOR_PIXELS, x += VECTOR_BYTES) {
    Vector pixels = *(const Unaligned *)x;
    Pair twice = Q6_W_vshuff_VVR(pixels, pixels, -4);
    u32 left = (columns - at) * 4;
    store_up_to(y + at * 4, Q6_V_lo_W(twice), left);
    if (left > VECTOR_BYTES) store_up_to(y + at * 4 + VECTOR_BYTES, Q6_V_hi_W(twice), left - VECTOR_BYTES);
  }
}

void resize(const void *descriptor, const struct context *c) {
  const struct resize *op = descriptor;
  const u32 *row_table = (const u32 *)(c->weights + op->row_table);
  struct range rows = share(op->rows, c);
  for (u32 plane = 0; plane < op->planes; plane++)
    for (u32 row = rows.begin; row < rows.end; row++) {
      const u8 *x = c->arena + op->x + plane * op->x_plane + row_table[row];
      u8 *y = c->arena + op->y + plane * op->y_plane + row * op->y_row;
      if (row > rows.begin && row_table[row] == row_table[row - 1])
        copy_exact(y, y - op->y_row, op->columns * 4);
      else
        double_pixels(y, x, op->columns);
    }
}

INLINE void pick_row(u8 *y, const u8 *x, const struct pick *op, const struct context *c) {
  const u32 *start = (const u32 *)(c->weights + op->starts);
  const Vector *network = (const Vector *)(c->weights + op->networks);
  for (u32 left = op->columns * 4;; left -= VECTOR_BYTES, y += VECTOR_BYTES) {
    Vector pixels = Q6_V_vzero();
    for (u32 piece = 0; piece < op->pieces; piece++, start++, network += 3) {
      Vector part = Q6_V_vrdelta_VV(Q6_V_vdelta_VV(*(const Unaligned *)(x + *start), network[0]), network[1]);
      pixels = Q6_V_vor_VV(pixels, Q6_V_vand_VV(part, network[2]));
    }
    store_up_to(y, pixels, left);
    if (left <= VECTOR_BYTES) break;
  }
}

void pick(const void *descriptor, const struct context *c) {
  const struct pick *op = descriptor;
  const u32 *row_table = (const u32 *)(c->weights + op->row_table);
  struct range rows = share(op->rows, c);
  for (u32 plane = 0; plane < op->planes; plane++)
    for (u32 row = rows.begin; row < rows.end; row++) {
      const u8 *x = c->arena + op->x + plane * op->x_plane + row_table[row];
      u8 *y = c->arena + op->y + plane * op->y_plane + row * op->y_row;
      if (row > rows.begin && row_table[row] == row_table[row - 1])
        copy_exact(y, y - op->y_row, op->columns * 4);
      else
        pick_row(y, x, op, c);
    }
}

/* Every other byte. */
INLINE void copy_halved(u8 *y, const u8 *x, u32 bytes) {
  for (u32 at = 0; at < bytes; at += VECTOR_BYTES, x += 2 * VECTOR_BYTES) {
    const Unaligned *from = (const Unaligned *)x;
    store_up_to(y + at, Q6_V_lo_W(Q6_W_vdeal_VVR(from[1], from[0], -1)), bytes - at);
  }
}

/* With the innermost step, if it is 1 or 2. */
INLINE void walk(const int step, const struct permute *op, const struct context *c) {
  enum { LAST = PERMUTE_RANK - 1 };
  u32 index[PERMUTE_RANK] = {0}, inner = op->extent[LAST], rest = inner;
  for (u32 k = 1; k < LAST; k++) rest *= op->extent[k];
  struct range outer = share(op->extent[0], c);
  const u8 *x = c->arena + op->x + (s32)outer.begin * op->step[0];
  u8 *y = c->arena + op->y + outer.begin * rest;
  for (index[0] = outer.begin; index[0] < outer.end;) {
    const u8 *from = x;
    switch (step) {
      case 1: copy_run(y, x, inner), y += inner; break;
      case 2: copy_halved(y, x, inner), y += inner; break;
      default:
        for (u32 i = 0; i < inner; i++, from += op->step[LAST]) *y++ = *from;
    }
    for (u32 k = LAST - 1;; k--) { /* the next of the outer indices */
      x += op->step[k];
      if (++index[k] < op->extent[k] || !k) break;
      x -= (s32)index[k] * op->step[k];
      index[k] = 0;
    }
  }
}

void permute(const void *descriptor, const struct context *c) { walk(0, descriptor, c); }
void permute_runs(const void *descriptor, const struct context *c) { walk(1, descriptor, c); }
void permute_halves(const void *descriptor, const struct context *c) { walk(2, descriptor, c); }
