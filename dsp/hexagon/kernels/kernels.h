/* The kernels' descriptors: the parameters that network.c, generated from the plan, passes to each.
 *
 * Every kernel is void kernel(const void *descriptor, const struct context *), so that a network is a table
 * of calls. x, y and the like are byte offsets into the arena, of pixel 0 of plane 0; `weights`, `bias`,
 * `multiplier`, `table` are byte offsets into the weights. With -DQ15 a multiplier's odd halfword holds how far its
 * products are narrowed, the same number in all of a node's. A plane is given by the bytes from one to the next.
 * Two HVX contexts share a call: each takes its part of the kernel's range of independent work.
 */
#ifndef TOWLINE_KERNELS_H
#define TOWLINE_KERNELS_H

#include "hvx.h"
#include "matrices.h"
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
 * padding where `padded`, and undefined and never used where not. */
struct cells {
  u32 begin, end;
};
struct gather {
  u32 x, x_plane, x_pitch, top, left;
  u32 y, y_plane, planes, stride_y, stride_x, rows, pitch;
  u32 padded, value; /* the padding's byte, in all four bytes */
  struct cells row[MAX_STRIDE], column[MAX_STRIDE];
};

/* taps.c: windows over dense NCHW bytes as planes of their taps. */
enum { MOST_COLUMNS = 8 };
struct taps {
  u32 x, height, width; /* of the picture */
  u32 y, y_plane, rows, columns, pitch, stride_y, top, left;
  u32 begin[MOST_COLUMNS], end[MOST_COLUMNS]; /* by column of the window: outputs for which it is in the picture */
  u32 value; /* the padding's byte, in all four bytes */
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

/* lanes.h: groups of 16 cells of planes by blocks of 32 output channels. */
struct lanes {
  u32 x, x_plane;
  u32 sums; /* in the arena: [group][pixel][32] words, 128 times the sum of the pixel's bytes */
  u32 y, y_plane, groups, blocks;
  u32 weights; /* [block]: 32 words of bias, 32 of multiplier, then [step][32][4] bytes, 128 too large */
  u32 zero_point, low, high;
};
struct lane_sums {
  u32 x, x_plane, planes, y, groups, pixels;
  u32 cells, last; /* a bit for each cell of a group that is a pixel; of the last group, which may have fewer */
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

struct row_tap {
  u32 start, weight; /* the byte offset of a row of a plane; in both halfwords */
};
struct interpolate {
  u32 x, x_plane, y, y_plane, y_row, planes, rows, bytes; /* of an output's row of pixels */
  u32 zero;        /* of the input, in all four bytes */
  u32 row_taps;    /* [row][tap] */
  u32 starts;      /* [vector][tap]: the byte offset in a row of the vector that holds 32 sources */
  u32 column_taps; /* [vector][tap][controls of a vdelta, a weight in each word's low half] */
  u32 rounding, shift, zero_point, low, high;
};

/* A Map, whose kernel is generated (dsp/hexagon/maps.py), over operands: tensors in the arena, from their first byte,
 * or words in the weights, [vector][byte of its words][32], or one a channel. */
enum { MAP_OPERANDS = 16 };
struct map {
  u32 y, y_plane, vectors, planes, zero_point;
  u32 numbers; /* words of the expression that are the same for all elements */
  u32 x[MAP_OPERANDS], x_plane[MAP_OPERANDS];
  u32 table[MAP_OPERANDS]; /* what an operand's bytes are passed through: see map.h; of one byte a channel 256 words */
};

/* How a sum or an extreme becomes a byte; `bias` takes the input's zero-points off it. */
struct rescale {
  u32 bias, multiplier, shift, zero_point;
};

/* Of rows of `elements` bytes, one behind the other, a byte each. */
struct reduce_rows {
  u32 x, rows, elements, y;
  struct rescale scale;
};

/* Of `count` rows of `bytes` bytes, x_step apart, one such row; and that `blocks` times. */
struct reduce_columns {
  u32 x, x_block, x_step, count, y, y_block, blocks, bytes;
  struct rescale scale;
};

/* Of planes one: a byte a pixel in the first of its four. */
struct reduce_channels {
  u32 x, x_plane, planes, vectors, y;
  u32 used; /* all ones in the bytes of the last plane that are channels */
  struct rescale scale;
};

struct softmax {
  u32 x, y, elements;
  u32 rows;  /* or blocks of columns */
  u32 bytes; /* of columns: from an element to the next */
  u32 table; /* the exponential of a distance from the maximum, as three tables of bytes: see map.h */
  u32 words; /* of rows: the same as words, in the order in which four vectors of them become a table's bytes */
  u32 shift; /* of the sum of exponentials, which then divides the dividend: */
  u32 start, bits, dividend; /* its upper bits, below any sum; how many are left; those */
  u32 zero_point; /* in both halfwords */
};

/* Rows normalised: q becomes (q * elements - base) / root, with a row's own base and root. */
struct normalize {
  u32 x, y, rows, elements;
  u32 centred;     /* whether the base is the row's sum; else it is `base` */
  u32 base, slope; /* without a mean: slope times the row's sum is taken off that of squares */
  u32 spread_low, spread_high; /* what is added to that */
  u32 factors, offsets; /* words by element, [vector][byte of its words][32], or by row */
  u32 shift, bits; /* before the multiplication by a factor; what is behind the point after it */
  u32 zero_point;  /* in both halfwords */
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
