"""FastRPC against a model of the kernel and the DSP: calls, the listener, refusals, a network end to end."""

import ctypes
import errno
import functools
import json
import mmap
import os
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp.hexagon.fastrpc import domain, uapi
from dsp.hexagon.fastrpc import listener as listener_module
from dsp.hexagon.fastrpc import session as sessions
from dsp.hexagon.fastrpc.domain import Choice
from dsp.hexagon.fastrpc.listener import UNSUPPORTED, Files, Listener
from dsp.hexagon.fastrpc.mainline import MainlineNode
from dsp.hexagon.fastrpc.marshal import Scalars, pack_outputs, unpack_call, words
from dsp.hexagon.fastrpc.memory import DmaBuffer
from dsp.hexagon.fastrpc.session import FastrpcDevice
from dsp.hexagon.fastrpc.system import LinuxCalls
from sdk import artifact, reference
from sdk.errors import DeviceFailed, DeviceMissing, InvalidArtifact, InvalidInput, UsageError
from sdk.target import Options
from sdk.targets import get_target
from tests.amount import amount
from tests.graph_builder import GraphBuilder, mobilenet_v2
from tests.unit.fake_fastrpc import SHELL, FakeKernel
from towline.cli import main

HEADER = "/usr/include/misc/fastrpc.h"


@functools.cache
def network():
    b = GraphBuilder((1, 3, 13, 21), dtype="int8", seed=2)
    x = b.conv("x", 12, 3, strides=2, pads=1, relu=True)
    y = b.add(b.conv(b.depthwise(x, pads=1), 12), x)  # with both loops by hand
    row = b.reshape(b.global_average_pool(y))  # an output that no layer makes
    graph = b.graph(y, row, b.gemm(row, 10))
    return graph, get_target("hexagon-v65").compile(graph, Options())


def random_input(seed=1):
    return {"x": np.random.default_rng(seed).integers(-128, 127, (1, 3, 13, 21), np.int8, endpoint=True)}


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    (tmp_path / "fastrpc_shell_unsigned_3").write_bytes(SHELL)
    monkeypatch.setenv(domain.LIBRARY_PATH, str(tmp_path))
    fake = FakeKernel()
    yield fake
    assert (fake.files, fake.buffers, fake.processes) == ({}, {}, {}), "descriptors or processes are left"
    fake.assert_hvx_was_locked()


THREADS = (
    "qurt_thread_create",
    "qurt_futex_wait",
    "qurt_futex_wake",
    "qurt_hvx_lock",
    "qurt_hvx_try_lock",
    "qurt_hvx_unlock",
)
"""Without any of these there is no second context."""
MINOR = ("qurt_thread_get_id", "qurt_thread_get_priority", "qurt_thread_exit")
HAP = ("HAP_power_set", "HAP_perf_get_time_us")


def load(kernel, device="fastrpc"):
    return FastrpcDevice(device, kernel).load(network()[1])


# -- end to end -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("has_heap", [True, False])
def test_a_network_on_the_dsp_has_the_reference_s_bits(kernel, has_heap):
    kernel.has_heap = has_heap
    graph, program = network()
    with load(kernel) as session:
        for seed in (1, 2):
            expected = reference.run(program.graph, random_input(seed), "q31")
            outputs = session.run(random_input(seed))
            assert set(outputs) == set(graph.outputs)
            traced = session.trace(random_input(seed))
            assert set(traced) > set(outputs)
            for name, value in [*outputs.items(), *traced.items()]:
                np.testing.assert_array_equal(value, expected[name], err_msg=name)
        profile = session.profile()
        assert [layer.macs for layer in profile.layers] == [layer["macs"] for layer in program.plan["layers"]]
        with pytest.raises(InvalidInput):
            session.run({"x": random_input()["x"][0]})
        session.run(random_input())
    session.close()
    with pytest.raises(DeviceFailed, match="closed"):
        session.run(random_input())
    assert kernel.shells == [(True, SHELL)]
    assert ("dma_heap_alloc" in kernel.log) == has_heap
    assert ("alloc_dma_buf" in kernel.log) == (not has_heap)


def test_a_network_without_weights(kernel):
    b = GraphBuilder((1, 3, 4, 5))
    b.add("x", "x")
    program = get_target("hexagon-v65").compile(b.graph(), Options())
    assert program.weights.nbytes == 0
    x = {"x": np.arange(60, dtype=np.uint8).reshape(1, 3, 4, 5)}
    with FastrpcDevice("fastrpc", kernel).load(program) as session:
        for name, value in session.run(x).items():
            np.testing.assert_array_equal(value, reference.run(program.graph, x, "q31")[name])


def test_requests_that_come_in_two_parts(kernel, monkeypatch):
    monkeypatch.setattr(listener_module, "ROOM", 40)
    with load(kernel) as session:
        session.run(random_input())


@pytest.mark.slow
def test_the_command_line_runs_it_and_says_that_it_is_untested(kernel, tmp_path, monkeypatch, capsys):
    graph, program = network()
    artifact.save(artifact.Artifact((program,), graph, "q31"), tmp_path / "net.tow")
    np.save(tmp_path / "x.npy", random_input()["x"])
    monkeypatch.setattr(sessions, "LinuxCalls", lambda: kernel)
    command = ["run", str(tmp_path / "net.tow"), "--input", str(tmp_path / "x.npy"), "--json", "--check"]
    answers = []
    for device in ("fastrpc", "emulated"):
        assert main([*command, "--device", device]) == 0
        answers.append(json.loads(capsys.readouterr().out)["result"])
    assert answers[0]["check"]["mismatches"] == 0
    assert answers[0]["check"]["elements"] == answers[1]["check"]["elements"] > 700
    assert answers[0]["outputs"] == answers[1]["outputs"]
    assert answers[0]["time"]["device"]["each"] == [0.001]
    assert "device" not in answers[1]["time"]
    assert main([*command[:-2], "--repeat", "3", "--device", "fastrpc"]) == 0
    assert "by the device's clock: min 1 ms, median 1 ms" in capsys.readouterr().out
    assert main([*command, "-v", "--device", "fastrpc"]) == 0
    assert "the DSP opens the file libtowline_" in capsys.readouterr().err
    assert main([*command, "--device", "fastrpc?domain=modem"]) == 2
    monkeypatch.setattr(sessions.os.path, "exists", lambda path: str(path) == "/dev/fastrpc-cdsp-secure")
    assert sessions.devices() == [("fastrpc", "/dev/fastrpc-cdsp-secure, not yet run on hardware")]
    with pytest.raises(UsageError) as caught:
        get_target("hexagon-v65").open("dsp")
    assert "fastrpc (a Snapdragon's DSP; not yet run on hardware)" in caught.value.hint


def test_an_artefact_without_the_object_is_refused(kernel):
    _, program = network()
    old = type(program)(**{**vars(program), "code": {"network.elf": program.code["network.elf"]}})
    with pytest.raises(InvalidArtifact, match="incomplete") as caught:
        FastrpcDevice("fastrpc", kernel).load(old)
    assert "compile" in caught.value.hint
    assert kernel.log == []


def test_the_shared_object_suits_any_loader():
    """One symbol exported; those imported may be missing; relocations are by the base address, or a word."""
    elffile = pytest.importorskip("elftools.elf.elffile")
    import io

    elf = elffile.ELFFile(io.BytesIO(network()[1].code["network.so"]))
    symbols = [s for s in elf.get_section_by_name(".dynsym").iter_symbols() if s.name]
    assert [s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF"] == [sessions.ENTRY]
    assert {s["st_info"]["bind"] for s in symbols if s["st_shndx"] == "SHN_UNDEF"} == {"STB_WEAK"}
    assert {s.name for s in symbols} == {sessions.ENTRY, *THREADS, "qurt_thread_join", *MINOR, *HAP}
    assert {r["r_info_type"] for r in elf.get_section_by_name(".rela.dyn").iter_relocations()} == {33, 35}
    assert elf.get_section_by_name(".rela.plt") is None
    tags = [tag.entry.d_tag for tag in elf.get_section_by_name(".dynamic").iter_tags()]
    assert not {"DT_NEEDED", "DT_TEXTREL", "DT_INIT"} & set(tags)
    allocated = [s for s in elf.iter_sections() if s["sh_flags"] & 2 and s["sh_size"]]
    assert all(section["sh_addr"] % 4096 == 0 for section in allocated)


# -- refusals and their messages --------------------------------------------------------------------------


def refusal(kernel, device="fastrpc"):
    with pytest.raises((DeviceMissing, DeviceFailed)) as caught:
        load(kernel, device)
    return type(caught.value), str(caught.value), caught.value.hint


def test_no_node(kernel):
    kernel.nodes = {}
    kind, message, hint = refusal(kernel)
    assert kind is DeviceMissing
    assert "no FastRPC node" in message
    assert "CONFIG_QCOM_FASTRPC" in hint


def test_no_permission_for_the_node(kernel):
    kernel.nodes = dict.fromkeys(kernel.nodes, errno.EACCES)
    kind, message, hint = refusal(kernel)
    assert kind is DeviceMissing
    assert message == "/dev/fastrpc-cdsp: cannot be opened: Permission denied"
    assert "udev" in hint
    kernel.nodes["/dev/adsprpc-smd"] = errno.EACCES  # as where an Android kernel has mainline's driver, too
    _, message, hint = refusal(kernel)
    assert "/dev/adsprpc-smd" in message
    assert "udev" in hint
    assert "setenforce" in hint
    del kernel.nodes["/dev/adsprpc-smd"]
    kernel.nodes["/dev/fastrpc-cdsp-secure"] = errno.EBUSY
    kernel.nodes["/dev/fastrpc-cdsp"] = errno.ENOENT
    assert "end the program" in refusal(kernel)[2]


def test_no_shell(kernel, tmp_path):
    (tmp_path / "fastrpc_shell_unsigned_3").rename(tmp_path / "fastrpc_shell_3")
    kind, message, hint = refusal(kernel)
    assert kind is DeviceMissing
    assert "fastrpc_shell_unsigned_3 was not found" in message
    assert str(tmp_path) in message
    assert "DSP_LIBRARY_PATH" in hint
    kernel.unsigned_support = False
    with load(kernel, "fastrpc?pd=signed") as session:  # the node for signed ones comes first
        session.run(random_input())
    assert kernel.shells == [(False, SHELL)]


def test_a_shell_that_cannot_be_read(kernel, tmp_path, monkeypatch):
    shell = tmp_path / "fastrpc_shell_unsigned_3"
    monkeypatch.setenv(domain.LIBRARY_PATH, f"/{'x' * 300};{tmp_path}")  # stat fails, but not with ENOENT
    load(kernel).close()

    def read_bytes(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(domain.Path, "read_bytes", read_bytes)
    assert refusal(kernel)[:2] == (
        DeviceMissing,
        f"{shell}: the DSP's shell cannot be read: Permission denied",
    )


def test_no_unsigned_processes(kernel):
    kernel.unsigned_support = False
    kind, message, hint = refusal(kernel)
    assert kind is DeviceFailed
    assert "unsigned processes" in message
    assert "Connection refused" in message
    assert "/dev/fastrpc-cdsp-secure" in hint


@pytest.mark.parametrize("old", [False, True])
def test_a_dsp_that_refuses_the_process(kernel, old):
    kernel.old_capabilities = old
    kernel.create_result = 0x8000_0481
    kind, message, hint = refusal(kernel)
    assert kind is DeviceFailed
    assert "0x80000481, AEE_EUNSIGNEDMOD" in message
    assert "the DSP is a v65" in hint
    kernel.nodes = {"/dev/fastrpc-cdsp-secure": 0}
    kernel.unsigned_support = False
    _, message, hint = refusal(kernel)
    assert "UNSIGNED_PD_SUPPORT is 0" in hint
    assert "pd=signed" in hint


def test_a_shell_that_older_kernels_do_not_accept(kernel, tmp_path):
    (tmp_path / "fastrpc_shell_unsigned_3").write_bytes(SHELL + bytes(2 << 20))
    _, message, hint = refusal(kernel)
    assert "Invalid argument: the shell has 2,097,175 bytes" in message
    assert "newer kernel" in hint


def test_a_loader_that_refuses_the_network(kernel, tmp_path):
    kernel.loader_says = "testsig not found"
    _, message, hint = refusal(kernel)
    assert message.startswith("cdsp: ")
    assert message.endswith("error -5: testsig not found")
    assert "firmware" in hint
    (tmp_path / "fastrpc_shell_3").write_bytes(SHELL)
    _, _, hint = refusal(kernel, "fastrpc?pd=signed")
    assert "testsig-0x" in hint
    assert "use fastrpc?pd=unsigned" in hint


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EINVAL])
def test_calls_that_the_kernel_refuses(kernel, number):
    with load(kernel) as session:
        kernel.invoke_error = number
        with pytest.raises(DeviceFailed, match="the kernel refused a call"):
            session.run(random_input())
        kernel.invoke_error = 0
        session.run(random_input())


@pytest.mark.parametrize("enough", range(4))
def test_no_memory_for_buffers(kernel, enough):
    kernel.buffers_left = enough
    with pytest.raises(DeviceFailed, match="Cannot allocate memory"):
        load(kernel)


def test_no_memory_for_a_trace(kernel):
    with load(kernel) as session:
        kernel.buffers_left = 0
        with pytest.raises(DeviceFailed, match="Cannot allocate memory"):
            session.trace(random_input())
        session.run(random_input())


@pytest.mark.slow
def test_mobilenet_v2_whole(kernel):
    program = get_target("hexagon-v65").compile(mobilenet_v2(amount(96, 224), zero_point=114), Options())
    name = program.graph.inputs[0]
    tensor = program.graph.tensor(name)
    picture = {name: np.random.default_rng(1).integers(0, 256, tensor.shape, np.int16).astype(tensor.dtype)}
    expected = reference.run(program.graph, picture, "q31")
    with FastrpcDevice("fastrpc", kernel).load(program) as session:
        for name, value in session.trace(picture).items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_calls_that_the_skel_refuses(kernel):
    with load(kernel) as session:
        channel, handle = session._domain.channel, session._handle
        for method, inputs, outputs in (
            (2, [bytes(5)], []),
            (3, [bytes(3 * 13 * 21 - 1)], [len("short")]),
            (3, [bytes(3 * 13 * 21)], [session._outputs.nbytes - 1]),
            (5, [bytes(3 * 13 * 21)], [3]),
            (6, [bytes(3)], [4]),
            (6, [b""], [5]),
        ):
            with pytest.raises(DeviceFailed, match="AEE_EBADPARM"):
                channel.call(handle, method, "a test", (), inputs, 0, outputs)
        for method, inputs in ((9, []), (3, [])):
            with pytest.raises(DeviceFailed, match="AEE_EUNSUPPORTED"):
                channel.call(handle, method, "a test", (), inputs)
        with pytest.raises(DeviceFailed, match="AEE_ENOSUCHMOD"):
            channel.call(77, 2, "a test")
        session.run(random_input())


def test_device_strings():
    mainline = [
        *("/dev/fastrpc-cdsp", "/dev/fastrpc-cdsp-secure", "/dev/fastrpc-adsp-secure", "/dev/fastrpc-adsp")
    ]
    android = [f"/dev/adsprpc-smd{kind}" for kind in ("", "-secure", "-secure", "")]

    def paths(device):
        return [place.path for place in Choice.parse(device).places()]

    assert paths("fastrpc") == mainline + android
    assert paths("fastrpc?node=mainline") == mainline
    assert paths("fastrpc?node=android") == android
    assert Choice.parse("fastrpc?domain=adsp").places()[0][:3] == ("/dev/fastrpc-adsp-secure", "adsp", True)
    assert Choice.parse("fastrpc?domain=cdsp&pd=signed").places()[0].signed
    for wrong in (
        "fastrpc?",
        "fastrpc?pd",
        "fastrpc?pd=maybe",
        "fastrpc?domain=slpi",
        "fastrpc?node=smd",
        "fastrpc?node=Android",
        "fastrpc?x=1&pd=signed",
        "adsp",
        "?pd=signed",
        "emulated?contexts=1",
        "fastrpc&node=android",
        "fastrpc?contexts=3",
    ):
        with pytest.raises(UsageError, match=re.escape(wrong)):
            Choice.parse(wrong)


# -- the kernel's interface -------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists(HEADER), reason=f"{HEADER} is missing")
def test_requests_and_structures_are_the_header_s(tmp_path):
    names = ["ALLOC_DMA_BUFF", "INVOKE", "INIT_ATTACH", "INIT_CREATE", "MMAP", "MUNMAP", "GET_DSP_INFO"]
    text = Path(HEADER).read_text()
    numbers = {n: int(k) for n, k in re.findall(r"#define FASTRPC_IOCTL_(\w+)\s+_IOW?R?\('R', (\d+)", text)}
    structs = {
        "alloc_dma_buf": uapi.AllocDmaBuf,
        "invoke_args": uapi.InvokeArg,
        "invoke": uapi.Invoke,
        "init_create": uapi.InitCreate,
        "req_mmap": uapi.ReqMmap,
        "req_munmap": uapi.ReqMunmap,
        "ioctl_capability": uapi.Capability,
    }
    for name in names:
        assert uapi.Request[name] & 255 == numbers[name]
    for name, struct_ in structs.items():
        body = re.search(rf"struct fastrpc_{name} \{{(.*?)\}};", text, re.S)[1]
        fields = re.findall(r"__([us])(\d+) (\w+)(?:\[(\d+)\])?;", body)
        # What Linux 6.18 calls the domain.
        renamed = [{"unused": "domain"}.get(field[2], field[2]) for field in fields]
        assert renamed == [f[0] for f in struct_._fields_]
        for (sign, bits, _, count), (_, kind) in zip(fields, struct_._fields_, strict=True):
            assert ctypes.sizeof(kind) == int(bits) // 8 * int(count or 1)
            if not count:
                assert (kind(-1).value < 0) == (sign == "s")


def test_the_linux_seam_distinguishes_errors_of_the_kernel_and_the_dsp(tmp_path):
    kernel = LinuxCalls()
    descriptor = kernel.open("/dev/null", os.O_RDWR)
    try:
        with pytest.raises(OSError) as caught:  # noqa: PT011
            kernel.ioctl(descriptor, uapi.Request.INVOKE, uapi.Invoke())
        assert caught.value.errno in (errno.ENOTTY, errno.ENOSYS)  # the latter under qemu-user

        class Ioctl:
            def __init__(self, *answers):
                self.answers = list(answers)

            def __call__(self, *arguments):
                result, number = self.answers.pop(0)
                ctypes.set_errno(number)
                return result

        # A DSP's error comes as a negative int with any errno; an interrupted call is repeated.
        for answers, expected in (
            ([(0x8000_0481 - 2**32, errno.ENOENT)], 0x8000_0481),
            ([(-1, errno.EINTR), (0, 0)], 0),
            ([(39, 0)], 39),
        ):
            kernel._ioctl = Ioctl(*answers)
            assert kernel.ioctl(descriptor, uapi.Request.INIT_ATTACH, None) == expected
            assert kernel._ioctl.answers == []
    finally:
        kernel.close(descriptor)


def test_dma_buffers_are_whole_pages_and_leave_nothing():
    kernel = FakeKernel()
    node = MainlineNode(kernel, "/dev/fastrpc-cdsp", "cdsp")
    with DmaBuffer(node, 5000) as buffer:
        assert 5000 < os.fstat(buffer.descriptor).st_size == -(-5000 // mmap.PAGESIZE) * mmap.PAGESIZE
        buffer.write(b"abc")
        assert buffer.read() == b"abc" + bytes(4997)
        assert ctypes.string_at(buffer.argument.address, 3) == b"abc"
    buffer.close()
    node.close()
    assert kernel.log == ["dma_heap_alloc", *4 * ["dma_buf_sync"]]
    assert (kernel.files, kernel.buffers) == ({}, {})


# -- calls that come back ---------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=40), max_size=5), st.lists(st.integers(0, 2**31), max_size=4))
def test_packed_calls(inputs, sizes):
    packed = pack_outputs(inputs) + words(*sizes)
    assert unpack_call(packed, Scalars(4, len(inputs), len(sizes))) == (inputs, sizes)
    if inputs:
        for cut in range(len(packed)):
            with pytest.raises(DeviceFailed):
                unpack_call(packed[:cut], Scalars(4, len(inputs), len(sizes)))


def test_packing_is_the_published_one():
    """A length follows directly, its content from the next multiple of 8; an empty buffer adds no padding."""
    expected = words(3) + bytes(4) + b"abc" + words(0) + words(1) + bytes(5) + b"z"
    assert pack_outputs([b"abc", b"", b"z"]) == expected
    assert unpack_call(expected, Scalars(0, 3, 0)) == ([b"abc", b"", b"z"], [])
    assert Scalars.parse(0x13050100) == Scalars(19, 5, 1)
    assert Scalars(2, 0, 0, 0x10).word == 0x02000010


def listener(tmp_path):
    (tmp_path / "libc++.so.1").write_bytes(b"a library")
    (tmp_path / "secret").mkdir()
    return Listener(None, {"net.so": b"the network"}, [tmp_path])


def ask(listener, handle, method, numbers, texts=(), sizes=()):
    texts = [text.encode() + b"\0" for text in texts]
    inputs = [numbers + words(*map(len, texts)), *texts]
    packed = pack_outputs(inputs) + words(*sizes)
    scalars = Scalars(min(method, 31), len(inputs), len(sizes))
    result, answer = listener.answer(handle, scalars, packed)
    return result, unpack_call(answer, Scalars(0, len(sizes), 0))[0] if result == 0 else []


def fopen(listener, name, mode="r"):
    return ask(listener, 1, 19, b"", ["ADSP_LIBRARY_PATH", ";", name, mode], [4])


@pytest.mark.parametrize("name", ["net.so", "./net.so", "libc++.so.1"])
def test_files_that_the_dsp_may_read(tmp_path, name):
    one = listener(tmp_path)
    result, (file,) = fopen(one, name)
    assert result == 0
    content = {"libc++.so.1": b"a library"}.get(name, b"the network")
    assert ask(one, 1, 10, file, sizes=[8])[1] == [len(content).to_bytes(8, "little")]
    assert ask(one, 1, 4, file + words(4), sizes=[8, 4]) == (0, [words(4, 0), content[:4]])
    assert ask(one, 1, 8, file, sizes=[4])[1] == [words(4)]
    assert ask(one, 1, 12, file, sizes=[4])[1] == [words(0)]
    rest = content[4:]
    assert ask(one, 1, 4, file + words(99), sizes=[8, 99])[1] == [words(len(rest), 1), rest.ljust(99, b"\0")]
    assert ask(one, 1, 12, file, sizes=[4])[1] == [words(1)]
    for offset, whence in ((2, 0), (3 - len(content), 2), (1, 1)):
        assert ask(one, 1, 9, file + words(offset, whence))[0] == 0
    assert ask(one, 1, 8, file, sizes=[4])[1] == [words(4)]
    assert ask(one, 1, 9, file + words(-1, 0))[0] == errno.EINVAL
    assert ask(one, 1, 11, file)[0] == 0
    assert ask(one, 1, 8, file, sizes=[4])[1] == [words(0)]
    assert ask(one, 1, 3, file)[0] == 0
    assert ask(one, 1, 4, file + words(4), sizes=[8, 4])[0] == errno.EBADF
    result, (status,) = ask(one, 1, 31, words(31), [name], [96])
    assert struct.unpack_from("<I", status, 24)[0] == 0o100444
    assert struct.unpack_from("<Q", status, 40)[0] == len(content)


def test_files_that_it_may_not(tmp_path):
    one = listener(tmp_path)
    outside = tmp_path.parent / "outside"
    outside.write_bytes(b"")
    for name in (
        "/etc/passwd",
        "../outside",
        str(outside),
        "secret",
        "",
        ".",
        "..",
        "./../outside",
        "absent",
    ):
        assert fopen(one, name)[0] == errno.ENOENT, name
        assert ask(one, 1, 31, words(31), [name], [96])[0] == errno.ENOENT
        assert ask(one, 1, 22, b"", [name], [1]) == (0, [b"\0"])
    for mode in ("w", "a", "r+"):
        assert fopen(one, "net.so", mode)[0] == errno.EACCES
    assert ask(one, 1, 22, b"", ["net.so"], [1]) == (0, [b"\1"])


def test_invalid_requests(tmp_path):
    one = listener(tmp_path)
    assert ask(one, 0, 0, words(9, 255)[:0], ["adspmsgd_apps"], [8, 255])[1][0] == words(0, -5)
    assert ask(one, 9, 0, b"")[0] == UNSUPPORTED
    assert ask(one, 1, 36, words(36))[0] == UNSUPPORTED
    assert one.answer(1, Scalars(3, 1, 0, 0x10), words(4) + bytes(4) + words(1))[0] == UNSUPPORTED
    for handle, scalars, request in (
        (1, Scalars(19, 5, 1), b""),
        (1, Scalars(4, 1, 2), words(0)),
        (1, Scalars(4, 1, 1), words(0, 0)),
        (1, Scalars(0, 1, 1), pack_outputs([words(1, 1)]) + words(4)),
        (2, Scalars(2, 1, 1), pack_outputs([words(1, 1)]) + words(16)),
    ):
        assert one.answer(handle, scalars, request) == (errno.EINVAL, b"")
    file = fopen(one, "net.so")[1][0]
    assert ask(one, 1, 3, file, sizes=[4])[0] == errno.EINVAL  # the method has no such output


@settings(max_examples=50)
@given(st.integers(0, 3), st.integers(0, 2**32 - 1), st.binary(max_size=80))
def test_no_request_ends_the_listener(handle, scalars, request):
    one = Listener(FakeChannel(), {"net.so": b"x"}, [])
    result, answer = one.answer(handle, Scalars.parse(scalars), request)
    assert isinstance(result, int)
    assert result == 0 or answer == b""


class FakeChannel:
    class node:
        @staticmethod
        def grow(*_):
            raise OSError(errno.EINVAL, "no")

        shrink = grow


def test_a_process_that_dies_ends_the_listener(kernel):
    session = load(kernel)
    next(iter(kernel.processes.values())).end()
    assert session._domain._listener.join(5)
    with pytest.raises(DeviceFailed, match="AEE_EBADSTATE"):
        session.run(random_input())
    session.close()


def test_a_process_that_stays_keeps_its_descriptors(kernel, monkeypatch, caplog):
    """The listener's next call would go to the file that got the number of a closed node."""
    join = Listener.join
    monkeypatch.setattr(Listener, "join", lambda listener, seconds: join(listener, 0.1))
    kernel.exits = False
    session = load(kernel)
    node = session._domain.node.descriptor
    session.close()
    assert "still waits" in caplog.text
    assert node in kernel.files
    kernel.processes[node].end()
    assert join(session._domain._listener, 5)
    kernel.close(node)
    session._domain._shell_buffer.close()


def test_signals_are_not_the_listener_s(kernel):
    """An interrupted call is lost in the driver, and with it the DSP's request."""
    with load(kernel) as session:
        thread = session._domain._listener._thread
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    blocked = int(re.search(r"SigBlk:\s*(\w+)", status)[1], 16)
    assert blocked & 1 << signal.SIGINT - 1
    assert blocked & 1 << signal.SIGALRM - 1


@pytest.mark.slow
def test_the_runtime_needs_only_numpy():
    script = "import sys, dsp.hexagon.target, dsp.hexagon.fastrpc.session; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"onnx", "onnxruntime", "elftools", "cffi", "PIL", "rich"} & set(done.stdout.split())


def test_files_are_numbered_apart(tmp_path):
    files = Files({"a": b"1", "b": b"2"}, [])
    opened = [files.methods()[0](b"", [name, b"rb\0"], [4])[0] for name in (b"a\0", b"b\0")]
    assert opened[0] != opened[1]
