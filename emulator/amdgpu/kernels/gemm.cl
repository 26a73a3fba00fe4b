// int8 matrix products: c[m][n] = sum over k of a[m][k] * b[n][k].
#include "kernel.h"

#define TILE 64
#define STEP 8 // dwords of k

// u8 times s8. A workgroup makes 64 x 64 of c, a work-item 4 x 4, from tiles in LDS. k a multiple of 32.
THREADS(256, 1) kernel void gemm_dot4(global const u32 *a, global const u32 *b, global s32 *c, u32 n, u32 k) {
    local u32 tile_a[STEP][TILE], tile_b[STEP][TILE];
    u32 lane = LANE, row = lane / 16 * 4, column = lane % 16 * 4, dwords = k / 4;
    u32 first_m = GROUP_Y * TILE, first_n = GROUP * TILE;
    s32 sum[4][4] = {};
    for (u32 step = 0; step < dwords; step += STEP) {
        for (u32 i = lane; i < TILE * STEP; i += 256) {
            tile_a[i % STEP][i / STEP] = a[(first_m + i / STEP) * dwords + step + i % STEP];
            tile_b[i % STEP][i / STEP] = b[(first_n + i / STEP) * dwords + step + i % STEP];
        }
        sync();
        for (u32 j = 0; j < STEP; j++)
            for (u32 y = 0; y < 4; y++)
                for (u32 x = 0; x < 4; x++)
                    sum[y][x] = __builtin_amdgcn_sudot4(
                        0, tile_a[j][row + y], 1, tile_b[j][column + x], sum[y][x], 0);
        sync();
    }
    for (u32 y = 0; y < 4; y++)
        for (u32 x = 0; x < 4; x++)
            c[(first_m + row + y) * n + first_n + column + x] = sum[y][x];
}

// u8 times s8. A wave makes 16 x 16 of c with the matrix instruction of its generation. k a multiple of 16.
THREADS(32, 1) kernel void gemm_wmma(global const u8 *a, global const s8 *b, global s32 *c, u32 n, u32 k) {
    u32 lane = LANE, within = lane % 16, upper = lane / 16;
    u32 first_m = GROUP_Y * 16, first_n = GROUP * 16;
    s32x8 sum = 0;
    for (u32 step = 0; step < k; step += 16) {
#ifdef __GFX12__
        u32 part = upper * 8;
        s32x2 left = *(global const s32x2 *)(a + (first_m + within) * k + step + part);
        s32x2 right = *(global const s32x2 *)(b + (first_n + within) * k + step + part);
        sum = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(0, left, 1, right, sum, 0);
#else
        s32x4 left = *(global const s32x4 *)(a + (first_m + within) * k + step);
        s32x4 right = *(global const s32x4 *)(b + (first_n + within) * k + step);
        sum = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(0, left, 1, right, sum, 0);
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
