"""The suite: every check in order, and how it is run.

A check starts with a device that answers. If it no longer does afterwards, a bus reset follows, and if that
does not help, the rest is not reached. A request that many checks rely on fails one of them, and the others
are not reached.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import IO

from sdk.errors import DeviceFailed, UsageError
from sdk.facts.structures import Malformed
from usbgpu import transport
from usbgpu.conform import descriptors, faults, list_faults, lists, standard, storage, vendor
from usbgpu.conform.bench import Bench, Failed, NotReached
from usbgpu.conform.check import Check, lacking
from usbgpu.conform.report import Report, Row, Verdict
from usbgpu.conform.trace import Recorder
from usbgpu.transport import DeviceString, TimedOut, Transport, device_string

CHECKS: tuple[Check, ...] = tuple(
    check
    for module in (descriptors, standard, vendor, lists, list_faults, storage, faults)
    for section in module.SECTIONS
    for check in section.checks
)
"""The published suite."""

SECTIONS: tuple[str, ...] = tuple(dict.fromkeys(check.section for check in CHECKS))

Progress = Callable[[str, int, int], None]
"""Called with a section, the number of checks that are done, and their total."""


def device_of(target: str) -> str:
    """The device string that a target stands for: itself, or an image on the emulated bridge.

    Raises:
        UsageError: it begins like a device string, and is not one.
    """
    if re.split("[:?]", target, maxsplit=1)[0] in device_string.kinds():
        return DeviceString.parse(target).text
    return f"emulated:{target}"


def run(
    target: str,
    *,
    sections: Sequence[str] = (),
    trace: IO[str] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Open a device and run the suite.

    Args:
        target: a device string, or the name or file of an image for the emulated bridge.
        sections: run these only.
        trace: text stream for a trace of every call.
        progress: is called with the progress.

    Raises:
        UsageError: there is no such section, or the target does not exist.
        TowlineError: the device could not be opened, or cannot be identified.
    """
    select(sections)  # before a device is touched
    with transport.open(device_of(target)) as device:
        return examine(device, target, sections=sections, trace=trace, progress=progress)


def examine(
    device: Transport,
    target: str,
    *,
    sections: Sequence[str] = (),
    trace: IO[str] | None = None,
    progress: Progress | None = None,
) -> Report:
    """As `run`, of a device that is open."""
    chosen = select(sections)
    bench = Bench(device, device.identify())
    recorder = Recorder(bench, trace) if trace is not None else None
    try:
        rows = []
        alive = True
        for number, check in enumerate(chosen):
            if progress is not None:
                progress(check.section, number, len(chosen))
            if recorder is not None:
                recorder.check(check.name)
            row = _row(bench, check) if alive else _unreached(check, "the device no longer answers")
            rows.append(row)
            if row.verdict is Verdict.FAILED:
                alive = _revived(bench)
        return Report(target, bench.identity, tuple(rows))
    finally:
        if recorder is not None:
            recorder.close()


def select(sections: Sequence[str]) -> tuple[Check, ...]:
    """The checks of some sections; all if none are given.

    Raises:
        UsageError: there is no such section.
    """
    if unknown := sorted(set(sections) - set(SECTIONS)):
        raise UsageError(
            f"the suite has no section {', '.join(map(repr, unknown))}",
            hint=f"sections: {'; '.join(SECTIONS)}",
        )
    return tuple(check for check in CHECKS if not sections or check.section in sections)


def _row(bench: Bench, check: Check) -> Row:
    missing = lacking(bench, check.needs)
    if missing is not None:
        return _skipped(check, f"needs {missing.value}")
    bench.kept_back = 0
    bench.check = check.name
    try:
        check.function(bench)
    except NotReached as problem:
        return _unreached(check, str(problem))
    except (Failed, Malformed, DeviceFailed) as problem:
        hint = problem.hint if isinstance(problem, TimedOut) else None  # what an emulated device waits for
        why = f"{problem}; {hint}" if hint else str(problem)
        return Row(check.section, check.name, check.says, Verdict.FAILED, why)
    except (IndexError, ValueError) as problem:  # a check relied on what another one tests
        why = f"an answer is too short, or malformed: {problem}"
        return Row(check.section, check.name, check.says, Verdict.FAILED, why)
    plural = "" if bench.kept_back == 1 else "s"
    note = f"{bench.kept_back} request{plural} not sent by the system" if bench.kept_back else ""
    return Row(check.section, check.name, check.says, Verdict.PASSED, note)


def _skipped(check: Check, why: str) -> Row:
    return Row(check.section, check.name, check.says, Verdict.SKIPPED, why)


def _unreached(check: Check, why: str) -> Row:
    return Row(check.section, check.name, check.says, Verdict.UNREACHED, why)


def _revived(bench: Bench) -> bool:
    """Whether the device answers again, after all that a host can do."""
    for revive in (bench.device.reset, bench.device.reopen):
        with contextlib.suppress(DeviceFailed):
            revive()
            bench.device.descriptor(1, 0, 18)
            return True
    return False
