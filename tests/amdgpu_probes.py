"""What a driver needs from a card after it has booted: each function raises if it does not get it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

import numpy as np

from emulator.amdgpu.kernels.build import build
from emulator.amdgpu.kernels.cases import Array, Case, case
from tests.amdgpu_driver import (
    HEAP,
    HEAP_END,
    IH_SIZE,
    MIB,
    PAGED_VA,
    RING_SIZE,
    SMU_TABLE,
    SRAM_VA,
    VA,
    Driver,
)
from tests.amdgpu_host import SRAM_SIZE
from tests.amdgpu_queues import WAIT_REG_MEM, Compute, Sdma, halves, pm4

NOWHERE = VA + (3 << 30)
"""Nothing is mapped there."""
TRAP = 6
UTCL2_FAULT, SDMA_TRAP, SDMA_HANG, SDMA_PAGE_FAULT = 0, 49, 55, 60
"""Sources of interrupts."""


class Wrong(Exception):
    """The card did something other than requested."""


def expect(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise Wrong(f"{what}: {str(found)[:60]} instead of {str(wanted)[:60]}")


class Session:
    """A booted card with its queues.

    Attributes:
        driver: that booted it.
        compute: queue 0.
        sdma: queue 0.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.compute = Compute(driver)
        self.sdma = Sdma(driver)

    # -- what tests need often -------------------------------------------------------------------------

    def run(self, launch: Case, queue: Compute | None = None) -> dict[str, Array]:
        """Run a kernel on the card; its buffers afterwards."""
        places = self.start(launch, queue or self.compute)
        (queue or self.compute).wait()
        return self.results(launch, places)

    def start(self, launch: Case, queue: Compute) -> dict[str, int]:
        """Put a kernel and its buffers into VRAM and submit it; where the buffers are, offsets."""
        code = build(launch.source, self.driver.chip.name)
        image = queue.load(code, launch.kernel)
        places, arguments = {}, []
        for name, value in launch.arguments.items():
            if isinstance(value, np.ndarray):
                places[name] = queue.allocate(value.nbytes + 512) + 256
                self.driver.vram(places[name] - 256, b"\x5a" * 256 + value.tobytes() + b"\x5a" * 256)
                arguments.append(VA + places[name])
            else:
                arguments.append(value)
        queue.launch(code.kernels[launch.kernel], image, arguments, launch.groups, launch.threads)
        return places

    def results(self, launch: Case, places: Mapping[str, int]) -> dict[str, Array]:
        """The buffers as they are now. Raises Wrong if something else was written."""
        found = {}
        for name, before in launch.buffers.items():
            data = self.driver.vram_read(places[name] - 256, before.nbytes + 512)
            if data[:256] + data[-256:] != b"\x5a" * 512:
                raise Wrong(f"{launch.kernel} wrote outside of {name}")
            found[name] = np.frombuffer(data[256:-256], before.dtype).reshape(before.shape)
        return found

    def copy(self, source: int, target: int, size: int) -> None:
        """A copy by SDMA, virtual addresses, waited for."""
        self.sdma.run(self.sdma.copy(source, target, size))
        self.sdma.wait()

    def interrupts(self) -> list[tuple[int, int]]:
        """Client and source of the entries since last time."""
        return [(entry[0] & 0xFF, entry[0] >> 8 & 0xFF) for entry in self.driver.interrupt_entries()]


def upload(session: Session) -> None:
    """The bridge's SRAM to VRAM by SDMA."""
    host = session.driver.host
    host.sram[:4096] = bytes(range(256)) * 16
    session.copy(SRAM_VA, VA + HEAP, 4096)
    expect(session.driver.vram_read(HEAP, 4096), bytes(host.sram[:4096]), "a copy from the bridge's SRAM")


def kernel(session: Session) -> None:
    """Kernels compute, with other code and other arguments at the same addresses each time."""
    for name in ("add", "histogram", "sort", "alu", "scan", "add"):
        launch = case(name)
        session.compute.free()
        expect(launch.mismatches(session.run(launch)), 0, f"wrong elements of what {name} computes")
    session.driver.sleep(1e-3)
    queue = session.compute
    reported = session.driver.word(queue.base + 0x9080)
    expect(reported, queue.put % (RING_SIZE // 4), "the read pointer in memory")
    expect(session.interrupts(), [], "interrupts (client, source) that were not requested")


def two_queues(session: Session) -> None:
    """A queue that waits does not keep another one of its pipe from working."""
    driver, waiting, flag = session.driver, session.compute, HEAP_END - 4096
    driver.vram(flag, bytes(4))
    driver.flush_hdp()
    waiting.free()
    waiting.submit(pm4(WAIT_REG_MEM, 0x13, *halves(VA + flag), 1, 0xFFFF_FFFF, 4), 4)
    first = case("scan")
    places = session.start(first, waiting)
    other, second = Compute(driver, 1, HEAP + 8 * MIB), case("add")
    expect(second.mismatches(session.run(second, other)), 0, "wrong elements from the second queue")
    other.dequeue()
    expect(driver.word(waiting.signal), waiting.value - 1, "the signal of the queue that waits")
    driver.vram(flag, struct.pack("<I", 1))
    driver.flush_hdp()
    waiting.wait()
    expect(first.mismatches(session.results(first, places)), 0, "wrong elements from the queue that waited")


def hand_over(session: Session) -> None:
    """Data through BAR 0, and the word that it is there through the bridge's memory, as a stream does."""
    driver, sdma = session.driver, session.sdma
    flag, old, new = SRAM_SIZE - 64, b"old " * 64, b"new " * 64
    driver.vram(HEAP, old)
    driver.host.sram[flag : flag + 4] = bytes(4)
    driver.flush_hdp()
    driver.sleep(20e-6)
    sdma.run(sdma.poll(SRAM_VA + flag, 1), sdma.copy(VA + HEAP, VA + HEAP + MIB, 256))
    driver.sleep(100e-6)
    driver.vram(HEAP, new)
    driver.flush_hdp()
    driver.host.sram[flag : flag + 4] = struct.pack("<I", 1)
    sdma.wait()
    expect(driver.vram_read(HEAP + MIB, 256), new, "a copy of what was written just before")


def remap(session: Session) -> None:
    """A page is mapped elsewhere between two copies."""
    driver = session.driver
    for number, letter in enumerate(b"ab"):
        driver.vram(HEAP + number * 4096, bytes([letter]) * 4096)
    driver.flush_hdp()
    for number, letter in enumerate(b"ab"):
        page = driver.remap(7, HEAP + number * 4096, hubs=["GC"])
        session.copy(page, VA + HEAP + MIB, 4096)
        expect(driver.vram_read(HEAP + MIB, 4), bytes([letter]) * 4, "a copy after a page was remapped")


def remap_for_smu(session: Session) -> None:
    """The same for the MM hub: the SMU's table moves, its virtual address does not."""
    driver = session.driver
    page = PAGED_VA + 9 * 4096
    try:
        for place in (HEAP, HEAP + 4096):
            driver.vram(place, bytes(4096))
            driver.remap(9, place, hubs=["MMHUB"])
            driver.smu("SetDriverDramAddrHigh", page >> 32)
            driver.smu("SetDriverDramAddrLow", page & 0xFFFF_FFFF)
            driver.smu("TransferTableSmu2Dram", 5)
            if not any(driver.vram_read(place, 4096)):
                raise Wrong("the SMU's table is not where its page is mapped")
    finally:
        address = driver.fb_base + SMU_TABLE
        driver.smu("SetDriverDramAddrHigh", address >> 32)
        driver.smu("SetDriverDramAddrLow", address & 0xFFFF_FFFF)


def metrics(session: Session) -> None:
    """Power and temperature, and clocks as requested."""
    driver = session.driver
    table = driver.metrics()
    if not (5 < table["AverageSocketPower"] < 400 and 20 < table["temperature"] < 110):
        raise Wrong(f"{table['AverageSocketPower']} W at {table['temperature']} degrees")
    expect(table["AverageGfxclkFrequencyPreDs"], driver.levels["GFXCLK"][-1], "the shader clock in MHz")


def trap(session: Session) -> None:
    """SDMA interrupts, from an indirect buffer."""
    driver, sdma = session.driver, session.sdma
    driver.vram(HEAP, struct.pack("<8I", TRAP, 0x123, *[0] * 6))
    driver.flush_hdp()
    session.interrupts()
    sdma.run([4, *halves(VA + HEAP), 8, 0, 0])
    sdma.wait()
    expect([source for _, source in session.interrupts()], [SDMA_TRAP], "interrupts of a TRAP")


def overflow(session: Session) -> None:
    """More interrupts than the ring holds are noticed: bit 0 of the write pointer."""
    driver, sdma = session.driver, session.sdma
    session.interrupts()
    for _ in range(4):
        sdma.run(*[[TRAP, 1]] * (IH_SIZE // 128))
        sdma.wait()
    sdma.run([TRAP, 2])
    sdma.wait()
    expect(driver.read("OSSSYS", "IH_RB_WPTR") & 1, 1, "the overflow bit of IH_RB_WPTR")
    driver.set("OSSSYS", "IH_RB_CNTL", WPTR_OVERFLOW_CLEAR=0)
    driver.set("OSSSYS", "IH_RB_CNTL", WPTR_OVERFLOW_CLEAR=1)
    session.interrupts()


def divert(session: Session) -> None:
    """An interrupt goes to ring 1 if it is diverted there."""
    driver, sdma = session.driver, session.sdma
    driver.write("OSSSYS", "IH_RING1_CLIENT_CFG_INDEX", 0)
    client = driver.chip.register("OSSSYS", "IH_RING1_CLIENT_CFG_DATA").pack(CLIENT_ID=0x0A)
    driver.write("OSSSYS", "IH_RING1_CLIENT_CFG_DATA", client)
    before = driver.read("OSSSYS", "IH_RB_WPTR_RING1")
    sdma.run([TRAP, 3])
    sdma.wait()
    driver.write("OSSSYS", "IH_RING1_CLIENT_CFG_DATA", 0)
    expect(driver.read("OSSSYS", "IH_RB_WPTR_RING1"), before + 32, "the write pointer of interrupt ring 1")


def page_fault(session: Session) -> None:
    """A copy from an unmapped address is reported by the hub, and continues with the dummy page."""
    session.interrupts()
    sdma = session.sdma
    sdma.run(sdma.copy(NOWHERE, VA + HEAP, 256))
    session.driver.sleep(1e-3)
    sources = {source for _, source in session.interrupts()}
    if UTCL2_FAULT not in sources:
        raise Wrong(f"interrupts of a page fault: {sources}")


def sdma_fault(session: Session) -> None:
    """Without the dummy page SDMA stops and reports it; enabled again, it works."""
    driver = session.driver
    kinds = ("RANGE", "PDE0", "PDE1", "PDE2", "VALID")
    control = "GCVM_L2_PROTECTION_FAULT_CNTL"
    driver.set("GC", control, **{f"{kind}_PROTECTION_FAULT_ENABLE_DEFAULT": 0 for kind in kinds})
    try:
        session.interrupts()
        session.sdma.run(session.sdma.copy(NOWHERE, VA + HEAP, 256))
        driver.sleep(1e-3)
        sources = {source for _, source in session.interrupts()}
        if SDMA_PAGE_FAULT not in sources:
            raise Wrong(f"interrupts of SDMA's page fault: {sources}")
        driver.set("GC", control, CLEAR_PROTECTION_FAULT_STATUS_ADDR=1)
    finally:
        driver.set("GC", control, **{f"{kind}_PROTECTION_FAULT_ENABLE_DEFAULT": 1 for kind in kinds})
    driver.write("GC", "SDMA0_QUEUE0_RB_CNTL", 0)
    session.sdma = Sdma(driver)
    upload(session)


def hang(session: Session) -> None:
    """An SDMA queue that waits without end is reported after 10 s. The engine needs a reset afterwards."""
    session.interrupts()
    sdma = session.sdma
    sdma.run(sdma.poll(VA + HEAP, 0x1234_5678))
    session.driver.sleep(11)
    sources = {source for _, source in session.interrupts()}
    if SDMA_HANG not in sources:
        raise Wrong(f"interrupts of a queue that hangs: {sources}")


PROBES: tuple[Callable[[Session], None], ...] = (
    upload, kernel, two_queues, hand_over, remap, metrics, remap_for_smu, trap, overflow, divert, page_fault,
    sdma_fault, hang,
)  # fmt: skip
