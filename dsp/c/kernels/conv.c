#include "requantize.h"

/* [images][groups][channels][height][width] -> [images][groups][outputs][rows][columns]; channels and outputs
 * are those of one group. Padding has the value of the zero-point, so a tap that lies in it adds nothing. */
struct conv {
  int32_t images, groups, channels, height, width;
  int32_t outputs, rows, columns;
  int32_t kernel[2], strides[2], pads[2], dilations[2]; /* vertical, horizontal; pads: top, left */
  int32_t zero_point;
  struct output out;
};

enum { TILE = 64, CHANNEL = 12 };

/* `weights` are bytes [outputs][channels][kernel] of int8; `constants` has for each output channel its bias,
 * its weights' zero-point (int32) and its scale (float). A tile of a row is summed tap by tap, which any
 * compiler turns into vector code where the machine has any. */
static void conv(const struct conv *p, uint8_t *y, const uint8_t *x, const uint8_t *weights,
                 const uint8_t *constants) {
  int32_t taps = p->kernel[0] * p->kernel[1], plane = p->height * p->width, stride = p->strides[1];
  for (int32_t image = 0; image < p->images * p->groups; image++) {
    const uint8_t *source = x + image * p->channels * plane;
    int32_t first_output = image % p->groups * p->outputs;
    for (int32_t row = 0; row < p->rows; row++)
      for (int32_t start = 0; start < p->columns; start += TILE) {
        int32_t count = p->columns - start < TILE ? p->columns - start : TILE;
        for (int32_t output = 0; output < p->outputs; output++) {
          const uint8_t *constant = constants + (first_output + output) * CHANNEL;
          const uint8_t *weight = weights + (first_output + output) * p->channels * taps;
          int32_t sums[TILE], weight_zero = int_at(constant + 4);
          for (int32_t k = 0; k < count; k++) sums[k] = int_at(constant);
          for (int32_t tap = 0; tap < taps; tap++) {
            int32_t line = row * p->strides[0] - p->pads[0] + tap / p->kernel[1] * p->dilations[0];
            int32_t first = start * stride - p->pads[1] + tap % p->kernel[1] * p->dilations[1];
            if (line < 0 || line >= p->height || first >= p->width) continue;
            int32_t from = first < 0 ? (stride - 1 - first) / stride : 0;
            int32_t to = (p->width - 1 - first) / stride + 1;
            if (to > count) to = count;
            for (int32_t channel = 0; channel < p->channels; channel++) {
              const uint8_t *pixels = source + (channel * p->height + line) * p->width;
              int32_t w = (int8_t)weight[channel * taps + tap] - weight_zero;
              if (stride == 1)
                for (int32_t k = from; k < to; k++) sums[k] += (pixels[first + k] - p->zero_point) * w;
              else
                for (int32_t k = from; k < to; k++)
                  sums[k] += (pixels[first + k * stride] - p->zero_point) * w;
            }
          }
          uint8_t *result = y + ((image * p->outputs + output) * p->rows + row) * p->columns + start;
          float scale = float_at(constant + 8);
          for (int32_t k = 0; k < count; k++) result[k] = saturate((float)sums[k] * scale, p->out);
        }
      }
  }
}
