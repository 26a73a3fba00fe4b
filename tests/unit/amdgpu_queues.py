"""What tests of the compute queues share: memory, shaders and costs that are stubs, and a driver."""

from __future__ import annotations

import struct

from emulator.amdgpu.compute import ComputeEngine
from emulator.amdgpu.cost import Work
from emulator.amdgpu.mec import BOOT_CLOCKS
from emulator.amdgpu.power import Power
from emulator.amdgpu.seams import Extent, Outcome, PageFault
from emulator.core.clock import clocks
from tests.unit import amdgpu_bench
from usbgpu.amd.facts import mqd, pm4
from usbgpu.amd.facts.firmware import RS64_START

PACKETS = pm4.PACKETS
RING, MQD, EOP, RPTR, WPTR, CODE, ARGUMENTS, BUFFER, DATA = (0x2000_0000_0000 + n * 0x10000 for n in range(9))
DWORDS = 256
PACKET_CLOCKS, DISPATCH_CLOCKS = 10, 5000
LONG = clocks(1e-3)
PARTIAL_FLUSH = PACKETS["EVENT_WRITE"].pack(EVENT_TYPE=7, EVENT_INDEX=4)


class Space:
    """Nine pages of 64 KiB at the start of VRAM, or of other bytes; nothing else is mapped."""

    SIZE = 9 << 16

    def __init__(self, data=None):
        self.data = bytearray(self.SIZE) if data is None else data

    def translate(self, address, *, write=False):
        self._place(address, 1, write)
        start = address & ~0xFFFF
        return Extent(start, start + 0x10000, start - RING, False, True, True)

    def read(self, address, size):
        place = self._place(address, size, False)
        return bytes(self.data[place : place + size])

    def write(self, address, data):
        place = self._place(address, len(data), True)
        self.data[place : place + len(data)] = data

    def word(self, address):
        return int.from_bytes(self.read(address, 4), "little")

    def put(self, address, *words):
        self.write(address, struct.pack(f"<{len(words)}I", *words))

    def _place(self, address, size, write):
        if not RING <= address <= RING + self.SIZE - size:
            raise PageFault(address, write=write, reason="nothing is mapped")
        return address - RING


class Bench:
    """A compute engine whose neighbours are this object, and a driver of it."""

    def __init__(self, chip="gfx1100"):
        self.context, self.link = amdgpu_bench.context(chip, vram=1 << 20)
        self.chip = self.context.chip
        self.memory = Space(self.context.vram.memory)
        self.posts = []
        self.dispatches = []
        self.records = []
        self.outcomes = []
        self.loaded = {"mec", "pfp", "me"}
        self.events = []
        self.context.observers.append(lambda event: self.events.append(event.text))
        self.engine = ComputeEngine(
            self.context, lambda vmid, client: self.memory, self, self, self, self, Power(self.context),
            self.require, self.records.append,
        )  # fmt: skip
        self.put = {}
        self.queues = 0

    # -- what the engine uses ---------------------------------------------------------------------------

    def post(self, client, source, *, ring=0, vmid=0, data=(0, 0, 0, 0)):
        self.posts.append((client, source, ring, vmid, tuple(data)))

    def subscribe(self, first, last, kind, ring):
        self.bell = ring

    def run(self, dispatch, memory):
        self.dispatches.append(dispatch)
        return self.outcomes.pop(0) if self.outcomes else Outcome(1, {"valu": 1}, 0, 0)

    def packet(self):
        return PACKET_CLOCKS

    def copy(self, size, system):
        return size

    def work(self, outcome, dispatch):
        return Work(launch=1e-6, cycles=0.0, moved=0.0, issuing=0.0, share=outcome.waves / 8)

    def lasts(self, work):
        return DISPATCH_CLOCKS

    def require(self, name, symptom):
        if name not in self.loaded:
            self.context.diagnosis.missing(f"psp-fw-{name}", symptom)
        return name in self.loaded

    # -- the driver -------------------------------------------------------------------------------------

    def write(self, name, value):
        amdgpu_bench.write(self.context, "GC", name, value)

    def read(self, name):
        return amdgpu_bench.read(self.context, "GC", name)

    def select(self, *, me=0, pipe=0, queue=0, vmid=0):
        register = self.chip.register("GC", "GRBM_GFX_CNTL")
        self.write("GRBM_GFX_CNTL", register.pack(MEID=me, PIPEID=pipe, QUEUEID=queue, VMID=vmid))

    def field(self, name, value=0, **fields):
        return self.chip.register("GC", name).pack(value, **fields)

    def unmask(self, pipe=0):
        """Let ends of pipe interrupt."""
        name = f"CP_ME1_PIPE{pipe}_INT_CNTL"
        self.write(name, self.field(name, TIME_STAMP_INT_ENABLE=1))

    def start(self, *, skip=(), pipes=1):
        """Boot the graphics block up to the MEC; `skip` names steps."""
        skip = set(skip)
        if self.chip.generation == 12:
            for name in ("PFP", "ME"):
                if f"{name.lower()}-start" not in skip:
                    self.write(f"CP_{name}_PRGRM_CNTR_START", RS64_START >> 2 & 0xFFFF_FFFF)
                    self.write(f"CP_{name}_PRGRM_CNTR_START_HI", RS64_START >> 34)
                    self.write("CP_ME_CNTL", self.field("CP_ME_CNTL", **{f"{name}_PIPE0_RESET": 1}))
                    self.write("CP_ME_CNTL", 0)
        for pipe in range(pipes):
            self.select(me=0 if "grbm-select" in skip else 1, pipe=pipe)
            if "mec-start-address" not in skip:
                self.write("CP_MEC_RS64_PRGRM_CNTR_START", RS64_START >> 2 & 0xFFFF_FFFF)
                self.write("CP_MEC_RS64_PRGRM_CNTR_START_HI", RS64_START >> 34)
        self.select()
        if "mec-reset" not in skip:
            resets = {f"MEC_PIPE{pipe}_RESET": 1 for pipe in range(pipes)}
            self.write("CP_MEC_RS64_CNTL", self.field("CP_MEC_RS64_CNTL", **resets))
            self.write("CP_MEC_RS64_CNTL", 0)
        for vmid in range(16):
            self.select(vmid=vmid)
            if "sh-mem-config" not in skip:
                self.write("SH_MEM_CONFIG", 0xC00C)
            if "sh-mem-bases" not in skip:
                self.write("SH_MEM_BASES", 0x10002)
        self.select()
        if "mec-doorbell-range" not in skip:
            self.write("CP_MEC_DOORBELL_RANGE_UPPER", 0xF8)
        if "mec-active" not in skip:
            active = {f"MEC_PIPE{pipe}_ACTIVE": 1 for pipe in range(pipes)}
            self.write("CP_MEC_RS64_CNTL", self.field("CP_MEC_RS64_CNTL", **active))
        self.link.run(BOOT_CLOCKS)

    def queue(self, pipe=0, queue=0, *, doorbell=0x18, ring=RING, skip=(), **changes):
        """Set up a queue as published drivers do: an MQD, and its registers one by one."""
        layout = mqd.MQDS[self.chip.generation]
        where = MQD + self.queues % 32 * mqd.SIZE
        self.queues += 1
        members = {
            "header": mqd.HEADER,
            "cp_mqd_base_addr_lo": where & 0xFFFF_FFFF,
            "cp_mqd_base_addr_hi": where >> 32,
            "cp_hqd_persistent_state": 0x5501,
            "cp_hqd_quantum": 0x111,
            "cp_hqd_pq_base_lo": ring >> 8 & 0xFFFF_FFFF,
            "cp_hqd_pq_base_hi": ring >> 40,
            "cp_hqd_pq_rptr_report_addr_lo": RPTR & 0xFFFF_FFFF,
            "cp_hqd_pq_rptr_report_addr_hi": RPTR >> 32,
            "cp_hqd_pq_wptr_poll_addr_lo": WPTR & 0xFFFF_FFFF,
            "cp_hqd_pq_wptr_poll_addr_hi": WPTR >> 32,
            "cp_hqd_pq_doorbell_control": 1 << 30 | doorbell,
            "cp_hqd_pq_control": 0x500 | DWORDS.bit_length() - 2,
            "cp_hqd_ib_control": 0x30_0000,
            "cp_mqd_control": 0x100,
            "cp_hqd_eop_base_addr_lo": EOP >> 8 & 0xFFFF_FFFF,
            "cp_hqd_eop_base_addr_hi": EOP >> 40,
            "cp_hqd_eop_control": 9,
            **{f"compute_static_thread_mgmt_se{n}": 0xFFFF_FFFF for n in range(8)},
            **changes,
        }
        for member in list(members):
            if member.startswith(tuple(skip)) and skip:
                del members[member]
        data = layout.pack(**members)
        self.memory.write(where, data)
        self.select(me=1, pipe=pipe, queue=queue)
        first = self.chip.address("GC", "CP_MQD_BASE_ADDR")
        for place in mqd.REGISTERS:
            self.context.registers.write(
                first + place - 0x80, int.from_bytes(data[place * 4 : place * 4 + 4], "little")
            )
        if "active" not in skip:
            self.write("CP_HQD_ACTIVE", 1)
        self.select()
        self.put[doorbell] = [ring, 0]

    def submit(self, *packets, doorbell=0x18, run=LONG):
        """Put packets into a ring, ring its doorbell, let time pass."""
        ring, position = self.put[doorbell]
        for word in (word for packet in packets for word in packet):
            self.memory.put(ring + position % DWORDS * 4, word)
            position += 1
        self.put[doorbell][1] = position
        self.bell(doorbell, position)
        self.link.run(run)

    @property
    def findings(self):
        return [finding.symptom for finding in self.context.diagnosis.findings]

    @property
    def steps(self):
        return self.context.diagnosis.steps


def bench(chip="gfx1100", **queue):
    """A bench that is ready for packets."""
    made = Bench(chip)
    made.start(pipes=4)
    made.queue(**queue)
    return made


def sh(name, *values, chip):
    """SET_SH_REG from a register on."""
    offset = chip.address("GC", name) - pm4.SH_REGISTERS.start
    return PACKETS["SET_SH_REG"].pack(*values, REG_OFFSET=offset)


def launch(chip, *, groups=(4, 2, 1), initiator=0x8005, threads=(64, 1, 1), code=CODE, users=2):
    """The packets of a launch, without what is before and after it."""
    base, arguments = code >> 8, ARGUMENTS
    return [
        sh("COMPUTE_PGM_LO", base & 0xFFFF_FFFF, base >> 32, chip=chip),
        sh("COMPUTE_PGM_RSRC1", 0x60AF_0001, users << 1 | 1 << 7, chip=chip),
        sh("COMPUTE_PGM_RSRC3", 0, chip=chip),
        sh("COMPUTE_RESTART_X", 0, 0, 0, chip=chip),
        sh("COMPUTE_USER_DATA_0", arguments & 0xFFFF_FFFF, arguments >> 32, chip=chip),
        sh("COMPUTE_RESOURCE_LIMITS", 0, chip=chip),
        sh("COMPUTE_START_X", 0, 0, 0, *threads, 0, 0, chip=chip),
        PACKETS["DISPATCH_DIRECT"].pack(
            DIM_X=groups[0], DIM_Y=groups[1], DIM_Z=groups[2], INITIATOR=initiator
        ),
    ]


def acquire(gcr=0xC3F1):
    """ACQUIRE_MEM of everything."""
    parts = {name: part for name, part in PACKETS["ACQUIRE_MEM"].parts.items() if part.dword == 6}
    fields = {name: gcr >> part.shift & part.mask for name, part in parts.items()}
    return PACKETS["ACQUIRE_MEM"].pack(COHER_SIZE=(1 << 64) - 1, **fields)


def fence(address=DATA, value=1, select=1, interrupt=0, context=0):
    """RELEASE_MEM with the events and cache actions of a published driver."""
    words = PACKETS["RELEASE_MEM"].pack(
        ADDR=address, DATA=value, DATA_SEL=select, INT_SEL=interrupt, INT_CTXID=context
    )
    words[1] = 0x0070_F514
    return words
