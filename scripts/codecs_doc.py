#!/usr/bin/env python3
"""Fills in the tables and plots of docs/codecs.md; needs matplotlib, as .venv has it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

from elastiquant_rates.document import main

if __name__ == "__main__":
    sys.exit(main())
