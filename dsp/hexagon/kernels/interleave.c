/* Byte or word matrices transposed: NCHW to NHWC and back, and what detector heads do before a Reshape.
 *
 * -DNAME=symbol -DUNIT=1|4 -DSTREAMS=n (a power of two up to 32) [-DDENSE | -DAPART] [-DNESTED]. As many vectors,
 * one of each stream, are shuffled until each element's share of all of them lies in one piece; -DDENSE: these are all
 * of y's rows; -DAPART: other bytes are between the rows; -DNESTED: along more axes than the innermost.
 */
#include "exact.h"
#include "shuffle.h"

enum { ELEMENTS = VECTOR_BYTES / UNIT, PIECE = STREAMS * UNIT, INNERMOST = PERMUTE_RANK - 3 };

#ifdef APART
#define ELEMENT(op) (op)->y_element
#else
#define ELEMENT(op) (op)->bytes
#endif

/* The matrices along the innermost axis. */
INLINE void transpose_line(const struct interleave *op, const u8 *from, u8 *to, struct range elements) {
  u32 matrices = op->extent[INNERMOST];
  s32 x_step = op->x_step[INNERMOST], y_step = op->y_step[INNERMOST];
  for (; matrices; matrices--, from += x_step, to += y_step)
    for (u32 at = elements.begin; at < elements.end; at += ELEMENTS) {
      u32 count = elements.end - at < ELEMENTS ? elements.end - at : ELEMENTS;
      for (u32 first = 0; first < op->streams; first += STREAMS) {
        const u8 *x = from + first * op->x_stream + at * UNIT;
        Vector a[STREAMS];
        UNROLL for (u32 k = 0; k < STREAMS; k++) a[k] =
            first + k < op->streams ? *(const Unaligned *)(x + k * op->x_stream) : Q6_V_vzero();
        merge(STREAMS, UNIT, a);
#ifdef DENSE /* the pieces lie as they are written */
        u8 *y = to + at * PIECE;
        u32 left = count * PIECE;
        UNROLL for (int k = 0; k < STREAMS; k++, left -= VECTOR_BYTES) {
          store_up_to(y + k * VECTOR_BYTES, a[k], left);
          if (left <= VECTOR_BYTES) break;
        }
#else
        Vector line[STREAMS + 1]; /* the pieces of ELEMENTS elements; read beyond by less than a vector */
        UNROLL for (int k = 0; k < STREAMS; k++) line[k] = a[k];
        u8 *y = to + at * ELEMENT(op) + first * UNIT;
        u32 bytes = op->bytes - first * UNIT < PIECE ? op->bytes - first * UNIT : PIECE;
        for (u32 i = 0; i < count; i++, y += ELEMENT(op))
          store_exact(y, *(const Unaligned *)((const u8 *)line + i * PIECE), bytes);
#endif
      }
    }
}

void NAME(const void *descriptor, const struct context *c) {
  const struct interleave *op = descriptor;
#ifdef NESTED
  struct range elements = {0, op->elements}, outer = share(op->extent[0], c);
  const s32 *dx = op->x_step, *dy = op->y_step;
  for (u32 i = outer.begin; i < outer.end; i++)
    for (u32 j = 0; j < op->extent[1]; j++)
      for (u32 k = 0; k < op->extent[2]; k++) {
        s32 x = (s32)i * dx[0] + (s32)j * dx[1] + (s32)k * dx[2];
        s32 y = (s32)i * dy[0] + (s32)j * dy[1] + (s32)k * dy[2];
        transpose_line(op, c->arena + op->x + x, c->arena + op->y + y, elements);
      }
#else
  transpose_line(op, c->arena + op->x, c->arena + op->y, share(op->elements, c));
#endif
}
