"""What a card of full size costs its host: booted, and with a kernel run on it."""

import subprocess
import sys

import pytest

from usbgpu.amd.facts.chips import CHIPS

SCRIPT = """
import logging, pathlib, sys
logging.disable(logging.WARNING)
from emulator.amdgpu.card import AmdCard
from emulator.amdgpu.kernels.cases import case
from tests.amdgpu_driver import Driver
from tests.amdgpu_host import Host
from tests.amdgpu_probes import Session

card = AmdCard(sys.argv[1])
driver = Driver(Host(card), card.chip)
driver.boot()
launch = case("add")
assert launch.mismatches(Session(driver).run(launch)) == 0
status = pathlib.Path("/proc/self/status").read_text()
print(card.vram.size >> 20, status.split("VmHWM:")[1].split()[0])
"""
"""Prints MiB of VRAM, and KiB of the process at its largest: Python, numpy and LLVM among them.

`ru_maxrss` would count the parent that forked it.
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
@pytest.mark.parametrize("chip", [pytest.param(name, marks=pytest.mark.slow) for name in CHIPS])
def test_a_card_of_full_size_in_300_mb(chip):
    done = subprocess.run([sys.executable, "-c", SCRIPT, chip], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    size, peak = map(int, done.stdout.split())
    assert size << 20 == CHIPS[chip].vram
    print(f"{chip}: {size} MiB of VRAM, the process {peak / 1000:.0f} MB")
    assert peak < 300_000
