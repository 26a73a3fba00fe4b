/* What all kernels share: how texels are read and written, and where a tensor has them (dsp/adreno/plan.py).
 *
 * Everything named in a struct is a constant at each call, and everything is inlined: what does not depend on
 * the work-item costs nothing. */

#pragma OPENCL FP_CONTRACT OFF /* a product and its sum are two roundings */

#define INLINE static inline __attribute__((always_inline)) /* before any loop is looked at */
#define TABLES __global const int4 *

/* -- dot products ---------------------------------------------------------------------------------------- */

/* Four weights signed, four activations unsigned, by a device's own instruction; as these are said to do it:
 * - dot_acc_sat_4x8packed_su_int (grade: cl_khr_integer_dot_product in the OpenCL C specification);
 * - qcom_dot8_acc (grade: published, Qualcomm's sample qcom_dot_product8.cpp and OpenCL guide, 9.5.1).
 * Both saturate, where mad24 wraps: `dots` says of which layers no sum can leave 32 bits. */
#if defined(DOT_PRODUCT_KHR)
#pragma OPENCL EXTENSION cl_khr_integer_dot_product : enable
#define DOT_PRODUCT dot_acc_sat_4x8packed_su_int
#elif defined(DOT_PRODUCT_QCOM)
#pragma OPENCL EXTENSION cl_qcom_dot_product8 : enable
#define DOT_PRODUCT qcom_dot8_acc
#endif

/* -- texels ---------------------------------------------------------------------------------------------- */

/* Where there are dot products, activations and the weights of their layers are words: a texel of an image is
 * one number of 32 bits, CL_R and CL_UNSIGNED_INT32, with the same four bytes in it. */
#ifdef ACTIVATIONS_BUFFER
#define SOURCE __global const uchar4 *
#define TARGET __global uchar4 *
#define WEIGHTS __global const short4 *
#define load(source, x, y, pitch) convert_int4((source)[mad24(y, pitch, x)])
#define load_weights(weights, x, y, pitch) convert_int4((weights)[mad24(y, pitch, x)])
#define load_word(source, x, y, pitch) as_uint((source)[mad24(y, pitch, x)])
#define load_word_of_weights(weights, x, y, pitch) (((__global const uint *)(weights))[mad24(y, pitch, x)])
#define store(target, x, y, pitch, texel) ((target)[mad24(y, pitch, x)] = convert_uchar4(texel))
#else
#define SOURCE __read_only image2d_t
#define TARGET __write_only image2d_t
#define WEIGHTS __read_only image2d_t
#define load_weights(weights, x, y, pitch) read_imagei(weights, (int2)(x, y))
#define load_word(source, x, y, pitch) read_imageui(source, (int2)(x, y)).s0
#define load_word_of_weights load_word
#ifdef DOT_PRODUCT
#define load(source, x, y, pitch) convert_int4(as_uchar4(load_word(source, x, y, pitch)))
#define store(target, x, y, pitch, texel) \
  write_imageui(target, (int2)(x, y), (uint4)(as_uint(convert_uchar4(texel)), 0, 0, 0))
#else
#define load(source, x, y, pitch) as_int4(read_imageui(source, (int2)(x, y)))
#define store(target, x, y, pitch, texel) write_imageui(target, (int2)(x, y), as_uint4(texel))
#endif
#endif

/* `fold` of `blocks` blocks of four channels lie side by side, a power of two: 1 unless an image would be too
 * high. */
struct picture {
  int blocks, height, width, fold, pitch;
};

INLINE int column(const struct picture p, int block, int w) {
  return mad24(block & (p.fold - 1), p.width, w);
}

INLINE int row(const struct picture p, int block, int h) {
  return mad24((int)((uint)block / (uint)p.fold), p.height, h);
}

INLINE int4 texel(SOURCE x, const struct picture p, int block, int h, int w) {
  return load(x, column(p, block, w), row(p, block, h), p.pitch);
}

INLINE int component(int4 texel, int channel) {
  const int2 pair = channel & 2 ? texel.zw : texel.xy;
  return channel & 1 ? pair.y : pair.x;
}

/* -- requantisation: the arithmetic f32 of `sdk.reference` ---------------------------------------------- */

/* A result less its zero-point lies between `low` and `high`. */
struct range {
  float low, high, zero_point;
};

/* Less the zero-point. */
INLINE float4 scaled(int4 sum, float4 scale, const struct range out) {
  return clamp(rint(convert_float4(sum) * scale), out.low, out.high);
}

/* Of two operands less their zero-points. */
INLINE int4 added(float4 a, float a_ratio, float4 b, float b_ratio, const struct range out) {
  return convert_int4(clamp(rint(a * a_ratio + b * b_ratio), out.low, out.high) + out.zero_point);
}

INLINE int4 looked_up(TABLES tables, int at, int4 q) {
  __global const uchar *table = (__global const uchar *)(tables + at);
  return (int4)(table[q.x], table[q.y], table[q.z], table[q.w]);
}
