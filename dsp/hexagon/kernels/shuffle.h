/* Streams merged element by element. */
#ifndef TOWLINE_SHUFFLE_H
#define TOWLINE_SHUFFLE_H

#include "hvx.h"

/* Vectors of as many streams (a power of two) of elements of `unit` bytes become, in this order, element 0 of all
 * streams, element 1 of all, and so on. */
INLINE void merge(const int streams, const int unit, Vector *a) {
  Vector b[streams];
  /* Lines of `length` vectors merge two by two, element by element: k with k + half. */
  UNROLL for (int length = 1; length < streams; length *= 2) {
    UNROLL for (int k = 0; k < streams / 2; k++) {
      Pair merged = Q6_W_vshuff_VVR(a[k + streams / 2], a[k], -unit);
      b[2 * k] = Q6_V_lo_W(merged), b[2 * k + 1] = Q6_V_hi_W(merged);
    }
    UNROLL for (int k = 0; k < streams; k++) a[k] = b[k];
  }
}

#endif
