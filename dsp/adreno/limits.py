"""What of a program a device has room for: images, work-groups, memory."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from dsp.adreno.opencl import Found
from dsp.adreno.plan import TEXEL, AdrenoPlan
from sdk.target import Program

log = logging.getLogger(__name__)


def fitting(local: Sequence[int], limit: int, limits: Sequence[int]) -> tuple[int, ...]:
    """A work-group as near to `local` as a device supports: its longest axis halved until it fits.

    Args:
        local: work-items along each axis.
        limit: of them in total, CL_KERNEL_WORK_GROUP_SIZE.
        limits: along each axis, CL_DEVICE_MAX_WORK_ITEM_SIZES.
    """
    sizes = [min(size, most) for size, most in zip(local, limits, strict=False)]
    while math.prod(sizes) > max(limit, 1):
        longest = sizes.index(max(sizes))
        sizes[longest] = -(-sizes[longest] // 2)
    return tuple(sizes)


def fits_images(plan: AdrenoPlan, found: Found) -> bool:
    """Whether the device has images that are large enough; logged if not."""
    if not plan.storages:
        return True  # nor does it need any
    if not found.images:
        log.warning("%s has no images of RGBA integers: activations lie in buffers", found.name)
        return False
    if any(most < size for most, size in zip(found.image_limits, plan.largest_image, strict=True)):
        width, height = found.image_limits
        log.warning(
            "images of %s are limited to %d x %d: activations lie in buffers", found.name, width, height
        )
        return False
    return True


def fits_texels(plan: AdrenoPlan, found: Found) -> bool:
    """Whether the device has images made from buffers that are large enough; logged if not."""
    if not texel_kinds(plan):
        return True  # nor does it need any
    most = max([plan.tables, *(one.nbytes for one in plan.memories)]) // (2 * TEXEL)
    if found.buffer_texels <= most:
        log.warning(
            "images of %s made from buffers are limited to %d texels: tensors are read as buffers",
            found.name,
            found.buffer_texels,
        )
        return False
    return True


def texel_kinds(plan: AdrenoPlan) -> set[str]:
    """Of arguments that are images made from buffers."""
    kinds: set[str] = {kind for step in plan.steps for kind, _ in step.arguments}
    return kinds & {"halves", "floats", "constant_halves", "constant_floats"}


def sizes_of(program: Program, plan: AdrenoPlan, images: bool, margin: int) -> list[int]:
    """Bytes of each piece of the device's memory."""
    storages = [storage.nbytes for storage in plan.storages]
    edges = [one.nbytes for one in plan.memories]
    if images:
        weights = [one.nbytes for one in plan.weights]
    else:
        weights = [2 * TEXEL * one.width * one.height for one in plan.weights]
        storages = [padded(nbytes, margin) for nbytes in storages]
    return [max(plan.tables, 16), *weights, *storages, *(padded(nbytes, margin) for nbytes in edges)]


def padded(nbytes: int, margin: int) -> int:
    """With a margin on both sides."""
    return nbytes + 2 * margin
