/* Byte or word matrices transposed: NCHW to NHWC and back, and what detector heads do before a Reshape.
 *
 * -DNAME=symbol -DUNIT=1|4 -DSTREAMS=n (a power of two up to 32). As many vectors, one of each stream, are
 * shuffled until each element's share of all of them lies in one piece.
 */
#include "exact.h"

enum { ELEMENTS = VECTOR_BYTES / UNIT, PIECE = STREAMS * UNIT };

void NAME(const void *descriptor, const struct context *c) {
  const struct interleave *op = descriptor;
  struct range elements = share(op->elements, c);
  Vector line[STREAMS + 1]; /* the pieces of ELEMENTS elements; read beyond by less than a vector */
  for (u32 block = 0; block < op->blocks; block++)
    for (u32 at = elements.begin; at < elements.end; at += ELEMENTS) {
      u32 count = elements.end - at < ELEMENTS ? elements.end - at : ELEMENTS;
      for (u32 first = 0; first < op->streams; first += STREAMS) {
        const u8 *x = c->arena + op->x + block * op->x_block + first * op->x_stream + at * UNIT;
        Vector a[STREAMS], b[STREAMS];
        UNROLL for (u32 k = 0; k < STREAMS; k++) a[k] =
            first + k < op->streams ? *(const Unaligned *)(x + k * op->x_stream) : Q6_V_vzero();
        /* Lines of `length` vectors merge two by two, element by element: k with k + half. */
        UNROLL for (int length = 1; length < STREAMS; length *= 2) {
          UNROLL for (int k = 0; k < STREAMS / 2; k++) {
            Pair merged = Q6_W_vshuff_VVR(a[k + STREAMS / 2], a[k], -UNIT);
            b[2 * k] = Q6_V_lo_W(merged), b[2 * k + 1] = Q6_V_hi_W(merged);
          }
          UNROLL for (int k = 0; k < STREAMS; k++) a[k] = b[k];
        }
        UNROLL for (int k = 0; k < STREAMS; k++) line[k] = a[k];
        u8 *y = c->arena + op->y + block * op->y_block + at * op->bytes + first * UNIT;
        u32 bytes = op->bytes - first * UNIT < PIECE ? op->bytes - first * UNIT : PIECE;
        for (u32 i = 0; i < count; i++, y += op->bytes)
          store_exact(y, *(const Unaligned *)((const u8 *)line + i * PIECE), bytes);
      }
    }
}
