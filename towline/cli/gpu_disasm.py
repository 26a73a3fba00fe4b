"""`towline gpu disasm`: the kernels of an AMDGPU code object."""

from __future__ import annotations

import argparse
from pathlib import Path

from sdk.errors import InvalidInput, UsageError
from sdk.report import Console, Result
from towline.cli import graphs

SUMMARY = "list the kernels of a code object: descriptor, labelled blocks, classes, what is not implemented"
HINT = "give a linked ELF file for gfx11 or gfx12, as clang --target=amdgcn-amd-amdhsa writes"
EXAMPLE = "towline gpu disasm kernel.co --kernel gemm_dot4"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="an AMDGPU code object: a linked ELF file (.co, .hsaco)")
    parser.add_argument("--kernel", metavar="NAME", help="only this one")
    graphs.add_graph(parser, "the blocks of a kernel")


def run(args: argparse.Namespace, console: Console) -> Result:
    from emulator.amdgpu import code_object, listing

    graphs.check(args)
    try:
        code = code_object.parse(Path(args.file).read_bytes())
        listed = listing.kernels(code, args.kernel)
    except OSError as problem:
        raise UsageError(f"cannot be read: {problem.strerror}", where=args.file) from None
    except InvalidInput as problem:
        where = f"{args.file}: {problem.where}" if problem.where else args.file
        raise InvalidInput(problem.message, where=where, hint=problem.hint or HINT) from None
    if args.graph is not None:
        if len(listed) != 1:
            names = ", ".join(one.kernel.name for one in listed)
            raise UsageError("--graph draws one kernel: name it with --kernel", hint=f"kernels: {names}")
        return Result(*graphs.written(args.graph, graphs.kernel(listed[0].kernel.name, listed[0])))
    document = {
        "file": args.file,
        "chip": code.chip,
        "kernels": [listing.as_data(one) for one in listed] if console.json else [],
    }
    text = "\n".join(map(listing.as_text, listed))
    return Result(document, f"; {args.file}: {code.chip}\n\n{text}" if not console.json else "")
