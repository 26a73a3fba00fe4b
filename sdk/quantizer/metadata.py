"""What `quantize` stores in a model beside the graph: how inputs are made, and how it was quantised."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from sdk.errors import InvalidInput, InvalidModel
from sdk.importers import read_onnx
from sdk.preprocess import InputStatistics, Preprocessing
from sdk.quantizer.calibration import Feeds, digest

PREPROCESSING_KEY = "towline.preprocessing"
STATISTICS_KEY = "towline.input_statistics"
QUANTIZATION_KEY = "towline.quantization"
"""A JSON object: `method` (asked for), `ranges` (the candidate chosen), `samples`, `search`, `weights` (what
was kept of the options), `float_nodes`, `held_out_db` and `calibration_db` (mean SQNR at the outputs, null if
there is none), and `inputs` (`input_digest` of each calibration sample)."""


def input_digest(feeds: Feeds) -> str:
    """What an input is known again by: 12 hexadecimal digits."""
    return digest([feeds], [0])[:12]


def entries(
    preprocessing: Preprocessing | None, statistics: InputStatistics | None, how: Mapping[str, Any]
) -> dict[str, str]:
    """Metadata of a model."""
    result = {QUANTIZATION_KEY: json.dumps(how)}
    if preprocessing is not None:
        result[PREPROCESSING_KEY] = json.dumps(preprocessing.to_json())
    if statistics is not None:
        result[STATISTICS_KEY] = json.dumps(statistics.to_json())
    return result


def read_metadata(model: Any) -> tuple[Preprocessing | None, InputStatistics | None]:
    """What `quantize` stored in a model about its inputs.

    Args:
        model: an onnx.ModelProto, or the path of a model file.

    Raises:
        InvalidModel: the entries are there but damaged.
    """
    found = _entries(model)
    return (
        _parsed(found, PREPROCESSING_KEY, Preprocessing.from_json),
        _parsed(found, STATISTICS_KEY, InputStatistics.from_json),
    )


def read_quantization(model: Any) -> dict[str, Any] | None:
    """How a model was quantised (see QUANTIZATION_KEY); None if another tool, or an older Towline, did it.

    Args:
        model: an onnx.ModelProto, or the path of a model file.

    Raises:
        InvalidModel: the entry is there but damaged.
    """
    found = _parsed(_entries(model), QUANTIZATION_KEY, _object)
    return None if found is None else dict(found)


def _entries(model: Any) -> dict[str, str]:
    if isinstance(model, str | os.PathLike):
        model = read_onnx(model, external=False)
    return {entry.key: entry.value for entry in model.metadata_props}


def _parsed(found: Mapping[str, str], key: str, parse: Callable[[Any], Any]) -> Any:
    if key not in found:
        return None
    try:
        return parse(json.loads(found[key]))
    except (ValueError, RecursionError, InvalidInput) as problem:
        raise InvalidModel(
            f"the metadata {key} is damaged: {problem}", hint="quantise the model again"
        ) from problem


def _object(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise ValueError("it is not an object")
    inputs = document.get("inputs", [])
    if not isinstance(inputs, list) or not all(isinstance(one, str) for one in inputs):
        raise ValueError("its inputs are not digests")
    return document
