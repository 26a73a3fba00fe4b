/* y[pixel, channel] = bias[channel] + sum over taps and k of x * w: convolutions and matrix products.
 *
 * A work-item makes PIXELS pixels of a row x BLOCKS blocks of 4 channels. An iteration of the inner loop takes 4
 * of the k: PIXELS texels of x, 4 * BLOCKS of w, 16 * PIXELS * BLOCKS multiply-accumulates. With HALF_SUMMED
 * four iterations add in half, at most 16 products; what they make is added to float sums.
 *
 * X_IMAGE: x is texels of 4 k. Else it is read element by element, any steps apart.
 * W_PACKED: texels of 4 channels, one for each k, that `packing.product_weights` has put in the order of reading.
 * W_ROWS: texels of 4 channels anywhere. W_COLUMNS: texels of 4 k anywhere. Else elements.
 * WINDOW: of a convolution. What is beside x is texel `zeros` of its image: no choice in the loop.
 * TAIL: k is no multiple of 4. PICTURES, BATCHES: more than one. */

struct float_product {
  int width, rows, height, channels, strips; /* `rows` of all pictures; work-items along z of a batch */
  int full, tail;                            /* k / 4, k % 4 */
  int extents[3];                            /* of batch axes */
  struct place x, y;
  int w_block, w_channel, w_k, w_batch[3], w_last, bias_batch[3]; /* w_last: the last block of channels */
#ifdef WINDOW
  struct taps window;
#endif
#if OPERANDS
  struct place operand[OPERANDS];
#endif
};

#ifdef HALF_SUMMED
#define SUMS half_sums
#define STEP HALF_STEP
#define READ(type, image, at) READ_HALF_SUMS(image, at)
#define OF_FLOATS HALF_SUMS
#define RUN 4
#else
#define SUMS float4
#define STEP FLOAT_STEP
#define READ(type, image, at) JOIN(TEXEL_, type)(image, at)
#define OF_FLOATS
#endif

#ifdef X_IMAGE
#define X_PARAMETER IMAGE(X_TYPE) x
#define LOAD_X(p, count) READ(X_TYPE, x, at[p])
#define X_NEXT 1
#define X_UNIT (4 * JOIN(BYTES_, X_TYPE))
#else
#define X_PARAMETER __global const X_TYPE *restrict x
#define LOAD_X(p, count) \
  OF_FLOATS(JOIN(fetch_, X_TYPE)(x, at[p], m.x.channel, beside[p] ? 0 : (count)))
#define X_NEXT (4 * m.x.channel)
#define X_UNIT JOIN(BYTES_, X_TYPE)
#endif

/* Weights of 4 of the k, from `k` on, of which `count` exist, for 4 channels: t[j] is for k + j. */
#if defined(W_PACKED)
#define W_PARAMETER IMAGE(W_TYPE) w
#define W_UNIT (4 * JOIN(BYTES_, W_TYPE))
#define LOAD_TILE(t, c, k, count) \
  EACH for (int j = 0; j < 4; j++) t[j] = READ(W_TYPE, w, w_tap + (k) * (4 * BLOCKS) + 4 * (c) + j)
#elif defined(W_ROWS)
#define W_PARAMETER IMAGE(W_TYPE) w
#define W_UNIT (4 * JOIN(BYTES_, W_TYPE))
#define LOAD_TILE(t, c, k, count) \
  EACH for (int j = 0; j < 4; j++) \
    t[j] = j < (count) ? READ(W_TYPE, w, w_from[c] + (4 * (k) + j) * m.w_k) : (SUMS)(0)
#elif defined(W_COLUMNS)
#define W_PARAMETER IMAGE(W_TYPE) w
#define W_UNIT (4 * JOIN(BYTES_, W_TYPE))
#define LOAD_TILE(t, c, k, count) \
  { \
    SUMS a = READ(W_TYPE, w, w_from[c] + (k)), b = READ(W_TYPE, w, w_from[c] + (k) + w_next[c][0]); \
    SUMS d = READ(W_TYPE, w, w_from[c] + (k) + w_next[c][1]), e = READ(W_TYPE, w, w_from[c] + (k) + w_next[c][2]); \
    t[0] = (SUMS)(a.x, b.x, d.x, e.x); \
    t[1] = (count) > 1 ? (SUMS)(a.y, b.y, d.y, e.y) : (SUMS)(0); \
    t[2] = (count) > 2 ? (SUMS)(a.z, b.z, d.z, e.z) : (SUMS)(0); \
    t[3] = (count) > 3 ? (SUMS)(a.w, b.w, d.w, e.w) : (SUMS)(0); \
  }
#else
#define W_PARAMETER __global const W_TYPE *restrict w
#define W_UNIT JOIN(BYTES_, W_TYPE)
#define LOAD_TILE(t, c, k, count) \
  EACH for (int j = 0; j < 4; j++) \
    t[j] = j < (count) ? OF_FLOATS(JOIN(fetch_, W_TYPE)(w, w_from[c] + (4 * (k) + j) * m.w_k, m.w_channel, \
                                                      w_count[c])) \
                       : (SUMS)(0)
#endif

/* 4 of the k, from 4 * K on, for all pixels and blocks; COUNT of them exist. x goes on to those behind them.
 * FIRST: what becomes of the first of them, PRODUCT where there are no sums yet. */
#define MULTIPLY(total, K, COUNT, FIRST) \
  { \
    SUMS t[BLOCKS][4]; \
    EACH for (int c = 0; c < BLOCKS; c++) LOAD_TILE(t[c], c, K, COUNT); \
    EACH for (int p = 0; p < PIXELS; p++) { \
      SUMS q = LOAD_X(p, COUNT); \
      at[p] += next[p]; \
      if ((COUNT) < 4) q.w = 0; \
      if ((COUNT) < 3) q.z = 0; \
      if ((COUNT) < 2) q.y = 0; \
      EACH for (int c = 0; c < BLOCKS; c++) { \
        total[p][c] = FIRST(q.x, t[c][0], total[p][c]); \
        total[p][c] = STEP(q.y, t[c][1], total[p][c]); \
        total[p][c] = STEP(q.z, t[c][2], total[p][c]); \
        total[p][c] = STEP(q.w, t[c][3], total[p][c]); \
      } \
    } \
  }
#define PRODUCT(a, b, sum) ((a) * (b))

#define CLEAR(total) \
  EACH for (int p = 0; p < PIXELS; p++) EACH for (int c = 0; c < BLOCKS; c++) total[p][c] = 0;
#define ADD_TO(total, part) \
  EACH for (int p = 0; p < PIXELS; p++) EACH for (int c = 0; c < BLOCKS; c++) \
    total[p][c] += convert_float4(part[p][c]);

__kernel void float_product(X_PARAMETER, W_PARAMETER, BIAS_PARAMETER __global Y_TYPE *restrict y OPERAND_PARAMETERS,
                     const int x_at, const int w_at, BIAS_PLACE const int y_at OPERAND_PLACES, const int begin,
                     const struct float_product m) {
  const int start = get_global_id(0) * PIXELS, line = get_global_id(1);
  int strip = get_global_id(2);
  struct element e;
  e.batch[0] = e.batch[1] = e.batch[2] = 0;
#ifdef BATCHES
  int batch = strip / m.strips;
  strip -= batch * m.strips;
  e.batch[2] = batch % m.extents[2], batch /= m.extents[2];
  e.batch[1] = batch % m.extents[1], e.batch[0] = batch / m.extents[1];
  if (e.batch[0] >= m.extents[0]) return;
#endif
  if (start >= m.width || line >= m.rows || strip >= m.strips) return;
  const int first = min(start, m.width - PIXELS);
#ifdef PICTURES
  e.picture = line / m.height;
#else
  e.picture = 0;
#endif
  e.row = line - e.picture * m.height;
#if defined(WINDOW) && defined(X_IMAGE)
  const int zeros = (begin - 16) / X_UNIT;
#else
  const int zeros = 0;
#endif
  const int set = e.batch[0] * m.w_batch[0] + e.batch[1] * m.w_batch[1] + e.batch[2] * m.w_batch[2];
  const int from = x_at / X_UNIT + e.picture * m.x.picture + e.batch[0] * m.x.batch[0] + e.batch[1] * m.x.batch[1] +
                   e.batch[2] * m.x.batch[2];
#ifdef W_PACKED
  int w_tap = w_at / W_UNIT + set + strip * m.w_block;
#else
  int w_from[BLOCKS];
  EACH for (int c = 0; c < BLOCKS; c++) w_from[c] = w_at / W_UNIT + set + min(strip * BLOCKS + c, m.w_last) * m.w_block;
#ifdef W_COLUMNS
  int w_next[BLOCKS][3]; /* channels that do not exist are others' */
  EACH for (int c = 0; c < BLOCKS; c++) {
    const int last = m.channels - 1 - 4 * min(strip * BLOCKS + c, m.w_last);
    EACH for (int i = 0; i < 3; i++) w_next[c][i] = min(i + 1, last) * m.w_channel;
  }
#elif !defined(W_ROWS)
  int w_count[BLOCKS];
  EACH for (int c = 0; c < BLOCKS; c++) w_count[c] = m.channels - 4 * min(strip * BLOCKS + c, m.w_last);
#endif
#endif

  float4 sum[PIXELS][BLOCKS];
  CLEAR(sum)
  int at[PIXELS], next[PIXELS], beside[PIXELS];
#ifdef WINDOW
  for (int ky = 0; ky < m.window.rows; ky++) {
    for (int kx = 0; kx < m.window.columns; kx++) {
      const int in_y = e.row * m.window.stride_y + ky * m.window.step_y - m.window.top;
      const int in_x = first * m.window.stride_x + kx * m.window.step_x - m.window.left;
      EACH for (int p = 0; p < PIXELS; p++) {
        const int column = in_x + p * m.window.stride_x;
        beside[p] = in_y < 0 || in_y >= m.window.height || column < 0 || column >= m.window.width;
        at[p] = beside[p] ? zeros : from + in_y * m.x.row + column * m.x.column;
        next[p] = beside[p] ? 0 : X_NEXT;
      }
#else
  EACH for (int p = 0; p < PIXELS; p++) {
    at[p] = from + e.row * m.x.row + (first + p) * m.x.column;
    next[p] = X_NEXT;
    beside[p] = 0;
  }
  {
    {
#endif
#if !defined(HALF_SUMMED)
      for (int k = 0; k < m.full; k++) MULTIPLY(sum, k, 4, STEP)
#ifdef TAIL
      MULTIPLY(sum, m.full, m.tail, STEP)
#endif
#elif defined(HALF_NATIVE)
      SUMS part[PIXELS][BLOCKS];
      int k = 0;
      for (; k + RUN <= m.full; k += RUN) {
        MULTIPLY(part, k, 4, PRODUCT)
        EACH for (int i = 1; i < RUN; i++) MULTIPLY(part, k + i, 4, STEP)
        ADD_TO(sum, part)
      }
      CLEAR(part)
      for (; k < m.full; k++) MULTIPLY(part, k, 4, STEP)
#ifdef TAIL
      MULTIPLY(part, m.full, m.tail, STEP)
#endif
      ADD_TO(sum, part)
#else /* the same sums by less code: rounding takes a dozen instructions */
      SUMS part[PIXELS][BLOCKS];
      const int all = m.full + (m.tail > 0);
      for (int k = 0; k < all; k++) {
        if (k % RUN == 0) CLEAR(part)
        MULTIPLY(part, k, min(4, 4 * (m.full - k) + m.tail), STEP)
        if (k % RUN == RUN - 1 || k + 1 == all) ADD_TO(sum, part)
      }
#endif
#ifdef W_PACKED
      w_tap += (m.full + (m.tail > 0)) * (4 * BLOCKS);
#endif
    }
  }

  EACH for (int c = 0; c < BLOCKS; c++) {
    e.channel = 4 * (strip * BLOCKS + c);
    e.count = m.channels - e.channel;
    if (e.count <= 0) continue;
#ifdef BIAS
    const float4 own = vload4(0, bias + bias_at / 4 + e.channel + e.batch[0] * m.bias_batch[0] +
                                     e.batch[1] * m.bias_batch[1] + e.batch[2] * m.bias_batch[2]);
#else
    const float4 own = 0;
#endif
    EACH for (int p = 0; p < PIXELS; p++) {
      e.column = first + p;
      const float4 result = FINISHED(sum[p][c] + own);
      JOIN(store_, Y_TYPE)(result, y, y_at / JOIN(BYTES_, Y_TYPE) + place_of(&m.y, &e), m.y.channel, e.count);
    }
  }
}
