/* Moving pixels: dense NCHW to planes and back, padding, and the phases of a strided input. */
#include "kernels.h"

/* Of a vector of pixels only the first `count`: behind them at y lies the other context's share. */
INLINE void store_pixels(u8 *y, Vector pixels, u32 count) {
  Vector buffer = pixels;
  const u32 *words = (const u32 *)&buffer;
  for (u32 k = 0; k < count && k < VECTOR_PIXELS; k++) ((u32 *)y)[k] = words[k];
}

/* A row's last vector runs over into the rows after it, which are written later, or into the slack behind the
 * plane; but never into the other context's share. */
void pack_input(const void *descriptor, const struct context *c) {
  const struct pack_input *op = descriptor;
  u32 channel_bytes = op->width * op->height;
  struct range rows = share(op->height, c);
  u32 end = rows.end < op->height ? rows.end * op->pitch : (u32)-1;
  for (u32 first = 0; first < op->channels; first += 4) {
    u8 *plane = c->arena + op->y + first / 4 * op->y_plane;
    for (u32 row = rows.begin; row < rows.end; row++) {
      const u8 *x = c->arena + op->x + first * channel_bytes + row * op->width;
      u8 *y = plane + row * op->pitch * 4;
      u32 inside = row * op->pitch + (op->width + VECTOR_PIXELS - 1) / VECTOR_PIXELS * VECTOR_PIXELS <= end;
      for (u32 begin = 0; begin < op->width; begin += VECTOR_BYTES) {
        Vector channel[4];
        UNROLL for (u32 k = 0; k < 4; k++) channel[k] =
            first + k < op->channels ? *(const Unaligned *)(x + k * channel_bytes + begin) : Q6_V_vzero();
        Pair low = Q6_W_vshuff_VVR(channel[1], channel[0], -1), high = Q6_W_vshuff_VVR(channel[3], channel[2], -1);
        Pair first_half = Q6_W_vshuff_VVR(Q6_V_lo_W(high), Q6_V_lo_W(low), -2);
        Pair second_half = Q6_W_vshuff_VVR(Q6_V_hi_W(high), Q6_V_hi_W(low), -2);
        Vector pixels[4] = {Q6_V_lo_W(first_half), Q6_V_hi_W(first_half), Q6_V_lo_W(second_half),
                            Q6_V_hi_W(second_half)};
        UNROLL for (u32 v = 0; v < 4; v++) {
          u32 at = begin + v * VECTOR_PIXELS;
          if (at >= op->width) break;
          if (inside)
            *(Unaligned *)(y + at * 4) = pixels[v];
          else
            store_pixels(y + at * 4, pixels[v], op->width - at);
        }
      }
    }
  }
}

void unpack_output(const void *descriptor, const struct context *c) {
  const struct unpack_output *op = descriptor;
  struct range channels = share(op->channels, c);
  for (u32 channel = channels.begin; channel < channels.end; channel++) {
    const u8 *x = c->arena + op->x + channel / 4 * op->x_plane + channel % 4;
    u8 *y = c->arena + op->y + channel * op->width * op->height;
    for (u32 row = 0; row < op->height; row++)
      for (u32 column = 0; column < op->width; column++) *y++ = x[(row * op->pitch + column) * 4];
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
  for (u32 plane = planes.begin; plane < planes.end; plane++) {
    u8 *y = c->arena + op->y + plane * op->y_plane;
    u32 end = op->end, edge = end & (VECTOR_BYTES - 1);
    fill_columns(y, op->width, op->pitch, op->height, op->pitch * 4, op->value);
    if (edge) {
      Q6_vmem_QnRIV(Q6_Q_vsetq_R(edge), (Vector *)(y + end - edge), value);
      end += VECTOR_BYTES - edge;
    }
    for (; end < op->y_plane; end += VECTOR_BYTES) *(Vector *)(y + end) = value;
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
#pragma clang loop unroll_count(2)
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

INLINE void gather_phase(const struct gather *op, const u8 *x, u8 *y, u32 a, u32 b) {
  u32 y_row = op->pitch * 4, x_row = op->x_pitch * op->stride_y * 4;
  struct cells rows = op->row[a], columns = op->column[b];
  s32 first = (s32)(rows.begin * op->stride_y + a - op->top) * (s32)op->x_pitch - (s32)op->left;
  const u8 *from = x + first * 4;
  u8 *to = y + rows.begin * y_row;
  u32 count = rows.end - rows.begin;
  if (op->padded) fill_rows(y, 0, rows.begin, y_row, op->value);
  if (op->stride_x == 1)
    gather_rows(1, 0, from, x_row, to, y_row, count);
  else if (op->stride_x == 2 && b)
    gather_rows(2, 1, from, x_row, to, y_row, count);
  else if (op->stride_x == 2)
    gather_rows(2, 0, from, x_row, to, y_row, count);
  else
    for (u32 i = 0; i < count; i++)
      for (u32 j = 0; j < op->pitch; j++)
        ((u32 *)(to + i * y_row))[j] = ((const u32 *)(from + i * x_row))[j * op->stride_x + b];
  if (op->padded) {
    fill_columns(to, 0, columns.begin, count, y_row, op->value);
    fill_columns(to, columns.end, op->pitch, count, y_row, op->value);
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
