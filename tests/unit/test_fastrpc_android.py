"""The node of Android's vendor kernels against a model of it: structures, a session, what goes wrong."""

import errno
import json
import os

import numpy as np
import pytest

from dsp.hexagon.fastrpc import domain, uapi_android
from dsp.hexagon.fastrpc import session as sessions
from dsp.hexagon.fastrpc.session import FastrpcDevice
from dsp.hexagon.fastrpc.uapi_android import AndroidRequest
from sdk import artifact, reference
from sdk.errors import DeviceFailed, DeviceMissing
from tests.unit.fake_android import NODE, SECURE, AndroidKernel
from tests.unit.fake_fastrpc import SHELL
from tests.unit.test_fastrpc import network, random_input
from towline.cli import main

INVOKE = {"handle": 0, "sc": 4, "pra": 8}
INIT = {"flags": 0, "file": 8, "filelen": 16, "filefd": 20, "mem": 24, "memlen": 32, "memfd": 36}
TABLE = {
    # request: (letter, number, size, offsets), from the table of a Snapdragon 845's driver
    "INVOKE": ("R", 1, 16, INVOKE),
    "MMAP": ("R", 2, 32, {"fd": 0, "flags": 4, "vaddrin": 8, "size": 16, "vaddrout": 24}),
    "MUNMAP": ("R", 3, 16, {"vaddrout": 0, "size": 8}),
    "INIT": ("R", 6, 40, INIT),
    "INVOKE_ATTRS": ("R", 7, 32, {"inv": 0, "fds": 16, "attrs": 24}),
    "GETINFO": ("R", 8, 4, {"domain": 0}),
    "INIT_ATTRS": ("R", 10, 48, {"init": 0, "attrs": 40, "siglen": 44}),
    "CONTROL": ("R", 12, 12, {"req": 0, "value": 4, "level": 8}),
    "MUNMAP_FD": ("R", 13, 24, {"fd": 0, "flags": 4, "va": 8, "len": 16}),
    "ION_ALLOC": ("I", 0, 32, {"len": 0, "align": 8, "heap_id_mask": 16, "flags": 20, "handle": 24}),
    "ION_ALLOC_NEW": ("I", 0, 24, {"len": 0, "heap_id_mask": 8, "flags": 12, "fd": 16, "unused": 20}),
    "ION_FREE": ("I", 1, 4, {"handle": 0}),
    "ION_SHARE": ("I", 4, 8, {"handle": 0, "fd": 4}),
}
STRUCTURES = {
    "INVOKE": "Invoke",
    "MMAP": "Mmap",
    "MUNMAP": "Munmap",
    "INIT": "Init",
    "INVOKE_ATTRS": "InvokeAttrs",
    "GETINFO": "Info",
    "INIT_ATTRS": "InitAttrs",
    "CONTROL": "Control",
    "MUNMAP_FD": "MunmapFd",
    "ION_ALLOC": "IonAllocate",
    "ION_ALLOC_NEW": "IonAllocateNew",
    "ION_FREE": "IonHandle",
    "ION_SHARE": "IonShare",
}


def test_every_structure_has_the_table_s_offsets():
    assert set(TABLE) == {request.name for request in AndroidRequest}
    for name, (letter, number, size, offsets) in TABLE.items():
        assert AndroidRequest[name] == 3 << 30 | size << 16 | ord(letter) << 8 | number, name
        struct = getattr(uapi_android, STRUCTURES[name])
        assert {field: getattr(struct, field).offset for field, _ in struct._fields_} == offsets, name
    argument = uapi_android.RemoteArg
    assert (argument.pv.offset, argument.pv.size, argument.len.offset, argument.len.size) == (0, 8, 8, 8)


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    (tmp_path / "fastrpc_shell_3").write_bytes(SHELL)
    monkeypatch.setenv(domain.LIBRARY_PATH, str(tmp_path))
    fake = AndroidKernel()
    yield fake
    left = (fake.files, fake.buffers, fake.processes, fake.handles, fake.domains)
    assert left == ({}, {}, {}, {}, {}), "descriptors, processes or handles are left"
    fake.assert_hvx_was_locked()
    assert fake.stray == [], "a request to a file that was closed, whose number another may have by then"


def load(kernel, device="fastrpc"):
    return FastrpcDevice(device, kernel).load(network()[1])


def refusal(kernel, device="fastrpc"):
    with pytest.raises((DeviceMissing, DeviceFailed)) as caught:
        load(kernel, device)
    return caught.value


def right(session, seed=1):
    """Whether an inference has the reference's bits."""
    expected = reference.run(network()[1].graph, random_input(seed), "q31")
    outputs = session.run(random_input(seed))
    return all(np.array_equal(value, expected[name]) for name, value in outputs.items())


# -- end to end -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["old", "new", "heap"])
def test_a_network_on_the_dsp_has_the_reference_s_bits(kernel, memory):
    kernel.ion, kernel.has_heap = (None, True) if memory == "heap" else (memory, False)
    program = network()[1]
    with load(kernel) as session:
        for seed in (1, 2):
            assert right(session, seed)
            expected = reference.run(program.graph, random_input(seed), "q31")
            for name, value in session.trace(random_input(seed)).items():
                np.testing.assert_array_equal(value, expected[name], err_msg=name)
        assert len(session.profile().layers) == len(program.plan["layers"])
        assert right(session)
    allocated = {"old": "ion_alloc", "new": "ion_alloc_new", "heap": "dma_heap_alloc"}[memory]
    assert allocated in kernel.log
    assert kernel.log.count("ion_free") == kernel.log.count("ion_alloc")


def test_a_session_has_the_trace_s_order(kernel):
    load(kernel).close()
    memory = {"ion_alloc", "ion_share", "ion_free", "dma_buf_sync", "munmap_fd"}
    order = [name for name in kernel.log if name not in memory]
    # The listener's calls go on beside those after the start.
    assert order[:4] == ["getinfo", "control", "init", "call"]
    assert {*order[4:]} == {"call", "call_attrs", "mmap"}
    assert kernel.shells == [(False, SHELL)]


def test_unsigned_processes_where_there_is_a_shell_for_them(kernel, tmp_path):
    (tmp_path / "fastrpc_shell_unsigned_3").write_bytes(SHELL + b"unsigned")
    kernel.trusted = False
    load(kernel).close()
    assert kernel.shells == [(True, SHELL + b"unsigned")]
    error = refusal(kernel, "fastrpc?pd=signed")
    assert isinstance(error, DeviceFailed)
    assert "pd=unsigned" in error.hint


def test_the_audio_dsp_has_the_secure_node(kernel, tmp_path):
    (tmp_path / "fastrpc_shell_0").write_bytes(SHELL)
    kernel.nodes[SECURE] = 0
    load(kernel, "fastrpc?domain=adsp").close()
    del kernel.nodes[SECURE]
    error = refusal(kernel, "fastrpc?domain=adsp")
    assert error.where == "adsp"
    assert SECURE in error.hint


# -- which node -------------------------------------------------------------------------------------------


def test_both_nodes(kernel, tmp_path):
    (tmp_path / "fastrpc_shell_unsigned_3").write_bytes(SHELL)
    kernel.nodes["/dev/fastrpc-cdsp"] = 0
    for device, create in (
        ("fastrpc", "init_create"),
        ("fastrpc?node=mainline", "init_create"),
        ("fastrpc?node=android", "init_attrs"),
    ):
        kernel.log.clear()
        kernel.has_heap = True
        load(kernel, device).close()
        assert {"init_create", "init", "init_attrs"} & set(kernel.log) == {create}, device
    kernel.nodes["/dev/fastrpc-cdsp"] = errno.EACCES
    load(kernel).close()
    assert "init_attrs" in kernel.log
    assert refusal(kernel, "fastrpc?node=mainline").where == "/dev/fastrpc-cdsp"


def test_no_node(kernel):
    kernel.nodes = {"/dev/fastrpc-cdsp": 0}
    error = refusal(kernel, "fastrpc?node=android")
    assert isinstance(error, DeviceMissing)
    assert error.where == NODE
    kernel.nodes = {}
    error = refusal(kernel)
    assert error.where == f"/dev/fastrpc-cdsp or {NODE}"
    assert "CONFIG_QCOM_FASTRPC" in error.hint


def test_no_permission(kernel):
    kernel.nodes[NODE] = errno.EACCES
    error = refusal(kernel)
    assert isinstance(error, DeviceMissing)
    assert error.where == NODE
    assert "SELinux" in error.hint


@pytest.mark.parametrize("request_", ["getinfo", "init", "call"])
def test_selinux_refuses_a_request(kernel, request_):
    kernel.forbidden = {request_}
    error = refusal(kernel)
    assert isinstance(error, DeviceFailed)
    assert "policy" in str(error)
    assert "avc" in error.hint


@pytest.mark.skipif(os.path.exists(NODE), reason=f"{NODE} exists here")
def test_this_machine_has_none():
    with pytest.raises(DeviceMissing) as caught:
        FastrpcDevice("fastrpc?node=android").load(network()[1])
    assert caught.value.where == NODE


@pytest.mark.slow
@pytest.mark.skipif(os.path.exists(NODE), reason=f"{NODE} exists here")
def test_the_command_line_says_so(tmp_path, capsys):
    graph, program = network()
    artifact.save(artifact.Artifact((program,), graph, "q31"), tmp_path / "net.tow")
    np.save(tmp_path / "x.npy", random_input()["x"])
    command = ["run", str(tmp_path / "net.tow"), "--input", str(tmp_path / "x.npy"), "--json"]
    assert main([*command, "--device", "fastrpc?node=android"]) == 3
    assert NODE in json.loads(capsys.readouterr().out)["error"]["message"]
    assert main([*command, "--device", "fastrpc?node=smd"]) == 2


def test_the_nodes_that_exist_are_listed(monkeypatch):
    here = {NODE, SECURE, "/dev/fastrpc-cdsp"}
    monkeypatch.setattr(domain.os.path, "exists", lambda path: str(path) in here)
    monkeypatch.setattr(domain.os, "access", lambda path, mode: path == NODE and mode == os.R_OK)
    assert [device for device, _ in sessions.devices()] == ["fastrpc", "fastrpc?node=android"]
    listed = domain.nodes()
    assert [(path, usable) for path, usable, _ in listed] == [
        ("/dev/fastrpc-cdsp", False),
        (NODE, True),
        (SECURE, False),
    ]
    assert [bool(hint) for *_, hint in listed] == [True, False, True]


@pytest.mark.slow
@pytest.mark.parametrize("usable", [False, True])
def test_doctor_says_what_to_do_about_a_node(usable, capsys, monkeypatch):
    monkeypatch.setattr(domain, "nodes", lambda: [(NODE, usable, "" if usable else "the remedy")])
    main(["doctor"])
    assert ("the remedy" in capsys.readouterr().out) == (not usable)
    main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["result"]["dsps"] == [{"node": NODE, "usable": usable}]


# -- refusals ---------------------------------------------------------------------------------------------


def test_no_shell(kernel, tmp_path):
    (tmp_path / "fastrpc_shell_3").unlink()
    error = refusal(kernel)
    assert isinstance(error, DeviceMissing)
    assert "fastrpc_shell_unsigned_3 or fastrpc_shell_3" in str(error)
    assert "DSP_LIBRARY_PATH" in error.hint


def test_a_shell_that_the_driver_does_not_accept(kernel, tmp_path):
    (tmp_path / "fastrpc_shell_3").write_bytes(SHELL + bytes(2 << 20))
    error = refusal(kernel)
    assert "2,097,175 bytes" in str(error)
    assert kernel.log.count("init") == 2


def test_a_dsp_that_refuses_the_process(kernel):
    kernel.create_result = 0x8000_0438
    error = refusal(kernel)
    assert "AEE_EINVALIDSIGNATURE" in str(error)
    assert "signed" in error.hint


def test_a_loader_that_refuses_the_network(kernel):
    kernel.loader_says = "signature verify failed"
    error = refusal(kernel)
    assert str(error).endswith("error -5: signature verify failed")


@pytest.mark.parametrize("request_", ["getinfo", "control", "call_attrs"])
def test_an_old_kernel(kernel, request_):
    kernel.lacks = {request_}
    error = refusal(kernel)
    assert isinstance(error, DeviceFailed)
    names = {"getinfo": "GETINFO", "control": "CONTROL", "call_attrs": "INVOKE_ATTRS"}
    assert f"has no {names[request_]}" in str(error)
    assert "too old" in error.hint


def test_a_kernel_that_does_not_allocate_the_process_s_memory(kernel):
    kernel.kalloc = 0
    error = refusal(kernel)
    assert "kalloc" in str(error)
    assert "too old" in error.hint


@pytest.mark.parametrize("enough", range(4))
def test_no_memory_for_buffers(kernel, enough):
    kernel.buffers_left = enough
    assert "Cannot allocate memory" in str(refusal(kernel))


def test_no_source_of_memory(kernel):
    kernel.ion = None
    assert "/dev/ion" in str(refusal(kernel))


# -- a lost connection ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("fault", [errno.EPERM, errno.ECONNRESET, "restart"])
def test_an_inference_is_repeated_once_on_a_new_connection(kernel, fault, caplog):
    with load(kernel) as session:
        assert right(session)
        kernel.faults = [fault]
        assert right(session, 2)
        assert "once more" in caplog.text
        assert right(session)
        assert len(kernel.shells) == 2
        kernel.faults = [fault]
        assert session.trace(random_input())
        assert len(kernel.shells) == 3
        # The second call is the first on the new connection: the weights'.
        kernel.faults = [fault, fault]
        with pytest.raises(DeviceFailed, match="the kernel refused a call"):
            session.run(random_input())
        assert len(kernel.shells) == 4
        with pytest.raises(DeviceFailed, match="closed"):
            session.run(random_input())


def test_a_refusal_after_the_new_connection_is_the_user_s(kernel):
    """Only the inference fails, not what a new connection does first."""
    with load(kernel) as session:
        dispatch = kernel._dispatch

        def refuse(process, handle, scalars, inputs, sizes):
            if scalars >> 24 == 3 and handle in process.modules:
                raise OSError(errno.EPERM, os.strerror(errno.EPERM))
            return dispatch(process, handle, scalars, inputs, sizes)

        kernel._dispatch = refuse
        with pytest.raises(DeviceFailed, match="Operation not permitted"):
            session.run(random_input())
        assert len(kernel.shells) == 2
        kernel._dispatch = dispatch
        assert right(session)


@pytest.mark.parametrize("fault", [errno.EPERM, errno.ECONNRESET])
def test_a_start_is_repeated_once(kernel, fault):
    kernel.start_faults = [fault]
    load(kernel).close()
    assert kernel.log.count("init") == 2
    kernel.start_faults = [fault] * 2
    error = refusal(kernel)
    assert isinstance(error, DeviceFailed)
    assert "adsprpc" in error.hint
    assert kernel.log.count("init") == 4


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.EPIPE, errno.EINVAL])
def test_other_errors_are_not_repeated(kernel, number):
    with load(kernel) as session:
        kernel.faults = [number]
        with pytest.raises(DeviceFailed, match="the kernel refused a call"):
            session.run(random_input())
        assert len(kernel.shells) == 1
        assert right(session)


def test_a_process_that_dies_in_mid_run(kernel):
    session = load(kernel)
    next(iter(kernel.processes.values())).end()
    with pytest.raises(DeviceFailed, match="AEE_EBADSTATE"):
        session.run(random_input())
    session.close()


def test_mainline_does_not_repeat(kernel, tmp_path):
    (tmp_path / "fastrpc_shell_unsigned_3").write_bytes(SHELL)
    kernel.nodes = {"/dev/fastrpc-cdsp": 0}
    kernel.has_heap = True
    with load(kernel) as session:
        kernel.faults = [errno.EPERM]
        with pytest.raises(DeviceFailed, match="the kernel refused a call"):
            session.run(random_input())
        assert len(kernel.shells) == 1
