"""`towline gpu`: the AMD GPU behind a bridge, its kernels, and what the emulated card does with them.

Each verb is a module of its own that declares what `towline.cli.Verb` requires.
"""

from __future__ import annotations

import argparse
from typing import Any

from sdk.report import Console, Result
from towline.cli import gpu_capture, gpu_disasm, gpu_doctor, gpu_info, gpu_replay, gpu_stress, gpu_top
from towline.cli.options import add_common_again, add_verb

EXAMPLE = """towline gpu info
towline gpu top
towline gpu stress --for 60s --device usb
towline gpu disasm kernel.co
towline gpu capture gemm_dot4 --chip gfx1201 -o gemm.capture
towline gpu replay gemm.capture"""

MODULES = {
    "info": gpu_info,
    "top": gpu_top,
    "doctor": gpu_doctor,
    "stress": gpu_stress,
    "disasm": gpu_disasm,
    "capture": gpu_capture,
    "replay": gpu_replay,
}
"""The verbs."""


def configure(parser: argparse.ArgumentParser) -> None:
    nouns = parser.add_subparsers(metavar="VERB", title="verbs", required=True, dest="gpu_verb")
    for name, module in MODULES.items():
        verb = add_verb(nouns, name, module.SUMMARY, module.EXAMPLE)
        module.configure(verb)
        add_common_again(verb)


def run(args: argparse.Namespace, console: Console) -> Result:
    module: Any = MODULES[args.gpu_verb]
    result: Result = module.run(args, console)
    return result
