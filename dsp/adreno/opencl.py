"""OpenCL devices: which are available, what they can do, and their errors as ours.

Everything goes through pyopencl, so that any OpenCL 1.2 platform will do: PoCL on a laptop, Qualcomm's
libOpenCL on a phone. Names and limits are those of the OpenCL 1.2 specification, section 4.2.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sdk import cache, settings
from sdk.errors import DeviceFailed, DeviceMissing, EnvironmentMissing, Unsupported, UsageError
from sdk.extras import require
from sdk.report import size as human

DEADLINE = 60.0
"""Seconds that a GPU may take for one inference. A phone's own watchdog (KGSL) resets it long before."""
EMULATED_DEADLINE = 1800.0
"""The same for a CPU, which compiles each kernel when it is launched for the first time."""

DOT_PRODUCTS = {
    "cl_khr_integer_dot_product": ("-cl-std=CL3.0", "-D", "DOT_PRODUCT_KHR"),
    "cl_qcom_dot_product8": ("-cl-std=CL2.0", "-D", "DOT_PRODUCT_QCOM"),
}
"""Extensions with dot products of four 8-bit integers, and the options with which kernels/texel.cl uses
them: each in the version of OpenCL C that it belongs to (grade: inferred). The first is features of 3.0; the
second is built as 2.0. Neither has been tried on a device.

Adreno 630 has none; only those that a device reports are used.
"""

POCL = "Portable Computing Language"
"""The name of PoCL's platform, OpenCL on a CPU."""
POCL_CACHE = "POCL_CACHE_DIR"
"""Where PoCL caches what it compiles, each kernel for each size of work-groups; it is never stale."""

INSTALL = "sudo apt-get install pocl-opencl-icd"
ANDROID_LIBRARIES = ("/vendor/lib64/libOpenCL.so", "/system/vendor/lib64/libOpenCL.so")
"""Where Android keeps Qualcomm's OpenCL.

Grade: published by users (github.com/termux/termux-packages/issues/16852, Oblomov/clinfo/issues/46).
"""

_NO_PLATFORM = -1001  # CL_PLATFORM_NOT_FOUND_KHR, of the ICD loader
_NO_DEVICE = -1  # CL_DEVICE_NOT_FOUND
_NO_MEMORY = {
    -4: "MEM_OBJECT_ALLOCATION_FAILURE",
    -5: "OUT_OF_RESOURCES",
    -6: "OUT_OF_HOST_MEMORY",
    -61: "INVALID_BUFFER_SIZE",
}


log = logging.getLogger(__name__)


def _pyopencl() -> Any:
    """The package; the only access to it, so that tests can replace it.

    Before PoCL is loaded, its cache is placed beside ours, unless the user has placed it.

    Raises:
        EnvironmentMissing: it is not installed, finds no libOpenCL, or others may write to the cache.
    """
    if POCL_CACHE not in os.environ:
        own = cache.directory("pocl")
        cache.require_own(own)  # PoCL runs what it finds there
        os.environ[POCL_CACHE] = str(own)
    try:
        return require("pyopencl", extra="opencl")
    except EnvironmentMissing as problem:
        if "libOpenCL" in problem.message:
            raise EnvironmentMissing(problem.message, hint=_install_hint()) from problem
        raise


@dataclass(frozen=True)
class Found:
    """A device as OpenCL lists it, and what it can do.

    Attributes:
        handle: pyopencl.Device.
        name, vendor, platform, version, driver: as it reports them.
        emulated: it is a CPU; its times say nothing about a GPU.
        images: CL_RGBA of CL_UNSIGNED_INT8 (activations), CL_SIGNED_INT8 and CL_SIGNED_INT16 (weights).
        word_images: CL_R of CL_UNSIGNED_INT32, a texel as a word, for dot products.
        image_limits: texels of a row, and rows, of an image; (0, 0) without images.
        buffer_texels: the most of a one-dimensional image, made from a buffer, of CL_RGBA of CL_HALF_FLOAT or
            CL_FLOAT; 0 without such images.
        allocation, memory: the most bytes of one buffer or image, and of all together.
        alignment: bytes, of a part of a buffer that is used as a buffer.
        group, group_items: work-items of a work-group: at most, and at most along each axis.
        extensions: those that it reports.
    """

    handle: Any = field(repr=False)
    name: str
    vendor: str
    platform: str
    version: str
    driver: str
    emulated: bool
    images: bool
    word_images: bool
    image_limits: tuple[int, int]
    buffer_texels: int
    allocation: int
    memory: int
    alignment: int
    group: int
    group_items: tuple[int, ...]
    extensions: frozenset[str] = field(repr=False)

    @property
    def description(self) -> str:
        kind = "a CPU" if self.emulated else "GPU"
        said = [f"{self.name} ({kind})", f"{self.platform} {self.driver}"]
        said.append("images" if self.images else "no images: buffers instead")
        said += [name for name in DOT_PRODUCTS if name in self.extensions]
        return ", ".join(said)

    @property
    def identity(self) -> Sequence[str]:
        """All that a program binary depends on besides the source and the options."""
        return (self.platform, self.vendor, self.name, self.version, self.driver)


def choose(name: str | None) -> Found:
    """The device of a device string.

    Args:
        name: None or "emulated": a CPU, PoCL's before others; "opencl": the first GPU, without one the first
            device; "opencl:N": the one that `devices` lists by that number.

    Raises:
        UsageError: no such device string.
        EnvironmentMissing: pyopencl or an OpenCL platform is not installed; the hint says how to install it.
        DeviceMissing: there are platforms, but no such device.
    """
    name = name or "emulated"
    match = re.fullmatch("(emulated|opencl)|opencl:([0-9]{1,4})", name)
    if match is None:
        raise UsageError(
            f"the Adreno target has no device {name!r}",
            hint="devices: emulated (a CPU, by PoCL), opencl (the first GPU), opencl:N (`towline devices`)",
        )
    found = find()
    if match[2]:
        number = int(match[2])
        if number >= len(found):
            known = f"opencl:0 to opencl:{len(found) - 1}" if len(found) > 1 else "only opencl:0"
            raise DeviceMissing(f"there is no OpenCL device {number}", where=name, hint=f"available: {known}")
        return found[number]
    if name == "opencl":
        return next((one for one in found if not one.emulated), found[0])
    if (cpu := _cpu(found)) is None:
        raise DeviceMissing(
            "no OpenCL platform here has a CPU to emulate on",
            where="emulated",
            hint=f"--device opencl uses the GPU ({found[0].name}); for PoCL: {INSTALL}",
        )
    return cpu


def devices() -> list[tuple[str, str]]:
    """(device string, description) of every device that `choose` can open on this machine."""
    try:
        found = find()
    except EnvironmentMissing:
        return []
    rows = [(f"opencl:{number}", one.description) for number, one in enumerate(found)]
    cpu = _cpu(found)
    return rows if cpu is None else [("emulated", cpu.description), *rows]


def _cpu(found: Sequence[Found]) -> Found | None:
    """The one that emulates a GPU."""
    cpus = [one for one in found if one.emulated]
    return next((one for one in cpus if one.platform == POCL), next(iter(cpus), None))


def find() -> list[Found]:
    """All devices of all platforms, in OpenCL's order; at least one. One that fails is left out.

    Raises:
        EnvironmentMissing: no pyopencl, no libOpenCL, or no platform behind it.
        DeviceMissing: no platform has a device.
    """
    cl = _pyopencl()
    try:
        platforms = cl.get_platforms()
    except cl.Error as problem:
        said = "" if problem.code == _NO_PLATFORM else f": {reason(problem)}"
        raise EnvironmentMissing(f"there is no OpenCL platform{said}", hint=_install_hint()) from problem
    found: list[Found] = []
    for platform in platforms:
        with _left_out(cl, platform):
            for handle in platform.get_devices():
                with _left_out(cl, handle):
                    found.append(_describe(cl, handle))
    if not found:
        names = ", ".join(platform.name for platform in platforms)
        raise DeviceMissing(
            f"no OpenCL platform has a device that works ({names})",
            hint=f"PoCL has none if POCL_DEVICES excludes it or {os.environ[POCL_CACHE]} cannot be written "
            f"(set {settings.CACHE.name}), a phone if /dev/kgsl-3d0 cannot be opened; or {INSTALL}",
        )
    return found


@contextlib.contextmanager
def _left_out(cl: Any, thing: Any) -> Iterator[None]:
    """Leave out a platform or device that fails, and keep the others."""
    try:
        yield
    except cl.Error as problem:
        if problem.code != _NO_DEVICE:
            log.warning("%s is left out: %s", thing.name, reason(problem))


def _describe(cl: Any, handle: Any) -> Found:
    images = bool(handle.image_support) and _has_formats(cl, handle)
    return Found(
        handle=handle,
        name=str(handle.name).strip(),
        vendor=str(handle.vendor).strip(),
        platform=str(handle.platform.name).strip(),
        version=str(handle.version).strip(),
        driver=str(handle.driver_version).strip(),
        emulated=bool(handle.type & cl.device_type.CPU),
        images=images,
        word_images=images and _has_word_formats(cl, handle),
        image_limits=(handle.image2d_max_width, handle.image2d_max_height) if images else (0, 0),
        buffer_texels=_buffer_texels(cl, handle) if handle.image_support else 0,
        allocation=handle.max_mem_alloc_size,
        memory=handle.global_mem_size,
        alignment=handle.mem_base_addr_align // 8,  # which is in bits
        group=handle.max_work_group_size,
        group_items=tuple(handle.max_work_item_sizes),
        extensions=frozenset(str(handle.extensions).split()),
    )


def _has_formats(cl: Any, handle: Any) -> bool:
    """Whether the device reads and writes the image format of activations and reads those of weights."""
    order, types, flags = cl.channel_order.RGBA, cl.channel_type, cl.mem_flags
    wanted = {(order, types.SIGNED_INT8), (order, types.SIGNED_INT16)}
    read, written = (_formats(cl, handle, one) for one in (flags.READ_ONLY, flags.READ_WRITE))
    return wanted <= read and (order, types.UNSIGNED_INT8) in written


def _has_word_formats(cl: Any, handle: Any) -> bool:
    wanted = cl.channel_order.R, cl.channel_type.UNSIGNED_INT32
    flags = cl.mem_flags.READ_ONLY, cl.mem_flags.READ_WRITE
    return all(wanted in _formats(cl, handle, one) for one in flags)


def _formats(cl: Any, handle: Any, flags: Any) -> set[tuple[Any, Any]]:
    found = cl.get_supported_image_formats(cl.Context([handle]), flags, cl.mem_object_type.IMAGE2D)
    return {(one.channel_order, one.channel_data_type) for one in found}


def _buffer_texels(cl: Any, handle: Any) -> int:
    types, order = cl.channel_type, cl.channel_order.RGBA
    kind = cl.mem_object_type.IMAGE1D_BUFFER
    formats = cl.get_supported_image_formats(cl.Context([handle]), cl.mem_flags.READ_ONLY, kind)
    found = {(one.channel_order, one.channel_data_type) for one in formats}
    has = {(order, types.HALF_FLOAT), (order, types.FLOAT)} <= found
    return int(handle.image_max_buffer_size) if has else 0


def _install_hint() -> str:
    """What to do where there is no OpenCL; it differs between a phone and a laptop."""
    for library in ANDROID_LIBRARIES:
        if os.path.exists(library):
            folder = os.path.dirname(library)
            return f"load the phone's own: LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH (see docs/adreno.md)"
    return INSTALL


# -- errors and waiting ---------------------------------------------------------------------------------


def reason(problem: Any) -> str:
    """What a pyopencl.Error says, in one line: "clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES"."""
    return str(problem).strip().partition("\n")[0]


class Hung(DeviceFailed):
    """The device did not answer in time; anything that waits for it now may never return."""


@contextlib.contextmanager
def failing(found: Found, doing: str, wanted: int = 0) -> Iterator[None]:
    """Turn OpenCL's errors into ours.

    Args:
        found: the device.
        doing: what was tried: "the weights could not be written".
        wanted: bytes of the device's memory that the program takes in total.

    Raises:
        Unsupported: there is not enough memory.
        DeviceFailed: anything else.
    """
    try:
        yield
    except _pyopencl().Error as problem:
        if problem.code in _NO_MEMORY:
            raise no_memory(found, wanted, _NO_MEMORY[problem.code]) from problem
        raise DeviceFailed(
            f"{doing}: {reason(problem)}",
            where=found.name,
            hint="load the network again; if it persists, restart the device, and try --device emulated",
        ) from problem


def no_memory(found: Found, wanted: int, said: str) -> Unsupported:
    return Unsupported(
        f"the network takes {human(wanted)} of the device's memory ({human(found.memory)}, at most "
        f"{human(found.allocation)} in one piece): {said}",
        where=found.name,
        hint="close other programs that use the device, or compile a smaller network",
    )


def wait(event: Any, found: Found, seconds: float | None = None) -> None:
    """Wait for a command, and with it for all before it in its queue, until a deadline.

    Polled, because OpenCL's own wait supports neither a deadline nor Ctrl-C.

    Args:
        event: pyopencl.Event.
        found: its device.
        seconds: the most wall time; by default DEADLINE or EMULATED_DEADLINE.

    Raises:
        DeviceFailed: the command failed.
        Hung: the deadline has passed.
    """
    cl = _pyopencl()
    if seconds is None:
        seconds = EMULATED_DEADLINE if found.emulated else DEADLINE
    deadline, pause = time.monotonic() + seconds, 2e-5
    while (status := event.get_info(cl.event_info.COMMAND_EXECUTION_STATUS)) != 0:  # CL_COMPLETE
        if status < 0:
            raise DeviceFailed(
                f"a kernel failed: {cl.status_code.to_string(status, 'OpenCL error %d')}",
                where=found.name,
                hint="load the network again; a driver that resets a hung GPU reports it so",
            )
        if time.monotonic() > deadline:
            raise Hung(
                f"it did not finish within {seconds:g} s",
                where=found.name,
                hint="the driver or the GPU hangs: restart the device; --device emulated runs the same",
            )
        time.sleep(pause)
        pause = min(pause * 1.5, 1e-3)
