"""Starting a bridge's firmware again, without its power being switched.

Our firmware and compatible ones restart by a register of the chip, which starts the CPU at 0 and leaves the
bus for a moment; what runs is what the mask ROM has put into RAM at power-on, not what the flash holds since
(`firmware.asm2464pd.registers.system`, inferred). In mass-storage mode a command does it, and starts what is
in the flash. No request is known that starts the boot loader: its strap does, at power-on.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from firmware.asm2464pd import bot
from firmware.asm2464pd.registers.system import SYS_CPU_RESTART
from firmware.protocol import requests
from sdk.errors import DeviceFailed, Unsupported
from usbgpu.flash.job import START_SECONDS
from usbgpu.flash.mass_storage import MassStorage
from usbgpu.flash.programmer import START_WRITTEN
from usbgpu.transport import Identity, Running, Transport

REQUEST_SECONDS = 1.0
"""Longest time of the request: the device may be gone before it has acknowledged it."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """What came of it.

    Attributes:
        before, after: what ran, and what runs now.
        seconds: of the device's clock until it answered again.
    """

    before: Identity
    after: Identity
    seconds: float


def restart(device: Transport, seconds: float = START_SECONDS) -> Restarted:
    """Start the firmware again, and wait until it answers. The slot's power goes off with it.

    Args:
        device: the board.
        seconds: to wait at most.

    Raises:
        Unsupported: it is not a bridge of this kind.
        DeviceFailed: it did not come back in that time.
    """
    before, began = device.identify(), device.clock.now()
    match before.running:
        case Running.OURS | Running.COMPATIBLE:
            request = requests.XDATA_WRITE
            with contextlib.suppress(DeviceFailed):  # it leaves the bus in the middle
                device.control_out(
                    request.request_type,
                    request.code,
                    SYS_CPU_RESTART.address,
                    SYS_CPU_RESTART["RESTART"],
                    timeout=REQUEST_SECONDS,
                )
        case Running.MAKERS | Running.LOADER:
            commands = MassStorage(device)
            with contextlib.suppress(DeviceFailed):
                commands.write(bot.RESET, seconds=REQUEST_SECONDS, kind=START_WRITTEN)
        case _:
            raise Unsupported(
                f"is not a bridge that can be restarted: {before}",
                where=device.name,
                hint="switch its power off and on",
            )
    device.reopen(seconds)
    after = device.identify()
    return Restarted(before, after, device.clock.now() - began)
