"""The security processor (MP0): bootloader, secure OS, command ring.

After power-on a bootloader takes signed components, one after the other, until the secure OS (sOS) runs.
That takes commands through a ring in memory, and with them the firmware of every other block. All memory is
seen through the MM hub as VMID 0. Registers, commands and structures: `usbgpu.amd.facts.psp`; blobs:
`firmware_files`.

What happens after a mistake is not published (grade: guess): the bootloader of MP0 13.x does not
become ready again, that of 14.x becomes ready with an error in bits 7:0; the ring stops at a frame that it
cannot read, and answers all other mistakes with a status. Memory is read when a step ends, so that a driver
that reuses a buffer too early is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from emulator.amdgpu import firmware_files
from emulator.amdgpu.context import Context
from emulator.amdgpu.diagnosis import BootStep
from emulator.amdgpu.firmware_files import FirmwareError
from emulator.amdgpu.seams import AddressSpace, PageFault
from emulator.core.clock import clocks
from usbgpu.amd.facts import psp as facts
from usbgpu.amd.facts.chips import Chip
from usbgpu.amd.facts.firmware import SIGNED_EXTRA, has
from usbgpu.amd.facts.psp import CONTROL, READY, STATUS

COMPONENT_CLOCKS = clocks(500e-6)
"""A component of the bootloader, its bytes apart. This and the following times are a model (grade: guess)."""
CLOCKS_PER_KIB = clocks(1e-6)
"""Copying and checking 1 KiB of firmware."""
SOS_CLOCKS = clocks(10e-3)
"""From the sOS's loading until it runs."""
CONTROL_CLOCKS = clocks(1e-3)
"""A control command."""
COMMAND_CLOCKS = clocks(50e-6)
"""A command of the ring, its bytes apart."""
BOOT_ERROR = 0x01
"""Bits 7:0 of C2PMSG_35 after a mistake, on MP0 14.x."""
TMR_OTHERS = 0x90_0000
"""Bytes of the TMR that are not in the table of contents (grade: guess): with them the published table of
gfx1100 needs the maximum that drivers reserve."""
LARGEST_BLOB = 0x10_0000
"""Bytes that the bootloader takes: the size of Linux's buffer."""

COMPONENTS = {
    13: ("KDB", "SPL", "SYS_DRV", "SOS"),
    14: ("KDB", "SPL", "SYS_DRV", "SOC_DRV", "INTF_DRV", "DBG_DRV", "RAS_DRV", "SOS"),
}
"""What the bootloader takes, in order, by major version of MP; it needs those that the chip's file has."""
OPTIONAL = {13: (), 14: ("IPKEYMGR_DRV",)}
"""What it takes besides, before the sOS; a published driver does not send it."""


def needed(chip: Chip) -> tuple[str, ...]:
    """What the bootloader of a chip needs, in order."""
    return tuple(name for name in COMPONENTS[chip.versions["MP"][0]] if has(chip, name))


def _step(name: str) -> str:
    return f"psp-{name.lower().replace('_', '-')}"


STEPS: tuple[BootStep, ...] = (
    *(
        BootStep(
            _step(name),
            f"bootloader: load {name} (C2PMSG_35 = {facts.BOOTLOADER[name]:#x})"
            + ("" if name in COMPONENTS[13] else ", MP0 14.x only"),
            "the components after it",
            "the bootloader refuses the next component; C2PMSG_81 stays 0",
            "guess",
        )
        for name in COMPONENTS[14]
    ),
    BootStep(
        "psp-msg1",
        "C2PMSG_36: where the blob is, in MiB, before each command of the bootloader",
        "every component",
        "the bootloader reads firmware from address 0, and refuses it",
        "inferred",
    ),
    BootStep(
        "psp-ring",
        "C2PMSG_69, 70, 71: ring; C2PMSG_64 = 0x20000: create it",
        "every command",
        "no command is ever answered",
        "inferred",
    ),
    BootStep(
        "psp-toc",
        "LOAD_TOC",
        "SETUP_TMR and all firmware but the SMU's",
        "LOAD_IP_FW is refused",
        "guess",
    ),
    BootStep(
        "psp-tmr",
        "SETUP_TMR, MP0 13.x only",
        "all firmware but the SMU's",
        "LOAD_IP_FW is refused",
        "guess",
    ),
)


class Psp:
    """The block.

    Args:
        context: of the card.
        memory: VMID 0 of the MM hub.
        autoload: called to start the other blocks, with the names of the firmware that has been loaded.
        mode1_reset: called when the driver requests one.

    Attributes:
        alive: whether the sOS runs.
        tmr: address and bytes of the trusted memory region, None if there is none. That of 14.0.2 and 14.0.3,
            which is there from the start, has address 0: where it is has no consequence.
    """

    def __init__(
        self,
        context: Context,
        memory: AddressSpace,
        autoload: Callable[[Collection[str]], None],
        mode1_reset: Callable[[], None],
    ) -> None:
        self.alive = False
        self.tmr: tuple[int, int] | None = None
        self._context = context
        self._memory = memory
        self._autoload = autoload
        self._mode1_reset = mode1_reset
        version = context.chip.versions["MP"]
        self._major = version[0]
        if version in facts.BOOT_TIME_TMR:
            self.tmr = (0, facts.TMR_MAXIMUM)
        self._components: set[str] = set()
        self._loaded: set[str] = set()
        self._msg1 = False
        self._toc: int | None = None  # bytes of TMR that it needs
        self._ring: tuple[int, int] | None = None  # address, dwords
        self._rptr = 0
        self._working = False
        self._tmr_used = 0
        registers = context.registers
        registers.store("MP", *(self._name(number) for number in (69, 70, 71)))
        registers.on_write("MP", self._name(35), self._bootloader, reset=READY)
        registers.on_write("MP", self._name(36), self._set_msg1)
        registers.on_write("MP", self._name(64), self._control)
        registers.on_write("MP", self._name(67), self._set_wptr)
        registers.on_read("MP", self._name(81), lambda: int(self.alive))
        registers.store("MP", self._name(33), reset=READY)

    def loaded(self, firmware: str) -> bool:
        """Whether a firmware is loaded; names are those of `facts.psp.FW_TYPES`."""
        return firmware in self._loaded

    # -- bootloader -------------------------------------------------------------------------------------

    def _set_msg1(self, value: int) -> None:
        self._msg1 = True

    def _bootloader(self, value: int) -> int:
        if self.alive:
            self._wrong(f"bootloader command {value:#x}: ignored, the sOS is alive")
            return self._value(35)
        if not self._value(35) & READY:
            self._wrong(f"bootloader command {value:#x} while it is not ready (C2PMSG_35 bit 31): ignored")
            return self._value(35)
        self._context.link.schedule(COMPONENT_CLOCKS, lambda: self._load_component(value))
        return value & ~READY

    def _load_component(self, command: int) -> None:
        name = next((name for name, known in facts.BOOTLOADER.items() if known == command), None)
        order = COMPONENTS[self._major]
        try:
            if name is None or name not in order + OPTIONAL[self._major]:
                raise FirmwareError("the component is unknown")
            before = order[: order.index(name)] if name in order else order[:3]
            for other in before:
                if other not in self._components and other in needed(self._context.chip):
                    symptom = f"the PSP bootloader refuses {name}, C2PMSG_81 will stay 0"
                    self._context.diagnosis.missing(_step(other), symptom)
                    self._boot_failed()
                    return
            blob = self._component(name)
        except FirmwareError as error:
            what, place = name or f"command {command:#x}", self._value(36) << 20
            self._wrong(f"the PSP bootloader refuses {what} at {place:#x} (C2PMSG_36): {error}")
            self._boot_failed()
            return
        self._components.add(name)
        self._context.event("psp", lambda: f"bootloader: {name}, {len(blob)} bytes")
        action = self._start_sos if name == "SOS" else lambda: self._set(35, READY)
        wait = _clocks(len(blob)) + (SOS_CLOCKS if name == "SOS" else 0)
        self._context.link.schedule(wait, action)

    def _component(self, name: str) -> bytes:
        address = self._value(36) << 20
        if not self._msg1:
            self._context.diagnosis.missing("psp-msg1", f"the PSP bootloader takes {name} from address 0")
        header = self._read(address, SIGNED_EXTRA)
        size = firmware_files.length(header)
        if size > LARGEST_BLOB:
            raise FirmwareError(f"{size} bytes do not fit the bootloader's buffer")
        blob = self._read(address, size)
        firmware_files.check(self._context.chip, name, blob)
        return blob

    def _boot_failed(self) -> None:
        if self._major >= 14:
            self._set(35, READY | BOOT_ERROR)

    def _start_sos(self) -> None:
        self.alive = True
        self._set(35, READY)
        self._set(64, READY)
        self._context.event("psp", lambda: "sOS is alive")

    # -- control commands -------------------------------------------------------------------------------

    def _control(self, value: int) -> int:
        if not self.alive:
            self._context.diagnosis.missing("psp-sos", f"PSP control command {value:#x} is not answered")
        elif not self._value(64) & READY:
            self._wrong(f"PSP control command {value:#x} while another is under way: ignored")
            return self._value(64)
        else:
            self._context.link.schedule(CONTROL_CLOCKS, lambda: self._do_control(value))
        return value & ~READY

    def _do_control(self, value: int) -> None:
        command = value & 0x000F_0000
        status = 0
        if command == CONTROL["INIT_GPCOM_RING"]:
            status = self._create_ring()
        elif command == CONTROL["DESTROY_RINGS"]:
            self._ring = None
            for number in (67, 69, 70, 71):
                self._set(number, 0)
        elif command == CONTROL["MODE1_RST"]:
            self._mode1_reset()
        elif command not in (CONTROL["ENABLE_INT"], CONTROL["DISABLE_INT"]):
            self._wrong(f"PSP control command {value:#x} is unknown")
            status = STATUS["UNKNOWN_COMMAND"]
        self._set(64, READY | command | status)

    def _create_ring(self) -> int:
        address, size = self._value(70) << 32 | self._value(69), self._value(71)
        if self._ring:
            self._wrong("a PSP ring is created while there is one: destroy it first")
            return STATUS["BAD_STATE"] & 0xFFFF
        if not size or size % facts.FRAME.size or address % facts.FIRMWARE_ALIGNMENT:
            self._wrong(
                f"a PSP ring at {address:#x} with {size:#x} bytes: align it to 4 KiB, and give whole frames"
            )
            return STATUS["BAD_PARAMETERS"] & 0xFFFF
        self._ring = (address, size // 4)
        self._rptr = 0
        self._set(67, 0)
        self._context.event("psp", lambda: f"ring at {address:#x}, {size:#x} bytes")
        return 0

    # -- ring -------------------------------------------------------------------------------------------

    def _set_wptr(self, value: int) -> int:
        if not self._ring:
            step = "psp-ring" if self.alive else "psp-sos"
            self._context.diagnosis.missing(
                step, f"PSP ring write pointer {value:#x}: the command is not taken"
            )
            return value
        if value % (facts.FRAME.size // 4) or value >= self._ring[1]:
            self._wrong(
                f"PSP ring write pointer {value:#x}: it must be a multiple of 16 dwords within the ring"
            )
            return self._value(67)
        if not self._working and value != self._rptr:
            self._working = True
            self._context.link.schedule(COMMAND_CLOCKS, self._next)
        return value

    def _next(self) -> None:
        if not self._ring or self._rptr == self._value(67):
            self._working = False
            return
        address, dwords = self._ring
        try:
            frame = facts.FRAME.unpack(self._read(address + self._rptr * 4, facts.FRAME.size))
            place = frame["cmd_buf_addr_hi"] << 32 | frame["cmd_buf_addr_lo"]
            fence = frame["fence_addr_hi"] << 32 | frame["fence_addr_lo"]
            if place % facts.FIRMWARE_ALIGNMENT or not place:
                raise FirmwareError(f"the command buffer's address {place:#x} is not a multiple of 4 KiB")
            buffer = self._read(place, facts.COMMAND_BUFFER.size)
        except FirmwareError as error:
            self._wrong(f"the PSP ring stops at frame {self._rptr // 16}: {error}")
            return  # stays busy
        self._rptr = (self._rptr + facts.FRAME.size // 4) % dwords
        response, size = self._execute(buffer)

        def finish() -> None:
            try:
                self._write(place + facts.COMMAND_BUFFER.offset("resp"), facts.RESPONSE.pack(**response))
                self._write(fence, frame["fence_value"].to_bytes(4, "little"))
            except FirmwareError as error:
                self._wrong(f"a PSP command is done, but its response cannot be written: {error}")
            self._next()

        self._context.link.schedule(_clocks(size) + COMMAND_CLOCKS, finish)

    def _execute(self, buffer: bytes) -> tuple[dict[str, int], int]:
        """A response, and the bytes of firmware that were handled."""
        number = facts.COMMAND_BUFFER.get(buffer, "cmd_id")
        command = next(
            (name for name, known in facts.COMMANDS.items() if known == number), f"command {number:#x}"
        )
        body = buffer[facts.COMMAND_BUFFER.offset("cmd") :]
        response, size = {"status": STATUS["SUCCESS"]}, 0
        if command == "LOAD_TOC":
            response, size = self._load_toc(facts.LOAD_TOC.unpack_from(body))
        elif command == "SETUP_TMR":
            response = self._setup_tmr(facts.SETUP_TMR.unpack_from(body))
        elif command == "LOAD_IP_FW":
            response, size = self._load_firmware(facts.LOAD_IP_FW.unpack_from(body))
        elif command == "AUTOLOAD_RLC":
            self._autoload(frozenset(self._loaded))
        elif command == "DESTROY_TMR":
            if self._context.chip.versions["MP"] not in facts.BOOT_TIME_TMR:
                self.tmr = None
        else:
            known = command in facts.COMMANDS
            response = self._refused(
                command, "NOT_SUPPORTED" if known else "UNKNOWN_COMMAND", "it is not modelled"
            )
        status = response["status"]
        self._context.event("psp", lambda: f"{command} {size} bytes: status {status:#x}")
        return response, size

    def _refused(self, what: str, status: str, why: str) -> dict[str, int]:
        self._wrong(f"the PSP refuses {what} ({status}): {why}")
        return {"status": STATUS[status]}

    def _load_toc(self, command: dict[str, int]) -> tuple[dict[str, int], int]:
        address, size = command["toc_phy_addr_hi"] << 32 | command["toc_phy_addr_lo"], command["toc_size"]
        blob = self._firmware("LOAD_TOC", "TOC", address, size)
        if isinstance(blob, dict):
            return blob, 0
        end = max(
            (entry.offset + entry.size for entry in firmware_files.contents(self._context.chip, blob)),
            default=0,
        )
        end = -(-end // facts.TMR_ALIGNMENT) * facts.TMR_ALIGNMENT
        self._toc = min(end + TMR_OTHERS, facts.TMR_MAXIMUM)
        return {"status": STATUS["SUCCESS"], "tmr_size": self._toc}, size

    def _setup_tmr(self, command: dict[str, int]) -> dict[str, int]:
        address, size = command["buf_phy_addr_hi"] << 32 | command["buf_phy_addr_lo"], command["buf_size"]
        if self._context.chip.versions["MP"] in facts.BOOT_TIME_TMR:
            return self._refused(
                "SETUP_TMR", "BAD_STATE", "this chip sets up its TMR at power-on: leave the command out"
            )
        if self._toc is None:
            self._context.diagnosis.missing("psp-toc", "the PSP refuses SETUP_TMR")
            return {"status": STATUS["BAD_STATE"]}
        if address % facts.TMR_ALIGNMENT or size < self._toc:
            why = f"{size:#x} bytes at {address:#x}; it needs {self._toc:#x}, aligned to 1 MiB"
            return self._refused("SETUP_TMR", "BAD_PARAMETERS", why)
        at = address
        try:
            while at < address + size:
                extent = self._memory.translate(at, write=True)
                if extent.system:
                    return self._refused("SETUP_TMR", "BAD_PARAMETERS", f"{at:#x} is not in VRAM")
                at = extent.end
        except PageFault as fault:
            return self._refused("SETUP_TMR", "BAD_PARAMETERS", str(fault))
        self.tmr = (address, size)
        return {"status": STATUS["SUCCESS"]}

    def _load_firmware(self, command: dict[str, int]) -> tuple[dict[str, int], int]:
        address, size = command["fw_phy_addr_hi"] << 32 | command["fw_phy_addr_lo"], command["fw_size"]
        name = next((name for name, number in facts.FW_TYPES.items() if number == command["fw_type"]), "")
        what = f"LOAD_IP_FW {name or command['fw_type']}"
        if not name:
            return self._refused(what, "NOT_SUPPORTED", "there is no such type of firmware"), 0
        if name != "SMU" and (self._toc is None or self.tmr is None):
            step = "psp-toc" if self._toc is None else "psp-tmr"
            self._context.diagnosis.missing(step, f"the PSP refuses {what}")
            return {"status": STATUS["BAD_STATE"]}, 0
        blob = self._firmware(what, _blob_name(name), address, size)
        if isinstance(blob, dict):
            return blob, 0
        self._loaded.add(name)
        place = (self.tmr[0] if self.tmr else 0) + self._tmr_used
        self._tmr_used += -(-size // 0x1000) * 0x1000
        return {
            "status": STATUS["SUCCESS"],
            "fw_addr_lo": place & 0xFFFF_FFFF,
            "fw_addr_hi": place >> 32,
        }, size

    def _firmware(self, what: str, kind: str | None, address: int, size: int) -> bytes | dict[str, int]:
        """A checked blob (if its kind is known), or the response that says why not."""
        if address % facts.FIRMWARE_ALIGNMENT or not 0 < size <= facts.TMR_MAXIMUM:
            why = f"{size:#x} bytes at {address:#x}; addresses must be multiples of 4 KiB"
            return self._refused(what, "BAD_PARAMETERS", why)
        try:
            blob = self._read(address, size)
        except FirmwareError as error:
            return self._refused(what, "ACCESS_DENIED", str(error))
        try:
            if kind is not None:
                firmware_files.check(self._context.chip, kind, blob)
        except FirmwareError as error:
            return self._refused(what, "SECURITY", str(error))
        return blob

    # -- inside -----------------------------------------------------------------------------------------

    def _name(self, number: int) -> str:
        return f"{facts.PREFIXES[self._context.chip.versions['MP'][0]]}_SMN_C2PMSG_{number}"

    def _value(self, number: int) -> int:
        return self._context.registers.value("MP", self._name(number))

    def _set(self, number: int, value: int) -> None:
        self._context.registers.set("MP", self._name(number), value)

    def _wrong(self, symptom: str) -> None:
        self._context.diagnosis.wrong(symptom)

    def _read(self, address: int, size: int) -> bytes:
        try:
            return self._memory.read(address, size)
        except PageFault as fault:
            raise FirmwareError(str(fault)) from None

    def _write(self, address: int, data: bytes) -> None:
        try:
            self._memory.write(address, data)
        except PageFault as fault:
            raise FirmwareError(str(fault)) from None


def _blob_name(fw_type: str) -> str | None:
    """The blob that a type of LOAD_IP_FW takes: stacks of all pipes are the same. None for blocks that are
    not modelled (video, display, MES): their firmware is taken as it is.
    """
    name = fw_type
    for pipe in "0123":
        name = name.replace(f"_P{pipe}_STACK", "_STACK")
    return name if name in firmware_files.LOADABLE else None


def _clocks(size: int) -> int:
    return size * CLOCKS_PER_KIB // 1024
