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

/* The nearest integer, half to even, within the bounds. Floats around 1.5 * 2^23 are a unit apart: the addition
 * rounds, and the low bits of the sum are the integer. The bounds lie between the product before and this
 * addition, so that they cannot become a fused multiply-add. Compilers make vector code of this. */
static uint8_t saturate(float value, struct output out) {
  float low = (float)out.low, high = (float)out.high;
  int32_t bits;
  value = value < low ? low : value;
  value = value > high ? high : value;
  value += 0x1.8p23f;
  memcpy(&bits, &value, sizeof bits);
  return (uint8_t)(bits - 0x4b400000 + out.zero_point);
}
