"""`towline firmware size`: the size of each module of the bridge's firmware, and the depth of its stack."""

from __future__ import annotations

import argparse

from sdk.report import Console, Result, table

SUMMARY = "bytes of code and memory by module of the firmware, and the bound of its stack"
EXAMPLE = "towline firmware size"


def configure(parser: argparse.ArgumentParser) -> None:
    del parser  # nothing to choose


def run(args: argparse.Namespace, console: Console) -> Result:
    from emulator.mcs51.stack import bound
    from firmware.build import build, sizes

    built = build()
    rows = sizes(built)
    stack = bound(built)
    total = ("total", *(sum(getattr(row, kind) for row in rows) for kind in ("code", "xram", "iram")))
    document = {
        "code_bytes": total[1],
        "modules": [
            {"module": row.module, "code": row.code, "xram": row.xram, "iram": row.iram} for row in rows
        ],
        "stack": {
            "start": stack.start,
            "bytes": stack.bytes,
            "spare": stack.spare,
            "main": {"bytes": stack.main.bytes, "path": stack.main.path},
            "interrupt": {"bytes": stack.interrupt.bytes, "path": stack.interrupt.path},
        },
    }
    cells = [*((row.module, row.code, row.xram, row.iram) for row in rows), total]
    text = table(("module", "code", "XRAM", "IRAM"), cells)
    text += (
        f"\n\nstack: at most {stack.bytes} bytes from {stack.start:#04x}, {stack.spare} to spare"
        f"\n  {stack.main.bytes} of main: {_short(stack.main.path)}"
        f"\n  {stack.interrupt.bytes} of the interrupt handler: {_short(stack.interrupt.path)}"
        "\na call through a pointer counts as one to any function that may be in it"
    )
    return Result(document, text)


def _short(path: tuple[str, ...]) -> str:
    """The functions of C on the way; the compiler's begin with an underscore."""
    return " > ".join(name for name in path if not name.startswith("_"))
