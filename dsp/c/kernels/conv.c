#include "dots.h"
#include "threads.h"
#include "tile.h"

/* [images][groups][channels][height][width] -> [images][groups][outputs][rows][columns]; channels and outputs
 * are those of one group. Padding has the value of the zero-point, so a tap that lies in it adds nothing. */
struct conv {
  int32_t images, groups, channels, height, width;
  int32_t outputs, rows, columns;
  int32_t kernel[2], strides[2], pads[2], dilations[2]; /* vertical, horizontal; pads: top, left */
  int32_t zero_point;
  int32_t offset; /* whether weights have zero-points other than 0 */
  struct output out;
};

/* What a tap reads of a plane for `count` positions of the output from `start` on. */
static void gather_term(int16_t *term, const struct conv *p, const uint8_t *plane, int32_t tap, int32_t start,
                        int32_t count) {
  int32_t stride = p->strides[1], row = start / p->columns, column = start % p->columns;
  int32_t down = tap / p->kernel[1] * p->dilations[0] - p->pads[0];
  int32_t right = tap % p->kernel[1] * p->dilations[1] - p->pads[1];
  for (int32_t run; count > 0; count -= run, term += run, row++, column = 0) {
    int32_t line = row * p->strides[0] + down, first = column * stride + right;
    run = p->columns - column < count ? p->columns - column : count;
    int32_t from = first < 0 ? (stride - 1 - first) / stride : 0;
    int32_t to = first < p->width ? (p->width - 1 - first) / stride + 1 : 0;
    if (to > run) to = run;
    if (line < 0 || line >= p->height || from > to) from = to = run;
    const uint8_t *pixels = plane + line * p->width + first;
    for (int32_t k = 0; k < from; k++) term[k] = 0;
    if (stride == 1 && to - from == PIXELS)
      for (int32_t k = 0; k < PIXELS; k++) term[k] = (int16_t)(pixels[k] - p->zero_point);
    else
      for (int32_t k = from; k < to; k++) term[k] = (int16_t)(pixels[k * stride] - p->zero_point);
    for (int32_t k = to; k < run; k++) term[k] = 0;
  }
}

/* As a product of matrices: for PIXELS positions of the output at a time all that their windows read goes into a
 * panel. `weights` are int8 [groups][outputs / OUTPUTS][pairs][OUTPUTS][2], pairs of terms [channels][kernel];
 * `constants` has for each output channel its bias, its weights' zero-point (int32) and its scale (float). */
struct conv_task {
  const struct conv *p;
  uint8_t *y;
  const uint8_t *x, *weights, *constants;
  int16_t *panel;
};

static void conv_part(const void *given, int32_t part) {
  const struct conv_task *task = given;
  const struct conv *p = task->p;
  const uint8_t *x = task->x;
  int16_t *panel = scratch_of(part, task->panel);
  int32_t taps = p->kernel[0] * p->kernel[1], plane = p->height * p->width, positions = p->rows * p->columns;
  int32_t terms = p->channels * taps, pairs = (terms + 1) / 2, blocks = (p->outputs + OUTPUTS - 1) / OUTPUTS;
  for (int32_t image = 0; image < p->images * p->groups; image++, x += p->channels * plane) {
    int32_t group = image % p->groups, tiles = (positions + PIXELS - 1) / PIXELS;
    int few = tiles < THREADS; /* each part gathers all of them, for its outputs */
    int32_t from = few ? (int32_t)first_of(part, blocks) : 0, to = few ? (int32_t)first_of(part + 1, blocks) : blocks;
    int32_t end = few ? tiles : (int32_t)first_of(part + 1, tiles);
    for (int32_t tile = few ? 0 : (int32_t)first_of(part, tiles); tile < end; tile++) {
      int32_t start = tile * PIXELS;
      int32_t count = positions - start < PIXELS ? positions - start : PIXELS, totals[PIXELS] = {0};
      int32_t whole = (count + TILE - 1) / TILE * TILE;
      int16_t both[2][PIXELS] = {{0}};
      for (int32_t pair = 0; pair < pairs; pair++) {
        for (int32_t term = 2 * pair; term < 2 * pair + 2; term++) {
          int16_t *row = both[term & 1];
          if (term < terms)
            gather_term(row, p, x + term / taps * plane, term % taps, start, count);
          else
            memset(row, 0, sizeof *both);
          for (int32_t k = 0; p->offset && k < whole; k++) totals[k] += row[k];
        }
        weave(panel, pairs, pair, both, p->zero_point, whole);
      }
      for (int32_t block = from; block < to; block++) {
        int32_t sums[OUTPUTS][PIXELS];
        dots(sums, panel, task->weights + (group * blocks + block) * pairs * OUTPUTS * 2, pairs, p->zero_point, whole);
        for (int32_t j = 0; j < OUTPUTS && block * OUTPUTS + j < p->outputs; j++) {
          int32_t output = block * OUTPUTS + j;
          const uint8_t *constant = task->constants + (group * p->outputs + output) * CHANNEL;
          int32_t weight_zero = int_at(constant + 4);
          for (int32_t k = 0; weight_zero && k < whole; k++) sums[j][k] -= weight_zero * totals[k];
          finish(task->y + (image * p->outputs + output) * positions + start, sums[j], count, constant, p->out);
        }
      }
    }
  }
}

static void conv(const struct conv *p, uint8_t *y, const uint8_t *x, const uint8_t *weights,
                 const uint8_t *constants, int16_t *panel) {
  struct conv_task task = {p, y, x, weights, constants, panel};
  in_parts(conv_part, &task);
}
