#include "plain/elements.h"

/* Rows of elements to and from floats; steps are in bytes. */
enum element { FLOAT32, FLOAT16, BFLOAT16, FLOAT8E4M3FN, FLOAT8E5M2 };

#define LOAD(NAME, name, size)                                                         \
  case NAME:                                                                           \
    if (step == size)                                                                  \
      for (int64_t k = 0; k < count; k++) to[k] = load_##name(from + k * size);        \
    else                                                                               \
      for (int64_t k = 0; k < count; k++) to[k] = load_##name(from + k * step);        \
    break;

HELPER void load_row(enum element element, float *restrict to, const uint8_t *restrict from, int64_t step,
                     int64_t count) {
  switch (element) {
    LOAD(FLOAT32, float32, 4)
    LOAD(FLOAT16, float16, 2)
    LOAD(BFLOAT16, bfloat16, 2)
    LOAD(FLOAT8E4M3FN, float8e4m3fn, 1)
    LOAD(FLOAT8E5M2, float8e5m2, 1)
  }
}

#define STORE(NAME, name, size)                                                   \
  case NAME:                                                                      \
    if (step == size)                                                             \
      for (int64_t k = 0; k < count; k++) store_##name(to + k * size, from[k]);   \
    else                                                                          \
      for (int64_t k = 0; k < count; k++) store_##name(to + k * step, from[k]);   \
    break;

HELPER void store_row(enum element element, uint8_t *restrict to, int64_t step, const float *restrict from,
                      int64_t count) {
  switch (element) {
    STORE(FLOAT32, float32, 4)
    STORE(FLOAT16, float16, 2)
    STORE(BFLOAT16, bfloat16, 2)
    STORE(FLOAT8E4M3FN, float8e4m3fn, 1)
    STORE(FLOAT8E5M2, float8e5m2, 1)
  }
}

HELPER float load_one(enum element element, const uint8_t *from) {
  float value = 0;
  load_row(element, &value, from, 0, 1);
  return value;
}
