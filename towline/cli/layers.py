"""`towline inspect net.tow --layer NAME`: the code of a layer, as text, as data and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sdk.artifact import Artifact
from sdk.errors import InvalidArtifact, Unsupported, UsageError
from sdk.flow_chart import Chart
from towline.cli import graphs

NAMES = 12
"""Names that an error lists."""


@dataclass(frozen=True, slots=True)
class LayerCode:
    """The code of a layer.

    Attributes:
        name, op: of the layer.
        text: a listing.
        kernels: the same for JSON.
        chart: the same as a picture.
    """

    name: str
    op: str
    text: str
    kernels: list[dict[str, Any]]
    chart: Chart


def code(network: Artifact, name: str | None) -> LayerCode:
    """The code that computes a layer of a compiled network.

    Raises:
        UsageError: there is no such layer.
        Unsupported: the target's code is not machine code that can be listed here.
        InvalidArtifact: the file's code is damaged.
        EnvironmentMissing: the disassembler is missing.
    """
    target = network.target
    if target.startswith("hexagon-"):
        return _hexagon(network, name, target.removeprefix("hexagon-"))
    if target.startswith("amd-"):
        return _amd(network, name)
    raise Unsupported(
        f"a program for {target} has no machine code to list",
        hint="hexagon-* and amd-* do",
    )


def _hexagon(network: Artifact, name: str | None, version: str) -> LayerCode:
    from dsp.hexagon import disassembly
    from dsp.hexagon.plan import HexagonPlan

    plan = HexagonPlan.of(network.program)
    number = _index([one.name for one in plan.layers], name)
    program = disassembly.Program(_code(network, "network.elf"), version)
    found = program.kernels(plan.memory)
    if len(found) != len(plan.layers):
        raise InvalidArtifact("its code and its plan have different layers", hint="compile the model again")
    kernels = {entry: program.blocks(entry) for entry in dict.fromkeys(found[number])}
    if not kernels:
        raise Unsupported(f"the layer {name} runs no code", hint="its output is the same bytes as its input")
    one = plan.layers[number]
    plural = f"{len(kernels)} kernels" if len(kernels) > 1 else f"kernel at {next(iter(kernels)):#x}"
    return LayerCode(
        one.name,
        one.op,
        "\n".join(f"kernel {entry:#x}\n\n{disassembly.as_text(blocks)}" for entry, blocks in kernels.items()),
        [{"entry": entry, "blocks": disassembly.as_data(blocks)} for entry, blocks in kernels.items()],
        graphs.packets(f"{one.name} ({one.op}): {plural}", kernels),
    )


def _amd(network: Artifact, name: str | None) -> LayerCode:
    from emulator.amdgpu import code_object, listing
    from usbgpu.target.plan import CardPlan

    program = network.program
    plan = CardPlan.of(program)
    one = plan.launches[_index([launch.name for launch in plan.launches], name)]
    wanted = plan.kernels[one.kernel].name
    for data in program.code.values():
        parsed = code_object.parse(data)
        if wanted in parsed.kernels:
            (listed,) = listing.kernels(parsed, wanted)
            return LayerCode(
                one.name,
                one.op,
                listing.as_text(listed),
                [listing.as_data(listed)],
                graphs.kernel(f"{one.name} ({one.op}): {wanted}", listed),
            )
    raise InvalidArtifact(f"the kernel {wanted} is in none of its files", hint="compile the model again")


def _index(names: Sequence[str], name: str | None) -> int:
    if name in names:
        return names.index(name)
    shown = ", ".join(names[:NAMES]) + (f", and {len(names) - NAMES} more" if len(names) > NAMES else "")
    if name is None:
        raise UsageError("--graph draws the code of one layer: name it with --layer", hint=f"layers: {shown}")
    raise UsageError(f"there is no layer {name!r}", hint=f"layers: {shown}")


def _code(network: Artifact, name: str) -> bytes:
    data = network.program.code.get(name)
    if data is None:
        raise InvalidArtifact(f"it has no {name}", hint="compile the model again")
    return data
