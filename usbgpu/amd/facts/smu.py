"""The power management processor (SMU, MP1): mailboxes, messages, tables.

From `smu_v13_0_0_ppsmc.h`, `smu_v13_0_7_ppsmc.h`, `smu_v14_0_2_ppsmc.h`, `smu13_driver_if_v13_0_0.h`,
`smu13_driver_if_v13_0_7.h`, `smu14_driver_if_v14_0.h` and `smu_v*_ppt.c` of Linux 6.12 (MIT text). Registers
are MP1_SMN_C2PMSG_n: a driver writes 0 to 90, the argument to 82, the message to 66, and waits until 90 is
not 0; 82 then holds the result. The debug mailbox is 75 (message), 53 (argument) and 54 (response).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from sdk.facts.registers import Evidence
from sdk.facts.structures import Struct, c_struct
from usbgpu.amd.facts.chips import Chip

_struct = partial(
    c_struct,
    evidence=Evidence.HARDWARE,
    source="Linux 6.12, smu13_driver_if_v13_0_0.h, smu13_driver_if_v13_0_7.h and smu14_driver_if_v14_0.h",
)

RESULTS: Mapping[str, int] = {
    "OK": 0x01,
    "Failed": 0xFF,
    "UnknownCmd": 0xFE,
    "CmdRejectedPrereq": 0xFD,
    "CmdRejectedBusy": 0xFC,
}
"""PPSMC_Result: values of the response register."""
_MESSAGES: Mapping[str, int] = {
    "TestMessage": 0x01, "GetSmuVersion": 0x02, "GetDriverIfVersion": 0x03, "SetAllowedFeaturesMaskLow": 0x04,
    "SetAllowedFeaturesMaskHigh": 0x05, "EnableAllSmuFeatures": 0x06, "DisableAllSmuFeatures": 0x07,
    "GetRunningSmuFeaturesLow": 0x0C, "GetRunningSmuFeaturesHigh": 0x0D, "SetDriverDramAddrHigh": 0x0E,
    "SetDriverDramAddrLow": 0x0F, "SetToolsDramAddrHigh": 0x10, "SetToolsDramAddrLow": 0x11,
    "TransferTableSmu2Dram": 0x12, "TransferTableDram2Smu": 0x13, "UseDefaultPPTable": 0x14,
    "SetSoftMinByFreq": 0x19, "SetSoftMaxByFreq": 0x1A, "SetHardMinByFreq": 0x1B, "SetHardMaxByFreq": 0x1C,
    "GetMinDpmFreq": 0x1D, "GetMaxDpmFreq": 0x1E, "GetDpmFreqByIndex": 0x1F, "OverridePcieParameters": 0x20,
    "SetWorkloadMask": 0x24, "GetDcModeMaxDpmFreq": 0x27, "AllowGfxOff": 0x28, "DisallowGfxOff": 0x29,
    "PrepareMp1ForUnload": 0x2E, "SetPptLimit": 0x32, "GetPptLimit": 0x33,
}  # fmt: skip
"""PPSMC_MSG that all versions have; only those that a compute driver uses."""
DEBUG_MODE1_RESET = 2
"""The debug mailbox's message for a mode-1 reset."""
ALL_LEVELS = 0xFF
"""Index for GetDpmFreqByIndex that asks how many levels there are. Its argument is clock << 16 | index."""
TABLES: Mapping[str, int] = {"PPTABLE": 0, "SMU_METRICS": 5, "DRIVER_SMU_CONFIG": 6, "DRIVER_INFO": 10}
"""Arguments of the TransferTable messages; the same in all versions."""
_AVERAGES = (
    "u16 AverageGfxclkFrequencyTarget, u16 AverageGfxclkFrequencyPreDs, u16 AverageGfxclkFrequencyPostDs, "
    "u16 AverageFclkFrequencyPreDs, u16 AverageFclkFrequencyPostDs, u16 AverageMemclkFrequencyPreDs, "
    "u16 AverageMemclkFrequencyPostDs, u16 AverageVclk0Frequency, u16 AverageDclk0Frequency, "
    "u16 AverageVclk1Frequency, u16 AverageDclk1Frequency, "
)
_TAIL = (
    "u32 D3HotEntryCountPerMode[4], u32 D3HotExitCountPerMode[4], u32 ArmMsgReceivedCountPerMode[4], "
    "u16 ApuSTAPMSmartShiftLimit, u16 ApuSTAPMLimit, u16 AvgApuSocketPower, u16 AverageUclkActivity_MAX, "
    "u32 PublicSerialNumberLower, u32 PublicSerialNumberUpper, "
)
_BOARD = (
    "u32 EnergyAccumulator, u16 AverageSocketPower, u16 AverageTotalBoardPower, "
    "u16 AvgTemperature[{temperatures}], u16 AvgTemperatureFanIntake, u8 PcieRate, u8 PcieWidth, "
    "u8 AvgFanPwm, u8 Padding, u16 AvgFanRpm, u8 ThrottlingPercentage[{throttlers}], "
)


THERMAL_LIMITS: Mapping[str, int] = {"EDGE": 100, "HOTSPOT": 110, "MEM": 108}
"""Degrees Celsius by sensor from which on the card protects itself: `crit` of Linux' hwmon for an RX 7900
XTX, as users have published it (grade: hardware; for the other cards inferred)."""


@dataclass(frozen=True)
class Interface:
    """What differs between versions of MP1.

    Attributes:
        messages: PPSMC_MSG by name.
        message_limit: PPSMC_Message_Count: numbers from here on are not messages.
        driver_if: GetDriverIfVersion.
        debug_reset: whether Linux resets the card by the debug mailbox instead of the message Mode1Reset.
        firmware: GetSmuVersion of the published file (Debian's 20250410-2).
        clocks: in the order of their numbers (PPCLK_e).
        temperatures: sensors in the order of `AvgTemperature` (TEMP_e); degrees Celsius.
        throttlers: elements of `ThrottlingPercentage`; the first ones are those of the temperatures.
        ppt: the element of the power limit (THROTTLER_PPT0_BIT).
        metrics: the metrics table: MHz, watts, degrees Celsius, per cent; `EnergyAccumulator` in units of
            2^-16 J.
    """

    messages: Mapping[str, int]
    message_limit: int
    driver_if: int
    debug_reset: bool
    firmware: int
    clocks: tuple[str, ...]
    temperatures: tuple[str, ...]
    throttlers: int
    ppt: int
    metrics: Struct


def _metrics_13(maximum: str, spare: int) -> Struct:
    """That of 13.0.x: what follows the throttlers, and words to spare."""
    return _struct(
        "SmuMetricsExternal_t",
        "u32 CurrClock[13], " + _AVERAGES + "u16 PCIeBusy, u16 dGPU_W_MAX, u16 padding, u32 MetricsCounter, "
        "u16 AvgVoltage[5], u16 AvgCurrent[5], u16 AverageGfxActivity, u16 AverageUclkActivity, "
        "u16 Vcn0ActivityPercentage, u16 Vcn1ActivityPercentage, "
        + _BOARD.format(temperatures=13, throttlers=22)
        + maximum
        + _TAIL
        + f"u32 Spare[{spare}], u32 MmHubPadding[8]",
    )


_13_0_0 = Interface(
    messages={**_MESSAGES, "Mode1Reset": 0x2F, "Mode2Reset": 0x4F},
    message_limit=0x52,
    driver_if=0x3D,
    debug_reset=True,
    firmware=0x004E_8000,
    clocks=(
        "GFXCLK", "SOCCLK", "UCLK", "FCLK", "DCLK_0", "VCLK_0", "DCLK_1", "VCLK_1", "DISPCLK", "DPPCLK",
        "DPREFCLK", "DCFCLK", "DTBCLK",
    ),
    temperatures=(
        "EDGE", "HOTSPOT", "HOTSPOT_G", "HOTSPOT_M", "MEM", "VR_GFX", "VR_MEM0", "VR_MEM1", "VR_SOC", "VR_U",
        "LIQUID0", "LIQUID1", "PLX",
    ),
    throttlers=22,
    ppt=16,
    metrics=_metrics_13("u8 VmaxThrottlingPercentage, u8 Padding1[3], ", 29),
)  # fmt: skip
_14_0_2 = Interface(
    messages={**_MESSAGES, "Mode3Reset": 0x4F, "GetAllRunningSmuFeatures": 0x54},
    message_limit=0x59,
    driver_if=0x2E,
    debug_reset=True,
    firmware=0x0066_3E00,
    clocks=(
        "GFXCLK", "SOCCLK", "UCLK", "FCLK", "DCLK_0", "VCLK_0", "DISPCLK", "DPPCLK", "DPREFCLK", "DCFCLK",
        "DTBCLK",
    ),
    temperatures=(
        "EDGE", "HOTSPOT", "HOTSPOT_GFX", "HOTSPOT_SOC", "MEM", "VR_GFX", "VR_SOC", "VR_MEM0", "VR_MEM1",
        "LIQUID0", "LIQUID1", "PLX",
    ),
    throttlers=21,
    ppt=14,
    metrics=_struct(
        "SmuMetricsExternal_t",
        "u32 CurrClock[11], " + _AVERAGES + "u16 AveragePCIeBusy, u16 dGPU_W_MAX, u16 padding, "
        "u16 MovingAverageGfxclkFrequencyTarget, u16 MovingAverageGfxclkFrequencyPreDs, "
        "u16 MovingAverageGfxclkFrequencyPostDs, u16 MovingAverageFclkFrequencyPreDs, "
        "u16 MovingAverageFclkFrequencyPostDs, u16 MovingAverageMemclkFrequencyPreDs, "
        "u16 MovingAverageMemclkFrequencyPostDs, u16 MovingAverageVclk0Frequency, "
        "u16 MovingAverageDclk0Frequency, u16 MovingAverageGfxActivity, u16 MovingAverageUclkActivity, "
        "u16 MovingAverageVcn0ActivityPercentage, u16 MovingAveragePCIeBusy, "
        "u16 MovingAverageUclkActivity_MAX, u16 MovingAverageSocketPower, u16 MovingAveragePadding, "
        "u32 MetricsCounter, u16 AvgVoltage[4], u16 AvgCurrent[4], u16 AverageGfxActivity, "
        "u16 AverageUclkActivity, u16 AverageVcn0ActivityPercentage, u16 Vcn1ActivityPercentage, "
        + _BOARD.format(temperatures=12, throttlers=21)
        + "u8 VmaxThrottlingPercentage, u8 Padding1[2], "
        + _TAIL
        + "u32 Spare[30], u32 MmHubPadding[8]",
    ),
)  # fmt: skip
INTERFACES: Mapping[tuple[int, int, int], Interface] = {
    (13, 0, 0): _13_0_0,
    (13, 0, 7): replace(
        _13_0_0,
        messages={name: number for name, number in _13_0_0.messages.items() if name != "Mode2Reset"},
        driver_if=0x35,
        debug_reset=False,
        firmware=0x0052_5C00,
        metrics=_metrics_13("", 30),
    ),
    (14, 0, 2): _14_0_2,
    (14, 0, 3): replace(_14_0_2, firmware=0x0068_4400),
}
"""By version of MP1. Linux uses one set of headers for 14.0.2 and 14.0.3."""
TABLE_BYTES = 0x4000
"""Bytes of the driver's table that a published driver reserves: enough for any table."""


def interface(chip: Chip) -> Interface:
    """That of a chip's MP1."""
    return INTERFACES[chip.versions["SMU"]]
