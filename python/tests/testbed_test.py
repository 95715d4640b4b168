"""elastiquant_testbed: testbed files, the command, and how it ends."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from elastiquant_testbed import __main__ as command
from elastiquant_testbed import (
    emulation,
    stopping,
    stored,
    table4,
    testbed,
    training,
)
from elastiquant_testbed.experiments import EXPERIMENTS
from elastiquant_testbed.testbed import SOURCES
from fake_training import FakeTraining

TWO = '[[devices]]\nclass = "coral"\ncount = 2\n'
NETWORK = TWO + "[network]\n"
CLASSES = {"coral": {"gflops": 8.0, "memory_gb": 1.0, "radio_watts": 1.0}}


class TestbedFileTest(unittest.TestCase):
    def load(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "testbed.toml"
            path.write_text(text)
            return testbed.load(path)

    def test_the_sources_have_18_devices_of_four_classes(self):
        described = testbed.load(SOURCES)
        classes = [device.name for device in described.devices]
        self.assertEqual(len(classes), 18)
        self.assertEqual(classes.count("jetson-xavier"), 7)
        self.assertEqual(described.network.kind, "air")

    def test_the_examples_of_the_page_are_testbeds(self):
        examples = re.findall(
            r"```toml\n(.*?)```", (stored.DOCS / "testbed.md").read_text(), re.DOTALL
        )
        links, air = (self.load(("" if "class" in text else TWO) + text) for text in examples)
        self.assertEqual(len(links.with_classes({"jetson-nano": CLASSES["coral"]}).devices), 4)
        self.assertEqual(links.rates(4, 20), [20, 20, 20, 5_000_000])
        self.assertTrue(air.network.vary)
        self.assertEqual(air.network.crossings, 2)

    def test_a_wrong_file_says_what_is_right(self):
        for text, words in (
            ("devices = 3", "has \\[\\[devices\\]\\]"),
            ("[[devices]]\ncount = 3", "needs a class"),
            ('[[devices]]\nclass = "coral"\ncount = 0', "above 0"),
            ("[[devices]]\nclass = 3", "like 'coral'"),
            (NETWORK + "speed = 3", "delay, jitter, kind, loss"),
            (NETWORK + 'kind = "string"', "valid are: air, links"),
            (NETWORK + "crossings = 3", "valid are: 1, 2"),
            ('[[devices]]\nclass = "coral"\ncuont = 4', "cuont is not known"),
            (TWO + '[netwrok]\nrate = "5mbit"', "netwrok is not known"),
            ('[[devices]]\nclass = "coral"\ncount = true', "whole number"),
            ("devices = []", "no devices"),
            ('[[devices]]\nclass = "coral"', "1 devices; it takes 2 to 64"),
            (TWO.replace("2", "65"), "65 devices; it takes 2 to 64"),
            (TWO.replace("2", "60") + TWO.replace("2", "5"), "65 devices"),
            ('compute = "fast"\n' + TWO, "valid are: printed, classes"),
            (TWO + "gflops = 0", "gflops is 0; it must be a number above 0"),
            (TWO + "memory_gb = nan", "memory_gb is nan"),
            (TWO + "gflops = 1" + 400 * "0", "0; it must be a number above 0"),
            (TWO + "gflops = 1" + 5000 * "0", "testbed.toml: "),
            (TWO + "radio_watts = -1", "radio_watts is -1; it must be a number of 0 or more"),
            (TWO + 'rate = ""', "rate: '' is not a rate"),
            (NETWORK + 'vary = ""', "vary is ''; it must be like '20mbit@10s,5mbit@5s'"),
            (TWO + 'radio_watts = "much"', "radio_watts is 'much'"),
            (TWO + 'rate = "5mbit"', 'rate of its own only where kind = "links"'),
            (NETWORK + 'kind = "links"\noverhead = "1us"', "leave them out"),
            (NETWORK + 'kind = "links"\ncrossings = 2', "leave them out"),
            (NETWORK + 'rate = "5mbit"\nvary = "5mbit@1s"', "rate or vary, not both"),
            (NETWORK + 'rate = "fit"', "takes 7 devices"),
            (
                TWO + 'rate = "5mbit"\n[network]\nkind = "links"\nrate = "1mbit"',
                "each device has a rate of its own",
            ),
            (
                TWO + 'rate = "5mbit"\n[network]\nkind = "links"\nvary = "5mbit@1s"',
                "one for all",
            ),
            ("[[devices", "testbed.toml"),
        ):
            with self.subTest(text), self.assertRaisesRegex(testbed.TestbedError, words):
                self.load(text)

    def test_a_field_of_another_type_is_named(self):
        for field in ("delay = 10", "rate = 1.5", "crossings = true", "vary = 3"):
            words = field.replace("=", "is").replace("true", "True") + "; it must be like"
            with self.subTest(field), self.assertRaisesRegex(testbed.TestbedError, words):
                self.load(NETWORK + field)

    def test_a_field_that_cannot_be_read_is_named(self):
        for field in ("rate", "delay", "jitter", "overhead", "loss"):
            for value in ("little", "1.2.3mbit", "-5mbit", "-1ms", "0mbit", "100%", "mbit", ""):
                text = f'{NETWORK}{field} = "{value}"'
                words = f"{field}: '{value}' is not a"
                with self.subTest(text), self.assertRaisesRegex(testbed.TestbedError, words):
                    self.load(text)
        with self.assertRaisesRegex(testbed.TestbedError, "'0.1' is not a rate"):
            self.load(TWO + 'rate = "0.1"')

    def test_what_cannot_be_emulated_is_refused(self):
        for field, value, words in (
            ("rate", 400 * "9" + "mbit", "not a rate"),
            ("delay", 400 * "9" + "ms", "1us to 1000s"),
            ("delay", "3000s", "1us to 1000s"),
            ("jitter", "0.1us", "1us to 1000s"),
            ("overhead", "0.4us", "1us to 1000s"),
            ("loss", "0.00001%", "0.0001% to 99.9999%"),
            ("loss", "99.99999%", "0.0001% to 99.9999%"),
        ):
            with (
                self.subTest(field, value=value[-9:]),
                self.assertRaisesRegex(testbed.TestbedError, words),
            ):
                self.load(f'{NETWORK}{field} = "{value}"')
        least = self.load(NETWORK + 'delay = "0.6us"\nloss = "0.0001%"\njitter = "1000s"')
        self.assertEqual(testbed.parse_delay(least.network.delay), 1)

    def test_a_device_is_as_its_class_but_for_what_the_file_says(self):
        text = TWO + "gflops = 20\nradio_watts = 0\n"
        device = self.load(text).with_classes(CLASSES).devices[0]
        self.assertEqual((device.gflops, device.memory_gb, device.radio_watts), (20, 1, 0))

    def test_a_class_of_the_users_own_needs_all_values(self):
        text = '[[devices]]\nclass = "abacus"\ncount = 2\ngflops = 1\nradio_watts = 1\n'
        words = "'abacus' is not known; valid are: coral. .* memory_gb"
        with self.assertRaisesRegex(testbed.TestbedError, words):
            self.load(text).with_classes(CLASSES)
        own = self.load(text + "memory_gb = 2").with_classes(CLASSES)
        self.assertEqual([device.name for device in own.devices], ["abacus"] * 2)


class FakeLab:
    """Networks of namespaces that cannot be made, or that run nothing."""

    Air, LabError = emulation.lab("namespaces").Air, emulation.lab("namespaces").LabError

    def __init__(self, fails=""):
        self.fails = fails

    def Network(self, devices, rates=None, delay=0, jitter=0, loss=0, air=None, trace=None):
        if self.fails:
            raise self.LabError(self.fails)
        self.made = (devices, rates, delay, jitter, loss, air)
        self.trace = trace and trace.read_text()
        return mock.MagicMock()


class EmulationTest(unittest.TestCase):
    def over_air(self, text, devices=2):
        """The network that a testbed's file becomes."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "testbed.toml"
            path.write_text(text)
            (Path(folder) / "rates.txt").write_text("2 5e6\n1 20e6\n")
            made, real = FakeLab(), emulation.lab
            with mock.patch.object(
                emulation, "lab", lambda name: made if name == "namespaces" else real(name)
            ):
                emulation.over_air(testbed.load(path), devices, [], 50_000_000)
        return made

    def test_air_is_as_the_file_says(self):
        text = NETWORK + 'delay = "5ms"\njitter = "2ms"\nloss = "1%"\noverhead = "80us"\n'
        made = self.over_air(text + "crossings = 2")
        air = FakeLab.Air(50_000_000, 80, 2)
        self.assertEqual(made.made, (2, None, 5000, 2000, 0.01, air))
        self.assertIsNone(made.trace)

    def test_links_have_rates_of_their_own_or_that_of_all(self):
        one = '[[devices]]\nclass = "coral"\nrate = "5mbit"\n'
        made = self.over_air(one + TWO + '[network]\nkind = "links"', devices=3)
        self.assertEqual(made.made[1], [5_000_000, 50_000_000, 50_000_000])
        self.assertIsNone(made.made[5])

    def test_rates_vary_as_the_file_says(self):
        for vary, lines in (
            ("5mbit@2s,20mbit@1s", ["2.000000 5000000", "1.000000 20000000"]),
            ("rates.txt", ["2.000000 5000000", "1.000000 20000000"]),
            ("walk:low=20mbit,high=20mbit,every=300s", ["300.000000 20000000"] * 2),
        ):
            with self.subTest(vary):
                made = self.over_air(f'{NETWORK}vary = "{vary}"')
                self.assertEqual(made.trace.splitlines(), lines)
                self.assertEqual(made.made[5].bits_per_second, 20_000_000)
        made = self.over_air(f'{NETWORK}kind = "links"\nvary = "5mbit@2s,20mbit@1s"')
        self.assertEqual((made.made[1], made.made[5]), (20_000_000, None))
        with self.assertRaisesRegex(testbed.TestbedError, "vary of .*nowhere.txt"):
            self.over_air(f'{NETWORK}vary = "nowhere.txt"')

    def test_what_stands_in_the_way_of_namespaces_is_what_was_met(self):
        for lab, words in (
            (None, "folder lab"),
            (FakeLab("it needs root"), "it needs root"),
            (FakeLab("`ip netns add` failed"), "`ip netns add` failed"),
        ):
            with self.subTest(words), mock.patch.object(emulation, "lab", lambda _, m=lab: m):
                self.assertIn(words, emulation.obstacle())
        with mock.patch.object(emulation, "lab", lambda _: FakeLab()):
            self.assertEqual(emulation.obstacle(), "")

    def test_links_that_are_paced_have_their_part_of_the_air_or_the_lowest_rate(self):
        one = '[[devices]]\nclass = "coral"\nrate = "5mbit"\n'
        for text, rate in (
            (TWO, "25000.000kbit,0ms"),
            (one + TWO + '[network]\nkind = "links"\ndelay = "3ms"', "5000.000kbit,3ms"),
        ):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "testbed.toml"
                path.write_text(text)
                described = testbed.load(path)
            with mock.patch.object(emulation, "run") as run:
                emulation.over_paced_links(described, 2, ["train"], 50_000_000)
            self.assertEqual(run.call_args[0][0], ["train", "--workers", 2, "--link", rate])


class StartingTest(unittest.TestCase):
    """What would fail at the end, after hours, fails before anything is run."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.out = Path(holder.name)

    def refused(self, out, *more, code=1, **environment):
        """What is said by a testbed that would run a program which is not there."""
        package = Path(training.__file__).parent
        words = [sys.executable, "-B", package, "run", "table4", "--quick", *more]
        words += ["--out", out, "--program", self.out / "nowhere"]
        done = subprocess.run(
            words, capture_output=True, text=True, env={**os.environ, **environment}
        )
        self.assertEqual(done.returncode, code)
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

    def test_a_testbed_that_would_have_no_effect_is_refused(self):
        said = self.refused(self.out / "runs", "--testbed", SOURCES, code=2)
        self.assertIn("table4 trains networks and times nothing: leave out --testbed", said)

    def test_minutes_that_are_no_number_are_refused(self):
        for minutes in ("nan", "inf", "-1"):
            words = ["run", "table4", "--out", "x", "--minutes", minutes]
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                command.parse(words)
            self.assertIn(f"{minutes} is not a number of minutes", said.getvalue())

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


class StoredTest(unittest.TestCase):
    def test_a_result_of_another_testbed_is_not_stored(self):
        result = stored.load()["table3"]
        own = {**testbed.load(SOURCES).described(), "compute": "classes", "file": "own.toml"}
        for told, names in (
            (None, ["table3"]),  # of results before the field there was no other
            (testbed.load(SOURCES).described(), ["table3"]),
            (own, []),
        ):
            with tempfile.TemporaryDirectory() as folder:
                runs, kept = Path(folder) / "runs", Path(folder) / "kept"
                runs.mkdir()
                written = {**result, "testbed": told} if told else result
                (runs / "table3.json").write_text(json.dumps(written))
                with mock.patch.object(stored, "say") as say:
                    self.assertEqual(stored.take(runs, kept), names)
                self.assertEqual(list(stored.load(kept)), names)
        self.assertIn("not stored: it is of the testbed own.toml", say.call_args[0][0])


@unittest.skipUnless("ELASTIQUANT_PROGRAM" in os.environ, "needs the program")
class ProgramTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.out = Path(holder.name)

    def run_program(self, *more):
        words = [os.environ["ELASTIQUANT_PROGRAM"], "testbed", "run", "table4", "--quick"]
        words += ["--out", self.out / "here", *(more or ["--minutes", "0"])]
        return subprocess.run([str(w) for w in words], capture_output=True, text=True)

    def test_known_runs_are_shown_when_there_is_no_time_for_others(self):
        with (
            mock.patch.object(training.subprocess, "run", FakeTraining().run),
            mock.patch.object(training, "say"),
        ):
            table4.Table4(None, self.out, training.Choice(True)).run()
        done = self.run_program("--minutes", "0", "--known", self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        cells = json.loads((self.out / "here/table4.json").read_text())["cells"]
        self.assertEqual(len(cells), len(table4.RESNET_20))
        self.assertIn("| ResNet-20 | ATOMO |", done.stdout)
        self.assertGreater(os.path.getsize(self.out / "here/table4.png"), 10000)

    def test_the_program_refuses_minutes_that_are_no_number(self):
        done = self.run_program("--minutes", "nan")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--minutes: nan is not a number of minutes", done.stderr)
        self.assertNotIn("argument --minutes", done.stderr)  # as Python would say it

    def test_what_is_wrong_with_files_and_options_is_wrong_usage(self):
        broken = self.out / "broken.toml"
        broken.write_text("[[devices]]\nclass = ")
        for words, why in (
            (["table4", "--data", self.out], "is not CIFAR-10"),
            (["table3", "--testbed", broken], "broken.toml"),
            (["table3", "--precision", "bf16"], "leave out --precision"),
            (["table4", "--known", self.out], "there are no runs in"),
            (["levels", "--data=-none"], "--data -none is not CIFAR-10"),
        ):
            run = [os.environ["ELASTIQUANT_PROGRAM"], "testbed", "run", *words]
            run += ["--quick", "--out", self.out / "out"]
            done = subprocess.run([str(w) for w in run], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(why, done.stderr)

    def test_the_classes_of_the_sources_are_known(self):
        described = testbed.load(SOURCES).with_classes(emulation.classes())
        self.assertTrue(all(device.gflops > 0 for device in described.devices))

    def test_without_namespaces_steps_take_their_time_all_the_same(self):
        described = testbed.Testbed(
            (testbed.Device("coral"), testbed.Device("coral")), testbed.Network()
        )
        gradients = emulation.record_gradients("resnet20", 1, self.out / "recorded")
        run, options = self.out / "run", ["--codec", "fp32", "--bucket-kib", 1 << 20]
        words = emulation.train_words("resnet20", gradients, "0.1s,0.3s", 3, run, options)
        step = emulation.measure(described, 2, words, 40_000_000, run, False)
        # A MB in fp32 goes to the other at half of 40 Mbit/s, once the slower has computed.
        self.assertGreater(step.total, 0.3 + 0.4)
        self.assertLess(step.total, 0.3 + 1.5)

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
