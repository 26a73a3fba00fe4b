/* Convolutions of 1 x 1 without strides, and Gemm: `pixels` of a row x 4 output channels a work-item.
 *
 * An iteration of the inner loop makes that of 4 input channels: `pixels` loads of activations, 4 of weights,
 * 4 * pixels mad24 of int4 (16 * pixels multiply-accumulates), and an addition to one coordinate of each
 * image: of activations the row, blocks lying below each other, and of weights the column.
 *
 * Weights: column b has the input channels of block b. */

struct pointwise {
  int pixels, dots; /* of a work-item; whether dot products may be used */
  struct picture weights, from, to;
};

INLINE void pointwise(SOURCE x, WEIGHTS weights, TABLES tables, SOURCE other, TARGET y,
                             const struct pointwise s, const struct output out) {
  const int start = mul24((int)get_global_id(0), s.pixels), h = get_global_id(1), block = get_global_id(2);
  if (start >= s.to.width || h >= s.to.height || block >= s.to.blocks) return;
  const int w = min(start, s.to.width - s.pixels);
  const int4 bias = biases(tables, out, block);
  const float4 scale = scales(tables, out, block);
  int4 sum[MOST_PIXELS];
#pragma unroll
  for (int p = 0; p < s.pixels; p++) sum[p] = bias;
  for (int side = 0; side < s.from.fold; side++) {
    const int c = mad24(side, s.from.width, w);
    int line = h;
    for (int b = side; b < s.from.blocks; b += s.from.fold, line += s.from.height) {
      const struct tile t = load_tile(weights, s.weights, block, b, s.dots);
#pragma unroll
      for (int p = 0; p < s.pixels; p++)
        sum[p] = multiplied(load_four(x, s.from, c + p, line, s.dots), t, sum[p], s.dots);
    }
  }
#pragma unroll
  for (int p = 0; p < s.pixels; p++) finish(y, other, tables, s.to, block, h, w + p, sum[p], scale, out);
}
