"""Power management: mailbox, levels, limits, metrics."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.amdgpu import smu
from emulator.amdgpu.cost import Work
from emulator.amdgpu.power import AMBIENT, RISE, TIME_CONSTANT, Power
from emulator.amdgpu.smu import Smu
from emulator.core.clock import clocks
from tests.unit import amdgpu_bench as bench
from usbgpu.amd.facts import interrupts as ih
from usbgpu.amd.facts import smu as facts
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.amd.facts.smu import RESULTS

BOTH = pytest.mark.parametrize("chip", CHIPS)
TABLE = 0x9_A000


class Bench(bench.Noticed):
    """An SMU, and the driver's side of its mailbox."""

    def __init__(self, chip: str = "gfx1100", *, alive: bool = True) -> None:
        self.context, self.link = bench.context(chip)
        self.chip = self.context.chip
        self.interface = facts.interface(self.chip)
        self.alive = alive
        self.resets = 0
        self.posts: list[tuple[int, ...]] = []
        memory = bench.FlatMemory(self.context.vram)
        self.power = Power(self.context)
        self.smu = Smu(self.context, memory, self.power, self, lambda: self.alive, self._reset)

    def work(self, load: float) -> None:
        """From now on the card does so much of what it can do at most, in dispatches that never end."""
        cycles, moved = 1e9, self.chip.vram_bandwidth * 1e9 / (self.chip.clocks["GFXCLK"][-1] * 1e6)
        work = Work(0.0, cycles, load * moved, load * cycles, load)
        self.power.run([work] if load else [], 1.0)

    def post(
        self, client: int, source: int, *, ring: int = 0, vmid: int = 0, data: Sequence[int] = (0, 0, 0, 0)
    ) -> None:
        self.posts.append((client, source, ring, vmid, *data))

    def _reset(self) -> None:
        self.resets += 1

    def write(self, number: int, value: int) -> None:
        bench.write(self.context, "SMU", f"MP1_SMN_C2PMSG_{number}", value)

    def read(self, number: int) -> int:
        return bench.read(self.context, "SMU", f"MP1_SMN_C2PMSG_{number}")

    def send(self, message: str | int, argument: int = 0) -> tuple[int, int]:
        """Result and value."""
        self.write(90, 0)
        self.write(82, argument)
        self.write(66, self.interface.messages[message] if isinstance(message, str) else message)
        self.link.run(clocks(1e-3))
        return self.read(90), self.read(82)

    def value(self, message: str, argument: int = 0) -> int:
        result, value = self.send(message, argument)
        assert result == RESULTS["OK"], self.findings
        return value

    def start(self) -> None:
        self.value("SetDriverDramAddrHigh", 0)
        self.value("SetDriverDramAddrLow", TABLE)
        self.value("EnableAllSmuFeatures")

    def metrics(self) -> dict[str, int]:
        self.value("TransferTableSmu2Dram", facts.TABLES["SMU_METRICS"])
        structure = self.interface.metrics
        data = self.context.vram.read(TABLE, structure.size)
        clock = {f"CurrClock{index}": structure.get(data, "CurrClock", index) for index in range(4)}
        edge = {f"AvgTemperature{index}": structure.get(data, "AvgTemperature", index) for index in range(5)}
        return structure.unpack(data) | clock | edge


@BOTH
def test_a_driver_reads_all_levels_and_pins_the_highest(chip: str) -> None:
    card = Bench(chip)
    card.start()
    assert card.value("GetSmuVersion") >> 16 != 0
    assert card.value("GetDriverIfVersion") == card.interface.driver_if
    for name, levels in card.chip.clocks.items():
        clock = card.interface.clocks.index(name) << 16
        count = card.value("GetDpmFreqByIndex", clock | 0xFF)
        read = [card.value("GetDpmFreqByIndex", clock | index) for index in range(count)]
        assert read == sorted(read) == list(levels)
        assert count == 4
        assert card.value("GetMinDpmFreq", clock) == levels[0]
        assert card.value("GetMaxDpmFreq", clock) == levels[-1]
        for wanted in (levels[-1], levels[1]):
            card.value("SetSoftMinByFreq", clock | wanted)
            card.value("SetSoftMaxByFreq", clock | wanted)
            assert card.smu.clock_mhz(name) == wanted
    metrics = card.metrics()
    assert [metrics[f"CurrClock{index}"] for index in range(4)] == [
        card.chip.clocks[name][1] for name in card.interface.clocks[:4]
    ]
    assert card.findings == ""


@BOTH
def test_messages_without_a_consequence_here_are_accepted(chip: str) -> None:
    """The kernel sends them; a driver that does so is not wrong."""
    card = Bench(chip)
    card.start()
    for message in ("UseDefaultPPTable", "OverridePcieParameters", "SetWorkloadMask", "SetToolsDramAddrHigh"):
        card.value(message, 1)
    for message in ("SetHardMinByFreq", "SetHardMaxByFreq"):
        card.value(message, card.chip.clocks["GFXCLK"][1])
    assert card.smu.clock_mhz("GFXCLK") == card.chip.clocks["GFXCLK"][1]
    assert card.value("GetDcModeMaxDpmFreq") == card.chip.clocks["GFXCLK"][-1]
    assert card.findings == ""


def test_nothing_answers_without_firmware() -> None:
    card = Bench(alive=False)
    assert card.send("GetSmuVersion")[0] == 0
    assert card.steps == {"psp-fw-smu"}
    card.write(75, facts.DEBUG_MODE1_RESET)
    card.link.run(clocks(1e-3))
    assert card.read(54) == 0
    assert card.resets == 0


def test_clocks_are_low_until_the_features_are_enabled() -> None:
    card = Bench()
    assert card.smu.clock_mhz("GFXCLK") == card.chip.clocks["GFXCLK"][0]
    for message, argument in (("SetSoftMaxByFreq", 1200), ("SetPptLimit", 200), ("AllowGfxOff", 0)):
        assert card.send(message, argument)[0] == RESULTS["CmdRejectedPrereq"]
    assert card.steps == {"smu-features"}
    card.value("EnableAllSmuFeatures")
    assert card.smu.clock_mhz("GFXCLK") == card.chip.clocks["GFXCLK"][-1]
    card.value("AllowGfxOff")
    assert card.smu.gfxoff
    card.value("DisableAllSmuFeatures")
    assert card.smu.clock_mhz("GFXCLK") == card.chip.clocks["GFXCLK"][0]


def test_the_table_needs_an_address() -> None:
    card = Bench()
    card.value("SetDriverDramAddrLow", TABLE)
    assert card.send("TransferTableSmu2Dram", 5)[0] == RESULTS["CmdRejectedPrereq"]
    assert card.steps == {"smu-dram-address"}
    card.value("SetDriverDramAddrHigh", 1)  # beyond VRAM
    assert card.send("TransferTableSmu2Dram", 5)[0] == RESULTS["Failed"]
    assert "not mapped" in card.findings


def test_an_old_answer_and_an_impatient_driver_are_noticed() -> None:
    card = Bench()
    card.send("TestMessage", 41)
    assert (card.read(90), card.read(82)) == (RESULTS["OK"], 42)
    card.write(66, card.interface.messages["TestMessage"])
    assert card.read(90) == RESULTS["OK"]  # the old one
    assert card.steps == {"smu-clear-response"}
    card.write(66, card.interface.messages["GetSmuVersion"])
    card.link.run(clocks(1e-3))
    assert "before it has answered the last" in card.findings
    assert card.read(82) == 43


@BOTH
def test_messages_are_rejected_with_the_kernels_codes(chip: str) -> None:
    card = Bench(chip)
    card.start()
    for message, argument, result in (
        (0, 0, "UnknownCmd"),
        (0x60, 0, "UnknownCmd"),
        ("TransferTableDram2Smu", 0, "UnknownCmd"),
        ("GetDpmFreqByIndex", 0x4, "Failed"),
        ("GetDpmFreqByIndex", 0x7F_0000, "Failed"),
        ("SetSoftMinByFreq", 0x8_0000 | 500, "Failed"),
        ("SetPptLimit", 1, "Failed"),
        ("TransferTableSmu2Dram", 0, "Failed"),
    ):
        before = card.findings
        assert card.send(message, argument)[0] == RESULTS[result], message
        assert card.findings != before, message
    assert card.send("SetSoftMaxByFreq", 9999)[1] == card.chip.clocks["GFXCLK"][-1]
    assert "clamped" in card.findings


def test_limits_push_each_other() -> None:
    card = Bench()
    card.start()
    card.value("SetSoftMaxByFreq", 1000)
    card.value("SetSoftMinByFreq", 1500)
    assert card.smu.clock_mhz("GFXCLK") == 1500
    card.value("SetSoftMaxByFreq", 800)
    assert card.metrics()["CurrClock0"] == 800


@BOTH
def test_power_and_temperature_follow_load(chip: str) -> None:
    card = Bench(chip)
    card.start()
    board = card.chip
    idle = card.metrics()
    assert (idle["AverageSocketPower"], idle["AverageGfxActivity"]) == (round(board.idle_power), 0)
    assert idle["CurrClock0"] == board.clocks["GFXCLK"][0]
    card.work(1.0)
    card.metrics()
    hot = card.metrics()
    assert hot["AverageSocketPower"] == board.board_power
    assert hot["CurrClock0"] == board.clocks["GFXCLK"][-1]
    assert (hot["AverageGfxActivity"], hot["AverageUclkActivity"]) == (100, 100)
    assert hot["AvgTemperature0"] <= idle["AvgTemperature0"] + 1
    assert hot["MetricsCounter"] == idle["MetricsCounter"] + 2
    card.link.run(clocks(TIME_CONSTANT))
    warm = card.metrics()
    assert abs(warm["AvgTemperature0"] - (AMBIENT + 0.632 * RISE)) <= 2
    energy = (warm["EnergyAccumulator"] - hot["EnergyAccumulator"]) % 2**32 / 65536
    assert abs(energy - board.board_power * TIME_CONSTANT) < 0.01 * board.board_power * TIME_CONSTANT
    card.link.run(clocks(10 * TIME_CONSTANT))
    done = card.metrics()
    assert done["AvgTemperature0"] == round(AMBIENT + RISE)
    assert (
        done["AvgTemperature1"] > done["AvgTemperature4"] > done["AvgTemperature0"]
    )  # hotspot, memory, edge
    card.work(0.0)
    card.link.run(clocks(10 * TIME_CONSTANT))
    card.metrics()
    assert card.metrics()["AvgTemperature0"] < 30


def throttling(card: Bench, place: int) -> int:
    """An element of `ThrottlingPercentage` in the table that was sent last."""
    data = card.context.vram.read(TABLE, card.interface.metrics.size)
    return card.interface.metrics.get(data, "ThrottlingPercentage", place)


@BOTH
def test_a_power_limit_lowers_the_clock_and_the_power(chip: str) -> None:
    card = Bench(chip)
    card.start()
    least, most = card.chip.power_caps
    assert card.value("GetPptLimit") == most == card.chip.board_power
    card.work(1.0)
    for limit in (most, (least + most) // 2, least):
        card.value("SetPptLimit", limit)
        assert card.value("GetPptLimit") == limit
        card.metrics()
        card.link.run(clocks(0.1))
        found = card.metrics()
        assert found["AverageSocketPower"] == limit
        assert found["dGPU_W_MAX"] == limit
        assert (found["CurrClock0"] < card.chip.clocks["GFXCLK"][-1]) == (limit < most)
        assert (throttling(card, card.interface.ppt) > 0) == (limit < most)


@BOTH
def test_a_power_limit_outside_of_the_card_s_range_is_rejected(chip: str) -> None:
    card = Bench(chip)
    card.start()
    least, most = card.chip.power_caps
    for wrong in (0, least - 1, most + 1, 0x10000 | least):
        assert card.send("SetPptLimit", wrong)[0] == RESULTS["Failed"]
        assert f"{wrong} W is not within {least} and {most} W" in card.findings
    assert card.value("GetPptLimit") == most


def test_pinned_clocks_cost_power_while_nothing_runs() -> None:
    card = Bench()
    card.start()
    for name, levels in card.chip.clocks.items():
        clock = card.interface.clocks.index(name) << 16
        card.value("SetSoftMinByFreq", clock | levels[-1])
    card.metrics()
    card.link.run(clocks(0.1))
    assert card.metrics()["AverageSocketPower"] == card.chip.ready_power
    for name, levels in card.chip.clocks.items():
        clock = card.interface.clocks.index(name) << 16
        card.value("SetSoftMaxByFreq", clock | levels[0])
    card.metrics()
    card.link.run(clocks(0.1))
    assert card.metrics()["AverageSocketPower"] == card.chip.idle_power


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 100)), min_size=1, max_size=8))
def test_temperature_stays_between_ambient_and_the_limit(pieces: list[tuple[float, float]]) -> None:
    card = Bench()
    card.start()
    for load, duration in pieces:
        card.work(load)
        card.link.run(clocks(duration))
        card.power.look()
        assert AMBIENT <= card.power.temperature <= AMBIENT + RISE
        assert card.chip.idle_power <= card.power.watts() <= card.chip.board_power


INTERRUPT = (ih.CLIENTS["MP1"], ih.SOURCES["SMU_TO_DRIVER"], 0, 0, ih.THERMAL_THROTTLING, 0, 0, 0)


@BOTH
def test_heat_lowers_clocks_and_interrupts_the_driver(chip: str) -> None:
    card = Bench(chip)
    card.start()
    control = card.chip.register("MP", smu.INTERRUPT)
    card.work(1.0)
    card.context.disturbance.heat = 80.0
    assert card.power.hot
    assert card.posts == []  # masked after a reset
    card.metrics()
    card.link.run(clocks(0.1))
    found = card.metrics()
    assert found["AverageSocketPower"] == card.chip.power_caps[0]
    assert found["AvgTemperature0"] == 105
    assert [throttling(card, place) for place in (0, 1, card.interface.ppt)] == [100, 0, 0]
    bench.write(card.context, "MP", smu.SOURCE, card.chip.register("MP", smu.SOURCE).pack(ID=254))
    bench.write(card.context, "MP", smu.INTERRUPT, control.pack(INT_MASK=0))
    for heat, posts in ((0.0, 0), (80.0, 1), (0.0, 1), (80.0, 1)):  # the second is not acknowledged
        card.context.disturbance.heat = heat
        assert card.posts == posts * [INTERRUPT]
    bench.write(card.context, "MP", smu.INTERRUPT, control.pack(INT_ACK=1))
    assert not bench.read(card.context, "MP", smu.INTERRUPT)
    card.context.disturbance.heat = 0.0
    card.context.disturbance.heat = 80.0
    assert card.posts == 2 * [INTERRUPT]
    assert card.findings == ""


def test_an_interrupt_without_its_source_is_noticed() -> None:
    card = Bench()
    card.start()
    bench.write(card.context, "MP", smu.INTERRUPT, 0)
    card.context.disturbance.heat = 80.0
    assert card.posts[0][1] == 0
    assert "MP1_SMN_IH_SW_INT.ID" in card.findings


def test_two_ways_to_a_mode1_reset() -> None:
    card = Bench()
    card.value("Mode1Reset")
    assert card.resets == 1
    card.write(53, 0)
    card.write(75, facts.DEBUG_MODE1_RESET)
    card.link.run(clocks(1e-3))
    assert (card.resets, card.read(54)) == (2, RESULTS["OK"])
    later = Bench("gfx1201")
    assert later.send(0x2F)[0] == RESULTS["UnknownCmd"]  # 14.0 has only the debug mailbox
    later.write(75, facts.DEBUG_MODE1_RESET)
    later.link.run(clocks(1e-3))
    assert later.resets == 1
    later.write(75, 9)
    later.link.run(clocks(1e-3))
    assert later.read(54) == RESULTS["UnknownCmd"]
    sibling = Bench("gfx1102")  # Linux sends 13.0.7 the message alone
    sibling.write(75, facts.DEBUG_MODE1_RESET)
    sibling.link.run(clocks(1e-3))
    assert (sibling.resets, sibling.read(54)) == (0, RESULTS["UnknownCmd"])
    sibling.value("Mode1Reset")
    assert sibling.resets == 1


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    chip=st.sampled_from(list(CHIPS)),
    messages=st.lists(st.tuples(st.integers(0, 0x80), st.integers(0, 2**32 - 1)), max_size=8),
)
def test_no_message_crashes_it(chip: str, messages: list[tuple[int, int]]) -> None:
    card = Bench(chip)
    card.start()
    for message, argument in messages:
        assert card.send(message, argument)[0] in RESULTS.values()


def test_messages_have_different_numbers_and_steps_keys() -> None:
    for interface in facts.INTERFACES.values():
        names = interface.messages
        assert len(set(names.values())) == len(names)
    assert {step.key for step in smu.STEPS} == {"smu-clear-response", "smu-dram-address", "smu-features"}
