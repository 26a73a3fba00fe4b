"""The core against ucsim's s51: every opcode from random states. Exceptions and their reasons: s51.py."""

import random

import pytest

from sdk import toolchain
from sdk.errors import ToolMissing
from tests.amount import amount
from tests.unit import s51

try:
    toolchain.find("s51")
except ToolMissing as problem:
    pytest.skip(str(problem), allow_module_level=True)


def fuzz(seed, repeats, directory):
    rng = random.Random(seed)
    opcodes = list(s51.LEGAL) * repeats
    rng.shuffle(opcodes)
    code, iram, cases = s51.batch(rng, opcodes)
    return len(cases), s51.differences(code, iram, cases, directory)


@pytest.mark.slow
def test_every_opcode_agrees_with_s51(tmp_path):
    states, differences = fuzz(51, 1, tmp_path)
    assert states == 255
    assert differences == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(amount(1, 6)))
def test_every_opcode_agrees_with_s51_in_many_states(tmp_path, capsys, seed):
    states, differences = fuzz(seed, 40, tmp_path)
    with capsys.disabled():
        print(f"s51 fuzz {seed}: 255 opcodes x {states // 255} states, {len(differences)} differences")
    assert differences == []


def test_a_difference_is_found(tmp_path, monkeypatch):
    """The comparison itself: one wrong flag in one state is reported, with what differs."""
    rng = random.Random(1)
    code, iram, cases = s51.batch(rng, [opcode for opcode in s51.LEGAL if opcode.mnemonic == "NOP"] * 3)
    step = s51.Ours.step

    def wrong(self):
        pc, memory, registers, byte = step(self)
        return pc, memory, (*registers[:-1], registers[-1] ^ 0x01), byte

    monkeypatch.setattr(s51.Ours, "step", wrong)
    found = s51.differences(code, iram, cases[:1], tmp_path)
    assert len(found) == 1
    assert "P3 fe, s51 ff" in found[0]
