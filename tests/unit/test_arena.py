"""Bytes of tensors, sums of what is alive at once, and buffers in plans."""

import json

from hypothesis import given
from hypothesis import strategies as st

from sdk.arena import Buffer, live_peak, plan
from sdk.codec import to_json
from sdk.graph import Tensor
from sdk.plan import BufferPlan

SPANS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(1, 1000)).map(
        lambda s: (s[0], s[0] + s[1], s[2])
    ),
    max_size=12,
)


@given(SPANS)
def test_the_live_peak_is_the_largest_sum_of_any_moment(spans):
    sums = [sum(nbytes for first, last, nbytes in spans if first <= now <= last) for now in range(20)]
    assert live_peak(spans) == max(sums)


def test_buffers_in_plans_keep_the_names_that_old_files_have():
    plan = BufferPlan.of(Buffer("x", 640, 2, 5, 128))
    assert json.dumps(to_json(plan), sort_keys=True) == (
        '{"first": 2, "last": 5, "name": "x", "offset": 128, "size": 640}'
    )


def test_a_tensor_has_elements_and_bytes():
    for dtype, each in (("uint8", 1), ("int8", 1), ("int32", 4), ("float32", 4)):
        tensor = Tensor("x", (2, 3, 5), dtype)
        assert (tensor.size, tensor.nbytes) == (30, 30 * each)


@given(SPANS, st.integers(0, 12), st.sampled_from([0, 64]))
def test_the_first_buffers_lie_side_by_side_and_nothing_overlaps(spans, count, guard):
    buffers = [
        Buffer(str(number), 128 * nbytes, first, last) for number, (first, last, nbytes) in enumerate(spans)
    ]
    chosen = buffers[count // 2 : count][::-1]
    size = plan(buffers, guard, chosen)
    at = 128 if guard else 0
    for buffer in chosen:
        assert buffer.offset == at
        at += buffer.nbytes + (128 if guard else 0)
    for number, one in enumerate(buffers):
        assert 0 <= one.offset <= size - one.nbytes
        for other in buffers[:number]:
            apart = one.offset + one.nbytes <= other.offset or other.offset + other.nbytes <= one.offset
            assert apart or not (guard or one.overlaps_in_time(other))
