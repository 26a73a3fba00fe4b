"""Products and tables of constants with few bits, packed and quantised by blocks: of language models.

Layouts and defaults are those of onnxruntime's ContribOperators.md; the first element is in the lowest bits
of a byte. The floats that the integers stand for become constants of the graph.
"""

from __future__ import annotations

import numpy as np

from sdk import dtypes
from sdk.graph import Array, MatMul
from sdk.importers.plain.conversion import Conversion
from sdk.importers.plain.indices import gather_from
from sdk.importers.quantization import check_scales


def unpacked(array: Array, bits: int) -> Array:
    """The unsigned elements of 1, 2, 4 or 8 bits that the bytes of the last axis hold: uint8."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (array[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*array.shape[:-1], -1)


def matmul_nbits(c: Conversion) -> None:
    """MatMul by the floats that packed integers of 2, 4 or 8 bits stand for."""
    a, node = c.x(0), c.node
    inner, outputs, block = (node.integer(name, 0) for name in ("K", "N", "block_size"))
    if min(inner, outputs, block) < 1 or a.shape[-1:] != (inner,):
        raise node.invalid(f"K = {inner}, N = {outputs} and block_size = {block} with {a}")
    bits, blocks = _bits(c), -(-inner // block)
    nbytes = -(-block * bits // 8)
    packed = _constant(c, 1, outputs * blocks * nbytes, "uint8").reshape(outputs, blocks, nbytes)
    values = unpacked(packed, bits)[..., :block].reshape(outputs, -1)[:, :inner]
    scales = _scales(c, 2, outputs * blocks).reshape(outputs, blocks)
    if not c.has(3):
        zero_points: Array = np.full((outputs, blocks), 1 << bits - 1)
    elif c.constant(3).dtype == np.uint8:
        row = -(-blocks * bits // 8)
        zero_points = unpacked(_constant(c, 3, outputs * row, "uint8").reshape(outputs, row), bits)[
            :, :blocks
        ]
    else:
        zero_points = _constant(c, 3, outputs * blocks).reshape(outputs, blocks)
    group = np.arange(inner) // block
    if c.has(4):
        group = c.constant(4).reshape(-1)[:inner]
        if group.size != inner or group.min() < 0 or group.max() >= blocks:
            raise node.invalid(f"its g_idx is not a block, 0 to {blocks - 1}, for each of {inner} rows")
    weight = (values - zero_points.astype(np.float32)[:, group]) * scales[:, group]
    inputs = [a, c.file(dtypes.encode(weight, a.dtype), "weight", a.dtype)]
    if (bias := c.optional(5)) is not None:
        inputs.append(bias)
    c.make(MatMul, inputs, transposed=True)


def gather_block_quantized(c: Conversion) -> None:
    """Gather of the floats that integers of 4 or 8 bits stand for, packed or not."""
    node, data = c.node, c.constant(0)
    kept, packed = str(data.dtype), data.dtype == np.uint8
    bits = _bits(c)
    if kept not in ("uint8", "int4", "uint4"):
        raise node.unsupported(f"its data is {kept}", "store it as int4, uint4 or packed in uint8")
    values = unpacked(data, bits) if packed else data.astype(np.int8)
    block = node.integer("block_size", 128)
    axis = c.axis(node.integer("quantize_axis", 1), values.ndim)
    if block < 1:
        raise node.invalid(f"block_size = {block}; it is positive")
    shape = tuple(-(-extent // block) if i == axis else extent for i, extent in enumerate(values.shape))
    scales = _scales(c, 2, int(np.prod(shape))).reshape(shape)
    zero_points: Array = np.full(shape, 1 << bits - 1 if packed else 0)
    if c.has(3):
        zero_points = c.constant(3)
        zero_points = unpacked(zero_points, bits)[..., : shape[-1]] if packed else zero_points.astype(np.int8)
        if zero_points.shape != shape:
            raise node.invalid(f"its zero-points are {list(zero_points.shape)}, not {list(shape)}")
    group = np.arange(values.shape[axis]) // block
    centred = values - zero_points.astype(np.float32).take(group, axis)
    dtype = c.x(2).dtype
    table = c.file(dtypes.encode(centred * scales.take(group, axis), dtype), "table", dtype)
    gather_from(c, table, c.axis(node.integer("gather_axis", 0), values.ndim))


def _bits(c: Conversion) -> int:
    bits = c.node.integer("bits", 4)
    if bits not in (2, 4, 8):
        raise c.node.unsupported(f"weights of {bits} bits", "quantise them to 2, 4 or 8 bits")
    return bits


def _constant(c: Conversion, index: int, size: int, dtype: str | None = None) -> Array:
    """The constant at input `index`, which has to have that many elements, and that dtype if one is given."""
    array = c.constant(index)
    if array.size != size or dtype not in (None, str(array.dtype)):
        name = c.node.inputs[index]
        raise c.node.invalid(
            f"its input {name!r} is {array.size} elements of {array.dtype}, not {size} of {dtype or 'float'}"
        )
    return array


def _scales(c: Conversion, index: int, size: int) -> Array:
    """Scales, as float32."""
    scales = _constant(c, index, size)
    check_scales(scales, f"tensor {c.node.inputs[index]} ({c.node.where})", of_constants=True)
    return scales.astype(np.float32)
