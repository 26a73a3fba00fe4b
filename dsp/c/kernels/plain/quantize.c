#include "plain/rows.h"

enum { PART = 64 };

/* ONNX QuantizeLinear: a division rounded once, half to even, then saturated. NaN becomes the zero-point. */
struct quantize {
  int64_t size;
  float scale;
  int32_t zero_point, low, high;
  enum element x_type;
  int32_t x_size;
};

static void quantize(const struct quantize *p, uint8_t *y, const uint8_t *x) {
  float values[PART], low = (float)(p->low - p->zero_point), high = (float)(p->high - p->zero_point);
  for (int64_t start = 0; start < p->size; start += PART) {
    int64_t count = p->size - start < PART ? p->size - start : PART;
    load_row(p->x_type, values, x + start * p->x_size, p->x_size, count);
    for (int64_t k = 0; k < count; k++) {
      float value = rintf(values[k] / p->scale);
      value = value == value ? value : 0;
      value = value < low ? low : value > high ? high : value;
      y[start + k] = (uint8_t)((int32_t)value + p->zero_point);
    }
  }
}
