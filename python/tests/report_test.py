"""The report, on run folders made from a formula."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

from elastiquant_report import consensus, decisions, findings, plots, shares, table
from elastiquant_report.runs import RunError, differences, load_run, load_runs
from synthetic_runs import (
    add_decisions,
    add_partition,
    write_certificate,
    write_comparison,
    write_run,
)

PROGRAM = os.environ.get("ELASTIQUANT_PROGRAM")
PLOTS = ("time", "bytes", "seconds")


class ReportTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def report(self, runs, *options, program=PROGRAM):
        package = Path(__file__).parent.parent / "elastiquant_report"
        command = [program, "report"] if program else [sys.executable, package]
        return subprocess.run(
            [*command, "--out", self.folder / "out", *options, *runs],
            capture_output=True,
            text=True,
        )

    def test_data_of_language_models_is_no_images(self):
        run = load_run(write_run(self.folder / "fp32"))
        run.summary |= {"model": "resnet20", "data": "data/cifar10"}
        self.assertIn("cifar10 images", findings.setting([run]))
        run.summary |= {"model": "gpt:layers=6", "data": "corpus.txt"}
        self.assertIn("gpt:layers=6, corpus.txt, ", findings.setting([run]))

    def test_writes_tables_and_plots(self):
        runs = write_comparison(self.folder)
        done = self.report(runs, "--title", "Four codecs")
        self.assertEqual(done.returncode, 0, done.stderr)
        out = self.folder / "out"
        for name in PLOTS:
            png = (out / f"{name}.png").read_bytes()
            self.assertTrue(png.startswith(b"\x89PNG"), name)
            self.assertGreaterEqual(int.from_bytes(png[16:20], "big"), 1500, "pixels wide")
            xml.parse(out / f"{name}.svg")
            self.assertIn(f"{name}.png", (out / "report.md").read_text())
        report = json.loads((out / "report.json").read_text())
        self.assertEqual(report["title"], "Four codecs")
        with (out / "report.csv").open() as file:
            lines = list(csv.DictReader(file))
        self.assertEqual([row["codec"] for row in lines], [r["codec"] for r in report["runs"]])
        self.assertEqual(float(lines[2]["speed_up"]), report["runs"][2]["speed_up"])
        for row in report["runs"]:
            self.assertIn(row["command"], (out / "report.md").read_text())

    def test_two_reports_of_the_same_runs_are_equal(self):
        runs = write_comparison(self.folder)
        contents = []
        for _ in range(2):
            self.assertEqual(self.report(runs).returncode, 0)
            files = sorted((self.folder / "out").iterdir())
            contents.append({file.name: file.read_bytes() for file in files})
        self.assertEqual(contents[0], contents[1])

    def test_draws_what_policies_decided(self):
        groups = {"bits": "noise", "groups": ["a.weight ... b.weight, 2 tensors", "c.weight"]}
        bits = add_decisions(
            write_run(self.folder / "noise"),
            "bits",
            lambda step: [[4 - step / 60, 2], [4 - step / 60, 3]],
            groups,
        )
        ratios = add_decisions(
            write_run(self.folder / "ratios"), "ratios", lambda _: [0.2, 0.05], {"ratio": 0.1}
        )
        plain = write_run(self.folder / "plain")
        done = self.report([bits, ratios, plain])
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("decisions", "decisions-2"):
            png = (self.folder / "out" / f"{name}.png").read_bytes()
            self.assertTrue(png.startswith(b"\x89PNG"), name)
            self.assertIn(f"{name}.png", (self.folder / "out" / "report.md").read_text())
        self.assertFalse((self.folder / "out" / "decisions-3.png").exists())

    def test_draws_what_became_of_the_workers_own_models(self):
        run = write_run(self.folder / "ring")
        summary = json.loads((run / "summary.json").read_text())
        summary |= {"graph": "ring", "spectral_gap": 0.195}
        for entry in summary["epochs"]:
            entry["own_accuracy"] = [entry["test_accuracy"] - 2, entry["test_accuracy"] - 4]
            entry["consensus_distance"] = 1 / entry["epoch"]
        (run / "summary.json").write_text(json.dumps(summary))
        done = self.report([run, write_run(self.folder / "plain")])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("consensus.png", (self.folder / "out" / "report.md").read_text())
        self.assertAlmostEqual(consensus.gain(load_run(run)), 3)

    def test_draws_the_shares_of_data_that_lay_on_workers(self):
        runs = write_comparison(self.folder)
        done = self.report(runs)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse((self.folder / "out" / "shares.png").exists())
        for k, spec in enumerate(("classes:k=1", "dirichlet", "volumes", "classes:k=2")):
            folder = write_run(self.folder / f"dealt{k}")
            runs.append(add_partition(folder, spec, [[30, 0], [1, 3 + k]]))
        done = self.report(runs)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("shares", "shares-2"):
            png = (self.folder / "out" / f"{name}.png").read_bytes()
            self.assertTrue(png.startswith(b"\x89PNG"), name)
            xml.parse(self.folder / "out" / f"{name}.svg")
            self.assertIn(f"{name}.png", (self.folder / "out" / "report.md").read_text())

    def test_one_run_is_enough(self):
        done = self.report([write_run(self.folder / "one", link=None, steps=3, epochs=1)])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.folder / "out" / "time.png").exists())

    def test_says_what_is_wrong_with_a_run(self):
        good = write_run(self.folder / "good")
        (self.folder / "empty").mkdir()
        cut = write_run(self.folder / "cut")
        metrics = (cut / "metrics.jsonl").read_text()
        (cut / "metrics.jsonl").write_text(metrics[:-20])
        lacking = write_run(self.folder / "lacking")
        summary = json.loads((lacking / "summary.json").read_text())
        del summary["bytes_up"], summary["seconds"]["wait"]
        (lacking / "summary.json").write_text(json.dumps(summary))
        summary["seconds"] = 3.5
        odd = write_run(self.folder / "odd")
        (odd / "summary.json").write_text(json.dumps(summary | {"bytes_up": 1}))
        (write_run(self.folder / "stepless") / "metrics.jsonl").write_text("")
        (write_run(self.folder / "torn") / "metrics.jsonl").write_bytes(b"{\xff}\n")
        for folder, words in (
            ("stepless", "metrics.jsonl has no steps"),
            ("torn", "metrics.jsonl is damaged: 'utf-8' codec"),
            ("nowhere", "no such folder"),
            ("empty", "summary.json is missing"),
            ("cut", "metrics.jsonl, line 120"),
            ("lacking", "lacks bytes_up, seconds.wait"),
            ("odd", "lacks seconds.compute, seconds.encode"),
        ):
            done = self.report([good, self.folder / folder])
            self.assertEqual(done.returncode, 2, folder)
            self.assertIn(words, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_long_names_and_many_runs_fit_into_the_plots(self):
        levels = "elastic:bits=5,levels=" + "/".join(f"{i / 31:.4g}" for i in range(32))
        folders = [write_run(self.folder / "fp32"), write_run(self.folder / "l", levels, 5.1)]
        folders.append(write_run(self.folder / "m", levels.replace("/1", "/.99/1"), 5.1))
        folders += [
            write_run(self.folder / f"{'long' * 50}{n}", "qsgd:bits=4", 4.1, seed=n)
            for n in range(12)
        ]
        write_certificate(folders[1], epochs=2)
        done = self.report(folders)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("time", "bytes"):
            picture = xml.parse(self.folder / f"out/{name}.svg").getroot()
            height = float(picture.get("viewBox").split()[3])
            drawn = [
                float(y)
                for y in re.findall(
                    r"translate\(\S+ (\S+)\)", xml.tostring(picture, encoding="unicode")
                )
            ]
            self.assertGreater(len(drawn), 40)
            self.assertLess(max(drawn), height, name)

    def test_tells_of_steps_and_workers_that_were_lost(self):
        folders = write_comparison(self.folder)
        file = folders[1] / "summary.json"
        said = json.loads(file.read_text())
        told = {"skipped_steps": 7, "losses": [{"worker": 1}, {"worker": 2}]}
        file.write_text(json.dumps(said | told))
        done = self.report(folders, "--no-plots")
        label = load_runs(folders)[1].label
        self.assertIn(f"WARNING: {label} skipped 7 of {said['steps']} steps", done.stdout)
        self.assertIn(f"WARNING: {label} lost a worker 2 times.", done.stdout)
        rows = json.loads((self.folder / "out/report.json").read_text())["runs"]
        self.assertEqual([row["skipped_steps"] for row in rows[:3]], [None, 7, None])

    def test_without_matplotlib_the_tables_are_written_and_the_error_helps(self):
        runs = write_comparison(self.folder)
        hidden = self.folder / "hidden"
        hidden.mkdir()
        (hidden / "matplotlib.py").write_text("raise ImportError('hidden')")
        (hidden / "run.py").write_text(
            "import sys; from elastiquant_report.__main__ import main; sys.exit(main())"
        )
        python = Path(__file__).parent.parent
        arguments = [sys.executable, hidden / "run.py", "--out", self.folder / "out", *runs]
        environment = {**os.environ, "PYTHONPATH": str(python)}
        done = subprocess.run(arguments, capture_output=True, text=True, env=environment)
        self.assertEqual(done.returncode, 1)
        self.assertIn("make setup", done.stderr)
        self.assertTrue((self.folder / "out" / "report.csv").exists())
        done = subprocess.run([*arguments, "--no-plots"], capture_output=True, env=environment)
        self.assertEqual(done.returncode, 0)

    @unittest.skipUnless(PROGRAM, "needs the program")
    def test_the_program_names_a_python_that_does_not_start(self):
        run = write_run(self.folder / "run")
        done = self.report([run], "--python", "/nowhere/python")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nowhere/python", done.stderr)


class NumbersTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def test_rows_are_what_the_summaries_say(self):
        runs = load_runs(write_comparison(self.folder))
        base, _, four, _ = table.rows(runs)
        self.assertEqual(base["speed_up"], 1.0)
        self.assertEqual(base["fewer_bytes"], 1.0)
        self.assertAlmostEqual(four["fewer_bytes"], 32 / 4.07, places=3)
        self.assertAlmostEqual(
            four["speed_up"], base["total_seconds_per_step"] / four["total_seconds_per_step"]
        )
        self.assertAlmostEqual(
            four["wait_seconds_per_epoch"], 30 * four["wait_seconds_per_step"]
        )

    def test_the_baseline_is_fp32_wherever_it_stands(self):
        folders = write_comparison(self.folder)
        runs = load_runs(folders[::-1])
        self.assertEqual(table.rows(runs)[-1]["speed_up"], 1.0)
        self.assertIn("than fp32", findings.speed(runs))

    def test_labels_are_short_and_tell_runs_apart(self):
        runs = load_runs(write_comparison(self.folder))
        self.assertEqual(
            [run.label for run in runs],
            ["fp32", "elastic:bits=8", "elastic:bits=4", "elastic:bits=4|rans"],
        )
        short = load_runs([self._with_command("c", "elastiquant train --codec 'elastic|rans'")])
        self.assertEqual(short[0].label, "elastic|rans")
        pair = [write_run(self.folder / f"w{n}", workers=n) for n in (2, 4)]
        self.assertEqual(
            [r.label for r in load_runs(pair)], ["fp32, 2 workers", "fp32, 4 workers"]
        )
        ways = [write_run(self.folder / a, algorithm=a) for a in ("dpsgd", "ad-psgd")]
        self.assertEqual([r.label for r in load_runs(ways)], ["dpsgd", "ad-psgd"])
        longer = write_run(self.folder / "longer", algorithm="ad-psgd", steps=240)
        other = write_run(self.folder / "other", "dither:bits=1", algorithm="choco")
        self.assertEqual(
            [r.label for r in load_runs([*ways, longer, other])],
            [
                "dpsgd, fp32, 120 steps",
                "ad-psgd, fp32, 120 steps",
                "ad-psgd, fp32, 240 steps",
                "choco, dither:bits=1, 120 steps",
            ],
        )
        twins = [write_run(self.folder / name) for name in ("a", "b")]
        self.assertEqual([r.label for r in load_runs(twins)], ["fp32 (a)", "fp32 (b)"])

    def _with_command(self, name: str, command: str) -> Path:
        folder = write_run(self.folder / name, "elastic:bits=4,norm=linf|rans")
        summary = json.loads((folder / "summary.json").read_text())
        (folder / "summary.json").write_text(json.dumps({**summary, "command": command}))
        return folder

    def test_names_what_else_differs(self):
        runs = load_runs(
            [write_run(self.folder / "a"), write_run(self.folder / "b", link=None, steps=60)]
        )
        self.assertEqual(differences(runs), ["link (20mbit,10ms, None)", "steps (120, 60)"])
        self.assertEqual(differences(load_runs(write_comparison(self.folder))), [])

    def run_with(self, name: str, options: dict, words: str = "") -> Path:
        """A run whose summary has these options, and whose command those words, too."""
        folder = write_run(self.folder / name)
        summary = json.loads((folder / "summary.json").read_text())
        command = f"elastiquant train --out {folder} {words}"
        summary |= {"options": options, "command": command}
        (folder / "summary.json").write_text(json.dumps(summary))
        return folder

    def differing(self, *runs: tuple[dict, str]) -> list[str]:
        told = enumerate(runs)
        return differences(load_runs([self.run_with(f"{i}", *run) for i, run in told]))

    def test_names_every_option_that_differs(self):
        a = {"--every": 8, "--lr": 0.1, "--augment": True, "--milestones": [0.5, 0.75]}
        b = {"--every": 32, "--lr": 0.1, "--augment": False, "--milestones": [0.5, 0.9]}
        self.assertEqual(
            self.differing((a, "--every 8"), (b, "--no-augment --threads 1 --out x")),
            [
                "--augment (yes, no)",
                "--every (8, 32)",
                "--milestones (0.5 0.75, 0.5 0.9)",
                "--threads (not given, 1)",
            ],
        )
        # A flag, a value that has spaces, and one after an equals sign are in no summary.
        self.assertEqual(
            self.differing(({}, "--samples 'a b' --check"), ({}, "--samples=c")),
            ["--check (yes, not given)", "--samples (a b, c)"],
        )

    def test_what_follows_from_the_codec_or_the_algorithm_is_not_named_again(self):
        codec = {"--codec": "fp32", "--exchange": "two-phase", "--metric": "plain"}
        other = {"--codec": "qsgd", "--exchange": "all-gather", "--metric": "adam"}
        self.assertEqual(self.differing((codec, ""), (other, "")), [])
        self.assertEqual(
            self.differing((codec, "--exchange two-phase"), (other, "")),
            ["--exchange (two-phase, all-gather)"],
        )
        self.assertEqual(
            self.differing((codec, ""), (other, "--metric adam")), ["--metric (plain, adam)"]
        )
        self.assertEqual(self.differing(({"--every": 32}, ""), ({}, "")), [])
        self.assertEqual(
            self.differing(({"--every": 32}, "--every 32"), ({}, "")),
            ["--every (32, not given)"],
        )
        defaults = {"--every": 32}, {"--every": 30}, {}
        self.assertEqual(
            self.differing(*((options, "") for options in defaults)),
            ["--every (32, 30, not given)"],
        )

    def test_findings_follow_the_numbers(self):
        runs = load_runs(write_comparison(self.folder))
        self.assertIn("elastic:bits=4|rans trains 5.8× faster than fp32", findings.speed(runs))
        self.assertIn("13.9× fewer bytes", findings.size(runs))
        self.assertIn("with 88.0 % accuracy against 88.0 %", findings.speed(runs))
        write_run(self.folder / "elastic4-rans", "elastic:bits=4|rans", 2.3, accuracy=80)
        runs = load_runs([run.folder for run in runs])
        self.assertIn("with 80.0 % accuracy against 88.0 %", findings.speed(runs))
        unlimited = [
            write_run(self.folder / "fast", link=None),
            write_run(self.folder / "slow", "elastic:bits=4", 4.07, link=None, compute=0.12),
        ]
        self.assertIn("does not pay", findings.speed(load_runs(unlimited)))

    def test_decisions_are_told_by_layers_or_by_workers(self):
        folder = write_run(self.folder / "run", steps=4, epochs=1)
        add_decisions(
            folder, "bits", lambda step: [[4 - step, 1]], {"groups": ["a.weight", "b"]}
        )
        run = load_runs([folder])[0]
        kind, steps, lines = decisions.series(run)
        self.assertEqual((kind, steps), ("bits", [1, 2, 3, 4]))
        self.assertEqual(lines, {"0: a": [[3], [2], [1], [0]], "1: b": [[1]] * 4})
        self.assertIn("fell from 2 to 0.5", decisions.finding(run))
        # The first steps of dagc-a are by ratio.
        for step in run.steps[1:]:
            step["decisions"] = {"thresholds": [0.5, 1.5]}
        kind, steps, lines = decisions.series(run)
        self.assertEqual((kind, steps), ("thresholds", [2, 3, 4]))
        self.assertEqual(lines, {"worker 0": [[0.5]] * 3, "worker 1": [[1.5]] * 3})
        self.assertIn("threshold 1 throughout", decisions.finding(run))

    def test_shares_are_told_once_for_each_way_of_dealing(self):
        even, uneven = [[5, 5], [5, 5]], [[90, 0], [2, 8]]
        folders = [write_run(self.folder / str(i)) for i in range(4)]
        add_partition(folders[1], "dirichlet:alpha=100", even)
        add_partition(folders[2], "volumes:skew=10", uneven)
        add_partition(folders[3], "volumes:skew=10", uneven)
        runs = shares.dealt(load_runs(folders))
        self.assertEqual([run.folder.name for run in runs], ["1", "2"])
        self.assertEqual(
            shares.finding(runs),
            "volumes:skew=10: the largest share is 9× the smallest, and on average 90% of a "
            "worker's samples are of one class",
        )
        self.assertIn("shares are about equally large", shares.finding(runs[:1]))
        self.assertEqual(
            differences(load_runs(folders[:2])), ["partition (iid, dirichlet:alpha=100)"]
        )

    def test_only_what_all_runs_have_in_common_is_told_of_all(self):
        runs = load_runs([
            write_run(self.folder / "slow"),
            write_run(self.folder / "free", "elastic:bits=4", 4.07, link=None),
        ])  # fmt: skip
        self.assertNotIn("link", findings.setting(runs))
        self.assertIn("link 20mbit,10ms", findings.setting(runs[:1]))
        runs[1].summary["link"] = "20mbit,10ms"
        self.assertEqual(differences(runs), [])
        runs[1].summary["machine"] = {"processor": "another", "cores": 64, "threads": 32}
        (unlike,) = differences(runs)
        self.assertIn("machine (a processor, 2 cores, ", unlike)
        self.assertIn("another, 64 cores, 32 threads, ", unlike)

    def test_runs_that_differ_in_nothing_that_labels_tell_are_told_by_their_paths(self):
        same = [write_run(self.folder / f"lr{n}/run", "qsgd:bits=4", 4.1) for n in (1, 2)]
        labels = [run.label for run in load_runs(same)]
        self.assertEqual(labels, ["qsgd:bits=4 (lr1/run)", "qsgd:bits=4 (lr2/run)"])

    def test_seed_0_is_a_seed(self):
        runs = [write_run(self.folder / f"{n}", "qsgd:bits=4", 4.1, seed=n) for n in (0, 1)]
        labels = [run.label for run in load_runs(runs)]
        self.assertEqual(labels, ["qsgd:bits=4, seed 0", "qsgd:bits=4, seed 1"])

    def test_a_comparison_of_single_workers_says_nothing_of_bytes(self):
        runs = load_runs([
            write_run(self.folder / "one", workers=1),
            write_run(self.folder / "two", "elastic:bits=4", 4.07, workers=1, compute=0.05),
        ])  # fmt: skip
        self.assertNotIn("nan", findings.conclusion(runs))
        self.assertNotIn("bytes", findings.conclusion(runs))

    def test_bytes_sent_are_the_mean_over_unequal_workers(self):
        run = load_runs([write_run(self.folder / "run", steps=8, epochs=2)])[0]
        of_worker_0 = sum(step["bytes_up"] for step in run.steps[:4])
        for epoch, share in zip(run.summary["epochs"], (0.5, 0.25), strict=True):
            epoch["bytes_up"] = share * of_worker_0
        self.assertAlmostEqual(run.sent()[3], 0.5 * of_worker_0)
        self.assertAlmostEqual(run.sent()[-1], 0.75 * of_worker_0)

    def test_curves_are_sums_over_steps(self):
        run = load_runs([write_run(self.folder / "run", steps=8, epochs=2)])[0]
        self.assertAlmostEqual(run.elapsed()[-1], run["seconds"]["total"])
        self.assertEqual(run.sent()[-1], run["bytes_up"])
        self.assertEqual([at for at, _ in run.epoch_ends()], [3, 7])

    def test_smoothing_keeps_constants_ends_and_gaps(self):
        self.assertEqual(plots.smooth([2.0] * 9, 5), [2.0] * 9)
        self.assertEqual(plots.smooth([1.0, 5.0, 3.0], 3), [1.0, 3.0, 4.0])
        self.assertEqual(plots.smooth([1.0, math.nan, 3.0], 3), [1.0, 2.0, 3.0])
        self.assertTrue(math.isnan(plots.smooth([math.nan], 3)[0]))

    def test_skipped_steps_have_no_loss(self):
        folder = write_run(self.folder / "run")
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        step = json.loads(lines[5])
        step["loss"] = None
        lines[5] = json.dumps(step)
        (folder / "metrics.jsonl").write_text("\n".join(lines))
        self.assertTrue(math.isnan(load_runs([folder])[0].series("loss")[5]))

    def test_seconds_show_three_digits(self):
        self.assertEqual(table.seconds(0.01234), "0.0123")
        self.assertEqual(table.seconds(1.234), "1.23")
        self.assertEqual(table.seconds(123.4), "123")
        self.assertEqual(table.seconds(0), "0")

    def test_broken_json_is_a_run_error(self):
        folder = write_run(self.folder / "run")
        (folder / "summary.json").write_text("{")
        with self.assertRaisesRegex(RunError, "not valid JSON"):
            load_runs([folder])


if __name__ == "__main__":
    unittest.main()
