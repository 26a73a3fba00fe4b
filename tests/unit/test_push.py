"""`towline push` against a phone in a directory: its program under qemu-aarch64, its DSP in qemu-hexagon."""

import contextlib
import dataclasses
import errno
import functools
import getpass
import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from dsp.hexagon.fastrpc import domain
from sdk import artifact, toolchain
from sdk.errors import DeviceFailed, DeviceMissing, ToolMissing, UsageError
from sdk.target import Options
from sdk.targets import get_target
from tests.amount import amount
from tests.graph_builder import GraphBuilder
from tests.unit.fake_android import NODE, AndroidKernel
from tests.unit.fake_fastrpc import SHELL, FakeKernel
from tests.unit.fake_phone import KernelServer, fake_adb
from towline.cli import main
from towline.phone import build, link
from towline.phone.device import PhoneSession
from towline.phone.job import FOR_C, Done, Job
from towline.phone.link import Adb
from towline.phone.refusals import KINDS, refusal

needs_phone = pytest.mark.skipif(
    not (shutil.which("qemu-aarch64") and build.LIBC.exists()),
    reason="needs qemu-aarch64 (qemu-user) and the C library for arm64 (libc6-dev-arm64-cross)",
)
FAKE_SYSTEM = Path(__file__).with_name("fake_system.c")
PLAN = 192 + 32
"""Bytes of a plan without a schedule."""


@functools.cache
def program(target):
    b = GraphBuilder((1, 3, 13, 21), dtype="int8", seed=2)
    x = b.conv("x", 12, 3, strides=2, pads=1, relu=True)
    y = b.add(b.conv(b.depthwise(x, pads=1), 12), x)
    graph = b.graph(y, b.gemm(b.reshape(b.global_average_pool(y)), 10))
    return graph, get_target(target).compile(graph, Options())


@pytest.fixture
def phone(tmp_path, monkeypatch):
    """A working directory with arrays x.npy, and a phone at adb: its directory."""
    fake_adb(tmp_path / "adb", tmp_path / "phone")
    monkeypatch.setenv("TOWLINE_ADB", str(tmp_path / "adb"))
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(1).integers(-128, 127, (2, 3, 13, 21), np.int8, endpoint=True)
    np.save("x.npy", values)
    return tmp_path / "phone"


def saved(target):
    graph, made = program(target)
    arithmetic = "f32" if target == "c" else "q31"
    artifact.save(artifact.Artifact((made,), graph, arithmetic), "net.tow")


def push(capsys, *options, way=("--adb",)):
    """(exit code, result or error)."""
    code = main(["push", "net.tow", "--input", "x.npy", "--runs", "2", "--json", *options, *way])
    document = json.loads(capsys.readouterr().out)
    return code, document["result" if document["ok"] else "error"]


# -- the target c -----------------------------------------------------------------------------------------


@needs_phone
@pytest.mark.slow
def test_a_network_in_c_passes_its_check_on_the_phone(phone, capsys):
    saved("c")
    code, result = push(capsys, "--check", "--times", "times.json")
    assert code == 0, result
    assert result["check"]["mismatches"] == 0
    assert result["check"]["elements"] > 1400
    times = json.loads(Path("times.json").read_text())
    assert times == result["times"]
    assert (times["schema"], times["target"], len(times["runs_us"])) == (1, "c", 4)
    assert not {"contexts", "device_us"} & {*times}
    assert [layer["name"] for layer in times["layers"]] == [node.name for node in program("c")[1].graph.nodes]
    assert all(layer["us"] > 0 for layer in times["layers"])
    assert main(["run", "net.tow", "x.npy", "--json"]) == 0
    assert result["outputs"] == json.loads(capsys.readouterr().out)["result"]["outputs"]
    assert list(phone.iterdir()) == [], "something is left on the phone"


@needs_phone
@pytest.mark.slow
def test_a_second_push_sends_what_changed(phone, capsys):
    saved("c")
    whole = push(capsys, "--keep")[1]["sent_bytes"]
    assert whole > 100_000
    left = sorted(path.name for path in (phone / "towline-push").iterdir())
    assert all(len(name) == 64 for name in left), "plans and results are not kept"
    for name in (
        "plan-0123456789abcdef",
        "result-0123456789abcdef",
        f"{left[0]}.part",
    ):  # of a push that was cut
        (phone / "towline-push" / name).touch()
    assert push(capsys, "--keep", "--check")[1]["sent_bytes"] == 2 * PLAN, "the plans alone"
    assert sorted(path.name for path in (phone / "towline-push").iterdir()) == left
    np.save("x.npy", np.zeros((1, 3, 13, 21), np.int8))
    assert push(capsys)[1]["sent_bytes"] == PLAN + 3 * 13 * 21
    assert list(phone.iterdir()) == []


@needs_phone
@pytest.mark.slow
def test_a_kept_program_is_not_trusted_by_its_size(phone, capsys, monkeypatch):
    saved("c")
    assert push(capsys, "--keep")[0] == 0
    (kept,) = [path for path in phone.glob("*/*") if path.read_bytes().startswith(b"\x7fELF")]
    program = kept.read_bytes()
    kept.write_bytes(bytes(len(program)))
    code, result = push(capsys, "--keep")
    assert (code, result.get("sent_bytes")) == (0, len(program) + 2 * PLAN)
    assert kept.read_bytes() == program
    monkeypatch.setenv("FAKE_ADB", "no sha256sum")
    code, result = push(capsys)
    assert (code, result.get("sent_bytes")) == (0, len(program) + 2 * PLAN), "nothing says that it is whole"


@needs_phone
@pytest.mark.slow
def test_a_wrong_result_fails_the_check(phone, capsys, monkeypatch):
    saved("c")
    text = (build.SOURCES / "network.c").read_text()
    bad = text.replace("memcpy(kept, engine", "engine_arena[steps[k].offset] ^= 1;\n    memcpy(kept, engine")
    assert bad != text
    monkeypatch.setattr(build, "SOURCES", phone.parent / "runner")
    shutil.copytree(Path(build.__file__).parent / "runner", build.SOURCES)
    (build.SOURCES / "network.c").write_text(bad)
    code, error = push(capsys, "--check")
    assert (code, error["code"]) == (1, "check-failed")


# -- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "code", "kind"),
    [
        ("none", 3, "device-missing"),
        ("unauthorized", 3, "device-missing"),
        ("offline", 3, "device-missing"),
        ("permissions", 3, "device-missing"),
        ("two", 2, "usage"),
        ("arm32", 3, "device-missing"),
        ("x86", 3, "device-missing"),
    ],
)
def test_a_phone_that_is_not_ready(phone, capsys, monkeypatch, fault, code, kind):
    saved("c")
    monkeypatch.setenv("FAKE_ADB", fault)
    found, error = push(capsys)
    assert (found, error["code"]) == (code, kind)
    assert error["hint"]


def test_serial_numbers_with_spaces(phone, monkeypatch):
    monkeypatch.setenv("FAKE_ADB", "spaces")
    for serial in (None, "ZUG 5S"):
        found = Adb(serial)
        assert (found.where, found.shell("echo here").out.strip()) == ("adb ZUG 5S", "here")
    with pytest.raises(DeviceMissing):
        Adb("ZUG")
    monkeypatch.setenv("FAKE_ADB", "many")
    assert Adb("A1").where == "adb A1"
    with pytest.raises(DeviceMissing, match="authorised") as caught:
        Adb("A1 (2)._adb-tls-connect._tcp")
    assert caught.value.where.endswith("_tcp")
    with pytest.raises(UsageError, match="2 phones"):
        Adb(None)


@needs_phone
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("full", "output-failed"),
        ("damage", "device-failed"),
        ("damaged plan", "device-failed"),
        ("cut", "device-failed"),
        ("crash", "device-failed"),
        ("noexec", "device-failed"),
    ],
)
def test_a_phone_that_fails_leaves_nothing_behind(phone, capsys, monkeypatch, fault, kind):
    saved("c")
    monkeypatch.setenv("FAKE_ADB", fault)
    code, error = push(capsys, "--check")
    assert (code, error["code"]) == (1, kind)
    assert "adb A1" in error["message"] or fault == "cut"
    assert list(phone.iterdir()) == []
    monkeypatch.delenv("FAKE_ADB")
    assert push(capsys)[0] == 0


@needs_phone
@pytest.mark.slow
def test_a_phone_that_is_unplugged_ends_the_program_and_removes_it(phone, capsys, monkeypatch):
    saved("c")
    monkeypatch.setenv("FAKE_ADB", "unplug")
    code, error = push(capsys, "--runs", "100000000")
    assert (code, error["code"]) == (1, "device-failed")
    assert list(phone.iterdir()) == []


@needs_phone
@pytest.mark.slow
def test_ctrl_c_leaves_nothing_behind(phone):
    saved("c")
    command = [sys.executable, "-m", "towline", "push", "net.tow", "x.npy", "--runs", "100000000", "--adb"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + 60
    while not list(phone.glob("*/plan-????????????????")) and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 130
    assert list(phone.iterdir()) == []


def test_without_adb_it_says_what_to_install(phone, capsys, monkeypatch):
    saved("c")
    monkeypatch.setenv("TOWLINE_ADB", "/nowhere/adb")
    assert push(capsys)[0] == 3
    assert push(capsys, way=("--ssh", "-oProxyCommand=x"))[0] == 2
    assert push(capsys, way=())[0] == 2
    code, error = push(capsys, "--contexts", "1")
    assert (code, "--contexts" in error["message"]) == (2, True), "the target c has no contexts"
    assert push(capsys, "--contexts", "1", "--dsp", "fastrpc?contexts=2")[0] == 2
    for dsp in ("fastrpc", "adsp", "fastrpc?node=android"):
        code, error = push(capsys, "--dsp", dsp)
        assert (code, "DSP" in f"{error}") == (2, dsp != "adsp")
    assert push(capsys, "--runs", f"{1 << 32}")[0] == 2
    code, error = push(capsys, way=("--adb", "net.tow"))
    assert (code, "serial number" in error["message"]) == (2, True), "it swallowed a file"
    monkeypatch.setattr(build, "LIBC", Path("/nowhere/stdio.h"))
    with pytest.raises(ToolMissing):
        build.built([FAKE_SYSTEM])


def test_a_result_that_is_damaged_is_refused():
    job = Job(FOR_C, 1, 0, 4, 0, b"", memoryview(b""), b"abc")
    whole = (
        b"TOWDONE2" + struct.pack("<3q3Ii", -1, 0, 0, 1, 0, 2, -5) + struct.pack("<3Q", 1500, 7, 1) + b"wxyz"
    )
    whole += hashlib.sha256(whole).digest()
    expected = Done(
        None, [1.5], device_us=[7], run_contexts=[1], layers_us=[], contexts=2, clock=-5, output=b"wxyz"
    )
    assert Done.of(whole, job) == expected
    strange = whole[:64] + b"\3" + whole[65:-32]
    with pytest.raises(DeviceFailed, match="3 HVX contexts"):
        Done.of(strange + hashlib.sha256(strange).digest(), job)
    for place in range(0, len(whole), 7):
        with pytest.raises(DeviceFailed):
            Done.of(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :], job)
        with pytest.raises(DeviceFailed):
            Done.of(whole[:place], job)


@needs_phone
@pytest.mark.slow
@pytest.mark.parametrize("target", ["c", "hexagon-v65"])
def test_the_program_compiles_without_a_warning(monkeypatch, target):
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-Wall", "-Wextra", "-Werror"))
    assert build.runner(program(target)[1]).exists()


class Caught(Exception):
    pass


def job_of(target):
    """The program for the phone, and a job as a push gives it: with every layer's output and time."""

    class Taker:
        choice, runs, traced, profiled = domain.Choice(), 1, True, True

        def run(self, image, job):
            raise Caught(image, job)

    with pytest.raises(Caught) as caught:
        PhoneSession(Taker(), program(target)[1]).run({"x": np.zeros((1, 3, 13, 21), np.int8)})
    return caught.value.args


@needs_phone
@pytest.mark.slow
@pytest.mark.parametrize("target", ["c", "hexagon-v65"])
@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"output_bytes": 0},
        {"output_bytes": 1 << 40},
        {"layers": 1},
        {"layers": (1 << 32) - 1},
        {"trace_bytes": 1},
        {"trace_bytes": (1 << 64) - 1100},
        {"trace_bytes": (1 << 64) - 1},
    ],
)
def test_a_plan_of_other_sizes_than_the_network_is_refused(tmp_path, target, sizes):
    """Its digests are right: nothing is written past the result."""
    image, job = job_of(target)
    job = dataclasses.replace(job, **sizes)
    for name, content in {**job.files(), "plan": job.plan()}.items():
        (tmp_path / name).write_bytes(content)
    command = ["qemu-aarch64", image, "plan", "result"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        said = process.stdout.read().decode()
    if target == "c" and not sizes:
        assert (process.returncode, said) == (0, "towline-runner done\n")
        return
    # The object for a DSP knows the sizes itself, and there is no DSP.
    large = max(sizes.values(), default=0) > 0xFFFF_FFFE
    assert process.returncode == 1
    assert said.startswith(f"towline-runner error {'plan' if target == 'c' or large else 'absent'}: ")


@pytest.mark.slow
def test_the_digest_in_c_is_sha_256(tmp_path):
    source = tmp_path / "main.c"
    source.write_text(
        '#include "runner.h"\n#include <stdio.h>\nint main(void) {\n  uint8_t data[200], digest[32];\n'
        "  for (int i = 0; i < 200; i++) data[i] = (uint8_t)(7 * i);\n  for (int n = 0; n <= 200; n++) {\n"
        "    sha256(data, (size_t)n, digest);\n    fwrite(digest, 1, 32, stdout);\n  }\n}\n"
    )
    flags = ["-std=c11", f"-I{build.SOURCES}", "-o", tmp_path / "digests"]
    toolchain.run("cc", [*flags, source, build.SOURCES / "sha256.c"])
    answers = subprocess.run([tmp_path / "digests"], capture_output=True, check=True).stdout
    data = bytes(7 * i & 255 for i in range(200))
    assert answers == b"".join(hashlib.sha256(data[:n]).digest() for n in range(201))


# -- the DSP ----------------------------------------------------------------------------------------------


@pytest.fixture
def kernel(phone, monkeypatch):
    """The phone's kernel: a model, which its program reaches by a socket."""
    yield from served(FakeKernel(), phone, monkeypatch)


@pytest.fixture
def android(phone, monkeypatch):
    """An Android vendor's."""
    yield from served(AndroidKernel(), phone, monkeypatch)


def served(fake, phone, monkeypatch):
    (phone.parent / "fastrpc_shell_unsigned_3").write_bytes(SHELL)
    monkeypatch.setenv(domain.LIBRARY_PATH, str(phone.parent))
    monkeypatch.setenv("TOWLINE_FAKE_KERNEL", str(phone.parent / "kernel"))
    monkeypatch.setattr(build, "DSP", (*build.DSP[:-1], str(FAKE_SYSTEM)))
    saved("hexagon-v65")
    with KernelServer(fake, phone.parent / "kernel") as fake.server:
        yield fake
    fake.assert_hvx_was_locked()


@needs_phone
@pytest.mark.slow
@pytest.mark.parametrize("has_heap", [True, False])
def test_a_network_on_the_phone_s_dsp_passes_its_check(kernel, phone, capsys, has_heap):
    kernel.has_heap = has_heap
    code, result = push(capsys, "--check", "--times", "times.json")
    assert code == 0, result
    assert result["check"]["mismatches"] == 0
    assert result["check"]["elements"] > 1400
    assert len(result["times"]["runs_us"]) == 4
    assert main(["run", "net.tow", "x.npy", "--json"]) == 0
    assert result["outputs"] == json.loads(capsys.readouterr().out)["result"]["outputs"]
    assert kernel.shells == [(True, SHELL)] * 2
    assert ("dma_heap_alloc" in kernel.log) == has_heap
    assert list(phone.iterdir()) == []


def _no_node(kernel):
    kernel.nodes.clear()


def _denied(kernel):
    kernel.nodes.update({"/dev/fastrpc-cdsp": errno.EACCES, "/dev/fastrpc-cdsp-secure": errno.EACCES})


def _both_denied(kernel):
    kernel.nodes = {"/dev/fastrpc-cdsp": errno.EACCES, NODE: errno.EACCES}


def _only_signed(kernel):
    kernel.unsigned_support = False


def _large_shell(kernel):
    Path(os.environ[domain.LIBRARY_PATH], "fastrpc_shell_unsigned_3").write_bytes(SHELL + bytes(2 << 20))


def _no_shell(kernel):
    os.environ[domain.LIBRARY_PATH] = "/nowhere"


def _unsigned(kernel):
    kernel.create_result = 0x8000_0481


def _refuses(kernel):
    kernel.loader_says = "signature verify failed"


def _dies(kernel):
    kernel.invoke_error = errno.EPIPE


def _no_memory(kernel):
    kernel.buffers_left = 1


@needs_phone
@pytest.mark.slow
@pytest.mark.parametrize(
    ("break_it", "code", "says"),
    [
        (_no_node, 3, ["CONFIG_QCOM_FASTRPC", "/dev/adsprpc-smd"]),
        (_denied, 3, ["/dev/fastrpc-cdsp: ", "Permission denied", "udev", "0660"]),
        (_both_denied, 3, ["/dev/fastrpc-cdsp: ", "udev", NODE, "setenforce"]),
        (_no_shell, 3, ["fastrpc_shell_unsigned_3", domain.LIBRARY_PATH]),
        (_only_signed, 1, ["Connection refused", "pd=unsigned", "/dev/fastrpc-cdsp-secure"]),
        (_large_shell, 1, ["2,097,175 bytes", "2 MiB"]),
        (_unsigned, 1, ["0x80000481", "AEE_EUNSIGNEDMOD"]),
        (_refuses, 1, ["error -5", "signature verify failed", "firmware"]),
        (_dies, 1, ["Broken pipe", "remoteproc"]),
        (_no_memory, 1, ["Cannot allocate memory", "dmesg"]),
    ],
)
def test_a_dsp_that_refuses(kernel, phone, capsys, break_it, code, says):
    break_it(kernel)
    found, error = push(capsys)
    assert (found, error["code"]) == (code, "device-missing" if code == 3 else "device-failed")
    assert error["message"].startswith("adb A1: ")
    for words in says:
        assert words in f"{error['message']}; {error['hint']}"
    assert list(phone.iterdir()) == []


@needs_phone
@pytest.mark.slow
@pytest.mark.parametrize("memory", amount(["old", "heap"], ["old", "new", "heap"]))
def test_a_network_on_an_android_vendor_s_kernel_passes_its_check(android, phone, capsys, memory):
    android.ion, android.has_heap = (None, True) if memory == "heap" else (memory, False)
    code, result = push(capsys, "--check", "--times", "times.json", "--dsp", "fastrpc?node=android")
    assert code == 0, result
    assert result["check"]["mismatches"] == 0
    assert result["check"]["elements"] > 1400
    assert result["times"]["contexts"] == [2] * 4
    assert android.shells == [(True, SHELL)] * 2
    assert {"getinfo", "control", "init_attrs", "call", "call_attrs"} <= {*android.log}
    assert android.stray == []


@needs_phone
@pytest.mark.slow
def test_a_lost_connection_is_made_again_once(android, phone, capsys):
    np.save("x.npy", np.zeros((1, 3, 13, 21), np.int8))
    android.faults = ["restart"]
    assert push(capsys, "--check")[0] == 0
    android.start_faults = [errno.EPERM, errno.EPERM]
    code, error = push(capsys)
    assert (code, error["code"]) == (1, "device-failed")
    assert "adsprpc" in error["hint"]
    assert list(phone.iterdir()) == []


@needs_phone
@pytest.mark.slow
def test_signed_processes_where_their_shell_is(android, phone, capsys):
    (phone.parent / "fastrpc_shell_unsigned_3").rename(phone.parent / "fastrpc_shell_3")
    assert push(capsys)[0] == 0
    assert android.shells == [(False, SHELL)] * 2
    code, error = push(capsys, "--dsp", "fastrpc?node=mainline")
    assert (code, error["code"]) == (3, "device-missing")
    assert error["message"].startswith("adb A1: /dev/fastrpc-cdsp: ")


def _selinux(kernel):
    kernel.nodes = {NODE: errno.EACCES}


def _old_driver(kernel):
    kernel.lacks = {"control"}


def _no_kalloc(kernel):
    kernel.kalloc = 0


def _no_ion(kernel):
    kernel.ion = None


@needs_phone
@pytest.mark.slow
@pytest.mark.parametrize(
    ("break_it", "code", "says"),
    [
        (_selinux, 3, ["avc", "setenforce"]),
        (_no_shell, 3, ["fastrpc_shell_unsigned_3 or fastrpc_shell_3", domain.LIBRARY_PATH]),
        (_large_shell, 1, ["2,097,175 bytes", "2 MiB"]),
        (_old_driver, 1, ["Inappropriate ioctl", "no CONTROL"]),
        (_no_kalloc, 1, ["Inappropriate ioctl", "no kalloc"]),
        (_no_ion, 1, ["memory for a buffer", "/dev/dma_heap/system or /dev/ion"]),
    ],
)
def test_an_android_kernel_that_refuses(android, phone, capsys, break_it, code, says):
    break_it(android)
    found, error = push(capsys, "--dsp", "fastrpc?node=android")
    assert (found, error["code"]) == (code, "device-missing" if code == 3 else "device-failed")
    assert error["message"].startswith("adb A1: ")
    for words in says:
        assert words in f"{error['message']}; {error['hint']}"
    assert list(phone.iterdir()) == []


@needs_phone
@pytest.mark.slow
def test_a_result_is_not_lost_to_a_dsp_that_never_closes(kernel, phone, capsys):
    written, over = [], threading.Event()

    def wait_for_ever():
        written.append(any(phone.glob("*/result-*")))
        over.wait(60)
        raise OSError(errno.EINTR, "the program has ended")

    kernel.closing = wait_for_ever
    began = time.monotonic()
    code, result = push(capsys, "--check")
    took = time.monotonic() - began
    over.set()
    assert (code, result["check"]["mismatches"]) == (0, 0)
    assert written == [True, True]
    assert took < 50


@pytest.mark.parametrize("text", ["", "mainline\t13", "smd\t13\t/dev/x", "mainline\tx\t/dev/x"])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_refusal_in_another_form(kind, text):
    assert isinstance(refusal(kind, text, domain.Choice()), DeviceFailed)


# -- ssh --------------------------------------------------------------------------------------------------

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin") or ""
needs_sshd = pytest.mark.skipif(
    not SSHD or (os.geteuid() == 0 and not Path("/run/sshd").is_dir()),
    reason="needs sshd (openssh-server), and as root its directory /run/sshd",
)

AS_A_PHONE = r"""#!/bin/sh
XDG_CACHE_HOME={0}/phone
export XDG_CACHE_HOME
cat {0}/greeting 2> /dev/null
command=$(printf %s "$SSH_ORIGINAL_COMMAND" |
  sed -E 's#\./([0-9a-f]{{64}} )#qemu-aarch64 ./\1#; s/uname -m/echo aarch64/')
exec sh -c "$command"
"""


@pytest.fixture
def server(phone, monkeypatch):
    """A phone at ssh://127.0.0.1:PORT: sshd of this user, with keys and a port of its own.

    Its child before a login must not be stopped (SIGSTOP): where it goes on in a sleep, the seccomp filter of
    OpenSSH 9.2, which lacks restart_syscall, kills it, and the client reports "Connection closed".
    """
    root = phone.parent
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f"]
    for name in ("host", "user"):
        subprocess.run([*keygen, root / name], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (root / "as_a_phone").write_text(AS_A_PHONE.format(root))
    (root / "as_a_phone").chmod(0o755)
    (root / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {root}/host\nAuthorizedKeysFile {root}/user.pub\n"
        f"StrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\n"
        f"ForceCommand {root}/as_a_phone\n"
    )
    key = (root / "host.pub").read_text().split()
    (root / "known").write_text(f"[127.0.0.1]:{port} {key[0]} {key[1]}\n")
    (root / "config").write_text(
        f"Host *\n  User {getpass.getuser()}\n  IdentityFile {root}/user\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {root}/known\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
    )
    (root / "ssh").write_text(f'#!/bin/sh\nexec ssh -F {root}/config "$@"\n')
    (root / "ssh").chmod(0o755)
    monkeypatch.setenv("TOWLINE_SSH", str(root / "ssh"))
    argv = toolchain.dying_with_us([SSHD, "-D", "-e", "-f", root / "sshd_config"])
    with (root / "sshd.log").open("wb") as log, subprocess.Popen(argv, stderr=log) as process:
        try:
            for _ in range(100):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.05)
            yield f"ssh://127.0.0.1:{port}"
        finally:
            process.terminate()


@needs_phone
@needs_sshd
@pytest.mark.slow
def test_a_phone_at_ssh(server, phone, capsys):
    """Its login prints a greeting, which is no part of anything."""
    saved("c")
    (phone.parent / "greeting").write_text("Welcome!\r\nNo line end")
    code, result = push(capsys, "--check", "--keep", way=("--ssh", server))
    assert code == 0, result
    assert result["check"]["mismatches"] == 0
    code, result = push(capsys, way=("--ssh", server))
    assert (code, result["sent_bytes"]) == (0, 2 * PLAN), "the plans alone"
    assert list(phone.iterdir()) == []


@needs_sshd
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["known", "user", "port", "name"])
def test_a_host_that_refuses(server, phone, capsys, fault):
    saved("c")
    if fault == "known":
        (phone.parent / "known").write_text("")
    elif fault == "user":
        (phone.parent / "user").unlink()
    elif fault == "port":
        server = "ssh://127.0.0.1:1"
    else:
        server = "nowhere.invalid"
    code, error = push(capsys, way=("--ssh", server))
    assert (code, error["code"]) == (3, "device-missing")
    assert error["hint"]


@needs_phone
@needs_sshd
@pytest.mark.slow
def test_a_host_that_is_gone_in_mid_run(server, phone):
    saved("c")
    command = [sys.executable, "-m", "towline", "push", "net.tow", "x.npy", "--runs", "100000000"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([*command, "--ssh", server], env=environment, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not list(phone.glob("*/plan-????????????????")) and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.5)
    # The client dies, and the system ends its connection.
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"-F\0{phone.parent}/config\0".encode() in entry.read_bytes():
                os.kill(int(entry.parent.name), signal.SIGKILL)
    assert process.wait(60) == 1
    while list(phone.iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    assert list(phone.iterdir()) == []


class Network:
    """A port that leads to another one, until `silent` is set: then nothing passes, and nothing is closed."""

    def __init__(self, port):
        self.silent = threading.Event()
        self._port, self._ends = port, []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if self.silent.is_set():
                    return
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def close(self):
        for end in (self._listening, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@needs_phone
@needs_sshd
@pytest.mark.slow
def test_a_network_that_goes_silent_in_mid_run(server, phone, capsys, monkeypatch):
    saved("c")
    monkeypatch.setattr(link, "ALIVE", 1)
    network = Network(int(server.rpartition(":")[2]))
    known = phone.parent / "known"
    known.write_text(known.read_text().replace(f"]:{server.rpartition(':')[2]} ", f"]:{network.port} "))

    def cut():
        while not list(phone.glob("*/plan-????????????????")):
            time.sleep(0.05)
        time.sleep(0.5)
        monkeypatch.setattr(link, "PATIENCE", 1)  # to remove files there
        network.silent.set()
        rescue.start()

    rescue = threading.Timer(40, network.close)  # of a push that does not notice
    rescue.daemon = True
    threading.Thread(target=cut, daemon=True).start()
    code, error = push(capsys, "--runs", "100000000", way=("--ssh", f"ssh://127.0.0.1:{network.port}"))
    assert (code, error["code"]) == (1, "device-failed")
    assert rescue.is_alive()
    assert "cable" not in error["hint"]
    network.close()  # at last the host notices
    end = time.monotonic() + 20
    while list(phone.iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    rescue.cancel()
    assert list(phone.iterdir()) == []
