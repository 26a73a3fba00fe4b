/* Descriptors of matmul.c and of what packs its operands. Conventions: kernels.h.
 *
 * Matrices are dense; those of a batch follow each other. A step is four elements of the axis that is summed over.
 * Zero-points are not subtracted: a term for each row of the result and one for each column make up for that,
 * words that are sums of the packed elements, multiplied.
 */
#ifndef TOWLINE_MATRICES_H
#define TOWLINE_MATRICES_H

#include "hvx.h"

struct terms {
  u32 y;       /* [batch][packed rows or columns] words: offset + factor * sum (+ bias) */
  u32 factor;  /* of the sum: a signed halfword, in both halves */
  u32 offset;
  u32 biased, bias; /* words of the weights, one for each of a batch's */
};

/* Rows of `bytes` elements, which may overlap, as tiles of ROWS: [batch][tile][step][ROWS][4], zeros beyond rows
 * and elements. */
struct pack_rows {
  u32 x, x_row, x_matrix, batches, rows, bytes;
  u32 y, y_tile, tiles;
  struct terms terms;
};

/* Columns by 32: [batch][vector][step][32][4], zeros beyond the rows, anything beyond the columns. */
struct pack_columns {
  u32 x, batches, rows, columns;
  u32 y, y_vector, vectors;
  struct terms terms;
};

struct matmul {
  u32 a, a_tile, a_batch, a_terms; /* tiles of ROWS; of their terms as many words follow each other */
  u32 b, b_vector, b_batch;        /* vectors of columns; -DCONSTANT: of the weights */
  u32 b_terms;                     /* words per column, for each matrix b; of the weights where those are */
  u32 y, batches, tiles, blocks;   /* blocks of VECTORS * 32 columns */
  u32 steps, rows, columns;
  u32 multiplier, shift;           /* words per column; shift with -DSHIFTED */
  u32 zero_point, low, high;
};

#endif
