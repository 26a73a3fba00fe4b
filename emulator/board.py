"""A board: the chip with its CPU, a flash chip, a PCIe function, and a USB port to plug it into.

    board = Board.of("image.ihx")
    device = usb.core.find(backend=board.backend())

At power-on the mask ROM decides what runs, as on the part: the image in the flash, or the boot loader.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from emulator import faults as injected
from emulator import image_file, injection, spin
from emulator.amdgpu.disturbance import Disturbance
from emulator.asm2464pd import rom
from emulator.asm2464pd.chip import Chip, Pins
from emulator.asm2464pd.flash_chip import FlashChip
from emulator.behaviour import Behaviour
from emulator.core.bus import Bus
from emulator.core.clock import Scheduler, seconds
from emulator.image_file import BANK_START, CodeImage
from emulator.ina231 import Ina231
from emulator.machine import Machine
from emulator.mcs51.core import Mcs51
from emulator.options import Options, described
from emulator.pcie.endpoint import TestEndpoint
from emulator.pcie.function import PcieFunction
from emulator.record import Recorder, Replayed, replay
from emulator.supply import Supply
from emulator.symbols import Symbols, beside
from emulator.usb.host import Host
from emulator.usb.pcap import Capture
from emulator.usb.wire import Function, Speed
from firmware.asm2464pd import flash_layout, image, supply
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import ASM2464PD
from firmware.asm2464pd.registers.cpu import CPU_CODE_BANK
from sdk import files, settings
from sdk.errors import DeviceFailed, InvalidInput, UsageError
from usbgpu.amd.facts import disputes as of_card

if TYPE_CHECKING:
    from emulator.amdgpu.card import AmdCard
    from emulator.amdgpu.scoreboard import Record
    from emulator.usb.pyusb_backend import Backend

log = logging.getLogger(__name__)

DEFAULT_IMAGE = "firmware"
"""What the device `emulated` runs."""
CODE_SIZE = 0x10000
UART_KEPT = 64 << 10
"""Bytes of the UART that are kept for `Board.uart`."""
OVERLOAD = 1.1
"""Share of its nominal power above which a supply gives way. Grade: hardware, of one dock with 100 W: with
power caps of 111 W and above its PCIe route was lost."""

watchers: list[Callable[[Board], None]] = []
"""Called with every board that `emulated` makes, before it runs."""


class PowerCut(DeviceFailed):
    """The injected power cut happened: the board has stopped; its flash can be kept."""

    code = "power-cut"


class Board:
    """A powered board.

    Args:
        code: programmed into the flash before power-on; None leaves the flash as it is.
        options: how it is set up.

    Attributes:
        machine: CPU and time.
        chip: the peripherals.
        endpoint: what is on PCIe bus 4.
        supply: what feeds bridge and card.
        usb: the host port that the board is plugged into.
        flash: the flash chip.
        injector: of faults.
        boot: what the mask ROM decided.

    Raises:
        InvalidInput: the flash file is not a flash dump, or the file of behaviours is wrong.
        UsageError: there is no file of behaviours, the GPU is unknown, or it cannot have that much memory.
    """

    def __init__(self, code: CodeImage | None, options: Options = Options()) -> None:
        self._options = options
        self._code = code
        self._uart: list[Callable[[int], None]] = []
        self._sent = bytearray()
        self._recorders: list[Recorder] = []
        self._starts: list[Callable[[Mcs51, bytes], None]] = []
        clock = Scheduler()
        bus = Bus(ASM2464PD, clock, strict=options.strict)
        self.flash = self._flash(clock)
        self.endpoint = options.function or _function(options)
        self.supply = Supply(self._card_watts, sensor=options.sensor)
        self._sensor = Ina231(
            lambda: clock.now,
            lambda: self.supply.volts,
            lambda: self.supply.amperes * supply.SHUNT_MICROOHMS * 1e-6,
        )
        pins = Pins(
            self._transmitted,
            self._restart,
            lambda: {supply.ADDRESS: self._sensor} if self.supply.sensor else {},
            lambda: not self.supply.fault,
        )
        self.chip = Chip(bus, self.flash, self.endpoint, pins, options.model, options.slot)
        cpu = Mcs51([bus.planes[Space.XDATA], bus.planes[Space.PHY]])
        cpu.attach_device(self.chip.tlp.device)
        self.machine = Machine(bus, cpu, self.chip.tlp.service)
        self.machine.serial = lambda value: self._transmitted(bytes((value,)))
        self.machine.name_of = self._name
        self.machine.data_name_of = self._data_name
        self.machine.function_of = self._function_name
        self._spins = spin.Watch(self.machine)
        if options.guards:
            cpu.guard(*options.guards)
            if "uninit" in options.guards:
                bus.guard_uninitialised()
        self.usb = Host(self.chip.usb, self.machine, best=options.port or Speed.SUPER_PLUS)
        self.usb.reasons = self._reasons
        self.injector = injection.Injector(self)
        if self.card is not None:
            self.card.powered = lambda: self.chip.link.powered
            if options.supply is not None:
                self.card.guard(OVERLOAD * options.supply, self._overload)
        for fault in options.faults:
            self.injector.plan(fault)
        if options.behaviour is not None:
            Behaviour(options.behaviour, bus)
        for change in options.pokes:
            change.begin(bus)
        self.boot = rom.boot(self.flash, strap=options.strap, fallback=options.fallback)
        log.info("%s", self.boot.reason)
        self.usb.exchange(self._start(self.boot))
        if options.port is not None:
            self.usb.plug()
        if settings.COVERAGE.value():
            from emulator.coverage import environment

            environment.record(self, code.path.stem if code is not None else "")

    @classmethod
    def of(cls, name: str | Path, options: Options = Options()) -> Board:
        """A board with an image file, or with one of `emulator.images` by its name, in its flash.

        Raises:
            InvalidInput: there is no such file, or it is damaged.
            BuildFailed: that image could not be compiled.
            ToolMissing: sdcc is not installed.
        """
        return cls(image_file.load(image_file.locate(name)), options)

    # -- for its user -----------------------------------------------------------------------------------

    def backend(self) -> Backend[Board]:
        """A pyusb backend with the board on its only port, and as its `emulation`."""
        from emulator.usb.pyusb_backend import Backend

        return Backend([self.usb], self)

    @property
    def firmware_directory(self) -> Path | None:
        """Synthetic firmware files that the GPU accepts; None if there is no GPU. Raises OutputFailed."""
        if not self._options.gpu:
            return None
        from emulator.amdgpu import synthetic
        from usbgpu.amd.facts.chips import CHIPS

        return synthetic.folder(CHIPS[self._options.gpu])

    @property
    def card(self) -> AmdCard | None:
        """The GPU on PCIe bus 4; None if something else is there."""
        if isinstance(self.endpoint, TestEndpoint):
            return None  # and its facts need not be imported
        from emulator.amdgpu.card import AmdCard

        return self.endpoint if isinstance(self.endpoint, AmdCard) else None

    def wave_instructions(self, last: int) -> list[int] | None:
        """Instructions of 32 lanes that each of the GPU's last dispatches executed, the latest at the end.

        None without a GPU, and if fewer have run, or more than a scoreboard keeps.
        """
        records = self._dispatches(last)
        return None if records is None else [record.outcome.total for record in records]

    def wmma_instructions(self, last: int) -> list[int] | None:
        """Of these, the matrix instructions."""
        records = self._dispatches(last)
        return None if records is None else [record.outcome.instructions.get("wmma", 0) for record in records]

    def dispatch_nanoseconds(self, last: int) -> list[int] | None:
        """How long each of the GPU's last dispatches took; else as `wave_instructions`."""
        records = self._dispatches(last)
        if records is None:
            return None
        return [round(seconds(record.end - record.start) * 1e9) for record in records]

    def _dispatches(self, last: int) -> list[Record] | None:
        if self.card is None or len(self.card.scoreboard.records) < last:
            return None
        records = list(self.card.scoreboard.records)
        return records[len(records) - last :]

    def uart(self) -> bytes:
        """What the UART has sent since this was called last, at most the last UART_KEPT bytes of it."""
        with self.machine.lock:
            sent = bytes(self._sent)
            self._sent.clear()
        return sent

    @property
    def torments(self) -> Sequence[str]:
        """A fault of each kind that passes, for `inject`."""
        return injection.torments(gpu=self.card is not None)

    def inject(self, fault: str) -> None:
        """Plan faults, joined by commas, with times and numbers from now on. Raises UsageError."""
        planned = injected.parse_list(fault)

        def plan() -> None:
            for one in planned:
                self.injector.plan(one, self.machine.clock.now)

        self.usb.pump.post(plan)

    def faults(self) -> Sequence[tuple[str, float | None]]:
        """The faults that were planned, each with the seconds at which it fired; None if it has not."""
        return [
            (one.fault.text, None if one.fired is None else seconds(one.fired))
            for one in self.injector.planned
        ]

    def waits(self) -> list[str]:
        """What the USB link and the PCIe link wait for that does not come; a sentence each."""
        with self.machine.lock:
            link, found = self.chip.link, []
            if self.machine.running and self.usb.speed is None:
                found.append(self.chip.usb.waits_for(None))
            if self.machine.running and link.begun:
                found.append(link.waits_for())
        return [sentence for sentence in found if sentence]

    @property
    def spinning(self) -> str:
        """The loop that the CPU is in and that nothing ends, as a sentence; empty if it is in none."""
        with self.machine.lock:
            return self._spins.sentence()

    def on_uart(self, take: Callable[[int], None]) -> None:
        """Pass every byte that the UART sends to `take`."""
        self._uart.append(take)

    def on_start(self, take: Callable[[Mcs51, bytes], None]) -> None:
        """Pass CPU and image body to `take` now, if the CPU runs, and whenever the boot loader starts it."""
        self._starts.append(take)
        if self.boot.body is not None:
            take(self.machine.cpu, self.boot.body)

    @contextmanager
    def capture(self, path: Path) -> Iterator[Capture]:
        """Write the USB traffic to a pcap file inside the `with` block."""
        with Capture(path) as capture:
            self.usb.observers.append(capture)
            try:
                yield capture
            finally:
                self.usb.observers.remove(capture)

    def record(self, stream: IO[str]) -> Recorder:
        """Record everything outside the CPU; the board must not have run yet.

        Raises:
            UsageError: it has.
        """
        if self.machine.clock.now:
            raise UsageError("a recording begins at power-on")
        if self.boot.body is None:
            raise UsageError(
                f"there is nothing to record: {self.boot.reason}, and the CPU does not run",
                hint="a recording is of firmware; give an image that boots",
            )
        self._watch_launches()
        recorder = Recorder(self.machine, self._code_hash, stream)
        self._recorders.append(recorder)
        return recorder

    def replay(self, path: Path) -> Replayed:
        """Run the board's CPU against a recording, with everything else cut off.

        Raises:
            InvalidInput: the file is not a recording of this firmware.
            CheckFailed: the CPU does something else than it did.
        """
        self._watch_launches()
        self.machine.cpu.spin_limit = 0
        return replay(path, self.machine, self._code_hash)

    def clocks_by_function(self, profile: Sequence[int]) -> dict[str, int]:
        """Sum what `Mcs51.profile` counted by function; code without a name by 256 bytes."""
        sums: dict[str, int] = {}
        for place, count in enumerate(profile):
            if count:
                bank, address = divmod(place, CODE_SIZE)
                function = self.symbols.function_at(bank, address)
                name = function.name if function is not None else f"{bank}:{address & 0xFF00:04x}"
                sums[name] = sums.get(name, 0) + count
        return sums

    def close(self) -> None:
        """Power off: the device leaves the bus. Keeps the flash, if a file was named for it.

        Raises:
            OutputFailed: the file cannot be written.
        """
        self.usb.unplug()
        if summary := self.machine.bus.summary():
            log.warning("%s", summary)
        if self._options.flash is not None:
            with self.machine.lock:
                contents = self.flash.save()
            files.write(self._options.flash, contents)

    # -- inside -----------------------------------------------------------------------------------------

    def _reasons(self, endpoint: int | None) -> list[str]:
        """Why a transfer of the host, or (None) the attachment of the device, does not come to an end."""
        with self.machine.lock:
            if not self.machine.running:
                return []
            found = (self.spinning, self.chip.usb.waits_for(endpoint))
        return [sentence for sentence in found if sentence]

    def _flash(self, clock: Scheduler) -> FlashChip:
        kept = self._options.flash
        if kept is not None and kept.exists():
            if not kept.is_file():
                raise InvalidInput("is not a regular file", where=str(kept), hint="name a file to keep it in")
            try:
                chip = FlashChip.restore(clock, kept.read_bytes())
            except OSError as problem:
                raise InvalidInput(f"cannot be read: {problem.strerror}", where=str(kept)) from problem
            except InvalidInput as problem:
                raise InvalidInput(problem.message, where=str(kept), hint=problem.hint) from problem
        else:
            chip = FlashChip(clock, otp=flash_layout.otp(self._options.serial))
        if self._code is None:
            return chip
        contents = bytearray(chip.contents)
        start = flash_layout.IMAGE.address
        wrapped = image.wrap(image.body(self._code.banks, self._code.loaded))
        contents[start : start + len(wrapped)] = wrapped
        return FlashChip(clock, bytes(contents), chip.otp)

    @functools.cached_property
    def symbols(self) -> Symbols:
        """The names of the image, if there are any; read when asked for: most runs go without."""
        try:
            return beside(self._code.path) if self._code is not None else Symbols()
        except InvalidInput as problem:
            log.warning("no names are known: %s", problem)
            return Symbols()

    def _start(self, boot: rom.Boot) -> Function:
        """Start what the ROM decided on; returns the USB function that goes with it."""
        machine = self.machine
        machine.running = boot.body is not None
        if boot.body is not None:
            banks = (image.code(boot.body, 0)[0], image.code(boot.body, 1)[0])
            loaded = self._code.loaded if self._code is not None and self._code.banks == banks else None
            machine.cpu.load(banks[0], banks[1], None if loaded is None else b"".join(loaded))
            for take in self._starts:
                take(machine.cpu, boot.body)
            return self.chip.usb
        if boot.loader:
            return rom.MaskRom(self.machine.bus, self.flash, self._leave_loader, self._options.model)
        return self.chip.usb

    def _leave_loader(self, restart: rom.Restart) -> None:
        """The boot loader got a restart command: what is in the flash runs, even with the strap held."""
        self.boot = rom.boot(self.flash, strap=False, fallback=self._options.fallback)
        log.info("restart (%s): %s", restart.name, self.boot.reason)
        self.machine.cpu.reset()
        self.usb.exchange(self._start(self.boot))

    def _restart(self) -> None:
        self.machine.restart()
        for recorder in self._recorders:
            recorder.restarted()

    def _card_watts(self) -> float:
        """What the card draws from the supply."""
        return self.card.watts() if self.card is not None and self.chip.link.powered else 0.0

    def _transmitted(self, data: bytes) -> None:
        self._sent += data
        del self._sent[:-UART_KEPT]
        for take in self._uart:
            for value in data:
                take(value)

    def _name(self, address: int) -> str:
        bank = self.machine.cpu.sfr(CPU_CODE_BANK.address) & 1
        function = self.symbols.function_at(bank, address)
        line = self.symbols.line_at(bank, address)
        text = f"{'1:' if bank and address >= BANK_START else ''}{address:#06x}"
        if function is not None:
            text += f" ({function.name}+{address - function.start:#x}"
            text += f", {line})" if line is not None else ")"
        return text

    def _function_name(self, bank: int, address: int) -> str:
        function = self.symbols.function_at(bank, address)
        return "" if function is None else f"{function.name}+{address - function.start:#x}"

    def _data_name(self, address: int) -> str:
        variable = self.symbols.variable_at(address)
        text = f"XDATA {address:#06x}"
        return text if variable is None else f"{text} ({variable.name}+{address - variable.start:#x})"

    @property
    def _code_hash(self) -> str:
        return hashlib.sha256(self.boot.body or b"").hexdigest()

    def _watch_launches(self) -> None:
        """TLP launches come over the bus, so that the recorder and the replay see them."""
        from firmware.asm2464pd.registers.tlp import TLP_LAUNCH

        self.machine.bus.watch(TLP_LAUNCH.space, TLP_LAUNCH.address)
        self.chip.tlp.notify = True

    # -- faults: injection.Struck -----------------------------------------------------------------------

    @property
    def disturbance(self) -> Disturbance | None:
        """Of the card; None without one."""
        return None if self.card is None else self.card.disturbance

    def reset_card(self) -> None:
        """The card resets itself; in the machine's thread."""
        if self.card is not None:
            self.card.go_dark()

    def pull_cable(self, length: int | None) -> None:
        """The cable is pulled, and plugged in again after so many clocks; in the machine's thread."""
        self.usb.pull()
        if length is not None:
            self.machine.clock.after(length, self.usb.push)

    def lose_power(self, length: int) -> None:
        """Bridge and card are without power for so many clocks; in the machine's thread."""
        self.machine.running = False
        self.chip.lose_power()
        self.machine.clock.after(length, self._power_on)

    def _power_on(self) -> None:
        self._sensor.power_on()
        self.boot = rom.boot(self.flash, strap=self._options.strap, fallback=self._options.fallback)
        self.machine.cpu.reset()
        self.usb.exchange(self._start(self.boot))

    def _overload(self) -> None:
        """The card draws more than the supply has: it is lost until the slot is switched again."""
        if self.card is not None:
            log.warning("the card draws more than the supply has: the PCIe route to it is lost")
            self.chip.link.drop(None)

    def cut_power(self) -> None:
        """All power fails, and the run ends. Raises PowerCut."""
        self.flash.cut_power()
        self.machine.running = False
        raise PowerCut(
            "the power was cut",
            where=f"clock {self.machine.clock.now}",
            hint="with --flash FILE the next run boots what the flash holds now",
        )


def _function(options: Options) -> PcieFunction:
    """What is on PCIe bus 4, if nothing was given."""
    if not options.gpu:
        return TestEndpoint()
    from emulator.amdgpu import boot_steps  # without a GPU nothing waits for its facts
    from emulator.amdgpu.card import AmdCard

    card = AmdCard(
        options.gpu,
        options.vram,
        keeps_vram=options.model.follows(of_card.RESET_VRAM, "keep", strict=options.strict),
        hdp_drains=options.model.follows(of_card.HDP_DRAIN, "10us"),
    )
    card.diagnosis.remedies = boot_steps.REMEDIES
    return card


def emulated(spec: str) -> Backend[Board]:
    """The device `emulated`: a pyusb backend with a board that runs an image. Arguments as `described`.

    Raises:
        UsageError: an unknown option.
        InvalidInput: the image is missing or damaged.
    """
    name, options = described(spec)
    board = Board.of(name or DEFAULT_IMAGE, options)
    for watch in watchers:
        watch(board)
    return board.backend()
