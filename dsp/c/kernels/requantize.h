#include "base.h"

/* A zero-point and, less the zero-point, the bounds of the output. */
struct output {
  int32_t zero_point, low, high;
};

static int32_t int_at(const uint8_t *p) {
  return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

static float float_at(const uint8_t *p) {
  int32_t bits = int_at(p);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The nearest integer, half to even; any magnitude from 1024 on is 1024, beyond every bound. */
static int32_t nearest(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint32_t exponent = bits >> 23 & 255, mantissa = (bits & 0x7fffff) | 0x800000, whole = 0;
  if (exponent >= 127 + 10) {
    whole = 1024;
  } else if (exponent >= 126) { /* from one half on */
    uint32_t shift = 150 - exponent, odd = mantissa >> shift & 1;
    whole = (mantissa + ((uint32_t)1 << (shift - 1)) - 1 + odd) >> shift;
  }
  return bits >> 31 ? -(int32_t)whole : (int32_t)whole;
}

static uint8_t saturate(float value, struct output out) {
  int32_t rounded = nearest(value);
  rounded = rounded < out.low ? out.low : rounded > out.high ? out.high : rounded;
  return (uint8_t)(rounded + out.zero_point);
}
