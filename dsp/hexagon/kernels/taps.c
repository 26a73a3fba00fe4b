/* The first convolution's input: planes whose words are four taps of an output's pixel, from dense NCHW bytes.
 *
 * Three channels leave a byte of each word of a picture's planes unused, and a window reads every word. Here the words
 * are full: tap (c * KERNEL_Y + row) * KERNEL_X + column is byte tap % 4 of plane tap / 4, at the pixel that the window
 * makes, and the convolution that follows is pointwise.
 *
 * -DNAME=symbol -DCHANNELS=n -DKERNEL_Y=n -DKERNEL_X=n -DSTRIDE=1|2 (of columns) -DVECTORS=1..4 (of the last 128 or fewer
 * pixels of a row) [-DONE_BLOCK] (which are all) [-DLEFT] [-DRIGHT]: whether columns of the padding are read on that side.
 */
#include "kernels.h"

enum { TAPS = CHANNELS * KERNEL_Y * KERNEL_X, BLOCK = VECTOR_BYTES };

/* Output pixels [first, first + 128) of a row: the bytes of each column of the window, x being that of the first. */
INLINE void columns_of(Vector column[KERNEL_X], const u8 *x) {
#if STRIDE == 1
  UNROLL for (int k = 0; k < KERNEL_X; k++) column[k] = *(const Unaligned *)(x + k);
#else
  UNROLL for (int k = 0; k < KERNEL_X; k += 2) {
    const Unaligned *both = (const Unaligned *)(x + k);
    Pair phases = Q6_W_vdeal_VVR(both[1], both[0], -1);
    column[k] = Q6_V_lo_W(phases);
    if (k + 1 < KERNEL_X) column[k + 1] = Q6_V_hi_W(phases);
  }
#endif
}

/* The padding's byte where a column of the window is outside of the picture. */
INLINE void pad_columns(Vector column[KERNEL_X], const struct taps *op, u32 first, Vector padding) {
#ifdef LEFT
  if (!first)
    UNROLL for (int k = 0; k < KERNEL_X; k++) column[k] =
        Q6_V_vmux_QVV(Q6_Q_vsetq_R(op->begin[k]), padding, column[k]);
#endif
#ifdef RIGHT
  UNROLL for (int k = 0; k < KERNEL_X; k++) {
    s32 inside = (s32)(op->end[k] - first);
    if (inside < BLOCK)
      column[k] = inside > 0 ? Q6_V_vmux_QVV(Q6_Q_vsetq_R((u32)inside), column[k], padding) : padding;
  }
#endif
  (void)op, (void)first, (void)padding, (void)column;
}

/* A row's last vector runs over into the rows behind it, which are written later; an `exact` one does not. */
INLINE void store_words(Unaligned *y, Vector words, const int exact, s32 pixels) {
  if (!exact || pixels >= VECTOR_PIXELS) {
    *y = words;
    return;
  }
  Vector buffer = words;
  for (s32 k = 0; k < pixels; k++) ((u32 *)y)[k] = ((const u32 *)&buffer)[k];
}

INLINE void store_plane(u8 *y, const Vector tap[4], const int vectors, const int exact, s32 pixels) {
  Pair low = Q6_W_vshuff_VVR(tap[1], tap[0], -1), high = Q6_W_vshuff_VVR(tap[3], tap[2], -1);
  Pair first = Q6_W_vshuff_VVR(Q6_V_lo_W(high), Q6_V_lo_W(low), -2);
  Pair second = Q6_W_vshuff_VVR(Q6_V_hi_W(high), Q6_V_hi_W(low), -2);
  Vector words[4] = {Q6_V_lo_W(first), Q6_V_hi_W(first), Q6_V_lo_W(second), Q6_V_hi_W(second)};
  UNROLL for (int v = 0; v < vectors; v++)
      store_words((Unaligned *)y + v, words[v], exact, pixels - v * VECTOR_PIXELS);
}

/* Output pixels [first, first + 128) of a row, or as many as `vectors` have. `careful`: rows of the padding may be
 * read, and nothing is written behind the row, where the other context's pixels may be. */
INLINE void compute(const struct taps *op, const struct context *c, u32 row, u32 first, const int vectors,
                    const int careful) {
  Vector padding = Q6_V_vsplat_R(op->value), tap[TAPS + 3];
  u8 *y = c->arena + op->y + (row * op->pitch + first) * 4;
  UNROLL for (int n = TAPS; n < TAPS + 3; n++) tap[n] = padding;
  UNROLL for (int n = 0; n < CHANNELS * KERNEL_Y; n++) {
    Vector *own = tap + n * KERNEL_X;
    u32 x_row = row * op->stride_y + n % KERNEL_Y - op->top;
    if (!careful || x_row < op->height) {
      u32 at = (n / KERNEL_Y * op->height + x_row) * op->width + first * STRIDE - op->left;
      columns_of(own, c->arena + op->x + at);
      pad_columns(own, op, first, padding);
    } else {
      UNROLL for (int column = 0; column < KERNEL_X; column++) own[column] = padding;
    }
    /* Planes whose taps are there by now. */
    int ended = n + 1 == CHANNELS * KERNEL_Y ? (TAPS + 3) / 4 : (n + 1) * KERNEL_X / 4;
    UNROLL for (int plane = n * KERNEL_X / 4; plane < ended; plane++)
        store_plane(y + plane * op->y_plane, tap + plane * 4, vectors, careful, (s32)(op->columns - first));
  }
}

INLINE void compute_row(const struct taps *op, const struct context *c, u32 row, const int careful) {
#ifdef ONE_BLOCK
  compute(op, c, row, 0, VECTORS, careful);
#else
  u32 first = 0;
  for (; first + BLOCK < op->columns; first += BLOCK) compute(op, c, row, first, 4, careful);
  compute(op, c, row, first, VECTORS, careful);
#endif
}

static __attribute__((noinline)) void compute_row_with_care(const struct taps *op, const struct context *c, u32 row) {
  compute_row(op, c, row, 1);
}

void NAME(const void *descriptor, const struct context *c) {
  struct taps own = *(const struct taps *)descriptor; /* a copy, which clang knows that no store changes */
  const struct taps *op = &own;
  struct range rows = share(op->rows, c);
  /* Pixels that the other context writes, and how many a row's vectors have. */
  u32 end = rows.end < op->rows ? rows.end * op->pitch : (u32)-1;
  u32 whole = (op->columns + VECTOR_PIXELS - 1) & -VECTOR_PIXELS;
  for (u32 row = rows.begin; row < rows.end; row++) {
    u32 top = row * op->stride_y;
    if (top < op->top || top - op->top + KERNEL_Y > op->height || row * op->pitch + whole > end)
      compute_row_with_care(descriptor, c, row);
    else
      compute_row(op, c, row, 0);
  }
}
