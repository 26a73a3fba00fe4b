"""Generate itineraries.json from the LLVM whose headers are given:

    python -m dsp.hexagon.cycles /usr/lib/llvm-19/include /usr/lib/llvm-19/lib/libLLVM.so

Both come with Debian's llvm-19-dev. The same LLVM gives the same file.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from dsp.hexagon.cycles.interlocks import ITINERARIES, operands, pattern
from sdk import files
from sdk.report import dumps

VERSIONS = ("v65", "v66", "v68")
WORDS = 3_000_000
"""Random words; with them all instructions of the kernels are found."""

_PRINTED = re.compile(r"\t(.*)\n\|(.*)\n")
_VERSION = re.compile(r'LLVM_VERSION_STRING "([^"]+)"')


def generate(include: Path, library: Path) -> str:
    """The text of itineraries.json.

    Args:
        include: directory of LLVM's headers.
        library: libLLVM of the same release.
    """
    found = _VERSION.search((include / "llvm/Config/llvm-config.h").read_text())
    versions: dict[str, dict[str, list[str]]] = {}
    known: dict[str, str] = {}
    with files.scratch_directory() as directory:
        program = directory / "itineraries"
        source = ITINERARIES.with_suffix(".cpp")
        options = ("-O1", "-std=c++17", "-fno-rtti", f"-I{include}")
        subprocess.run(["g++", *options, "-o", program, source, library], check=True)
        for version in VERSIONS:
            features = f"+hvx{version},+hvx-length128b"
            command: list[str | Path] = [program, f"hexagon{version}", features, str(WORDS)]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            table: dict[str, list[str]] = {}
            for line, text in sorted(_PRINTED.findall(printed)):
                one, roles = pattern(line), _roles(line, text)
                if roles.strip() and known.get(one) != roles:
                    known[one] = roles
                    table.setdefault(roles, []).append(one)
            versions[version] = dict(sorted(table.items()))
    return dumps({"llvm": found[1] if found else "unknown", "versions": versions}) + "\n"


def _roles(line: str, text: str) -> str:
    by_register: dict[str, list[str]] = {}
    for part in text.rstrip(";").split(";"):
        register, _, role = part.partition("=")
        by_register.setdefault(register, []).append(role)
    return " ".join("+".join(by_register.get(register, ())) for register in operands(line))


if __name__ == "__main__":
    files.write(ITINERARIES, generate(Path(sys.argv[1]), Path(sys.argv[2])).encode())
