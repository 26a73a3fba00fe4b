"""Products of plain tensors: launches of `plain_products` in a network."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from dsp.adreno import plain_products
from dsp.adreno.context import Context, KernelText, Operand, Step
from dsp.adreno.plain_products import TYPES, Launch, Memory
from dsp.adreno.plan import TEXEL
from sdk import dtypes
from sdk.errors import InternalError
from sdk.opencl.calls import At, Pointer, Weights
from sdk.opencl.product_nodes import Placed


class FloatKernels:
    """Of kernels/plain."""

    types: Collection[str] = TYPES
    headers = ""

    def product(self, context: Context, placed: Placed) -> None:
        own, w = placed.product, placed.w
        x_texels = _is_image(placed.x, placed.y, own.x.dtype)
        w_texels = not isinstance(w, np.ndarray) and _is_image(w, placed.y, own.w.dtype)
        made = plain_products.launch(own, context.sums, x_texels=x_texels, w_texels=w_texels)
        if isinstance(w, np.ndarray):
            w = context.constant(plain_products.product_weights(w, made.tile[1]))
        _emit(context, placed, made, w)

    def depthwise(self, context: Context, placed: Placed) -> bool:
        own, w = placed.product, placed.w
        assert own.window is not None
        assert isinstance(w, np.ndarray)
        if not plain_products.takes_depthwise(own, _is_image(placed.x, placed.y, own.x.dtype)):
            return False
        made = plain_products.depthwise(own, context.sums)
        packed = plain_products.depthwise_weights(w.reshape(-1, *own.window.size))
        _emit(context, placed, made, context.constant(packed))
        return True


def _is_image(pointer: Pointer, y: Pointer, dtype: str) -> bool:
    """Whether a tensor begins at a texel of a memory that can be an image: the launch does not write it."""
    if not isinstance(pointer, At) or (isinstance(y, At) and y.buffer is pointer.buffer):
        return False
    return pointer.delta % (TEXEL * dtypes.dtype(dtype).nbytes) == 0


def _emit(context: Context, placed: Placed, made: Launch, w: Pointer) -> None:
    places = {"x": placed.x, "w": w, "y": placed.y}
    if placed.bias is not None:
        places["bias"] = context.constant(plain_products.product_bias(placed.bias))
    others = iter(placed.others)
    pointers = [next(others) if memory.role == "operand" else places[memory.role] for memory in made.memories]
    operands = [_memory(memory, pointer) for memory, pointer in zip(made.memories, pointers, strict=True)]
    for memory, pointer in zip(made.memories, pointers, strict=True):
        if isinstance(pointer, At):
            pointer.buffer.last = max(pointer.buffer.last, context.now)
            operands.append(Operand(memory.role, "offset", pointer.delta))
        elif isinstance(pointer, Weights):
            operands.append(Operand(memory.role, "constants", pointer.offset))
    operands.append(Operand("begin", "offset"))
    operands.append(Operand("m", "words", tuple(int(word) & 0xFFFFFFFF for word in made.words)))
    text = KernelText(made.function, (), made.text, made.constants, whole=True)
    complete = placed.complete and not context.is_inner
    tensors = [placed.node.output] if complete else []
    name = placed.node.name
    context.steps.append(
        Step(name, placed.op, [name], placed.macs, text, operands, made.items, made.trips, tensors)
    )
    if complete:
        context.made[placed.node.output] = context.view(placed.node.output)


def _memory(memory: Memory, pointer: Pointer) -> Operand:
    texels = "halves" if memory.dtype == "float16" else "floats"
    if isinstance(pointer, At):
        return Operand(memory.role, texels if memory.kind == "image" else "memory", pointer)
    if isinstance(pointer, Weights):
        return Operand(memory.role, f"constant_{texels}" if memory.kind == "image" else "tables")
    raise InternalError(f"no address for {memory.role}")
