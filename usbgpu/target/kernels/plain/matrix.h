// Operands of WMMA, 16 x 16 x 16 of float16 or bfloat16 with sums in float32: how lanes hold and load them.
//
// A lane ends with eight rows of A in a column of B: on gfx11 register i of lane l is row 2 i + l / 16, so that
// number 8 (r % 2) + r / 2 of a tile is in row r; on gfx12 it is row i + 8 (l / 16), and a lane of an operand has
// only half of the k. Macros: X: half or bf16. `upper` is l / 16.
#pragma once

#include "plain/orders.h"
#include "plain/plain.h"

#ifdef __GFX12__
#define HELD 8 // of k, in a lane
#define FIRST (upper * 8)
#define ROW(row) (row)
typedef u32x4 operand;
#else
#define HELD 16
#define FIRST 0
#define ROW(row) (8 * (row % 2) + row / 2)
typedef u32x8 operand;
#endif
#define WORDS (HELD / 2)

#if defined __GFX12__
typedef half half_operand __attribute__((ext_vector_type(8)));
typedef short bf16_operand __attribute__((ext_vector_type(8)));
#define WMMA_half __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12
#define WMMA_bf16 __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12
#else
typedef half half_operand __attribute__((ext_vector_type(16)));
typedef short bf16_operand __attribute__((ext_vector_type(16)));
#define WMMA_half __builtin_amdgcn_wmma_f32_16x16x16_f16_w32
#define WMMA_bf16 __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32
#endif
#define AS_OPERAND(x) __builtin_bit_cast(PASTE(X, _operand), x)
#define WMMA(a, b, c) PASTE(WMMA_, X)(AS_OPERAND(a), AS_OPERAND(b), c)

// What a lane holds of 16 k: of each of `count` operands, from `lane` on. k are `stride` elements apart.
static inline void load(operand *result, u32 count, u32 order, buffer from, const u32 *lane, u32 k,
                        u32 stride) {
    if (order == ALONG) {
        for (u32 j = 0; j < count; j++) {
#ifdef __GFX12__
            result[j] = load_u32x4(from, lane[j], k * 2);
#else
            u32x4 low = load_u32x4(from, lane[j], k * 2), high = load_u32x4(from, lane[j] + 16, k * 2);
            result[j] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
#endif
        }
        return;
    }
    for (u32 i = 0; i < WORDS; i++) {
        u32 even = (k + 2 * i) * stride * 2, odd = even + stride * 2;
        if (order == ACROSS && count > 1) {
            u32x2 low, high;
            if (count == 2) {
                low.x = load_u32(from, lane[0], even), high.x = load_u32(from, lane[0], odd);
            } else {
                low = load_u32x2(from, lane[0], even), high = load_u32x2(from, lane[0], odd);
            }
            for (u32 j = 0; j < count; j++) // the lower halves, or the upper ones
                result[j][i] = __builtin_amdgcn_perm(high[j / 2], low[j / 2], j % 2 ? 0x07060302 : 0x05040100);
        } else {
            for (u32 j = 0; j < count; j++) {
                u32 low = (u16)load_u16(from, lane[j], even), high = (u16)load_u16(from, lane[j], odd);
                result[j][i] = low | high << 16;
            }
        }
    }
}
