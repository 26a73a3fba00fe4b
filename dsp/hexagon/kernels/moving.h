/* Descriptors of the kernels that only move elements: moving.c and interleave.c. Conventions: kernels.h. */
#ifndef TOWLINE_MOVING_H
#define TOWLINE_MOVING_H

#include "hvx.h"

enum { PERMUTE_RANK = 6 };

/* Channels of x behind those of y that are there already: the first `shift` bytes of the words of y's plane 0.
 * Both have one pitch. */
struct join {
  u32 x, x_plane, x_planes, y, y_plane, y_planes, shift, vectors;
};

/* One byte all over. */
struct flood {
  u32 y, vectors, value; /* in all four bytes */
};

/* Blocks of rows of bytes, each at its place: pixels of planes, or parts of dense tensors. */
struct copy {
  u32 x, x_block, x_row, y, y_block, y_row, blocks, rows, bytes;
};

/* Nearest neighbour: the byte offset in the plane of each output row, in the row of each output column. */
struct resize {
  u32 x, x_plane, y, y_plane, y_row, planes, rows, columns, row_table, column_table;
  u32 doubled; /* column k is column k/2 of the input: no table needed */
};

/* `streams` rows of `elements` become `elements` rows of `bytes` bytes, `blocks` times: a matrix transposed, or
 * planes to NHWC. The last element of a row may hold less than a whole stream's. */
struct interleave {
  u32 x, x_block, x_stream, streams, y, y_block, bytes, blocks, elements;
};

/* Bytes y[i0][i1]...[i5], dense, from x + sum(i * step). */
struct permute {
  u32 x, y, extent[PERMUTE_RANK], step[PERMUTE_RANK];
};

#endif
