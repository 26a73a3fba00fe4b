#include "requantize.h"

/* [rows][inputs] by [outputs][inputs] -> [rows][outputs]; weights and constants as those of conv. */
struct gemm {
  int32_t rows, inputs, outputs, zero_point;
  struct output out;
};

static void gemm(const struct gemm *p, uint8_t *y, const uint8_t *x, const uint8_t *weights,
                 const uint8_t *constants) {
  for (int32_t row = 0; row < p->rows; row++, x += p->inputs)
    for (int32_t output = 0; output < p->outputs; output++) {
      const uint8_t *weight = weights + output * p->inputs, *constant = constants + output * 12;
      int32_t sum = int_at(constant), weight_zero = int_at(constant + 4);
      for (int32_t k = 0; k < p->inputs; k++)
        sum += (x[k] - p->zero_point) * ((int8_t)weight[k] - weight_zero);
      *y++ = saturate((float)sum * float_at(constant + 8), p->out);
    }
}
