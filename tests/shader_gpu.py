"""`usbgpu.seam.Gpu` on the shader executor alone: no card to boot, no bridge, no page tables.

Launches run in their turn; a stream really writes its bytes piece by piece, so that a launch which starts
too early reads poison.
"""

from __future__ import annotations

import functools
import itertools

from emulator.amdgpu.cost import Cost
from emulator.amdgpu.diagnosis import Diagnosis
from emulator.amdgpu.isa.executor import Executor
from emulator.amdgpu.kernels.launch import APERTURES, BASE, Flat
from emulator.amdgpu.seams import Dispatch, Extent, PageFault
from emulator.amdgpu.vram import Vram
from emulator.core.clock import clocks, seconds
from sdk.errors import DeviceFailed, Unsupported
from usbgpu.amd.facts.chips import CHIPS

POISON = 0xE7


class Memory:
    def __init__(self, address, size):
        self.address, self.size, self.freed = address, size, False

    def free(self):
        self.freed = True


class Mapped(Flat):
    """Only what is allocated is mapped: a kernel that reads or writes anything else faults."""

    def __init__(self, vram, *places):
        super().__init__(vram)
        self.places = places

    def translate(self, address, *, write=False):
        for place in itertools.chain(*self.places):
            start, end = place.address, place.address + place.size
            if start <= address < end and not place.freed:
                return Extent(start, end, start - BASE, system=False, writable=True, executable=True)
        raise PageFault(address, write=write, reason="it is not allocated")


class ShaderGpu:
    """Holds everything it ever allocates; `close` checks that all of it was freed."""

    def __init__(self, chip: str, size: int = 128 << 20):
        self.chip = chip
        self.vram = Vram(size)
        self.buffers: list[Memory] = []
        self.kernarg = Memory(BASE + 256, 4096 - 256)
        self.memory = Mapped(self.vram, [self.kernarg], self.buffers)
        self.diagnosis = Diagnosis(lambda: 0)
        self.executor = Executor(CHIPS[chip], self.vram, self.diagnosis)
        self.cost = Cost(
            CHIPS[chip], lambda clock: CHIPS[chip].clocks[clock][-1], lambda n: clocks(n / 1.6e9)
        )
        self.end = 4096
        self.launched = 0
        self.closed = False

    def allocate(self, size, alignment=256):
        place = -(-self.end // alignment) * alignment
        if place + size > self.vram.size:
            raise Unsupported(f"{size} bytes do not fit")
        self.end = place + size + 256
        self.buffers.append(Memory(BASE + place, size))
        self.upload(self.buffers[-1], bytes([POISON]) * size)
        return self.buffers[-1]

    def upload(self, buffer, data, offset=0):
        assert not self.closed
        assert offset >= 0
        assert offset + len(data) <= buffer.size
        self.memory.write(buffer.address + offset, bytes(data))

    def download(self, buffer, size, offset=0):
        assert not self.closed
        assert offset >= 0
        assert offset + size <= buffer.size
        return self.memory.read(buffer.address + offset, size)

    def launch(self, launch):
        """Run it; returns its outcome, and the cost model's chip clocks."""
        kernarg = self.kernarg
        assert len(launch.kernarg) <= kernarg.size
        self.upload(kernarg, launch.kernarg)
        address = kernarg.address
        dispatch = Dispatch(
            launch.code,
            launch.groups,
            launch.threads,
            (address & 0xFFFF_FFFF, address >> 32),
            launch.rsrc1,
            launch.rsrc2,
            launch.rsrc3,
            scratch=0,
            scratch_wave=0,
            shared_aperture=APERTURES[0],
            private_aperture=APERTURES[1],
        )
        assert not launch.scratch
        outcome = self.executor.run(dispatch, self.memory)
        if outcome.fault is not None:
            raise DeviceFailed(f"{launch.name}: {outcome.fault.text}")
        for where, data in outcome.writes:
            self.memory.write(where, data)
        self.launched += 1
        return outcome, self.cost.dispatch(outcome, dispatch)

    def prepare(self, launches):
        return ShaderPrepared(self, list(launches))

    def most_frames(self, way):
        return 8

    def overlap(self, ways, frames):
        return ShaderOverlap(self, ways, frames)

    def stream(self, load, launches, outputs, summing=None):
        there, pieces = 0, list(load)
        last = 0
        for launch, needed in launches:
            assert needed >= last
            last = needed
            while there < needed and pieces:
                piece = pieces[0]
                take = min(len(piece.data), needed - there)
                self.upload(piece.buffer, piece.data[:take], piece.offset)
                there += take
                rest = type(piece)(piece.buffer, piece.offset + take, piece.data[take:])
                pieces = [rest, *pieces[1:]] if len(rest.data) else pieces[1:]
            assert there >= needed
            self.launch(launch)
        for piece in pieces:
            self.upload(piece.buffer, piece.data, piece.offset)
        return [self.download(one.buffer, one.size, one.offset) for one in outputs]

    def profile(self, launches):
        results = []
        for launch in launches:
            outcome, cost = self.launch(launch)
            counted = {"wave_instructions": outcome.total, "virtual_us": seconds(cost) * 1e6}
            counted["wmma_instructions"] = outcome.instructions.get("wmma", 0)
            results.append({**counted, "virtual_ns": round(seconds(cost) * 1e9)})
        return results

    def close(self):
        self.closed = True
        assert all(buffer.freed for buffer in self.buffers)


class ShaderPrepared:
    def __init__(self, gpu, launches):
        self.gpu, self.launches, self.freed = gpu, launches, False

    def run(self, inputs, outputs):
        assert not self.freed
        for one in inputs:
            self.gpu.upload(one.buffer, one.data, one.offset)
        for launch in self.launches:
            self.gpu.launch(launch)
        return [self.gpu.download(one.buffer, one.size, one.offset) for one in outputs]

    def free(self):
        self.freed = True


class ShaderOverlap:
    """Inputs are written when outputs that may lie there have been read, not later."""

    def __init__(self, gpu, ways, frames):
        self.gpu, self.ways, self.frames = gpu, ways, frames

    def run(self, frames):
        assert len(frames) == self.frames

        def bring(number):
            places = self.ways[number % 2].inputs
            for place, data in zip(places, frames[number], strict=True):
                assert len(data) == place.size
                self.gpu.upload(place.buffer, data, place.offset)

        for number in range(2):
            bring(number)
        for number in range(self.frames):
            way = self.ways[number % 2]
            for launch in way.launches:
                self.gpu.launch(launch)
            found = [self.gpu.download(one.buffer, one.size, one.offset) for one in way.outputs]
            if number + 2 < self.frames:
                bring(number + 2)
            yield found

    def free(self):
        pass


def target(chip: str, gpu=ShaderGpu):
    """The chip's target, whose emulated device is such a Gpu."""
    from usbgpu.target.target import AmdTarget

    return AmdTarget(chip, lambda name, *_: gpu(name))


def register(monkeypatch, directory):
    """Register these targets by their names, for one test: entry points, as of any package."""
    info = directory / "towline_test_amd-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: towline-test-amd\nVersion: 1.0\n")
    names = "".join(f"amd-{chip} = tests.shader_gpu:{chip}\n" for chip in CHIPS)
    (info / "entry_points.txt").write_text(f"[towline.targets]\n{names}")
    monkeypatch.syspath_prepend(str(directory))


def __getattr__(name):
    if name not in CHIPS:
        raise AttributeError(name)
    return functools.partial(target, name)
