"""elastiquant_testbed: testbed files, the command, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from elastiquant_testbed import (
    emulation,
    stopping,
    table4,
    testbed,
    training,
)
from elastiquant_testbed.__main__ import SOURCES
from elastiquant_testbed.experiments import EXPERIMENTS
from fake_training import FakeTraining


class TestbedFileTest(unittest.TestCase):
    def load(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "testbed.toml"
            path.write_text(text)
            return testbed.load(path)

    def test_the_sources_have_18_devices_of_four_classes(self):
        described = testbed.load(SOURCES)
        self.assertEqual(len(described.devices), 18)
        self.assertEqual(described.devices.count("jetson-xavier"), 7)
        self.assertEqual(described.network.kind, "air")

    def test_a_wrong_file_says_what_is_right(self):
        for text, words in (
            ("devices = 3", "has \\[\\[devices\\]\\]"),
            ("[[devices]]\ncount = 3", "class and count"),
            ('[[devices]]\nclass = "coral"\ncount = 0', "above 0"),
            ('[[devices]]\nclass = "coral"\n[network]\nspeed = 3', "kind, rate, delay"),
            (
                '[[devices]]\nclass = "coral"\n[network]\nkind = "string"',
                "valid are: air, links",
            ),
            ('[[devices]]\nclass = "coral"\ncuont = 4', "cuont is not known"),
            ('[[devices]]\nclass = "coral"\n[netwrok]\nrate = "5mbit"', "netwrok is not known"),
            ('[[devices]]\nclass = "coral"\ncount = true', "whole number"),
            ("devices = []", "no devices"),
            ("[[devices", "testbed.toml"),
        ):
            with self.subTest(text), self.assertRaisesRegex(testbed.TestbedError, words):
                self.load(text)

    def test_a_field_of_another_type_is_named(self):
        for field in ("delay = 10", "rate = 1.5", "crossings = true"):
            text = f'[[devices]]\nclass = "coral"\n[network]\n{field}'
            words = field.replace("=", "is").replace("true", "True") + "; it must be like"
            with self.subTest(field), self.assertRaisesRegex(testbed.TestbedError, words):
                self.load(text)

    def test_a_field_that_cannot_be_read_is_named(self):
        for field in ("delay", "jitter", "overhead", "loss"):
            network = testbed.Network(**{field: "little"})
            words = f"{field} of the testbed's network: 'little' is not a"
            with self.subTest(field), self.assertRaisesRegex(testbed.TestbedError, words):
                emulation.over_air(network, 2, [], 1000)


class StartingTest(unittest.TestCase):
    """What would fail at the end, after hours, fails before anything is run."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.out = Path(holder.name)

    def refused(self, out, **environment):
        """What is said by a testbed that would run a program which is not there."""
        package = Path(training.__file__).parent
        words = [sys.executable, "-B", package, "run", "table4", "--quick"]
        words += ["--out", out, "--program", self.out / "nowhere"]
        done = subprocess.run(
            words, capture_output=True, text=True, env={**os.environ, **environment}
        )
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("Traceback", done.stderr)
        return done.stderr

    def test_a_file_in_place_of_a_folder_is_named(self):
        file = self.out / "file"
        file.touch()
        for out in (file, file / "folder"):
            self.assertIn(f"--out {out}: a file is in the way", self.refused(out))

    def test_without_matplotlib_it_says_what_to_install(self):
        (self.out / "matplotlib.py").write_text("raise ImportError('hidden')")
        said = self.refused(self.out / "runs", PYTHONPATH=str(self.out))
        self.assertIn("make setup", said)
        self.assertFalse((self.out / "runs").exists())

    def test_a_program_that_is_not_there_is_named(self):
        self.assertIn(str(self.out / "nowhere"), self.refused(self.out / "runs"))


class StoppingTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.out = Path(holder.name)
        self.started = self.out / "started"
        self.program = self.out / "program"
        self.program.write_text(f"#!/bin/sh\necho $$ > {self.started}\nexec sleep 60\n")
        self.program.chmod(0o755)

    def begin(self, *more):
        """A testbed whose training has begun, and the process that trains."""
        package = Path(training.__file__).parent
        words = [sys.executable, "-B", package, "run", "table4", "--quick", *more]
        words += ["--out", self.out / "runs", "--program", self.program]
        process = subprocess.Popen(
            words, stderr=subprocess.PIPE, text=True, preexec_fn=hear_signals
        )
        self.addCleanup(process.kill)
        while process.poll() is None and not (
            self.started.exists() and self.started.read_text().strip()
        ):
            time.sleep(0.01)
        return process, int(self.started.read_text())

    def test_a_signal_ends_the_training_too(self):
        cases = [(signal.SIGTERM, ()), (signal.SIGINT, ()), (signal.SIGHUP, ())]
        cases.append((signal.SIGTERM, ("--jobs", "2")))
        for number, more in cases:
            with self.subTest(number, more=more):
                self.started.unlink(missing_ok=True)
                process, child = self.begin(*more)
                process.send_signal(number)
                _, said = process.communicate(timeout=30)
                self.assertEqual(process.returncode, 1)
                self.assertIn("stopped; what was measured is kept", said)
                self.assertNotIn("Traceback", said)
                # On a busy machine a process that was told to end does so a moment later.
                end = time.monotonic() + 20
                while is_running(child) and time.monotonic() < end:
                    time.sleep(0.01)
                self.assertFalse(is_running(child))

    def test_a_signal_that_is_ignored_stays_so(self):
        with mock.patch.object(signal, "signal") as changed:
            with mock.patch.object(signal, "getsignal", return_value=signal.SIG_IGN):
                stopping.on_signals()
            changed.assert_not_called()


def hear_signals():
    """Also where the tests run in the background, which ignores some."""
    for number in stopping.SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def is_running(pid):
    """Whether a process is there which has not ended."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@unittest.skipUnless("ELASTIQUANT_PROGRAM" in os.environ, "needs the program")
class ProgramTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.out = Path(holder.name)

    def run_program(self, *more):
        words = [os.environ["ELASTIQUANT_PROGRAM"], "testbed", "run", "table4", "--quick"]
        words += ["--minutes", "0", "--out", self.out / "here", *more]
        return subprocess.run([str(w) for w in words], capture_output=True, text=True)

    def test_known_runs_are_shown_when_there_is_no_time_for_others(self):
        with (
            mock.patch.object(training.subprocess, "run", FakeTraining().run),
            mock.patch.object(training, "say"),
        ):
            table4.Table4(None, self.out, training.Choice(True)).run()
        done = self.run_program("--known", self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        cells = json.loads((self.out / "here/table4.json").read_text())["cells"]
        self.assertEqual(len(cells), len(table4.RESNET_20))
        self.assertIn("| ResNet-20 | ATOMO |", done.stdout)
        self.assertGreater(os.path.getsize(self.out / "here/table4.png"), 10000)

    def test_classes_have_radios_and_an_unknown_one_is_named(self):
        described = testbed.load(SOURCES)
        self.assertEqual(len(emulation.radio_watts(described.devices)), 18)
        with self.assertRaisesRegex(testbed.TestbedError, "'abacus'.*jetson-nano"):
            emulation.radio_watts(["coral", "abacus"])

    def test_the_program_knows_all_experiments(self):
        words = [os.environ["ELASTIQUANT_PROGRAM"], "testbed", "run", "it", "--out", self.out]
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
        self.assertIn("{" + ",".join(EXPERIMENTS) + "}", done.stderr)

    def test_without_any_run_it_says_what_to_do(self):
        done = self.run_program()
        self.assertEqual(done.returncode, 1)
        self.assertIn("more --minutes", done.stderr)


if __name__ == "__main__":
    unittest.main()
