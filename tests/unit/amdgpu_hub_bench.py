"""A VM hub set up as a driver would, and page tables built by hand, not from the facts."""

from __future__ import annotations

import struct

from emulator.amdgpu.hub import Hub
from emulator.amdgpu.hub_memory import HubMemory
from tests.unit.amdgpu_bench import context, read, write

START = 0x2000_0000_0000
FB_BASE = 0x80_0000_0000
ROOT, DUMMY, SCRATCH = 0x10_0000, 0x2000, 0x1000
VM = {"GC": "GCVM_", "MMHUB": "MMVM_"}
MC = {"GC": "GCMC_VM_", "MMHUB": "MMMC_VM_"}

VALID, SYSTEM, SNOOPED, EXECUTE, READ, WRITE = 1, 2, 4, 16, 32, 64
RWX = EXECUTE | READ | WRITE


class Recorder:
    """Takes interrupts."""

    def __init__(self):
        self.posted = []

    def post(self, client, source, *, ring=0, vmid=0, data=(0, 0, 0, 0)):
        self.posted.append((client, source, vmid, tuple(data)))


class Bench:
    """A hub, its registers, tables and one client.

    Args:
        chip: gfx1100 or gfx1201.
        block: GC or MMHUB.
        skip: names of registers, less their prefix, that are not written.
    """

    def __init__(self, chip="gfx1100", block="GC", *, skip=(), vram=256 << 20):
        self.context, self.link = context(chip, vram=vram)
        self.block, self.vm, self.mc = block, VM[block], MC[block]
        self.hub = Hub(self.context, block)
        self.interrupts = self.hub.faults.interrupts = Recorder()
        self.generation = 12 if chip.startswith("gfx12") else 11
        self.cntl = 0x1FF_FE07 if self.generation == 11 else 0x1FF_FC07
        self.status = "L2_PROTECTION_FAULT_STATUS" + ("" if self.generation == 11 else "_LO32")
        self.free = ROOT + 0x1000
        self.set_up(skip)

    def set_up(self, skip=()):
        values = {
            self.mc + "AGP_BASE": 0,
            self.mc + "AGP_BOT": 0xFF_FFFF,
            self.mc + "AGP_TOP": 0,
            self.mc + "SYSTEM_APERTURE_LOW_ADDR": FB_BASE >> 18,
            self.mc + "SYSTEM_APERTURE_HIGH_ADDR": FB_BASE + self.context.vram.size - 1 >> 18,
            self.mc + "SYSTEM_APERTURE_DEFAULT_ADDR_LSB": SCRATCH >> 12,
            self.vm + "L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32": DUMMY >> 12,
            self.mc + "MX_L1_TLB_CNTL": 0x1859,
            self.vm + "L2_CNTL": 0x8_0001,
            self.vm + "L2_CNTL2": 3,
            self.vm + "L2_CNTL4": 1,
            self.vm + "L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_LO32": 0xFFFF_FFFF,
            self.vm + "L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_HI32": 0xF,
            self.vm + "CONTEXT0_PAGE_TABLE_START_ADDR_LO32": START >> 12 & 0xFFFF_FFFF,
            self.vm + "CONTEXT0_PAGE_TABLE_START_ADDR_HI32": START >> 44,
            self.vm + "CONTEXT0_PAGE_TABLE_END_ADDR_LO32": 0xFFFF_FFFF,
            self.vm + "CONTEXT0_PAGE_TABLE_END_ADDR_HI32": 7,
            self.vm + "CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32": ROOT | 1,
            self.vm + "CONTEXT0_CNTL": self.cntl,
        }
        for engine in range(18):
            values[self.vm + f"INVALIDATE_ENG{engine}_ADDR_RANGE_LO32"] = 0xFFFF_FFFF
            values[self.vm + f"INVALIDATE_ENG{engine}_ADDR_RANGE_HI32"] = 0x1F
        for name, value in values.items():
            if not any(word in name for word in skip):
                self.write(name, value)

    def write(self, name, value):
        write(self.context, self.block, name, value)

    def read(self, name):
        return read(self.context, self.block, name)

    def memory(self, vmid=0, client=None):
        return HubMemory(self.hub, vmid, client or ("TCP" if self.block == "GC" else "MP0"))

    @property
    def steps(self):
        return self.context.diagnosis.steps

    @property
    def texts(self):
        return [finding.symptom for finding in self.context.diagnosis.findings]

    def no_dummy(self):
        """Accesses do not continue with the dummy page after a fault."""
        self.write(self.vm + "L2_PROTECTION_FAULT_CNTL", 0x3FFF_E000)

    # -- page tables ----------------------------------------------------------------------------------------

    def put(self, address, value):
        self.context.vram.write(address, struct.pack("<Q", value))

    def entry_at(self, va, level):
        """Where the entry of a level is for an address; makes the tables on the way."""
        offset, table = va - START, ROOT
        for above in (3, 2, 1):
            if above == level:
                break
            place = table + (offset >> 12 + 9 * above & 511) * 8
            (entry,) = struct.unpack("<Q", self.context.vram.memory[place : place + 8])
            if not entry & 1:
                entry = self.free | 1
                self.context.vram.write(self.free, bytes(4096))
                self.put(place, entry)
                self.free += 4096
            table = entry & 0xFFFF_FFFF_F000
        return table + (offset >> 12 + 9 * level & 511) * 8

    def entry(self, target, *, level=0, flags=RWX, fragment=0, system=False):
        """The entry of a page."""
        value = VALID | flags | fragment << 7 | target
        if system:
            value |= SYSTEM | SNOOPED
        if self.generation == 12:
            value |= 1 << 63
        elif level:
            value |= 1 << 54
        return value

    def map(self, va, target, *, level=0, flags=RWX, fragment=0, system=False):
        """Map a page of 4 KiB, 2 MiB, 1 GiB or 512 GiB by level; gives the place of its entry."""
        place = self.entry_at(va, level)
        self.put(place, self.entry(target, level=level, flags=flags, fragment=fragment, system=system))
        return place

    def invalidate(self, request=0xF8_0001, engine=17, *, private=True, semaphore=True):
        """As drivers do it; gives whether it was acknowledged."""
        name = f"{self.vm}INVALIDATE_ENG{engine}_"
        if self.block == "MMHUB" and semaphore:
            assert self.read(name + "SEM") == 1
        self.write(name + "REQ", request)
        self.link.run(1000)
        acknowledged = self.read(name + "ACK") & request & 0xFFFF
        if self.block == "MMHUB":
            self.write(name + "SEM", 0)
            if private:
                self.write("MMVM_L2_BANK_SELECT_RESERVED_CID2", 1 << 25)
        return acknowledged == request & 0xFFFF
