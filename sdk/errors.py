"""One tree for everything Towline refuses or fails at.

An error says what happened, where (a node, a file, an address, a request) and what to do about it. The
CLI prints it without a traceback and turns its class into the exit code; `--json` prints `code`,
`message` and `hint`. A Python exception outside this tree is a bug in Towline.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple


class TowlineError(Exception):
    """Base of the tree.

    Args:
        message: what happened, in one sentence without a trailing full stop.
        where: the node, file, address or request concerned; printed before the message.
        hint: what the user can do about it.
    """

    code: ClassVar[str] = "failed"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class UsageError(TowlineError):
    """The command line, or an argument of a public function, is invalid."""

    code = "usage"
    exit_code = 2


class EnvironmentMissing(TowlineError):
    """A tool, a library, a device or a package extra is missing; the hint is the install command."""

    code = "environment"
    exit_code = 3


class ToolMissing(EnvironmentMissing):
    """An external program was not found, or is too old."""

    code = "tool-missing"


class DeviceMissing(EnvironmentMissing):
    """No device answers to the device string."""

    code = "device-missing"


class InvalidModel(TowlineError):
    """The model file is damaged or contradicts itself."""

    code = "invalid-model"


class Refusal(NamedTuple):
    """A node that is not supported.

    Attributes:
        name: the node's; a graph output's, where that is what is refused.
        op: its operator; "" of an output.
        reason, hint: what is wrong, and what to do.
    """

    name: str
    op: str
    reason: str
    hint: str | None


class Unsupported(TowlineError):
    """The model is sound, but holds something that the importer or the target does not support.

    Attributes:
        refusals: every node that is concerned, where they were looked for.
    """

    code = "unsupported"

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        refusals: tuple[Refusal, ...] = (),
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.refusals = refusals


class InvalidInput(TowlineError):
    """A picture, an array or a calibration set that cannot be used; also wrong names, shapes, dtypes."""

    code = "invalid-input"


class InvalidArtifact(TowlineError):
    """A `.tow` that is cut short, altered, of another schema, or not a .tow at all."""

    code = "invalid-artifact"


class BuildFailed(TowlineError):
    """A compiler or linker rejected its input."""

    code = "build-failed"


class DeviceFailed(TowlineError):
    """The device stopped answering, or gave an invalid answer."""

    code = "device-failed"


class CheckFailed(TowlineError):
    """A comparison with the reference or with a baseline failed."""

    code = "check-failed"


class OutputFailed(TowlineError):
    """A result could not be written (disk full, no permission); nothing half-written is left behind."""

    code = "output-failed"


class InternalError(TowlineError):
    """An invariant of Towline itself is violated: please report it."""

    code = "internal"
