/* What only moves elements, between texels and ONNX's order (channels, rows, columns) or between pictures. */

struct move {
  int channels; /* that count */
  struct picture from, to;
};

INLINE void from_input(__global const uchar *x, TARGET y, const struct move s) {
  const int w = get_global_id(0), h = get_global_id(1), block = get_global_id(2);
  if (w >= s.to.width || h >= s.to.height || block >= s.to.blocks) return;
  const int plane = s.to.width * s.to.height, last = s.channels - 1, pixel = mad24(h, s.to.width, w);
  int4 q;
  q.x = x[4 * block * plane + pixel];
  q.y = x[min(4 * block + 1, last) * plane + pixel];
  q.z = x[min(4 * block + 2, last) * plane + pixel];
  q.w = x[min(4 * block + 3, last) * plane + pixel];
  store(y, column(s.to, block, w), row(s.to, block, h), s.to.pitch, q);
}

INLINE void to_output(SOURCE x, __global uchar *y, const struct move s) {
  const int w = get_global_id(0), h = get_global_id(1), block = get_global_id(2);
  if (w >= s.from.width || h >= s.from.height || block >= s.from.blocks) return;
  const int plane = s.from.width * s.from.height, pixel = mad24(h, s.from.width, w);
  const int4 q = texel(x, s.from, block, h, w);
  y[4 * block * plane + pixel] = q.x;
  if (4 * block + 1 < s.channels) y[(4 * block + 1) * plane + pixel] = q.y;
  if (4 * block + 2 < s.channels) y[(4 * block + 2) * plane + pixel] = q.z;
  if (4 * block + 3 < s.channels) y[(4 * block + 3) * plane + pixel] = q.w;
}

INLINE void pad(SOURCE x, TARGET y, int zero_point, int top, int left, const struct move s) {
  const int w = get_global_id(0), h = get_global_id(1), block = get_global_id(2);
  if (w >= s.to.width || h >= s.to.height || block >= s.to.blocks) return;
  const int in_y = h - top, in_x = w - left;
  int4 q = (int4)(zero_point);
  if (in_y >= 0 && in_y < s.from.height && in_x >= 0 && in_x < s.from.width)
    q = texel(x, s.from, block, in_y, in_x);
  store(y, column(s.to, block, w), row(s.to, block, h), s.to.pitch, q);
}

/* Where each row comes from, and behind that each column, is in the tables. */
INLINE void resize(SOURCE x, TABLES tables, TARGET y, int sources, const struct move s) {
  const int w = get_global_id(0), h = get_global_id(1), block = get_global_id(2);
  if (w >= s.to.width || h >= s.to.height || block >= s.to.blocks) return;
  __global const int *from = (__global const int *)(tables + sources);
  const int4 q = texel(x, s.from, block, from[h], from[s.to.height + w]);
  store(y, column(s.to, block, w), row(s.to, block, h), s.to.pitch, q);
}

/* A channel of a pixel, for kernels that are generated (dsp/adreno/moves.py). */
INLINE int element(SOURCE x, const struct picture p, int channel, int h, int w) {
  return component(texel(x, p, channel >> 2, h, w), channel);
}
