/* Convolutions of each channel alone: `pixels` of a row x 4 channels a work-item.
 *
 * An iteration of the loop over the rows of `depthwise`, its inner loops unrolled, loads COLUMNS weights and
 * (pixels - 1) * STRIDE + COLUMNS texels, each used for all of the pixels whose windows it is in:
 * pixels * COLUMNS mad24 of int4. Beyond the border it loads a texel that is there and chooses the zero-point
 * instead, which is less than a branch. `depthwise_any` loads a texel and a weight for each product, of one
 * pixel a work-item: for windows too wide to unroll, and for dilated ones.
 *
 * Weights: texel (ky * columns + kx, block). */

enum { WIDEST = 8 }; /* columns of `depthwise`; also in dsp/adreno/products.py */

/* `outside`: some pixel's window reaches rows beyond the border. */
struct depthwise {
  int pixels, outside, zero_point;
  struct window window;
  struct picture from, to;
};

INLINE void depthwise(SOURCE x, WEIGHTS weights, TABLES tables, SOURCE other, TARGET y,
                             const struct depthwise s, const struct output out) {
  const int start = mul24((int)get_global_id(0), s.pixels), h = get_global_id(1), block = get_global_id(2);
  if (start >= s.to.width || h >= s.to.height || block >= s.to.blocks) return;
  const struct window k = s.window;
  const int w = min(start, s.to.width - s.pixels), left = mad24(w, k.stride_x, -k.left);
  /* The first column that may be outside, in the last strip. */
  const int beyond = s.from.width + k.left - (s.to.width - s.pixels) * k.stride_x;
  const int4 bias = biases(tables, out, block);
  const float4 scale = scales(tables, out, block);
  int4 sum[MOST_PIXELS];
#pragma unroll
  for (int p = 0; p < s.pixels; p++) sum[p] = bias;
  for (int ky = 0; ky < k.rows; ky++) {
    const int in_y = mad24(h, k.stride_y, mad24(ky, k.step_y, -k.top));
    const int in_h = s.outside ? clamp(in_y, 0, s.from.height - 1) : in_y;
    int4 taps[WIDEST];
#pragma unroll
    for (int kx = 0; kx < k.columns; kx++)
      taps[kx] = load_weights(weights, ky * k.columns + kx, block, k.rows * k.columns);
#pragma unroll
    for (int j = 0; j < (s.pixels - 1) * k.stride_x + k.columns; j++) {
      int in_w = left + j;
      if (j < k.left) in_w = max(in_w, 0);
      if (j >= beyond) in_w = min(in_w, s.from.width - 1);
      int4 t = texel(x, s.from, block, in_h, in_w);
      if (in_h != in_y || in_w != left + j) t = (int4)(s.zero_point);
#pragma unroll
      for (int p = 0; p < s.pixels; p++) {
        const int kx = j - p * k.stride_x;
        if (kx >= 0 && kx < k.columns) sum[p] = mad24(t, taps[kx], sum[p]);
      }
    }
  }
#pragma unroll
  for (int p = 0; p < s.pixels; p++) finish(y, other, tables, s.to, block, h, w + p, sum[p], scale, out);
}

INLINE void depthwise_any(SOURCE x, WEIGHTS weights, TABLES tables, SOURCE other, TARGET y,
                                 const struct depthwise s, const struct output out) {
  const int w = get_global_id(0), h = get_global_id(1), block = get_global_id(2);
  if (w >= s.to.width || h >= s.to.height || block >= s.to.blocks) return;
  const struct window k = s.window;
  int4 sum = biases(tables, out, block);
  for (int ky = 0; ky < k.rows; ky++) {
    const int in_y = mad24(h, k.stride_y, mad24(ky, k.step_y, -k.top));
    for (int kx = 0; kx < k.columns; kx++) {
      const int in_x = mad24(w, k.stride_x, mad24(kx, k.step_x, -k.left));
      int4 t = (int4)(s.zero_point);
      if (in_y >= 0 && in_y < s.from.height && in_x >= 0 && in_x < s.from.width)
        t = texel(x, s.from, block, in_y, in_x);
      sum = mad24(t, load_weights(weights, ky * k.columns + kx, block, k.rows * k.columns), sum);
    }
  }
  finish(y, other, tables, s.to, block, h, w, sum, scales(tables, out, block), out);
}
