"""NV12 frames and what is to be sampled of them, in numpy and float64: written apart from the network.

A chroma byte is looked up pixel by pixel in the frame, not in planes, so that strides and orders are checked
too.
"""

import numpy as np

from sdk.expression import trace
from sdk.graph import Graph, Map, Requantize, Tensor
from sdk.verification import INTEGER_RANGE, kind_of, verify

IDENTITY = np.eye(3, dtype=np.float32)
PERSPECTIVE = np.array([[1.31, 0.05, 4.2], [-0.03, 1.27, 3.1], [1e-4, 2e-4, 1]], np.float32)
AWAY = np.array([[2.6, 0.1, -40.3], [-0.2, 2.7, -30.1], [1e-4, 2e-4, 1]], np.float32)
"""Beyond all borders."""


def shifted(across, down):
    return np.array([[1, 0, across], [0, 1, down], [0, 0, 1]], np.float32)


def frame(form, seed=0):
    """A frame of noise; the bytes beside and below the picture as well."""
    return np.random.default_rng(seed).integers(0, 256, form.shape, np.uint8)


def part(data, form, index):
    """Y, U or V as the camera saw it."""
    if index == 0:
        return data[: form.height, : form.width]
    rows, columns = -(-form.height // 2), -(-form.width // 2)
    return data[form.rows : form.rows + rows, index - 1 : index - 1 + 2 * columns : 2]


def places(matrix, rows, columns):
    """x and y in the frame of those rows and columns of the output."""
    y, x = np.meshgrid(rows, columns, indexing="ij")
    found = np.einsum("ij,jrc->irc", matrix.astype(np.float64), np.stack([x, y, np.ones_like(x)]))
    return found[0] / found[2], found[1] / found[2]


def nearest(plane, x, y):
    """The bytes, and where rounding leaves no doubt which."""
    sure = (np.abs(x - np.floor(x) - 0.5) > 1e-3) & (np.abs(y - np.floor(y) - 0.5) > 1e-3)
    column = np.clip(np.rint(x), 0, plane.shape[1] - 1).astype(int)
    row = np.clip(np.rint(y), 0, plane.shape[0] - 1).astype(int)
    return plane[row, column].astype(float), sure


def bilinear(plane, x, y):
    height, width = plane.shape
    x, y = np.clip(x, 0, width - 1), np.clip(y, 0, height - 1)
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    right, bottom = np.minimum(left + 1, width - 1), np.minimum(top + 1, height - 1)
    total = np.zeros(x.shape)
    for row, column, share in (
        (top, left, (1 - (y - top)) * (1 - (x - left))),
        (top, right, (1 - (y - top)) * (x - left)),
        (bottom, left, (y - top) * (1 - (x - left))),
        (bottom, right, (y - top) * (x - left)),
    ):
        total += plane[row, column] * share
    return total, np.full(x.shape, True)


SAMPLERS = {"nearest": nearest, "bilinear": bilinear}


def six(data, form, matrix, size, sampling):
    """Six planes, and where they are sure: luma by phases (row, column), chroma by half the luma's place."""
    found = []
    rows, columns = np.arange(size[0]), np.arange(size[1])
    for row, column in ((0, 0), (1, 0), (0, 1), (1, 1)):
        x, y = places(matrix, 2 * rows + row, 2 * columns + column)
        found.append(SAMPLERS[sampling](part(data, form, 0), x, y))
    x, y = places(matrix, 2 * rows, 2 * columns)
    found += [SAMPLERS[sampling](part(data, form, index), x / 2, y / 2) for index in (1, 2)]
    return tuple(np.stack(each) for each in zip(*found, strict=True))


def rgb(data, form, matrix, size, sampling):
    """[3, rows, columns] of 0 to 255 by BT.601, and where they are sure."""
    x, y = places(matrix, np.arange(size[0]), np.arange(size[1]))
    luma, certain = SAMPLERS[sampling](part(data, form, 0), x, y)
    (u, sure), (v, _) = (SAMPLERS[sampling](part(data, form, i), x / 2 - 0.25, y / 2 - 0.25) for i in (1, 2))
    luma, u, v = 1.164384 * (luma - 16), u - 128, v - 128
    colours = luma + 1.596027 * v, luma - 0.391762 * u - 0.812968 * v, luma + 2.017232 * u
    return np.clip(np.stack(colours), 0, 255), np.stack([certain & sure] * 3)


def network(inputs, dtype="float32", quantization=None):
    """A graph that copies each of these inputs, shapes by name, to an output NAME_out."""
    tensors, nodes = {}, []
    for name, shape in inputs.items():
        tensors[name] = Tensor(name, shape, dtype, quantization)
        tensors[f"{name}_out"] = Tensor(f"{name}_out", shape, dtype, quantization)
        if quantization is None:
            kind = kind_of(dtype)
            nodes.append(Map(f"copy {name}", (name,), f"{name}_out", trace(lambda x: x + 0, kind)))
        else:
            nodes.append(Requantize(f"copy {name}", (name,), f"{name}_out", INTEGER_RANGE[dtype]))
    graph = Graph("copies", tuple(inputs), tuple(f"{name}_out" for name in inputs), tensors, tuple(nodes))
    verify(graph)
    return graph
