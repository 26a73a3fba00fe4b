"""A compiled network on an OpenCL device: one queue, in order, and every wait has a deadline.

A `.tow` holds code: the device's compiler compiles it, and the device runs it.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsp.adreno import binaries, ir3, opencl
from dsp.adreno.opencl import Found, Hung, failing, no_memory, wait
from dsp.adreno.plan import SOURCE, TEXEL, AdrenoPlan, StepPlan, StoragePlan, WeightsPlan
from sdk.errors import BuildFailed, DeviceFailed, EnvironmentMissing, Unsupported
from sdk.graph import Array
from sdk.passes import flip_sign
from sdk.target import LayerProfile, Profile, Program, check_inputs, zero_point_inputs

OPTIONS = ("-cl-std=CL1.2",)
BUFFERS = ("-D", "ACTIVATIONS_BUFFER")

GRACE = 10.0
"""Seconds that an interrupted inference may take to finish before it is abandoned."""

log = logging.getLogger(__name__)


class OpenClDevice:
    """A device that programs can be loaded on."""

    def __init__(self, found: Found) -> None:
        self.found = found

    def load(self, program: Program) -> OpenClSession:
        """Build a program, allocate its memory and write its weights.

        Raises:
            InvalidArtifact: the program is incomplete, or its plan damaged.
            BuildFailed: the device's compiler refused it; with the compiler's log, trimmed.
            Unsupported: it does not fit the device's memory; with the sizes.
            DeviceFailed: the device failed.
        """
        return OpenClSession(program, self.found)


@dataclass(frozen=True)
class _Launch:
    """A kernel with its arguments (pyopencl.Kernel), the NDRange's global size and its work-groups'."""

    kernel: Any
    range: tuple[int, ...]
    local: tuple[int, ...]


class OpenClSession:
    """A program on a device; a context manager.

    Args:
        program: of the Adreno target.
        found: the device.
        images: whether activations and weights lie in images; by default if the device supports it.
    """

    def __init__(self, program: Program, found: Found, images: bool | None = None) -> None:
        self._plan = plan = AdrenoPlan.of(program)
        self._source = program.code[SOURCE]
        self._graph = program.graph
        self._found = found
        self._closed = False
        self._images = _fits_images(plan, found) if images is None else images
        self._margin = max(128, found.alignment)
        self._sizes = _sizes(program, plan, self._images, self._margin)
        if max(self._sizes) > found.allocation or sum(self._sizes) > found.memory:
            raise no_memory(found, sum(self._sizes), "it does not fit")
        self._cl = opencl._pyopencl()
        self._memory: dict[tuple[str, Any], Any] = {}
        self._whole: dict[tuple[str, Any], Any] = {}
        self._launches: list[_Launch] = []
        self._pending: list[Any] = []
        self._context: Any = None
        self._queue: Any = None
        try:
            with self._failing("the device cannot be opened"):
                self._context = self._cl.Context([found.handle])
                profiling = self._cl.command_queue_properties.PROFILING_ENABLE
                self._queue = self._cl.CommandQueue(self._context, properties=profiling)
            with self._failing("the program cannot be built"):
                kernels = self._build()
            with self._failing("the network's memory cannot be allocated"):
                self._allocate(program.weights.buffer())
            with self._failing("a kernel does not accept its arguments"):
                for step, kernel in zip(plan.steps, kernels, strict=True):
                    self._launches.append(self._launch(step, kernel))
        except BaseException:
            self.close()
            raise

    # -- sdk.target.DeviceSession -----------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with self._exchange(inputs):
            for launch in self._launches:
                self._enqueue(launch)
            self._finish()
            return self._outputs()

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        values: dict[str, Array] = {}
        with self._exchange(inputs):
            for step, launch in zip(self._plan.steps, self._launches, strict=True):
                self._enqueue(launch)
                values |= {name: self._activation(name) for name in step.tensors}
            return values | self._outputs()

    def profile(self) -> Profile:
        """Work-items of each launch, and static figures (`dsp.adreno.ir3`) where tinymesa is installed.

        On a GPU microseconds too; never on a CPU that emulates one.
        """
        figures = ir3.Static([{}] * len(self._plan.steps), {})
        try:
            figures = ir3.static(self._plan)
        except EnvironmentMissing as problem:
            log.info("no static figures: %s", problem)
        except BuildFailed as problem:  # the other figures do not depend on them
            log.warning("no static figures: %s", problem)
        with self._exchange(zero_point_inputs(self._graph)):
            events = [self._enqueue(launch) for launch in self._launches]
            self._finish()
            with self._failing("the device does not report its times"):
                times = [None if self._found.emulated else _microseconds(event) for event in events]
        layers = []
        total: dict[str, int | float] = {"launches": len(self._launches)}
        for step, time, static in zip(self._plan.steps, times, figures.layers, strict=True):
            counters: dict[str, int | float] = {"work_items": math.prod(step.items)}
            if time is not None:
                counters["device_us"] = time
            layers.append(LayerProfile(step.name, step.op, step.macs, counters | static))
            for name, count in counters.items():
                total[name] = total.get(name, 0) + count
        return Profile(layers, total | figures.total, self._plan.memory)

    def close(self) -> None:
        """Release the device. An inference interrupted by Ctrl-C may finish within GRACE."""
        if self._closed:
            return
        self._closed = True
        try:
            with self._failing("the queue cannot be flushed"):
                for event in self._pending[-1:]:
                    self._queue.flush()  # a command that the driver still holds back would never finish
                    wait(event, self._found, GRACE)
        except (Hung, KeyboardInterrupt):
            self._abandon()
        except (DeviceFailed, Unsupported):
            pass  # it has ended
        self._pending.clear()
        self._launches.clear()
        for memory in (*self._memory.values(), *self._whole.values()):
            memory.release()
        self._memory.clear()
        self._whole.clear()
        self._queue = self._context = None

    def _abandon(self) -> None:
        """Release nothing: with a driver that hangs a release never returns, even at the process's end."""
        _leak((self._pending, self._launches, self._memory, self._whole, self._queue, self._context))
        self._pending, self._launches, self._memory, self._whole = [], [], {}, {}

    def __enter__(self) -> OpenClSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- for the contract tests -------------------------------------------------------------------------

    def poison(self, byte: int) -> None:
        """Fill all storages, inputs and outputs, and the margins around buffers, with one byte."""
        with self._guarded():
            for memory in self._whole.values():
                self._copy(memory, np.full(memory.size, byte, np.uint8))
            if self._images:
                for number, storage in enumerate(self._plan.storages):
                    shape = storage.height, storage.width, TEXEL
                    self._write_image(self._memory["storage", number], np.full(shape, byte, np.uint8))
            self._finish()

    def dump(self) -> tuple[bytes, bytes, bytes]:
        """Margins before, all storages one after the other, margins behind. An image has no margins."""
        before, arena, behind = [], [], []
        with self._guarded():
            for memory in self._whole.values():
                whole = self._read(memory, memory.size).tobytes()
                before.append(whole[: self._margin])
                behind.append(whole[-self._margin :])
            for number, storage in enumerate(self._plan.storages):
                arena.append(self._read_storage(number, storage.width, storage.height).tobytes())
        return b"".join(before), b"".join(arena), b"".join(behind)

    # -- memory -----------------------------------------------------------------------------------------

    def _allocate(self, weights: memoryview) -> None:
        cl, plan = self._cl, self._plan
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        tables = np.frombuffer(weights[: plan.tables] or bytes(16), np.uint8)
        self._memory["tables", 0] = cl.Buffer(self._context, flags, hostbuf=tables)
        for number, one in enumerate(plan.weights):
            data = np.frombuffer(weights, one.dtype, one.nbytes // np.dtype(one.dtype).itemsize, one.offset)
            if self._images:
                form = cl.ImageFormat(cl.channel_order.RGBA, _channel_type(cl, one))
                texels = data.reshape(one.height, one.width, TEXEL)
                memory = cl.create_image(
                    self._context, flags, form, shape=(one.width, one.height), hostbuf=texels
                )
            else:
                memory = cl.Buffer(self._context, flags, hostbuf=data.astype(np.int16))
            self._memory["weights", number] = memory
        for number, storage in enumerate(plan.storages):
            if self._images:
                form = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.UNSIGNED_INT8)
                shape = storage.width, storage.height
                image = cl.create_image(self._context, cl.mem_flags.READ_WRITE, form, shape=shape)
                self._memory["storage", number] = image
            else:
                self._buffer(("storage", number), _bytes(storage))
        for kind, names in (("input", self._graph.inputs), ("output", self._graph.outputs)):
            for name in names:
                self._buffer((kind, name), self._graph.tensor(name).nbytes)

    def _buffer(self, key: tuple[str, Any], nbytes: int) -> None:
        """A buffer between two margins."""
        flags, margin = self._cl.mem_flags.READ_WRITE, self._margin
        self._whole[key] = whole = self._cl.Buffer(self._context, flags, _padded(nbytes, margin))
        self._memory[key] = whole.get_sub_region(margin, nbytes, flags)

    def _outputs(self) -> dict[str, Array]:
        found = {}
        for name in self._graph.outputs:
            data = self._read(self._memory["output", name], self._graph.tensor(name).nbytes)
            found[name] = self._as_tensor(name, data)
        return found

    def _activation(self, name: str) -> Array:
        """A tensor's value on the device."""
        place = self._plan.tensors[name]
        layout = place.layout
        texels = self._read_storage(place.storage, layout.columns, layout.rows)
        return self._as_tensor(name, layout.unpack(texels))

    def _read_storage(self, number: int, columns: int, rows: int) -> Array:
        """The upper left corner of an image, or the first texels of a buffer: uint8 [rows, columns, 4]."""
        memory = self._memory["storage", number]
        if not self._images:
            return self._read(memory, rows * columns * TEXEL).reshape(rows, columns, TEXEL)
        texels = np.empty((rows, columns, TEXEL), np.uint8)
        with self._failing("an image cannot be read"):
            self._pending.append(
                self._cl.enqueue_copy(
                    self._queue, texels, memory, origin=(0, 0), region=(columns, rows), is_blocking=False
                )
            )
        self._finish()
        return texels

    def _write_image(self, memory: Any, texels: Array) -> None:
        with self._failing("an image cannot be written"):
            region = texels.shape[1], texels.shape[0]
            self._pending.append(
                self._cl.enqueue_copy(
                    self._queue, memory, texels, origin=(0, 0), region=region, is_blocking=False
                )
            )

    def _read(self, memory: Any, nbytes: int) -> Array:
        """The first bytes of a buffer, uint8 [nbytes]."""
        data = np.empty(nbytes, np.uint8)
        self._copy(data, memory)
        self._finish()
        return data

    def _copy(self, target: Any, source: Any) -> None:
        with self._failing("a buffer cannot be copied"):
            self._pending.append(self._cl.enqueue_copy(self._queue, target, source, is_blocking=False))

    def _as_tensor(self, name: str, data: Array) -> Array:
        tensor = self._graph.tensor(name)
        return flip_sign(data, tensor).view(tensor.dtype).reshape(tensor.shape)

    # -- launches ---------------------------------------------------------------------------------------

    def _build(self) -> list[Any]:
        """The kernel of each step; with the device's dot products, if its compiler supports them."""
        plan, found = self._plan, self._found
        form = () if self._images else BUFFERS
        names = [plan.kernels[step.kernel].name for step in plan.steps]
        for extension, options in opencl.DOT_PRODUCTS.items():
            if extension in found.extensions:
                try:
                    return binaries.build(found, self._context, self._source, (*form, *options), names)
                except BuildFailed:
                    log.warning("%s reports %s, but does not build with it", found.name, extension)
        return binaries.build(found, self._context, self._source, (*form, *OPTIONS), names)

    def _launch(self, step: StepPlan, kernel: Any) -> _Launch:
        for number, (kind, value) in enumerate(step.arguments):
            match kind:
                case "int":
                    kernel.set_arg(number, np.int32(value))
                case "float":
                    kernel.set_arg(number, np.float32(value))
                case _:
                    kernel.set_arg(number, self._memory[kind, value])
        info = self._cl.kernel_work_group_info.WORK_GROUP_SIZE
        limit = min(self._found.group, kernel.get_work_group_info(info, self._found.handle))
        local = fitting(step.local, limit, self._found.group_items)
        whole = tuple(-(-items // size) * size for items, size in zip(step.items, local, strict=True))
        return _Launch(kernel, whole, local)

    def _enqueue(self, launch: _Launch) -> Any:
        with self._failing("a kernel cannot be launched"):
            event = self._cl.enqueue_nd_range_kernel(self._queue, launch.kernel, launch.range, launch.local)
        self._pending.append(event)
        return event

    def _finish(self) -> None:
        """Wait for all that is in the queue. Commands finish in order, but each has its own status."""
        try:
            with self._failing("the queue cannot be flushed"):
                self._queue.flush()
                for event in reversed(self._pending):
                    wait(event, self._found)
        except Hung:
            self._abandon()
            raise
        self._pending.clear()

    # -- errors -----------------------------------------------------------------------------------------

    def _failing(self, doing: str) -> contextlib.AbstractContextManager[None]:
        return failing(self._found, doing, sum(self._sizes))

    @contextlib.contextmanager
    def _exchange(self, inputs: Mapping[str, Array]) -> Iterator[None]:
        """Write the inputs to the device, and guard what the body does with them."""
        arrays = check_inputs(self._graph, inputs)
        with self._guarded():
            for name, array in arrays.items():
                data = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
                self._copy(self._memory["input", name], flip_sign(data, self._graph.tensor(name)))
            yield

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Close the session if the body fails or is interrupted: the state of the device is then unknown."""
        if self._closed:
            raise DeviceFailed("the session is closed", hint="load the network again")
        try:
            yield
        except BaseException:
            self.close()
            raise


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


def _leak(thing: object) -> None:
    """Keep a thing, and all it holds, for as long as the process lives."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _fits_images(plan: AdrenoPlan, found: Found) -> bool:
    """Whether the device has images that are large enough; logged if not."""
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


def _sizes(program: Program, plan: AdrenoPlan, images: bool, margin: int) -> list[int]:
    """Bytes of each piece of the device's memory."""
    storages = [_bytes(storage) for storage in plan.storages]
    edges = [program.graph.tensor(name).nbytes for name in (*program.graph.inputs, *program.graph.outputs)]
    if images:
        weights = [one.nbytes for one in plan.weights]
    else:
        weights = [2 * TEXEL * one.width * one.height for one in plan.weights]
        storages = [_padded(nbytes, margin) for nbytes in storages]
    return [max(plan.tables, 16), *weights, *storages, *(_padded(nbytes, margin) for nbytes in edges)]


def _bytes(storage: StoragePlan) -> int:
    return TEXEL * storage.width * storage.height


def _padded(nbytes: int, margin: int) -> int:
    return nbytes + 2 * margin


def _channel_type(cl: Any, weights: WeightsPlan) -> Any:
    types = cl.channel_type
    return types.SIGNED_INT8 if weights.dtype == "int8" else types.SIGNED_INT16


def _microseconds(event: Any) -> float:
    return float(event.profile.end - event.profile.start) / 1000
