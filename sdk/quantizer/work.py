"""A network while it is being quantised: what every stage reads, and variants of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk.quantizer import layout, static
from sdk.quantizer.calibration import Calibration
from sdk.quantizer.islands import Islands
from sdk.quantizer.layout import Layout
from sdk.quantizer.static import Form, Ranges
from sdk.quantizer.trial import Trial
from sdk.states import Pairs


@dataclass(frozen=True)
class Work:
    """A float network, how it is to be quantised, and the samples.

    Attributes:
        prepared, functions: of `prepare.prepare`; weights may have been changed since.
        data: the calibration samples.
        expected: outputs of the float model as it came, for each sample.
        folds: parts of the samples, of `choose.deal`.
        form: types and granularity.
        pairs: states, (output, input).
        directory: for intermediate files.
        where: names the model in errors.
        pool: where trials run.
        peaks: of weights, as `static.write` takes them.
        keep_float: names of nodes in floats.
    """

    prepared: Any
    functions: Islands
    data: Calibration
    expected: Sequence[Sequence[Any]]
    folds: Sequence[Sequence[int]]
    form: Form
    pairs: Pairs
    directory: Path
    where: str
    pool: Executor
    peaks: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    keep_float: frozenset[str] = frozenset()

    def variant(self, **changes: Any) -> Work:
        """The same but for some attributes."""
        return replace(self, **changes)

    @cached_property
    def draft(self) -> Any:
        """The quantised model, with ranges of one sample."""
        return self.write(None)

    @cached_property
    def layout(self) -> Layout:
        """What is quantised; the two sides of a state share a scale."""
        return layout.tied(layout.read(self.prepared, self.draft), self.pairs)

    @cached_property
    def trial(self) -> Trial:
        """Scores ranges."""
        return Trial(
            self.prepared, self.layout, self.data.samples, self.expected, activation=self.form.activation
        )

    def write(self, ranges: Ranges | None) -> Any:
        """The quantised model, with these ranges of groups."""
        spread = None
        if ranges is not None:
            spread = {name: ranges[owner] for owner, names in self.layout.groups.items() for name in names}
        return static.write(
            self.prepared,
            self.functions,
            self.data.samples[0],
            self.form,
            self.directory,
            self.where,
            ranges=spread,
            peaks=self.peaks,
            keep_float=self.keep_float,
        )
