"""A camera in front of a network: its frame's bytes, and a matrix, become inputs in place of planes.

Joined as graphs and not as ONNX files, so that it works for TFLite, for any opset and for weights of any
size; and after a conversion to float16, because places in a frame need float32.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdk.camera.geometry import PLANES, covering, raster, to_box
from sdk.camera.inputs import Camera, CameraInput
from sdk.errors import InvalidInput, Unsupported, UsageError
from sdk.graph import Graph, Node, Quantize, Tensor
from sdk.importers.joining import unused
from sdk.importers.onnx import graph_of
from sdk.preprocess import Preprocessing, crop_box, default_for, require_shape
from sdk.states import Pairs
from sdk.verification import verify
from sdk.zoo import nv12
from sdk.zoo.builder import Network

LOG = logging.getLogger("towline")


@dataclass(frozen=True)
class Joined:
    """A network with cameras in front.

    Attributes:
        cameras: what feeds which input.
        states: those of the cameras, pairs (output, input): earlier frames.
    """

    graph: Graph
    cameras: tuple[CameraInput, ...]
    states: Pairs


def join(
    graph: Graph, cameras: Sequence[Camera], preprocessing: Preprocessing | None, states: Pairs = ()
) -> Joined:
    """Put cameras in front of a network.

    An input [1, 6, H, W], or [1, 12, H, W] of two frames, takes the six planes of a 4:2:0 picture of twice
    the size. One of one or three channels takes pixels as `preprocessing` says, by default `default_for`'s.

    Args:
        graph: verified.
        cameras: each for another input.
        preprocessing: colours, numbers and, without a matrix, geometry.
        states: of the network: no camera feeds them.

    Returns:
        The joined graph, verified. Of the input NAME, the new inputs are NAME_frame and NAME_matrix, and of
        two frames NAME_history.

    Raises:
        UsageError: no such input, or none or several that could be meant.
        Unsupported: an input that is no picture.
        InvalidInput: `preprocessing` is not that input's.
    """
    made: list[CameraInput] = []
    pairs: list[tuple[str, str]] = []
    fed = {name for _, name in states}
    for camera in cameras:
        name = _input(graph, camera, fed)
        fed.add(name)
        front, size = _front(camera, graph.tensor(name), preprocessing), raster(graph.tensor(name).shape)
        graph, names = _joined(graph, name, graph_of(front.model()))
        matrix = names.get(nv12.MATRIX) if camera.warp else None
        frame, form = names[nv12.FRAME], str(camera.format)
        made.append(CameraInput(name, size, frame, matrix, form, camera.sampling))
        fed.update(names.values())
        if nv12.HISTORY in names:
            pairs.append((names[f"next_{nv12.HISTORY}"], names[nv12.HISTORY]))
    verify(graph)
    return Joined(graph, tuple(made), tuple(pairs))


def _input(graph: Graph, camera: Camera, fed: set[str]) -> str:
    """The input that a camera feeds."""
    free = [name for name in graph.inputs if name not in fed]
    where = f"camera {camera.format}"
    if camera.input is not None:
        if camera.input not in free:
            hint = f"inputs that a camera can feed: {', '.join(free) or 'none'}"
            raise UsageError(f"the network has no free input named {camera.input!r}", where=where, hint=hint)
        return camera.input
    fitting = [name for name in free if _layout(graph.tensor(name))]
    if len(fitting) != 1:
        listed = ", ".join(str(graph.tensor(name)) for name in free) or "none"
        which = "several of its inputs can be pictures" if fitting else "none of its inputs is a picture"
        hint = f"name the input before the format, as in img={camera.format}; inputs: {listed}"
        raise UsageError(f"{which}, and the camera does not name its input", where=where, hint=hint)
    return fitting[0]


def _layout(tensor: Tensor) -> str:
    """Which of "planes" and "pixels" it takes; "" of what is no picture."""
    shape = tensor.shape
    if len(shape) != 4 or shape[0] != 1 or tensor.dtype not in ("uint8", "int8", "float16", "float32"):
        return ""
    if shape[1] in (PLANES, 2 * PLANES) and tensor.quantization is None:
        return "planes"
    return "pixels" if {shape[1], shape[3]} & {1, 3} else ""


def _front(camera: Camera, tensor: Tensor, preprocessing: Preprocessing | None) -> Network:
    """The network from a frame to what an input takes; of a quantised input, its real values."""
    layout = _layout(tensor)
    if not layout or (tensor.dtype == "int8" and tensor.quantization is None):
        raise Unsupported(
            f"{tensor} is not a picture: a camera feeds [1, C, H, W] or [1, H, W, C] of 1 or 3 channels, or "
            "[1, 6, H, W] or [1, 12, H, W], of uint8 or floats",
            where=f"input {tensor.name}",
        )
    if layout == "planes":
        rows, columns = tensor.shape[2:]
        return nv12.six_planes(
            camera.format,
            (rows, columns),
            sampling=camera.sampling,
            matrix=None if camera.warp else covering(camera.format, raster(tensor.shape)),
            frames=tensor.shape[1] // PLANES,
            skip=camera.skip,
            dtype=tensor.dtype,
        )
    recipe = preprocessing
    if recipe is None:
        recipe = default_for(tensor.shape)
        if tensor.dtype != "uint8" or tensor.quantization is not None:
            known = "imagenet" if recipe.channels == 3 else "unit"
            LOG.warning(
                "the model does not say how a picture becomes %s: %s is taken (--preprocess)",
                tensor.name,
                known,
            )
    try:
        require_shape(recipe, tensor.shape)
    except InvalidInput as problem:
        raise InvalidInput(problem.message, where=f"input {tensor.name}", hint=problem.hint) from None
    return nv12.pixels(
        camera.format,
        recipe,
        sampling=camera.sampling,
        yuv=camera.yuv,
        matrix=None if camera.warp else _cut(camera, recipe),
        dtype="float32" if tensor.quantization is not None else tensor.dtype,
    )


def _cut(camera: Camera, recipe: Preprocessing) -> NDArray[np.float32]:
    """The matrix of a recipe's own geometry: the whole picture stretched, or its middle."""
    picture = camera.format.width, camera.format.height
    box = (0.0, 0.0, float(picture[0]), float(picture[1]))
    if recipe.short_side is not None:
        box = crop_box(picture, recipe.short_side, recipe.size)
    return to_box(box, recipe.size)


def _joined(graph: Graph, name: str, front: Graph) -> tuple[Graph, dict[str, str]]:
    """The network behind `front`, whose output becomes its input; and the new names of front's ends."""
    taken = {*graph.tensors, *(node.name for node in graph.nodes)}
    given = graph.tensor(name)
    renamed: dict[str, str] = {}
    for old in dict.fromkeys((*front.tensors, *(node.name for node in front.nodes))):
        new = f"{name}/camera/{old}"
        if old in front.inputs:
            new = f"{name}_{old}"
        elif old in front.outputs:
            new = f"next_{name}_{old.removeprefix('next_')}"
        renamed[old] = unused(new, taken)
        taken.add(renamed[old])
    nodes: list[Node] = []
    tensors = dict(graph.tensors)
    quantized = given.quantization is not None
    output = f"{name}/camera/real" if quantized else name
    ends = {old: renamed[old] for old in (*front.inputs, *front.outputs)}
    names = {**renamed, nv12.OUTPUT: output}
    for old, tensor in front.tensors.items():
        if quantized or old != nv12.OUTPUT:
            tensors[names[old]] = dataclasses.replace(tensor, name=names[old])
    for node in front.nodes:
        inputs = tuple(names[one] for one in node.inputs)
        nodes.append(
            dataclasses.replace(node, name=renamed[node.name], inputs=inputs, output=names[node.output])
        )
    if quantized:
        nodes.append(Quantize(unused(f"{name}/camera/quantize", taken), (output,), name))
    place = graph.inputs.index(name)
    fresh = tuple(ends[old] for old in front.inputs)
    more = tuple(ends[old] for old in front.outputs if old != nv12.OUTPUT)
    joined = dataclasses.replace(
        graph,
        inputs=(*graph.inputs[:place], *fresh, *graph.inputs[place + 1 :]),
        outputs=(*graph.outputs, *more),
        tensors=tensors,
        nodes=(*nodes, *graph.nodes),
    )
    return joined, ends
