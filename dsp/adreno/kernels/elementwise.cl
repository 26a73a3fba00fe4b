/* Operators on single elements that are not fused into a product. Tensors of equal shape have equal layouts: a
 * work-item makes a texel, wherever that is. */

struct texels {
  int columns, rows;
};

INLINE void add(SOURCE x, SOURCE other, TARGET y, float zero_point, float ratio, float other_zero_point,
                       float other_ratio, const struct texels s, const struct range out) {
  const int c = get_global_id(0), r = get_global_id(1);
  if (c >= s.columns || r >= s.rows) return;
  const float4 a = convert_float4(load(x, c, r, s.columns)) - zero_point;
  const float4 b = convert_float4(load(other, c, r, s.columns)) - other_zero_point;
  store(y, c, r, s.columns, added(a, ratio, b, other_ratio, out));
}

INLINE void requantize(SOURCE x, TARGET y, int zero_point, float scale, const struct texels s,
                              const struct range out) {
  const int c = get_global_id(0), r = get_global_id(1);
  if (c >= s.columns || r >= s.rows) return;
  const float4 q = scaled(load(x, c, r, s.columns) - zero_point, (float4)(scale), out) + out.zero_point;
  store(y, c, r, s.columns, convert_int4(q));
}

INLINE void lookup(SOURCE x, TABLES tables, TARGET y, int table, const struct texels s) {
  const int c = get_global_id(0), r = get_global_id(1);
  if (c >= s.columns || r >= s.rows) return;
  store(y, c, r, s.columns, looked_up(tables, table, load(x, c, r, s.columns)));
}

/* `one`: the second operand has one channel, for all of the first's. Its extents are the first's, or 1. */
struct mul {
  int one;
  struct picture from, other;
};

INLINE void mul(SOURCE x, SOURCE other, TARGET y, int zero_point, int other_zero_point, float scale,
                       const struct mul s, const struct range out) {
  const int w = get_global_id(0), h = get_global_id(1), block = get_global_id(2);
  if (w >= s.from.width || h >= s.from.height || block >= s.from.blocks) return;
  const int4 a = texel(x, s.from, block, h, w) - zero_point;
  int4 b = texel(other, s.other, s.other.blocks > 1 ? block : 0, s.other.height > 1 ? h : 0,
                 s.other.width > 1 ? w : 0);
  b = (s.one ? (int4)(b.x) : b) - other_zero_point;
  const float4 q = scaled(mul24(a, b), (float4)(scale), out) + out.zero_point;
  store(y, column(s.from, block, w), row(s.from, block, h), s.from.pitch, convert_int4(q));
}
