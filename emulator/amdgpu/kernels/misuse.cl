// Kernels that go wrong.
#include "kernel.h"

// Writes where the argument says, whether or not anything is there.
THREADS(32, 1) kernel void store(global u32 *where, u32 value) { where[LANE] = value; }

// Never ends, unless memory says so.
THREADS(32, 1) kernel void spin(global volatile u32 *flag) {
    while (!*flag)
        __builtin_amdgcn_s_sleep(1);
}

// An instruction for pixels, which no compute shader has: the model does not implement it.
THREADS(32, 1) kernel void unknown_instruction(global u32 *where) {
    where[LANE] = 1;
    __asm__ volatile("v_interp_p10_f32 v0, v1, v2, v3" ::: "v0");
}
