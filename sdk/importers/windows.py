"""Window attributes of Conv and the pools: kernel, strides, pads, dilations, auto_pad and ceil_mode resolved.

The rules are those of ONNX's Operators.md (Conv-11, AveragePool-19, MaxPool-12).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sdk.graph import AveragePool, MaxPool
from sdk.importers.onnx_file import OnnxNode
from sdk.importers.values import UNSET, Shape


@dataclass(frozen=True)
class Windows:
    """Two-dimensional windows; `pads` is (top, left, bottom, right)."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]


def convolution_windows(node: OnnxNode, size: Shape, weight: Shape) -> Windows:
    """Windows of a Conv with input [N,C,H,W] `size` and an [O,C/group,kh,kw] `weight`."""
    kernel = _pair(node, "kernel_shape", (weight[2], weight[3]))
    if kernel != weight[2:]:
        raise node.invalid(f"kernel_shape {list(kernel)} with a weight {list(weight)}")
    return _windows(node, size, kernel)


def in_two_dimensions(node: OnnxNode, rank: int) -> OnnxNode:
    """The node with its window attributes as of two dimensions: one of one dimension has one row.

    Args:
        node: of a window in `rank` dimensions.
        rank: 1 or 2.

    Raises:
        Unsupported: three dimensions or more.
    """
    if rank == 2:
        return node
    if rank != 1:
        raise node.unsupported(
            f"{node.op_type} in {rank} dimensions", "only windows in one and two dimensions are supported"
        )

    def widened(name: str, first: int) -> None:
        value = attributes.get(name)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            attributes[name] = [part for extent in value for part in (first, extent)]

    attributes = dict(node.attributes)
    for name in ("kernel_shape", "strides", "dilations", "output_shape"):
        widened(name, 1)
    for name in ("pads", "output_padding"):
        widened(name, 0)
    return replace(node, attributes=attributes)


def pool_windows(node: OnnxNode, size: Shape) -> Windows:
    """Windows of a pool over [N,C,H,W] `size`; with ceil_mode, pads are so wide that the last ones fit."""
    if node.integers("kernel_shape") is None:
        raise node.invalid("it has no kernel_shape")
    if node.integer("storage_order", 0):
        raise node.unsupported("storage_order = 1")
    windows = _windows(node, size, _pair(node, "kernel_shape", (1, 1)))
    if not node.integer("ceil_mode", 0):
        return windows
    pads = list(windows.pads)
    for i in (0, 1):
        reach = windows.dilations[i] * (windows.kernel[i] - 1) + 1
        covered = size[2 + i] + pads[i] + pads[i + 2] - reach
        last = -(-covered // windows.strides[i]) * windows.strides[i]
        if last >= size[2 + i] + pads[i]:  # a window that starts in the padding behind x is left out
            last -= windows.strides[i]
        pads[i + 2] += max(last - covered, 0)
    return replace(windows, pads=(pads[0], pads[1], pads[2], pads[3]))


def average_pool(node: OnnxNode, x: str, size: Shape) -> AveragePool:
    """The operator over `x`, its clamp unset."""
    windows = _pool_windows(node, size)
    if windows.dilations != (1, 1):
        raise node.unsupported(f"AveragePool with dilations {list(windows.dilations)}")
    return AveragePool(
        node.name,
        (x,),
        "",
        kernel=windows.kernel,
        strides=windows.strides,
        pads=windows.pads,
        count_include_pad=bool(node.integer("count_include_pad", 0)),
        clamp=UNSET,
    )


def max_pool(node: OnnxNode, size: Shape) -> MaxPool:
    """The operator, its input left open."""
    windows = _pool_windows(node, size)
    return MaxPool(node.name, (), "", windows.kernel, windows.strides, windows.pads, windows.dilations)


def _pool_windows(node: OnnxNode, size: Shape) -> Windows:
    if len(size) != 4:
        raise node.unsupported(f"{node.op_type} of {list(size)}: only [N,C,H,W] is supported")
    if node.integers("kernel_shape") is None:
        raise node.invalid("it has no kernel_shape")
    if node.integer("storage_order", 0):
        raise node.unsupported("storage_order = 1")
    windows = _windows(node, size, _pair(node, "kernel_shape", (1, 1)))
    for i in (0, 1):
        reach = windows.dilations[i] * (windows.kernel[i] - 1) + 1
        spare = (size[2 + i] + windows.pads[i] + windows.pads[i + 2] - reach) % windows.strides[i]
        if node.integer("ceil_mode", 0) and spare:
            raise node.unsupported(
                "ceil_mode = 1 makes a last window that exceeds the input",
                "export with ceil_mode = 0 and explicit pads",
            )
    return windows


def _windows(node: OnnxNode, size: Shape, kernel: tuple[int, int]) -> Windows:
    strides, dilations = _pair(node, "strides", (1, 1)), _pair(node, "dilations", (1, 1))
    auto_pad = node.text("auto_pad", "NOTSET")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        before, after = [], []
        for i in (0, 1):
            reach = dilations[i] * (kernel[i] - 1) + 1
            total = max((-(-size[2 + i] // strides[i]) - 1) * strides[i] + reach - size[2 + i], 0)
            small, large = total // 2, total - total // 2
            before.append(large if auto_pad == "SAME_LOWER" else small)
            after.append(small if auto_pad == "SAME_LOWER" else large)
        return Windows(kernel, strides, (before[0], before[1], after[0], after[1]), dilations)
    if auto_pad not in ("NOTSET", "VALID"):
        raise node.invalid(f"auto_pad {auto_pad!r}")
    pads = node.integers("pads") if auto_pad == "NOTSET" else None
    if pads is None:
        pads = (0, 0, 0, 0)
    if len(pads) != 4:
        raise node.invalid(f"pads {list(pads)} of a two-dimensional window")
    if min(pads) < 0:
        raise node.unsupported(f"negative pads {list(pads)}")
    return Windows(kernel, strides, (pads[0], pads[1], pads[2], pads[3]), dilations)


def _pair(node: OnnxNode, name: str, default: tuple[int, int]) -> tuple[int, int]:
    value = node.integers(name) or default
    if len(value) != 2 or min(value) < 1:
        raise node.invalid(f"{name} {list(value)}: two positive numbers are expected")
    return value[0], value[1]
