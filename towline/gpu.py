"""The GPU journey's public names: a card by device string, kernels for it, an emulated board."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from sdk import settings, toolchain
from sdk.extras import require
from sdk.files import scratch_directory

if TYPE_CHECKING:
    from emulator.board import Board
    from usbgpu.amd.gpu import Gpu

FLAGS = ("--target=amdgcn-amd-amdhsa", "-cl-std=CL2.0", "-O3", "-nogpulib", "-mcode-object-version=5")
COMPILE_SECONDS = 120.0

log = logging.getLogger("towline")


def open_gpu(
    device: str | Board | None = None,
    *,
    firmware: str | Path | None = None,
    power_cap: float | None = None,
) -> Gpu:
    """Open the card behind a bridge, and boot it if it is not up. A context manager; one thread at a time.

    Args:
        device: a device string ("emulated", "emulated?gpu=gfx1201", "usb", "usb:SERIAL"), or an emulated
            board; None for the environment's TOWLINE_DEVICE, and without it "emulated". An emulated bridge
            named without a card gets a gfx1100 with 512 MiB.
        firmware: directory of the card's firmware files; None for TOWLINE_FIRMWARE's, the system's, or an
            emulated card's own.
        power_cap: watts that the card's board may draw at most, until it is closed; its clocks are lowered
            for that. None for its own limit.

    Raises:
        UsageError: there is no such device string, the board has no card, or the card takes no such cap.
        DeviceMissing, DeviceFailed, EnvironmentMissing: bridge, card or firmware are missing, or fail.
    """
    from usbgpu import bridge, emulation, transport
    from usbgpu.amd import gpu

    if device is None or isinstance(device, str):
        named = firmware or settings.FIRMWARE.value()
        place = None if named is None else Path(named)
        return gpu.open(emulation.with_card(device), place, log.info, power_cap)
    directory = None if firmware is None else Path(firmware)
    plugged = transport.attach(device.backend())
    try:
        return gpu.attach(bridge.attach(plugged), directory, log.info, power_cap)
    except BaseException:
        plugged.close()
        raise


def compile_kernels(source: str, chip: str) -> bytes:
    """Compile OpenCL C for a card, without OpenCL's library: work-items are numbered by clang's builtins.

    Args:
        source: the text of the program.
        chip: such as "gfx1100"; `Gpu.chip` of an open card.

    Returns:
        A code object for `Gpu.load`.

    Raises:
        BuildFailed: clang rejects the source; the message has its diagnostics.
        ToolMissing: clang or lld of LLVM 19 or newer is missing.
    """
    with scratch_directory() as directory:
        program, result = directory / "kernels.cl", directory / "kernels.co"
        program.write_text(source, encoding="utf-8")
        command = [*FLAGS, f"-mcpu={chip}", "-o", str(result), str(program)]
        toolchain.run("clang", command, timeout=COMPILE_SECONDS)
        return result.read_bytes()


def emulated_board(
    image: str | Path = "firmware",
    *,
    gpu: str = "",
    vram: str = "512M",
    supply: float | None = None,
    faults: Iterable[str] = (),
    flash: str | Path | None = None,
) -> Board:
    """A powered emulated bridge board, plugged into a USB port.

    Args:
        image: a firmware image, or the name of one that comes with Towline.
        gpu: an AMD card on PCIe bus 4, such as "gfx1100"; a plain test endpoint if empty.
        vram: the card's memory: a number with M or G.
        supply: watts of the supply of bridge and card: a card that draws a tenth more is lost; None for one
            that is always enough.
        faults: what goes wrong and when, as `towline emulate --inject` takes it: "link-drop@5ms+2ms".
        flash: a file that keeps the flash chip's contents between runs.

    Returns:
        The board: `backend()` is a pyusb backend, `open_gpu` takes it whole, `close()` powers it off.

    Raises:
        UsageError: there is no such fault, or no such card.
        InvalidInput: the image or the flash file is damaged.
        EnvironmentMissing: the extra `emulator`, or a tool that builds the image, is missing.
    """
    require("cffi", extra="emulator")
    from emulator import faults as injected
    from emulator.board import Board
    from emulator.options import Options, memory_size

    options = Options(
        gpu=gpu,
        vram=memory_size(vram) if gpu else None,
        supply=supply,
        faults=tuple(injected.parse(fault) for fault in faults),
        flash=None if flash is None else Path(flash),
    )
    return Board.of(image, options)
