"""Products: Conv, ConvTranspose, MatMul, Gemm, Einsum."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sdk.expression.trace import Symbol
from sdk.graph import NO_CLAMP, Conv, ConvTranspose, MatMul, Reduce, Tensor
from sdk.importers.onnx_file import OnnxNode
from sdk.importers.plain.conversion import Conversion
from sdk.importers.plain.volumes import by_depth, with_depth
from sdk.importers.windows import convolution_windows, in_two_dimensions


def conv(c: Conversion) -> None:
    """Conv, in one to three dimensions."""
    x, weight, rank = _pictures(c)
    images = x.shape[0]
    if rank == 3:
        x, weight, node = by_depth(c, x, weight)
    else:
        node = in_two_dimensions(c.node, rank)
    windows = convolution_windows(node, x.shape, weight.shape)
    bias, rest = _bias(c, 2, weight.shape[0])
    result = c.make(
        Conv,
        [x, weight, *bias],
        "" if rank == 2 and rest is None else "rows",
        strides=windows.strides,
        pads=windows.pads,
        dilations=windows.dilations,
        group=node.integer("group", 1),
        clamp=NO_CLAMP,
    )
    _finish(c, result, rank, rest, images)


def conv_transpose(c: Conversion) -> None:
    """ConvTranspose, in one or two dimensions."""
    x, weight, rank = _pictures(c)
    node = in_two_dimensions(c.node, rank)
    windows = convolution_windows(node, x.shape, weight.shape)
    group, extra = node.integer("group", 1), list(node.integers("output_padding") or (0, 0))
    if len(extra) != 2:
        raise c.node.invalid(f"output_padding {extra}")
    pads = list(windows.pads)
    wanted = node.integers("output_shape")
    auto = node.text("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER") and not wanted:
        wanted = tuple(extent * stride for extent, stride in zip(x.shape[2:], windows.strides, strict=True))
    if wanted:
        for i, extent in enumerate(wanted[-2:]):
            reach = windows.dilations[i] * (windows.kernel[i] - 1) + 1
            total = windows.strides[i] * (x.shape[2 + i] - 1) + extra[i] + reach - extent
            extra[i] += max(-total, 0)
            total = max(total, 0)
            first = total // 2 if auto == "SAME_UPPER" else total - total // 2
            pads[i], pads[i + 2] = first, total - first
    bias, rest = _bias(c, 2, weight.shape[1] * group)
    result = c.make(
        ConvTranspose,
        [x, weight, *bias],
        "" if rank == 2 and rest is None else "rows",
        strides=windows.strides,
        pads=tuple(pads),
        output_padding=tuple(extra),
        dilations=windows.dilations,
        group=group,
    )
    _finish(c, result, rank, rest)


def _pictures(c: Conversion) -> tuple[Tensor, Tensor, int]:
    """Data and weight in two dimensions, and how many there were."""
    x, weight = c.x(0), c.x(1)
    rank = len(x.shape) - 2
    if len(weight.shape) != len(x.shape) or rank < 1:
        raise c.node.invalid(f"input {list(x.shape)}, weight {list(weight.shape)}")
    if rank == 1:
        x = c.reshape(x, (*x.shape[:2], 1, x.shape[2]), "x")
        weight = c.reshape(weight, (*weight.shape[:2], 1, weight.shape[2]), "weight")
    return x, weight, rank


def _bias(c: Conversion, index: int, channels: int) -> tuple[list[Tensor], Tensor | None]:
    """The bias as an operand of the product where it is constant, else as one of a Map behind it."""
    bias = c.optional(index)
    if bias is None:
        return [], None
    if bias.shape != (channels,):
        raise c.node.invalid(f"its bias has shape {list(bias.shape)} for {channels} channels")
    return ([bias], None) if bias.data is not None else ([], bias)


def _finish(c: Conversion, result: Tensor, rank: int, bias: Tensor | None, images: int = 1) -> None:
    """Add a bias that is computed, and give a result of one dimension or three its shape back."""
    if bias is not None:
        bias = c.reshape(bias, (bias.shape[0], 1, 1), "bias")
        result = c.map(Symbol.__add__, [result, bias], "" if rank == 2 else "sum")
    if rank == 1:
        c.reshape(result, (*result.shape[:2], result.shape[3]))
    if rank == 3:
        with_depth(c, result, images)


def matmul(c: Conversion) -> None:
    """MatMul."""
    a, b = c.x(0), c.x(1)
    shape = _matrix_shape(c.node, a, b)
    _floats(c, a)
    if not (a.shape and b.shape):
        raise c.node.invalid("MatMul of a scalar")
    whole = len(a.shape) > 1 and len(b.shape) > 1
    if len(a.shape) == 1:
        a = c.reshape(a, (1, *a.shape), "row")
    if len(b.shape) == 1:
        b = c.reshape(b, (*b.shape, 1), "column")
    result = c.make(MatMul, _tensors(a, b), "" if whole else "product", transposed=False)
    if not whole:
        c.reshape(result, shape)


def _tensors(*tensors: Tensor | None) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor is not None]


def _matrix_shape(node: OnnxNode, a: Tensor, b: Tensor) -> tuple[int, ...]:
    """Of a result of which one side is a vector."""
    if len(a.shape) == 1 and len(b.shape) == 1:
        return ()
    return (*b.shape[:-2], b.shape[-1]) if len(a.shape) == 1 else a.shape[:-1]


def _floats(c: Conversion, x: Tensor) -> None:
    if not x.dtype.startswith(("float", "bfloat")):
        raise c.node.unsupported(f"{c.node.op_type} of {x.dtype}", "cast its inputs to float32")


def gemm(c: Conversion) -> None:
    """MatMul; alpha, beta and a bias that is no row of constants in a Map behind it."""
    a, b, bias = c.x(0), c.x(1), c.optional(2)
    alpha, beta = c.node.number("alpha", 1.0), c.node.number("beta", 1.0)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise c.node.invalid(f"Gemm of {list(a.shape)} and {list(b.shape)}")
    _floats(c, a)
    if c.node.integer("transA", 0):
        a = c.transpose(a, (1, 0), "transposed")
    transposed = bool(c.node.integer("transB", 0))
    columns = b.shape[0 if transposed else 1]
    if bias is not None and _is_row(bias, columns) and alpha == beta == 1:
        c.make(MatMul, [a, b, c.reshape(bias, (columns,), "bias")], transposed=transposed)
        return
    last = bias is None and alpha == 1
    result = c.make(MatMul, [a, b], "" if last else "product", transposed=transposed)
    if last:
        return

    def function(x: Symbol, added: Symbol | None = None) -> Symbol:
        scaled = x if alpha == 1 else x * alpha
        if added is None:
            return scaled
        return scaled + (added if beta == 1 else added * beta)

    output = c.map(function, _tensors(result, bias))
    if output.shape != result.shape:
        raise c.node.invalid(f"its bias widens {list(result.shape)} to {list(output.shape)}")


def _is_row(bias: Tensor, columns: int) -> bool:
    return bias.data is not None and bias.size == columns and bias.shape[-1:] == (columns,)


def einsum(c: Conversion) -> None:
    """Of one or two tensors: Transpose, Reshape, MatMul, Reduce."""
    inputs = c.all()
    terms, output = _equation(c, inputs)
    if len(inputs) > 2:
        raise c.node.unsupported(
            f"Einsum of {len(inputs)} tensors", "write it as several of two tensors each"
        )
    extents: dict[str, int] = {}
    for term, tensor in zip(terms, inputs, strict=True):
        if len(set(term)) != len(term):
            raise c.node.unsupported(f"Einsum with a diagonal: {term}", "an axis may be named once a tensor")
        for letter, extent in zip(term, tensor.shape, strict=True):
            if extents.setdefault(letter, extent) != extent:
                raise c.node.invalid(f"axis {letter} is of {extents[letter]} and of {extent} elements")
    if len(inputs) == 1:
        x, term = _summed(c, inputs[0], terms[0], output, "sum")
        _in_order(c, x, term, output)
        return
    _floats(c, inputs[0])
    (a, first), (b, second) = (
        _summed(c, tensor, term, output + terms[1 - i], f"sum{i}")
        for i, (tensor, term) in enumerate(zip(inputs, terms, strict=True))
    )
    batch = [letter for letter in first if letter in second and letter in output]
    inner = [letter for letter in first if letter in second and letter not in output]
    left = [letter for letter in first if letter not in second]
    right = [letter for letter in second if letter not in first]

    def size(letters: Sequence[str]) -> int:
        return math.prod(extents[letter] for letter in letters)

    a = _ordered(c, a, first, [*batch, *left, *inner], "a")
    b = _ordered(c, b, second, [*batch, *inner, *right], "b")
    leading = [extents[letter] for letter in batch]
    a = c.reshape(a, (*leading, size(left), size(inner)), "matrix_a")
    b = c.reshape(b, (*leading, size(inner), size(right)), "matrix_b")
    result = c.make(MatMul, [a, b], "product", transposed=False)
    term = "".join([*batch, *left, *right])
    shape = [extents[letter] for letter in term]
    if term == output:
        c.reshape(result, shape) if tuple(shape) != result.shape else c.define(result)
    else:
        _in_order(c, c.reshape(result, shape, "axes"), term, output)


def _equation(c: Conversion, inputs: Sequence[Tensor]) -> tuple[list[str], str]:
    """The axes of each operand and of the result, a letter each; an ellipsis as capital letters' next."""
    text = c.node.text("equation", "").replace(" ", "")
    left, arrow, output = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(inputs):
        raise c.node.invalid(f"the equation {text!r} for {len(inputs)} tensors")
    spare = [chr(0x100 + i) for i in range(32)]
    longest = 0
    for i, (term, tensor) in enumerate(zip(terms, inputs, strict=True)):
        count = len(tensor.shape) - len(term.replace("...", ""))
        if count < 0 or (count and "..." not in term):
            raise c.node.invalid(f"the equation {text!r} for a tensor {list(tensor.shape)}")
        terms[i] = term.replace("...", "".join(spare[len(spare) - count :]))
        longest = max(longest, count)
    ellipsis = "".join(spare[len(spare) - longest :])
    if arrow:
        output = output.replace("...", ellipsis)
    else:
        letters = sorted(set("".join(terms)) - set(ellipsis))
        output = ellipsis + "".join(letter for letter in letters if "".join(terms).count(letter) == 1)
    if not set(output) <= set("".join(terms)):
        raise c.node.invalid(f"the equation {text!r} names an axis only in its result")
    return terms, output


def _summed(c: Conversion, x: Tensor, term: str, kept: str, part: str) -> tuple[Tensor, str]:
    """X summed over the axes that are not kept."""
    axes = tuple(i for i, letter in enumerate(term) if letter not in kept)
    if not axes:
        return x, term
    shape = tuple(extent for i, extent in enumerate(x.shape) if i not in axes)
    left = "".join(letter for letter in term if letter in kept)
    return c.make(Reduce, [x], part, shape=shape, kind="sum", axes=axes), left


def _ordered(c: Conversion, x: Tensor, term: str, wanted: Sequence[str], part: str) -> Tensor:
    return c.transpose(x, [term.index(letter) for letter in wanted], part)


def _in_order(c: Conversion, x: Tensor, term: str, output: str) -> None:
    c.transpose(x, [term.index(letter) for letter in output])
