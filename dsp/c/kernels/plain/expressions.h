#include "plain/elements.h"

/* What expressions call beside C and its library (sdk/expression/operations.py). A NaN stays one, as with
 * numpy's maximum and minimum. */
HELPER float most(float a, float b) { return a > b || a != a ? a : b; }
HELPER float least(float a, float b) { return a < b || a != a ? a : b; }
HELPER float sign_of(float a) { return a != a ? a : (float)((a > 0) - (a < 0)); }

/* Towards zero, within int64: up to the largest number below 2^63 that a double has. NaN is 0. */
HELPER int64_t whole(float a) {
  if (a != a) return 0;
  if (a >= 0x1p63f) return INT64_C(0x7ffffffffffffc00);
  if (a <= -0x1p63f) return INT64_MIN;
  return (int64_t)a;
}

HELPER int64_t absolute(int64_t a) { return a < 0 ? (int64_t)(0 - (uint64_t)a) : a; }

/* Towards zero; by 0 it is as by 1 without a sign. */
HELPER int64_t divide(int64_t a, int64_t b) {
  if (b == -1) return (int64_t)(0 - (uint64_t)a);
  return b ? a / b : a;
}

/* With the sign of the divisor; 0 of a division by 0. */
HELPER int64_t remainder_of(int64_t a, int64_t b) {
  int64_t rest = b == 0 || b == -1 ? 0 : a % b;
  return rest && (rest < 0) != (b < 0) ? rest + b : rest;
}

#define ROUNDED(name)                    \
  HELPER float round_##name(float value) { \
    uint8_t stored[4];                   \
    store_##name(stored, value);         \
    return load_##name(stored);          \
  }

ROUNDED(float16)
ROUNDED(bfloat16)
ROUNDED(float8e4m3fn)
ROUNDED(float8e5m2)

/* What expressions compute in is no wider. */
HELPER float round_float32(float value) { return value; }
HELPER float round_float64(float value) { return value; }
