"""What a bridge's firmware reports of itself: ours by the request INFO, a compatible one by registers."""

from __future__ import annotations

from dataclasses import dataclass

from firmware.asm2464pd.registers.link import LTSSM, PCIE_LINK_RATE, PCIE_LTSSM
from firmware.protocol import commands, requests
from sdk.errors import DeviceFailed
from sdk.facts.structures import Malformed
from usbgpu.bridge.base import LINK_UP
from usbgpu.transport import Running, Transport

PATIENCE = 1.0
"""Seconds that a request may take; it waits for nothing."""
BYTE, PHY = 1, 1 << 8


@dataclass(frozen=True, slots=True)
class Health:
    """What a bridge's firmware reports.

    Attributes:
        at: seconds of the device's clock when it was asked.
        ltssm: state of the PCIe link.
        generation, lanes: of the PCIe link as the chip reports them; they mean nothing while it is down.
        uptime: seconds since the firmware started, in steps of 10 ms; None from a compatible firmware, as are
            all that follow.
        links_lost: how often the PCIe link went down when it should be up.
        sequence: number of the last command list that ran.
        failure: how the last list that failed ended: cause, operation, opcode and address as text; "" if none
            has failed.
    """

    at: float
    ltssm: int
    generation: int
    lanes: int
    uptime: float | None = None
    links_lost: int | None = None
    sequence: int | None = None
    failure: str | None = None

    @property
    def link_up(self) -> bool:
        """Whether the PCIe link is up."""
        return self.ltssm == LINK_UP

    @property
    def link(self) -> str:
        """The state of the PCIe link as text."""
        if self.link_up:
            return f"up, generation {self.generation}, {self.lanes} lanes"
        return f"down, LTSSM {self.ltssm:#04x}{f' {LTSSM[self.ltssm]}' if self.ltssm in LTSSM else ''}"


def ask(transport: Transport, running: Running) -> Health:
    """Ask a bridge that runs our firmware or a compatible one, and change nothing.

    Raises:
        DeviceFailed: it does not answer, or not as it must.
    """
    at = transport.clock.now()
    if running is not Running.OURS:
        state, rate = (
            _register(transport, PCIE_LTSSM.address),
            _register(transport, PCIE_LINK_RATE.address, PHY),
        )
        return Health(at, state, rate & 0xF, rate >> 4)
    request = requests.INFO
    answer = transport.control_in(
        request.request_type, request.code, length=commands.INFO.size, timeout=PATIENCE
    )
    try:
        info = commands.INFO.unpack(answer)
    except Malformed as problem:
        raise DeviceFailed(f"its report is damaged: {problem}", where=transport.name) from None
    rate = info["link_rate"]
    return Health(
        at,
        info["ltssm"],
        rate & 0xF,
        rate >> 4,
        info["uptime"] / 1000,
        info["links_lost"],
        info["sequence"],
        _failure(info) if info["cause"] else "",
    )


def _failure(info: dict[str, int]) -> str:
    cause = commands.RESULT_TRAILER.member("cause").values.get(info["cause"], f"cause {info['cause']}")
    names = {opcode.code: opcode.name for opcode in commands.OPCODES}
    name = names.get(info["opcode"])
    where = f"operation {info['index']} ({name})" if name else "the list itself"
    return f"{cause}: {where}, address {info['address']:#x}"


def _register(transport: Transport, address: int, index: int = 0) -> int:
    read = requests.XDATA_READ
    (value,) = transport.control_in(
        read.request_type, read.code, address, index, length=BYTE, timeout=PATIENCE
    )
    return value
