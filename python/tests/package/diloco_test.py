"""elastiquant.DiLoCo and LocalSGD under torchrun."""

from __future__ import annotations

import unittest
from pathlib import Path

from launching import torchrun

HERE = Path(__file__).resolve().parent


class RoundsTest(unittest.TestCase):
    def check(self, workers: int) -> None:
        done = torchrun(workers, HERE / "diloco_checks.py")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("ok "), 8 * workers, done.stdout)

    def test_of_two_workers(self):
        self.check(2)

    def test_of_four_workers(self):
        self.check(4)


if __name__ == "__main__":
    unittest.main()
