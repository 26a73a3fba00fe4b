"""The VM hubs: they translate the addresses of engines. GC's does so for queues, shaders and SDMA, the MM hub
for PSP, SMU and the interrupt handler. They are alike but for the prefixes of their registers.

An address of VMID 0 within the system aperture is one of the memory controller (MC): VRAM begins at
FB_LOCATION_BASE. Every other address goes through L1, L2 and the page tables of its VMID's context.

Sources: register fields; what the kernel's gfxhub, mmhub and gmc files (Linux 6.12, MIT) write in which
order. What happens if a step is missing is mostly not published: see the grades.
"""

from __future__ import annotations

from emulator.amdgpu.context import Context
from emulator.amdgpu.diagnosis import BootStep
from emulator.amdgpu.hub_faults import Faults
from emulator.amdgpu.hub_invalidation import Invalidation
from emulator.amdgpu.hub_settings import (
    PHYSICAL_ONLY,
    PREFIXES,
    TABLES_INSIDE,
    TABLES_OUTSIDE,
    Settings,
    load,
    power_on,
)
from emulator.amdgpu.page_tables import PAGE, Page, Root, WalkError, Where, walk
from emulator.amdgpu.seams import Extent
from emulator.amdgpu.tlb import Access, EntryCache, Tlb, Translation
from emulator.pcie.function import UnsupportedRequest
from usbgpu.amd.facts import pages


def _steps(name: str, prefix: str, mc: str) -> tuple[BootStep, ...]:
    what = "GC's queues, shaders and SDMA" if name == "gc" else "PSP, SMU and the interrupt rings"
    return (
        BootStep(
            f"{name}-agp",
            f"{mc}AGP_BASE, {mc}AGP_BOT, {mc}AGP_TOP: the window is empty if BOT is above TOP",
            "MC addresses below 16 MiB",
            "they go to PCIe",
            "inferred",
        ),
        BootStep(
            f"{name}-system-aperture",
            f"{mc}SYSTEM_APERTURE_LOW_ADDR and _HIGH_ADDR: around VRAM's MC addresses",
            "MC addresses of VRAM, as rings and command buffers have them",
            "they go through page tables, and fault",
            "inferred",
        ),
        BootStep(
            f"{name}-aperture-default",
            f"{mc}SYSTEM_APERTURE_DEFAULT_ADDR_LSB and _MSB: a scratch page",
            "accesses to the system aperture where no memory is",
            "they go to page 0 of VRAM",
            "guess",
        ),
        BootStep(
            f"{name}-fault-default",
            f"{prefix}L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32 and _HI32: a dummy page",
            "continuing after a fault",
            "faulting accesses go to page 0",
            "inferred",
        ),
        BootStep(
            f"{name}-l1-tlb",
            f"{mc}MX_L1_TLB_CNTL: ENABLE_L1_TLB, ENABLE_ADVANCED_DRIVER_MODEL, SYSTEM_ACCESS_MODE 3",
            what,
            "virtual addresses are taken for MC addresses, and fault",
            "inferred",
        ),
        BootStep(
            f"{name}-l2-cache",
            f"{prefix}L2_CNTL: ENABLE_L2_CACHE",
            "the speed of translation",
            "every walk reads all its tables from memory",
            "guess",
        ),
        BootStep(
            f"{name}-l2-invalidate",
            f"{prefix}L2_CNTL2: INVALIDATE_ALL_L1_TLBS, INVALIDATE_L2_CACHE",
            "the first translations",
            "L1 and L2 may hold garbage from power-on; the model's start empty",
            "guess",
        ),
        BootStep(
            f"{name}-l2-tables",
            f"{prefix}L2_CNTL4: VMC_TAP_PDE_REQUEST_PHYSICAL and VMC_TAP_PTE_REQUEST_PHYSICAL 0",
            "reading page tables from VRAM",
            "the walker asks the host for them, and every translation faults",
            "guess",
        ),
        BootStep(
            f"{name}-context0",
            f"{prefix}CONTEXT0_PAGE_TABLE_START_ADDR, _END_ADDR and _BASE_ADDR, {prefix}CONTEXT0_CNTL: "
            "ENABLE_CONTEXT, PAGE_TABLE_DEPTH",
            what,
            "virtual addresses fault",
            "inferred",
        ),
        BootStep(
            f"{name}-identity",
            f"{prefix}L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR above _HIGH_ADDR",
            "virtual page 0 of VMIDs other than 0",
            "it is physical page 0, even if the page tables say otherwise",
            "guess",
        ),
        BootStep(
            f"{name}-invalidate-range",
            f"{prefix}INVALIDATE_ENGn_ADDR_RANGE_LO32 and _HI32: all ones",
            "invalidation of other pages than page 0",
            "invalidations are acknowledged, but old mappings stay",
            "inferred",
        ),
        BootStep(
            f"{name}-invalidate",
            f"{prefix}INVALIDATE_ENGn_REQ after a mapping has changed, then ENGn_ACK",
            "changes of page tables",
            "engines use old mappings",
            "inferred",
        ),
    )


STEPS: tuple[BootStep, ...] = (
    *_steps("gc", *PREFIXES["GC"]),
    *_steps("mmhub", *PREFIXES["MMHUB"]),
    BootStep(
        "mmhub-semaphore",
        "read MMVM_INVALIDATE_ENGn_SEM until it is 1 before a request, write 0 after it",
        "invalidation by the MM hub",
        "the acknowledgement may get lost while the hub's power is gated; the model always loses it",
        "inferred",
    ),
    BootStep(
        "mmhub-private-invalidate",
        "MMVM_L2_BANK_SELECT_RESERVED_CID2: RESERVED_CACHE_PRIVATE_INVALIDATION, read back",
        "changes of page tables that the MM hub uses",
        "pages that the MM hub has looked up before stay where they were",
        "guess",
    ),
)


class Hub:
    """A VM hub.

    Args:
        context: of the card.
        block: GC or MMHUB.

    Attributes:
        context: of the card.
        block: GC or MMHUB.
        faults: its fault registers.
    """

    def __init__(self, context: Context, block: str) -> None:
        self.context = context
        self.block = block
        self._name = block.lower()
        self._form = pages.FORMATS[context.chip.generation]
        self._changes = 0
        self._settings: Settings | None = None
        self._audited = False
        self._tlb = Tlb()
        self._entries = EntryCache()
        for name in context.chip.blocks[block].registers:
            if "_INVALIDATE_" not in name and name.startswith((*PREFIXES[block], "MM_")):
                context.registers.on_write(block, name, self._changed, reset=power_on(context, block, name))
        self.faults = Faults(context, block)
        self._invalidation = Invalidation(context, block, self._tlb, self._entries, self.faults)

    @property
    def epoch(self) -> int:
        """Grows whenever earlier translations may no longer hold."""
        return self._changes + self._invalidation.epoch

    # -- translation ----------------------------------------------------------------------------------------

    def translate(self, vmid: int, client: str, address: int, access: Access) -> Translation:
        """Where an address is, and how far one piece reaches around it.

        Args:
            vmid: whose address.
            client: the requester, one of the facts' GC_CLIENTS or MM_CLIENTS.
            address: virtual, or of the memory controller.
            access: READ, WRITE or EXECUTE.

        Raises:
            PageFault: it is not mapped, or not for this access.
        """
        settings = self._current()
        try:
            if vmid == 0 and self._is_physical(settings, address):
                return Translation(self._physical(settings, address))
            if vmid and settings.identity[0] <= address < settings.identity[1]:
                return Translation(self._identity(settings, address))
            found = self._tlb.find(vmid, address) or self._fill(settings, vmid, address)
            self.check(vmid, client, found)
            if not found.allows(access):
                raise WalkError(access, f"the page's entry does not allow {access.lower()} access")
            return found
        except WalkError as error:
            return Translation(self.faults.report(vmid, client, address, access, error), dummy=True)

    def check(self, vmid: int, client: str, translation: Translation) -> None:
        """Report a translation that is used although its tables have changed."""
        memory = self.context.vram.memory
        for offset, value in translation.sources:
            if memory[offset : offset + pages.ENTRY] != value:
                break
        else:
            settings = self._current()
            root = settings.roots.get(vmid)
            if translation.root is None or root is translation.root or root == translation.root:
                return
        translation.sources, translation.root = (), None
        extent = translation.extent
        self.context.diagnosis.missing(
            f"{self._name}-invalidate",
            f"{client} uses a mapping of {extent.start:#x} to {extent.end:#x} in VMID {vmid} as it was at "
            f"clock {translation.clock}; the page table has changed since",
        )

    def _is_physical(self, settings: Settings, address: int) -> bool:
        if settings.mode == TABLES_OUTSIDE:
            return settings.aperture[0] <= address < settings.aperture[1]
        if settings.mode == TABLES_INSIDE:
            return not settings.aperture[0] <= address < settings.aperture[1]
        return settings.mode == PHYSICAL_ONLY

    def _physical(self, settings: Settings, address: int) -> Extent:
        start, end = settings.vram
        if start <= address < end:
            return Extent(start, end, 0, system=False, writable=True, executable=True)
        start, end = settings.agp
        if start <= address < end:
            return Extent(start, end, settings.agp_base, system=True, writable=True, executable=True)
        if settings.aperture_default is not None:
            start = address & -PAGE
            target = settings.aperture_default
            return Extent(start, start + PAGE, target, system=False, writable=True, executable=True)
        if settings.mode == PHYSICAL_ONLY:
            self.context.diagnosis.missing(
                f"{self._name}-l1-tlb", f"address {address:#x} is taken for one of the memory controller"
            )
        raise WalkError("RANGE", "the memory controller has nothing there")

    def _identity(self, settings: Settings, address: int) -> Extent:
        start = address & -PAGE
        target = self._in_vram(settings, start + settings.identity_offset, PAGE, "the identity aperture")
        return Extent(start, start + PAGE, target, system=False, writable=True, executable=True)

    def _fill(self, settings: Settings, vmid: int, address: int) -> Translation:
        root = settings.roots.get(vmid)
        if root is None:
            if vmid == 0:
                self.context.diagnosis.missing(f"{self._name}-context0", f"access to {address:#x}")
            raise WalkError("RANGE", f"the context of VMID {vmid} is not enabled")
        self._audit(settings)
        if vmid == 0 and settings.vram[0] <= address < settings.vram[1]:
            self.context.diagnosis.missing(
                f"{self._name}-system-aperture", f"MC address {address:#x} goes through page tables"
            )
        page = walk(self._form, root, address, lambda where: self._fetch(settings, vmid, where))
        extent, size = self._reach(settings, root, page, address)
        sources = tuple(
            (where.address - settings.offset, value.to_bytes(pages.ENTRY, "little"))
            for where, value in page.path
            if not where.system
        )
        readable = bool(page.entry & pages.READABLE)
        found = Translation(extent, readable, root, self.context.link.now(), sources)
        self._tlb.add(vmid, size, found)
        return found

    def _reach(self, settings: Settings, root: Root, page: Page, address: int) -> tuple[Extent, int]:
        """The stretch that a page's entry stands for, by its fragment field, and the size of its block."""
        size = page.end - page.start
        system = bool(page.entry & pages.SYSTEM)
        text = f"the entry of virtual address {page.start:#x}"
        target = page.target if system else self._in_vram(settings, page.target, size, text)
        block = PAGE << (page.entry >> pages.FRAGMENT_SHIFT & pages.FRAGMENT_MASK)
        start, end = page.start, page.end
        if block > size:
            wide_start = max(address & -block, root.start)
            wide_end = min((address & -block) + block, root.end)
            low, high = target - (page.start - wide_start), target + (wide_end - page.start)
            if low >= 0 and (system or high <= self.context.vram.size):
                start, end, target, size = wide_start, wide_end, low, block
                self._check_fragment(settings, root, page, (start, end))
        writable, executable = bool(page.entry & pages.WRITABLE), bool(page.entry & pages.EXECUTABLE)
        return Extent(start, end, target, system, writable, executable), size

    def _check_fragment(self, settings: Settings, root: Root, page: Page, block: tuple[int, int]) -> None:
        """Report a fragment field that the entries at both ends of the block contradict."""
        start, end = block
        where, entry = page.path[-1]
        if where.system:
            return
        step = page.end - page.start
        entries = root.entries(where.level) or (root.end - root.start) // step
        index = (page.start - root.start) // step % entries
        first, last = index - (page.start - start) // step, index + (end - page.start) // step - 1
        for place in (max(first, 0), min(last, entries - 1)):
            offset = where.address - settings.offset + (place - index) * pages.ENTRY
            if offset + pages.ENTRY > self.context.vram.size:
                continue
            found = int.from_bytes(self.context.vram.memory[offset : offset + pages.ENTRY], "little")
            if (found ^ entry + (place - index) * step) & ~(pages.FRAGMENT_MASK << pages.FRAGMENT_SHIFT):
                other = page.start + (place - index) * step
                self.context.diagnosis.wrong(
                    f"{self.block}: the fragment field of the entry of {page.start:#x} says that {start:#x} "
                    f"to {end:#x} is mapped in one piece, and L1 relies on it; but the entry of {other:#x} "
                    f"is {found:#x}"
                )
                return

    def _fetch(self, settings: Settings, vmid: int, where: Where) -> int:
        known = self._entries.find(vmid, where)
        if known is not None:
            return self._cached(settings, vmid, where, known)
        if settings.tables_at_host:
            self.context.diagnosis.missing(f"{self._name}-l2-tables", "the walker asks the host for tables")
            raise WalkError("NACK", "the host has no page tables")
        if where.system:
            try:
                data = self.context.link.dma_read(where.address, pages.ENTRY)
            except UnsupportedRequest:
                raise WalkError("NACK", f"no table at PCIe {where.address:#x}: unsupported request") from None
        else:
            offset = self._in_vram(settings, where.address, pages.ENTRY, f"the table of {where.start:#x}")
            data = self.context.vram.read(offset, pages.ENTRY)
        value = int.from_bytes(data, "little")
        if settings.caching and value & pages.VALID:
            self._entries.add(vmid, where, value)
        return value

    def _cached(self, settings: Settings, vmid: int, where: Where, value: int) -> int:
        if not where.system:
            offset = where.address - settings.offset
            memory = self.context.vram.memory[offset : offset + pages.ENTRY]
            now = int.from_bytes(memory, "little")
            if value != now:
                private = self._invalidation.private and where.level == 0
                self.context.diagnosis.missing(
                    f"{self._name}-{'private-' * private}invalidate",
                    f"the entry of {pages.LEVELS[where.level]} for {where.start:#x} in VMID {vmid} is taken "
                    f"for {value:#x}, but is {now:#x} in memory",
                )
        return value

    def _in_vram(self, settings: Settings, address: int, size: int, what: str) -> int:
        """Offset in VRAM of a physical address. Raises WalkError."""
        offset = address - settings.offset
        if not 0 <= offset <= self.context.vram.size - size:
            raise WalkError("NACK", f"{what} names physical address {address:#x}, which is not in VRAM")
        return offset

    # -- registers ------------------------------------------------------------------------------------------

    def _changed(self, value: int) -> None:
        self._settings = None
        self._changes += 1

    def _current(self) -> Settings:
        if self._settings is None:
            self._settings = load(self.context, self.block)
        return self._settings

    def _audit(self, settings: Settings) -> None:
        """At the first walk: report set-up without which a walk works, but not well."""
        if self._audited:
            return
        self._audited = True
        vm, mc = PREFIXES[self.block]
        missing, name, where = self.context.diagnosis.missing, self._name, f"{self.block} begins to translate"

        def written(register: str) -> bool:
            return self.context.registers.written(self.block, register)

        if settings.agp[0] < settings.agp[1] and not written(f"{mc}AGP_BOT"):
            start, end = settings.agp
            missing(f"{name}-agp", f"{where}, and MC addresses {start:#x} to {end:#x} go to PCIe")
        if not settings.aperture[0] <= settings.vram[0] < settings.aperture[1]:
            missing(f"{name}-system-aperture", f"{where}, and VRAM is not in the system aperture")
        if not written(f"{mc}SYSTEM_APERTURE_DEFAULT_ADDR_LSB"):
            missing(f"{name}-aperture-default", f"{where}, and the system aperture's default page is page 0")
        if not written(f"{vm}L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32"):
            missing(f"{name}-fault-default", f"{where}, and faulting accesses go to page 0")
        if not settings.caching:
            missing(f"{name}-l2-cache", f"{where}, and every walk reads all its tables from memory")
        if not self._invalidation.complete:
            missing(f"{name}-l2-invalidate", f"{where} with the contents of its caches at power-on")
        identity = f"{vm}L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_LO32"
        if settings.identity[0] < settings.identity[1] and not written(identity):
            missing(f"{name}-identity", f"{where}, and page 0 of VMIDs other than 0 is physical page 0")
