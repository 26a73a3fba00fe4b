"""The system controls: restart of the CPU, power cycle of the USB link, and odds and ends that only store.

What the two commands do is in the open firmware's register list; its use of the first shows it too.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.core.bus import Bus
from firmware.asm2464pd.registers import system as regs


class SystemControl:
    """The system controls.

    Args:
        bus: registers.
        on_restart: restarts the CPU at 0 and reconnects USB; memory stays.
        on_usb_power_cycle: takes the USB link down and up; the CPU runs on.
    """

    def __init__(
        self, bus: Bus, on_restart: Callable[[], None], on_usb_power_cycle: Callable[[], None]
    ) -> None:
        def restart(value: int) -> None:
            if value & regs.SYS_CPU_RESTART["RESTART"]:
                on_restart()

        def power_cycle(value: int) -> None:
            if value & regs.SYS_USB_POWER["CYCLE"]:
                on_usb_power_cycle()

        bus.map(regs.SYS_CPU_RESTART, "system", write=restart)
        bus.map(regs.SYS_USB_POWER, "system", write=power_cycle)

        def cause(value: int) -> None:
            bus.set(regs.SYS_CPU_STATUS, value & ~regs.SYS_CPU_STATUS["INTERRUPT"])

        bus.map(regs.SYS_CPU_STATUS, "system", write=cause)
