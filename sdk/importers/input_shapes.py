"""Static shapes of a model's inputs: those in the file, those given, and what these say of one another."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sdk.errors import Unsupported, UsageError

if TYPE_CHECKING:
    import onnx

LOG = logging.getLogger("towline")
Shape = tuple[int, ...]

NAMELESS = ("", "?", "None", "-1")
"""Names of extents that exporters write where they have none: two of them need not be equal."""

PICTURE = (1, 3, 224, 224)
"""The shape of which a hint's example is made, for four dimensions."""


def static_shapes(
    inputs: Sequence[onnx.ValueInfoProto],
    given: Mapping[str, Shape],
    *,
    where: str,
    batch_of_one: bool = False,
) -> dict[str, Shape]:
    """The static shape of each input.

    An extent that has a name is settled for all inputs where a shape that was given, or a batch that is 1,
    settles it for one.

    Args:
        inputs: all of the model's.
        given: shapes by input name.
        where: the model, for errors.
        batch_of_one: whether a first extent that alone is dynamic is set to 1, with a word in the log.

    Raises:
        Unsupported: shapes are dynamic and `given` does not settle them; it lists all of them.
        UsageError: `given` names no input, is no shape, or contradicts the model or itself.
    """
    names = [value.name for value in inputs]
    for name in given:
        if name not in names:
            known = ", ".join(names)
            raise UsageError(f"a shape was given for {name!r}, but the inputs are: {known}", where=where)
    symbols: dict[str, tuple[int, str]] = {}
    shapes: dict[str, Shape] = {}
    for value in inputs:
        if value.name in given:
            shapes[value.name] = _checked(value, given[value.name])
            _settle(value, shapes[value.name], symbols)
    for value in inputs if batch_of_one else ():
        extents = _extents(value, symbols)
        if value.name not in shapes and len(extents) > 1 and not extents[0] and all(extents[1:]):
            LOG.warning("input %s: the batch of %s is set to 1", value.name, shown(value))
            shapes[value.name] = (1, *extents[1:])
            _settle(value, shapes[value.name], symbols)
    unsettled = []
    for value in inputs:
        if value.name not in shapes:
            shapes[value.name] = _extents(value, symbols)
            if not value.type.tensor_type.HasField("shape") or not all(shapes[value.name]):
                unsettled.append(value)
    if unsettled:
        raise _dynamic(unsettled, symbols)
    return shapes


def shown(value: onnx.ValueInfoProto) -> str:
    """An input's shape as the model has it, such as "[N, 3, ?]"."""
    dims = value.type.tensor_type.shape.dim
    return f"[{', '.join(str(dim.dim_value or dim.dim_param or '?') for dim in dims)}]"


def _symbols(value: onnx.ValueInfoProto) -> list[str]:
    """Of each extent the name that stands for it, "" where there is none."""
    dims = value.type.tensor_type.shape.dim
    return ["" if dim.dim_param in NAMELESS else dim.dim_param for dim in dims]


def _extents(value: onnx.ValueInfoProto, symbols: Mapping[str, tuple[int, str]]) -> Shape:
    """Extents, 0 of those that are open."""
    dims = value.type.tensor_type.shape.dim
    return tuple(
        symbols[name][0] if name in symbols else max(dim.dim_value, 0)
        for dim, name in zip(dims, _symbols(value), strict=True)
    )


def _settle(value: onnx.ValueInfoProto, shape: Shape, symbols: dict[str, tuple[int, str]]) -> None:
    """Note what a shape says of the named extents."""
    for name, extent in zip(_symbols(value), shape, strict=False):
        if name:
            known, other = symbols.setdefault(name, (extent, value.name))
            if known != extent:
                raise UsageError(
                    f"{name} is {extent} in the shape {_text(shape)}, but {known} in that of input {other}",
                    where=f"input {value.name}",
                    hint="extents of the same name must be equal in all inputs",
                )


def _checked(value: onnx.ValueInfoProto, shape: object) -> Shape:
    """A shape that was given, if it is one and the model allows it."""
    where = f"input {value.name}"
    if not isinstance(shape, tuple | list) or not all(isinstance(extent, int) for extent in shape):
        raise UsageError(f"the shape given for it is not a tuple of whole numbers: {shape!r}", where=where)
    clash = min(shape, default=1) < 1
    if value.type.tensor_type.HasField("shape"):
        extents = _extents(value, {})
        clash = clash or len(shape) != len(extents)
        clash = clash or any(e not in (0, o) for e, o in zip(extents, shape, strict=True))
    if clash:
        message = f"shape {_text(shape)} given for it, but the model says {shown(value)}"
        raise UsageError(message, where=where)
    return tuple(shape)


def _text(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


def _dynamic(unsettled: Sequence[onnx.ValueInfoProto], symbols: dict[str, tuple[int, str]]) -> Unsupported:
    """One error for all: the first input's shape, those of the others, and the options that settle them."""
    first, *others = unsettled
    known = first.type.tensor_type.HasField("shape")
    message = f"its shape is dynamic: {shown(first)}" if known else "its shape is not given"
    if others:
        listed = ", ".join(
            f"{value.name} {shown(value) if value.type.tensor_type.HasField('shape') else 'without one'}"
            for value in others
        )
        message += f"; so are the shapes of {listed}"
    settled, options = dict(symbols), []
    for value in unsettled:
        extents = _extents(value, settled)
        if value.type.tensor_type.HasField("shape") and all(extents):
            continue  # the options for the inputs before it settle it too
        example = PICTURE if not extents or len(extents) == 4 else (1,) * len(extents)
        for name, extent in zip(_symbols(value), example, strict=False):
            if name:
                settled.setdefault(name, (extent, value.name))
        extents = _extents(value, settled) or example
        shape = [known or extent for known, extent in zip(extents, example, strict=True)]
        options.append(f"--input-shape {value.name}={_text(shape)}")
    return Unsupported(message, where=f"input {first.name}", hint=f"pass {' '.join(options)}")
