/* Descriptors of the kernels that only move elements: moving.c and interleave.c. Conventions: kernels.h. */
#ifndef TOWLINE_MOVING_H
#define TOWLINE_MOVING_H

#include "hvx.h"

enum { PERMUTE_RANK = 6 };

/* join: channels of x behind those of y that are there already, the first `shift` bytes of the words of y's
 * plane 0. split: the channels of x without those first ones. Both tensors have one pitch. */
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

/* Of each block of x the rows whose byte offsets the table has, dense in y. */
struct take {
  u32 x, x_block, table, y, blocks, rows, bytes;
};

/* Nearest neighbour, column k being column k/2 of the input: the byte offset in the plane of each output row. */
struct resize {
  u32 x, x_plane, y, y_plane, y_row, planes, rows, columns, row_table;
};

/* Any columns: the same, and for each vector of them its pieces. */
struct pick {
  u32 x, x_plane, y, y_plane, y_row, planes, rows, columns, row_table;
  u32 pieces;
  u32 starts;   /* [vector][piece]: the byte offset in the row of the vector that a piece is taken from */
  u32 networks; /* [vector][piece][controls of a vdelta, of a vrdelta, mask][32] */
};

/* `streams` rows of `elements` become `elements` rows of `bytes` bytes, and that along the axes around: matrices
 * transposed, or planes to NHWC. The last element of a row may hold less than a whole stream's. */
struct interleave {
  u32 x, x_stream, streams, y, y_element, bytes, elements;
  u32 extent[PERMUTE_RANK - 2];
  s32 x_step[PERMUTE_RANK - 2], y_step[PERMUTE_RANK - 2];
};

/* Rows of phases woven into rows of pixels: the byte offset of each row's phase and cell, and of the phases of
 * STRIDE neighbouring columns. */
struct spread {
  u32 x, x_plane, y, y_plane, y_row, planes, rows, columns, row_table, column_table;
};

/* Bytes y[i0][i1]...[i5], dense, from x + sum(i * step). */
struct permute {
  u32 x, y, extent[PERMUTE_RANK];
  s32 step[PERMUTE_RANK];
};

#endif
