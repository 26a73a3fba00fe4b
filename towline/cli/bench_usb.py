"""`towline bench usb`: what a GPU over USB costs its host, on both emulated cards and by both firmwares."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sdk import files, reference, toolchain
from sdk.compiler import compile
from sdk.errors import DeviceFailed, InternalError
from sdk.extras import require
from sdk.report import Console, table
from sdk.zoo.benchmark import benchmark

NETWORK = "mobilenet_v2_1.0_224"
CHIPS = ("gfx1100", "gfx1201")
PATIENCE = 600.0
"""Wall seconds that `towline run` may take."""

OURS, ANOTHER = "custom towline", "custom E4-F3  "
"""Product string of our firmware, and one as long that makes it compatible firmware to a host."""


def run(console: Console) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """The document, the same as text, and the exact counts for a baseline."""
    require("cffi", extra="emulator")
    with files.scratch_directory() as directory:
        document = _measured(directory, console)
    return document, text(document), counts(document)


def _measured(directory: Path, console: Console) -> dict[str, Any]:
    from towline.cli.benchmarks.usb import Network, measure
    from usbgpu import emulation

    compatible = directory / "compatible.bin"
    files.write(compatible, compatible_firmware())
    console.progress("quantise", 0, 1)
    model = benchmark(NETWORK, directory)
    if model is None:
        raise InternalError(f"the zoo has no {NETWORK}")
    console.progress("quantise", 1, 1)
    document: dict[str, Any] = {}
    for chip in CHIPS:
        path = directory / f"{chip}.tow"
        network = compile(model, f"amd-{chip}", path)
        body = network.program.graph
        rng = np.random.default_rng(0)
        inputs = {
            name: rng.integers(0, 256, body.tensor(name).shape, np.uint8).view(body.tensor(name).dtype)
            for name in body.inputs
        }
        (name,) = network.graph.inputs
        picture = directory / "input.npy"
        np.save(picture, rng.normal(size=network.graph.tensor(name).shape).astype(np.float32))
        compiled = Network(network.program, inputs, reference.run(body, inputs, network.arithmetic))
        found: list[dict[str, Any]] = []
        for device in (f"emulated?gpu={chip}", f"emulated:{compatible}?gpu={chip}"):
            console.progress("measure", len(document) * 2 + len(found), 2 * len(CHIPS))
            console.detail(f"measuring {device}")
            device = emulation.with_card(device)
            if not found:
                _towline_run(path, picture, device)  # what is compiled on first use is then in the cache
            wall = _towline_run(path, picture, device)
            found.append(measure(device, compiled, wall))
        document[chip] = found[0] | {"compatible": found[1]}
    console.progress("measure", 2 * len(CHIPS), 2 * len(CHIPS))
    return document


def compatible_firmware() -> bytes:
    """An image of our firmware under another name: then a host uses the requests E4 to F3 alone."""
    from firmware import build

    code = build.build(None).bin.read_bytes()
    name = OURS.encode("utf-16-le")
    if code.count(name) != 1:
        raise InternalError("the firmware's product string is not where it is expected")
    return code.replace(name, ANOTHER.encode("utf-16-le"))


def _towline_run(network: Path, picture: Path, device: str) -> float:
    """Wall seconds of `towline run` in a process of its own."""
    command = ["-m", "towline", "run", str(network), "--input", str(picture), "--device", device, "--json"]
    argv = toolchain.dying_with_us([sys.executable, *command])
    began = time.perf_counter()
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise DeviceFailed(f"`towline run` did not finish within {PATIENCE:g} s", where=device) from None
    if done.returncode:
        said = (done.stdout + done.stderr).decode(errors="replace").strip()
        raise DeviceFailed(f"`towline run` failed:\n{said}", where=device)
    return round(time.perf_counter() - began, 2)


def counts(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is the same in every run, as a baseline holds it: counts, and virtual microseconds."""
    exact: dict[str, int] = {}
    for name, value in _flat(document):
        if name.endswith("virtual_ms"):
            exact[name.removesuffix("ms") + "us"] = round(1e3 * value)
        elif type(value) is int and not name.endswith("host_cpu_us"):
            exact[name] = value
    tools = ("clang", "lld", "sdcc")
    return {"target": "usb", "toolchain": {tool: toolchain.version(tool) for tool in tools}, "counts": exact}


def _flat(document: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


# -- text ---------------------------------------------------------------------------------------------------


def _number(value: Any) -> str:
    return f"{value:,}"


def _percent(value: Any) -> str:
    return f"{100 * value:.1f} %"


def _ratio(value: Any) -> str:
    return f"{value:.2f}x"


def _ms(value: Any) -> str:
    return f"{value:,.2f} ms"


def _seconds(value: Any) -> str:
    return f"{value:.1f} s"


def _us(value: Any) -> str:
    return f"{value:,} us"


ROWS: tuple[tuple[str, str, str, str, Callable[[Any], str]], ...] = (
    ("cold boot to queues ready: transfers besides firmware", "boot.transfers", "4,203", "<= 60", _number),
    ("  transfers that carry firmware", "boot.blob_transfers", "", "", _number),
    ("  virtual time", "boot.virtual_ms", "", "", _ms),
    ("warm open: transfers", "warm_open.transfers", "", "<= 12", _number),
    ("kernel launch and wait: transfers", "launch.transfers", "182", "<= 3", _number),
    ("upload of 64 MiB: transfers", "upload.transfers", "780", "<= 70, 260", _number),
    ("  share of the link's 700 MB/s", "upload.share_of_link", "40 %", ">= 90 %", _percent),
    ("download of 64 MiB: transfers", "download.transfers", "", "", _number),
    ("  share of the link's 700 MB/s", "download.share_of_link", "", ">= 90 %", _percent),
    ("MobileNetV2 1.0 224, first inference", "mobilenet.first_virtual_ms", "", "", _ms),
    ("  over the longer of upload and compute", "mobilenet.first_over_bound", "", "<= 1.25x", _ratio),
    ("  following inferences: transfers", "mobilenet.next_transfers", "", "<= 5", _number),
    ("  following inferences: CPU of the host", "mobilenet.host_cpu_us", "", "", _us),
    ("  following inferences: virtual time", "mobilenet.next_virtual_ms", "", "", _ms),
    ("  32 in flight: virtual time of each", "mobilenet.in_flight_virtual_ms", "", "", _ms),
    ("    rate, of that of one after the other", "mobilenet.in_flight_over_next", "", ">= 1.9x", _ratio),
    ("    share of the link's 700 MB/s", "mobilenet.in_flight_share_of_link", "", "", _percent),
    ("  elements that differ from the reference", "mobilenet.mismatches", "", "0", _number),
    ("  wall time of `towline run`", "mobilenet.wall_seconds", "", "<= 15 s", _seconds),
)
"""Title, name, what a peer (tinygrad, 2026-08) was measured at, this one's goal, how it is written."""


def text(document: Mapping[str, Any]) -> str:
    """The document as text, and the constants that virtual times follow from."""
    rows = []
    for title, name, peer, wanted, written in ROWS:
        group, key = name.split(".")
        ours = [written(document[chip][group][key]) for chip in CHIPS]
        others = [written(document[chip]["compatible"][group][key]) for chip in CHIPS]
        rows.append((title, peer, wanted, *ours, *others))
    headers = ("", "a peer", "goal", *CHIPS, *(f"{chip}, E4..F3" for chip in CHIPS))
    note = (
        "A transfer is one control or one bulk call. E4..F3: with compatible firmware, by its\n"
        "requests alone; of two goals, the second is for it.\n"
        "Virtual times and shares follow from these constants, few of which were measured on silicon:"
    )
    return "\n\n".join([table(headers, rows, least=("a peer", "goal")), note, _constants()])


def _constants() -> str:
    """The emulator's model of time: bridge and card."""
    from emulator.amdgpu.cost import CONSTANTS
    from emulator.asm2464pd import timing
    from emulator.core.clock import Timing
    from emulator.usb import timing as link
    from usbgpu.amd.facts import chips

    bridge = [
        (name, constant.doc, constant.evidence.name.lower())
        for name, constant in (vars(timing) | vars(link)).items()
        if isinstance(constant, Timing) and not name.startswith(("FLASH", "ROM"))
    ]
    rates = [
        ("SLOT_DMA", f"slot DMA, either way: {timing.SLOT_DMA_BYTES_PER_SECOND / 1e6:g} MB/s", "hardware"),
        (
            "PCIE",
            f"a bus master's data: {timing.pcie_bytes_per_second(3, 4) / 1e9:.3g} GB/s (8 GT/s x4)",
            "guess",
        ),
    ]
    card = [
        (
            name,
            *(_value(constant.of(chips.CHIPS[chip])) for chip in CHIPS),
            f"{constant.unit} {constant.what}",
            constant.grade.value,
        )
        for name, constant in CONSTANTS.items()
    ]
    return "\n\n".join(
        [
            table(("of the bridge", "", "grade"), [*rates, *bridge]),
            table(("of the card", *CHIPS, "", "grade"), card),
        ]
    )


def _value(value: float) -> str:
    return f"{value:g}"
