"""The speeds of a USB link."""

from enum import Enum


class Speed(Enum):
    """Link speeds; the value is the name Linux prints."""

    LOW = "low-speed"
    FULL = "full-speed"
    HIGH = "high-speed"
    SUPER = "super-speed"
    SUPER_PLUS = "super-speed-plus"

    @property
    def is_super(self) -> bool:
        """SuperSpeed or above: other descriptors, other packet sizes."""
        return self in (Speed.SUPER, Speed.SUPER_PLUS)
