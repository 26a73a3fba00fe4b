"""Command lists with completions that come late, or never: the firmware gives up, and takes no wrong one."""

from __future__ import annotations

import pytest

from emulator.faults import parse as fault
from firmware.protocol.command_list import CommandList
from tests.list_host import CAUSE, host_of, noise
from tests.reference_host import RAM


@pytest.mark.slow
def test_a_late_completion_is_not_taken_for_the_next_request():
    """The read is given up after 50 ms; its completion comes in the middle of a block.

    No wrong data is read. If it comes between the right completion and the firmware's reading of it, that
    read fails, once: whether this happens depends on the compiler's timing.
    """
    dead = RAM + 0x8000
    host = host_of(faults=(fault(f"pcie-stale={dead:x}-{dead + 3:x}+60ms"),))
    host.ram[:0x4000] = noise(0x4000)
    first = CommandList()
    first.read(dead)
    result = host.run(first)
    assert result.failure is not None
    assert result.failure.cause == CAUSE["completion timeout"]
    failures = []
    for _ in range(4):
        built = CommandList()
        built.block_read(RAM, 0x1000)
        result = host.run(built)
        if result.failure is None:
            assert result.values == (noise(0x4000),)
        else:
            failures.append(result.failure.cause)
            data = b"".join(value for value in result.values if isinstance(value, bytes))
            assert noise(0x4000).startswith(data)
    assert failures in ([], [CAUSE["no completion"]])


@pytest.mark.slow
def test_an_address_that_never_answers():
    dead = RAM + 0x8000
    host = host_of(faults=(fault(f"pcie-dead={dead:x}-{dead + 3:x}"),))
    for opcode in (0x02, 0x09):
        built = CommandList()
        if opcode == 0x02:
            built.read(dead)
        else:
            built.block_read(dead - 0x100, 200)
        before = host.now
        result = host.run(built)
        assert host.now - before < 0.5
        assert result.failure is not None
        assert (result.failure.cause, result.failure.address) == (CAUSE["no completion"], dead)
        host.works()


def test_doubt_about_completions_ends_with_the_link():
    """After a request was given up, blocks are read with extra checks until the slot's power has been off."""
    dead = RAM + 0x8000
    host = host_of(faults=(fault(f"pcie-dead={dead:x}-{dead + 3:x}"),))

    def seconds() -> float:
        built = CommandList()
        built.block_read(RAM, 1000)
        before = host.now
        assert host.check(built) == (host.ram[:4000],)
        return host.now - before

    usual = seconds()
    built = CommandList()
    built.read(dead)
    assert host.run(built).failure is not None
    careful = seconds()
    print(f"{1e6 * usual:.0f} us, with care {1e6 * careful:.0f} us")
    assert usual < careful < 3 * usual
    host.power(True)
    host.set_up_pcie()
    host.open()
    assert seconds() < 1.05 * usual
