"""The power management processor (SMU, MP1): mailboxes, messages, tables.

From `smu_v13_0_0_ppsmc.h`, `smu_v14_0_2_ppsmc.h`, `smu13_driver_if_v13_0_0.h` and `smu14_driver_if_v14_0.h`
of Linux 6.12 (MIT text). Registers are MP1_SMN_C2PMSG_n: a driver writes 0 to 90, the argument to 82, the
message to 66, and waits until 90 is not 0; 82 then holds the result. The debug mailbox is 75 (message), 53
(argument) and 54 (response).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sdk.facts.registers import Evidence
from sdk.facts.structures import Struct, c_struct

_struct = partial(
    c_struct,
    evidence=Evidence.HARDWARE,
    source="Linux 6.12, smu13_driver_if_v13_0_0.h and smu14_driver_if_v14_0.h",
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
MESSAGES: Mapping[int, Mapping[str, int]] = {
    13: {**_MESSAGES, "Mode1Reset": 0x2F, "Mode2Reset": 0x4F},
    14: {**_MESSAGES, "Mode3Reset": 0x4F, "GetAllRunningSmuFeatures": 0x54},
}
"""PPSMC_MSG by major version of MP1; only those that a compute driver uses."""
MESSAGE_LIMITS: Mapping[int, int] = {13: 0x52, 14: 0x59}
"""PPSMC_Message_Count: numbers from here on are not messages."""
DEBUG_MODE1_RESET = 2
"""The debug mailbox's message for a mode-1 reset, as the kernel and a published driver use it."""
DRIVER_IF_VERSIONS: Mapping[int, int] = {13: 0x3D, 14: 0x2E}
"""GetDriverIfVersion."""
ALL_LEVELS = 0xFF
"""Index for GetDpmFreqByIndex that asks how many levels there are. Its argument is clock << 16 | index."""
CLOCKS: Mapping[int, tuple[str, ...]] = {
    13: (
        "GFXCLK", "SOCCLK", "UCLK", "FCLK", "DCLK_0", "VCLK_0", "DCLK_1", "VCLK_1", "DISPCLK", "DPPCLK",
        "DPREFCLK", "DCFCLK", "DTBCLK",
    ),
    14: (
        "GFXCLK", "SOCCLK", "UCLK", "FCLK", "DCLK_0", "VCLK_0", "DISPCLK", "DPPCLK", "DPREFCLK", "DCFCLK",
        "DTBCLK",
    ),
}  # fmt: skip
"""Clocks in the order of their numbers (PPCLK_e)."""
TEMPERATURES: Mapping[int, tuple[str, ...]] = {
    13: (
        "EDGE", "HOTSPOT", "HOTSPOT_G", "HOTSPOT_M", "MEM", "VR_GFX", "VR_MEM0", "VR_MEM1", "VR_SOC", "VR_U",
        "LIQUID0", "LIQUID1", "PLX",
    ),
    14: (
        "EDGE", "HOTSPOT", "HOTSPOT_GFX", "HOTSPOT_SOC", "MEM", "VR_GFX", "VR_SOC", "VR_MEM0", "VR_MEM1",
        "LIQUID0", "LIQUID1", "PLX",
    ),
}  # fmt: skip
"""Sensors in the order of `AvgTemperature` (TEMP_e); degrees Celsius."""
TABLES: Mapping[str, int] = {"PPTABLE": 0, "SMU_METRICS": 5, "DRIVER_SMU_CONFIG": 6, "DRIVER_INFO": 10}
"""Arguments of the TransferTable messages; the same in both versions."""
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
    "u8 VmaxThrottlingPercentage, u8 Padding1[{padding}], "
)
METRICS: Mapping[int, Struct] = {
    13: _struct(
        "SmuMetricsExternal_t",
        "u32 CurrClock[13], " + _AVERAGES + "u16 PCIeBusy, u16 dGPU_W_MAX, u16 padding, u32 MetricsCounter, "
        "u16 AvgVoltage[5], u16 AvgCurrent[5], u16 AverageGfxActivity, u16 AverageUclkActivity, "
        "u16 Vcn0ActivityPercentage, u16 Vcn1ActivityPercentage, "
        + _BOARD.format(temperatures=13, throttlers=22, padding=3)
        + _TAIL
        + "u32 Spare[29], u32 MmHubPadding[8]",
    ),
    14: _struct(
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
        + _BOARD.format(temperatures=12, throttlers=21, padding=2)
        + _TAIL
        + "u32 Spare[30], u32 MmHubPadding[8]",
    ),
}
"""The metrics table by major version of MP1: MHz, watts, degrees Celsius, per cent; `EnergyAccumulator` in
units of 2^-16 J."""
TABLE_BYTES = 0x4000
"""Bytes of the driver's table that a published driver reserves: enough for any table."""
