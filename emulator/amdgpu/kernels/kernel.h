// What all kernels share: names for what the compiler offers. No device library is linked.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL FP_CONTRACT OFF

typedef unsigned char u8;
typedef signed char s8;
typedef unsigned int u32;
typedef int s32;
typedef int s32x2 __attribute__((ext_vector_type(2)));
typedef int s32x4 __attribute__((ext_vector_type(4)));
typedef int s32x8 __attribute__((ext_vector_type(8)));
typedef half f16x2 __attribute__((ext_vector_type(2)));
typedef half f16x8 __attribute__((ext_vector_type(8)));
typedef half f16x16 __attribute__((ext_vector_type(16)));
typedef float f32x8 __attribute__((ext_vector_type(8)));

#define LANE __builtin_amdgcn_workitem_id_x()
#define LANE_Y __builtin_amdgcn_workitem_id_y()
#define GROUP __builtin_amdgcn_workgroup_id_x()
#define GROUP_Y __builtin_amdgcn_workgroup_id_y()
#define GROUP_Z __builtin_amdgcn_workgroup_id_z()
#define THREADS(x, y) __attribute__((reqd_work_group_size(x, y, 1)))

// All waves of the workgroup are here, and what they wrote to LDS is there.
static inline void sync(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// rint(accumulator * scale) + zero point, half to even, clamped to u8.
static inline u32 requantise(s32 accumulator, float scale, s32 zero) {
    s32 value = (s32)__builtin_rintf((float)accumulator * scale) + zero;
    return (u32)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static inline u32 pack(u32 a, u32 b, u32 c, u32 d) { return a | b << 8 | c << 16 | d << 24; }
