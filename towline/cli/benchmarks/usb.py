"""What a GPU over USB costs its host: transfers, shares of the link, virtual time. `towline bench usb`.

Everything is measured at the transport, over an emulated bridge that keeps its card up from one opening to
the next. A transfer is one control or one bulk call; counts and virtual times are the same in every run. Host
time is the CPU's: that of this process, less what it spends in the emulator (below pyusb's backend).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from sdk import toolchain
from sdk.errors import CheckFailed
from sdk.files import scratch_directory, write
from sdk.graph import Array
from sdk.target import Program
from usbgpu import bridge as bridges
from usbgpu import emulation, seam, transport
from usbgpu.amd import firmware
from usbgpu.amd import gpu as gpus
from usbgpu.amd.gpu import Gpu
from usbgpu.target.build import FLAGS
from usbgpu.target.device import CardDevice
from usbgpu.target.session import CardSession
from usbgpu.transport import Call, CallKind, DeviceString, EmulatedBackend, Outcome, device_string

LINK = 700e6
"""Bytes a second that slot DMA does over the link, both ways (published for silicon)."""
STREAM = 64 << 20
"""Bytes of the upload and of the download."""
LAUNCHES = 8
FOLLOWING = 4
"""Inferences behind the first one; reported are the most transfers, and the least CPU time of the host."""
FRAMES = 32
"""Inferences in flight together; two where none overlap."""
FINGERPRINT = 256
"""Bytes by which a firmware blob is recognised."""

KERNEL = """
kernel __attribute__((reqd_work_group_size(32, 1, 1))) void count(global uint *numbers, uint step) {
  numbers[__builtin_amdgcn_workitem_id_x()] += step;
}
"""


@dataclass(frozen=True)
class Network:
    """A compiled network and its expected results.

    Attributes:
        program: of the chip.
        inputs: of the integer body, by name.
        expected: every tensor of the integer body by the reference, by name.
    """

    program: Program
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]


def measure(device: str, network: Network, wall_seconds: float) -> dict[str, Any]:
    """Measure a card behind a bridge, from power-on to inferences.

    Args:
        device: string of an emulated bridge with a card.
        network: compiled for that card.
        wall_seconds: of `towline run` with it, which the caller measures.

    Returns:
        `boot`, `warm_open`, `launch`, `upload`, `download` and `mobilenet`, as docs/plug.md has them.

    Raises:
        CheckFailed: bytes or numbers differ from the expected ones.
        DeviceFailed, EnvironmentMissing: a part does not work, or is missing.
    """
    desk = _Desk(device)
    with desk.opened() as gpu:
        boot = desk.boot(gpu)
    with desk.opened() as gpu:
        found = {
            "boot": boot,
            "warm_open": {"transfers": len(desk.calls)},
            "launch": {"transfers": _launch(desk, gpu)},
            **_streams(desk, gpu),
        }
    return found | {"mobilenet": _inferences(desk, network) | {"wall_seconds": wall_seconds}}


# -- the bridge, observed -----------------------------------------------------------------------------------


class _Metered:
    """Wraps an object, and adds up the CPU seconds of this thread in its methods.

    Attributes:
        spent: seconds so far, in a list of one that several may share.
    """

    def __init__(self, of: Any, spent: list[float]) -> None:
        self._of = of
        self.spent = spent

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not callable(found) or name.startswith("__"):
            return found

        def metered(*args: Any, **named: Any) -> Any:
            began = time.thread_time()
            try:
                return found(*args, **named)
            finally:
                self.spent[0] += time.thread_time() - began

        return metered


class _Backend(_Metered):
    """An emulated bridge as a pyusb backend, with a clock that is metered too."""

    def __init__(self, of: EmulatedBackend, spent: list[float]) -> None:
        super().__init__(of, spent)
        self.clock = _Metered(of.clock, spent)
        self.emulation = of.emulation


class _Desk:
    """An emulated bridge with a card, which stays up between openings.

    Attributes:
        calls: since it was last opened; what went out in bulk, else nothing.
        began: virtual seconds at the first of them.
    """

    def __init__(self, device: str) -> None:
        self._name = device
        self._spent = [0.0]
        self._backend = _Backend(device_string.backend(DeviceString.parse(device)), self._spent)
        self.calls: list[bytes] = []
        self.began = 0.0

    @contextmanager
    def opened(self) -> Iterator[Gpu]:
        """The card, opened as `usbgpu.amd.gpu.open` does."""
        self.calls = []
        opened = transport.attach(self._backend, self._name)
        opened.observers.append(self._seen)
        with gpus.attach(bridges.attach(opened)) as gpu:
            yield gpu

    def _seen(self, call: Call, outcome: Outcome) -> None:
        if not self.calls:
            self.began = outcome.began
        self.calls.append(bytes(call.data) if call.kind is CallKind.BULK_OUT else b"")

    def now(self) -> float:
        """Virtual seconds since power-on."""
        return float(self._backend.clock.now())

    def host_seconds(self) -> float:
        """CPU seconds of this thread, without the emulator's."""
        return time.thread_time() - self._spent[0]

    def boot(self, gpu: Gpu) -> dict[str, Any]:
        """The cost until the queues were ready."""
        directory = emulation.firmware_directory(gpu.card.bridge)
        blobs = firmware.load(gpu.card.chip, directory).blobs.values()
        marks = [blob[:FINGERPRINT] for blob in blobs]
        loads = sum(any(mark in data for mark in marks) for data in self.calls)
        return {
            "transfers": len(self.calls) - loads,
            "blob_transfers": loads,
            "virtual_ms": round(1e3 * (self.now() - self.began), 3),
        }

    def counted(self, act: Callable[[], Any]) -> tuple[int, float, Any]:
        """Transfers, virtual seconds and result of a call."""
        before, began = len(self.calls), self.now()
        result = act()
        return len(self.calls) - before, self.now() - began, result


# -- work ---------------------------------------------------------------------------------------------------


def _launch(desk: _Desk, gpu: Gpu) -> int:
    """Transfers of a launch with the wait for its end: the most of LAUNCHES in a row."""
    module = gpu.load(_code_object(gpu.chip))
    numbers = gpu.allocate(128)
    gpu.upload(numbers, bytes(128))
    counts = [desk.counted(lambda: gpu.launch(module["count"], 1, numbers, 3))[0] for _ in range(LAUNCHES)]
    found = np.frombuffer(gpu.download(numbers, 128), np.uint32)
    if not (found == 3 * LAUNCHES).all():
        raise CheckFailed(
            f"{LAUNCHES} launches of a kernel have not given the expected result", where=gpu.chip
        )
    module.free()
    numbers.free()
    return max(counts)


def _code_object(chip: str) -> bytes:
    with scratch_directory() as directory:
        source, made = directory / "count.cl", directory / "count.o"
        write(source, KERNEL.encode())
        toolchain.run("clang", [*FLAGS, f"-mcpu={chip}", "-c", "-o", str(made), source], timeout=120)
        return toolchain.run("lld", ["-shared", "--build-id=none", "-o", "-", made], timeout=120).stdout


def _streams(desk: _Desk, gpu: Gpu) -> dict[str, Any]:
    """Both ways between host and VRAM."""
    data = random.Random(0).randbytes(STREAM)
    buffer = gpu.allocate(STREAM)
    up, up_seconds, _ = desk.counted(lambda: gpu.upload(buffer, data))
    down, down_seconds, back = desk.counted(lambda: gpu.download(buffer, STREAM))
    buffer.free()
    if back != data:
        raise CheckFailed(f"{STREAM >> 20} MiB did not come back as they were sent", where=gpu.chip)
    return {
        "upload": {"transfers": up, "share_of_link": round(STREAM / LINK / up_seconds, 4)},
        "download": {"transfers": down, "share_of_link": round(STREAM / LINK / down_seconds, 4)},
    }


def _inferences(desk: _Desk, network: Network) -> dict[str, Any]:
    """The first inference on a card that is open, the following ones, and all layers of one more."""
    program, inputs = network.program, network.inputs
    with desk.opened() as gpu:
        began = desk.now()
        with CardDevice(cast(seam.Gpu, gpu)).load(program) as session:
            results = [session.run(inputs)]
            first = desk.now() - began
            following, host = [], []
            for _ in range(FOLLOWING):
                before = desk.host_seconds()
                transfers, _, result = desk.counted(lambda: session.run(inputs))
                host.append(desk.host_seconds() - before)
                following.append(transfers)
                results.append(result)
            before = desk.now()
            results.append(session.run(inputs))
            following_seconds = desk.now() - before
            frames = FRAMES if gpu.card.bridge.has_lists else 2
            results += _flight(session, inputs, frames)  # which brings its programs
            before = desk.now()
            results += _flight(session, inputs, frames)
            in_flight = (desk.now() - before) / frames
            floor = session.link_seconds()
            wrong = sum(_mismatches(result, network.expected) for result in (*results, session.trace(inputs)))
            alone = session.profile().total["virtual_us"] / 1e6
    size = program.plan["memory"]["code"] + program.weights.nbytes + sum(x.nbytes for x in inputs.values())
    return {
        "first_virtual_ms": round(1e3 * first, 4),
        "first_over_bound": round(first / max(size / LINK, alone), 4),
        "next_transfers": max(following),
        "host_cpu_us": round(1e6 * min(host)),
        "next_virtual_ms": round(1e3 * following_seconds, 4),
        "in_flight_virtual_ms": round(1e3 * in_flight, 4),
        "in_flight_over_next": round(following_seconds / in_flight, 4),
        "in_flight_share_of_link": round(floor / in_flight, 4),
        "mismatches": wrong,
    }


def _flight(session: CardSession, inputs: Mapping[str, Array], frames: int) -> list[dict[str, Array]]:
    """Inferences in flight together."""
    results = [session.submit(inputs) for _ in range(frames)]
    return [result() for result in results]


def _mismatches(found: Mapping[str, Array], expected: Mapping[str, Array]) -> int:
    """Elements of the tensors found that are not as expected."""
    return sum(int(np.count_nonzero(value != expected[name])) for name, value in found.items())
