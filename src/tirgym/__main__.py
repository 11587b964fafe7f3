"""`python -m tirgym` is the command `tirgym`."""

from __future__ import annotations

import sys

from tirgym.cli import main

if __name__ == "__main__":
    sys.exit(main())
