"""What a VM hub does about an address that it refuses: status registers, an interrupt, the dummy page.

The first fault stays in the status registers until they are cleared; later ones only set MORE_FAULTS. What
the status says for a fault is as in kernel logs that users published, for the most common faults; for
the rest see `usbgpu.amd.facts.pages`.
"""

from __future__ import annotations

from emulator.amdgpu.context import Context
from emulator.amdgpu.hub_settings import PREFIXES, power_on
from emulator.amdgpu.page_tables import PAGE, WalkError
from emulator.amdgpu.seams import Extent, Interrupts, PageFault
from usbgpu.amd.facts import interrupts as interrupt_facts
from usbgpu.amd.facts import pages


class Faults:
    """The fault registers of a hub.

    Args:
        context: of the card.
        block: GC or MMHUB.

    Attributes:
        interrupts: where interrupts go; the card sets it.
    """

    def __init__(self, context: Context, block: str) -> None:
        self.interrupts: Interrupts | None = None
        self._context = context
        self._block = block
        self._prefix = prefix = PREFIXES[block][0]
        self._control = f"{prefix}L2_PROTECTION_FAULT_CNTL"
        self._status = prefix + context.chip.family.fault_status
        clients = pages.GC_CLIENTS if block == "GC" else pages.MM_CLIENTS
        self.clients = clients[context.chip.generation]
        reset = power_on(context, block, self._control)
        context.registers.on_write(block, self._control, self._write_control, reset=reset)

    def report(self, vmid: int, client: str, address: int, access: str, error: WalkError) -> Extent:
        """A refused access.

        Args:
            vmid: whose.
            client: the requester.
            address: virtual.
            access: READ, WRITE or EXECUTE.
            error: why.

        Returns:
            The dummy page, if this kind of access continues there after a fault.

        Raises:
            PageFault: it does not.
        """
        write = access == "WRITE"
        self._record(vmid, client, address, access, error)
        number = address >> pages.PAGE_SHIFT
        interrupt = self._enabled(vmid, client, error, "INTERRUPT")
        retry = self._context.registers.get(
            self._block, f"{self._prefix}CONTEXT{vmid}_CNTL", "RETRY_PERMISSION_OR_INVALID_PAGE_FAULT"
        )
        go_on = not retry and self._enabled(vmid, client, error, "DEFAULT")
        page = self._dummy(address) if go_on else None
        outcome = f"{'an' if interrupt else 'no'} interrupt"
        if retry:
            outcome += (
                ", and the access waits without end: CONTEXTn_CNTL asks for retries, which are not modelled"
            )
        if page is not None:
            outcome += f", and the dummy page at {'PCIe ' * page.system}{page.target:#x} instead"
        self._context.diagnosis.wrong(
            f"page fault in {self._block}, VMID {vmid}: {access.lower()} of {address:#x} by {client}: "
            f"{error.reason}; {outcome}"
        )
        if interrupt and self.interrupts is not None:
            name = "GFX" if self._block == "GC" else "VMC"
            second = number >> 32 & 0xF | write * interrupt_facts.FAULT_WRITE
            second |= retry * interrupt_facts.FAULT_RETRY
            self.interrupts.post(
                interrupt_facts.CLIENTS[name],
                interrupt_facts.SOURCES["UTCL2_FAULT"],
                vmid=vmid,
                data=(number & 0xFFFF_FFFF, second, 0, 0),
            )
        if page is None:
            raise PageFault(address, write=write, reason=error.reason)
        return page

    def clear(self) -> None:
        """Forget the fault."""
        for name in (self._status, f"{self._prefix}L2_PROTECTION_FAULT_ADDR_LO32"):
            self._context.registers.set(self._block, name, 0)
        self._context.registers.set(self._block, f"{self._prefix}L2_PROTECTION_FAULT_ADDR_HI32", 0)

    def _record(self, vmid: int, client: str, address: int, access: str, error: WalkError) -> None:
        registers = self._context.registers
        register = self._context.chip.register(self._block, self._status)
        old = registers.value(self._block, self._status)
        if old and not self._control_field("ALLOW_SUBSEQUENT_PROTECTION_FAULT_STATUS_ADDR_UPDATES"):
            registers.set(self._block, self._status, register.pack(old, MORE_FAULTS=1))
            return
        walker = pages.WALKER_ERRORS.get(error.fault, 0)
        unmapped = error.fault not in ("READ", "WRITE", "EXECUTE")
        status = register.pack(
            WALKER_ERROR=walker,
            PERMISSION_FAULTS=pages.PERMISSIONS[access] | (pages.PERMISSIONS["VALID"] if unmapped else 0),
            MAPPING_ERROR=int(walker != 0),
            CID=self.clients[client],
            RW=int(access == "WRITE"),
            VMID=vmid,
        )
        number = address >> pages.PAGE_SHIFT
        registers.set(self._block, self._status, status)
        registers.set(self._block, f"{self._prefix}L2_PROTECTION_FAULT_ADDR_LO32", number)
        registers.set(self._block, f"{self._prefix}L2_PROTECTION_FAULT_ADDR_HI32", number >> 32 & 0xF)

    def _enabled(self, vmid: int, client: str, error: WalkError, what: str) -> bool:
        """Whether the context, and the hub, enable that for such a fault. A disabled context enables nothing
        (guess).
        """
        name = f"{self._prefix}CONTEXT{vmid}_CNTL"
        registers = self._context.registers
        if not registers.get(self._block, name, "ENABLE_CONTEXT"):
            return False
        register = self._context.chip.register(self._block, name)
        kind = f"{error.fault}_PROTECTION_FAULT_ENABLE_{what}"
        if kind not in register:  # contexts know one kind for all errors of directories
            kind = f"PDE0_PROTECTION_FAULT_ENABLE_{what}"
        if not registers.get(self._block, name, kind):
            return False
        if what == "DEFAULT":
            return bool(self._control_field(f"{error.fault}_PROTECTION_FAULT_ENABLE_DEFAULT"))
        mask = self._control_field("CLIENT_ID_NO_RETRY_FAULT_INTERRUPT")
        mask |= self._control_field("OTHER_CLIENT_ID_NO_RETRY_FAULT_INTERRUPT") << 16
        return bool(mask >> min(self.clients[client], 16) & 1)

    def _dummy(self, address: int) -> Extent:
        registers, prefix = self._context.registers, self._prefix
        number = registers.value(self._block, f"{prefix}L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32")
        number |= registers.value(self._block, f"{prefix}L2_PROTECTION_FAULT_DEFAULT_ADDR_HI32") << 32
        host = registers.get(self._block, f"{prefix}L2_CNTL", "ENABLE_DEFAULT_PAGE_OUT_TO_SYSTEM_MEMORY")
        start, target = address & -PAGE, number * PAGE
        if not host:
            target %= self._context.vram.size
        return Extent(start, start + PAGE, target, system=bool(host), writable=True, executable=True)

    def _control_field(self, part: str) -> int:
        return self._context.registers.get(self._block, self._control, part)

    def _write_control(self, value: int) -> int:
        register = self._context.chip.register(self._block, self._control)
        if register.get(value, "CLEAR_PROTECTION_FAULT_STATUS_ADDR"):
            self.clear()
        return register.pack(value, CLEAR_PROTECTION_FAULT_STATUS_ADDR=0)  # guess: the bit is not kept
