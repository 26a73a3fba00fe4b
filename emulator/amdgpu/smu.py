"""The power management processor (SMU, MP1): mailboxes, clocks, power and temperature.

It answers nothing until its firmware is loaded. Messages and tables: `usbgpu.amd.facts.smu`; levels of clocks
and powers: `usbgpu.amd.facts.chips`. The thermal constants are a model (grade: guess): the die's temperature
approaches ambient + resistance x power with one time constant; power lies between idle and the board's limit,
by how busy the shaders are and by the square of their clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from emulator.amdgpu.context import Context
from emulator.amdgpu.diagnosis import BootStep
from emulator.amdgpu.seams import AddressSpace, PageFault
from emulator.core.clock import clocks, seconds
from usbgpu.amd.facts import smu as facts
from usbgpu.amd.facts.smu import RESULTS

MESSAGE_CLOCKS = clocks(20e-6)
"""A message (model; grade: guess)."""
SILENT = 0
"""What the response register holds while there is none."""
AMBIENT, RISE, TIME_CONSTANT = 25.0, 45.0, 20.0
"""Degrees Celsius; degrees above that at the board's limit; seconds."""
HOTSPOT, MEMORY = 1.35, 1.2
"""How much further than the edge sensor the hottest spot and the memory rise."""

IGNORED = (
    "SetAllowedFeaturesMaskLow", "SetAllowedFeaturesMaskHigh", "SetToolsDramAddrHigh", "SetToolsDramAddrLow",
    "UseDefaultPPTable", "OverridePcieParameters", "SetWorkloadMask",
)  # fmt: skip
"""Messages that are accepted, and change nothing here."""

STEPS: tuple[BootStep, ...] = (
    BootStep(
        "smu-clear-response",
        "C2PMSG_90 = 0 before each message",
        "seeing the answer",
        "the last answer is taken for this one",
        "inferred",
    ),
    BootStep(
        "smu-dram-address",
        "SetDriverDramAddrHigh and SetDriverDramAddrLow",
        "TransferTableSmu2Dram",
        "the message is rejected; no power or temperature can be read",
        "guess",
    ),
    BootStep(
        "smu-features",
        "EnableAllSmuFeatures",
        "SetSoftMinByFreq, SetSoftMaxByFreq, SetPptLimit, AllowGfxOff",
        "the message is rejected; clocks stay at their lowest level",
        "guess",
    ),
)


class Rejected(Exception):
    """A message that is not carried out.

    Attributes:
        result: name of the response.
    """

    def __init__(self, result: str, why: str) -> None:
        super().__init__(why)
        self.result = result


class Smu:
    """The block.

    Args:
        context: of the card.
        memory: VMID 0 of the MM hub.
        load: how busy the shaders have been since it was last asked, 0 to 1.
        alive: whether its firmware is loaded.
        mode1_reset: called when the driver requests one.

    Attributes:
        temperature: of the die's edge, in degrees Celsius, when it was last looked at.
        power: watts, since then.
        gfxoff: whether the driver allows the graphics block to be switched off.
    """

    def __init__(
        self,
        context: Context,
        memory: AddressSpace,
        load: Callable[[], float],
        alive: Callable[[], bool],
        mode1_reset: Callable[[], None],
    ) -> None:
        self._context = context
        self._memory = memory
        self._load = load
        self._alive = alive
        self._mode1_reset = mode1_reset
        self._chip = context.chip
        self._interface = facts.interface(context.chip)
        self._names = {number: name for name, number in self._interface.messages.items()}
        self.temperature = AMBIENT
        self.power = self._chip.idle_power
        self.gfxoff = False
        self._features = False
        self._limits = {name: (levels[0], levels[-1]) for name, levels in self._chip.clocks.items()}
        self._power_limit = self._chip.board_power
        self._address: dict[str, int] = {}
        self._energy = 0.0
        self._asked: int | None = None  # clock of the last update of power and temperature
        self._busy = 0.0
        self._transfers = 0
        self._working = False
        self._handlers: Mapping[str, Callable[[int], int]] = {
            "TestMessage": lambda argument: argument + 1,
            "GetSmuVersion": lambda argument: self._interface.firmware,
            "GetDriverIfVersion": lambda argument: self._interface.driver_if,
            "EnableAllSmuFeatures": lambda argument: self._enable(True),
            "DisableAllSmuFeatures": lambda argument: self._enable(False),
            "SetDriverDramAddrHigh": lambda argument: self._set_address("high", argument),
            "SetDriverDramAddrLow": lambda argument: self._set_address("low", argument),
            "TransferTableSmu2Dram": self._transfer,
            "SetSoftMinByFreq": lambda argument: self._limit(argument, maximum=False),
            "SetSoftMaxByFreq": lambda argument: self._limit(argument, maximum=True),
            "GetMinDpmFreq": lambda argument: self._levels(argument)[0],
            "GetMaxDpmFreq": lambda argument: self._levels(argument)[-1],
            "SetHardMinByFreq": lambda argument: self._limit(argument, maximum=False),
            "SetHardMaxByFreq": lambda argument: self._limit(argument, maximum=True),
            "GetDcModeMaxDpmFreq": lambda argument: self._levels(argument)[-1],
            "GetDpmFreqByIndex": self._level,
            "SetPptLimit": self._set_power_limit,
            "GetPptLimit": lambda argument: self._power_limit,
            "AllowGfxOff": lambda argument: self._allow_gfxoff(True),
            "DisallowGfxOff": lambda argument: self._allow_gfxoff(False),
            "PrepareMp1ForUnload": lambda argument: self._enable(False),
            "Mode1Reset": lambda argument: self._reset(),
            **dict.fromkeys(IGNORED, lambda argument: 0),
        }
        registers = context.registers
        registers.store("SMU", *(_name(number) for number in (53, 54, 82, 90)))
        registers.on_write("SMU", _name(66), self._message)
        registers.on_write("SMU", _name(75), self._debug_message)

    def clock_mhz(self, domain: str) -> int:
        """What a clock (GFXCLK, SOCCLK, UCLK or FCLK) runs at under load: the soft maximum, or the lowest
        level before the features are enabled.
        """
        return self._limits[domain][1] if self._features else self._chip.clocks[domain][0]

    def look(self) -> None:
        """Bring power and temperature up to now."""
        now = self._context.link.now()
        elapsed = seconds(now - self._asked) if self._asked is not None else 0.0
        self._asked = now
        self._busy = min(max(self._load(), 0.0), 1.0)
        chip = self._chip
        share = self._busy * (self.clock_mhz("GFXCLK") / chip.clocks["GFXCLK"][-1]) ** 2
        self.power = min(
            chip.idle_power + share * (chip.board_power - chip.idle_power), float(self._power_limit)
        )
        target = AMBIENT + RISE * self.power / chip.board_power
        self.temperature = target + (self.temperature - target) * math.exp(-elapsed / TIME_CONSTANT)
        self._energy += self.power * elapsed

    # -- mailboxes --------------------------------------------------------------------------------------

    def _message(self, number: int) -> None:
        registers = self._context.registers
        name = self._names.get(number, f"message {number:#x}")
        if not self._alive():
            self._context.diagnosis.missing("psp-fw-smu", f"the SMU does not answer {name}")
            return
        if self._working:
            self._context.diagnosis.wrong(
                f"{name} is sent to the SMU before it has answered the last: ignored"
            )
            return
        if registers.value("SMU", _name(90)) != SILENT:
            symptom = f"the SMU's last answer will be taken for that to {name}"
            self._context.diagnosis.missing("smu-clear-response", symptom)
        self._working = True
        self._context.link.schedule(MESSAGE_CLOCKS, lambda: self._answer(name, number))

    def _answer(self, name: str, number: int) -> None:
        registers = self._context.registers
        argument = registers.value("SMU", _name(82))
        self._working = False
        result = "OK"
        try:
            if number >= self._interface.message_limit or not number:
                raise Rejected("UnknownCmd", "there is no such message")
            if name not in self._handlers:
                raise Rejected("UnknownCmd", "it is not modelled")
            registers.set("SMU", _name(82), self._handlers[name](argument))
        except Rejected as rejected:
            result = rejected.result
            if str(rejected):
                self._context.diagnosis.wrong(f"the SMU rejects {name} {argument:#x} ({result}): {rejected}")
        value = registers.value("SMU", _name(82))
        registers.set("SMU", _name(90), RESULTS[result])
        self._context.event("smu", lambda: f"{name} {argument:#x}: {result}, {value:#x}")

    def _debug_message(self, number: int) -> None:
        if not self._alive():
            self._context.diagnosis.missing(
                "psp-fw-smu", f"the SMU does not answer debug message {number:#x}"
            )
            return

        def answer() -> None:
            known = self._interface.debug_reset and number == facts.DEBUG_MODE1_RESET
            self._context.registers.set("SMU", _name(54), RESULTS["OK" if known else "UnknownCmd"])
            self._context.event("smu", lambda: f"debug message {number:#x}")
            if known:
                self._mode1_reset()
            else:
                self._context.diagnosis.wrong(f"debug message {number:#x} is unknown to the SMU")

        self._context.link.schedule(MESSAGE_CLOCKS, answer)

    # -- messages ---------------------------------------------------------------------------------------

    def _enable(self, on: bool) -> int:
        self._features = on
        return 0

    def _set_address(self, half: str, value: int) -> int:
        self._address[half] = value
        return 0

    def _require_features(self, what: str) -> None:
        if not self._features:
            self._context.diagnosis.missing("smu-features", f"the SMU rejects {what}")
            raise Rejected("CmdRejectedPrereq", "")

    def _clock(self, argument: int) -> str:
        number = argument >> 16
        names = self._interface.clocks
        name = names[number] if number < len(names) else ""
        if name not in self._chip.clocks:
            raise Rejected("Failed", f"clock {name or number} is not scaled")
        return name

    def _levels(self, argument: int) -> tuple[int, ...]:
        return self._chip.clocks[self._clock(argument)]

    def _level(self, argument: int) -> int:
        levels, index = self._levels(argument), argument & 0xFFFF
        if index == facts.ALL_LEVELS:
            return len(levels)
        if index >= len(levels):
            raise Rejected("Failed", f"level {index} does not exist, there are {len(levels)}")
        return levels[index]

    def _limit(self, argument: int, *, maximum: bool) -> int:
        self._require_features(f"SetSoft{'Max' if maximum else 'Min'}ByFreq")
        name = self._clock(argument)
        levels = self._chip.clocks[name]
        wanted = argument & 0xFFFF
        if not levels[0] <= wanted <= levels[-1]:
            self._context.diagnosis.wrong(
                f"{name} of {wanted} MHz is not within {levels[0]} to {levels[-1]}: clamped"
            )
            wanted = min(max(wanted, levels[0]), levels[-1])
        low, high = self._limits[name]
        self._limits[name] = (min(low, wanted), wanted) if maximum else (wanted, max(high, wanted))
        return wanted

    def _set_power_limit(self, argument: int) -> int:
        self._require_features("SetPptLimit")
        watts = argument & 0xFFFF
        idle, most = self._chip.idle_power, self._chip.board_power
        if not idle < watts <= most:
            raise Rejected("Failed", f"{watts} W is not above {idle} and at most {most}")
        self._power_limit = watts
        return 0

    def _allow_gfxoff(self, allow: bool) -> int:
        self._require_features("AllowGfxOff" if allow else "DisallowGfxOff")
        self.gfxoff = allow
        return 0

    def _reset(self) -> int:
        self._mode1_reset()
        return 0

    def _transfer(self, table: int) -> int:
        if table != facts.TABLES["SMU_METRICS"]:
            raise Rejected("Failed", f"the model has no table {table}")
        if len(self._address) < 2:
            self._context.diagnosis.missing("smu-dram-address", "the SMU has nowhere to put its table")
            raise Rejected("CmdRejectedPrereq", "")
        address = self._address["high"] << 32 | self._address["low"]
        try:
            self._memory.write(address, self._metrics())
        except PageFault as fault:
            raise Rejected("Failed", str(fault)) from None
        return 0

    def _metrics(self) -> bytes:
        self.look()
        self._transfers += 1
        current = {
            name: round(low + self._busy * (high - low)) if self._features else self._chip.clocks[name][0]
            for name, (low, high) in self._limits.items()
        }
        rise, heat = self.temperature - AMBIENT, self._context.disturbance.heat
        sensors = {"EDGE": 1.0, "HOTSPOT": HOTSPOT, "MEM": MEMORY}
        graphics, memory, fabric = current["GFXCLK"], current["UCLK"], current["FCLK"]
        values: dict[str, int | Sequence[int]] = {
            "CurrClock": [current.get(name, 0) for name in self._interface.clocks],
            "AverageGfxclkFrequencyTarget": graphics,
            "AverageGfxclkFrequencyPreDs": graphics,
            "AverageGfxclkFrequencyPostDs": graphics,
            "AverageFclkFrequencyPreDs": fabric,
            "AverageFclkFrequencyPostDs": fabric,
            "AverageMemclkFrequencyPreDs": memory,
            "AverageMemclkFrequencyPostDs": memory,
            "dGPU_W_MAX": self._power_limit,
            "MetricsCounter": self._transfers,
            "AverageGfxActivity": round(self._busy * 100),
            "AverageUclkActivity": round(self._busy * 100),
            "EnergyAccumulator": int(self._energy * 65536) & 0xFFFF_FFFF,
            "AverageSocketPower": round(self.power),
            "AverageTotalBoardPower": round(self.power),
            "AvgTemperature": [
                round(AMBIENT + heat + rise * sensors.get(name, 1.0)) for name in self._interface.temperatures
            ],
            "AvgTemperatureFanIntake": round(AMBIENT),
        }
        return self._interface.metrics.pack(**values)


def _name(number: int) -> str:
    return f"MP1_SMN_C2PMSG_{number}"
