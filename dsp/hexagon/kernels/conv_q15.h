/* Requantisation in q15 for conv.c's loop packet by packet: a packet a channel, and what else a vector of pixels
 * takes in the two units beside each multiplication. What finds no room there has plain packets: one at a group's
 * end, and one a vector where all bounds are to be kept, three if they differ by cell. The last vector is finished
 * in the first and last step of the next group. No packet narrows what the packet before has multiplied.
 *
 * -DFROM_ZERO: the zero-point and the lower bound are 0, which saturation to bytes obeys already; -DUNCLAMPED: the
 * bounds are those of bytes. A group of four vectors takes 17 packets with either; without both 21, or 29 with -DBOUNDED.
 */

/* Channels 0 and 2 in place, channels 1 and 3 to v25 and v26. */
#define SCALE0(v, also) "\n{" ACC##v##0 ".w=vmpye(" ACC##v##0 ".w,v20.uh)" also "}"
#define SCALE2(v, also) "\n{" ACC##v##2 ".w=vmpye(" ACC##v##2 ".w,v22.uh)" also "}"
#define SCALE1(v, also) "\n{v25.w=vmpye(" ACC##v##1 ".w,v21.uh)" also "}"
#define SCALE3(v, also) "\n{v26.w=vmpye(" ACC##v##3 ".w,v23.uh)" also "}"
/* Halfwords of channels 0 and 2 to v27, of channels 1 and 3 to v28, which then becomes the vector of pixels. */
#define EVEN(v) ";v27.h=vasr(" ACC##v##2 ".w," ACC##v##0 ".w,r7):rnd:sat"
#define ODD ";v28.h=vasr(v26.w,v25.w,r7):rnd:sat"
#define EVEN_ZERO ";v27.h=vadd(v27.h,v29.h):sat"
#define ODD_ZERO ";v28.h=vadd(v28.h,v29.h):sat"
#define BYTES ";v28.ub=vsat(v28.h,v27.h)"
#define ABOVE ";v28.ub=vmax(v28.ub,v30.ub)"
#define BELOW ";v28.ub=vmin(v28.ub,v31.ub)"
#define STORE ";if(p0)vmem(r4++#1)=v28.new"
#define PLAIN(first, also) "\n{" first also "}"

/* An accumulator at the bias again. */
#define AGAIN0(v) ";" ACC##v##0 "=v16"
#define AGAIN1(v) ";" ACC##v##1 "=v17"
#define AGAIN2(v) ";" ACC##v##2 "=v18"
#define AGAIN3(v) ";" ACC##v##3 "=v19"

/* Scalars: the next group's rows, and that from now on there is a vector to store. */
#define SCALARS0(V) ";r2=add(r3,#16);r0=add(r1,#(2*" #V "-1)*128)"
#define SCALARS1(V) ";r1=add(r1,#" #V "*128)"
#define SCALARS2(V) ";p0=cmp.eq(r0,r0)" STEP_LOOP(#V "b")

/* Below, ROW(v, w, ...) scales vector v and finishes vector w before it. PACK0 to PACK4 finish the last vector of
 * a group, as in q31, with AGAIN and LATE in the first step. */
#define PACK0 ODD
#define PACK2 BYTES
#define END "{nop" PACK0 "}\n{nop" PACK1 "}\n{nop" PACK2 "}\n{nop" PACK3 "}\n{nop" PACK4 "}\n"

#ifdef FROM_ZERO

#ifdef BOUNDED
#define HIGH ";v31=vmem(r5++#2)"
#else
#define HIGH ""
#endif
#define PACK1 ""
#define PACK3 ""
#define PACK4 BELOW STORE
#define AGAIN(v) AGAIN1(v) AGAIN3(v)
#define LATE ""

#define ROW0(V) \
  SCALE0(0, SCALARS0(V)) SCALE2(0, SCALARS1(V) HIGH) SCALE1(0, SCALARS2(V) AGAIN1(0)) SCALE3(0, EVEN(0) AGAIN3(0))
#define ROW(v, w, also2, also1)                                                                            \
  SCALE0(v, AGAIN0(w) AGAIN2(w)) SCALE2(v, ODD also2) SCALE1(v, BYTES also1) SCALE3(v, EVEN(v) BELOW STORE)
#define REST(v, also) PLAIN(ACC##v##0 "=v16", AGAIN2(v) HIGH also)
#define REQUANTIZE2 ROW0(2) ROW(1, 0, "", "") REST(1, "")
#define REQUANTIZE3 ROW0(3) ROW(1, 0, "", AGAIN1(1)) ROW(2, 1, AGAIN3(1), HIGH) REST(2, "")
#define REQUANTIZE4 \
  ROW0(4) ROW(1, 0, "", AGAIN1(1)) ROW(2, 1, AGAIN3(1), HIGH) ROW(3, 2, AGAIN1(2), HIGH) REST(3, AGAIN3(2))

#else

#define PACK1 ODD_ZERO

#ifdef UNCLAMPED

#define AGAIN(v) AGAIN3(v)
#define PACK3 ""
#define PACK4 ";if(p0)vmem(r4++#1)=v28"
#define LATE AGAIN3(2)

#define ROW0(V) \
  SCALE0(0, SCALARS0(V)) SCALE2(0, SCALARS1(V)) SCALE1(0, SCALARS2(V) AGAIN1(0)) SCALE3(0, EVEN(0) AGAIN3(0))
#define ROW(v, w)                                                                                      \
  SCALE0(v, EVEN_ZERO AGAIN0(w)) SCALE2(v, ODD AGAIN2(w)) SCALE1(v, ODD_ZERO AGAIN1(v))                \
  SCALE3(v, EVEN(v) BYTES STORE)
#define REST(v, also) PLAIN(ACC##v##0 "=v16", AGAIN2(v) EVEN_ZERO also)
#define REQUANTIZE2 ROW0(2) ROW(1, 0) REST(1, "")
#define REQUANTIZE3 ROW0(3) ROW(1, 0) ROW(2, 1) REST(2, AGAIN3(1))
#define REQUANTIZE4 ROW0(4) ROW(1, 0) ROW(2, 1) ROW(3, 2) REST(3, AGAIN3(1))

#else

#define PACK3 ABOVE
#define PACK4 BELOW STORE
#define AGAIN(v) ""
#define LATE ""

#ifdef BOUNDED
#define REST(v, also) \
  PLAIN(ACC##v##0 "=v16", AGAIN2(v) also) PLAIN("v30=vmem(r5++#1)", "") PLAIN("v31=vmem(r5++#1)", "")
#else
#define REST(v, also) PLAIN(ACC##v##0 "=v16", AGAIN2(v) also)
#endif
#define ROW0(V) \
  SCALE0(0, SCALARS0(V)) SCALE2(0, SCALARS1(V)) SCALE1(0, SCALARS2(V) AGAIN1(0)) SCALE3(0, EVEN(0)) REST(0, "")
#define ROW(v, w)                                                                            \
  SCALE0(v, ODD EVEN_ZERO) SCALE2(v, ODD_ZERO AGAIN3(w)) SCALE1(v, BYTES AGAIN1(v))          \
  SCALE3(v, EVEN(v) ABOVE) REST(v, BELOW STORE)
#define LAST(v) PLAIN(ACC##v##3 "=v19", EVEN_ZERO)
#define REQUANTIZE2 ROW0(2) ROW(1, 0) LAST(1)
#define REQUANTIZE3 ROW0(3) ROW(1, 0) ROW(2, 1) LAST(2)
#define REQUANTIZE4 ROW0(4) ROW(1, 0) ROW(2, 1) ROW(3, 2) LAST(3)

#endif
#endif
