"""The recipes for frameworks run as their docstrings say, where the framework is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import unittest
from pathlib import Path

from launching import torchrun

RECIPES = Path(__file__).resolve().parents[3] / "examples" / "frameworks"


class FrameworksTest(unittest.TestCase):
    def check(self, name: str, workers: int) -> None:
        """A recipe compresses in the optimizer's metric. 0 workers: it starts its own."""
        if importlib.util.find_spec(name) is None:
            self.skipTest(f"{name} is not installed: pip install {name}")
        recipe = RECIPES / f"{name}_ddp.py"
        if workers:
            done = torchrun(workers, recipe)
        else:
            done = subprocess.run(
                [sys.executable, str(recipe)], capture_output=True, text=True, timeout=240
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        # How much less is sent depends on whether compression pays on this machine.
        self.assertRegex(done.stdout, r"\badam\b.* kB up a step \([\d.]+x fewer\).* nmse")

    def test_accelerate(self):
        self.check("accelerate", 2)

    def test_lightning(self):
        self.check("lightning", 0)

    def test_transformers(self):
        self.check("transformers", 2)

    def test_are_short(self):
        for recipe in RECIPES.glob("*.py"):
            with self.subTest(recipe.name):
                self.assertLess(recipe.read_text().count("\n"), 45)


if __name__ == "__main__":
    unittest.main()
