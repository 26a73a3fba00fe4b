"""Security processor and RLC, driven correctly and wrongly."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.amdgpu import firmware_files, psp, rlc, synthetic
from emulator.amdgpu.psp import COMPONENTS, Psp, needed
from emulator.amdgpu.rlc import REQUIRED, Rlc
from emulator.amdgpu.seams import Extent
from emulator.core.clock import clocks
from sdk.settings import FIRMWARE
from tests.unit import amdgpu_bench as bench
from usbgpu.amd.facts import psp as facts
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.amd.facts.psp import COMMANDS, CONTROL, FW_TYPES, STATUS

BOTH = pytest.mark.parametrize("chip", CHIPS)
MSG1, RING, COMMAND, FENCE, TMR = 0x10_0000, 0x1_0000, 0x2_0000, 0x3_0000, 0x200_0000
BLOBS = {name: firmware_files.blobs(chip, synthetic.directory(chip)) for name, chip in CHIPS.items()}
PASSES = clocks(50e-3)


class Bench(bench.Noticed):
    """A PSP and an RLC in VRAM that is mapped flat, and the driver's side of both."""

    def __init__(self, chip: str) -> None:
        self.context, self.link = bench.context(chip)
        self.chip = self.context.chip
        self.rlc = Rlc(self.context)
        self.resets = 0
        memory = bench.FlatMemory(self.context.vram)
        self.psp = Psp(self.context, memory, self.rlc.autoload, self._reset)
        self.prefix = facts.PREFIXES[self.chip.versions["MP"][0]]
        self.blobs = dict(BLOBS[chip])
        self.fence = 0
        self.order = needed(self.chip)

    def _reset(self) -> None:
        self.resets += 1

    def write(self, number: int, value: int) -> None:
        bench.write(self.context, "MP", f"{self.prefix}_SMN_C2PMSG_{number}", value)

    def read(self, number: int) -> int:
        return bench.read(self.context, "MP", f"{self.prefix}_SMN_C2PMSG_{number}")

    def wait(self) -> None:
        self.link.run(PASSES)

    def component(self, name: str, blob: bytes | None = None, address: int | None = MSG1) -> None:
        self.context.vram.write(address or 0, self.blobs[name] if blob is None else blob)
        if address is not None:
            self.write(36, address >> 20)
        self.write(35, facts.BOOTLOADER[name])
        self.wait()

    def boot(self, without: Collection[str] = ()) -> None:
        for name in self.order:
            if name not in without:
                self.component(name)

    def ring(self, address: int = RING, size: int = 0x1_0000) -> None:
        self.write(69, address & 0xFFFF_FFFF)
        self.write(70, address >> 32)
        self.write(71, size)
        self.write(64, CONTROL["INIT_GPCOM_RING"])
        self.wait()

    def queue(self, command: bytes, number: int, *, buffer: int = COMMAND, fence: int = FENCE) -> None:
        """Put a frame into the ring; nothing is started."""
        data = facts.COMMAND_BUFFER.pack(cmd_id=number)
        self.context.vram.write(buffer, data[:28] + command + data[28 + len(command) :])
        self.fence += 1
        frame = {"cmd_buf_addr_lo": buffer, "fence_addr_lo": fence, "fence_value": self.fence}
        self.context.vram.write(RING + self.read(67) * 4, facts.FRAME.pack(**frame))

    def submit(
        self, command: bytes, number: int, *, buffer: int = COMMAND, fence: int = FENCE
    ) -> dict[str, int]:
        self.queue(command, number, buffer=buffer, fence=fence)
        self.write(67, (self.read(67) + 16) % 0x4000)
        self.wait()
        return self.response()

    def response(self) -> dict[str, int]:
        return facts.RESPONSE.unpack(
            self.context.vram.read(COMMAND + facts.COMMAND_BUFFER.offset("resp"), 96)
        )

    def fence_value(self) -> int:
        return int.from_bytes(self.context.vram.read(FENCE, 4), "little")

    def toc(self) -> dict[str, int]:
        self.context.vram.write(MSG1, self.blobs["TOC"])
        command = {"toc_phy_addr_lo": MSG1, "toc_size": len(self.blobs["TOC"])}
        return self.submit(facts.LOAD_TOC.pack(**command), COMMANDS["LOAD_TOC"])

    def tmr(self, address: int = TMR, size: int = facts.TMR_MAXIMUM) -> dict[str, int]:
        command = {"buf_phy_addr_lo": address, "buf_size": size, "tmr_flags": 2}
        return self.submit(facts.SETUP_TMR.pack(**command), COMMANDS["SETUP_TMR"])

    def firmware(self, name: str, blob: bytes | None = None, size: int | None = None) -> dict[str, int]:
        data = self.blobs[name.replace("_P0_", "_").replace("_P3_", "_")] if blob is None else blob
        self.context.vram.write(MSG1, data)
        command = {
            "fw_phy_addr_lo": MSG1,
            "fw_size": len(data) if size is None else size,
            "fw_type": FW_TYPES[name],
        }
        return self.submit(facts.LOAD_IP_FW.pack(**command), COMMANDS["LOAD_IP_FW"])

    def autoload(self, without: Collection[str] = ()) -> None:
        """All that comes after `boot`."""
        self.ring()
        if "TOC" not in without:
            self.toc()
        self.firmware("SMU")
        if "TMR" not in without and self.chip.generation == 11:
            self.tmr()
        for name in REQUIRED[self.chip.generation]:
            if name != "SMU" and name not in without:
                self.firmware(name)
        self.submit(b"", COMMANDS["AUTOLOAD_RLC"])

    def complete(self) -> bool:
        status = bench.read(self.context, "GC", "RLC_RLCS_BOOTLOAD_STATUS")
        return bool(status >> 31) and bench.read(self.context, "GC", "CP_STAT") == 0


# -- as expected ----------------------------------------------------------------------------------------


@BOTH
def test_a_boot_ends_with_engines_that_run(chip: str) -> None:
    card = Bench(chip)
    assert (card.read(81), card.read(35)) == (0, facts.READY)
    card.boot()
    assert card.read(81) != 0
    assert card.read(64) == facts.READY
    assert not card.rlc.running("mec")
    card.autoload()
    assert card.complete()
    assert card.findings == ""
    assert all(card.rlc.running(engine) for engine in ("imu", "rlc", "sdma", "mec"))
    assert card.rlc.running("pfp") == card.rlc.running("me") == (card.chip.generation == 12)
    assert card.psp.loaded("RS64_MEC_P0_STACK")
    assert not card.psp.loaded("RS64_MEC_P3_STACK")
    assert card.fence_value() == card.fence
    assert card.rlc.require("mec", "nothing")
    assert card.findings == ""


@BOTH
def test_the_bootloader_says_when_it_is_ready(chip: str) -> None:
    card = Bench(chip)
    card.context.vram.write(MSG1, card.blobs["KDB"])
    card.write(36, MSG1 >> 20)
    card.write(35, facts.BOOTLOADER["KDB"])
    assert card.read(35) == facts.BOOTLOADER["KDB"]
    card.link.run(clocks(100e-6))
    assert not card.read(35) & facts.READY
    card.wait()
    assert card.read(35) == facts.READY


@BOTH
def test_the_published_firmware_boots(chip: str) -> None:
    folder = Path(FIRMWARE.value() or FIRMWARE.default)
    files = firmware_files.installed(CHIPS[chip], folder)
    if files is None:
        pytest.skip(f"no {chip} firmware in {folder} (Debian: firmware-amd-graphics; TOWLINE_FIRMWARE)")
    card = Bench(chip)
    card.blobs = firmware_files.blobs(CHIPS[chip], files)
    card.boot()
    card.autoload()
    assert card.complete()
    assert card.findings == ""


def test_the_key_manager_may_be_loaded_before_the_sos() -> None:
    card = Bench("gfx1201")
    card.boot(without={"SOS"})
    card.component("IPKEYMGR_DRV")
    card.component("SOS")
    assert card.psp.alive
    assert card.findings == ""
    early = Bench("gfx1201")
    early.component("IPKEYMGR_DRV")
    assert early.steps == {"psp-kdb"}


def test_gfx11_takes_the_key_database_twice() -> None:
    card = Bench("gfx1100")
    card.component("KDB")
    card.component("SPL", card.blobs["KDB"])
    card.component("SYS_DRV")
    card.component("SOS")
    assert card.psp.alive
    assert card.findings == ""


def test_the_ring_wraps() -> None:
    card = Bench("gfx1100")
    card.boot()
    card.ring(size=0x100)  # four frames
    for count in range(1, 10):
        card.queue(facts.LOAD_TOC.pack(), COMMANDS["DESTROY_TMR"])
        card.write(67, (card.read(67) + 16) % 0x40)
        card.wait()
        assert card.fence_value() == count
    assert card.findings == ""


def test_commands_queue_up() -> None:
    card = Bench("gfx1100")
    card.boot()
    card.ring()
    for frame in range(3):
        data = facts.COMMAND_BUFFER.pack(cmd_id=COMMANDS["DESTROY_TMR"])
        card.context.vram.write(COMMAND + frame * 0x1000, data)
        entry = {
            "cmd_buf_addr_lo": COMMAND + frame * 0x1000,
            "fence_addr_lo": FENCE + 4 * frame,
            "fence_value": 7,
        }
        card.context.vram.write(RING + 64 * frame, facts.FRAME.pack(**entry))
    card.write(67, 48)
    card.wait()
    assert card.context.vram.read(FENCE, 12) == b"\7\0\0\0" * 3


@BOTH
def test_load_toc_returns_the_size_of_the_tmr(chip: str) -> None:
    # what kernel logs say of an RX 7900 XTX, whose table of contents ends where the synthetic one does
    card = Bench(chip)
    card.boot()
    card.ring()
    assert card.toc()["tmr_size"] == 0x130_0000


def test_a_ring_is_destroyed_and_made_again() -> None:
    card = Bench("gfx1201")
    card.boot()
    card.ring()
    card.write(64, CONTROL["DESTROY_RINGS"])
    assert not card.read(64) & facts.READY
    card.wait()
    assert card.read(64) == facts.READY | CONTROL["DESTROY_RINGS"]
    assert card.read(71) == 0
    card.ring()
    assert card.read(64) & 0x8000_FFFF == facts.READY
    assert card.toc()["status"] == 0
    assert card.fence_value() == card.fence
    card.write(64, CONTROL["DESTROY_RINGS"])
    card.wait()
    card.ring()  # starts at its first frame again
    assert card.toc()["status"] == 0
    assert card.fence_value() == card.fence
    card.write(64, CONTROL["MODE1_RST"])
    card.wait()
    assert card.resets == 1


# -- steps left out --------------------------------------------------------------------------------------


def _key(name: str) -> str:
    return f"psp-{name.lower().replace('_', '-')}"


@pytest.mark.parametrize(("chip", "name"), [(chip, name) for chip in CHIPS for name in needed(CHIPS[chip])])
def test_a_component_left_out_is_noticed(chip: str, name: str) -> None:
    card = Bench(chip)
    card.boot(without={name})
    if name == "SOS":
        card.ring()
    assert card.read(81) == 0
    assert card.steps == {_key(name)}
    assert "boot step psp-" in card.findings


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chip", "name"), [(chip, name) for chip in CHIPS for name in REQUIRED[CHIPS[chip].generation]]
)
def test_firmware_left_out_is_noticed(chip: str, name: str) -> None:
    card = Bench(chip)
    card.boot()
    card.ring()
    card.toc()
    if card.chip.generation == 11:
        card.tmr()
    for other in REQUIRED[card.chip.generation]:
        if other != name:
            card.firmware(other)
    card.submit(b"", COMMANDS["AUTOLOAD_RLC"])
    assert card.steps == {rlc.firmware_step(name)}
    assert not card.complete()
    assert bench.read(card.context, "GC", "CP_STAT") != 0
    assert not card.rlc.require("mec", "the MEC does not start")
    assert not card.rlc.running("sdma")


def test_other_steps_left_out_are_noticed() -> None:
    def case(step: str, chip: str, action: Callable[[Bench], object]) -> None:
        card = Bench(chip)
        action(card)
        assert card.steps == {step}, card.findings

    def ring(card: Bench) -> None:
        card.boot()
        card.queue(b"", COMMANDS["LOAD_TOC"])
        card.write(67, 16)
        card.wait()
        assert card.fence_value() == 0

    def toc(card: Bench) -> None:
        card.boot()
        card.autoload(without={"TOC", "TMR", *REQUIRED[card.chip.generation][2:]})
        assert card.psp.loaded("SMU")
        assert not card.psp.loaded("IMU_I")

    def tmr(card: Bench) -> None:
        card.boot()
        card.ring()
        card.toc()
        assert card.firmware("IMU_I")["status"] == STATUS["BAD_STATE"]

    def tmr_without_toc(card: Bench) -> None:
        card.boot()
        card.ring()
        assert card.tmr()["status"] == STATUS["BAD_STATE"]

    def autoload(card: Bench) -> None:
        card.boot()
        assert not card.rlc.require("sdma", "SDMA does not move")

    case("psp-ring", "gfx1201", ring)
    case("psp-toc", "gfx1100", tmr_without_toc)
    case("psp-tmr", "gfx1100", tmr)
    case("rlc-autoload", "gfx1100", autoload)
    case("psp-msg1", "gfx1100", lambda card: card.component("KDB", address=None))
    card = Bench("gfx1201")
    toc(card)
    assert "psp-toc" in card.steps


def test_every_step_has_a_key_of_its_own() -> None:
    keys = [step.key for step in psp.STEPS + rlc.STEPS]
    assert len(keys) == len(set(keys))
    assert {_key(name) for name in COMPONENTS[14]} | {"psp-ring", "psp-toc", "psp-tmr", "psp-msg1"} == {
        step.key for step in psp.STEPS
    }


# -- mistakes --------------------------------------------------------------------------------------------


@BOTH
def test_a_refused_component_leaves_the_bootloader_as_each_version_does(chip: str) -> None:
    card = Bench(chip)
    card.component("SYS_DRV")
    assert card.read(35) & facts.READY == (facts.READY if card.chip.generation == 12 else 0)
    assert (card.read(35) & 0xFF != 0) == (card.chip.generation == 12)
    card.boot()
    assert card.psp.alive == (card.chip.generation == 12)  # which takes another command


@pytest.mark.parametrize(
    ("blob", "why"),
    [
        (bytes(0x1000), "not signed firmware"),
        (BLOBS["gfx1100"]["SOS"], "it is SOS, not KDB"),
        (BLOBS["gfx1201"]["KDB"], "for gfx1201, not for gfx1100"),
        (BLOBS["gfx1100"]["KDB"][:-1] + b"?", "its signature is wrong"),
    ],
)
def test_a_wrong_blob_is_refused(blob: bytes, why: str) -> None:
    card = Bench("gfx1100")
    card.component("KDB", blob)
    assert why in card.findings
    assert not card.read(35) & facts.READY


def test_what_the_bootloader_refuses() -> None:
    card = Bench("gfx1201")
    card.write(36, 0x1000)  # beyond VRAM
    card.write(35, facts.BOOTLOADER["KDB"])
    card.write(35, facts.BOOTLOADER["KDB"])
    card.wait()
    card.write(35, 0x1234)
    card.wait()
    for part in ("not mapped", "while it is not ready", "refuses command 0x1234"):
        assert part in card.findings
    card.boot()
    card.write(35, facts.BOOTLOADER["KDB"])
    assert "the sOS is alive" in card.findings


def test_a_component_that_does_not_fit_is_refused() -> None:
    card = Bench("gfx1100")
    card.component("KDB", synthetic.blob(card.chip, "KDB", 0x11_0000))
    assert "do not fit" in card.findings


def test_a_command_with_the_ready_bit_is_not_an_answer() -> None:
    card = Bench("gfx1201")
    card.write(36, MSG1 >> 20)
    card.write(35, facts.READY | facts.BOOTLOADER["KDB"])
    assert not card.read(35) & facts.READY
    card.wait()
    assert "refuses command 0x80080000" in card.findings


def test_a_buffer_that_is_reused_too_early_is_noticed() -> None:
    card = Bench("gfx1100")
    card.context.vram.write(MSG1, card.blobs["KDB"])
    card.write(36, MSG1 >> 20)
    card.write(35, facts.BOOTLOADER["KDB"])
    card.context.vram.write(MSG1, card.blobs["SYS_DRV"])
    card.wait()
    assert "it is SYS_DRV, not KDB" in card.findings


def test_commands_that_are_refused_say_so_in_their_status() -> None:
    card = Bench("gfx1100")
    card.boot()
    card.ring()
    assert card.submit(b"", 0x77)["status"] == STATUS["UNKNOWN_COMMAND"]
    assert card.submit(b"", COMMANDS["LOAD_TA"])["status"] == STATUS["NOT_SUPPORTED"]
    assert card.firmware("SMU", size=0)["status"] == STATUS["BAD_PARAMETERS"]
    assert card.firmware("SMU", card.blobs["IMU_D"])["status"] == STATUS["SECURITY"]
    assert card.firmware("SMU", card.blobs["SMU"][:-4])["status"] == STATUS["SECURITY"]
    bad = facts.LOAD_IP_FW.pack(fw_phy_addr_hi=1, fw_size=0x1000, fw_type=FW_TYPES["SMU"])
    assert card.submit(bad, COMMANDS["LOAD_IP_FW"])["status"] == STATUS["ACCESS_DENIED"]
    odd = facts.LOAD_IP_FW.pack(fw_phy_addr_lo=MSG1, fw_size=0x1000, fw_type=200)
    assert card.submit(odd, COMMANDS["LOAD_IP_FW"])["status"] == STATUS["NOT_SUPPORTED"]
    card.toc()
    assert card.tmr(TMR + 0x1000)["status"] == STATUS["BAD_PARAMETERS"]
    assert card.tmr(size=0x10_0000)["status"] == STATUS["BAD_PARAMETERS"]
    assert card.tmr(address=(256 << 20) - 0x10_0000)["status"] == STATUS["BAD_PARAMETERS"]
    assert card.psp.tmr is None
    assert not card.psp.loaded("SMU")
    assert not card.steps - {""}
    for part in (
        "command 0x77 (UNKNOWN_COMMAND)",
        "LOAD_TA (NOT_SUPPORTED)",
        "cut short",
        "it is IMU_D, not SMU",
    ):
        assert part in card.findings


def test_firmware_is_put_into_the_tmr_piece_by_piece() -> None:
    card = Bench("gfx1100")
    card.boot()
    card.ring()
    card.toc()
    card.tmr()
    assert [card.firmware(name)["fw_addr_lo"] for name in ("IMU_I", "IMU_D", "RLC_G")] == [
        TMR,
        TMR + 0x1000,
        TMR + 0x2000,
    ]


def test_a_tmr_outside_vram_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Bench("gfx1100")
    card.boot()
    card.ring()
    card.toc()
    system = Extent(0, 1 << 40, 0, system=True, writable=True, executable=True)
    monkeypatch.setattr(bench.FlatMemory, "translate", lambda self, address, *, write=False: system)
    assert card.tmr()["status"] == STATUS["BAD_PARAMETERS"]
    assert "is not in VRAM" in card.findings


def test_gfx12_has_its_tmr_from_the_start() -> None:
    card = Bench("gfx1201")
    card.boot()
    card.ring()
    card.toc()
    assert card.tmr()["status"] == STATUS["BAD_STATE"]
    assert card.firmware("IMU_I")["status"] == 0


def test_the_ring_stops_at_a_frame_that_cannot_be_read() -> None:
    card = Bench("gfx1100")
    card.boot()
    card.ring()
    card.queue(b"", COMMANDS["LOAD_TOC"], buffer=COMMAND + 4)
    card.write(67, 16)
    card.wait()
    assert "the PSP ring stops at frame 0" in card.findings
    card.toc()
    assert card.fence_value() == 0
    far = Bench("gfx1100")
    far.boot()
    far.ring(address=1 << 40)
    far.write(67, 16)
    far.wait()
    assert "not mapped" in far.findings


def test_a_fence_that_cannot_be_written_is_reported() -> None:
    card = Bench("gfx1100")
    card.boot()
    card.ring()
    card.submit(b"", COMMANDS["DESTROY_TMR"], fence=0xFFFF_F000)
    assert "cannot be written" in card.findings


def test_invalid_rings_and_pointers_are_refused() -> None:
    card = Bench("gfx1100")
    card.boot()
    card.ring(address=RING + 8)
    assert card.read(64) & 0xFFFF == 6
    card.ring()
    card.ring()
    assert "destroy it first" in card.findings
    card.write(67, 17)
    card.write(67, 0x8000)
    assert card.read(67) == 0
    assert "a multiple of 16 dwords" in card.findings
    card.write(64, 0xA_0000)
    card.write(64, 0xA_0000)
    card.wait()
    assert "another is under way" in card.findings
    assert "0xa0000 is unknown" in card.findings


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    chip=st.sampled_from(list(CHIPS)),
    writes=st.lists(
        st.tuples(
            st.sampled_from([35, 36, 64, 67, 69, 70, 71]), st.integers(0, 2**32 - 1) | st.integers(0, 64)
        ),
        max_size=12,
    ),
    booted=st.booleans(),
)
def test_no_register_write_crashes_it(chip: str, writes: list[tuple[int, int]], booted: bool) -> None:
    card = Bench(chip)
    if booted:
        card.boot()
        card.ring()
    for number, value in writes:
        card.write(number, value)
        card.link.run(clocks(2e-3))
    assert isinstance(card.read(81), int)


# -- RLC -------------------------------------------------------------------------------------------------


def _booted() -> Bench:
    card = Bench("gfx1100")
    card.boot()
    card.autoload()
    return card


def test_clock_gating_is_changed_in_safe_mode() -> None:
    card = _booted()
    bench.write(card.context, "GC", "RLC_SAFE_MODE", 3)
    assert bench.read(card.context, "GC", "RLC_SAFE_MODE") & 1
    card.wait()
    assert not bench.read(card.context, "GC", "RLC_SAFE_MODE") & 1
    bench.write(card.context, "GC", "RLC_CGCG_CGLS_CTRL", 0x363F)
    assert bench.read(card.context, "GC", "RLC_CGCG_CGLS_CTRL") == 0x363F
    assert card.findings == ""
    bench.write(card.context, "GC", "RLC_SAFE_MODE", 1)
    card.wait()
    bench.write(card.context, "GC", "RLC_CGTT_MGCG_OVERRIDE", 0x400)
    assert card.steps == {"rlc-safe-mode"}


def test_an_rlc_that_does_not_run_does_not_answer() -> None:
    card = Bench("gfx1100")
    bench.write(card.context, "GC", "RLC_SAFE_MODE", 3)
    card.wait()
    assert bench.read(card.context, "GC", "RLC_SAFE_MODE") & 1
    assert card.steps == {"rlc-autoload"}
    stopped = _booted()
    bench.write(stopped.context, "GC", "RLC_CNTL", 0)
    bench.write(stopped.context, "GC", "RLC_SAFE_MODE", 3)
    stopped.wait()
    assert bench.read(stopped.context, "GC", "RLC_SAFE_MODE") & 1
    assert "RLC_CNTL has stopped the RLC" in stopped.findings


def test_an_engine_that_is_used_too_early_differs_from_one_that_never_starts() -> None:
    card = Bench("gfx1100")
    card.rlc.autoload(REQUIRED[11])
    assert not card.rlc.require("mec", "the MEC does not start")
    assert "RLC autoload is not complete" in card.findings
    card.wait()
    assert card.rlc.require("mec", "the MEC does not start")
    assert not card.rlc.require("pfp", "the PFP does not start")
    assert "psp-fw-rs64-pfp is missing" in card.findings
    card.rlc.autoload(REQUIRED[11])
    assert "a second time" in card.findings


def test_the_gpu_clock_counts_100_mhz() -> None:
    card = Bench("gfx1100")
    card.link.run(clocks(1.0))
    bench.write(card.context, "GC", "RLC_CAPTURE_GPU_CLOCK_COUNT", 1)
    low = bench.read(card.context, "GC", "RLC_GPU_CLOCK_COUNT_LSB")
    assert abs(low - 100_000_000) <= 1
    card.link.run(clocks(60.0))
    assert bench.read(card.context, "GC", "RLC_GPU_CLOCK_COUNT_LSB") == low
    bench.write(card.context, "GC", "RLC_CAPTURE_GPU_CLOCK_COUNT", 1)
    high = bench.read(card.context, "GC", "RLC_GPU_CLOCK_COUNT_MSB")
    assert abs((high << 32 | bench.read(card.context, "GC", "RLC_GPU_CLOCK_COUNT_LSB")) - 6_100_000_000) <= 2


@BOTH
def test_firmware_of_blocks_that_are_not_modelled_is_taken(chip: str) -> None:
    """The kernel loads display, video and MES firmware; a driver that does so is not wrong."""
    card = Bench(chip)
    card.boot()
    card.ring()
    card.toc()
    if card.chip.generation == 11:
        card.tmr()
    for name in ("CP_MES", "RS64_KIQ", "VCN0_RAM", "DMUB", "PPTABLE"):
        card.context.vram.write(MSG1, b"not a blob")
        command = facts.LOAD_IP_FW.pack(fw_phy_addr_lo=MSG1, fw_size=0x1000, fw_type=FW_TYPES[name])
        assert card.submit(command, COMMANDS["LOAD_IP_FW"])["status"] == STATUS["SUCCESS"]
    assert card.findings == ""


@BOTH
def test_the_card_is_ready_before_it_is_touched(chip: str) -> None:
    assert Bench(chip).read(33) == facts.READY
