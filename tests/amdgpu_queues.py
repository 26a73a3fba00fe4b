"""Queues for the test driver: PM4 for the command processor's, packets for SDMA's, as the notes have them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from emulator.amdgpu.code_object import CodeObject, KernelDescriptor
from tests.amdgpu_driver import (
    HEAP,
    HEAP_END,
    KERNARGS,
    MQD,
    QUEUES,
    RING_SIZE,
    SCRATCH,
    SCRATCH_SIZE,
    SIGNALS,
    VA,
    Driver,
    Refused,
)

WAIT_REG_MEM, INDIRECT_BUFFER, EVENT_WRITE, RELEASE_MEM, ACQUIRE_MEM = 0x3C, 0x3F, 0x46, 0x49, 0x58
SET_SH_REG, DISPATCH_DIRECT = 0x76, 0x15
REG_SH = 0x2C00


def pm4(op: int, *body: int) -> list[int]:
    """A packet of type 3."""
    return [0xC000_0000 | len(body) - 1 << 16 | op << 8, *(dword & 0xFFFF_FFFF for dword in body)]


def halves(value: int) -> tuple[int, int]:
    return value & 0xFFFF_FFFF, value >> 32


class Queue:
    """What both kinds have in common: a ring in VRAM, a signal that they write, a doorbell.

    Args:
        driver: of the card.
        number: its place in VRAM, from 0.
        doorbell: offset in BAR 2.
    """

    def __init__(self, driver: Driver, number: int, doorbell: int) -> None:
        self.driver = driver
        self.base = QUEUES + number * 0x1_0000
        self.doorbell = doorbell
        self.signal = SIGNALS + number * 0x100
        self.value = 0
        self.put = 0  # dwords since the start
        driver.vram(self.base, bytes(0xA000))
        driver.vram(self.signal, bytes(16))

    def submit(self, dwords: Sequence[int], unit: int) -> None:
        """Put dwords into the ring and ring the doorbell with the put count, in units of so many bytes."""
        data = struct.pack(f"<{len(dwords)}I", *dwords)
        at = self.put * 4 % RING_SIZE
        first = min(len(data), RING_SIZE - at)
        self.driver.vram(self.base + at, data[:first])
        if first < len(data):
            self.driver.vram(self.base, data[first:])
        self.put += len(dwords)
        count = self.put * 4 // unit
        self.driver.vram(self.base + 0x9000, struct.pack("<Q", count))  # where the engine may poll it
        self.driver.host.write(2, self.doorbell, struct.pack("<Q", count))

    def wait(self, timeout: float = 0.5) -> None:
        """Until everything that was submitted is done. Raises TimeOut."""
        self.driver.host.wait(
            f"signal {self.value} of the queue at doorbell {self.doorbell:#x}",
            lambda: self.driver.word(self.signal) >= self.value,
            timeout,
        )


class Compute(Queue):
    """A compute queue of pipe 0."""

    def __init__(self, driver: Driver, number: int = 0, heap: int = HEAP) -> None:
        super().__init__(driver, number, 0x18 + 0x10 * number)
        self._number = number
        self._mqd = MQD + number * 0x1000
        self._start = self._heap = heap
        self._kernargs = KERNARGS + number * 0x4000
        self._activate()

    def _activate(self) -> None:
        driver, base = self.driver, VA + self.base
        first = driver.index("GC", "CP_MQD_BASE_ADDR")
        last = driver.index("GC", "CP_HQD_PQ_WPTR_HI")
        mqd = [0] * 512
        mqd[0] = 0xC031_0800

        def put(step: str, value: int, *names: str) -> None:
            """The value goes to the registers' places in the MQD, if the step, if any, is not left out."""
            if not step or driver.does(step):
                for i, name in enumerate(names):
                    mqd[0x80 + driver.index("GC", name) - first] = value >> 32 * i & 0xFFFF_FFFF

        put("hqd-mqd-base", driver.fb_base + self._mqd, "CP_MQD_BASE_ADDR", "CP_MQD_BASE_ADDR_HI")
        put("", 0x100, "CP_MQD_CONTROL")
        put("hqd-persistent-state", 0x5501, "CP_HQD_PERSISTENT_STATE")
        put("", 2, "CP_HQD_PIPE_PRIORITY")
        put("", 15, "CP_HQD_QUEUE_PRIORITY")
        put("hqd-quantum", 0x111, "CP_HQD_QUANTUM")
        put("hqd-pq-base", base >> 8, "CP_HQD_PQ_BASE", "CP_HQD_PQ_BASE_HI")
        put("hqd-rptr-report", base + 0x9080, "CP_HQD_PQ_RPTR_REPORT_ADDR", "CP_HQD_PQ_RPTR_REPORT_ADDR_HI")
        put("", base + 0x9000, "CP_HQD_PQ_WPTR_POLL_ADDR", "CP_HQD_PQ_WPTR_POLL_ADDR_HI")
        put("hqd-doorbell", 0x4000_0000 | self.doorbell, "CP_HQD_PQ_DOORBELL_CONTROL")
        put("hqd-pq-control", 0x500 | (RING_SIZE // 4).bit_length() - 2, "CP_HQD_PQ_CONTROL")
        put("", 0x30_0000, "CP_HQD_IB_CONTROL")
        put("", 0x2000_4000, "CP_HQD_HQ_SCHEDULER0")
        put("hqd-eop", base + 0x8000 >> 8, "CP_HQD_EOP_BASE_ADDR", "CP_HQD_EOP_BASE_ADDR_HI")
        put("hqd-eop", 9, "CP_HQD_EOP_CONTROL")
        if driver.does("mqd-thread-mgmt"):
            for place in (23, 24, 26, 27):  # COMPUTE_STATIC_THREAD_MGMT_SE0 to SE3
                mqd[place] = 0xFFFF_FFFF
            mqd[0x4A : 0x4A + 4] = [0xFFFF_FFFF] * 4
        driver.vram(self._mqd, struct.pack("<512I", *mqd))
        driver.flush_hdp()
        if driver.does("grbm-select"):
            driver.select(me=1, queue=self._number)
        for index in range(first, last + 1):
            driver.write_index(index, mqd[0x80 + index - first])
        if driver.does("hqd-active"):
            driver.write("GC", "CP_HQD_ACTIVE", 1)
        driver.flush_hdp()
        driver.select()

    def dequeue(self) -> None:
        """Remove the queue from its pipe, even if it works."""
        driver = self.driver
        driver.select(me=1, queue=self._number)
        driver.write("GC", "CP_HQD_DEQUEUE_REQUEST", 2)
        driver.write("GC", "SPI_COMPUTE_QUEUE_RESET", 1)
        driver.wait("GC", "CP_HQD_ACTIVE", 1, 0)
        driver.select()

    def allocate(self, size: int, alignment: int = 256) -> int:
        """Room in VRAM for as long as the queue lives; an offset."""
        place = -(-self._heap // alignment) * alignment
        if place + size > HEAP_END:
            raise Refused("the tests' part of VRAM is full")
        self._heap = place + size
        return place

    def free(self) -> None:
        """All of it again."""
        self._heap = self._start

    def load(self, code: CodeObject, kernel: str) -> int:
        """Put a code object into memory, so that a kernel's code starts at a multiple of 16 KiB: where the
        one before did if all memory has been freed since. Where its image is.
        """
        place = self.allocate(len(code.image) + 0x4000, 0x4000) + -code.kernels[kernel].entry % 0x4000
        self.driver.vram(place, code.image)
        return VA + place

    def launch(
        self,
        kernel: KernelDescriptor,
        image: int,
        arguments: Sequence[int | float],
        groups: tuple[int, int, int],
        threads: tuple[int, int, int],
    ) -> None:
        """Run a kernel after all that was submitted before, then signal."""
        kernarg = self._kernargs + self.value % 4 * 0x400
        self.driver.vram(kernarg, kernel.pack(list(arguments)))
        self.submit(self.program(kernel, image, VA + kernarg, groups, threads), 4)

    def program(
        self,
        kernel: KernelDescriptor,
        image: int,
        kernarg: int,
        groups: tuple[int, int, int],
        threads: tuple[int, int, int],
    ) -> list[int]:
        """The packets of a launch."""
        signal = VA + self.signal
        previous, self.value = self.value, self.value + 1
        does = self.driver.does
        caches = (0 if does("acquire-code") else 0x3) | (0 if does("acquire-scalar") else 0x80)
        flush_request = self.driver.index("NBIO", "BIF_BX_PF0_GPU_HDP_FLUSH_REQ")
        packets = pm4(WAIT_REG_MEM, 0x15, *halves(signal), previous, 0xFFFF_FFFF, 4)
        packets += pm4(WAIT_REG_MEM, 0x45, flush_request, flush_request + 1, 0xFFFF_FFFF, 0xFFFF_FFFF, 4)
        packets += pm4(ACQUIRE_MEM, 0, 0xFFFF_FFFF, 0xFF, 0, 0, 0, 0xC3F1 & ~caches)
        entry = image + kernel.entry
        rsrc1 = kernel.rsrc1 if self.driver.chip.generation == 12 else kernel.rsrc1 | 1 << 20
        packets += self.registers("COMPUTE_PGM_LO", *halves(entry >> 8))
        packets += self.registers("COMPUTE_PGM_RSRC1", rsrc1, kernel.rsrc2)
        packets += self.registers("COMPUTE_PGM_RSRC3", kernel.rsrc3)
        if kernel.scratch:
            wave = -(-kernel.scratch * 32 // 256)
            if does("dispatch-scratch"):
                packets += self.registers("COMPUTE_TMPRING_SIZE", SCRATCH_SIZE // 256 // wave | wave << 12)
                packets += self.registers("COMPUTE_DISPATCH_SCRATCH_BASE_LO", *halves(VA + SCRATCH >> 8))
        else:
            packets += self.registers("COMPUTE_TMPRING_SIZE", 0)
        packets += self.registers("COMPUTE_RESTART_X", 0, 0, 0)
        packets += self.registers("COMPUTE_USER_DATA_0", *kernel.user_data(kernarg))
        packets += self.registers("COMPUTE_RESOURCE_LIMITS", 0)
        packets += self.registers("COMPUTE_START_X", 0, 0, 0, *threads, 0, 0)
        packets += pm4(ACQUIRE_MEM, 0, 0xFFFF_FFFF, 0xFF, 0, 0, 0, 0x3F0 & ~caches)
        packets += pm4(DISPATCH_DIRECT, *groups, 0x8005)
        packets += pm4(EVENT_WRITE, 0x407)
        packets += pm4(RELEASE_MEM, 0x0070_F514, 0x2000_0000, *halves(signal), self.value, 0, 0)
        return packets

    def registers(self, first: str, *values: int) -> list[int]:
        """SET_SH_REG from a register on."""
        return pm4(SET_SH_REG, self.driver.index("GC", first) - REG_SH, *values)


class Sdma(Queue):
    """Queue 0 of SDMA0."""

    def __init__(self, driver: Driver, number: int = 4) -> None:
        super().__init__(driver, number, 0x800)
        base = VA + self.base
        prefix = "SDMA0_QUEUE0_"

        def pair(step: str, name: str, value: int, low: str, high: str) -> None:
            if driver.does(step):
                driver.pair("GC", prefix + name, value, low, high)

        driver.write("GC", prefix + "MINOR_PTR_UPDATE", 1)
        for name in ("RB_RPTR", "RB_RPTR_HI", "RB_WPTR", "RB_WPTR_HI"):
            driver.write("GC", prefix + name, 0)
        pair("sdma-ring-base", "RB_BASE", base >> 8, "", "_HI")
        pair("sdma-rptr-address", "RB_RPTR_ADDR", base + 0x9080, "_LO", "_HI")
        pair("sdma-wptr-address", "RB_WPTR_POLL_ADDR", base + 0x9000, "_LO", "_HI")
        if driver.does("sdma-doorbell-offset"):
            driver.write("GC", prefix + "DOORBELL_OFFSET", self.doorbell)
        if driver.does("sdma-doorbell-enable"):
            driver.write("GC", prefix + "DOORBELL", 1 << 28)
        driver.write("GC", prefix + "MINOR_PTR_UPDATE", 0)
        if driver.does("sdma-ring-enable"):
            size = (RING_SIZE // 4).bit_length() - 1
            driver.write("GC", prefix + "RB_CNTL", 0x84_1801 | size << 1)
        if driver.does("sdma-ib-enable"):
            driver.write("GC", prefix + "IB_CNTL", 1)

    def copy(self, source: int, target: int, size: int) -> list[int]:
        return [1, size - 1, 0, *halves(source), *halves(target)]

    def fence(self) -> list[int]:
        self.value += 1
        return [5 | 3 << 16, *halves(VA + self.signal), self.value]

    def poll(self, address: int, value: int, function: int = 3) -> list[int]:
        """Until a dword of memory is equal (3), or greater or equal (5)."""
        return [8 | function << 28 | 1 << 31, *halves(address), value, 0xFFFF_FFFF, 4 | 0xFFF << 16]

    def run(self, *packets: Sequence[int]) -> None:
        """Submit packets, and a fence after them."""
        self.submit([*(dword for packet in packets for dword in packet), *self.fence()], 1)
