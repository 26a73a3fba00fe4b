#include "plain/integers.h"
#include "plain/rows.h"

/* ONNX DequantizeLinear */
struct dequantize {
  int64_t size;
  float scale;
  int32_t zero_point;
  enum integer x_type;
  enum element y_type;
  int32_t x_size, y_size;
};

static void dequantize(const struct dequantize *p, uint8_t *y, const uint8_t *x) {
  for (int64_t k = 0; k < p->size; k++) {
    float value = (float)(load_integer(p->x_type, x + k * p->x_size) - p->zero_point) * p->scale;
    store_row(p->y_type, y + k * p->y_size, 0, &value, 1);
  }
}
