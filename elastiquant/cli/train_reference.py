"""Runs of two workers for 12 steps, and what came of one that nothing has disturbed."""

import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import train_testing
from train_testing import RESNET, lines, run, summary

STEPS = 12
COMMON = RESNET | {
    "workers": "2",
    "codec": "elastic:bits=4",
    "checkpoint_every": "4",
    "steps": str(STEPS),
    "measure_every": "5",
}


def command_line(out, *flags, **options):
    return train_testing.command_line(COMMON, out, *flags, **options)


def train(out, *flags, **options):
    return run(command_line(out, *flags, **options), timeout=120)


def start(out, *flags, **options):
    """The process under way, leader of a process group of its own."""
    return subprocess.Popen(
        command_line(out, *flags, **options),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def metrics(out):
    """The lines of metrics.jsonl without what depends on the clock."""
    found = lines(out)
    for line in found:
        del line["seconds"], line["images_per_second"]
    return found


def certificate(out):
    return lines(out, "certificate.jsonl")


def steps_done(out):
    file = out / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def workers_of(process):
    """The process ids of a launcher's workers, by rank."""
    by_rank = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            name = (folder / "comm").read_text().strip()
        except (OSError, IndexError):
            continue  # it ended while we looked
        if parent == process.pid and name.startswith("elastiquant:"):
            by_rank[int(name.split(":")[1])] = int(folder.name)
    return by_rank


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


class ReferenceTest(unittest.TestCase):
    """A test of what a run does in a folder of its own, beside the undisturbed one."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="eq_train_")
        cls.root = Path(cls.folder.name)
        cls.reference = cls.root / "reference"
        done = train(cls.reference)
        assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def out(self):
        return self.root / self.id().rsplit(".", 1)[1]

    def wait_until(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, "nothing happened in time")
            time.sleep(0.05)

    def kill_and_resume(self, out, *flags, **options):
        """The finished run, which a kill in its step 7 has broken off before."""
        inject = "kill@step=7,rank=1"
        killed = train(out, "--overwrite", *flags, inject=inject, **options)
        self.assertEqual(killed.returncode, 3, killed.stderr)
        resumed = train(out, "--resume", *flags, **options)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        return resumed

    def train_twice(self, *flags, **options):
        """The folders of a run that nothing disturbs, and of one that is killed and resumed."""
        whole, broken = self.out() / "whole", self.out() / "broken"
        done = train(whole, "--overwrite", *flags, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.kill_and_resume(broken, *flags, **options)
        return whole, broken

    def expect_same_certificate(self, lines, expected):
        """But for the order in which threads add up."""
        self.assertEqual(len(lines), len(expected))
        self.assertGreater(len(lines), 0)
        for line, other in zip(lines, expected, strict=True):
            self.assertIn(line["verdict"], ("holds", "loose"))
            self.assertEqual(line.keys(), other.keys())
            for key, value in line.items():
                if isinstance(value, float):
                    self.assertAlmostEqual(value, other[key], delta=1e-9 * abs(value))
                else:
                    self.assertEqual(value, other[key], key)

    def expect_same_as_reference(self, out):
        self.assertEqual(summary(out)["weights_hash"], summary(self.reference)["weights_hash"])
        self.assertEqual(
            summary(out)["test_accuracy"], summary(self.reference)["test_accuracy"]
        )
        self.assertEqual(summary(out)["bytes_up"], summary(self.reference)["bytes_up"])
        self.expect_same_certificate(certificate(out), certificate(self.reference))
        self.assertEqual(metrics(out), metrics(self.reference))
