"""A compiled network on an OpenCL device: one queue, in order, and every wait has a deadline.

A `.tow` holds code: the device's compiler compiles it, and the device runs it.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsp.adreno import binaries, ir3, opencl
from dsp.adreno.limits import fits_images, fits_texels, fitting, padded, sizes_of, texel_kinds
from dsp.adreno.opencl import Found, Hung, failing, no_memory, wait
from dsp.adreno.plain_products import ZEROS
from dsp.adreno.plan import SOURCE, TEXEL, AdrenoPlan, PlacePlan, StepPlan
from sdk import dtypes
from sdk.errors import BuildFailed, DeviceFailed, EnvironmentMissing, InvalidInput, Unsupported
from sdk.graph import Array
from sdk.inputs import check_inputs, zero_point_inputs
from sdk.opencl.context import STATUS_BYTES
from sdk.passes import flip_sign
from sdk.target import HalfArithmetic, LayerProfile, Profile, Program

OPTIONS = ("-cl-std=CL1.2",)
BUFFERS = ("-D", "ACTIVATIONS_BUFFER")
TEXEL_BUFFERS = ("-D", "TEXELS_BUFFER")
HALVES = "cl_khr_fp16"
HALF_NATIVE = ("-D", "HALF_NATIVE")
"""What kernels/plain/numbers.h asks for; HALVES is the extension that has half arithmetic."""

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
        self._images = fits_images(plan, found) if images is None else images
        self._words = False  # texels of storages, and of weights of dot products, are words
        self._texel_images = images is not False and fits_texels(plan, found)
        self._margin = max(128, found.alignment)
        self._sizes = sizes_of(program, plan, self._images, self._margin)
        if max(self._sizes) > found.allocation or sum(self._sizes) > found.memory:
            raise no_memory(found, sum(self._sizes), "it does not fit")
        self._cl = opencl._pyopencl()
        self._memory: dict[tuple[str, Any], Any] = {}
        self._whole: dict[tuple[str, Any], Any] = {}
        self._launches: list[_Launch] = []
        self._swapped_launches: list[_Launch] = []  # those of every other step
        # States are on the device, or else here for the next step to bring along.
        first = zero_point_inputs(self._graph) if plan.states else {}
        self._held: dict[str, Array] | None = {given: first[given] for _, given in plan.states}
        self._swapped = False
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
                kernel = iter(kernels)
                self._launches = [self._launch(step, next(kernel), False) for step in plan.steps]
                self._swapped_launches = [
                    self._launch(step, next(kernel), True) if self._changes(step) else launch
                    for step, launch in zip(plan.steps, self._launches, strict=True)
                ]
        except BaseException:
            self.close()
            raise

    # -- sdk.target.DeviceSession -----------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        arrays = check_inputs(self._graph, inputs)
        with self._guarded():
            self._fetch_states()
            return self._begin(arrays, self._graph.outputs)()

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        arrays = check_inputs(self._graph, inputs)
        values: dict[str, Array] = {}
        with self._guarded():
            self._fetch_states()
            self._write(arrays)
            for step, launch in zip(self._plan.steps, self._launches, strict=True):
                self._enqueue(launch)
                values |= {name: self._activation(name) for name in step.tensors}
            return values | self._read_later(self._graph.outputs)()

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
        with self._guarded():
            self._fetch_states()
            self._write(zero_point_inputs(self._graph))
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

    # -- sdk.target.Submits -----------------------------------------------------------------------------

    def submit(self, inputs: Mapping[str, Array], *, step: bool = False) -> Callable[[], dict[str, Array]]:
        names = self._step_inputs if step else self._graph.inputs
        arrays = check_inputs(dataclasses.replace(self._graph, inputs=names), inputs)
        with self._guarded():
            if not step:
                self._fetch_states()
                return self._begin(arrays, self._graph.outputs)
            collect = self._begin({**arrays, **(self._held or {})}, self._step_outputs)
            # The queue is in order: a step that is submitted now finds the states of the one before.
            self._held, self._swapped = None, not self._swapped
            return collect

    # -- sdk.target.ComputesInHalf ----------------------------------------------------------------------

    @property
    def half_arithmetic(self) -> HalfArithmetic | None:
        if not any(one.constants.get("half_sums") for one in self._plan.kernels):
            return None
        return "device" if HALVES in self._found.extensions else "emulated"

    # -- sdk.target.KeepsStates -------------------------------------------------------------------------

    @property
    def kept(self) -> Sequence[tuple[str, str]]:
        return self._plan.states

    def step(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        arrays = check_inputs(dataclasses.replace(self._graph, inputs=self._step_inputs), inputs)
        with self._guarded():
            results = self._begin({**arrays, **(self._held or {})}, self._step_outputs)()
        # Only now, so that a step that failed begins again from the same states.
        self._held, self._swapped = None, not self._swapped
        return results

    @property
    def _step_inputs(self) -> tuple[str, ...]:
        kept = {given for _, given in self.kept}
        return tuple(name for name in self._graph.inputs if name not in kept)

    @property
    def _step_outputs(self) -> tuple[str, ...]:
        kept = {output for output, _ in self.kept}
        return tuple(name for name in self._graph.outputs if name not in kept)

    def reset(self, states: Mapping[str, Array]) -> None:
        names = tuple(given for _, given in self.kept)
        self._held = check_inputs(dataclasses.replace(self._graph, inputs=names), states)
        self._swapped = False

    def states(self) -> dict[str, Array]:
        if self._held is not None:
            return {name: array.copy() for name, array in self._held.items()}
        with self._guarded():
            return self._read_states()

    def _fetch_states(self) -> None:
        """Bring the states here, for something else will be in their places."""
        if self._held is None:
            self._held, self._swapped = self._read_states(), False

    def _read_states(self) -> dict[str, Array]:
        return self._read_later([given for _, given in self.kept])()

    # -- the end ----------------------------------------------------------------------------------------

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
        self._launches, self._swapped_launches = [], []
        for memory in (*self._memory.values(), *self._whole.values()):
            memory.release()
        self._memory.clear()
        self._whole.clear()
        self._queue = self._context = None

    def _abandon(self) -> None:
        """Release nothing: with a driver that hangs a release never returns, even at the process's end."""
        _leak(
            (
                self._pending,
                self._launches,
                self._swapped_launches,
                self._memory,
                self._whole,
                self._queue,
                self._context,
            )
        )
        self._pending, self._launches, self._swapped_launches = [], [], []
        self._memory, self._whole = {}, {}

    def __enter__(self) -> OpenClSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- for the contract tests -------------------------------------------------------------------------

    def poison(self, byte: int) -> None:
        """Fill all storages and memories, and the margins around buffers, with one byte."""
        with self._guarded():
            for memory in self._whole.values():
                self._copy(memory, np.full(memory.size, byte, np.uint8))
                self._copy(memory, np.zeros(ZEROS, np.uint8), self._margin - ZEROS)
            if self._images:
                for number, storage in enumerate(self._plan.storages):
                    shape = storage.height, storage.width, TEXEL
                    self._write_image(self._memory["storage", number], np.full(shape, byte, np.uint8))
            self._finish()

    def dump(self) -> tuple[bytes, bytes, bytes]:
        """Margins before, all storages one after the other, margins behind. An image has no margins.

        The last ZEROS bytes of a margin before are zeros, which kernels may read, and not in it.
        """
        before, arena, behind = [], [], []
        with self._guarded():
            for memory in self._whole.values():
                whole = self._read(memory, memory.size).tobytes()
                before.append(whole[: self._margin - ZEROS])
                behind.append(whole[-self._margin :])
            for number, storage in enumerate(self._plan.storages):
                arena.append(self._read_storage(number, storage.width, storage.height).tobytes())
            for number, memory in enumerate(self._plan.memories):
                arena.append(self._read_memory(number, 0, memory.nbytes).tobytes())
        return b"".join(before), b"".join(arena), b"".join(behind)

    # -- memory -----------------------------------------------------------------------------------------

    def _allocate(self, weights: memoryview) -> None:
        cl, plan = self._cl, self._plan
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        tables = np.frombuffer(weights[: plan.tables] or bytes(16), np.uint8)
        self._memory["tables", 0] = cl.Buffer(self._context, flags, hostbuf=tables)
        words = _dot_weights(plan) if self._words else set()
        for number, one in enumerate(plan.weights):
            data = np.frombuffer(weights, one.dtype, one.nbytes // np.dtype(one.dtype).itemsize, one.offset)
            if self._images:
                form = _word_format(cl) if number in words else _number_format(cl, one.dtype)
                texels = data.reshape(one.height, one.width, TEXEL)
                memory = cl.create_image(
                    self._context, flags, form, shape=(one.width, one.height), hostbuf=texels
                )
            else:
                numbers = data if number in words else data.astype(np.int16)
                memory = cl.Buffer(self._context, flags, hostbuf=numbers)
            self._memory["weights", number] = memory
        for number, storage in enumerate(plan.storages):
            if self._images:
                form = _word_format(cl) if self._words else _number_format(cl, "uint8")
                shape = storage.width, storage.height
                image = cl.create_image(self._context, cl.mem_flags.READ_WRITE, form, shape=shape)
                self._memory["storage", number] = image
            else:
                self._buffer(("storage", number), storage.nbytes)
        for number, place in enumerate(plan.memories):
            self._buffer(("memory", number), place.nbytes)
            self._copy(self._whole["memory", number], np.zeros(ZEROS, np.uint8), self._margin - ZEROS)

    def _texels(self, kind: str, of: tuple[str, int]) -> Any:
        """A buffer as a one-dimensional image of halves or floats; itself where kernels read buffers."""
        buffer = self._whole.get(of) or self._memory[of]
        if not self._texel_images:
            return buffer
        key = kind, of[1]
        if key not in self._memory:
            cl = self._cl
            channel = cl.channel_type.HALF_FLOAT if kind.endswith("halves") else cl.channel_type.FLOAT
            nbytes = TEXEL * (2 if kind.endswith("halves") else 4)
            form = cl.ImageFormat(cl.channel_order.RGBA, channel)
            shape = (buffer.size // nbytes,)
            self._memory[key] = cl.create_image(
                self._context, cl.mem_flags.READ_ONLY, form, shape=shape, buffer=buffer
            )
        return self._memory[key]

    def _buffer(self, key: tuple[str, Any], nbytes: int) -> None:
        """A buffer between two margins."""
        flags, margin = self._cl.mem_flags.READ_WRITE, self._margin
        self._whole[key] = whole = self._cl.Buffer(self._context, flags, padded(nbytes, margin))
        self._memory[key] = whole.get_sub_region(margin, nbytes, flags)

    def _place(self, name: str) -> tuple[Any, int]:
        """The buffer that an input or output is in now, and its first byte there."""
        plan = self._plan
        place = plan.inputs[name] if name in plan.inputs else plan.outputs[name]
        number = plan.swapped(place.memory) if self._swapped else place.memory
        return self._whole["memory", number], self._margin + place.offset

    def _write(self, arrays: Mapping[str, Array]) -> None:
        """Inputs to the device; nothing that was out of range so far."""
        for name, array in arrays.items():
            data = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
            tensor = self._graph.tensor(name)
            if tensor.quantization is not None:
                data = flip_sign(data, tensor)
            buffer, start = self._place(name)
            self._copy(buffer, data, start)
        if self._plan.status is not None:
            status = self._whole["memory", self._plan.status]
            self._copy(status, np.zeros(STATUS_BYTES, np.uint8), self._margin)

    def _begin(self, arrays: Mapping[str, Array], outputs: Sequence[str]) -> Callable[[], dict[str, Array]]:
        """Begin an inference; what it returns waits for its end."""
        self._write(arrays)
        for launch in self._swapped_launches if self._swapped else self._launches:
            self._enqueue(launch)
        return self._read_later(outputs)

    def _read_later(self, names: Sequence[str]) -> Callable[[], dict[str, Array]]:
        """Begin to read inputs or outputs; what it returns waits for them."""
        data = {}
        for name in names:
            buffer, start = self._place(name)
            data[name] = np.empty(self._graph.tensor(name).nbytes, np.uint8)
            self._copy(data[name], buffer, start)
        status = np.zeros(2, "<i4")
        if self._plan.status is not None:
            self._copy(status.view(np.uint8), self._whole["memory", self._plan.status], self._margin)
        last = self._pending[-1] if self._pending else None

        def collect() -> dict[str, Array]:
            with self._guarded():
                self._finish(last)
            number, index = status.tolist()
            if number:
                where = self._plan.steps[number - 1].name if number <= len(self._plan.steps) else "unknown"
                raise InvalidInput(f"index {index} is out of range", where=f"node {where}")
            return {name: self._as_tensor(name, array) for name, array in data.items()}

        return collect

    def _read_memory(self, number: int, start: int, nbytes: int) -> Array:
        """Bytes of a memory, uint8 [nbytes]."""
        data = np.empty(nbytes, np.uint8)
        self._copy(data, self._whole["memory", number], self._margin + start)
        self._finish()
        return data

    def _activation(self, name: str) -> Array:
        """A tensor's value on the device."""
        if name in self._plan.places:
            return self._plain(name, self._plan.places[name])
        place = self._plan.tensors[name]
        layout = place.layout
        texels = self._read_storage(place.storage, layout.columns, layout.rows)
        return self._as_tensor(name, layout.unpack(texels))

    def _plain(self, name: str, place: PlacePlan) -> Array:
        tensor = self._graph.tensor(name)
        dtype = dtypes.storage(tensor.dtype)
        pairs = list(zip(tensor.shape, place.steps, strict=True))
        before = dtype.itemsize * sum((n - 1) * min(step, 0) for n, step in pairs)
        after = dtype.itemsize * (1 + sum((n - 1) * max(step, 0) for n, step in pairs))
        if 0 in tensor.shape:
            return np.empty(tensor.shape, dtype)
        data = self._read_memory(place.memory, place.offset + before, after - before)
        elements = np.lib.stride_tricks.as_strided(
            data[-before:].view(dtype) if before else data.view(dtype),
            tensor.shape,
            [step * dtype.itemsize for step in place.steps],
        )
        made = np.ascontiguousarray(elements)
        return flip_sign(made, tensor) if tensor.quantization is not None else made

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

    def _copy(self, target: Any, source: Any, start: int = 0) -> None:
        """Between a buffer, from this byte on, and an array."""
        offset: dict[str, int] = {}
        if start:
            offset = {"dst_offset" if isinstance(source, np.ndarray) else "src_offset": start}
        with self._failing("a buffer cannot be copied"):
            event = self._cl.enqueue_copy(self._queue, target, source, is_blocking=False, **offset)
            self._pending.append(event)

    def _as_tensor(self, name: str, data: Array) -> Array:
        tensor = self._graph.tensor(name)
        if tensor.quantization is not None:
            data = flip_sign(data, tensor)
        return data.view(dtypes.storage(tensor.dtype)).reshape(tensor.shape)

    # -- launches ---------------------------------------------------------------------------------------

    def _build(self) -> list[Any]:
        """The kernel of each step; with the device's dot products, if its compiler supports them."""
        plan, found = self._plan, self._found
        form: tuple[str, ...] = () if self._images else BUFFERS
        form += () if self._texel_images else TEXEL_BUFFERS
        form += HALF_NATIVE if HALVES in found.extensions and texel_kinds(plan) else ()
        names = [plan.kernels[step.kernel].name for step in plan.steps]
        names += [plan.kernels[step.kernel].name for step in plan.steps if self._changes(step)]
        for extension, options in opencl.DOT_PRODUCTS.items():
            if extension in found.extensions and self._images and not found.word_images:
                log.warning("%s reports %s, but has no images of words", found.name, extension)
            elif extension in found.extensions:
                try:
                    made = binaries.build(found, self._context, self._source, (*form, *options), names)
                except BuildFailed:
                    log.warning("%s reports %s, but does not build with it", found.name, extension)
                else:
                    self._words = True
                    return made
        return binaries.build(found, self._context, self._source, (*form, *OPTIONS), names)

    def _changes(self, step: StepPlan) -> bool:
        """Whether a launch is another in every other step: it reads or writes a state."""
        swapped = self._plan.swapped
        return any(
            kind in ("memory", "halves", "floats") and isinstance(value, int) and swapped(value) != value
            for kind, value in step.arguments
        )

    def _launch(self, step: StepPlan, kernel: Any, swapped: bool) -> _Launch:
        for place, (kind, value) in enumerate(step.arguments):
            match kind, value:
                case "words", [*words]:
                    kernel.set_arg(place, np.array(words, np.uint32))
                case "offset", int():
                    kernel.set_arg(place, np.int32(value + self._margin))
                case "int" | "constants", int():
                    kernel.set_arg(place, np.int32(value))
                case "float", int() | float():
                    kernel.set_arg(place, np.float32(value))
                case "memory", int():
                    number = self._plan.swapped(value) if swapped else value
                    kernel.set_arg(place, self._whole["memory", number])
                case "halves" | "floats", int():
                    number = self._plan.swapped(value) if swapped else value
                    kernel.set_arg(place, self._texels(kind, ("memory", number)))
                case "constant_halves" | "constant_floats", _:
                    kernel.set_arg(place, self._texels(kind, ("tables", 0)))
                case _:
                    kernel.set_arg(place, self._memory[kind, value])
        info = self._cl.kernel_work_group_info.WORK_GROUP_SIZE
        limit = min(self._found.group, kernel.get_work_group_info(info, self._found.handle))
        local = fitting(step.local, limit, self._found.group_items)
        if step.fixed and local != tuple(step.local):
            raise Unsupported(
                f"{self._found.name} runs at most {limit} work-items of this kernel in a work-group, "
                f"which needs {math.prod(step.local)}",
                where=f"node {step.name}",
            )
        whole = tuple(-(-items // size) * size for items, size in zip(step.items, local, strict=True))
        return _Launch(kernel, whole, local)

    def _enqueue(self, launch: _Launch) -> Any:
        with self._failing("a kernel cannot be launched"):
            event = self._cl.enqueue_nd_range_kernel(self._queue, launch.kernel, launch.range, launch.local)
        self._pending.append(event)
        return event

    def _finish(self, last: Any = None) -> None:
        """Wait for all that is in the queue, or up to an event.

        Commands finish in order, but each has its own status.
        """
        end = len(self._pending) if last not in self._pending else self._pending.index(last) + 1
        if last is not None and last not in self._pending:
            return  # something has waited for more
        try:
            with self._failing("the queue cannot be flushed"):
                self._queue.flush()
                for event in reversed(self._pending[:end]):
                    wait(event, self._found)
        except Hung:
            self._abandon()
            raise
        del self._pending[:end]

    # -- errors -----------------------------------------------------------------------------------------

    def _failing(self, doing: str) -> contextlib.AbstractContextManager[None]:
        return failing(self._found, doing, sum(self._sizes))

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


def _leak(thing: object) -> None:
    """Keep a thing, and all it holds, for as long as the process lives."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _dot_weights(plan: AdrenoPlan) -> set[object]:
    """The numbers of weights that dot products read."""
    steps = [step for step in plan.steps if plan.kernels[step.kernel].constants.get("dots")]
    return {value for step in steps for kind, value in step.arguments if kind == "weights"}


def _number_format(cl: Any, dtype: str) -> Any:
    """Of texels of four numbers."""
    types = cl.channel_type
    kinds = {"uint8": types.UNSIGNED_INT8, "int8": types.SIGNED_INT8, "int16": types.SIGNED_INT16}
    return cl.ImageFormat(cl.channel_order.RGBA, kinds[dtype])


def _word_format(cl: Any) -> Any:
    """Of texels whose four bytes are one number."""
    return cl.ImageFormat(cl.channel_order.R, cl.channel_type.UNSIGNED_INT32)


def _microseconds(event: Any) -> float:
    return float(event.profile.end - event.profile.start) / 1000
