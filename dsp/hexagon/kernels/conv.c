/* Convolution as a sum over steps of four input channels: pointwise, or of any shape through a table.
 *
 * -DNAME=symbol -DSTEPS=n -DUNROLL_STEPS=n, and of these any: -DTABLE (each step reads at its own, unaligned
 * offset), -DBOUNDED (cells that are no pixels become padding), -DSHIFTED (scales of one and more shift the
 * accumulator first), -DQ15; or, of two steps and more, -DPIPELINED with or without -DBOUNDED, and with -DQ15 what
 * conv_q15.h says.
 *
 * A tile is sixteen accumulators, eight packets of two vrmpy for every step and thirty-two of requantisation.
 * The compiler leaves ten more between a tile and the next: where pipelined, a loop written packet by packet
 * leaves none.
 */
#include "kernels.h"

#ifdef PIPELINED
enum { TILE = 4 };
#else
enum { TILE = 8 }; /* channels */
#endif

/* The offsets of a short table live in registers. */
#if defined(TABLE) && STEPS <= 10
#define SHORT_TABLE
#define OFFSET(step) t->offset[step]
#else
#define OFFSET(step) t->table[step]
#endif

struct tile {
  const u8 *x;
  u32 x_plane;
  const s32 *table;
#ifdef SHORT_TABLE
  s32 offset[STEPS];
#endif
  const u64 *weights;
  Vector bias[TILE], multiplier[TILE], shift[TILE];
  u8 *y;
  u32 y_plane;
  struct packing packing;
  const Vector *bounds;
};

INLINE void compute(const int channels, const int vectors, const struct tile *t, u32 vector) {
  Vector acc[16];
  const u8 *x = t->x + vector * VECTOR_BYTES;
  const u64 *weights = t->weights;
  UNROLL for (int c = 0; c < channels; c++) UNROLL for (int v = 0; v < vectors; v++)
      acc[c * vectors + v] = t->bias[c];
#pragma clang loop unroll_count(UNROLL_STEPS)
  for (u32 step = 0; step < STEPS; step++) {
    Vector pixels[2];
#ifdef TABLE
    const Unaligned *source = (const Unaligned *)(x + OFFSET(step));
#else
    const Vector *source = (const Vector *)x;
    x += t->x_plane;
#endif
    UNROLL for (int v = 0; v < vectors; v++) pixels[v] = source[v];
    UNROLL for (int c = 0; c < channels; c += 2) {
      u64 pair = *weights++;
      UNROLL for (int v = 0; v < vectors; v++) {
        Vector *a = &acc[c * vectors + v];
        a[0] = Q6_Vw_vrmpyacc_VwVubRb(a[0], pixels[v], (u32)pair);
        a[vectors] = Q6_Vw_vrmpyacc_VwVubRb(a[vectors], pixels[v], (u32)(pair >> 32));
      }
    }
  }
#ifdef SHIFTED
  UNROLL for (int c = 0; c < channels; c++) UNROLL for (int v = 0; v < vectors; v++)
      acc[c * vectors + v] = Q6_Vw_vasl_VwVw(acc[c * vectors + v], t->shift[c]);
#endif
  UNROLL for (int group = 0; group < channels / 4; group++) UNROLL for (int v = 0; v < vectors; v++) {
    Vector words[4];
    UNROLL for (int c = 0; c < 4; c++)
      words[c] = requantize(acc[(group * 4 + c) * vectors + v], t->multiplier[group * 4 + c]);
    struct packing last = t->packing;
#ifdef BOUNDED
    last.low = t->bounds[(vector + v) * 2];
    last.high = t->bounds[(vector + v) * 2 + 1];
#endif
    ((Vector *)(t->y + group * t->y_plane))[vector + v] = pack(words, last);
  }
}

#ifdef PIPELINED
/* The loop packet by packet: four channels by V vectors, V = 4 or what is left at a plane's end.
 * Multiplications fill both multipliers throughout; all else goes beside them.
 *
 * v0..v15 accumulate, vector v's four channels from v(4v). v16..v19 are biases, v20..v23 multipliers,
 * v24..v27 the pixels of a step. The last three of those are also where words (v25, v26) and halfwords
 * (v27, v28) wait to be packed. v29 is the zero-point, v30 and v31 the bounds. r0 points to pixels, r1 to
 * the group's first, r2 to weights (r7:6 and r9:8 hold a step's), r3 to the plane's first, r4 to the
 * output, r5 to bounds, r11 and r12 to the planes' biases and multipliers; r10 counts planes. p0: a vector
 * waits to be stored; p1, p2, p3: the plane is one group of two, has none of three, none of two.
 */
#define ACC00 "v0"
#define ACC01 "v1"
#define ACC02 "v2"
#define ACC03 "v3"
#define ACC10 "v4"
#define ACC11 "v5"
#define ACC12 "v6"
#define ACC13 "v7"
#define ACC20 "v8"
#define ACC21 "v9"
#define ACC22 "v10"
#define ACC23 "v11"
#define ACC30 "v12"
#define ACC31 "v13"
#define ACC32 "v14"
#define ACC33 "v15"
#define PIXELS0 "v24"
#define PIXELS1 "v25"
#define PIXELS2 "v26"
#define PIXELS3 "v27"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

/* One packet: channels 0 and 1, or 2 and 3, of vector v, and what else fits. */
#define VRMPY(acc, pixels, weights) acc ".w+=vrmpy(" pixels ".ub," weights ".b)"
#define DOT01(v, also) \
  "\n{" VRMPY(ACC##v##0, PIXELS##v, WEIGHTS0) ";" VRMPY(ACC##v##1, PIXELS##v, WEIGHTS1) also "}"
#define DOT23(v, also) \
  "\n{" VRMPY(ACC##v##2, PIXELS##v, "r8") ";" VRMPY(ACC##v##3, PIXELS##v, "r9") also "}"

#define PIXELS(v, at) ";" PIXELS##v "=vmem(r0" at ")"
#ifdef Q15 /* r7 has what vasr shifts by, which takes r0 to r7 alone */
#define WEIGHTS0 "r20"
#define WEIGHTS1 "r21"
#define PAIR01 "r21:20"
#else
#define WEIGHTS0 "r6"
#define WEIGHTS1 "r7"
#define PAIR01 "r7:6"
#endif
#define WEIGHTS01 ";" PAIR01 "=memd(r2++#8)"
#define WEIGHTS23 ";r9:8=memd(r2++#8)"
#define NEXT "++m0" /* the step's last vector of pixels: on to the next plane */

#if STEPS > 2
#define STEP_LOOP(label) ";loop0(" label ",#" TEXT(STEPS) "-2)"
#define STEP(label, packets) "\n" label ":" packets ":endloop0"
#else
#define STEP_LOOP(label) ""
#define STEP(label, packets)
#endif

#ifdef Q15
#include "conv_q15.h"
#else

/* Packing the vector before, a packet each; v is its number. */
#define PACK0 ";v28.h=vsat(v26.w,v25.w)"
#define AGAIN(v) ";" ACC##v##3 "=v19"
#define PACK1 ";v28.h=vadd(v28.h,v29.h):sat"
#define PACK2 ";v28.ub=vsat(v28.h,v27.h)"
#define PACK3 ";v28.ub=vmax(v28.ub,v30.ub)"
#define PACK4 ";v28.ub=vmin(v28.ub,v31.ub);if(p0)vmem(r4++#1)=v28.new"

#ifdef BOUNDED
#define LOW ";v30=vmem(r5++#1)"
#define HIGH ";v31=vmem(r5++#1)"
#else
#define LOW ""
#define HIGH ""
#endif

/* Vector v: two packets a channel; its accumulators start again at the bias. */
#define REQUANTIZE(v, also0, also1, also2, also3, also5)                                                \
  "\n{v25.w=vmpye(" ACC##v##0 ".w,v20.uh)" also0 "}"                                                    \
  "\n{v26.w=vmpye(" ACC##v##2 ".w,v22.uh)" also1 "}"                                                    \
  "\n{v25.w+=vmpyo(" ACC##v##0 ".w,v20.h):<<1:rnd:sat:shift" also2 "}"                                  \
  "\n{v26.w+=vmpyo(" ACC##v##2 ".w,v22.h):<<1:rnd:sat:shift;" ACC##v##0 "=v16" also3 "}"                \
  "\n{v25.w=vmpye(" ACC##v##1 ".w,v21.uh);v27.h=vsat(v26.w,v25.w);" ACC##v##2 "=v18}"                   \
  "\n{v26.w=vmpye(" ACC##v##3 ".w,v23.uh);v27.h=vadd(v27.h,v29.h):sat" also5 "}"                        \
  "\n{v25.w+=vmpyo(" ACC##v##1 ".w,v21.h):<<1:rnd:sat:shift" LOW "}"                                    \
  "\n{v26.w+=vmpyo(" ACC##v##3 ".w,v23.h):<<1:rnd:sat:shift;" ACC##v##1 "=v17" HIGH "}"
#define REQUANTIZE_FIRST(V)                                                                             \
  REQUANTIZE(0, ";r2=add(r3,#16);r0=add(r1,#(2*" #V "-1)*128)", ";r1=add(r1,#" #V "*128)",              \
             ";p0=cmp.eq(r0,r0)" STEP_LOOP(#V "b"), "", "")
#define REQUANTIZE_NEXT(v, before) REQUANTIZE(v, PACK0 AGAIN(before), PACK1, PACK2, PACK3, PACK4)
#define REQUANTIZE2 REQUANTIZE_FIRST(2) REQUANTIZE_NEXT(1, 0)
#define REQUANTIZE3 REQUANTIZE_FIRST(3) REQUANTIZE_NEXT(1, 0) REQUANTIZE_NEXT(2, 1)
#define REQUANTIZE4 REQUANTIZE_FIRST(4) REQUANTIZE_NEXT(1, 0) REQUANTIZE_NEXT(2, 1) REQUANTIZE_NEXT(3, 2)
#define LATE ""
#define END                                                                                             \
  "{v28.h=vsat(v26.w,v25.w)}\n"                                                                         \
  "{v28.h=vadd(v28.h,v29.h):sat}\n{v28.ub=vsat(v28.h,v27.h)}\n{v28.ub=vmax(v28.ub,v30.ub)}\n"           \
  "{v28.ub=vmin(v28.ub,v31.ub);vmem(r4+#0)=v28.new}\n"

#endif

/* A group of V: its first step, which packs the last vector of the group before; the steps between; the last,
 * which stores that vector and fetches the next group's first pixels and the plane's first weights; and
 * requantisation, under which the next group is set up. */
#define LAST0(v) DOT01(0, PIXELS(v, NEXT) PACK3) DOT23(0, PACK4)
#define FIRST01 ";" PAIR01 "=memd(r3+#0)"
#define FIRST23 ";r9:8=memd(r3+#8)"
#define NEXT_GROUP(V) ";v24=vmem(r1+#" #V ")"

#define GROUP2                                                                                          \
  DOT01(0, PACK0 PIXELS(1, NEXT)) DOT23(0, PACK1 AGAIN(1))                                              \
  DOT01(1, PACK2 WEIGHTS01) DOT23(1, PIXELS(0, "+#-1") WEIGHTS23)                                       \
  STEP("2", DOT01(0, PIXELS(1, NEXT)) DOT23(0, PIXELS(0, "+#-1"))                                       \
            DOT01(1, WEIGHTS01) DOT23(1, WEIGHTS23))                                                    \
  LAST0(1) DOT01(1, NEXT_GROUP(2) FIRST01) DOT23(1, FIRST23)                                            \
  REQUANTIZE2

#define GROUP3                                                                                          \
  DOT01(0, PACK0 PIXELS(1, "+#-1")) DOT23(0, PACK1 AGAIN(2))                                            \
  DOT01(1, PACK2 PIXELS(2, NEXT)) DOT23(1, PIXELS(0, "+#-2"))                                           \
  DOT01(2, PIXELS(1, "+#-1") WEIGHTS01) DOT23(2, WEIGHTS23)                                             \
  STEP("3", DOT01(0, PIXELS(2, NEXT)) DOT23(0, PIXELS(0, "+#-2"))                                       \
            DOT01(1, "") DOT23(1, PIXELS(1, "+#-1"))                                                    \
            DOT01(2, WEIGHTS01) DOT23(2, WEIGHTS23))                                                    \
  LAST0(2) DOT01(1, NEXT_GROUP(3)) DOT23(1, "") DOT01(2, FIRST01) DOT23(2, FIRST23)                     \
  REQUANTIZE3

#define GROUP4                                                                                          \
  DOT01(0, PACK0 PIXELS(1, "+#-2")) DOT23(0, PACK1 AGAIN(3))                                            \
  DOT01(1, PACK2 PIXELS(2, "+#-1")) DOT23(1, PIXELS(3, NEXT) LATE)                                      \
  DOT01(2, "") DOT23(2, PIXELS(0, "+#-3"))                                                              \
  DOT01(3, PIXELS(1, "+#-2") WEIGHTS01) DOT23(3, PIXELS(2, "+#-1") WEIGHTS23)                           \
  STEP("4", DOT01(0, PIXELS(3, NEXT)) DOT23(0, PIXELS(0, "+#-3"))                                       \
            DOT01(1, "") DOT23(1, PIXELS(1, "+#-2"))                                                    \
            DOT01(2, "") DOT23(2, PIXELS(2, "+#-1"))                                                    \
            DOT01(3, WEIGHTS01) DOT23(3, WEIGHTS23))                                                    \
  LAST0(3) DOT01(1, NEXT_GROUP(4)) DOT23(1, "") DOT01(2, "") DOT23(2, "")                               \
  DOT01(3, FIRST01) DOT23(3, FIRST23)                                                                   \
  REQUANTIZE4

/* Planes by groups of four vectors, then three and two as they come out; one alone is for run_tiles. */
INLINE void pipeline(const struct conv *op, const struct context *c, struct range planes,
                     struct range vectors) {
  const u8 *x = c->arena + op->x + vectors.begin * VECTOR_BYTES;
  const u64 *weights = (const u64 *)(c->weights + op->weights) + planes.begin * STEPS * 2;
  const s32 *bias = (const s32 *)(c->weights + op->bias) + planes.begin * 4;
  const s32 *multiplier = (const s32 *)(c->weights + op->multiplier) + planes.begin * 4;
  u8 *y = c->arena + op->y + planes.begin * op->y_plane + vectors.begin * VECTOR_BYTES;
  const Vector *bounds = (const Vector *)(c->weights + op->bounds) + 2 * vectors.begin;
#ifdef FROM_ZERO
  bounds++; /* the upper ones alone */
#endif
  u32 count = vectors.end - vectors.begin, tail = count % 4, fours = count / 4 - (tail == 1);
  u32 groups = fours << 4 | (tail == 1 || tail == 3) << 3 | (tail == 1 || tail == 2) << 2;
  register const u64 *r3 __asm__("r3") = weights;
  register u8 *r4 __asm__("r4") = y;
  register u32 r10 __asm__("r10") = planes.end - planes.begin;
  register const s32 *r11 __asm__("r11") = bias;
  register const s32 *r12 __asm__("r12") = multiplier;
#ifdef Q15
  register u32 r7 __asm__("r7") = (u32)*multiplier >> 16;
#endif
  __asm__ volatile(
      "{m0=%[x_plane];v29=vsplat(%[zero_point])}\n"
      "{p1=cmp.eq(%[groups],#4);p2=!tstbit(%[groups],#3);p3=!tstbit(%[groups],#2)}\n"
      "{v30=vsplat(%[low]);v31=vsplat(%[high]);p0=cmp.gt(r3,r3)}\n"
      "1:{r15:14=memd(r11++#8);r17:16=memd(r12++#8);r1=%[x];r5=%[bounds]}\n"
      "{v16=vsplat(r14);v20=vsplat(r16)" PACK0 ";r19:18=memd(r11++#8)}\n"
      "{v17=vsplat(r15);v21=vsplat(r17)" PACK1 ";r17:16=memd(r12++#8)}\n"
      "{v18=vsplat(r18);v22=vsplat(r16)" PACK2 FIRST01 "}\n"
      "{v19=vsplat(r19);v23=vsplat(r17)" PACK3 FIRST23 "}\n"
      "{v24=vmem(r1+#0)" PACK4 ";loop1(14f,%[fours])}\n"
      "{v1:0=vcombine(v17,v16);v3:2=vcombine(v19,v18);p0=cmp.gt(r3,r3);if(p0)r4=add(r4,%[gap])}\n"
      "{v5:4=vcombine(v17,v16);v7:6=vcombine(v19,v18);r2=add(r3,#16);if(p1)jump:nt 6f}\n"
      "{v9:8=vcombine(v17,v16);v11:10=vcombine(v19,v18);r0=add(r1,#3*128)" STEP_LOOP("4f") "}\n"
      "{v13:12=vcombine(v17,v16);v15:14=vcombine(v19,v18);r14=%[fours];if(cmp.eq(r14.new,#0))jump:nt 5f}\n"
      "14:" GROUP4 ":endloop1\n"
      "5:{r0=add(r1,#2*128)" STEP_LOOP("3f") ";if(p2)jump:nt 6f}" GROUP3 "\n"
      "6:{r0=add(r1,#128)" STEP_LOOP("2f") ";if(p3)jump:nt 7f}" GROUP2 "\n"
      "7:{r3=add(r3,#" TEXT(STEPS) "*16);r10=add(r10,#-1);if(cmp.gtu(r10.new,#0))jump:t 1b}\n"
      END
      : "+&r"(r3), "+&r"(r4), "+&r"(r10), "+&r"(r11), "+&r"(r12)
      : [x] "r"(x), [x_plane] "r"(op->x_plane), [bounds] "r"(bounds), [fours] "r"(fours),
        [groups] "r"(groups), [zero_point] "r"(op->zero_point * 0x10001u),
        [low] "r"(op->low * 0x01010101u), [high] "r"(op->high * 0x01010101u),
        [gap] "r"(op->y_plane - count * VECTOR_BYTES)
#ifdef Q15
        , "r"(r7)
      : "r20", "r21",
#else
      : "r6", "r7",
#endif
        "r0", "r1", "r2", "r5", "r8", "r9", "r14", "r15", "r16", "r17", "r18", "r19", "p0", "p1",
        "p2", "p3", "m0", "lc0", "sa0", "lc1", "sa1", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6",
        "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21",
        "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
}

#endif

/* Planes [planes.begin, planes.end), whole tiles but for the last, of these vectors. */
INLINE void run_tiles(const struct conv *op, const struct context *c, struct range planes,
                      struct range vectors) {
  struct tile t = {
      .x = c->arena + op->x,
      .x_plane = op->x_plane,
      .table = (const s32 *)(c->weights + op->table),
      .y_plane = op->y_plane,
      .packing = packing_of(op->zero_point, op->low, op->high, *(const u32 *)(c->weights + op->multiplier)),
      .bounds = (const Vector *)(c->weights + op->bounds),
  };
#ifdef SHORT_TABLE
  UNROLL for (u32 step = 0; step < STEPS; step++) t.offset[step] = t.table[step];
#endif
  for (u32 plane = planes.begin; plane < planes.end; plane += TILE / 4) {
    const s32 *bias = (const s32 *)(c->weights + op->bias) + plane * 4;
    const s32 *multiplier = (const s32 *)(c->weights + op->multiplier) + plane * 4;
    UNROLL for (int k = 0; k < TILE; k++) {
      t.bias[k] = Q6_V_vsplat_R(bias[k]);
      t.multiplier[k] = Q6_V_vsplat_R(multiplier[k]);
    }
#ifdef SHIFTED
    const s32 *shift = (const s32 *)(c->weights + op->shift) + plane * 4;
    UNROLL for (int k = 0; k < TILE; k++) t.shift[k] = Q6_V_vsplat_R(shift[k]);
#endif
    t.weights = (const u64 *)(c->weights + op->weights) + plane * STEPS * 2;
    t.y = c->arena + op->y + plane * op->y_plane;
    u32 vector = vectors.begin;
#ifndef PIPELINED
    if (plane + 1 < planes.end) {
      for (; vector + 2 <= vectors.end; vector += 2) compute(TILE, 2, &t, vector);
      if (vector < vectors.end) compute(TILE, 1, &t, vector++);
    }
#endif
    for (; vector < vectors.end; vector++) compute(4, 1, &t, vector);
  }
}

void NAME(const void *descriptor, const struct context *c) {
  const struct conv *op = descriptor;
  struct range planes = {0, op->planes}, vectors = {0, op->vectors};
  if (op->split_tiles) {
    struct range tiles = share((op->planes + TILE / 4 - 1) / (TILE / 4), c);
    planes.begin = tiles.begin * (TILE / 4);
    if (tiles.end * (TILE / 4) < planes.end) planes.end = tiles.end * (TILE / 4);
  } else {
    vectors = share(op->vectors, c);
  }
#ifdef PIPELINED
  if (planes.begin == planes.end || vectors.begin == vectors.end) return;
  if (vectors.end - vectors.begin > 1) {
    pipeline(op, c, planes, vectors);
    return;
  }
#endif
  run_tiles(op, c, planes, vectors);
}
