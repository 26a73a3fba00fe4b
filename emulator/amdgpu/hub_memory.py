"""Memory as a client of a VM hub has it: the seam `AddressSpace`."""

from __future__ import annotations

from collections.abc import Iterator

from emulator.amdgpu.hub import Hub
from emulator.amdgpu.seams import Extent
from emulator.amdgpu.tlb import Access, Translation
from emulator.pcie.function import UnsupportedRequest
from sdk.facts.registers import FactError


class HubMemory:
    """Addresses of a VMID, for one client.

    The client keeps its last translation, as if it had a TLB of one entry of its own.

    Args:
        hub: which translates.
        vmid: whose addresses; those of VMID 0 may be the memory controller's.
        client: as the fault registers name it: CPC, TCP, SQC (inst), SQC (data), SDMA0, RLC, ... for GC; MP0,
            MP1, OSSSYS, ... for the MM hub.

    Raises:
        FactError: the hub has no such client.
    """

    def __init__(self, hub: Hub, vmid: int, client: str) -> None:
        if client not in hub.faults.clients:
            raise FactError(f"{hub.block} has no client {client}")
        self._hub = hub
        self._vmid = vmid
        self._client = client
        self._vram = hub.context.vram
        self._link = hub.context.link
        self._last: Translation | None = None
        self._epoch = -1

    def translate(self, address: int, *, write: bool = False, execute: bool = False) -> Extent:
        """The extent that holds an address, as far as one translation reaches.

        Args:
            address: virtual.
            write: whether it is to be written.
            execute: whether code is to be fetched from it.

        Raises:
            PageFault: none does, and the dummy page does not replace it; status registers and interrupt ring
                have the fault.
        """
        return self._find(address, "WRITE" if write else "EXECUTE" if execute else "READ")

    def read(self, address: int, size: int) -> bytes:
        """Bytes at virtual addresses. Raises PageFault."""
        extent = self._find(address, "READ")
        if address + size <= extent.end:
            return self._load(extent, address, size)
        return b"".join(self._load(*piece) for piece in self._pieces(address, size, "READ"))

    def write(self, address: int, data: bytes) -> None:
        """Change bytes at virtual addresses. Raises PageFault."""
        extent = self._find(address, "WRITE")
        if address + len(data) <= extent.end:
            self._store(extent, address, data)
            return
        for extent, place, size in self._pieces(address, len(data), "WRITE"):
            self._store(extent, place, data[place - address : place - address + size])

    def _pieces(self, address: int, size: int, access: Access) -> Iterator[tuple[Extent, int, int]]:
        end = address + size
        while address < end:
            extent = self._find(address, access)
            part = min(end, extent.end) - address
            yield extent, address, part
            address += part

    def _find(self, address: int, access: Access) -> Extent:
        hub, last = self._hub, self._last
        if last is not None and self._epoch == hub.epoch:
            extent = last.extent
            if extent.start <= address < extent.end and last.allows(access):
                if last.sources:
                    hub.check(self._vmid, self._client, last)
                return extent
        found = hub.translate(self._vmid, self._client, address, access)
        self._last = None if found.dummy else found
        self._epoch = hub.epoch
        return found.extent

    def _load(self, extent: Extent, address: int, size: int) -> bytes:
        place = extent.target + address - extent.start
        if not extent.system:
            return self._vram.read(place, size)
        try:
            return self._link.dma_read(place, size)
        except UnsupportedRequest:
            self._refused(f"reads {size} bytes at PCIe {place:#x}", "gets ones")
            return b"\xff" * size

    def _store(self, extent: Extent, address: int, data: bytes) -> None:
        place = extent.target + address - extent.start
        if not extent.system:
            self._vram.write(place, data)
            return
        try:
            self._link.dma_write(place, data)
        except UnsupportedRequest:
            self._refused(f"writes {len(data)} bytes to PCIe {place:#x}", "they are lost")

    def _refused(self, what: str, outcome: str) -> None:
        self._hub.context.diagnosis.wrong(
            f"{self._client} {what}, an unsupported request (nothing answers there, or bus mastering "
            f"is off): {outcome}"
        )
