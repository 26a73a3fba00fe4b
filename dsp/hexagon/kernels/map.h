/* What the generated kernels of Maps (dsp/hexagon/maps.py), and others, are made of: bytes as words, tables of words, bytes of words.
 *
 * Four vectors of words stand for one of bytes: byte c of word lane i is word lane i of vector c. */
#ifndef TOWLINE_MAP_H
#define TOWLINE_MAP_H

#include "kernels.h"

INLINE void words_of_bytes(Vector words[4], Vector bytes) {
  Pair halves = Q6_Wuh_vzxt_Vub(bytes);
  Pair even = Q6_Wuw_vzxt_Vuh(Q6_V_lo_W(halves)), odd = Q6_Wuw_vzxt_Vuh(Q6_V_hi_W(halves));
  words[0] = Q6_V_lo_W(even), words[1] = Q6_V_lo_W(odd);
  words[2] = Q6_V_hi_W(even), words[3] = Q6_V_hi_W(odd);
}

/* A table of 256 bytes, its two vectors shuffled as vlut32 wants them (elementwise.c). */
INLINE Vector look_up_bytes(Vector x, const Vector *table) {
  Vector low = table[0], high = table[1];
  Vector r = Q6_Vb_vlut32_VbVbI(x, low, 0);
  r = Q6_Vb_vlut32or_VbVbVbI(r, x, low, 1);
  r = Q6_Vb_vlut32or_VbVbVbI(r, x, low, 2);
  r = Q6_Vb_vlut32or_VbVbVbI(r, x, low, 3);
  r = Q6_Vb_vlut32or_VbVbVbI(r, x, high, 4);
  r = Q6_Vb_vlut32or_VbVbVbI(r, x, high, 5);
  r = Q6_Vb_vlut32or_VbVbVbI(r, x, high, 6);
  return Q6_Vb_vlut32or_VbVbVbI(r, x, high, 7);
}

/* A table of signed numbers of `bytes` bytes: one table of 256 bytes for each, the lowest first. */
INLINE void look_up_words(Vector words[4], Vector x, const Vector *table, const int bytes) {
  Vector part[4] = {Q6_V_vzero(), Q6_V_vzero(), Q6_V_vzero(), Q6_V_vzero()};
  UNROLL for (int k = 0; k < bytes; k++) part[4 - bytes + k] = look_up_bytes(x, table + 2 * k);
  transpose(words, part[0], part[1], part[2], part[3]);
  if (bytes < 4) UNROLL for (int c = 0; c < 4; c++) words[c] = Q6_Vw_vasr_VwR(words[c], 32 - 8 * bytes);
}

/* The sum of all words, in each. */
INLINE Vector add_all(Vector words) {
  UNROLL for (int bytes = VECTOR_BYTES / 2; bytes >= 4; bytes /= 2) words =
      Q6_Vw_vadd_VwVw(words, Q6_V_vror_VR(words, bytes));
  return words;
}

/* Words less the zero-point (which is in every halfword) as bytes, saturated. */
INLINE Vector bytes_of_words(const Vector words[4], Vector zero_point) {
  Vector even = Q6_Vh_vadd_VhVh_sat(Q6_Vh_vsat_VwVw(words[2], words[0]), zero_point);
  Vector odd = Q6_Vh_vadd_VhVh_sat(Q6_Vh_vsat_VwVw(words[3], words[1]), zero_point);
  return Q6_Vub_vsat_VhVh(odd, even);
}

#endif
