"""A published driver's register accesses, replayed on the emulated card.

`data/amdgpu_boot.txt` has them. What that driver did to memory meanwhile (page tables, firmware, command
buffers) its trace does not show: `Replay` does it with what must have been there, at places that the
registers leave free.

VRAM, in KiB: 0 page tables, 4 scratch page, 8 dummy page, 12 interrupts, 528 more page tables, 544 PSP
command, 548 fence, 552 PSP ring, 616 SMU's table, 632 MQD; in MiB: 4 queues, 16 TMR.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from emulator.amdgpu import firmware_files
from emulator.amdgpu.card import AmdCard
from emulator.amdgpu.synthetic import directory
from emulator.core.clock import clocks
from tests.amdgpu_driver import LEAF, PRESENT, RWX, SNOOPED, SYSTEM, TMR, TMR_SIZE, UNCACHED
from tests.amdgpu_host import SRAM, SRAM_SIZE, Host
from usbgpu.amd.facts import psp

SCRIPT = Path(__file__).parent / "data" / "amdgpu_boot.txt"
VA, KIB, MIB = 0x2000_0000_0000, 1 << 10, 1 << 20
TABLES, COMMAND, FENCE = 528 * KIB, 544 * KIB, 548 * KIB
RING, MQD = 552 * KIB, 632 * KIB
QUEUES, QUEUES_VA = 4 * MIB, VA + (480 << 20)
EOP, EOP_VA = 6 * MIB, VA + (928 << 20)
"""Two pages of 2 MiB, where the driver's rings are, and one with its EOP buffer."""

Line = tuple[str, ...]


def sections() -> dict[str, list[str]]:
    """The lines of the script by section."""
    found: dict[str, list[str]] = {}
    for line in SCRIPT.read_text().splitlines():
        if line.startswith("["):
            found[line.strip("[]")] = lines = []
        elif line and not line.startswith("#"):
            lines.append(line)
    return found


def expanded(name: str, generation: int) -> Iterator[Line]:
    """The lines of a section, for a generation, macros expanded; split into words."""
    macros = sections()
    prefix = psp.PREFIXES[{11: 13, 12: 14}[generation]]

    def expand(lines: list[str], *arguments: str) -> Iterator[Line]:
        for line in lines:
            head, _, rest = line.partition(" ")
            if head.isdigit():
                if int(head) == generation:
                    yield from expand([rest], *arguments)
            elif head[:-1].isdigit():
                for number in range(int(head[:-1])):
                    line = rest.replace("{n}", str(number)).replace("{x}", f"{number:x}")
                    yield from expand([line], *arguments)
            elif head.startswith("@"):
                given = (word.format(*arguments) for word in rest.split())
                yield from expand(macros[head[1:]], *given)
            else:
                yield tuple(word.format(*arguments, MP=prefix) for word in line.split())

    return expand(macros[name])


class Replay:
    """One card and the driver's accesses to it.

    Args:
        chip: by name.
        keep: whether a value that the driver made of one that it had read is made of the card's instead of
            the mock's, which was 0: bits that the driver did not set stay as they are.
    """

    def __init__(self, chip: str, *, keep: bool) -> None:
        self.card = AmdCard(chip, 512 * MIB)
        self.chip = self.card.chip
        self.host = Host(self.card)
        self._keep = keep
        self._last = 0  # value that was read last
        self._fence = 0  # goes on over a reset, which VRAM outlives
        self._pinned = 0  # argument that pins a clock to its highest level
        self._levels: dict[int, int] = {}  # answers to GetDpmFreqByIndex, by argument
        self._blobs = firmware_files.blobs(self.chip, directory(self.chip))
        self.start()

    def start(self) -> None:
        """After power-on or a reset: configuration space, and VRAM at MC address 0."""
        for bar, address in ((0x10, 1 << 35), (0x18, 2 << 35)):
            self.host.config_write(bar, address & 0xFFFF_FFFF)
            self.host.config_write(bar + 4, address >> 32)
        self.host.config_write(0x24, 0x1000_0000)
        self.host.config_write(0x04, 7)
        for block, register in (("MMHUB", "MMMC_VM_FB_LOCATION"), ("GC", "GCMC_VM_FB_LOCATION")):
            self._write(f"{block}:{register}_BASE", 0)
            self._write(f"{block}:{register}_TOP", 0x1F)

    def run(self, section: str, most: int | None = None) -> None:
        """A section of the script, or so many of its lines."""
        for line in islice(expanded(section, self.chip.generation), most):
            match line:
                case ("R", register):
                    self._last = self._read(register)
                case ("W", "SMU:MP1_SMN_C2PMSG_82", "level"):
                    self._write("SMU:MP1_SMN_C2PMSG_82", self._pinned)
                case ("W", register, value):
                    self._write(register, int(value, 0))
                case ("Z", *registers):
                    for register in registers:
                        self._write(register, 0)
                case ("M", register, "wptr"):
                    self._submit(register)
                case ("M", register, value, *clear):
                    old = self._read(register) & ~int(clear[0] if clear else "0", 0)
                    self._write(register, int(value, 0) | self._keep * old)
                case ("P", register, mask, value):
                    self._poll(register, int(mask, 0), int(value, 0))
                case ("F",):
                    self.host.write(5, self._last, bytes(4))
                case ("!", *action):
                    self._act(*action)
                case _:
                    raise AssertionError(f"{SCRIPT.name}: {line}")

    # -- registers --------------------------------------------------------------------------------------

    def _index(self, register: str) -> int:
        block, _, name = register.rpartition(":")
        return self.chip.address(block, name) if block else int(name, 0)

    def _read(self, register: str) -> int:
        return int.from_bytes(self.host.read(5, 4 * self._index(register)), "little")

    def _write(self, register: str, value: int) -> None:
        self.host.write(5, 4 * self._index(register), value.to_bytes(4, "little"))

    def _poll(self, register: str, mask: int, value: int) -> None:
        self.host.wait(register, lambda: self._read(register) & mask == value)

    # -- memory -----------------------------------------------------------------------------------------

    def vram(self, offset: int, data: bytes) -> None:
        self.host.write(0, offset, data)

    def word(self, offset: int) -> int:
        return int.from_bytes(self.host.read(0, offset), "little")

    def _act(self, what: str, *words: str) -> None:
        match what:
            case "page":
                self._map()
            case "blob":
                self._upload(words[0])
            case "firmware":
                size = self._upload(name := words[0])
                kind = (psp.FW_TYPES[name],) if name != "TOC" else ()
                self._command("LOAD_IP_FW" if kind else "LOAD_TOC", VA & 0xFFFF_FFFF, VA >> 32, size, *kind)
            case "command":
                self._command(words[0], TMR, 0, TMR_SIZE, 2, TMR, 0)
            case "answer":
                self.host.wait("answer of the PSP", lambda: self.word(FENCE) == self._fence)
                assert self.word(COMMAND + psp.COMMAND_BUFFER.offset("resp")) == 0
            case "level":
                self._levels[int(words[0], 0)] = self._last & 0xFFFF
            case "highest":
                clock = int(words[-1]) << 16
                self._pinned = clock | self._levels[clock | 3]
            case "mqd":
                self._describe_queue()
            case "sleep":
                self.host.sleep(clocks(float(words[0])))

    def _map(self) -> None:
        """The bridge's SRAM at VA, the queues' pages."""
        middle, large, small = (TABLES + 0x1000 * i for i in range(3))
        self.vram(0, bytes(0x1000))
        self.vram(TABLES, bytes(0x3000))
        leaf, flags = LEAF[self.chip.generation], PRESENT | RWX
        single = flags | SYSTEM | SNOOPED | UNCACHED[self.chip.generation]
        single |= leaf if self.chip.generation == 12 else 0
        entries = {0: middle | PRESENT, middle: large | PRESENT, large: small | PRESENT}
        entries |= {small + 8 * i: SRAM + 4096 * i | single for i in range(SRAM_SIZE // 4096)}
        for address, place in ((QUEUES_VA, QUEUES), (QUEUES_VA + 2 * MIB, QUEUES + 2 * MIB), (EOP_VA, EOP)):
            entries[large + 8 * (address - VA >> 21)] = place | flags | leaf
        for place, entry in entries.items():
            self.vram(place, struct.pack("<Q", entry))

    def _describe_queue(self) -> None:
        """The queue's MQD: the values that its registers will get, and all compute units for its waves."""
        first, last = (self.chip.address("GC", f"CP_{name}") for name in ("MQD_BASE_ADDR", "HQD_PQ_WPTR_HI"))
        mqd = [0] * 512
        mqd[0] = 0xC031_0800
        for place in (23, 24, 26, 27, *range(0x4A, 0x4E)):  # COMPUTE_STATIC_THREAD_MGMT_SE0 to SE7
            mqd[place] = 0xFFFF_FFFF
        for line in expanded("queues", self.chip.generation):
            if line[0] == "W" and first <= self._index(line[1]) <= last and line[1] != "GC:CP_HQD_ACTIVE":
                mqd[0x80 + self._index(line[1]) - first] = int(line[2], 0)
        self.vram(MQD, struct.pack("<512I", *mqd))

    def _upload(self, name: str) -> int:
        blob = self._blobs[name.replace("_P0_STACK", "_STACK")]
        self.host.sram[: len(blob)] = blob
        return len(blob)

    def _command(self, name: str, *body: int) -> None:
        buffer = struct.pack("<3I", 0, 0, psp.COMMANDS[name]).ljust(psp.COMMAND_BUFFER.offset("cmd"), b"\0")
        buffer += struct.pack(f"<{len(body)}I", *body)
        self.vram(COMMAND, buffer.ljust(psp.COMMAND_BUFFER.size, b"\0"))

    def _submit(self, register: str) -> None:
        """A frame of the ring, which that driver does not flush out of the HDP."""
        wptr = self._read(register)
        self._fence += 1
        self.vram(RING + 4 * wptr, struct.pack("<6I", COMMAND, 0, 0, FENCE, 0, self._fence).ljust(64, b"\0"))
        self._write(register, wptr + 16)
