"""The tables of docs/results.md, on run folders made from a formula."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

from elastiquant_report import groups, results
from elastiquant_report.runs import load_runs
from synthetic_runs import write_comparison, write_run


class ResultsTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        self.out = self.folder / "results.md"

    def run_it(self, *arguments) -> tuple[int, str]:
        words = io.StringIO()
        with contextlib.redirect_stderr(words), contextlib.redirect_stdout(words):
            code = results.main([str(a) for a in (*arguments, "--out", self.out)])
        return code, words.getvalue()

    def test_joins_accuracy_runs_with_timing_runs(self):
        accuracy = write_comparison(self.folder / "acc", link=None, accuracy=90)
        timing = write_comparison(self.folder / "time", steps=20, epochs=1, accuracy=20)
        (group,) = groups.group_runs(load_runs([*timing, *accuracy]))
        self.assertEqual(len(group.rows), 4)
        self.assertEqual(group.rows[0].codec, "fp32")
        lines = results.group_table(group).splitlines()
        self.assertEqual(len(lines), 2 + 4)
        cells = [cell.strip() for cell in lines[2].split("|")[1:-1]]
        base = json.loads((timing[0] / "summary.json").read_text())
        self.assertEqual(cells[1], "90.00")  # of the run without a link
        self.assertEqual(cells[-2], f"{base['seconds_per_step'] * 1000:.0f}")
        self.assertEqual(cells[-1], "1.00×")
        # Seconds of an epoch: the steps are those of the accuracy run, 120 in 4 epochs.
        self.assertAlmostEqual(float(cells[-3]), base["seconds_per_step"] * 30, places=1)

    def test_worker_counts_are_apart_and_seeds_are_averaged(self):
        runs = [
            write_run(self.folder / "a", link=None, accuracy=90, seed=1),
            write_run(self.folder / "b", link=None, accuracy=91, seed=2),
            write_run(self.folder / "c", link=None, accuracy=80, workers=2),
        ]
        four, two = groups.group_runs(load_runs(runs))
        self.assertEqual((four.workers, two.workers), (4, 2))
        self.assertEqual(four.rows[0].accuracy(), "90.50 ± 0.50 (2 runs)")
        self.assertEqual(two.rows[0].accuracy(), "80.00")

    def test_runs_of_different_settings_have_no_mean(self):
        one = write_run(self.folder / "a", "qsgd:bits=4", 4.1, link=None, seed=1)
        other = write_run(self.folder / "b", "qsgd:bits=4", 2.1, link=None, seed=2)
        (group,) = groups.group_runs(load_runs([one, other]))
        cells = results.group_table(group).splitlines()[2].split("|")
        self.assertIn("3.100", cells[4])  # bits of both
        for change in ({"algorithm": "local-sgd"}, {"options": {"--lr": 0.5}}):
            told = json.loads((other / "summary.json").read_text()) | change
            (other / "summary.json").write_text(json.dumps(told))
            code, said = self.run_it(one, other, "--no-plots")
            self.assertEqual(code, 2)
            self.assertRegex(said, "runs of qsgd:bits=4 differ in .*(algorithm|--lr)")

    def test_a_run_that_is_given_twice_is_refused(self):
        runs = [
            write_run(self.folder / "a", link=None),
            write_run(self.folder / "b", link=None),
        ]
        code, said = self.run_it(*runs, "--no-plots")
        self.assertEqual(code, 2)
        self.assertRegex(said, "several runs of fp32 have the same seed .*/a, .*/b")

    def test_seconds_over_several_links_are_not_compared(self):
        slow = write_run(self.folder / "slow", link="5mbit")
        fast = write_run(self.folder / "fast", "qsgd:bits=4", 4.1)
        code, said = self.run_it(slow, fast, "--no-plots")
        self.assertEqual(code, 2)
        self.assertIn("over several links (5mbit, 20mbit,10ms)", said)
        code, said = self.run_it(slow, write_run(self.folder / "again"), "--no-plots")
        self.assertEqual(code, 2)
        self.assertIn("runs of fp32 differ in link (5mbit, 20mbit,10ms)", said)

    def test_families_without_an_accuracy_are_refused(self):
        self.out.write_text(f"{results.FAMILIES_BEGIN}\n{results.FAMILIES_END}\n")
        code, said = self.run_it("--families", write_run(self.folder / "a"))
        self.assertEqual(code, 2)
        self.assertIn("no run of resnet20 on 4 workers tells an accuracy", said)

    def test_families_stand_at_marks_of_their_own(self):
        runs = [
            write_run(self.folder / "a", link=None, accuracy=90, seed=1),
            write_run(self.folder / "b", "dither:bits=1", 1, link=None, accuracy=89.9, seed=1),
            write_run(self.folder / "c", "dither:bits=1", 1, link=None, accuracy=89.7, seed=2),
            write_run(self.folder / "d", "terngrad", 1.6, link=None, accuracy=70),
        ]
        self.out.write_text(
            f"before\n{results.FAMILIES_BEGIN}\n{results.FAMILIES_END}\n"
            f"{results.BEGIN}\nold\n{results.END}\n"
        )
        code, said = self.run_it("--families", *runs)
        self.assertEqual(code, 0, said)
        text = self.out.read_text()
        self.assertIn(f"{results.BEGIN}\nold\n{results.END}", text)
        rows = [line for line in text.splitlines() if line.startswith("| `")]
        self.assertEqual(len(rows), 3)
        self.assertIn("89.80 ± 0.10 (2 runs)", rows[2])
        self.assertIn("32.0×", rows[2])
        self.assertIn("resnet20-generated-4-families.png", text)
        drawing = self.folder / "results" / "resnet20-generated-4-families.svg"
        self.assertGreater(drawing.stat().st_size, 1000)

    def test_commands_do_not_tell_where_the_program_stood(self):
        folder = write_run(self.folder / "a")
        summary = json.loads((folder / "summary.json").read_text())
        summary["command"] = "/somewhere/bin/elastiquant train --data ../images/cifar"
        (folder / "summary.json").write_text(json.dumps(summary))
        (group,) = groups.group_runs(load_runs([folder]))
        self.assertIn("\nelastiquant train --data ../images/cifar\n", results.commands(group))

    def test_fills_in_a_document_and_keeps_its_words(self):
        runs = [
            *write_comparison(self.folder / "acc", link=None),
            *write_comparison(self.folder / "time"),
        ]
        self.out.write_text(
            f"# Mine\n\nBefore.\n\n{results.BEGIN}\nold\n{results.END}\n\nAfter.\n"
        )
        code, words = self.run_it(*runs)
        self.assertEqual(code, 0, words)
        text = self.out.read_text()
        self.assertTrue(text.startswith("# Mine\n\nBefore."))
        self.assertTrue(text.endswith("After.\n"))
        self.assertNotIn("old", text)
        for name in ("time", "bytes"):
            link = f"results/resnet20-generated-4-{name}.png"
            self.assertIn(f"]({link})", text)
            self.assertTrue((self.folder / link).exists())
        self.assertEqual(self.run_it(*runs)[0], 0)
        self.assertEqual(self.out.read_text(), text)

    def test_refuses_a_document_without_a_place(self):
        self.out.write_text("# Mine\n")
        code, words = self.run_it(write_run(self.folder / "a"))
        self.assertEqual(code, 2)
        self.assertIn(results.BEGIN, words)
        self.assertEqual(self.out.read_text(), "# Mine\n")

    def test_says_if_replicas_were_not_identical(self):
        folder = write_run(self.folder / "a")
        summary = json.loads((folder / "summary.json").read_text())
        summary["replicas_identical"] = False
        (folder / "summary.json").write_text(json.dumps(summary))
        self.assertEqual(self.run_it(folder, "--no-plots")[0], 0)
        self.assertIn("Replicas were not identical", self.out.read_text())


if __name__ == "__main__":
    unittest.main()
