"""The bridge as a host sees it: a PCIe bus and a piece of SRAM behind a USB cable.

    with usbgpu.bridge.open("emulated") as bridge:
        bridge.power(True)
        commands = CommandList()
        commands.config_read(config_address(0, 0, 0, 0))
        print(bridge.run(commands).values)

`seam` is what a card's driver sees, whatever firmware runs on the bridge: operations are collected in a
`CommandList`, and run. With our firmware a list is one round trip; with the published one each operation is
its own requests.
"""

from sdk.telemetry.metrics import Supply
from usbgpu.bridge.opening import BridgeReport, FirmwareUnsuitable, again, attach, describe, open, renew
from usbgpu.bridge.seam import FENCES, SRAM_ADDRESS, SRAM_SIZE, Bridge, ListFailed, Reply
from usbgpu.bridge.supply import SensorMissing

__all__ = [
    "FENCES",
    "SRAM_ADDRESS",
    "SRAM_SIZE",
    "Bridge",
    "BridgeReport",
    "FirmwareUnsuitable",
    "ListFailed",
    "Reply",
    "SensorMissing",
    "Supply",
    "again",
    "attach",
    "describe",
    "open",
    "renew",
]
