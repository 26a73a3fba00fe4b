"""What a network is, before anything is compiled: figures, verdicts of targets, and a page that draws it."""

from sdk.inspection.figures import Figures, figures, kind
from sdk.inspection.model_file import ModelFile, read_model_file
from sdk.inspection.verdicts import Outlook, Reason, outlook, reasons

__all__ = [
    "Figures",
    "ModelFile",
    "Outlook",
    "Reason",
    "figures",
    "kind",
    "outlook",
    "read_model_file",
    "reasons",
]
