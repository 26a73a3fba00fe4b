/* What Conv and Gemm share: products of texels, and the end of a sum.
 *
 * A work-item makes `pixels` of a row of the output. The last of a row begins so far to the left that all of
 * its pixels are within the picture: two work-items then store some of them, and the same values. */

enum { MOST_PIXELS = 8 };

/* -- products -------------------------------------------------------------------------------------------- */

/* For dot products, `dots`, the four numbers of a texel stay in one word, which is x; otherwise they are x, y,
 * z and w. */
#ifdef DOT_PRODUCT
#define FOUR(dots, words, numbers) ((dots) ? (int4)(as_int(words)) : (numbers))
#else
#define FOUR(dots, words, numbers) (numbers)
#endif

/* Of 4 input channels of a pixel. */
INLINE int4 load_four(SOURCE x, const struct picture p, int at_x, int at_y, int dots) {
  return FOUR(dots, load_word(x, at_x, at_y, p.pitch), load(x, at_x, at_y, p.pitch));
}

/* Of 4 input channels that are all `q`, 0 to 255. */
INLINE int4 four(int q, int dots) {
  return FOUR(dots, (uint)q * 0x01010101u, (int4)(q));
}

/* Weights of 4 input channels, for each of 4 output channels. */
struct tile {
  int4 a, b, c, d;
};

INLINE int4 load_row(WEIGHTS weights, const struct picture p, int at_x, int at_y, int dots) {
  return FOUR(dots, load_word_of_weights(weights, at_x, at_y, p.pitch),
              load_weights(weights, at_x, at_y, p.pitch));
}

/* Those of output block `block`, a picture of 4 rows, from column `x` of it. */
INLINE struct tile load_tile(WEIGHTS weights, const struct picture p, int block, int x, int dots) {
  const int at_x = column(p, block, x), at_y = row(p, block, 0);
  struct tile t;
  t.a = load_row(weights, p, at_x, at_y, dots);
  t.b = load_row(weights, p, at_x, at_y + 1, dots);
  t.c = load_row(weights, p, at_x, at_y + 2, dots);
  t.d = load_row(weights, p, at_x, at_y + 3, dots);
  return t;
}

/* The sums of 4 output channels of a pixel, and on top of them what its 4 input channels `q` make of them. */
INLINE int4 multiplied(int4 q, struct tile t, int4 sum, int dots) {
#ifdef DOT_PRODUCT
  if (dots) {
    const uint word = as_uint(q.x);
    return (int4)(DOT_PRODUCT(as_uint(t.a.x), word, sum.x), DOT_PRODUCT(as_uint(t.b.x), word, sum.y),
                  DOT_PRODUCT(as_uint(t.c.x), word, sum.z), DOT_PRODUCT(as_uint(t.d.x), word, sum.w));
  }
#endif
  sum = mad24((int4)(q.x), (int4)(t.a.x, t.b.x, t.c.x, t.d.x), sum);
  sum = mad24((int4)(q.y), (int4)(t.a.y, t.b.y, t.c.y, t.d.y), sum);
  sum = mad24((int4)(q.z), (int4)(t.a.z, t.b.z, t.c.z, t.d.z), sum);
  return mad24((int4)(q.w), (int4)(t.a.w, t.b.w, t.c.w, t.d.w), sum);
}

/* -- the end of a sum ------------------------------------------------------------------------------------ */

enum { ALONE, WITH_ADD, WITH_LOOKUP };

/* What a product's sum becomes. `at`: of its channels' constants in the tables. The rest is of what it takes
 * in: an Add's other operand and ranges, or where a Lookup's table is. */
struct output {
  int fused, at;
  struct range own;
  float ratio, other_ratio, other_zero_point;
  struct range sum;
  int table;
};

/* What the sums of a block begin with, and what they are multiplied by in the end: two int4 of the tables. */
INLINE int4 biases(TABLES tables, const struct output out, int block) {
  return tables[out.at + 2 * block];
}

INLINE float4 scales(TABLES tables, const struct output out, int block) {
  return as_float4(tables[out.at + 2 * block + 1]);
}

INLINE void finish(TARGET y, SOURCE other, TABLES tables, const struct picture to, int block, int h,
                          int w, int4 sum, float4 scale, const struct output out) {
  const int at_x = column(to, block, w), at_y = row(to, block, h);
  const float4 own = scaled(sum, scale, out.own);
  int4 q = convert_int4(own + out.own.zero_point);
  if (out.fused == WITH_ADD) {
    const float4 operand = convert_float4(load(other, at_x, at_y, to.pitch)) - out.other_zero_point;
    q = added(own, out.ratio, operand, out.other_ratio, out.sum);
  } else if (out.fused == WITH_LOOKUP) {
    q = looked_up(tables, out.table, q);
  }
  store(y, at_x, at_y, to.pitch, q);
}
