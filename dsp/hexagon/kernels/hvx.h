/* Types, requantisation and packing shared by every kernel.
 *
 * Activations are planes: plane g holds channels 4g..4g+3, a pixel is one word with a byte per channel, a
 * vector is 32 consecutive pixels. Rows follow each other at the tensor's pitch, so that a kernel runs over
 * the pixels of a plane as one line; what lies between the rows is padding, or undefined and never used.
 * Accumulators keep one channel per vector and one pixel per word lane.
 */
#ifndef TOWLINE_HVX_H
#define TOWLINE_HVX_H

#include <hexagon_types.h>
#include <hvx_hexagon_protos.h>

typedef unsigned char u8;
typedef int s32;
typedef unsigned u32;
typedef unsigned long long u64;

typedef HVX_Vector Vector;
typedef HVX_VectorPair Pair;
typedef HVX_UVector Unaligned; /* a vector at any address: vmemu */

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("unroll")
enum { VECTOR_BYTES = 128, VECTOR_PIXELS = 32 };

/* ((acc * multiplier) + 2^30) >> 31 with one rounding: the even half of the product is truncated, which
 * loses nothing that the rounding of the odd half could see.
 *
 * -DQ15: (acc * multiplier) >> 16 by the even halfword alone, which packing then narrows, with the rounding. */
INLINE Vector requantize(Vector acc, Vector multiplier) {
#ifdef Q15
  return Q6_Vw_vmpye_VwVuh(acc, multiplier);
#else
  return Q6_Vw_vmpyoacc_VwVwVh_s1_rnd_sat_shift(Q6_Vw_vmpye_VwVuh(acc, multiplier), acc, multiplier);
#endif
}

/* What the requantised words of four channels need to become a vector of pixels. */
struct packing {
  Vector zero_point; /* halfwords */
  Vector low, high;  /* bytes: the fused Relu or Clip */
#ifdef Q15
  u32 narrowing; /* 1 to 15 */
#endif
};

INLINE struct packing packing(u32 zero_point, u32 low, u32 high) {
  return (struct packing){.zero_point = Q6_V_vsplat_R(zero_point * 0x10001u),
                          .low = Q6_V_vsplat_R(low * 0x01010101u),
                          .high = Q6_V_vsplat_R(high * 0x01010101u)};
}

/* For words that these multipliers have made: those of q15 hold in their odd halfword how far to narrow them. */
INLINE struct packing packing_of(u32 zero_point, u32 low, u32 high, u32 multiplier) {
  struct packing p = packing(zero_point, low, high);
#ifdef Q15
  p.narrowing = multiplier >> 16;
#else
  (void)multiplier;
#endif
  return p;
}

/* Requantised words as halfwords, those of two vectors in turn. */
INLINE Vector halfwords(Vector odd, Vector even, struct packing p) {
#ifdef Q15
  return Q6_Vh_vadd_VhVh_sat(Q6_Vh_vasr_VwVwR_rnd_sat(odd, even, p.narrowing), p.zero_point);
#else
  return Q6_Vh_vadd_VhVh_sat(Q6_Vh_vsat_VwVw(odd, even), p.zero_point);
#endif
}

INLINE Vector clamped(Vector bytes, struct packing p) {
  return Q6_Vub_vmin_VubVub(Q6_Vub_vmax_VubVub(bytes, p.low), p.high);
}

INLINE Vector pack(const Vector channel[4], struct packing p) {
  Vector even = halfwords(channel[2], channel[0], p);
  Vector odd = halfwords(channel[3], channel[1], p);
  return clamped(Q6_Vub_vsat_VhVh(odd, even), p);
}

/* Four vectors of requantised words as bytes in their order. */
INLINE Vector pack_words(Vector w0, Vector w1, Vector w2, Vector w3, struct packing p) {
#ifdef Q15 /* which narrows two vectors into one, word by word */
  return clamped(Q6_Vb_vdeal_Vb(Q6_Vub_vpack_VhVh_sat(halfwords(w3, w1, p), halfwords(w2, w0, p))), p);
#else
  Vector low = Q6_Vh_vadd_VhVh_sat(Q6_Vh_vpack_VwVw_sat(w1, w0), p.zero_point);
  Vector high = Q6_Vh_vadd_VhVh_sat(Q6_Vh_vpack_VwVw_sat(w3, w2), p.zero_point);
  return clamped(Q6_Vub_vpack_VhVh_sat(high, low), p);
#endif
}

/* 32 requantised words to bytes in lane order, four times over. */
INLINE Vector pack_in_order(Vector words, struct packing p) { return pack_words(words, words, words, words, p); }

/* Store `bytes` bytes at y, aligned to their number, from a vector that repeats them. */
INLINE void store_bytes(u8 *y, u32 bytes, Vector repeated) {
  u32 at = (u32)y & (VECTOR_BYTES - 1);
  Q6_vmem_QRIV(Q6_Q_and_QQn(Q6_Q_vsetq2_R(at + bytes), Q6_Q_vsetq_R(at)), (Vector *)(y - at), repeated);
}

/* The q31 arithmetic's Add: (a * ka + b * kb + offset) >> shift, exact in 32 bits (sdk/arithmetic.py). The
 * 23-bit multipliers go in as an unsigned high part and a signed low byte: a * k = (a << 8) * high + a * low. */
struct addition {
  u32 a_high, b_high; /* in both halfwords */
  u32 low_bytes;      /* that of a, that of b, 0, 0 */
  s32 offset;         /* - za * ka - zb * kb + 2^(shift - 1) */
  u32 shift;
  u32 zero_point, low, high;
};

/* Two channels of a and b: `mixed` has their bytes in turn, the others have them as halfwords, times 256. */
INLINE Pair add_channels(Vector mixed, Vector a_shifted, Vector b_shifted, const struct addition *k) {
  Vector offset = Q6_V_vsplat_R(k->offset);
  Pair sum = Q6_W_vcombine_VV(Q6_Vw_vrmpyacc_VwVubRb(offset, mixed, k->low_bytes << 16),
                              Q6_Vw_vrmpyacc_VwVubRb(offset, mixed, k->low_bytes));
  return Q6_Wuw_vmpyacc_WuwVuhRuh(Q6_Wuw_vmpyacc_WuwVuhRuh(sum, a_shifted, k->a_high), b_shifted, k->b_high);
}

INLINE Vector add(Vector a, Vector b, const struct addition *k, struct packing p) {
  Vector odd_mask = Q6_V_vsplat_R(0xff00ff00u);
  Pair mixed = Q6_Wb_vshuffoe_VbVb(b, a);
  Pair even = add_channels(Q6_V_lo_W(mixed), Q6_Vh_vasl_VhR(a, 8), Q6_Vh_vasl_VhR(b, 8), k);
  Pair odd = add_channels(Q6_V_hi_W(mixed), Q6_V_vand_VV(a, odd_mask), Q6_V_vand_VV(b, odd_mask), k);
  Vector words[4] = {Q6_Vw_vasr_VwR(Q6_V_lo_W(even), k->shift), Q6_Vw_vasr_VwR(Q6_V_lo_W(odd), k->shift),
                     Q6_Vw_vasr_VwR(Q6_V_hi_W(even), k->shift), Q6_Vw_vasr_VwR(Q6_V_hi_W(odd), k->shift)};
  return pack(words, p);
}

/* Byte transposition: word lane i of channel[c] collects byte c of word lane i of the four inputs. */
INLINE void transpose(Vector channel[4], Vector t0, Vector t1, Vector t2, Vector t3) {
  Pair low = Q6_Wb_vshuffoe_VbVb(t1, t0), high = Q6_Wb_vshuffoe_VbVb(t3, t2);
  Pair even = Q6_Wh_vshuffoe_VhVh(Q6_V_lo_W(high), Q6_V_lo_W(low));
  Pair odd = Q6_Wh_vshuffoe_VhVh(Q6_V_hi_W(high), Q6_V_hi_W(low));
  channel[0] = Q6_V_lo_W(even), channel[1] = Q6_V_lo_W(odd);
  channel[2] = Q6_V_hi_W(even), channel[3] = Q6_V_hi_W(odd);
}

#endif
