"""Code objects: what is read out of them, and what is refused."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgpack import packb

from emulator.amdgpu.code_object import parse as parse_otherwise
from emulator.amdgpu.kernels.build import code_object
from sdk.errors import InvalidInput, UsageError
from usbgpu.amd import metadata
from usbgpu.amd.kernels import DESCRIPTOR, HEADER, SECTION, parse
from usbgpu.amd.memory import Memory

CHIPS = ("gfx1100", "gfx1201")
SOURCES = ("gemm", "integer", "layers")


def code(source="integer", chip="gfx1100") -> bytes:
    return code_object(source, chip)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("source", SOURCES)
def test_the_same_comes_out_as_from_pyelftools(source, chip):
    data = code(source, chip)
    ours, theirs = parse(data, chip), parse_otherwise(data)
    assert ours.image == theirs.image
    assert ours.chip == chip
    assert set(ours.kernels) == set(theirs.kernels)
    for name, kernel in ours.kernels.items():
        other = theirs.kernels[name]
        for attribute in ("entry", "lds", "scratch", "kernarg_size", "rsrc1", "rsrc2", "rsrc3", "threads"):
            assert getattr(kernel, attribute) == getattr(other, attribute), (name, attribute)
        assert [(a.name, a.offset, a.size, a.kind) for a in kernel.arguments] == [
            (a.name, a.offset, a.size, a.kind) for a in other.arguments
        ]


def test_lds_is_filled_in_and_priv_is_not_set():
    kernel = parse(code("gemm")).kernels["gemm_dot4"]
    assert kernel.lds == 4096
    assert kernel.rsrc2 >> 15 & 0x1FF == 8
    assert not kernel.rsrc1 >> 20 & 1


@pytest.mark.parametrize(("size", "units"), [(1, 1), (512, 1), (513, 2), (64 << 10, 128)])
def test_lds_is_counted_in_whole_units(size, units):
    data = bytearray(code("gemm"))
    place = next(
        at
        for at in range(0, len(data) - 64, 64)
        if DESCRIPTOR.unpack_from(data, at)[0] == 4096 and DESCRIPTOR.unpack_from(data, at)[8] & 0x400
    )
    struct.pack_into("<I", data, place, size)
    assert units in {kernel.rsrc2 >> 15 & 0x1FF for kernel in parse(bytes(data)).kernels.values()}


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, b"\x7fELG", "not an ELF file"),
        (4, b"\x01", "machine"),
        (5, b"\x02", "machine"),
        (7, b"\x00", "ABI 0"),
        (8, b"\x01", "version 1"),
        (16, b"\x01\x00", "not linked"),
        (18, b"\x3e\x00", "machine 62"),
        (48, b"\x4e", "gfx1201.* gfx1100"),
        (48, b"\x99", "0x99"),
        (56, b"\x00\x00", "not linked"),
        (60, b"\x00\x00", "no kernels"),
    ],
)
def test_headers_of_something_else_are_refused(place, value, message):
    data = bytearray(code())
    data[place : place + len(value)] = value
    with pytest.raises(InvalidInput, match=message):
        parse(bytes(data), "gfx1100")


def test_relocations_are_refused():
    data = bytearray(code())
    sections = struct.unpack_from("<Q", data, 40)[0]
    comment = next(
        place
        for place in range(sections, len(data) - SECTION.size + 1, SECTION.size)
        if SECTION.unpack_from(data, place)[1] == 1 and not SECTION.unpack_from(data, place)[3]
    )
    struct.pack_into("<I", data, comment + 4, 4)
    with pytest.raises(InvalidInput, match="relocations"):
        parse(bytes(data))


def test_an_image_of_any_size_is_not_made():
    data = bytearray(code())
    for place in range(64, 64 + 8 * 56, 56):
        if struct.unpack_from("<I", data, place)[0] == 1:
            struct.pack_into("<Q", data, place + 40, 1 << 60)
    with pytest.raises(InvalidInput, match="bytes of memory"):
        parse(bytes(data))


def test_a_file_of_nothing_but_headers_is_refused_at_once():
    data = bytearray(code())
    struct.pack_into("<Q", data, 32, 64)
    struct.pack_into("<H", data, 56, 60_000)
    with pytest.raises(InvalidInput, match="60000 segments"):
        parse(bytes(data))


@pytest.mark.parametrize(
    ("offset", "form", "value", "message"),
    [
        (56, "<H", 0x8, "waves of 64"),
        (56, "<H", 0x400, "user SGPRs other"),
        (56, "<H", 0x40A, "user SGPRs other"),
        (58, "<H", 3, "user SGPRs other"),
        (56, "<H", 0xC08, "stack of unknown depth"),
        (0, "<I", 1 << 17, "bytes of LDS"),
        (4, "<I", 1 << 20, "bytes of scratch"),
        (8, "<I", 8, "descriptor"),
        (16, "<q", 1 << 40, "descriptor"),
        (16, "<q", 4, "descriptor"),
        (52, "<I", 0x80, "no room for the address"),
    ],
)
def test_kernels_that_need_something_else_are_refused(offset, form, value, message):
    data = bytearray(code())
    kernel = parse(bytes(data)).kernels["sort"]
    place = next(
        at
        for at in range(0, len(data) - 64, 64)
        if DESCRIPTOR.unpack_from(data, at)[1] == kernel.scratch
        and at + DESCRIPTOR.unpack_from(data, at)[4] == kernel.entry
    )
    struct.pack_into(form, data, place + offset, value)
    with pytest.raises(InvalidInput, match=message):
        parse(bytes(data))


@pytest.mark.slow
@given(st.data())
def test_damaged_files_are_refused_or_read_but_nothing_else(data):
    file = bytearray(code("integer"))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, HEADER.size) | st.integers(0, len(file) - 1))
        file[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InvalidInput):
        parse(bytes(file[: data.draw(st.none() | st.integers(0, len(file)))]))


def test_every_truncation_is_refused():
    data = code("integer")
    for size in range(0, len(data), 97):
        with pytest.raises(InvalidInput):
            parse(data[:size])


# -- arguments ---------------------------------------------------------------------------------------------


def launched(name="pointwise", source="layers", **changes):
    kernel = parse(code(source)).kernels[name]
    arguments = {"pointwise": [1, 2, 3, 4, 5, 6, 7, 8, -9], "average_pool": [1, 2, 3, 4, -5, 0.5, 7]}[name]
    for place, value in changes.pop("values", {}).items():
        arguments[place] = value
    given_arguments = changes.pop("arguments", arguments)
    return kernel.launch(0x10000, changes.pop("groups", (2,)), changes.pop("threads", None), given_arguments)


def test_arguments_are_packed_where_the_metadata_says():
    launch = launched()
    assert struct.unpack("<5Q3Ii", launch.kernarg) == (1, 2, 3, 4, 5, 6, 7, 8, -9)
    assert (launch.groups, launch.threads) == ((2, 1, 1), (64, 1, 1))
    assert launch.code == 0x10000 + parse(code("layers")).kernels["pointwise"].entry
    launch = launched("average_pool")
    assert struct.unpack("<2Q2Iifi", launch.kernarg) == (1, 2, 3, 4, -5, 0.5, 7)


def test_an_integer_is_accepted_for_a_float():
    assert struct.unpack_from("<f", launched("average_pool", values={5: 3}).kernarg, 28) == (3.0,)


def test_buffers_are_packed_as_addresses():
    memory = Memory(1 << 20, 1 << 21)
    buffer = memory.allocate(64)
    assert struct.unpack_from("<Q", launched(values={0: buffer}).kernarg) == (buffer.address,)
    buffer.free()
    with pytest.raises(UsageError, match="freed"):
        launched(values={0: buffer})


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("pointwise", {"arguments": [1, 2]}, "takes 9 arguments .*pixels.* 2 given"),
        ("pointwise", {"values": {0: 1.5}}, "argument input: 1.5 .*for a pointer"),
        ("pointwise", {"values": {0: -1}}, "-1 does not fit a pointer"),
        ("pointwise", {"values": {0: b"12345678"}}, "8 bytes .*for a pointer"),
        ("pointwise", {"values": {5: 1 << 32}}, "does not fit u32 of 4 bytes"),
        ("pointwise", {"values": {5: -(1 << 31) - 1}}, "does not fit"),
        ("pointwise", {"values": {5: b"123"}}, "3 bytes .*for u32"),
        ("pointwise", {"values": {5: "7"}}, "'7'"),
        ("pointwise", {"values": {5: None}}, "None"),
        ("pointwise", {"values": {5: Memory(0, 4096).allocate(4)}}, "a buffer .*for a value"),
        ("average_pool", {"values": {5: 1e60}}, "does not fit float"),
        ("pointwise", {"groups": ()}, "workgroups of"),
        ("pointwise", {"groups": (1, 2, 3, 4)}, "workgroups of"),
        ("pointwise", {"groups": (0,)}, "workgroups of"),
        ("pointwise", {"groups": (-1,)}, "workgroups of"),
        ("pointwise", {"groups": (1 << 32,)}, "workgroups of"),
        ("pointwise", {"threads": (32,)}, "the source fixes"),
    ],
)
def test_arguments_that_a_kernel_does_not_take(name, changes, message):
    with pytest.raises(UsageError, match=message):
        launched(name, **changes)


def kernel_with(*arguments: dict, **changes) -> bytes:
    kernel = {
        ".name": "k",
        ".symbol": "k.kd",
        ".kernarg_segment_size": 64,
        ".max_flat_workgroup_size": 256,
        ".args": list(arguments),
        **changes,
    }
    return packb({"amdhsa.kernels": [kernel]})


def test_the_compilers_own_arguments_are_the_launchs_dimensions():
    kinds = ["hidden_block_count_x", "hidden_block_count_y", "hidden_group_size_z", "hidden_grid_dims",
             "hidden_remainder_x", "hidden_global_offset_y", "hidden_none"]  # fmt: skip
    described = metadata.parse(
        kernel_with(*({".offset": 4 * n, ".size": 4, ".value_kind": kind} for n, kind in enumerate(kinds)))
    )["k.kd"]
    values = [one.dimension((5, 6, 7), (8, 9, 10)) for one in described.arguments]
    assert [int.from_bytes(value, "little") for value in values] == [5, 6, 10, 3, 0, 0, 0]
    assert described.threads is None


@pytest.mark.parametrize(
    "kind", ["hidden_hostcall_buffer", "hidden_heap_v1", "dynamic_shared_pointer", "image"]
)
def test_arguments_that_the_runtime_lacks_are_refused(kind):
    with pytest.raises(InvalidInput, match=f"k: .*{kind}"):
        metadata.parse(kernel_with({".offset": 0, ".size": 8, ".value_kind": kind}))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xc1", b"\x81", packb({}), packb([1]), b"\x91" * 100, packb({"amdhsa.kernels": [7]}),
        kernel_with({".offset": 0, ".size": 8}),
        kernel_with({".offset": -1, ".size": 8, ".value_kind": "by_value"}),
        kernel_with({".offset": 0, ".size": 4, ".value_kind": "global_buffer"}),
        kernel_with({".offset": 0, ".size": 2, ".value_kind": "hidden_block_count_x"}),
        kernel_with({".offset": 0, ".size": 1, ".value_kind": "hidden_group_size_z"}),
        kernel_with(**{".reqd_workgroup_size": [1]}),
        b"\x81" + packb("amdhsa.kernels") + b"\x91\x81" + packb(".name") + b"\xca\x7f\x80\0\0",
    ],
)  # fmt: skip
def test_damaged_metadata_is_refused(data):
    with pytest.raises(InvalidInput, match="metadata"):
        metadata.parse(data)
