"""What a test writes to and reads from: a card's VRAM with kernels beside, or the bridge's own SRAM.

Of the SRAM, the host reaches all for writing, by slot DMA, and its first 4 KiB for reading, through the
bridge's window: nothing but a device behind PCIe releases slot DMA towards the host. So without a card the
rate in is that of the bridge's CPU, and what is beyond these 4 KiB is sent and not checked.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from firmware.asm2464pd.registers.memory import SLOT_SIZE, SRAM_WINDOW
from firmware.protocol.command_list import CommandList
from sdk.errors import DeviceFailed
from usbgpu import bridge as bridges
from usbgpu.amd.gpu import Gpu
from usbgpu.bridge.compatible import CompatibleBridge
from usbgpu.bridge.lists import ListBridge
from usbgpu.bridge.seam import SRAM_SIZE
from usbgpu.seam import Read, Write

Driven = ListBridge | CompatibleBridge
"""A bridge that this package has a driver for."""

SIZE = 1 << 20
"""Bytes of a transfer to a card."""
PLACES = 16
"""Pieces of SIZE bytes of VRAM that are used in turn."""
WINDOW_READ = 1024
"""Bytes of one read of the window; a list gives less than 4 KiB of results."""

GROUP, GROUPS, STEPS = 64, 32, 64
"""Work-items of a workgroup, workgroups, and steps of each work-item."""
KERNEL = f"""
kernel __attribute__((reqd_work_group_size({GROUP}, 1, 1))) void shift(global uint *numbers, uint seed) {{
  uint place = {GROUP} * __builtin_amdgcn_workgroup_id_x() + __builtin_amdgcn_workitem_id_x();
  uint x = (place + seed) * 2654435761u | 1u;
  for (uint step = 0; step < {STEPS}u; step++) {{
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
  }}
  numbers[place] = x;
}}
"""
"""Marsaglia's shift register generator of 32 bits: each wrong bit anywhere changes the result."""


class Memory(Protocol):
    """A memory under test.

    Attributes:
        size: bytes of one transfer towards it.
        checked: bytes of these that can be read back, from the first on.
        of_card: it is a card's.
        computes: whether kernels run beside.
        bridge: the way to it.
        addresses_lost: the last recovery found a card without its addresses.
    """

    size: int
    checked: int
    of_card: bool
    computes: bool
    bridge: Driven

    @property
    def addresses_lost(self) -> bool: ...

    def address(self, number: int) -> int:
        """Where the transfer of a number goes, as an address of that memory."""

    def write(self, number: int, data: bytes) -> int | None:
        """Write `size` bytes, and run a kernel meanwhile; how many numbers it computed wrong, None without.

        Raises:
            DeviceFailed, DeviceMissing: that failed.
        """

    def read(self, number: int) -> bytes:
        """Read the first `checked` bytes of what was written. Raises as `write`."""

    def recover(self, seconds: float) -> bool | None:
        """Work again after an error; whether what a card held is lost, None without a card.

        Raises:
            DeviceFailed, DeviceMissing: not in that time.
        """


class CardMemory:
    """VRAM of a card that is up.

    Args:
        gpu: the card.
        code: a code object with KERNEL for it; None for no kernels.
    """

    of_card = True

    def __init__(self, gpu: Gpu, code: bytes | None) -> None:
        bridge = gpu.card.bridge
        if not isinstance(bridge, Driven):
            raise DeviceFailed("this bridge cannot be tested", where=bridge.name)
        self.bridge = bridge
        self.size = self.checked = SIZE
        self.computes = code is not None
        self._gpu = gpu
        self._code = code
        self._buffer = gpu.allocate(PLACES * SIZE)
        self._module = None if code is None else gpu.load(code)
        self._results = gpu.allocate(4 * GROUP * GROUPS)

    def address(self, number: int) -> int:
        """See `Memory`: an offset in VRAM."""
        return self._buffer.place(self._offset(number), 0)

    def write(self, number: int, data: bytes) -> int | None:
        """See `Memory`."""
        if self._module is None:
            self._gpu.upload(self._buffer, data, self._offset(number))
            return None
        launch = self._module["shift"].launch([GROUPS], self._results, number)
        (found,) = self._gpu.stream(
            [Write(self._buffer, self._offset(number), data)],
            [(launch, 0)],
            [Read(self._results, 0, self._results.size)],
        )
        return int(np.count_nonzero(np.frombuffer(found, "<u4") != expected(number)))

    def read(self, number: int) -> bytes:
        """See `Memory`."""
        return self._gpu.download(self._buffer, SIZE, self._offset(number))

    def recover(self, seconds: float) -> bool | None:
        """See `Memory`."""
        intact = self._gpu.recover(seconds)
        if not intact and self._code is not None:
            if self._module is not None:
                self._module.free()
            self._module = self._gpu.load(self._code)
        return not intact

    @property
    def addresses_lost(self) -> bool:
        """See `Memory`."""
        return self._gpu.addresses_lost

    @staticmethod
    def _offset(number: int) -> int:
        return number % PLACES * SIZE


class BridgeMemory:
    """The bridge's SRAM.

    Args:
        bridge: without a card, or one that is left alone.
    """

    of_card = computes = addresses_lost = False

    def __init__(self, bridge: Driven) -> None:
        self.bridge = bridge
        self.size = SRAM_SIZE
        self.checked = SRAM_WINDOW.size

    def address(self, number: int) -> int:
        """See `Memory`: XDATA of the window."""
        return SRAM_WINDOW.address

    def write(self, number: int, data: bytes) -> int | None:
        """See `Memory`."""
        commands = CommandList()
        commands.slot_out(0, SRAM_SIZE // SLOT_SIZE, data)
        self.bridge.run(commands)
        return None

    def read(self, number: int) -> bytes:
        """See `Memory`."""
        found = b""
        while len(found) < self.checked:
            commands = CommandList()
            commands.xdata_read(SRAM_WINDOW.address + len(found), WINDOW_READ)
            (part,) = self.bridge.run(commands).values
            assert isinstance(part, bytes)
            found += part
        return found

    def recover(self, seconds: float) -> bool | None:
        """See `Memory`."""
        bridges.again(self.bridge, seconds)
        return None


def expected(seed: int) -> NDArray[np.uint32]:
    """The numbers that KERNEL computes."""
    x = (np.arange(GROUP * GROUPS, dtype=np.uint32) + np.uint32(seed)) * np.uint32(2654435761) | np.uint32(1)
    for _ in range(STEPS):
        x ^= x << np.uint32(13)
        x ^= x >> np.uint32(17)
        x ^= x << np.uint32(5)
    return x
