#!/usr/bin/env python3
"""Fills in docs/reproduction.md from stored results; needs matplotlib, as .venv has it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

from elastiquant_testbed.pages import main

if __name__ == "__main__":
    sys.exit(main())
