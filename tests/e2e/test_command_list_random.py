"""Random command lists compared with a model, and noise instead of lists."""

from __future__ import annotations

import random
import struct

import pytest

from emulator.usb.wire import Speed
from firmware.protocol import commands
from firmware.protocol.command_list import CommandList
from tests.list_host import host_of, noise, one_write, packed
from tests.reference_host import OUT, RAM

SPEEDS = pytest.mark.parametrize("speed", [Speed.SUPER_PLUS, Speed.HIGH], ids=["superspeed", "highspeed"])

AREA = 64
"""Dwords of memory that random lists touch."""


class Model:
    """The expected effect of a list on AREA dwords of memory at an address, and its expected result."""

    def __init__(self, rng: random.Random, ram: int = RAM) -> None:
        self.rng = rng
        self.ram = ram
        self.memory = [rng.getrandbits(32) for _ in range(AREA)]
        self.built = CommandList()
        self.values: list[int | bytes] = []

    def add(self) -> None:
        rng, memory, built = self.rng, self.memory, self.built
        place, value, mask = rng.randrange(AREA), rng.getrandbits(32), rng.getrandbits(32)
        dwords = rng.randrange(AREA - place + 1)
        address = self.ram + 4 * place
        match rng.randrange(8):
            case 0:
                enables = rng.randrange(16)
                lanes = sum(0xFF << 8 * lane for lane in range(4) if enables >> lane & 1)
                built.write(address, value, enables)
                memory[place] = memory[place] & ~lanes | value & lanes
            case 1:
                built.read(address)
                self.values.append(memory[place])
            case 2:
                built.modify(address, value, mask)
                memory[place] = memory[place] & ~mask | value & mask
            case 3:
                built.poll(address, memory[place] ^ ~mask & value, mask, microseconds=0)
                self.values.append(memory[place])
            case 4:
                memory[place : place + dwords] = [rng.getrandbits(32) for _ in range(dwords)]
                built.block_write(address, self.bytes(place, dwords))
            case 5:
                built.block_read(address, dwords)
                self.values.append(self.bytes(place, dwords))
            case 6:
                built.fill(address, value, dwords)
                memory[place : place + dwords] = [value] * dwords
            case 7:
                built.fifo_read(address, dwords)
                self.values.append(self.bytes(place, 1) * dwords)

    def bytes(self, place: int, dwords: int) -> bytes:
        return struct.pack(f"<{dwords}I", *self.memory[place : place + dwords])


@pytest.mark.slow
@SPEEDS
def test_random_lists_do_what_a_model_does(speed):
    host = host_of(speed)
    for seed in range(150):
        model = Model(random.Random(seed))
        host.ram[: 4 * AREA] = model.bytes(0, AREA)
        for _ in range(model.rng.randrange(60)):
            model.add()
        result = host.run(model.built, reads_late=bool(seed & 1) and not model.built.waits_for_host)
        assert result.failure is None, f"seed {seed}: {result.failure}"
        assert list(result.values) == model.values, f"seed {seed}"
        assert bytes(host.ram[: 4 * AREA]) == model.bytes(0, AREA), f"seed {seed}"


@pytest.mark.slow
@SPEEDS
def test_noise_is_never_run_and_never_hangs(speed):
    """Random bytes, cut anywhere, and sometimes a damaged list."""
    host = host_of(speed)
    host.ram[:4] = bytes(4)
    for seed in range(150):
        rng = random.Random(seed)
        host.open(seed)
        data = (
            bytearray(packed(host, one_write())) if seed & 1 else bytearray(noise(rng.randrange(5000), seed))
        )
        if seed & 1:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        transfer = host.board.usb.submit(OUT, bytes(data))
        answer = host.receive()
        host.sleep(1e-3)
        assert host.info()["api_level"] == commands.API_LEVEL
        for each in (transfer, answer):
            host.board.usb.cancel(each)
        host.open(seed)
        host.works()
        assert host.ram[0] == 0
