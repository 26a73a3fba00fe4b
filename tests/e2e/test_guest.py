"""A real Linux kernel as the host: its xHCI driver by usbredir, and its vhci_hcd by USB/IP."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from emulator.amdgpu import synthetic
from emulator.usb.freeze import Freezer
from emulator.usb.host import Host
from emulator.usb.server import Server
from emulator.usb.usbredir import UsbRedir
from emulator.usb.wire import Setup, Speed
from sdk import artifact, compiler
from tests.amount import amount, thorough_only
from tests.contract.loopback_function import COUNT, LoopbackFunction
from tests.contract.usb_fixture import QuietWorld
from tests.graph_builder import GraphBuilder
from tests.linux_guest import Guest, guest
from usbgpu.amd.facts.chips import CHIPS

pytestmark = pytest.mark.slow

STEPS = ("enumeration", "control", "bulk", "cancel", "reset", "bulk")


@pytest.fixture(scope="module")
def running() -> Iterator[Guest]:
    with tempfile.TemporaryDirectory() as folder, guest(Path(folder)) as started:
        yield started


@pytest.fixture
def linux(running: Guest) -> Iterator[Guest]:
    """The guest; its kernel must have logged no problem afterwards."""
    running.clear_log()
    yield running
    assert running.warnings() == []


@contextmanager
def emulated(*words: str, kill: bool = False) -> Iterator[int]:
    """`towline emulate`, serving on that port; Ctrl-C ends it, and it must have logged no problem either.

    With `kill` it is SIGKILL.
    """
    command = [sys.executable, "-m", "towline", "emulate", *words]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r":(\d+) until Ctrl-C", line)
            assert found, line + process.stderr.read()
            yield int(found[1])
            if kill:
                return
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0, process.stderr.read()
        finally:
            process.kill()


def wait_for(linux: Guest, text: str) -> str:
    """The kernel's log, once it has that text."""
    for _ in range(200):
        log = linux.log()
        if text in log:
            return log
        time.sleep(0.1)
    raise AssertionError(f"the kernel does not say {text!r}: {log}")


def sysfs(linux: Guest, attribute: str) -> str:
    """An attribute of the device, empty if there is none."""
    command = f"cat $(dirname $(grep -lx add1 /sys/bus/usb/devices/*/idVendor))/{attribute}"
    return linux.run(command, check=False)[1].strip()


def enumerated(linux: Guest) -> str:
    """The kernel's log, once it has enumerated and configured the device.

    A device that goes before that leaves the kernel waiting for its answer, into the next test.
    """
    for _ in range(200):
        if sysfs(linux, "bConfigurationValue") == "1":
            return linux.log()
        time.sleep(0.1)
    raise AssertionError(f"the kernel has not configured the device: {linux.log()}")


def test_the_firmware_as_linux_sees_it_on_xhci(linux: Guest) -> None:
    with emulated("vendor", "--usbredir", "0", "--qmp", str(linux.qmp)) as port, linux.redirected(port):
        log = enumerated(linux)
        assert re.search(r"usb 2-\d: new SuperSpeed USB device number \d+ using xhci_hcd", log)
        assert sysfs(linux, "speed") == "5000"
        _, said = linux.python("-m", "tests.guest_program")
    assert [line.removesuffix(": good") for line in said.splitlines() if "good" in line] == list(STEPS)


def test_the_firmware_attached_by_usbip(linux: Guest) -> None:
    if not linux.has_root:
        pytest.skip("the guest has no root file system of 9p (QEMU without virtfs)")
    linux.run("sh /bin/load_later")
    linux.clear_log()
    tool = f"LD_LIBRARY_PATH={linux.usbip}/usr/lib/x86_64-linux-gnu {linux.usbip}/usr/sbin/usbip"
    with emulated("vendor", "--usbip", "0", "--qmp", str(linux.qmp)) as port:
        listed = linux.run(f"chroot /host sh -c '{tool} --tcp-port {port} list --remote 10.0.2.2'")[1]
        assert re.search(r"1-1: .*\(add1:0001\)", listed)
        linux.run(f"chroot /host sh -c '{tool} --tcp-port {port} attach --remote 10.0.2.2 --busid 1-1'")
        log = enumerated(linux)
        assert "new SuperSpeed USB device" in log
        assert sysfs(linux, "speed") == "5000"
        _, said = linux.python("-m", "tests.guest_program")
        assert said.count("good") == len(STEPS)
        status = linux.run("cat /sys/devices/platform/vhci_hcd.0/status")[1]
        (used,) = re.findall(r"^ss +(\d+) 006", status, re.M)
        linux.run(f"chroot /host sh -c '{tool} detach --port {used}'")
        wait_for(linux, "USB disconnect")


@thorough_only("a stream in the guest that survives the death of its board, below")
def test_towline_finds_the_gpu_from_inside(linux: Guest) -> None:
    image = ("firmware", "--gpu", "gfx1100", "--vram", "512M")
    firmware = synthetic.folder(CHIPS["gfx1100"])
    with emulated(*image, "--usbredir", "0", "--qmp", str(linux.qmp)) as port, linux.redirected(port):
        enumerated(linux)
        words = ("gpu", "info", "--device", "usb", "--firmware", str(firmware))
        _, said = linux.python("-m", "towline", *words, seconds=240)
    assert re.search(r"^USB +add1:0001, USB 3", said, re.M)
    assert re.search(r"^card +gfx1100, 96 compute units", said, re.M)
    assert re.search(r"^opened +cold: it was booted", said, re.M)


def test_a_stream_survives_the_death_of_its_board(linux: Guest, tmp_path: Path) -> None:
    b = GraphBuilder((1, 3, 12, 12), seed=4)
    b.gemm(b.reshape(b.global_average_pool(b.conv("x", 16, 3, strides=2, relu=True))), 10)
    artifact.save(compiler.compile(b.graph(), "amd-gfx1100"), tmp_path / "net.tow")
    board = ("firmware", "--gpu", "gfx1100", "--vram", "512M", "--usbredir", "0", "--qmp", str(linux.qmp))
    words = ("--device", "usb", "--firmware", str(synthetic.folder(CHIPS["gfx1100"])), "--json")
    words += ("--frames", "12", "--patience", "300s", "--check")
    with ThreadPoolExecutor(1) as pool:
        with ExitStack() as first:
            with emulated(*board, kill=True) as port:
                first.enter_context(linux.redirected(port))
                enumerated(linux)
                running = pool.submit(
                    linux.python, "-m", "towline", "stream", str(tmp_path / "net.tow"), *words, seconds=400
                )
                while '"frame": 2,' not in linux.saying:
                    assert not running.done(), running.result()
                    time.sleep(0.1)
            linux.monitor(("cont", {}))  # it may have been stopped for the board to keep up
        with emulated(*board) as port, linux.redirected(port):
            said = running.result()[1]
    result = json.loads(said[said.rindex('{"schema"') :])["result"]  # behind what draws the progress
    assert result["frames"] == {"ok": 12, "late": 0, "fallback": 0, "dropped": 0, "lost": 0}
    assert (result["wrong"], result["check"]["compared"]) == (0, 12)
    assert [one["kind"] for one in result["recoveries"]] == ["cold"]


@pytest.mark.parametrize("speed", ["super", "high"])
def test_the_kernels_storage_driver_on_the_image_in_the_makers_style(linux: Guest, speed: str) -> None:
    """Its drivers for bulk-only and USB Attached SCSI look at it: a removable disk without a medium."""
    linux.run("sh /bin/load_later", check=False)
    linux.clear_log()
    words = ("maker", "--strict", "--speed", speed, "--usbredir", "0", "--qmp", str(linux.qmp))
    with emulated(*words) as port, linux.redirected(port):
        log = wait_for(linux, "Attached SCSI removable disk")
    assert re.search(rf"new {'high-speed' if speed == 'high' else 'SuperSpeed'} USB device", log)
    assert re.search(r"usb-storage \d-\d:1\.0: USB Mass Storage device detected", log)


class SlowWorld(QuietWorld):
    """A world in which the answer to a request takes so many seconds of wall time.

    Attributes:
        delay: of the next answer.
    """

    delay = 0.0

    def step(self, until: int) -> None:
        delay, self.delay = self.delay, 0.0
        time.sleep(delay)
        super().step(until)


class SlowFunction(LoopbackFunction):
    """COUNT takes three seconds."""

    world: SlowWorld

    def setup(self, packet: bytes) -> None:
        super().setup(packet)
        if Setup.unpack(packet).request == COUNT:
            self.world.delay = 3.0


@contextmanager
def served(
    function: LoopbackFunction,
    world: QuietWorld,
    qmp: Path | None = None,
    best: Speed = Speed.SUPER,
) -> Iterator[tuple[Host, int]]:
    """A device in this process, at a port."""
    host = Host(function, world, best=best)
    host.plug()
    server = Server(host, 0, UsbRedir, lambda line: None)
    freezer = Freezer(server, str(qmp), lambda line: None) if qmp is not None else None
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield host, server.port
    finally:
        server.stop()
        thread.join()
        server.close()
        if freezer is not None:
            freezer.close()


def test_halts_and_a_link_that_drops_and_returns(linux: Guest) -> None:
    world = QuietWorld()
    with served(LoopbackFunction(world.clock), world) as (host, port), linux.redirected(port):
        _, said = linux.python("-m", "tests.guest_program", "halt")
        assert "halt: good" in said
        linux.clear_log()
        host.unplug()
        wait_for(linux, "USB disconnect")
        host.plug()
        assert "new SuperSpeed USB device" in enumerated(linux)


def test_high_speed(linux: Guest) -> None:
    world = QuietWorld()
    with (
        served(LoopbackFunction(world.clock), world, best=Speed.HIGH) as (_, port),
        linux.redirected(port),
    ):
        assert "new high-speed USB device" in enumerated(linux)
        assert sysfs(linux, "speed") == "480"


@pytest.mark.parametrize("frozen", amount([True], [True, False]))
def test_a_slow_emulation_stops_the_guests_clock(linux: Guest, frozen: bool) -> None:
    world = SlowWorld()
    function = SlowFunction(world.clock)
    function.world = world
    with served(function, world, linux.qmp if frozen else None) as (_, port), linux.redirected(port):
        enumerated(linux)
        code, said = linux.python("-m", "tests.guest_program", "slow", check=False)
    assert ("slow: good" in said, code) == ((True, 0) if frozen else (False, 1)), said
