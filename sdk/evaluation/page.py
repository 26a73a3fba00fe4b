"""An evaluation to look at: one HTML file, with small pictures of the inputs that fare worst."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape

import sdk.page
from sdk.evaluation.compute import FLOAT, TARGET, Record
from sdk.evaluation.document import confusion, pictures, summary, verdict
from sdk.evaluation.figures import Evaluation
from sdk.extras import require
from sdk.preprocess import FORMATS

SIDE = 56
"""Pixels of a small picture, which is stored at twice that."""

SHOWN = 30
"""Rows of a table."""

STYLES = f"""td img {{
  display: block; width: {SIDE}px; height: {SIDE}px; object-fit: cover; border-radius: 6px;
}}
.fit table {{ width: auto; min-width: min(100%, 420px); }}
.pairs {{
  display: grid; gap: 0 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr));
}}
"""


def page(found: Evaluation, name: str) -> str:
    """The evaluation as an HTML document.

    Args:
        found: the figures.
        name: of the network.
    """
    bad = found.exact and bool(found.wrong)
    skipped = [f"{record.name} was not evaluated: {record.skipped}" for record in found.skipped[:SHOWN]]
    notes = [*found.warnings, *skipped, *(f"not compared: {line}" for line in found.not_compared)]
    sections = [
        sdk.page.verdict(verdict(found), notes, bad=bad),
        sdk.page.facts(_facts(found)),
        _section("Side by side", "", sdk.page.table(side)) if len(side := summary(found)) > 1 else "",
        '<div class="pairs">',
        _pictures(
            "Lowest SQNR on the target",
            "Signal to quantisation noise of an input's outputs against the float model.",
            found,
            found.worst,
        ),
        _pictures(
            f"Class changed on the target ({len(found.changed)})",
            f"The target's class differs from that of {_whose(found)}.",
            found,
            found.changed[:SHOWN],
        ),
        "</div>",
    ]
    if found.confusion:
        columns = {heading: cells[:SHOWN] for heading, cells in confusion(found).items()}
        explained = f"Class of {_whose(found)}, class of the target, and how many inputs change so."
        sections.append(_section("Which class becomes which", explained, sdk.page.table(columns)))
    kind = "a sequence of steps" if found.sequence else "inputs"
    subtitle = (
        f"{found.target}, {found.arithmetic} arithmetic, on {found.device}; {len(found.found)} {kind} "
        f"from {found.source}"
    )
    return sdk.page.page(f"{name}: evaluation", name, subtitle, "\n".join(sections), style=STYLES)


def _whose(found: Evaluation) -> str:
    return "the float model" if found.against == FLOAT else "the reference"


def _facts(found: Evaluation) -> list[tuple[str, str]]:
    facts = [(f"{len(found.found):,}", "inputs" if len(found.found) != 1 else "input")]
    if (labelled := found.top1_labels) is not None:
        facts += [(f"{100 * share:.1f} %", f"as labelled: {who}") for who, share in labelled.items()]
    elif (top1 := found.top1) is not None:
        facts.append((f"{100 * top1[TARGET]:.1f} %", f"of classes as by {_whose(found)}"))
    if (noise := found.sqnr_db) is not None:
        facts.append((f"{noise[TARGET]['mean']:.1f} dB", "SQNR on the target, mean"))
        facts.append((f"{noise[TARGET]['min']:.1f} dB", "SQNR on the target, least"))
    facts.append((f"{found.mismatches:,}", f"mismatches in {found.elements:,} output elements"))
    return facts


def _pictures(title: str, explained: str, found: Evaluation, records: Sequence[Record]) -> str:
    """A table of inputs with small pictures; nothing for no input."""
    if not records:
        return ""
    small = [_small(found.paths.get(record.name, "")) for record in records]
    columns = pictures(found, records)
    return _section(title, explained, sdk.page.table(columns, small if any(small) else ()))


def _section(title: str, explained: str, table: str) -> str:
    text = f'<p class="soft">{escape(explained)}</p>\n' if explained else ""
    return f'<section class="card fit">\n<h2>{escape(title)}</h2>\n{text}{table}\n</section>'


def _small(path: str) -> str:
    """A picture as a data URI of a few kilobytes; "" for none."""
    if not path:
        return ""
    try:
        with require("PIL.Image").open(path, formats=FORMATS) as opened:
            picture = require("PIL.ImageOps").exif_transpose(opened).convert("RGB")
    except (OSError, ValueError, SyntaxError):  # gone, or damaged, since it was evaluated
        return ""
    picture = require("PIL.ImageOps").fit(picture, (2 * SIDE, 2 * SIDE))
    file = io.BytesIO()
    picture.save(file, format="JPEG", quality=70)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
