/* Convolutions with any window, strides, dilations and groups of whole blocks: `pixels` of a row x 4 output
 * channels a work-item. An iteration of the inner loop has the loads and products of `pointwise`, and where
 * the window meets the border a choice between each load and the zero-point.
 *
 * Weights: column (ky * columns + kx) * inputs + b has the input channels of block b of the group. */

struct window {
  int rows, columns, stride_y, stride_x, step_y, step_x, top, left;
};

/* `inputs`, `outputs`: blocks of a group. `padded`: some pixel's window reaches beyond the border. */
struct conv {
  int pixels, dots, inputs, outputs, padded, zero_point;
  struct window window;
  struct picture weights, from, to;
};

INLINE void conv(SOURCE x, WEIGHTS weights, TABLES tables, SOURCE other, TARGET y, const struct conv s,
                        const struct output out) {
  const int start = mul24((int)get_global_id(0), s.pixels), h = get_global_id(1), block = get_global_id(2);
  if (start >= s.to.width || h >= s.to.height || block >= s.to.blocks) return;
  const struct window k = s.window;
  const int w = min(start, s.to.width - s.pixels);
  const int first = (int)((uint)block / (uint)s.outputs) * s.inputs;
  const int4 bias = biases(tables, out, block);
  const float4 scale = scales(tables, out, block);
  int4 sum[MOST_PIXELS];
#pragma unroll
  for (int p = 0; p < s.pixels; p++) sum[p] = bias;
  for (int ky = 0; ky < k.rows; ky++) {
    const int in_y = mad24(h, k.stride_y, mad24(ky, k.step_y, -k.top));
    const int in_h = clamp(in_y, 0, s.from.height - 1);
    for (int kx = 0; kx < k.columns; kx++) {
      const int in_x = mad24(w, k.stride_x, mad24(kx, k.step_x, -k.left));
      const int tap = mul24(mad24(ky, k.columns, kx), s.inputs);
      int c[MOST_PIXELS], inside[MOST_PIXELS];
#pragma unroll
      for (int p = 0; p < s.pixels; p++) {
        c[p] = clamp(in_x + p * k.stride_x, 0, s.from.width - 1);
        inside[p] = !s.padded || (in_h == in_y && c[p] == in_x + p * k.stride_x);
      }
      for (int b = 0; b < s.inputs; b++) {
        const struct tile t = load_tile(weights, s.weights, block, tap + b, s.dots);
#pragma unroll
        for (int p = 0; p < s.pixels; p++) {
          const int at_x = column(s.from, first + b, c[p]), at_y = row(s.from, first + b, in_h);
          const int4 q = inside[p] ? load_four(x, s.from, at_x, at_y, s.dots) : four(s.zero_point, s.dots);
          sum[p] = multiplied(q, t, sum[p], s.dots);
        }
      }
    }
  }
#pragma unroll
  for (int p = 0; p < s.pixels; p++) finish(y, other, tables, s.to, block, h, w + p, sum[p], scale, out);
}
