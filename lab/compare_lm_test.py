"""What compare_lm.py makes of its runs."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import compare_lm


def summary(loss: float | None, sent: float) -> str:
    return json.dumps({"test_loss": loss, "bits_per_coordinate": 2, "bytes_up": sent})


class CompareTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.out = pathlib.Path(holder.name)

    def keep(
        self,
        scheme: str,
        seed: int,
        loss: float | None,
        sent: float = 1e6,
        rate: float = 2e-3,
    ) -> None:
        args = mock.Mock(out=self.out)
        folder = compare_lm.folder(args, scheme, f"_lr{rate:g}_seed{seed}")
        folder.mkdir()
        (folder / "summary.json").write_text(summary(loss, sent))

    def compare(self, *more: str) -> list[str]:
        words = ["compare_lm.py", "--seeds", "2", "--rates", "2e-3"]
        words += more or ["--table-only"]
        words += ["--out", str(self.out), "--schemes", "fp32", "2 bits", "1 bit"]
        with mock.patch.object(sys, "argv", words), mock.patch("builtins.print"):
            compare_lm.main()
        lines = (self.out / "table.md").read_text().splitlines()
        return [line for line in lines if line.startswith("|")]

    def test_a_seed_that_failed_is_told(self):
        for scheme, losses in (
            ("fp32", (2.0, 2.2)),
            ("2 bits", (2.1,)),
            ("1 bit", (2.5, None)),
        ):
            for seed, loss in enumerate(losses, start=1):
                self.keep(scheme, seed, loss, 8e6 if scheme == "fp32" else 1e6)
        *_, fp32, two, one = self.compare()
        self.assertIn("| 2.0000 | 2.1000 ± 0.1414 (2 seeds) | +0.00 % |", fp32)
        self.assertIn("| 2.1000 | 2.1000 | +5.00 % |", two)
        self.assertIn("| 2.5000 | failed |  |", one)
        self.assertGreater((self.out / "loss.png").stat().st_size, 10000)

    def test_a_scheme_is_compared_over_its_own_seeds(self):
        for seed, loss in enumerate((1.0, 2.0), start=1):
            self.keep("fp32", seed, loss)
        self.keep("2 bits", 2, 2.0)
        (two,) = [line for line in self.compare() if line.startswith("| 2 bits")]
        self.assertIn("| 2.0000 | +0.00 % |", two)

    def test_what_is_sent_is_that_at_the_best_rate(self):
        for rate, loss, sent in ((2e-3, 2.0, 1e6), (4e-3, 3.0, 9e6)):
            self.keep("fp32", 1, loss, sent, rate)
        words = ["--table-only", "--rates", "2e-3", "4e-3"]
        (fp32,) = [line for line in self.compare(*words) if line.startswith("| fp32")]
        self.assertIn("| fp32 | 2.00 | 1.0 | 2.0000 | 3.0000 |", fp32)

    def test_rates_are_compared_over_the_seeds_that_all_have(self):
        losses = {1e-3: {1: 2.0, 2: 4.0}, 2e-3: {1: 2.5}}
        self.assertEqual(compare_lm.best_rate(losses), 1e-3)
        self.assertEqual(compare_lm.best_rate({1e-3: {1: 3.0}, 2e-3: {2: 2.0}}), 2e-3)

    def test_a_training_that_gives_up_is_a_result_and_not_tried_again(self):
        self.keep("fp32", 1, 2.0)
        gave_up = subprocess.CompletedProcess([], 5, "", "gave up at step 9 after 3 steps\n")
        trains = mock.patch("subprocess.run", return_value=gave_up)
        with trains as trained, mock.patch("sys.stderr"):
            lines = self.compare("--seeds", "1")
            again = self.compare("--seeds", "1")
        self.assertEqual(trained.call_count, 2)
        self.assertEqual(lines, again)
        (one,) = [line for line in lines if line.startswith("| 1 bit")]
        self.assertIn("| 1 bit |  |  | failed | failed |", one)
        rows = (self.out / "rows.json").read_text()
        self.assertNotRegex(rows, "Infinity|NaN")

    def test_a_table_tells_what_its_runs_were_made_with(self):
        self.keep("fp32", 1, 2.0)
        (self.out / "settings.json").write_text(
            json.dumps({"model": "gpt:layers=6", "steps": 7})
        )
        with mock.patch.object(compare_lm, "draw") as drawn:
            self.compare()
        (args, *_), _ = drawn.call_args
        self.assertEqual((args.model, args.steps), ("gpt:layers=6", 7))

    def test_runs_of_other_settings_are_not_taken(self):
        self.keep("fp32", 1, 2.0)
        self.keep("fp32", 2, 2.0)
        self.compare()
        with self.assertRaisesRegex(SystemExit, "has measurements with steps 300, not 1000"):
            self.compare("--steps", "1000")

    def test_the_table_needs_full_precision(self):
        self.keep("2 bits", 1, 2.0)
        with self.assertRaisesRegex(SystemExit, "no run of fp32"):
            self.compare()


if __name__ == "__main__":
    unittest.main()
