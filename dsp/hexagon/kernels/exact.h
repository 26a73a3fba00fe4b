/* Stores of any number of bytes at any address that touch nothing else. */
#ifndef TOWLINE_EXACT_H
#define TOWLINE_EXACT_H

#include "kernels.h"

/* The first `bytes` (at most a vector's) of v: two masked stores, one on each side of a vector's border. */
INLINE void store_exact(u8 *y, Vector v, u32 bytes) {
  u32 at = (u32)y & (VECTOR_BYTES - 1), end = at + bytes;
  Vector *first = (Vector *)(y - at);
  Vector turned = Q6_V_vlalign_VVR(v, v, at);
  if (end > VECTOR_BYTES) {
    Q6_vmem_QnRIV(Q6_Q_vsetq_R(at), first, turned);
    Q6_vmem_QRIV(Q6_Q_vsetq_R(end - VECTOR_BYTES), first + 1, turned);
  } else {
    Q6_vmem_QRIV(Q6_Q_and_QQn(Q6_Q_vsetq2_R(end), Q6_Q_vsetq_R(at)), first, turned);
  }
}

/* A whole vector where `bytes` reach that far. */
INLINE void store_up_to(u8 *y, Vector v, u32 bytes) {
  if (bytes >= VECTOR_BYTES)
    *(Unaligned *)y = v;
  else
    store_exact(y, v, bytes);
}

INLINE void copy_exact(u8 *y, const u8 *x, u32 bytes) {
  for (; bytes >= VECTOR_BYTES; bytes -= VECTOR_BYTES, x += VECTOR_BYTES, y += VECTOR_BYTES)
    *(Unaligned *)y = *(const Unaligned *)x;
  if (bytes) store_exact(y, *(const Unaligned *)x, bytes);
}

#endif
