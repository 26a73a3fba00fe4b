"""`python -m firmware.generate`."""

from __future__ import annotations

import sys

from firmware.generate import main

sys.exit(main())
