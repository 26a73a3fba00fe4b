"""Emulated cards as consumers of power: at rest, at work, and within power caps.

Power is the model's (`emulator.amdgpu.power`), read beside the card: exactly what the board drew while the
kernel ran, without the transfers around it.
"""

from __future__ import annotations

from typing import Any

from emulator.amdgpu.card import AmdCard
from emulator.amdgpu.kernels import build
from emulator.amdgpu.power import Sums
from emulator.board import Board
from sdk.errors import InternalError
from towline import gpu as opening
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.amd.gpu import Gpu
from usbgpu.seam import Launch

WAVES, ROUNDS = 8, 400
"""Of each SIMD, and of each wave: integer arithmetic that keeps all SIMDs busy."""
THREADS = 64
PAUSE = 0.05
"""Seconds over which power at rest is averaged."""


def caps(chip: str) -> list[int]:
    """Power caps of a card to measure: from its own limit down to the least; 100 W if it takes that."""
    least, most = CHIPS[chip].power_caps
    wanted = {most, round(most * 0.75), most // 2, least, 100}
    return sorted((cap for cap in wanted if least <= cap <= most), reverse=True)


def measure(chip: str) -> dict[str, Any]:
    """Measure one card.

    Returns:
        `chip`; `range_watts`, least and most power cap; `off_watts`, `idle_watts` (low clocks), `ready_watts`
        (clocks up, nothing runs), `closed_watts` (when its driver has gone); `caps`: of each cap the `watts`
        while the kernel runs, `gfxclk_mhz` and `kernel_us`; `wake_ms`: `idle` and `off`.
    """
    board = opening.emulated_board(gpu=chip, vram="256M")
    try:
        with opening.open_gpu(board) as gpu:
            found: dict[str, Any] = {"chip": chip, "range_watts": list(CHIPS[chip].power_caps)}
            card = _card(board)
            found["ready_watts"] = _at_rest(gpu, card)
            gpu.rest()
            found["idle_watts"] = _at_rest(gpu, card)
            wake = {"idle": 1e3 * _seconds(gpu, gpu.wake)}
            gpu.rest(off=True)
            found["off_watts"] = round(card.watts(), 1)
            wake["off"] = 1e3 * _seconds(gpu, lambda: gpu.recover(10.0))
        gpu.clock.sleep(PAUSE)
        found["closed_watts"] = round(card.watts(), 1)
        found["caps"] = [_within(board, chip, cap) for cap in caps(chip)]
        return found | {"wake_ms": wake}
    finally:
        board.close()


def _within(board: Board, chip: str, cap: int) -> dict[str, Any]:
    """The kernel within a power cap."""
    with opening.open_gpu(board, power_cap=cap) as gpu:
        launch = _launch(gpu, chip)
        gpu.run([launch])  # the caches know it then
        card = _card(board)
        before = _sums(card)
        gpu.run([launch])
        passed = _sums(card) - before
        rest = (passed.seconds - passed.busy) * CHIPS[chip].ready_power
        return {
            "cap_watts": cap,
            "watts": round((passed.energy - rest) / passed.busy, 1),
            "gfxclk_mhz": round(passed.graphics / passed.busy),
            "kernel_us": round(1e6 * passed.busy, 2),
        }


def _launch(gpu: Gpu, chip: str) -> Launch:
    facts = CHIPS[chip]
    items = facts.compute_units * 2 * WAVES * 32
    values = gpu.allocate(4 * items)
    gpu.upload(values, bytes(4 * items))
    return gpu.load(build.code_object("integer", chip))["alu"].launch(items // THREADS, values, ROUNDS)


def _at_rest(gpu: Gpu, card: AmdCard) -> float:
    before = _sums(card)
    gpu.clock.sleep(PAUSE)
    passed = _sums(card) - before
    return round(passed.energy / passed.seconds, 1)


def _seconds(gpu: Gpu, action: Any) -> float:
    begun = gpu.clock.now()
    action()
    return round(gpu.clock.now() - begun, 6)


def _sums(card: AmdCard) -> Sums:
    card.power.look()
    return card.power.sums


def _card(board: Board) -> AmdCard:
    if board.card is None:
        raise InternalError("the board has no card")
    return board.card
