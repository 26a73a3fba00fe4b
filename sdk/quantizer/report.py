"""What `quantize` reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sdk.errors import Refusal
from sdk.preprocess import Preprocessing
from sdk.quantizer.calibration import Skipped
from sdk.quantizer.choose import Score
from sdk.quantizer.fidelity import OutputAgreement, TensorError
from sdk.quantizer.search import Searched
from sdk.quantizer.static import Activation, Weight

Method = Literal["auto", "minmax", "mse", "percentile"]
"""How ranges of activations are found: whichever of the others scores best; all that occurred; the least mean
square error; or all but the outermost values, of 0.1 to 0.001 % whichever part scores best."""


@dataclass(frozen=True)
class WeightTrial:
    """One thing that was tried on the weights.

    Attributes:
        name: "scales", "equalize", "round" or "bias".
        kept: whether the quantised model has it.
        gain_db: what it gained in the mean SQNR at the outputs, on samples held out; below zero if it lost.
    """

    name: str
    kept: bool
    gain_db: float


@dataclass(frozen=True)
class Search:
    """What the coordinate search did.

    Attributes:
        rounds: rounds that were kept; 0 if none helped on the samples held out.
        calibration: SQNR on the samples that it was scored on: not a measure of other inputs.
        before, held_out: SQNR on the samples held out from it, before and after.
        tried: ranges scored; `known` of them by an earlier, interrupted run.
    """

    rounds: int
    calibration: Score
    before: Score
    held_out: Score
    tried: int
    known: int

    @staticmethod
    def of(searched: Searched) -> Search:
        """The part of a search that is reported."""
        facts = {field.name: getattr(searched, field.name) for field in dataclasses.fields(Search)}
        return Search(**facts)


@dataclass(frozen=True)
class State:
    """A state of the network: an output that becomes an input; `tied` if both are quantised, alike."""

    output: str
    input: str
    tied: bool


@dataclass(frozen=True, repr=False)
class QuantizationReport:
    """What was done, from what, and what it cost.

    Attributes:
        output: the quantised model's file.
        method: what was asked for.
        ranges: the candidate that was chosen, "percentile 99.98" for example.
        candidates: SQNR at the outputs of each candidate, on samples that had no part in its ranges; empty
            if nothing could be held out.
        folds: parts that the samples were dealt into, each held out once; 0 if none was.
        scored: samples that were scored so.
        held_out: SQNR at the outputs of what was written, on samples that had no part in it: all, in
            turns; with a search, or weights that learnt from samples, those held out from that. None if
            nothing could be held out.
        calibration: the same on the calibration samples, from which everything was learnt.
        search: of the coordinate search; None if it was not asked for.
        weights: what was tried on weights.
        float_nodes: names of nodes that stay in floats, because they were named or to reach a figure;
            `float_macs` of all `macs` are theirs.
        states: pairs that are fed back.
        samples: calibration samples used, of `available`.
        skipped: pictures that could not be read; `other_files` were not pictures.
        outputs: agreement of the graph's outputs, on the calibration samples.
        stays_float: nodes without a quantised form, and why.
        tensors: every quantised activation in graph order, measured on a few samples.
        warnings: what to know before trusting the figures.
        float_bytes, quantized_bytes: file sizes.
        seconds: wall seconds by stage.
    """

    output: Path
    method: Method
    ranges: str
    candidates: Mapping[str, Score]
    folds: int
    scored: int
    held_out: Score | None
    calibration: Score
    search: Search | None
    weights: tuple[WeightTrial, ...]
    float_nodes: tuple[str, ...]
    float_macs: int
    macs: int
    states: tuple[State, ...]
    per_channel: bool
    activation: Activation
    weight: Weight
    samples: int
    available: int
    other_files: int
    skipped: tuple[Skipped, ...]
    preprocessing: Preprocessing | None
    outputs: tuple[OutputAgreement, ...]
    stays_float: tuple[Refusal, ...]
    tensors: tuple[TensorError, ...]
    warnings: tuple[str, ...]
    float_bytes: int
    quantized_bytes: int
    seconds: Mapping[str, float]

    def __repr__(self) -> str:
        worst = f", worst {self.worst.name} with {self.worst.sqnr_db:.1f} dB" if self.worst else ""
        return (
            f"<QuantizationReport of {self.output}: {self.activation} activations, {self.weight} weights, "
            f"{self.samples} samples, {len(self.tensors)} tensors{worst}>"
        )

    @property
    def worst(self) -> TensorError | None:
        """The activation with the lowest SQNR."""
        return min(self.tensors, key=lambda tensor: tensor.sqnr_db, default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        document = dataclasses.asdict(self)
        document["output"] = str(self.output)
        document["stays_float"] = [stays._asdict() for stays in self.stays_float]
        document["preprocessing"] = self.preprocessing.to_json() if self.preprocessing else None
        return document
