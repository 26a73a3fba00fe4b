"""The instruction table, and the census of what clang emits."""

from __future__ import annotations

import pytest

from emulator.amdgpu.isa import table
from emulator.amdgpu.isa.census import EMITTED
from tests import amdgpu_census
from tests.unit.amdgpu_lanes import GENERATION

CHIPS = ("gfx1100", "gfx1201")


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_all_that_clang_emits_is_implemented(chip: str) -> None:
    rows = table.table(chip, GENERATION[chip])
    assert {row.encoding: [name for name in row.emitted if name in row.missing] for row in rows} == {
        row.encoding: [] for row in rows
    }
    listed = {name for row in rows for name in row.exist}
    assert not EMITTED[GENERATION[chip]] - listed


@pytest.mark.parametrize("chip", CHIPS)
def test_the_table_knows_encodings(chip: str) -> None:
    rows = {row.encoding: row for row in table.table(chip, GENERATION[chip])}
    assert len(rows["VOPC"].exist) > 150
    assert "v_add3_u32" in rows["VOP3"].exist
    assert "v_add_f32" not in rows["VOP3"].exist  # VOP2 has it
    assert {"v_dot4_i32_iu8", "v_wmma_i32_16x16x16_iu8"} <= set(rows["VOP3P"].implemented)
    assert "v_swaprel_b32" in rows["VOP1"].missing
    assert not rows["VOP3"].missing
    assert "v_mov_b32" in rows["VOPD Y"].implemented


@pytest.mark.slow
def test_the_census_is_current() -> None:
    assert (
        amdgpu_census.module(amdgpu_census.emitted(amdgpu_census.census()))
        == amdgpu_census.RESULT.read_text()
    )
