#include "base.h"

/* Elements of plain tensors: stored little-endian in the tensor's dtype, computed as float, int64_t or, of bool,
 * int. Storing a float rounds it once, half to even. Conversions work on bits, and give the same ones
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

/* -- formats narrower than float: `fraction` bits behind the point, 2^lowest the smallest normal number ------ */

/* Magnitude bits as those of a float. The product is exact; it also gives subnormal numbers their value. */
HELPER float widened(uint32_t magnitude, int fraction, int lowest) {
  return float_of(magnitude << (23 - fraction)) * float_of((uint32_t)(253 + lowest) << 23);
}

/* A float's magnitude bits rounded to the format, without a bound: what exceeds its range is a larger number. */
HELPER uint32_t narrowed(uint32_t magnitude, int fraction, int lowest) {
  int shift = 23 - fraction;
  uint32_t unit = (uint32_t)(lowest - fraction + 150) << 23; /* a float whose last place is the smallest step */
  uint32_t subnormal = bits_of(float_of(magnitude) + float_of(unit)) - unit;
  uint32_t half = ((uint32_t)1 << (shift - 1)) - 1 + (magnitude >> shift & 1);
  uint32_t normal = (magnitude - ((uint32_t)(lowest + 126) << 23) + half) >> shift;
  return magnitude < (uint32_t)(lowest + 127) << 23 ? subnormal : normal;
}

HELPER float load_float16(const uint8_t *p) {
  uint16_t stored;
  memcpy(&stored, p, sizeof stored);
  uint32_t magnitude = stored & 0x7fff, sign = (uint32_t)(stored & 0x8000) << 16;
  uint32_t special = magnitude >= 0x7c00 ? 0x7f800000 : 0;
  return float_of(bits_of(widened(magnitude, 10, -14)) | special | sign);
}

HELPER void store_float16(uint8_t *p, float value) {
  uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
  uint32_t result = narrowed(magnitude, 10, -14);
  result = magnitude >= 0x477ff000 ? 0x7c00 : result; /* from halfway between 65504 and 65536 on */
  result = magnitude > 0x7f800000 ? 0x7e00 : result;
  uint16_t stored = (uint16_t)(result | (bits >> 16 & 0x8000));
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
  uint32_t magnitude = *p & 0x7f, sign = (uint32_t)(*p & 0x80) << 24;
  uint32_t special = magnitude >= 0x7c ? 0x7f800000 : 0;
  return float_of(bits_of(widened(magnitude, 2, -14)) | special | sign);
}

HELPER void store_float8e5m2(uint8_t *p, float value) {
  uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
  uint32_t result = narrowed(magnitude, 2, -14);
  result = magnitude >= 0x47700000 ? 0x7c : result; /* from halfway between 57344 and 65536 on */
  result = magnitude > 0x7f800000 ? 0x7f : result;
  *p = (uint8_t)(result | (bits >> 24 & 0x80));
}

/* OCP's E4M3 has no infinity: what exceeds 448 is 448. */
HELPER float load_float8e4m3fn(const uint8_t *p) {
  uint32_t magnitude = *p & 0x7f, sign = (uint32_t)(*p & 0x80) << 24;
  uint32_t special = magnitude == 0x7f ? 0x7fc00000 : 0;
  return float_of(bits_of(widened(magnitude, 3, -6)) | special | sign);
}

HELPER void store_float8e4m3fn(uint8_t *p, float value) {
  uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
  uint32_t result = narrowed(magnitude, 3, -6);
  result = magnitude > 0x43e00000 ? 0x7e : result;
  result = magnitude > 0x7f800000 ? 0x7f : result;
  *p = (uint8_t)(result | (bits >> 24 & 0x80));
}

/* -- what the machine has itself ---------------------------------------------------------------------------- */

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
