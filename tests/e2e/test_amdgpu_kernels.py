"""Kernels on the whole card: through page tables, queues and caches, right ones and wrong ones."""

import struct

import numpy as np
import pytest

from emulator.amdgpu import capture
from emulator.amdgpu.card import AmdCard
from emulator.amdgpu.kernels.build import build
from emulator.amdgpu.kernels.cases import CASES, case
from emulator.core.clock import clocks
from tests.amdgpu_driver import HEAP, MIB, PAGED_VA, PRESENT, SRAM_VA, VA, Driver
from tests.amdgpu_host import SRAM_SIZE, Host, TimeOut
from tests.amdgpu_probes import NOWHERE, UTCL2_FAULT, Session
from tests.amdgpu_queues import Compute, Sdma
from tests.chips import EVERY, GENERATIONS

QUICK = ("add", "scan")
SQ_INTERRUPT = 239
PAGE = 7
"""Of PAGED_VA, for tests of mappings."""


pytestmark = pytest.mark.usefixtures("quiet_card")


def booted(chip: str, skip: tuple[str, ...] = ()) -> tuple[AmdCard, Session]:
    card = AmdCard(chip, 256 * MIB)
    driver = Driver(Host(card), card.chip, skip)
    driver.boot()
    return card, Session(driver)


@pytest.fixture(scope="module", params=EVERY)
def shared(request) -> tuple[AmdCard, Session]:
    """A card for tests that leave it as it was."""
    return booted(request.param)


@pytest.fixture(params=GENERATIONS)
def fresh(request) -> tuple[AmdCard, Session]:
    """A card to break."""
    return booted(request.param)


def found(card: AmdCard) -> str:
    return "\n".join(finding.symptom for finding in card.diagnosis.findings)


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CASES]
)
def test_kernel_on_the_card(name, shared):
    card, session = shared
    launch = case(name)
    session.compute.free()
    assert launch.mismatches(session.run(launch)) == 0
    assert card.diagnosis.findings == []


@pytest.mark.slow
def test_one_kernel_after_the_other_without_waiting(shared):
    """Launches in one queue, four at a time, are done in order, each seeing what the one before wrote."""
    card, session = shared
    queue, rounds = session.compute, 8
    queue.free()
    launch = case("alu", rounds=1)
    kernel = build("integer", card.chip.name).kernels["alu"]
    image = queue.load(build("integer", card.chip.name), "alu")
    values = queue.allocate(launch.buffers["values"].nbytes)
    session.driver.vram(values, launch.buffers["values"].tobytes())
    for _ in range(rounds):
        queue.launch(kernel, image, [VA + values, 1], launch.groups, launch.threads)
        if queue.value % 4 == 0:
            queue.wait()
    queue.wait()
    want = launch.buffers["values"]
    for _ in range(rounds):
        a = want * np.uint32(1664525) + np.uint32(1013904223)
        b = (~want << np.uint32(5)) + (~want ^ a >> np.uint32(7))
        a = a ^ a << np.uint32(13)
        want = a ^ (b + (a & np.uint32(0x0F0F0F0F)))
    got = np.frombuffer(session.driver.vram_read(values, want.nbytes), np.uint32)
    assert (got == want).all()
    assert card.diagnosis.findings == []


@pytest.mark.slow
def test_a_drivers_dispatches_are_captured(fresh):
    card, session = fresh
    captures = []
    launch = case("add")
    session.run(launch)
    card.scoreboard.names[card.scoreboard.records[-1].dispatch.code] = "add"
    session.compute.free()
    card.capture(captures.append)
    assert launch.mismatches(session.run(launch)) == 0
    card.capture(None)
    session.run(launch)
    (kept,) = captures
    assert (kept.chip, kept.kernel) == (card.chip.name, "add")
    again = capture.replay(capture.unpack(capture.pack(kept)))
    assert again.outcome.written > 0
    assert again.differences == ()


@pytest.mark.slow
def test_two_queues_and_sdma_at_once(fresh):
    """Three engines' work overlaps in time, and its results are right."""
    card, session = fresh
    driver, sdma = session.driver, session.sdma
    second = Compute(driver, 1, HEAP + 8 * MIB)
    launches = {session.compute: case("scan", blocks=64), second: case("alu", rounds=400)}
    random = np.random.default_rng(7).bytes(SRAM_SIZE // 2)
    driver.host.sram[: len(random)] = random
    target = HEAP + 16 * MIB
    done: dict[str, int] = {}

    def alone(start) -> int:
        began = driver.host.clock.now
        start()
        return driver.host.clock.now - began

    for queue, launch in launches.items():  # code is translated, and times are known
        done[launch.kernel] = alone(lambda queue=queue, launch=launch: session.run(launch, queue))
        queue.free()
    done["copy"] = alone(lambda: session.copy(SRAM_VA, VA + target, len(random)))
    driver.vram(target, bytes(len(random)))

    began = driver.host.clock.now
    sdma.run(sdma.copy(SRAM_VA, VA + target, len(random)))
    places = [session.start(launch, queue) for queue, launch in launches.items()]
    for queue in (session.compute, second, sdma):
        queue.wait()
    together = driver.host.clock.now - began
    for launch, place in zip(launches.values(), places, strict=True):
        assert launch.mismatches(session.results(launch, place)) == 0
    assert driver.vram_read(target, len(random)) == random
    assert together < sum(done.values())
    assert card.diagnosis.findings == []


# -- mappings -----------------------------------------------------------------------------------------------


def store(session: Session, address: int, value: int = 0x600D) -> None:
    """A kernel that writes 32 dwords; not waited for."""
    code = build("misuse", session.driver.chip.name)
    session.compute.free()
    image = session.compute.load(code, "store")
    session.compute.launch(code.kernels["store"], image, [address, value], (1, 1, 1), (32, 1, 1))


STORED = struct.pack("<I", 0x600D) * 32


def test_kernel_writes_through_a_new_mapping(shared):
    card, session = shared
    driver = session.driver
    for place in (HEAP + 12 * MIB, HEAP + 12 * MIB + 4096):
        driver.vram(place, bytes(128))
        page = driver.remap(PAGE, place)
        store(session, page)
        session.compute.wait()
        assert driver.vram_read(place, 128) == STORED
    assert card.diagnosis.findings == []


def test_kernel_writes_to_the_bridge(shared):
    _, session = shared
    session.driver.host.sram[1024:1152] = bytes(128)
    store(session, SRAM_VA + 1024)
    session.compute.wait()
    assert session.driver.host.sram[1024:1152] == STORED


def test_kernel_uses_an_old_mapping_until_it_is_invalidated(fresh):
    card, session = fresh
    driver = session.driver
    old, new = HEAP + 12 * MIB, HEAP + 13 * MIB
    page = driver.remap(PAGE, old)
    store(session, page)
    session.compute.wait()
    driver.vram(old, bytes(128))
    driver.remap(PAGE, new, hubs=())
    store(session, page)
    session.compute.wait()
    assert driver.vram_read(old, 128) == STORED
    assert driver.vram_read(new, 128) != STORED
    assert card.diagnosis.steps == {"gc-invalidate"}


def fault_status(driver: Driver) -> int:
    return driver.read("GC", "GCVM_L2_PROTECTION_FAULT_STATUS" + "_LO32" * (driver.chip.generation == 12))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (0, "not valid"),
        (PRESENT | 0x20, "does not allow"),  # readable only
        (PRESENT | 0x70 | 1 << 47, "there is no|no such|outside|end of|beyond|VRAM"),  # far outside of VRAM
    ],
    ids=["nothing", "read-only", "nowhere"],
)
def test_wrong_page_table_entry(fresh, entry, reason):
    card, session = fresh
    driver = session.driver
    leaf = 1 << 63 if driver.chip.generation == 12 and entry else 0
    driver.entries(driver.single + 8 * PAGE, [entry | leaf | (HEAP if entry and not entry >> 47 else 0)])
    driver.flush_hdp()
    driver.invalidate("GC")
    driver.vram(HEAP, bytes(128))
    session.interrupts()
    store(session, PAGED_VA + PAGE * 4096)
    driver.sleep(5e-3)
    assert UTCL2_FAULT in {source for _, source in session.interrupts()}
    status = fault_status(driver)
    assert status, "the first fault is in the status register"
    number = driver.read("GC", "GCVM_L2_PROTECTION_FAULT_ADDR_LO32")
    number |= driver.read("GC", "GCVM_L2_PROTECTION_FAULT_ADDR_HI32") << 32
    assert number == PAGED_VA + PAGE * 4096 >> 12
    assert any(word in found(card) for word in reason.split("|"))
    assert driver.vram_read(HEAP, 128) == bytes(128)
    driver.set("GC", "GCVM_L2_PROTECTION_FAULT_CNTL", CLEAR_PROTECTION_FAULT_STATUS_ADDR=1)
    assert fault_status(driver) == 0


def test_doorbell_pushes_arguments_out_of_the_hdp(shared):
    """No flush by the host: the packets and arguments of a launch are written just before the doorbell."""
    card, session = shared
    session.driver.vram(HEAP + 12 * MIB, bytes(128))
    store(session, VA + HEAP + 12 * MIB)
    session.compute.wait()
    assert session.driver.vram_read(HEAP + 12 * MIB, 128) == STORED
    assert "hdp-flush" not in card.diagnosis.steps


# -- waves that fault ---------------------------------------------------------------------------------------


def recovered(session: Session) -> bool:
    """Remove the queue and make it again, as after a hang; whether it works then."""
    session.compute.dequeue()
    session.compute = Compute(session.driver)
    launch = case("add")
    return launch.mismatches(session.run(launch)) == 0


def no_dummy_page(driver: Driver) -> None:
    kinds = ("RANGE", "PDE0", "PDE1", "PDE2", "VALID")
    fields = {f"{kind}_PROTECTION_FAULT_ENABLE_DEFAULT": 0 for kind in kinds}
    driver.set("GC", "GCVM_L2_PROTECTION_FAULT_CNTL", **fields)


def test_faulting_kernel_hangs_its_queue_until_that_is_reset(fresh):
    card, session = fresh
    no_dummy_page(session.driver)
    session.interrupts()
    store(session, NOWHERE)
    with pytest.raises(TimeOut):
        session.compute.wait()
    assert {UTCL2_FAULT, SQ_INTERRUPT} <= {source for _, source in session.interrupts()}
    assert "global_store" in found(card)
    assert recovered(session)


def test_faulting_kernel_does_not_disturb_sdma(fresh):
    _, session = fresh
    no_dummy_page(session.driver)
    store(session, NOWHERE)
    session.driver.sleep(1e-3)
    session.driver.vram(HEAP, b"copied" * 10)
    session.driver.flush_hdp()
    session.copy(VA + HEAP, VA + HEAP + MIB, 60)
    assert session.driver.vram_read(HEAP + MIB, 60) == b"copied" * 10


def test_unknown_instruction_is_named(fresh):
    card, session = fresh
    code = build("misuse", card.chip.name)
    session.driver.vram(HEAP + 12 * MIB, bytes(128))
    image = session.compute.load(code, "unknown_instruction")
    kernel = code.kernels["unknown_instruction"]
    session.interrupts()
    session.compute.launch(kernel, image, [VA + HEAP + 12 * MIB], (1, 1, 1), (32, 1, 1))
    with pytest.raises(TimeOut):
        session.compute.wait()
    assert "v_interp_p10_f32" in found(card)
    assert SQ_INTERRUPT in {source for _, source in session.interrupts()}
    assert session.driver.vram_read(HEAP + 12 * MIB, 128) == bytes(128)
    assert recovered(session)


def test_missing_lds_size_is_noticed(fresh):
    """The loader forgets to put LDS_SIZE into RSRC2."""
    card, session = fresh
    code = build("integer", card.chip.name)
    kernel = code.kernels["scan"]
    launch = case("scan")
    session.compute.free()
    places = session.start(launch, session.compute)
    session.compute.wait()
    assert launch.mismatches(session.results(launch, places)) == 0
    forgetful = type(kernel)(
        *(getattr(kernel, name) & ~(0x1FF << 15) if name == "rsrc2" else getattr(kernel, name)
          for name in kernel.__slots__)
    )  # fmt: skip
    image = session.compute.load(code, "scan")
    arguments = [VA + places["input"], VA + places["output"]]
    session.driver.vram(places["output"], bytes(launch.buffers["output"].nbytes))
    session.compute.launch(forgetful, image, arguments, launch.groups, launch.threads)
    session.compute.wait()
    assert launch.mismatches(session.results(launch, places)) > 0
    assert "LDS" in found(card)


@pytest.mark.slow
def test_endless_kernel_hangs_its_queue_until_that_is_reset(fresh):
    card, session = fresh
    code = build("misuse", card.chip.name)
    flag = session.compute.allocate(4)
    session.driver.vram(flag, bytes(4))
    image = session.compute.load(code, "spin")
    session.compute.launch(code.kernels["spin"], image, [VA + flag], (1, 1, 1), (32, 1, 1))
    with pytest.raises(TimeOut):
        session.compute.wait(30)  # of virtual time: as long as the model lets a wave run, and more
    assert "watchdog" in found(card)
    assert "did not end" in found(card)
    assert recovered(session)


def test_wrong_packets_stop_the_queue_and_are_named(fresh):
    card, session = fresh
    session.interrupts()
    session.compute.submit([0xC000_0000 | 0xEE << 8, 0], 4)
    session.compute.value += 1
    with pytest.raises(TimeOut):
        session.compute.wait(0.01)
    assert "0xee" in found(card).lower()
    assert session.interrupts()
    assert recovered(session)


def test_wrong_sdma_packet_stops_the_engine_until_it_is_reset(fresh):
    card, session = fresh
    session.sdma.run([0xFF])
    with pytest.raises(TimeOut):
        session.sdma.wait(0.01)
    assert "0x000000ff" in found(card)
    driver = session.driver
    driver.write("GC", "SDMA0_QUEUE0_RB_CNTL", 0)
    driver.set("GC", "GRBM_SOFT_RESET", SOFT_RESET_SDMA0=1)
    driver.sleep(10e-3)
    driver.set("GC", "GRBM_SOFT_RESET", SOFT_RESET_SDMA0=0)
    driver.sdma_engine()
    session.sdma = Sdma(driver)
    driver.vram(HEAP, b"alive")
    driver.flush_hdp()
    session.copy(VA + HEAP, VA + HEAP + MIB, 8)
    assert driver.vram_read(HEAP + MIB, 5) == b"alive"


@pytest.mark.slow
def test_power_and_temperature_follow_the_load(fresh):
    _, session = fresh
    driver = session.driver
    idle = driver.metrics()
    launch = case("alu", items=1 << 13, rounds=2000)
    session.run(launch)
    busy = driver.metrics()
    assert busy["AverageSocketPower"] > idle["AverageSocketPower"]
    driver.host.sleep(clocks(60))
    driver.metrics()
    driver.host.sleep(clocks(1))
    assert driver.metrics()["AverageSocketPower"] < busy["AverageSocketPower"]
