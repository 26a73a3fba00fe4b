"""`python -m sdk`: the command line where the `towline` script is not on PATH."""

from sdk.cli import main

raise SystemExit(main())
