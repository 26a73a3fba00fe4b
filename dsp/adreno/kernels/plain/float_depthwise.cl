/* Convolutions of each channel alone: PIXELS of a row x 4 channels a work-item.
 *
 * An iteration over the rows of the window, its inner loops unrolled, loads COLUMNS weights and
 * (PIXELS - 1) * STRIDE + COLUMNS texels, each used for all pixels whose windows it is in. With HALF_SUMMED the
 * products of ROWS rows, at most 16, are added in half. What is beside x is texel `zeros` of its image.
 *
 * Weights: texel (block * rows + ky) * COLUMNS + kx. */

struct float_depthwise {
  int width, rows, height, channels;
  struct place x, y;
  struct taps window;
#if OPERANDS
  struct place operand[OPERANDS];
#endif
};

#ifdef HALF_SUMMED
#define SUMS half_sums
#define STEP HALF_STEP
#define READ(type, image, at) READ_HALF_SUMS(image, at)
#else
#define SUMS float4
#define STEP FLOAT_STEP
#define READ(type, image, at) JOIN(TEXEL_, type)(image, at)
#endif
#define REACH ((PIXELS - 1) * STRIDE + COLUMNS)

__kernel void float_depthwise(IMAGE(X_TYPE) x, IMAGE(W_TYPE) w,
                     BIAS_PARAMETER __global Y_TYPE *restrict y OPERAND_PARAMETERS, const int x_at, const int w_at,
                     BIAS_PLACE const int y_at OPERAND_PLACES, const int begin, const struct float_depthwise m) {
  const int start = get_global_id(0) * PIXELS, line = get_global_id(1), block = get_global_id(2);
  if (start >= m.width || line >= m.rows || 4 * block >= m.channels) return;
  const int first = min(start, m.width - PIXELS);
  struct element e;
#ifdef PICTURES
  e.picture = line / m.height;
#else
  e.picture = 0;
#endif
  e.row = line - e.picture * m.height;
  e.channel = 4 * block;
  e.count = m.channels - e.channel;
  e.batch[0] = e.batch[1] = e.batch[2] = 0;
  const int zeros = (begin - 16) / (4 * JOIN(BYTES_, X_TYPE));
  const int from = x_at / (4 * JOIN(BYTES_, X_TYPE)) + e.picture * m.x.picture + block * m.x.channel;
  const int left = first * m.window.stride_x - m.window.left;
  int column[REACH]; /* below 0: beside x */
  EACH for (int j = 0; j < REACH; j++) {
    const int in_x = left + j * m.window.step_x;
    column[j] = in_x < 0 || in_x >= m.window.width ? -1 : in_x * m.x.column;
  }
  float4 sum[PIXELS];
  EACH for (int p = 0; p < PIXELS; p++) sum[p] = 0;
  for (int above = 0; above < m.window.rows; above += ROWS) {
    SUMS part[PIXELS];
    EACH for (int p = 0; p < PIXELS; p++) part[p] = 0;
    for (int ky = above; ky < min(above + ROWS, m.window.rows); ky++) {
      const int in_y = e.row * m.window.stride_y + ky * m.window.step_y - m.window.top;
      const int inside = in_y >= 0 && in_y < m.window.height, line_at = from + in_y * m.x.row;
      const int tap = w_at / (4 * JOIN(BYTES_, W_TYPE)) + (block * m.window.rows + ky) * COLUMNS;
      SUMS taps[COLUMNS];
      EACH for (int kx = 0; kx < COLUMNS; kx++) taps[kx] = READ(W_TYPE, w, tap + kx);
      EACH for (int j = 0; j < REACH; j++) {
        const SUMS t = READ(X_TYPE, x, inside && column[j] >= 0 ? line_at + column[j] : zeros);
        EACH for (int p = 0; p < PIXELS; p++) {
          const int kx = j - p * STRIDE;
          if (kx >= 0 && kx < COLUMNS) part[p] = STEP(t, taps[kx], part[p]);
        }
      }
    }
    EACH for (int p = 0; p < PIXELS; p++) sum[p] += convert_float4(part[p]);
  }
#ifdef BIAS
  const float4 own = vload4(0, bias + bias_at / 4 + e.channel);
#else
  const float4 own = 0;
#endif
  EACH for (int p = 0; p < PIXELS; p++) {
    e.column = first + p;
    const float4 result = FINISHED(sum[p] + own);
    JOIN(store_, Y_TYPE)(result, y, y_at / JOIN(BYTES_, Y_TYPE) + place_of(&m.y, &e), m.y.channel, e.count);
  }
}
