"""The plot of `elastiquant theory`, and what its title says."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from elastiquant_theory import plots

PACKAGE = Path(__file__).resolve().parent.parent / "elastiquant_theory"


def curve(family: str, factor: float) -> dict:
    points = [
        {
            "bits": bits,
            "bits_per_coordinate": bits + 0.06,
            "variance_bound": factor * 2 * 4.0**-bits,
            "worst_case": factor * 4.0**-bits,
            "measured_gaussian": factor * 4.0**-bits / 2,
        }
        for bits in range(2, 9)
    ]
    return {"family": family, "points": points}


def report(uniform: float = 30, families: tuple[str, ...] = ()) -> dict:
    curves = [curve("uniform", uniform), curve("elastic", 2)]
    return {
        "bucket": 512,
        "norm_order": 2,
        "curves": [*curves, *(curve(family, 1) for family in families)],
    }


class HeadlineTest(unittest.TestCase):
    def test_it_gives_the_ratios_at_4_bits(self):
        words = plots.headline(report(families=("minimax",)))
        self.assertIn("15 times less", words)
        self.assertIn("2 times that of the best", words)
        self.assertNotIn("best", plots.headline(report()))

    def test_it_claims_no_advantage_that_is_not_there(self):
        self.assertNotIn("less", plots.headline(report(uniform=1)))

    def test_of_one_value_there_is_no_error_to_compare(self):
        none = {
            "bucket": 1,
            "norm_order": 2,
            "curves": [curve("uniform", 0), curve("elastic", 0)],
        }
        self.assertEqual(plots.headline(none), "At 4 bits elastic levels have no error here")

    def test_norms_have_names(self):
        self.assertEqual(plots.norm_name({"norm_order": "infinity"}), "L∞")
        self.assertEqual(plots.norm_name({"norm_order": 1.5}), "L1.5")


class ProgramTest(unittest.TestCase):
    def test_pictures_are_drawn_with_and_without_minimax(self):
        for families in ((), ("exp p=1/2", "elastic, exact p", "minimax")):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "in.json"
                file.write_text(json.dumps(report(families=families)))
                command = [sys.executable, str(PACKAGE), str(file), "--out", f"{folder}/out"]
                run = subprocess.run(command, capture_output=True, text=True, check=False)
                self.assertEqual(run.returncode, 0, run.stderr)
                for suffix in ("png", "svg"):
                    self.assertGreater((Path(folder) / f"out.{suffix}").stat().st_size, 5000)

    def test_a_missing_file_is_an_error_in_words(self):
        command = [sys.executable, str(PACKAGE), "/nowhere/none.json", "--out", "x"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn("none.json", run.stderr)
        self.assertNotIn("Traceback", run.stderr)


if __name__ == "__main__":
    unittest.main()
