"""Power, reset and link of the PCIe port.

The order that works on silicon, from the open firmware's main.c: assert PERST#, switch on the supplies of the
slot and of the port, release PERST#, wait for the LTSSM to reach L0. The tunnel registers are written in
between; what they do beyond holding the value is not known. Their names are those of the open firmware's
registers.h.
"""

from __future__ import annotations

from firmware.asm2464pd.describe import ByteRegister, Space
from sdk.facts.registers import Access, Evidence, Field

_MAIN = "open firmware, main.c"
_REGISTERS = "open firmware, registers.h"

LTSSM = {
    0x00: "DETECT_QUIET",
    0x01: "DETECT_ACTIVE",
    0x10: "POLLING",
    0x48: "L0_OTHER_FIRMWARE",
    0x4C: "CONFIGURATION",
    0x78: "L0",
}
"""States of the link training machine that have been seen."""

PORT_ON = 0x1C
"""The value of PCIE_PORT_POWER while the port is on."""

PCIE_TUNNEL_CONFIG = ByteRegister(
    "PCIE_TUNNEL_CONFIG",
    Space.XDATA,
    0xB298,
    Evidence.TRACE,
    "Tunnel configuration; 0x10 is written at power-on.",
    fields=(Field("TUNNEL", 4, 1, "Tunnel enable."),),
    source=f"{_MAIN}; {_REGISTERS}",
)
PCIE_TUNNEL_CONTROL = ByteRegister(
    "PCIE_TUNNEL_CONTROL",
    Space.XDATA,
    0xB403,
    Evidence.TRACE,
    "Tunnel control; 0x01 is written at power-on.",
    source=_MAIN,
)
PCIE_TUNNEL_LINK_STATE = ByteRegister(
    "PCIE_TUNNEL_LINK_STATE",
    Space.XDATA,
    0xB430,
    Evidence.TRACE,
    "Tunnel link state; 0x00 is written at power-on.",
    source=_MAIN,
)
PCIE_TUNNEL_LINK_STATUS = ByteRegister(
    "PCIE_TUNNEL_LINK_STATUS",
    Space.XDATA,
    0xB431,
    Evidence.TRACE,
    "Lanes that are kept out of training. Left at its reset value the link trains with as many of its four "
    "lanes as the card has; with 0x0C it has two, and with 0x0E, which the maker's firmware writes, one. "
    "That each bit stands for a lane is inferred. Firmware writes it before PCIE_PORT_POWER.",
    fields=(
        Field(
            "LANES_OFF",
            0,
            4,
            "one bit a lane",
            values={0x0: "NONE", 0xC: "HALF", 0xE: "ALL_BUT_ONE"},
            evidence=Evidence.HARDWARE,
        ),
    ),
    source=f"{_MAIN} and registers.h; its pull request 81",
)
PCIE_LTSSM = ByteRegister(
    "PCIE_LTSSM",
    Space.XDATA,
    0xB450,
    Evidence.HARDWARE,
    "State of the link training and status state machine.",
    access=Access.RO,
    fields=(Field("STATE", 0, 8, "The link is up only at 0x78.", values=LTSSM),),
    source=f"{_MAIN}; {_REGISTERS}; host scripts wait for 0x78",
)
PCIE_PERST = ByteRegister(
    "PCIE_PERST",
    Space.XDATA,
    0xB480,
    Evidence.TRACE,
    "Fundamental reset of the card in the slot. That it is asserted after power-on is inferred: the link "
    "does not come up before firmware clears it.",
    reset=0x01,
    fields=(Field("ASSERT", 0, 1, "1 holds the slot in reset.", evidence=Evidence.HARDWARE),),
    source=f"{_MAIN}; {_REGISTERS}",
)
PCIE_SLOT_3V3 = ByteRegister(
    "PCIE_SLOT_3V3",
    Space.XDATA,
    0xC656,
    Evidence.HARDWARE,
    "Output pins; the slot's 3.3 V supply is one of them.",
    fields=(Field("ENABLE", 5, 1, "3.3 V on."),),
    source=_MAIN,
)
PCIE_SLOT_12V = ByteRegister(
    "PCIE_SLOT_12V",
    Space.XDATA,
    0xC659,
    Evidence.HARDWARE,
    "Output pins; the slot's 12 V supply is one of them. Set it right after PCIE_PORT_POWER: if it is set "
    "much later, training ends in Configuration; if before, some cards are not found.",
    fields=(Field("ENABLE", 0, 1, "12 V on."),),
    source=f"{_MAIN}; its pull requests 68 and 81",
)
PCIE_PORT_POWER = ByteRegister(
    "PCIE_PORT_POWER",
    Space.XDATA,
    0xE764,
    Evidence.TRACE,
    "Switches the port, and begins training: 0x1C on, 0x00 off. The card in the slot answers 20 to 50 ms "
    "after its supply is on; with all three bits set, training is repeated until then.",
    fields=(Field("ENABLE", 2, 3, "All three bits are set to switch it on."),),
    source=f"{_MAIN}; its pull request 81",
)
PCIE_LINK_STATUS = ByteRegister(
    "PCIE_LINK_STATUS",
    Space.XDATA,
    0xE765,
    Evidence.TRACE,
    "State of the link.",
    access=Access.RO,
    fields=(Field("UP", 1, 1, "The link is up."),),
    source=_MAIN,
)
PCIE_LINK_RATE = ByteRegister(
    "PCIE_LINK_RATE",
    Space.PHY,
    0x4092,
    Evidence.TRACE,
    "Rate and width of the trained link.",
    access=Access.RO,
    fields=(
        Field("GENERATION", 0, 4, "PCIe generation, 1 to 4; Gen3 holds, Gen4 falls back to it (hardware)."),
        Field("LANES", 4, 4, "Width, 1 to 4 lanes."),
    ),
    source=f"{_MAIN}; its pull request 81",
)
PCIE_LANE_COMMITS = tuple(
    ByteRegister(
        f"PCIE_LANE_COMMIT_{lane}",
        Space.PHY,
        0x78AF + 0x100 * lane,
        Evidence.HARDWARE,
        f"Commits the set-up of lane {lane}. Once 0x4F has been written for lanes 0 and 1 and 0xCF for 2 "
        "and 3, the link has two lanes at most. That bit 7 is what keeps a lane out is inferred.",
        fields=(Field("OUT", 7, 1, "The lane stays out.", evidence=Evidence.INFERRED),),
        source=f"{_MAIN}; its pull request 81; the chip maker's firmware",
    )
    for lane in range(4)
)
"""By lane."""
REGISTERS = PCIE_LANE_COMMITS
"""Registers in a table, for the collection of all."""
PCIE_ROUTING = ByteRegister(
    "PCIE_ROUTING",
    Space.PHY,
    0x6025,
    Evidence.HARDWARE,
    "Holds a tuning value of the first lane until the last write of the set-up, 0x80, enables TLPs.",
    fields=(Field("ENABLE", 7, 1, "TLPs are routed downstream; without it none arrives."),),
    source=f"{_MAIN}; {_REGISTERS}",
)
