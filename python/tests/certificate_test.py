"""The certificate's part of a report, on run folders made from a formula."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from elastiquant_report import certificate, table
from elastiquant_report.runs import RunError, load_runs
from synthetic_runs import write_certificate, write_comparison, write_run

PACKAGE = Path(certificate.__file__).parent


class CertificateTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def load(self, *folders):
        return certificate.load_certificates(load_runs(list(folders)))

    def test_runs_without_measurements_have_none(self):
        self.assertEqual(self.load(write_run(self.folder / "fp32")), [])

    def test_tells_of_the_last_epoch_and_counts_over_all(self):
        run = write_certificate(write_run(self.folder / "run", "qsgd:bits=4", 4.07), epochs=3)
        (one,) = self.load(run)
        head, ((*cells,),) = certificate.display([one])
        row = dict(zip(head, cells, strict=True))
        self.assertEqual(one.last["epoch"], 3)
        self.assertEqual(len(one.layers), 9)
        self.assertEqual((row["holds"], row["loose"], row["exceeded"]), ("6", "3", "0"))
        self.assertEqual(row["bound / NMSE"], "5×")
        self.assertIn("in all 9 layers", certificate.finding([one]))
        self.assertIn("in 3 the bound is more than 10 times", certificate.finding([one]))

    def test_damaged_files_are_named(self):
        run = write_certificate(write_run(self.folder / "run", "qsgd:bits=4", 4.07))
        file = run / "certificate.jsonl"
        whole = file.read_text()
        layers = [line for line in whole.splitlines() if '"layer": ""' not in line]
        for text, words in (
            (whole + '"text"\n', "line 9 is not a JSON object"),
            (whole + "{\n", "line 9 is not a JSON object"),
            (whole + "{}\n", "line 9 lacks epoch, layer"),
            ("\n".join(layers) + "\n", "no line of all layers together"),
        ):
            file.write_text(text)
            with self.subTest(words), self.assertRaisesRegex(RunError, words):
                self.load(run)

    def test_runs_that_tell_more_than_others_make_one_table(self):
        runs = [
            write_certificate(write_run(self.folder / name, "qsgd:bits=4", 4.07))
            for name in "ab"
        ]
        file = runs[1] / "certificate.jsonl"
        lines = [json.loads(line) | {"more": 1} for line in file.read_text().splitlines()]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        rows = table.as_csv(certificate.rows(self.load(*runs))).splitlines()
        self.assertTrue(rows[0].endswith(",more"))
        self.assertTrue(rows[1].endswith(",") and rows[-1].endswith(",1"))

    def test_warns_of_what_exceeds_its_bound(self):
        run = write_certificate(write_run(self.folder / "run", "qsgd:bits=4", 4.07), bad="fc")
        text = certificate.finding(self.load(run))
        self.assertTrue(text.startswith("WARNING"), text)
        self.assertIn("fc in epoch 1", text)

    def test_warns_of_what_only_all_layers_together_show(self):
        run = write_certificate(write_run(self.folder / "run", "qsgd:bits=4", 4.07))
        file = run / "certificate.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        last = next(line for line in reversed(lines) if not line["layer"])
        last["verdict"] = "exceeded"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        loaded = self.load(run)
        self.assertIn(f"all layers in epoch {last['epoch']}", certificate.finding(loaded))
        head, ((*cells,),) = certificate.display(loaded)
        self.assertEqual(dict(zip(head, cells, strict=True))["exceeded"], "1")

    def test_unknown_bounds_are_no_trouble(self):
        run = write_certificate(write_run(self.folder / "run", "topk", 0.3), bound=None)
        loaded = self.load(run)
        self.assertIn("No bound is known", certificate.finding(loaded))
        self.assertEqual(certificate.display(loaded)[1][0][3], "–")
        self.assertEqual(certificate.draw(loaded, self.folder / "plot"), [])

    def test_a_report_shows_it(self):
        runs = write_comparison(self.folder / "runs")
        for run in runs[1:]:
            write_certificate(run)
        command = [sys.executable, PACKAGE, *runs, "--out", self.folder / "out"]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("stays within its bound", done.stdout)
        out = self.folder / "out"
        markdown = (out / "report.md").read_text()
        self.assertIn("worst case", markdown)
        self.assertIn("certificate.png", markdown)
        self.assertTrue((out / "certificate.png").read_bytes().startswith(b"\x89PNG"))
        with (out / "certificate.csv").open() as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 3 * 2 * 4)
        self.assertEqual({row["layer"] for row in rows}, {"", "conv1", "layer1", "fc"})

    def test_says_what_is_wrong_with_a_line(self):
        run = write_certificate(write_run(self.folder / "run"))
        file = run / "certificate.jsonl"
        whole = file.read_text().splitlines()
        line = json.loads(whole[1])
        del line["bound"]
        for bad, words in (("{", "not a JSON object"), (json.dumps(line), "lacks bound")):
            file.write_text("\n".join([whole[0], bad]))
            with self.assertRaisesRegex(RunError, f"line 2.*{words}"):
                self.load(run)


if __name__ == "__main__":
    unittest.main()
