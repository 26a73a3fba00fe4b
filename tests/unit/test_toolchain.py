import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from sdk import toolchain
from sdk.errors import BuildFailed, InternalError, ToolMissing

SLEEPER = """
echo $$ > "$PID_FILE"
exec sleep 60
"""


@pytest.fixture
def tool(tmp_path):
    """Writes a shell script that says it is a clang of some version, and otherwise runs `body`."""

    def write(name="clang", version="clang version 19.1.7 (test)", body="exit 0"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit; fi\n{body}\n')
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A PATH without any real tool but what runs the scripts."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    for tool in toolchain.TOOLS.values():
        monkeypatch.delenv(tool.variable, raising=False)
    return path


def alive(pid):
    """Whether the process runs; one that was killed may wait, defunct, for its new parent to notice."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_versioned_names_come_first(alone, tool):
    tool("clang", "clang version 21.0.0")
    tool("clang-20", "clang version 20.1.2")
    assert toolchain.find("clang") == alone / "clang-20"
    assert toolchain.version("clang") == "20.1.2"


def test_old_plain_clang_is_named(alone, tool):
    tool("clang", "Ubuntu clang version 14.0.6")
    with pytest.raises(ToolMissing, match=r"clang 19 or newer is needed, but .*clang is 14\.0\.6") as caught:
        toolchain.find("clang")
    assert caught.value.exit_code == 3
    assert "sudo apt-get install clang-19" in caught.value.hint
    assert "TOWLINE_CLANG" in caught.value.hint


def test_missing_tool_says_how_to_install_it(alone):
    for name, tool in toolchain.TOOLS.items():
        with pytest.raises(ToolMissing, match="not found on PATH") as caught:
            toolchain.command(name)
        assert f"sudo apt-get install {tool.package}" in caught.value.hint


def test_what_is_not_the_tool_is_refused(alone, tool):
    tool("clang", "I am a teapot")
    with pytest.raises(ToolMissing, match="does not identify itself as clang"):
        toolchain.find("clang")


def test_override_wins_and_is_not_checked_for_its_name(alone, tool, monkeypatch, tmp_path):
    tool("clang-19")
    other = tool("my-compiler", "clang version 22.0.0git")
    monkeypatch.setenv("TOWLINE_CLANG", str(other))
    assert toolchain.find("clang") == other
    monkeypatch.setenv("TOWLINE_CLANG", str(tmp_path / "none"))
    with pytest.raises(ToolMissing, match=r"TOWLINE_CLANG=.*none is not an executable"):
        toolchain.find("clang")
    monkeypatch.setenv("TOWLINE_CLANG", "")
    assert toolchain.find("clang").name == "clang-19"


@pytest.mark.parametrize(
    ("name", "says", "version"),
    [
        ("lld", "Debian LLD 19.1.7 (compatible with GNU linkers)", "19.1.7"),
        ("qemu-hexagon", "qemu-hexagon version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)", "7.2.22"),
        ("cc", "gcc (Debian 12.2.0-14+deb12u1) 12.2.0", "12.2.0"),
        ("cc", "Apple clang version 15.0.0 (clang-1500.3.9.4)", "15.0.0"),
        ("sdcc", "SDCC : mcs51/z80/ds390/pdk15 TD- 4.2.0 #13081 (Linux)", "4.2.0"),
    ],
)
def test_versions_as_the_tools_say_them(alone, tool, name, says, version):
    tool(toolchain.TOOLS[name].candidates[0], says)
    assert toolchain.version(name) == version


def test_undeclared_tool_is_a_bug():
    with pytest.raises(InternalError):
        toolchain.find("gcc")


def test_run_gives_and_takes_bytes(tool, monkeypatch, tmp_path):
    monkeypatch.setenv("TOWLINE_CLANG", str(tool(body='pwd; cat; echo "$1" >&2; exit 3')))
    done = toolchain.run("clang", ["-x"], cwd=tmp_path, input=b"\x00\xff", check=False)
    assert done.returncode == 3
    assert done.stdout == os.fsencode(tmp_path) + b"\n\x00\xff"
    assert done.stderr == b"-x\n"


def test_failure_shows_stderr_once_and_trimmed(tool, monkeypatch):
    monkeypatch.setenv(
        "TOWLINE_CLANG",
        str(tool(body="i=0; while [ $i -lt 100 ]; do echo line $i >&2; i=$((i+1)); done; exit 1")),
    )
    with pytest.raises(BuildFailed) as caught:
        toolchain.run("clang", [])
    text = str(caught.value)
    assert text.startswith("clang: failed with exit status 1: line 0\nline 1\n")
    assert text.count("line 0") == 1
    assert text.endswith("line 19\n... and 80 lines more")


@pytest.mark.parametrize(
    ("said", "hint"),
    [("IO failure on output stream: No space left on device", toolchain.FULL_DISK), ("error: space", None)],
)
def test_a_full_disk_has_a_remedy(tool, monkeypatch, said, hint):
    monkeypatch.setenv("TOWLINE_CLANG", str(tool(body=f"echo '{said}' >&2; exit 1")))
    with pytest.raises(BuildFailed) as caught:
        toolchain.run("clang", [])
    assert caught.value.hint == hint


def test_failure_by_signal_is_named(tool, monkeypatch):
    monkeypatch.setenv("TOWLINE_CLANG", str(tool(body="kill -SEGV $$")))
    with pytest.raises(BuildFailed, match="SIGSEGV"):
        toolchain.run("clang", [])


@pytest.mark.slow
def test_timeout_kills_the_tool(tool, monkeypatch, tmp_path):
    monkeypatch.setenv("TOWLINE_CLANG", str(tool(body=SLEEPER)))
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))
    with pytest.raises(BuildFailed, match=r"did not finish within 0\.5 s"):
        toolchain.run("clang", [], timeout=0.5)
    assert not alive(int((tmp_path / "pid").read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_tools_die_with_us(tool, monkeypatch, tmp_path, how):
    pid_file = tmp_path / "pid"
    monkeypatch.setenv("TOWLINE_CLANG", str(tool(body=SLEEPER)))
    monkeypatch.setenv("PID_FILE", str(pid_file))
    us = subprocess.Popen(
        [sys.executable, "-c", "from sdk import toolchain; toolchain.run('clang', [])"],
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: pid_file.exists() and pid_file.read_text().strip())
        child = int(pid_file.read_text())
        assert alive(child)
        us.send_signal(how)
        us.wait(timeout=10)
        wait_for(lambda: not alive(child))
    finally:
        us.kill()
        us.wait()


INTERRUPTED = """
import threading
from sdk import toolchain

begin = threading.Thread.start

def interrupted(thread):
    begin(thread)
    raise KeyboardInterrupt

threading.Thread.start = interrupted
toolchain.start("clang", [])
"""


def test_ctrl_c_while_the_first_tool_starts(tool):
    """The exit must not wait for the thread that starts tools."""
    env = os.environ | {"TOWLINE_CLANG": str(tool(body="cat"))}
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], env=env, capture_output=True, timeout=20)
    assert done.stderr.endswith(b"KeyboardInterrupt\n")


def test_tools_run_from_threads(tool, monkeypatch):
    monkeypatch.setenv("TOWLINE_CLANG", str(tool(body="cat")))
    results = {}

    def work(number):
        results[number] = toolchain.run("clang", [], input=b"%d" % number).stdout

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: b"%d" % number for number in range(8)}


def test_status_has_a_line_for_everything(alone, tool):
    tool("clang-19")
    lines = {line.name: line for line in toolchain.status()}
    assert set(lines) == {*toolchain.TOOLS, "opencl", "tinymesa"}
    assert (lines["clang"].version, lines["clang"].problem) == ("19.1.7", None)
    assert lines["lld"].path is None
    assert "sudo apt-get install lld-19" in lines["lld"].hint
    optional = [name for name, line in lines.items() if line.optional]
    assert optional == ["cc", "sdcc", "make", "sdas8051", "s51", "dot", "adb", "ssh", "opencl", "tinymesa"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "problem", "remedy"),
    [
        ("import os; os.environ['OCL_ICD_VENDORS'] = '/nowhere'", "no platform", "sudo apt-get install pocl"),
        ("import sys; sys.modules['pyopencl'] = None", "cannot be imported", "pip install 'towline[opencl]'"),
    ],
)
def test_opencl_without_a_platform_is_missing(before, problem, remedy):
    pytest.importorskip("pyopencl")
    script = f"""{before}
from sdk.toolchain import status
line = next(line for line in status() if line.name == "opencl")
print(line.version, line.problem)
print(line.hint)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    found, hint = done.stdout.splitlines()
    assert found.startswith("None ")
    assert problem in found
    assert hint.startswith(remedy)


def test_the_platforms_of_opencl_are_those_of_pyopencl():
    pyopencl = pytest.importorskip("pyopencl")
    try:
        expected = len(pyopencl.get_platforms())
    except pyopencl.Error as problem:
        pytest.skip(str(problem))
    path, count = toolchain.opencl_platforms()
    assert count == expected
    assert path.endswith("pyopencl")
