"""Root and switch ports: type 1 functions that pass requests on, and nothing else.

Behind an ASM2464PD are its root port, a switch port of its own, and, on an AMD graphics card, the card's
switch with its upstream and downstream port: four bridges in a row, on buses 0 to 3. Identities: ASMedia's as
lspci shows the chip's bridges in its USB4 mode (that they are the same under the open firmware is inferred),
AMD's from lspci listings of RDNA cards. The register BAR of AMD's upstream port is left out: it is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emulator.pcie import config_space
from emulator.pcie.config_space import ConfigSpace, ConfiguredFunction, Identity
from emulator.pcie.function import Bar, UnsupportedRequest

PCI_BRIDGE = 0x060400
"""Class code: PCI-to-PCI bridge, normal decode."""


@dataclass(frozen=True, slots=True)
class Port:
    """A kind of port.

    Attributes:
        identity: its ids.
        kind: device/port type, a key of `config_space.PORT_TYPES`.
        generation: link speed.
        lanes: link width.
    """

    identity: Identity
    kind: str
    generation: int = 4
    lanes: int = 4


ASM2464PD_ROOT = Port(Identity(0x1B21, 0x2463, PCI_BRIDGE), "root port")
ASM2464PD_SWITCH = Port(Identity(0x1B21, 0x2463, PCI_BRIDGE), "upstream port")
NAVI_UPSTREAM = Port(Identity(0x1002, 0x1478, PCI_BRIDGE), "upstream port")
NAVI_DOWNSTREAM = Port(Identity(0x1002, 0x1479, PCI_BRIDGE), "downstream port", lanes=16)

BRIDGES = (ASM2464PD_ROOT, ASM2464PD_SWITCH, NAVI_UPSTREAM, NAVI_DOWNSTREAM)
"""The ports between the TLP engine and the function on bus 4, from bus 0 on."""


class BridgePort(ConfiguredFunction):
    """A root or switch port. The fabric routes by what its header says.

    Args:
        port: which.
    """

    bars: Sequence[Bar] = ()

    def __init__(self, port: Port) -> None:
        super().__init__(
            ConfigSpace(
                config_space.type1(port.identity),
                capabilities=(
                    config_space.power_management(0x50),
                    config_space.pci_express(0x58, port.kind, generation=port.generation, lanes=port.lanes),
                ),
            )
        )

    def read(self, bar: int, offset: int, size: int) -> bytes:
        """A bridge without BARs has nothing to read."""
        raise UnsupportedRequest

    def write(self, bar: int, offset: int, data: bytes) -> None:
        """A bridge without BARs has nothing to write."""
        raise UnsupportedRequest
