"""A model under onnxruntime, every tensor that a compiled network shares with it as an output.

Names are what connects them: importers keep those of the ONNX values. A tensor that the network holds and
the model does not (a step of a fused operator) has no counterpart, and the other way round.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Set
from typing import Any

from sdk.errors import UsageError
from sdk.graph import Array, Graph
from sdk.importers.onnx_file import is_quantized, read_onnx
from sdk.ort import onnxruntime_errors, quantized_session, session, with_outputs

SUFFIXES = ("_QuantizeLinear_Output", "_QuantizeLinear_Input", "_quantized", "_Quantized")
"""What quantisers append to a float tensor's name."""


class Oracle:
    """A model ready to run.

    Args:
        model: an onnx.ModelProto.
        names: tensor of the compiled network -> value of the model.
        where: the model's file, for errors.
        exact: whether it is quantised, and its sums must not saturate (`sdk.ort.quantized_session`).

    Attributes:
        names: as given.
        where: as given.
        outputs: the model's own outputs, in order.
    """

    def __init__(self, model: Any, names: Mapping[str, str], where: str, *, exact: bool) -> None:
        constants = {tensor.name for tensor in model.graph.initializer}
        self.names = dict(names)
        self.outputs = [value.name for value in model.graph.output]
        self._inputs = [value.name for value in model.graph.input if value.name not in constants]
        self.where = where
        wanted = [name for name in dict.fromkeys(names.values()) if name not in self._inputs]
        self._wanted = list(dict.fromkeys([*self.outputs, *wanted]))
        probed = with_outputs(model, wanted)
        with onnxruntime_errors("run the model", where):
            self._session = quantized_session(probed) if exact else session(probed)

    def run(self, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        """One inference.

        Args:
            feeds: the compiled network's inputs.

        Returns:
            Values by the network's tensor names, and the model's outputs by their own names.

        Raises:
            UsageError: the model has other inputs than the network.
            InvalidModel: onnxruntime refuses it.
        """
        if set(self._inputs) != set(feeds):
            raise UsageError(
                f"its inputs are {', '.join(self._inputs)}; the compiled network's are {', '.join(feeds)}",
                where=self.where,
                hint="give the models that the network was made from",
            )
        with onnxruntime_errors("run the model", self.where):
            results = self._session.run(self._wanted, dict(feeds))
        values = dict(feeds) | dict(zip(self._wanted, results, strict=True))
        outputs = {name: values[name] for name in self.outputs}
        return {tensor: values[name] for tensor, name in self.names.items()}, outputs


def quantized_oracle(path: str | os.PathLike[str], graph: Graph) -> Oracle:
    """The quantised model of a network's integer body.

    Raises:
        UsageError: no such file, or the model is float.
        InvalidModel: it cannot be read or run.
        EnvironmentMissing: onnx or onnxruntime is not installed.
    """
    where = os.fspath(path)
    model = read_onnx(path)
    if not is_quantized(model):
        raise UsageError("is a float model", where=where, hint="pass float models with --float")
    produced = {name for node in model.graph.node for name in node.output}
    names = {tensor.name: tensor.name for tensor in graph.activations() if tensor.name in produced}
    return Oracle(model, names, where, exact=True)


def float_oracle(
    path: str | os.PathLike[str], graph: Graph, quantized: str | os.PathLike[str] | None = None
) -> Oracle:
    """The float model that a network was quantised from.

    Args:
        path: the float .onnx.
        graph: the network's integer body.
        quantized: the quantised .onnx, which shows what each of its tensors was made from; without it, names
            are compared, less what quantisers append to them.

    Raises:
        UsageError: no such file, or the model is quantised.
        InvalidModel: it cannot be read or run.
        EnvironmentMissing: onnx or onnxruntime is not installed.
    """
    where = os.fspath(path)
    model = read_onnx(path)
    if is_quantized(model):
        raise UsageError("is a quantised model", where=where, hint="pass quantised models with --model")
    known = {name for node in model.graph.node for name in node.output}
    known |= {value.name for value in model.graph.input}
    made_from = {} if quantized is None else _made_from(read_onnx(quantized))
    names, guessed = {}, set()
    for tensor in graph.activations():
        plain = made_from.get(tensor.name, tensor.name)
        candidates = [plain, *(plain.removesuffix(suffix) for suffix in SUFFIXES)]
        if (name := next((name for name in candidates if name in known), None)) is not None:
            names[tensor.name] = name
            if tensor.name not in made_from:
                guessed.add(tensor.name)
    return Oracle(model, _behind_activations(model, names, guessed), where, exact=False)


def _behind_activations(model: Any, names: Mapping[str, str], guessed: Set[str]) -> dict[str, str]:
    """The same, where a Relu or Clip that no other tensor stands for is part of the tensor before it.

    QOperator models call a Conv's result by the Conv's name, its activation included. The same may hold for
    tensors whose counterpart is `guessed` by its name; what a QuantizeLinear reads is known.
    """
    readers = Counter(name for node in model.graph.node for name in node.input)
    readers.update(value.name for value in model.graph.output)
    behind = {
        node.input[0]: node.output[0]
        for node in model.graph.node
        if node.op_type in ("Relu", "Clip") and readers[node.input[0]] == 1
    }
    taken = set(names.values())
    return {
        tensor: behind[name] if tensor in guessed and name in behind and behind[name] not in taken else name
        for tensor, name in names.items()
    }


def _made_from(model: Any) -> dict[str, str]:
    """What each QuantizeLinear of a quantised model reads, by its output."""
    return {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
