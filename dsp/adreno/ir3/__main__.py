"""The child that `child` starts: one kernel per line on stdin, its figures on a line of stdout, both JSON."""

import json
import sys
from dataclasses import asdict

from dsp.adreno.ir3 import kernels, listing
from dsp.adreno.ir3.child import Figures
from dsp.adreno.ir3.mesa import Mesa
from dsp.adreno.ir3.shader import Compiled, check_layout
from sdk.errors import InternalError, TowlineError


def measured(made: Compiled) -> Figures:
    """The figures of machine code.

    Raises:
        InternalError: our count of the disassembly differs from ir3's own: one of them is misread.
    """
    info, loops = made.info, listing.by_loop(listing.read(made.listing))
    ours = sum(one.slots for one in loops), sum(one.nops for one in loops)
    if ours != (info.instructions, info.nops):
        reported = info.instructions, info.nops
        raise InternalError(f"the disassembly has {ours} slots and nops, and ir3 reports {reported}")
    return Figures(
        loops,
        registers=info.max_reg + 1,
        waves=info.max_waves,
        spills=info.stp + info.ldp,
        ss=info.ss,
        sy=info.sy,
        stalls=info.sstall + info.systall,
        operations=made.operations,
    )


def main() -> int:
    """Exit status 1, with the reason on stderr, if a kernel is refused."""
    try:
        compilers: dict[int, Mesa] = {}
        for line in sys.stdin:
            one = json.loads(line)
            if one["part"] not in compilers:
                compilers[one["part"]] = Mesa(one["part"])
                check_layout(compilers[one["part"]])
            made = kernels.compiled(
                compilers[one["part"]], one["function"], one["constants"], tuple(one["local"])
            )
            print(json.dumps(asdict(measured(made))), flush=True)
    except TowlineError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyError as error:
        print(f"the kernel has no {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
