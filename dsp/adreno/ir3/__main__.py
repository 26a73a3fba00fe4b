"""The child that `child` starts: a kernel a line on stdin, its figures a line on stdout, both JSON."""

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
        InternalError: what we count in the disassembly is not what ir3 says: one of them is misread.
    """
    info, depths = made.info, listing.by_depth(listing.read(made.listing))
    ours = sum(one.slots for one in depths), sum(one.nops for one in depths)
    if ours != (info.instructions, info.nops):
        raise InternalError(f"{ours} slots and nops are counted, and ir3 says {info.instructions, info.nops}")
    return Figures(
        depths,
        registers=info.max_reg + 1,
        waves=info.max_waves,
        spills=info.stp + info.ldp,
        ss=info.ss,
        sy=info.sy,
        stalls=info.sstall + info.systall,
        operations=made.operations,
    )


def main() -> int:
    """Status 1, and the reason on stderr, for what is refused."""
    try:
        mesa = Mesa()
        check_layout(mesa)
        for line in sys.stdin:
            one = json.loads(line)
            made = kernels.compiled(mesa, one["function"], one["constants"], tuple(one["local"]))
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
