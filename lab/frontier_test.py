"""What the frontier trains, and what it makes of its runs."""

import contextlib
import io
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import frontier
import frontier_options
import frontier_plot
import frontier_rows
import frontier_schemes
import namespaces
from atlas_plan import ON_THE_WIRE
from frontier_rows import Row
from frontier_schemes import BITS, FP32, METHODS, Scheme


def summary(loss: float | None, bits: float = 32, sent: float = 1e6) -> dict:
    return {
        "test_loss": loss,
        "test_accuracy": 50.0,
        "bits_per_coordinate": bits,
        "bytes_up": sent,
        "steps": 100,
        "seconds": {"compute": 10.0},
    }


def make_row(name: str, loss: float, sent: float) -> Row:
    return frontier_rows.row(
        frontier_schemes.parse(name), {0.1: summary(loss, sent=sent)}, {}, 1
    )


class SchemesTest(unittest.TestCase):
    def test_names_lead_back_to_schemes(self):
        schemes = frontier_schemes.grid(list(METHODS), [8, 32], list(BITS))
        self.assertEqual(schemes[0], FP32)
        self.assertEqual(len(schemes), 1 + 3 + 6 * 2 * len(BITS) + 2)
        self.assertEqual(len({s.name for s in schemes}), len(schemes))
        self.assertEqual(len({frontier.folder(s) for s in schemes}), len(schemes))
        for scheme in schemes:
            self.assertEqual(frontier_schemes.parse(scheme.name), scheme)

    def test_unknown_names_are_refused(self):
        for name in (
            "",
            "local",
            "local 8",
            "local 0, 1 bit",
            "DDP, 1/8 bit",
            "lokal 8, 1 bit",
        ):
            with self.assertRaisesRegex(ValueError, "is no scheme"):
                frontier_schemes.parse(name)

    def test_what_training_is_told(self):
        def said(name: str) -> str:
            return " ".join(frontier_schemes.parse(name).options(BITS))

        self.assertEqual(said("fp32"), "--algorithm allreduce --codec fp32")
        self.assertEqual(
            said("local 8, 1 bit"), "--algorithm local-sgd --every 8 --codec dither:bits=1"
        )
        self.assertEqual(
            said("streaming .5 32, 1/2 bit"),
            "--algorithm diloco:lr=0.9,momentum=0.5,delay=4,mix=0.5 --every 32 --fragments 4 "
            "--codec dither:bits=0.5 --exact none",
        )
        self.assertEqual(
            said("QSR 6, fp32"),
            "--algorithm local-sgd --every 6 --every-growth 2 --codec fp32",
        )
        self.assertEqual(said("SparseLoCo 30"), "--algorithm sparseloco --every 30")
        # The frontier's DDP keeps biases and norms exact, as `train` does by itself.
        self.assertNotIn("--exact", said("DDP, 1/2 bit"))


class RowsTest(unittest.TestCase):
    def test_the_best_rate_is_that_of_seed_1(self):
        by_rate = {0.1: summary(2.0), 0.2: summary(1.5, bits=3), 0.4: {"failed": "NaN"}}
        row = frontier_rows.row(FP32, by_rate, {2: summary(1.7, bits=5)}, 2)
        self.assertEqual((row.rate, row.losses, row.bits), (0.2, {1: 1.5, 2: 1.7}, 4))
        self.assertAlmostEqual(row.loss, 1.6)
        self.assertEqual(row.by_rate[0.4], math.inf)

    def test_a_loss_that_is_not_finite_is_a_failure(self):
        with self.assertRaisesRegex(ValueError, "all runs of fp32 failed"):
            frontier_rows.row(FP32, {0.1: summary(None), 0.2: {"failed": "lost"}}, {}, 1)

    def test_losses_are_compared_over_the_same_seeds(self):
        base = frontier_rows.row(FP32, {0.1: summary(2.0)}, {2: summary(4.0)}, 2)
        self.assertAlmostEqual(
            frontier_rows.relative(make_row("local 8, fp32", 2.1, 1), base), 5
        )
        # Seed 2 failed: seed 3 is not compared with another seed in its place.
        others = {2: {"failed": "NaN"}, 3: summary(9.0)}
        local = frontier_schemes.parse("local 8, fp32")
        row = frontier_rows.row(local, {0.1: summary(2.1)}, others, 3)
        self.assertAlmostEqual(frontier_rows.relative(row, base), 5)

    def test_frontier(self):
        fp32, worse = make_row("fp32", 1.0, 1000), make_row("local 8, fp32", 1.1, 900)
        few, same = make_row("local 8, 1 bit", 1.05, 10), make_row("local 8, 2 bits", 1.05, 20)
        self.assertEqual(frontier_rows.frontier([fp32, worse, few, same]), [few, fp32])
        self.assertIs(frontier_rows.reached([fp32, worse, few, same], 6), few)
        self.assertIs(frontier_rows.reached([fp32, worse, few, same], 3), fp32)
        self.assertEqual(frontier_rows.fewer(few, fp32), 100)

    def test_seconds_are_computing_and_a_part_of_an_exchange(self):
        # 100 steps, a round every 10: ten exchanges of 0.1 MB, .8 Mbit, each with two delays.
        row = make_row("local 10, fp32", 1.0, 1e6)
        exchange = 0.8 * ON_THE_WIRE + 0.1
        found = frontier_rows.computed_seconds(row, "1mbit,50ms", 0.2)
        self.assertAlmostEqual(found, 0.2 + exchange / 10)

    def test_seconds_of_streams_hide_what_travels_in_their_delay(self):
        # A fragment every 4 of 16 steps, applied 2 steps later.
        row = make_row("streaming 16, fp32", 1.0, 1e6)
        exchange = 8e6 * ON_THE_WIRE / (100 / 16 * 4) / 1e6
        found = frontier_rows.computed_seconds(row, "1mbit", 0.01)
        self.assertAlmostEqual(found, 0.01 + 4 * (exchange - 0.02) / 16)
        self.assertEqual(frontier_rows.computed_seconds(row, "1gbit", 0.01), 0.01)

    def test_table(self):
        rows = [make_row("fp32", 2.0, 4e8), make_row("local 8, 1 bit", 2.05, 1e6)]
        text = frontier_rows.table(rows, [0.1, 0.2], ["1mbit"], {"fp32": [9.5]}, accuracy=False)
        lines = text.splitlines()
        self.assertEqual(len(lines), 4)
        self.assertEqual(
            lines[2],
            "| **fp32** | 32.00 | 400 | 1 | 2.0000 |  | 2.0000 | +0.00 % | 9.5 |",
        )
        self.assertIn("| 1 | 400 | 2.0500 |  | 2.0500 | +2.50 % |  |", lines[3])
        self.assertIn("50.00 %", frontier_rows.table(rows, [], [], {}, accuracy=True))

    def test_a_seed_that_failed_is_told(self):
        good = frontier_rows.row(FP32, {0.1: summary(2.0)}, {2: summary(2.2)}, 2)
        bad = frontier_rows.row(
            frontier_schemes.parse("local 8, 1 bit"), {0.1: summary(2.0)}, {2: summary(None)}, 2
        )
        *_, fp32, local = frontier_rows.table([good, bad], [], [], {}, False).splitlines()
        self.assertTrue(fp32.endswith("| 2.1000 ± 0.1414 (2 seeds) | +0.00 % |"), fp32)
        self.assertTrue(local.endswith("| failed |  |"), local)

    def test_seeds_that_do_not_count_are_told(self):
        others = {2: {"failed": "NaN"}, 3: summary(2.2)}
        for counted, words in (
            (others, "| 2.1000 ± 0.1414 (2 of 3 seeds) |"),
            ({2: others[2]}, "| 2.0000 (1 of 3 seeds) |"),
        ):
            row = frontier_rows.row(FP32, {0.1: summary(2.0)}, counted, 3)
            self.assertIn(words, frontier_rows.table([row], [], [], {}, False))
        self.assertEqual(frontier_rows.mean_cell([2.0]), "2.0000")


class PlotTest(unittest.TestCase):
    def test_title(self):
        rows = [make_row("fp32", 2.0, 4e8), make_row("local 8, 1 bit", 2.05, 1e5)]
        self.assertIn("4,000 times fewer bytes within 3 %", frontier_plot.title(rows))
        self.assertIn("No scheme", frontier_plot.title(rows[:1]))

    def test_a_name_stands_where_it_covers_nothing(self):
        inside, taken = (0, 0, 100, 100), [(40, 40, 60, 60)]
        over, outside, free = (50, 50, 70, 60), (90, 90, 110, 100), (70, 40, 90, 50)
        places = [[over], [outside], [free]]
        self.assertEqual(frontier_plot.choose(places, taken, inside, anyway=False), 2)
        self.assertIsNone(frontier_plot.choose(places[:2], taken, inside, anyway=False))
        self.assertEqual(frontier_plot.choose(places[:2], taken, inside, anyway=True), 0)

    def test_of_many_schemes_some_are_named(self):
        rows = [make_row("fp32", 2.0, 1e9)]
        rows += [make_row(f"local {n}, 1 bit", 2.0 + 0.001 * n, 1e6 + n) for n in range(2, 30)]
        best = frontier_rows.frontier(rows)
        self.assertEqual([r.scheme.name for r in best], ["local 2, 1 bit", "fp32"])
        named = frontier_plot.worth_naming(rows, best)
        self.assertEqual([r.scheme.name for r in named[2:]], ["local 3, 1 bit"])
        self.assertEqual(len(frontier_plot.worth_naming(rows[:10], best)), 10)

    def test_draws_what_is_far_off_beside_the_plot(self):
        rows = [make_row("fp32", 2.0, 1e9), make_row("local 8, 1 bit", 2.01, 1e6)]
        rows += [make_row("DiLoCo 8, 1 bit", 70.0, 1e6)]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "frontier.png"
            frontier_plot.draw(rows, "tested", path)
            self.assertEqual(path.read_bytes()[:4], b"\x89PNG")


class CommandTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.out = pathlib.Path(holder.name)
        self.trained: list[list[str]] = []

    def lab(self, *words: str) -> frontier.Lab:
        command = ["frontier.py", "--out", str(self.out), *words]
        with mock.patch.object(sys, "argv", command):
            args = frontier_options.parse("")
        return frontier.Lab(args, args.schemes)

    def train(self, command: list[str], **_) -> subprocess.CompletedProcess:
        """Learns best at a rate of .2, and fails at .4."""
        self.trained.append(command)
        rate = float(command[command.index("--lr") + 1])
        if rate == 0.4:
            return subprocess.CompletedProcess(command, 5, "", "gave up at step 9")
        out = pathlib.Path(command[command.index("--out") + 1])
        out.mkdir(parents=True)
        (out / "summary.json").write_text(json.dumps(summary(2 + abs(rate - 0.2))))
        return subprocess.CompletedProcess(command, 0, "", "")

    def row(self, lab: frontier.Lab, scheme: Scheme) -> Row | None:
        with (
            mock.patch("subprocess.run", self.train),
            mock.patch("builtins.print"),
        ):
            return lab.row(scheme)

    def test_other_seeds_train_at_the_best_rate(self):
        lab = self.lab("--rates", ".1", ".2", ".4", "--seeds", "3", "--schemes", "fp32")
        row = self.row(lab, FP32)
        self.assertEqual((row.rate, row.losses), (0.2, {1: 2, 2: 2, 3: 2}))
        self.assertEqual(len(self.trained), 5)
        self.assertEqual(self.row(lab, FP32), row)
        self.assertEqual(len(self.trained), 5)  # also the run that failed is there
        failed = self.out / "runs/fp32_lr0.4_seed1/failed.txt"
        self.assertEqual(failed.read_text(), "gave up at step 9")

    def test_a_training_that_was_ended_has_not_failed(self):
        lab = self.lab("--rates", ".2", "--schemes", "fp32")
        by_worker = "worker 1 was killed by SIGKILL; the others were stopped"
        for code, words, error in (
            (3, "elastiquant: stopped by SIGINT", KeyboardInterrupt),
            (1, "stopped", KeyboardInterrupt),
            (-9, "", KeyboardInterrupt),
            (3, by_worker, namespaces.LabError),
            (2, "--data: no such folder", namespaces.LabError),
        ):
            with self.subTest(words), self.assertRaises(error):
                done = subprocess.CompletedProcess([], code, "", words)
                with mock.patch("subprocess.run", return_value=done):
                    lab.row(FP32)
            self.assertFalse((self.out / "runs/fp32_lr0.2_seed1/failed.txt").exists())

    def test_the_table_says_which_seeds_failed(self):
        lab = self.lab("--rates", ".2", "--seeds", "3", "--schemes", "fp32", "--links")
        (self.out / "runs/fp32_lr0.2_seed2").mkdir(parents=True)
        (self.out / "runs/fp32_lr0.2_seed2/failed.txt").write_text("NaN")
        row = self.row(lab, FP32)
        self.assertEqual(row.losses, {1: 2, 3: 2})
        with mock.patch("builtins.print"):
            frontier.write(lab.args, lab, [row])
        text = (self.out / "table.md").read_text()
        self.assertIn("| 2.0000 ± 0.0000 (2 of 3 seeds) |", text)
        self.assertIn("Not all 3 seeds count**, as runs failed or are not there: fp32.", text)

    def test_a_scheme_that_fails_with_a_seed_is_not_the_best(self):
        def row(name, losses, failed, sent):
            scheme = frontier_schemes.parse(name)
            return frontier_rows.Row(
                scheme, {0.1: losses[1]}, 0.1, losses, 2, failed, None, 1.0, sent, 10
            )

        fp32 = row("fp32", {1: 2.0, 2: 3.0}, 0, 100)
        lucky = row("DDP, 1 bit", {1: 2.0}, 1, 10)
        good = row("DDP, 2 bits", {1: 2.1, 2: 3.1}, 0, 10)
        found = frontier_rows.frontier([fp32, lucky, good])
        self.assertEqual(found, [good, fp32])
        # Of a scheme with one seed the other one of full precision does not count.
        one = row("DDP, 1/2 bit", {1: 2.2}, 0, 5)
        self.assertAlmostEqual(frontier_rows.relative(one, fp32), 10)
        self.assertEqual(frontier_rows.frontier([fp32, good, one]), [one, good, fp32])
        text = frontier_rows.table([fp32], [0.1], [], {}, accuracy=True)
        self.assertNotIn("0.00 %", text.replace("+0.00 %", ""))

    def test_a_table_tells_what_its_runs_were_made_with(self):
        words = ["--model", "resnet18", "--workers", "8", "--steps", "20"]
        frontier.check_settings(self.lab(*words, "--schemes", "fp32").args)
        args = self.lab("--table-only", "--schemes", "fp32").args
        self.assertEqual((args.model, args.workers, args.steps), ("resnet18", 8, 20))
        self.assertIs(args.optimizer, frontier_options.IMAGES[0])
        self.assertEqual(args.rates, frontier_options.IMAGES[1])

    def test_what_ends_it_ends_its_trainings(self):
        program = self.out / "sleeps"
        program.write_text(f"#!/bin/sh\necho $$ >> {self.out}/begun\nexec sleep 60\n")
        program.chmod(0o755)
        words = ["--out", self.out, "--program", program, "--schemes", "fp32"]
        words += ["--rates", ".1", ".2", "--jobs", "2", "--links"]
        command = [sys.executable, frontier.__file__, *words]
        with subprocess.Popen([str(w) for w in command], stderr=subprocess.PIPE) as running:
            begun = self.out / "begun"
            while running.poll() is None and (
                not begun.exists() or len(begun.read_text().split()) < 2
            ):
                time.sleep(0.05)
            running.terminate()
            _, said = running.communicate()
        self.assertIn(b"stopped; run it again", said)
        for number in begun.read_text().split():
            with self.assertRaises(ProcessLookupError):
                os.kill(int(number), 0)

    def test_nothing_is_trained_for_a_table_only(self):
        lab = self.lab("--table-only", "--schemes", "fp32")
        self.assertIsNone(self.row(lab, FP32))
        self.assertEqual(self.trained, [])

    def test_other_runs_do_not_mix(self):
        frontier.check_settings(self.lab("--schemes", "fp32").args)
        with self.assertRaisesRegex(namespaces.LabError, "with steps 1000, not 20"):
            frontier.check_settings(self.lab("--steps", "20", "--schemes", "fp32").args)

    def test_several_are_trained_at_a_time_and_then_found(self):
        words = ["--rates", ".1", ".2", "--seeds", "2", "--jobs", "3", "--schemes"]
        lab = self.lab(*words, "fp32", "DDP, 1 bit")
        with mock.patch("subprocess.run", self.train), mock.patch("builtins.print"):
            lab.train_at_once()
        self.assertEqual(len(self.trained), 6)
        for scheme in lab.schemes:
            self.assertEqual(self.row(lab, scheme).losses, {1: 2, 2: 2})
        self.assertEqual(len(self.trained), 6)

    def test_a_gpu_trains_what_it_has(self):
        gpu = ["--device", "cuda", "--links", "--model", "resnet20"]
        lab = self.lab(*gpu, "--schemes", "fp32", "DiLoCo .5 8, 1 bit")
        command = lab.command(lab.schemes[1], 0.1, 20, self.out)
        self.assertEqual(command[1], str(frontier.ON_DEVICE))
        self.assertEqual(command[command.index("--device") + 1], "cuda")
        self.assertEqual(command[command.index("--every") + 1], "8")
        self.assertTrue((frontier.ON_DEVICE / "__main__.py").exists())
        for words, said in (
            ([*gpu, "--schemes", "fp32", "SparseLoCo 32"], "no SparseLoCo"),
            (["--device", "cuda", "--schemes", "fp32", "--links"], "models for images"),
            (["--device", "cuda", "--schemes", "fp32"], "--computing SECONDS"),
            ([*gpu, "--schemes", "fp32", "--measure", "9"], "leave out --measure"),
        ):
            error = io.StringIO()
            with contextlib.redirect_stderr(error), self.assertRaises(SystemExit):
                self.lab(*words)
            self.assertIn(said, error.getvalue())

    def test_numbers_that_cannot_be_are_refused_at_once(self):
        for option in ("--every", "--seeds", "--steps", "--jobs"):
            error = io.StringIO()
            with contextlib.redirect_stderr(error), self.assertRaises(SystemExit):
                self.lab(option, "0")
            self.assertIn("take numbers of 1 or more", error.getvalue())

    def test_runs_of_a_gpu_do_not_mix_with_those_of_train(self):
        words = ["--links", "--model", "resnet20", "--schemes", "fp32"]
        frontier.check_settings(self.lab(*words).args)
        with self.assertRaisesRegex(namespaces.LabError, "with device 'cpu', not 'cuda'"):
            frontier.check_settings(self.lab("--device", "cuda", *words).args)

    def test_a_codec_may_be_another(self):
        lab = self.lab("--codecs", "1/4 bit=eden:bits=0.25", "--schemes", "fp32")
        scheme = frontier_schemes.parse("local 8, 1/4 bit")
        command = lab.command(scheme, 0.1, 20, self.out)
        self.assertEqual(command[command.index("--codec") + 1], "eden:bits=0.25")
        self.assertEqual(command[command.index("--exact") + 1], "none")

    def test_the_table_needs_full_precision(self):
        with mock.patch("sys.stderr"), self.assertRaises(SystemExit):
            self.lab("--schemes", "local 8, 1 bit")


if __name__ == "__main__":
    unittest.main()
