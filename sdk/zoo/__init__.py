"""Networks to start from: architectures of any size with seeded weights, and a trained one for digits."""

from sdk.zoo.builder import Network
from sdk.zoo.decoder import decoder
from sdk.zoo.depth import depth
from sdk.zoo.detector_one_stage import detector_one_stage
from sdk.zoo.digits import Digits, digits
from sdk.zoo.driving import driving
from sdk.zoo.keyword_spotter import keyword_spotter
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
from sdk.zoo.segmentation import segmentation
from sdk.zoo.vision_transformer import vision_transformer

__all__ = [
    "NETWORKS",
    "Digits",
    "Network",
    "decoder",
    "depth",
    "detector",
    "detector_one_stage",
    "digits",
    "driving",
    "efficientnet_lite0",
    "keyword_spotter",
    "mobilenet_v1",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "resnet18",
    "resnet50",
    "segmentation",
    "vision_transformer",
]
