"""Models and pictures that are too large for the source tree; tests that need them are skipped without."""

import os
from pathlib import Path

VARIABLE = "TOWLINE_TEST_DATA"
DATA = Path(os.environ.get(VARIABLE, Path(__file__).parents[2] / "shared" / "data"))
