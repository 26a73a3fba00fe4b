/* Division of words, a bit at a time. */
#ifndef TOWLINE_DIVIDE_H
#define TOWLINE_DIVIDE_H

#include "hvx.h"

/* The integer part of a dividend divided by each word of some vectors: of its upper bits, `start`, which are below
 * every divisor, and of `bits` more. */
INLINE void divide(Vector quotient[], const Vector divisor[], const int count, u32 start, u32 bits, u32 dividend) {
  Vector rest[4], one = Q6_V_vsplat_R(1);
  UNROLL for (int k = 0; k < count; k++) rest[k] = Q6_V_vsplat_R((s32)start), quotient[k] = Q6_V_vzero();
  for (s32 bit = (s32)bits - 1; bit >= 0; bit--) {
    Vector next = Q6_V_vsplat_R((s32)(dividend >> bit & 1));
    UNROLL for (int k = 0; k < count; k++) {
      rest[k] = Q6_Vw_vaslacc_VwVwR(next, rest[k], 1);
      HVX_VectorPred below = Q6_Q_vcmp_gt_VuwVuw(divisor[k], rest[k]);
      quotient[k] = Q6_Vw_vadd_VwVw(quotient[k], quotient[k]);
      quotient[k] = Q6_Vw_condacc_QnVwVw(below, quotient[k], one);
      rest[k] = Q6_Vw_condnac_QnVwVw(below, rest[k], divisor[k]);
    }
  }
}

#endif
