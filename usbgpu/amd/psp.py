"""The security processor: it takes every firmware, checks it, and starts the processor that runs it.

First its bootloader takes the parts of the secure OS (sOS), one by one; then the sOS takes commands by a ring
in VRAM. What they load lies in the bridge's SRAM, many blobs at a time: `load_order` says what is uploaded
together and where. Registers, commands, structures: `usbgpu.amd.facts.psp`; the order: Linux' `psp_v13_0.c`,
`psp_v14_0.c`, and the published boot traces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sdk.errors import InternalError
from usbgpu.amd import firmware, layout
from usbgpu.amd.batch import Batch, GpuFailed
from usbgpu.amd.card import Card
from usbgpu.amd.facts import firmware as firmware_facts
from usbgpu.amd.facts import psp as facts
from usbgpu.amd.facts.chips import Chip
from usbgpu.amd.tables import View, view_address
from usbgpu.bridge.seam import SRAM_SIZE

COMPONENTS = {
    11: ("KDB", "SPL", "SYS_DRV", "SOS"),
    12: ("KDB", "SPL", "SYS_DRV", "SOC_DRV", "INTF_DRV", "DBG_DRV", "RAS_DRV", "SOS"),
}
"""What the bootloader takes, in order, by generation; a chip's files may have fewer."""
BLOB_OF = {(11, "SPL"): "KDB"}
"""Published drivers put the key database into the SPL's slot of gfx11 (trace)."""

RING, RING_SIZE = layout.PSP, 64 << 10
BUFFERS, BUFFER = layout.PSP + RING_SIZE, 4 << 10
"""Command buffers, one for each command of a boot, and the distance between them."""
FENCE = layout.PSP + layout.PSP_SIZE - BUFFER
"""Where the ring's fence is written."""
RESPONSE = facts.COMMAND_BUFFER.offset("resp")

READY_MASK = facts.READY | 0xFF
"""Of C2PMSG_35: bits 7:0 are an error."""
DONE_MASK = facts.READY | 0xFFFF
"""Of C2PMSG_64: bits 15:0 are a status."""
COMPONENT_TIME = 1.0
"""Seconds that the bootloader may take over a component; so do the next two."""
START_TIME = 2.0
START_INTERVAL = 10e-3
COMMAND_TIME = 2.0
HANDSHAKE = 20e-3
"""Seconds to wait for the sOS after a control command (`psp_v13_0.c`)."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A blob in the SRAM.

    Attributes:
        what: the bootloader's component, TOC, or the type of firmware.
        blob: its bytes.
        offset: in the SRAM.
        address: the GPU's, of it.
    """

    what: str
    blob: bytes
    offset: int
    address: int


@dataclass(frozen=True)
class LoadOrder:
    """Which upload has which blobs.

    Attributes:
        uploads: pieces of each.
        views: of the SRAM, for what the bootloader takes: its addresses are multiples of 1 MiB.
    """

    uploads: Sequence[Sequence[Piece]]
    views: Sequence[View]

    @property
    def size(self) -> int:
        """Bytes of all blobs."""
        return sum(len(piece.blob) for pieces in self.uploads for piece in pieces)


def load_order(chip: Chip, blobs: Mapping[str, bytes]) -> LoadOrder:
    """Put all blobs into as few uploads as keep their order.

    Raises:
        GpuFailed: a blob is not there, or larger than the SRAM.
    """
    uploads: list[list[Piece]] = [[]]
    views: list[View] = []
    at = 0
    known: dict[str, int] = {}
    # Linux loads what a chip's file has: that of MP 14.0.2 lacks RAS_DRV.
    components = [
        name for name in COMPONENTS[chip.generation] if name in blobs or firmware_facts.has(chip, name)
    ]
    names = [*components, "TOC", *firmware.needed(chip)]
    for name in names:
        source = BLOB_OF.get((chip.generation, name), name)
        blob = blobs.get(source)
        if blob is None:
            raise GpuFailed(f"its firmware files have no {source}", where=chip.name)
        if len(blob) > SRAM_SIZE:
            raise GpuFailed(
                f"its {source} has {len(blob)} bytes; the bridge takes {SRAM_SIZE}", where=chip.name
            )
        if source in known:  # it is up already
            view = known[source]
            at_view = views[view - 1]
            uploads[-1].append(Piece(name, blob, at_view.offset, view_address(view)))
            continue
        room = -(-len(blob) // facts.FIRMWARE_ALIGNMENT) * facts.FIRMWARE_ALIGNMENT
        if at + room > SRAM_SIZE:
            uploads.append([])
            at = 0
            known.clear()
        address = view_address(0) + at
        if name in components:
            views.append(View(len(views) + 1, at, room))
            known[source] = len(views)
            address = view_address(len(views))
        uploads[-1].append(Piece(name, blob, at, address))
        at += room
    return LoadOrder(uploads, views)


def image(pieces: Sequence[Piece]) -> bytes:
    """The content of the SRAM."""
    data = bytearray(max(piece.offset + len(piece.blob) for piece in pieces))
    for piece in pieces:
        data[piece.offset : piece.offset + len(piece.blob)] = piece.blob
    return bytes(data)


def wait_for_bootloader(batch: Batch) -> None:
    """Wait until the bootloader takes something, or the secure OS runs."""
    batch.wait(
        "MP", mailbox(batch.card, 35), facts.READY, READY_MASK, COMPONENT_TIME, what="PSP bootloader ready"
    )


class Psp:
    """The security processor of a card during a cold boot.

    Args:
        card: whose.
        vram: address of VRAM for the memory controller.
    """

    def __init__(self, card: Card, vram: int) -> None:
        self._card = card
        self._vram = vram
        self._commands: list[str] = []  # that have been submitted
        self._components = COMPONENTS[card.chip.generation]
        self.needs_tmr = card.chip.versions["MP"] not in facts.BOOT_TIME_TMR

    def load(self, batch: Batch, pieces: Sequence[Piece]) -> None:
        """Load everything that is in the SRAM. Runs the batch when the secure OS is to start."""
        for piece in pieces:
            if piece.what in self._components:
                self._component(batch, piece)
                continue
            where = {"fw_phy_addr_lo": piece.address & 0xFFFF_FFFF, "fw_phy_addr_hi": piece.address >> 32}
            if piece.what == "TOC":
                place = {name.replace("fw_", "toc_"): value for name, value in where.items()}
                toc = facts.LOAD_TOC.pack(**place, toc_size=len(piece.blob))
                self._submit(batch, "LOAD_TOC", toc)
                continue
            kind = facts.FW_TYPES[piece.what.replace("_STACK", "_P0_STACK")]
            body = facts.LOAD_IP_FW.pack(**where, fw_size=len(piece.blob), fw_type=kind)
            self._submit(batch, "LOAD_IP_FW", body, piece.what)
            if piece.what == "SMU" and self.needs_tmr:
                self._set_up_tmr(batch)

    def autoload(self, batch: Batch) -> None:
        """Make the RLC start all engines."""
        self._submit(batch, "AUTOLOAD_RLC", b"")

    def explain(self, problem: GpuFailed) -> GpuFailed:
        """A better error for a batch that failed: what the processor reports for its last command."""
        batch = Batch(self._card, "PSP")
        ready = batch.read("MP", mailbox(self._card, 35))
        fence = batch.word(FENCE)
        statuses = [batch.word(_buffer(number) + RESPONSE) for number in range(len(self._commands))]
        try:
            batch.run()
        except GpuFailed:
            return problem
        number = fence.value - 1
        text = f"{problem.message}; its bootloader says {ready.value:#x}"
        if 0 <= number < len(statuses) and (status := statuses[number].value):
            name = next((name for name, code in facts.STATUS.items() if code == status), f"{status:#x}")
            text = f"the security processor refuses {self._commands[number]}: {name}"
        hint = "the firmware may be damaged or another chip's: check it with `towline gpu doctor`"
        return GpuFailed(text, where=problem.where or "", hint=hint)

    # -- inside -----------------------------------------------------------------------------------------

    def _component(self, batch: Batch, piece: Piece) -> None:
        """Make the bootloader take one."""
        command, place = mailbox(self._card, 35), mailbox(self._card, 36)
        if piece.address % facts.BLOB_ALIGNMENT:
            raise InternalError(f"{piece.what} for the bootloader at {piece.address:#x}")
        ready = f"PSP bootloader ready for {piece.what}"
        batch.wait("MP", command, facts.READY, READY_MASK, COMPONENT_TIME, what=ready)
        batch.write("MP", place, piece.address >> 20)
        batch.write("MP", command, facts.BOOTLOADER[piece.what])
        if piece.what == self._components[-1]:
            self._wait_for_start(batch)
            self._create_ring(batch)

    def _wait_for_start(self, batch: Batch) -> None:
        """Run the batch, and wait until the sOS reports that it is alive.

        A list cannot wait until C2PMSG_81 is no longer 0, and a ready mailbox of the ring may be what
        an sOS before this one has left there: so the register is polled from here, mostly once.
        """
        clock = self._card.bridge.clock
        batch.store(FENCE, bytes(4))
        control = mailbox(self._card, 64)
        batch.wait("MP", control, facts.READY, facts.READY, START_TIME, what="PSP sOS started")
        end = None
        while True:
            sign = batch.read("MP", mailbox(self._card, 81))
            batch.run()
            end = clock.now() + START_TIME if end is None else end
            if sign.value:
                return
            if clock.now() >= end:
                raise GpuFailed(
                    f"the secure OS has not started within {START_TIME:g} s",
                    where=f"{self._card.bridge.name}, PSP",
                )
            clock.sleep(START_INTERVAL)

    def _create_ring(self, batch: Batch) -> None:
        control = mailbox(self._card, 64)
        batch.wait("MP", control, facts.READY, facts.READY, COMMAND_TIME, what="PSP sOS ready")
        batch.pair("MP", mailbox(self._card, 69), mailbox(self._card, 70), self._vram + RING)
        batch.write("MP", mailbox(self._card, 71), RING_SIZE)
        batch.write("MP", control, facts.CONTROL["INIT_GPCOM_RING"])
        batch.pause(HANDSHAKE)
        batch.wait("MP", control, facts.READY, DONE_MASK, COMMAND_TIME, what="PSP ring created")
        batch.wait("MP", mailbox(self._card, 67), 0, seconds=0, what="PSP ring empty")

    def _set_up_tmr(self, batch: Batch) -> None:
        address = self._vram + layout.TMR
        body = {
            "buf_phy_addr_lo": address & 0xFFFF_FFFF,
            "buf_phy_addr_hi": address >> 32,
            "buf_size": facts.TMR_MAXIMUM,  # the sOS refuses one that is less than its TOC asks for
            "tmr_flags": 2,
            "system_phy_addr_lo": layout.TMR,
        }
        self._submit(batch, "SETUP_TMR", facts.SETUP_TMR.pack(**body))

    def _submit(self, batch: Batch, command: str, body: bytes, what: str = "") -> int:
        """Submit a command: its number."""
        number = len(self._commands)
        self._commands.append(f"{command} {what}".strip())
        place, fence = self._vram + _buffer(number), self._vram + FENCE
        if _buffer(number) >= FENCE or (number + 1) * facts.FRAME.size >= RING_SIZE:
            raise InternalError("more PSP commands than a boot has")
        start = facts.COMMAND_BUFFER.offset("cmd")
        head = facts.COMMAND_BUFFER.pack(cmd_id=facts.COMMANDS[command])[:start]
        batch.store(_buffer(number), (head + body).ljust(64, b"\0"))  # no command reads further
        batch.store(_buffer(number) + RESPONSE, bytes(4))
        frame = {
            "cmd_buf_addr_lo": place & 0xFFFF_FFFF,
            "cmd_buf_addr_hi": place >> 32,
            "fence_addr_lo": fence & 0xFFFF_FFFF,
            "fence_addr_hi": fence >> 32,
            "fence_value": number + 1,
        }
        batch.store(RING + number * facts.FRAME.size, facts.FRAME.pack(**frame))
        batch.flush_hdp()
        batch.write("MP", mailbox(self._card, 67), (number + 1) * facts.FRAME.size // 4)
        name = self._commands[number]
        batch.wait_memory(FENCE, number + 1, f"PSP answer to {name}", seconds=COMMAND_TIME)
        batch.wait_memory(_buffer(number) + RESPONSE, 0, f"PSP success of {name}", seconds=0)
        return number


def mailbox(card: Card, number: int) -> str:
    """Name of a mailbox register."""
    return f"{facts.PREFIXES[card.chip.versions['MP'][0]]}_SMN_C2PMSG_{number}"


def _buffer(number: int) -> int:
    return BUFFERS + number * BUFFER
