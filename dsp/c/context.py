"""What the lowerings of all nodes share: where tensors are, constants, and the C that is written so far."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sdk.arena import Blob, align
from sdk.errors import InternalError
from sdk.graph import Array, Graph, Node, Tensor

KERNELS = Path(__file__).parent / "kernels"

GRANULE = 16
"""Bytes to which buffers of plain tensors are aligned."""


@dataclass
class NodeCode:
    """The code of a node.

    Attributes:
        declarations, calls: C, in file scope and in order of execution.
    """

    node: Node
    declarations: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)


@dataclass
class Common:
    """What a network has once, its bodies of recurrences included.

    Attributes:
        blob: its constants.
        kernels: files of the kernels that it calls.
        functions: names of the functions that are written for it, by their text.
        declared: how many names of variables there are.
    """

    blob: Blob
    kernels: set[str] = field(default_factory=set)
    functions: dict[str, str] = field(default_factory=dict)
    declared: int = 0


class Context:
    """The state of a graph's lowering: of a network, or of the body of a recurrence.

    Attributes:
        scratch_at: offset in the arena of what a node needs while it runs.
        scratch_bytes: the most that any of them needs.
        code: of the node that is being lowered.
    """

    def __init__(self, graph: Graph, places: Mapping[str, str], scratch_at: int, common: Common) -> None:
        self.graph = graph
        self.common = common
        self.scratch_at = scratch_at
        self.scratch_bytes = 0
        self.code: NodeCode
        self._places = places
        self._scratch = 0

    def begin(self, node: Node) -> NodeCode:
        self.code = NodeCode(node)
        self._scratch = 0
        return self.code

    # -- tensors ----------------------------------------------------------------------------------------

    def tensors(self, node: Node) -> tuple[list[Tensor], Tensor]:
        """A node's inputs and its output."""
        return [self.graph.tensor(name) for name in node.inputs], self.graph.tensor(node.output)

    def at(self, name: str, skip: int = 0) -> str:
        """Where a tensor is, constant or not, or its byte `skip`: a C expression."""
        data = self.graph.tensor(name).data
        place = self._places[name] if data is None else self.constant(data)
        base, plus, offset = place.partition(" + ")
        return f"{base} + {int(offset or 0) + skip}" if plus or skip else place

    def data(self, node: Node, index: int) -> Array:
        """The elements of an input that is a constant."""
        data = self.graph.tensor(node.inputs[index]).data
        if data is None:
            raise InternalError(f"{node.inputs[index]} is not a constant", where=f"node {node.name}")
        return data

    def scratch(self, nbytes: int) -> str:
        """Memory for this node alone, while it runs: a C expression."""
        at = self.scratch_at + self._scratch
        self._scratch += align(nbytes, GRANULE)
        self.scratch_bytes = max(self.scratch_bytes, self._scratch)
        return f"arena + {at}"

    def floats(self, nbytes: int) -> str:
        """The same as a pointer to floats."""
        return f"(float *)(void *)({self.scratch(nbytes)})"

    def shorts(self, nbytes: int) -> str:
        """The same as a pointer to int16_t."""
        return f"(int16_t *)(void *)({self.scratch(nbytes)})"

    # -- constants --------------------------------------------------------------------------------------

    def constant(self, array: Array) -> str:
        """Where the elements of an array are: a C expression."""
        return f"weights + {self.table(array)}"

    def table(self, array: Array) -> int:
        """The same as an offset in the weights."""
        return self.common.blob.add(array)

    # -- C ----------------------------------------------------------------------------------------------

    def declare(self, struct: str, suffix: str, value: Any) -> str:
        name = f"{struct}{self.common.declared}"
        self.common.declared += 1
        self.code.declarations.append(f"static const struct {struct} {name}{suffix} = {initialiser(value)};")
        return name

    def function(self, name: str, text: str) -> str:
        """The name of a function; one with the same text as an earlier one is that one.

        Args:
            name: what its name begins with.
            text: C, with NAME in place of its name.
        """
        known = self.common.functions
        if text not in known:
            known[text] = f"{name}{len(known)}"
            self.code.declarations.append(text.replace("NAME", known[text]))
        return known[text]

    def include(self, file: str) -> None:
        """Make a file of the kernels part of the program."""
        self.common.kernels.add(file)

    def call(self, kernel: str, fields: Mapping[str, Any], *places: str) -> None:
        """A call of a kernel whose parameters are in a structure of its name.

        Args:
            kernel: its path within the kernels, without ".c".
            fields: of the structure.
            places: the other arguments.
        """
        self.direct(kernel, f"&{self.declare(kernel.rpartition('/')[2], '', fields)}", *places)

    def direct(self, kernel: str, *arguments: str) -> None:
        self.include(f"{kernel}.c")
        self.code.calls.append(f"{kernel.rpartition('/')[2]}({', '.join(arguments)});")


def initialiser(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f".{name} = {initialiser(item)}" for name, item in value.items()) + "}"
        case list() | tuple():
            return "{" + ", ".join(map(initialiser, value)) + "}"
        case bool():
            return str(int(value))
    return str(value)


def amalgamate(names: Sequence[str], folder: Path = KERNELS) -> str:
    """Files of a folder as one text; what they include comes before them, each file once."""
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        if name not in texts:
            text = (folder / name).read_text(encoding="ascii")
            for included in re.findall(r'^#include "(.+)"\n', text, re.MULTILINE):
                add(included)
            texts[name] = re.sub(r'^#include ".+"\n+', "", text, flags=re.MULTILINE)

    for name in names:
        add(name)
    return "\n".join(texts.values())
