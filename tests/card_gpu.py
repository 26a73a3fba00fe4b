"""`usbgpu.seam.Gpu` on the whole emulated card, driven by the tests' own driver: boot, page tables,
queues and caches, but no bridge. One launch at a time.
"""

from __future__ import annotations

from emulator.amdgpu.card import AmdCard
from emulator.core.clock import seconds
from tests.amdgpu_driver import KERNARGS, MIB, VA, Driver
from tests.amdgpu_host import Host
from tests.amdgpu_probes import Session
from tests.shader_gpu import ShaderGpu, ShaderPrepared


class Place:
    def __init__(self, offset, size):
        self.offset, self.size, self.address, self.freed = offset, size, VA + offset, False

    def free(self):
        self.freed = True


class _Code:
    """What `tests.amdgpu_queues.Compute.program` needs of a kernel."""

    entry = 0

    def __init__(self, launch):
        self.rsrc1, self.rsrc2, self.rsrc3 = launch.rsrc1, launch.rsrc2, launch.rsrc3
        self.scratch = launch.scratch

    def user_data(self, kernarg):
        return kernarg & 0xFFFF_FFFF, kernarg >> 32


class CardGpu:
    def __init__(self, chip: str):
        self.chip = chip
        self.card = AmdCard(chip, 256 * MIB)
        self.driver = Driver(Host(self.card), self.card.chip)
        self.driver.boot()
        self.session = Session(self.driver)
        self.places = []

    def allocate(self, size, alignment=256):
        place = Place(self.session.compute.allocate(size, alignment), size)
        self.places.append(place)
        self.upload(place, bytes([0xE7]) * size)
        return place

    def upload(self, buffer, data, offset=0):
        assert offset + len(data) <= buffer.size
        self.driver.vram(buffer.offset + offset, bytes(data))

    def download(self, buffer, size, offset=0):
        assert offset + size <= buffer.size
        return self.driver.vram_read(buffer.offset + offset, size)

    def launch(self, launch):
        queue = self.session.compute
        kernarg = KERNARGS + queue.value % 4 * 0x400
        self.driver.vram(kernarg, launch.kernarg)
        program = queue.program(_Code(launch), launch.code, VA + kernarg, launch.groups, launch.threads)
        queue.submit(program, 4)
        queue.wait()

    prepare = ShaderGpu.prepare
    stream = ShaderGpu.stream

    def profile(self, launches):
        board = self.card.scoreboard
        board.clear()
        for launch in launches:
            self.launch(launch)
        return [
            {
                "wave_instructions": record.outcome.total,
                "virtual_us": seconds(record.end - record.start) * 1e6,
            }
            for record in board.records
        ]

    def close(self):
        assert all(place.freed for place in self.places)


__all__ = ["CardGpu", "ShaderPrepared"]
