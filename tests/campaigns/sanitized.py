"""The emulator's C and that of the target c, built with AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m tests.campaigns.sanitized KIND

reads numbers of cases from stdin and answers each with a line. It is its own process because the runtime must
be loaded before everything else; Python's memory is from malloc there, so that the bytes before and behind a
bytearray count as outside. Functions' own frames are not instrumented in the emulator: waves have stacks that
end without returning.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from sdk import toolchain
from sdk.errors import TowlineError
from tests.campaigns.campaign import Case, Surface

FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


class Missing(Exception):
    """clang has no sanitizers here."""


class Report(Exception):
    """A sanitizer's report."""


def runtime() -> Path:
    """The runtime's shared library. Raises Missing."""
    try:
        asked = toolchain.run("clang", ["-print-file-name=libclang_rt.asan-x86_64.so"])
    except TowlineError as problem:
        raise Missing(str(problem)) from None
    path = Path(asked.stdout.decode().strip())
    if not path.is_absolute() or not path.exists():
        raise Missing("clang's sanitizers are not installed (Debian: libclang-rt-19-dev)")
    return path


# -- inside ------------------------------------------------------------------------------------------------


def native() -> None:
    """Have the emulator's library built with the sanitizers; for the whole process."""
    from emulator import native as library

    more = (
        "-fno-sanitize=function",
        "-mllvm",
        "-asan-stack=0",
        "-g1",
    )  # translated code has no types in front
    library.FLAGS = (*library.FLAGS, *FLAGS, *more)
    library.LINK_FLAGS = tuple(flag for flag in library.LINK_FLAGS if flag != "-s")


def mcs51() -> Callable[[random.Random], None]:
    """Random code and registers on the bare core; damaged firmware on a board."""
    from emulator.board import Board
    from emulator.image_file import load, locate
    from emulator.mcs51.core import GUARDS, Stop
    from emulator.options import Options
    from tests.unit.mcs51_bench import Bench

    firmware = load(locate("firmware"))

    def bare(rng: random.Random) -> None:
        bench = Bench(skip=rng.random() < 0.5)
        cpu = bench.cpu
        banks = [rng.randbytes(rng.choice((1, 100, 0x10000))) for _ in range(2)]
        cpu.load(*banks)
        for plane in (bench.xdata, bench.phy):
            plane.storage[:] = rng.randbytes(0x10000)
            for _ in range(rng.choice((0, 50))):
                plane.flags[rng.randrange(0x10000)] = rng.randrange(4)
        cpu.iram[:] = rng.randbytes(0x100)
        for address in range(0x80, 0x100):
            cpu.set_sfr(address, rng.randrange(256))
        cpu.pc = rng.choice((0, 0x7FFF, 0xFFFE, 0xFFFF, rng.randrange(0x10000)))
        cpu.guard(*rng.sample(sorted(GUARDS), rng.randrange(len(GUARDS) + 1)))
        watched = rng.random() < 0.5
        if watched:
            cpu.watch({rng.randrange(0x180): rng.randrange(1, 4) for _ in range(9)})
            cpu.breakpoints([(rng.randrange(2), rng.randrange(0x10000)) for _ in range(9)])
        if rng.random() < 0.3:
            cpu.profile()
            cpu.coverage()
        for _ in range(200):
            cpu.line(rng.randrange(2), rng.random() < 0.5)
            cpu.receive(rng.randrange(256))
            for address in (0x82, 0x83, 0xA0):  # DPTR and P2: the last bytes of a plane
                if rng.random() < 0.5:
                    cpu.set_sfr(address, 0xFF)
            stop = cpu.run(cpu.clock + rng.choice((1, 50, 3000)))
            if stop is Stop.READ:
                cpu.finish_read(rng.randrange(256))
            elif stop is not Stop.UNTIL:
                cpu.pass_mark()
                if watched:
                    cpu.take_hits()
                cpu.pc = rng.randrange(0x10000)

    def board(rng: random.Random) -> None:
        banks = []
        for bank in firmware.banks:
            code = bytearray(bank)
            for _ in range(rng.choice((1, 10, 300))):
                code[rng.randrange(rng.choice((0x80, 0x2C00)))] = rng.randrange(256)
            banks.append(bytes(code))
        built = Board(replace(firmware, banks=(banks[0], banks[1])), Options())
        with contextlib.closing(built), contextlib.suppress(TowlineError):
            built.usb.clock.sleep(0.005)

    return lambda rng: board(rng) if rng.random() < 0.2 else bare(rng)


def tlp() -> Callable[[random.Random], None]:
    """Random requests, sizes and addresses through the engine, with an endpoint and without."""
    from firmware.asm2464pd.describe import Space
    from firmware.asm2464pd.registers import tlp as registers
    from tests.unit.pcie import PREFETCHABLE, WINDOW, Requester

    page = registers.TLP_LAUNCH.address & 0xFF00
    kinds = (0x00, 0x20, 0x40, 0x60, 0x04, 0x05, 0x44, 0x45, 0x30, 0x34, 0x70, 0x74, 0x0A, 0x4A)

    def case(rng: random.Random) -> None:
        requester = Requester()
        requester.power_on()
        requester.enumerate()
        for _ in range(100):
            wild = rng.random() < 0.5
            requester.write(registers.TLP_LENGTH, 1)
            requester.write(registers.TLP_ATTRIBUTES, 0)
            for _ in range(rng.randrange(5) if wild else 0):
                place = page | rng.choice((*range(0x10, 0x30), 0x84, 0x96, rng.randrange(256)))
                if place != registers.TLP_LAUNCH.address:
                    requester.bus.cpu_write(Space.XDATA, place, rng.randrange(256))
            base = rng.choice(
                (WINDOW, PREFETCHABLE, PREFETCHABLE, 0x200000, 0, 5 << 32) if wild else (PREFETCHABLE,)
            )
            size = rng.choice((0, 0x1000, 0x10_0000, 0x10_0000))
            address = (base + rng.choice((size, rng.randrange(size + 1))) + rng.randrange(-8, 9)) % (1 << 64)
            kind = rng.choice(kinds) if not wild or rng.random() < 0.9 else rng.randrange(256)
            requester.launch(kind, address, rng.getrandbits(32), rng.randrange(256 if wild else 16))
            requester.run(rng.choice((1, 100, 20_000)))

    return case


def shaders() -> Callable[[random.Random], None]:
    """Wild kernels on both generations of cards."""
    from emulator.amdgpu.isa import jit
    from tests.unit.amdgpu_shader_bench import Bench
    from tests.unit.amdgpu_wild import Writer, run

    jit.keep = lambda name, data: None
    benches = [Bench(chip, budget=3000) for chip in ("gfx1100", "gfx1201")]
    writers = [Writer(bench.chip.name, bench.chip.generation) for bench in benches]

    def case(rng: random.Random) -> None:
        which = rng.randrange(2)
        run(benches[which], writers[which], rng.getrandbits(32))

    return case


def kernels() -> Callable[[random.Random], None]:
    """Random networks of integers and of floats on the target c, whose programs have the sanitizers."""
    from dsp.c import session
    from tests.contract import random_networks, random_plain_networks
    from tests.contract.targets import quick

    session.FLAGS = (*session.FLAGS, *FLAGS)
    target = quick("c")

    def case(rng: random.Random) -> None:
        which = rng.choice((random_networks, random_plain_networks))
        which.check(target, rng.getrandbits(20))

    return case


KINDS = {"8051": mcs51, "tlp": tlp, "shaders": shaders, "kernels": kernels}


def main() -> None:
    kind = sys.argv[1]
    if kind != "kernels":
        native()
    case = KINDS[kind]()
    print("ready", flush=True)
    for line in sys.stdin:
        case(random.Random(line))
        print("ended", flush=True)


# -- outside -----------------------------------------------------------------------------------------------


class Worker:
    """That process."""

    def __init__(self, kind: str, scratch: Path) -> None:
        path = str(runtime())
        environment = dict(os.environ)
        if kind != "kernels":
            environment |= {"LD_PRELOAD": path, "PYTHONMALLOC": "malloc"}
        environment |= {
            "ASAN_OPTIONS": "detect_leaks=0:handle_segv=1:allocator_may_return_null=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "TOWLINE_CC": str(toolchain.find("clang")),
        }
        self._errors = (scratch / "stderr").open("wb+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.campaigns.sanitized", kind],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._wait()

    def run(self, seed: int) -> None:
        """A case. Raises Report if the process ends."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seed}\n")
        self._process.stdin.flush()
        self._wait()

    def _wait(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            self._process.wait()
            self._errors.seek(0)
            raise Report(self._errors.read().decode("utf-8", "replace")[-6000:])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()


@contextlib.contextmanager
def opened(kind: str, scratch: Path) -> Iterator[Case]:
    """A worker; a new one after each report."""
    worker: Worker | None = None

    def case(rng: random.Random) -> str | None:
        nonlocal worker
        worker = worker or Worker(kind, scratch)
        try:
            worker.run(rng.getrandbits(64))
        except Report as report:
            worker.close()
            worker = None
            return str(report)
        return None

    yield case
    if worker is not None:
        worker.close()


def _surface(kind: str, what: str, slice: int) -> Surface:
    return Surface(f"asan-{kind}", what, functools.partial(opened, kind), seconds=600.0, slice=slice)


SURFACES = (
    _surface("8051", "random code and registers on the 8051 core, with the sanitizers", 30),
    _surface("tlp", "random PCIe requests through the TLP engine, with the sanitizers", 20),
    _surface("shaders", "wild kernels on emulated GPUs, whose helpers have the sanitizers", 2),
    _surface("kernels", "random networks on the target c, with the sanitizers", 2),
)


if __name__ == "__main__":
    main()
