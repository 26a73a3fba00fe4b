"""Root and switch ports: type 1 functions that pass requests on, and nothing else.

Behind an ASM2464PD are its root port, a switch port of its own, and, on an AMD graphics card, the card's
switch with its upstream and downstream port: four bridges in a row, on buses 0 to 3. Identities: ASMedia's as
lspci shows the chip's bridges in its USB4 mode (that they are the same under the open firmware is inferred),
AMD's from lspci listings of RDNA cards. The register BAR of AMD's upstream port is left out: it is not used.

The link that trains is that between the second and the third of them (hardware: the open firmware's scripts
read its width and speed there, and have its speed changed there); their link status is that link's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from emulator.pcie import config_space
from emulator.pcie.config_space import ConfigSpace, ConfiguredFunction, Identity
from emulator.pcie.function import Bar, Reset, UnsupportedRequest

_EXPRESS = 0x58
"""Where a port's PCI Express capability is (a guess; software looks for it)."""
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
ASM2464PD_SWITCH = Port(Identity(0x1B21, 0x2463, PCI_BRIDGE), "downstream port")
NAVI_UPSTREAM = Port(Identity(0x1002, 0x1478, PCI_BRIDGE), "upstream port", lanes=16)
NAVI_DOWNSTREAM = Port(Identity(0x1002, 0x1479, PCI_BRIDGE), "downstream port", lanes=16)

BRIDGES = (ASM2464PD_ROOT, ASM2464PD_SWITCH, NAVI_UPSTREAM, NAVI_DOWNSTREAM)
"""The ports between the TLP engine and the function on bus 4, from bus 0 on."""


@dataclass(frozen=True, slots=True)
class Slot:
    """What the card in the slot can do on its link.

    Attributes:
        lanes: how many of its lanes are connected; the bridge has four.
        generation: best link speed.
    """

    lanes: int = 16
    generation: int = 4


USUAL = Slot()
"""A graphics card."""


class BridgePort(ConfiguredFunction):
    """A root or switch port. The fabric routes by what its header says.

    Args:
        port: which.

    Attributes:
        on_retrain: called when software has the link of this port train again.
    """

    bars: Sequence[Bar] = ()

    def __init__(self, port: Port) -> None:
        self._status = port.lanes << 4 | port.generation
        self.on_retrain: Callable[[], None] = lambda: None
        super().__init__(
            ConfigSpace(
                config_space.type1(port.identity),
                capabilities=(
                    config_space.power_management(0x50),
                    config_space.pci_express(
                        _EXPRESS, port.kind, generation=port.generation, lanes=port.lanes
                    ),
                ),
            )
        )

    @property
    def target_generation(self) -> int:
        """The link speed that software wants at most."""
        return self.config.value(_EXPRESS + config_space.LINK_CONTROL_2, 2) & 0xF

    def trained(self, generation: int, lanes: int) -> None:
        """The link has this speed and width from now on."""
        self._status = lanes << 4 | generation
        self.config.set(_EXPRESS + config_space.LINK_STATUS, 2, self._status)

    def config_write(self, offset: int, value: int, byte_enables: int) -> None:
        """See PcieFunction."""
        super().config_write(offset, value, byte_enables)
        retrains = offset == _EXPRESS + config_space.LINK_CONTROL and byte_enables & 1
        if retrains and value & config_space.RETRAIN_LINK:
            self.on_retrain()

    def reset(self, kind: Reset) -> None:
        """See PcieFunction. The status stays that of the link."""
        super().reset(kind)
        self.config.set(_EXPRESS + config_space.LINK_STATUS, 2, self._status)

    def read(self, bar: int, offset: int, size: int) -> bytes:
        """A bridge without BARs has nothing to read."""
        raise UnsupportedRequest

    def write(self, bar: int, offset: int, data: bytes) -> None:
        """A bridge without BARs has nothing to write."""
        raise UnsupportedRequest


def bridges(slot: Slot = USUAL) -> tuple[BridgePort, ...]:
    """The ports before a card, from bus 0 on."""
    card = replace(NAVI_UPSTREAM, lanes=slot.lanes, generation=slot.generation)
    return tuple(BridgePort(card if port is NAVI_UPSTREAM else port) for port in BRIDGES)


Ends = tuple[BridgePort, BridgePort]
"""Of the slot's link: the bridge's port, and the card's."""


def ends(ports: Sequence[BridgePort]) -> Ends:
    """The ends of the slot's link among the ports of `bridges`."""
    place = BRIDGES.index(ASM2464PD_SWITCH)
    return ports[place], ports[place + 1]
