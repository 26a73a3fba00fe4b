/* The kernels' descriptors: what network.c, generated from the plan, tells each of them.
 *
 * Every kernel is void kernel(const void *descriptor, const struct context *), so that a network is a table
 * of calls. x, y and the like are byte offsets into the arena, of pixel 0 of plane 0; `weights`, `bias`,
 * `multiplier`, `table` are byte offsets into the weights. A plane is given by the bytes from one to the next.
 * Two HVX contexts share a call: each takes its part of the kernel's range of independent work.
 */
#ifndef TOWLINE_KERNELS_H
#define TOWLINE_KERNELS_H

#include "hvx.h"
#include "moving.h"

struct context {
  u8 *arena;
  const u8 *weights;
  u32 part, parts;
};

struct range {
  u32 begin, end;
};

INLINE struct range share(u32 items, const struct context *c) {
  if (c->parts == 1) return (struct range){0, items};
  u32 half = (items + 1) / 2; /* there are never more than two parts */
  return c->part ? (struct range){half, items} : (struct range){0, half};
}

/* What a strided or padded kernel reads: stride_y x stride_x phases of `rows` x `pitch` cells, cell (i, j) of
 * phase (a, b) being padded pixel (i * stride_y + a, j * stride_x + b). Stored one after the other they turn
 * every tap into a constant offset. Along each axis, cells [begin, end) of a phase are picture; the rest is
 * padding where `padded`, and rubbish that nobody uses where not. */
struct cells {
  u32 begin, end;
};
struct gather {
  u32 x, x_plane, x_pitch, top, left;
  u32 y, y_plane, planes, stride_y, stride_x, rows, pitch;
  u32 padded, value; /* the padding's byte, in all four bytes */
  struct cells row[MAX_STRIDE], column[MAX_STRIDE];
};

struct conv {
  u32 x, x_plane;
  u32 table; /* -DTABLE: signed byte offset of every step's vector, instead of x_plane */
  u32 y, y_plane;
  u32 vectors;     /* of output pixels */
  u32 planes;      /* of output */
  u32 split_tiles; /* what contexts share: 0 the vectors, 1 the tiles */
  u32 weights;     /* [tile][step][channel of the tile][4]; a tile is eight channels, or four if pipelined */
  u32 bias, multiplier, shift; /* words per channel; shift with -DSHIFTED */
  u32 zero_point, low, high;
  u32 bounds; /* -DBOUNDED: [vector][low, high][32] words instead of low and high; equal where no pixel is */
};

struct depthwise {
  u32 x, x_plane, y, y_plane;
  u32 table;   /* signed byte offset of every tap; -DTHREE_BY_THREE: of the first column's three rows, then of
                  the last's, the second at a stride of two */
  u32 quads;   /* -DROLLED */
  u32 vectors; /* of output pixels */
  u32 planes;
  u32 weights; /* per plane [quad][channel][4], then [single][channel] words; -DTHREE_BY_THREE: [pair of
                  channels][column][channel][rows], see packing.py */
  u32 bias, multiplier, shift; /* words per channel; -DPOSITIONAL: multiplier is
                                   [vector][multiplier, shift][32]; -DSHIFTED */
  u32 zero_point, low, high;
};

struct maxpool {
  u32 x, x_plane, y, y_plane, table, taps, vectors, planes;
};

struct global_pool {
  u32 x, x_plane, vectors, planes;
  u32 mask; /* [vector][32] words: all ones where a pixel counts */
  u32 y;    /* a vector: bytes channel by channel */
  u32 bias, multiplier, shift; /* the same for every channel; bias has been multiplied by the pixels */
  u32 zero_point, low, high;
};

struct gemm {
  u32 x, steps; /* steps of four inputs */
  u32 y, blocks; /* blocks of 32 outputs */
  u32 weights;  /* [block][step][32][4] */
  u32 bias, multiplier, shift; /* words per channel */
  u32 zero_point, low, high;
};

struct elementwise_add {
  u32 a, a_plane, b, b_plane, y, y_plane, vectors, planes;
  struct addition addition;
};

struct mul {
  u32 a, a_plane, b, b_plane, y, y_plane, vectors, planes;
  u32 a_zero, b_zero; /* the byte, in all four bytes */
  u32 multiplier, shift, zero_point, low, high;
};

struct lookup {
  u32 x, x_plane, y, y_plane, vectors, planes;
  u32 table; /* 256 bytes */
};

/* Padding of a tensor: the columns between rows (width == pitch: none, or the producer's bounds have made them),
 * and from byte `end` the gap behind each plane, and before the first. */
struct fill {
  u32 y, y_plane, planes, width, height, pitch, end;
  u32 before; /* bytes before plane 0, whole vectors */
  u32 value;  /* the byte, in all four bytes */
};

/* Dense NCHW bytes to planes, and back. */
struct pack_input {
  u32 x, channels, width, height, y, y_plane, pitch;
};
struct unpack_output {
  u32 x, x_plane, channels, width, height, pitch, y;
};

struct call {
  void (*kernel)(const void *, const struct context *);
  const void *descriptor;
};

struct layer {
  u32 first, calls;
  u32 trace, trace_bytes; /* where its output lies, for the layer by layer check */
};

struct span {
  u32 offset, bytes;
};

struct network {
  u8 *arena; /* with `margin` bytes before and behind */
  u32 arena_bytes, margin, weights_bytes;
  u8 *weights;
  u32 inputs, outputs, layers;
  const struct span *input, *output;
  const struct layer *layer;
  const struct call *call;
};

extern const struct network network;

#endif
