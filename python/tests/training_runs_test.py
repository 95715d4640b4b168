"""elastiquant_testbed.training: runs that are made once and kept, and the data they need."""

import os
import tempfile
import time
import unittest
from collections import Counter
from pathlib import Path
from unittest import mock

from elastiquant_testbed import (
    cifar,
    dagc,
    levels,
    levels_show,
    outcomes,
    provenance,
    stored,
    table3,
    table4,
    testbed,
    training,
)
from elastiquant_testbed.experiments import EXPERIMENTS
from elastiquant_testbed.testbed import TestbedError
from fake_training import FakeTraining


def write_cifar(folder):
    """Six names of one file, in which each class has as many images as another."""
    folder.mkdir()
    records = (bytes([i % cifar.CLASSES]) + bytes(cifar.RECORD - 1) for i in range(10_000))
    (folder / cifar.TEST).write_bytes(b"".join(records))
    for name in cifar.TRAIN:
        os.link(folder / cifar.TEST, folder / name)


class CifarTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name) / "images"
        write_cifar(self.folder)

    def refused(self, words):
        with self.assertRaisesRegex(testbed.TestbedError, words) as raised:
            cifar.require(str(self.folder))
        self.assertIn("elastiquant data fetch cifar10", str(raised.exception))

    def test_cifar_10_is_taken(self):
        cifar.require(str(self.folder))

    def test_a_file_that_is_missing_or_of_another_length_is_named(self):
        path = self.folder / "data_batch_3.bin"
        path.unlink()
        self.refused("there is no data_batch_3.bin")
        path.write_bytes(bytes(3073))
        self.refused("data_batch_3.bin has 3073 bytes, not 30730000")
        self.folder = self.folder / "nowhere"
        self.refused("no such folder")

    def test_files_of_the_same_length_with_other_images_are_refused(self):
        path = self.folder / "data_batch_5.bin"
        images = bytearray(path.read_bytes())
        images[0] = 1  # which was 0
        path.unlink()
        path.write_bytes(images)
        self.refused("its training set does not have 5000 images of every class")

    def test_nothing_is_trained_on_other_images(self):
        (self.folder / cifar.TEST).unlink()
        for make, _ in EXPERIMENTS.values():
            if make is table3.Table3:
                continue  # it takes no images
            choice = training.Choice(True, str(self.folder))
            experiment = make(None, self.folder.parent / "out", choice)
            with (
                mock.patch.object(training.subprocess, "run") as run,
                self.assertRaisesRegex(testbed.TestbedError, "is not CIFAR-10"),
            ):
                experiment.run()
            run.assert_not_called()

    def test_runs_on_cifar_10_keep_the_names_that_are_stored(self):
        names = outcomes.read(outcomes.path_of("levels", stored.FOLDER)).keys()
        choice = training.Choice(False, "anywhere", precision="bf16")
        experiment = levels.Levels(None, Path("unused"), choice)
        run = experiment.one(experiment.networks[0], experiment.schemes[0], 1)
        self.assertIn(run.folder, names)


class RunsTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.out = Path(holder.name)
        self.training = FakeTraining()
        for patch in (
            mock.patch.object(training.subprocess, "run", self.training.run),
            mock.patch.object(training, "say"),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def test_a_run_is_made_once_and_little_of_it_is_kept(self):
        run = training.Run("a, b", training.options(steps=2, model="mlp"))
        other = training.Run("a, b", training.options(steps=3, model="mlp"))
        self.assertNotEqual(run.folder, other.folder)
        for _ in range(2):
            runs = training.Runs(self.out, [run], training.Choice())
            runs.make()
            told = runs.outcome(run)
            self.assertEqual(told.steps, [{"step": 2, "variance": 3}])
            self.assertNotIn("layers", told.summary)
        self.assertEqual(len(self.training.calls), 1)
        self.assertEqual(self.training.calls[0][2:6], ["--steps", "2", "--model", "mlp"])

    def test_errors_are_measured_on_what_a_run_has_dumped(self):
        run = training.Run("a", training.options(steps=2), measured=("fp16", "qsgd"))
        runs = training.Runs(self.out, [run], training.Choice())
        runs.make()
        self.assertEqual(runs.outcome(run).summary["errors"], {"fp16": 4.5, "qsgd": 4.5})
        # One that was stopped before its errors were measured is not there yet.
        (self.out / run.folder / training.ERRORS).unlink()
        self.assertFalse(training.Runs(self.out, [run], training.Choice()).has(run))

    def test_errors_that_are_missing_are_measured(self):
        run = training.Run("a", training.options(steps=2), measured=("fp16",))
        training.Runs(self.out, [run], training.Choice()).make()
        more = run._replace(measured=("fp16", "qsgd"))
        self.assertEqual(more.folder, run.folder)
        runs = training.Runs(self.out, [more], training.Choice())
        self.assertFalse(runs.has(more))
        runs.make()
        self.assertEqual(runs.outcome(more).summary["errors"], {"fp16": 4.5, "qsgd": 4.5})

    def test_an_analysis_that_was_interrupted_does_not_train_again(self):
        run = training.Run("a", training.options(steps=2), measured=("fp16",))
        stopped = mock.patch.object(self.training, "analysis", side_effect=KeyboardInterrupt)
        with stopped, self.assertRaises(KeyboardInterrupt):
            training.Runs(self.out, [run], training.Choice()).make()
        (self.out / run.folder / "gradients").mkdir()  # as the trainer leaves it
        runs = training.Runs(self.out, [run], training.Choice())
        runs.make()
        self.assertEqual(len(self.training.calls), 1)
        self.assertEqual(runs.outcome(run).summary["errors"], {"fp16": 4.5})

    def test_a_codec_that_fails_on_a_gradient_is_told(self):
        run = training.Run("a", training.options(steps=2), measured=("fp16",))
        failed = {"inputs": [{"results": [{"codec": "fp16", "error": "value 3 is infinite"}]}]}
        with (
            mock.patch.object(self.training, "analysis", return_value=failed),
            self.assertRaisesRegex(testbed.TestbedError, "a: error of fp16: value 3 is inf"),
        ):
            training.Runs(self.out, [run], training.Choice()).make()

    def test_a_failure_is_told(self):
        run = training.Run("a, b", training.options(steps=2))
        failed = mock.Mock(returncode=2, stderr="invalid argument: no")
        with (
            mock.patch.object(training.subprocess, "run", return_value=failed),
            self.assertRaisesRegex(testbed.TestbedError, "a, b: invalid argument: no"),
        ):
            training.Runs(self.out, [run], training.Choice()).make()

    def test_known_runs_are_not_made_again_wherever_the_images_lie(self):
        a, b = self.out / "a", self.out / "b"
        for folder in (a, b):
            write_cifar(folder)
        there = table4.Table4(None, self.out / "there", training.Choice(True, str(a)))
        first = there.run()
        self.assertIn(str(a), self.training.calls[0])
        count = len(self.training.calls)
        known = training.Choice(True, str(b), known=self.out / "there")
        here = table4.Table4(None, self.out / "here", known)
        self.assertEqual(here.run(), first)
        self.assertEqual(len(self.training.calls), count)
        self.assertEqual(
            (self.out / "here/table4.runs.jsonl").read_text(),
            (self.out / "there/table4.runs.jsonl").read_text(),
        )

    def test_outcomes_of_other_options_stay_in_the_file(self):
        for precision in ("fp32", "bf16", "fp32"):
            choice = training.Choice(True, precision=precision)
            table4.Table4(None, self.out, choice).run()
        there = outcomes.read(outcomes.path_of("table4", self.out))
        self.assertEqual(len(there), 2 * len(table4.RESNET_20))

    def test_known_runs_of_other_options_are_not_passed_over_in_silence(self):
        table4.Table4(None, self.out, training.Choice(True)).run()
        other = training.Choice(True, precision="bf16", known=self.out)
        with self.assertRaisesRegex(testbed.TestbedError, "none of the 5 runs of .* --precis"):
            table4.Table4(None, self.out / "here", other).run()
        empty = training.Choice(True, known=self.out / "empty")
        with self.assertRaisesRegex(testbed.TestbedError, "there are no runs in .*empty"):
            table4.Table4(None, self.out / "here", empty).run()

    def test_a_damaged_line_of_known_runs_is_named(self):
        path = outcomes.path_of("table4", self.out)
        for line in (b'{"run": "a", "summ', b"[1]", b"3", b'{"summary": {}}', b"", b"\xff\xfe"):
            path.write_bytes(b'{"run": "a"}\n' + line + b"\n")
            words = "table4.runs.jsonl, line 2 is not the outcome of a run"
            with self.subTest(line), self.assertRaisesRegex(testbed.TestbedError, words):
                outcomes.read(path)

    def test_a_known_run_without_the_fields_of_an_outcome_is_named(self):
        for told in (
            {},
            {"total": 1},
            {"summary": {}},
            {"summary": {}, "steps": [], "more": 1},
            {"summary": {}, "steps": []},
            {"summary": [], "steps": []},
        ):
            outcomes.write(outcomes.path_of("table4", self.out), {"a run": told})
            choice = training.Choice(True, known=self.out)
            words = "table4.runs.jsonl: what is there of the run a run is not the outcome"
            with self.subTest(told), self.assertRaisesRegex(testbed.TestbedError, words):
                table4.Table4(None, self.out / "here", choice).run()

    def test_what_a_gpu_has_trained_in_the_same_folder_counts(self):
        images = self.out / "images"
        write_cifar(images)
        on_gpu = training.Choice(data=str(images), device="cuda")
        first = table4.Table4(None, self.out, on_gpu).run()
        count = len(self.training.calls)
        result = table4.Table4(None, self.out, training.Choice(data=str(images))).run()
        names = {(c["network"], c["scheme"], c["devices"]) for c in first["cells"]}
        made = len(self.training.calls) - count
        self.assertEqual(made, len(result["cells"]) - len(names))
        self.assertFalse([line for line in result["left_out"] if "not made yet" in line])

    def test_no_run_is_taken_for_one_of_another_precision(self):
        for precision in ("fp32", "bf16", "bf16"):
            choice = training.Choice(True, precision=precision)
            result = table4.Table4(None, self.out, choice).run()
            self.assertEqual(result["precision"], precision)
        cells = len(table4.RESNET_20)
        self.assertEqual(len(self.training.calls), 2 * cells)
        self.assertNotIn("--precision", self.training.calls[0])
        self.assertIn("bf16", self.training.calls[cells])
        self.assertIn("--precision bf16", provenance.command("table4", result))
        self.assertIn("multiplied in bf16", EXPERIMENTS["table4"][1].text(result))

    def test_either_precision_will_do_and_this_machine_adds_runs_in_the_one_it_is_fast_in(self):
        some = training.Choice(True, precision="bf16", minutes=0.5)
        clock = iter(range(0, 1000, 20))
        with mock.patch.object(training.time, "monotonic", lambda: next(clock)):
            table4.Table4(None, self.out / "some", some).run()
        cells, known = len(table4.RESNET_20), len(self.training.calls)
        self.assertIn(known, range(1, cells))
        either = training.Choice(True, precision="either", known=self.out / "some")
        for faster, flags in (("fp32", "avx512f fma"), ("bf16", "avx512f amx_bf16")):
            processor, before = self.out / faster, len(self.training.calls)
            processor.write_text(f"flags\t: {flags}\n")
            with mock.patch.object(provenance, "CPUS", processor):
                result = table4.Table4(None, self.out / f"in {faster}", either).run()
            counts = Counter({"bf16": known}) + Counter({faster: cells - known})
            self.assertEqual(result["runs_by_precision"], counts)
            self.assertEqual(len(result["cells"]), cells)
            made = self.training.calls[before:]
            self.assertEqual(len(made), cells - known)
            for words in made:
                self.assertEqual("--precision" in words, faster == "bf16")
                self.assertNotIn("either", words)
            kept = outcomes.read(outcomes.path_of("table4", self.out / f"in {faster}"))
            self.assertEqual(len(kept), cells)
            self.assertIn("--precision either", provenance.command("table4", result))
            text = EXPERIMENTS["table4"][1].text(result)
            told = "bf16." if faster == "bf16" else f"bf16 ({known} runs) and fp32 ("
            self.assertIn(f"Matrices are multiplied in {told}", text)

    def test_what_a_gpu_has_trained_is_preferred_and_not_trained_again(self):
        images = self.out / "images"
        write_cifar(images)
        on_gpu = training.Choice(data=str(images), device="cuda", jobs=3, minutes=5)
        clock = iter(range(0, 10_000, 30))
        with mock.patch.object(training.time, "monotonic", lambda: next(clock)):
            first = table4.Table4(None, self.out / "gpu", on_gpu).run()
        self.assertEqual({cell["trained_on"] for cell in first["cells"]}, {"cuda"})
        for words in self.training.calls:
            self.assertEqual(words[1], str(training.ON_DEVICE))
            self.assertEqual(words[words.index("--device") + 1], "cuda")
        self.assertIn("--device cuda", provenance.command("table4", first))
        count = len(self.training.calls)
        here = training.Choice(data=str(images), known=self.out / "gpu")
        result = table4.Table4(None, self.out / "cpu", here).run()
        self.assertEqual(len(result["cells"]), 19)
        trained = {cell["trained_on"] for cell in result["cells"]}
        self.assertEqual(trained, {"cuda", "cpu"})
        for words in self.training.calls[count:]:
            self.assertEqual(words[1], "train")
            # A worker that a busy machine keeps waiting is not lost.
            self.assertEqual(float(words[words.index("--timeout") + 1]), 600)
        names = [(c["network"], c["scheme"], c["devices"]) for c in first["cells"]]
        for cell in result["cells"]:
            if (cell["network"], cell["scheme"], cell["devices"]) in names:
                self.assertEqual(cell["trained_on"], "cuda")
        self.assertIn("| GPU |", EXPERIMENTS["table4"][1].text(result))

    def test_a_gpu_trains_cifar_10_alone_and_only_where_it_can(self):
        with self.assertRaisesRegex(testbed.TestbedError, "CIFAR-10 only"):
            table4.Table4(None, self.out, training.Choice(device="cuda"))
        with self.assertRaisesRegex(testbed.TestbedError, "levels needs what only `train`"):
            levels.Levels(None, self.out, training.Choice(data="x", device="cuda"))

    def test_after_the_given_minutes_what_is_there_is_shown(self):
        choice = training.Choice(True, minutes=0)
        with self.assertRaisesRegex(testbed.TestbedError, "more --minutes"):
            table4.Table4(None, self.out, choice).run()
        clock = iter(range(0, 10_000, 60))
        with mock.patch.object(training.time, "monotonic", lambda: next(clock)):
            choice = training.Choice(True, minutes=5)
            result = levels.Levels(None, self.out, choice).run()
        self.assertEqual([row["scheme"] for row in result["rows"]][:1], ["fp32"])
        self.assertIn("not made yet", result["left_out"][-1])
        self.assertEqual(result["checks"], [])  # no claim has all its schemes
        self.assertIn("| fp32 |", levels_show.text(result))
        levels_show.draw(result, self.out / "levels")
        whole = levels.Levels(None, self.out, training.Choice(True)).run()
        self.assertGreater(len(whole["checks"]), 5)
        self.assertNotIn("not made yet", whole["left_out"][-1])

    def test_a_seed_of_dagc_counts_once_all_schemes_have_it(self):
        experiment = dagc.Dagc(None, self.out, training.Choice())
        runs = [experiment.one(scheme, dagc.SETTINGS[0], 1) for scheme in dagc.SCHEMES]
        with mock.patch.object(experiment, "make") as make:
            make.return_value = training.Runs(self.out, runs, training.Choice())
            make.return_value.make()
            result = experiment.run()
        self.assertEqual(len(result["rows"]), len(dagc.SCHEMES))
        self.assertEqual(result["rows"][0]["skew"], 100)
        dagc.draw(result, self.out / "dagc")


class JobsTest(unittest.TestCase):
    def call(self, run, words):
        """One fails at once; the other begins to train when that has been seen."""
        del words
        if run.name == "fails":
            raise TestbedError("it failed")
        time.sleep(0.3)
        training.subprocess.run(["sleep", "60"])

    def test_a_run_that_is_about_to_start_is_ended_too(self):
        wanted = [training.Run(name, ()) for name in ("trains", "fails")]
        with tempfile.TemporaryDirectory() as folder:
            runs = training.Runs(Path(folder), wanted, training.Choice(jobs=2))
            begun = time.monotonic()
            with (
                mock.patch.object(training, "_call", self.call),
                self.assertRaisesRegex(TestbedError, "it failed"),
            ):
                runs.make()
            self.assertLess(time.monotonic() - begun, 20)
