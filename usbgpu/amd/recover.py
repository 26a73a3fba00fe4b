"""When a card hangs: its own report, a restart of the engines, resets.

Behind the bridge there are no interrupts for the host: the cause is read from the hubs' fault registers and
the interrupt ring once a wait has taken too long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from firmware.protocol.command_list import CommandList
from firmware.protocol.operations import DWORD
from usbgpu.amd import gfx, hub, ih, sdma_engine
from usbgpu.amd.batch import Batch, GpuFailed, Later
from usbgpu.amd.card import REGISTER_BAR, Card
from usbgpu.amd.facts import pages
from usbgpu.amd.facts import smu as smu_facts
from usbgpu.amd.record import BOOTED, MAGIC, Record

log = logging.getLogger(__name__)

COMMAND = 0x04
"""Register of configuration space: command."""
MEMORY_ENABLE, BUS_MASTER = 0x2, 0x4
COMMAND_BYTES = 0b0011
DEQUEUE_TIME = 0.02
"""Seconds that a queue may take to go off its pipe."""
RESET_TIME = 0.5
"""Seconds to wait for a mode-1 reset (`smu_v13_0.c`)."""
ANSWER_TIME = 0.1
"""Seconds to wait for the power management's answer."""


class _Configurable(Protocol):
    def config(self, register: int) -> int:
        """A register's address for operations of configuration space."""


class CardLost(GpuFailed):
    """The card is not as it was booted: what it held is lost."""

    code = "gpu-lost"


@dataclass(frozen=True, slots=True)
class Fault:
    """A hub's report of the first fault since it was last read.

    Attributes:
        hub: GC or MMHUB.
        client: whose access, as the kernel names it: TCP for shaders, SQC (inst) for their code, SDMA0, CPC.
        vmid: whose address.
        address: of the page, in bytes.
        access: "write", "execution" or "read".
        mapped: the page is there, but does not allow it.
        more: others followed.
    """

    hub: str
    client: str
    vmid: int
    address: int
    access: str
    mapped: bool
    more: bool

    def __str__(self) -> str:
        why = "the page does not allow it" if self.mapped else "nothing is mapped there"
        return f"page fault: {self.access} of the page at {self.address:#x} by {self.client}: {why}"


@dataclass(frozen=True)
class Examination:
    """What a card reports after an error.

    Attributes:
        faults: page faults, at most one of each hub.
        interrupts: the newest, oldest first.
    """

    faults: tuple[Fault, ...]
    interrupts: tuple[ih.Interrupt, ...]

    @property
    def complaint(self) -> str | None:
        """What went wrong, as text; None if the card reports nothing."""
        if self.faults:
            return str(self.faults[0])
        errors = sorted({each.error for each in self.interrupts if each.error})
        return f"the card reports {', '.join(errors)}" if errors else None


def examine(card: Card) -> Examination:
    """Read what happened on a card, and clear it. Three or four lists.

    Raises:
        CardLost: it has been reset, or has lost its power, since it was booted.
        DeviceFailed, DeviceMissing: the bridge's errors.
    """
    batch = Batch(card, "faults")
    booted = batch.read("GC", BOOTED)
    asked = {block: _ask(batch, block) for block in hub.PREFIXES}
    for block in hub.PREFIXES:
        hub.clear_fault(batch, block)
    batch.run()
    if booted.value != MAGIC:
        raise CardLost(
            "the card has been reset, or has lost its power",
            where=card.bridge.name,
            hint="what it held is lost; open it again",
        )
    faults = (_fault(card, block, *(value.value for value in values)) for block, values in asked.items())
    return Examination(tuple(fault for fault in faults if fault), tuple(ih.drain(card)))


def restart(
    card: Card, record: Record, finish: Callable[[Card, Batch], None] = lambda card, batch: None
) -> None:
    """Take all queues off, in any state, and start the engines again. One list, or two if they hang.

    Args:
        card: whose firmware runs.
        record: of its boot.
        finish: adds to the batch, after the engines have been started: sets queues up.

    Raises:
        GpuFailed: that failed: the card has to be opened again, which resets it.
        DeviceFailed, DeviceMissing: the bridge's errors.
    """
    try:
        _restart(card, record, finish, hangs=False)
    except GpuFailed as problem:
        if not card.chip.family.soft_resets:
            raise
        log.info("the command processor is reset: %s", problem)
        _restart(card, record, finish, hangs=True)


def _restart(card: Card, record: Record, finish: Callable[[Card, Batch], None], *, hangs: bool) -> None:
    """See `restart`. A queue that works takes itself off when it is asked to (Linux, `gfx_v11_0.c`,
    `gfx_v11_0_reset_kcq`); a reset of the whole command processor takes 100 ms more.
    """
    batch = Batch(card, "restart")
    gfx.kill_waves(batch)
    if hangs:
        gfx.reset_command_processor(batch)
    batch.wait("GC", "CP_HQD_ACTIVE", 0, 1, DEQUEUE_TIME, what="compute queue off")
    gfx.select(batch)
    sdma_engine.reset(batch)
    gfx.reset(batch, record.starts)
    gfx.start(batch)
    sdma_engine.start(batch)
    finish(card, batch)
    batch.run()


def mode1_reset(card: Card, function: _Configurable) -> None:
    """Make the power management reset everything but configuration space; it takes RESET_TIME.

    The card is not a bus master meanwhile, so that it writes nothing to the bridge.

    Raises:
        GpuFailed: the power management does not answer.
        DeviceFailed, DeviceMissing: the bridge's errors.
    """
    interface = smu_facts.interface(card.chip)
    batch = Batch(card, "mode-1 reset")
    batch.write("SMU", "MP1_SMN_C2PMSG_90", 0)
    batch.write("SMU", "MP1_SMN_C2PMSG_66", interface.messages["GetSmuVersion"])
    batch.wait("SMU", "MP1_SMN_C2PMSG_90", smu_facts.RESULTS["OK"], seconds=ANSWER_TIME, what="SMU answer")
    batch.run()

    def register(name: str) -> int:
        return card.bars[REGISTER_BAR] + card.index("SMU", name) * DWORD

    commands = CommandList()
    commands.config_write(function.config(COMMAND), MEMORY_ENABLE, COMMAND_BYTES)
    if interface.debug_reset:
        commands.write(register("MP1_SMN_C2PMSG_53"), 0)
        commands.write(register("MP1_SMN_C2PMSG_75"), smu_facts.DEBUG_MODE1_RESET)
    else:
        commands.write(register("MP1_SMN_C2PMSG_90"), 0)
        commands.write(register("MP1_SMN_C2PMSG_82"), 0)
        commands.write(register("MP1_SMN_C2PMSG_66"), interface.messages["Mode1Reset"])
    commands.delay(round(RESET_TIME * 1e6))
    commands.config_write(function.config(COMMAND), MEMORY_ENABLE | BUS_MASTER, COMMAND_BYTES)
    card.bridge.run(commands)


def _ask(batch: Batch, block: str) -> tuple[Later[int], Later[int], Later[int]]:
    prefix = f"{hub.PREFIXES[block][0]}L2_PROTECTION_FAULT_ADDR"
    status = batch.read(block, hub.fault_status(batch.card, block))
    return status, batch.read(block, f"{prefix}_LO32"), batch.read(block, f"{prefix}_HI32")


def _fault(card: Card, block: str, status: int, low: int, high: int) -> Fault | None:
    """The fault that the registers report."""
    if not status:
        return None
    register = card.chip.register(block, hub.fault_status(card, block))
    parts = register.unpack(status)
    permissions = parts["PERMISSION_FAULTS"]
    clients = (pages.GC_CLIENTS if block == "GC" else pages.MM_CLIENTS)[card.chip.generation]
    number = parts["CID"]
    client = next((name for name, known in clients.items() if known == number), f"client {number}")
    access = "read"
    if parts["RW"]:
        access = "write"
    elif permissions & pages.PERMISSIONS["EXECUTE"]:
        access = "execution"
    return Fault(
        hub=block,
        client=client,
        vmid=parts["VMID"],
        address=((high & 0xF) << 32 | low) << pages.PAGE_SHIFT,
        access=access,
        mapped=not permissions & pages.PERMISSIONS["VALID"],
        more=bool(parts["MORE_FAULTS"]),
    )
