/* Depthwise convolution and average pooling, of any window through a table of tap offsets.
 *
 * -DNAME=symbol, perhaps -DQ15, and -DTHREE_BY_THREE -DSTRIDE=1|2: what most networks have, written packet by
 * packet; two vectors and more. Or else -DQUADS=n -DSINGLE=0|1 [-DVECTORS=n: few enough to unroll]
 * [-DPOSITIONAL] [-DSHIFTED] [-DUNROLLED=n]: four taps are transposed so that one vrmpy with a scalar sums them
 * for one channel; a single left-over tap needs no transposition, because a scalar with one weight in the
 * channel's own byte picks it. The loop is rotated by one vector, across planes too: the taps of the next
 * overlap the requantisation of the last. Or -DROLLED, for windows too large for that: loops over the quads.
 */
#include "kernels.h"

#ifdef THREE_BY_THREE

/* Three rows by three neighbouring columns at stride one. A vector of three rows is transposed once, and
 * the columns are what lies between it and the next: fourteen packets a vector, in which both multipliers
 * and the permute unit never rest. Channels go in pairs: while one pair's taps are summed, the other is
 * requantised. No packet multiplies or permutes what the packet before has made: that would cost a cycle.
 *
 * v0..v3 and v4..v7 transposed pixels of channels 0, 2, 1, 3, in turn this vector's and the next's;
 * v8..v11 accumulators; v12..v14 rows; v15, v24 shifted pixels; v16..v19 biases, v20..v23 multipliers;
 * v25, v26 words and v27, v28 halfwords on their way to pixels; v29 zero-point; v30, v31 bounds. r0..r2
 * rows, r3 weights, r4 output, r5 bias, r6 multiplier, r8..r19 the plane's weights, r20 planes left, r21
 * bodies left of an odd number of vectors.
 */
#define VRMPY(acc, op, x, weights) "v" #acc ".w" op "vrmpy(v" #x ".ub,r" #weights ".b)"
#define SUM(op, a, x, wa, b, y, wb) "{" VRMPY(a, op, x, wa) ";" VRMPY(b, op, y, wb)
#define LOW(word, acc, multiplier) "{v" #word ".w=vmpye(v" #acc ".w,v" #multiplier ".uh)"
#ifdef Q15 /* one packet a channel, and in the other no multiplication; vasr takes its shift from r0 to r7 alone */
#define HIGH(word, acc, multiplier) "{nop"
#define HALVES(h, odd, even) "v" #h ".h=vasr(v" #odd ".w,v" #even ".w," NARROWING "):rnd:sat"
#else
#define HIGH(word, acc, multiplier) "{v" #word ".w+=vmpyo(v" #acc ".w,v" #multiplier ".h):<<1:rnd:sat:shift"
#define HALVES(h, odd, even) "v" #h ".h=vsat(v" #odd ".w,v" #even ".w)"
#endif
#define NARROW(h, odd, even) ";" HALVES(h, odd, even)
#if defined(Q15) && STRIDE == 1
#define NARROWING "r6"
#define MULTIPLIERS "r22"
#else
#define NARROWING "r7"
#define MULTIPLIERS "r6"
#endif
#define SHIFT(to, next, from, bytes) ";v" #to "=valign(v" #next ",v" #from "," bytes ")"
#define ROW(r, pointer) ";v1" #r "=vmemu(r" #pointer "++#1)"
#define TRANSPOSE(pair, rows) ";v" pair ".h=vshuffoe(v14.h,v" #rows ".h)"
#define TRANSPOSE_ROWS ";v13:12.b=vshuffoe(v13.b,v12.b)"
#define ZERO_POINT(h) ";v" #h ".h=vadd(v" #h ".h,v29.h):sat"

#if STRIDE == 1
/* One vector: its channels c0..c3, those of the next n0..n3; those of the vector after that take the place of
 * its own (`even`, `odd`). The vector before is stored. Found by a search over all orders of fourteen packets.
 */
#define VECTOR(c0, c2, c1, c3, n0, n2, n1, n3, odd, even, exit, also, begun)                            \
  SUM("+=", 8, 15, 10, 10, 24, 11) SHIFT(15, n0, c0, "r7") ZERO_POINT(27) "}\n"                         \
  HIGH(26, 11, 23) SHIFT(24, n2, c2, "r7") ";v11=v19" exit "}\n"                                        \
  HIGH(25, 9, 21) ROW(2, 0) ";v9=v17}\n"                                                                \
  SUM("+=", 8, 15, 12, 10, 24, 13) SHIFT(24, n3, c3, "#4") NARROW(28, 26, 25) "}\n"                \
  SUM("+=", 9, c1, 14, 11, c3, 15) SHIFT(15, n1, c1, "#4") ZERO_POINT(28) "}\n"                         \
  SUM("+=", 8, c0, 8, 10, c2, 9) TRANSPOSE_ROWS "}\n"                                                   \
  SUM("+=", 9, 15, 16, 11, 24, 17) SHIFT(24, n3, c3, "r7") ";v28.ub=vsat(v28.h,v27.h)}\n"               \
  LOW(25, 8, 20) ROW(4, 2) ";v28.ub=vmax(v28.ub,v30.ub)}\n"                                             \
  HIGH(25, 8, 20) SHIFT(15, n1, c1, "r7") ";v28.ub=vmin(v28.ub,v31.ub);if(p0)vmem(r4++#1)=v28.new}\n"   \
  LOW(26, 10, 22) TRANSPOSE(even, 12) also "}\n"                                                        \
  SUM("+=", 9, 15, 18, 11, 24, 19) TRANSPOSE(odd, 13) begun "}\n"                                       \
  HIGH(26, 10, 22) SHIFT(24, c2, n2, "#4") ";v10=v18}\n"                                                \
  LOW(26, 11, 23) SHIFT(15, c0, n0, "#4") NARROW(27, 26, 25) "}\n"                                 \
  LOW(25, 9, 21) ROW(3, 1) ";v8=v16}"

/* The last vector of a plane is finished while the next plane is set up. */
#define PLANES \
  "1:" HIGH(25, 9, 21) ";r0=add(r0,%[x_gap]);p1=cmp.eq(r20,#1);if(p1.new)jump:nt 4f}\n"                 \
  "{r1=add(r1,%[other_gap]);r2=add(r2,%[x_gap])" ROW(2, 0) "}\n"                                       \
  "{" HALVES(28, 26, 25) ";r20=add(r20,#-1)" ROW(3, 1) "}\n"                                           \
  "{r21=m0" ROW(4, 2) ZERO_POINT(28) "}\n"                                                              \
  "{v28.ub=vsat(v28.h,v27.h);r9:8=memd(r5++#8);r11:10=memd(" MULTIPLIERS "++#8)" TRANSPOSE_ROWS "}\n"                \
  "{r15:14=memd(r3+#24);r17:16=memd(r3+#32)" TRANSPOSE("1:0", 12) TRANSPOSE("3:2", 13) "}\n"            \
  "{v16=vsplat(r8);v20=vsplat(r10)" ROW(2, 0) "}\n"                                                     \
  "{v17=vsplat(r9);v21=vsplat(r11)" ROW(3, 1) "}\n"                                                     \
  "{v8=v16;v28.ub=vmax(v28.ub,v30.ub)" ROW(4, 2) "}\n"                                                  \
  "{v28.ub=vmin(v28.ub,v31.ub);if(p0)vmem(r4++#1)=v28.new;r9:8=memd(r5++#8)" TRANSPOSE_ROWS "}\n"       \
  "{r11:10=memd(" MULTIPLIERS "++#8);r19:18=memd(r3+#40)" TRANSPOSE("5:4", 12) TRANSPOSE("7:6", 13) "}\n"            \
  "{v18=vsplat(r8);v19=vsplat(r9)" ROW(3, 1) "}\n"                                                      \
  "{v22=vsplat(r10);v23=vsplat(r11);r13:12=memd(r3+#16)" SHIFT(24, 5, 1, "#4") "}\n"                    \
  "{v10=v18;r9:8=memd(r3+#0);r11:10=memd(r3+#8)" SHIFT(15, 4, 0, "#4") "}\n"                            \
  "{r3=add(r3,#48);if(p0)r4=add(r4,%[y_gap]);p0=cmp.gt(r0,r0);loop0(2f,%[bodies])}\n"                   \
  "2:" VECTOR(0, 1, 2, 3, 4, 5, 6, 7, "3:2", "1:0", "", ";p1=cmp.eq(r21,#0);r21=add(r21,#-1)",          \
              ";p0=cmp.eq(r0,r0)") "\n"                                                                 \
  VECTOR(4, 5, 6, 7, 0, 1, 2, 3, "7:6", "5:4", ";if(p1)jump 1b", "", "") ":endloop0\n"                  \
  HIGH(26, 11, 23) ZERO_POINT(27) ";jump 1b}\n"                                                         \
  "4:{" HALVES(28, 26, 25) "}\n"                                                                       \
  "{v28.h=vadd(v28.h,v29.h):sat}\n{v28.ub=vsat(v28.h,v27.h)}\n{v28.ub=vmax(v28.ub,v30.ub)}\n"           \
  "{v28.ub=vmin(v28.ub,v31.ub);vmem(r4+#0)=v28.new}\n"

#else

/* At a stride of two the first and third columns are neighbours in one phase, and the second lies in
 * another: two transpositions, sixteen packets. Registers as above but for v26:v27 and v24:v25, the second
 * column's pixels of a pair of channels, v24, v25, v28 shifted pixels, v24, v28, v15, v26 words, v15, v26
 * halfwords; r22..r24 the second column's rows.
 */
#define VECTOR(c0, c2, c1, c3, n0, n2, n1, n3, odd, even, exit, also, begun)                            \
  SUM("+=", 8, c0, 8, 10, c2, 9) SHIFT(25, n2, c2, "#4") NARROW(26, 26, 28) "}\n"                  \
  HIGH(15, 11, 23) ROW(2, 22) ";v11=v19}\n"                                                             \
  SUM("+=", 9, c1, 14, 11, c3, 15) ZERO_POINT(26) NARROW(15, 15, 24) "}\n"                         \
  "{v24=valign(v" #n0 ",v" #c0 ",#4)" TRANSPOSE_ROWS ZERO_POINT(15) exit "}\n"                          \
  "{v28=valign(v" #n1 ",v" #c1 ",#4);v15.ub=vsat(v15.h,v26.h)" TRANSPOSE("27:26", 12) "}\n"             \
  SUM("+=", 8, 24, 10, 10, 25, 11) SHIFT(24, n3, c3, "#4") ";v15.ub=vmax(v15.ub,v30.ub)}\n"             \
  SUM("+=", 8, 26, 12, 10, 27, 13) ";v15.ub=vmin(v15.ub,v31.ub);if(p0)vmem(r4++#1)=v15.new}\n"          \
  SUM("+=", 9, 28, 16, 11, 24, 17) TRANSPOSE("25:24", 13) "}\n"                                         \
  LOW(26, 10, 22) ROW(3, 1) "}\n"                                                                       \
  SUM("+=", 9, 24, 18, 11, 25, 19) ROW(2, 0) "}\n"                                                      \
  HIGH(26, 10, 22) ROW(4, 2) ";v10=v18}\n"                                                              \
  LOW(15, 11, 23) TRANSPOSE_ROWS also "}\n"                                                             \
  LOW(24, 9, 21) TRANSPOSE(even, 12) begun "}\n"                                                        \
  HIGH(24, 9, 21) TRANSPOSE(odd, 13) "}\n"                                                              \
  LOW(28, 8, 20) ROW(4, 24) ";v9=v17}\n"                                                                \
  HIGH(28, 8, 20) ROW(3, 23) ";v8=v16}"

#define PLANES \
  "1:{v15.ub=vsat(v15.h,v26.h);r0=add(r0,%[x_gap]);p1=cmp.eq(r20,#1);if(p1.new)jump:nt 4f}\n"           \
  "{r1=add(r1,%[x_gap]);r2=add(r2,%[x_gap])" ROW(2, 0) "}\n"                                            \
  "{r22=add(r22,%[other_gap]);r23=add(r23,%[other_gap])" ROW(3, 1) "}\n"                                \
  "{r24=add(r24,%[other_gap]);v15.ub=vmax(v15.ub,v30.ub)" ROW(4, 2) "}\n"                               \
  "{v15.ub=vmin(v15.ub,v31.ub);if(p0)vmem(r4++#1)=v15.new;r9:8=memd(r5++#8)" TRANSPOSE_ROWS "}\n"       \
  "{r11:10=memd(" MULTIPLIERS "++#8);r15:14=memd(r3+#24)" TRANSPOSE("1:0", 12) TRANSPOSE("3:2", 13) "}\n"            \
  "{v16=vsplat(r8);v20=vsplat(r10)" ROW(2, 0) "}\n"                                                     \
  "{v17=vsplat(r9);v21=vsplat(r11)" ROW(3, 1) "}\n"                                                     \
  "{r20=add(r20,#-1);r21=m0" ROW(4, 2) "}\n"                                                            \
  "{if(p0)r4=add(r4,%[y_gap]);r9:8=memd(r5++#8);r11:10=memd(" MULTIPLIERS "++#8)" TRANSPOSE_ROWS "}\n"               \
  "{r17:16=memd(r3+#32);r19:18=memd(r3+#40)" TRANSPOSE("5:4", 12) TRANSPOSE("7:6", 13) "}\n"            \
  "{v18=vsplat(r8);v22=vsplat(r10)" ROW(4, 24) "}\n"                                                    \
  "{v19=vsplat(r9);v23=vsplat(r11)" ROW(3, 23) "}\n"                                                    \
  "{v8=v16;v9=v17;r13:12=memd(r3+#16);r11:10=memd(r3+#8)}\n"                                            \
  "{v10=v18;r9:8=memd(r3++#48);p0=cmp.gt(r0,r0);loop0(2f,%[bodies])}\n"                                 \
  "2:" VECTOR(0, 1, 2, 3, 4, 5, 6, 7, "3:2", "1:0", "", ";p1=cmp.eq(r21,#0);r21=add(r21,#-1)",          \
              ";p0=cmp.eq(r0,r0)") "\n"                                                                 \
  VECTOR(4, 5, 6, 7, 0, 1, 2, 3, "7:6", "5:4", ";if(p1)jump 1b", "", "") ":endloop0\n"                  \
  HIGH(15, 11, 23) NARROW(26, 26, 28) ";r22=add(r22,#128)}\n"                                      \
  "{" HALVES(15, 15, 24) ZERO_POINT(26) "}\n{v15.h=vadd(v15.h,v29.h):sat;jump 1b}\n"                \
  "4:{v15.ub=vmax(v15.ub,v30.ub)}\n{v15.ub=vmin(v15.ub,v31.ub);vmem(r4+#0)=v15.new}\n"

#endif

INLINE void pipeline(const struct depthwise *op, const struct context *c, struct range planes) {
  const s32 *table = (const s32 *)(c->weights + op->table);
  /* To the next plane, from where this one's reading ends: two vectors too far, at a stride of one three for
   * the middle row, at a stride of two one for the second column. */
  u32 x_gap = op->x_plane - (op->vectors + 2) * VECTOR_BYTES;
  u32 other_gap = STRIDE == 1 ? x_gap - VECTOR_BYTES : x_gap + VECTOR_BYTES;
  const u8 *x = c->arena + op->x + planes.begin * op->x_plane;
  register const u8 *r0 __asm__("r0") = x - x_gap + table[0];
  register const u8 *r1 __asm__("r1") = x - (STRIDE == 1 ? other_gap : x_gap) + table[1];
  register const u8 *r2 __asm__("r2") = x - x_gap + table[2];
  register const u8 *r3 __asm__("r3") = c->weights + op->weights + planes.begin * 48;
  register u8 *r4 __asm__("r4") = c->arena + op->y + planes.begin * op->y_plane;
  register const u8 *r5 __asm__("r5") = c->weights + op->bias + planes.begin * 16;
  const u8 *multiplier = c->weights + op->multiplier + planes.begin * 16;
#if defined(Q15) && STRIDE == 1
  register u32 r6 __asm__("r6") = *(const u32 *)multiplier >> 16;
  register const u8 *r22 __asm__("r22") = multiplier;
#else
#ifdef Q15
  register u32 r7 __asm__("r7") = *(const u32 *)multiplier >> 16;
#endif
  register const u8 *r6 __asm__("r6") = multiplier;
  register const u8 *r22 __asm__("r22") = x - other_gap + table[3];
#endif
  register u32 r20 __asm__("r20") = planes.end - planes.begin + 1;
  register u32 r21 __asm__("r21") = op->vectors / 2; /* before the body that an odd number leaves midway */
  register const u8 *r23 __asm__("r23") = x - other_gap + table[4];
  register const u8 *r24 __asm__("r24") = x - other_gap + table[5];
  struct packing p = packing(op->zero_point, op->low, op->high);
  register Vector v29 __asm__("v29") = p.zero_point;
  register Vector v30 __asm__("v30") = p.low;
  register Vector v31 __asm__("v31") = p.high;
  __asm__ volatile(
#if defined(Q15) && STRIDE == 2
      "{m0=r21;p0=cmp.gt(r0,r0)}\n"
#else
      "{r7=#8;m0=r21;p0=cmp.gt(r0,r0)}\n"
#endif
      PLANES
      : "+&r"(r0), "+&r"(r1), "+&r"(r2), "+&r"(r3), "+&r"(r4), "+&r"(r5), "+&r"(r6), "+&r"(r20), "+&r"(r21),
        "+&r"(r22), "+&r"(r23), "+&r"(r24)
      : [x_gap] "r"(x_gap), [other_gap] "r"(other_gap),
        [y_gap] "r"(op->y_plane - op->vectors * VECTOR_BYTES), [bodies] "r"((op->vectors + 1) / 2),
#if defined(Q15) && STRIDE == 2
        "r"(r7),
#endif
        "v"(v29), "v"(v30), "v"(v31)
      :
#if !(defined(Q15) && STRIDE == 2)
        "r7",
#endif
        "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "r16", "r17", "r18", "r19", "p0", "p1",
        "m0", "lc0", "sa0", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10",
        "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24",
        "v25", "v26", "v27", "v28");
}

void NAME(const void *descriptor, const struct context *c) {
  const struct depthwise *op = descriptor;
  struct range planes = share(op->planes, c);
  if (planes.begin < planes.end) pipeline(op, c, planes);
}

#else

/* Accumulators that wait for requantisation, and where their pixels go. */
struct pending {
  Vector acc[4];
#ifdef POSITIONAL
  const Vector *positional; /* [vector][multiplier, shift] */
#else
  Vector multiplier[4], shift[4];
#endif
  Vector *y;
};

INLINE void finish(struct pending *last, struct packing p) {
#ifdef POSITIONAL
  Vector multiplier = last->positional[0], shift = last->positional[1];
  last->positional += 2;
  UNROLL for (int c = 0; c < 4; c++)
      last->acc[c] = requantize(Q6_Vw_vasl_VwVw(last->acc[c], shift), multiplier);
#else
#ifdef SHIFTED
  UNROLL for (int c = 0; c < 4; c++) last->acc[c] = Q6_Vw_vasl_VwVw(last->acc[c], last->shift[c]);
#endif
  UNROLL for (int c = 0; c < 4; c++) last->acc[c] = requantize(last->acc[c], last->multiplier[c]);
#endif
  *last->y++ = pack(last->acc, p);
}

/* From here on, accumulators of this plane. */
INLINE void enter_plane(struct pending *last, const struct depthwise *op, const struct context *c,
                        u32 plane) {
  last->y = (Vector *)(c->arena + op->y + plane * op->y_plane);
#ifdef POSITIONAL
  last->positional = (const Vector *)(c->weights + op->multiplier);
#else
  const s32 *multiplier = (const s32 *)(c->weights + op->multiplier) + plane * 4;
  UNROLL for (int k = 0; k < 4; k++) last->multiplier[k] = Q6_V_vsplat_R(multiplier[k]);
#ifdef SHIFTED
  const s32 *shift = (const s32 *)(c->weights + op->shift) + plane * 4;
  UNROLL for (int k = 0; k < 4; k++) last->shift[k] = Q6_V_vsplat_R(shift[k]);
#endif
#endif
}

#ifndef ROLLED

#ifndef UNROLLED /* vectors of the loop */
#define UNROLLED 1
#endif

enum { TAPS = QUADS * 4 + SINGLE, WORDS = (QUADS + SINGLE) * 4 };

INLINE void sum_taps(Vector acc[4], const Vector bias[4], const Unaligned *tap[TAPS], const u32 *weights) {
  UNROLL for (int c = 0; c < 4; c++) acc[c] = bias[c];
  UNROLL for (int q = 0; q < QUADS; q++) {
    Vector channel[4];
    Vector t0 = *tap[q * 4]++, t1 = *tap[q * 4 + 1]++, t2 = *tap[q * 4 + 2]++, t3 = *tap[q * 4 + 3]++;
    transpose(channel, t0, t1, t2, t3);
    UNROLL for (int c = 0; c < 4; c++)
        acc[c] = Q6_Vw_vrmpyacc_VwVubRb(acc[c], channel[c], weights[q * 4 + c]);
  }
#if SINGLE
  Vector last = *tap[QUADS * 4]++;
  UNROLL for (int c = 0; c < 4; c++) acc[c] = Q6_Vw_vrmpyacc_VwVubRb(acc[c], last, weights[QUADS * 4 + c]);
#endif
}

void NAME(const void *descriptor, const struct context *c) {
  const struct depthwise *op = descriptor;
  const u32 *multipliers = (const u32 *)(c->weights + op->multiplier);
  struct packing p = packing_of(op->zero_point, op->low, op->high, *multipliers);
  const s32 *table = (const s32 *)(c->weights + op->table);
  struct range planes = share(op->planes, c);
#ifndef VECTORS
  u32 vectors = op->vectors; /* a copy: clang must assume that a store through y changes *op */
#endif
  Vector nowhere, next[4], bias[4];
  u32 weights[WORDS];
  const Unaligned *tap[TAPS];
  struct pending last;
  enter_plane(&last, op, c, 0);
  last.y = &nowhere;
  UNROLL for (int k = 0; k < 4; k++) last.acc[k] = Q6_V_vzero();

  for (u32 plane = planes.begin; plane < planes.end; plane++) {
    const u8 *x = c->arena + op->x + plane * op->x_plane;
    const u32 *packed = (const u32 *)(c->weights + op->weights) + plane * WORDS;
    const s32 *words = (const s32 *)(c->weights + op->bias) + plane * 4;
    UNROLL for (int k = 0; k < WORDS; k++) weights[k] = packed[k];
    UNROLL for (int k = 0; k < TAPS; k++) tap[k] = (const Unaligned *)(x + table[k]);
    UNROLL for (int k = 0; k < 4; k++) bias[k] = Q6_V_vsplat_R(words[k]);
    sum_taps(next, bias, tap, weights);
    finish(&last, p); /* of the plane before; nothing, nowhere, for the first */
    enter_plane(&last, op, c, plane);
    UNROLL for (int k = 0; k < 4; k++) last.acc[k] = next[k];
#ifdef VECTORS
    UNROLL for (u32 v = 1; v < VECTORS; v++) {
#else
#pragma clang loop unroll_count(UNROLLED)
    for (u32 v = 1; v < vectors; v++) {
#endif
      sum_taps(next, bias, tap, weights);
      finish(&last, p);
      UNROLL for (int k = 0; k < 4; k++) last.acc[k] = next[k];
    }
  }
  finish(&last, p);
}

#else

void NAME(const void *descriptor, const struct context *c) {
  const struct depthwise *op = descriptor;
  const u32 *multipliers = (const u32 *)(c->weights + op->multiplier);
  struct packing p = packing_of(op->zero_point, op->low, op->high, *multipliers);
  const s32 *table = (const s32 *)(c->weights + op->table);
  u32 quads = op->quads, vectors = op->vectors;
  struct range planes = share(op->planes, c);
  struct pending last;

  for (u32 plane = planes.begin; plane < planes.end; plane++) {
    const u32 *weights = (const u32 *)(c->weights + op->weights) + plane * quads * 4;
    const s32 *bias = (const s32 *)(c->weights + op->bias) + plane * 4;
    enter_plane(&last, op, c, plane);
    for (u32 v = 0; v < vectors; v++) {
      const u8 *x = c->arena + op->x + plane * op->x_plane + v * VECTOR_BYTES;
      UNROLL for (int k = 0; k < 4; k++) last.acc[k] = Q6_V_vsplat_R(bias[k]);
      for (u32 q = 0; q < quads; q++) {
        Vector tap[4], channel[4];
        UNROLL for (int k = 0; k < 4; k++) tap[k] = *(const Unaligned *)(x + table[q * 4 + k]);
        transpose(channel, tap[0], tap[1], tap[2], tap[3]);
        UNROLL for (int k = 0; k < 4; k++)
            last.acc[k] = Q6_Vw_vrmpyacc_VwVubRb(last.acc[k], channel[k], weights[q * 4 + k]);
      }
      finish(&last, p);
    }
  }
}

#endif

#endif
