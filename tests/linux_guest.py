"""A Linux guest under QEMU, into which emulated devices are plugged while it runs.

It has an xHCI controller with nothing on it, a network of its own that reaches this machine's loopback as
10.0.2.2, and this machine's root file system, read-only, under /host. Emulated without KVM it boots in a few
seconds, and is one to two orders of magnitude slower than the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from qemu.qmp import QMPClient

from tests.guest_image import NoImage, image

QEMU = "qemu-system-x86_64"
BOOT = 120.0
"""Seconds that the guest may take to boot, on a busy machine."""
ROOT = Path(__file__).resolve().parents[1]


class Guest:
    """A running guest; made by `guest`.

    Attributes:
        qmp: path of a QMP socket, to stop and continue it.
        has_root: this machine's root file system is in /host.
        usbip: path, in /host, of Debian's usbip.
    """

    def __init__(self, folder: Path, usbip: Path) -> None:
        self.qmp = folder / "freezer"
        self.usbip = usbip
        self.has_root = False
        self._own = folder / "qmp"
        self._console = folder / "console"
        self._serial = socket.socket(socket.AF_UNIX)
        self._text = b""

    def _started(self, process: subprocess.Popen[bytes], serial: Path) -> None:
        end = time.monotonic() + BOOT
        while not serial.exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        self._serial.connect(str(serial))
        self._serial.settimeout(1.0)
        self._until("@ready\n", end - time.monotonic())
        self.has_root = self.run("test -e /host/etc", check=False)[0] == 0

    def run(self, command: str, seconds: float = 120.0, *, check: bool = True) -> tuple[int, str]:
        """Run a shell command in the guest; returns its exit code, 0 if `check`, and its output."""
        self._serial.sendall(command.encode() + b"\n")
        text = self._until("@end ", seconds)
        code = int(self._until("\n", 10.0))
        assert not (check and code), f"{command}: exit code {code}\n{text}\n{self.log()}"
        return code, text

    @property
    def saying(self) -> str:
        """What the command that runs in another thread has printed so far."""
        return self._text.decode(errors="replace")

    def python(self, *words: str, seconds: float = 120.0, check: bool = True) -> tuple[int, str]:
        """The same with this tree's Python."""
        if not self.has_root:
            pytest.skip("the guest has no root file system of 9p (QEMU without virtfs)")
        line = " ".join(
            ("PYTHONDONTWRITEBYTECODE=1 HOME=/run TMPDIR=/run", f"{ROOT}/.venv/bin/python", *words)
        )
        return self.run(f"chroot /host sh -c 'cd {ROOT} && {line}'", seconds, check=check)

    def log(self) -> str:
        """The kernel's log since `clear_log`."""
        return self.run("dmesg", check=False)[1]

    def clear_log(self) -> None:
        """Empty the log."""
        self.run("dmesg -c >/dev/null")

    def warnings(self) -> list[str]:
        """The lines of the kernel's log that are warnings or worse.

        That the guest stood still for a moment says something of the machine that runs it.
        """
        lines = self.run("dmesg -r")[1].splitlines()
        warnings = [
            line for line in lines if line.startswith("<") and int(line[1 : line.index(">")]) & 7 <= 4
        ]
        stood_still = ("hrtimer: interrupt took", "clocksource: ")
        return [line for line in warnings if not any(words in line for words in stood_still)]

    @contextlib.contextmanager
    def redirected(self, port: int) -> Iterator[None]:
        """Plug in the device of the usbredir server on that port."""
        backend = {
            "type": "socket",
            "data": {
                "addr": {"type": "inet", "data": {"host": "127.0.0.1", "port": str(port)}},
                "server": False,
            },
        }
        self.monitor(("chardev-add", {"id": "bridge", "backend": backend}))
        self.monitor(
            ("device_add", {"driver": "usb-redir", "id": "usb", "chardev": "bridge", "bus": "xhci.0"})
        )
        try:
            yield
        finally:
            self.monitor(("device_del", {"id": "usb"}))
            for _ in range(100):  # it disappears a little later
                if not any(
                    child["name"] == "usb"
                    for child in self.monitor(("qom-list", {"path": "/machine/peripheral"}))
                ):
                    break
                time.sleep(0.02)

    def monitor(self, *commands: tuple[str, dict[str, Any]]) -> Any:
        """Execute QMP commands; returns the result of the last one."""

        async def talk() -> Any:
            qmp = QMPClient("tests")
            await qmp.connect(str(self._own))
            try:
                for name, arguments in commands:
                    answer = await qmp.execute(name, arguments)
            finally:
                await qmp.disconnect()
            return answer

        return asyncio.run(talk())

    def _until(self, mark: str, seconds: float) -> str:
        end = time.monotonic() + seconds
        while mark.encode() not in self._text:
            assert time.monotonic() < end, (
                f"the guest does not print {mark!r}: {self._text!r} {self._console.read_text()}"
            )
            with contextlib.suppress(TimeoutError):
                self._text += self._serial.recv(65536)
        before, _, self._text = self._text.partition(mark.encode())
        return before.decode(errors="replace")


@contextlib.contextmanager
def guest(folder: Path) -> Iterator[Guest]:
    """A guest that has booted; sockets and log go into the folder. Skips the test if there is no QEMU."""
    qemu = shutil.which(QEMU)
    if qemu is None:
        pytest.skip(f"needs {QEMU} (apt-get install qemu-system-x86)")
    try:
        files = image()
    except NoImage as problem:
        pytest.skip(f"no Linux guest: {problem}")
    running = Guest(folder, files.usbip)
    serial = folder / "serial"
    command = [
        qemu, "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "768",
        "-nodefaults", "-no-user-config", "-nographic", "-no-reboot",
        "-kernel", str(files.kernel), "-initrd", str(files.initramfs),
        "-append", "console=ttyS0 quiet loglevel=4 mitigations=off nokaslr panic=-1",
        "-serial", f"file:{running._console}",
        "-serial", f"unix:{serial},server=on,wait=off",
        "-qmp", f"unix:{running._own},server=on,wait=off",
        "-qmp", f"unix:{running.qmp},server=on,wait=off",
        "-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=",
        "-device", "qemu-xhci,id=xhci",
    ]  # fmt: skip
    if "virtio-9p-pci" in subprocess.run([qemu, "-device", "help"], capture_output=True, text=True).stdout:
        command += ["-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"]
        command += ["-device", "virtio-9p-pci,fsdev=root,mount_tag=root"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            running._started(process, serial)
            yield running
        finally:
            process.kill()
            running._serial.close()
