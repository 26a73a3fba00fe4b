"""External programs: which ones Towline calls, where they are found, which versions it needs.

The one place that looks for tools. Each is a row of `TOOLS`: an environment variable overrides the search
of PATH, versioned names are tried before plain ones, and the version is read from the program itself.
Children die with this process, SIGKILL included: util-linux's setpriv asks the kernel for that (prctl(2),
PR_SET_PDEATHSIG) and then becomes the tool. Tools start no children of their own that last: clang runs its
cc1 in process, we call its linker directly, and sdcc's preprocessor, assembler and linker take milliseconds.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from sdk import extras, settings
from sdk.errors import BuildFailed, EnvironmentMissing, InternalError, ToolMissing

LLVM_RELEASES = range(19, 26)
"""LLVM majors whose Debian-style names (clang-19) are tried, oldest first: the one we measure with."""

STDERR_LINES = 20
"""Lines of a failed tool's stderr that go into the error."""

FULL_DISK = f"free some space where it writes, or set TMPDIR and {settings.CACHE.name} to other directories"
"""What helps a tool that had no space left."""


@dataclass(frozen=True)
class Tool:
    """One external program.

    Attributes:
        name: what the rest of Towline calls it.
        variable: environment variable that overrides the search: a path, or a name on PATH.
        candidates: executable names in order of preference.
        minimum: oldest version that is accepted, as (major, minor).
        pattern: finds the version in what it prints.
        package: Debian and Ubuntu package.
        purpose: what it is for, shown by doctor.
        optional: the default journeys do not need it.
        ask: the option that prints its version.
    """

    name: str
    variable: str
    candidates: tuple[str, ...]
    minimum: tuple[int, int]
    pattern: str
    package: str
    purpose: str
    optional: bool = False
    ask: str = "--version"

    @property
    def install(self) -> str:
        return f"sudo apt-get install {self.package}"

    @property
    def needs(self) -> str:
        if self.minimum == (1, 0):  # any
            return self.name
        return f"{self.name} {'.'.join(map(str, self.minimum)).removesuffix('.0')} or newer"


def _llvm(stem: str) -> tuple[str, ...]:
    return (*(f"{stem}-{release}" for release in LLVM_RELEASES), stem)


TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            "clang",
            settings.CLANG.name,
            _llvm("clang"),
            (19, 0),
            r"clang version (\d+(?:\.\d+)+)",
            "clang-19",
            "compiles the DSP's kernels and the emulated bridge's core",
        ),
        Tool(
            "lld",
            settings.LLD.name,
            _llvm("ld.lld"),
            (19, 0),
            r"LLD (\d+(?:\.\d+)+)",
            "lld-19",
            "links the DSP's program and the emulated bridge's core",
        ),
        Tool(
            "cc",
            settings.CC.name,
            (*_llvm("clang"), "gcc", "cc"),
            (4, 9),
            r"(?i)(?:clang|cc|compiler)\b.*?(\d+(?:\.\d+)+)",
            "gcc",
            "compiles the target c's networks for this machine",
            optional=True,
        ),
        Tool(
            "qemu-hexagon",
            settings.QEMU_HEXAGON.name,
            ("qemu-hexagon", "qemu-hexagon-static"),
            (7, 0),
            r"version (\d+(?:\.\d+)+)",
            "qemu-user",
            "the emulated DSP",
        ),
        Tool(
            "sdcc",
            settings.SDCC.name,
            ("sdcc",),
            (4, 0),
            r"(\d+(?:\.\d+)+) #\d+",
            "sdcc",
            "compiles the USB bridge's firmware",
            optional=True,
        ),
        Tool(
            "make",
            settings.MAKE.name,
            ("make", "gmake"),
            (4, 0),
            r"GNU Make (\d+(?:\.\d+)+)",
            "make",
            "builds the USB bridge's firmware",
            optional=True,
        ),
        Tool(
            "sdas8051",
            settings.SDAS8051.name,
            ("sdas8051",),
            (2, 0),
            r"sdas Assembler V(\d+(?:\.\d+)+)",
            "sdcc",
            "assembles firmware for the USB bridge",
            optional=True,
        ),
        Tool(
            "s51",
            settings.S51.name,
            ("s51", "ucsim_51"),
            (0, 6),
            r"uCsim (\d+(?:\.\d+)+)",
            "sdcc-ucsim",
            "the 8051 simulator that ours is measured and checked against",
            optional=True,
        ),
        Tool(
            "dot",
            settings.DOT.name,
            ("dot",),
            (2, 40),
            r"graphviz version (\d+(?:\.\d+)+)",
            "graphviz",
            "draws control flow (--graph)",
            optional=True,
            ask="-V",
        ),
        Tool(
            "adb",
            settings.ADB.name,
            ("adb",),
            (1, 0),
            r"Android Debug Bridge version (\d+(?:\.\d+)+)",
            "adb",
            "pushes networks to an Android phone",
            optional=True,
        ),
        Tool(
            "ssh",
            settings.SSH.name,
            ("ssh",),
            (6, 7),
            r"OpenSSH\D*_(\d+(?:\.\d+)+)",
            "openssh-client",
            "pushes networks to a phone that runs Linux",
            optional=True,
            ask="-V",
        ),
    )
}


def find(name: str) -> Path:
    """Path of a tool of `TOOLS`, its version checked; cached for the process.

    Raises:
        ToolMissing: not found, or too old; the hint is the install command.
    """
    return _locate(name)[0]


def version(name: str) -> str:
    """Version of a tool as it states it, for example "19.1.7".

    Raises:
        ToolMissing: as `find`.
    """
    return _locate(name)[1]


def command(name: str, args: Sequence[str | os.PathLike[str]] = ()) -> list[str]:
    """The argument vector that starts a tool so that it dies with the thread that starts it.

    Raises:
        ToolMissing: as `find`.
    """
    return dying_with_us([find(name), *args])


def dying_with_us(argv: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The argument vector that starts a program so that it dies with the thread that starts it."""
    return [*_death_prefix(), *(os.fspath(arg) for arg in argv)]


def start(name: str, args: Sequence[str | os.PathLike[str]], **streams: Any) -> subprocess.Popen[bytes]:
    """Start a tool that may live as long as this process, and no longer, SIGKILL included.

    The kernel ties a child to the thread that starts it, so a thread that lives as long as this process
    starts it.

    Args:
        name: a tool of `TOOLS`.
        args: its arguments.
        streams: stdin, stdout and stderr as `subprocess.Popen` takes them.

    Raises:
        ToolMissing: as `find`.
        BuildFailed: it could not be started.
    """
    return launch([find(name), *args], **streams)


def launch(argv: Sequence[str | os.PathLike[str]], **streams: Any) -> subprocess.Popen[bytes]:
    """As `start`, of any program: `argv` begins with its path.

    Raises:
        BuildFailed: it could not be started.
    """
    whole = dying_with_us(argv)
    try:
        started: Future[subprocess.Popen[bytes]] = Future()
        _starter(os.getpid()).put((lambda: subprocess.Popen(whole, **streams), started))
        return started.result()
    except OSError as error:
        raise BuildFailed(f"it could not be started: {error.strerror}", where=str(argv[0])) from None


_Order = tuple[Callable[[], "subprocess.Popen[bytes]"], "Future[subprocess.Popen[bytes]]"]


@functools.cache
def _starter(pid: int) -> SimpleQueue[_Order]:
    """Orders to the thread that starts children; after a fork the new process needs one of its own.

    A daemon: at exit, an executor waits without end for a thread that Ctrl-C interrupted at its very start.
    """
    orders: SimpleQueue[_Order] = SimpleQueue()
    threading.Thread(target=_serve, args=(orders,), name=f"towline-start-{pid}", daemon=True).start()
    return orders


def _serve(orders: SimpleQueue[_Order]) -> None:
    while True:
        begin, started = orders.get()
        try:
            started.set_result(begin())
        except BaseException as error:
            started.set_exception(error)


def run(
    name: str,
    args: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str] | None = None,
    input: bytes | None = None,
    timeout: float | None = None,
    check: bool = True,
    scratch: str | os.PathLike[str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a tool to its end and collect stdout and stderr; killed on a time-out and on Ctrl-C.

    Args:
        name: a tool of `TOOLS`.
        args: its arguments.
        cwd: directory to run in.
        input: bytes for its stdin; without them stdin is empty.
        timeout: seconds, None for no limit.
        check: whether a non-zero exit status is an error.
        scratch: directory for files of its own, which it leaves if it is killed; None for the usual one.

    Raises:
        ToolMissing: as `find`.
        BuildFailed: it exited with a status other than 0 (with `check`), or exceeded the time-out.
    """
    argv = command(name, args)
    environment = None if scratch is None else {**os.environ, "TMPDIR": os.fspath(scratch)}
    try:
        # subprocess.run kills and reaps its child on every exception, KeyboardInterrupt among them.
        done = subprocess.run(
            argv,
            cwd=cwd,
            env=environment,
            input=input or b"",
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"it did not finish within {timeout:g} s and was stopped", where=name) from None
    except OSError as error:
        raise BuildFailed(f"it could not be started: {error.strerror}", where=name) from None
    if check and done.returncode != 0:
        raise failure(name, done.returncode, done.stderr)
    return done


def failure(name: str, status: int, stderr: bytes) -> BuildFailed:
    """The error for a tool that ended with `status` (negative: a signal), its stderr trimmed."""
    lines = stderr.decode(errors="replace").strip().splitlines()
    dropped = len(lines) - STDERR_LINES
    if dropped > 0:
        lines = [*lines[:STDERR_LINES], f"... and {dropped} lines more"]
    said = "\n".join(lines) or "it printed nothing"
    how = f"exit status {status}"
    if status < 0:
        how = f"signal {-status}"
        with contextlib.suppress(ValueError):
            how = signal.Signals(-status).name
    full = os.strerror(errno.ENOSPC).encode() in stderr
    return BuildFailed(f"failed with {how}: {said}", where=name, hint=FULL_DISK if full else None)


@dataclass(frozen=True)
class ToolStatus:
    """One line of doctor.

    Attributes:
        name: the tool, or "opencl".
        purpose: what it is for.
        optional: whether the default journeys work without it.
        path: where it was found, None if it was not.
        version: as it states it, None if it was not found.
        problem: why it cannot be used; None if it can.
        hint: what to do about the problem.
        variable: the environment variable that overrides the search, if there is one.
    """

    name: str
    purpose: str
    optional: bool
    path: str | None
    version: str | None
    problem: str | None = None
    hint: str | None = None
    variable: str | None = None


def status() -> list[ToolStatus]:
    """Every external tool and library, found or not."""
    lines = []
    for tool in TOOLS.values():
        path = found = problem = hint = None
        try:
            path, found = str(find(tool.name)), version(tool.name)
        except ToolMissing as error:
            problem, hint = error.message, error.hint
        lines.append(
            ToolStatus(tool.name, tool.purpose, tool.optional, path, found, problem, hint, tool.variable)
        )
    return [*lines, _opencl_status(), _tinymesa_status()]


def _locate(name: str) -> tuple[Path, str]:
    tool = TOOLS.get(name)
    if tool is None:
        raise InternalError(f"no tool named {name!r} is declared in sdk.toolchain")
    # The environment is part of the key, so that a change of it within the process is seen.
    return _search(tool, os.environ.get(tool.variable) or None, os.environ.get("PATH"))


@functools.cache
def _search(tool: Tool, override: str | None, path: str | None) -> tuple[Path, str]:
    rejected = []
    for candidate in (override,) if override else tool.candidates:
        executable = shutil.which(candidate, path=path)
        if executable is None:
            continue
        found = _read_version(tool, executable)
        if found is None:
            rejected.append(f"{executable} does not identify itself as {tool.name}")
        elif tuple(map(int, found.split("."))) < tool.minimum:
            rejected.append(f"{executable} is {found}")
        else:
            return Path(executable), found
    hint = f"{tool.install}, or set {tool.variable} to its path"
    if rejected:
        raise ToolMissing(f"{tool.needs} is needed, but {'; '.join(rejected)}", hint=hint)
    if override:
        raise ToolMissing(
            f"{tool.variable}={override} is not an executable",
            hint=f"correct or unset {tool.variable}; {tool.install}",
        )
    raise ToolMissing(f"{tool.needs} was not found on PATH ({tool.purpose})", hint=hint)


def _read_version(tool: Tool, executable: str) -> str | None:
    try:
        done = subprocess.run(
            [*_death_prefix(), executable, tool.ask],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(tool.pattern, done.stdout.decode(errors="replace"))
    return match[1] if match else None


def _death_prefix() -> tuple[str, ...]:
    return _setpriv(os.environ.get("PATH"))


@functools.cache
def _setpriv(path: str | None) -> tuple[str, ...]:
    setpriv = shutil.which("setpriv", path=path)
    if setpriv is None:
        return ()
    # busybox and util-linux before 2.33 have a setpriv without the option.
    probe = subprocess.run(
        [setpriv, "--pdeathsig", "KILL", setpriv, "--version"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return (setpriv, "--pdeathsig", "KILL") if probe.returncode == 0 else ()


def _opencl_status() -> ToolStatus:
    purpose = "runs Adreno programs (any OpenCL 1.2 platform)"
    try:
        library, platforms = opencl_platforms()
    except EnvironmentMissing as error:
        return ToolStatus("opencl", purpose, True, None, None, error.message, error.hint)
    plural = "platform" if platforms == 1 else "platforms"
    return ToolStatus("opencl", purpose, True, library, f"{platforms} {plural}")


def opencl_platforms() -> tuple[str, int]:
    """(path of pyopencl, number of platforms that it finds): its wheels contain a loader of their own.

    Raises:
        EnvironmentMissing: no pyopencl, no loader, or a loader without a platform (ICD) behind it.
    """
    try:
        pyopencl: Any = importlib.import_module("pyopencl")
    except ImportError as problem:
        hint = f"{extras.install('opencl')}; then sudo apt-get install pocl-opencl-icd, a platform on the CPU"
        raise EnvironmentMissing(f"pyopencl cannot be imported: {problem}", hint=hint) from None
    try:
        count = len(pyopencl.get_platforms())
    except pyopencl.Error as problem:  # CL_PLATFORM_NOT_FOUND_KHR, if nothing else is wrong
        hint = "sudo apt-get install pocl-opencl-icd"
        raise EnvironmentMissing(f"OpenCL has no platform: {problem}", hint=hint) from None
    return os.path.dirname(pyopencl.__file__), count


TINYMESA = "25.2"
"""The Mesa whose structs `dsp.adreno.ir3` knows: major and minor version of tinymesa."""


def _tinymesa_status() -> ToolStatus:
    purpose = "static figures of Adreno kernels"
    try:
        found, path = tinymesa()
    except EnvironmentMissing as error:
        return ToolStatus("tinymesa", purpose, True, None, None, error.message, error.hint)
    return ToolStatus("tinymesa", purpose, True, path, found)


def tinymesa() -> tuple[str, str]:
    """(version, path of libtinymesa.so) of the Python package tinymesa: Mesa's NIR and ir3, as a library.

    Raises:
        EnvironmentMissing: it is not installed, or of another Mesa.
    """
    hint = f"pip install 'tinymesa=={TINYMESA}.*' (Linux on x86-64)"
    try:
        found = importlib.metadata.version("tinymesa")
    except importlib.metadata.PackageNotFoundError:
        raise EnvironmentMissing("the Python package tinymesa is not installed", hint=hint) from None
    if found.split(".")[:2] != TINYMESA.split("."):
        raise EnvironmentMissing(f"tinymesa {TINYMESA} is needed, but {found} is installed", hint=hint)
    package = importlib.util.find_spec("tinymesa")
    library = Path(package.origin).with_name("libtinymesa.so") if package and package.origin else None
    if library is None or not library.is_file():
        raise EnvironmentMissing(f"tinymesa {found} lacks its libtinymesa.so", hint=hint)
    return found, str(library)
