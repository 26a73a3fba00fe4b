#include "requantize.h"
#include "threads.h"

/* [rows][inputs] by [outputs][inputs] -> [rows][outputs]; weights and constants as those of conv. */
struct gemm {
  int32_t rows, inputs, outputs, zero_point;
  struct output out;
};

struct gemm_task {
  const struct gemm *p;
  uint8_t *y;
  const uint8_t *x, *weights, *constants;
};

static void gemm_part(const void *given, int32_t part) {
  const struct gemm_task *task = given;
  const struct gemm *p = task->p;
  for (int32_t row = 0; row < p->rows; row++)
    for (int64_t output = first_of(part, p->outputs); output < first_of(part + 1, p->outputs); output++) {
      const uint8_t *x = task->x + row * p->inputs, *weight = task->weights + output * p->inputs;
      const uint8_t *constant = task->constants + output * 12;
      int32_t sum = int_at(constant), weight_zero = int_at(constant + 4);
      for (int32_t k = 0; k < p->inputs; k++)
        sum += (x[k] - p->zero_point) * ((int8_t)weight[k] - weight_zero);
      task->y[row * p->outputs + output] = saturate((float)sum * float_at(constant + 8), p->out);
    }
}

static void gemm(const struct gemm *p, uint8_t *y, const uint8_t *x, const uint8_t *weights,
                 const uint8_t *constants) {
  struct gemm_task task = {p, y, x, weights, constants};
  in_parts(gemm_part, &task);
}
