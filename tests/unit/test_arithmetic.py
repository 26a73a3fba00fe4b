from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdk.arithmetic import Q15_RIGHT, q15, q31, q31_add, q31_arrays, scale_ratio
from sdk.errors import Unsupported

PROPERTY = settings(derandomize=True, max_examples=300, deadline=None, database=None)
SCALES = st.floats(2.0**-40, 255.0, width=32)


def test_scale_ratio_rounds_each_step_to_float32():
    sx, sw, so = np.float32(0.0235), np.float32(0.0071), np.float32(0.0412)
    assert scale_ratio(sx, sw, over=so) == (sx * sw) / so
    assert scale_ratio(sx, over=so).dtype == np.float32
    exact = np.float32(float(sx) * float(sw) / float(so))
    random = np.random.default_rng(0)
    triples = random.uniform(0.001, 0.1, (1000, 3)).astype(np.float32)
    stepwise = [scale_ratio(a, b, over=c) for a, b, c in triples]
    at_once = [np.float32(float(a) * float(b) / float(c)) for a, b, c in triples]
    assert any(a != b for a, b in zip(stepwise, at_once, strict=True))
    assert abs(exact - scale_ratio(sx, sw, over=so)) < 1e-9


@pytest.mark.slow
@PROPERTY
@given(SCALES)
def test_q31_is_the_nearest_multiplier(scale):
    constants = q31(scale)
    assert 0 <= constants.multiplier < 2**31
    assert constants.shift == 0 or constants.multiplier >= 2**30
    error = Fraction(scale) - Fraction(constants.multiplier, 2**31) * 2**constants.shift
    assert abs(error) <= Fraction(2**constants.shift, 2**32)


def test_q31_shifts_from_one_on():
    assert (q31(0.5).multiplier, q31(0.5).shift) == (2**30, 0)
    assert (q31(1.0).multiplier, q31(1.0).shift) == (2**30, 1)
    assert q31(float(np.nextafter(np.float32(1), np.float32(0)))).shift == 0
    assert q31(float(np.nextafter(np.float32(256), np.float32(0)))).shift == 8
    with pytest.raises(Unsupported, match="out of range"):
        q31(256.0)


@pytest.mark.slow
@PROPERTY
@given(st.lists(SCALES, min_size=1, max_size=8))
def test_q15_multipliers_are_the_nearest_and_the_largest_has_16_bits(scales):
    constants = q15(np.array(scales, np.float32))
    assert constants.right in Q15_RIGHT
    assert (constants.multipliers < 2**16).all()
    for scale, multiplier, left in zip(scales, constants.multipliers, constants.left, strict=True):
        error = Fraction(scale) - Fraction(int(multiplier), 2**constants.right) * 2 ** int(left)
        assert abs(error) <= Fraction(2 ** int(left), 2 ** (constants.right + 1))
        assert left == 0 or (constants.right == Q15_RIGHT[0] and multiplier >= 2**15)
    if constants.right != Q15_RIGHT[-1]:  # the smallest scales keep what the widest shift leaves
        assert constants.multipliers.max() >= 2**15


def test_q15_shifts_left_from_a_half_on():
    for scales, right, left in (([0.49], 17, [0]), ([0.5, 0.1], 17, [1, 0]), ([255.0], 17, [9])):
        constants = q15(np.array(scales, np.float32))
        assert (constants.right, constants.left.tolist()) == (right, left)
    assert q15(np.array([0.25], np.float32)).right == 17  # 2^16 would not fit
    assert q15(np.array([2.0**-15], np.float32)).right == 30
    assert q15(np.array([2.0**-40], np.float32)).right == 31
    with pytest.raises(Unsupported, match="out of range"):
        q15(np.array([0.1, 256.0], np.float32))


@pytest.mark.slow
@PROPERTY
@given(SCALES, SCALES)
def test_q31_add_fits_int32_up_to_saturation(a, b):
    """Every sum that does not saturate an 8-bit output, and every partial sum, lies within int32."""
    constants = q31_add(a, b)
    rounding = 1 << constants.shift >> 1
    assert 255 * (constants.a_multiplier + constants.b_multiplier) + rounding < 2**31
    for ratio, multiplier in ((a, constants.a_multiplier), (b, constants.b_multiplier)):
        assert abs(Fraction(ratio) - Fraction(multiplier, 2**constants.shift)) <= Fraction(
            1, 2 ** (constants.shift + 1)
        )


def test_q31_add_refuses_huge_ratios():
    with pytest.raises(Unsupported, match="out of range"):
        q31_add(300.0, 0.5)


@pytest.mark.slow
@PROPERTY
@given(st.lists(SCALES, min_size=1, max_size=8))
def test_many_scales_have_the_constants_of_each(scales):
    array = np.array(scales, np.float32).reshape(-1, 1)
    multipliers, shifts = q31_arrays(array)
    assert multipliers.shape == shifts.shape == array.shape
    each = [q31(scale) for scale in scales]
    assert multipliers.ravel().tolist() == [constants.multiplier for constants in each]
    assert shifts.ravel().tolist() == [constants.shift for constants in each]


@pytest.mark.parametrize("wrong", [256.0, 512.0, np.inf, np.nan])
def test_one_scale_out_of_range_refuses_all(wrong):
    with pytest.raises(Unsupported):
        q31_arrays(np.array([0.5, wrong, 0.25], np.float32))


@pytest.mark.slow
@PROPERTY
@given(SCALES, st.lists(SCALES, min_size=1, max_size=8), SCALES)
def test_the_ratio_of_each_channel_is_its_own(scale, channels, over):
    found = scale_ratio(scale, np.array(channels, np.float32), over=over)
    assert found.dtype == np.float32
    assert found.tolist() == [scale_ratio(scale, channel, over=over) for channel in channels]
