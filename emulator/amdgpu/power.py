"""What the board draws, how warm it gets, and the clocks that its power limit leaves.

Power is idle power, what raised clocks add to it, and what work adds: waves on the shader array, instructions
issued, bytes to and from VRAM, each as a share of the most that the card can do. All of it together is the
board's published power at the highest clocks. Shaders' parts fall with the square of GFXCLK. The shares and
the square are a model (grade: guess).

If work would take more than the limit, GFXCLK is lowered until it does not, and then UCLK; what is under way
gets slower by that. Silicon averages over milliseconds before it does so; here it is done at once, on the
power of the work that runs (grade: guess). At the board's own limit nothing is ever lowered.

The die's temperature approaches ambient + resistance x power with one time constant (grade: guess).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from emulator.amdgpu.context import Context
from emulator.amdgpu.cost import Work
from emulator.core.clock import clocks, seconds
from usbgpu.amd.facts import smu as facts

WAVES, ISSUE, MEMORY = 0.25, 0.45, 0.30
"""Of the power of work: waves that are there, instructions that they issue, traffic of VRAM."""
AMBIENT, RISE, TIME_CONSTANT = 25.0, 45.0, 20.0
"""Degrees Celsius; degrees above that at the board's limit; seconds."""
SENSORS: Mapping[str, float] = {"EDGE": 1.0, "HOTSPOT": 1.35, "MEM": 1.2}
"""How much further than the edge sensor the others rise."""
SMOOTHING = 100e-6
"""Seconds over which the board's capacitors average what its supply sees (grade: guess)."""
GRAPHICS_FIRST = 0.75
"""Share of the way down on which GFXCLK is lowered alone."""
HALVINGS = 24
"""Of the interval in which the clocks for a limit are looked for."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What has added up since power-on; rates are differences of two of them.

    Attributes:
        seconds: that have passed.
        energy: in joules.
        busy: seconds in which a dispatch ran.
        graphics: MHz of GFXCLK times these seconds; likewise `memory` of UCLK.
        traffic: share of VRAM's bandwidth times seconds.
    """

    seconds: float = 0.0
    energy: float = 0.0
    busy: float = 0.0
    graphics: float = 0.0
    memory: float = 0.0
    traffic: float = 0.0

    def __sub__(self, before: Sums) -> Sums:
        return Sums(
            self.seconds - before.seconds,
            self.energy - before.energy,
            self.busy - before.busy,
            self.graphics - before.graphics,
            self.memory - before.memory,
            self.traffic - before.traffic,
        )


@dataclass(frozen=True, slots=True)
class _State:
    """What the card does from one change to the next.

    Attributes:
        watts: that the board draws.
        graphics, memory: clocks, in MHz.
        traffic: share of VRAM's bandwidth.
        rates: speed of each dispatch under way, 1 at the clocks that the driver has set.
    """

    watts: float
    graphics: float
    memory: float
    traffic: float
    rates: tuple[float, ...] = ()


class Power:
    """The board's power and heat since the last reset.

    Args:
        context: of the card.
        before: what there was until the reset: a die keeps its temperature.

    Attributes:
        temperature: of the die's edge when it was last looked at, in degrees Celsius; heat that is injected
            comes on top.
        sums: likewise.
        limit: in watts.
        hot: whether heat limits the clocks: a sensor is at its limit.
        replan: called when the speed of what runs may change.
        noticed: called when `hot` has changed.
    """

    def __init__(self, context: Context, before: Power | None = None) -> None:
        self._context = context
        self._chip = chip = context.chip
        self.temperature: float = AMBIENT if before is None else before.temperature
        self.sums = Sums()
        self.limit = float(chip.board_power)
        self.hot = False
        self.replan: Callable[[], None] = lambda: None
        self.noticed: Callable[[], None] = lambda: None
        self._low = {name: float(levels[0]) for name, levels in chip.clocks.items()}
        self._high = self._low
        self._works: Sequence[Work] = ()
        self._slowed = 1.0
        self._copies: list[tuple[int, float]] = []  # clock of the end, and share of VRAM's bandwidth
        self._since: int | None = None if before is None else before._since  # clock of the last look
        self._state = self._find()
        self._smooth = self._state.watts
        self._most: float | None = None
        self._lost: Callable[[], None] = lambda: None
        self._plan = 0
        context.disturbance.on_heat = self.look

    # -- for the card -----------------------------------------------------------------------------------

    def watts(self) -> float:
        """What the board draws, as its supply sees it: averaged over SMOOTHING."""
        self.look()
        return self._smooth

    def guard(self, most: float, lost: Callable[[], None]) -> None:
        """Call `lost` when `watts` exceeds `most`: the supply gives way."""
        self._most, self._lost = most, lost
        self._foresee()

    # -- for the power management -----------------------------------------------------------------------

    def set_clocks(self, low: Mapping[str, int], high: Mapping[str, int]) -> None:
        """The clocks while nothing runs, and while something does, in MHz."""
        self.look()
        self._low = {name: float(value) for name, value in low.items()}
        self._high = {name: float(value) for name, value in high.items()}
        self.replan()
        self._change()

    def set_limit(self, watts: float) -> None:
        """The most that the board may draw."""
        self.look()
        self.limit = watts
        self.replan()
        self._change()

    def sensors(self) -> dict[str, float]:
        """Degrees Celsius by sensor of SENSORS, with what is injected."""
        rise, heat = self.temperature - AMBIENT, self._context.disturbance.heat
        return {name: AMBIENT + heat + rise * factor for name, factor in SENSORS.items()}

    def look(self) -> None:
        """Bring everything up to now."""
        now = self._context.link.now()
        while self._copies and self._copies[0][0] <= now:
            self._pass(self._copies[0][0])
            self._copies.pop(0)
            self._change()
        self._pass(now)
        sensors = self.sensors()
        hot = any(sensors[name] >= limit for name, limit in facts.THERMAL_LIMITS.items())
        if hot != self.hot:
            self.hot = hot
            self.replan()
            self._change()
            self.noticed()

    # -- for the engines --------------------------------------------------------------------------------

    def run(self, works: Sequence[Work], slowed: float) -> Sequence[float]:
        """What runs from now on.

        Args:
            works: all dispatches under way.
            slowed: by how much the shader array is slowed down because they share it, 1 for not at all.

        Returns:
            The speed of each, 1 at the clocks that the driver has set.
        """
        self.look()
        self._works, self._slowed = works, slowed
        self._change()
        return self._state.rates

    def copy(self, size: int, lasts: int) -> None:
        """An engine moves bytes to or from VRAM for so many clocks, behind what it moves already."""
        if size and lasts > 0:
            self.look()
            share = min(1.0, size / seconds(lasts) / self._chip.vram_bandwidth)
            self._copies.append((self._context.link.now() + lasts, share))
            self._copies.sort()
            throttled = self._throttled
            self._change()
            if throttled or self._throttled:
                self.replan()

    # -- inside -----------------------------------------------------------------------------------------

    @property
    def _throttled(self) -> bool:
        return any(rate < 1 for rate in self._state.rates)

    def _change(self) -> None:
        """Something else runs from now on, or at other clocks."""
        self._state = self._find()
        self._foresee()

    def _pass(self, end: int) -> None:
        """Time has passed, with the state as it was."""
        passed = 0.0 if self._since is None else seconds(end - self._since)
        self._since = end
        if not passed:
            return
        state, sums = self._state, self.sums
        busy = passed if self._works else 0.0
        self.sums = Sums(
            sums.seconds + passed,
            sums.energy + state.watts * passed,
            sums.busy + busy,
            sums.graphics + state.graphics * busy,
            sums.memory + state.memory * busy,
            sums.traffic + state.traffic * passed,
        )
        self._smooth = state.watts + (self._smooth - state.watts) * math.exp(-passed / SMOOTHING)
        target = AMBIENT + RISE * state.watts / self._chip.board_power
        self.temperature = target + (self.temperature - target) * math.exp(-passed / TIME_CONSTANT)

    def _find(self) -> _State:
        """Power and clocks for what runs now."""
        if not (self._works or self._copies):
            return self._at(self._low["GFXCLK"], self._low["UCLK"])
        top = self._point(0.0)
        limit = min(self.limit, float(self._chip.power_caps[0])) if self.hot else self.limit
        if top.watts <= limit:
            return replace(top, rates=(1.0,) * len(self._works))
        over, within = 0.0, 1.0
        for _ in range(HALVINGS):
            middle = (over + within) / 2
            if self._point(middle).watts <= limit:
                within = middle
            else:
                over = middle
        return self._point(within)

    def _point(self, down: float) -> _State:
        """The state that far down the way from the clocks that are set to the lowest ones."""
        graphics, memory = self._high["GFXCLK"], self._high["UCLK"]
        levels = self._chip.clocks
        first, second = (
            min(down / GRAPHICS_FIRST, 1.0),
            max(0.0, down - GRAPHICS_FIRST) / (1 - GRAPHICS_FIRST),
        )
        return self._at(
            graphics + (levels["GFXCLK"][0] - graphics) * first,
            memory + (levels["UCLK"][0] - memory) * second,
        )

    def _at(self, graphics: float, memory: float) -> _State:
        """The state at these clocks."""
        chip, levels = self._chip, self._chip.clocks
        square = (graphics / levels["GFXCLK"][-1]) ** 2
        least = (levels["GFXCLK"][0] / levels["GFXCLK"][-1]) ** 2
        raised = (square - least) / (1 - least) + (memory - levels["UCLK"][0]) / (
            levels["UCLK"][-1] - levels["UCLK"][0]
        )
        rates, issue, moved = [], 0.0, 0.0
        for work in self._works:
            lasts = work.seconds(graphics, self._bandwidth(memory))
            set_to = work.seconds(self._high["GFXCLK"], self._bandwidth(self._high["UCLK"]))
            rates.append(set_to / lasts)
            issue += work.issuing / (graphics * 1e6) / lasts * self._slowed
            moved += work.moved / lasts / chip.vram_bandwidth * self._slowed
        waves = min(1.0, sum(work.share for work in self._works))
        traffic = min(1.0, moved + sum(share for _, share in self._copies))
        work_power = (WAVES * waves + ISSUE * min(1.0, issue)) * square + MEMORY * traffic
        watts = (
            chip.idle_power
            + raised / 2 * (chip.ready_power - chip.idle_power)
            + work_power * (chip.board_power - chip.ready_power)
        )
        return _State(watts, graphics, memory, traffic, tuple(rates))

    def _bandwidth(self, memory: float) -> float:
        return self._chip.vram_bandwidth * min(memory / self._chip.clocks["UCLK"][-1], 1.0)

    def _foresee(self) -> None:
        """Plan the moment at which the supply gives way, if this goes on."""
        self._plan += 1
        plan, most, watts = self._plan, self._most, self._state.watts
        if most is None or watts <= most:
            return
        left = SMOOTHING * math.log((watts - self._smooth) / (watts - most)) if self._smooth < most else 0.0

        def gives_way() -> None:
            if plan == self._plan:
                self._most = None
                self._lost()

        self._context.link.schedule(clocks(max(left, 0.0)), gives_way)
