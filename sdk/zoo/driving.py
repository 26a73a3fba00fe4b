"""The driving network: two cameras and their history in, all that a car's planner reads out.

Its interface is that of a network that runs in cars today: two uint8 cameras, of each two frames of six
planes; the features of the last 24 steps; wishes; and one flat vector of heads that the host takes apart.
The structure and the weights are our own.
"""

from __future__ import annotations

from collections.abc import Mapping

from sdk.zoo.builder import Network
from sdk.zoo.scaling import require_width, scaled
from sdk.zoo.transformer import HEAD, Blocks, layer_norm

STAGES = ((48, 2), (96, 2), (192, 4), (384, 2))
"""Channels and blocks of the encoder's stages, the first at a quarter of the size."""
EXPANSION = 3
LAST = 16
"""Channels of the encoder's features, at each of the 4 x 8 places that are left."""

HISTORY, FEATURES, LAYERS = 24, 512, 4
PULSES = 8
CHANNELS, ROWS, COLUMNS = 12, 128, 256

HEADS: Mapping[str, int] = {
    "plan": 4955,
    "lane_lines": 528,
    "lane_line_probabilities": 8,
    "road_edges": 264,
    "leads": 102,
    "lead_probabilities": 3,
    "wish_state": 8,
    "wish_prediction": 32,
    "meta": 55,
    "pose": 12,
    "camera_pose": 6,
    "road_transform": 12,
    "action": 4,
}
"""Elements of each head, in the order in which `outputs` has them; the step's features follow."""

MIDDLE = 128.0
CONTRAST = 1 / 64


def driving(width: float = 1.0, seed: int = 0, dtype: str = "float16") -> Network:
    """One encoder for both cameras, a transformer over 25 steps of features, and 13 heads.

    The encoder is in the manner of FastViT (arXiv 2303.14189): convolutions that were several branches in
    training and are one here (2101.03697), depthwise 3x3 to mix places and a depthwise 7x7 before the two
    matrices of a block, GELU, and squeeze and excitation (1709.01507) at the end. Its weights are in the file
    once, and two nodes read each. Attention is that of arXiv 1706.03762 with normalisation before it, in
    float32 between casts. `next_features_buffer` becomes `features_buffer` of the next step.

    Channels of encoder and transformer are multiplied by `width`: 1 has 17 M parameters and 1.0 GMAC a step.

    Returns:
        Opset 17: `img` and `big_img` uint8 [1, 12, 128, 256]; `features_buffer` [1, 24, 512], `desire`
        [1, 25, 8], `traffic_convention` [1, 2] and `action_t` [1, 2] of `dtype` -> `outputs` [1, 6501] and
        `next_features_buffer` [1, 24, 512].

    Raises:
        UsageError: a number out of range.
    """
    require_width(width)
    b = Network(f"driving_{width:g}", seed, opset=17, dtype=dtype)
    for camera in ("img", "big_img"):
        b.input(camera, (1, CHANNELS, ROWS, COLUMNS), CHANNELS, "uint8", below=256)
    b.input("features_buffer", (1, HISTORY, FEATURES), FEATURES)
    b.input("desire", (1, HISTORY + 1, PULSES), PULSES)
    b.input("traffic_convention", (1, 2), 2)
    b.input("action_t", (1, 2), 2)
    seen = [_encoded(b, camera, width) for camera in ("img", "big_img")]
    x = b.add("Concat", "seen", seen, 2 * b.channels[seen[0]], axis=1)
    features = b.dense("features", x, FEATURES)
    now = b.reshape("features/now", features, (1, 1, FEATURES), FEATURES)
    history = b.add("Concat", "history", ["features_buffer", now], FEATURES, axis=1)
    b.slice("next_features_buffer", history, 1, HISTORY + 1, 1)
    thought = _thought(b, history, width)
    heads = [_head(b, name, thought, outputs) for name, outputs in HEADS.items()]
    b.add("Concat", "outputs", [*heads, features], sum(HEADS.values()) + FEATURES, axis=1)
    return b.returns("outputs", "next_features_buffer")


# --- the encoder ------------------------------------------------------------------------------------------


def _encoded(b: Network, camera: str, width: float) -> str:
    """A camera's features, [1, 512]; the weights have no camera's name."""
    x = b.add("Cast", f"{camera}/cast", [camera], to=b.element(b.dtype))
    x = b.add("Sub", f"{camera}/centred", [x, b.constant("pixel.middle", MIDDLE)])
    x = b.add("Mul", f"{camera}/scaled", [x, b.constant("pixel.contrast", CONTRAST)])
    encoder = _Encoder(b, camera)
    channels = [scaled(channels, width, 16) for channels, _ in STAGES]
    x = encoder.convolve("stem1", x, channels[0], 3, 2, activation="Gelu")
    x = encoder.depthwise("stem2", x, 3, 2, activation="Gelu")
    x = encoder.convolve("stem3", x, channels[0], activation="Gelu")
    for stage, (_, blocks) in enumerate(STAGES):
        if stage:
            x = encoder.depthwise(f"down{stage}/large", x, 7, 2)
            x = encoder.convolve(f"down{stage}", x, channels[stage], activation="Gelu")
        for block in range(blocks):
            x = encoder.block(f"stage{stage + 1}.{block}", x)
    x = encoder.excited("last", encoder.depthwise("last", x, 3))
    x = encoder.convolve("narrow", x, LAST)
    return b.add("Flatten", f"{camera}/flat", [x], LAST * (ROWS // 32) * (COLUMNS // 32), axis=1)


class _Encoder:
    """Layers of one camera, with the weights of both."""

    def __init__(self, b: Network, camera: str) -> None:
        self.b, self.camera = b, camera

    def convolve(
        self, name: str, x: str, outputs: int, kernel: int = 1, stride: int = 1, **options: object
    ) -> str:
        layer = f"{self.camera}/{name}"
        return self.b.convolve(layer, x, outputs, kernel, stride, weights=f"encoder/{name}", **options)  # type: ignore[arg-type]

    def depthwise(self, name: str, x: str, kernel: int, stride: int = 1, *, activation: str = "") -> str:
        channels = self.b.channels[x]
        return self.convolve(name, x, channels, kernel, stride, groups=channels, activation=activation)

    def block(self, name: str, x: str) -> str:
        """Places mixed by a depthwise 3x3, then channels by two matrices, added to that."""
        b = self.b
        x = self.depthwise(f"{name}/mixer", x, 3)
        y = self.depthwise(f"{name}/large", x, 7)
        y = self.convolve(f"{name}/expand", y, EXPANSION * b.channels[x], activation="Gelu")
        y = self.convolve(f"{name}/contract", y, b.channels[x], gain=0.25)
        return b.add("Add", f"{self.camera}/{name}/add", [x, y])

    def excited(self, name: str, x: str) -> str:
        """Squeeze and excitation, and GELU."""
        b, channels, prefix = self.b, self.b.channels[x], f"{self.camera}/{name}"
        gate = b.add("GlobalAveragePool", f"{prefix}/mean", [x])
        gate = self.convolve(f"{name}/reduce", gate, max(8, channels // 16), activation="Relu", gain=4)
        gate = b.activate(self.convolve(f"{name}/widen", gate, channels), "Sigmoid")
        return b.activate(b.add("Mul", f"{prefix}/excited", [x, gate]), "Gelu")


# --- the transformer and the heads ------------------------------------------------------------------------


def _thought(b: Network, history: str, width: float) -> str:
    """What the transformer makes of the latest step, [1, 512 * width]."""
    tokens, channels = HISTORY + 1, scaled(FEATURES, width, HEAD)
    x = b.project("tokens", history, channels)
    x = b.add("Add", "tokens/wishes", [x, b.project("wishes", "desire", channels, bias=False)])
    for name in ("traffic_convention", "action_t"):
        told = b.dense(f"{name}/dense", name, channels)
        told = b.reshape(f"{name}/token", told, (1, 1, channels), channels)
        x = b.add("Add", f"tokens/{name}", [x, told])
    x = b.add("Add", "tokens/places", [x, b.weight("positions", (1, tokens, channels), 0.5)])
    blocks = Blocks(b, tokens, channels // HEAD, gain=0.5)
    for index in range(LAYERS):
        x = blocks.add(f"layer{index + 1}", x)
    x = b.slice("latest", layer_norm(b, "norm", x), tokens - 1, tokens, 1)
    return b.reshape("latest/flat", x, (1, channels), channels)


def _head(b: Network, name: str, x: str, outputs: int) -> str:
    """Two matrices, the first of as many channels as suffice."""
    inner = min(128, 32 * max(1, outputs // 16))
    return b.dense(f"heads/{name}", b.dense(f"heads/{name}/inner", x, inner, activation="Elu"), outputs)
