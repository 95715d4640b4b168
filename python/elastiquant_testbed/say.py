"""What is said to a person while an experiment goes on."""

from __future__ import annotations

import sys


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
