#include "base.h"

/* Elements of plain tensors: stored little-endian in the tensor's dtype, computed as float, int64_t or, of
 * bool, int. Storing a float rounds it once, half to even. Conversions work on bits, and give the same ones
 * everywhere; they are free of branches, so that compilers make vector code of them. */
#include <math.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "plain tensors are stored as little-endian machines store them"
#endif

#if defined(__GNUC__)
#define HELPER __attribute__((unused)) static inline
#else
#define HELPER static inline
#endif

HELPER uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

HELPER float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* -- formats narrower than float: `fraction` bits behind the point, 2^lowest the smallest normal number ---
 *
 * Magnitudes are bits without the sign, and signed: SSE2 compares no others. */

/* The float of a magnitude. A subnormal number is a difference of two normal ones. */
HELPER int32_t widened(int32_t magnitude, int fraction, int lowest) {
  int32_t moved = magnitude << (23 - fraction), base = (lowest + 127) << 23;
  int32_t subnormal = (int32_t)bits_of(float_of((uint32_t)(moved + base)) - float_of((uint32_t)base));
  return magnitude < 1 << fraction ? subnormal : moved + base - (1 << 23);
}

/* A float's magnitude rounded to the format, without a bound: what exceeds its range is a larger number. */
HELPER int32_t narrowed(int32_t magnitude, int fraction, int lowest) {
  int shift = 23 - fraction;
  int32_t unit = (lowest - fraction + 150) << 23; /* a float whose last place is the smallest step */
  int32_t subnormal = (int32_t)bits_of(float_of((uint32_t)magnitude) + float_of((uint32_t)unit)) - unit;
  int32_t half = (1 << (shift - 1)) - 1 + (magnitude >> shift & 1);
  int32_t normal = (magnitude - ((lowest + 126) << 23) + half) >> shift;
  return magnitude < (lowest + 127) << 23 ? subnormal : normal;
}

HELPER float load_float16(const uint8_t *p) {
  uint16_t stored;
  memcpy(&stored, p, sizeof stored);
  int32_t magnitude = stored & 0x7fff, result = widened(magnitude, 10, -14);
  result = magnitude >= 0x7c00 ? result | 0x7f800000 : result;
  return float_of((uint32_t)result | (uint32_t)(stored & 0x8000) << 16);
}

HELPER void store_float16(uint8_t *p, float value) {
  uint32_t bits = bits_of(value);
  int32_t magnitude = bits & 0x7fffffff, result = narrowed(magnitude, 10, -14);
  result = magnitude >= 0x477ff000 ? 0x7c00 : result; /* from halfway between 65504 and 65536 on */
  result = magnitude > 0x7f800000 ? 0x7e00 : result;
  uint16_t stored = (uint16_t)((uint32_t)result | (bits >> 16 & 0x8000));
  memcpy(p, &stored, sizeof stored);
}

HELPER float load_bfloat16(const uint8_t *p) {
  uint16_t stored;
  memcpy(&stored, p, sizeof stored);
  return float_of((uint32_t)stored << 16);
}

HELPER void store_bfloat16(uint8_t *p, float value) {
  uint32_t bits = bits_of(value), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  rounded = (bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : rounded;
  uint16_t stored = (uint16_t)rounded;
  memcpy(p, &stored, sizeof stored);
}

/* OCP's E5M2 is the upper half of a float16. */
HELPER float load_float8e5m2(const uint8_t *p) {
  int32_t magnitude = *p & 0x7f, result = widened(magnitude, 2, -14);
  result = magnitude >= 0x7c ? result | 0x7f800000 : result;
  return float_of((uint32_t)result | (uint32_t)(*p & 0x80) << 24);
}

HELPER void store_float8e5m2(uint8_t *p, float value) {
  uint32_t bits = bits_of(value);
  int32_t magnitude = bits & 0x7fffffff, result = narrowed(magnitude, 2, -14);
  result = magnitude >= 0x47700000 ? 0x7c : result; /* from halfway between 57344 and 65536 on */
  result = magnitude > 0x7f800000 ? 0x7f : result;
  *p = (uint8_t)((uint32_t)result | (bits >> 24 & 0x80));
}

/* OCP's E4M3 has no infinity: what exceeds 448 is 448. */
HELPER float load_float8e4m3fn(const uint8_t *p) {
  int32_t magnitude = *p & 0x7f, result = widened(magnitude, 3, -6);
  result = magnitude == 0x7f ? 0x7fc00000 : result;
  return float_of((uint32_t)result | (uint32_t)(*p & 0x80) << 24);
}

HELPER void store_float8e4m3fn(uint8_t *p, float value) {
  uint32_t bits = bits_of(value);
  int32_t magnitude = bits & 0x7fffffff, result = narrowed(magnitude, 3, -6);
  result = magnitude > 0x43e00000 ? 0x7e : result;
  result = magnitude > 0x7f800000 ? 0x7f : result;
  *p = (uint8_t)((uint32_t)result | (bits >> 24 & 0x80));
}

/* -- what the machine has itself ------------------------------------------------------------------------ */

HELPER float load_float32(const uint8_t *p) {
  float value;
  memcpy(&value, p, sizeof value);
  return value;
}

HELPER void store_float32(uint8_t *p, float value) { memcpy(p, &value, sizeof value); }

#define INTEGER(name)                                 \
  HELPER int64_t load_##name(const uint8_t *p) {      \
    name##_t value;                                   \
    memcpy(&value, p, sizeof value);                  \
    return (int64_t)value;                            \
  }                                                   \
  HELPER void store_##name(uint8_t *p, int64_t all) { \
    name##_t value = (name##_t)all;                   \
    memcpy(p, &value, sizeof value);                  \
  }

INTEGER(int8)
INTEGER(uint8)
INTEGER(int16)
INTEGER(uint16)
INTEGER(int32)
INTEGER(int64)

HELPER int load_bool(const uint8_t *p) { return *p != 0; }

HELPER void store_bool(uint8_t *p, int value) { *p = value != 0; }
