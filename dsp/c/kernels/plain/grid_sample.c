#include "plain/rows.h"

enum padding { ZEROS, BORDER, REFLECTION };

/* [images][channels][height][width] at [images][points] of (x, y) -> [images][channels][points] */
struct grid_sample {
  int64_t images, channels, height, width, points;
  int32_t nearest, align_corners;
  enum padding padding;
  enum element x_type, grid_type, y_type;
  int32_t x_size, grid_size, y_size;
};

/* From [-1, 1] to pixels. */
static float unnormalized(const struct grid_sample *p, float at, int64_t extent) {
  if (p->align_corners) return (at + 1) / 2 * (float)(extent - 1);
  return ((at + 1) * (float)extent - 1) / 2;
}

/* Within the picture, unless zeros are around it. A NaN is on its border. */
static float bounded(const struct grid_sample *p, float at, int64_t extent) {
  float last = (float)(extent - 1);
  if (p->padding == ZEROS) return at;
  if (p->padding == REFLECTION) {
    float low = p->align_corners ? 0 : -0.5f, span = p->align_corners ? last : (float)extent;
    float turned = span > 0 ? fmodf(fabsf(at - low), 2 * span) : 0;
    at = low + (turned < span ? turned : 2 * span - turned);
  }
  return at > 0 ? (at < last ? at : last) : 0;
}

static float pixel(const struct grid_sample *p, const uint8_t *plane, float row, float column) {
  if (!(row >= 0 && row < (float)p->height && column >= 0 && column < (float)p->width)) return 0;
  return load_one(p->x_type, plane + ((int64_t)row * p->width + (int64_t)column) * p->x_size);
}

static void grid_sample(const struct grid_sample *p, uint8_t *y, const uint8_t *x, const uint8_t *grid) {
  int64_t plane = p->height * p->width * p->x_size;
  for (int64_t image = 0; image < p->images; image++) {
    for (int64_t point = 0; point < p->points; point++, grid += 2 * p->grid_size) {
      float column = unnormalized(p, load_one(p->grid_type, grid), p->width);
      float row = unnormalized(p, load_one(p->grid_type, grid + p->grid_size), p->height);
      column = bounded(p, column, p->width), row = bounded(p, row, p->height);
      float top = p->nearest ? rintf(row) : floorf(row), left = p->nearest ? rintf(column) : floorf(column);
      float down = row - top, right = column - left;
      for (int64_t channel = 0; channel < p->channels; channel++) {
        const uint8_t *from = x + channel * plane;
        float value = pixel(p, from, top, left);
        if (!p->nearest)
          value = value * (1 - down) * (1 - right) + pixel(p, from, top, left + 1) * (1 - down) * right +
                  pixel(p, from, top + 1, left) * down * (1 - right) +
                  pixel(p, from, top + 1, left + 1) * down * right;
        store_row(p->y_type, y + (channel * p->points + point) * p->y_size, 0, &value, 1);
      }
    }
    x += p->channels * plane, y += p->channels * p->points * p->y_size;
  }
}
