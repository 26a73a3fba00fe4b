"""Which blocks of a network's code one inference executes, in order, and the registers that each begins with.

It is read from qemu's own log, which every build of it can write: `in_asm` lists each block as it is
translated, `exec,cpu` each one that is executed, with registers; `nochain` makes that complete.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from dsp.hexagon.disassembly import Packet, Program
from sdk import files, settings, toolchain
from sdk.errors import DeviceFailed

Words = npt.NDArray[np.uint32]
Indices = npt.NDArray[np.int64]

REGISTERS = (*(f"r{number}" for number in range(32)), "m0", "m1", "gp")
"""Those that addresses are made of, in order of `Execution.registers`."""
LINK = REGISTERS.index("r31")

CHUNK = 1 << 25
_RECORD = b"Trace "
_REGISTER = re.compile(rb"^  (\w+) = 0x([0-9a-f]{8})$", re.MULTILINE)
_TRANSLATED = re.compile(r"^0x([0-9a-f]+): ", re.MULTILINE)


@dataclass(frozen=True)
class Execution:
    """One inference.

    Attributes:
        starts: the address of each block that was executed.
        order: a block's number for each time that one was executed.
        registers: what it began with, [executions, len(REGISTERS)].
        ends: address of each block -> that behind its last word.
        code: what holds the blocks.
    """

    starts: Indices
    order: Indices
    registers: Words
    ends: Mapping[int, int]
    code: Program

    def block(self, number: int) -> tuple[Packet, ...]:
        """The packets of a block.

        Raises:
            InvalidArtifact: not all of it can be disassembled.
            DeviceFailed: qemu did not log it as translated.
        """
        address = int(self.starts[number])
        if address not in self.ends:
            raise DeviceFailed(f"qemu-hexagon executed a block at {address:#x} that it did not log before")
        end = self.ends[address]
        packets = []
        while address < end:
            packets.append(self.code.packet(address))
            address = packets[-1].following
        return tuple(packets)

    def calls(self, entries: Sequence[int]) -> list[range]:
        """Where in `order` each of these functions ran, that were called one after another.

        Raises:
            DeviceFailed: they were not.
        """
        places: dict[int, Indices] = {}

        def following(address: int, at: int) -> int:
            if address not in places:
                places[address] = np.flatnonzero(self.starts[self.order] == address)
            found = places[address]
            index = int(np.searchsorted(found, at))
            if index == len(found):
                raise DeviceFailed(f"qemu-hexagon's log has no execution of {address:#x}, which is due")
            return int(found[index])

        spans = []
        end = 0
        for entry in entries:
            start = following(entry, end)
            end = following(int(self.registers[start, LINK]), start + 1)
            spans.append(range(start, end))
        return spans


def execute(elf: bytes, data: bytes, code: Program, qemu_flags: Sequence[str]) -> Execution:
    """Run a network's process, with this standard input, to its end.

    Raises:
        ToolMissing: qemu-hexagon is missing.
        DeviceFailed: it failed, or its log is not understood.
        OutputFailed: the temporary directory is full.
    """
    with files.scratch_directory() as directory:
        image, given = directory / "network.elf", directory / "input"
        files.write(image, elf)
        files.write(given, data)
        image.chmod(0o700)  # qemu-user requires it
        extents = _translated(b"".join(_logged("in_asm,nochain", image, given, qemu_flags)).decode())
        parts = [_decoded(part) for part in _records(_logged("exec,cpu,nochain", image, given, qemu_flags))]
    if not parts:
        raise DeviceFailed(
            "qemu-hexagon logged nothing", hint=f"set {settings.QEMU_HEXAGON.name} to another one"
        )
    addresses = np.concatenate([part[0] for part in parts])
    starts, order = np.unique(addresses, return_inverse=True)
    registers = np.concatenate([part[1] for part in parts])
    return Execution(starts.astype(np.int64), order.astype(np.int64), registers, extents, code)


def _translated(log: str) -> dict[int, int]:
    """Address of each block -> that behind its last word."""
    found = {}
    for part in log.split("\nIN:")[1:]:
        words = [int(word, 16) for word in _TRANSLATED.findall(part)]
        if words:
            found[words[0]] = words[-1] + 4
    return found


def _logged(items: str, image: Path, given: Path, qemu_flags: Sequence[str]) -> Iterator[bytes]:
    """The log of a run, as it comes: of a network of 20 million packets it is 2 GB."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as log, given.open("rb") as stdin:
        try:
            process = toolchain.start(
                "qemu-hexagon",
                [*qemu_flags, "-d", items, "-D", f"/dev/fd/{write}", image],
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[write],
            )
        finally:
            os.close(write)
        try:
            yield from _chunks(log)
            if status := process.wait():
                raise DeviceFailed(f"qemu-hexagon stopped while it logged (exit status {status})")
        finally:
            process.kill()
            process.wait()


def _chunks(log: BinaryIO) -> Iterator[bytes]:
    while chunk := log.read(CHUNK):
        yield chunk


def _records(chunks: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Whole records: each is what stands between one `_RECORD` and the next."""
    rest = b""
    for chunk in chunks:
        *whole, last = (rest + chunk).split(_RECORD)
        rest = _RECORD + last
        if whole := [record for record in whole if record]:
            yield whole
    if len(rest) > len(_RECORD):
        yield [rest.removeprefix(_RECORD)]


def _decoded(records: Sequence[bytes]) -> tuple[Words, Words]:
    """Addresses [records] and registers [records, len(REGISTERS)].

    Raises:
        DeviceFailed: they do not all have the same form.
    """
    dumps = [record[record.index(b"\n") + 1 :] if b"\n" in record else b"" for record in records]
    places = {found[1].decode(): found.start(2) for found in _REGISTER.finditer(dumps[0])}
    wanted = ("pc", *REGISTERS)
    if len(set(map(len, dumps))) != 1 or not places.keys() >= set(wanted):
        raise DeviceFailed(
            "the form of qemu-hexagon's log is not known",
            hint=f"set {settings.QEMU_HEXAGON.name} to the path of version 7.2",
        )
    table = np.frombuffer(b"".join(dumps), np.uint8).reshape(len(dumps), -1)
    digits = np.stack([table[:, places[name] : places[name] + 8] for name in wanted], axis=1)
    values = (digits & 15) + 9 * (digits >> 6)  # ASCII
    powers = (16 ** np.arange(7, -1, -1, dtype=np.uint64)).astype(np.uint32)
    words = (values.astype(np.uint32) * powers).sum(axis=2, dtype=np.uint32)
    return words[:, 0], words[:, 1:]
