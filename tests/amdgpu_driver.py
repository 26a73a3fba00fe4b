"""A driver for the emulated card, as small as a complete one can be, to test the card with.

Written from the notes on the published boot sequence alone; it shares with the model what is published
(register names and fields, firmware headers), and not a line of code. Values without a comment are those of
the published driver's boot trace. `Driver.does` is asked before each boot step, so that a test can have any
one of them left out.

    pcie - discover - map - soc - hub MMHUB - interrupts - security processor - power - hub GC - processors -
    SDMA - clocks; then queues (`amdgpu_queues`)

VRAM, in MiB: 0 page tables, 1 PSP, 2 interrupts and MQDs, 3 rings and signals, 16 TMR, 36
scratch, 40 for tests. All of
its first 64 MiB are mapped at VA.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence

from emulator.amdgpu.synthetic import directory
from emulator.core.clock import clocks
from tests.amdgpu_host import SRAM, SRAM_SIZE, Host
from usbgpu.amd.facts import firmware as firmware_facts
from usbgpu.amd.facts import psp as psp_facts
from usbgpu.amd.facts import smu as smu_facts
from usbgpu.amd.facts.chips import HARDWARE_IDS, Chip

MIB = 1 << 20
VA = 0x2000_0000_0000
SRAM_VA = VA + (1 << 30)
PAGED_VA = VA + (2 << 30)
"""512 single pages, for tests of mappings."""

TABLES = 0
PSP_RING, PSP_COMMAND, PSP_FENCE = MIB, MIB + 0x1_0000, MIB + 0x1_1000
SMU_TABLE = MIB + 0x2_0000
SCRATCH_PAGE = MIB + 0x3_0000
DUMMY_PAGE = SRAM + SRAM_SIZE - 4096
"""At the host, as ENABLE_DEFAULT_PAGE_OUT_TO_SYSTEM_MEMORY of L2_CNTL says."""
IH_RING, IH_RING1, IH_WPTR = 2 * MIB, 2 * MIB + 0x4_0000, 2 * MIB + 0x8_0000
IH_SIZE = 0x1000
"""Of each interrupt ring: small, so that a test can fill one."""
MQD = 2 * MIB + 0x9_0000
QUEUES = 3 * MIB
"""64 KiB a queue: ring, EOP buffer at 0x8000, pointers at 0x9000."""
SIGNALS, KERNARGS = 3 * MIB + 0x8_0000, 3 * MIB + 0x9_0000
TMR, TMR_SIZE = 16 * MIB, 0x130_0000
SCRATCH, SCRATCH_SIZE = 36 * MIB, 4 * MIB
HEAP, HEAP_END = 40 * MIB, 64 * MIB
RING_SIZE = 0x2000

UNCACHED = {11: 3 << 48, 12: 3 << 54}
LEAF = {11: 1 << 54, 12: 1 << 63}
PRESENT, SYSTEM, SNOOPED, RWX = 1, 2, 4, 0x70


class Refused(Exception):
    """The card refused; the text says what."""


class Driver:
    """A driver that has the card to itself.

    Args:
        host: where the card is.
        chip: which it is.
        skip: boot steps to leave out.

    Attributes:
        asked: the boot steps that it would do.
        time: clocks at which each part of the boot was done.
    """

    def __init__(self, host: Host, chip: Chip, skip: Collection[str] = ()) -> None:
        self.host = host
        self.chip = chip
        self.skip = skip
        self.asked: list[str] = []
        self.time: list[tuple[str, int]] = []
        self.bases: dict[int, tuple[int, ...]] = {}
        self.fb_base = self.fb_top = 0
        self.root = self.single = 0  # page tables
        self.levels: dict[str, list[int]] = {}
        self.entry_points: dict[str, int] = {}
        self._files = directory(chip)
        self._fence = 0
        self._gfx12 = chip.generation == 12

    def does(self, step: str) -> bool:
        """Whether a boot step is done."""
        self.asked.append(step)
        return step not in self.skip

    def boot(self) -> None:
        """Everything, from power-on on, until queues can be made."""
        for part in (
            self.pcie, self.discover, self.map, self.soc, self.mmhub, self.interrupts, self.security,
            self.power, self.gchub, self.processors, self.sdma_engine, self.clocks,
        ):  # fmt: skip
            part()
            self.time.append((part.__name__, self.host.clock.now))

    # -- access -----------------------------------------------------------------------------------------

    def index(self, block: str, name: str) -> int:
        """A register's index, from where the discovery table says that its block is."""
        register = self.chip.register(block, name)
        return self.bases[HARDWARE_IDS[block]][register.segment] + register.offset

    def read_index(self, index: int) -> int:
        if index < self.chip.family.register_bar // 4:
            return int.from_bytes(self.host.read(5, index * 4), "little")
        self.write("NBIO", "BIF_BX_PF0_RSMU_INDEX", index * 4)
        return self.read("NBIO", "BIF_BX_PF0_RSMU_DATA")

    def write_index(self, index: int, value: int) -> None:
        if index < self.chip.family.register_bar // 4:
            self.host.write(5, index * 4, struct.pack("<I", value & 0xFFFF_FFFF))
        else:
            self.write("NBIO", "BIF_BX_PF0_RSMU_INDEX", index * 4)
            self.write("NBIO", "BIF_BX_PF0_RSMU_DATA", value)

    def read(self, block: str, name: str) -> int:
        return self.read_index(self.index(block, name))

    def write(self, block: str, name: str, value: int) -> None:
        self.write_index(self.index(block, name), value)

    def set(self, block: str, name: str, **fields: int) -> None:
        """Read, change fields, write back."""
        self.write(block, name, self.chip.register(block, name).pack(self.read(block, name), **fields))

    def pair(self, block: str, name: str, value: int, low: str = "_LO32", high: str = "_HI32") -> None:
        self.write(block, name + low, value & 0xFFFF_FFFF)
        self.write(block, name + high, value >> 32)

    def wait(self, block: str, name: str, mask: int, value: int, timeout: float = 0.5) -> None:
        self.host.wait(
            f"{name} & {mask:#x} == {value:#x}", lambda: self.read(block, name) & mask == value, timeout
        )

    def vram(self, offset: int, data: bytes) -> None:
        self.host.write(0, offset, data)

    def vram_read(self, offset: int, size: int) -> bytes:
        return self.host.read(0, offset, size)

    def sleep(self, seconds: float) -> None:
        self.host.sleep(clocks(seconds))

    def flush_hdp(self) -> None:
        if self.does("hdp-flush"):
            self.write_index(self.read("NBIO", "BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL") // 4, 0)

    # -- 1: PCIe ----------------------------------------------------------------------------------------

    def pcie(self) -> None:
        place, host = 0x100, self.host
        while place:
            header = host.config_read(place)
            if header & 0xFFFF == 0x15:  # resizable BAR: the largest size
                sizes = host.config_read(place + 4) >> 4
                control = host.config_read(place + 8)
                host.config_write(place + 8, control & ~0x1F00 | (sizes.bit_length() - 1) << 8)
            place = header >> 20
        for bar, address in ((0x10, 1 << 35), (0x18, 2 << 35), (0x24, 0x1000_0000)):
            host.config_write(bar, address & 0xFFFF_FFFF)
            if bar != 0x24:
                host.config_write(bar + 4, address >> 32)
        command = 1 | 2 | 4 * self.does("pcie-bus-master")
        host.config_write(0x04, command)

    # -- 2: discovery -----------------------------------------------------------------------------------

    def discover(self) -> None:
        size = int.from_bytes(self.host.read(5, 0xDE3 * 4), "little")
        table = self.vram_read((size << 20) - 0x1_0000, 10 << 10)
        if table[:4] != struct.pack("<I", 0x2821_1407):
            raise Refused(f"no discovery table: signature {table[:4].hex()}")
        start = struct.unpack_from("<H", table, 12)[0]
        wide = table[start + 78] & 1
        dies = struct.unpack_from("<H", table, start + 12)[0]
        for die in range(dies):
            at = struct.unpack_from("<H", table, start + 14 + 4 * die + 2)[0]
            count = struct.unpack_from("<H", table, at + 2)[0]
            at += 4
            for _ in range(count):
                hardware, instance, bases = struct.unpack_from("<HBB", table, at)
                form = f"<{bases}{'Q' if wide else 'I'}"
                if instance == 0:
                    self.bases[hardware] = struct.unpack_from(form, table, at + 8)
                at += 8 + struct.calcsize(form)
        self.fb_base = self.read("MMHUB", "MMMC_VM_FB_LOCATION_BASE") << 24
        self.fb_top = self.read("MMHUB", "MMMC_VM_FB_LOCATION_TOP") << 24

    # -- 3: page tables ---------------------------------------------------------------------------------

    def page(self, target: int, *, system: bool = False, flags: int = RWX) -> int:
        """An entry that maps a page."""
        entry = target | PRESENT | flags
        if system:
            entry |= SYSTEM | SNOOPED | UNCACHED[self.chip.generation]
        return entry | (LEAF[12] if self._gfx12 else 0)

    def map(self) -> None:
        """VRAM's first 64 MiB at VA in pages of 2 MiB; the bridge's SRAM at SRAM_VA, pages at PAGED_VA."""
        root, middle, large, sram, single = (TABLES + 0x1000 * i for i in range(5))
        ptb_sram, ptb_single = TABLES + 0x5000, TABLES + 0x6000
        self.vram(TABLES, bytes(0x7000))
        self.entries(root, [middle | PRESENT])
        self.entries(middle, [large | PRESENT, sram | PRESENT, single | PRESENT])
        huge = LEAF[self.chip.generation]
        self.entries(large, [self.page(i * 2 * MIB) | huge for i in range(32)])
        self.entries(sram, [ptb_sram | PRESENT])
        self.entries(ptb_sram, [self.page(SRAM + i * 4096, system=True) for i in range(SRAM_SIZE // 4096)])
        self.entries(single, [ptb_single | PRESENT])
        self.root, self.single = root, ptb_single
        self.flush_hdp()

    def entries(self, table: int, entries: Sequence[int]) -> None:
        self.vram(table, struct.pack(f"<{len(entries)}Q", *entries))

    def remap(
        self, number: int, target: int, hubs: Iterable[str] = ("GC", "MMHUB"), **how: bool | int
    ) -> int:
        """Map a page of PAGED_VA, and invalidate it in the hubs; its address."""
        self.entries(self.single + 8 * number, [self.page(target, **how)])
        self.flush_hdp()
        for hub in hubs:
            self.invalidate(hub)
        return PAGED_VA + number * 4096

    def invalidate(self, hub: str) -> None:
        """Invalidate the mappings of VMID 0 in a hub."""
        prefix = {"GC": "GCVM_", "MMHUB": "MMVM_"}[hub]
        if not self.does(f"{hub.lower()}-invalidate"):
            return
        guarded = hub == "MMHUB" and self.does("mmhub-semaphore")
        if guarded:
            self.wait(hub, f"{prefix}INVALIDATE_ENG17_SEM", 1, 1)
        self.write(hub, f"{prefix}INVALIDATE_ENG17_REQ", 0x00F8_0001)
        self.wait(hub, f"{prefix}INVALIDATE_ENG17_ACK", 1, 1)
        if guarded:
            self.write(hub, f"{prefix}INVALIDATE_ENG17_SEM", 0)
        if hub == "MMHUB" and self.does("mmhub-private-invalidate"):
            self.set(hub, "MMVM_L2_BANK_SELECT_RESERVED_CID2", RESERVED_CACHE_PRIVATE_INVALIDATION=1)
            self.read(hub, "MMVM_L2_BANK_SELECT_RESERVED_CID2")

    # -- 5: SOC, VM hubs, interrupts --------------------------------------------------------------------

    def soc(self) -> None:
        self.set("NBIO", "RCC_DEV0_EPF2_STRAP2", STRAP_NO_SOFT_RESET_DEV0_F2=0)
        if self.does("nbio-doorbell-aperture"):
            self.write("NBIO", "RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1)

    def mmhub(self) -> None:
        self._hub("MMHUB", "mmhub", "MMVM_", "MMMC_VM_")

    def gchub(self) -> None:
        self._hub("GC", "gc", "GCVM_", "GCMC_VM_")

    def _hub(self, block: str, key: str, vm: str, mc: str) -> None:
        if self.does(f"{key}-agp"):
            self.write(block, f"{mc}AGP_BASE", 0)
            self.write(block, f"{mc}AGP_BOT", 0xFF_FFFF)
            self.write(block, f"{mc}AGP_TOP", 0)
        if self.does(f"{key}-system-aperture"):
            self.write(block, f"{mc}SYSTEM_APERTURE_LOW_ADDR", self.fb_base >> 18)
            self.write(block, f"{mc}SYSTEM_APERTURE_HIGH_ADDR", self.fb_top >> 18)
        if self.does(f"{key}-aperture-default"):
            self.pair(block, f"{mc}SYSTEM_APERTURE_DEFAULT_ADDR", SCRATCH_PAGE >> 12, "_LSB", "_MSB")
        if self.does(f"{key}-fault-default"):
            self.pair(block, f"{vm}L2_PROTECTION_FAULT_DEFAULT_ADDR", DUMMY_PAGE >> 12)
        self.set(block, f"{vm}L2_PROTECTION_FAULT_CNTL2", ACTIVE_PAGE_MIGRATION_PTE_READ_RETRY=1)
        if self.does(f"{key}-l1-tlb"):
            self.write(block, f"{mc}MX_L1_TLB_CNTL", 0x1859)
        if self.does(f"{key}-l2-cache"):
            self.write(block, f"{vm}L2_CNTL", 0x8_0801)
        if self.does(f"{key}-l2-invalidate"):
            self.write(block, f"{vm}L2_CNTL2", 3)
        self.write(block, f"{vm}L2_CNTL3", 0x8013_0009)
        if self.does(f"{key}-l2-tables"):
            self.write(block, f"{vm}L2_CNTL4", 1)
        self.write(block, f"{vm}L2_CNTL5", 0x3FE0)
        if self.does(f"{key}-context0"):
            self.pair(block, f"{vm}CONTEXT0_PAGE_TABLE_START_ADDR", VA >> 12)
            self.pair(block, f"{vm}CONTEXT0_PAGE_TABLE_END_ADDR", 0x7_FFFF_FFFF)
            self.pair(block, f"{vm}CONTEXT0_PAGE_TABLE_BASE_ADDR", self.root | PRESENT)
            self.write(block, f"{vm}CONTEXT0_CNTL", 0x01FF_FC07 if self._gfx12 else 0x01FF_FE07)
        if self.does(f"{key}-identity"):
            self.pair(block, f"{vm}L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR", 0xF_FFFF_FFFF)
            self.pair(block, f"{vm}L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR", 0)
            self.pair(block, f"{vm}L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET", 0)
        if self.does(f"{key}-invalidate-range"):
            for engine in range(18):
                self.pair(block, f"{vm}INVALIDATE_ENG{engine}_ADDR_RANGE", 0x1F_FFFF_FFFF)

    def interrupts(self) -> None:
        size = IH_SIZE.bit_length() - 3  # log2 of the dwords
        for ring, place in (("", IH_RING), ("_RING1", IH_RING1)):
            address, key = self.fb_base + place, "ih-ring1" if ring else "ih-ring"
            control = 0x8000_0000 | (0x10_0200 if ring else 0x10_0000)
            if self.does(key):
                self.write("OSSSYS", f"IH_RB_BASE{ring}", address >> 8 & 0xFFFF_FFFF)
                self.write("OSSSYS", f"IH_RB_BASE_HI{ring}", address >> 40)
                control |= 0x4000_0000 | size << 1
            if not ring and self.does("ih-overflow"):
                control |= 0x1_0000
            self.write("OSSSYS", f"IH_RB_CNTL{ring}", control)
            if not ring:
                self.pair("OSSSYS", "IH_RB_WPTR_ADDR", self.fb_base + IH_WPTR, "_LO", "_HI")
            self.write("OSSSYS", f"IH_RB_WPTR{ring}", 0)
            self.write("OSSSYS", f"IH_RB_RPTR{ring}", 0)
            self.write("OSSSYS", f"IH_DOORBELL_RPTR{ring}", 0)
        self.write("OSSSYS", "IH_STORM_CLIENT_LIST_CNTL", 0x4_0000)
        self.write("OSSSYS", "IH_INT_FLOOD_CNTL", 8)
        self.write("OSSSYS", "IH_MSI_STORM_CTRL", 3)
        if self.does("ih-enable"):
            self.set("OSSSYS", "IH_RB_CNTL", RB_ENABLE=1, ENABLE_INTR=1)
        if "ih-ring1" not in self.skip:
            self.set("OSSSYS", "IH_RB_CNTL_RING1", RB_ENABLE=1)

    def interrupt_entries(self) -> list[tuple[int, ...]]:
        """The entries of ring 0 that have not been read yet; eight dwords each."""
        start, end = self.read("OSSSYS", "IH_RB_RPTR"), self.read("OSSSYS", "IH_RB_WPTR") & 0x3_FFFC
        data = self.vram_read(IH_RING, IH_SIZE)
        data = data[start:end] if start <= end else data[start:] + data[:end]
        self.write("OSSSYS", "IH_RB_RPTR", end)
        return [struct.unpack_from("<8I", data, at) for at in range(0, len(data), 32)]

    # -- 6: security processor --------------------------------------------------------------------------

    def parts(self) -> dict[str, bytes]:
        """The blobs of the chip's firmware files, by name."""
        found: dict[str, bytes] = {}
        for file in firmware_facts.FILES[self.chip.name]:
            data = self._files[f"{file.name}.bin"]
            header = firmware_facts.HEADERS[file.header].unpack_from(data)
            payload = header["ucode_array_offset_bytes"]
            if "psp_fw_bin_count" in header:
                for i in range(header["psp_fw_bin_count"]):
                    at = firmware_facts.HEADERS[file.header].size + i * firmware_facts.PSP_BIN.size
                    entry = firmware_facts.PSP_BIN.unpack_from(data, at)
                    name = firmware_facts.PSP_BINS[entry["fw_type"]]
                    start = payload + entry["offset_bytes"]
                    found[name] = data[start : start + entry["size_bytes"]]
                continue
            for part in firmware_facts.PARTS[file.header]:
                start = (header[part.offset] if part.offset else payload) + payload * part.relative
                found[part.name.format(file.unit)] = data[start : start + header[part.size]]
            if "ucode_start_addr_hi" in header:
                start = header["ucode_start_addr_hi"] << 32 | header["ucode_start_addr_lo"]
                self.entry_points[file.unit] = start
        return found

    def mailbox(self, number: int) -> str:
        return f"{'MPASP' if self._gfx12 else 'MP0'}_SMN_C2PMSG_{number}"

    def security(self) -> None:
        blobs = self.parts()
        order = ["KDB", "SPL", "SYS_DRV", "SOC_DRV", "INTF_DRV", "DBG_DRV", "RAS_DRV", "SOS"]
        for name in order if self._gfx12 else ("KDB", "SPL", "SYS_DRV", "SOS"):
            if name not in blobs or not self.does(f"psp-{name.lower().replace('_', '-')}"):
                continue  # the files of MP 14.0.2 have no RAS_DRV
            self.wait("MP", self.mailbox(35), 0x8000_0000, 0x8000_0000)
            if (status := self.read("MP", self.mailbox(35))) & 0xFF:
                raise Refused(f"the bootloader before {name}: C2PMSG_35 = {status:#x}")
            # The published driver puts the key database into the slot of the SPL on gfx11.
            blob = blobs["KDB" if name == "SPL" and not self._gfx12 else name]
            self.host.sram[: len(blob)] = blob
            if self.does("psp-msg1"):
                self.write("MP", self.mailbox(36), SRAM_VA >> 20)
            self.write("MP", self.mailbox(35), psp_facts.BOOTLOADER[name])
            if name == "SOS":
                self.host.wait("sOS (C2PMSG_81)", lambda: self.read("MP", self.mailbox(81)) != 0)
        self.psp_ring()
        self.firmware(blobs)

    def psp_ring(self) -> None:
        if self.does("psp-ring"):
            if "psp-sos" not in self.skip:
                self.wait("MP", self.mailbox(64), 0x8000_0000, 0x8000_0000)
            self.write("MP", self.mailbox(69), self.fb_base + PSP_RING & 0xFFFF_FFFF)
            self.write("MP", self.mailbox(70), self.fb_base + PSP_RING >> 32)
            self.write("MP", self.mailbox(71), 0x1_0000)
            self.write("MP", self.mailbox(64), 2 << 16)
            self.sleep(20e-3)
            self.wait("MP", self.mailbox(64), 0x8000_FFFF, 0x8000_0000)

    def firmware(self, blobs: dict[str, bytes]) -> None:
        if self.does("psp-toc"):
            size = self.psp_load("LOAD_TOC", blobs["TOC"])
            if not 0 < size <= TMR_SIZE:
                raise Refused(f"a TMR of {size:#x} bytes")
        self.load_firmware("SMU", blobs["SMU"])
        if not self._gfx12 and self.does("psp-tmr"):
            address = self.fb_base + TMR
            self.psp("SETUP_TMR", address & 0xFFFF_FFFF, address >> 32, TMR_SIZE, 2, TMR, 0)
        names = ["SDMA_UCODE_TH1", "SDMA_UCODE_TH0"] if not self._gfx12 else ["SDMA_UCODE_TH0"]
        for unit in ("PFP", "ME", "MEC") if self._gfx12 else ("MEC",):
            names += [f"RS64_{unit}", f"RS64_{unit}_STACK"]
        names += ["IMU_I", "IMU_D", "RLC_IRAM", "RLC_DRAM_BOOT"]
        names += ["RLC_G"] if self._gfx12 else ["RLC_P", "RLC_V", "RLC_G"]
        for name in names:
            self.load_firmware(name.replace("_STACK", "_P0_STACK"), blobs[name])
        if self.does("rlc-autoload"):
            self.psp("AUTOLOAD_RLC")
            self.wait("GC", "RLC_RLCS_BOOTLOAD_STATUS", 0x8000_0000, 0x8000_0000)

    def load_firmware(self, name: str, blob: bytes) -> None:
        if self.does(f"psp-fw-{name.lower().replace('_', '-')}"):
            self.psp_load("LOAD_IP_FW", blob, psp_facts.FW_TYPES[name])

    def psp_load(self, command: str, blob: bytes, *rest: int) -> int:
        self.host.sram[: len(blob)] = blob
        return self.psp(command, SRAM_VA & 0xFFFF_FFFF, SRAM_VA >> 32, len(blob), *rest)

    def psp(self, command: str, *body: int) -> int:
        """A command through the ring; the TMR's size of the response."""
        self._fence += 1
        buffer = struct.pack("<II I", 0, 0, psp_facts.COMMANDS[command]).ljust(28, b"\0")
        self.vram(PSP_COMMAND, (buffer + struct.pack(f"<{len(body)}I", *body)).ljust(1024, b"\0"))
        place, fence = self.fb_base + PSP_COMMAND, self.fb_base + PSP_FENCE
        frame = struct.pack(
            "<6I", place & 0xFFFF_FFFF, place >> 32, 0, fence & 0xFFFF_FFFF, fence >> 32, self._fence
        )
        wptr = self.read("MP", self.mailbox(67))
        self.vram(PSP_RING + wptr * 4, frame.ljust(64, b"\0"))
        self.flush_hdp()
        self.write("MP", self.mailbox(67), (wptr + 16) % 0x4000)
        self.host.wait(f"answer to {command}", lambda: self.word(PSP_FENCE) == self._fence)
        status, _, _, _, size = struct.unpack("<5I", self.vram_read(PSP_COMMAND + 864, 20))
        if status:
            raise Refused(f"{command}: status {status:#x}")
        return size

    def word(self, offset: int) -> int:
        return int.from_bytes(self.vram_read(offset, 4), "little")

    # -- 9: power ---------------------------------------------------------------------------------------

    def power(self) -> None:
        table = self.fb_base + SMU_TABLE
        if self.does("smu-dram-address"):
            self.smu("SetDriverDramAddrHigh", table >> 32)
            self.smu("SetDriverDramAddrLow", table & 0xFFFF_FFFF)
        if self.does("smu-features"):
            self.smu("EnableAllSmuFeatures", 0)

    def smu(self, message: str, argument: int = 0) -> int:
        """A message to the SMU; what it answers."""
        if self.does("smu-clear-response"):
            self.write("SMU", "MP1_SMN_C2PMSG_90", 0)
        self.write("SMU", "MP1_SMN_C2PMSG_82", argument)
        self.write("SMU", "MP1_SMN_C2PMSG_66", smu_facts.interface(self.chip).messages[message])
        self.host.wait(f"answer to {message}", lambda: self.read("SMU", "MP1_SMN_C2PMSG_90") != 0)
        if (result := self.read("SMU", "MP1_SMN_C2PMSG_90")) != 1:
            raise Refused(f"{message} {argument:#x}: {result:#x}")
        return self.read("SMU", "MP1_SMN_C2PMSG_82")

    def clocks(self) -> None:
        names = smu_facts.interface(self.chip).clocks
        for name in ("UCLK", "FCLK", "SOCCLK", "GFXCLK"):
            number = names.index(name) << 16
            count = self.smu("GetDpmFreqByIndex", number | 0xFF)
            self.levels[name] = [self.smu("GetDpmFreqByIndex", number | i) & 0xFFFF for i in range(count)]
            for message in ("SetSoftMinByFreq", "SetSoftMaxByFreq"):
                self.smu(message, number | self.levels[name][-1])
        self.write("HDP", "HDP_MEM_POWER_CTRL", 5)
        if self.does("rlc-safe-mode"):
            self.write("GC", "RLC_SAFE_MODE", 3)
            self.wait("GC", "RLC_SAFE_MODE", 1, 0)
        self.write("GC", "RLC_CGCG_CGLS_CTRL", 0x363F)
        self.write("GC", "CP_RB_WPTR_POLL_CNTL", 0x90_0100)
        self.write("GC", "CP_INT_CNTL", 0x1C_0000)
        self.write("GC", "SDMA0_RLC_CGCG_CTRL", 2)
        self.write("GC", "SDMA1_RLC_CGCG_CTRL", 2)
        self.write("GC", "RLC_CGTT_MGCG_OVERRIDE", 0x400)
        if "rlc-safe-mode" not in self.skip:
            self.write("GC", "RLC_SAFE_MODE", 1)
        self.write("GC", "SCRATCH_REG7", 0xA000_0008)
        self.write("GC", "SCRATCH_REG6", 1)

    def metrics(self) -> dict[str, int]:
        """Power, temperatures and so on, as the SMU writes them."""
        self.smu("TransferTableSmu2Dram", smu_facts.TABLES["SMU_METRICS"])
        table = smu_facts.interface(self.chip).metrics
        data = self.vram_read(SMU_TABLE, table.size)
        return {**table.unpack(data), "temperature": table.get(data, "AvgTemperature", 0)}

    # -- 7: command processors --------------------------------------------------------------------------

    def processors(self) -> None:
        if self._gfx12:
            for unit, reset in (("PFP", "PFP_PIPE0_RESET"), ("ME", "ME_PIPE0_RESET")):
                if self.does(f"{unit.lower()}-start"):
                    self.select(me=0)
                    self.pair("GC", f"CP_{unit}_PRGRM_CNTR_START", self.entry_points[unit] >> 2, "", "_HI")
                    self.set("GC", "CP_ME_CNTL", **{reset: 1})
                    self.set("GC", "CP_ME_CNTL", **{reset: 0})
        if self.does("mec-start-address"):
            self.select(me=1)
            self.pair("GC", "CP_MEC_RS64_PRGRM_CNTR_START", self.entry_points["MEC"] >> 2, "", "_HI")
            self.select()
        if self.does("mec-reset"):
            self.set("GC", "CP_MEC_RS64_CNTL", MEC_PIPE0_RESET=1)
            self.set("GC", "CP_MEC_RS64_CNTL", MEC_PIPE0_RESET=0)
        self.write("GC", "TCP_CNTL", self.read("GC", "TCP_CNTL") | 0x2000_0000)
        self.write("GC", "RLC_CNTL", 1)
        self.write("GC", "RLC_SRM_CNTL", 3)
        self.write("GC", "RLC_SPM_MC_CNTL", 0xF)
        if self.does("nbio-doorbell-route-cp"):
            self.doorbell_route(0, 0x3000_0007)
        self.doorbell_route(3, 0x3000_000D)
        self.set("GC", "GRBM_CNTL", READ_TIMEOUT=0xFF)
        for vmid in range(16):
            self.select(vmid=vmid)
            if self.does("sh-mem-config"):
                self.write("GC", "SH_MEM_CONFIG", 0xC00C)
            if self.does("sh-mem-bases"):
                self.write("GC", "SH_MEM_BASES", 0x1_0002)
        self.select()
        if self.does("mec-doorbell-range"):
            self.write("GC", "CP_MEC_DOORBELL_RANGE_LOWER", 0)
            self.write("GC", "CP_MEC_DOORBELL_RANGE_UPPER", 0xF8)
        if self.does("mec-active"):
            self.set("GC", "CP_MEC_RS64_CNTL", MEC_PIPE0_ACTIVE=1, MEC_HALT=0)
        self.sleep(50e-3)

    def select(self, *, me: int = 0, pipe: int = 0, queue: int = 0, vmid: int = 0) -> None:
        """Select the copy of the banked registers from here on."""
        value = self.chip.register("GC", "GRBM_GFX_CNTL").pack(MEID=me, PIPEID=pipe, QUEUEID=queue, VMID=vmid)
        self.write("GC", "GRBM_GFX_CNTL", value)

    def doorbell_route(self, port: int, value: int) -> None:
        prefix = "GDC_S2A0_" if self._gfx12 else ""
        self.write("NBIO", f"{prefix}S2A_DOORBELL_ENTRY_{port}_CTRL", value)

    # -- 8: SDMA ----------------------------------------------------------------------------------------

    def sdma_engine(self) -> None:
        if self.does("sdma-watchdog"):
            self.set("GC", "SDMA0_WATCHDOG_CNTL", QUEUE_HANG_COUNT=100)
        if self.does("sdma-utcl1"):
            self.set("GC", "SDMA0_UTCL1_CNTL", RESP_MODE=3, REDO_DELAY=9)
        self.write("GC", "SDMA0_UTCL1_PAGE", 0xE000 if self._gfx12 else 0x0100_E000)
        if self.does("sdma-unhalt"):
            self.set("GC", "SDMA0_MCU_CNTL" if self._gfx12 else "SDMA0_F32_CNTL", HALT=0)
        if self.does("sdma-trap-enable"):
            self.set("GC", "SDMA0_CNTL", TRAP_ENABLE=1)
        if self.does("nbio-doorbell-route-sdma"):
            self.doorbell_route(2, 0x3009_001D)

    # -- recovery ---------------------------------------------------------------------------------------

    def reset(self) -> None:
        """A mode-1 reset as Linux does it, with bus mastering off as long as it lasts."""
        self.host.config_write(0x04, 3)
        if self.chip.versions["SMU"] == (13, 0, 7):
            self.write("SMU", "MP1_SMN_C2PMSG_90", 0)
            self.write("SMU", "MP1_SMN_C2PMSG_66", 0x2F)
        else:
            self.write("SMU", "MP1_SMN_C2PMSG_53", 0)
            self.write("SMU", "MP1_SMN_C2PMSG_75", 2)
        self.sleep(0.5)
        self.host.config_write(0x04, 7)
