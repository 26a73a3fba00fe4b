"""The power management processor (SMU, MP1): mailboxes, clocks, limits, the table of measurements.

It answers nothing until its firmware is loaded. Messages and tables: `usbgpu.amd.facts.smu`; levels of clocks
and powers: `usbgpu.amd.facts.chips`; what the board draws: `emulator.amdgpu.power`. Averages in the table of
measurements are those since it was last sent, and the first one has what is now (model; grade: guess).

When heat makes it lower clocks, it posts an interrupt with the source of MP1_SMN_IH_SW_INT (inferred), unless
that is masked (INT_MASK of MP1_SMN_IH_SW_INT_CTRL, set after a reset: inferred), or the one before was not
acknowledged (INT_ACK: inferred).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from emulator.amdgpu.context import Context
from emulator.amdgpu.diagnosis import BootStep
from emulator.amdgpu.power import AMBIENT, Power, Sums
from emulator.amdgpu.seams import AddressSpace, Interrupts, PageFault
from emulator.core.clock import clocks
from usbgpu.amd.facts import interrupts as ih
from usbgpu.amd.facts import smu as facts
from usbgpu.amd.facts.smu import RESULTS

MESSAGE_CLOCKS = clocks(20e-6)
"""A message (model; grade: guess)."""
SILENT = 0
"""What the response register holds while there is none."""
SOURCE, INTERRUPT = "MP1_SMN_IH_SW_INT", "MP1_SMN_IH_SW_INT_CTRL"
"""The registers of the interrupt to the driver."""

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
        power: of the board.
        interrupts: where interrupts go.
        alive: whether its firmware is loaded.
        mode1_reset: called when the driver requests one.

    Attributes:
        gfxoff: whether the driver allows the graphics block to be switched off.
    """

    def __init__(
        self,
        context: Context,
        memory: AddressSpace,
        power: Power,
        interrupts: Interrupts,
        alive: Callable[[], bool],
        mode1_reset: Callable[[], None],
    ) -> None:
        self._context = context
        self._memory = memory
        self._power = power
        self._interrupts = interrupts
        self._alive = alive
        self._mode1_reset = mode1_reset
        self._chip = context.chip
        self._interface = facts.interface(context.chip)
        self._names = {number: name for name, number in self._interface.messages.items()}
        self.gfxoff = False
        self._features = False
        self._limits = {name: (levels[0], levels[-1]) for name, levels in self._chip.clocks.items()}
        self._address: dict[str, int] = {}
        self._sent: Sums | None = None  # when the table of measurements was last sent
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
            "GetPptLimit": lambda argument: round(power.limit),
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
        registers.store("MP", SOURCE)
        masked = context.chip.register("MP", INTERRUPT).pack(INT_MASK=1)
        registers.on_write("MP", INTERRUPT, self._set_interrupt, reset=masked)
        self._unacknowledged = False
        power.noticed = self._notice_heat

    def clock_mhz(self, domain: str) -> int:
        """What a clock (GFXCLK, SOCCLK, UCLK or FCLK) runs at under load: the soft maximum, or the lowest
        level before the features are enabled.
        """
        return self._limits[domain][1] if self._features else self._chip.clocks[domain][0]

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
        self._set_clocks()
        return 0

    def _set_clocks(self) -> None:
        """What the driver has set applies from now on."""
        lowest = {name: (levels[0], levels[0]) for name, levels in self._chip.clocks.items()}
        limits = self._limits if self._features else lowest
        self._power.set_clocks(
            {name: low for name, (low, _) in limits.items()},
            {name: high for name, (_, high) in limits.items()},
        )

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
        self._set_clocks()
        return wanted

    def _set_power_limit(self, argument: int) -> int:
        self._require_features("SetPptLimit")
        least, most = self._chip.power_caps
        if not least <= argument <= most:
            raise Rejected("Failed", f"{argument} W is not within {least} and {most} W")
        self._power.set_limit(float(argument))
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
        self._power.look()
        self._transfers += 1
        passed, total = self._since_last(), self._power.sums
        # Without a pause there is nothing to average over.
        board = self._power.watts() if not passed.seconds else passed.energy / passed.seconds
        busy, traffic = (
            share / passed.seconds if passed.seconds else 0.0 for share in (passed.busy, passed.traffic)
        )
        current = {}
        for name, (low, high) in self._limits.items():
            sums = {"GFXCLK": passed.graphics, "UCLK": passed.memory}
            working = sums[name] / passed.busy if name in sums and passed.busy else high
            current[name] = (
                round(low + busy * (working - low)) if self._features else self._chip.clocks[name][0]
            )
        sensors = self._power.sensors()
        graphics, memory, fabric = current["GFXCLK"], current["UCLK"], current["FCLK"]
        throttling = [0] * self._interface.throttlers
        for place, name in enumerate(self._interface.temperatures):
            throttling[place] = 100 * (sensors.get(name, 0.0) >= facts.THERMAL_LIMITS.get(name, 1000))
        most = self._limits["GFXCLK"][1]
        if passed.busy and not any(throttling):
            throttling[self._interface.ppt] = max(0, round(100 * (1 - passed.graphics / passed.busy / most)))
        values: dict[str, int | Sequence[int]] = {
            "CurrClock": [current.get(name, 0) for name in self._interface.clocks],
            "AverageGfxclkFrequencyTarget": graphics,
            "AverageGfxclkFrequencyPreDs": graphics,
            "AverageGfxclkFrequencyPostDs": graphics,
            "AverageFclkFrequencyPreDs": fabric,
            "AverageFclkFrequencyPostDs": fabric,
            "AverageMemclkFrequencyPreDs": memory,
            "AverageMemclkFrequencyPostDs": memory,
            "dGPU_W_MAX": round(self._power.limit),
            "MetricsCounter": self._transfers,
            "AverageGfxActivity": round(busy * 100),
            "AverageUclkActivity": round(traffic * 100),
            "EnergyAccumulator": int(total.energy * 65536) & 0xFFFF_FFFF,
            "AverageSocketPower": round(board),
            "AverageTotalBoardPower": round(board),
            "AvgTemperature": [
                round(sensors.get(name, sensors["EDGE"])) for name in self._interface.temperatures
            ],
            "AvgTemperatureFanIntake": round(AMBIENT),
            "ThrottlingPercentage": throttling,
        }
        return self._interface.metrics.pack(**values)

    def _since_last(self) -> Sums:
        """What has added up since the table was last sent."""
        before, now = self._sent, self._power.sums
        self._sent = now
        return Sums() if before is None else now - before

    # -- heat -------------------------------------------------------------------------------------------

    def _set_interrupt(self, value: int) -> int:
        register = self._context.chip.register("MP", INTERRUPT)
        if register.get(value, "INT_ACK"):
            self._unacknowledged = False
        return register.pack(value, INT_ACK=0)

    def _notice_heat(self) -> None:
        """Heat limits the clocks from now on, or no longer."""
        hot = self._power.hot
        self._context.event("smu", lambda: f"heat {'limits' if hot else 'no longer limits'} the clocks")
        masked = self._context.registers.get("MP", INTERRUPT, "INT_MASK")
        if not hot or not self._features or masked or self._unacknowledged:
            return
        self._unacknowledged = True
        source = self._context.registers.get("MP", SOURCE, "ID")
        if source != ih.SOURCES["SMU_TO_DRIVER"]:
            self._context.diagnosis.wrong(
                f"the SMU's interrupt has the source {source:#x}: write {ih.SOURCES['SMU_TO_DRIVER']:#x} to "
                f"{SOURCE}.ID, as drivers do"
            )
        self._interrupts.post(ih.CLIENTS["MP1"], source, data=(ih.THERMAL_THROTTLING, 0, 0, 0))


def _name(number: int) -> str:
    return f"MP1_SMN_C2PMSG_{number}"
