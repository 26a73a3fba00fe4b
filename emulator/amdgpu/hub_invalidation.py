"""How the translations of a VM hub are invalidated: its engines, with their ranges and semaphores.

A request drops what its flags name, for its VMIDs and the engine's address range, and is acknowledged a
moment later. The MM hub's page entries are in a part of its L2 that only
MMVM_L2_BANK_SELECT_RESERVED_CID2 clears: why the kernel writes that bit after each request is not published,
so this is a guess.
"""

from __future__ import annotations

from functools import partial

from emulator.amdgpu.context import Context
from emulator.amdgpu.hub_faults import Faults
from emulator.amdgpu.hub_settings import PREFIXES, pair
from emulator.amdgpu.page_tables import PAGE
from emulator.amdgpu.tlb import EntryCache, Tlb
from emulator.core.clock import clocks

ENGINES = 18
"""Invalidation engines of a hub."""
CLOCKS = clocks(0.5e-6)
"""From the request to its acknowledgement (grade: guess)."""
ALL_LEVELS = frozenset(range(4))


class Invalidation:
    """The registers that invalidate, of one hub.

    Args:
        context: of the card.
        block: GC or MMHUB.
        tlb: its L1.
        entries: its L2.
        faults: its fault registers, which a request may clear.

    Attributes:
        epoch: grows with each invalidation of L1.
        complete: whether L2 has been invalidated as a whole since power-on.
        private: whether page entries have an invalidation of their own.
    """

    def __init__(self, context: Context, block: str, tlb: Tlb, entries: EntryCache, faults: Faults) -> None:
        self.epoch = 0
        self.complete = False
        self.private = block == "MMHUB"
        self._context = context
        self._block = block
        self._prefix = prefix = PREFIXES[block][0]
        self._tlb = tlb
        self._entries = entries
        self._faults = faults
        self._held = [False] * ENGINES
        self._acknowledged = [0] * ENGINES
        registers = context.registers
        registers.on_write(block, f"{prefix}L2_CNTL2", self._everything)
        if self.private:
            registers.on_write(block, f"{prefix}L2_BANK_SELECT_RESERVED_CID2", self._private)
        for engine in range(ENGINES):
            name = f"{prefix}INVALIDATE_ENG{engine}_"
            registers.store(block, f"{name}ADDR_RANGE_LO32", f"{name}ADDR_RANGE_HI32")
            registers.on_write(block, f"{name}REQ", partial(self._request, engine))
            registers.on_read(block, f"{name}ACK", partial(self._acknowledged.__getitem__, engine))
            registers.on_read(block, f"{name}SEM", partial(self._take, engine))
            registers.on_write(block, f"{name}SEM", partial(self._release, engine))

    def _request(self, engine: int, value: int) -> None:
        register = self._context.chip.register(self._block, f"{self._prefix}INVALIDATE_ENG{engine}_REQ")
        asked = register.unpack(value)
        vmids = asked["PER_VMID_INVALIDATE_REQ"]
        self._acknowledged[engine] &= ~vmids
        lost = self.private and not self._held[engine]
        if lost:
            self._context.diagnosis.missing(
                "mmhub-semaphore", f"invalidation engine {engine} of the MM hub never acknowledges"
            )
        first, end = self._range(engine)
        small_only = asked["INVALIDATE_4K_PAGES_ONLY"]
        levels = {level + 1 for level in range(3) if asked[f"INVALIDATE_L2_PDE{level}"]}
        if asked["INVALIDATE_L2_PTES"] and not self.private:
            levels.add(0)

        def matches(vmid: int, low: int, high: int) -> bool:
            if small_only and high - low > PAGE:
                return False
            return bool(vmids >> vmid & 1) and low < end and first < high

        def finish() -> None:
            self._entries.forget(frozenset(levels), matches)
            if asked["INVALIDATE_L1_PTES"]:
                self._tlb.forget(matches)
                self.epoch += 1
            if asked["CLEAR_PROTECTION_FAULT_STATUS_ADDR"]:
                self._faults.clear()
            if not lost:
                self._acknowledged[engine] |= vmids

        text = f"{self._block} invalidates VMIDs {vmids:#x}, {first:#x} to {end:#x}"
        self._context.event("hub", lambda: text)
        self._context.link.schedule(CLOCKS, finish)

    def _range(self, engine: int) -> tuple[int, int]:
        """What an engine's range registers cover: a page, or if the S bit is set, as many pages as the lowest
        0 of the page number says, as IOMMUs encode it (grade: guess, but for all ones, which is everything).
        """
        name = f"{self._prefix}INVALIDATE_ENG{engine}_ADDR_RANGE"
        value = pair(self._context, self._block, name) & (1 << 37) - 1
        if value == 0 and (len(self._tlb) or len(self._entries)):  # a driver may invalidate before set-up
            step = f"{self._block.lower()}-invalidate-range"
            self._context.diagnosis.missing(
                step, f"invalidation engine {engine} of {self._block} covers page 0 only"
            )
        page = value >> 1
        ones = (~page & -~page).bit_length() - 1
        count = 1 << (ones + 1 if value & 1 else 0)
        page &= -count
        return page * PAGE, (page + count) * PAGE

    def _everything(self, value: int) -> int:
        register = self._context.chip.register(self._block, f"{self._prefix}L2_CNTL2")
        if register.get(value, "INVALIDATE_ALL_L1_TLBS"):
            self._tlb.forget(_all)
            self.epoch += 1
        if register.get(value, "INVALIDATE_L2_CACHE"):
            self._entries.forget(ALL_LEVELS, _all)
            self.complete = True
        return register.pack(value, INVALIDATE_ALL_L1_TLBS=0, INVALIDATE_L2_CACHE=0)  # guess: not kept

    def _private(self, value: int) -> None:
        register = self._context.chip.register(self._block, f"{self._prefix}L2_BANK_SELECT_RESERVED_CID2")
        if register.get(value, "RESERVED_CACHE_PRIVATE_INVALIDATION"):
            self._entries.forget(frozenset({0}), _all)

    def _take(self, engine: int) -> int:
        taken = not self._held[engine]
        self._held[engine] = True
        return int(taken)

    def _release(self, engine: int, value: int) -> None:
        if not value & 1:
            self._held[engine] = False


def _all(vmid: int, start: int, end: int) -> bool:
    return True
