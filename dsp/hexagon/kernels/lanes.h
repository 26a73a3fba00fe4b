/* Pointwise convolution with a channel a lane: a vector is 32 channels of a pixel; a word of the input, which is four
 * channels of a pixel, is a scalar. Pictures of few pixels, whose planes end within a vector, leave no lane unused.
 *
 * dsp/hexagon/lane_packets.py generates the packets for a group of 16 cells, in which the pixels are a row of 14 or two
 * rows of 7 and the like, and defines NAME, PIXELS, STEPS, MIDDLE and PACKETS before it includes this. A unit is a group
 * by a block of 32 channels: its pixels' accumulators take four channels a step. The weights are bytes without sign,
 * with 128 added; `sums` holds for each pixel a vector of what that adds (lane_sums.c).
 *
 *   v0..v13   accumulators
 *   v14, v15  zero; the zero-point
 *   v16, v17  the clamp
 *   v18, v19  the next unit's bias; the unit's multipliers
 *   v20, v21  the weights of an even and of an odd step
 *   v22..v25  words, v26, v27 halfwords, v28..v31 bytes, on their way to planes
 *   r0, r1    the rows of planes 0..3 and 4..7 of the block, or the other way round: the first is stored as it comes,
 *             the second turned by 64 bytes
 *   r2, r3    the output's rows of the next group, and of the one after it
 *   r4, r5    four planes; how far words are narrowed in q15
 *   r6, r7    by what vectors are shuffled, and r31 by what they are turned
 *   r8..r21   words of pixels; before the loops r8 and r9 the strides of the input's and output's planes, r10 units
 *   r22, r23  where these words are; where the next unit's first are
 *   r24       weights; r25 and r27 those of the first block, and behind the last
 *   r26, r28  the next unit's sums; from a group's to the next's
 *   p0, p1    the next unit, this unit, is the first of its group
 *   q0        the group's half of a vector; none before the first
 */
#include "kernels.h"

enum { BLOCK_PLANES = VECTOR_PIXELS / 4, GROUP_BYTES = GROUP_CELLS * 4 };

#ifdef Q15 /* in the upper halfword of each multiplier; see hvx.h */
#define NARROWING(weights) (*(const u32 *)((weights) + VECTOR_BYTES) >> 16)
#else
#define NARROWING(weights) 0
#endif

void NAME(const void *descriptor, const struct context *c) {
  const struct lanes *op = descriptor;
  struct range units = share(op->groups * op->blocks, c);
  if (units.begin == units.end) return;
  u32 group = 0, block = units.begin;
  for (; block >= op->blocks; block -= op->blocks) group++;
  const u8 *weights = c->weights + op->weights;
  u32 block_bytes = (STEPS + 2) * VECTOR_BYTES;
  const u8 *x = c->arena + op->x + group * GROUP_BYTES;
  u8 *y = c->arena + op->y + group * GROUP_BYTES;
  struct packing p = packing(op->zero_point, op->low, op->high);
  register u8 *r2 __asm__("r2") = y + block * BLOCK_PLANES * op->y_plane;
  register u8 *r3 __asm__("r3") = y + GROUP_BYTES;
  register u32 r4 __asm__("r4") = 4 * op->y_plane;
  register u32 r5 __asm__("r5") = NARROWING(weights);
  register u32 r8 __asm__("r8") = op->x_plane;
  register u32 r9 __asm__("r9") = op->y_plane;
  register u32 r10 __asm__("r10") = units.end - units.begin;
  register const u8 *r23 __asm__("r23") = x;
  register const u8 *r24 __asm__("r24") = weights + block * block_bytes;
  register const u8 *r25 __asm__("r25") = weights;
  register const u8 *r26 __asm__("r26") = c->arena + op->sums + (group * PIXELS + MIDDLE) * VECTOR_BYTES;
  register const u8 *r27 __asm__("r27") = weights + op->blocks * block_bytes;
  register Vector v15 __asm__("v15") = p.zero_point;
  register Vector v16 __asm__("v16") = p.low;
  register Vector v17 __asm__("v17") = p.high;
  __asm__ volatile(PACKETS
                   : "+&r"(r2), "+&r"(r3), "+&r"(r4), "+&r"(r5), "+&r"(r8), "+&r"(r9), "+&r"(r10), "+&r"(r23), "+&r"(r24),
                     "+&r"(r25), "+&r"(r26), "+&r"(r27)
                   : "v"(v15), "v"(v16), "v"(v17)
                   : "r0", "r1", "r6", "r7", "r11", "r12", "r13", "r14", "r15", "r16", "r17", "r18", "r19",
                     "r20", "r21", "r22", "r28", "r31", "p0", "p1", "p2", "q0", "m0", "m1", "lc0", "sa0", "lc1", "sa1",
                     "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",
                     "v13", "v14", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28",
                     "v29", "v30", "v31");
}
