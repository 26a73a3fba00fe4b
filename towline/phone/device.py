"""The phone as a device: what a `Session` gives it runs there, by the program of `build`."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shlex
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path

from dsp.c.session import decode, encode_inputs, out_of_range
from dsp.hexagon import tensors
from dsp.hexagon.fastrpc.domain import LIBRARY_PATH, NODES, Choice, ConnectionLost
from dsp.hexagon.fastrpc.session import ALONE, NO_VOTE, SHARED
from dsp.hexagon.fastrpc.uapi import DOMAINS
from dsp.hexagon.plan import HexagonPlan
from sdk import files
from sdk.errors import (
    DeviceFailed,
    DeviceMissing,
    InvalidArtifact,
    OutputFailed,
    TowlineError,
    Unsupported,
)
from sdk.graph import Array
from sdk.target import Profile, Program
from towline.phone.build import runner
from towline.phone.job import ANY, FOR_C, FOR_DSP, Done, Job
from towline.phone.link import ENDED, Link, Said, attempt, ended
from towline.phone.refusals import KINDS, refusal

log = logging.getLogger(__name__)

PROCESSORS = ("aarch64", "arm64", "armv8l")
"""What `uname -m` says on a 64-bit Arm; armv8l where only the shell has 32 bits."""


class Phone:
    """A phone that a network can be sent to; a context manager, at whose end its files are removed there.

    Args:
        link: the way to it.
        runs: timed inferences of each input.
        traced: whether every layer's output is fetched too.
        profiled: whether each layer is timed too.
        keep: leave the files on the phone: what is there is not sent again.
        choice: which of its DSPs.

    Attributes:
        name: what the phone says that it is.
        done: results, in order.
        sent: (name, bytes) of the files that were sent.

    Raises:
        DeviceMissing: it is no 64-bit Arm; or as `Link.shell`.
    """

    def __init__(
        self,
        link: Link,
        *,
        runs: int = 1,
        traced: bool = False,
        profiled: bool = False,
        keep: bool = False,
        choice: Choice | None = None,
    ) -> None:
        self.link = link
        self.runs, self.traced, self.profiled = runs, traced, profiled
        self.done: list[Done] = []
        self.sent: list[tuple[str, int]] = []
        self.choice = choice or Choice()
        self._keep = keep
        self._intact: set[str] = set()  # sent, or seen to be what was sent
        machine, self._folder, self.name = self._probe()
        if machine not in PROCESSORS:
            raise DeviceMissing(
                f"its processor is {machine}; the program that runs networks is for 64-bit Arm (aarch64)",
                where=link.where,
                hint="use a 64-bit system on the phone",
            )
        self._there = self._look()

    def load(self, program: Program) -> PhoneSession:
        """A program, sent when it is first run. Raises as `build.runner`; Unsupported: another target."""
        return PhoneSession(self, program)

    def close(self) -> None:
        """Remove what was sent, unless it is kept."""
        if not self._keep:
            attempt(lambda: self.link.shell(f"rm -rf {self._folder}"))

    def __enter__(self) -> Phone:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- one job ----------------------------------------------------------------------------------------

    def run(self, program: Path, job: Job) -> Done:
        """Send what is not there yet, run it, and fetch the result.

        Raises:
            OutputFailed: there is no room on the phone.
            DeviceFailed, DeviceMissing: the connection ended, or the phone's program failed.
        """
        content = program.read_bytes()
        image = hashlib.sha256(content).hexdigest()
        token = secrets.token_hex(8)
        plan, result = f"plan-{token}", f"result-{token}"
        for name, data in {image: content, **job.files(), plan: job.plan()}.items():
            # The program looks at the digests of all files but its own.
            if self._there.get(name) != len(data) or (name == image and not self._is_intact(image)):
                self._send(name, data)
        folder = self._folder
        clean = "" if self._keep else f"; [ $s = {ENDED} ] && rm -rf {folder}"
        # adb and ssh do not pass variables on.
        own = shlex.quote(os.environ.get(LIBRARY_PATH, ""))
        given = f"{LIBRARY_PATH}={own} " if LIBRARY_PATH in os.environ and job.engine == FOR_DSP else ""
        # A shell that dies with the connection could not clean up.
        start = f"trap '' HUP; cd {folder} && chmod 700 {image} && {given}./{image} {plan} {result}"
        try:
            self._require_done(self.link.shell(f"{start}; s=$?{clean}; exit $s", timeout=None))
            done = Done.of(self._fetch(result), job)
        finally:
            if self._keep:
                attempt(lambda: self.link.shell(f"rm -f {folder}/{plan} {folder}/{result}"))
        self.done.append(done)
        return done

    def _require_done(self, said: Said) -> None:
        where = self.link.where
        if said.status is None or said.status == ENDED:
            raise ended(self.link, said)
        lines = [line for line in said.out.splitlines() if line.startswith("towline-runner ")]
        last = lines[-1].removeprefix("towline-runner ") if lines else ""
        if last == "done" and said.status == 0:
            return
        if last.startswith("error "):
            kind, _, text = last.removeprefix("error ").partition(": ")
            raise self._error(kind, text)
        if said.status > 128:
            raise DeviceFailed(
                f"the phone's program crashed (signal {said.status - 128})",
                where=where,
                hint="this is a bug: please report it with the network and the phone's name",
            )
        raise DeviceFailed(
            f"the phone's program did not start (exit status {said.status}): {said.err.strip()[-300:]}",
            where=where,
            hint="the directory must allow programs to be executed (no noexec)",
        )

    def _error(self, kind: str, text: str) -> TowlineError:
        where = self.link.where
        if kind == "damaged":
            attempt(lambda: self.link.shell(f"rm -rf {self._folder}"))  # else it would stay with --keep
            return DeviceFailed(
                f"what was sent is damaged on the phone: {text}",
                where=where,
                hint="push again: it was removed; if it persists, the phone's memory is faulty",
            )
        if kind == "room":
            return OutputFailed(f"the phone has no room for the result: {text}", where=where, hint=ROOM)
        if kind in KINDS:
            refused = refusal(kind, text, self.choice)
            refused.where = f"{where}: {refused.where}" if refused.where else where
            return refused
        hint = {"memory": "close programs on the phone", "contexts": "leave --contexts 2 out"}.get(kind)
        return DeviceFailed(text, where=where, hint=hint or "this is a bug: please report it")

    # -- files ------------------------------------------------------------------------------------------

    def _probe(self) -> tuple[str, str, str]:
        """(processor, directory, name) of the phone."""
        said = self._require(
            f'umask 077; mkdir -p {self.link.home} && cd {self.link.home} && echo "towline:$(uname -m)" && '
            'echo "towline:$(pwd)" && echo "towline:$(getprop ro.product.model 2>/dev/null || '
            "tr -d '\\000' 2>/dev/null < /proc/device-tree/model || hostname)\"",
            "its directory cannot be made",
        )
        found = [line.removeprefix("towline:") for line in said.splitlines() if line.startswith("towline:")]
        if len(found) != 3:
            raise DeviceFailed("the answer of its shell has an unknown form", where=self.link.where)
        return found[0].strip(), shlex.quote(found[1]), found[2].strip() or found[0]

    def _look(self) -> dict[str, int]:
        """Bytes of the files that are there from earlier, by name; what a cut push left is removed."""
        said = self._require(
            f"cd {self._folder} && rm -f plan-* result-* *.part; "
            'for f in *; do [ -f "$f" ] && echo "towline:$f $(wc -c < $f)"; done; true',
            "its directory cannot be read",
        )
        rows = [line.removeprefix("towline:").split() for line in said.splitlines() if "towline:" in line]
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}

    def _is_intact(self, name: str) -> bool:
        """Whether a file there has the SHA-256 that is its name; a phone without sha256sum cannot say it."""
        if name not in self._intact:
            said = self.link.shell(f"cd {self._folder} && sha256sum {name}")
            sums = [line.split()[:1] for line in said.out.splitlines()]  # a greeting may be before them
            if said.status == 0 and [name] in sums:
                self._intact.add(name)
        return name in self._intact

    def _require(self, script: str, failure: str) -> str:
        said = self.link.shell(script)
        if said.status is None:
            raise ended(self.link, said)
        if said.status:
            raise self._refused(failure, said.err or said.out)
        return said.out

    def _refused(self, what: str, text: str) -> TowlineError:
        reason = text.strip()[-300:]
        if "no space" in text.lower() or "quota" in text.lower():
            return OutputFailed(f"{what}: {reason}", where=self.link.where, hint=ROOM)
        return DeviceFailed(f"{what}: {reason}", where=self.link.where, hint="docs/phone.md, When it refuses")

    def _send(self, name: str, data: bytes | memoryview) -> None:
        # Under another name until it is whole: with --keep an interrupted file would be taken for sent.
        place = f"{self._folder}/{name}"
        with files.scratch_directory() as scratch:
            files.write(scratch / name, bytes(data))
            problem = self.link.send(scratch / name, f"{place}.part")
        if problem:
            attempt(lambda: self.link.shell(f"rm -f {place}.part"))
            raise self._refused(f"{len(data):,} bytes could not be sent", problem)
        self._require(f"mv {place}.part {place}", "a file could not be named")
        self._there[name] = len(data)
        self._intact.add(name)
        self.sent.append((name, len(data)))

    def _fetch(self, name: str) -> bytes:
        with files.scratch_directory() as scratch:
            if problem := self.link.fetch(f"{self._folder}/{name}", scratch / name):
                raise self._refused("the result could not be fetched", problem)
            return (scratch / name).read_bytes()


ROOM = "free some space on the phone: /data for adb, the home directory for ssh"


class PhoneSession:
    """A program on a phone (`sdk.target.DeviceSession`): each new input is one job."""

    def __init__(self, phone: Phone, program: Program) -> None:
        self._phone = phone
        self._graph = graph = program.graph
        self._last: tuple[bytes, Done] | None = None
        steps = [node.output for node in graph.nodes]
        outputs = _bytes(program, graph.outputs)
        self._engine, code, trace, self._layers = (
            FOR_C,
            b"",
            _bytes(program, steps),
            [n.name for n in graph.nodes],
        )
        self._encode: Callable[[Mapping[str, Array]], bytes] = lambda inputs: encode_inputs(graph, inputs)
        self._plan: HexagonPlan | None = None
        self._schedule, self._contexts = b"", 0
        self._noted: set[str] = set()
        if program.target.startswith("hexagon-"):
            self._plan = plan = HexagonPlan.of(program)
            if "network.so" not in program.code:
                raise InvalidArtifact(
                    "the program's code for a DSP is incomplete", hint="compile the model again"
                )
            self._engine, code = FOR_DSP, program.code["network.so"]
            trace = sum(layer.trace_bytes for layer in plan.layers) + outputs
            self._schedule = plan.schedule(phone.choice.contexts)
            self._contexts = (phone.choice.contexts or ANY) if plan.reports else 0
            self._layers = [layer.name for layer in plan.layers]
            self._encode = lambda inputs: tensors.encode_inputs(graph, inputs)
        elif program.target != "c":
            raise Unsupported(
                f"push runs networks for the DSP and for the target c, not for {program.target}",
                hint="compile the model with --target hexagon-v65 or --target c",
            )
        self._code, self._output_bytes, self._trace_bytes = code, outputs, trace
        self._weights = program.weights.buffer()
        self._runner = runner(program)

    @property
    def layers(self) -> list[str]:
        """Names of the layers that are timed."""
        return self._layers

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        read = BytesIO(self._job(inputs).output).read
        if self._plan is not None:
            return tensors.decode_outputs(self._graph, read)
        return {name: self._decoded(name, read) for name in self._graph.outputs}

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        read = BytesIO(self._job(inputs).trace).read
        if self._plan is not None:
            return tensors.decode_trace(self._plan, self._graph, read)
        return {node.output: self._decoded(node.output, read) for node in self._graph.nodes}

    def profile(self) -> Profile:
        raise Unsupported("a phone's layers are timed with the inferences", hint="towline push --times FILE")

    def close(self) -> None:
        """Nothing: the phone keeps no process."""

    def _decoded(self, name: str, read: Callable[[int], bytes]) -> Array:
        tensor = self._graph.tensor(name)
        return decode(read(tensor.nbytes), tensor)

    def _job(self, inputs: Mapping[str, Array]) -> Done:
        phone, data = self._phone, self._encode(inputs)
        # A check looks at the layers of the inference that was just made.
        if self._last is not None and self._last[0] == data:
            return self._last[1]
        choice = phone.choice
        job = Job(
            engine=self._engine,
            runs=phone.runs,
            layers=len(self._layers) if phone.profiled else 0,
            output_bytes=self._output_bytes,
            trace_bytes=self._trace_bytes if phone.traced else 0,
            code=self._code,
            weights=self._weights,
            input=data,
            domain=ANY if choice.domain is None else DOMAINS[choice.domain],
            process=ANY if choice.signed is None else int(choice.signed),
            driver=ANY if choice.node is None else [*NODES].index(choice.node),
            contexts=self._contexts,
            clock=self._contexts != 0,
            schedule=self._schedule,
        )
        try:
            done = phone.run(self._runner, job)
        except ConnectionLost as lost:
            log.warning("%s; connecting once more", lost)
            done = phone.run(self._runner, job)
        if done.failure is not None:
            step, index, limit = done.failure
            raise out_of_range(self._graph.nodes[step].name, index, limit)
        self._note(done)
        self._last = (data, done)
        return done

    def _note(self, done: Done) -> None:
        """Say what the DSP did not give, once."""
        notes = []
        if self._schedule and done.contexts == 1:
            notes.append(ALONE)
        if min(done.run_contexts) < done.contexts:
            notes.append(SHARED)
        if done.clock:
            notes.append(NO_VOTE % (done.clock & 0xFFFF_FFFF))
        for note in notes:
            if note not in self._noted:
                self._noted.add(note)
                log.warning("%s: %s", self._phone.link.where, note)


def _bytes(program: Program, names: tuple[str, ...] | list[str]) -> int:
    return sum(program.graph.tensor(name).nbytes for name in names)
