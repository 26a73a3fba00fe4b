"""A dispatch in a file: its registers, the memory that it reaches, and what it wrote; it replays alone.

The file is a zip of three members.

* `capture.json`: `format` ("towline gpu capture"), `version` (1), `chip`, `kernel`, `dispatch` (the fields of
  `seams.Dispatch`), `memory` and `writes` (lists of `address`, `size`), `outcome` (`waves`, `instructions` by
  class, `read`, `written`, `fault`: null, or its `kind`, `pc`, `text`).
* `memory`: the bytes of the entries of `memory`, one after another: every page of 4 KiB that the dispatch
  reached, code and arguments among them, as it was before.
* `writes`: those of `writes`: what memory is to hold afterwards.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from emulator.amdgpu.seams import AddressSpace, Dispatch, Extent, Outcome, PageFault, Shaders, WaveFault
from emulator.amdgpu.vram import Vram
from sdk.errors import InvalidInput, UsageError

FORMAT, VERSION = "towline gpu capture", 1
PAGE = 4096
LARGEST = 1 << 30
"""Bytes of a member that are unpacked at most."""
_TIME = (1980, 1, 1, 0, 0, 0)

Runs = Sequence[tuple[int, bytes]]
"""Addresses, and the bytes there."""


@dataclass(frozen=True, slots=True)
class Capture:
    """A dispatch that has been recorded.

    Attributes:
        chip: name of the GPU.
        kernel: its name, if it has one.
        dispatch: what was asked for.
        memory: what was in the pages that it reached, before; by rising address, runs that do not touch.
        outcome: what it did; its writes are what memory held afterwards.
    """

    chip: str
    kernel: str
    dispatch: Dispatch
    memory: Runs
    outcome: Outcome


class _Recorder:
    """Memory that notes each page when it is first reached; implements `seams.AddressSpace`."""

    def __init__(self, memory: AddressSpace) -> None:
        self._memory = memory
        self.pages: dict[int, bytes] = {}

    def translate(self, address: int, *, write: bool = False) -> Extent:
        """One page at a time, so that none is missed."""
        extent = self._memory.translate(address, write=write)
        start = address - address % PAGE
        low, high = max(extent.start, start), min(extent.end, start + PAGE)
        if start not in self.pages:
            self.pages[start] = self._memory.read(low, high - low).rjust(start + PAGE - low, b"\0")
        return replace(extent, start=low, end=high, target=extent.target + low - extent.start)

    def read(self, address: int, size: int) -> bytes:
        for page in range(address - address % PAGE, address + size, PAGE):
            self.translate(max(page, address))
        return self._memory.read(address, size)

    def write(self, address: int, data: bytes) -> None:
        self._memory.write(address, data)


class Capturing:
    """Shader engines that hand out a capture of every dispatch; implements `seams.Shaders`.

    Args:
        shaders: that run it.
        chip: name of the GPU.
        keep: gets each capture.
        name: of the kernel at an address.
    """

    def __init__(
        self,
        shaders: Shaders,
        chip: str,
        keep: Callable[[Capture], None],
        name: Callable[[int], str] = hex,
    ) -> None:
        self._shaders = shaders
        self._chip = chip
        self._keep = keep
        self._name = name

    def run(self, dispatch: Dispatch, memory: AddressSpace) -> Outcome:
        """See `seams.Shaders`."""
        recorder = _Recorder(memory)
        outcome = self._shaders.run(dispatch, recorder)
        name = self._name(dispatch.code)
        self._keep(Capture(self._chip, name, dispatch, _joined(recorder.pages), outcome))
        return outcome


def _joined(pages: Mapping[int, bytes]) -> list[tuple[int, bytes]]:
    """Runs of pages that follow one another."""
    runs: list[tuple[int, bytearray]] = []
    for address in sorted(pages):
        if runs and runs[-1][0] + len(runs[-1][1]) == address:
            runs[-1][1].extend(pages[address])
        else:
            runs.append((address, bytearray(pages[address])))
    return [(address, bytes(data)) for address, data in runs]


class _Replayed:
    """The memory of a capture, in VRAM of its own; implements `seams.AddressSpace`."""

    def __init__(self, runs: Runs) -> None:
        self.vram = Vram(max(sum(len(data) for _, data in runs), PAGE))
        self._starts = [address for address, _ in runs]
        self._extents = []
        place = 0
        for address, data in runs:
            self.vram.write(place, data)
            self._extents.append(Extent(address, address + len(data), place, False, True, True))
            place += len(data)

    def translate(self, address: int, *, write: bool = False) -> Extent:
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._extents[index].end:
            raise PageFault(address, write=write, reason="the capture has no such memory")
        return self._extents[index]

    def read(self, address: int, size: int) -> bytes:
        extent = self.translate(address)
        if address + size > extent.end:
            raise PageFault(extent.end, write=False, reason="the capture has no such memory")
        return self.vram.read(extent.target + address - extent.start, size)

    def write(self, address: int, data: bytes) -> None:
        extent = self.translate(address, write=True)
        if address + len(data) > extent.end:
            raise PageFault(extent.end, write=True, reason="the capture has no such memory")
        self.vram.write(extent.target + address - extent.start, data)


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay did.

    Attributes:
        outcome: of the dispatch.
        differences: addresses of bytes where it left another value than the recorded run.
    """

    outcome: Outcome
    differences: tuple[int, ...]


def replay(capture: Capture) -> Replay:
    """Run a capture in memory of its own.

    Raises:
        InvalidInput: its chip is unknown.
        EnvironmentMissing: llvmlite, libLLVM or the C compiler is missing.
    """
    from emulator.amdgpu.diagnosis import Diagnosis
    from emulator.amdgpu.isa.executor import Executor
    from usbgpu.amd.facts.chips import CHIPS

    if capture.chip not in CHIPS:
        raise InvalidInput(
            f"is of GPU {capture.chip!r}, which is not emulated", hint=f"GPUs: {', '.join(CHIPS)}"
        )
    memory = _Replayed(capture.memory)
    executor = Executor(CHIPS[capture.chip], memory.vram, Diagnosis(lambda: 0))
    outcome = executor.run(capture.dispatch, memory)
    different = []
    for address, size in ((address, len(data)) for address, data in capture.memory):
        before = memory.read(address, size)
        left = _after(address, before, capture.outcome.writes) != _after(address, before, outcome.writes)
        different += [address + int(place) for place in np.flatnonzero(left)]
    return Replay(outcome, tuple(different))


def _after(address: int, before: bytes, writes: Runs) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Memory at an address with what a dispatch wrote."""
    after = np.frombuffer(before, np.uint8).copy()
    for start, data in writes:
        low, high = max(start, address), min(start + len(data), address + len(before))
        if low < high:
            after[low - address : high - address] = np.frombuffer(data, np.uint8)[low - start : high - start]
    return after


# -- files ----------------------------------------------------------------------------------------------


def pack(capture: Capture) -> bytes:
    """A capture as a file; the same capture gives the same bytes."""
    outcome, fault = capture.outcome, capture.outcome.fault
    document = {
        "format": FORMAT,
        "version": VERSION,
        "chip": capture.chip,
        "kernel": capture.kernel,
        "dispatch": asdict(capture.dispatch),
        "memory": [{"address": address, "size": len(data)} for address, data in capture.memory],
        "writes": [{"address": address, "size": len(data)} for address, data in outcome.writes],
        "outcome": {
            "waves": outcome.waves,
            "instructions": dict(outcome.instructions),
            "read": outcome.read,
            "written": outcome.written,
            "fault": None if fault is None else {"kind": fault.kind, "pc": fault.pc, "text": fault.text},
        },
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (
            ("capture.json", json.dumps(document, indent=1).encode()),
            ("memory", b"".join(data for _, data in capture.memory)),
            ("writes", b"".join(data for _, data in outcome.writes)),
        ):
            archive.writestr(zipfile.ZipInfo(name, _TIME), data, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def load(path: Path) -> Capture:
    """Read a file. Raises UsageError if it cannot be read, InvalidInput if it is not a whole capture."""
    try:
        return unpack(path.read_bytes())
    except FileNotFoundError:
        raise UsageError("no such file", where=str(path)) from None
    except OSError as problem:
        raise UsageError(f"cannot be read: {problem.strerror}", where=str(path)) from None
    except InvalidInput as problem:
        raise InvalidInput(problem.message, where=str(path), hint=problem.hint) from None


def unpack(data: bytes) -> Capture:
    """A capture from a file's bytes. Raises InvalidInput."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {}
            for name in ("capture.json", "memory", "writes"):
                if archive.getinfo(name).file_size > LARGEST:
                    raise InvalidInput(f"its {name} has more than {LARGEST} bytes")
                members[name] = archive.read(name)
        document = json.loads(members["capture.json"])
        if document["format"] != FORMAT:
            raise InvalidInput("is not a capture")
        if document["version"] != VERSION:
            raise InvalidInput(f"is a capture of version {document['version']}, not {VERSION}")
        return _capture(document, members)
    except InvalidInput:
        raise
    except (
        zipfile.BadZipFile, KeyError, ValueError, TypeError, AttributeError, EOFError, RuntimeError,
        NotImplementedError, RecursionError, OverflowError, zlib.error,
    ) as problem:  # fmt: skip
        what = f"{type(problem).__name__}: {problem}"
        hint = "captures are written by `towline gpu capture`"
        raise InvalidInput(f"is not a capture, or is damaged ({what})", hint=hint) from None


def _capture(document: Mapping[str, Any], members: Mapping[str, bytes]) -> Capture:
    fields: dict[str, Any] = {name: _field(name, value) for name, value in document["dispatch"].items()}
    dispatch = Dispatch(**fields)
    if len(dispatch.groups) != 3 or len(dispatch.threads) != 3:
        raise ValueError("groups and threads must have three numbers each")
    memory = _runs(document["memory"], members["memory"])
    for (address, data), (following, _) in pairwise(memory):
        if address + len(data) > following:
            raise ValueError("memory overlaps")
    done = document["outcome"]
    fault = None
    if done["fault"] is not None:
        fault = WaveFault(str(done["fault"]["kind"]), int(done["fault"]["pc"]), str(done["fault"]["text"]))
    outcome = Outcome(
        int(done["waves"]),
        {str(name): int(count) for name, count in done["instructions"].items()},
        int(done["read"]),
        int(done["written"]),
        _runs(document["writes"], members["writes"]),
        fault,
    )
    return Capture(str(document["chip"]), str(document["kernel"]), dispatch, memory, outcome)


def _field(name: str, value: Any) -> int | tuple[int, ...]:
    """A field of a dispatch: one or several registers, or an address."""
    several = name in ("groups", "threads", "user_data")
    numbers = tuple(value) if isinstance(value, list) else (value,)
    bits = 64 if name in ("code", "scratch") else 32
    if isinstance(value, list) != several or not all(
        type(number) is int and 0 <= number < 1 << bits for number in numbers
    ):
        raise ValueError(f"{value!r} is not the value of {name}")
    return numbers if several else numbers[0]


def _runs(entries: Sequence[Mapping[str, int]], data: bytes) -> list[tuple[int, bytes]]:
    runs, place = [], 0
    for entry in entries:
        address, size = entry["address"], entry["size"]
        if type(address) is not int or type(size) is not int or not 0 < size <= len(data) - place:
            raise ValueError("memory is cut short")
        if not 0 <= address <= (1 << 64) - size:
            raise ValueError(f"{address!r} is not an address")
        runs.append((address, data[place : place + size]))
        place += size
    return runs
