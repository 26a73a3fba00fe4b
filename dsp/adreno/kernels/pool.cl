/* Pools: one pixel of 4 channels a work-item; what is outside of the picture is left out. */

struct pool {
  int zero_point, by_count; /* whether means divide by what a window covers */
  struct window window;
  struct picture from, to;
};

INLINE void average_pool(SOURCE x, TABLES tables, TARGET y, int scales, const struct pool s,
                                const struct range out) {
  const int w = get_global_id(0), h = get_global_id(1), block = get_global_id(2);
  if (w >= s.to.width || h >= s.to.height || block >= s.to.blocks) return;
  const struct window k = s.window;
  const int top = mad24(h, k.stride_y, -k.top), left = mad24(w, k.stride_x, -k.left);
  const int first_y = max(top, 0), last_y = min(top + k.rows, s.from.height);
  const int first_x = max(left, 0), last_x = min(left + k.columns, s.from.width);
  int4 sum = 0;
  for (int in_y = first_y; in_y < last_y; in_y++)
    for (int in_x = first_x; in_x < last_x; in_x++) sum += texel(x, s.from, block, in_y, in_x);
  const int count = (last_y - first_y) * (last_x - first_x);
  const float scale = ((__global const float *)(tables + scales))[s.by_count ? count - 1 : 0];
  const float4 q = scaled(sum - count * s.zero_point, (float4)(scale), out) + out.zero_point;
  store(y, column(s.to, block, w), row(s.to, block, h), s.to.pitch, convert_int4(q));
}

INLINE void max_pool(SOURCE x, TARGET y, const struct pool s) {
  const int w = get_global_id(0), h = get_global_id(1), block = get_global_id(2);
  if (w >= s.to.width || h >= s.to.height || block >= s.to.blocks) return;
  const struct window k = s.window;
  int4 largest = 0;
  for (int ky = 0; ky < k.rows; ky++) {
    const int in_y = mad24(h, k.stride_y, mad24(ky, k.step_y, -k.top));
    for (int kx = 0; kx < k.columns; kx++) {
      const int in_x = mad24(w, k.stride_x, mad24(kx, k.step_x, -k.left));
      if (in_y >= 0 && in_y < s.from.height && in_x >= 0 && in_x < s.from.width)
        largest = max(largest, texel(x, s.from, block, in_y, in_x));
    }
  }
  store(y, column(s.to, block, w), row(s.to, block, h), s.to.pitch, largest);
}
