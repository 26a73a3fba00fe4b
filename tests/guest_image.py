"""The parts of a Linux guest: a kernel, modules and busybox of this Debian, downloaded once and kept.

Nothing is installed: `apt-get download` fetches the packages, from which a kernel that QEMU boots without
decompressing it, and an initramfs, are made.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import shutil
import struct
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sdk import cache

MODULES = ("virtio_pci", "virtio_net", "9pnet_virtio", "9p", "xhci_pci")
"""What the guest loads, after what they depend on."""
LATER = ("vhci_hcd", "sd_mod", "uas")
"""What the command `load_later` loads."""
FOLDERS = (
    *(
        "drivers/usb/",
        "drivers/virtio/",
        "drivers/net/",
        "drivers/scsi/",
        "net/9p/",
        "net/core/",
        "fs/",
        "lib/",
    ),
    *("crypto/", "block/", "arch/x86/crypto/"),
)
"""Of the kernel's modules, where those are."""

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mkdir -p /dev /proc /sys /host
mount -t devtmpfs dev /dev; mount -t proc proc /proc; mount -t sysfs sys /sys
for module in $(cat /modules/order); do insmod /modules/$module; done
ifconfig lo up; ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
if mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=524288 root /host; then
  for place in dev proc sys; do mount -o bind /$place /host/$place; done
  mount -t tmpfs run /host/run
fi
for module in $(cat /modules/later); do echo "insmod /modules/$module"; done >/bin/load_later
chmod 755 /bin/load_later
stty -F /dev/ttyS1 raw -echo
exec </dev/ttyS1 >/dev/ttyS1 2>&1
echo @ready
while read -r line; do sh -c "$line" </dev/null; echo "@end $?"; done
"""
"""Runs the commands that arrive on the second serial port, a line at a time."""


class NoImage(Exception):
    """The reason why it cannot be made on this machine."""


@dataclass(frozen=True)
class Image:
    """Files that QEMU boots, and the folder of the unpacked package `usbip`."""

    kernel: Path
    initramfs: Path
    usbip: Path


def image() -> Image:
    """The image, made if necessary. Raises NoImage."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise NoImage("needs Debian's packages")
    depends = _run("apt-cache", "depends", "--important", "linux-image-amd64")
    names = re.findall(r"Depends: (linux-image-\S+)", depends)
    if not names:
        raise NoImage("apt-cache knows no linux-image-amd64: apt-get update")
    place = cache.directory("guest") / cache.digest((names[0], _code()))
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            _build(names[0], Path(folder))
            try:
                (Path(folder) / "image").rename(place)
            except OSError:  # another process was faster
                if not place.exists():
                    raise
    return Image(place / "kernel", place / "initramfs", place / "usbip")


def _code() -> str:
    return Path(__file__).read_text()


def _run(*command: str, folder: Path | None = None) -> str:
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if found.returncode:
        raise NoImage(f"{' '.join(command)}: {found.stderr.strip()[-300:]}")
    return found.stdout


def _build(kernel: str, folder: Path) -> None:
    made = folder / "image"
    made.mkdir()
    _run("apt-get", "download", "-qq", kernel, "busybox-static", "usbip", folder=folder)
    packages = {path.name.partition("_")[0]: path for path in folder.glob("*.deb")}
    _run("dpkg-deb", "-x", str(packages["usbip"]), str(made / "usbip"))
    busybox = next(data for name, data in _files(packages["busybox-static"], r"bin/busybox$"))
    modules: dict[str, bytes] = {}
    for name, data in _files(packages[kernel], rf"boot/vmlinuz-|/kernel/(?:{'|'.join(FOLDERS)}).*\.ko"):
        if "/vmlinuz-" in name:
            (made / "kernel").write_bytes(_decompressed(data))
        else:
            modules[Path(name).name.partition(".")[0].replace("-", "_")] = data
    files = {"init": (INIT.encode(), 0o755), "bin/busybox": (busybox, 0o755)}
    first = _in_order(modules, MODULES)
    later = [name for name in _in_order(modules, LATER) if name not in first]
    files |= {f"modules/{name}.ko": (_module(modules[name]), 0o644) for name in first + later}
    for name, order in (("order", first), ("later", later)):
        files[f"modules/{name}"] = ("\n".join(f"{module}.ko" for module in order).encode(), 0o644)
    (made / "initramfs").write_bytes(gzip.compress(_cpio(files), 1))


def _files(package: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """The files of a package whose names match."""
    command = ("dpkg-deb", "--fsys-tarfile", str(package))
    with subprocess.Popen(command, stdout=subprocess.PIPE) as unpacking:
        assert unpacking.stdout is not None
        with tarfile.open(fileobj=unpacking.stdout, mode="r|") as archive:
            for member in archive:
                if member.isfile() and re.search(pattern, member.name):
                    stream = archive.extractfile(member)
                    assert stream is not None
                    yield member.name, stream.read()


def _decompressed(bzimage: bytes) -> bytes:
    """The ELF inside a bzImage (Documentation/arch/x86/boot.rst); the bzImage if that takes other tools."""
    start = (bzimage[0x1F1] + 1) * 512 + struct.unpack_from("<I", bzimage, 0x248)[0]
    payload = bzimage[start : start + struct.unpack_from("<I", bzimage, 0x24C)[0]]
    if payload.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(payload)
    if payload.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(31).decompress(payload)
    return bzimage


def _module(data: bytes) -> bytes:
    return lzma.decompress(data) if data.startswith(b"\xfd7zXZ\0") else data


def _in_order(modules: dict[str, bytes], wanted: tuple[str, ...]) -> list[str]:
    """The modules to load: what they depend on first. What is not a module is built into the kernel."""
    order: list[str] = []

    def add(name: str) -> None:
        if name in order or name not in modules:
            return
        found = re.search(rb"\0depends=([^\0]*)", _module(modules[name]))
        for other in (found[1].decode() if found else "").split(","):
            add(other.replace("-", "_"))
        order.append(name)

    for name in wanted:
        add(name)
    return order


def _cpio(files: dict[str, tuple[bytes, int]]) -> bytes:
    """An initramfs (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    folders = {str(parent) for name in files for parent in Path(name).parents if str(parent) != "."}
    entries = [(name, b"", 0o40755) for name in sorted(folders)]
    entries += [(name, data, 0o100000 | mode) for name, (data, mode) in files.items()]
    entries.append(("TRAILER!!!", b"", 0))
    out = io.BytesIO()
    for number, (name, data, mode) in enumerate(entries):
        fields = (number + 1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        out.write(b"070701" + b"".join(b"%08X" % field for field in fields))
        for part in (name.encode() + b"\0", data):
            out.write(part)
            out.write(bytes(-out.tell() % 4))
    return out.getvalue()
