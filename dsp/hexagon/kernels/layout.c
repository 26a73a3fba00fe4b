/* Moving pixels: dense NCHW to planes, padding, and the phases of a strided input. */
#include "kernels.h"

/* Of a vector of pixels only the first `count`: behind them at y lies the other context's share. */
INLINE void store_pixels(u8 *y, Vector pixels, u32 count) {
  Vector buffer = pixels;
  const u32 *words = (const u32 *)&buffer;
  for (u32 k = 0; k < count && k < VECTOR_PIXELS; k++) ((u32 *)y)[k] = words[k];
}

/* 128 pixels of up to four channels, `channel_bytes` apart. */
INLINE void interleave(const int channels, const u8 *x, u32 channel_bytes, Vector pixels[4]) {
  Vector channel[4];
  UNROLL for (int k = 0; k < 4; k++) channel[k] =
      k < channels ? *(const Unaligned *)(x + k * channel_bytes) : Q6_V_vzero();
  Pair low = Q6_W_vshuff_VVR(channel[1], channel[0], -1), high = Q6_W_vshuff_VVR(channel[3], channel[2], -1);
  Pair first = Q6_W_vshuff_VVR(Q6_V_lo_W(high), Q6_V_lo_W(low), -2);
  Pair second = Q6_W_vshuff_VVR(Q6_V_hi_W(high), Q6_V_hi_W(low), -2);
  pixels[0] = Q6_V_lo_W(first), pixels[1] = Q6_V_hi_W(first);
  pixels[2] = Q6_V_lo_W(second), pixels[3] = Q6_V_hi_W(second);
}

/* `vectors` of pixels, of which one is 32 pixels of up to four channels. */
INLINE void pack_vectors(const int channels, const int vectors, const u8 *x, u32 channel_bytes, u8 *y) {
  Vector pixels[4];
  interleave(channels, x, channel_bytes, pixels);
  UNROLL for (int v = 0; v < vectors; v++) ((Unaligned *)y)[v] = pixels[v];
}

/* A row's last vector runs over into the rows after it, which are written later, or into the slack behind the
 * plane; but never into the other context's share, where `inside` is false. */
INLINE void pack_row(const int channels, const u8 *x, u32 channel_bytes, u8 *y, u32 width, u32 inside) {
  u32 left = width;
  if (!inside) {
    for (; left; left -= left < VECTOR_PIXELS ? left : VECTOR_PIXELS, x += VECTOR_PIXELS, y += VECTOR_BYTES) {
      Vector pixels[4];
      interleave(channels, x, channel_bytes, pixels);
      store_pixels(y, pixels[0], left);
    }
    return;
  }
  for (; left >= 4 * VECTOR_PIXELS; left -= 4 * VECTOR_PIXELS, x += VECTOR_BYTES, y += 4 * VECTOR_BYTES)
    pack_vectors(channels, 4, x, channel_bytes, y);
  switch ((left + VECTOR_PIXELS - 1) / VECTOR_PIXELS) {
    case 1: pack_vectors(channels, 1, x, channel_bytes, y); break;
    case 2: pack_vectors(channels, 2, x, channel_bytes, y); break;
    case 3: pack_vectors(channels, 3, x, channel_bytes, y); break;
    case 4: pack_vectors(channels, 4, x, channel_bytes, y); break;
  }
}

INLINE void pack_plane(const int channels, const struct pack_input *op, const u8 *x, u8 *plane,
                       struct range rows) {
  u32 channel_bytes = op->width * op->height, whole = (op->width + VECTOR_PIXELS - 1) & -VECTOR_PIXELS;
  u32 end = rows.end < op->height ? rows.end * op->pitch : (u32)-1;
  for (u32 row = rows.begin; row < rows.end; row++)
    pack_row(channels, x + row * op->width, channel_bytes, plane + row * op->pitch * 4, op->width,
             row * op->pitch + whole <= end);
}

void pack_input(const void *descriptor, const struct context *c) {
  const struct pack_input *op = descriptor;
  struct range rows = share(op->height, c);
  for (u32 first = 0; first < op->channels; first += 4) {
    const u8 *x = c->arena + op->x + first * op->width * op->height;
    u8 *plane = c->arena + op->y + first / 4 * op->y_plane;
    switch (op->channels - first) {
      case 1: pack_plane(1, op, x, plane, rows); break;
      case 2: pack_plane(2, op, x, plane, rows); break;
      case 3: pack_plane(3, op, x, plane, rows); break;
      default: pack_plane(4, op, x, plane, rows);
    }
  }
}

/* Columns [begin, end) of `rows` rows. */
INLINE void fill_columns(u8 *y, u32 begin, u32 end, u32 rows, u32 row_bytes, u32 value) {
  for (u32 column = begin; column < end; column++) {
    u8 *cell = y + column * 4;
#pragma clang loop unroll_count(4)
    for (u32 row = 0; row < rows; row++, cell += row_bytes) *(u32 *)cell = value;
  }
}

void fill(const void *descriptor, const struct context *c) {
  const struct fill *op = descriptor;
  Vector value = Q6_V_vsplat_R(op->value);
  struct range planes = share(op->planes, c);
  if (planes.begin == 0)
    for (u32 at = 0; at < op->before; at += VECTOR_BYTES)
      *(Vector *)(c->arena + op->y - op->before + at) = value;
  u32 edge = op->end & (VECTOR_BYTES - 1);
  u8 *first = c->arena + op->y + planes.begin * op->y_plane;
  if (op->width < op->pitch || edge)
    for (u32 plane = planes.begin; plane < planes.end; plane++) {
      u8 *y = c->arena + op->y + plane * op->y_plane;
      fill_columns(y, op->width, op->pitch, op->height, op->pitch * 4, op->value);
      if (edge) Q6_vmem_QnRIV(Q6_Q_vsetq_R(edge), (Vector *)(y + op->end - edge), value);
    }
  for (u32 at = op->end + (edge ? VECTOR_BYTES - edge : 0); at < op->y_plane; at += VECTOR_BYTES) {
    u8 *y = first + at;
#pragma clang loop unroll_count(4)
    for (u32 plane = planes.begin; plane < planes.end; plane++, y += op->y_plane) *(Vector *)y = value;
  }
}

INLINE void fill_rows(u8 *y, u32 begin, u32 end, u32 row_bytes, u32 value) {
  for (u32 i = begin; i < end; i++)
    for (u32 at = 0; at < row_bytes; at += VECTOR_BYTES) *(Unaligned *)(y + i * row_bytes + at) = Q6_V_vsplat_R(value);
}

/* With a stride of two, the cells of phase b among the 64 from x. */
INLINE Vector gather_vector(const int stride, const int b, const u8 *x) {
  const Unaligned *pixels = (const Unaligned *)x;
  if (stride == 1) return pixels[0];
  Vector low = pixels[0], high = pixels[1];
  Pair phases = Q6_W_vdeal_VVR(high, low, -4);
  return b ? Q6_V_hi_W(phases) : Q6_V_lo_W(phases);
}

/* Rows of one phase, in ascending order, because a row's last vector runs over into what comes next; behind a
 * plane is slack. */
INLINE void gather_rows(const int stride, const int b, const u8 *x, u32 x_row, u8 *y, u32 y_row, u32 rows) {
  u32 vectors = (y_row + VECTOR_BYTES - 1) / VECTOR_BYTES;
  if (vectors == 1) {
#pragma clang loop unroll_count(4)
    for (; rows; rows--, x += x_row, y += y_row) *(Unaligned *)y = gather_vector(stride, b, x);
  } else {
    for (; rows; rows--, x += x_row, y += y_row) {
      const u8 *from = x;
      Unaligned *to = (Unaligned *)y;
#pragma clang loop unroll_count(2)
      for (u32 v = 0; v < vectors; v++, from += VECTOR_BYTES * stride) *to++ = gather_vector(stride, b, from);
    }
  }
}

/* Both phases of every other column at once, for rows of a vector and more: the last vector of a row ends with
 * it, so that nothing runs over. */
INLINE void gather_pairs(const u8 *x, u32 x_row, u8 *y, u32 y_phase, u32 pitch, u32 rows) {
  for (; rows; rows--, x += x_row, y += pitch * 4)
    for (u32 column = 0, last = pitch - VECTOR_PIXELS;; column += VECTOR_PIXELS) {
      if (column > last) column = last;
      const Unaligned *from = (const Unaligned *)(x + column * 8);
      Pair phases = Q6_W_vdeal_VVR(from[1], from[0], -4);
      *(Unaligned *)(y + column * 4) = Q6_V_lo_W(phases);
      *(Unaligned *)(y + y_phase + column * 4) = Q6_V_hi_W(phases);
      if (column == last) break;
    }
}

/* Columns of padding, on either side of the picture. */
INLINE void pad_columns(u8 *y, struct cells columns, u32 pitch, u32 rows, u32 value) {
  fill_columns(y, 0, columns.begin, rows, pitch * 4, value);
  fill_columns(y, columns.end, pitch, rows, pitch * 4, value);
}

INLINE void gather_phase(const struct gather *op, const u8 *x, u8 *y, u32 a, u32 b) {
  u32 y_row = op->pitch * 4, x_row = op->x_pitch * op->stride_y * 4, y_phase = op->rows * y_row;
  struct cells rows = op->row[a], columns = op->column[b];
  s32 first = (s32)(rows.begin * op->stride_y + a - op->top) * (s32)op->x_pitch - (s32)op->left;
  const u8 *from = x + first * 4;
  u8 *to = y + rows.begin * y_row;
  u32 count = rows.end - rows.begin, paired = op->stride_x == 2 && op->pitch >= VECTOR_PIXELS;
  if (op->padded) fill_rows(y, 0, rows.begin, y_row, op->value);
  if (paired && b) { /* with phase 0, whose rows of padding would run over into this one */
    gather_pairs(from, x_row, to - y_phase, y_phase, op->pitch, count);
    if (op->padded) pad_columns(to - y_phase, op->column[0], op->pitch, count, op->value);
  } else if (op->stride_x == 1) {
    gather_rows(1, 0, from, x_row, to, y_row, count);
  } else if (op->stride_x == 2 && b) {
    gather_rows(2, 1, from, x_row, to, y_row, count);
  } else if (op->stride_x == 2 && !paired) {
    gather_rows(2, 0, from, x_row, to, y_row, count);
  } else if (op->stride_x > 2) {
    for (u32 i = 0; i < count; i++)
      for (u32 j = 0; j < op->pitch; j++)
        ((u32 *)(to + i * y_row))[j] = ((const u32 *)(from + i * x_row))[j * op->stride_x + b];
  }
  if (op->padded) {
    pad_columns(to, columns, op->pitch, count, op->value);
    fill_rows(y, rows.end, op->rows, y_row, op->value);
  }
}

void gather(const void *descriptor, const struct context *c) {
  const struct gather *op = descriptor;
  struct range planes = share(op->planes, c);
  for (u32 plane = planes.begin; plane < planes.end; plane++) {
    const u8 *x = c->arena + op->x + plane * op->x_plane;
    u8 *y = c->arena + op->y + plane * op->y_plane;
    for (u32 a = 0; a < op->stride_y; a++)
      for (u32 b = 0; b < op->stride_x; b++, y += op->rows * op->pitch * 4) gather_phase(op, x, y, a, b);
  }
}
