"""onnxruntime and its quantiser: sessions, nothing printed on our streams, errors of our tree."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from sdk.errors import InvalidModel, TowlineError
from sdk.extras import require
from sdk.files import no_room


def session(model: Any, *, optimize: bool = True, exact: bool = False, threads: int = 0) -> Any:
    """An InferenceSession on the CPU; `exact` for quantised models, whose sums may else saturate.

    `threads` is how many work on one run; 0 is one a core.
    """
    runtime = require("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # leave busy machines usable
    if not optimize:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if exact:  # u8 x s8 products saturate on x86 without VNNI
        options.add_session_config_entry("session.x64quantprecision", "1")
    return runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def quantized_session(model: Any, *, threads: int = 0) -> Any:
    """A session of a quantised model whose sums do not saturate.

    Where onnxruntime has no kernel for that (int8 activations), it runs the model as written, in floats.
    """
    return (
        session(model, optimize=False, threads=threads)
        if _signed(model)
        else session(model, exact=True, threads=threads)
    )


def _signed(model: Any) -> bool:
    """Whether activations are int8: some QuantizeLinear's zero-point is."""
    int8 = require("onnx").TensorProto.INT8
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    return any(
        kinds.get(node.input[-1]) == int8 for node in model.graph.node if node.op_type == "QuantizeLinear"
    )


def with_outputs(model: Any, names: Sequence[str]) -> Any:
    """A copy that also returns `names`, of whatever types they are."""
    onnx = require("onnx")
    result = onnx.ModelProto()
    result.CopyFrom(model)
    present = {value.name for value in model.graph.output}
    result.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in present)
    return result


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep onnxruntime's warnings and progress prints off our stdout and stderr."""
    runtime = require("onnxruntime")
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    runtime.set_default_logger_severity(4)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        runtime.set_default_logger_severity(2)
        logging.disable(disabled)


_scratch: ContextVar[Path | None] = ContextVar("_scratch", default=None)


class _Temporaries:
    """The module `tempfile` for onnxruntime's quantiser, which names no directory to put its own in."""

    def __getattr__(self, name: str) -> Any:
        return getattr(tempfile, name)

    def TemporaryDirectory(self, *args: Any, **options: Any) -> Any:
        return tempfile.TemporaryDirectory(*args, **{"dir": _scratch.get(), **options})


_temporaries = _Temporaries()


@contextlib.contextmanager
def quantising(action: str, where: str, directory: Path) -> Iterator[None]:
    """As `onnxruntime_errors`; temporary directories of onnxruntime's quantiser are made in this directory.

    Elsewhere nothing would remove them after SIGKILL: they do not have the names of ours.
    """
    for name in ("quant_utils", "quantize", "shape_inference"):
        module = require(f"onnxruntime.quantization.{name}")
        if hasattr(module, "tempfile"):
            module.tempfile = _temporaries
    before = _scratch.set(directory)
    try:
        with onnxruntime_errors(action, where):
            yield
    finally:
        _scratch.reset(before)


@contextlib.contextmanager
def onnxruntime_errors(action: str, where: str) -> Iterator[None]:
    """Turn what the quantiser and its C++ raise into our errors."""
    try:
        yield
    except TowlineError:
        raise
    except OSError as problem:
        raise no_room(problem) from problem
    except Exception as problem:
        raise InvalidModel(f"onnxruntime cannot {action}: {first_line(problem)}", where=where) from problem


def first_line(problem: Exception) -> str:
    """What an exception says, without the pages that C++ may append."""
    return next((line for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
