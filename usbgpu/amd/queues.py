"""The queues of a card: a ring in VRAM that an engine reads, a doorbell, a signal with its progress.

A submission is written into the ring in one piece, what is left before the ring's end being skipped if it is
too little, so that data may be between its packets. Behind each goes a packet that writes its number to the
signal: a timeline. Everything is added to a `Batch`, so that a submission with its wait is one command list.

Set-up is that of published drivers, register by register: there is no scheduler firmware (sources: Linux
6.12, `gfx_v11_0.c`, `sdma_v6_0.c`, and the boot traces of a published driver).
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sdk.errors import InternalError
from usbgpu.amd import layout, pm4
from usbgpu.amd.batch import ALL, WAIT, Batch
from usbgpu.amd.card import Card
from usbgpu.amd.facts import mqd, sdma
from usbgpu.amd.layout import KIB

COMPUTE_DOORBELL, SDMA_DOORBELL = 0x18, 0x800
"""Byte offsets in BAR 2; the routes that the boot sets have room for these (published drivers)."""
RING_SIZE = 64 * KIB
"""Bytes: one packet of padding of either kind is enough to get to its end."""
RESET_WAVES = 2
"""CP_HQD_DEQUEUE_REQUEST.DEQUEUE_REQ (`amdgpu_amdkfd_gfx_v11.c`)."""
EOP_SIZE = 4 * KIB
"""Of the buffer in which the command processor keeps ends of pipe."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a queue is in VRAM: offsets in bytes.

    Attributes:
        ring: of its packets.
        shared: of the dwords that the engine and the host have in common.
    """

    ring: int
    shared: int

    @property
    def write_pointer(self) -> int:
        """What the host has written: 64 bits."""
        return self.shared

    @property
    def read_pointer(self) -> int:
        """What the engine has read: 64 bits."""
        return self.shared + 0x40

    @property
    def signal(self) -> int:
        """The number of the submission that has ended last."""
        return self.shared + 0x80


SHARED_SIZE = 0x100
MQD, EOP = layout.QUEUES, layout.QUEUES + 4 * KIB
COMPUTE = Place(layout.QUEUES + 64 * KIB, layout.QUEUES + 8 * KIB)
SDMA = Place(layout.QUEUES + 128 * KIB, layout.QUEUES + 12 * KIB)
DWORDS = RING_SIZE // 4
"""Of a ring."""


class Queue(ABC):
    """What both kinds have in common.

    Args:
        card: whose.
        name: for messages.
        place: in VRAM.
        doorbell: byte offset in BAR 2.
        unit: bytes that its pointers count.

    Attributes:
        value: the number of the last submission.
    """

    def __init__(self, card: Card, name: str, place: Place, doorbell: int, unit: int) -> None:
        self.card = card
        self.name = name
        self.place = place
        self.value = 0
        self._doorbell = doorbell
        self._unit = unit
        self._polled = True  # the engine also looks at the write pointer in memory
        self._put = 0  # dwords since the start
        self._free = 0  # the put count up to which the ring is free again

    @property
    def signal(self) -> int:
        """GPU address of the signal: a dword with the number of the last submission that has ended."""
        return layout.address(self.place.signal)

    @property
    def room(self) -> int:
        """Dwords that one submission may have."""
        return DWORDS // 2 - len(self._end())

    def fits(self, dwords: int) -> bool:
        """Whether the ring has room for a submission of so many dwords, without waiting.

        It is never full to the last dword: it would look empty.
        """
        dwords += len(self._end())
        return self._put + self._padding_before(dwords) + dwords - self._free < DWORDS

    def reserve(self, batch: Batch, dwords: int, seconds: float = WAIT) -> int:
        """Make the next submission contiguous.

        Args:
            batch: gets the wait for room in the ring, if there is none.
            dwords: its size at most, its end not counted.
            seconds: to wait for room.

        Returns:
            The GPU address of its first dword.
        """
        if dwords > self.room:
            raise InternalError(f"{dwords} dwords for the {self.name}: at most {self.room} at a time")
        if not self.fits(dwords):
            self.wait(batch, seconds)
        if padding := self._padding_before(dwords + len(self._end())):
            self._write(batch, self._padding(padding), padding)
        return layout.address(self.place.ring + self._put % DWORDS * 4)

    def submit(
        self,
        batch: Batch,
        packets: Sequence[int],
        seconds: float = WAIT,
        after: Callable[[Batch], None] | None = None,
    ) -> int:
        """Execute packets after those before.

        Args:
            batch: gets the operations.
            packets: dwords.
            seconds: as for `reserve`.
            after: adds what the engine must not begin before. The ring is written meanwhile.

        Returns:
            Its number; `value` from now on.
        """
        self.reserve(batch, len(packets), seconds)
        self.value += 1
        words = [*packets, *self._end()]
        dwords = len(words)
        if not self._polled:
            # What the next one would have to skip is skipped by this one, in the same transfer.
            rest = DWORDS - (self._put + dwords) % DWORDS
            if rest <= self.room:
                words += self._padding(rest)
                dwords += rest
        self._write(batch, words, dwords)
        if after is not None:
            after(batch)
        put = self._put * 4 // self._unit
        if self._polled:
            batch.store(self.place.write_pointer, put.to_bytes(8, "little"))
            batch.flush_hdp()
        batch.doorbell(self._doorbell, put)
        return self.value

    def wait(self, batch: Batch, seconds: float) -> None:
        """Wait until everything that has been submitted has ended; then the ring is empty."""
        batch.wait_memory(self.place.signal, self.value & ALL, f"submission {self.value}", seconds=seconds)
        self._free = self._put

    def idle(self) -> None:
        """Everything that has been submitted has ended, the caller knows that."""
        self._free = self._put

    def restart(self, batch: Batch) -> None:
        """Start again: pointers, signal and the ring are as if nothing had been submitted."""
        self.value = self._put = self._free = 0
        batch.clear(self.place.shared, SHARED_SIZE)

    def _padding_before(self, dwords: int) -> int:
        """How much is to be skipped so that so many dwords lie in one piece."""
        rest = DWORDS - self._put % DWORDS
        return rest if dwords > rest else 0

    def _write(self, batch: Batch, words: Sequence[int], dwords: int) -> None:
        place = self.place.ring + self._put % DWORDS * 4
        batch.store(place, struct.pack(f"<{len(words)}I", *words))
        self._put += dwords

    @abstractmethod
    def _end(self) -> list[int]:
        """The packets that end a submission."""

    @abstractmethod
    def _padding(self, dwords: int) -> list[int]:
        """What makes the engine skip `dwords` dwords; those behind it may have any content."""


class ComputeQueue(Queue):
    """Queue 0 of pipe 0 of the first micro engine for compute, with PM4 packets."""

    def __init__(self, card: Card) -> None:
        super().__init__(card, "compute queue", COMPUTE, COMPUTE_DOORBELL, 4)

    def stop(self, batch: Batch) -> None:
        """Take the queue off its pipe in any state; its waves are killed."""
        self._select(batch)
        batch.write("GC", "CP_HQD_DEQUEUE_REQUEST", RESET_WAVES)
        batch.write("GC", "SPI_COMPUTE_QUEUE_RESET", 1)
        batch.wait("GC", "CP_HQD_ACTIVE", 0, mask=1)
        batch.write("GC", "GRBM_GFX_CNTL", 0)

    def init(self, batch: Batch) -> None:
        """Describe the queue to the command processor; it is idle, or was never set up."""
        self.restart(batch)
        batch.clear(EOP, EOP_SIZE)
        described = mqd.MQDS[self.card.chip.generation].pack(**self._members())
        batch.store(MQD, described)
        batch.flush_hdp()
        registers = self.card.chip.blocks["GC"].registers
        first = registers["CP_MQD_BASE_ADDR"]
        names = {
            register.offset - first.offset + mqd.REGISTERS.start: name
            for name, register in registers.items()
            if register.segment == first.segment and name.startswith(("CP_MQD_", "CP_HQD_"))
        }
        self._select(batch)
        for dword in mqd.REGISTERS:
            if dword in names:
                (value,) = struct.unpack_from("<I", described, 4 * dword)
                batch.write("GC", names[dword], value)
        batch.write("GC", "CP_HQD_ACTIVE", 1)
        batch.write("GC", "GRBM_GFX_CNTL", 0)

    def _select(self, batch: Batch) -> None:
        """Select its registers for what follows."""
        select = self.card.chip.register("GC", "GRBM_GFX_CNTL")
        batch.write("GC", "GRBM_GFX_CNTL", select.pack(MEID=1, PIPEID=0, QUEUEID=0))

    def _members(self) -> dict[str, int]:
        """Of the MQD. Values without a name are those of the published traces."""

        def pack(register: str, **fields: int) -> int:
            return self.card.chip.register("GC", register).pack(**fields)

        values = {
            "header": mqd.HEADER,
            "cp_hqd_persistent_state": pack(
                "CP_HQD_PERSISTENT_STATE", PRELOAD_REQ=1, PRELOAD_SIZE=mqd.PRELOAD_SIZE
            ),
            "cp_hqd_pipe_priority": 2,
            "cp_hqd_queue_priority": 15,
            "cp_hqd_quantum": pack("CP_HQD_QUANTUM", QUANTUM_EN=1, QUANTUM_SCALE=1, QUANTUM_DURATION=1),
            "cp_hqd_pq_doorbell_control": pack(
                "CP_HQD_PQ_DOORBELL_CONTROL", DOORBELL_OFFSET=self._doorbell // 4, DOORBELL_EN=1
            ),
            "cp_hqd_pq_control": pack(
                "CP_HQD_PQ_CONTROL", QUEUE_SIZE=DWORDS.bit_length() - 2, RPTR_BLOCK_SIZE=5
            ),
            "cp_hqd_ib_control": pack("CP_HQD_IB_CONTROL", MIN_IB_AVAIL_SIZE=3),
            "cp_hqd_hq_status0": 0x2000_4000,
            "cp_mqd_control": pack("CP_MQD_CONTROL", PRIV_STATE=1),
            "cp_hqd_eop_control": pack("CP_HQD_EOP_CONTROL", EOP_SIZE=(EOP_SIZE // 4).bit_length() - 2),
        }
        addresses = {
            "cp_mqd_base_addr": layout.address(MQD),
            "cp_hqd_pq_base": layout.address(self.place.ring) >> 8,
            "cp_hqd_pq_rptr_report_addr": layout.address(self.place.read_pointer),
            "cp_hqd_pq_wptr_poll_addr": layout.address(self.place.write_pointer),
            "cp_hqd_eop_base_addr": layout.address(EOP) >> 8,
        }
        for name, address in addresses.items():
            values[f"{name}_lo"], values[f"{name}_hi"] = address & ALL, address >> 32
        for engine in range(8):  # the workgroup processors that may be used: all
            values[f"compute_static_thread_mgmt_se{engine}"] = ALL
        return values

    def _end(self) -> list[int]:
        return pm4.release(self.signal, self.value & ALL)

    def _padding(self, dwords: int) -> list[int]:
        return pm4.nop(dwords)


class SdmaQueue(Queue):
    """Queue 0 of the copy engine SDMA0."""

    def __init__(self, card: Card) -> None:
        super().__init__(card, "SDMA queue", SDMA, SDMA_DOORBELL, 1)
        # Without lists, each of these writes would be a transfer of its own. A doorbell is enough: it comes
        # after what was written through BAR 0 before (grade: inferred; published drivers rely on it).
        self._polled = card.bridge.has_lists

    def init(self, batch: Batch) -> None:
        """Describe the queue to the engine; it is idle, or has been reset."""
        self.restart(batch)
        prefix = "SDMA0_QUEUE0_"

        def pack(register: str, **fields: int) -> int:
            return self.card.chip.register("GC", prefix + register).pack(**fields)

        def pair(register: str, value: int, low: str = "_LO", high: str = "_HI") -> None:
            batch.pair("GC", prefix + register + low, prefix + register + high, value)

        control = pack(
            "RB_CNTL", RB_ENABLE=1, RB_SIZE=DWORDS.bit_length() - 1, RPTR_WRITEBACK_ENABLE=1,
            RPTR_WRITEBACK_TIMER=4, RB_PRIV=1, **{self.card.chip.family.sdma_poll: int(self._polled)},
        )  # fmt: skip
        batch.write("GC", prefix + "MINOR_PTR_UPDATE", 1)
        pair("RB_RPTR", 0, "", "_HI")
        pair("RB_WPTR", 0, "", "_HI")
        pair("RB_BASE", layout.address(self.place.ring) >> 8, "", "_HI")
        pair("RB_RPTR_ADDR", layout.address(self.place.read_pointer))
        pair("RB_WPTR_POLL_ADDR", layout.address(self.place.write_pointer))
        batch.write("GC", prefix + "DOORBELL_OFFSET", pack("DOORBELL_OFFSET", OFFSET=self._doorbell // 4))
        batch.write("GC", prefix + "DOORBELL", pack("DOORBELL", ENABLE=1))
        batch.write("GC", prefix + "MINOR_PTR_UPDATE", 0)
        batch.flush_hdp()
        batch.write("GC", prefix + "RB_CNTL", control)
        batch.write("GC", prefix + "IB_CNTL", pack("IB_CNTL", IB_ENABLE=1))

    def _end(self) -> list[int]:
        return sdma.PACKETS["FENCE"].pack(mtype=UNCACHED, addr=self.signal, data=self.value & ALL)

    def _padding(self, dwords: int) -> list[int]:
        return sdma.PACKETS["NOP"].pack(count=dwords - 1)


UNCACHED = 3
"""FENCE.mtype."""
