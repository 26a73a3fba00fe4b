"""All chips: what each needs to be a target, an emulated card and a card that the driver boots."""

import tomllib
from pathlib import Path

import pytest

from sdk.errors import InvalidArtifact
from sdk.target import Options
from tests.contract.targets import assert_identical
from tests.graph_builder import GraphBuilder
from tests.shader_gpu import target
from usbgpu.amd.facts import firmware, smu
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.amd.psp import load_order
from usbgpu.target import target as targets

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
EACH = pytest.mark.parametrize("chip", CHIPS)


def network():
    b = GraphBuilder((1, 16, 4, 4), seed=5)
    b.conv("x", 16, relu=True)
    return b.graph()


def test_every_chip_has_an_entry_point():
    points = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]["towline.targets"]
    assert {name for name in points if name.startswith("amd-")} == {f"amd-{chip}" for chip in CHIPS}
    for chip in CHIPS:
        module, _, attribute = points[f"amd-{chip}"].partition(":")
        assert module == targets.__name__
        assert getattr(targets, attribute)().name == f"amd-{chip}"
    with pytest.raises(AttributeError):
        _ = targets.gfx9999


@EACH
def test_every_chip_has_all_its_facts(chip):
    facts = CHIPS[chip]
    assert set(facts.blocks) == set(facts.versions) - {"SDMA0"}
    assert smu.interface(facts).firmware >> 16 != 0
    assert firmware.toc_end(facts) > 0
    names = [file.name for file in firmware.FILES[chip]]
    for block in ("GC", "SDMA0", "MP", "SMU"):
        assert any("_".join(map(str, facts.versions[block])) in name for name in names), block


@pytest.mark.slow
@EACH
def test_a_network_has_the_reference_s_bits(chip):
    assert_identical(target(chip), network())


@pytest.mark.parametrize(
    ("made_for", "installed"),
    [("gfx1100", "gfx1102"), ("gfx1102", "gfx1100"), ("gfx1201", "gfx1200"), ("gfx1102", "gfx1200")],
)
def test_a_file_for_another_chip_is_refused_with_the_remedy(made_for, installed):
    program = target(made_for).compile(network(), Options())
    with pytest.raises(InvalidArtifact) as caught:
        target(installed).open(None).load(program)
    assert made_for in str(caught.value)
    assert installed in str(caught.value)
    assert f"--target amd-{installed}" in (caught.value.hint or "")


@EACH
def test_what_is_loaded_is_what_the_chip_s_files_have(chip):
    """The sOS of MP 14.0.2 comes without RAS_DRV, that of 14.0.3 with it."""
    sizes = {name: size for file in firmware.FILES[chip] for name, size in file.sizes.items()}
    order = load_order(CHIPS[chip], {name: bytes(size) for name, size in sizes.items()})
    loaded = {piece.what for pieces in order.uploads for piece in pieces}
    assert ("RAS_DRV" in loaded) == (chip == "gfx1201")
    assert {"KDB", "SPL", "SYS_DRV", "SOS", "TOC", "SMU"} <= loaded
