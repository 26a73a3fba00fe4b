"""Dispatches: from the COMPUTE registers of a queue to workgroups that run, and their end.

The shaders run when the packet is executed: they see memory as it is then. What they wrote appears, and the
work counts as ended, when the dispatch ends in virtual time. Dispatches of one queue or of several run side
by side (`shader_array`). Those that write the same bytes, as with atomics, run one after the other: the model
has no other way to add up both. (On silicon they overlap. Mappings of different VMIDs are not compared.)

What a dispatch wrote is for others once it has ended and an ACQUIRE_MEM has invalidated the caches before
GL2. `Unseen` has what that is not true of; a dispatch whose result depends on it is a finding.

A wave that faults keeps its dispatch from ending, as without a trap handler on silicon (grade: inferred).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from emulator.amdgpu.context import Context
from emulator.amdgpu.cost import Work
from emulator.amdgpu.diagnosis import BootStep
from emulator.amdgpu.hqd import Hqd
from emulator.amdgpu.power import Power
from emulator.amdgpu.scoreboard import Record
from emulator.amdgpu.seams import (
    AddressSpace,
    Dispatch,
    Interrupts,
    Outcome,
    PageFault,
    Shaders,
    WaveFault,
)
from emulator.amdgpu.shader_array import Running, ShaderArray, spans, touch
from usbgpu.amd.facts import interrupts as ih

STEPS: tuple[BootStep, ...] = (
    BootStep(
        "mqd-thread-mgmt",
        "compute_static_thread_mgmt_se0.. of the MQD (or the registers of that name): bits of usable WGPs",
        "every dispatch",
        "no compute unit takes a wave: the dispatch never ends",
        "inferred",
    ),
    BootStep(
        "sh-mem-config",
        "SH_MEM_CONFIG of the queue's VMID: ALIGNMENT_MODE = 3 (unaligned), 64-bit addresses",
        "loads and stores of kernels that are not aligned to their size",
        "unaligned accesses of kernels fail; the model only reports it",
        "guess",
    ),
    BootStep(
        "sh-mem-bases",
        "SH_MEM_BASES of the queue's VMID: SHARED_BASE, PRIVATE_BASE",
        "FLAT accesses to LDS and scratch",
        "both apertures lie over the lowest addresses of memory: FLAT accesses reach the wrong memory",
        "inferred",
    ),
    BootStep(
        "dispatch-scratch",
        "COMPUTE_DISPATCH_SCRATCH_BASE_LO, _HI and COMPUTE_TMPRING_SIZE",
        "kernels with RSRC2.SCRATCH_EN",
        "their spills and stack go to address 0 and fault",
        "inferred",
    ),
    BootStep(
        "acquire-code",
        "ACQUIRE_MEM with GLI_INV after code in memory has changed, before the dispatch",
        "kernels loaded where another was",
        "waves may run instructions of the old kernel; the model runs the new one and reports it",
        "guess",
    ),
    BootStep(
        "acquire-scalar",
        "ACQUIRE_MEM with GLK_INV after kernel arguments in memory have changed, before the dispatch",
        "scalar loads",
        "waves may load old arguments from the scalar cache; the model loads the new ones and reports it",
        "guess",
    ),
)

UNALIGNED = 3
"""SH_MEM_CONFIG.ALIGNMENT_MODE."""
THREADS_LIMIT = 1024
"""Work-items of a workgroup."""
SCRATCH_UNIT = 256
"""Bytes that COMPUTE_TMPRING_SIZE.WAVESIZE counts (Mesa and LLVM for gfx11 on)."""
LINE = 64
"""Bytes of a cache line (grade: inferred): what the cache model looks at of code and of arguments."""
USER_SGPRS = 16
SQ_ERRORS = {"instruction": 1, "page fault": 2}
"""Type of an SQ error interrupt by the kind of fault (the kernel's KFD: illegal instruction 1, memory
violation 2). What a trap without a handler reports is not published: an illegal instruction here (guess)."""
SQ_ENCODING_ERROR = 2
"""Bits 7:6 of the second context dword (`navi10_enum.h`)."""

NO_WAIT = "a CS_PARTIAL_FLUSH is missing before it"
NO_ACQUIRE = "an ACQUIRE_MEM with GLV_INV and GL1_INV is missing before it"
REMEMBERED = 16
"""Dispatches that have ended, of which the model knows what others may not see yet: the last ones."""

CODE_SAMPLE = 256
"""Bytes of a kernel that its record keeps: kernels begin at multiples of that."""


class DispatchCosts(Protocol):
    """How long dispatches take, in chip clocks: `emulator.amdgpu.cost`."""

    def work(self, outcome: Outcome, dispatch: Dispatch) -> Work:
        """What a dispatch asks of the card."""

    def lasts(self, work: Work) -> int:
        """From the packet until the results are in memory, if it runs alone."""


class Caches:
    """What the instruction and the scalar caches may hold of kernels and of their arguments.

    Only what a dispatch starts with is looked at: the first line of the code, and of what the first two user
    SGPRs point to if they look like the address of arguments; both in VRAM only. Data that waves read through
    the vector caches and GL2 are not modelled: they never are stale here.
    """

    def __init__(self, context: Context) -> None:
        self._diagnosis = context.diagnosis
        self._vram = context.vram
        self._code: dict[tuple[int, int], bytes] = {}
        self._scalar: dict[tuple[int, int], bytes] = {}

    def invalidate(self, *, code: bool, scalar: bool) -> None:
        """An ACQUIRE_MEM of any queue, or a reset."""
        if code:
            self._code.clear()
        if scalar:
            self._scalar.clear()

    def check(self, dispatch: Dispatch, vmid: int, memory: AddressSpace, loads: bool) -> None:
        """A dispatch has run without a fault; `loads`: with scalar loads."""
        self._look(self._code, "acquire-code", "code", vmid, dispatch.code, memory)
        if loads and len(dispatch.user_data) >= 2:
            low, high = dispatch.user_data[:2]
            if high and not low & 15:
                self._look(self._scalar, "acquire-scalar", "kernel arguments", vmid, high << 32 | low, memory)

    def _look(
        self,
        cache: dict[tuple[int, int], bytes],
        step: str,
        what: str,
        vmid: int,
        address: int,
        memory: AddressSpace,
    ) -> None:
        try:
            extent = memory.translate(address)
        except PageFault:  # no arguments after all; the hub has reported it
            return
        if extent.system:
            return
        # No engine's read: bytes next to what the waves read may still wait in the HDP, without a finding.
        place = extent.target + address - extent.start
        content = self._vram.memory[place : place + min(LINE, extent.end - address)]
        if cache.setdefault((vmid, address), content) != content:
            self._diagnosis.missing(
                step, f"{what} at {address:#x} changed since the caches were invalidated last"
            )
            cache[vmid, address] = content


@dataclass(eq=False)
class _Written:
    """What a dispatch has written, or will have at its end.

    Attributes:
        memory: as its waves saw it.
        writes: of its outcome.
        spans: of these.
        before: what was there; empty while it runs.
    """

    memory: AddressSpace
    writes: Sequence[tuple[int, bytes]]
    spans: Sequence[tuple[int, int]]
    before: Sequence[tuple[int, bytes]] = ()


class Unseen:
    """What dispatches write that the next one may not see: they have not ended, or caches may be stale.

    A dispatch that begins while there is such a thing is run again with memory as it would be otherwise; if
    that makes another result, it depends on what it must not. Those that write the same bytes are not
    compared: atomics pass the caches before GL2, and need neither.
    """

    def __init__(self, context: Context, shaders: Shaders) -> None:
        self._diagnosis = context.diagnosis
        self._shaders = shaders
        self._running: list[_Written] = []
        self._ended: list[_Written] = []

    def begin(self, memory: AddressSpace, outcome: Outcome) -> _Written:
        """A dispatch runs."""
        written = _Written(memory, outcome.writes, spans(outcome.writes))
        self._running.append(written)
        return written

    def end(self, written: _Written) -> None:
        """It ends: its writes are about to be done."""
        if written in self._running:
            self._running.remove(written)
            try:
                written.before = _content(written.memory, written.writes)
            except PageFault:  # the write will report it
                return
            self._ended = [*self._ended[1 - REMEMBERED :], written]

    def killed(self) -> None:
        """Dispatches under way may have been killed."""
        self._running.clear()

    def invalidate(self) -> None:
        """An ACQUIRE_MEM of the caches before GL2: what has ended is seen from now on."""
        self._ended.clear()

    def check(self, name: str, dispatch: Dispatch, memory: AddressSpace, outcome: Outcome) -> None:
        """Report a dispatch, just run with this outcome, that depends on what it may not see."""
        own = spans(outcome.writes)
        running, ended = (
            [one for one in known if one.memory is memory and not touch(one.spans, own)]
            for known in (self._running, self._ended)
        )
        for changes, what in (
            (
                [write for one in running for write in one.writes],
                f"writes that has not ended: {NO_WAIT}",
            ),
            (
                [write for one in reversed(ended) for write in one.before],
                f"wrote since the caches were invalidated last: {NO_ACQUIRE}",
            ),
        ):
            if changes and self._differs(dispatch, memory, outcome, changes):
                kernel = f"{name}: the kernel at {dispatch.code:#x}"
                self._diagnosis.wrong(f"{kernel} reads what a dispatch {what}")

    def _differs(
        self,
        dispatch: Dispatch,
        memory: AddressSpace,
        outcome: Outcome,
        changes: Sequence[tuple[int, bytes]],
    ) -> bool:
        before = _content(memory, changes)
        _put(memory, changes)
        try:
            other = self._shaders.run(dispatch, memory)
        finally:
            _put(memory, before)
        return (other.writes, other.fault) != (outcome.writes, outcome.fault)


def _content(memory: AddressSpace, writes: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    return [(address, memory.read(address, len(data))) for address, data in writes]


def _put(memory: AddressSpace, content: Sequence[tuple[int, bytes]]) -> None:
    for address, data in content:
        memory.write(address, data)


class Dispatcher:
    """Starts dispatches and ends them.

    Args:
        context: of the card.
        shaders: that run them.
        cost: how long they take.
        interrupts: where faults of waves go.
        touched: called when memory has changed.
        power: of the board.
        ended: called with a queue when a dispatch of it has.
        dispatched: gets a record of each dispatch at its end, faults included.

    Attributes:
        caches: of instructions and scalars.
        unseen: what dispatches must not depend on.
        busy: dispatches under way, hung ones included.
    """

    def __init__(
        self,
        context: Context,
        shaders: Shaders,
        cost: DispatchCosts,
        interrupts: Interrupts,
        touched: Callable[[], None],
        power: Power,
        dispatched: Callable[[Record], None] | None = None,
    ) -> None:
        self.caches = Caches(context)
        self.unseen = Unseen(context, shaders)
        self._context = context
        self._shaders = shaders
        self._cost = cost
        self._interrupts = interrupts
        self._touched = touched
        self._dispatched = dispatched
        self._array = ShaderArray(context.link, power)

    def start(self, hqd: Hqd) -> None:
        """Run what the registers of a queue describe; COMPUTE_DIM and the initiator are set by the packet."""
        initiator = hqd.value("COMPUTE_DISPATCH_INITIATOR")
        register = self._context.chip.register("GC", "COMPUTE_DISPATCH_INITIATOR")
        if not register.get(initiator, "COMPUTE_SHADER_EN"):
            self._context.diagnosis.wrong(
                f"{hqd.name}: a dispatch without COMPUTE_SHADER_EN in its initiator does nothing"
            )
            return
        work = hqd.pipeline.begin()
        dispatch = self._describe(hqd, initiator)
        if dispatch is None:
            hqd.stop("a dispatch that never ends", hung=True)
            return
        self._context.event(
            "dispatch",
            lambda: (
                f"{hqd.name} code {dispatch.code:#x} groups {dispatch.groups} threads {dispatch.threads} "
                f"user data {' '.join(f'{value:#x}' for value in dispatch.user_data)}"
            ),
        )
        if not math.prod(dispatch.groups):
            hqd.pipeline.end(work)
            return
        if self._context.disturbance.hang():
            hqd.stop("a dispatch that never ends: an injected fault", hung=True)
            return
        self._check_memory_set_up(hqd, dispatch)
        self._run(hqd, work, dispatch, hqd.shader_memory, hqd.vmid)

    def killed(self) -> None:
        """Work under way of one queue, or of all, has been killed."""
        self.unseen.killed()
        self._array.settle()

    # -- inside -----------------------------------------------------------------------------------------

    def _run(self, hqd: Hqd, work: object, dispatch: Dispatch, memory: AddressSpace, vmid: int) -> None:
        outcome = self._shaders.run(dispatch, memory)
        epoch, places = hqd.epoch, spans(outcome.writes)
        if (other := self._array.writer(places)) is not None:
            other.behind.append(
                lambda: self._run(hqd, work, dispatch, memory, vmid) if hqd.epoch == epoch else None
            )
            return
        if outcome.fault is None:
            self.caches.check(dispatch, vmid, memory, bool(outcome.instructions.get("smem")))
            self.unseen.check(hqd.name, dispatch, memory, outcome)
        written = self.unseen.begin(memory, outcome)
        code = b"" if outcome.fault else memory.read(dispatch.code, CODE_SAMPLE)
        record = Record(dispatch, outcome, self._context.link.now(), 0, hqd.name, code=code)
        asked = self._cost.work(outcome, dispatch)
        self._array.begin(
            Running(
                self._cost.lasts(asked),
                asked,
                places,
                lambda: hqd.epoch == epoch,
                lambda: hqd.guard(
                    lambda: self._end(hqd, work, record, written, vmid), "results of a dispatch"
                ),
            )
        )

    def _end(self, hqd: Hqd, work: object, record: Record, written: _Written, vmid: int) -> None:
        if self._dispatched is not None:
            self._dispatched(replace(record, end=self._context.link.now()))
        self.unseen.end(written)
        _put(written.memory, written.writes)
        if record.outcome.fault is None:
            hqd.pipeline.end(work)
        else:
            self._fault(hqd, record.outcome.fault, vmid)
        self._touched()

    def _fault(self, hqd: Hqd, fault: WaveFault, vmid: int) -> None:
        self._context.diagnosis.wrong(
            f"{hqd.name}: {fault.kind} at {fault.pc:#x}: {fault.text}; the queue hangs"
        )
        hqd.stop(f"{fault.kind} at {fault.pc:#x}", hung=True)
        if fault.kind == "watchdog":
            return
        kind = SQ_ERRORS.get(fault.kind, SQ_ERRORS["instruction"])
        private = hqd.get("COMPUTE_PGM_RSRC1", "PRIV")
        words = (kind << 21 | private << 26, SQ_ENCODING_ERROR << 6, 0, 0)
        client, source = ih.CLIENTS["GRBM_CP"], ih.SOURCES["SQ_INTERRUPT_ID"]
        self._interrupts.post(client, source, ring=hqd.ring_id, vmid=vmid, data=words)

    def _describe(self, hqd: Hqd, initiator: int) -> Dispatch | None:
        """The registers as a dispatch; None, and a finding, if it could never end."""
        if not self._has_compute_units(hqd):
            return None
        part = self._context.chip.register("GC", "COMPUTE_DISPATCH_INITIATOR").get
        threads = tuple(hqd.get(f"COMPUTE_NUM_THREAD_{axis}", "NUM_THREAD_FULL") for axis in "XYZ")
        dims = tuple(hqd.value(f"COMPUTE_DIM_{axis}") for axis in "XYZ")
        code = hqd.pair("COMPUTE_PGM_LO", "COMPUTE_PGM_HI") << 8
        rsrc2 = hqd.value("COMPUTE_PGM_RSRC2")
        users = hqd.get("COMPUTE_PGM_RSRC2", "USER_SGPR")
        problem = ""
        if not part(initiator, "CS_W32_EN"):
            problem = "CS_W32_EN is 0: wave64 is not modelled"
        elif not code:
            problem = "COMPUTE_PGM_LO and _HI are 0: set them to the address of the code over 256"
        elif not 0 < math.prod(threads) <= THREADS_LIMIT:
            size = " x ".join(map(str, threads))
            problem = f"workgroups of {size} work-items (COMPUTE_NUM_THREAD), not of 1 to {THREADS_LIMIT}"
        elif users > USER_SGPRS:
            problem = f"{users} user SGPRs (RSRC2.USER_SGPR): at most {USER_SGPRS} exist"
        elif not part(initiator, "FORCE_START_AT_000") and any(
            hqd.value(f"COMPUTE_START_{axis}") for axis in "XYZ"
        ):
            problem = "COMPUTE_START without FORCE_START_AT_000: the model starts at group 0 only"
        elif any(hqd.value(f"COMPUTE_RESTART_{axis}") for axis in "XYZ"):
            problem = "COMPUTE_RESTART is not 0: resuming a dispatch is not modelled"
        elif part(initiator, "USE_THREAD_DIMENSIONS"):
            if any(dim % size for dim, size in zip(dims, threads, strict=True)):
                problem = "dimensions in work-items leave a workgroup partial, which is not modelled"
            dims = tuple(dim // size for dim, size in zip(dims, threads, strict=True))
        elif part(initiator, "PARTIAL_TG_EN"):
            problem = "PARTIAL_TG_EN is set: partial workgroups are not modelled"
        if problem:
            self._context.diagnosis.wrong(f"{hqd.name}: a dispatch hangs: {problem}")
            return None
        bases = self._context.chip.register("GC", "SH_MEM_BASES")
        apertures = self._context.registers.value("GC", "SH_MEM_BASES", hqd.vmid)
        base = hqd.pair("COMPUTE_DISPATCH_SCRATCH_BASE_LO", "COMPUTE_DISPATCH_SCRATCH_BASE_HI") << 8
        return Dispatch(
            code=code,
            groups=(dims[0], dims[1], dims[2]),
            threads=(threads[0], threads[1], threads[2]),
            user_data=tuple(hqd.value(f"COMPUTE_USER_DATA_{index}") for index in range(users)),
            rsrc1=hqd.value("COMPUTE_PGM_RSRC1"),
            rsrc2=rsrc2,
            rsrc3=hqd.value("COMPUTE_PGM_RSRC3"),
            scratch=base,
            scratch_wave=hqd.get("COMPUTE_TMPRING_SIZE", "WAVESIZE") * SCRATCH_UNIT,
            shared_aperture=bases.get(apertures, "SHARED_BASE") << 16,
            private_aperture=bases.get(apertures, "PRIVATE_BASE") << 16,
        )

    def _has_compute_units(self, hqd: Hqd) -> bool:
        engines = range(self._context.chip.shader_engines)
        if any(hqd.value(f"COMPUTE_STATIC_THREAD_MGMT_SE{engine}") for engine in engines):
            return True
        symptom = f"{hqd.name}: no compute unit may take a wave, a dispatch hangs"
        if hqd.get("CP_HQD_PERSISTENT_STATE", "PRELOAD_REQ"):
            self._context.diagnosis.missing("mqd-thread-mgmt", symptom)
        else:
            self._context.diagnosis.missing("hqd-persistent-state", symptom)
        return False

    def _check_memory_set_up(self, hqd: Hqd, dispatch: Dispatch) -> None:
        """Report missing set-up that the shaders do not notice."""
        registers, diagnosis = self._context.registers, self._context.diagnosis
        if registers.get("GC", "SH_MEM_CONFIG", "ALIGNMENT_MODE", hqd.vmid) != UNALIGNED:
            diagnosis.missing("sh-mem-config", f"VMID {hqd.vmid}: unaligned accesses of kernels fail")
        if not dispatch.shared_aperture and not dispatch.private_aperture:
            diagnosis.missing(
                "sh-mem-bases", f"VMID {hqd.vmid}: LDS and scratch lie over the lowest addresses for FLAT"
            )
        if hqd.get("COMPUTE_PGM_RSRC2", "SCRATCH_EN") and not (dispatch.scratch and dispatch.scratch_wave):
            diagnosis.missing(
                "dispatch-scratch", f"kernel {dispatch.code:#x} uses scratch memory, but has none"
            )
