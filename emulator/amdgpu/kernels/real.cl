// Floating point: softmax, and matrix products c[m][n] = sum over k of a[m][k] * b[k][n] (f16: b[n][k]).
#include "kernel.h"

#define LOG2_E 1.44269504088896341f

// Softmax of rows of `columns`; a workgroup a row.
THREADS(64, 1) kernel void softmax(global const float *input, global float *output, u32 columns) {
    local float shared_by_all[64];
    u32 lane = LANE;
    global const float *row = input + GROUP * columns;
    global float *result = output + GROUP * columns;
    float largest = -__builtin_inff();
    for (u32 i = lane; i < columns; i += 64)
        largest = __builtin_fmaxf(largest, row[i]);
    shared_by_all[lane] = largest;
    sync();
    for (u32 half_of = 32; half_of; half_of /= 2) {
        if (lane < half_of)
            shared_by_all[lane] = __builtin_fmaxf(shared_by_all[lane], shared_by_all[lane + half_of]);
        sync();
    }
    largest = shared_by_all[0];
    sync();
    float sum = 0;
    for (u32 i = lane; i < columns; i += 64)
        sum += __builtin_amdgcn_exp2f((row[i] - largest) * LOG2_E);
    shared_by_all[lane] = sum;
    sync();
    for (u32 half_of = 32; half_of; half_of /= 2) {
        if (lane < half_of)
            shared_by_all[lane] += shared_by_all[lane + half_of];
        sync();
    }
    sum = shared_by_all[0];
    for (u32 i = lane; i < columns; i += 64)
        result[i] = __builtin_amdgcn_exp2f((row[i] - largest) * LOG2_E) / sum;
}

// f32; a workgroup makes 16 x 16, a work-item an element, with fused multiply-adds in the order of k.
THREADS(16, 16) kernel void matmul_f32(global const float *a, global const float *b, global float *c, u32 n,
                                       u32 k) {
    local float tile_a[16][16], tile_b[16][17];
    u32 x = LANE, y = LANE_Y, row = GROUP_Y * 16 + y, column = GROUP * 16 + x;
    float sum = 0;
    for (u32 step = 0; step < k; step += 16) {
        tile_a[y][x] = a[row * k + step + x];
        tile_b[y][x] = b[(step + y) * n + column];
        sync();
        for (u32 i = 0; i < 16; i++)
            sum = __builtin_fmaf(tile_a[y][i], tile_b[i][x], sum);
        sync();
    }
    c[row * n + column] = sum;
}

// f16 throughout, accumulation too: pairs of k in packed instructions, added at the end.
THREADS(16, 16) kernel void matmul_f16(global const f16x2 *a, global const f16x2 *b, global half *c, u32 n,
                                       u32 k) {
    u32 row = GROUP_Y * 16 + LANE_Y, column = GROUP * 16 + LANE;
    f16x2 sum = 0;
    for (u32 i = 0; i < k / 2; i++)
        sum = __builtin_elementwise_fma(a[row * (k / 2) + i], b[column * (k / 2) + i], sum);
    c[row * n + column] = sum.x + sum.y;
}

// f16 in, f32 out; a wave makes 16 x 16 with the matrix instruction of its generation.
THREADS(32, 1) kernel void matmul_f16_wmma(global const half *a, global const half *b, global float *c, u32 n,
                                           u32 k) {
    u32 lane = LANE, within = lane % 16, upper = lane / 16;
    u32 first_m = GROUP_Y * 16, first_n = GROUP * 16;
    f32x8 sum = 0;
    for (u32 step = 0; step < k; step += 16) {
#ifdef __GFX12__
        f16x8 left = *(global const f16x8 *)(a + (first_m + within) * k + step + 8 * upper);
        f16x8 right = *(global const f16x8 *)(b + (first_n + within) * k + step + 8 * upper);
        sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(left, right, sum);
#else
        f16x16 left = *(global const f16x16 *)(a + (first_m + within) * k + step);
        f16x16 right = *(global const f16x16 *)(b + (first_n + within) * k + step);
        sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(left, right, sum);
#endif
    }
    for (u32 i = 0; i < 8; i++) {
#ifdef __GFX12__
        u32 row = i + 8 * upper;
#else
        u32 row = 2 * i + upper;
#endif
        c[(first_m + row) * n + first_n + within] = sum[i];
    }
}
