"""What the phone's program says about its DSP, in the words of a session on it (`dsp.hexagon.fastrpc`)."""

from __future__ import annotations

import os

from dsp.hexagon.fastrpc.channel import DspError
from dsp.hexagon.fastrpc.domain import (
    NODES,
    Choice,
    no_node,
    no_shell,
    not_opened,
    refused_by_kernel,
    refused_by_loader,
    remedy,
)
from sdk.errors import DeviceFailed, TowlineError
from towline.phone.job import ANY

KINDS = ("absent", "denied", "shell", "kernel", "dsp", "loader")
"""runner/runner.h has their fields."""


def refusal(kind: str, text: str, choice: Choice) -> TowlineError:
    """The error of a refusal; its `where` is a node or a DSP.

    Args:
        kind: one of `KINDS`.
        text: the fields, a tab between them.
        choice: which DSP was asked for.
    """
    try:
        return _worded(kind, text.split("\t"), choice)
    except (ValueError, KeyError):
        return DeviceFailed(f"its program's refusal has an unknown form: {kind}: {text!r}")


def _worded(kind: str, fields: list[str], choice: Choice) -> TowlineError:
    if kind == "absent":
        return no_node(choice)
    if kind == "denied":
        rows = zip(fields[::3], fields[1::3], fields[2::3], strict=True)
        return not_opened([(path, NODES[driver], int(number)) for driver, number, path in rows])
    if kind == "shell":
        domain, process = fields
        signed = None if int(process) == ANY else process == "1"
        return no_shell(domain, signed, "", "here to its directory on the phone: push passes it on")
    if kind == "kernel":
        driver, domain, number, shell_bytes, step, more = fields
        reason = os.strerror(int(number)) + (f": {more}" if more else "")
        return refused_by_kernel(NODES[driver], domain, step, int(number), reason, int(shell_bytes))
    domain, signed_process, number, text = fields
    hint = remedy(signed=signed_process == "1")
    if kind == "loader":
        return refused_by_loader(domain, int(number), text, hint)
    return DeviceFailed(DspError(int(number), text).message, where=domain, hint=hint)
