"""Results that the RDNA3 and RDNA4 ISA manuals, or LLVM's encoding of constants, state: literal bits, from no
model of ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.emit import Mode
from emulator.amdgpu.isa.operands import EXEC, VCC
from tests.unit.amdgpu_lanes import Bench, decode

CHIPS = ("gfx1100", "gfx1201")
OLD = 0xDEADBEEF
"""What the destination, v40, holds before."""
PLAIN = Mode()
FLUSH = Mode(denorm=0, denorm64=0, ieee=False)
QUIET = Mode(ieee=False)


@dataclass(frozen=True)
class Row:
    """An instruction, what v4, v8 and v12 hold, and what v40 holds after it, or s20."""

    text: str
    sources: tuple[int, ...]
    result: int
    mode: Mode = PLAIN
    vcc: int = 0
    chips: tuple[str, ...] = CHIPS
    flag: int | None = None


def rows(text: str, *cases: tuple[int, ...], **options) -> list[Row]:
    """Of one instruction: sources, then the result."""
    return [Row(text, case[:-1], case[-1], **options) for case in cases]


def unary(name: str, *cases: tuple[int, int], **options) -> list[Row]:
    return rows(f"{name} v40, v4", *cases, **options)


def binary(name: str, *cases: tuple[int, int, int], **options) -> list[Row]:
    return rows(f"{name} v40, v4, v8", *cases, **options)


def ternary(name: str, *cases: tuple[int, int, int, int], **options) -> list[Row]:
    return rows(f"{name} v40, v4, v8, v12", *cases, **options)


ONE, TWO, INF, NAN, SNAN = 0x3F800000, 0x40000000, 0x7F800000, 0x7FC00000, 0x7F800001
MINUS = 0x80000000
PACKED = 0x00030005

TABLE = [
    # VOP1's functional examples
    *unary("v_sin_f32", (0xFF7FFFFF, 0), (MINUS, MINUS), (0x3E800000, ONE), (0x43808000, 0),
           (0x43804000, 0), (0x438A2000, ONE), (1, 6)),  # 257, 256.5, 276.25, the least denormal
    *unary("v_cos_f32", (0xFF7FFFFF, ONE), (MINUS, ONE), (0x3E800000, 0), (0x43804000, 0xBF800000)),
    *unary("v_rcp_f32", (0xFF800000, MINUS), (0xC0000000, 0xBF000000), (MINUS, 0xFF800000), (1, INF),
           (0x7F000000, 0)),  # denormals are flushed
    *unary("v_rsq_f32", (MINUS, 0xFF800000), (0x40800000, 0x3F000000), (INF, 0)),
    *unary("v_exp_f32", (0xFF800000, 0), (MINUS, ONE), (INF, INF), (0xC2FE0000, 0)),
    *unary("v_log_f32", (MINUS, 0xFF800000), (ONE, 0), (1, 0xFF800000)),
    *unary("v_sqrt_f32", (MINUS, MINUS), (0x40800000, TWO), (1, 0)),
    *unary("v_clz_i32_u32", (0, 0xFFFFFFFF), (0x800000FF, 0), (0x100000FF, 3), (0xFFFF, 16), (1, 31)),
    *unary("v_ctz_i32_b32", (0, 0xFFFFFFFF), (0xFF000008, 3), (0xFFFF0000, 16), (MINUS, 31)),
    *unary("v_cls_i32", (0, 0xFFFFFFFF), (0x40000000, 1), (0x0FFFFFFF, 4), (0xFFFF0000, 16),
           (0xFFFFFFFE, 31), (0xFFFFFFFF, 0xFFFFFFFF)),
    *unary("v_fract_f32", (0xB3000000, 0x3F7FFFFF), (0xBF99999A, 0x3F4CCCCC)),  # -2^-25; -1.2 has 0.8
    *unary("v_rndne_f32", (0x3F000000, 0), (0x3FC00000, TWO), (0x40200000, TWO), (0xBF000000, MINUS)),
    *unary("v_frexp_exp_i32_f32", (INF, 0), (NAN, 0), (0, 0), (ONE, 1), (1, 0xFFFFFF6C)),
    *unary("v_frexp_mant_f32", (INF, INF), (0x41200000, 0x3F200000), (MINUS, MINUS)),
    *unary("v_cvt_i32_f32", (NAN, 0), (INF, 0x7FFFFFFF), (0xFF800000, MINUS), (0xBFFFFFFF, 0xFFFFFFFF)),
    *unary("v_cvt_u32_f32", (NAN, 0), (INF, 0xFFFFFFFF), (0xBF800000, 0), (0x4F7FFFFF, 0xFFFFFF00)),
    *unary("v_cvt_off_f32_i4", (8, 0xBF000000), (15, 0xBD800000), (7, 0x3EE00000), (0xFFFFFFF0, 0)),
    *unary("v_permlane64_b32", (5, OLD)),  # a v_nop in wave32
    # Selection, shifts and fields
    *ternary("v_perm_b32", (0x8A7B6C5D, 0x1F2E80C0, 0x0F0D0C0B, 0xFFFF00FF), (0x8A7B6C5D, 0x1F2E80C0,
             0x0A090807, 0x0000FF8A), (1, 2, 0x04000401, 0x01020100)),
    *rows("v_perm_b32 v40, v4, v8, 2.0", (0x11223344, 0x55667788, 0xFF888888)),
    *ternary("v_bfe_u32", (0xFFFFFFFF, 4, 0, 0), (0xFFFFFFFF, 4, 32, 0), (0xABCD1234, 36, 8, 0x23)),
    *ternary("v_bfe_i32", (0xFFFFFFFF, 4, 0, 0), (0x000000F0, 4, 4, 0xFFFFFFFF), (0x70, 4, 4, 7)),
    *ternary("v_alignbyte_b32", (0x11223344, 0x55667788, 7, 0x22334455)),
    *ternary("v_alignbit_b32", (0x11223344, 0x55667788, 36, 0x45566778)),
    *binary("v_lshlrev_b32", (33, 1, 2)),
    *binary("v_ashrrev_i32", (63, MINUS, 0xFFFFFFFF)),
    *rows("v_cndmask_b16 v40, v4, -v8, vcc_lo", (0x1111, 0x2222, 0xDEADA222), vcc=1),
    *rows("v_mbcnt_lo_u32_b32 v40, v4, v8", (0xFFFFFFFF, 5, 5)),
    *rows("v_readlane_b32 s20, v4, 32", (7, OLD), flag=7),  # lane 0
    # Carries
    *rows("v_mad_u64_u32 v[40:41], s20, v4, v8, -1", (2, 3, 5), flag=1, chips=CHIPS[:1]),
    *rows("v_mad_co_u64_u32 v[40:41], s20, v4, v8, -1", (2, 3, 5), flag=1, chips=CHIPS[1:]),
    *rows("v_add_co_ci_u32 v40, s20, v4, v8, vcc_lo", (0xFFFFFFFF, 0, 0), vcc=1, flag=1),
    *rows("v_sub_co_ci_u32 v40, s20, v4, v8, vcc_lo", (0, 0, 0xFFFFFFFF), vcc=1, flag=1),
    # Floats
    *binary("v_mul_dx9_zero_f32", (MINUS, INF, 0), (NAN, MINUS, 0)),
    *ternary("v_fma_dx9_zero_f32", (0, INF, MINUS, MINUS), (NAN, 0, ONE, ONE)),
    *ternary("v_med3_f32", (MINUS, 0, 0xBF800000, 0), (0xBF800000, MINUS, 0, 0), (ONE, TWO, NAN, ONE),
             chips=CHIPS[:1]),
    *ternary("v_med3_num_f32", (MINUS, 0, 0xBF800000, 0), (ONE, TWO, NAN, ONE), chips=CHIPS[1:]),
    *binary("v_min_f32", (SNAN, ONE, 0x7FC00001), (ONE, SNAN, 0x7FC00001), (NAN, ONE, ONE), (0, MINUS, MINUS),
            chips=CHIPS[:1]),
    *binary("v_min_f32", (SNAN, ONE, ONE), (ONE, SNAN, ONE), mode=QUIET, chips=CHIPS[:1]),
    *binary("v_max_num_f32", (SNAN, ONE, ONE), (ONE, NAN, ONE), (MINUS, 0, 0), chips=CHIPS[1:]),
    *binary("v_maximum_f32", (ONE, 0x7FC00123, 0x7FC00123), (MINUS, 0, 0), chips=CHIPS[1:]),
    *binary("v_ldexp_f32", (ONE, 128, INF), (ONE, 0xFFFFFF6B, 1), (ONE, 0xFFFFFF6A, 0), (MINUS, 5, MINUS)),
    # Division. div_fmas' 2^64 and 2^-64, and 1 / 2^127: a published test suite that compares with gfx1100
    *rows("v_div_scale_f32 v40, s20, v4, v8, v12", (ONE, ONE, 0x7F7FFFFF, 0x5F800000),
          (ONE, 0x7F000000, ONE, ONE), flag=1),
    *rows("v_div_scale_f32 v40, s20, v4, v8, v12", (ONE, 0x40800000, ONE, ONE),
          (0x00800000, 0x01000000, 0x00800000, 0x20800000), flag=0),
    *ternary("v_div_fmas_f32", (TWO, 0x40400000, ONE, 0x20E00000), (ONE, ONE, TWO, 0x60400000),
             vcc=0xFFFFFFFF),
    *ternary("v_div_fmas_f32", (1, 0x71800000, 0, 0x27000000), mode=FLUSH),  # 2^-149 * 2^100
    *ternary("v_div_fixup_f32", (ONE, 0, 0, 0xFFC00000), (ONE, INF, 0xFF800000, 0xFFC00000),
             (ONE, MINUS, ONE, 0xFF800000), (0xBF800000, TWO, TWO, ONE), (ONE, ONE, SNAN, 0x7FC00001)),
    # Classes: one bit each
    *[row for bit, bits in enumerate((SNAN, NAN, 0xFF800000, 0xBF800000, 0x80000001, MINUS, 0, 1, ONE, INF))
      for row in (Row("v_cmp_class_f32 s20, v4, v8", (bits, 1 << bit), OLD, flag=1),
                  Row("v_cmp_class_f32 s20, v4, v8", (bits, 0x3FF & ~(1 << bit)), OLD, flag=0))],
    # Pairs: a float constant is an f32 among integers, the low half among floats
    *rows("v_pk_add_u16 v40, v4, 2.0", (PACKED, 0x40030005)),
    *rows("v_pk_add_f16 v40, v4, 1.0", (0x3C003C00, 0x3C004000)),
    *rows("v_pk_mul_f16 v40, v4, 2.0", (0x44004200, 0x00004600)),
    *rows("v_dot2_f32_bf16 v40, v4, 2.0, v12", (0x3F803F80, 0, ONE, 0x40400000)),
    *rows("v_dot2_bf16_bf16 v40, v4, v8, 2.0", (0x3F803F80, 0x3F803F80, OLD & 0xFFFF0000 | 0x4080)),
    *rows("v_fma_mix_f32 v40, v4, v8, |v12| op_sel_hi:[0,0,1]", (0, ONE, 0xBC00, ONE)),
    *rows("v_fma_mix_f32 v40, v4, v8, v12 op_sel:[0,0,1] op_sel_hi:[0,0,1]",
          (ONE, 0x40400000, 0x40000000, 0x40A00000)),
    *rows("v_fma_mixlo_f16 v40, v4, v8, v12", (TWO, 0x40400000, ONE, OLD & 0xFFFF0000 | 0x4700)),
    *rows("v_pack_b32_f16 v40, v4, v8 op_sel:[0,1,0]", (0x40003C00, 0x44004200, 0x44003C00)),
    # Dot products: neg_lo makes bytes signed; clamp
    *rows("v_dot4_i32_iu8 v40, v4, v8, v12 neg_lo:[1,0,0]", (0xFF, 0xFF, 0, 0xFFFFFF01)),
    *rows("v_dot4_i32_iu8 v40, v4, v8, v12 neg_lo:[1,0,0] clamp", (0x7F, 0xFF, 0x7FFFFFFF, 0x7FFFFFFF)),
    *rows("v_dot4_u32_u8 v40, v4, v8, v12 clamp", (1, 1, 0xFFFFFFFF, 0xFFFFFFFF)),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_results_that_are_stated(chip: str) -> None:
    cases = [row for row in TABLE if chip in row.chips]
    kinds = list(dict.fromkeys((row.text, row.mode) for row in cases))
    codes = decode(chip, [text for text, _ in kinds])
    bench = Bench(chip, [([code], mode) for code, (_, mode) in zip(codes, kinds, strict=True)])
    wrong = []
    for row in cases:
        vgprs, sgprs = np.zeros((96, 32), np.uint32), np.zeros(128, np.uint32)
        sgprs[EXEC], sgprs[VCC], vgprs[40] = 1, row.vcc, OLD
        vgprs[[4, 8, 12][: len(row.sources)], 0] = row.sources
        bench.run(kinds.index((row.text, row.mode)), vgprs, sgprs)
        if vgprs[40, 0] != row.result or row.flag not in (None, sgprs[20]):
            wrong.append(f"{row}: {vgprs[40, 0]:#x} {sgprs[20]:#x}")
    assert not wrong, "\n".join(wrong)


def test_constants_of_both_zeros() -> None:
    assert [ir.const(ir.F32, zero).ref for zero in (0, -0.0, 0.0)] == [
        "0x0000000000000000",
        "0x8000000000000000",
        "0x0000000000000000",
    ]
