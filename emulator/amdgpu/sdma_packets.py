"""What the packets of an SDMA engine do, one generator a packet: it yields the clocks until it goes on.

Layouts and their grades are in `usbgpu.amd.facts.sdma`. Copies and fills move in pieces, each read when it
begins and written when it ends. Polls are repeated after the packet's interval at first, and less often the
longer they have waited, so that waiting costs the host next to nothing; that delay and all times are the
model's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from emulator.amdgpu.context import Context
from emulator.amdgpu.cost import Cost
from emulator.amdgpu.rlc import gpu_clock
from emulator.amdgpu.seams import AddressSpace
from emulator.core.clock import clocks, seconds
from usbgpu.amd.facts import sdma
from usbgpu.amd.facts.describe import DWORD

PIECE = 256 << 10
"""Bytes of a copy or fill that become visible at a time."""
POLL_UNIT = 10e-9
"""Seconds of POLL_REGMEM.interval and ATOMIC.loop_interval (grade: guess, the 100 MHz reference clock)."""
POLL_SHARE = 512
"""A poll is repeated after this part of the time that it has waited, if that is more than its interval: long
waits cost the host little, and short ones keep the engine's true pace."""
UNWATCHED_SECONDS = 2.0
"""After a wait of this length the model reports that no watchdog was set."""
SHORTEST_WATCH = clocks(min(sdma.HANG_COUNT_SECONDS, UNWATCHED_SECONDS))
"""No wait of fewer clocks is reported: most polls need not look at the watchdog's register."""

TESTS: tuple[Callable[[int, int], bool], ...] = (
    lambda value, reference: True,
    operator.lt,
    operator.le,
    operator.eq,
    operator.ne,
    operator.ge,
    operator.gt,
)
"""By POLL_REGMEM.func."""


class Malformed(Exception):
    """A packet that the engine cannot execute: it stops until it is reset."""


class Denied(Exception):
    """Something that the queue is not set up for, already a finding. The engine stops until it is reset."""


class TimedOut(Exception):
    """A poll that has been retried as often as its packet says."""


class Stream(Protocol):
    """Where packets come from: a ring, or an indirect buffer.

    Attributes:
        memory: of its VMID.
        vmid: whose addresses its packets use.
        privileged: whether its packets may write registers.
        nested: whether it is an indirect buffer.
    """

    memory: AddressSpace
    vmid: int
    privileged: bool
    nested: bool

    def skip(self, dwords: int) -> None:
        """Leave out dwords after the packet that is being executed."""

    def ends_at(self) -> int:
        """Where that packet ends, in dwords from the start of the ring or buffer."""


Generator = Iterator[int]
Handler = Callable[[Mapping[str, int], Sequence[int], Stream], Generator]


class Packets:
    """Executes the packets of a queue.

    Args:
        context: of the card.
        cost: the model of times.
        transfer: clocks until the engine's data path has moved that many bytes, over PCIe or not.
        interrupt: posts an interrupt: its source by name, VMID, first context dword.
        enter: runs an indirect buffer: address, dwords, VMID, whether it is privileged.
    """

    def __init__(
        self,
        context: Context,
        cost: Cost,
        transfer: Callable[[int, bool], int],
        interrupt: Callable[[str, int, int], None],
        enter: Callable[[int, int, int, bool], Generator],
    ) -> None:
        self._context = context
        self._cost = cost
        self._interrupt = interrupt
        self._enter = enter
        self._transfer = transfer
        self._local_time = 0  # what TIMESTAMP_SET has added to the clock
        self._handlers: Mapping[str, Handler] = {
            "NOP": self._nop,
            "COPY_LINEAR": self._copy,
            "WRITE_UNTILED": self._write,
            "INDIRECT": self._indirect,
            "FENCE": self._fence,
            "TRAP": self._trap,
            "POLL_REGMEM": self._poll,
            "COND_EXE": self._condition,
            "ATOMIC": self._atomic,
            "CONSTANT_FILL": self._fill,
            "TIMESTAMP_SET": self._set_time,
            "TIMESTAMP_GET": self._get_time,
            "TIMESTAMP_GET_GLOBAL": self._get_global_time,
            "SRBM_WRITE": self._register_write,
            "GCR_REQ": self._nop,
        }

    def execute(self, words: Sequence[int], stream: Stream) -> Generator:
        """Execute one packet.

        Args:
            words: all of it; its kind is known to be one of `sdma.PACKETS`.
            stream: where it came from.

        Raises:
            Malformed, Denied, TimedOut: as they say.
            PageFault: an address is not mapped, or not for this.
            UnsupportedRequest: nothing answers at a PCIe address.
        """
        kind = sdma.packet(words[0])
        assert kind is not None
        parts = kind.unpack(words)
        yield self._cost.packet()
        yield from self._handlers[kind.name](parts, words, stream)

    # -- moving bytes -----------------------------------------------------------------------------------

    def _copy(self, parts: Mapping[str, int], words: Sequence[int], stream: Stream) -> Generator:
        for name in ("backwards", "broadcast", "dst_sw", "src_sw"):
            if parts[name]:
                raise Malformed(f"COPY_LINEAR with {name} = {parts[name]} is not modelled")
        source, target, left = parts["src_addr"], parts["dst_addr"], parts["count"] + 1
        yield self._cost.copy_start()
        while left:
            size, from_system = self._run(stream.memory, source, min(left, PIECE), write=False)
            size, to_system = self._run(stream.memory, target, size, write=True)
            data = stream.memory.read(source, size)
            yield self._transfer(size, from_system or to_system)
            stream.memory.write(target, data)
            source, target, left = source + size, target + size, left - size

    def _fill(self, parts: Mapping[str, int], words: Sequence[int], stream: Stream) -> Generator:
        width = sdma.FILL_BYTES.get(parts["fillsize"])
        if width is None:
            raise Malformed(f"CONSTANT_FILL with fillsize = {parts['fillsize']}: there is no such size")
        target, left = parts["dst_addr"], parts["count"] + 1
        if target % width or left % width:
            raise Malformed(
                f"CONSTANT_FILL of {left} bytes at {target:#x} is not a multiple of {width} bytes"
            )
        pattern = parts["src_data"].to_bytes(4, "little")[:width]
        yield self._cost.copy_start()
        while left:
            size, system = self._run(stream.memory, target, min(left, PIECE), write=True)
            yield self._transfer(size, system)
            stream.memory.write(target, (pattern * (size // width + 1))[:size])
            target, left = target + size, left - size

    def _write(self, parts: Mapping[str, int], words: Sequence[int], stream: Stream) -> Generator:
        target = _aligned("WRITE_UNTILED", parts["dst_addr"], 4)
        data = b"".join(word.to_bytes(4, "little") for word in words[4:])
        _, system = self._run(stream.memory, target, len(data), write=True)
        yield self._transfer(len(data), system)
        stream.memory.write(target, data)

    def _fence(self, parts: Mapping[str, int], words: Sequence[int], stream: Stream) -> Generator:
        target = _aligned("FENCE", parts["addr"], 4)
        yield self._cost.copy(4, stream.memory.translate(target, write=True).system)
        stream.memory.write(target, parts["data"].to_bytes(4, "little"))

    def _run(self, memory: AddressSpace, address: int, limit: int, *, write: bool) -> tuple[int, bool]:
        """How many bytes from an address on, at most `limit`, lie on the same side of PCIe; and which."""
        extent = memory.translate(address, write=write)
        system, end = extent.system, address + limit
        while extent.end < end:
            extent_end = extent.end
            extent = memory.translate(extent_end, write=write)
            if extent.system != system:
                return extent_end - address, system
        return limit, system

    # -- waiting ----------------------------------------------------------------------------------------

    def _poll(self, parts: Mapping[str, int], words: Sequence[int], stream: Stream) -> Generator:
        if parts["func"] >= len(TESTS):
            raise Malformed(f"POLL_REGMEM with func = {parts['func']}: there is no such comparison")
        interval = clocks(parts["interval"] * POLL_UNIT)
        registers, address = self._context.registers, parts["addr"]
        if parts["mem_poll"]:
            _aligned("POLL_REGMEM", address, 4)
            interval += self._cost.read(stream.memory.translate(address).system)
        elif parts["hdp_flush"]:
            registers.write(address >> 34, parts["value"])

        def look() -> bool:
            if parts["mem_poll"]:
                value = int.from_bytes(stream.memory.read(address, 4), "little")
            else:
                value = registers.read((address & DWORD) >> 2)
            return TESTS[parts["func"]](value & parts["mask"], parts["value"])

        def met() -> bool:
            return self._context.vram.polled(look)

        where = f"{'memory' if parts['mem_poll'] else 'register byte'} {address & (1 << 48) - 1:#x}"
        what = f"POLL_REGMEM of {where} {sdma.FUNCTIONS[parts['func']]} {parts['value']:#x}"
        endless = parts["retry_count"] == sdma.FOR_EVER
        yield from self._wait(met, interval, what, None if endless else parts["retry_count"], stream)

    def _wait(
        self, met: Callable[[], bool], interval: int, what: str, retries: int | None, stream: Stream
    ) -> Generator:
        """Look until something is met, at intervals in clocks. Raises TimedOut."""
        link = self._context.link
        started = link.now()
        hung = False
        yield interval
        while not met():
            waited = link.now() - started
            if retries is not None and waited > retries * interval:
                raise TimedOut(f"{what} was not met in {retries + 1} polls")
            if not hung:
                hung = self._watch(waited, what, stream.vmid)
            yield max(interval, waited // POLL_SHARE)

    def _watch(self, waited: int, what: str, vmid: int) -> bool:
        """Report a wait that is too long; whether it was."""
        if waited < SHORTEST_WATCH:
            return False
        limit = self._context.registers.get("GC", "SDMA0_WATCHDOG_CNTL", "QUEUE_HANG_COUNT")
        if limit and seconds(waited) >= limit * sdma.HANG_COUNT_SECONDS:
            self._interrupt("SDMA_QUEUE_HANG", vmid, 0)
            symptom = f"SDMA queue hangs: {what} was not met for {seconds(waited):.1f} s"
            self._context.diagnosis.wrong(symptom)
            return True
        if not limit and seconds(waited) >= UNWATCHED_SECONDS:
            self._context.diagnosis.missing("sdma-watchdog", f"{what} waits and no interrupt reports it")
            return True
        return False

    # -- control ----------------------------------------------------------------------------------------

    def _nop(self, parts: Mapping[str, int], words: Sequence[int], stream: Stream) -> Generator:
        yield from ()

    def _indirect(self, parts: Mapping[str, int], words: Sequence[int], stream: Stream) -> Generator:
        if stream.nested:
            raise Malformed("INDIRECT inside an indirect buffer")
        if stream.ends_at() % sdma.IB_PACKET_END:
            raise Malformed("INDIRECT does not end at a multiple of 8 dwords: pad with NOP before it")
        base = _aligned("INDIRECT", parts["ib_base"], sdma.IB_ALIGNMENT)
        privileged = stream.privileged and bool(parts["priv"])
        yield from self._enter(base, parts["ib_size"], parts["vmid"], privileged)

    def _condition(self, parts: Mapping[str, int], words: Sequence[int], stream: Stream) -> Generator:
        """The dwords after it are executed if memory holds the reference (grade: inferred)."""
        address = _aligned("COND_EXE", parts["addr"], 4)
        yield self._cost.read(stream.memory.translate(address).system)
        if int.from_bytes(stream.memory.read(address, 4), "little") != parts["reference"]:
            stream.skip(parts["exec_count"])

    def _trap(self, parts: Mapping[str, int], words: Sequence[int], stream: Stream) -> Generator:
        if self._context.registers.get("GC", "SDMA0_CNTL", "TRAP_ENABLE"):
            self._interrupt("SDMA_TRAP", stream.vmid, parts["int_context"])
        else:
            self._context.diagnosis.missing("sdma-trap-enable", "TRAP is executed and raises no interrupt")
        yield from ()

    def _register_write(self, parts: Mapping[str, int], words: Sequence[int], stream: Stream) -> Generator:
        registers, value = self._context.registers, parts["data"]
        by_byte = self._context.chip.family.sdma_byte_addresses
        byte_address = parts["byte_addr"] if by_byte else parts["addr"] << 2
        if not stream.privileged:
            self._interrupt("SDMA_SRBMWRITE", stream.vmid, byte_address)
            self._context.diagnosis.wrong(
                f"SRBM_WRITE to register byte {byte_address:#x} by a queue without RB_PRIV: it is dropped"
            )
            return
        if not by_byte and parts["byte_en"] != 0xF:
            mask = sum(0xFF << 8 * byte for byte in range(4) if parts["byte_en"] >> byte & 1)
            value = registers.read(byte_address >> 2) & ~mask | value & mask
        registers.write(byte_address >> 2, value)
        yield self._cost.packet()

    # -- atomics and time -------------------------------------------------------------------------------

    def _atomic(self, parts: Mapping[str, int], words: Sequence[int], stream: Stream) -> Generator:
        code = parts["atomic_op"]
        size = 8 if code & sdma.ATOMIC_64 else 4
        name = sdma.ATOMICS.get(code & ~(sdma.ATOMIC_64 | sdma.ATOMIC_NO_RETURN))
        if name is None:
            raise Malformed(f"ATOMIC with atomic_op = {code:#x}: no such operation is modelled")
        if parts["loop"] and name != "cmpswap":
            raise Malformed(f"ATOMIC {name} with loop: only cmpswap can be repeated")
        address = _aligned("ATOMIC", parts["addr"], size)
        mask = (1 << 8 * size) - 1
        source, compare = parts["src_data"] & mask, parts["cmp_data"] & mask

        def once() -> bool:
            """Carry it out; returns whether the comparison of cmpswap held."""
            old = int.from_bytes(stream.memory.read(address, size), "little")
            stream.memory.write(address, atomic(name, old, source, compare, size).to_bytes(size, "little"))
            return old == compare

        latency = self._cost.read(stream.memory.translate(address, write=True).system)
        if parts["loop"]:
            interval = latency + clocks(parts["loop_interval"] * POLL_UNIT)
            yield from self._wait(once, interval, f"ATOMIC cmpswap of {address:#x}", None, stream)
        else:
            yield latency
            once()

    def _set_time(self, parts: Mapping[str, int], words: Sequence[int], stream: Stream) -> Generator:
        self._local_time = parts["init_data"] - gpu_clock(self._context.link.now())
        yield from ()

    def _get_time(self, parts: Mapping[str, int], words: Sequence[int], stream: Stream) -> Generator:
        return self._store_time(parts, stream, self._local_time)

    def _get_global_time(self, parts: Mapping[str, int], words: Sequence[int], stream: Stream) -> Generator:
        return self._store_time(parts, stream, 0)

    def _store_time(self, parts: Mapping[str, int], stream: Stream, offset: int) -> Generator:
        target = _aligned("TIMESTAMP", parts["write_addr"], 8)
        yield self._cost.copy(8, stream.memory.translate(target, write=True).system)
        time = gpu_clock(self._context.link.now()) + offset
        stream.memory.write(target, (time & (1 << 64) - 1).to_bytes(8, "little"))


def atomic(name: str, old: int, source: int, compare: int, size: int) -> int:
    """What memory holds after an atomic operation.

    Args:
        name: one of the values of `sdma.ATOMICS`.
        old: what it held.
        source: the operand.
        compare: what cmpswap compares with.
        size: bytes, 4 or 8.
    """
    mask, sign = (1 << 8 * size) - 1, 1 << 8 * size - 1

    def signed(value: int) -> int:
        return (value ^ sign) - sign

    match name:
        case "swap":
            return source
        case "cmpswap":
            return source if old == compare else old
        case "add":
            return old + source & mask
        case "sub":
            return old - source & mask
        case "smin":
            return min(old, source, key=signed)
        case "umin":
            return min(old, source)
        case "smax":
            return max(old, source, key=signed)
        case "umax":
            return max(old, source)
        case "and":
            return old & source
        case "or":
            return old | source
        case "xor":
            return old ^ source
        case "inc":
            return 0 if old >= source else old + 1
        case _:  # dec
            return source if old == 0 or old > source else old - 1


def _aligned(name: str, address: int, size: int) -> int:
    """An address, if it is a multiple of `size`. Raises Malformed."""
    if address % size:
        raise Malformed(f"{name} at {address:#x}: not a multiple of {size} bytes")
    return address
