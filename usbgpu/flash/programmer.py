"""Two ways to the flash, with one interface: `SpiProgrammer` through a firmware that answers E4 and E5, and
`StorageProgrammer` through the boot loader or the maker's firmware. `choose` selects one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from firmware.asm2464pd import bot
from firmware.asm2464pd.flash_layout import CONFIG_0, IMAGE
from sdk.errors import CheckFailed, DeviceFailed, Unsupported
from usbgpu.flash import plan
from usbgpu.flash.mass_storage import CommandRefused, MassStorage
from usbgpu.flash.plan import Contents, Stage
from usbgpu.flash.spi import SpiFlash
from usbgpu.transport import Identity, Running, Transport

ATTEMPTS = 3
"""How often a sector is written before the job fails; through the boot loader, all of it."""
WRITE_SECONDS = 60.0
"""Longest time of a transfer that the device erases and programs in: two blocks and their pages."""
PARTS = tuple(bot.FLASH_WRITE.cdb.member("part").values)
"""The selectors of the first and the second part of the image."""
(START_WRITTEN,) = (
    kind for kind, words in bot.RESET.cdb.member("kind").values.items() if words.startswith("start")
)
"""The kind of RESET that starts the firmware just written."""
CHIP = b"ASM246"
"""The beginning of INQUIRY's product."""
FAMILY = b"ASM2"

Progress = Callable[[str, int, int], None]
"""Called with a stage: its name, steps done, steps in all."""


class VerifyFailed(CheckFailed):
    """The flash does not keep what is written to it."""

    code = "verify-failed"


class Mismatch(Exception):
    """A byte that did not read back as written."""

    def __init__(self, address: int, expected: int, found: int) -> None:
        super().__init__(f"reads {found:#04x} instead of {expected:#04x}")
        self.address = address


@dataclass(frozen=True, slots=True)
class Survey:
    """What was read of a board before anything is done to it.

    Attributes:
        config: the configuration blocks; None if they cannot be read.
        memory: the flash from address 0, as far as it can be read, at most `plan.AREA` bytes; None if no
            more than the configuration can be.
        otp: the one-time programmable page; None likewise.
        chip: identification of the flash chip; None likewise.
        status: its status register without the transient bits; None likewise.
    """

    config: tuple[bytes, bytes] | None
    memory: bytes | None
    otp: bytes | None = None
    chip: bytes | None = None
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write.

    Attributes:
        verified: bytes that were read back and are right; 0 if the device cannot read it back.
        repeats: sectors that had to be written again, or how often all of it was.
    """

    verified: int
    repeats: int


class Programmer(Protocol):
    """A way to the flash.

    Attributes:
        name: as text.
        caution: what is not verified on a real part; shown to the user before the flash is changed.
    """

    name: str
    caution: str

    def survey(self, progress: Progress) -> Survey:
        """Read all that writing may change, and what identifies the board."""

    def write(self, contents: Contents, progress: Progress) -> Written:
        """Write, and read back.

        Raises:
            VerifyFailed: after several attempts a byte is still wrong.
            DeviceFailed: the device stopped answering.
        """

    def finish(self, status: int | None) -> None:
        """Restore the protection that `survey` found."""

    def start(self) -> bool:
        """Make the device leave the bus and start the image in the flash; False if only a power cycle can."""


def choose(device: Transport, identity: Identity) -> Programmer:
    """The way to the flash of a device.

    Raises:
        Unsupported: it is not a bridge of this kind, or no known way to write its flash runs on it.
        DeviceFailed: it is one, but its flash does not answer.
    """
    match identity.running:
        case Running.OURS | Running.COMPATIBLE:
            return SpiProgrammer(device)
        case Running.MAKERS | Running.LOADER:
            return StorageProgrammer(device)
    raise Unsupported(
        f"is not a bridge that can be flashed: {identity}",
        where=device.name,
        hint="power the board with the boot loader's strap set; only the ASM2464PD is supported",
    )


def erased(data: bytes) -> bool:
    """Whether nothing was ever programmed there."""
    return data.count(plan.ERASED) == len(data)


def compare(address: int, expected: bytes, found: bytes) -> None:
    """Raise `Mismatch` at the first difference."""
    if expected != found:
        pairs = enumerate(zip(expected, found, strict=True))
        place, (want, have) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
        raise Mismatch(address + place, want, have)


def _give_up(mismatch: Mismatch, attempts: int, otherwise: str) -> VerifyFailed:
    return VerifyFailed(
        f"{mismatch}, after {attempts} attempts",
        where=f"flash address {mismatch.address:#07x}",
        hint=f"leave the power on and run this again; if it is the same address every time, {otherwise}",
    )


# -- through a firmware that answers E4 and E5 ------------------------------------------------------------


class SpiProgrammer:
    """The SPI controller, driven from here.

    Args:
        device: a bridge with our firmware or a compatible one.

    Raises:
        DeviceFailed: the flash does not answer, or not reliably.
    """

    name = "SPI controller through E4/E5"
    caution = (
        "this tool was never run on a real part; that firmware runs on while its flash is erased is "
        "inferred. Leave the power on until it is done, and keep the boot loader's strap ready"
    )

    def __init__(self, device: Transport) -> None:
        self._device = device
        self._flash = SpiFlash(device)

    def survey(self, progress: Progress) -> Survey:
        """Read everything twice.

        Raises:
            DeviceFailed: two reads differ.
        """
        flash = self._flash
        otp = flash.otp()
        memory = flash.read(0, plan.AREA, lambda done: progress("read", done, 2 * plan.AREA))
        try:
            flash.spoil(memory)
            again = flash.read(0, plan.AREA, lambda done: progress("read", plan.AREA + done, 2 * plan.AREA))
            compare(0, memory, again)
        except Mismatch as found:
            raise DeviceFailed(
                "two reads differ",
                where=f"flash address {found.address:#07x}",
                hint="nothing was changed; try another cable or port, or the boot loader's strap",
            ) from None
        return Survey(plan.config_in(memory), memory, otp, flash.identification, flash.status)

    def write(self, contents: Contents, progress: Progress) -> Written:
        """As the package's docstring says; see `Programmer`."""
        flash = self._flash
        work = plan.stages(contents)
        total = sum(stage.operations for stage in work)
        done = repeats = 0

        def step() -> None:
            nonlocal done
            done = min(done + 1, total)
            progress("write", done, total)

        flash.unprotect()
        flash.program(plan.INVALIDATE)
        for stage in work:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    self._write(stage, step)
                    break
                except Mismatch as found:
                    if attempt == ATTEMPTS:
                        raise _give_up(found, attempt, "the flash chip is worn out") from None
                    repeats += 1
                    done -= stage.operations
        return Written(len(contents.memory), repeats)

    def _write(self, stage: Stage, step: Callable[[], None]) -> None:
        flash = self._flash
        flash.erase(stage.address)
        step()
        for program in stage.programs:
            flash.program(program)
            step()
        self._check(stage.address, stage.expected)
        if stage.commit is not None:
            flash.program(stage.commit)
            step()
            self._check(stage.commit.address, stage.commit.data)

    def _check(self, address: int, expected: bytes) -> None:
        """Read back; what differs is read again, because a read may fail as well as a write."""
        self._flash.spoil(expected)
        try:
            compare(address, expected, self._flash.read(address, len(expected)))
        except Mismatch:
            self._flash.spoil(expected)
            compare(address, expected, self._flash.read(address, len(expected)))

    def finish(self, status: int | None) -> None:
        """Restore the status register."""
        if status is not None:
            self._flash.protect(status)

    def start(self) -> bool:
        """Unknown how: the restart register starts the code that is in RAM, which is the old one."""
        return False


# -- in mass-storage mode ---------------------------------------------------------------------------------


class StorageProgrammer:
    """The vendor commands of mass-storage mode; the device erases and programs.

    Args:
        device: the boot loader, or the maker's firmware.

    Raises:
        Unsupported: it is another chip of the maker's.
    """

    name = "mass-storage commands"
    caution = (
        "this tool was never run on a real part; how the flash is read back is a guess. "
        "Leave the power on until it is done, and keep the boot loader's strap ready"
    )

    def __init__(self, device: Transport) -> None:
        self._device = device
        self._commands = MassStorage(device)
        product = b""
        with contextlib.suppress(CommandRefused):
            product = self._commands.inquiry()[16:32]
        if product.startswith(CHIP):
            return
        if product.startswith(FAMILY):
            raise Unsupported(
                f"is another chip: {product.decode('ascii', 'replace').strip()}",
                where=device.name,
                hint="only the ASM2464PD is supported",
            )
        self.caution = f"the device does not report which chip it is; {self.caution}"

    def survey(self, progress: Progress) -> Survey:
        """Read what the device returns."""
        progress("read", 0, plan.AREA)
        config = self._config()
        memory = b"" if config is None else b"".join(config) + self._image(IMAGE.size, config)
        progress("read", plan.AREA, plan.AREA)
        return Survey(config, memory if len(memory) > IMAGE.address else None)

    def write(self, contents: Contents, progress: Progress) -> Written:
        """In the order of the known flash tool; see `Programmer`.

        A configuration block that is erased, and must stay so, is not written: the device might refuse it.
        """
        found = None
        for attempt in range(ATTEMPTS):
            self._write(contents, progress)
            try:
                return Written(self._verify(contents), attempt)
            except Mismatch as problem:
                found = problem
        assert found is not None
        raise _give_up(
            found,
            ATTEMPTS,
            "the flash chip is worn out, or the guess of how it is read is wrong: then the "
            "new firmware starts when the board is powered without the strap",
        )

    def finish(self, status: int | None) -> None:
        """The device handles the protection itself."""

    def start(self) -> bool:
        """Start the firmware just written. The bus shows whether it starts: no status may come."""
        with contextlib.suppress(DeviceFailed):
            self._commands.write(bot.RESET, kind=START_WRITTEN)
        return True

    def _write(self, contents: Contents, progress: Progress) -> None:
        write = self._commands.write
        present = self._config() or contents.config
        steps = [
            partial(write, bot.CONFIG_WRITE, block, seconds=WRITE_SECONDS, index=index)
            for index, (block, found) in enumerate(zip(contents.config, present, strict=True))
            if not (erased(block) and erased(found))
        ]
        parts = contents.image[: bot.PART_SIZE], contents.image[bot.PART_SIZE :]
        steps += [
            partial(write, bot.FLASH_WRITE, data, seconds=WRITE_SECONDS, part=part, length=len(data))
            for part, data in zip(PARTS, parts, strict=True)
            if data
        ]
        for done, step in enumerate(steps):
            progress("write", done, len(steps))
            step()
        progress("write", len(steps), len(steps))

    def _verify(self, contents: Contents) -> int:
        """Bytes read back and correct. Raises Mismatch if one is not."""
        config = self._config()
        if config is None:
            return 0
        compare(CONFIG_0.address, b"".join(contents.config), b"".join(config))
        image = self._image(len(contents.image), config)
        compare(IMAGE.address, contents.image[: len(image)], image)
        return IMAGE.address + len(image)

    def _config(self) -> tuple[bytes, bytes] | None:
        """The configuration blocks; None if the device does not return them."""
        try:
            first, second = (
                self._commands.read(bot.CONFIG_READ, bot.CONFIG_SIZE, index=index) for index in (0, 1)
            )
        except CommandRefused:
            return None
        return first, second

    def _image(self, size: int, config: tuple[bytes, bytes]) -> bytes:
        """`size` bytes of flash from the start of the image, or as many as the device returns.

        Where the first part begins is a guess. If the data begins with the configuration blocks, it began
        at address 0 rather than at the image's place.
        """
        wanted = IMAGE.address + size
        found = b""
        for part, most in zip(PARTS, (bot.PART_SIZE, wanted), strict=True):
            length = min(most, wanted - len(found))
            if not length:
                break
            try:
                found += self._commands.read(
                    bot.FLASH_READ, length, seconds=WRITE_SECONDS, part=part, length=length
                )
            except CommandRefused:
                break
        start = IMAGE.address if found.startswith(b"".join(config)) else 0
        return found[start : start + size]
