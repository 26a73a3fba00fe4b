/* What the products of floats share: half arithmetic, places of elements, loads and stores.
 *
 * Tensors and constants are float16 or float32 in memory and float here. HALF_NATIVE: the device has
 * cl_khr_fp16. Without it the half arithmetic of sums is float arithmetic rounded to half after each operation. */
#pragma once

#define JOIN(a, b) JOINED(a, b)
#define JOINED(a, b) a##b
#define INLINE static inline __attribute__((always_inline))

#ifdef HALF_NATIVE
#define EACH _Pragma("unroll")
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
typedef half4 half_sums;
#define HALF_SUM(sum) (sum)
#define HALF_SUMS(x) convert_half4(x)
#else /* a CPU, for which unrolled loops are only more to compile */
#define EACH _Pragma("nounroll")
typedef float4 half_sums;
#define HALF_SUM(sum) rounded_to_half(sum)
#define HALF_SUMS(x) (x)

/* To the nearest half, ties to even, with its subnormals and infinities. */
INLINE float4 rounded_to_half(float4 x) {
  const uint4 sign = as_uint4(x) & 0x80000000u, size = as_uint4(x) ^ sign;
  const uint4 normal = (size + 0xfffu + ((size >> 13) & 1u)) & 0xffffe000u;
  const uint4 subnormal = as_uint4((as_float4(size) + 0.5f) - 0.5f); /* 0.5f has the last place of subnormals */
  uint4 found = select(normal, subnormal, size < 0x38800000u);
  found = select(found, (uint4)(0x7f800000u), found > 0x477fe000u);
  found = select(found, size, size > 0x7f800000u);
  return as_float4(found | sign);
}
#endif

/* Texels of four numbers: of images, or where the device has no such ones, of their buffers. */
#ifdef TEXELS_BUFFER
#define IMAGE(type) __global const type *restrict
#define TEXEL_half(p, at) vload_half4(at, p)
#define TEXEL_float(p, at) vload4(at, p)
#else
#define IMAGE(type) __read_only image1d_buffer_t
#define TEXEL_half(image, at) read_imagef(image, at)
#define TEXEL_float(image, at) read_imagef(image, at)
#endif
#if defined(TEXELS_BUFFER) || !defined(HALF_NATIVE)
#define READ_HALF_SUMS(image, at) HALF_SUMS(TEXEL_half(image, at))
#else
#define READ_HALF_SUMS(image, at) read_imageh(image, at)
#endif

/* Multiplied and added: the product of two halves is exact in float. */
#define HALF_STEP(a, b, sum) HALF_SUM((a) * (b) + (sum))
#define FLOAT_STEP(a, b, sum) ((a) * (b) + (sum))

#define BYTES_half 2
#define BYTES_float 4
#define FETCH_half(p, at) vload_half(at, p)
#define FETCH_float(p, at) (p)[at]
#define FETCH4_half(p, at) vload_half4(0, (p) + (at))
#define FETCH4_float(p, at) vload4(0, (p) + (at))
#define STORE_half(value, p, at) vstore_half_rte(value, at, p)
#define STORE_float(value, p, at) ((p)[at] = (value))
#define STORE4_half(value, p, at) vstore_half4_rte(value, 0, (p) + (at))
#define STORE4_float(value, p, at) vstore4(value, 0, (p) + (at))

/* Up to four elements, `step` from one to the next; the others are 0. */
#define DEFINE_FETCH(type) \
  INLINE float4 fetch_##type(__global const type *p, int at, int step, int count) { \
    if (step == 1 && count >= 4) return FETCH4_##type(p, at); \
    float4 found = 0; \
    if (count > 0) found.x = FETCH_##type(p, at); \
    if (count > 1) found.y = FETCH_##type(p, at + step); \
    if (count > 2) found.z = FETCH_##type(p, at + 2 * step); \
    if (count > 3) found.w = FETCH_##type(p, at + 3 * step); \
    return found; \
  }
#define DEFINE_STORE(type) \
  INLINE void store_##type(float4 value, __global type *p, int at, int step, int count) { \
    if (step == 1 && count >= 4) { \
      STORE4_##type(value, p, at); \
      return; \
    } \
    if (count > 0) STORE_##type(value.x, p, at); \
    if (count > 1) STORE_##type(value.y, p, at + step); \
    if (count > 2) STORE_##type(value.z, p, at + 2 * step); \
    if (count > 3) STORE_##type(value.w, p, at + 3 * step); \
  }
DEFINE_FETCH(half)
DEFINE_FETCH(float)
DEFINE_STORE(half)
DEFINE_STORE(float)

/* Steps from one picture, row, column, channel and batch to the next: in elements, in an image in texels. */
struct place {
  int picture, row, column, channel, batch[3];
};

/* Of y: its first channel, and how many of four exist. */
struct element {
  int picture, row, column, channel, count, batch[3];
};

INLINE int place_of(const struct place *p, const struct element *e) {
  return e->picture * p->picture + e->row * p->row + e->column * p->column + e->channel * p->channel +
         e->batch[0] * p->batch[0] + e->batch[1] * p->batch[1] + e->batch[2] * p->batch[2];
}

/* Taps of a window, and the rows and columns of what it slides over. */
struct taps {
  int rows, columns, stride_y, stride_x, step_y, step_x, top, left, height, width;
};
