"""Networks to start from: architectures of any size with seeded weights, and a trained one for digits."""

from sdk.zoo.digits import Digits, digits
from sdk.zoo.mobilenet import mobilenet_v2
from sdk.zoo.networks import (
    NETWORKS,
    detector,
    efficientnet_lite0,
    mobilenet_v1,
    mobilenet_v3_small,
    resnet18,
    resnet50,
)

__all__ = [
    "NETWORKS",
    "Digits",
    "detector",
    "digits",
    "efficientnet_lite0",
    "mobilenet_v1",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "resnet18",
    "resnet50",
]
