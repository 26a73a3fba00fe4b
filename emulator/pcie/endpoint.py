"""A plain test endpoint: memory behind one BAR, registers behind another, and a bus master.

It stands in for a device where the chip and the fabric are what is tested: BAR 0 is RAM (64-bit, resizable,
raw), BAR 2 the registers of REGISTERS. Its bus master copies between the RAM and upstream memory at the
link's rate, waits for a value to appear upstream before, and writes a dword upstream after. None of this
models a real part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from mmap import mmap

from emulator.pcie import config_space
from emulator.pcie.config_space import MEBIBYTE, ConfigSpace, ConfiguredFunction, Identity, Resizable
from emulator.pcie.function import (
    Bar,
    CompleterAbort,
    ConfigurationRetry,
    NoCompletion,
    Reset,
    UnsupportedRequest,
)
from sdk.errors import UsageError

IDENTITY = Identity(0x1234, 0x70E1, 0xFF0000, subsystem_vendor=0x1234, subsystem=0x0001)
"""An unassigned vendor id; class: none that is defined."""

RAM = 0
REGISTER_FILE = 2
REGISTER_FILE_SIZE = 4096

MAGIC = 0x4C574F54
"""What ID reads: "TOWL"."""

POLL_CLOCKS = 114
"""How often an upstream dword that is waited for is read: each microsecond."""

NEVER = 0xFFFFFFFF
"""Value of DELAY for reads that are never completed."""


@dataclass(frozen=True, slots=True)
class EndpointRegister:
    """A dword register of BAR 2.

    Attributes:
        offset: in the BAR.
        writable: bits that hold what is written.
        reset: value after a reset.
        clears: bits that writing 1 clears.
    """

    name: str
    offset: int
    doc: str
    writable: int = 0
    reset: int = 0
    clears: int = 0


WORD = 0xFFFFFFFF

REGISTERS = (
    EndpointRegister("ID", 0x00, "Reads MAGIC.", reset=MAGIC),
    EndpointRegister("SCRATCH", 0x04, "Holds what is written.", WORD),
    EndpointRegister("STATUS", 0x08, "Bit 0 busy; 1 done, 2 refused upstream: write 1 to clear.", clears=6),
    EndpointRegister("ERRORS", 0x0C, "Upstream requests that were refused, since the last reset."),
    EndpointRegister("LOCAL", 0x10, "DMA: offset in the RAM.", WORD),
    EndpointRegister("UPSTREAM", 0x14, "DMA: upstream address, bits 31:0.", WORD),
    EndpointRegister("UPSTREAM_HIGH", 0x18, "DMA: upstream address, bits 63:32.", WORD),
    EndpointRegister("LENGTH", 0x1C, "DMA: bytes, 1 to the RAM's size.", WORD),
    EndpointRegister(
        "CONTROL", 0x20, "A write starts the DMA; bits as in Control. Reads the last one.", 0x1F
    ),
    EndpointRegister("POLL", 0x24, "Upstream address whose dword is waited for.", WORD),
    EndpointRegister("POLL_VALUE", 0x28, "The value that it must have.", WORD),
    EndpointRegister("FENCE", 0x2C, "Upstream address of the dword that FENCE_VALUE writes.", WORD),
    EndpointRegister("FENCE_VALUE", 0x30, "Its value. The write is done after a DMA, if asked for.", WORD),
    EndpointRegister("SIGNAL", 0x34, "A write of anything writes FENCE_VALUE to FENCE now."),
    EndpointRegister("DELAY", 0x38, "Clocks by which reads of DELAYED come late; all ones: never.", WORD),
    EndpointRegister("RETRY", 0x3C, "A write has configuration requests retried for that many clocks."),
    EndpointRegister("DELAYED", 0x40, "Reads MAGIC, but late."),
    EndpointRegister("ABORTED", 0x44, "Reads and writes are aborted by the completer."),
)
"""The registers of BAR 2, little-endian dwords; other offsets are unsupported requests."""

OFFSETS = {register.name: register.offset for register in REGISTERS}
_AT = {register.offset: register for register in REGISTERS}


class Control:
    """Bits of CONTROL."""

    COPY_IN = 0x01
    """Copy LENGTH bytes from UPSTREAM to the RAM."""
    COPY_OUT = 0x02
    """Copy LENGTH bytes from the RAM to UPSTREAM."""
    POLL = 0x04
    """First wait until POLL holds POLL_VALUE."""
    SIGNAL = 0x08
    """At the end write FENCE_VALUE to FENCE."""
    ABORT = 0x10
    """Stop what is under way; no other bit counts."""


BUSY, DONE, REFUSED = 1, 2, 4
"""Bits of STATUS."""


class TestEndpoint(ConfiguredFunction):
    """The endpoint.

    Args:
        memory_size: bytes of RAM, a power of two of at least 1 MiB; the BAR has that size after a reset.

    Attributes:
        memory: the RAM. Resets leave it alone.

    Raises:
        UsageError: a size that no resizable BAR can have.
    """

    __test__ = False  # not a test case, although its name looks like one to pytest

    def __init__(self, memory_size: int = 16 * MEBIBYTE) -> None:
        if memory_size < MEBIBYTE or memory_size & (memory_size - 1):
            raise UsageError(
                f"a RAM BAR cannot have {memory_size} bytes", hint="give a power of two from 1 MiB on"
            )
        self.memory = mmap(-1, memory_size)  # pages that nothing touches take no memory
        bars = (
            Bar(RAM, memory_size, wide=True, prefetchable=True),
            Bar(REGISTER_FILE, REGISTER_FILE_SIZE),
        )
        sizes = tuple(MEBIBYTE << step for step in range((memory_size // MEBIBYTE).bit_length()))
        resizable = (Resizable(RAM, sizes),)
        super().__init__(
            ConfigSpace(
                config_space.type0(IDENTITY),
                bars,
                (
                    config_space.power_management(0x50),
                    config_space.pci_express(0x60, "endpoint", generation=4, lanes=4, resettable=True),
                    config_space.resizable_bars(0x100, resizable, bars),
                ),
                resizable,
            )
        )
        self._retry_until = 0
        self._job = 0
        self._values: dict[str, int] = {}
        self._reset_registers()

    @property
    def bars(self) -> Sequence[Bar]:
        """The RAM at its present size, and the registers."""
        ram = Bar(RAM, self.config.sizes[RAM], wide=True, prefetchable=True, memory=self.memory)
        return (ram, Bar(REGISTER_FILE, REGISTER_FILE_SIZE))

    def config_read(self, offset: int, byte_enables: int) -> int:
        """See PcieFunction. Raises ConfigurationRetry while RETRY says so."""
        self._ready()
        return super().config_read(offset, byte_enables)

    def config_write(self, offset: int, value: int, byte_enables: int) -> None:
        """See PcieFunction. Raises ConfigurationRetry while RETRY says so."""
        self._ready()
        super().config_write(offset, value, byte_enables)

    def read(self, bar: int, offset: int, size: int) -> bytes:
        """See PcieFunction."""
        if bar == RAM:
            self._inside(offset, size, self.config.sizes[RAM])
            return bytes(self.memory[offset : offset + size])
        register = self._register(bar, offset, size)
        self._answers(register)
        value = self._values[register.name].to_bytes(4, "little")
        return value[offset & 3 : (offset & 3) + size]

    def write(self, bar: int, offset: int, data: bytes) -> None:
        """See PcieFunction. A register's write takes effect whichever of its bytes are written."""
        if bar == RAM:
            self._inside(offset, len(data), self.config.sizes[RAM])
            self.memory[offset : offset + len(data)] = data
            return
        register = self._register(bar, offset, len(data))
        if register.name == "ABORTED":
            raise CompleterAbort
        shift = 8 * (offset & 3)
        value = int.from_bytes(data, "little") << shift
        lanes = ((1 << 8 * len(data)) - 1) << shift
        self._written(register, value, lanes)

    def reset(self, kind: Reset) -> None:
        """See PcieFunction."""
        super().reset(kind)
        self._reset_registers()

    # -- registers --------------------------------------------------------------------------------------

    def _reset_registers(self) -> None:
        self._values = {register.name: register.reset for register in REGISTERS}
        self._values["DELAYED"] = MAGIC
        self._retry_until = 0
        self._job += 1

    def _ready(self) -> None:
        if self._retry_until and self.upstream.now() < self._retry_until:
            raise ConfigurationRetry

    def _answers(self, register: EndpointRegister) -> None:
        if register.name == "ABORTED":
            raise CompleterAbort
        if register.name == "DELAYED":
            if self._values["DELAY"] == NEVER:
                raise NoCompletion
            self.upstream.delay_completion(self._values["DELAY"])

    def _written(self, register: EndpointRegister, value: int, lanes: int) -> None:
        writable = register.writable & lanes
        held = self._values[register.name] & ~writable | value & writable
        self._values[register.name] = held & ~(value & register.clears & lanes)
        match register.name:
            case "CONTROL":
                self._start(held)
            case "SIGNAL":
                self._signal()
            case "RETRY":
                self._retry_until = self.upstream.now() + value

    @staticmethod
    def _inside(offset: int, size: int, limit: int) -> None:
        if not 0 <= offset <= limit - size:
            raise UnsupportedRequest

    @staticmethod
    def _register(bar: int, offset: int, size: int) -> EndpointRegister:
        register = _AT.get(offset & ~3)
        if bar != REGISTER_FILE or register is None or (offset & 3) + size > 4:
            raise UnsupportedRequest
        return register

    # -- the bus master ---------------------------------------------------------------------------------

    def _start(self, control: int) -> None:
        self._job += 1
        self._values["STATUS"] &= ~BUSY
        if control & Control.ABORT:
            return
        self._values["STATUS"] |= BUSY
        self._poll(self._job, control)

    def _poll(self, job: int, control: int) -> None:
        """Wait for the dword upstream, then let the copy take its time."""
        if job != self._job:
            return
        values = self._values
        if control & Control.POLL:
            try:
                found = self.upstream.dma_read(values["POLL"], 4)
            except UnsupportedRequest:
                self._end(refused=True)
                return
            if found != values["POLL_VALUE"].to_bytes(4, "little"):
                self.upstream.schedule(POLL_CLOCKS, lambda: self._poll(job, control))
                return
        length = values["LENGTH"] if control & (Control.COPY_IN | Control.COPY_OUT) else 0
        self.upstream.schedule(
            self.upstream.transfer_clocks(length), lambda: self._copy(job, control, length)
        )

    def _copy(self, job: int, control: int, length: int) -> None:
        """The copy, at the clock at which its last byte has passed the link."""
        if job != self._job:
            return
        local = self._values["LOCAL"]
        address = self._values["UPSTREAM_HIGH"] << 32 | self._values["UPSTREAM"]
        try:
            self._inside(local, length, len(self.memory))
            if control & Control.COPY_IN:
                self.memory[local : local + length] = self.upstream.dma_read(address, length)
            elif control & Control.COPY_OUT:
                self.upstream.dma_write(address, bytes(self.memory[local : local + length]))
        except UnsupportedRequest:
            self._end(refused=True)
            return
        self._end(refused=False)
        if control & Control.SIGNAL:
            self._signal()

    def _end(self, *, refused: bool) -> None:
        self._values["STATUS"] = self._values["STATUS"] & ~BUSY | DONE
        if refused:
            self._refuse()

    def _signal(self) -> None:
        """Write the fence."""
        try:
            self.upstream.dma_write(self._values["FENCE"], self._values["FENCE_VALUE"].to_bytes(4, "little"))
        except UnsupportedRequest:
            self._refuse()

    def _refuse(self) -> None:
        self._values["STATUS"] |= REFUSED
        self._values["ERRORS"] += 1
