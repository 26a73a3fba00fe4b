"""Networks to start from: a MobileNetV2 of any size, and a trained one for handwritten digits."""

from sdk.zoo.digits import Digits, digits
from sdk.zoo.mobilenet import mobilenet_v2

__all__ = ["Digits", "digits", "mobilenet_v2"]
