"""The packet processor of a compute queue (PM4).

Executes one packet at a time; layouts are those of `usbgpu.amd.facts.pm4`. What is unknown or
malformed stops the queue with an interrupt of the command processor, as on silicon (grade of the details:
guess). The interrupts of ends of pipe are masked until the driver sets TIME_STAMP_INT_ENABLE in the pipe's
CP_ME1_PIPEn_INT_CNTL (inferred: a published driver asks for them without setting it, and takes an interrupt
for an error); those of errors are not masked (guess). Not modelled: predication, semaphores, atomics,
preemption.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from emulator.amdgpu.context import Context
from emulator.amdgpu.dispatch import Dispatcher
from emulator.amdgpu.hqd import PIPES, Hqd, Stream, Wait
from emulator.amdgpu.rlc import gpu_clock
from emulator.amdgpu.seams import Interrupts, PageFault
from emulator.core.clock import clocks
from usbgpu.amd.facts import interrupts as ih
from usbgpu.amd.facts import pm4
from usbgpu.amd.facts.chips import Chip
from usbgpu.amd.facts.describe import DWORD

EOP_CLOCKS = clocks(400e-9)
"""From the end of the work until the write of a RELEASE_MEM is in memory (model; grade: guess)."""

_INTERRUPT_CONTROL = "CP_ME1_PIPE{}_INT_CNTL"

Parts = Mapping[str, int]
_COMPARE: tuple[Callable[[int, int], bool], ...] = (
    lambda value, reference: True,
    operator.lt,
    operator.le,
    operator.eq,
    operator.ne,
    operator.ge,
    operator.gt,
)
_TIMESTAMP_EVENTS = {number: name for name, number in pm4.EVENTS.items() if pm4.EVENT_INDICES[name] in (5, 6)}


class Costs(Protocol):
    """How long work takes, in chip clocks: `emulator.amdgpu.cost`."""

    def packet(self) -> int:
        """A packet."""

    def copy(self, size: int, system: bool) -> int:
        """A copy of bytes."""


class Refused(Exception):
    """A packet that the command processor does not take.

    Attributes:
        source: of the interrupt, one of `facts.interrupts.SOURCES`.
    """

    def __init__(self, reason: str, source: str = "CP_BAD_OPCODE_ERROR") -> None:
        super().__init__(reason)
        self.source = source


class _EopFault(Exception):
    """The end-of-pipe buffer is not mapped."""

    def __init__(self, fault: PageFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class Processor:
    """Executes packets.

    Args:
        context: of the card.
        interrupts: where its interrupts go.
        dispatcher: takes dispatches.
        cost: of packets and copies.
        touched: called when an engine has changed memory.
    """

    def __init__(
        self,
        context: Context,
        interrupts: Interrupts,
        dispatcher: Dispatcher,
        cost: Costs,
        touched: Callable[[], None],
    ) -> None:
        self._context = context
        self._interrupts = interrupts
        self._dispatcher = dispatcher
        self._cost = cost
        self._touched = touched
        controls = (_INTERRUPT_CONTROL.format(pipe) for pipe in range(PIPES))
        context.registers.store(
            "GC", *(name for name in controls if name in context.chip.blocks["GC"].registers)
        )
        self._handlers: Mapping[str, Callable[[Hqd, Parts, Sequence[int]], int | None]] = {
            "NOP": lambda hqd, parts, data: None,
            "DISPATCH_DIRECT": self._dispatch_direct,
            "DISPATCH_INDIRECT": self._dispatch_indirect,
            "WRITE_DATA": self._write_data,
            "WAIT_REG_MEM": self._wait_reg_mem,
            "WAIT_REG_MEM64": self._wait_reg_mem,
            "INDIRECT_BUFFER": self._indirect_buffer,
            "COPY_DATA": self._copy_data,
            "EVENT_WRITE": self._event_write,
            "RELEASE_MEM": self._release_mem,
            "DMA_DATA": self._dma_data,
            "ACQUIRE_MEM": self._acquire_mem,
            "SET_SH_REG": self._set_sh_reg,
            "SET_UCONFIG_REG": self._set_uconfig_reg,
        }

    def step(self, hqd: Hqd) -> int:
        """Execute the next packet of a queue that is ready. Returns the clocks that it takes.

        It never raises: what goes wrong stops the queue.
        """
        stream = hqd.streams[-1]
        error = "PQ_UTCL1_ERROR" if len(hqd.streams) == 1 else "IB_UTCL1_ERROR"
        what = f"fetch of the {stream.what}"
        try:
            packet, body = self._fetch(hqd, stream)
            if packet is None:
                return self._cost.packet()
            what, error = packet.name, "TC_UTCL1_ERROR"
            parts, data = packet.unpack(body), body[packet.size :]
            self._context.event(
                "pm4", lambda: f"{hqd.name} {describe(packet, parts, data, self._context.chip)}"
            )
            epoch = hqd.epoch
            extra = self._handlers[packet.name](hqd, parts, data)
            if hqd.epoch != epoch:  # the packet has reset its own queue
                return self._cost.packet()
            self._end_buffers(hqd)
            what, error = "report of the read pointer", "RRPT_UTCL1_ERROR"
            hqd.report()
        except PageFault as fault:
            hqd.fault(error, what, fault)
            return self._cost.packet()
        except _EopFault as problem:
            hqd.fault("EOP_UTCL1_ERROR", what, problem.fault)
            return self._cost.packet()
        except Refused as refusal:
            self._refuse(hqd, stream, refusal)
            return self._cost.packet()
        return self._cost.packet() + (extra or 0)

    # -- reading packets --------------------------------------------------------------------------------

    def _fetch(self, hqd: Hqd, stream: Stream) -> tuple[pm4.Pm4Packet | None, list[int]]:
        """The next packet, consumed; None if it is not all there yet."""
        header = stream.word()
        if pm4.kind(header) not in (pm4.TYPE_2, pm4.TYPE_3):
            raise Refused(f"{header:#010x} is not a packet header (type {pm4.kind(header)})")
        padding = pm4.kind(header) == pm4.TYPE_2
        packet = pm4.PACKETS["NOP"] if padding else self._packet(pm4.opcode(header))
        size = pm4.body_size(header)
        least = packet.size + (packet.data and packet.name != "NOP")
        if size < least or (size > least and not packet.data):
            raise Refused(f"{packet.name} has a body of {size} dwords, needs {least}")
        if stream.left <= size:
            self._cut(hqd, stream, header, size)
            return None, []
        # The contents of a NOP are not looked at.
        body = [] if packet.name == "NOP" else stream.words(1, size)
        stream.position += 1 + size
        return packet, body

    def _packet(self, opcode: int) -> pm4.Pm4Packet:
        packet = pm4.BY_OPCODE.get(opcode)
        if packet is None:
            name = pm4.NOT_MODELLED.get(opcode)
            reason = f"{name} is not modelled" if name else "there is no such packet"
            raise Refused(f"opcode {opcode:#x}: {reason}")
        return packet

    def _cut(self, hqd: Hqd, stream: Stream, header: int, size: int) -> None:
        """A packet is incomplete: the queue waits for the rest of it."""
        text = f"a packet of {size + 1} dwords ({header:#010x}), of which {stream.left} are there"
        if len(hqd.streams) > 1:
            raise Refused(f"the {stream.what} ends within {text}")
        self._context.diagnosis.wrong(
            f"{hqd.name}: the write pointer is within {text}: it waits for the rest"
        )
        self._wait(hqd, lambda: stream.left > size, f"the rest of {text}", polls=False)

    def _end_buffers(self, hqd: Hqd) -> None:
        while len(hqd.streams) > 1 and not hqd.streams[-1].left:
            hqd.streams.pop()
            hqd.vmid = hqd.get("CP_HQD_VMID", "VMID")

    def _refuse(self, hqd: Hqd, stream: Stream, refusal: Refused) -> None:
        place = f"{stream.what} at {stream.address:#x}"
        self._context.diagnosis.wrong(f"{hqd.name}, {place}: {refusal}; the queue stops")
        hqd.stop(str(refusal))
        client, source = ih.CLIENTS["GRBM_CP"], ih.SOURCES[refusal.source]
        self._interrupts.post(client, source, ring=hqd.ring_id, vmid=hqd.vmid)

    # -- registers --------------------------------------------------------------------------------------

    def _check_register(self, hqd: Hqd, index: int) -> str:
        """The name of a register that a queue may use, if it is one of its own copies; else ""."""
        known = self._context.chip.by_address.get(index)
        name = f"{known[0]}:{known[1].name}" if known else f"{index:#x}"
        if not self._context.registers.modelled(index):
            raise Refused(f"register {name} {'is not modelled' if known else 'is unknown'}")
        if known and known[1].name.startswith("COMPUTE_"):
            return known[1].name
        if hqd.vmid and index not in pm4.UCONFIG_REGISTERS and not hqd.get("CP_HQD_PQ_CONTROL", "PRIV_STATE"):
            raise Refused(f"register {name} is not for VMID {hqd.vmid}", "CP_PRIV_REG_FAULT")
        return ""

    def _read_register(self, hqd: Hqd, index: int) -> int:
        own = self._check_register(hqd, index)
        return hqd.value(own) if own else self._context.registers.read(index)

    def _write_register(self, hqd: Hqd, index: int, value: int) -> None:
        own = self._check_register(hqd, index)
        if own:
            hqd.set(own, value)
        else:
            self._context.registers.write(index, value)

    def _set_registers(self, hqd: Hqd, registers: range, offset: int, data: Sequence[int]) -> None:
        if offset + len(data) > len(registers):
            raise Refused(f"registers from {registers.start + offset:#x} on: the packet reaches {registers}")
        for index, value in enumerate(data, registers.start + offset):
            self._write_register(hqd, index, value)

    def _set_sh_reg(self, hqd: Hqd, parts: Parts, data: Sequence[int]) -> None:
        self._set_registers(hqd, pm4.SH_REGISTERS, parts["REG_OFFSET"], data)

    def _set_uconfig_reg(self, hqd: Hqd, parts: Parts, data: Sequence[int]) -> None:
        self._set_registers(hqd, pm4.UCONFIG_REGISTERS, parts["REG_OFFSET"], data)

    # -- dispatches and caches --------------------------------------------------------------------------

    def _dispatch_direct(self, hqd: Hqd, parts: Parts, data: Sequence[int]) -> None:
        self._dispatch(hqd, (parts["DIM_X"], parts["DIM_Y"], parts["DIM_Z"]), parts["INITIATOR"])

    def _dispatch_indirect(self, hqd: Hqd, parts: Parts, data: Sequence[int]) -> None:
        words = hqd.memory.read(parts["ADDR"] & ~3, 12)
        x, y, z = (int.from_bytes(words[place : place + 4], "little") for place in (0, 4, 8))
        self._dispatch(hqd, (x, y, z), parts["INITIATOR"])

    def _dispatch(self, hqd: Hqd, dims: tuple[int, int, int], initiator: int) -> None:
        for axis, size in zip("XYZ", dims, strict=True):
            hqd.set(f"COMPUTE_DIM_{axis}", size)
        hqd.set("COMPUTE_DISPATCH_INITIATOR", initiator)
        self._dispatcher.start(hqd)

    def _acquire_mem(self, hqd: Hqd, parts: Parts, data: Sequence[int]) -> None:
        self._dispatcher.caches.invalidate(code=bool(parts["GLI_INV"]), scalar=bool(parts["GLK_INV"]))
        self._invalidate_vector(parts)

    def _invalidate_vector(self, parts: Parts) -> None:
        """The caches before GL2, if they are all named; gfx12 has no GL1 (inferred: LLVM's memory model)."""
        if parts["GLV_INV"] and (parts["GL1_INV"] or self._context.chip.generation >= 12):
            self._dispatcher.unseen.invalidate()

    # -- end of pipe ------------------------------------------------------------------------------------

    def _event_write(self, hqd: Hqd, parts: Parts, data: Sequence[int]) -> None:
        event = parts["EVENT_TYPE"]
        if event in _TIMESTAMP_EVENTS or event not in pm4.EVENTS.values():
            name = _TIMESTAMP_EVENTS.get(event, "which compute queues do not have")
            raise Refused(f"EVENT_WRITE of event {event:#x}, {name}")
        if event == pm4.EVENTS["CS_PARTIAL_FLUSH"] and hqd.pipeline.busy:
            pipeline = hqd.pipeline
            self._wait(hqd, lambda: not pipeline.busy, "CS_PARTIAL_FLUSH", polls=False)

    def _release_mem(self, hqd: Hqd, parts: Parts, data: Sequence[int]) -> None:
        event, select = parts["EVENT_TYPE"], parts["DATA_SEL"]
        name = _TIMESTAMP_EVENTS.get(event)
        if name is None or parts["EVENT_INDEX"] != pm4.EVENT_INDICES[name]:
            raise Refused(f"RELEASE_MEM of event {event:#x}, index {parts['EVENT_INDEX']}")
        if select not in pm4.DATA_SELECTS or parts["INT_SEL"] not in pm4.INTERRUPT_SELECTS:
            raise Refused(f"RELEASE_MEM with DATA_SEL {select}, INT_SEL {parts['INT_SEL']}")
        self._check_end_of_pipe(hqd)
        width = 4 if select == 1 else 8
        if select and parts["ADDR"] % width:
            self._context.diagnosis.wrong(
                f"{hqd.name}: RELEASE_MEM of {width} bytes to {parts['ADDR']:#x}: the address is rounded down"
            )
        address, memory, vmid = parts["ADDR"] & -width, hqd.memory, hqd.vmid

        def write() -> None:
            self._invalidate_vector(parts)
            if select:
                value = parts["DATA"] if select < 3 else gpu_clock(self._context.link.now())
                memory.write(address, (value & (1 << 8 * width) - 1).to_bytes(width, "little"))
                self._context.event("pm4", lambda: f"{hqd.name} end of pipe: {address:#x} = {value:#x}")
            if parts["INT_SEL"] in (1, 2) and self._unmasked(hqd):
                client, source = ih.CLIENTS["GRBM_CP"], ih.SOURCES["CP_EOP_INTERRUPT"]
                context = (parts["INT_CTXID"], 0, 0, 0)
                self._interrupts.post(client, source, ring=hqd.ring_id, vmid=vmid, data=context)
            self._touched()

        hqd.pipeline.after(lambda: hqd.later(EOP_CLOCKS, write, "RELEASE_MEM"))

    def _unmasked(self, hqd: Hqd) -> bool:
        """Whether ends of pipe interrupt. A pipe whose register the facts do not name has none (guess)."""
        name = _INTERRUPT_CONTROL.format(hqd.pipe)
        gc, registers = self._context.chip.blocks["GC"].registers, self._context.registers
        enabled = name in gc and bool(registers.get("GC", name, "TIME_STAMP_INT_ENABLE"))
        if not enabled:
            self._context.event("pm4", lambda: f"{hqd.name} end of pipe: its interrupt is masked by {name}")
        return enabled

    def _check_end_of_pipe(self, hqd: Hqd) -> None:
        """Ends of pipe go through a buffer in memory. Raises _EopFault if it is not mapped."""
        base = hqd.pair("CP_HQD_EOP_BASE_ADDR", "CP_HQD_EOP_BASE_ADDR_HI") << 8
        if not base:
            self._context.diagnosis.missing("hqd-eop", f"{hqd.name} writes its events to address 0")
        try:
            hqd.memory_of(hqd.get("CP_HQD_VMID", "VMID")).translate(base, write=True)
        except PageFault as fault:
            raise _EopFault(fault) from fault

    # -- memory -----------------------------------------------------------------------------------------

    def _wait_reg_mem(self, hqd: Hqd, parts: Parts, data: Sequence[int]) -> None:
        function, reference, mask = parts["FUNCTION"], parts["REFERENCE"], parts["MASK"]
        if function >= len(_COMPARE) or parts["OPERATION"] > pm4.WRITE_WAIT or parts["MEM_SPACE"] > 1:
            raise Refused(
                f"WAIT_REG_MEM with FUNCTION {function}, OPERATION {parts['OPERATION']}, "
                f"MEM_SPACE {parts['MEM_SPACE']}"
            )
        writes = parts["OPERATION"] == pm4.WRITE_WAIT
        read: Callable[[], int]
        if parts["MEM_SPACE"]:
            if writes:
                raise Refused("WAIT_REG_MEM: write and wait is for registers only")
            width = 8 if mask > DWORD or reference > DWORD else 4
            address, memory = parts["ADDR"] & ~3, hqd.memory
            where = f"memory {address:#x}"

            def read() -> int:
                return int.from_bytes(memory.read(address, width), "little")
        else:
            index = parts["REG2"] if writes else parts["REG1"]
            if writes:
                self._write_register(hqd, parts["REG1"], reference & DWORD)
            self._check_register(hqd, index)
            where = f"register {index:#x}"

            def read() -> int:
                return self._read_register(hqd, index)

        compare = _COMPARE[function]

        def done() -> bool:
            return self._context.vram.polled(lambda: compare(read() & mask, reference))

        if not done():
            text = f"{where} & {mask:#x} {pm4.FUNCTIONS[function]} {reference:#x}"
            self._wait(hqd, done, text, polls=True)

    def _write_data(self, hqd: Hqd, parts: Parts, data: Sequence[int]) -> None:
        target = self._select("WRITE_DATA.DST_SEL", pm4.COPY_TARGETS, parts["DST_SEL"])
        if target == "register":
            for place, value in enumerate(data):
                index = (parts["DST_ADDR"] & DWORD) + (0 if parts["ONE_ADDR"] else place)
                self._write_register(hqd, index, value)
            return
        written = data[-1:] if parts["ONE_ADDR"] else data
        hqd.memory.write(parts["DST_ADDR"] & ~3, b"".join(value.to_bytes(4, "little") for value in written))
        self._touched()

    def _copy_data(self, hqd: Hqd, parts: Parts, data: Sequence[int]) -> None:
        source = self._select("COPY_DATA.SRC_SEL", pm4.COPY_SOURCES, parts["SRC_SEL"])
        target = self._select("COPY_DATA.DST_SEL", pm4.COPY_TARGETS, parts["DST_SEL"])
        words = 2 if parts["COUNT_SEL"] else 1
        if source == "register":
            index = parts["SRC_ADDR"] & DWORD
            value = sum(self._read_register(hqd, index + word) << 32 * word for word in range(words))
        elif source == "memory":
            value = int.from_bytes(hqd.memory.read(parts["SRC_ADDR"] & ~3, 4 * words), "little")
        else:
            value = parts["IMM_DATA"] if source == "immediate" else gpu_clock(self._context.link.now())
        if target == "register":
            for word in range(words):
                self._write_register(hqd, (parts["DST_ADDR"] & DWORD) + word, value >> 32 * word & DWORD)
            return
        value &= (1 << 32 * words) - 1
        hqd.memory.write(parts["DST_ADDR"] & ~3, value.to_bytes(4 * words, "little"))
        self._touched()

    def _dma_data(self, hqd: Hqd, parts: Parts, data: Sequence[int]) -> None:
        source = self._select("DMA_DATA.SRC_SEL", pm4.DMA_SOURCES, parts["SRC_SEL"])
        self._select("DMA_DATA.DST_SEL", pm4.DMA_TARGETS, parts["DST_SEL"])
        if any(parts[name] for name in ("SAS", "DAS", "SAIC", "DAIC")):
            raise Refused("DMA_DATA to or from registers, or one address: the model copies memory only")
        size, memory = parts["BYTE_COUNT"], hqd.memory
        ended: list[bool] = []

        def copy() -> None:
            if source == "data":
                pattern = parts["DATA"].to_bytes(4, "little")
                content = (pattern * (size // 4 + 1))[:size]
            else:
                content = memory.read(parts["SRC_ADDR"], size)
            memory.write(parts["DST_ADDR"], content)
            ended.append(True)
            self._touched()

        if size:
            hqd.later(self._cost.copy(size, False), copy, "DMA_DATA")
            self._wait(hqd, lambda: bool(ended), "DMA_DATA", polls=False)

    def _indirect_buffer(self, hqd: Hqd, parts: Parts, data: Sequence[int]) -> None:
        nested = len(hqd.streams) > 1
        size = parts["IB_SIZE"]
        if not parts["VALID"]:
            raise Refused("INDIRECT_BUFFER without VALID")
        if nested != bool(parts["CHAIN"]):
            inside = "an indirect buffer calls another: it can only chain" if nested else "the ring chains"
            raise Refused(f"INDIRECT_BUFFER: {inside}")
        if not size:
            raise Refused("INDIRECT_BUFFER of no dwords")
        if nested:
            hqd.streams.pop()
        elif parts["VMID"] and not parts["INHERIT_VMID"]:
            hqd.vmid = parts["VMID"]
        base = parts["IB_BASE"] & ~3
        hqd.streams.append(Stream(hqd.memory, base, size, 0, size, "indirect buffer"))

    # -- inside -----------------------------------------------------------------------------------------

    def _wait(self, hqd: Hqd, done: Callable[[], bool], text: str, *, polls: bool) -> None:
        hqd.wait = Wait(done, polls, text, self._context.link.now())
        self._context.event("pm4", lambda: f"{hqd.name} waits for {text}")

    def _select(self, what: str, names: Mapping[int, str], number: int) -> str:
        if number not in names:
            raise Refused(f"{what} = {number} is not modelled")
        return names[number]


def describe(packet: pm4.Pm4Packet, parts: Parts, data: Sequence[int], chip: Chip) -> str:
    """A packet in words: registers by name; else its parts that are not 0, and its first data."""
    registers = {"SET_SH_REG": pm4.SH_REGISTERS, "SET_UCONFIG_REG": pm4.UCONFIG_REGISTERS}.get(packet.name)
    if registers is None:
        words = [f"{name}={value:#x}" for name, value in parts.items() if value]
        return " ".join((packet.name, *words, *(f"{value:#x}" for value in data[:16])))
    words = []
    for index, value in enumerate(data, registers.start + parts["REG_OFFSET"]):
        known = chip.by_address.get(index)
        words.append(f"{known[1].name if known else hex(index)}={value:#x}")
    return " ".join((packet.name, *words))
