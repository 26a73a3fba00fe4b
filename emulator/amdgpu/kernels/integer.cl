// Integer kernels without a product: a scan, a histogram with atomics, a sort, and arithmetic alone.
#include "kernel.h"

// Inclusive prefix sum, modulo 2**32, of each 256 elements.
THREADS(256, 1) kernel void scan(global const u32 *input, global u32 *output) {
    local u32 sums[256];
    u32 lane = LANE;
    sums[lane] = input[GROUP * 256 + lane];
    sync();
    for (u32 distance = 1; distance < 256; distance *= 2) {
        u32 before = lane >= distance ? sums[lane - distance] : 0;
        sync();
        sums[lane] += before;
        sync();
    }
    output[GROUP * 256 + lane] = sums[lane];
}

// How often each value of a byte occurs; counted in LDS, then added to `bins` in memory.
THREADS(128, 1) kernel void histogram(global const u32 *data, global u32 *bins, u32 dwords) {
    local u32 counts[256];
    u32 lane = LANE;
    counts[lane] = counts[lane + 128] = 0;
    sync();
    for (u32 i = GROUP * 512 + lane; i < dwords && i < (GROUP + 1) * 512; i += 128)
        for (u32 shift = 0; shift < 32; shift += 8)
            __opencl_atomic_fetch_add((local atomic_uint *)&counts[data[i] >> shift & 255], 1, __ATOMIC_RELAXED,
                                      __OPENCL_MEMORY_SCOPE_WORK_GROUP);
    sync();
    for (u32 bin = lane; bin < 256; bin += 128)
        if (counts[bin])
            __opencl_atomic_fetch_add((global atomic_uint *)&bins[bin], counts[bin], __ATOMIC_RELAXED,
                                      __OPENCL_MEMORY_SCOPE_DEVICE);
}

// Each work-item sorts 24 elements of its own in scratch memory.
THREADS(64, 1) kernel void sort(global const s32 *input, global s32 *output) {
    volatile s32 sorted[24];
    u32 first = (GROUP * 64 + LANE) * 24;
#pragma nounroll
    for (s32 i = 0; i < 24; i++) {
        s32 value = input[first + i], place = i;
        while (place > 0 && sorted[place - 1] > value) {
            sorted[place] = sorted[place - 1];
            place--;
        }
        sorted[place] = value;
    }
    for (u32 i = 0; i < 24; i++)
        output[first + i] = sorted[i];
}

// Vector arithmetic and nothing else: two chains of a linear congruence, a shift and an exclusive or.
THREADS(64, 1) kernel void alu(global u32 *values, u32 rounds) {
    u32 item = GROUP * 64 + LANE, a = values[item], b = ~a;
    for (u32 i = 0; i < rounds; i++) {
        a = a * 1664525 + 1013904223;
        b = (b << 5) + (b ^ a >> 7);
        a ^= a << 13;
        b += a & 0x0f0f0f0f;
    }
    values[item] = a ^ b;
}
